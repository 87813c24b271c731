// All metrics of a vertex, those of the user's functions included. A selected one has a plot and a value for each subtask.
import { ask, every } from "./api.js";
import { clock, h, num, panel, put, table, text } from "./dom.js";
import { plot } from "./plots.js";

const SAMPLES = 900; // at one sample every 2 s: half an hour
const OF_ENGINE = /^(num|busy|idle|backPressured|current|in|out|is|last|epoch)[A-Za-z]*$/;
const kept = new Map(); // vertex -> {name, times, series}: a selection and its samples survive a change of the page

export function metricsPanel(job, vertex) {
  const key = `${job}/${vertex.id}`, path = `jobs/${job}/vertices/${vertex.id}`;
  let all = [], chosen = kept.get(key) || null;
  const search = h("input", { type: "search", "aria-label": "Search metrics", placeholder: "Search", oninput: () => list.renew(shown()) });
  const shown = () => all.filter((one) => one.id.toLowerCase().includes(search.value.trim().toLowerCase()));
  const list = table({
    caption: "Metrics", rows: [], page: 12, sortBy: 0, empty: "No metric has this name, or the vertex has not reported any yet.",
    go: (one) => pick(chosen && chosen.name === one.id ? null : one.id), isOn: (one) => Boolean(chosen) && chosen.name === one.id,
    columns: [
      ["Metric", (one) => h("button.link.mono", { type: "button", "aria-pressed": String(Boolean(chosen) && chosen.name === one.id), onclick: () => pick(chosen && chosen.name === one.id ? null : one.id) }, one.id), { sort: order }],
      ["Sum", (one) => (isTime(one.id) ? "–" : num(one.sum)), { num: true, sort: (one) => one.sum }],
      ...[["Lowest", "min"], ["Mean", "avg"], ["Highest", "max"]].map(([label, of]) => [label, (one) => writer(one.id)(one[of]), { num: true, sort: (one) => one[of] }]),
    ],
  });
  const subtasks = table({ caption: "Metric by subtask", rows: [], page: 20, sortBy: 0, columns: [["Subtask", (r) => `#${r.subtask}`, { sort: (r) => r.subtask }], ["Value", (r) => (Number.isFinite(r.value) ? writer(chosen ? chosen.name : "")(r.value) : r.text), { num: true, sort: (r) => r.value }]] });
  const title = h("h3.mono"), box = h("div.plot"), detail = h("div.cols", null, h("div.in", null, title, box), subtasks);
  let drawn = null;
  detail.hidden = true;

  function open() {
    if (drawn) drawn.close();
    drawn = null; put(box); detail.hidden = !chosen;
    if (!chosen) return;
    text(title, chosen.name);
    const write = writer(chosen.name);
    drawn = plot(box, { title: `${chosen.name}, since it was selected`, zero: false, empty: "The plot starts with the selection of the metric.", series: [
      { label: "highest", name: "max", colour: "busy", write }, { label: "mean", name: "avg", colour: "in", write }, { label: "lowest", name: "min", colour: "out", write }] });
    drawn.show(chosen);
  }

  function pick(name) {
    chosen = name && { name, times: [], series: { min: [], avg: [], max: [] } };
    if (chosen) kept.set(key, chosen); else kept.delete(key);
    open(); list.renew(shown()); renew();
  }

  async function renew() {
    const names = (await ask(`${path}/subtasks/metrics`)).map((one) => one.id);
    if (!names.length) return;
    const mine = chosen, get = (names) => names.map(encodeURIComponent).join(",");
    // The names of a vertex with many operators would be too long for one address.
    const parts = [];
    for (let i = 0; i < names.length; i += 40) parts.push(ask(`${path}/subtasks/metrics?get=${get(names.slice(i, i + 40))}`));
    all = (await Promise.all(parts)).flat();
    list.renew(shown());
    if (!mine || mine !== chosen) return;
    const values = await ask(`${path}/metrics?get=${get(Array.from({ length: vertex.parallelism }, (_, i) => `${i}.${mine.name}`).slice(0, 100))}`);
    if (mine !== chosen) return;
    subtasks.renew(values.map((one) => ({ subtask: Number(one.id.split(".", 1)[0]), value: Number(one.value), text: one.value })));
    const now = all.find((one) => one.id === mine.name);
    if (!now) return;
    mine.times.push(Date.now());
    for (const of of ["min", "avg", "max"]) mine.series[of].push(now[of]);
    if (mine.times.length > SAMPLES) { mine.times.shift(); for (const of of ["min", "avg", "max"]) mine.series[of].shift(); }
    drawn.show(mine);
  }

  open();
  const stop = every(2000, renew);
  return { root: panel(h("div.bar", { style: { flex: "1" } }, h("h2", null, "Metrics"), h("span.muted", null, "Select one to plot it."), h("span.grow"), search), detail, list), close() { stop(); if (drawn) drawn.close(); } };
}

const isTime = (name) => /Watermark$/.test(name);
const writer = (name) => (isTime(name) ? clock : (value) => num(value));
/** Metrics of functions come first. */
const order = (one) => `${OF_ENGINE.test(one.id) ? 1 : 0}${one.id}`;
