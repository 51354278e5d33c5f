// The live page: a chat, and what the engine does meanwhile.
import { barAt, colourOf, drawMap, drawSpark, drawSteps, drawTimes, drawTree } from "./draw.js";
import { duration, focusOn, number, stepAt, stepColumns } from "./draw.js";
import { drawTimeline, lanesOf, newView, pan, reveal, under, zoom } from "./timeline.js";

const $ = (id) => document.getElementById(id);
function make(tag, className, ...children) {
  const e = document.createElement(tag);
  if (className) e.className = className;
  e.append(...children);
  return e;
}
function button(text, className, onclick) {
  const b = make("button", className, text);
  b.type = "button";
  b.onclick = onclick;
  return b;
}

// ---- keys: kept for this tab alone ----

const keyFor = (what) => sessionStorage.getItem(what) || sessionStorage.getItem("chat") || sessionStorage.getItem("live") || "";
function headers(what, more) {
  const key = keyFor(what);
  return { ...more, ...(key ? { Authorization: "Bearer " + key } : {}) };
}

// Asks for a key; true if one was given.
function askKey(what, why) {
  const dialog = $("ask-key");
  if (dialog.open) return Promise.resolve(false);
  $("key-why").textContent = why;
  $("key-text").value = "";
  dialog.showModal();
  return new Promise((done) => {
    const close = (given) => {
      dialog.onclose = null;
      if (dialog.open) dialog.close();
      done(given);
    };
    dialog.onclose = () => close(false);
    $("key-cancel").onclick = () => close(false);
    dialog.querySelector("form").onsubmit = (e) => {
      e.preventDefault();
      sessionStorage.setItem(what, $("key-text").value.trim());
      close(true);
    };
  });
}

async function errorOf(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return `The server answered with status ${response.status}.`;
  }
}

// Calls `tell` with the data of each server-sent event.
async function readEvents(response, tell) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    const events = text.split("\n\n");
    text = events.pop();
    for (const e of events) if (e.startsWith("data: ")) tell(e.slice(6));
  }
}

// ---- chat ----

let messages = [], asking = null, model = "", mine = new Set();

function keepAtEnd(change) {
  const log = $("log"), end = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
  change();
  if (end) log.scrollTop = log.scrollHeight;
}

function openAnswer(n) {
  const block = make("div", "answer open"), bodies = [];
  const holder = n > 1 ? make("div", "answers") : block;
  for (let i = 0; i < n; i++) {
    const text = make("span"), body = make("div", "body", text);
    bodies.push(text);
    holder.append(body);
  }
  if (n > 1) block.append(holder);
  block.setAttribute("aria-busy", "true");
  return { block, bodies, text: bodies.map(() => ""), timings: null, usage: null };
}

function markMine(answer, request) {
  if (!request) return;
  mine.add(Number(request));
  focusOn(Number(request));
  answer.block.style.borderLeftColor = colourOf(Number(request));
}

function showFacts(answer, reason) {
  const t = answer.timings, facts = make("div", "facts"), add = (text) => facts.append(make("span", "", text));
  if (reason === "stopped") add("stopped");
  if (reason === "length") add("cut at the longest answer");
  if (t) {
    add(`${number(t.predicted_n)} tokens`);
    if (t.predicted_per_second) add(`${t.predicted_per_second.toFixed(1)} tokens/s`);
    add(`first after ${duration(t.ttft_ms)}`);
    if (t.cache_n) add(`${number(t.cache_n)} of ${number(t.cache_n + t.prompt_n)} prompt tokens from the cache`);
    if (t.story) facts.append(button("Story", "quiet", () => openStory(t.story)));
  }
  if (facts.childNodes.length) answer.block.append(facts);
}

function takeChunk(answer, data) {
  if (data === "[DONE]") return;
  const chunk = JSON.parse(data);
  if (chunk.error) throw new Error(chunk.error.message);
  if (chunk.timings) answer.timings = chunk.timings;
  for (const choice of chunk.choices || []) {
    const piece = choice.delta?.content;
    if (choice.finish_reason) answer.reason = choice.finish_reason;
    if (!piece) continue;
    answer.text[choice.index] += piece;
    keepAtEnd(() => answer.bodies[choice.index].append(piece));
  }
}

async function request(answer, n) {
  const system = $("system").value.trim(), temperature = $("temperature").value;
  const body = {
    ...(model ? { model } : {}),
    messages: [...(system ? [{ role: "system", content: system }] : []), ...messages],
    stream: true,
    max_tokens: Number($("longest").value) || 512,
    ...(temperature !== "" ? { temperature: Number(temperature) } : n > 1 ? { temperature: 0.9 } : {}),
    ...(n > 1 ? { n } : {}),
  };
  for (;;) {
    const response = await fetch("v1/chat/completions", {
      method: "POST",
      headers: headers("chat", { "Content-Type": "application/json" }),
      body: JSON.stringify(body),
      signal: asking.signal,
    });
    if (response.status === 401 && (await askKey("chat", "The server wants a key for chats."))) {
      findModel();
      continue;
    }
    if (!response.ok) throw new Error(await errorOf(response));
    markMine(answer, response.headers.get("X-Story-Id"));
    await readEvents(response, (data) => takeChunk(answer, data));
    return;
  }
}

async function ask(text, n = 1) {
  if (asking || !text.trim()) return;
  const answer = openAnswer(n), log = $("log");
  $("welcome").hidden = true;
  messages.push({ role: "user", content: text });
  log.append(make("div", "said", text), answer.block);
  log.scrollTop = log.scrollHeight;
  asking = new AbortController();
  showSend();
  log.setAttribute("aria-busy", "true");
  try {
    await request(answer, n);
  } catch (e) {
    if (e.name === "AbortError") answer.reason = "stopped";
    else {
      answer.bodies[0].parentElement.classList.add("error");
      answer.bodies[0].append((answer.text[0] ? "\n" : "") + e.message);
    }
  }
  asking = null;
  focusOn(null);
  if (answer.text[0]) messages.push({ role: "assistant", content: answer.text[0] });
  else messages.pop();
  answer.block.classList.remove("open");
  answer.block.removeAttribute("aria-busy");
  log.removeAttribute("aria-busy");
  keepAtEnd(() => showFacts(answer, answer.reason));
  showSend();
}

function showSend() {
  $("send").textContent = asking ? "Stop" : "Send";
  $("send").classList.toggle("stop", !!asking);
}

function fitText() {
  const t = $("text");
  t.style.height = "auto";
  t.style.height = t.scrollHeight + 2 + "px";
}

function startChat() {
  const idea = (text, n, label) => $("ideas").append(button(label + text, "quiet", () => ask(text, n)));
  idea("Why is the sky blue?", 1, "");
  idea("Write a short story about a lighthouse keeper.", 1, "");
  idea("Name a colour, and say why you like it.", 4, "Four answers at once: ");
  $("ask").onsubmit = (e) => {
    e.preventDefault();
    if (asking) return asking.abort();
    const text = $("text").value;
    $("text").value = "";
    fitText();
    ask(text);
  };
  $("text").oninput = fitText;
  $("text").onkeydown = (e) => {
    if (e.key !== "Enter" || e.shiftKey || e.isComposing) return;
    e.preventDefault();
    if (!asking) $("ask").requestSubmit();
  };
  document.addEventListener("keydown", (e) => {
    if (e.key === "Escape" && asking && !document.querySelector("dialog[open]")) asking.abort();
  });
  $("forget").onclick = () => {
    asking?.abort();
    messages = [];
    $("log").replaceChildren($("welcome"));
    $("welcome").hidden = false;
    $("text").focus();
  };
  $("key").onclick = () => askKey("chat", "The key that this tab sends with chats.");
}

// ---- stories ----

// The story as a page: a link, or, since a link carries no key, a file to save where the server asks for one.
function linkPage(id) {
  const link = $("story-page"), key = keyFor("live");
  link.href = `story/${id}?format=html`;
  link.onclick = !key ? null : async (e) => {
    e.preventDefault();
    const r = await fetch(link.href, { headers: headers("live") });
    if (!r.ok) return;
    const file = make("a");
    file.href = URL.createObjectURL(await r.blob());
    file.download = `story-${id}.html`;
    file.click();
    URL.revokeObjectURL(file.href);
  };
}

async function openStory(id) {
  const dialog = $("story"), pre = dialog.querySelector("pre");
  linkPage(id);
  pre.textContent = "…";
  $("story-title").textContent = `Story of request ${id}`;
  dialog.showModal();
  try {
    const r = await fetch(`story/${id}?format=text`, { headers: headers("live") });
    if (r.ok) pre.textContent = await r.text();
    else if (r.status === 401) pre.textContent = "Stories need an administrator’s key.";
    else if (r.status === 404) pre.textContent = "The server has no story of this request: it may be too long ago.";
    else if (r.status === 501) pre.textContent = "This server does not tell stories.";
    else pre.textContent = await errorOf(r);
  } catch {
    pre.textContent = "The server cannot be reached.";
  }
}

// ---- the engine ----

const line = newView();
let host = new Map();
let steps = [], last = null, chosen = null, bar = null, paused = false, watching = null, spoken = 0;

function setState(name, text) {
  $("state").className = "state " + name;
  $("state").lastElementChild.textContent = text;
}

function showFigures(d) {
  const cache = d.tree, share = cache.lookup_tokens ? cache.hit_tokens / cache.lookup_tokens : 0;
  $("f-output").textContent = number(d.now.output_per_s);
  $("f-prefill").textContent = number(d.now.prefill_per_s);
  $("f-running").textContent = number(d.now.running);
  $("f-waiting").textContent = number(d.now.waiting);
  $("f-hits").textContent = (100 * share).toFixed(share && share < 0.1 ? 1 : 0) + " %";
  const done = `${number(d.now.stopped + d.now.length)} answered, ${number(d.now.aborted)} stopped`;
  $("f-done").textContent = done + (d.now.failed ? `, ${number(d.now.failed)} failed` : "");
  $("f-saved").textContent = `${number(cache.hit_tokens)} tokens saved`;
  drawSpark($("c-output"), d.rates.output);
  drawSpark($("c-prefill"), d.rates.prefill);
}

function sayStep(s) {
  if (!s) return "No step has run yet.";
  const parts = [], read = s.tokens - s.decodes, readers = s.seqs - s.decodes;
  if (s.decodes) parts.push(`${number(s.decodes)} ${s.decodes === 1 ? "request gets a token" : "requests get a token each"}`);
  if (read) parts.push(`${number(read)} prompt tokens of ${number(readers)} ${readers === 1 ? "request" : "requests"} are read`);
  return `Step ${number(s.id)}, ${duration(s.ms)}: ${parts.join(", ")}.`;
}

function showSteps() {
  const s = steps.find((one) => one.id === chosen) || steps[steps.length - 1];
  drawSteps($("c-steps"), steps, chosen);
  $("t-steps").textContent = sayStep(s);
  showLine(s);
}

const lineData = () => ({ steps, host: host.values(), now: last.at_ms });

// When the step ran, and how long the device had waited for it.
function sayWhen(s) {
  const at = steps.indexOf(s), before = steps[at - 1], idle = before?.id === s.id - 1 ? s.at_ms - before.at_ms - before.ms : null;
  return `It began ${duration(last.at_ms - s.at_ms)} before now` + (idle > 0 ? `; the device had waited for ${duration(idle)}.` : ".");
}

function showLine(s) {
  if (!last) return;
  drawTimeline($("c-line"), lineData(), line, chosen);
  const lane = line.lane ? ` Enter opens the story of request ${line.lane}.` : "";
  $("t-line").textContent = s ? `${sayStep(s)} ${sayWhen(s)}${lane}` : "No step has run yet.";
}

function showMap(p) {
  const square = p.per_cell > 1 ? `${number(p.per_cell)} pages` : "a page";
  $("t-map").textContent = `A square is ${square} of ${p.tokens} tokens’ keys and values, in its request’s colour.`;
  drawMap($("c-map"), p);
  const entry = (name, text) => make("span", "", make("i", name), text);
  $("l-map").replaceChildren(...["used", "cached", "free"].map((kind) => entry(kind, `${number(p[kind])} ${kind}`)));
}

const REASONS = {
  soon: "next step", "batch full": "the batch is full", "no pages": "too few free pages", behind: "older ones first",
  retracted: "gave its pages up", "token budget": "the step’s tokens are used up",
};

function requestRow(name, r, text, note, share) {
  const swatch = make("i"), bar = make("span", "bar-of");
  const li = make("li", name, swatch, make("b", "", "#" + r.request), bar, make("small", "", note));
  swatch.style.background = swatch.style.borderColor = colourOf(r.request);
  if (mine.has(r.request)) li.classList.add("mine");
  if (share != null) {
    const fill = make("span", "fill");
    fill.style.width = 100 * Math.min(1, share) + "%";
    fill.style.background = colourOf(r.request);
    bar.append(fill);
  }
  bar.append(make("span", "words", text));
  return li;
}

function showRequests(d) {
  const rows = [];
  for (const r of d.running) {
    const reads = r.output === 0, share = reads ? r.computed / r.prompt : r.output / r.most;
    const text = reads ? `reads ${number(r.computed)} of ${number(r.prompt)}` : `wrote ${number(r.output)}`;
    rows.push(requestRow("run", r, text + (mine.has(r.request) ? ", yours" : ""), `${number(r.pages)} pages`, share));
  }
  for (const q of d.queue) {
    rows.push(requestRow("wait", q, `${number(q.tokens)} tokens: ${REASONS[q.why] || q.why}`, `${q.waits_s.toFixed(1)} s`));
  }
  const rest = d.now.running - d.running.length + Math.max(0, d.now.waiting - d.queue.length);
  if (rest > 0) rows.push(make("li", "none", `and ${number(rest)} more`));
  if (!rows.length) rows.push(make("li", "none", "The engine is idle."));
  const list = $("requests"), at = list.scrollTop;
  list.replaceChildren(...rows);
  list.scrollTop = at;
}

function showTree(t) {
  const shown = drawTree($("c-tree"), t);
  const cut = shown < t.runs ? `, the ${shown} largest shown` : "";
  const evicted = t.evicted_pages ? `; ${number(t.evicted_pages)} pages evicted so far` : "";
  $("t-tree").textContent = `${number(t.pages)} pages in ${number(t.runs)} branches${cut}${evicted}. Coloured: in use now.`;
}

// Says in words, now and then, what a drawing shows.
function describe(d) {
  if (Date.now() - spoken < 5000) return;
  spoken = Date.now();
  const p = d.pages;
  $("c-steps").setAttribute("aria-label", "Steps of the engine. " + sayStep(steps[steps.length - 1]));
  $("c-line").setAttribute("aria-label", `Timeline of ${steps.length} steps, the last ${duration(line.span)} shown.`);
  $("c-map").setAttribute("aria-label", `Map of ${p.all} pages: ${p.used} used, ${p.cached} cached, ${p.free} free.`);
  $("c-tree").setAttribute("aria-label", `Tree of cached prefixes: ${d.tree.pages} pages in ${d.tree.runs} branches.`);
  const times = (l) => `median ${duration(l.p50_ms)}, 99th percentile ${duration(l.p99_ms)}.`;
  $("c-times").setAttribute("aria-label", `First token: ${times(d.ttft)} Between tokens: ${times(d.itl)}`);
}

function show(d) {
  showFigures(d);
  showSteps();
  showMap(d.pages);
  showRequests(d);
  showTree(d.tree);
  drawTimes($("c-times"), d.ttft, d.itl, bar);
  if (d.held_share != null) $("cost").textContent = `Watching holds the engine for ${(100 * d.held_share).toFixed(3)} % of its time.`;
  describe(d);
}

function take(data) {
  const d = JSON.parse(data);
  if (d.busy) return setState("live", `a step has run for ${d.busy.step_s.toFixed(0)} s`);
  setState("live", "live");
  const newest = steps.length ? steps[steps.length - 1].id : 0;
  for (const s of d.steps) if (s.id > newest) steps.push(s);
  if (d.now.steps < newest) { // another server
    steps = d.steps;
    host = new Map();
  }
  steps = steps.slice(-400);
  for (let i = 0; i < d.host.length; i += 3) host.set(`${d.host[i]} ${d.host[i + 1]}`, d.host.slice(i, i + 3));
  for (const key of host.keys()) {
    if (host.size <= 1600) break;
    host.delete(key); // the oldest
  }
  if (model !== d.engine.model) {
    model = d.engine.model;
    $("model").textContent = model;
  }
  $("where").textContent = `${d.engine.device}, room for ${number(d.pages.all * d.pages.tokens)} tokens`;
  last = d;
  if (!paused) requestAnimationFrame(() => show(d));
}

function notice(text) {
  const box = $("notice");
  box.hidden = !text;
  box.querySelector("p").textContent = text || "";
}

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// Watches as long as the page is seen.
async function watch() {
  for (let wait = 500; ; wait = Math.min(8000, wait * 2)) {
    while (document.hidden) await sleep(300);
    watching = new AbortController();
    try {
      const r = await fetch("live", { headers: headers("live"), signal: watching.signal, cache: "no-store" });
      if (r.status === 401) {
        setState("", "locked");
        notice("The engine is shown to administrators only.");
        await new Promise((again) => {
          $("notice").querySelector("button").onclick = async () => {
            if (await askKey("live", "An administrator’s key opens the engine’s view.")) again();
          };
        });
        continue;
      }
      notice("");
      if (!r.ok) throw new Error(await errorOf(r));
      wait = 500;
      await readEvents(r, take);
      setState("bad", "the server has ended the connection");
    } catch (e) {
      if (e.name !== "AbortError") setState("bad", e instanceof TypeError ? "no connection" : e.message);
    }
    await sleep(wait);
  }
}

function chooseStep(s) {
  chosen = s ? s.id : null;
  showSteps();
}

// ---- the timeline ----

// The step beside the chosen one; `by`: -1 or 1.
function chooseBeside(by, first) {
  if (!steps.length) return;
  const at = steps.findIndex((s) => s.id === chosen);
  chosen = steps[Math.max(first, Math.min(steps.length - 1, (at < 0 ? steps.length : at) + by))].id;
  if (last) reveal(line, lineData(), steps.find((s) => s.id === chosen));
  showSteps();
}

// The request whose lane is beside the chosen one.
function chooseLane(by) {
  const all = lanesOf($("c-line"), lineData(), line).shown, at = all.indexOf(line.lane);
  line.lane = all[at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.max(0, Math.min(all.length - 1, at + by))] ?? null;
}

const lineKeys = {
  ArrowLeft: () => chooseBeside(-1, 0),
  ArrowRight: () => chooseBeside(1, 0),
  ArrowUp: () => chooseLane(-1),
  ArrowDown: () => chooseLane(1),
  "+": () => zoom(line, lineData(), $("c-line"), 0.5, null),
  "-": () => zoom(line, lineData(), $("c-line"), 2, null),
  PageUp: () => pan(line, lineData(), -0.5),
  PageDown: () => pan(line, lineData(), 0.5),
  End: () => (line.end = null),
  Enter: () => line.lane && openStory(line.lane),
};
lineKeys["="] = lineKeys["+"];
lineKeys["−"] = lineKeys["-"];

function lineDo(key) {
  if (!last) return;
  lineKeys[key]();
  showSteps();
}

function startLine() {
  const canvas = $("c-line");
  let from = null, moved = 0;
  canvas.onkeydown = (e) => {
    if (!lineKeys[e.key] || e.ctrlKey || e.metaKey || e.altKey) return;
    e.preventDefault();
    lineDo(e.key);
  };
  canvas.onblur = () => {
    line.lane = null;
    chooseStep(null);
  };
  canvas.addEventListener("wheel", (e) => {
    if (!last || !e.deltaY || e.shiftKey) return;
    e.preventDefault();
    zoom(line, lineData(), canvas, e.deltaY > 0 ? 1.25 : 0.8, e.offsetX);
    showSteps();
  }, { passive: false });
  canvas.onpointerdown = (e) => {
    from = e.offsetX;
    moved = 0;
    canvas.setPointerCapture(e.pointerId);
  };
  canvas.onpointermove = (e) => {
    if (!last) return;
    if (from != null) {
      pan(line, lineData(), (from - e.offsetX) / canvas.clientWidth);
      moved += Math.abs(e.offsetX - from);
      from = e.offsetX;
      return showSteps();
    }
    const at = under(canvas, lineData(), line, e.offsetX, e.offsetY);
    line.lane = at.lane;
    chooseStep(at.step);
  };
  canvas.onpointerup = (e) => {
    const at = last && moved < 4 && from != null ? under(canvas, lineData(), line, e.offsetX, e.offsetY) : null;
    from = null;
    if (at?.lane) openStory(at.lane);
  };
  canvas.onpointercancel = () => (from = null);
  canvas.onpointerleave = () => {
    line.lane = null;
    chooseStep(null);
  };
  $("line-in").onclick = () => lineDo("+");
  $("line-out").onclick = () => lineDo("-");
  $("line-now").onclick = () => lineDo("End");
}

// ---- from a bar of a histogram to a story ----

const storyOf = (b) => (b && last ? last[b.of].stories[b.bin] : 0);

function chooseBar(b) {
  const canvas = $("c-times");
  bar = storyOf(b) ? b : null;
  canvas.style.cursor = bar ? "pointer" : "";
  canvas.title = bar ? `opens the story of request ${storyOf(bar)}` : "";
  if (last) drawTimes(canvas, last.ttft, last.itl, bar);
}

// The bar that is next to the chosen one, empty ones left out: those of "First token", then those of "Between tokens".
function nextBar(by) {
  const all = ["ttft", "itl"].flatMap((of) => last[of].stories.flatMap((story, bin) => (story ? [{ of, bin }] : [])));
  const at = all.findIndex((b) => b.of === bar?.of && b.bin === bar?.bin);
  return all[at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.max(0, Math.min(all.length - 1, at + by))];
}

function startTimes() {
  const canvas = $("c-times"), under = (e) => last && barAt(canvas, e.offsetX, e.offsetY, last.ttft.bins.length);
  canvas.onpointermove = (e) => chooseBar(under(e));
  canvas.onpointerleave = canvas.onblur = () => chooseBar(null);
  canvas.onclick = (e) => storyOf(under(e)) && openStory(storyOf(under(e)));
  canvas.onkeydown = (e) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
    if (by && last) {
      e.preventDefault();
      chooseBar(nextBar(by));
    } else if (e.key === "Enter" && storyOf(bar)) openStory(storyOf(bar));
  };
}

function startEngine() {
  const canvas = $("c-steps");
  canvas.onpointermove = (e) => chooseStep(stepAt(canvas, steps, e.offsetX));
  canvas.onpointerleave = () => chooseStep(null);
  canvas.onblur = () => chooseStep(null);
  canvas.onkeydown = (e) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
    if (!by || !steps.length) return;
    e.preventDefault();
    chooseBeside(by, Math.max(0, steps.length - stepColumns(canvas)));
  };
  $("pause").onclick = () => {
    paused = !paused;
    $("pause").setAttribute("aria-pressed", paused);
    if (!paused && last) show(last);
  };
  document.addEventListener("visibilitychange", () => document.hidden && watching?.abort());
  const again = () => last && show(last);
  new ResizeObserver(again).observe($("engine"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
}

// ---- the two views of a narrow window ----

function startTabs() {
  const tabs = [$("tab-chat"), $("tab-engine")];
  const choose = (tab) => {
    for (const t of tabs) {
      t.setAttribute("aria-selected", t === tab);
      t.tabIndex = t === tab ? 0 : -1;
    }
    document.querySelector("main").dataset.view = tab.getAttribute("aria-controls");
    if (last) requestAnimationFrame(() => show(last));
  };
  for (const t of tabs) {
    t.onclick = () => choose(t);
    t.onkeydown = (e) => {
      if (e.key !== "ArrowLeft" && e.key !== "ArrowRight") return;
      const other = tabs[1 - tabs.indexOf(t)];
      other.focus();
      choose(other);
    };
  }
}

// Where the engine is locked, the chat still has to know the model's name.
async function findModel() {
  try {
    const r = await fetch("v1/models", { headers: headers("chat") });
    if (r.ok && !model) $("model").textContent = model = (await r.json()).data[0].id;
  } catch {
    // the engine's view says that there is no connection
  }
}

$("story").querySelector("button").onclick = () => $("story").close();
startTabs();
startChat();
startEngine();
startLine();
startTimes();
findModel();
watch();
