/* Labs sglang 01 and mini-sglang 06, counted: a bench of the model whose recording holds the GPU's
 * hardware counters, read call by call in steps of their own, beside the times of other steps.
 *
 *   calls of the middle layer, in order      their times       what the hardware counted
 *   L14.linear.qkv                           7.29 us           SMs 96 %, matrix unit 3 % ...
 *
 * Counted calls run one by one, so their times are never used: every time here is of steps that
 * were not counted. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/plain_file.h"
#include "device/choose.h"
#include "files/json.h"
#include "lab/sglang/counted.h"
#include "lab/sglang/inside.h"
#include "story/read.h"

static const char generated[] = "40"; /* counters are read in every 16th decode step */

enum { LIMIT_S = 40, NAME_AT = 30, TEXT_AT = 41, MARGIN = 4 };

static const char *const phase_name[] = {"prefill", "decode"};

/* ---- what was counted ---- */

static const json_t *counted_phase(const json_t *story, const char *name)
{
    const json_t *phase;
    size_t i;
    char text[STORY_TEXT];
    json_array_foreach((json_t *)(uintptr_t)story_get(story_get(story, "gpu_counters"), "phases"),
                       i,
                       phase) if (strcmp(story_text(phase, "name", text), name) == 0) return phase;
    return NULL;
}

/* The op of this kind in a list of ops; NULL: none. */
static const json_t *op_of(const json_t *phase, const char *kind)
{
    const json_t *op;
    size_t i;
    char text[STORY_TEXT];
    json_array_foreach((json_t *)(uintptr_t)story_get(phase, "ops"), i,
                       op) if (strcmp(story_text(op, "kind", text), kind) == 0) return op;
    return NULL;
}

/* The mean of a share over the ops of a phase, weighted by the time that the counters saw. */
static double mean_of(const json_t *phase, const char *key)
{
    const json_t *op;
    size_t i;
    double sum = 0, time = 0;
    json_array_foreach((json_t *)(uintptr_t)story_get(phase, "ops"), i, op)
    {
        double v = story_num(op, key), us = story_num(op, "time_us");
        if (!isfinite(v) || !isfinite(us))
            continue;
        sum += v * us;
        time += us;
    }
    return time > 0 ? sum / time : NAN;
}

/* Names what binds an op, by its counters. */
static const char *binds(const json_t *op)
{
    static const double most = 0.6, few = 0.5;
    double memory = story_num(op, "dram"), matrix = story_num(op, "tensor"),
           hits = story_num(op, "l2_hit"), sm = story_num(op, "sm");
    if (memory >= most && memory >= matrix)
        return "memory-bound";
    if (matrix >= most)
        return "bound by the matrix unit";
    if (sm < few)
        return "bound by its start and end: SMs stand idle for most of the call";
    if (hits >= most && memory < few)
        return "its data comes from L2, and no unit is near its limit: it waits for loads";
    return "no unit is near its limit: it waits";
}

static void put_shares(vt_buf *t, const json_t *op)
{
    if (!op) {
        vt_buf_puts(t, "not counted");
        return;
    }
    vt_text_printf(t, "SMs %f share, matrix unit %f share, memory %f share, L2 hits %f share",
                   story_num(op, "sm"), story_num(op, "tensor"), story_num(op, "dram"),
                   story_num(op, "l2_hit"));
}

/* ---- the table ---- */

static void table_phase(lab *l, const json_t *phase, const char *name)
{
    const json_t *op;
    size_t i;
    char kind[STORY_TEXT], impl[STORY_TEXT];
    json_array_foreach((json_t *)(uintptr_t)story_get(phase, "ops"), i, op)
    {
        double waves = story_num(op, "shared_wavefronts");
        lab_cells(l, "%s|%s|%s|%f share|%f share|%f share|%f share|%f share|%f share|%f B|%f ratio",
                  name, story_text(op, "kind", kind), story_text(op, "impl", impl),
                  story_num(op, "sm"), story_num(op, "tensor"), story_num(op, "dram"),
                  story_num(op, "l2_hit"), story_num(op, "occupancy"),
                  waves > 0 ? story_num(op, "bank_conflicts") / waves : NAN,
                  story_num(op, "dram_read") + story_num(op, "dram_written"),
                  story_num(op, "of_compulsory"));
    }
}

static void tell_table(lab *l, const json_t *story)
{
    lab_table(l, "counted",
              "Of a step: shares of what the hardware can, of steps of their own; conflicts: of "
              "the wavefronts of shared memory; moved: of memory, and of what the ops must move",
              "phase|op|runs as|>SMs busy|>matrix unit|>memory|>L2 hits|>occupancy|>conflicts|"
              ">moved|>of need");
    for (int p = 0; p < 2; p++)
        table_phase(l, counted_phase(story, phase_name[p]), phase_name[p]);
}

/* ---- the drawing ---- */

/* A phase as it is drawn. */
typedef struct drawn {
    const json_t *labels, *layers; /* of all calls of the program, in order */
    const json_t *typical;         /* column "us" */
    const json_t *timed, *counted; /* the phase, with its ops */
    size_t n;
    double middle, layer_us; /* the layer that is drawn, and the sum of its calls */
    size_t hotspot;          /* the longest call of that layer */
} drawn;

static double layer_of(const drawn *d, size_t i)
{
    return json_number_value(json_array_get(d->layers, i));
}

static bool read_phase(const json_t *story, const char *name, double middle, drawn *d)
{
    static const char *const column[] = {"us", NULL};
    const json_t *calls = story_get(story, "calls"), *p;
    char text[STORY_TEXT];
    size_t i;
    *d = (drawn){.labels = story_get(calls, "labels"),
                 .layers = story_get(calls, "layers"),
                 .timed = story_phase_named(story, name),
                 .counted = counted_phase(story, name),
                 .middle = middle};
    json_array_foreach((json_t *)(uintptr_t)story_get(story_get(story, "typical"), "phases"), i,
                       p) if (strcmp(story_text(p, "name", text), name) == 0) d->typical = p;
    size_t rows = story_rows(d->typical, column), labels = json_array_size(d->labels);
    d->n = rows < labels ? rows : labels;
    double longest = 0;
    for (i = 0; i < d->n; i++) {
        double us = story_cell(d->typical, "us", i);
        if (layer_of(d, i) != middle || !isfinite(us))
            continue;
        d->layer_us += us;
        if (us > longest) {
            longest = us;
            d->hotspot = i;
        }
    }
    return d->n > 0 && d->counted;
}

static void put_line(vt_buf *b, const char *branch, const char *name, double us, vt_buf *text)
{
    size_t line = b->len;
    vt_buf_printf(b, "%s %.*s", branch, NAME_AT, name);
    vt_text_pad(b, line, NAME_AT);
    if (isfinite(us))
        vt_text_figure(b, us * 1e-6, VT_SECONDS);
    if (text->len > 0) {
        vt_text_pad(b, line, TEXT_AT);
        vt_text_wrap(b, text->data, TEXT_AT, VT_TERM_WIDTH - MARGIN);
    }
    vt_buf_putc(b, '\n');
    b->failed |= text->failed;
    vt_buf_release(text);
    *text = (vt_buf){0};
}

/* Below the longest call of the layer: its kernel, how its work is cut, and what binds it. */
static void put_hotspot(vt_buf *b, const drawn *d, const char *kind)
{
    const json_t *op = op_of(d->timed, kind), *kernel = json_array_get(story_get(op, "kernels"), 0);
    char text[STORY_TEXT];
    vt_buf t = {0};
    story_text(kernel, "name", text);
    for (const char *c = text; *c; c++) /* so that a long name can be wrapped */
        vt_buf_puts(&t, *c == ',' ? ", " : (char[]){*c, 0});
    if (t.len)
        put_line(b, "│   │   ├──", "kernel", NAN, &t);
    vt_buf_printf(&t, "%.220s", story_text(op, "cut", text));
    if (t.len)
        put_line(b, "│   │   ├──", "cut", NAN, &t);
    vt_buf_puts(&t, binds(op_of(d->counted, kind)));
    put_line(b, "│   │   └──", "observation", NAN, &t);
}

static void put_call(vt_buf *b, const drawn *d, size_t i, bool in_layer)
{
    char label[STORY_TEXT];
    const char *dot, *kind = story_clean(json_array_get(d->labels, i), label);
    vt_buf t = {0};
    if (in_layer && (dot = strchr(kind, '.')))
        kind = dot + 1;
    double us = story_cell(d->typical, "us", i);
    put_shares(&t, op_of(d->counted, kind));
    if (in_layer && i == d->hotspot)
        vt_text_printf(&t, "  <- HOTSPOT, %f share of the layer", us / d->layer_us);
    put_line(b, in_layer ? "│   ├──" : "├──", kind, us, &t);
    if (in_layer && i == d->hotspot)
        put_hotspot(b, d, kind);
}

static void draw_phase(vt_buf *b, const drawn *d, const char *title, int32_t n_layers)
{
    char text[80];
    bool layer = false;
    double tokens = story_num(d->timed, "tokens") / story_num(d->timed, "steps");
    vt_text_printf(b, "%s: a step of %.0f token%s, whose calls take %f s\n", title, tokens,
                   story_s(tokens), story_num(d->timed, "ops_us") * 1e-6);
    for (size_t i = 0; i < d->n; i++) {
        double of = layer_of(d, i);
        vt_buf t = {0};
        if (!isfinite(story_cell(d->typical, "us", i)) || (of >= 0 && of != d->middle))
            continue;
        if (of >= 0 && !layer) {
            snprintf(text, sizeof text, "LAYER %.0f, one of %d", d->middle, n_layers);
            put_line(b, "├──", text, d->layer_us, &t);
        }
        layer = of >= 0;
        put_call(b, d, i, layer);
    }
}

/* The phases' means beside each other, where the kernels change. */
static void draw_transition(vt_buf *b, const json_t *story)
{
    const json_t *before = counted_phase(story, "prefill"), *after = counted_phase(story, "decode");
    vt_text_printf(
        b,
        "TRANSITION prefill -> decode: matrix unit %f share -> %f share, memory %f share "
        "-> %f share, SMs %f share -> %f share of the counted time\n",
        mean_of(before, "tensor"), mean_of(after, "tensor"), mean_of(before, "dram"),
        mean_of(after, "dram"), mean_of(before, "sm"), mean_of(after, "sm"));
}

static void draw(lab *l, const json_t *story, int32_t n_layers)
{
    vt_buf b = {0};
    drawn d[2];
    bool is[2];
    for (int p = 0; p < 2; p++)
        is[p] = read_phase(story, phase_name[p], n_layers / 2, &d[p]);
    if (is[0])
        draw_phase(&b, &d[0], "PREFILL", n_layers);
    if (is[0] && is[1])
        draw_transition(&b, story);
    if (is[1])
        draw_phase(&b, &d[1], "DECODE", n_layers);
    if (is[0] || is[1])
        lab_drawing(
            l, "hardware",
            "times of steps that were not counted, by their kernels' own stamps; shares counted",
            &b);
    else
        lab_missing(l, "hardware", "the recording has no typical step with the times of its calls");
    vt_buf_release(&b);
}

/* ---- findings ---- */

static void find_bound(lab *l, const json_t *story, const char *name)
{
    const json_t *op = json_array_get(story_get(counted_phase(story, name), "ops"), 0);
    char kind[STORY_TEXT];
    if (op)
        lab_finding(l, "counters.binds",
                    "%s %s, the longest op of its step: SMs busy %f share, matrix unit %f share, "
                    "memory %f share, L2 hits %f share (counted): %s",
                    name, story_text(op, "kind", kind), story_num(op, "sm"),
                    story_num(op, "tensor"), story_num(op, "dram"), story_num(op, "l2_hit"),
                    binds(op));
}

static void miss(lab *l, const char *why)
{
    lab_missing(l, "counted", "%s", why);
    lab_missing(l, "hardware", "%s", why);
}

void sglang_tell_counted(lab *l, const json_t *story, int32_t n_layers)
{
    char why[STORY_TEXT];
    story_text(story_get(story, "gpu_counters"), "why", why);
    if (!counted_phase(story, "prefill") && !counted_phase(story, "decode")) {
        miss(l, why[0] ? why : "no step of the recording was counted");
        return;
    }
    l->vitals = true;
    tell_table(l, story);
    draw(l, story, n_layers);
    for (int p = 0; p < 2; p++)
        find_bound(l, story, phase_name[p]);
}

/* ---- the run ---- */

/* Runs a bench of the lab's model in a process of its own, whose recording is *out: counters need
 * an engine that was made for them, and CUPTI stays out of this process. */
static vt_status count(lab *l, int32_t n_prompt, json_t **out, vt_err *err)
{
    char device[16], prompt[16], path[1100], log[1100], story[1200];
    int status = 0;
    vt_device_name(l->ordinal, device, sizeof device);
    snprintf(prompt, sizeof prompt, "%d", n_prompt);
    snprintf(path, sizeof path, "%s/counted.json", l->results);
    snprintf(log, sizeof log, "%s/counted.log", l->results);
    snprintf(story, sizeof story, "--story=%s", path);
    const char *const argv[] = {lab_self(),
                                "bench",
                                "latency",
                                "--model",
                                l->model,
                                "--device",
                                device,
                                "--prompt",
                                prompt,
                                "--gen",
                                generated,
                                "-r",
                                "2",
                                "--kv-memory",
                                "512M",
                                "--quiet",
                                "--json",
                                story,
                                "--story-counters",
                                NULL};
    vt_buf text;
    TRY(lab_tool_writes(path, err));
    TRY(lab_tool_run(l, argv, log, LIMIT_S, &status, err));
    if (status != 0)
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "a bench that reads the GPU's counters ended with status %d (see %s)",
                       status, log);
    TRY(vt_read_whole(path, VT_JSON_MAX_TREE, &text, err));
    vt_status loaded = story_load(path, text.data ? text.data : "", text.len, out, err);
    vt_buf_release(&text);
    if (loaded == VT_OK) {
        unlink(path);
        unlink(log);
    }
    return loaded;
}

void sglang_counted(lab *l, int32_t n_prompt)
{
    json_t *story = NULL;
    sglang_heads h;
    vt_err err = {0};
    if (l->ordinal < 0) {
        miss(l,
             "busy SMs, the matrix unit, memory and L2 are counted by a GPU, and the lab runs on "
             "the CPU");
        return;
    }
    lab_note(l, "the same in a bench whose calls the GPU's counters watch");
    if (sglang_model_heads(l, &h, &err) != VT_OK || count(l, n_prompt, &story, &err) != VT_OK)
        miss(l, err.message);
    else
        sglang_tell_counted(l, story, h.layers);
    json_decref(story);
}
