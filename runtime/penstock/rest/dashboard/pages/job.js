// The job graph, and the details of the selected vertex.
import { flame } from "../flame.js";
import { ask, every } from "../api.js";
import { badge, bytes, clock, dur, h, num, panel, percent, pretty, put, table, text } from "../dom.js";
import { bottleneck, jobGraph } from "../graph.js";
import { metricsPanel } from "../metrics.js";
import { bars, plot } from "../plots.js";
import { recordsPanel } from "../records.js";

const SERIES = [
  ["Records/s", [{ label: "in", name: "recordsInPerSecond", colour: "in", write: num, fill: true }, { label: "out", name: "recordsOutPerSecond", colour: "out", write: num }], null],
  // The busiest subtask is drawn last: with one subtask its line covers the mean, and not the other way round.
  ["Busy and back-pressured", [{ label: "mean busy", name: "busy", times: 100, colour: "lag", write: (v) => `${Math.round(v)} %`, dash: [4, 3] }, { label: "back-pressured", name: "backPressured", times: 100, colour: "pressed", write: (v) => `${Math.round(v)} %` }, { label: "busiest", name: "busiest", times: 100, colour: "busy", write: (v) => `${Math.round(v)} %` }], 105],
  ["Watermark lag", [{ label: "lag", name: "watermarkLag", colour: "lag", write: dur, fill: true }], null, "The vertex has no watermark yet."],
];
const JOB_SERIES = [
  ["Records read/s", [{ label: "read by all sources", name: "recordsPerSecond", colour: "in", write: num, fill: true }], null],
  ["Unread input", [{ label: "records or bytes", name: "lag", colour: "lag", write: num, fill: true }], null, "The sources do not know how much input is unread."],
  ["Epoch", [{ label: "duration", name: "epochDuration", colour: "out", write: dur }], null],
];

export default async function page({ main, job, rest, go }) {
  const graph = jobGraph((id) => go(id === picked ? `#/jobs/${job}/graph` : `#/jobs/${job}/graph/${id}`));
  const picked = rest[0] || null;
  const legend = h("div.legend", null, [["idle", "idle"], ["out", "at work"], ["busy", "busy"], ["pressed", "back-pressured"]].map(([name, label]) => h("span", null, h("i", { style: { background: `var(--${name})` } }), label)));
  const below = h("div", { style: { display: "contents" } }), slowest = h("p.in.bottleneck");
  main.append(panel(h("div.bar", { style: { flex: "1" } }, h("h2", null, "Job graph"), h("span.muted", null, "Rates are means of about 10 seconds"), h("span.grow"), legend), slowest, graph.root), below);
  graph.pick(picked);
  let detail = null;
  return {
    job(picture) {
      graph.show(picture); graph.pick(picked); text(slowest, bottleneck(picture.vertices));
      const vertex = picture.vertices.find((one) => one.id === picked);
      if (!detail && picture) { detail = vertex ? vertexDetail(below, job, vertex) : jobPlots(below, job); }
      if (detail && detail.show) detail.show(picture, vertex);
    },
    close() { if (detail) detail.close(); },
  };
}

function plots(specs) {
  const boxes = specs.map(([title, series, max, empty]) => {
    const box = h("div.plot");
    return { element: panel(title, h("div.in", null, box)), plot: plot(box, { title: `${title}, over the last hour`, series, max, empty, sync: "job" }) };
  });
  return { elements: boxes.map((one) => one.element), show: (data) => boxes.forEach((one) => one.plot.show(data)), close: () => boxes.forEach((one) => one.plot.close()) };
}

function jobPlots(below, job) {
  const drawn = plots(JOB_SERIES);
  put(below, h("div.cols", null, drawn.elements));
  const stop = every(5000, async () => drawn.show(await ask(`jobs/${job}/history`)));
  return { close() { stop(); drawn.close(); } };
}

function vertexDetail(below, job, vertex) {
  const drawn = plots(SERIES);
  const metrics = metricsPanel(job, vertex);
  const canvas = h("canvas.bars", { role: "img" }), about = h("p.muted");
  let metric = "inPerSecond", rows = [];
  const METRICS = { inPerSecond: ["Records/s in", num, "in"], outPerSecond: ["Records/s out", num, "out"], busy: ["Busy", percent, "busy"], backPressured: ["Back-pressured", percent, "pressed"] };
  const choose = h("select", { "aria-label": "Values of the bars", onchange: () => { metric = choose.value; showBars(); } }, Object.entries(METRICS).map(([key, [label]]) => h("option", { value: key }, label)));
  const list = table({
    caption: "Subtasks", rows: [], sortBy: 0,
    columns: [
      ["Subtask", (r) => `#${r.subtask}`, { sort: (r) => r.subtask }], ["State", (r) => badge(r.state), { sort: (r) => r.state }],
      ["In", (r) => num(r.recordsIn), { num: true, sort: (r) => r.recordsIn }], ["Out", (r) => num(r.recordsOut), { num: true, sort: (r) => r.recordsOut }],
      ["In/s", (r) => num(r.inPerSecond), { num: true, sort: (r) => r.inPerSecond }], ["Out/s", (r) => num(r.outPerSecond), { num: true, sort: (r) => r.outPerSecond }],
      ["Busy", (r) => percent(r.busy), { num: true, sort: (r) => r.busy }], ["Back-pressured", (r) => h("span.nowrap", null, percent(r.backPressured), " ", level(r.backPressure)), { num: true, sort: (r) => r.backPressured }],
      ["Watermark", (r) => (r.watermark ? clock(r.watermark) : "–"), { num: true, sort: (r) => r.watermark || 0 }],
      ["Key groups", (r) => `${r.firstKeyGroup}–${r.lastKeyGroup}`, { num: true }],
      ["TaskManager", (r) => h("a", { href: `#/taskmanagers/${r.taskManager}` }, r.taskManager || "–"), { sort: (r) => r.taskManager }],
      ["Log", (r) => (r.taskManager ? h("a", { href: `#/taskmanagers/${r.taskManager}/${encodeURIComponent(vertex.operators.map((one) => `${one.name} #${r.subtask},`).join(" | "))}`, "aria-label": `Log of subtask #${r.subtask}` }, "log") : "–")],
    ],
  });
  const states = h("div", null, h("div.empty", null, "…"));
  const operators = h("div.in", null, h("dl.kv", null, vertex.operators.map((one) => [h("dt", null, one.name), h("dd.mono", null, one.uid)]).flat()));
  function showBars() {
    if (!rows.length) return;
    const values = rows.map((r) => r[metric]), [label, write, colourName] = METRICS[metric], most = Math.max(...values), mean = values.reduce((a, b) => a + b, 0) / values.length;
    bars(canvas, values, colourName);
    const said = `${label}: highest ${write(most)} (subtask #${rows[values.indexOf(most)].subtask}), mean ${write(mean)}${mean > 0 ? `, ${(most / mean).toFixed(1)} times the mean` : ""}`;
    canvas.setAttribute("aria-label", said); text(about, said);
  }
  put(below, h("h2", null, pretty(vertex.name)), h("div.cols", null, drawn.elements),
    panel(h("div.bar", { style: { flex: "1" } }, h("h2", null, `Subtasks (${vertex.parallelism})`), h("span.grow"), choose), h("div.in", null, canvas, about), list),
    h("div.cols", null, panel("State in the newest checkpoint", states), panel("Operators and their uids", operators)), metrics.root, recordsPanel(job, vertex), lookInto(job, vertex));
  const stops = [
    every(2000, async () => {
      const found = await ask(`jobs/${job}/vertices/${vertex.id}/load`);
      rows = found.rows.map((row) => Object.fromEntries(found.columns.map((name, i) => [name, row[i]])));
      list.renew(rows); showBars();
    }),
    every(5000, async () => drawn.show(await ask(`jobs/${job}/history?vertex=${vertex.id}`))),
  ];
  const uids = new Set(vertex.operators.map((one) => one.uid));
  ask(`jobs/${job}/state`).then((found) => {
    const own = found.states.filter((one) => uids.has(one.uid));
    put(states, table({ caption: "States", rows: own, empty: "No operator of this vertex has state.", columns: [
      ["Name", (r) => h("a", { href: `#/jobs/${job}/state/${encodeURIComponent(r.uid)}/${encodeURIComponent(r.name)}` }, r.name)], ["Kind", (r) => r.kind], ["Operator", (r) => r.operator], ["Bytes of the operator", (r) => (r.operatorBytes ? bytes(r.operatorBytes) : "–"), { num: true }]] }));
  }, (error) => put(states, h("div.empty", null, error.message)));
  return { close() { stops.forEach((stop) => stop()); drawn.close(); metrics.close(); } };
}

const level = (name) => h(`span.badge.${{ ok: "ok", low: "warn", high: "bad" }[name]}`, null, name.toUpperCase());

/** A flame graph on demand, because sampling takes some of the subtasks' time. */
function lookInto(job, vertex) {
  const out = h("div", null, h("div.empty", null, "Samples the stacks of its threads for three seconds, fifty times a second."));
  const choose = (label, options) => h("select", { "aria-label": label }, options.map(([value, name]) => h("option", { value }, name)));
  const subtask = choose("Subtask", [["", "All subtasks"], ...Array.from({ length: vertex.parallelism }, (_, i) => [String(i), `Subtask #${i}`])]);
  const kind = choose("What", [["full", "All samples"], ["on_cpu", "What runs"], ["off_cpu", "What waits"]]);
  const go = h("button", { type: "button", onclick: async () => {
    go.disabled = true; put(out, h("div.empty", null, "Looking …"));
    try {
      const found = await ask(`jobs/${job}/vertices/${vertex.id}/flamegraph?type=${kind.value}${subtask.value ? `&subtaskindex=${subtask.value}` : ""}`);
      put(out, flame(found.root));
    } catch (error) { put(out, h("div.error", { role: "alert" }, error.message)); } finally { go.disabled = false; }
  } }, "Sample");
  return panel(h("div.bar", { style: { flex: "1" } }, h("h2", null, "Flame graph"), h("span.grow"), subtask, kind, go), out);
}
