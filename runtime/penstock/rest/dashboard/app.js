// The frame: the login, the current page, and the job above it.
import { ask, every, follow, loadSession, logIn, logOut, session, whenLoggedOut } from "./api.js";
import { actions } from "./actions.js";
import { badge, bytes, dur, h, isEnded, num, put, text, when } from "./dom.js";

const main = document.getElementById("main"), head = document.getElementById("head"), nav = document.getElementById("nav");
const JOB_PAGES = [["graph", "Job graph"], ["timeline", "Timeline"], ["checkpoints", "Checkpoints"], ["exceptions", "Exceptions"], ["connectors", "Sources and sinks"], ["autoscaler", "Autoscaler"], ["state", "State"], ["configuration", "Configuration"]];
const LOADERS = {
  jobs: () => import("./pages/jobs.js"), graph: () => import("./pages/job.js"), timeline: () => import("./pages/timeline.js"), checkpoints: () => import("./pages/checkpoints.js"),
  exceptions: () => import("./pages/exceptions.js"), connectors: () => import("./pages/connectors.js"), state: () => import("./pages/state.js"), configuration: () => import("./pages/configuration.js"),
  autoscaler: () => import("./pages/autoscaler.js"),
  programs: () => import("./pages/programs.js"), taskmanagers: () => import("./pages/taskmanagers.js"), jobmanager: () => import("./pages/taskmanagers.js"),
};

let current = null;   // the current page: {close(), job(picture)}
let jobId = null, stopFollowing = null, picture = null, header = null, turn = 0;

function route() {
  const parts = decodeURIComponent(location.hash.replace(/^#\/?/, "")).split("/").filter(Boolean);
  if (parts[0] === "jobs" && parts[1]) return { job: parts[1], page: parts[2] || "graph", rest: parts.slice(3) };
  return { job: null, page: parts[0] || "jobs", rest: parts.slice(1) };
}

async function show() {
  const mine = ++turn;
  if (!session.role) return showLogin();
  const { job, page, rest } = route();
  if (current && current.close) current.close();
  current = null;
  watch(job || (page === "jobs" ? null : jobId)); // the pages of the cluster keep the job whose pages were open
  drawNav(jobId, page);
  const loader = LOADERS[page];
  if (!loader) { put(main, h("div.empty", null, "This page does not exist.")); return; }
  const made = await loader();
  if (mine !== turn) return;
  put(main);
  const title = (JOB_PAGES.find(([name]) => name === page) || [0, page === "taskmanagers" ? "TaskManagers" : page === "jobmanager" ? "JobManager" : page === "programs" ? "Programs" : "Jobs"])[1];
  document.title = `${title} · Penstock`;
  try {
    current = await made.default({ main, job, rest, page, picture: () => picture, go: (to) => { location.hash = to; } });
    if (mine !== turn) { if (current && current.close) current.close(); return; }
    if (picture && current && current.job) current.job(picture);
  } catch (error) { put(main, h("div.error", { role: "alert" }, error.message, error.remedy ? h("div", null, error.remedy) : null)); }
}

function drawNav(job, page) {
  const link = (to, name, is, id) => h("a", { href: to, "aria-current": is ? "page" : null }, h("span", null, name), id ? h("span", { id }) : null);
  put(nav,
    link("#/", "All jobs", page === "jobs"),
    job ? [h("div.group", { id: "nav-job" }, picture ? picture.name : "Job"), ...JOB_PAGES.map(([name, label]) => link(`#/jobs/${job}/${name}`, label, page === name, name === "exceptions" ? "nav-failures" : null))] : [],
    h("div.group", null, "Cluster"), session.takesPrograms ? link("#/programs", "Submit a program", page === "programs") : null, link("#/taskmanagers", "TaskManagers", page === "taskmanagers"), link("#/jobmanager", "JobManager", page === "jobmanager"));
  if (picture) showNav(picture);
}

function showNav(job) {
  const name = document.getElementById("nav-job"), failures = document.getElementById("nav-failures");
  if (name) text(name, job.name);
  if (failures) { text(failures, job.failures ? String(job.failures) : ""); failures.className = job.failures ? "count" : ""; }
}

function watch(job) {
  if (job === jobId) return;
  if (stopFollowing) stopFollowing();
  stopFollowing = null; jobId = job; picture = null; header = null;
  put(head);
  if (!job) return;
  header = jobHeader();
  put(head, header.root);
  stopFollowing = follow(job, (seen) => {
    if (seen.id !== jobId) return;
    picture = seen;
    header.show(seen); showNav(seen);
    if (current && current.job) current.job(seen);
  }, (problem) => header && header.problem(problem));
}

function jobHeader() {
  const name = h("h1", null, "…"), state = h("span"), step = h("span.muted"), stale = h("span.stale", { role: "status" });
  const buttons = actions(() => picture);
  const fact = (label, title) => { const value = h("dd", null, "–"); return { box: h("div.fact", { title }, h("dt", null, label), value), value }; };
  const facts = { up: fact("Running for"), rate: fact("Records read/s", "By all sources, mean of about 10 seconds, as in the job graph"), lag: fact("Unread input"), mark: fact("Watermark lag"), par: fact("Parallelism"), cp: fact("Last checkpoint"), size: fact("State"), again: fact("Restarts"), scaled: fact("Last rescale", "Details are on the timeline") };
  let shown = "";
  return {
    root: [h("div.title", null, name, state, step, stale, buttons.root), h("dl.facts", null, Object.values(facts).map((one) => one.box))],
    problem: (what) => text(stale, what),
    show(job) {
      text(name, job.name); name.title = `${job.name} · ${job.id}`;
      if (shown !== job.state) { put(state, badge(job.state)); shown = job.state; }
      text(step, job.startStep || job.endStep || "");
      const last = job.lastCheckpoint, ended = isEnded(job.state);
      text(facts.up.value, dur((ended ? job.end : job.now) - job.start));
      text(facts.rate.value, num(job.recordsPerSecond));
      text(facts.lag.value, job.lag === null ? "–" : num(job.lag));
      text(facts.mark.value, job.watermark ? dur(Math.max(0, job.now - job.watermark)) : "–");
      text(facts.par.value, `${job.parallelism} of ${job.slotsTotal || "?"} slots`);
      text(facts.cp.value, last ? `#${last.id}, ${ended ? when(last.at) : `${dur(Math.max(0, job.now - last.at))} ago`}` : job.checkpointInterval ? "none yet" : "off");
      text(facts.size.value, last ? bytes(last.stateSize) : "–");
      text(facts.again.value, String(job.restarts));
      const scaled = job.lastRescale;
      text(facts.scaled.value, scaled ? `${scaled.from} to ${scaled.to}${scaled.outcome === "COMPLETED" ? "" : ` ${scaled.outcome.toLowerCase()}`}, ${ended ? when(scaled.at) : `${dur(Math.max(0, job.now - scaled.at))} ago`}` : "never");
      buttons.show(job);
    },
  };
}

function showLogin(message = "") {
  watch(null); put(nav);
  if (document.getElementById("token")) return;
  const token = h("input", { type: "password", id: "token", autocomplete: "current-password", required: true }), wrong = h("div.muted", { role: "alert" }, message);
  const form = h("form", { onsubmit: async (event) => {
    event.preventDefault();
    try { await logIn(token.value); if (session.role) await begin(); else text(wrong, "The token is not valid for this cluster."); }
    catch (error) { text(wrong, error.status === 401 ? "The token is not valid for this cluster." : error.message); token.select(); }
  } }, h("label", { for: "token" }, "Token of the job"), token, h("button.main", { type: "submit" }, "Log in"), wrong,
  h("p.muted", null, "For a program on this machine: ", h("code", null, "penstock dashboard"), ". On Kubernetes, the token is in the Secret of the FlinkJob: ", h("code", null, "kubectl get secret NAME-secrets -o jsonpath='{.data.rest-token}' | base64 -d")));
  put(main, h("section.panel.login", null, h("header", null, h("h1", null, "Log in")), h("div.in", null, form)));
  document.title = "Log in · Penstock";
  token.focus();
}

function start() {
  text(document.getElementById("version"), session.version);
  const out = document.getElementById("logout");
  out.hidden = !session.token;
  show();
}

document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement, dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("penstock-theme", root.dataset.theme); } catch { /* not kept, then */ }
  window.dispatchEvent(new Event("penstock-theme"));
});
document.getElementById("logout").addEventListener("click", async () => { await logOut(); turn++; if (current && current.close) current.close(); current = null; showLogin(); });
whenLoggedOut(() => { if (session.role) { session.role = null; turn++; if (current && current.close) current.close(); current = null; showLogin("The session has ended."); } });
window.addEventListener("hashchange", show);
const KEYS = { a: "autoscaler", g: "graph", t: "timeline", c: "checkpoints", e: "exceptions", s: "state" };
window.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) || document.querySelector("dialog[open]")) return;
  if (KEYS[event.key] && jobId) location.hash = `#/jobs/${jobId}/${KEYS[event.key]}`;
});

// A link of `penstock dashboard` has the token after the "#", which browsers do not send. It is removed from the history at once.
async function takeToken() {
  const [, token] = /^#token=([\w-]+)$/.exec(location.hash) || [];
  if (!token) return;
  history.replaceState(null, "", location.pathname + location.search);
  await loadSession();
  if (!session.role) await logIn(token).catch(() => null);
}

async function begin() {
  try { await takeToken(); await loadSession(); } catch (error) { put(main, h("div.error", { role: "alert" }, error.message)); const stop = every(2000, async () => { await loadSession(); stop(); begin(); }); return; }
  if (session.role && !location.hash) {
    const { jobs } = await ask("jobs/overview");
    const live = jobs.filter((job) => !isEnded(job.state));
    const only = live.length === 1 ? live[0] : jobs.length === 1 ? jobs[0] : null;
    if (only) history.replaceState(null, "", `#/jobs/${only.jid}/graph`);
  }
  start();
}
begin();
