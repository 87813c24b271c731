// A flame graph: frames as bars, the outermost at the top, with a width proportional to their samples. A selected bar fills the width.
import { h, put, text } from "./dom.js";

const LEAST = 0.002; // minimum share of the width; smaller frames are left out

export function flame(root) {
  const said = h("p.muted", { "aria-live": "polite" }), drawn = h("div.flame", { role: "group", "aria-label": "Flame graph" });
  const share = (node, of) => `${((100 * node.value) / of).toFixed(1)} %`;
  function show(path) {
    const top = path[path.length - 1], rows = path.map((node, i) => [bar(node, 0, 1, path.slice(0, i + 1))]);
    let level = [[top, 0, 1, path]];
    while (level.length) {
      const next = [];
      for (const [node, from, width, way] of level) {
        let at = from;
        for (const child of [...node.children].sort((a, b) => b.value - a.value)) {
          const part = (width * child.value) / node.value;
          if (part >= LEAST) next.push([child, at, part, [...way, child]]);
          at += part;
        }
      }
      if (next.length) rows.push(next.map(([node, from, width, way]) => bar(node, from, width, way)));
      level = next;
    }
    put(drawn, rows.map((row) => h("div.row", null, row)));
    text(said, `${top.name}: ${share(top, root.value)} of ${root.value} samples`);
  }
  function bar(node, from, width, path) {
    const full = `${node.name}: ${share(node, root.value)}`;
    return h("button", { type: "button", title: full, "aria-label": full, "data-whose": whose(node.name), style: { left: `${100 * from}%`, width: `${100 * width}%` }, onclick: () => show(path) }, node.name);
  }
  if (!root.value) return h("div.empty", null, "No stacks were sampled: no subtask of this vertex runs in a process that can be sampled.");
  show([root]);
  const [most] = userLines(root);
  return h("div.in", null, h("p", null, most ? ["Line of your code with the most samples: ", h("code.wrap", null, most[0]), `, ${share({ value: most[1] }, root.value)}`] : "No sample is in your code."), drawn, said);
}

/** Lines of the user that the engine calls, each with the samples in which it is the innermost one. The line with the most is first. */
function userLines(root) {
  const found = new Map();
  const walk = (node, called, line) => {
    const kind = whose(node.name), own = called && kind === "user" ? node.name : line;
    const below = node.children.reduce((sum, child) => sum + child.value, 0);
    if (own && node.value > below) found.set(own, (found.get(own) || 0) + node.value - below);
    for (const child of node.children) walk(child, called || kind === "engine", own);
  };
  walk(root, false, null);
  return [...found].sort((a, b) => b[1] - a[1]);
}

/** Kinds of frames: the engine's, Python's and the user's. */
function whose(name) {
  if (/^penstock\./.test(name)) return "engine";
  return /^(pyspark|threading|concurrent|asyncio|socket|selectors|importlib|_?runpy|__main__\.<module>|[A-Za-z]+-?[A-Za-z0-9_-]*$)/.test(name) ? "python" : "user";
}
