/* One step op by op, a layer of a single step, and tokens that came late (story/render.h).
 *
 * The table of ops drops columns where the page is narrow, in the order of `drop` below. What an op
 * is, its time, its share of the roof and which roof that is are always there. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "story/render.h"

typedef enum column {
    OP,
    RUNS_AS,
    EXPECTED,
    TIME,
    SHARE,
    BYTES,
    MEAS,
    SPEED,
    OF_ROOF,
    BOUND,
    COLUMNS
} column;

static const struct {
    const char *title;
    bool right;
} column_is[COLUMNS] = {
    [OP] = {"op", false},       [RUNS_AS] = {"runs as", false}, [EXPECTED] = {"expected", true},
    [TIME] = {"time", true},    [SHARE] = {"share", true},      [BYTES] = {"bytes exp", true},
    [MEAS] = {"meas", true},    [SPEED] = {"speed", true},      [OF_ROOF] = {"of roof", true},
    [BOUND] = {"bound", false},
};

static const column drop[] = {MEAS, SHARE, EXPECTED, SPEED, RUNS_AS, BYTES};

enum { CELL = 48 };

/* The cells of the table, before it is known which columns fit. */
typedef struct op_table {
    char (*cell)[COLUMNS][CELL]; /* [n] */
    int32_t n;
    bool shown[COLUMNS];
} op_table;

/* ---- cells ---- */

static void set_cell(char out[CELL], void (*put)(vt_buf *, double), double v)
{
    vt_buf b = {0};
    put(&b, v);
    snprintf(out, CELL, "%s", b.data ? b.data : "");
    vt_buf_release(&b);
}

static void put_speed(vt_buf *b, double v) { vt_text_rate(b, v, "B"); }

static void set_percent(char out[CELL], double share, int digits)
{
    if (isfinite(share) && fabs(share) < 1e9)
        snprintf(out, CELL, "%.*f %%", digits, 100 * share);
    else
        snprintf(out, CELL, "n/a");
}

static double expected_bytes(const json_t *op)
{
    const json_t *e = story_get(op, "expected_bytes");
    return story_num(e, "weights") + story_num(e, "kv") + story_num(e, "activations");
}

static void set_op(char out[CELL], const json_t *op)
{
    char kind[STORY_TEXT];
    double first = story_num(op, "layer_first"), last = story_num(op, "layer_last");
    story_text(op, "kind", kind);
    if (first >= 0 && last >= first && last < 10000)
        snprintf(out, CELL, "L%02.0f..L%02.0f %.32s", first, last, kind);
    else
        snprintf(out, CELL, "%.46s", kind);
    vt_text_clean_line(out); /* a character may have been cut */
}

static void set_runs_as(char out[CELL], const json_t *op)
{
    char impl[STORY_TEXT];
    const json_t *kernels = story_get(op, "kernels");
    size_t n = json_array_size(kernels);
    if (n > 1)
        snprintf(out, CELL, "%zu kernels", n);
    else
        snprintf(out, CELL, "%.46s",
                 n ? render_kernel_base(json_array_get(kernels, 0), "name", impl)
                   : story_text(op, "impl", impl));
    vt_text_clean_line(out);
}

static void set_row(char row[COLUMNS][CELL], const json_t *op)
{
    char bound[STORY_TEXT];
    set_op(row[OP], op);
    set_runs_as(row[RUNS_AS], op);
    set_cell(row[EXPECTED], vt_text_time, story_num(op, "expected_us") * 1e-6);
    set_cell(row[TIME], vt_text_time, story_num(op, "time_us") * 1e-6);
    set_percent(row[SHARE], story_num(op, "share"), 1);
    set_cell(row[BYTES], vt_text_bytes, expected_bytes(op));
    set_cell(row[MEAS], vt_text_bytes, story_num(op, "measured_bytes"));
    set_cell(row[SPEED], put_speed, story_num(op, "bytes_per_s"));
    set_percent(row[OF_ROOF], story_num(op, "of_roof"), 0);
    snprintf(row[BOUND], CELL, "%.20s", story_text(op, "bound", bound));
    vt_text_clean_line(row[BOUND]);
}

/* ---- the table ---- */

static int32_t column_width(const op_table *t, int c)
{
    int32_t most = (int32_t)strlen(column_is[c].title);
    for (int32_t i = 0; i < t->n; i++) {
        int32_t w = vt_text_width(t->cell[i][c], strlen(t->cell[i][c]));
        most = w > most ? w : most;
    }
    return most;
}

/* Hides columns until the table, with a cell in front and two between columns, fits. */
static void fit(op_table *t, int32_t width)
{
    for (size_t k = 0; k <= sizeof drop / sizeof drop[0]; k++) {
        int32_t cells = -1;
        for (int c = 0; c < COLUMNS; c++)
            cells += t->shown[c] ? 2 + column_width(t, c) : 0;
        if (cells <= width || k == sizeof drop / sizeof drop[0])
            return;
        t->shown[drop[k]] = false;
    }
}

static void print_table(render_page *p, op_table *t)
{
    vt_table out;
    vt_buf titles = {0};
    fit(t, render_width(p));
    for (int c = 0; c < COLUMNS; c++)
        if (t->shown[c])
            vt_buf_printf(&titles, "%s%s%s", titles.len ? "|" : "", column_is[c].right ? ">" : "",
                          column_is[c].title);
    vt_table_init(&out, titles.data ? titles.data : "");
    for (int32_t i = 0; i < t->n; i++)
        for (int c = 0; c < COLUMNS; c++)
            if (t->shown[c])
                vt_table_cell(&out, "%s", t->cell[i][c]);
    vt_term term = *p->term;
    term.width = render_width(p);
    vt_table_finish(&out, p->b, &term, 1);
    vt_buf_release(&titles);
}

static void op_rows(render_page *p, const json_t *phase)
{
    op_table t = {.cell = calloc(STORY_ROWS, sizeof *t.cell)};
    size_t i;
    json_t *op;
    bool expected = false;
    if (!t.cell) {
        p->b->failed = true;
        return;
    }
    json_array_foreach(story_get(phase, "ops"), i, op)
    {
        if (t.n == STORY_ROWS)
            break;
        expected = expected || isfinite(story_num(op, "expected_us"));
        set_row(t.cell[t.n++], op);
    }
    for (int c = 0; c < COLUMNS; c++)
        t.shown[c] = true;
    t.shown[EXPECTED] = expected;
    /* a GPU's table needs the room for kernels' names; NOT MEASURED says what is missing */
    t.shown[MEAS] = !json_is_object(story_get(phase, "gpu"));
    print_table(p, &t);
    free(t.cell);
}

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

static void sum_line(render_page *p, const json_t *phase)
{
    vt_buf line = {0};
    vt_buf_puts(&line, "sum ");
    vt_text_time(&line, story_num(phase, "ops_us") * 1e-6);
    vt_buf_puts(&line, " of ");
    vt_text_time(&line, story_num(phase, "step_us") * 1e-6);
    vt_buf_printf(&line, ": %.1f %% unexplained; the roofs allow ",
                  100 * story_num(phase, "unexplained"));
    vt_text_time(&line, story_num(phase, "floor_us") * 1e-6);
    if (isfinite(story_num(phase, "expected_us"))) {
        vt_buf_puts(&line, ", expected ");
        vt_text_time(&line, story_num(phase, "expected_us") * 1e-6);
        vt_buf_puts(&line, " [modelled]");
        put_without(&line, story_get(phase, "expected_without"));
    }
    render_paragraph(p, &line, 1);
    if (!isfinite(story_num(story_get(phase, "gpu"), "whole_step_us")))
        return;
    vt_buf_puts(&line, "left alone a step takes ");
    vt_text_time(&line, story_num(story_get(phase, "gpu"), "whole_step_us") * 1e-6);
    vt_buf_printf(&line, " (mean of %.0f): timing its calls makes that %.2f times as much",
                  story_num(story_get(phase, "gpu"), "whole_steps"),
                  story_num(story_get(phase, "gpu"), "slower"));
    render_paragraph(p, &line, 1);
}

/* Whose steps these are, where they are not the request's own. */
static void borrowed_line(render_page *p, const json_t *phase)
{
    vt_buf line = {0};
    if (!(story_num(phase, "borrowed_steps") >= 1))
        return;
    vt_buf_printf(&line,
                  "None of this request's steps was timed call by call. These are steps of other "
                  "requests in the same graph (%.0f tokens): the same kernels and grids, over "
                  "other contexts.",
                  story_num(story_get(phase, "gpu"), "graph_tokens_most"));
    render_paragraph(p, &line, 1);
}

void render_step(render_page *p, const json_t *phase, const char *title)
{
    char range[96];
    if (!phase || !story_has_ops(phase))
        return;
    bool timed = isfinite(story_num(phase, "timed_kv_first")); /* older stories do not have it */
    double typical = story_num(phase, "typical_steps");        /* so with them */
    size_t used = 0;
    vt_append(range, sizeof range, &used, "[mean of %.0f",
              isfinite(typical) ? typical : story_num(phase, "timed_steps"));
    double last = story_num(phase, timed ? "timed_kv_last" : "kv_last");
    if (last > 0) /* steps of a whole recording have many contexts */
        vt_append(range, sizeof range, &used, ", context %.0f to %.0f",
                  story_num(phase, timed ? "timed_kv_first" : "kv_first"), last);
    vt_append(range, sizeof range, &used, "]");
    render_heading(p, title, range);
    op_rows(p, phase);
    sum_line(p, phase);
    borrowed_line(p, phase);
}

/* The table's second form: a line an op. */
void render_cuts(render_page *p, const json_t *phase)
{
    enum { NAME = 20 };
    size_t i;
    json_t *op;
    bool first = true;
    json_array_foreach(story_get(phase, "ops"), i, op)
    {
        char kind[STORY_TEXT], impl[STORY_TEXT], cut[STORY_TEXT];
        vt_buf line = {0};
        if (i >= STORY_ROWS || !*story_text(op, "cut", cut))
            continue;
        if (first)
            render_heading(p, "HOW THE WORK IS CUT", "[of the first such call]");
        first = false;
        size_t start = p->b->len;
        vt_buf_printf(p->b, " %s", story_text(op, "kind", kind));
        vt_text_pad(p->b, start, NAME);
        vt_buf_printf(&line, "%s: %s", story_text(op, "impl", impl), cut);
        vt_text_wrap(p->b, line.data ? line.data : "", NAME, render_width(p));
        vt_buf_putc(p->b, '\n');
        vt_buf_release(&line);
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
    char label[CELL];
    double begin_us, us;
} layer_call;

/* The calls of the middle layer of the newest step with calls. Returns how many; *step is the
 * step's id. */
static int32_t find_layer(const json_t *story, layer_call *out, int32_t max, double *step)
{
    static const char *const columns[] = {"step", "label", "begin_us", "us", NULL};
    const json_t *calls = story_get(story, "calls"), *labels = story_get(calls, "labels");
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
            else if (layer >= 0 && layer == most / 2 && n < max) {
                layer_call *c = &out[n++];
                c->begin_us = story_cell(calls, "begin_us", i);
                c->us = story_cell(calls, "us", i);
                snprintf(c->label, sizeof c->label, "%.30s", label);
                vt_text_clean_line(c->label);
            }
        }
    return n;
}

/* Each call of a layer as a bar that begins where its time begins. */
void render_layer(render_page *p)
{
    enum { MAX = 32, NAME = 28, TIME_CELLS = 10 };
    layer_call call[MAX];
    double step = NAN, begin = INFINITY, end = -INFINITY;
    char title[64];
    int32_t n = find_layer(p->story, call, MAX, &step),
            cells = render_width(p) - NAME - TIME_CELLS - 1;
    for (int32_t i = 0; i < n; i++) {
        begin = fmin(begin, call[i].begin_us);
        end = fmax(end, call[i].begin_us + call[i].us);
    }
    if (n < 2 || !(end > begin) || !(step < 1e15))
        return;
    snprintf(title, sizeof title, "ONE LAYER of step %.0f", step);
    render_heading(p, title, render_tag(p, "[measured]"));
    for (int32_t i = 0; i < n; i++) {
        size_t start = p->b->len;
        double from = (call[i].begin_us - begin) / (end - begin),
               share = call[i].us / (end - begin);
        vt_buf_printf(p->b, " %s", call[i].label);
        vt_text_pad(p->b, start, NAME);
        vt_buf t = {0};
        vt_text_time(&t, call[i].us * 1e-6);
        vt_text_pad(p->b, start, NAME + TIME_CELLS - (int32_t)t.len);
        vt_buf_puts(p->b, t.data ? t.data : "");
        vt_buf_release(&t);
        if (isfinite(from)) {
            int32_t at = (int32_t)(from * (cells - 1));
            vt_text_pad(p->b, start, NAME + TIME_CELLS + 1 + at);
            vt_text_bar(p->b, share, cells - at > 1 ? cells : 1);
        }
        vt_buf_putc(p->b, '\n');
    }
}

/* ---- tokens that came late ---- */

/* "slow tokens: 41 (9.10 ms): a chunk of request 21 (512 tokens) in step 58; ...; 2 not known" */
void render_slow(render_page *p)
{
    enum { SHOWN = 4 };
    const json_t *s = story_get(p->story, "slow_tokens");
    size_t i, shown = 0;
    json_t *t;
    char what[STORY_TEXT];
    vt_buf line = {0};
    if (!(story_num(s, "count") > 0))
        return;
    vt_buf_printf(&line, "slow token%s: ", story_s(story_num(s, "count")));
    json_array_foreach(story_get(s, "tokens"), i, t)
    {
        if (strcmp(story_text(t, "cause", what), "unknown") == 0 || shown == SHOWN)
            continue;
        vt_buf_printf(&line, "%s%.0f (", shown++ ? "; " : "", story_num(t, "token"));
        vt_text_time(&line, story_num(t, "ms") * 1e-3);
        vt_buf_printf(&line, "): %s", story_text(t, "text", what));
    }
    double more = story_num(s, "count") - story_num(s, "not_known") - (double)shown;
    if (more > 0)
        vt_buf_printf(&line, "; %.0f more %s explained", more, more == 1 ? "is" : "are");
    if (story_num(s, "not_known") > 0)
        vt_buf_printf(&line, "%s%.0f not known", shown ? "; " : "", story_num(s, "not_known"));
    render_paragraph(p, &line, 3);
}
