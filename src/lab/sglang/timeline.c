/* Lab sglang 04: the whole story of a mixed load.
 *
 *   two long prompts, short prompts, a prompt with a known beginning, all at once, more than may
 *   run together -> queue, chunks beside decodes, a hit, the end of some while others go on
 *
 * Gaps are named by who waited for whom:
 *
 *   the device for the engine   waits between steps
 *   the engine for the device   host work that was hidden is the other side of it
 *   workers for workers         barriers after each call (CPU)
 *   decodes for a prompt        steps that carry a chunk take longer
 *   requests for a place        time in the queue */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/stats.h"
#include "lab/profilers/nsys_run.h"
#include "lab/sglang/inside.h"
#include "story/forms.h"
#include "story/read.h"

enum { MOST_REQUESTS = 8 };

typedef struct load {
    vt_engine *engine;
    lab_request r[MOST_REQUESTS];
    int32_t n, running;
    json_t *story;
} load;

/* ---- the load ---- */

static vt_status make_load(lab *l, load *m, vt_err *err)
{
    static const struct {
        int32_t prompt, gen, shared;
    } want[MOST_REQUESTS] = {{64, 24, 0},   {512, 8, 0}, {32, 32, 0}, {48, 24, 0},
                             {512, 8, 256}, {32, 16, 0}, {40, 24, 0}, {64, 12, 0}};
    int32_t grow = l->quick ? 1 : 3;
    m->n = MOST_REQUESTS;
    m->running = 4;
    TRY(sglang_open(l, (const char *const[]){"token-budget", "256", NULL}, m->running, &m->engine,
                    err));
    for (int32_t i = 0; i < m->n; i++) {
        int32_t *ids = NULL;
        const int32_t *from = want[i].shared ? m->r[1].prompt : NULL;
        TRY(sglang_prompt(l, 40 + (uint64_t)i, from, want[i].shared, want[i].prompt, &ids, err));
        m->r[i] = (lab_request){
            .prompt = ids, .n_prompt = want[i].prompt, .n_gen = want[i].gen * grow};
    }
    return VT_OK;
}

static void tell_load(lab *l, const load *m)
{
    static const char *const column[] = {"prompt",   "cached",   "tokens",  "arrive_ms",
                                         "admit_ms", "first_ms", "done_ms", NULL};
    const json_t *q = story_get(m->story, "requests");
    size_t n = story_rows(q, column);
    double end = 1;
    vt_buf b = {0};
    for (size_t i = 0; i < n; i++)
        end = fmax(end, story_cell(q, "done_ms", i));
    vt_buf_printf(&b, "     prompt cached tokens   0 ms%50s%.0f ms\n", "", end);
    for (size_t i = 0; i < n && i < 16; i++) {
        enum { CELLS = 60 };
        double arrive = story_cell(q, "arrive_ms", i), admit = story_cell(q, "admit_ms", i),
               first = story_cell(q, "first_ms", i), done = story_cell(q, "done_ms", i);
        vt_buf_printf(&b, "%4.0f %6.0f %6.0f %6.0f   ", story_cell(q, "id", i),
                      story_cell(q, "prompt", i), story_cell(q, "cached", i),
                      story_cell(q, "tokens", i));
        for (int c = 0; c < CELLS; c++) {
            double at = (c + 0.5) * end / CELLS;
            vt_buf_puts(&b, at < arrive  ? " "
                            : at < admit ? "·"
                            : at < first ? "▒"
                            : at < done  ? "█"
                                         : " ");
        }
        vt_buf_putc(&b, '\n');
    }
    vt_buf_puts(&b, "     · waits for a place   ▒ its prompt is computed   █ it gets tokens\n");
    lab_drawing(l, "load", "Eight requests, of which four may run at once", &b);
    vt_buf_release(&b);
}

/* ---- gaps ---- */

typedef struct gaps {
    double device_s, waits_s, queue_s, barrier_s, busy_s, mixed_ms, mixed_noise, plain_ms,
        longest_ms;
    int32_t n_steps, n_mixed, n_plain;
    size_t longest;
} gaps;

static const char *const step_columns[] = {"ms", "tokens", "seqs", "decodes", NULL};

static void find_gaps(const json_t *story, gaps *g)
{
    const json_t *steps = story_get(story, "steps"), *q = story_get(story, "requests"), *w;
    size_t n = story_rows(steps, step_columns), i;
    double *mixed = calloc(n + 1, sizeof *mixed), *plain = calloc(n + 1, sizeof *plain);
    for (i = 0; mixed && plain && i < n; i++) {
        double ms = story_cell(steps, "ms", i), wait = story_cell(steps, "wait_us", i),
               decodes = story_cell(steps, "decodes", i);
        g->device_s += ms * 1e-3;
        g->waits_s += wait > 0 ? wait * 1e-6 : 0;
        if (decodes > 0 && story_cell(steps, "tokens", i) > decodes)
            mixed[g->n_mixed++] = ms;
        else if (decodes > 0)
            plain[g->n_plain++] = ms;
        if (ms > g->longest_ms) {
            g->longest_ms = ms;
            g->longest = i;
        }
    }
    g->n_steps = (int32_t)n;
    g->mixed_noise = mixed ? vt_noise(mixed, (size_t)g->n_mixed) : NAN;
    g->mixed_ms = mixed ? vt_median(mixed, (size_t)g->n_mixed) : NAN;
    g->plain_ms = plain ? vt_median(plain, (size_t)g->n_plain) : NAN;
    free(mixed);
    free(plain);
    n = json_array_size(story_get(story_get(q, "columns"), "admit_ms"));
    for (i = 0; i < n; i++) {
        double wait = story_cell(q, "admit_ms", i) - story_cell(q, "arrive_ms", i);
        g->queue_s += wait > 0 ? wait * 1e-3 : 0;
    }
    json_array_foreach((json_t *)story_get(story, "threads"), i, w)
    {
        g->barrier_s += story_num(w, "wait_ms") * 1e-3;
        g->busy_s += story_num(w, "busy_ms") * 1e-3;
    }
}

static void put_gap(lab *l, const char *who, const char *whom, const char *where, double s,
                    double share, const char *of)
{
    lab_cells(l, "%s|%s|%s|%f s|%f share|%s", who, whom, where, s, share, of);
}

static void tell_gaps(lab *l, const load *m, const gaps *g)
{
    double chunk_s = (g->mixed_ms - g->plain_ms) * 1e-3 * g->n_mixed;
    lab_table(l, "gaps", "Who waited for whom", "who|for whom|where|>time|>share|of");
    put_gap(l, "device", "engine's thread", "between steps", g->waits_s,
            g->waits_s / (g->waits_s + g->device_s), "the recording");
    if (g->busy_s > 0)
        put_gap(l, "workers", "other workers", "barriers after calls", g->barrier_s,
                g->barrier_s / (g->barrier_s + g->busy_s), "the workers' time in steps");
    put_gap(l, "decodes", "a prompt's chunk", "steps with both", chunk_s, chunk_s / g->device_s,
            "the device's time");
    put_gap(l, "requests", "a place to run", "queue", g->queue_s / m->n,
            g->queue_s / m->n / (g->device_s + g->waits_s), "the recording, a request");
    const json_t *steps = story_get(m->story, "steps");
    double decodes = story_cell(steps, "decodes", g->longest),
           prompt = story_cell(steps, "tokens", g->longest) - decodes;
    lab_item(l, "slowest_step", "step %.0f took %f s: %.0f decode%s and %.0f prompt tokens. %s",
             story_cell(steps, "id", g->longest), g->longest_ms * 1e-3, decodes, story_s(decodes),
             prompt,
             prompt > 0 && decodes > 0
                 ? "Each of these decodes got its token that much later: a smaller --token-budget "
                   "cuts the prompt finer"
             : prompt > 0 ? "No decode waited for it"
                          : "It computed decodes alone, so the machine made it long");
    if (g->n_mixed > 0 && g->n_plain > 0)
        lab_finding(l, "prefill.steals",
                    "%d steps carried a chunk of a prompt beside decodes, median %f s against %f s "
                    "of %d steps of decodes alone",
                    g->n_mixed, g->mixed_ms * 1e-3, g->plain_ms * 1e-3, g->n_plain);
}

/* ---- hardware ---- */

static void tell_overlap(lab *l, const json_t *story)
{
    static const char *const part[] = {"schedule", "prepare", "publish"};
    lab_table(l, "overlap", "The engine's thread beside the device",
              "phase|part|>a step|>hidden behind the device|>exposed");
    for (int p = 0; p < 2; p++) {
        const char *name = p == 0 ? "prefill" : "decode";
        const json_t *per = story_get(story_phase_named(story, name), "per_step");
        for (int i = 0; per && i < 3; i++) {
            char key[32];
            snprintf(key, sizeof key, "%s_us", part[i]);
            double s = story_num(per, key) * 1e-6;
            snprintf(key, sizeof key, "%s_hidden", part[i]);
            double hidden = story_num(per, key);
            lab_cells(l, "%s|%s|%f s|%f share|%f s", name, part[i], s, hidden, s * (1 - hidden));
        }
    }
}

/* The calls of the middle layer in their order, from the typical decode step. */
static void tell_order(lab *l, const json_t *story)
{
    static const char *const column[] = {"us", "floor_us", "bytes", NULL};
    const json_t *calls = story_get(story, "calls"), *labels = story_get(calls, "labels"),
                 *layers = story_get(calls, "layers"), *phase = NULL, *p;
    const json_t *impls = story_get(story_get(story, "typical"), "impls");
    char name[STORY_TEXT];
    size_t i;
    json_array_foreach((json_t *)story_get(story_get(story, "typical"), "phases"), i,
                       p) if (strcmp(story_text(p, "name", name), "decode") == 0 || !phase)
        phase = p;
    size_t n = story_rows(phase, column);
    double layer = 0, at = 0;
    for (i = 0; i < n && i < json_array_size(layers); i++)
        layer = fmax(layer, json_number_value(json_array_get(layers, i)));
    layer = floor(layer / 2);
    lab_table(l, "kernel_order", "The calls of the middle layer of a typical decode step, in order",
              "call|runs as|>begins at|>takes|>least|>bytes");
    for (i = 0; i < n && i < json_array_size(labels); i++) {
        double us = story_cell(phase, "us", i);
        const json_t *impl = json_array_get(impls, (size_t)fmax(0, story_cell(phase, "impl", i)));
        char row[STORY_TEXT];
        if (json_number_value(json_array_get(layers, i)) != layer || !isfinite(us))
            continue;
        lab_cells(l, "%s|%s|%f s|%f s|%f s|%f B", story_clean(json_array_get(labels, i), name),
                  story_clean(impl, row), at * 1e-6, us * 1e-6,
                  story_cell(phase, "floor_us", i) * 1e-6, story_cell(phase, "bytes", i));
        at += us;
    }
}

/* ---- files ---- */

static vt_status write_trace(lab *l, const json_t *story, vt_err *err)
{
    const char *out = lab_text(l, "out");
    vt_buf trace = {0};
    char *text = json_dumps(story, JSON_COMPACT);
    vt_status status = text ? VT_OK : vt_fail(err, VT_ERR_MEMORY, "out of memory for a story");
    if (status == VT_OK)
        status = story_export(&(story_file){"the recording", text, strlen(text)}, "chrome", &trace,
                              err);
    if (status == VT_OK)
        status = sglang_write(l, NULL, "timeline.story.json",
                              "the story; vitrine story show reads it", text, strlen(text), err);
    if (status == VT_OK)
        status = sglang_write(l, out, "timeline.json",
                              "the trace; https://ui.perfetto.dev opens it", trace.data, trace.len,
                              err);
    if (status == VT_OK) {
        json_t *read = json_loadb(trace.data, trace.len, 0, NULL);
        size_t events = json_array_size(json_object_get(read, "traceEvents"));
        lab_item(l, "trace",
                 "%zu events in %s: a track of requests, one of steps, one of calls, "
                 "and counters of pages and of busy workers; open it at https://ui.perfetto.dev",
                 events, out ? out : "timeline.json of the results folder");
        lab_check(l, events > 0, "the trace is JSON with %zu events", events);
        json_decref(read);
    }
    vt_buf_release(&trace);
    free(text);
    return status;
}

/* The story as a page that a browser opens without a network. */
static vt_status write_page(lab *l, const json_t *story, vt_err *err)
{
    vt_buf page = {0};
    char *text = json_dumps(story, JSON_COMPACT);
    vt_status status = text ? VT_OK : vt_fail(err, VT_ERR_MEMORY, "out of memory for a story");
    if (status == VT_OK)
        status = story_html(&(story_file){"the recording", text, strlen(text)}, &page, err);
    if (status == VT_OK)
        status = sglang_write(l, NULL, "timeline.html", "the story as a page for a browser",
                              page.data, page.len, err);
    if (status == VT_OK)
        lab_item(l, "html",
                 "timeline.html, one file that loads nothing: the sections of the terminal, and a "
                 "timeline to zoom into");
    vt_buf_release(&page);
    free(text);
    return status;
}

/* ---- all ---- */

/* A smaller token budget, on the same load: decodes wait less for a chunk. */
static vt_status turn_budget(lab *l, const load *m, const gaps *before, vt_err *err)
{
    load small = {.n = m->n};
    gaps after = {0};
    sglang_cost big, little;
    story_seq seq[2] = {{.q_len = 1, .kv_len = 128, .n_rows = 1}, {.q_len = 256, .kv_len = 256}};
    TRY(sglang_cost_step(l, m->engine, seq, 2, false, &big, err));
    seq[1] = (story_seq){.q_len = 64, .kv_len = 64};
    TRY(sglang_cost_step(l, m->engine, seq, 2, false, &little, err));
    vt_status status = sglang_open(l, (const char *const[]){"token-budget", "64", NULL}, m->running,
                                   &small.engine, err);
    for (int32_t i = 0; status == VT_OK && i < m->n; i++)
        small.r[i] = (lab_request){
            .prompt = m->r[i].prompt, .n_prompt = m->r[i].n_prompt, .n_gen = m->r[i].n_gen};
    if (status == VT_OK)
        status = lab_requests_run(l, small.engine, small.r, small.n, err);
    if (status == VT_OK)
        status = lab_story(l, small.engine, 0, &small.story, err);
    if (status == VT_OK) {
        find_gaps(small.story, &after);
        lab_turn(l, &(lab_knob){.name = "budget 64, not 256",
                                .where = "--token-budget",
                                .what = "a step that carries a chunk beside decodes",
                                .gain = big.floor_s / little.floor_s,
                                .before_s = before->mixed_ms * 1e-3,
                                .before_noise = before->mixed_noise,
                                .after_s = after.mixed_ms * 1e-3,
                                .after_noise = after.mixed_noise,
                                .why = "a smaller chunk holds up the decodes of its step for a "
                                       "shorter time; the weights are read once more for each "
                                       "chunk, so the prompt takes longer"});
    }
    for (int32_t i = 0; i < small.n; i++)
        lab_request_release(&small.r[i]);
    json_decref(small.story);
    vt_engine_free(small.engine);
    return status;
}

static vt_status measure(lab *l, load *m, vt_err *err)
{
    gaps g = {0};
    sglang_cost cost;
    TRY(make_load(l, m, err));
    story_seq seq[4];
    for (int i = 0; i < 4; i++)
        seq[i] = (story_seq){.q_len = 1, .kv_len = 64, .n_rows = 1};
    TRY(sglang_cost_step(l, m->engine, seq, 4, true, &cost, err));
    lab_predict(l, "a step of four decodes", sglang_best_s(&cost), VT_SECONDS,
                "bytes and FLOPs of every call at the share of its roof that the call's row "
                "reached when it was measured alone");
    TRY(lab_requests_run(l, m->engine, m->r, m->n, err));
    TRY(lab_story(l, m->engine, 0, &m->story, err));
    lab_outcome(l, "a step of four decodes", sglang_decode_median(m->story, "ms", 4) * 1e-3,
                sglang_disturbed(m->story, "decode"));
    int32_t wrong = 0;
    for (int32_t i = 0; i < m->n; i++)
        wrong += m->r[i].n_tokens != m->r[i].n_gen;
    lab_check(l, wrong == 0, "all %d requests ended with as many tokens as they asked for", m->n);
    tell_load(l, m);
    sglang_table_batch(l, "steps", "What each step computed", m->story, 40);
    find_gaps(m->story, &g);
    tell_gaps(l, m, &g);
    tell_overlap(l, m->story);
    tell_order(l, m->story);
    TRY(write_trace(l, m->story, err));
    TRY(write_page(l, m->story, err));
    TRY(turn_budget(l, m, &g, err));
    return lab_nsys(l, "timeline", err);
}

static vt_status run(lab *l, vt_err *err)
{
    load m = {0};
    vt_status status = measure(l, &m, err);
    sglang_release(m.r, m.n);
    json_decref(m.story);
    vt_engine_free(m.engine);
    return status;
}

const lab_def sglang_timeline = {
    .track = LAB_SGLANG,
    .number = "04",
    .name = "timeline_profile",
    .goal = "You can read a recording of a mixed load and name each gap: who waited for whom.",
    .about = {"Eight requests of different lengths go through one engine, four at a time.",
              "Decodes come first in a step, then chunks of prompts up to the token budget.",
              "The recording is told as a story, and written as a trace for Perfetto's page."},
    .alias = {"04_nsys_profile.sh", "04_timeline_profile.py"},
    .knobs = {{"--token-budget", LAB_OFFERED, NULL, "--token-budget 64"}},
    .items = {{"load", "the requests, and when each was served", false},
              {"steps", "the whole recording step by step", false},
              {"gaps", "the gaps: who waited for whom", false},
              {"slowest_step", "the longest step and what it carried", false},
              {"overlap", "CPU work that the device hides (CPU/GPU overlap)", true},
              {"kernel_order", "the order of the calls in a layer, with their times", true},
              {"trace", "the recording as a trace for Perfetto's page", true},
              {"html", "the recording as a page of HTML", true},
              {"nsys", "the same load under nsys (--nsys)", true}},
    .run = run,
};
