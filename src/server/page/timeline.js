// The timeline of the live page: lanes over the time that has passed. One is the device, which runs steps; one is the
// engine's own work for them; and each request has one, in its colour.
//
//   device    ▆▆▆▆▆ ▆▆▆▆ ▆▆▆▆▆▆▆▆ ▆▆▆▆      a step; strong where it reads pieces of prompts
//   engine    ▂▂  ▂ ▂ ▂ ▂▂   ▂ ▂             plan, launch, take in, publish
//   #12       ▆▆▆▆▆ ▂▂▂▂ ▂▂▂▂▂▂▂▂            a request in a step: high where it reads, low where it writes
//
// Time between two looks of which the server told not every step is grey: nothing is known of it.
import { box, clear, colourOf, strength, style } from "./draw.js";

const ROW = 17, AXIS = 16, SHORTEST = 5, LONGEST = 120000;
const label = (canvas) => (canvas.clientWidth > 500 ? 62 : 48);

// What is shown: `span` ms that end at `end`; null: at the newest look, or soon after the last step of an idle engine.
export const newView = () => ({ span: 4000, end: null, lane: null });

function newest(view, data) {
  const s = data.steps[data.steps.length - 1];
  return s ? Math.min(data.now, s.at_ms + s.ms + view.span / 12) : data.now;
}

const endOf = (view, data) => view.end ?? newest(view, data);

// Begins where the oldest step that is known began.
function firstOf(data) {
  return data.steps.length ? data.steps[0].at_ms : data.now;
}

// Moves the view by a share of its span; at the newest look it follows again.
export function pan(view, data, share) {
  const end = endOf(view, data) + share * view.span;
  view.end = end >= newest(view, data) ? null : Math.max(end, firstOf(data) + view.span / 2);
}

// Makes the span `by` times as long and keeps the moment at `x` (in CSS pixels; null: the end) where it is.
export function zoom(view, data, canvas, by, x) {
  const span = Math.max(SHORTEST, Math.min(LONGEST, view.span * by)), end = endOf(view, data);
  const share = x == null ? 1 : Math.max(0, Math.min(1, (x - label(canvas)) / (canvas.clientWidth - label(canvas))));
  const at = end - view.span * (1 - share), moved = at + span * (1 - share);
  view.span = span;
  view.end = x == null && view.end == null ? null : moved >= newest(view, data) ? null : moved;
}

// Brings a step into the view.
export function reveal(view, data, step) {
  const end = endOf(view, data);
  if (step.at_ms + step.ms > end) view.end = step.at_ms + step.ms + view.span / 10;
  if (step.at_ms < end - view.span) view.end = step.at_ms + 0.9 * view.span;
  if (view.end >= newest(view, data)) view.end = null;
}

const rowsOf = (canvas) => Math.max(1, Math.floor((canvas.clientHeight - AXIS) / ROW) - 2);

// The requests with a lane: those of steps in the view, the oldest first; where there is no room, the newest.
export function lanesOf(canvas, data, view) {
  const end = endOf(view, data), from = end - view.span, seen = new Set();
  for (const s of data.steps) {
    if (s.at_ms > end || s.at_ms + s.ms < from) continue;
    for (let i = 0; i < s.of.length; i += 3) seen.add(s.of[i]);
  }
  const all = [...seen].sort((a, b) => a - b);
  return { shown: all.slice(-rowsOf(canvas)), hidden: Math.max(0, all.length - rowsOf(canvas)) };
}

// The step and the request under a point of the canvas; null where there is none.
export function under(canvas, data, view, x, y) {
  const left = label(canvas), end = endOf(view, data);
  const at = end - view.span * (1 - (x - left) / (canvas.clientWidth - left));
  const step = x < left ? null : data.steps.findLast((s) => s.at_ms <= at && at <= s.at_ms + s.ms);
  return { step: step || null, lane: lanesOf(canvas, data, view).shown[Math.floor(y / ROW) - 2] ?? null };
}

// 1, 2 or 5 times a power of ten: marks of the axis that are far enough from each other.
function markEvery(span, w) {
  const least = (span * 74) / w, ten = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((n) => n * ten).find((n) => n >= least);
}

// "−3.35 s", with as many digits as tell marks from each other.
function markText(back, every) {
  const [unit, size] = back + every >= 1000 ? [" s", 1000] : [" ms", 1];
  return "−" + (back / size).toFixed(Math.max(0, Math.ceil(-Math.log10(every / size) - 1e-9))) + unit;
}

function drawAxis(c, left, w, h, view, data, x) {
  const now = data.now, end = endOf(view, data), every = markEvery(view.span, w - left);
  c.textAlign = "center";
  for (let back = Math.ceil((now - end) / every) * every; back <= now - end + view.span; back += every) {
    const at = x(now - back);
    c.fillStyle = style("--line");
    c.fillRect(at, 0, 1, h - AXIS);
    c.fillStyle = style("--soft");
    const text = back < every / 2 ? "now" : markText(back, every);
    if (at > left + 20 && at < w - 24) c.fillText(text, at, h - 3);
    else if (back < every / 2) {
      c.textAlign = "right";
      c.fillText(text, w, h - 3);
      c.textAlign = "center";
    }
  }
  c.textAlign = "left";
}

// Steps that no look told of.
function drawUnknown(c, data, x, h) {
  c.fillStyle = style("--grid");
  data.steps.forEach((s, i) => {
    const before = data.steps[i - 1];
    if (!before || s.id === before.id + 1) return;
    const from = x(before.at_ms + before.ms);
    c.fillRect(from, 0, Math.max(1, x(s.at_ms) - from), h - AXIS);
  });
}

function drawHost(c, data, x, from, end) {
  const shade = [0.85, 0.6, 0.4, 0.6]; // plan, launch, take in, publish
  c.fillStyle = style("--soft");
  for (const [part, at, ms] of data.host) {
    if (at > end || at + ms < from) continue;
    c.globalAlpha = shade[part] ?? 0.5;
    c.fillRect(x(at), ROW + 4, Math.max(0.7, x(at + ms) - x(at)), ROW - 8);
  }
  c.globalAlpha = 1;
}

function drawStep(c, s, x, lanes, chosen) {
  const from = x(s.at_ms), width = Math.max(0.7, x(s.at_ms + s.ms) - from - 0.5), reads = s.tokens > s.decodes;
  c.fillStyle = reads ? style("--accent") : style("--cached");
  c.fillRect(from, 2, width, ROW - 4);
  for (let i = 0; i < s.of.length; i += 3) {
    const row = lanes.indexOf(s.of[i]);
    if (row < 0) continue;
    const high = s.of[i + 1] > 1 ? ROW - 3 : ROW - 10, top = (row + 2) * ROW + (ROW - high) / 2;
    c.globalAlpha = strength(s.of[i]);
    c.fillStyle = colourOf(s.of[i]);
    c.fillRect(from, top, width, high);
  }
  c.globalAlpha = 1;
  if (s.id !== chosen) return;
  c.strokeStyle = style("--ink");
  c.lineWidth = 1.5;
  c.strokeRect(from - 1, 1, width + 2, (lanes.length + 2) * ROW - 1);
}

function drawNames(c, canvas, lanes, view) {
  const left = label(canvas);
  c.fillStyle = style("--card");
  c.fillRect(0, 0, left - 3, canvas.clientHeight);
  ["device", "engine", ...lanes.shown.map((r) => "#" + r)].forEach((name, i) => {
    const chosen = i >= 2 && lanes.shown[i - 2] === view.lane;
    if (chosen) {
      c.fillStyle = style("--grid");
      box(c, 0, i * ROW + 1, left - 4, ROW - 2, 3);
    }
    c.fillStyle = style(chosen ? "--ink" : "--soft");
    c.fillText(name, 2, i * ROW + 13);
  });
}

// data: { steps, host, now }; `chosen`: a step's id.
export function drawTimeline(canvas, data, view, chosen) {
  const at = clear(canvas);
  if (!at) return;
  const { c, w, h } = at, left = label(canvas), end = endOf(view, data), from = end - view.span;
  const x = (ms) => left + ((ms - from) / view.span) * (w - left), lanes = lanesOf(canvas, data, view);
  drawAxis(c, left, w, h, view, data, x);
  drawUnknown(c, data, x, h);
  drawHost(c, data, x, from, end);
  for (const s of data.steps) if (s.at_ms <= end && s.at_ms + s.ms >= from) drawStep(c, s, x, lanes.shown, chosen);
  drawNames(c, canvas, lanes, view);
}
