import { ask, every } from "../api.js";
import { bytes, clock, h, num, panel, put, table } from "../dom.js";

export default async function page({ main, job }) {
  const box = h("div", { style: { display: "contents" } }, h("div.empty", null, "…"));
  main.append(h("h1", null, "Sources and sinks"), box);
  let shape = "", lists = [], heads = [], sinks = null;
  const stop = every(2000, async () => {
    const found = await ask(`jobs/${job}/connectors`);
    const now = JSON.stringify([found.sources.map((x) => x.uid), found.sinks]);
    if (now !== shape) {
      shape = now;
      heads = found.sources.map(() => h("span.muted"));
      lists = found.sources.map((source) => table({ caption: `Splits of ${source.name}`, rows: source.splits, empty: "All splits are read.", columns: [
        ["Split", (r) => h("code.wrap", null, r.id), { wide: true, sort: (r) => r.id }], ["Subtask", (r) => (r.owner < 0 ? "none yet" : `#${r.owner}`), { num: true, sort: (r) => r.owner }],
        ["Read up to", (r) => h("code.wrap", null, r.position || "the beginning"), { wide: true }], ["Size", (r) => (r.size ? bytes(r.size) : "–"), { num: true, sort: (r) => r.size }], ["Unread", (r) => (r.lag === null ? "–" : num(r.lag)), { num: true, sort: (r) => r.lag }], ["Watermark", (r) => (r.watermark ? clock(r.watermark) : "–"), { num: true }]] }));
      sinks = h("div.in");
      put(box, found.sources.map((source, i) => panel(h("div.group-head", null, h("h2", null, source.name), h("code", null, source.uid), heads[i]), lists[i])), panel("Sinks", sinks));
    }
    found.sources.forEach((source, i) => { lists[i].renew(source.splits); put(heads[i], `${num(source.splitCount)} splits left${source.splits.length < source.splitCount ? ` (${source.splits.length} shown)` : ""}${source.lag === null ? "" : `, ${num(source.lag)} unread`}`); });
    put(sinks, h("dl.kv", null, found.sinks.map((one) => [h("dt", null, one.name), h("dd.mono", null, one.uid)]).flat()),
      h("p.muted", null, found.committing ? `Current commit: ${found.committing}. ` : "", found.uncommittedCheckpoints ? `${num(found.pendingCommits)} commits of ${found.uncommittedCheckpoints} checkpoints are pending.` : "No commits are pending."));
  });
  return { close: stop };
}
