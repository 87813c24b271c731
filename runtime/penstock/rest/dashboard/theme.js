// Before anything is painted, so that no page flashes in the other colours.
try {
  const chosen = localStorage.getItem("penstock-theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
} catch { /* storage may be forbidden; then the system's colours count */ }
