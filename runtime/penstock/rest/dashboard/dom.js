// Elements and the formats of values. Text is always set as text, so no text of a job becomes markup.

const SVG = "http://www.w3.org/2000/svg";

/** h("p.muted", {title: "…", onclick: f}, "text", child, …) */
export function h(tag, props, ...children) {
  const [name, ...classes] = tag.split(".");
  const element = document.createElement(name || "div");
  if (classes.length) element.className = classes.join(" ");
  return fill(element, props, children);
}

export function s(tag, props, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

function fill(element, props, children) {
  for (const [key, value] of Object.entries(props || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "style") for (const [k, v] of Object.entries(value)) element.style.setProperty(k, v);
    else if (key === "value" || key === "checked") element[key] = value;
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export function put(parent, ...children) {
  parent.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return parent;
}

/** Sets a text only if it has changed, so that a selection and a screen reader keep their position. */
export function text(element, value) {
  if (element.textContent !== value) element.textContent = value;
}

export function num(value, digits = 1) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  for (const [unit, name] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (size >= unit) { const of = unit === 1e4 ? 1e3 : unit; return (value / of).toFixed(size / of >= 100 ? 0 : digits) + name; }
  }
  if (size > 0 && size < 0.1) return value.toPrecision(1);
  return size >= 100 || Number.isInteger(value) ? Math.round(value).toLocaleString("en") : value.toFixed(size < 10 && size > 0 ? digits : 0);
}

export function bytes(value) {
  if (value === null || value === undefined || value < 0) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (value >= 1024 && at < 4) { value /= 1024; at++; }
  return `${at && value < 100 ? value.toFixed(1) : Math.round(value)} ${units[at]}`;
}

export function dur(ms) {
  if (ms === null || ms === undefined || Number.isNaN(ms)) return "–";
  if (ms < 0) return `-${dur(-ms)}`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60e3) return `${(ms / 1e3).toFixed(ms < 10e3 ? 1 : 0)} s`;
  const sec = Math.floor(ms / 1e3), d = Math.floor(sec / 86400), hr = Math.floor(sec / 3600) % 24, m = Math.floor(sec / 60) % 60;
  if (d) return `${d} d ${hr} h`;
  return hr ? `${hr} h ${m} min` : `${m} min ${sec % 60} s`;
}

const two = (n) => String(n).padStart(2, "0");
export function clock(ms) {
  if (!(ms > 0)) return "–";
  const at = new Date(ms);
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}
export function when(ms) {
  if (!(ms > 0)) return "–";
  const at = new Date(ms);
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${clock(ms)}`;
}
/** Names of chains, with arrows. */
export const pretty = (name) => name.replaceAll(" -> ", " → ");
export const percent = (share) => `${Math.round((share || 0) * 100)} %`;
/** A share as a CSS length, which must not contain a space. */
export const cssShare = (share) => `${Math.round((share || 0) * 100)}%`;

const TONE = { RUNNING: "ok", FINISHED: "ok", COMPLETED: "ok", FAILED: "bad", FAILING: "bad", RESTARTING: "warn", INITIALIZING: "warn", CREATED: "warn", CANCELLING: "warn", IN_PROGRESS: "warn", CANCELED: "" };
export function badge(state) {
  return h(`span.badge.${TONE[state] || "plain"}`, null, state.replace("_", " ").toLowerCase());
}
export const isEnded = (state) => ["FINISHED", "FAILED", "CANCELED"].includes(state);

export function panel(title, ...content) {
  return h("section.panel", null, h("header", null, typeof title === "string" ? h("h2", null, title) : title), ...content);
}

/** columns: [label, cell(row), {num, sort(row), wide}]. Rows may be thousands, so one page of them is created at a time. */
export function table({ caption, columns, rows, go, isOn, empty, page = 50, sortBy = null, descending = false }) {
  let shown = page, by = sortBy, down = descending;
  const box = h("div.scroll", { tabindex: "0", role: "region", "aria-label": caption });
  const draw = () => {
    const list = rows.slice();
    if (by !== null) {
      const key = columns[by][2].sort;
      list.sort((a, b) => { const x = key(a), y = key(b); return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1); });
    }
    const head = columns.map(([label, , more = {}], index) => h(more.num ? "th.num" : "th", { scope: "col", "aria-sort": by === index ? (down ? "descending" : "ascending") : null },
      more.sort ? h("button", { type: "button", onclick: () => { down = by === index ? !down : true; by = index; draw(); } }, label, by === index ? (down ? " ↓" : " ↑") : "") : label));
    const body = list.slice(0, shown).map((row) => h(go ? "tr.go" : "tr", { class: [go ? "go" : "", isOn && isOn(row) ? "on" : ""].join(" ").trim() || null, onclick: go && ((event) => { if (!event.target.closest("a,button")) go(row); }) },
      columns.map(([, cell, more = {}]) => h(more.num ? "td.num" : more.wide ? "td.wide" : "td", null, cell(row)))));
    const links = () => [...box.querySelectorAll("a,button")], focused = links().indexOf(document.activeElement);
    put(box, rows.length ? h("table", { "aria-label": caption }, h("thead", null, h("tr", null, head)), h("tbody", null, body)) : h("div.empty", null, empty || "Nothing yet."),
      list.length > shown ? h("div.in.bar", null, h("button", { type: "button", onclick: () => { shown += 200; draw(); } }, `Show more of ${list.length}`)) : null);
    if (focused >= 0 && links()[focused]) links()[focused].focus();
  };
  draw();
  box.renew = (fresh) => { rows = fresh; draw(); };
  return box;
}

export function toast(message, tone = "") {
  const element = h(`div.toast.${tone || "plain"}`, null, message);
  document.getElementById("toasts").append(element);
  setTimeout(() => element.remove(), tone === "bad" ? 12e3 : 6e3);
}
