import { ask, every } from "../api.js";
import { badge, bytes, clock, dur, h, num, panel, pretty, put, table, when } from "../dom.js";

export default async function page({ main, job, rest, go }) {
  const opened = rest[0] ? Number(rest[0]) : null;
  const facts = h("div.in"), settings = h("div.in"), detail = h("div", { style: { display: "contents" } });
  const list = table({
    caption: "Checkpoints", rows: [], go: (c) => go(`#/jobs/${job}/checkpoints${c.id === opened ? "" : `/${c.id}`}`), isOn: (c) => c.id === opened, empty: "No checkpoint has been taken yet.",
    columns: [
      ["Id", (c) => h("a", { href: `#/jobs/${job}/checkpoints/${c.id}` }, `#${c.id}`), { sort: (c) => c.id }],
      ["Kind", (c) => (c.kind === "CHECKPOINT" ? "checkpoint" : "savepoint")],
      ["State", (c) => badge(c.status)],
      ["Began", (c) => h("span.nowrap", null, when(c.at)), { sort: (c) => c.at }],
      ["Took", (c) => (c.end > 0 ? dur(c.end - c.at) : "…"), { num: true, sort: (c) => c.end - c.at }],
      ["Written", (c) => bytes(c.size), { num: true, sort: (c) => c.size }],
      ["State size", (c) => bytes(c.stateSize), { num: true, sort: (c) => c.stateSize }],
      ["Answered last", (c) => slowest(c.slowest)],
      ["Path or failure", (c) => (c.failure ? h("span.wrap", null, c.failure) : h("code", { title: c.path }, c.path ? `…/${c.path.replace(/\/$/, "").split("/").pop()}` : ""))],
    ], sortBy: 0, descending: true,
  });
  let known = null;
  main.append(h("div.cols", null, panel("Now", facts), panel("Settings", settings)), detail, panel("History", list));
  const row = (k, v) => [h("dt", null, k), h("dd", null, v)];
  ask(`jobs/${job}/checkpoints/config`).then((c) => put(settings, h("dl.kv", null, row("Interval", c.interval > 0 && c.interval < 2 ** 53 ? dur(c.interval) : "off"), row("Timeout", dur(c.timeout)), row("Least pause", dur(c.min_pause)), row("State backend", c.state_backend), row("Storage", h("span.mono", null, c.checkpoint_storage || "–")), row("Kept on cancel", c.externalization && c.externalization.enabled && !c.externalization.delete_on_cancellation ? "yes" : "no"), row("Failures tolerated", String(c.tolerable_failed_checkpoints)))), () => {});
  const stop = every(2000, async () => {
    const [found, past] = await Promise.all([ask(`jobs/${job}/checkpoints`), ask(`jobs/${job}/timeline`)]);
    list.renew(past.checkpoints);
    if (opened !== null && !known) { known = past.checkpoints.find((one) => one.id === opened); showDetail(detail, job, opened, known); }
    const sum = found.summary.end_to_end_duration, restored = found.latest.restored, trigger = found.trigger;
    put(facts, h("dl.kv", null, row("Completed", num(found.counts.completed)), row("Failed", num(found.counts.failed)), row("Durations", `median ${dur(sum.p50)}, 95 % ${dur(sum.p95)}, longest ${dur(sum.max)}`),
      row("Next one", trigger ? `${trigger.description} (since ${clock(trigger.since)})` : "–"), row("Commits left", trigger && trigger.uncommitted_checkpoints ? `${trigger.pending_commits} of ${trigger.uncommitted_checkpoints} checkpoints` : "none"),
      row("Restored", restored ? [`${restored.is_savepoint ? "savepoint" : "checkpoint"} ${restored.id} at ${when(restored.restore_timestamp)}`, h("div.mono.muted", null, restored.external_path)] : "nothing: the job started with empty state")));
  });
  return { close: stop };
}

async function showDetail(box, job, id, known) {
  const inner = h("div", null, h("div.empty", null, "…"));
  put(box, panel(`Checkpoint ${id} by vertex`, inner));
  try {
    const [found, plan] = await Promise.all([ask(`jobs/${job}/checkpoints/details/${id}`), ask(`jobs/${job}/plan`)]);
    const names = new Map(plan.plan.nodes.map((node) => [node.id, pretty(node.description)]));
    const subtasks = h("div");
    put(inner, found.external_path ? h("div.in", null, h("code.wrap", null, found.external_path)) : null, table({ caption: "By vertex", rows: Object.entries(found.tasks), columns: [
      ["Vertex", ([vid]) => h("button.link", { type: "button", onclick: () => showSubtasks(subtasks, job, id, vid, names.get(vid)) }, names.get(vid) || vid)],
      ["Answered", ([, t]) => `${t.num_acknowledged_subtasks} of ${t.num_subtasks}`, { num: true }], ["Last acknowledgement after", ([, t]) => dur(t.end_to_end_duration), { num: true }],
      ["Written", ([, t]) => bytes(t.checkpointed_size), { num: true }], ["State", ([, t]) => bytes(t.state_size), { num: true }]] }), subtasks);
  } catch (error) {
    if (!known || error.status !== 404) { put(inner, h("div.empty", null, error.message)); return; }
    const row = (k, v) => [h("dt", null, k), h("dd", null, v)];
    put(inner, h("div.in", null, h("dl.kv", null, row("State", badge(known.status)), row("Began", when(known.at)), row("Took", known.end > 0 ? dur(known.end - known.at) : "…"), row("Written", bytes(known.size)), row("State size", bytes(known.stateSize)), row("Answered last", slowest(known.slowest)), row(known.failure ? "Failure" : "Path", h("span.mono", null, known.failure || known.path || "–"))),
      h("p.muted", null, "The parts of vertices and subtasks are kept only for the newest checkpoints.")));
  }
}

async function showSubtasks(box, job, id, vertex, name) {
  try {
    const found = await ask(`jobs/${job}/checkpoints/details/${id}/subtasks/${vertex}`);
    put(box, h("div.in", null, h("h3", null, `Subtasks of ${name || vertex}`)), table({ caption: "By subtask", rows: found.subtasks, sortBy: 1, descending: true, columns: [
      ["Subtask", (r) => `#${r.index}`, { sort: (r) => r.index }], ["Answered after", (r) => (r.status === "completed" ? dur(r.end_to_end_duration) : "not yet"), { num: true, sort: (r) => r.end_to_end_duration || 0 }],
      ["In the task", (r) => (r.checkpoint ? dur(r.checkpoint.sync) : "–"), { num: true }], ["Uploading", (r) => (r.checkpoint ? dur(r.checkpoint.async) : "–"), { num: true }],
      ["Written", (r) => bytes(r.checkpointed_size ?? -1), { num: true, sort: (r) => r.checkpointed_size || 0 }], ["State", (r) => bytes(r.state_size ?? -1), { num: true, sort: (r) => r.state_size || 0 }]] }));
  } catch (error) { put(box, h("div.empty", null, error.message)); }
}

function slowest(text) {
  const at = text.lastIndexOf(" #");
  return at < 0 ? "–" : h("span.nowrap", { title: pretty(text) }, h("span.clip", null, pretty(text.slice(0, at))), text.slice(at));
}
