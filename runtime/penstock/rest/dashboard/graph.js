// The job graph: created once for each shape of the job, and filled again with every picture.
import { layout as place, Graph } from "./vendor/dagre-3.1.3.js";
import { cssShare, dur, h, num, percent, pretty, s, text } from "./dom.js";

const WIDTH = 236, HEIGHT = 108;
const WORDS = { HASH: "by key", FORWARD: "forward", REBALANCE: "round robin", BROADCAST: "broadcast", RESCALE: "rescale" };

export function loadOf(vertex) {
  if (vertex.backPressured > 0.1) return "pressed";
  if (vertex.busiest > 0.7) return "busy";
  return vertex.inPerSecond > 0 || vertex.outPerSecond > 0 ? "some" : "idle";
}

/** Returns a sentence about the vertex that limits the job: the busiest one, unless no vertex is busy. */
export function bottleneck(vertices) {
  const [most] = [...vertices].sort((a, b) => b.busiest - a.busiest), held = vertices.filter((one) => one.backPressured > 0.1);
  if (!most || loadOf({ ...most, backPressured: 0 }) !== "busy") return held.length ? `Back-pressured: ${names(held)}. No operator is busy.` : "No operator is a bottleneck.";
  return `Bottleneck: ${pretty(most.name)}, busy ${percent(most.busiest)}${most.hotKey ? `. ${hotKey(most.hotKey)} has ${percent(most.hotKey.share)} of its records, all in subtask ${most.hotKey.subtask}` : isSkewed(most) ? `. Its records are skewed: one subtask gets ${most.skew.toFixed(1)} times the mean` : ""}.${held.length ? ` Back-pressured: ${names(held)}.` : ""}`;
}
const names = (vertices) => vertices.map((one) => pretty(one.name)).join(", ");
const hotKey = (hot) => hot.key === null ? `Key group ${hot.keyGroup}` : `Key ${hot.key}`;
const isSkewed = (vertex) => vertex.skew > 1.5 && vertex.inPerSecond > 1;

export function jobGraph(onPick) {
  const root = h("div.graph", { role: "group", "aria-label": "Job graph", tabindex: "0" });
  let shape = "", nodes = new Map(), edges = [], picked = null;

  function draw(vertices) {
    const graph = new Graph();
    graph.setGraph({ rankdir: "LR", nodesep: 26, ranksep: 34, marginx: 18, marginy: 18 });
    graph.setDefaultEdgeLabel(() => ({}));
    for (const vertex of vertices) graph.setNode(vertex.id, { width: WIDTH, height: HEIGHT });
    for (const vertex of vertices) for (const edge of vertex.inputs) graph.setEdge(edge.id, vertex.id, { width: 150, height: 36, labelpos: "c" });
    place(graph);
    const { width, height } = graph.graph();
    const lines = s("svg", { width, height, "aria-hidden": "true" }, s("defs", null, s("marker", { id: "tip", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, s("path", { d: "M0 0 8 4 0 8z" }))));
    const space = h("div.space", { style: { width: `${width}px`, height: `${height}px` } }, lines);
    nodes = new Map(); edges = [];
    for (const vertex of vertices) for (const edge of vertex.inputs) {
      const { points, x, y } = graph.edge(edge.id, vertex.id);
      const line = s("path", { d: curve(points), "marker-end": "url(#tip)" });
      const rate = h("b"), more = h("span");
      const label = h("div.edge", { style: { left: `${x}px`, top: `${y}px` } }, h("div", null, rate), more);
      lines.append(line); space.append(label);
      edges.push({ from: edge.id, to: vertex.id, strategy: edge.strategy, line, rate, more });
    }
    for (const vertex of vertices) {
      const { x, y } = graph.node(vertex.id);
      const part = { name: h("span.name"), in: h("span"), par: h("span"), busy: h("span"), b: h("i.b"), p: h("i.p") };
      const node = h("button.node", { type: "button", "data-id": vertex.id, style: { left: `${x - WIDTH / 2}px`, top: `${y - HEIGHT / 2}px`, width: `${WIDTH}px`, height: `${HEIGHT}px` }, onclick: () => onPick(vertex.id) },
        part.name, h("span.row", null, part.in, part.par), h("span.row", null, part.busy), h("span.share", { "aria-hidden": "true" }, part.b, part.p));
      nodes.set(vertex.id, { node, part }); space.append(node);
    }
    root.replaceChildren(space);
  }

  return {
    root,
    pick(id) { picked = id; for (const [of, { node }] of nodes) node.setAttribute("aria-pressed", String(of === picked)); },
    show(job) {
      const now = JSON.stringify(job.vertices.map((v) => [v.id, v.inputs]));
      if (now !== shape) { shape = now; draw(job.vertices); this.pick(picked); }
      const by = new Map(job.vertices.map((v) => [v.id, v]));
      for (const vertex of job.vertices) {
        const { node, part } = nodes.get(vertex.id);
        node.dataset.load = loadOf(vertex);
        node.title = vertex.hotKey ? `${vertex.name}\n${hotKey(vertex.hotKey)}: ${percent(vertex.hotKey.share)} of the records` : vertex.name;
        text(part.name, pretty(vertex.name));
        text(part.in, `${num(vertex.inPerSecond)} rec/s ${vertex.inputs.length ? "in" : "read"}${isSkewed(vertex) ? ` · skew ${vertex.skew.toFixed(1)}×` : ""}`);
        text(part.par, `× ${vertex.parallelism}`);
        text(part.busy, `busy ${percent(vertex.busiest)}${vertex.backPressured > 0.01 ? ` · back-pressured ${percent(vertex.backPressured)}` : ""}`);
        part.b.style.width = cssShare(vertex.busy); part.p.style.width = cssShare(vertex.backPressured);
      }
      for (const edge of edges) {
        const from = by.get(edge.from), to = by.get(edge.to);
        const rate = to.inputs.length === 1 ? to.inPerSecond : from.outPerSecond;
        edge.line.classList.toggle("flow", rate > 0);
        text(edge.rate, `${num(rate)}/s`);
        text(edge.more, to.watermark ? `${WORDS[edge.strategy] || edge.strategy.toLowerCase()} · lag ${dur(Math.max(0, job.now - to.watermark))}` : WORDS[edge.strategy] || edge.strategy.toLowerCase());
      }
    },
  };
}

function curve(points) {
  const [first, ...rest] = points;
  const last = rest[rest.length - 1], bend = (last.x - first.x) / 2;
  if (rest.length < 3) return `M${first.x} ${first.y}C${first.x + bend} ${first.y} ${last.x - bend} ${last.y} ${last.x} ${last.y}`;
  let d = `M${first.x} ${first.y}`;
  for (let i = 0; i < rest.length - 1; i++) d += `Q${rest[i].x} ${rest[i].y} ${(rest[i].x + rest[i + 1].x) / 2} ${(rest[i].y + rest[i + 1].y) / 2}`;
  return `${d}L${last.x} ${last.y}`;
}
