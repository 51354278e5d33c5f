/* A step, a layer or an op of a story.json in the terminal (story/story.h): what its lists `steps`,
 * `chunks` and `calls` and its typical steps hold. The JSON may come from a file of unknown origin:
 * see story/read.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/stats.h"
#include "base/term/figure.h"
#include "story/page/page.h"
#include "story/story.h"

enum { MAX_CALLS = 1 << 16, MAX_LINES = 200, LONGEST = 8 };

typedef struct level_view {
    page *p;
    const char *name;
    const json_t *story, *calls, *typical;
} level_view;

/* ---- reading ---- */

/* Element i of a column of rows ("steps") or of a phase's calls. */
static double at(const json_t *rows, const char *column, size_t i)
{
    return story_cell(rows, column, i);
}

static size_t rows_of(const json_t *rows, const char *column)
{
    return json_array_size(story_get(story_get(rows, "columns"), column));
}

/* Element i of a list of strings. */
static const char *item(const json_t *list, size_t i, char out[STORY_TEXT])
{
    return story_clean(json_array_get(list, i), out);
}

static size_t n_calls(const level_view *p)
{
    size_t n = json_array_size(story_get(p->calls, "labels"));
    return n < MAX_CALLS ? n : MAX_CALLS;
}

static double layer_of(const level_view *p, size_t call)
{
    const json_t *v = json_array_get(story_get(p->calls, "layers"), call);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

/* "linear.qkv" of "L07.linear.qkv". */
static const char *kind_of(const level_view *p, size_t call, char out[STORY_TEXT])
{
    item(story_get(p->calls, "labels"), call, out);
    char *dot = layer_of(p, call) >= 0 ? strchr(out, '.') : NULL;
    if (dot)
        memmove(out, dot + 1, strlen(dot + 1) + 1);
    return out;
}

/* ---- writing ---- */

/* A call: its name, how it runs, its time, its share, how near its roof it is. */
static void call_row(level_view *p, const char *name, const char *how, double us, double share,
                     double floor_us, const char *note)
{
    vt_buf time = {0};
    vt_text_time(&time, us * 1e-6);
    page_row *r = page_add(p->p, PAGE_CALL, 5);
    r->cell[0].text = page_say(p->p, "%s", name);
    r->cell[1].text = page_say(p->p, "%s", how);
    r->cell[2].text = page_take(p->p, &time);
    r->cell[2].share = share;
    if (floor_us > 0 && us > 0)
        r->cell[3].text = page_say(p->p, "%3.0f %% of roof", fmin(100 * floor_us / us, 999));
    r->cell[4].text = page_say(p->p, "%s", note);
    r->cell[4].ink = VT_INK_YELLOW;
}

/* A value for each layer: v[n]. */
static void layers_row(level_view *p, const char *name, const double *v, int32_t n, vt_buf *text)
{
    double *copy = vt_arena_alloc(&p->p->arena, (size_t)n + 1, sizeof *copy);
    p->p->failed = p->p->failed || !copy;
    if (copy && n > 0)
        memcpy(copy, v, (size_t)n * sizeof *v);
    page_row *r = page_add(p->p, PAGE_SERIES, 3);
    r->cell[0].text = name;
    r->cell[1].series = copy;
    r->cell[1].n_series = copy ? n : 0;
    r->cell[2].text = page_take(p->p, text);
}

static void line_row(level_view *p, vt_buf *line) { page_text(p->p, PAGE_LINE, line); }

/* Returns the name of what the call ran as; "" where the story does not say. */
static const char *impl_of(const level_view *p, const json_t *phase, size_t call,
                           char out[STORY_TEXT])
{
    const json_t *impls = story_get(p->typical, "impls");
    double i = at(phase, "impl", call);
    bool known = i >= 0 && i < (double)json_array_size(impls);
    return item(impls, known ? (size_t)i : SIZE_MAX, out);
}

/* Adds by which the whole is told first: "SmolLM2 · cpu avx512". */
static void title(level_view *p, const char *what)
{
    char model[STORY_TEXT], device[STORY_TEXT], level[STORY_TEXT];
    const json_t *e = story_get(p->story, "engine");
    vt_buf line = {0};
    vt_buf_printf(&line, "%.40s · %.16s %.16s",
                  story_text(story_get(p->story, "model"), "name", model),
                  story_text(e, "device", device), story_text(e, "level", level));
    page_open(p->p, "title", "", "");
    page_pair(p->p, PAGE_TITLE, page_say(p->p, "%s", what), &line);
}

/* Opens the section of a phase's typical step. */
static void typical_section(level_view *p, const json_t *phase)
{
    page_open(p->p, "level",
              page_say(p->p, "%s, the typical step (mean of %.0f)", page_str(p->p, phase, "name"),
                       story_num(phase, "steps")),
              "");
}

/* ---- a layer ---- */

static double layer_us(const level_view *p, const json_t *phase, double layer)
{
    double sum = 0;
    for (size_t i = 0; i < n_calls(p); i++)
        if (layer_of(p, i) == layer && at(phase, "us", i) > 0)
            sum += at(phase, "us", i);
    return sum;
}

static void layer_tree(level_view *p, const json_t *phase, double layer, double n_layers)
{
    char kind[STORY_TEXT], how[STORY_TEXT];
    double sum = layer_us(p, phase, layer), all = 0, most = 0;
    double *each = calloc((size_t)n_layers + 1, sizeof *each);
    for (size_t i = 0; i < n_calls(p); i++) {
        double us = at(phase, "us", i);
        all += us > 0 ? us : 0;
        if (layer_of(p, i) == layer && us > most)
            most = us;
    }
    for (double l = 0; each && l < n_layers; l++)
        each[(size_t)l] = layer_us(p, phase, l);
    typical_section(p, phase);
    vt_buf line = {0};
    vt_text_printf(&line, "layer %.0f: %f s of %f s, %.1f %% of the step", layer, sum * 1e-6,
                   all * 1e-6, all > 0 ? 100 * sum / all : 0);
    if (each) {
        vt_buf_puts(&line, "; all layers ");
        vt_text_spark(&line, each, (int32_t)n_layers, 30);
        vt_text_printf(&line, ", median %f s", vt_median(each, (size_t)n_layers) * 1e-6);
    }
    page_text(p->p, PAGE_TEXT, &line);
    for (size_t i = 0; i < n_calls(p); i++) {
        double us = at(phase, "us", i);
        if (layer_of(p, i) == layer && us > 0)
            call_row(p, kind_of(p, i, kind), impl_of(p, phase, i, how), us, us / sum,
                     at(phase, "floor_us", i), us == most ? "<- hotspot" : "");
    }
    free(each);
}

static vt_status show_layer(level_view *p, double layer, vt_err *err)
{
    char what[64];
    double most = -1;
    size_t i;
    json_t *phase;
    for (size_t k = 0; k < n_calls(p); k++)
        most = layer_of(p, k) > most ? layer_of(p, k) : most;
    if (!(layer <= most) || most > MAX_CALLS)
        return vt_fail(err, VT_ERR_USAGE, "%s: no layer %.0f, the last one is %.0f", p->name, layer,
                       most);
    snprintf(what, sizeof what, "LAYER %.0f", layer);
    title(p, what);
    json_array_foreach(story_get(p->typical, "phases"), i, phase)
    {
        if (i < 8)
            layer_tree(p, phase, layer, most + 1);
    }
    return VT_OK;
}

/* ---- an op ---- */

static void op_sums(level_view *p, const json_t *phase, const char *op, int32_t n)
{
    char kind[STORY_TEXT], how[STORY_TEXT] = "";
    double sum = 0, all = 0, floor_us = 0, bytes = 0, flops = 0, slowest = 0, slowest_step = 0;
    double *each = calloc((size_t)n + 1, sizeof *each);
    int32_t k = 0;
    size_t worst = 0;
    for (size_t i = 0; i < n_calls(p); i++) {
        double us = at(phase, "us", i);
        all += us > 0 ? us : 0;
        if (!(us > 0) || strcmp(kind_of(p, i, kind), op) != 0)
            continue;
        sum += us;
        if (each)
            each[k] = us;
        k++;
        floor_us += fmax(at(phase, "floor_us", i), 0);
        bytes += fmax(at(phase, "bytes", i), 0);
        flops += fmax(at(phase, "flops", i), 0);
        impl_of(p, phase, i, how);
        if (at(phase, "slowest_us", i) > slowest) {
            slowest = at(phase, "slowest_us", i);
            slowest_step = at(phase, "slowest_step", i);
            worst = i;
        }
    }
    if (k == 0) {
        free(each);
        return;
    }
    typical_section(p, phase);
    vt_buf line = {0};
    vt_text_printf(
        &line,
        "%d call%s%s%s: %f s, %.1f %% of the step; %f B, %f B/s, %.1f FLOP/byte, %.0f %% of roof",
        k, vt_text_s(k), *how ? " on " : "", how, sum * 1e-6, 100 * sum / all, bytes,
        bytes / (sum * 1e-6), bytes > 0 ? flops / bytes : 0, 100 * floor_us / sum);
    page_text(p->p, PAGE_TEXT, &line);
    if (each)
        layers_row(p, "layer by layer", each, k, &line);
    vt_text_printf(&line, "longest: %s, %f s in step %.0f, %.1f times the mean call",
                   item(story_get(p->calls, "labels"), worst, kind), slowest * 1e-6, slowest_step,
                   slowest / (sum / k));
    line_row(p, &line);
    free(each);
}

static vt_status show_op(level_view *p, const char *op, vt_err *err)
{
    char kind[STORY_TEXT], what[STORY_TEXT];
    int32_t n = 0;
    size_t i;
    json_t *phase;
    for (size_t k = 0; k < n_calls(p); k++)
        n += strcmp(kind_of(p, k, kind), op) == 0;
    if (n == 0)
        return vt_fail(err, VT_ERR_USAGE,
                       "%s: no op '%.60s'; the tables of the story name them, as in linear.qkv",
                       p->name, op);
    snprintf(what, sizeof what, "OP %s", op);
    title(p, what);
    json_array_foreach(story_get(p->typical, "phases"), i, phase)
    {
        if (i < 8)
            op_sums(p, phase, op, n);
    }
    page_lines_of_op(p->p, op);
    page_ctas_of_op(p->p, op);
    return VT_OK;
}

/* ---- a step ---- */

/* The time of each call of a step: us[n], NAN where it did not run. False: the file does not have
 * them. */
static bool step_calls(const level_view *p, double step, double *us, size_t n)
{
    bool any = false;
    for (size_t i = 0; i < n; i++)
        us[i] = NAN;
    for (size_t i = 0; i < rows_of(p->calls, "step"); i++) {
        double call = at(p->calls, "label", i);
        if (at(p->calls, "step", i) == step && call >= 0 && call < (double)n) {
            us[(size_t)call] = at(p->calls, "us", i);
            any = true;
        }
    }
    return any;
}

static const json_t *phase_of(const level_view *p, bool prefill)
{
    size_t i;
    json_t *phase;
    json_array_foreach(story_get(p->typical, "phases"), i, phase)
    {
        const char *name = json_string_value(story_get(phase, "name"));
        if (name && (strcmp(name, "prefill") == 0) == prefill)
            return phase;
    }
    return NULL;
}

/* The calls that took longest, beside what they take in the typical step. */
static void longest_calls(level_view *p, const json_t *phase, const double *us, size_t n,
                          double all)
{
    char label[STORY_TEXT];
    double limit = INFINITY;
    size_t last = SIZE_MAX;
    for (int shown = 0; shown < LONGEST; shown++) {
        size_t best = SIZE_MAX;
        for (size_t i = 0; i < n; i++) {
            bool next = us[i] < limit || (us[i] == limit && i > last);
            if (us[i] > 0 && next && (best == SIZE_MAX || us[i] > us[best]))
                best = i;
        }
        if (best == SIZE_MAX)
            return;
        limit = us[best];
        last = best;
        char note[64] = "";
        double usual = at(phase, "us", best);
        if (usual > 0)
            snprintf(note, sizeof note, "%.1fx typical", us[best] / usual);
        call_row(p, item(story_get(p->calls, "labels"), best, label), "", us[best], us[best] / all,
                 at(phase, "floor_us", best), note);
    }
}

enum { MAX_STEPS = 4096 }; /* whose calls a file may hold, and that are looked through */

/* The steps whose calls are in the file: id[MAX_STEPS]. Returns how many. */
static size_t steps_with_calls(const level_view *p, double *id)
{
    size_t rows = rows_of(p->calls, "step"), n = 0;
    for (size_t i = 0; i < rows && i < MAX_CALLS && n < MAX_STEPS; i++)
        if (n == 0 || at(p->calls, "step", i) != id[n - 1])
            id[n++] = at(p->calls, "step", i);
    return n;
}

/* Returns what `column` ("token", "id") says of step i of the list; NAN if the step is none of
 * id[n]. */
static double step_of(const level_view *p, const char *column, size_t i, const double *id, size_t n)
{
    const json_t *s = story_get(p->story, "steps");
    double step = at(s, "id", i);
    for (size_t k = 0; k < n; k++)
        if (id[k] == step)
            return at(s, column, i);
    return NAN;
}

/* Says why the step's calls are not there, and which tokens or steps have theirs: "--token 0, 8 to
 * 15". */
static void calls_line(level_view *p, const char *column)
{
    enum { SHOWN = 12 };
    double id[MAX_STEPS];
    size_t n_ids = steps_with_calls(p, id), shown = 0, end,
           n = rows_of(story_get(p->story, "steps"), column);
    n = n < MAX_STEPS ? n : MAX_STEPS;
    vt_buf line = {0};
    vt_buf_puts(&line, "its calls are not in this file: decode steps are recorded in every second "
                       "block of 8, and of those a file keeps some");
    for (size_t i = 0; i < n; i = end) {
        double first = step_of(p, column, i, id, n_ids);
        end = i + 1;
        if (isnan(first))
            continue;
        while (end < n && step_of(p, column, end, id, n_ids) == first + (double)(end - i))
            end++;
        if (shown == 0)
            vt_buf_printf(&line, "; try --%s ", strcmp(column, "token") == 0 ? "token" : "step");
        if (shown < SHOWN)
            vt_buf_printf(&line, "%s%.0f", shown ? ", " : "", first);
        if (shown++ < SHOWN && end - i > 1)
            vt_buf_printf(&line, " to %.0f", first + (double)(end - i - 1));
    }
    if (shown > SHOWN)
        vt_buf_printf(&line, " and %zu more", shown - SHOWN);
    page_text(p->p, PAGE_TEXT, &line);
}

static void step_layers(level_view *p, const char *column, double step, bool prefill)
{
    size_t n = n_calls(p);
    double *us = calloc(n + 1, sizeof *us), *layer = calloc(n + 1, sizeof *layer), all = 0;
    int32_t n_layers = 0;
    if (!us || !layer || !step_calls(p, step, us, n)) {
        calls_line(p, column);
        free(us);
        free(layer);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        double l = layer_of(p, i);
        if (!(us[i] > 0))
            continue;
        all += us[i];
        if (l >= 0 && l < (double)n) {
            layer[(size_t)l] += us[i];
            n_layers = (int32_t)l + 1 > n_layers ? (int32_t)l + 1 : n_layers;
        }
    }
    vt_buf text = {0};
    vt_text_printf(&text, "calls %f s; the longest:", all * 1e-6);
    layers_row(p, "layers", layer, n_layers, &text);
    longest_calls(p, phase_of(p, prefill), us, n, all);
    free(us);
    free(layer);
}

/* The parts of prompts in a step. */
static void step_chunks(level_view *p, double step)
{
    const json_t *c = story_get(p->story, "chunks");
    int shown = 0;
    for (size_t i = 0; i < rows_of(c, "step") && shown < MAX_LINES; i++)
        if (at(c, "step", i) == step) {
            vt_buf line = {0};
            vt_buf_printf(&line, "chunk of request %.0f: %.0f tokens, up to position %.0f",
                          at(c, "request", i), at(c, "tokens", i), at(c, "kv", i));
            line_row(p, &line);
            shown++;
        }
}

static void host_line(level_view *p, const json_t *s, size_t i)
{
    static const char *const key[] = {"schedule_us", "prepare_us", "publish_us"};
    static const char *const name[] = {"scheduled in ", "prepared and launched in ",
                                       "published in "};
    vt_buf line = {0};
    for (int k = 0; k < 3; k++) {
        if (!isfinite(at(s, key[k], i)))
            continue;
        vt_text_printf(&line, "%s%s%f s", line.len ? ", " : "host: ", name[k],
                       at(s, key[k], i) * 1e-6);
    }
    if (line.len)
        line_row(p, &line);
}

/* The hardware events that the workers' CPUs counted in the step. */
static void counter_line(level_view *p, const json_t *s, size_t i)
{
    static const char *const key[] = {"cycles", "instructions", "cache_misses"};
    static const char *const name[] = {"cycles", "instructions",
                                       "reads that missed the last cache"};
    vt_buf line = {0};
    for (int k = 0; k < 3; k++)
        if (isfinite(at(s, key[k], i)))
            vt_buf_printf(&line, "%s%.0f %s", line.len ? ", " : "counted: ", at(s, key[k], i),
                          name[k]);
    if (line.len)
        line_row(p, &line);
}

static void put_step(level_view *p, const json_t *s, const char *column, size_t i)
{
    double id = at(s, "id", i);
    bool prefill = at(s, "prefill", i) > 0;
    vt_buf line = {0};
    page_open(p->p, "level",
              page_say(p->p, "STEP %.0f, %s%s", id, prefill ? "prefill" : "decode",
                       at(s, "typical", i) > 0 ? ", one of the typical ones" : ""),
              "");
    vt_text_printf(&line, "at %.2f ms, for %f s", at(s, "begin_ms", i), at(s, "ms", i) * 1e-3);
    if (isfinite(at(s, "wait_us", i))) {
        vt_text_printf(&line, ", %f s after the step before it", at(s, "wait_us", i) * 1e-6);
    }
    line_row(p, &line);
    host_line(p, s, i);
    vt_buf_printf(&line, "batch: %.0f token%s of %.0f sequence%s, %.0f decode%s",
                  at(s, "tokens", i), story_s(at(s, "tokens", i)), at(s, "seqs", i),
                  story_s(at(s, "seqs", i)), at(s, "decodes", i), story_s(at(s, "decodes", i)));
    if (at(s, "kv", i) > 0)
        vt_buf_printf(&line, "; of the request %.0f, context %.0f", at(s, "new", i),
                      at(s, "kv", i));
    if (at(s, "graph", i) > 0)
        vt_buf_printf(&line, "; graph for %.0f", at(s, "graph", i));
    line_row(p, &line);
    vt_buf_printf(&line, "pages after it: %.0f held, %.0f cached, %.0f free", at(s, "held", i),
                  at(s, "cached", i), at(s, "free", i));
    line_row(p, &line);
    counter_line(p, s, i);
    step_chunks(p, id);
    step_layers(p, column, id, prefill);
}

/* Shows the first step whose `column` has the value. */
static vt_status show_step(level_view *p, const char *column, double value, vt_err *err)
{
    const json_t *s = story_get(p->story, "steps");
    char what[64], cause[STORY_TEXT];
    size_t n = rows_of(s, column), i = 0, k;
    json_t *t;
    bool token = strcmp(column, "token") == 0;
    while (i < n && at(s, column, i) != value)
        i++;
    if (i == n)
        return vt_fail(err, VT_ERR_USAGE, "%s: no step %s %.0f; it has %zu steps, %.0f to %.0f",
                       p->name, token ? "made token" : "of number", value, n, at(s, "id", 0),
                       at(s, "id", n ? n - 1 : 0));
    snprintf(what, sizeof what, token ? "TOKEN %.0f" : "STEP %.0f", value);
    title(p, what);
    json_array_foreach(story_get(story_get(p->story, "slow_tokens"), "tokens"), k, t)
    {
        if (!token || story_num(t, "token") != value)
            continue;
        vt_buf line = {0};
        vt_text_printf(&line, "came %f s after the token before it, usually at most %f s: %s",
                       story_num(t, "ms") * 1e-3,
                       story_num(story_get(p->story, "slow_tokens"), "limit_ms") * 1e-3,
                       story_text(t, "text", cause));
        line_row(p, &line);
    }
    put_step(p, s, column, i);
    return VT_OK;
}

/* ---- all of it ---- */

vt_status story_render_level(const char *name, const char *json, size_t len,
                             const story_level *want, const vt_term *term, vt_buf *out, vt_err *err)
{
    json_t *story = NULL;
    TRY(story_load(name, json, len, &story, err));
    page made;
    page_begin(&made, story);
    level_view p = {&made, name, story, story_get(story, "calls"), story_get(story, "typical")};
    vt_status status = VT_OK;
    if (!json_is_object(p.calls) || !json_is_object(p.typical))
        status = vt_fail(
            err, VT_ERR_FORMAT,
            "%s: no members 'calls' and 'typical', which stories have from version 1 on", name);
    else if (want->kind == STORY_LEVEL_LAYER)
        status = show_layer(&p, (double)want->number, err);
    else if (want->kind == STORY_LEVEL_OP)
        status = show_op(&p, want->op, err);
    else
        status = show_step(&p, want->kind == STORY_LEVEL_TOKEN ? "token" : "id",
                           (double)want->number, err);
    if (status == VT_OK)
        page_to_terminal(&made, term, out);
    out->failed = out->failed || made.failed;
    page_release(&made);
    json_decref(story);
    if (status == VT_OK && out->failed)
        status = vt_fail(err, VT_ERR_MEMORY, "out of memory for a story");
    return status;
}
