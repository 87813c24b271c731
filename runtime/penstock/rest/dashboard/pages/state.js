// The state in the newest checkpoint: by key, or the first entries. For queryable state also the current value in the task of a key.
import { ask } from "../api.js";
import { bytes, dur, h, panel, put, table, when } from "../dom.js";

export default async function page({ main, job, rest, go }) {
  const { states } = await ask(`jobs/${job}/state`);
  const [uid, name] = rest;
  const chosen = states.find((one) => one.uid === uid && one.name === name) || null;
  main.append(panel("States in the newest checkpoint", table({
    caption: "States", rows: states, go: (r) => go(`#/jobs/${job}/state/${encodeURIComponent(r.uid)}/${encodeURIComponent(r.name)}`), isOn: (r) => r === chosen, empty: "No operator has state.",
    columns: [["Name", (r) => h("a", { href: `#/jobs/${job}/state/${encodeURIComponent(r.uid)}/${encodeURIComponent(r.name)}` }, r.name), { sort: (r) => r.name }], ["Kind", (r) => r.kind], ["Operator", (r) => r.operator, { sort: (r) => r.operator }], ["Uid", (r) => h("code", null, r.uid)], ["Queryable as", (r) => r.queryable || "–"], ["Bytes of the operator", (r) => (r.operatorBytes ? bytes(r.operatorBytes) : "–"), { num: true, sort: (r) => r.operatorBytes }]],
  })));
  if (!chosen) return {};
  const key = h("input", { type: "search", id: "key", placeholder: 'text, 7, ["a", 1]', size: 28 }), box = h("div.entries", null, h("div.empty", null, "…")), about = h("div.about.muted", { role: "status" });
  const scan = h("button", { type: "button", onclick: () => { key.value = ""; look(); } }, "Scan");
  let live = false, turn = 0;
  const entries = (asked) => {
    const query = new URLSearchParams({ uid: chosen.uid });
    if (asked) query.set("key", asked);
    if (live) query.set("consistency", "live"); else query.set("limit", "100");
    return ask(`jobs/${job}/state/${encodeURIComponent(live ? chosen.queryable : chosen.name)}?${query}`);
  };
  const show = (found, empty) => {
    const names = [...new Set(found.entries.flatMap((entry) => Object.keys(entry)))], value = (v) => h("code.wrap", null, typeof v === "string" ? v : JSON.stringify(v));
    put(about, live ? `Value at ${when(found.timestamp)} in the task that has the key, attempt ${found.attempt}`
      : `As of checkpoint ${found.checkpointId}, ${when(found.timestamp)} (${dur(Date.now() - found.timestamp)} ago)${found.truncated ? "; the first 100" : ""}`);
    put(box, table({ caption: `Entries of ${chosen.name}`, rows: found.entries, page: 100, empty, columns: names.map((one) => [one, (r) => (r[one] === undefined ? "" : value(r[one])), { wide: true }]) }));
  };
  const look = async (submitted) => {
    const asked = key.value.trim(), mine = ++turn;
    if (live && !asked) {
      put(about, "Current value");
      put(box, h("div.empty", null, "Enter a key. Current values can only be read by key."));
      if (submitted) key.focus();
      return;
    }
    box.setAttribute("aria-busy", "true");
    try {
      const found = await entries(asked);
      if (mine === turn) show(found, asked ? "The key has no entries." : "The state is empty.");
    } catch (error) {
      if (mine !== turn) return;
      const remedy = (error.remedy || "").replace("with consistency=checkpoint", "as of the newest checkpoint").replace("consistency=checkpoint", "the newest checkpoint");
      put(about, `No response at ${when(Date.now())}`);
      put(box, h("div.in", null, h("div.error", { role: "alert" }, error.message, remedy ? h("div", null, remedy) : null)));
    } finally { if (mine === turn) box.removeAttribute("aria-busy"); }
  };
  const form = h("form.bar", { onsubmit: (event) => { event.preventDefault(); look(true); } }, h("label", { for: "key" }, "Key"), key, chosen.queryable ? choice((now) => { live = now; scan.disabled = now; look(); }) : null, h("button.main", { type: "submit" }, "Look up"), scan);
  main.append(panel(h("div.bar", { style: { flex: "1" } }, h("h2", null, chosen.name), h("span.grow"), form), about, box,
    !chosen.queryable && chosen.kind.startsWith("keyed ") ? h("p.in.muted", null, "This state can only be read from checkpoints. Call ", h("code", null, 'set_queryable("a name")'), " on its descriptor to also read current values.") : null));
  await look();
  return {};
}

/** Source of the entries: the newest checkpoint or the tasks. */
function choice(chose) {
  const buttons = [["As of the newest checkpoint", false], ["Current value", true]].map(([label, now]) => h("button", { type: "button", "data-label": label, "aria-pressed": String(!now), onclick: (event) => {
    for (const one of buttons) one.setAttribute("aria-pressed", String(one === event.currentTarget));
    chose(now);
  } }, label));
  return h("div.seg", { role: "group", "aria-label": "Time of the value" }, buttons);
}
