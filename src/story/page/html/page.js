"use strict";
// Draws the timeline of a story: the tracks of spans and the counters below them, on one axis of time.
// Times are microseconds from the request's arrival. A span is [track, name, begin, us, step, text, facts of a step ...];
// us is null for a moment. A counter's point is [name, at, value ...].
(() => {
  const data = JSON.parse(document.getElementById("trace").textContent);
  const canvas = document.getElementById("spans"), told = document.getElementById("told");
  const TRACK = ["request", "steps", "calls", "kernels", "kernels", "kernels"], FACTS = ["tokens", "sequences", "decodes", "prompt tokens", "KV tokens"];
  const ROW = 26, TOP = 22, LANE = 44, LABEL = 14; // LABEL: the part of a lane above its curve
  const tracks = TRACK.map((_, k) => data.spans.filter((s) => s[0] === k).sort((a, b) => a[2] - b[2]));
  while (tracks.length > 3 && !tracks[tracks.length - 1].length) tracks.pop(); // no kernels were recorded
  // the latest end of a track's spans up to each, so that the first one in view is found by halving
  const ends = tracks.map((t) => { let e = -Infinity; return t.map((s) => (e = Math.max(e, s[2] + (s[3] || 0)))); });
  const lanes = new Map();
  for (const c of data.counts) {
    if (!lanes.has(c[0])) lanes.set(c[0], []);
    lanes.get(c[0]).push(c);
  }
  const highest = new Map(); // of a lane's points, summed
  for (const [name, points] of lanes) {
    points.sort((a, b) => a[1] - b[1]);
    highest.set(name, points.reduce((a, p) => Math.max(a, p.slice(2).reduce((s, v) => s + (v || 0), 0)), 0));
  }
  const times = data.spans.flatMap((s) => [s[2], s[2] + (s[3] || 0)]);
  const first = times.reduce((a, b) => Math.min(a, b), 0), last = times.reduce((a, b) => Math.max(a, b), first + 1);
  let from = first, to = last, chosen = null;
  const took = []; // milliseconds of script for each drawing

  const say = (us) => {
    const abs = Math.abs(us);
    return abs >= 1e6 ? (us / 1e6).toFixed(3) + " s" : abs >= 1e3 ? (us / 1e3).toFixed(3) + " ms" : us.toFixed(1) + " us";
  };
  const describe = (s) => {
    let text = s[1] + ": " + (s[3] === null ? "at " + say(s[2]) : say(s[3]) + " from " + say(s[2]));
    if (s[0] === 1) text += " · step " + s[4] + s.slice(6).map((v, k) => v === null ? "" : " · " + v + " " + FACTS[k]).join("");
    if (s[0] >= 2) text += " · in step " + s[4];
    if (s[0] > 2) text += " · recorded by CUPTI";
    return s[5] ? text + " · " + s[5] : text;
  };
  const colour = (name) => {
    const kind = name.replace(/^L\d+\./, "");
    let h = 7;
    for (let i = 0; i < kind.length; i++) h = (h * 31 + kind.charCodeAt(i)) % 360;
    return h;
  };

  function firstInView(k) {
    let a = 0, b = tracks[k].length;
    while (a < b) {
      const m = (a + b) >> 1;
      if (ends[k][m] < from) a = m + 1; else b = m;
    }
    return a;
  }

  function ticks(width) {
    const raw = (to - from) / Math.max(2, width / 110), unit = Math.pow(10, Math.floor(Math.log10(raw)));
    const step = [1, 2, 5, 10].map((f) => f * unit).find((v) => v >= raw), list = [];
    for (let t = Math.ceil(from / step) * step; t <= to && list.length < 100; t += step) list.push(t);
    return list;
  }

  function draw() {
    const began = performance.now(), style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--ink"), soft = style.getPropertyValue("--soft"), line = style.getPropertyValue("--line");
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const ratio = devicePixelRatio || 1, width = canvas.clientWidth, height = TOP + tracks.length * ROW + lanes.size * LANE + 6;
    canvas.style.height = height + "px";
    canvas.width = width * ratio; canvas.height = height * ratio;
    const g = canvas.getContext("2d");
    g.scale(ratio, ratio);
    g.font = "11px system-ui, sans-serif"; g.textBaseline = "middle";
    const x = (t) => (t - from) / (to - from) * width;
    for (const t of ticks(width)) {
      g.fillStyle = line; g.fillRect(x(t), TOP - 4, 1, height);
      if (x(t) + 3 + g.measureText(say(t)).width <= width) { g.fillStyle = soft; g.fillText(say(t), x(t) + 3, 9); }
    }
    tracks.forEach((spans, k) => {
      const y = TOP + k * ROW;
      let drawn = -1; // the last column of pixels that is filled: what is narrower than one is drawn once
      for (let i = firstInView(k); i < spans.length && spans[i][2] <= to; i++) {
        const s = spans[i], a = Math.max(x(s[2]), 0), b = Math.min(s[3] === null ? a + 2 : x(s[2] + s[3]), width);
        if (b < drawn + 0.5 && s !== chosen) continue;
        const w = Math.max(b - a, 1);
        g.fillStyle = `hsl(${colour(s[1])} ${dark ? "45% 42%" : "50% 72%"})`;
        g.fillRect(a, y, w, ROW - 4);
        if (s === chosen) { g.strokeStyle = ink; g.lineWidth = 2; g.strokeRect(a, y, w, ROW - 4); }
        if (w > 40) {
          g.save(); g.beginPath(); g.rect(a, y, w - 3, ROW); g.clip();
          g.fillStyle = ink; g.fillText(s[1], a + 4, y + ROW / 2 - 1); g.restore();
        }
        drawn = b;
      }
    });
    let y = TOP + tracks.length * ROW + 2;
    for (const [name, points] of lanes) { drawLane(g, name, points, x, y, width, soft); y += LANE; }
    took.push(performance.now() - began);
    canvas.dataset.ms = took.slice(-9).sort((a, b) => a - b)[Math.min(took.length, 9) >> 1].toFixed(2); // the median
    canvas.dataset.over = document.documentElement.scrollWidth - innerWidth; // pixels that the page is too wide
  }

  // A counter of several values is a stack of areas, as high as their sum at most; one of a single value is a line's area.
  function drawLane(g, name, points, x, y, width, soft) {
    const n = points.length ? points[0].length - 2 : 0, foot = y + LANE - 6;
    let begin = 0, end = points.length; // the first point in view and the one before it
    while (begin < end) {
      const m = (begin + end) >> 1;
      if (points[m][1] < from) begin = m + 1; else end = m;
    }
    begin = Math.max(0, begin - 1);
    const height = (p, k) => {
      let sum = 0;
      for (let i = 0; i <= k; i++) sum += p[2 + i] || 0;
      return sum;
    };
    const most = highest.get(name) || 1;
    for (let k = n - 1; k >= 0; k--) {
      let column = -Infinity, top = 0, last = Math.max(0, x(points[begin][1]));
      g.beginPath(); g.moveTo(last, foot);
      for (let i = begin; i < points.length; i++) {
        const at = x(points[i][1]), h = height(points[i], k);
        top = at - column < 1 ? Math.max(top, h) : h; // the highest of those that share a column of pixels
        if (at - column >= 1 || i + 1 === points.length) { g.lineTo(at, foot - top / most * (LANE - LABEL - 8)); column = last = at; }
        if (at > width) break;
      }
      g.lineTo(last, foot); g.closePath();
      g.fillStyle = `hsl(${[172, 40, 220][k % 3]} 40% 55% / ${k ? 0.25 : 0.6})`; g.fill();
    }
    g.fillStyle = soft; g.fillText(name + (n > 1 ? " (held, cached, free)" : "") + ", at most " + +most.toPrecision(3), 4, y + 6);
  }

  function show(a, b) {
    const least = 0.05, most = last - first;
    let span = Math.min(Math.max(b - a, least), most);
    from = Math.min(Math.max(a, first), last - span); to = from + span;
    requestAnimationFrame(draw);
    clearTimeout(show.later);
    show.later = setTimeout(() => history.replaceState(null, "", `#t=${from.toFixed(1)}-${to.toFixed(1)}`), 200);
  }
  function zoom(factor, at) {
    show(at - (at - from) * factor, at + (to - at) * factor);
  }
  const timeAt = (e) => from + (e.clientX - canvas.getBoundingClientRect().left) / canvas.clientWidth * (to - from);
  function spanAt(e) {
    const k = Math.floor((e.clientY - canvas.getBoundingClientRect().top - TOP) / ROW), t = timeAt(e);
    const near = (to - from) / canvas.clientWidth * 2;
    if (!tracks[k]) return null;
    for (let i = firstInView(k); i < tracks[k].length && tracks[k][i][2] <= t + near; i++)
      if (t <= tracks[k][i][2] + (tracks[k][i][3] || 0) + near) return tracks[k][i];
    return null;
  }
  function choose(s) {
    chosen = s;
    told.textContent = s ? describe(s) : `${data.spans.length} spans from ${say(first)} to ${say(last)}`;
    requestAnimationFrame(draw);
  }
  function chooseInView(s) {
    if (!s) return;
    choose(s);
    if (s[2] < from || s[2] + (s[3] || 0) > to) show(s[2] - (to - from) / 4, s[2] + (to - from) * 3 / 4);
  }
  function stepTo(by) {
    const k = chosen ? chosen[0] : 1;
    chooseInView(tracks[k][chosen ? tracks[k].indexOf(chosen) + by : firstInView(k)]);
  }
  // To the span of the next track that has any, at the begin of the chosen one: the first that ends behind it.
  function trackTo(by) {
    let k = chosen[0] + by;
    while (tracks[k] && !tracks[k].length) k += by;
    if (tracks[k]) chooseInView(tracks[k].find((s) => s[2] + (s[3] || 0) > chosen[2]) || tracks[k][tracks[k].length - 1]);
  }

  let held = null;
  canvas.addEventListener("wheel", (e) => {
    e.preventDefault();
    if (Math.abs(e.deltaX) > Math.abs(e.deltaY)) show(from + e.deltaX / canvas.clientWidth * (to - from), to + e.deltaX / canvas.clientWidth * (to - from));
    else zoom(Math.exp(e.deltaY / 400), timeAt(e));
  }, { passive: false });
  canvas.addEventListener("pointerdown", (e) => { held = { x: e.clientX, from, to, moved: false }; canvas.setPointerCapture(e.pointerId); });
  canvas.addEventListener("pointermove", (e) => {
    if (held) {
      const by = (held.x - e.clientX) / canvas.clientWidth * (held.to - held.from);
      held.moved = held.moved || Math.abs(e.clientX - held.x) > 3;
      if (held.moved) show(held.from + by, held.to + by);
    } else {
      const s = spanAt(e);
      canvas.title = s ? describe(s) : "";
    }
  });
  canvas.addEventListener("pointerup", (e) => { if (held && !held.moved) choose(spanAt(e)); held = null; });
  canvas.addEventListener("pointercancel", () => { held = null; }); // the page scrolls instead
  canvas.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.altKey || e.metaKey) return; // the browser's own
    const span = to - from, middle = (from + to) / 2;
    const act = { ArrowLeft: () => show(from - span / 8, to - span / 8), ArrowRight: () => show(from + span / 8, to + span / 8),
      "+": () => zoom(0.7, middle), "=": () => zoom(0.7, middle), "-": () => zoom(1.4, middle), 0: () => show(first, last),
      n: () => stepTo(1), p: () => stepTo(-1), ArrowDown: chosen && (() => trackTo(1)), ArrowUp: chosen && (() => trackTo(-1)), Escape: () => choose(null) }[e.key];
    if (act) { e.preventDefault(); act(); }
  });
  for (const b of document.querySelectorAll("[data-do]"))
    b.addEventListener("click", () => b.dataset.do === "all" ? show(first, last) : zoom(b.dataset.do === "in" ? 0.5 : 2, (from + to) / 2));

  // "#step=41" is a step and what it called, "#t=100-200" is a stretch of time in microseconds, "#t=100" a moment with a fiftieth of the whole around it.
  function follow() {
    const step = /^#step=(\d+)$/.exec(location.hash), found = step && tracks[1].find((s) => s[4] === +step[1]);
    if (found) {
      document.getElementById("timeline").scrollIntoView();
      choose(found);
      return show(found[2] - found[3] / 8, found[2] + found[3] * 9 / 8);
    }
    const m = /^#t=(-?[\d.]+)(?:-([\d.]+))?$/.exec(location.hash);
    if (!m) return;
    const a = +m[1], around = (last - first) / 100;
    if (m[2] === undefined) document.getElementById("timeline").scrollIntoView();
    show(m[2] === undefined ? a - around : a, m[2] === undefined ? a + around : +m[2]);
  }
  addEventListener("hashchange", follow);
  addEventListener("resize", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  choose(null);
  follow();
  for (let i = 0; i < 3; i++) draw();
})();
