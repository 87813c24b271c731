// Failures, with equal ones grouped. The user's frames are highlighted.
import { ask, every } from "../api.js";
import { clock, dur, h, panel, put, when } from "../dom.js";

const shape = (text) => text.replace(/0x[0-9a-f]+|\d+/g, "0");

export default async function page({ main, job }) {
  const box = h("div", { style: { display: "contents" } }, h("div.empty", null, "…"));
  main.append(h("h1", null, "Exceptions"), box);
  let seen = "";
  const stop = every(3000, async () => {
    const past = await ask(`jobs/${job}/timeline`), { failures } = past;
    const now = JSON.stringify([failures.map((f) => [f.at, f.name]), past.states.length]);
    if (now === seen) return;
    seen = now;
    const groups = new Map();
    for (const failure of [...failures].reverse()) {
      const key = `${failure.cause}|${failure.where}|${shape(failure.message)}`;
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(failure);
    }
    put(box, groups.size ? [...groups.values()].map((list, i) => group(list, i === 0, past)) : h("section.panel", null, h("div.empty", null, "The job has had no failures.")));
  });
  return { close: stop };
}

/** Returns the restart after a failure, with the steps until the job ran again. */
function restart(failure, past) {
  const down = past.states.find((one) => one.state === "RESTARTING" && one.at >= failure.at);
  if (!down) return null;
  const up = past.states.find((one) => one.state === "RUNNING" && one.at > down.at);
  return h("details", { open: true }, h("summary", null, `All tasks of the job restarted from the newest checkpoint. ${up ? `They ran again after ${dur(up.at - failure.at)}.` : "They do not run yet."}`),
    h("ul", null, past.events.filter((one) => one.at >= failure.at && one.at <= (up ? up.at : past.now) && !one.text.startsWith(failure.name)).slice(0, 20).map((one) => h("li.wrap", null, h("span.mono", null, clock(one.at)), " ", one.text))));
}

function group(list, open, past) {
  const newest = list[0];
  const times = list.length > 1 ? h("span.muted", null, `${list.length} times, first ${when(list[list.length - 1].at)}, last ${clock(newest.at)}`) : h("span.muted", null, when(newest.at));
  return panel(h("div.group-head", null, h("h2", null, newest.cause), newest.where ? h("code.wrap", null, newest.where) : null, times),
    h("div.in", null, h("p.wrap", null, newest.message.split("\n")[0]),
      h("p.muted", null, [newest.task && `in ${newest.task}`, newest.host && `on ${newest.host}`].filter(Boolean).join(" "), " · ", h("a", { href: "#/jobmanager" }, "JobManager's log"), " · ", h("a", { href: "#/taskmanagers" }, "TaskManagers' logs")),
      newest.builtAt && newest.builtAt !== newest.where ? h("p.muted", null, "The operator is built at ", h("code.wrap", null, newest.builtAt), ".") : null,
      restart(newest, past),
      h("details", { open }, h("summary", null, "Trace"), h("pre.mono", null, trace(newest.trace)))));
}

function trace(text) {
  let own = false;
  return text.split("\n").map((line) => {
    if (/^\s*File "/.test(line)) own = !/penstock\/|pyspark\/|site-packages\/|lib\/python3/.test(line);
    else if (!/^\s{4}/.test(line)) own = !/^\s|^Traceback |^The above exception|^During handling|^penstock\./.test(line);
    return h(`span.${own ? "user" : "dim"}`, null, `${line}\n`);
  });
}
