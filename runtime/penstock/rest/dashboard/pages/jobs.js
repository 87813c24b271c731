import { ask, every } from "../api.js";
import { badge, dur, h, panel, table, when } from "../dom.js";

export default async function page({ main, go }) {
  const list = table({
    caption: "Jobs", rows: [], sortBy: 2, descending: true, go: (job) => go(`#/jobs/${job.jid}/graph`), empty: "This JobManager has no jobs.",
    columns: [
      ["Job", (job) => h("a", { href: `#/jobs/${job.jid}/graph` }, job.name), { sort: (job) => job.name }],
      ["State", (job) => badge(job.state), { sort: (job) => job.state }],
      ["Started", (job) => when(job["start-time"]), { sort: (job) => job["start-time"] }],
      ["Lasted", (job) => dur(job.duration), { num: true, sort: (job) => job.duration }],
      ["Tasks", (job) => `${job.tasks.running} of ${job.tasks.total} running`, { num: true }],
      ["Id", (job) => h("code", null, job.jid)],
    ],
  });
  main.append(h("h1", null, "Jobs"), panel("All jobs of this JobManager", list));
  const stop = every(3000, async () => list.renew((await ask("jobs/overview")).jobs));
  return { close: stop };
}
