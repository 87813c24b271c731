// Requests, relative to the path at which the page was served.

export const session = { role: null, csrf: "", token: false, version: "", takesPrograms: false };
let onLogin = () => {};
export const whenLoggedOut = (handler) => { onLogin = handler; };

export class Refused extends Error {
  constructor(status, lines, code) {
    super(lines.filter((line) => !line.startsWith("remedy: ")).join("; "));
    this.status = status;
    this.code = code;
    this.remedy = lines.filter((line) => line.startsWith("remedy: ")).map((line) => line.slice(8)).join("; ");
  }
}

export const at = (path) => new URL(path.replace(/^\//, ""), document.baseURI).href;

export async function ask(path, { method = "GET", body, form, signal, raw = false } = {}) {
  const headers = {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (method !== "GET") headers["X-Penstock-CSRF"] = session.csrf;
  let answer;
  try {
    answer = await fetch(at(path), { method, headers, body: form || (body === undefined ? undefined : JSON.stringify(body)), signal, credentials: "same-origin" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, ["The JobManager does not respond.", "remedy: check whether the JobManager runs. This page continues when the JobManager responds again"], "");
  }
  if (answer.ok) return raw ? answer : answer.json();
  let lines = [answer.statusText];
  try { lines = (await answer.json()).errors || lines; } catch { /* no JSON: the status line must do */ }
  if (answer.status === 401) onLogin();
  throw new Refused(answer.status, lines, answer.headers.get("X-Penstock-Error") || "");
}

export async function loadSession() {
  Object.assign(session, await ask("session"));
  if (session.role) session.takesPrograms = (await ask("config")).features["web-submit"];
  return session;
}
export async function logIn(token) {
  await ask("login", { method: "POST", body: { token } });
  return loadSession();
}
export async function logOut() {
  await ask("logout", { method: "POST", body: {} });
  return loadSession();
}

/** Calls `show` with each picture of a job while the page is visible. It sends no requests otherwise. */
export function follow(jobId, show, problem) {
  let source = null;
  const open = () => {
    if (source || document.hidden) return;
    source = new EventSource(at(`jobs/${jobId}/live`));
    source.onmessage = (event) => { problem(""); show(JSON.parse(event.data)); };
    source.onerror = () => {
      problem("The JobManager does not respond. The values on this page may be outdated.");
      if (source && source.readyState === EventSource.CLOSED) { close(); setTimeout(check, 2000); }
    };
  };
  const close = () => { if (source) source.close(); source = null; };
  const check = async () => {
    if (ended) return;
    try { await loadSession(); if (session.role) open(); else onLogin(); } catch { setTimeout(check, 2000); }
  };
  let ended = false;
  const seen = () => (document.hidden ? close() : open());
  document.addEventListener("visibilitychange", seen);
  open();
  return () => { ended = true; close(); document.removeEventListener("visibilitychange", seen); };
}

/** Calls `work` repeatedly, `ms` after its last end, while the page is visible. Returns a function that stops it. */
export function every(ms, work) {
  let ended = false, timer = 0;
  const turn = async () => {
    if (!document.hidden) { try { await work(); } catch (error) { if (!(error instanceof Refused)) console.error(error); /* the next turn tries again */ } }
    if (!ended) timer = setTimeout(turn, ms);
  };
  turn();
  return () => { ended = true; clearTimeout(timer); };
}
