import { ask } from "../api.js";
import { h, panel, put, table } from "../dom.js";

export default async function page({ main, job }) {
  const { settings } = await ask(`jobs/${job}/configuration`);
  const find = h("input", { type: "search", placeholder: "Search keys, values and meanings", "aria-label": "Find", size: 32, oninput: () => draw() });
  const all = h("input", { type: "checkbox", id: "all", onchange: () => draw() }), box = h("div");
  const draw = () => {
    const word = find.value.trim().toLowerCase();
    const rows = settings.filter((one) => (all.checked || word || one.source !== "default") && (!word || `${one.key} ${one.value} ${one.meaning}`.toLowerCase().includes(word)));
    put(box, table({ caption: "Configuration", rows, page: 300, empty: "No option is set. All options have their defaults.", columns: [
      ["Key", (r) => h("code.nowrap", null, r.key), { sort: (r) => r.key }], ["Value", (r) => h("code.wrap", null, r.value || "(not set)"), { wide: true }],
      ["From", (r) => (r.source === "default" ? h("span.muted.nowrap", null, "default") : h("span.nowrap", null, r.source === "job" ? "the job" : "the cluster")), { sort: (r) => r.source }], ["Meaning", (r) => h("span.muted", null, r.meaning), { wide: true }]] }));
  };
  main.append(panel(h("div.bar", { style: { flex: "1" } }, h("h2", null, "Configuration in effect"), h("span.grow"), h("label", { for: "all" }, all, " with defaults"), find), box));
  draw();
  return {};
}
