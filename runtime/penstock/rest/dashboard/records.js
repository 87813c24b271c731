// The last records on an edge of a vertex, on request.
import { ask } from "./api.js";
import { clock, h, panel, put, table } from "./dom.js";

const WAIT_S = 5;

export function recordsPanel(job, vertex) {
  const out = h("div", { role: "status" }, h("div.empty", null, "Shows the next records on an edge. Nothing is recorded before you ask."));
  const edge = h("select", { "aria-label": "Edge" });
  const go = h("button", { type: "button", disabled: true, onclick: async () => {
    go.disabled = true; put(out, h("div.empty", null, "Waiting for records …"));
    try {
      const query = new URLSearchParams({ edge: edge.value, limit: "20", seconds: String(WAIT_S) });
      const { records } = await ask(`jobs/${job}/edges/records?${query}`);
      put(out, table({
        caption: `Last records on ${edge.selectedOptions[0].textContent}`, rows: records, empty: `No record within ${WAIT_S} seconds.`,
        columns: [
          ["Emitted", (r) => clock(r.seenAt), { num: true }], ["Subtask", (r) => `#${r.subtask}`],
          ["Event time", (r) => (r.timestamp === null ? "–" : new Date(r.timestamp).toISOString())],
          ["Key", (r) => (r.key === null ? "–" : h("code.wrap", null, r.key)), { wide: true }], ["Record", (r) => h("code.wrap", null, r.value), { wide: true }],
        ],
      }));
    } catch (error) { put(out, h("div.error", { role: "alert" }, error.message)); } finally { go.disabled = false; }
  } }, "Show");
  const uids = new Set(vertex.operators.map((one) => one.uid));
  ask(`jobs/${job}/edges`).then(({ edges }) => {
    const own = edges.filter((one) => uids.has(one.uid) || uids.has(one.targetUid));
    const side = (one) => (one.sideOutput === null ? "" : ` [${one.sideOutput}]`);
    put(edge, own.map((one) => h("option", { value: `${one.uid}${side(one)} → ${one.targetUid}` }, one.name)));
    go.disabled = !own.length;
    if (!own.length) put(out, h("div.empty", null, "The vertex has no edges."));
  }, (error) => put(out, h("div.error", { role: "alert" }, error.message)));
  return panel(h("div.bar", { style: { flex: "1" } }, h("h2", null, "Last records"), h("span.grow"), edge, go), out);
}
