// Runs before the first paint, so that no page flashes in the other colors.
try {
  const chosen = localStorage.getItem("penstock-theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
} catch { /* storage may be forbidden; then the system's colours count */ }
