// All events of the job on one time line. Drag or use the wheel to zoom. Every bar links to its detail.
import { ask, every } from "../api.js";
import { badge, bytes, clock, dur, h, num, panel, pretty, put, s, when } from "../dom.js";
import { plot } from "../plots.js";

const LEFT = 92, ROW = 26, TOP = 22;
const LANES = ["State", "Checkpoints", "Savepoints", "Rescales", "Failures"];

export default async function page({ main, job, go }) {
  let data = null, span = null, chosen = null, history = null;
  const drawing = h("div.lanes", { tabindex: "0", role: "group", "aria-label": "Timeline; arrow keys move it, plus and minus zoom" }), detail = h("div.in", null, h("p.muted", null, "Select a bar to see its details."));
  const range = h("span.muted.nowrap"), zooms = h("div.seg", { role: "group", "aria-label": "Span" }, [["5 min", 3e5], ["15 min", 9e5], ["1 h", 36e5], ["All", 0]].map(([label, ms]) => h("button", { type: "button", "data-ms": ms, "aria-pressed": "false", onclick: () => { follow = ms; span = null; draw(); } }, label)));
  let follow = 9e5;
  const rate = h("div.plot"), lag = h("div.plot");
  const where = () => { const [a, b] = view(); return [a / 1000, b / 1000]; };
  const drawn = [plot(rate, { title: "Records per second", height: 120, left: LEFT, span: where, sync: "timeline", series: [{ label: "records/s", name: "recordsPerSecond", colour: "in", write: num, fill: true }] }),
    plot(lag, { title: "Watermark lag and unread input", height: 120, left: LEFT, span: where, sync: "timeline", series: [{ label: "watermark lag", name: "watermarkLag", colour: "lag", write: dur, fill: true }] })];
  main.append(panel(h("div.bar", { style: { flex: "1" } }, h("h2", null, "Timeline"), range, h("span.grow"), zooms), h("div.in", null, drawing), h("div.in", null, h("h3", null, "Records read/s"), rate, h("h3", null, "Watermark lag"), lag)), panel("Detail", detail));

  function view() {
    if (span) return span;
    const end = data ? (data.end > 0 ? data.end : data.now) : Date.now(), start = data ? data.start : end - 6e5;
    return follow ? [Math.max(end - follow, Math.min(start, end - 6e4)), end + 500] : [start - 500, end + 500];
  }

  function items() {
    const end = data.end > 0 ? data.end : data.now, found = [];
    data.states.forEach((one, i) => { const next = data.states[i + 1]; found.push({ lane: 0, from: one.at, to: next ? next.at : end, cls: `s-${one.state}`, name: one.state.toLowerCase(), kind: "state", one }); });
    for (const one of data.checkpoints) found.push({ lane: one.kind === "CHECKPOINT" ? 1 : 2, from: one.at, to: one.end > 0 ? one.end : data.now, cls: one.kind !== "CHECKPOINT" && one.status === "COMPLETED" ? "savep" : `c-${one.status}`, name: `${one.kind === "CHECKPOINT" ? "checkpoint" : "savepoint"} ${one.id}`, kind: "checkpoint", one });
    for (const one of data.rescales) found.push({ lane: 3, from: one.at - one.duration, to: one.at, cls: one.outcome === "COMPLETED" ? "resc" : "fail", name: `rescale ${one.from} to ${one.to}`, kind: "rescale", one });
    for (const one of data.failures) found.push({ lane: 4, from: one.at, to: one.at, cls: "fail", name: one.name, kind: "failure", one });
    return found;
  }

  function draw() {
    if (!data) return;
    const [from, to] = view(), width = Math.max(320, drawing.clientWidth), x = (ms) => LEFT + ((ms - from) / (to - from)) * (width - LEFT - 8);
    const height = TOP + LANES.length * ROW + 4, all = [];
    LANES.forEach((name, i) => all.push(s("rect", { class: "lane", x: LEFT, y: TOP + i * ROW + 2, width: width - LEFT - 8, height: ROW - 4, rx: 3 }), s("text", { x: 0, y: TOP + i * ROW + 17 }, name)));
    const steps = Math.max(2, Math.floor((width - LEFT) / 120));
    for (let i = 0; i <= steps; i++) { const ms = from + ((to - from) * i) / steps; all.push(s("line", { class: "tick", x1: x(ms), x2: x(ms), y1: TOP - 4, y2: height }), s("text", { x: x(ms), y: 12, "text-anchor": i === 0 ? "start" : i === steps ? "end" : "middle" }, clock(ms))); }
    for (const item of items()) {
      if (item.to < from || item.from > to) continue;
      const a = Math.max(x(item.from), LEFT), b = Math.min(x(item.to), width - 8);
      const bar = s("rect", { class: `it ${item.cls}${chosen && chosen.name === item.name && chosen.from === item.from ? " on" : ""}`, x: a, y: TOP + item.lane * ROW + 5, width: Math.max(3, b - a), height: ROW - 10, rx: 2, tabindex: "0", role: "button", "aria-label": `${item.name} at ${clock(item.from)}, ${dur(item.to - item.from)}` }, s("title", null, `${item.name} · ${clock(item.from)} · ${dur(item.to - item.from)}`));
      const pick = () => { chosen = item; tell(item); draw(); };
      bar.addEventListener("click", pick);
      bar.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); pick(); } });
      all.push(bar);
    }
    const focused = drawing.contains(document.activeElement) && document.activeElement !== drawing ? document.activeElement.getAttribute("aria-label") : null;
    put(drawing, s("svg", { viewBox: `0 0 ${width} ${height}`, height }, all));
    if (focused) { const again = [...drawing.querySelectorAll(".it")].find((one) => one.getAttribute("aria-label") === focused); if (again) again.focus(); }
    put(range, `${when(from)} to ${clock(to)} · ${dur(to - from)}`);
    for (const button of zooms.children) button.setAttribute("aria-pressed", String(!span && Number(button.dataset.ms) === follow));
    drawn.forEach((one) => one.redraw());
  }

  function tell({ kind, one, from, to }) {
    const rows = (pairs) => h("dl.kv", null, pairs.filter(Boolean).map(([k, v]) => [h("dt", null, k), h("dd", null, v)]).flat());
    if (kind === "checkpoint") put(detail, h("h3", null, `${one.kind === "CHECKPOINT" ? "Checkpoint" : "Savepoint"} ${one.id} `, badge(one.status)), rows([["Began", when(one.at)], ["Took", dur(to - from)], ["Written", bytes(one.size)], ["State", bytes(one.stateSize)], one.slowest && ["Answered last", pretty(one.slowest)], one.failure && ["Failed because", one.failure], one.path && ["Path", h("span.mono", null, one.path)]]), h("p", null, h("a", { href: `#/jobs/${job}/checkpoints/${one.id}` }, "By vertex and subtask")));
    else if (kind === "rescale") put(detail, h("h3", null, `Rescale from ${one.from} to ${one.to}`), rows([["Ended", when(one.at)], ["Took", dur(one.duration)], ["Requested by", one.trigger], ["Outcome", one.outcome.toLowerCase()]]));
    else if (kind === "failure") put(detail, h("h3", null, one.cause), rows([["At", when(one.at)], ["Says", one.message], one.where && ["Raised at", h("span.mono", null, one.where)], one.builtAt && one.builtAt !== one.where && ["Operator built at", h("span.mono", null, one.builtAt)], one.task && ["Task", one.task], one.host && ["Host", one.host]]), h("p", null, h("a", { href: `#/jobs/${job}/exceptions` }, "All exceptions")));
    else {
      const cause = data.failures.filter((f) => f.at <= from + 2000).pop();
      put(detail, h("h3", null, "State ", badge(one.state)), rows([["From", when(from)], ["For", dur(to - from)], one.state === "RESTARTING" && cause && ["Cause", `${cause.name}: ${cause.message}`]]),
        h("ul", null, data.events.filter((e) => e.at >= from - 1 && e.at <= to).slice(0, 40).map((e) => h("li", null, h("span.mono", null, clock(e.at)), " ", e.text))));
    }
  }

  const zoom = (factor, at = 0.5) => { const [a, b] = view(), middle = a + (b - a) * at, wide = Math.max(2000, (b - a) * factor); span = [middle - wide * at, middle + wide * (1 - at)]; draw(); };
  const fraction = (event) => { const box = drawing.getBoundingClientRect(); return Math.min(1, Math.max(0, (event.clientX - box.left - LEFT) / (box.width - LEFT - 8))); };
  drawing.addEventListener("wheel", (event) => { if (event.ctrlKey || event.shiftKey) { event.preventDefault(); zoom(event.deltaY > 0 ? 1.25 : 0.8, fraction(event)); } }, { passive: false });
  drawing.addEventListener("keydown", (event) => {
    const [a, b] = view(), step = (b - a) / 8;
    if (event.key === "+") zoom(0.6); else if (event.key === "-") zoom(1.6);
    else if (event.key === "ArrowLeft") { span = [a - step, b - step]; draw(); } else if (event.key === "ArrowRight") { span = [a + step, b + step]; draw(); } else return;
    event.preventDefault();
  });
  let begun = null;
  drawing.addEventListener("pointerdown", (event) => { if (!event.target.closest(".it")) begun = fraction(event); });
  const release = (event) => {
    if (begun === null) return;
    const ended = fraction(event), [a, b] = view(), from = Math.min(begun, ended), to = Math.max(begun, ended);
    begun = null;
    if (to - from > 0.02) { span = [a + (b - a) * from, a + (b - a) * to]; draw(); }
  };
  window.addEventListener("pointerup", release);
  const sized = new ResizeObserver(() => draw());
  sized.observe(drawing);
  const stop = every(2000, async () => {
    [data, history] = await Promise.all([ask(`jobs/${job}/timeline`), ask(`jobs/${job}/history`)]);
    drawn.forEach((one) => one.show(history));
    draw();
  });
  return { close() { stop(); sized.disconnect(); window.removeEventListener("pointerup", release); drawn.forEach((one) => one.close()); } };
}
