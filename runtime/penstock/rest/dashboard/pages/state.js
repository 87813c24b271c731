// What the newest checkpoint holds: by key, or the first entries of all.
import { ask } from "../api.js";
import { bytes, dur, h, panel, put, table, when } from "../dom.js";

export default async function page({ main, job, rest, go }) {
  const { states } = await ask(`jobs/${job}/state`);
  const [uid, name] = rest;
  const chosen = states.find((one) => one.uid === uid && one.name === name) || null;
  main.append(panel("States in the newest checkpoint", table({
    caption: "States", rows: states, go: (r) => go(`#/jobs/${job}/state/${encodeURIComponent(r.uid)}/${encodeURIComponent(r.name)}`), isOn: (r) => r === chosen, empty: "No operator keeps state.",
    columns: [["Name", (r) => h("a", { href: `#/jobs/${job}/state/${encodeURIComponent(r.uid)}/${encodeURIComponent(r.name)}` }, r.name), { sort: (r) => r.name }], ["Kind", (r) => r.kind], ["Operator", (r) => r.operator, { sort: (r) => r.operator }], ["Uid", (r) => h("code", null, r.uid)], ["Bytes of the operator", (r) => (r.operatorBytes ? bytes(r.operatorBytes) : "–"), { num: true, sort: (r) => r.operatorBytes }]],
  })));
  if (!chosen) return {};
  const key = h("input", { type: "search", id: "key", placeholder: 'text, 7, ["a", 1]', size: 28 }), box = h("div", null, h("div.empty", null, "…")), about = h("span.muted");
  const look = async () => {
    const asked = key.value.trim(), query = new URLSearchParams({ uid: chosen.uid, limit: "100" });
    if (asked) query.set("key", asked);
    try {
      const found = await ask(`jobs/${job}/state/${encodeURIComponent(chosen.name)}?${query}`);
      const names = [...new Set(found.entries.flatMap((entry) => Object.keys(entry)))];
      const show = (v) => h("code.wrap", null, typeof v === "string" ? v : JSON.stringify(v));
      put(about, `As of checkpoint ${found.checkpointId}, ${when(found.timestamp)} (${dur(Date.now() - found.timestamp)} ago)${found.truncated ? "; the first 100" : ""}`);
      put(box, table({ caption: `Entries of ${chosen.name}`, rows: found.entries, page: 100, empty: asked ? "This key has none." : "It is empty.", columns: names.map((one) => [one, (r) => (r[one] === undefined ? "" : show(r[one])), { wide: true }]) }));
    } catch (error) { put(box, h("div.error", { role: "alert" }, error.message, error.remedy ? h("div", null, error.remedy) : null)); }
  };
  const form = h("form.bar", { onsubmit: (event) => { event.preventDefault(); look(); } }, h("label", { for: "key" }, "Key"), key, h("button.main", { type: "submit" }, "Look up"), h("button", { type: "button", onclick: () => { key.value = ""; look(); } }, "Scan"));
  main.append(panel(h("div.bar", { style: { flex: "1" } }, h("h2", null, chosen.name), about, h("span.grow"), form), box));
  await look();
  return {};
}
