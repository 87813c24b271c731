// TaskManagers and the JobManager: their resources, their logs and their output.
import { ask, every } from "../api.js";
import { bytes, dur, h, num, panel, put, table } from "../dom.js";

export default async function page(context) {
  if (context.page === "jobmanager") return machine(context, null);
  return context.rest[0] ? machine(context, context.rest[0], context.rest.slice(1).join("/")) : list(context);
}

async function list({ main, go }) {
  const shown = table({
    caption: "TaskManagers", rows: [], go: (w) => go(`#/taskmanagers/${w.id}`), sortBy: 0, empty: "No TaskManager is registered.",
    columns: [
      ["TaskManager", (w) => h("a", { href: `#/taskmanagers/${w.id}` }, w.id), { sort: (w) => w.id }], ["Address", (w) => h("code", null, w.path)],
      ["Slots in use", (w) => `${w.slotsNumber - w.freeSlots} of ${w.slotsNumber}`, { num: true, sort: (w) => w.freeSlots }], ["Cores", (w) => w.hardware.cpuCores || "–", { num: true }],
      ["Python memory", (w) => bytes(w.memoryUsed), { num: true, sort: (w) => w.memoryUsed }], ["Memory of the machine, free", (w) => (w.hardware.physicalMemory ? `${bytes(w.hardware.physicalMemory)}, ${bytes(w.hardware.freeMemory)}` : "–"), { num: true }],
      ["Heard of", (w) => (w.timeSinceLastHeartbeat > 0 ? `${dur(Math.max(0, Date.now() - w.timeSinceLastHeartbeat))} ago` : "–"), { num: true }],
    ],
  });
  main.append(h("h1", null, "TaskManagers"), panel("Registered now", shown));
  return { close: every(3000, async () => shown.renew((await ask("taskmanagers")).taskmanagers)) };
}

/** `only`: text to search for in the log. */
async function machine({ main }, id, only = "") {
  const base = id ? `taskmanagers/${encodeURIComponent(id)}` : "jobmanager", facts = h("div.in"), stops = [];
  main.append(h("h1", null, id ? `TaskManager ${id}` : "JobManager"), panel("Resources", facts));
  const row = (k, v) => [h("dt", null, k), h("dd", null, v)];
  const kinds = { frameworkHeap: "The worker itself", taskHeap: "JVM heap", jvmOverhead: "JVM outside of its heap", managedMemory: "RocksDB", python: "Python", totalProcessMemory: "Limit of the process" };
  if (id) stops.push(every(3000, async () => {
    const w = await ask(base);
    put(facts, h("dl.kv", null, row("Address", h("code", null, w.path)), row("Slots", `${w.slotsNumber - w.freeSlots} of ${w.slotsNumber} in use`), row("Cores", String(w.hardware.cpuCores || "–")), row("Python processes of its slots", bytes(w.memoryUsed)),
      Object.entries(w.memoryConfiguration || {}).filter(([key, v]) => kinds[key] && v > 0).map(([key, v]) => row(kinds[key], bytes(v)))));
  }));
  else {
    const [env, metrics] = await Promise.all([ask("jobmanager/environment"), ask("jobmanager/metrics?get=Status.Process.CPU.Time,Status.Process.Memory.Max,Status.Process.Threads.Count")]);
    const value = Object.fromEntries(metrics.map((one) => [one.id, Number(one.value)]));
    put(facts, h("dl.kv", null, row("Process", env.jvm.version), row("CPU time", dur(1000 * (value["Status.Process.CPU.Time"] || 0))), row("Most memory", bytes(value["Status.Process.Memory.Max"])), row("Threads", num(value["Status.Process.Threads.Count"]))));
  }
  const stacks = h("div", null, h("div.in", null, h("button", { type: "button", onclick: async () => {
    const { threadInfos } = await ask(`${base}/thread-dump`);
    put(stacks, threadInfos.length ? h("div.in", null, threadInfos.map((one) => h("details", null, h("summary", null, one.stringifiedThreadInfo.split("\n")[0]), h("pre.mono", null, one.stringifiedThreadInfo)))) : h("div.empty", null, "No Python workers are running."));
  } }, id ? "Show the stacks of the Python workers" : "Show the stacks of all threads")));
  main.append(panel("Threads", stacks));
  main.append(logs(base, stops, only));
  return { close: () => stops.forEach((stop) => stop()) };
}

/** Records that contain one of the texts between "|", with all of their lines. */
function matching(lines, search) {
  const texts = search.toLowerCase().split("|").map((one) => one.trim()).filter(Boolean);
  if (!texts.length) return lines;
  let matches = false;
  return lines.filter((line) => { const has = texts.some((one) => line.toLowerCase().includes(one)); matches = has || (matches && !/^\d{4}-\d\d-\d\d /.test(line)); return matches; });
}

function logs(base, stops, only) {
  const out = h("pre.log.mono", { tabindex: "0", role: "log", "aria-label": "Log", "aria-live": "off" }), find = h("input", { type: "search", value: only, placeholder: "Only records with … | …", "aria-label": "Only records with", oninput: () => draw() });
  const go = h("input", { type: "checkbox", id: "tail", checked: true }), which = h("div.seg", { role: "group", "aria-label": "Which" });
  let what = "log", at = -131072, lines = [], busy = false;
  const draw = () => { out.textContent = matching(lines, find.value).join("\n") || (lines.length && find.value ? "No record of the log has this text." : "Nothing yet."); if (go.checked) out.scrollTop = out.scrollHeight; };
  const more = async () => {
    if (busy || !go.checked) return;
    busy = true;
    try {
      const answer = await ask(`${base}/${what}?from=${at}`, { raw: true }), found = await answer.text();
      at = Number(answer.headers.get("X-Penstock-Log-End"));
      if (found) { lines = lines.concat(found.replace(/\n$/, "").split("\n")).slice(-5000); draw(); } else if (!lines.length) draw();
    } catch (error) { if (!lines.length) out.textContent = `${error.message}${error.remedy ? `\n${error.remedy}` : ""}`; } finally { busy = false; }
  };
  for (const name of ["log", "stdout"]) which.append(h("button", { type: "button", "aria-pressed": String(name === what), onclick: (event) => { what = name; at = -131072; lines = []; out.textContent = "…"; for (const one of which.children) one.setAttribute("aria-pressed", String(one === event.target)); busy = false; more(); } }, name === "log" ? "Log" : "Stdout"));
  stops.push(every(1500, more));
  const whole = h("a", { href: `${base}/log`, target: "_blank", rel: "noopener" }, "Whole log");
  return panel(h("div.bar", { style: { flex: "1" } }, h("h2", null, "Logs"), which, h("span.grow"), find, h("label", { for: "tail" }, go, " follow"), whole), out);
}
