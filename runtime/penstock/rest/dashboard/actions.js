// What can be done to a job: each with a confirmation that says what will happen, and watched to its end.
import { ask, session } from "./api.js";
import { dur, h, isEnded, put, text, toast, when } from "./dom.js";

export function actions(picture) {
  const make = (label, kind, tone) => h(`button${tone ? `.${tone}` : ""}`, { type: "button", "data-action": kind, onclick: () => DIALOGS[kind](picture()) }, label);
  const buttons = [make("Savepoint", "savepoint"), make("Checkpoint", "checkpoint"), make("Rescale", "rescale"), make("Stop", "stop"), make("Cancel", "cancel")];
  const root = h("div.actions", { role: "group", "aria-label": "Actions" }, buttons);
  root.hidden = true;
  return {
    root,
    show(job) {
      root.hidden = session.role !== "admin" || isEnded(job.state);
      for (const button of buttons) button.disabled = job.state !== "RUNNING" && button.dataset.action !== "cancel";
    },
  };
}

const DIALOGS = {
  savepoint(job) {
    const folder = h("input", { type: "text", id: "folder", placeholder: "where the configuration says" });
    confirm(job, { title: "Take a savepoint", main: "Take savepoint", tell: "The job goes on while its whole state is copied. The savepoint stays until somebody disposes of it; the job can be started from it with other code or another parallelism.",
      more: [h("label", { for: "folder" }, "Folder"), folder],
      run: () => begin(job, "POST", "savepoints", { "target-directory": folder.value.trim() || null, "cancel-job": false }) });
  },
  checkpoint(job) {
    confirm(job, { title: "Take a checkpoint now", main: "Take checkpoint", tell: "The job goes on. A failure after it goes back to this checkpoint and not further.", run: () => begin(job, "POST", "checkpoints", {}) });
  },
  stop(job) {
    const drain = h("input", { type: "checkbox", id: "drain" });
    confirm(job, { title: `Stop ${job.name}`, main: "Stop the job", tone: "danger", tell: "A savepoint is taken, then the job ends as FINISHED and its slots become free. Nothing is lost: it can be started again from the savepoint. If the savepoint fails, the job goes on as it is.",
      more: [h("label", { for: "drain" }, drain, " Drain: fire all windows and timers first, as if the input had ended. The savepoint is then good for nothing but this end.")],
      run: () => begin(job, "POST", "stop", { drain: drain.checked }, "savepoints") });
  },
  cancel(job) {
    const last = job.lastCheckpoint;
    confirm(job, { title: `Cancel ${job.name}`, main: "Cancel the job", tone: "danger", bad: true,
      tell: `The job ends at once, without a savepoint. ${last ? `What it has done since checkpoint #${last.id} (${when(last.at)}) is thrown away` : "It has no checkpoint: all of its state is lost"}. Its checkpoints are deleted unless the configuration retains them. To be able to go on later, stop it instead.`,
      run: async () => { await ask(`jobs/${job.id}?mode=cancel`, { method: "PATCH" }); return async () => (isEnded((await ask(`jobs/${job.id}/status`)).status) ? { done: true } : { done: false }); } });
  },
  rescale(job) {
    const most = Math.max(job.parallelism, Math.min(job.maxParallelism, job.parallelism + job.slotsAvailable));
    const slider = h("input", { type: "range", id: "par", min: 1, max: most, value: String(job.parallelism) }), shown = h("output", { for: "par" }, String(job.parallelism)), tell = h("p.muted");
    const say = () => {
      const to = Number(slider.value);
      text(shown, String(to));
      text(tell, to === job.parallelism ? "That is what it has." : `${job.parallelism} to ${to}: ${to > job.parallelism ? `${to - job.parallelism} more slots` : `${job.parallelism - to} slots become free`}, about ${Math.max(1, Math.round(job.maxParallelism / to))} key groups for each subtask.`);
    };
    slider.addEventListener("input", say); say();
    confirm(job, { title: `Rescale ${job.name}`, main: "Rescale", tell: `A snapshot is taken and the job goes on from it with another parallelism; output pauses for some seconds. Nothing is lost or done twice. Up to ${most}: its own slots and ${job.slotsAvailable} free ones.`,
      more: [h("label", { for: "par" }, "Parallelism"), shown, slider, tell],
      run: () => begin(job, "PATCH", `rescaling?parallelism=${slider.value}`, undefined, "rescaling") });
  },
};

async function begin(job, method, path, body, poll = path) {
  const id = (await ask(`jobs/${job.id}/${path}`, { method, body }))["request-id"];
  return async () => {
    const found = await ask(`jobs/${job.id}/${poll}/${id}`);
    if (found.status.id !== "COMPLETED") return { done: false };
    const result = found.operation || {}, cause = result["failure-cause"] || found["failure-cause"];
    return { done: true, failure: cause ? cause["stack-trace"] || cause.class : "", where: result.location || "" };
  };
}

function confirm(job, { title, main, tone = "main", bad = false, tell, more = [], run }) {
  const go = h(`button.${tone}`, { type: "submit" }, main), no = h("button", { type: "button", onclick: () => dialog.close() }, "Leave it"), status = h("div", { role: "status" });
  const form = h("form", { method: "dialog", onsubmit: async (event) => {
    event.preventDefault();
    go.disabled = true; text(no, "Close");
    const begun = Date.now(), wait = h("progress", { "aria-label": "under way" }), line = h("p.muted");
    put(status, wait, line);
    try {
      const look = await run();
      for (;;) {
        const seen = await look();
        text(line, `Under way for ${dur(Date.now() - begun)}`);
        if (seen.done) {
          if (seen.failure) { put(status, h("p.error", null, `It failed; the job goes on as it was. ${seen.failure.split("\n")[0]}`)); toast(`${title}: failed`, "bad"); }
          else { put(status, h("p", null, `Done in ${dur(Date.now() - begun)}.`), seen.where ? h("p.mono.wrap", null, seen.where) : null); toast(`${title}: done`, "ok"); }
          go.hidden = true; return;
        }
        await new Promise((wake) => setTimeout(wake, 400));
      }
    } catch (error) { put(status, h("p.error", null, error.message, " ", error.remedy || "")); go.disabled = false; }
  } }, h("h2", { id: "dialog-title" }, title), h("p.muted", null, job.name), h(`p.conseq${bad ? ".bad" : ""}`, null, tell), more, status, h("div.bar", null, no, go));
  const dialog = h("dialog", { "aria-labelledby": "dialog-title", onclose: () => dialog.remove() }, form);
  document.body.append(dialog);
  dialog.showModal();
  no.focus();
}
