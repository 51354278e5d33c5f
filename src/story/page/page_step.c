/* One step op by op, how its work is cut, a layer of a single step, and tokens that came late
 * (page.h). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "story/page/page.h"
#include "base/term/figure.h"

enum { CELL = 48 };

/* An op's name, its time, its share of the roof and which roof that is are always there. */
enum { OP, RUNS_AS, EXPECTED, TIME, SHARE, BYTES, MEAS, SPEED, OF_ROOF, BOUND, COLUMNS };

static const page_column op_columns[COLUMNS] = {
    [OP] = {"op", false, 0},
    [RUNS_AS] = {"runs as", false, 5},
    [EXPECTED] = {"expected", true, 3},
    [TIME] = {"time", true, 0},
    [SHARE] = {"share", true, 2},
    [BYTES] = {"bytes exp", true, 6},
    [MEAS] = {"meas", true, 1},
    [SPEED] = {"speed", true, 4},
    [OF_ROOF] = {"of roof", true, 0},
    [BOUND] = {"bound", false, 0},
};

/* ---- cells ---- */

/* Text of at most CELL cells; a character may be cut at its end. */
static const char *cut(page *p, const char *text)
{
    char out[CELL];
    snprintf(out, sizeof out, "%.47s", text);
    vt_text_clean_line(out);
    return page_say(p, "%s", out);
}

static const char *with(page *p, void (*put)(vt_buf *, double), double v)
{
    vt_buf b = {0};
    put(&b, v);
    return page_take(p, &b);
}

static void put_speed(vt_buf *b, double v) { vt_text_rate(b, v, "B"); }

static const char *percent(page *p, double share, int digits)
{
    return isfinite(share) && fabs(share) < 1e9 ? page_say(p, "%.*f %%", digits, 100 * share)
                                                : "n/a";
}

static double expected_bytes(const json_t *op)
{
    const json_t *e = story_get(op, "expected_bytes");
    return story_num(e, "weights") + story_num(e, "kv") + story_num(e, "activations");
}

static const char *op_name(page *p, const json_t *op)
{
    const char *kind = page_str(p, op, "kind");
    double first = story_num(op, "layer_first"), last = story_num(op, "layer_last");
    if (first >= 0 && last >= first && last < 10000)
        return cut(p, page_say(p, "L%02.0f..L%02.0f %.32s", first, last, kind));
    return cut(p, page_say(p, "%.46s", kind));
}

static const char *runs_as(page *p, const json_t *op)
{
    const json_t *kernels = story_get(op, "kernels");
    size_t n = json_array_size(kernels);
    if (n > 1)
        return page_say(p, "%zu kernels", n);
    return cut(p, page_say(p, "%.46s",
                           n ? page_kernel_base(p, json_array_get(kernels, 0), "name")
                             : page_str(p, op, "impl")));
}

static void op_row(page *p, const json_t *op, const bool *shown)
{
    page_section *s = &p->section[p->n_sections - 1];
    const char *const text[COLUMNS] = {
        [OP] = op_name(p, op),
        [RUNS_AS] = runs_as(p, op),
        [EXPECTED] = with(p, vt_text_time, story_num(op, "expected_us") * 1e-6),
        [TIME] = with(p, vt_text_time, story_num(op, "time_us") * 1e-6),
        [SHARE] = percent(p, story_num(op, "share"), 1),
        [BYTES] = with(p, vt_text_bytes, expected_bytes(op)),
        [MEAS] = with(p, vt_text_bytes, story_num(op, "measured_bytes")),
        [SPEED] = with(p, put_speed, story_num(op, "bytes_per_s")),
        [OF_ROOF] = percent(p, story_num(op, "of_roof"), 0),
        [BOUND] = cut(p, page_say(p, "%.20s", page_str(p, op, "bound")))};
    page_row *r = page_add(p, PAGE_TABLE, s->n_columns);
    int32_t at = 0;
    for (int c = 0; c < COLUMNS; c++)
        if (shown[c])
            r->cell[at++].text = text[c];
}

static void op_rows(page *p, page_section *s, const json_t *phase)
{
    const json_t *ops = story_get(phase, "ops");
    bool shown[COLUMNS];
    size_t i;
    json_t *op;
    bool expected = false;
    json_array_foreach(ops, i, op)
    {
        expected = expected || (i < STORY_ROWS && isfinite(story_num(op, "expected_us")));
    }
    for (int c = 0; c < COLUMNS; c++) {
        /* a GPU's table needs the room for kernels' names; NOT MEASURED says what is missing */
        shown[c] = c == EXPECTED ? expected
                   : c == MEAS   ? !json_is_object(story_get(phase, "gpu"))
                                 : true;
        if (shown[c])
            s->column[s->n_columns++] = op_columns[c];
    }
    json_array_foreach(ops, i, op)
    {
        if (i < STORY_ROWS)
            op_row(p, op, shown);
    }
}

/* ---- below the table ---- */

/* " without page_copy, sample": the ops whose time is not expected. */
static void put_without(vt_buf *line, const json_t *kinds)
{
    for (size_t i = 0; i < json_array_size(kinds) && i < STORY_ROWS; i++) {
        char kind[CELL];
        const char *text = json_string_value(json_array_get(kinds, i));
        snprintf(kind, sizeof kind, "%.46s", text ? text : "?");
        vt_text_clean_line(kind);
        vt_buf_printf(line, "%s%s", i ? ", " : " without ", kind);
    }
}

static void sum_rows(page *p, const json_t *phase)
{
    const json_t *gpu = story_get(phase, "gpu");
    vt_buf line = {0};
    vt_text_printf(&line, "sum %f s of %f s: %.1f %% unexplained; the roofs allow %f s",
                   story_num(phase, "ops_us") * 1e-6, story_num(phase, "step_us") * 1e-6,
                   100 * story_num(phase, "unexplained"), story_num(phase, "floor_us") * 1e-6);
    if (isfinite(story_num(phase, "expected_us"))) {
        vt_text_printf(&line, ", expected %f s [modelled]", story_num(phase, "expected_us") * 1e-6);
        put_without(&line, story_get(phase, "expected_without"));
    }
    page_text(p, PAGE_TEXT, &line);
    if (!isfinite(story_num(gpu, "whole_step_us")))
        return;
    vt_text_printf(&line,
                   "left alone a step takes %f s (mean of %.0f): timing its calls makes that %.2f "
                   "times as much",
                   story_num(gpu, "whole_step_us") * 1e-6, story_num(gpu, "whole_steps"),
                   story_num(gpu, "slower"));
    page_text(p, PAGE_TEXT, &line);
}

/* The hardware events of a step, as a sum over the workers. */
static void counter_row(page *p, const json_t *phase)
{
    const json_t *c = story_get(phase, "counters");
    double cycles = story_num(c, "cycles"), instructions = story_num(c, "instructions"),
           misses = story_num(c, "cache_misses");
    vt_buf line = {0};
    if (!isfinite(cycles) && !isfinite(instructions) && !isfinite(misses))
        return;
    vt_buf_puts(&line, "the workers took ");
    if (isfinite(cycles))
        vt_text_printf(&line, "%.3g million cycles at %f Hz", cycles * 1e-6,
                       story_num(c, "clock_hz"));
    if (isfinite(instructions))
        vt_buf_printf(&line, "%s%.3g million instructions", isfinite(cycles) ? ", " : "",
                      instructions * 1e-6);
    if (isfinite(story_num(c, "ipc")))
        vt_buf_printf(&line, " (%.2f a cycle)", story_num(c, "ipc"));
    if (isfinite(misses))
        vt_buf_printf(&line, "%s%.3g thousand reads that missed the last cache",
                      isfinite(cycles) || isfinite(instructions) ? ", " : "", misses * 1e-3);
    if (isfinite(story_num(c, "amx")))
        vt_buf_printf(&line, "; AMX was busy in %.0f %% of the cycles", 100 * story_num(c, "amx"));
    page_text(p, PAGE_TEXT, &line);
}

/* Tells what became of the slots in which the workers' cores could have issued an instruction. */
static void topdown_row(page *p, const json_t *phase)
{
    const json_t *t = story_get(story_get(phase, "counters"), "topdown");
    vt_buf line = {0};
    if (!isfinite(story_num(t, "retiring")))
        return;
    vt_buf_printf(
        &line,
        "of the workers' slots %.0f %% retired an instruction, %.0f %% were thrown away "
        "after a wrong guess, %.0f %% had no instruction, %.0f %% waited for memory or for "
        "a unit of the core",
        100 * story_num(t, "retiring"), 100 * story_num(t, "bad_speculation"),
        100 * story_num(t, "front_end"), 100 * story_num(t, "back_end"));
    page_text(p, PAGE_TEXT, &line);
}

/* Ops in which workers wait for long, most often for the same one: "uneven: linear.qkv spends 12 %
 * of its time waiting, most often for worker 1 (40 of 60 calls)" */
static void straggler_row(page *p, const json_t *phase)
{
    enum { SHOWN = 3 };
    static const double weight = 0.03, uneven = 0.10, often = 0.6;
    size_t i, shown = 0;
    json_t *op;
    vt_buf line = {0};
    json_array_foreach(story_get(phase, "ops"), i, op)
    {
        const json_t *late = story_get(op, "straggler");
        if (i >= STORY_ROWS || shown == SHOWN || !(story_num(op, "share") > weight) ||
            !(story_num(op, "imbalance") > uneven) || !isfinite(story_num(late, "worker")) ||
            !(story_num(late, "calls") > often * story_num(late, "of")))
            continue;
        vt_buf_printf(
            &line,
            "%s%s spends %.0f %% of its time waiting, most often for worker %.0f (%.0f of "
            "%.0f calls)",
            shown++ ? "; " : "uneven: ", page_str(p, op, "kind"), 100 * story_num(op, "imbalance"),
            story_num(late, "worker"), story_num(late, "calls"), story_num(late, "of"));
    }
    if (shown)
        page_text(p, PAGE_TEXT, &line);
    vt_buf_release(&line);
}

void page_step(page *p, const json_t *phase, const char *title)
{
    if (!phase || !story_has_ops(phase))
        return;
    bool timed = isfinite(story_num(phase, "timed_kv_first")); /* older stories do not have it */
    double typical = story_num(phase, "typical_steps"),        /* so with them */
        last = story_num(phase, timed ? "timed_kv_last" : "kv_last");
    char range[96];
    vt_buf line = {0};
    size_t used = 0;
    vt_append(range, sizeof range, &used, "[mean of %.0f",
              isfinite(typical) ? typical : story_num(phase, "timed_steps"));
    if (last > 0) /* steps of a whole recording have many contexts */
        vt_append(range, sizeof range, &used, ", context %.0f to %.0f",
                  story_num(phase, timed ? "timed_kv_first" : "kv_first"), last);
    vt_append(range, sizeof range, &used, "]");
    page_section *s = page_open(p, "step", title, page_say(p, "%s", range));
    op_rows(p, s, phase);
    sum_rows(p, phase);
    counter_row(p, phase);
    topdown_row(p, phase);
    straggler_row(p, phase);
    if (!(story_num(phase, "borrowed_steps") >= 1))
        return;
    vt_buf_printf(&line,
                  "None of this request's steps was timed call by call. These are steps of other "
                  "requests in the same graph (%.0f tokens): the same kernels and grids, over "
                  "other contexts.",
                  story_num(story_get(phase, "gpu"), "graph_tokens_most"));
    page_text(p, PAGE_TEXT, &line);
}

/* Says what the op would take in other steps: "what if: at its roof 1.60 ms; with twice the
 * sequences 1.70 ms (x 1.01); with FP8_E4M3 weights 0.85 ms [modelled]". */
static void what_if(page *p, const json_t *op)
{
    static const double weight = 0.05; /* of the step, or only HTML has it */
    double now = story_num(op, "time_us") * 1e-6, roof = story_num(op, "floor_us") * 1e-6,
           twice = story_num(op, "if_twice_us") * 1e-6, small = story_num(op, "if_small_us") * 1e-6;
    vt_buf line = {0};
    if (!(now > 0) || p->emulated || (!isfinite(twice) && !isfinite(small)))
        return;
    vt_buf_puts(&line, "what if: ");
    if (roof > 0)
        vt_text_printf(&line, "at its roof %f s", roof);
    if (isfinite(twice))
        vt_text_printf(&line, "%swith twice the sequences %f s (x %.2f)", roof > 0 ? "; " : "",
                       twice, twice / now);
    if (isfinite(small))
        vt_text_printf(&line, "; with %.20s weights %f s", page_str(p, op, "small_type"), small);
    vt_buf_puts(&line, " [modelled]");
    page_text(p, PAGE_MORE, &line);
    if (!p->failed)
        p->section[p->n_sections - 1].last->folded = !(story_num(op, "share") >= weight);
}

void page_cuts(page *p, const json_t *phase)
{
    size_t i;
    json_t *op;
    bool first = true;
    json_array_foreach(story_get(phase, "ops"), i, op)
    {
        vt_buf line = {0};
        const char *how = page_str(p, op, "cut");
        if (i >= STORY_ROWS || !*how)
            continue;
        if (first)
            page_open(p, "cuts", "HOW THE WORK IS CUT", "[of the first such call]");
        first = false;
        vt_buf_printf(&line, "%s: %s", page_str(p, op, "impl"), how);
        page_pair(p, PAGE_ITEM, page_str(p, op, "kind"), &line);
        what_if(p, op);
    }
}

/* ---- a layer ---- */

/* "L07.linear.qkv" -> 7; -1: outside the layers. */
static int32_t layer_of(const char *label)
{
    size_t digits = label[0] == 'L' ? strspn(label + 1, "0123456789") : 0;
    return digits > 0 && digits < 6 && label[1 + digits] == '.'
               ? (int32_t)strtol(label + 1, NULL, 10)
               : -1;
}

typedef struct layer_call {
    const char *label;
    double begin_us, us;
} layer_call;

/* The calls of the middle layer of the newest step with calls. Returns how many; *step is the
 * step's id. */
static int32_t find_layer(page *p, layer_call *out, int32_t max, double *step)
{
    static const char *const columns[] = {"step", "label", "begin_us", "us", NULL};
    const json_t *calls = story_get(p->story, "calls"), *labels = story_get(calls, "labels");
    size_t rows = story_rows(calls, columns);
    int32_t most = -1, n = 0;
    *step = rows ? story_cell(calls, "step", rows - 1) : NAN;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < rows; i++) {
            double at = story_cell(calls, "label", i);
            const char *label = at >= 0 && at < (double)json_array_size(labels)
                                    ? json_string_value(json_array_get(labels, (size_t)at))
                                    : NULL;
            if (!label || story_cell(calls, "step", i) != *step)
                continue;
            int32_t layer = layer_of(label);
            if (pass == 0)
                most = layer > most ? layer : most;
            else if (layer >= 0 && layer == most / 2 && n < max)
                out[n++] = (layer_call){cut(p, page_say(p, "%.30s", label)),
                                        story_cell(calls, "begin_us", i),
                                        story_cell(calls, "us", i)};
        }
    return n;
}

/* Each call of a layer as a bar that begins where its time begins. */
void page_layer(page *p)
{
    enum { MAX = 32 };
    layer_call call[MAX];
    double step = NAN, begin = INFINITY, end = -INFINITY;
    int32_t n = find_layer(p, call, MAX, &step);
    for (int32_t i = 0; i < n; i++) {
        begin = fmin(begin, call[i].begin_us);
        end = fmax(end, call[i].begin_us + call[i].us);
    }
    if (n < 2 || !(end > begin) || !(step < 1e15))
        return;
    page_open(p, "layer", page_say(p, "ONE LAYER of step %.0f", step), page_tag(p, "[measured]"));
    for (int32_t i = 0; i < n; i++) {
        page_row *r = page_add(p, PAGE_SPAN, 3);
        r->cell[0].text = call[i].label;
        r->cell[1].text = with(p, vt_text_time, call[i].us * 1e-6);
        r->cell[2].value = (call[i].begin_us - begin) / (end - begin);
        r->cell[2].share = call[i].us / (end - begin);
    }
}

/* ---- tokens that came late ---- */

/* "slow tokens: 41 (9.10 ms): a chunk of request 21 (512 tokens) in step 58; ...; 2 not known" */
void page_slow(page *p)
{
    enum { SHOWN = 4 };
    const json_t *s = story_get(p->story, "slow_tokens");
    double count = story_num(s, "count"), not_known = story_num(s, "not_known");
    size_t i, shown = 0;
    json_t *t;
    vt_buf line = {0};
    if (!(count > 0))
        return;
    vt_buf_printf(&line, "slow token%s: ", story_s(count));
    json_array_foreach(story_get(s, "tokens"), i, t)
    {
        if (strcmp(page_str(p, t, "cause"), "unknown") == 0 || shown == SHOWN)
            continue;
        vt_text_printf(&line, "%s%.0f (%f s): %s", shown++ ? "; " : "", story_num(t, "token"),
                       story_num(t, "ms") * 1e-3, page_str(p, t, "text"));
    }
    double more = count - not_known - (double)shown;
    if (more > 0)
        vt_buf_printf(&line, "; %.0f more %s explained", more, more == 1 ? "is" : "are");
    if (not_known > 0)
        vt_buf_printf(&line, "%s%.0f not known", shown ? "; " : "", not_known);
    page_open(p, "slow", "", "");
    page_text(p, PAGE_TEXT, &line);
}
