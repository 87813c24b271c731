// Plots over time (uPlot), in the page's colours; and small bars of subtasks.
import { clock, h, put } from "./dom.js";

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

const RIGHT = 12, FONT = "11px system-ui";

/** series: [{label, name, colour, write, times, fill, dash}]; data: the response of `jobs/:id/history`; empty: the text without data. */
export function plot(box, { title, series, height = 148, span = null, max = null, zero = true, sync = null, left = 44, empty = "No values yet. The first ones come about 10 seconds after the start of the job." }) {
  let drawn = null, last = null;
  box.style.minHeight = `${height + 30}px`;
  const columns = (data) => [data.times.map((ms) => ms / 1000), ...series.map(({ name, times = 1 }) => (data.series[name] || []).map((v) => (v === null ? null : v * times)))];
  const make = () => {
    if (drawn) drawn.destroy();
    const grid = { stroke: colour("line"), width: 1 }, ink = colour("soft");
    const axis = (more) => ({ stroke: ink, grid, ticks: { show: false }, font: FONT, ...more });
    // A label that would be cut at the right edge is left out. The axis at the left is as wide as its longest label.
    const fits = (u, t) => { const { min, max: end } = u.scales.x; return ((end - t) / (end - min)) * (u.width - left - RIGHT) + RIGHT > 27; };
    const wide = (u, values) => { u.ctx.font = FONT; return Math.max(left, 12 + Math.ceil(Math.max(0, ...(values || []).map((one) => u.ctx.measureText(one).width)))); };
    const write = series[0].write;
    drawn = new uPlot({
      title: undefined, width: Math.max(200, box.clientWidth), height, padding: [8, RIGHT, 0, 0],
      cursor: sync ? { sync: { key: sync } } : { y: false },
      legend: { live: true },
      scales: { x: { time: true, range: span ? () => span() : (u) => { const all = u.data[0], to = all[all.length - 1]; return all.length ? [Math.min(all[0], to - 60), to] : [0, 1]; } }, y: { range: (u, lo, hi) => (zero ? [0, max || (hi > 0 ? hi * 1.08 : 1)] : [lo - (hi - lo || 1) * 0.08, hi + (hi - lo || 1) * 0.08]) } },
      axes: [axis({ size: 26, values: (u, splits, i, space, step) => splits.map((t) => (fits(u, t) ? clock(t * 1000).slice(0, step < 60 ? 8 : 5) : "")), space: 78 }), axis({ size: wide, values: (u, splits) => splits.map((value) => write(value)) })],
      series: [{ label: "", value: (u, t) => (t === null ? "" : clock(t * 1000)) }, ...series.map((one) => ({
        label: one.label, stroke: colour(one.colour), width: 1.5, dash: one.dash, fill: one.fill ? `${colour(one.colour)}22` : undefined, points: { show: (u) => u.data[0].length < 2 }, spanGaps: false,
        // Without a cursor, the legend has the newest values.
        value: (u, v, i, at) => { const shown = at === null || at === undefined ? newest(u.data[i]) : v; return shown === null || shown === undefined ? "–" : one.write(shown); },
      }))],
    }, last, put(box));
    box.setAttribute("role", "img"); box.setAttribute("aria-label", title);
  };
  const renew = () => { if (last) make(); };
  const sized = new ResizeObserver(() => { if (drawn && Math.abs(drawn.width - box.clientWidth) > 2) drawn.setSize({ width: Math.max(200, box.clientWidth), height }); });
  sized.observe(box);
  window.addEventListener("penstock-theme", renew);
  return {
    show(data) {
      const found = columns(data);
      if (found.slice(1).every((values) => newest(values) === null)) { if (!drawn) put(box, h("div.empty", null, empty)); return; }
      last = found;
      if (drawn) drawn.setData(last); else make();
    },
    redraw() { if (drawn) drawn.setData(last); },
    close() { sized.disconnect(); window.removeEventListener("penstock-theme", renew); if (drawn) drawn.destroy(); },
  };
}

const newest = (values) => values.findLast((value) => value !== null && value !== undefined) ?? null;

/** Draws a bar for each value. If the values are too many for the width, neighbors share a bar with their maximum. */
export function bars(canvas, values, name) {
  const width = canvas.clientWidth || 300, height = 64, scale = window.devicePixelRatio || 1;
  canvas.width = width * scale; canvas.height = height * scale;
  const context = canvas.getContext("2d");
  context.scale(scale, scale); context.clearRect(0, 0, width, height);
  const slots = Math.min(values.length, Math.floor(width / 2)) || 1, step = Math.min(26, width / slots), top = Math.max(...values, 1e-9);
  context.fillStyle = colour(name);
  for (let slot = 0; slot < slots; slot++) {
    const from = Math.floor((slot * values.length) / slots), to = Math.max(from + 1, Math.floor(((slot + 1) * values.length) / slots));
    const value = Math.max(0, ...values.slice(from, to));
    const tall = Math.max(1, (value / top) * (height - 2));
    context.fillRect(slot * step, height - tall, Math.max(1, step - (step > 4 ? 2 : 0.5)), tall);
  }
}
