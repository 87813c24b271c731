// Actions on a job. Each has a confirmation that describes its effect, and is followed until its end.
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
    const folder = h("input", { type: "text", id: "folder", placeholder: "configured directory" });
    confirm(job, { title: "Take a savepoint", main: "Take savepoint", tell: "The job continues while its state is copied. The savepoint is kept until you delete it. You can start the job from it with other code or another parallelism.",
      more: [h("label", { for: "folder" }, "Folder"), folder],
      run: () => begin(job, "POST", "savepoints", { "target-directory": folder.value.trim() || null, "cancel-job": false }) });
  },
  checkpoint(job) {
    confirm(job, { title: "Take a checkpoint now", main: "Take checkpoint", tell: "The job continues. After a failure it restarts from this checkpoint or a newer one.", run: () => begin(job, "POST", "checkpoints", {}) });
  },
  stop(job) {
    const drain = h("input", { type: "checkbox", id: "drain" });
    confirm(job, { title: `Stop ${job.name}`, main: "Stop the job", tone: "danger", tell: "The job takes a savepoint, then ends as FINISHED and frees its slots. No data is lost: you can start the job again from the savepoint. If the savepoint fails, the job continues.",
      more: [h("label", { for: "drain" }, drain, " Drain: fire all windows and timers first, as if the input had ended. Do not continue the job from such a savepoint, because its windows have already fired.")],
      run: () => begin(job, "POST", "stop", { drain: drain.checked }, "savepoints") });
  },
  cancel(job) {
    const last = job.lastCheckpoint;
    confirm(job, { title: `Cancel ${job.name}`, main: "Cancel the job", tone: "danger", bad: true,
      tell: `The job ends immediately, without a savepoint. ${last ? `All work since checkpoint #${last.id} (${when(last.at)}) is lost` : "The job has no checkpoint: all of its state is lost"}. Its checkpoints are deleted unless the configuration retains them. To continue later, stop the job instead.`,
      run: async () => { await ask(`jobs/${job.id}?mode=cancel`, { method: "PATCH" }); return async () => (isEnded((await ask(`jobs/${job.id}/status`)).status) ? { done: true } : { done: false }); } });
  },
  rescale(job) {
    const most = job.rescaleLimit, free = job.parallelism + job.slotsAvailable;
    const slider = h("input", { type: "range", id: "par", min: 1, max: most, value: String(job.parallelism) }), shown = h("output", { for: "par" }, String(job.parallelism)), tell = h("p.muted");
    const say = () => {
      const to = Number(slider.value);
      text(shown, String(to));
      text(tell, to === job.parallelism ? "This is the current parallelism." : `${job.parallelism} to ${to}: ${to > job.parallelism ? `${to - job.parallelism} more slots` : `${job.parallelism - to} slots become free`}, about ${Math.max(1, Math.round(job.maxParallelism / to))} key groups for each subtask.`);
    };
    slider.addEventListener("input", say); say();
    confirm(job, { title: `Rescale ${job.name}`, main: "Rescale", tell: `The job takes a snapshot and continues from it with another parallelism. The output pauses for some seconds. No record is lost or processed twice. Maximum: ${most} ${most > free ? "(the max parallelism; the cluster starts slots that are missing)" : `(the slots of the job and ${job.slotsAvailable} free slots)`}.`,
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
  const go = h(`button.${tone}`, { type: "submit" }, main), no = h("button", { type: "button", onclick: () => dialog.close() }, "Back"), status = h("div", { role: "status" });
  const form = h("form", { method: "dialog", onsubmit: async (event) => {
    event.preventDefault();
    go.disabled = true; text(no, "Close");
    const begun = Date.now(), wait = h("progress", { "aria-label": "in progress" }), line = h("p.muted");
    put(status, wait, line);
    try {
      const look = await run();
      for (;;) {
        const seen = await look();
        text(line, `Running for ${dur(Date.now() - begun)}`);
        if (seen.done) {
          if (seen.failure) { put(status, h("p.error", null, `The operation failed. The job continues unchanged. ${seen.failure.split("\n")[0]}`)); toast(`${title}: failed`, "bad"); }
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
