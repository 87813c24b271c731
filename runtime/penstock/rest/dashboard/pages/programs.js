// The programs of a session cluster: upload one, start it, delete it.
import { ask, session } from "../api.js";
import { h, panel, put, table, toast, when } from "../dom.js";

const SUFFIXES = ".py,.sql,.zip,.whl,.egg,.tar,.tar.gz,.tgz";

export default async function page({ main, go }) {
  const mayChange = session.role === "admin", list = h("div"), start = h("div");
  const draw = async () => {
    const { files } = await ask("jars");
    put(list, table({ caption: "Programs", rows: files, empty: "No program has been uploaded yet.", columns: [
      ["Program", (file) => file.name, { sort: (file) => file.name }],
      ["Uploaded", (file) => when(file.uploaded), { sort: (file) => file.uploaded }],
      ["Id", (file) => h("code", null, file.id.slice(0, 12))],
      ["Actions", (file) => (mayChange ? h("div.bar", null, h("button", { type: "button", onclick: () => openStart(file) }, "Start…"), h("button", { type: "button", onclick: () => remove(file) }, "Delete")) : null)],
    ] }));
    return files;
  };
  const problem = (error) => toast(`${error.message}${error.remedy ? ` — ${error.remedy}` : ""}`, "bad");
  const remove = async (file) => {
    try { await ask(`jars/${encodeURIComponent(file.id)}`, { method: "DELETE" }); put(start); toast(`${file.name} is deleted`, "ok"); await draw(); } catch (error) { problem(error); }
  };
  const openStart = (file) => {
    const entry = h("input", { type: "text", id: "entry", placeholder: "found by its name" }), args = h("input", { type: "text", id: "args" });
    const parallelism = h("input", { type: "number", id: "parallelism", min: 1, placeholder: "configured" }), from = h("input", { type: "text", id: "savepoint", placeholder: "none: empty state" });
    const drop = h("input", { type: "checkbox", id: "drop" }), status = h("div", { role: "status" }), button = h("button.main", { type: "submit" }, "Start the program");
    const form = h("form", { onsubmit: async (event) => {
      event.preventDefault();
      button.disabled = true;
      put(status, h("progress", { "aria-label": "in progress" }), h("p.muted", null, "The program is prepared. Its packages are installed at its first start."));
      try {
        const body = { programArgs: args.value, allowNonRestoredState: drop.checked };
        if (entry.value.trim()) body.entryClass = entry.value.trim();
        if (parallelism.value) body.parallelism = Number(parallelism.value);
        if (from.value.trim()) body.savepointPath = from.value.trim();
        const { jobid } = await ask(`jars/${encodeURIComponent(file.id)}/run`, { method: "POST", body });
        go(`#/jobs/${jobid}/graph`);
      } catch (error) { put(status, h("p.error.wrap", { role: "alert" }, error.message, " ", error.remedy || "")); }
      button.disabled = false;
    } },
    h("label", { for: "entry" }, "Start (FILE.py or module:function)"), entry, h("label", { for: "args" }, "Arguments"), args,
    h("label", { for: "parallelism" }, "Parallelism"), parallelism, h("label", { for: "savepoint" }, "Savepoint or checkpoint"), from,
    h("label", { for: "drop" }, drop, " Drop state that the program no longer has"), status, h("div.bar", null, button));
    put(start, panel(`Start ${file.name}`, h("div.in", null, form)));
    entry.focus();
  };
  const file = h("input", { type: "file", id: "program", accept: SUFFIXES, required: true });
  const upload = h("form", { onsubmit: async (event) => {
    event.preventDefault();
    const form = new FormData();
    form.append("jarfile", file.files[0]);
    try {
      const { filename } = await ask("jars/upload", { method: "POST", form });
      const files = await draw(), id = filename.split("/").pop();
      openStart(files.find((one) => one.id === id));
      upload.reset();
    } catch (error) { problem(error); }
  } }, h("label", { for: "program" }, "A module (.py), an archive or a wheel"), file, h("div.bar", null, h("button.main", { type: "submit" }, "Upload")));
  main.append(h("h1", null, "Programs"), mayChange ? panel("Upload a program", h("div.in", null, upload)) : h("p.muted", null, "Your token permits only reading."), start, panel("Uploaded programs", list));
  await draw();
  return {};
}
