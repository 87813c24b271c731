// The autoscaler: the parallelism that the load needs, the measurements, and the decisions with their reasons.
import { ask, every, Refused } from "../api.js";
import { badge, bytes, clock, dur, h, num, panel, percent, pretty, put, table, text, when } from "../dom.js";

const MODES = {
  active: "The autoscaler changes the parallelism of the job.",
  recommend: "The autoscaler only recommends a parallelism. To let it change the job, set the mode to active.",
  disabled: "The autoscaler is off. The wanted parallelism is what it would choose. Rescale the job yourself, or turn it on.",
};
const share = (value) => (value === null || value === undefined ? "–" : percent(value));
const DECISIONS = 50;

export default async function page({ main, job }) {
  const mode = h("span"), about = h("p.muted"), said = h("p.wrap"), hot = h("p.wrap"), memory = h("p.wrap");
  const fact = (label) => { const value = h("dd", null, "–"), name = h("dt", null, label); return { box: h("div.fact", null, name, value), name, value }; };
  const facts = { current: fact("Parallelism"), wanted: fact("Wanted"), slots: fact("Slots available"), limits: fact("Limits"), reason: fact("Reason") };
  const inputs = table({
    caption: "Measurements of the newest decision", rows: [], empty: "The window of measurements is not complete yet.", columns: [
      ["Vertex", (r) => pretty(r.name), { wide: true }], ["Subtasks", (r) => String(r.parallelism), { num: true }], ["Busy", (r) => share(r.busy), { num: true }], ["Back-pressured", (r) => share(r.backPressured), { num: true }],
      ["Records in/s", (r) => num(r.inputRate), { num: true }], ["Must read/s", (r) => num(r.targetRate), { num: true }], ["Can read/s", (r) => num(r.trueRate), { num: true }],
      ["Load when rescaled", (r) => share(r.load), { num: true }], ["Lag", (r) => dur(r.lagMs), { num: true }], ["Splits", (r) => (r.splits === null ? "–" : num(r.splits)), { num: true }],
    ],
  });
  const decisions = table({
    caption: "Decisions", rows: [], columns: [
      ["Since", (r) => when(r.since)], ["Until", (r) => clock(r.timestamp)], ["Times", (r) => num(r.count), { num: true }], ["Current", (r) => String(r.current), { num: true }], ["Wanted", (r) => String(r.wanted), { num: true }],
      ["Reason", (r) => h(`span.badge.${r.rescales ? "ok" : "plain"}`, null, r.reason.replaceAll("_", " ").toLowerCase())],
      ["Explanation", (r) => h("span.wrap", null, r.message, r.failure ? ` The rescale failed: ${r.failure}` : ""), { wide: true }],
    ],
  });
  main.append(panel(h("div.bar", { style: { flex: "1" } }, h("h2", null, "Autoscaler"), mode), h("div.in", null, about, h("dl.facts", null, Object.values(facts).map((one) => one.box)), said, hot, memory)),
    panel("Measurements of the newest decision", inputs), panel("Decisions", decisions));
  const stop = every(5000, async () => {
    let found;
    try { found = await ask(`jobs/${job}/autoscaler?limit=${DECISIONS}`); } catch (error) {
      if (!(error instanceof Refused)) throw error;
      text(about, error.message);
      return;
    }
    put(mode, badge(found.mode)); text(about, MODES[found.mode] || "");
    text(facts.current.value, found.requested === found.current ? String(found.current) : `${found.current} of ${found.requested}`);
    text(facts.wanted.name, found.mode === "recommend" ? "Recommended" : "Wanted"); text(facts.wanted.value, String(found.wanted));
    text(facts.slots.value, String(found.slotsAvailable)); text(facts.limits.value, `${found.minParallelism} to ${found.maxParallelism}`);
    text(facts.reason.value, found.reason.replaceAll("_", " ").toLowerCase()); text(said, found.message);
    const key = found.hotKey, advice = found.memory;
    text(hot, key ? `Hot key: ${key.key === null ? `key group ${key.keyGroup}` : key.key} has ${share(key.share)} of the records of ${pretty(key.name)}, in subtask #${key.subtask}.` : "");
    text(memory, advice && advice.recommendedProcessSize && advice.recommendedProcessSize !== advice.processSize ? `Memory: ${bytes(advice.recommendedProcessSize)} per TaskManager are recommended${advice.processSize ? `, instead of ${bytes(advice.processSize)}` : ""}. ${[advice.python, advice.rocksdb].filter(Boolean).map((one) => one.message).join(" ")}` : "");
    inputs.renew(found.decisions.length ? found.decisions[0].inputs : []); decisions.renew(found.decisions);
  });
  return { close: stop };
}
