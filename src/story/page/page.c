/* The page of a story (page.h): headline, MACHINE, TIME, ONE DECODE STEP, how its work is
 * cut, ONE LAYER, (of a GPU) KERNELS, GPU and RANKS, MEMORY, THREADS, LANES, FINDINGS, NOT
 * MEASURED, OBSERVER.
 *
 *   page.c         building blocks; title, machine, memory, threads, findings, observer
 *   page_time.c    TIME
 *   page_batch.c   REQUESTS, BATCH of a whole recording
 *   page_step.c    the op table, cuts, a layer, late tokens
 *   page_gpu.c     KERNELS, GPU, RANKS
 *   page_trees.c   PREFIX TREE, LAYERS, TRAIL
 *   page_level.c   a step, a layer or an op instead of the whole
 *
 * The JSON may come from a file of unknown origin: see story/read.h. */
#include "story/page/page.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/term/figure.h"
#include "story/story.h"

/* ---- building blocks ---- */

page_section *page_open(page *p, const char *key, const char *title, const char *note)
{
    page_section *s =
        &p->section[p->n_sections < PAGE_SECTIONS ? p->n_sections++ : PAGE_SECTIONS - 1];
    *s = (page_section){.key = key, .title = title, .note = note ? note : ""};
    return s;
}

page_row *page_add(page *p, page_row_kind kind, int32_t n_cells)
{
    page_section *s = &p->section[p->n_sections - 1];
    page_row *r = vt_arena_alloc(&p->arena, 1, sizeof *r);
    page_cell *c = vt_arena_alloc(&p->arena, (size_t)n_cells, sizeof *c);
    if (!r || !c) {
        p->failed = true;
        p->lost = (page_row){.cell = p->lost_cell};
        return &p->lost;
    }
    for (int32_t i = 0; i < n_cells; i++)
        c[i] = (page_cell){.text = "", .value = NAN, .share = NAN};
    *r = (page_row){.kind = kind, .n_cells = n_cells, .cell = c};
    *(s->last ? &s->last->next : &s->row) = r;
    s->last = r;
    return r;
}

const char *page_take(page *p, vt_buf *text)
{
    char *out = vt_arena_alloc(&p->arena, text->len + 1, 1);
    p->failed = p->failed || text->failed || !out;
    if (out && text->len)
        memcpy(out, text->data, text->len);
    vt_buf_release(text);
    *text = (vt_buf){0};
    return out ? out : "";
}

const char *page_str(page *p, const json_t *o, const char *key)
{
    vt_buf b = {0};
    char text[STORY_TEXT];
    if (!*story_text(o, key, text))
        return "";
    vt_buf_puts(&b, text);
    return page_take(p, &b);
}

const char *page_say(page *p, const char *fmt, ...)
{
    char text[2 * STORY_TEXT];
    vt_buf b = {0};
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    vt_buf_puts(&b, text);
    return page_take(p, &b);
}

void page_text(page *p, page_row_kind kind, vt_buf *text)
{
    const char *s = page_take(p, text);
    page_add(p, kind, 1)->cell[0].text = s;
}

void page_pair(page *p, page_row_kind kind, const char *name, vt_buf *text)
{
    const char *s = page_take(p, text);
    page_row *r = page_add(p, kind, 2);
    r->cell[0].text = name;
    r->cell[1].text = s;
}

void page_series(page *p, page_cell *c, const json_t *list, const char *key)
{
    enum { MOST = 512 };
    const json_t *values = story_get(list, key);
    size_t n = json_array_size(values);
    n = n < MOST ? n : MOST;
    double *v = vt_arena_alloc(&p->arena, n + 1, sizeof *v);
    p->failed = p->failed || !v;
    for (size_t i = 0; v && i < n; i++) {
        const json_t *x = json_array_get(values, i);
        v[i] = json_is_number(x) ? json_number_value(x) : NAN;
    }
    c->series = v;
    c->n_series = v ? (int32_t)n : 0;
}

const json_t *page_gpu(const page *p)
{
    const json_t *gpu = story_get(story_get(p->story, "engine"), "gpu");
    return json_is_object(gpu) ? gpu : NULL;
}

const char *page_tag(const page *p, const char *tag)
{
    return p->emulated ? "[n/a: an emulated GPU]" : tag;
}

const char *page_kernel_base(page *p, const json_t *o, const char *key)
{
    char text[STORY_TEXT];
    story_text(o, key, text);
    text[strcspn(text, "<")] = '\0';
    return page_say(p, "%s", text);
}

/* ---- the head ---- */

static void headline(page *p)
{
    page_open(p, "headline", "", "");
    page_add(p, PAGE_TEXT, 1)->cell[0].text = page_str(p, p->story, "headline");
}

static void title(page *p)
{
    const json_t *q = story_get(p->story, "request"), *m = story_get(p->story, "model"),
                 *e = story_get(p->story, "engine");
    const char *name = page_str(p, m, "name"), *quant = page_str(p, m, "quant");
    bool told = strstr(name, quant);
    vt_buf line = {0};
    vt_buf_printf(&line, "%s%s%s · %s %s", name, told ? "" : " ", told ? "" : quant,
                  page_str(p, e, "device"), page_str(p, e, "level"));
    if (page_gpu(p))
        vt_buf_printf(&line, ", %s", page_str(p, page_gpu(p), "name"));
    else if (isfinite(story_num(e, "threads")))
        vt_buf_printf(&line, ", %.0f thread%s", story_num(e, "threads"),
                      story_s(story_num(e, "threads")));
    if (json_is_object(q))
        vt_buf_printf(&line, " · %.0f prompt token%s (%.0f cached) -> %.0f out",
                      story_num(q, "prompt_tokens"), story_s(story_num(q, "prompt_tokens")),
                      story_num(q, "cached_tokens"), story_num(q, "completion_tokens"));
    if (p->emulated) /* the first thing to know of it */
        headline(p);
    page_open(p, "title", "", "");
    page_pair(p, PAGE_TITLE,
              json_is_object(q) ? page_say(p, "REQUEST %.0f", story_num(q, "id")) : "RECORDING",
              &line);
    if (!p->emulated)
        headline(p);
}

/* "0.21 J a prompt token, 0.83 J a generated token [derived: all CPU packages (RAPL), over the
 * tokens of all requests in these steps]" */
static void energy(page *p)
{
    const json_t *e = story_get(story_get(p->story, "machine"), "energy");
    double prompt = story_num(e, "prompt_token_j"), made = story_num(e, "generated_token_j");
    vt_buf line = {0};
    if ((!isfinite(prompt) && !isfinite(made)) || p->emulated)
        return;
    if (isfinite(prompt))
        vt_buf_printf(&line, "%.3g J a prompt token", prompt);
    if (isfinite(made))
        vt_buf_printf(&line, "%s%.3g J a generated token", isfinite(prompt) ? ", " : "", made);
    vt_buf_printf(&line, " [derived: %s, over the tokens of all requests in these steps]",
                  page_str(p, e, "counter"));
    page_pair(p, PAGE_LABEL, "ENERGY", &line);
}

/* Says what the machine did meanwhile, where that was recorded. */
static void machine(page *p)
{
    vt_buf line = {0};
    const char *what = page_str(p, story_get(p->story, "machine"), "text");
    if (!*what)
        return;
    page_open(p, "machine", "", "");
    vt_buf_puts(&line, what);
    page_pair(p, PAGE_LABEL, "MACHINE", &line);
    energy(p);
}

/* Says what the grammar of a request cost: "41 masks of the next token, 12 of them new, 3.1 us each
 * and 80 us at most; 7 tokens of the answer without a choice; 127 us of the 412 ms that its steps
 * took, 0.03 %; it waited 31 ms outside of steps for 1 mask that took long". */
static void masks(page *p)
{
    const json_t *q = story_get(p->story, "request"), *m = story_get(q, "masks");
    double n = story_num(m, "count"), forced = story_num(m, "forced_tokens"),
           total_s = story_num(m, "total_ms") * 1e-3, steps_s = story_num(q, "steps_ms") * 1e-3,
           late = story_num(m, "late");
    vt_buf line = {0};
    if (!(n > 0))
        return;
    vt_text_printf(&line,
                   "%.0f mask%s of the next token, %.0f of them new, %f s each and %f s at most", n,
                   story_s(n), story_num(m, "new"), story_num(m, "mean_us") * 1e-6,
                   story_num(m, "slowest_us") * 1e-6);
    if (forced > 0)
        vt_buf_printf(&line, "; %.0f token%s of the answer without a choice", forced,
                      story_s(forced));
    vt_text_printf(&line, "; %f s", total_s);
    if (steps_s > 0) {
        vt_text_printf(&line, " of the %f s that its steps took, %.2g %%", steps_s,
                       100 * total_s / steps_s);
    }
    if (late > 0)
        vt_text_printf(&line, "; it waited %f s outside of steps for %.0f mask%s that took long",
                       story_num(m, "late_ms") * 1e-3, late, story_s(late));
    vt_buf_puts(&line, " [measured]");
    page_open(p, "masks", "", "");
    page_pair(p, PAGE_LABEL, "MASKS", &line);
}

/* Says what the guesses of a request brought: "83 of 96 guesses held, 86 %; 4.0 tokens of the
 * answer a step; the draft model worked 21 ms a step". */
static void drafts(page *p)
{
    const json_t *q = story_get(p->story, "request"), *d = story_get(q, "drafts"),
                 *decode = story_phase_named(p->story, "decode");
    double n = story_num(d, "tokens"), held = story_num(d, "accepted"),
           steps = story_num(decode, "steps"), tokens = story_num(q, "completion_tokens") - 1,
           draft_s = story_num(story_get(decode, "per_step"), "draft_us") * 1e-6;
    vt_buf line = {0};
    if (!(n > 0))
        return;
    vt_text_printf(&line, "%.0f of %.0f guess%s held, %.0f %%", held, n, n == 1 ? "" : "es",
                   100 * held / n);
    if (steps > 0 && tokens > 0)
        vt_text_printf(&line, "; %.1f tokens of the answer a decode step", tokens / steps);
    if (draft_s > 0)
        vt_text_printf(&line, "; the draft model worked %f s for each", draft_s);
    vt_buf_puts(&line, " [measured]");
    page_open(p, "drafts", "", "");
    page_pair(p, PAGE_LABEL, "DRAFTS", &line);
}

/* ---- memory, threads, lanes ---- */

/* Adds how many pages there were over the steps, with the scale. */
static void pages_of(page *p, const char *name, const json_t *list, double page_bytes)
{
    double low = INFINITY, high = -INFINITY;
    vt_buf text = {0};
    page_cell of = {0};
    page_series(p, &of, list, "values");
    for (int32_t i = 0; i < of.n_series; i++) {
        low = fmin(low, of.series[i]);
        high = fmax(high, of.series[i]);
    }
    if (!(high >= low) || !(fabs(high) < 1e12 && fabs(low) < 1e12))
        return;
    if (low < high)
        vt_buf_printf(&text, "%.0f to ", low);
    vt_buf_printf(&text, "%.0f page%s", high, story_s(high));
    if (isfinite(page_bytes)) {
        vt_buf_puts(&text, ", ");
        if (low < high) {
            vt_text_printf(&text, "%f B to ", low * page_bytes);
        }
        vt_text_bytes(&text, high * page_bytes);
    }
    page_row *r = page_add(p, PAGE_SERIES, 3);
    r->cell[0].text = name;
    r->cell[1].series = of.series;
    r->cell[1].n_series = of.n_series;
    r->cell[2].text = page_take(p, &text);
}

/* The window pages, and what a token takes; nothing where all layers share their pages. */
static void window_pages(page *p, const json_t *m)
{
    const json_t *window = story_get(m, "window");
    double pages = story_num(window, "pages"), size = story_num(m, "page_size");
    vt_buf line = {0};
    if (!json_is_object(window))
        return;
    vt_text_printf(
        &line,
        "KV pool %f B more, %.0f page%s, for the last %.0f tokens in layers with a window "
        "│ a token takes %f B, in its window %f B more",
        story_num(window, "pool_bytes"), pages, story_s(pages), story_num(window, "tokens"),
        story_num(m, "kv_pool_bytes") / story_num(m, "pages") / size,
        story_num(window, "pool_bytes") / pages / size);
    page_text(p, PAGE_TEXT, &line);
}

static void memory(page *p)
{
    const json_t *m = story_get(p->story, "memory");
    double each = story_num(m, "kv_pool_bytes") / story_num(m, "pages"),
           evicted = story_num(m, "evicted_pages");
    vt_buf line = {0};
    if (!json_is_object(m))
        return;
    page_open(p, "memory", "MEMORY", "");
    vt_text_printf(&line, "weights %f B", story_num(m, "weight_bytes"));
    if (story_num(m, "packed_bytes") > 0) {
        vt_text_printf(&line, " (+ %f B%s", story_num(m, "packed_bytes"),
                       page_gpu(p) ? " on the GPU)" : " repacked)");
    }
    vt_text_printf(&line, " │ KV pool %f B, %.0f page%s of %.0f tokens │ resident %f B",
                   story_num(m, "kv_pool_bytes"), story_num(m, "pages"),
                   story_s(story_num(m, "pages")), story_num(m, "page_size"),
                   story_num(m, "resident_bytes"));
    page_text(p, PAGE_TEXT, &line);
    if (isfinite(story_num(m, "device_free_bytes"))) {
        vt_text_printf(&line, "GPU memory used %f B of %f B",
                       story_num(m, "device_bytes") - story_num(m, "device_free_bytes"),
                       story_num(m, "device_bytes"));
        page_text(p, PAGE_TEXT, &line);
    }
    window_pages(p, m);
    pages_of(p, "KV used", story_get(m, "pages_held"), each);
    pages_of(p, "cached", story_get(m, "pages_cached"), each);
    pages_of(p, "free", story_get(m, "pages_free"), each);
    if (evicted > 0) {
        vt_buf_printf(&line, "evicted %.0f page%s", evicted, story_s(evicted));
        page_text(p, PAGE_LINE, &line);
    }
}

/* Returns how much more the busiest worker did than the mean one; NAN: not known. */
/* "off the CPU: worker 0 1.2 % of the steps (0.3 % ready and waiting for one), ..." */
static void off_cpu(page *p, const json_t *all)
{
    size_t i, shown = 0;
    json_t *w;
    vt_buf line = {0};
    json_array_foreach(all, i, w)
    {
        double off = story_num(w, "off_cpu"), cpu = story_num(w, "cpu_ms"),
               delay = story_num(w, "run_delay_ms");
        if (i >= STORY_ROWS || !isfinite(off))
            continue;
        vt_buf_printf(&line, "%sworker %zu %.1f %%", shown++ ? ", " : "off the CPU: ", i,
                      100 * off);
        if (delay > 0.001 * cpu)
            vt_buf_printf(&line, " (%.1f %% of what it asked for was withheld)",
                          100 * delay / (delay + cpu));
    }
    if (shown)
        page_text(p, PAGE_TEXT, &line);
    vt_buf_release(&line);
}

/* Where the workers ran, if that says something: they moved, or are on several NUMA nodes. */
static void places(page *p, const json_t *all)
{
    double node = NAN, moves = 0;
    bool apart = false;
    size_t i;
    json_t *w;
    vt_buf line = {0};
    json_array_foreach(all, i, w)
    {
        double at = story_num(w, "node");
        apart = apart || (isfinite(node) && isfinite(at) && at != node);
        node = isfinite(at) ? at : node;
        moves += story_num(w, "moves") > 0 ? story_num(w, "moves") : 0;
    }
    if (!apart && !(moves > 0))
        return;
    vt_buf_puts(&line, "at the end ");
    json_array_foreach(all, i, w)
    {
        if (i < STORY_ROWS && isfinite(story_num(w, "cpu")))
            vt_buf_printf(&line, "%sworker %zu on CPU %.0f of NUMA node %.0f", i ? ", " : "", i,
                          story_num(w, "cpu"), story_num(w, "node"));
    }
    vt_buf_printf(&line, "; the system moved them %.0f time%s", moves, story_s(moves));
    page_text(p, PAGE_TEXT, &line);
}

static double imbalance(const json_t *threads)
{
    double most = 0, sum = 0;
    size_t i;
    json_t *w;
    json_array_foreach(threads, i, w)
    {
        double busy = story_num(w, "busy_ms");
        most = fmax(most, busy);
        sum += busy;
    }
    return i > 1 && sum > 0 ? most * (double)i / sum - 1 : NAN;
}

static void threads(page *p)
{
    size_t i;
    json_t *w;
    const json_t *all = story_get(p->story, "threads");
    size_t n = json_array_size(all);
    double wait_us = 0;
    vt_buf line = {0};
    if (n == 0 || !isfinite(story_num(json_array_get(all, 0), "busy"))) /* none, or no step ran */
        return;
    page_open(p, "threads", "THREADS", "");
    json_array_foreach(all, i, w)
    {
        if (i < STORY_ROWS) {
            const char *name = json_string_value(story_get(w, "name"));
            vt_buf_printf(&line, "%s%.24s %.1f %% busy", i ? ", " : "",
                          name ? name : page_say(p, "worker %zu", i), 100 * story_num(w, "busy"));
        }
        wait_us += story_num(w, "wait_us_a_step") / (double)n;
    }
    if (isfinite(imbalance(all)))
        vt_buf_printf(&line, ": imbalance %.1f %%", 100 * imbalance(all));
    vt_buf_puts(&line, json_array_size(story_get(story_get(p->story, "ranks"), "items")) > 0
                           ? "; the rest is waiting at barriers and for other ranks"
                           : "; the rest is waiting at barriers");
    if (isfinite(wait_us)) {
        vt_text_printf(&line, ", %f s a step", wait_us * 1e-6);
    }
    page_text(p, PAGE_TEXT, &line);
    off_cpu(p, all);
    places(p, all);
}

static void lanes(page *p)
{
    size_t i;
    json_t *lane;
    const json_t *items = story_get(story_get(p->story, "lanes"), "items");
    if (json_array_size(items) == 0)
        return;
    page_open(p, "lanes", "LANES", "[shares, from the first step to the last]");
    json_array_foreach(items, i, lane)
    {
        double most = 0;
        if (i >= STORY_ROWS)
            break;
        if (story_get(lane, "mean")) /* below, under a heading of their own */
            continue;
        page_row *r = page_add(p, PAGE_SERIES, 4);
        page_series(p, &r->cell[1], lane, "values");
        for (int32_t k = 0; k < r->cell[1].n_series; k++)
            most = r->cell[1].series[k] > most ? r->cell[1].series[k] : most;
        r->cell[0].text = page_say(p, "%.16s", page_str(p, lane, "name"));
        r->cell[2].text = page_say(p, "0 to %.1f %%", fmin(100 * most, 1e9));
        r->cell[3].text = page_say(p, "%s [%s]", page_str(p, lane, "what"),
                                   p->emulated ? "n/a" : page_str(p, lane, "tag"));
    }
}

/* Tells what is missing of a GPU's counters over time. */
static void lanes_left_out(page *p, const json_t *sampled)
{
    size_t i;
    json_t *x;
    vt_buf line = {0};
    double lost_ms = story_num(sampled, "lost_ms");
    if (lost_ms > 0)
        vt_text_printf(&line,
                       "the hardware's ring wrapped before it was drained: %f s are missing; ",
                       lost_ms * 1e-3);
    json_array_foreach(story_get(sampled, "not_sampled"), i, x)
    {
        if (i < STORY_ROWS)
            vt_buf_printf(&line, "not %.24s: %.160s; ", page_str(p, x, "lane"),
                          page_str(p, x, "why"));
    }
    if (line.len == 0)
        return;
    line.len -= 2; /* the last "; " */
    page_text(p, PAGE_TEXT, &line);
}

/* A lane's name; of one of several ranks "1 sm" for "rank 1 sm", which has no room. */
static const char *lane_label(page *p, const json_t *lane)
{
    const char *name = page_str(p, lane, "name");
    return strncmp(name, "rank ", 5) == 0 ? name + 5 : name;
}

/* A GPU's counters over time. */
static void sampled_lanes(page *p)
{
    size_t i;
    json_t *lane;
    const json_t *all = story_get(p->story, "lanes"), *sampled = story_get(all, "sampled");
    if (!(story_num(sampled, "count") > 0))
        return;
    page_open(p, "sampled", "COUNTERS OVER TIME",
              page_say(p, "[%s by tier T2 of the whole GPU, %.0f samples]",
                       p->emulated ? "n/a" : "measured", story_num(sampled, "count")));
    json_array_foreach(story_get(all, "items"), i, lane)
    {
        double mean = story_num(lane, "mean"), roof = story_num(lane, "roof_bytes_per_s");
        vt_buf what = {0};
        if (i >= STORY_ROWS)
            break;
        if (!isfinite(mean))
            continue;
        page_row *r = page_add(p, PAGE_SERIES, 4);
        page_series(p, &r->cell[1], lane, "values");
        r->cell[0].text = page_say(p, "%.20s", lane_label(p, lane));
        r->cell[2].text = page_say(p, "min %.1f, mean %.1f, max %.1f %%",
                                   100 * story_num(lane, "least"), 100 * mean,
                                   100 * story_num(lane, "most"));
        vt_buf_puts(&what, page_str(p, lane, "what"));
        if (isfinite(roof))
            vt_text_printf(&what, ", of %f B/s", roof);
        r->cell[3].text = page_say(p, "%.120s", what.data ? what.data : "");
        vt_buf_release(&what);
    }
    lanes_left_out(p, sampled);
}

/* ---- findings, what was not measured ---- */

/* Appends what a finding says could go. */
static void put_gain(vt_buf *b, const json_t *f)
{
    double once_ms = story_num(story_get(f, "evidence"), "once_ms"),
           ms = once_ms > 0 ? once_ms : story_num(f, "gain_ms_per_token");
    if (!(ms > 0))
        return;
    vt_text_printf(b, "; up to %f s%s", ms * 1e-3, once_ms > 0 ? ", once" : " a token");
}

static void findings(page *p)
{
    enum { SYMPTOMS = 3 };
    const json_t *all = story_get(p->story, "findings");
    size_t i, k;
    json_t *f, *symptom;
    vt_buf line = {0};
    page_open(p, "findings", "FINDINGS", "");
    json_array_foreach(all, i, f)
    {
        if (i >= STORY_ROWS)
            break;
        const char *id = page_str(p, f, "id");
        vt_buf_puts(&line, page_str(p, f, "text"));
        put_gain(&line, f);
        vt_buf_printf(&line, " [%s: %s]", page_str(p, f, "rule"), page_str(p, f, "threshold"));
        page_pair(p, PAGE_ITEM, id, &line);
        if (!p->failed)
            p->section[p->n_sections - 1].last->cell[0].ink = id[0] == 'W' ? VT_INK_YELLOW
                                                                           : VT_INK_GREEN;
        json_array_foreach(story_get(f, "symptoms"), k, symptom)
        {
            if (k < SYMPTOMS)
                page_add(p, PAGE_MORE, 1)->cell[0].text = page_say(
                    p, "%s [%s]", page_str(p, symptom, "text"), page_str(p, symptom, "rule"));
        }
    }
    if (json_array_size(all) == 0) {
        vt_buf_puts(&line, "none: no rule applies");
        page_text(p, PAGE_LINE, &line);
    }
}

static void not_measured(page *p)
{
    size_t i;
    json_t *n;
    vt_buf line = {0};
    page_open(p, "not_measured", "NOT MEASURED", "");
    json_array_foreach(story_get(p->story, "not_measured"), i, n)
    {
        if (i >= STORY_ROWS)
            break;
        vt_buf_printf(&line, "%s: %s", page_str(p, n, "what"), page_str(p, n, "why"));
        page_text(p, PAGE_TEXT, &line);
    }
}

/* ---- observer ---- */

static void gpu_observer(page *p, const json_t *o)
{
    vt_buf line = {0};
    bool stamped = o && json_object_get(o, "timed_by");
    vt_text_printf(&line, "1 decode step in %.0f %s, %.0f events between: %f s",
                   story_num(o, "period"), stamped ? "has stamped kernels" : "runs call by call",
                   story_num(o, "events_per_step"), story_num(o, "timed_step_us") * 1e-6);
    if (isfinite(story_num(o, "whole_step_us"))) {
        vt_text_printf(&line, " where the others take %f s, %.1f %% tax on the mean",
                       story_num(o, "whole_step_us") * 1e-6, 100 * story_num(o, "tax"));
    }
    vt_text_printf(&line,
                   "; an event takes %f s of the device, reading %s %f s of the host %s; device "
                   "times lie at most %f s late on the host's clock",
                   story_num(o, "event_ns") * 1e-9, stamped ? "a step's stamps" : "it",
                   story_num(o, "read_ns") * 1e-9, page_tag(p, "[measured]"),
                   story_num(page_gpu(p), "clock_error_us") * 1e-6);
    page_text(p, PAGE_TEXT, &line);
}

/* An interval that holds zero has no tax to tell, only a bound of it; a bound of several percent
 * tells more of the machine than of the recorder. */
static void measured_tax(page *p, const json_t *o)
{
    double low = story_num(o, "measured_tax_low"), high = story_num(o, "measured_tax_high");
    static const double wide = 0.05;
    vt_buf line = {0};
    if (low <= 0 && high > wide) {
        vt_buf_printf(&line,
                      "what the recorder takes of a step was lost in the noise of this machine: "
                      "%.0f pairs of steps of this request, one recorded and one not, differ by "
                      "%.1f to %.1f %% %s",
                      story_num(o, "pairs"), 100 * low, 100 * high,
                      page_tag(p, "[measured, 95 % interval of the median]"));
        page_text(p, PAGE_TEXT, &line);
        return;
    }
    vt_buf_puts(&line, page_gpu(p) ? "the host's recorder " : "recorder ");
    if (low <= 0)
        vt_buf_printf(&line, "below %.1f %%", fmax(0.1, 100 * high));
    else
        vt_buf_printf(&line, "%.1f %%", 100 * story_num(o, "measured_tax"));
    vt_buf_printf(&line,
                  " of a step [%.1f .. %.1f], from %.0f pairs of steps of this request, one "
                  "recorded and one not %s",
                  100 * low, 100 * high, story_num(o, "pairs"),
                  page_tag(p, "[measured, median and 95 % interval]"));
    page_text(p, PAGE_TEXT, &line);
}

/* Stories that were told with the request run twice. */
static void two_runs(page *p, const json_t *o)
{
    vt_buf line = {0};
    vt_text_printf(&line,
                   "recorder on %f s a token, off %f s: %.1f %% tax [measured, p50 of %.0f tokens]",
                   story_num(o, "on_us") * 1e-6, story_num(o, "off_us") * 1e-6,
                   100 * story_num(o, "measured_tax"), story_num(o, "tokens"));
    page_text(p, PAGE_TEXT, &line);
    if (!isfinite(story_num(o, "first_on_us")))
        return;
    vt_text_printf(&line, "first token: recorder on %f s, off %f s [measured, once each]",
                   story_num(o, "first_on_us") * 1e-6, story_num(o, "first_off_us") * 1e-6);
    page_text(p, PAGE_TEXT, &line);
}

static void observer(page *p)
{
    const json_t *o = story_get(p->story, "observer");
    vt_buf line = {0};
    if (!isfinite(story_num(o, "tax")) && !isfinite(story_num(o, "measured_tax")) &&
        !isfinite(story_num(o, "timed_step_us")))
        return;
    page_open(p, "observer", "OBSERVER", "");
    if (story_num(o, "period") > 0) {
        gpu_observer(p, o);
    } else if (isfinite(story_num(o, "tax"))) {
        vt_text_printf(
            &line,
            "%.0f calls a step, recorded in %.0f ns each: %f s a step, %.2f %% tax [derived]",
            story_num(o, "events_per_step"), story_num(o, "event_ns"),
            story_num(o, "step_us") * 1e-6, 100 * story_num(o, "tax"));
        page_text(p, PAGE_LINE, &line);
    }
    if (isfinite(story_num(o, "measured_tax_high")))
        measured_tax(p, o);
    else if (isfinite(story_num(o, "measured_tax")))
        two_runs(p, o);
}

/* ---- all of it ---- */

static void make(page *p, bool brief)
{
    const json_t *decode = story_phase_named(p->story, "decode"),
                 *phase = decode ? decode : story_phase_named(p->story, "prefill");
    title(p);
    machine(p);
    masks(p);
    drafts(p);
    if (json_array_size(story_get(p->story, "timeline")) > 0)
        page_time(p);
    if (!json_is_object(story_get(p->story, "request")))
        page_batch(p);
    if (!brief) {
        page_step(p, phase, decode ? "ONE DECODE STEP, op by op" : "ONE PREFILL STEP, op by op");
        page_slow(p);
        page_cuts(p, phase);
        page_trail(p);
        page_layer(p);
        page_layers(p);
        page_counters(p);
        page_activity(p);
        page_lines(p);
        page_ctas(p);
        page_kernels(p, phase);
        page_gpu_section(p);
        page_ranks(p);
        memory(p);
        page_tree(p);
        threads(p);
        lanes(p);
        sampled_lanes(p);
    }
    findings(p);
    if (!brief) {
        not_measured(p);
        observer(p);
    }
}

void page_begin(page *p, const json_t *story)
{
    *p = (page){.story = story};
    vt_arena_init(&p->arena, 0);
    p->emulated = json_is_true(story_get(page_gpu(p), "emulated"));
}

vt_status page_of_story(const json_t *story, bool brief, page *out, vt_err *err)
{
    page_begin(out, story);
    make(out, brief);
    if (!out->failed)
        return VT_OK;
    page_release(out);
    return vt_fail(err, VT_ERR_MEMORY, "out of memory for a story");
}

void page_release(page *p) { vt_arena_release(&p->arena); }

static vt_status render(const char *name, const char *json, size_t len, bool brief,
                        const vt_term *term, vt_buf *out, vt_err *err)
{
    json_t *story = NULL;
    page p;
    TRY(story_load(name, json, len, &story, err));
    vt_status status = page_of_story(story, brief, &p, err);
    if (status == VT_OK) {
        page_to_terminal(&p, term, out);
        page_release(&p);
    }
    json_decref(story);
    if (status == VT_OK && out->failed)
        status = vt_fail(err, VT_ERR_MEMORY, "out of memory for a story");
    return status;
}

vt_status story_render_short(const char *name, const char *json, size_t len, const vt_term *term,
                             vt_buf *out, vt_err *err)
{
    return render(name, json, len, true, term, out, err);
}

vt_status story_render(const char *name, const char *json, size_t len, const vt_term *term,
                       vt_buf *out, vt_err *err)
{
    return render(name, json, len, false, term, out, err);
}
