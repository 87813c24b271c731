// Plots over time (uPlot), in the page's colours; and small bars of subtasks.
import { clock } from "./dom.js";

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** series: [{label, name, colour, write, scale}]; data: the response of `jobs/:id/history`. */
export function plot(box, { title, series, height = 148, span = null, max = null, sync = null, left = 56 }) {
  let drawn = null, last = null;
  box.style.minHeight = `${height + 30}px`;
  const columns = (data) => [data.times.map((ms) => ms / 1000), ...series.map(({ name, times = 1 }) => (data.series[name] || []).map((v) => (v === null ? null : v * times)))];
  const make = () => {
    if (drawn) drawn.destroy();
    const grid = { stroke: colour("line"), width: 1 }, ink = colour("soft");
    const axis = (more) => ({ stroke: ink, grid, ticks: { show: false }, font: "11px system-ui", ...more });
    const write = series[0].write;
    drawn = new uPlot({
      title: undefined, width: Math.max(200, box.clientWidth), height, padding: [6, 8, 0, 0],
      cursor: sync ? { sync: { key: sync } } : { y: false },
      legend: { live: true },
      scales: { x: { time: true, range: span ? () => span() : (u, from, to) => (to === null ? [0, 1] : [Math.min(from, to - 60), to]) }, y: { range: (u, lo, hi) => [0, max || Math.max(hi * 1.08, 1e-3) || 1] } },
      axes: [axis({ size: 26, values: (u, splits, i, space, step) => splits.map((t) => clock(t * 1000).slice(0, step < 60 ? 8 : 5)), space: 78 }), axis({ size: left, values: (u, splits) => splits.map(write) })],
      series: [{ label: "", value: (u, t) => (t === null ? "" : clock(t * 1000)) }, ...series.map((one) => ({
        label: one.label, stroke: colour(one.colour), width: 1.5, fill: one.fill ? `${colour(one.colour)}22` : undefined, points: { show: (u) => u.data[0].length < 2 }, spanGaps: false,
        value: (u, v) => (v === null || v === undefined ? "–" : one.write(v)),
      }))],
    }, last, box);
    box.setAttribute("role", "img"); box.setAttribute("aria-label", title);
  };
  const renew = () => { if (last) make(); };
  const sized = new ResizeObserver(() => { if (drawn && Math.abs(drawn.width - box.clientWidth) > 2) drawn.setSize({ width: Math.max(200, box.clientWidth), height }); });
  sized.observe(box);
  window.addEventListener("penstock-theme", renew);
  return {
    show(data) { last = columns(data); if (drawn) drawn.setData(last); else make(); },
    redraw() { if (drawn) drawn.setData(last); },
    close() { sized.disconnect(); window.removeEventListener("penstock-theme", renew); if (drawn) drawn.destroy(); },
  };
}

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
