// The drawings of the live page. Each takes a canvas and data, and draws all of it again.

const HUES = ["#4c78c9", "#d9853b", "#3f9b7d", "#c4566b", "#8a6cc2", "#b8982f", "#3f9dbb", "#b0649f", "#76953f", "#a0745c"];
export const colourOf = (request) => HUES[request % HUES.length];

// While a request is in focus, the others are drawn pale.
let focus = null;
export const focusOn = (request) => (focus = request);
export const strength = (request) => (focus === null || focus === request ? 1 : 0.3);

export const number = (n) => Math.round(n).toLocaleString("en-US");

export function duration(ms) {
  if (ms == null) return "–";
  if (ms >= 9999) return (ms / 1000).toFixed(0) + " s";
  if (ms >= 1000) return (ms / 1000).toFixed(1) + " s";
  return (ms >= 100 ? ms.toFixed(0) : ms >= 10 ? ms.toFixed(1) : ms.toFixed(2)) + " ms";
}

export const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// The context of a canvas, cleared, in CSS pixels, with its size. Null while the canvas is not shown.
export function clear(canvas) {
  const w = canvas.clientWidth, h = canvas.clientHeight, scale = window.devicePixelRatio || 1;
  if (!w || !h) return null;
  if (canvas.width !== Math.round(w * scale) || canvas.height !== Math.round(h * scale)) {
    canvas.width = Math.round(w * scale);
    canvas.height = Math.round(h * scale);
  }
  const c = canvas.getContext("2d");
  c.setTransform(scale, 0, 0, scale, 0, 0);
  c.clearRect(0, 0, w, h);
  c.font = "12px system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif";
  c.textBaseline = "alphabetic";
  return { c, w, h };
}

export function box(c, x, y, w, h, r) {
  c.beginPath();
  c.roundRect(x, y, w, h, Math.min(r, w / 2, h / 2));
  c.fill();
}

export function drawSpark(canvas, values) {
  const at = clear(canvas);
  if (!at) return;
  const { c, w, h } = at, top = Math.max(1, ...values), x = (i) => (i / (values.length - 1)) * w;
  const y = (v) => h - 1.5 - (v / top) * (h - 4);
  c.beginPath();
  values.forEach((v, i) => c.lineTo(x(i), y(v)));
  c.strokeStyle = style("--accent");
  c.lineWidth = 1.5;
  c.lineJoin = "round";
  c.stroke();
  c.lineTo(w, h);
  c.lineTo(0, h);
  c.globalAlpha = 0.12;
  c.fillStyle = c.strokeStyle;
  c.fill();
  c.globalAlpha = 1;
}

// ---- the batch, a column a step ----

const COLUMN = 11, GAP = 2, TIMES = 22;
// Room for a word in front of the times, where the canvas is wide.
const left = (canvas) => (canvas.clientWidth > 500 ? 38 : 0);
// A prompt's piece is as high as several squares: more for more tokens, by their logarithm.
const units = (q) => (q === 1 ? 1 : 2 + Math.log2(q) * 1.1);

export const stepColumns = (canvas) => Math.max(1, Math.floor((canvas.clientWidth - left(canvas) + GAP) / (COLUMN + GAP)));

function drawStep(c, step, x, bottom, unit) {
  let y = bottom;
  for (let i = 0; i < step.of.length; i += 3) {
    const request = step.of[i], q = step.of[i + 1], h = units(q) * unit, gap = unit > 3 ? 1 : 0;
    y -= h;
    c.globalAlpha = strength(request);
    c.fillStyle = colourOf(request);
    box(c, x, y, COLUMN, Math.max(0.7, h - gap), unit > 4 ? 2 : 0);
    c.globalAlpha = 1;
    if (q === 1) continue;
    c.save();
    c.globalAlpha = strength(request);
    c.beginPath();
    c.rect(x, y, COLUMN, h - gap);
    c.clip();
    c.strokeStyle = "rgb(255 255 255 / .42)";
    c.lineWidth = 1.5;
    for (let s = y - COLUMN; s < y + h; s += 5) {
      c.beginPath();
      c.moveTo(x, s + COLUMN);
      c.lineTo(x + COLUMN, s);
      c.stroke();
    }
    c.restore();
  }
}

export function drawSteps(canvas, steps, chosen) {
  const at = clear(canvas);
  if (!at) return;
  const { c, w, h } = at, bottom = h - TIMES - 6, n = stepColumns(canvas), shown = steps.slice(-n);
  let most = 8, slowest = 0;
  for (const s of shown) {
    let sum = 0;
    for (let i = 1; i < s.of.length; i += 3) sum += units(s.of[i]);
    most = Math.max(most, sum);
    slowest = Math.max(slowest, s.ms);
  }
  const unit = Math.min(COLUMN, (bottom - 2) / most);
  c.fillStyle = style("--line");
  c.fillRect(0, bottom, w, 1);
  c.fillStyle = style("--soft");
  if (shown.length && left(canvas)) c.fillText("time", 0, h - 1);
  shown.forEach((s, i) => {
    const x = w - (shown.length - i) * (COLUMN + GAP) + GAP, high = Math.max(1, (s.ms / slowest) * TIMES);
    if (s.id === chosen) {
      c.fillStyle = style("--grid");
      box(c, x - 2, 0, COLUMN + 4, h, 3);
    }
    drawStep(c, s, x, bottom, unit);
    c.fillStyle = style("--cached");
    box(c, x, h - high, COLUMN, high, 1.5);
  });
}

// The step under a point of the canvas.
export function stepAt(canvas, steps, x) {
  const n = Math.min(steps.length, stepColumns(canvas));
  const i = Math.floor((canvas.clientWidth - x + GAP) / (COLUMN + GAP));
  return i >= 0 && i < n ? steps[steps.length - 1 - i] : null;
}

// ---- memory ----

// The largest square cell with which n cells fill a canvas.
function cellSize(n, w, h) {
  let size = Math.min(22, Math.floor(Math.sqrt((w * h) / Math.max(1, n))) + 1);
  while (size > 3 && Math.floor(w / size) * Math.floor(h / size) < n) size -= 0.5;
  return size;
}

export function drawMap(canvas, pages) {
  const at = clear(canvas);
  if (!at) return;
  const { c, w, h } = at, n = pages.cells.length / 4, size = cellSize(n, w + 2, h + 2), columns = Math.floor((w + 2) / size);
  const free = style("--free"), cached = style("--cached"), ink = style("--card"), per = pages.per_cell;
  for (let i = 0; i < n; i++) {
    const [used, kept, shared, owner] = pages.cells.slice(4 * i, 4 * i + 4);
    const x = (i % columns) * size, y = Math.floor(i / columns) * size, s = size - 2;
    c.fillStyle = free;
    box(c, x, y, s, s, 2);
    if (kept) {
      c.globalAlpha = Math.max(0.3, Math.min(1, (kept + used) / per));
      c.fillStyle = cached;
      box(c, x, y, s, s, 2);
    }
    if (used) {
      c.globalAlpha = Math.max(0.35, Math.min(1, used / per)) * strength(owner);
      c.fillStyle = owner ? colourOf(owner) : style("--soft");
      box(c, x, y, s, s, 2);
    }
    c.globalAlpha = 1;
    if (shared && size > 6) {
      c.fillStyle = ink;
      box(c, x + s / 2 - 1.5, y + s / 2 - 1.5, 3, 3, 1.5);
    }
  }
}

// ---- the prefix tree: depth to the right, leaves from top to bottom ----

// At most `most` leaves: the smallest go.
function layTree(runs, most) {
  const nodes = runs.map((r) => ({ ...r, children: [], from: 0 }));
  const roots = [];
  for (const n of nodes) {
    if (n.parent < 0) roots.push(n);
    else {
      nodes[n.parent].children.push(n);
      n.from = nodes[n.parent].from + nodes[n.parent].tokens;
    }
  }
  let leaves = nodes.filter((n) => !n.children.length).length;
  while (leaves > most) {
    let least = null;
    for (const n of nodes) if (!n.gone && !n.children.length && (!least || n.tokens <= least.tokens)) least = n;
    least.gone = true;
    const siblings = least.parent < 0 ? roots : nodes[least.parent].children;
    siblings.splice(siblings.indexOf(least), 1);
    if (siblings.length || least.parent < 0) leaves--;
  }
  let row = 0;
  const place = (n) => {
    n.row = row;
    for (const child of n.children) place(child);
    if (!n.children.length) row++;
    n.rows = row - n.row;
  };
  roots.forEach(place);
  return { nodes: nodes.filter((n) => !n.gone), rows: row };
}

// Draws the tree and returns how many branches there was room for. A place is the square root of its tokens, so that a
// short branch behind a long prefix is still seen.
export function drawTree(canvas, tree) {
  const at = clear(canvas);
  if (!at) return tree.shown.length;
  const { c, w, h } = at, { nodes, rows } = layTree(tree.shown, Math.max(3, Math.floor(h / 17)));
  if (!nodes.length) {
    c.fillStyle = style("--soft");
    c.fillText("Nothing is cached yet.", 0, 16);
    return 0;
  }
  const deepest = Math.max(...nodes.map((n) => n.from + n.tokens)), high = Math.min(30, h / rows);
  const x = (tokens) => Math.sqrt(tokens / deepest) * w;
  for (const n of nodes) {
    const left = x(n.from), width = Math.max(3, x(n.from + n.tokens) - left - 2);
    const y = n.row * high, tall = n.rows * high - (high > 5 ? 2 : 0.5);
    c.fillStyle = n.users ? style("--accent") : style("--cached");
    c.globalAlpha = n.users ? 0.9 : Math.min(0.75, 0.28 + 0.12 * Math.log2(1 + n.hits));
    box(c, left, y, width, tall, 3);
    c.globalAlpha = 1;
    if (tall < 13) continue;
    const all = `${number(n.tokens)} tokens` + (n.hits ? `, found ${number(n.hits)}×` : "");
    const text = [all, `${number(n.tokens)}`].find((t) => c.measureText(t).width < width - 10);
    c.fillStyle = n.users ? style("--on-accent") : style("--ink");
    if (text) c.fillText(text, left + 6, y + Math.min(tall / 2 + 4, 17));
  }
  return nodes.length;
}

// ---- latency ----

const BINS_PER_DECADE = 4, FIRST_MS = 0.1;
const binStart = (i) => FIRST_MS * 10 ** (i / BINS_PER_DECADE);
const binOf = (ms) => BINS_PER_DECADE * Math.log10(ms / FIRST_MS);

function drawHistogram(c, x0, y0, w, h, title, times, chosen) {
  const label = times.n ? `p50 ${duration(times.p50_ms)}   p99 ${duration(times.p99_ms)}` : "none in the last minute";
  c.fillStyle = style("--ink");
  c.fillText(title, x0, y0 + 11);
  c.fillStyle = style("--soft");
  c.textAlign = "right";
  c.fillText(label, x0 + w, y0 + 11);
  c.textAlign = "left";
  const top = y0 + 18, bottom = y0 + h - 15, n = times.bins.length, step = w / n, most = Math.max(1, ...times.bins);
  c.fillStyle = style("--line");
  c.fillRect(x0, bottom, w, 1);
  for (let i = 0; i < n; i++) {
    const high = times.bins[i] ? Math.max(2, (times.bins[i] / most) * (bottom - top)) : 0;
    c.fillStyle = style("--accent");
    c.globalAlpha = i === chosen ? 1 : 0.75;
    if (high) box(c, x0 + i * step + 0.5, bottom - high, step - 1, high, 2);
    c.globalAlpha = 1;
    if (i % BINS_PER_DECADE) continue;
    c.fillStyle = style("--soft");
    const ms = binStart(i), text = ms < 1 ? "0.1 ms" : ms < 999 ? `${Math.round(ms)} ms` : `${Math.round(ms / 1000)} s`;
    c.fillText(text, x0 + i * step, bottom + 13);
  }
  if (!times.n) return;
  c.strokeStyle = style("--ink");
  c.lineWidth = 1;
  c.setLineDash([2, 2]);
  for (const ms of [times.p50_ms, times.p99_ms]) {
    const x = x0 + Math.max(0, Math.min(n, binOf(ms))) * step;
    c.beginPath();
    c.moveTo(x, top);
    c.lineTo(x, bottom);
    c.stroke();
  }
  c.setLineDash([]);
}

// `chosen`: { of: "ttft" or "itl", bin }, or null.
export function drawTimes(canvas, ttft, itl, chosen) {
  const at = clear(canvas);
  if (!at) return;
  const { c, w, h } = at, bin = (of) => (chosen?.of === of ? chosen.bin : -1);
  drawHistogram(c, 0, 0, w, h / 2 - 3, "First token", ttft, bin("ttft"));
  drawHistogram(c, 0, h / 2 + 3, w, h / 2 - 3, "Between tokens", itl, bin("itl"));
}

// The bar under a point of the canvas: of which histogram, and its bin.
export function barAt(canvas, x, y, bins) {
  const bin = Math.floor((x / canvas.clientWidth) * bins);
  return { of: y < canvas.clientHeight / 2 ? "ttft" : "itl", bin: Math.max(0, Math.min(bins - 1, bin)) };
}
