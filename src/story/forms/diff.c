/* The difference of two stories: B minus A, as a sum over ops that adds up.
 *
 *   op              A         B         difference   noise
 *   linear.qkv      1.20 ms   1.31 ms   +110 us      ± 9 us    slower
 *   rmsnorm         20 us     21 us     +1 us        ± 3 us
 *   outside ops     ...
 *   the step        3.80 ms   3.93 ms   +130 us      ± 40 us   slower
 *
 * The rows are those of the stories' op tables (means of a step), or of two single steps, and what
 * the step spends outside ops is a row too. The noise of a row comes from the repeats inside the
 * stories: the spread of that op over the steps whose calls each file holds, as twice the standard
 * error of the difference. A row says slower or faster, and has a colour, only beyond that. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/term/figure.h"
#include "story/forms.h"
#include "story/read.h"

enum {
    MAX_KINDS = STORY_ROWS,
    MAX_SAMPLES = 4096,
    ENOUGH = 3,
    ENOUGH_STEPS = 8, /* undisturbed, as for judging ops (machine.h) */
    LABEL = 48
};

/* One of the two stories. */
typedef struct side {
    const char *name;
    json_t *story;
    uint64_t step; /* 0: the mean step of the phase */
} side;

/* A kind of call in both. */
typedef struct row {
    char kind[LABEL], impl[2][LABEL];
    double us[2];
    double noise_us; /* NAN: not known */
} row;

typedef struct comparison {
    side side[2];
    const char *phase; /* "decode", "prefill" */
    row row[MAX_KINDS + 2];
    int32_t n_rows; /* the kinds', then "outside ops", then "the step" */
} comparison;

/* ---- rows ---- */

static row *row_of(comparison *c, const char *kind)
{
    for (int32_t i = 0; i < c->n_rows; i++)
        if (strcmp(c->row[i].kind, kind) == 0)
            return &c->row[i];
    if (c->n_rows == MAX_KINDS)
        return NULL;
    row *r = &c->row[c->n_rows++];
    *r = (row){.noise_us = NAN};
    snprintf(r->kind, sizeof r->kind, "%s", kind);
    return r;
}

/* A label without its layer, as ops are named: "L07.linear.qkv" -> "linear.qkv". */
static const char *kind_of(const char *label)
{
    size_t n = label[0] == 'L' ? 1 + strspn(label + 1, "0123456789") : 0;
    return n > 1 && label[n] == '.' ? label + n + 1 : label;
}

/* The kind of row i of "calls", of bounded length and safe to print. */
static const char *call_kind(const json_t *calls, size_t i, char out[LABEL])
{
    double at = story_cell(calls, "label", i);
    const json_t *labels = story_get(calls, "labels");
    const char *label = at >= 0 && at < (double)json_array_size(labels)
                            ? json_string_value(json_array_get(labels, (size_t)at))
                            : NULL;
    snprintf(out, LABEL, "%s", kind_of(label ? label : "?"));
    vt_text_clean_line(out);
    return out;
}

static const char *const call_columns[] = {"step", "label", "us", NULL};
static const char *const step_columns[] = {"id", "ms", "prefill", "calls", NULL};

/* ---- the mean steps ---- */

static void add_mean(comparison *c, int k)
{
    const json_t *phase = story_phase_named(c->side[k].story, c->phase);
    size_t i;
    json_t *op;
    json_array_foreach(story_get(phase, "ops"), i, op)
    {
        char kind[STORY_TEXT], impl[STORY_TEXT];
        double us = story_num(op, "time_us");
        row *r = i < MAX_KINDS ? row_of(c, story_text(op, "kind", kind)) : NULL;
        if (!r || !isfinite(us))
            continue;
        if (!*r->impl[k])
            snprintf(r->impl[k], LABEL, "%s", story_text(op, "impl", impl));
        r->us[k] += us;
    }
}

/* ---- single steps ---- */

/* The step's row in "steps"; -1: it is not there. */
static ptrdiff_t find_step(const json_t *story, uint64_t id)
{
    const json_t *steps = story_get(story, "steps");
    size_t n = story_rows(steps, step_columns);
    for (size_t i = 0; i < n; i++)
        if (story_cell(steps, "id", i) == (double)id)
            return (ptrdiff_t)i;
    return -1;
}

static vt_status add_step(comparison *c, int k, vt_err *err)
{
    const side *s = &c->side[k];
    const json_t *calls = story_get(s->story, "calls");
    size_t n = story_rows(calls, call_columns);
    bool found = false;
    for (size_t i = 0; i < n; i++) {
        char kind[LABEL];
        double us = story_cell(calls, "us", i);
        if (story_cell(calls, "step", i) != (double)s->step || !isfinite(us))
            continue;
        row *r = row_of(c, call_kind(calls, i, kind));
        if (r)
            r->us[k] += us;
        found = true;
    }
    if (!found)
        return vt_fail(err, VT_ERR_USAGE, "%s: holds no calls of step %llu", s->name,
                       (unsigned long long)s->step);
    return VT_OK;
}

/* ---- noise ---- */

/* The standard deviation of single steps. Steps that were interrupted count too, because the mean
 * that is compared holds them. */
static double spread(const double *v, size_t n)
{
    double mean = 0, sum = 0;
    if (n < ENOUGH)
        return NAN;
    for (size_t i = 0; i < n; i++)
        mean += v[i] / (double)n;
    for (size_t i = 0; i < n; i++)
        sum += (v[i] - mean) * (v[i] - mean);
    return sqrt(sum / (double)(n - 1));
}

/* Returns true if row i of "steps" is one of those that the means are of; older stories do not
 * tell. */
static bool is_typical(const json_t *steps, size_t i)
{
    double typical = story_cell(steps, "typical", i);
    return !isfinite(typical) || typical > 0;
}

/* Collects what the kind took in each typical step of the phase whose calls the story holds. "":
 * the whole step. Returns how many steps. */
static size_t samples(const json_t *story, const char *phase, const char *kind, double *v)
{
    const json_t *steps = story_get(story, "steps"), *calls = story_get(story, "calls");
    size_t n_steps = story_rows(steps, step_columns), n_calls = story_rows(calls, call_columns);
    size_t n = 0, at = 0;
    bool prefill = strcmp(phase, "prefill") == 0;
    for (size_t i = 0; i < n_steps; i++) {
        double id = story_cell(steps, "id", i), us = 0;
        bool known = false;
        if (!*kind) {
            known = story_cell(steps, "calls", i) > 0;
            us = story_cell(steps, "ms", i) * 1e3;
        }
        for (; *kind && at < n_calls && story_cell(calls, "step", at) <= id; at++) {
            char name[LABEL];
            known = known || story_cell(calls, "step", at) == id;
            if (strcmp(call_kind(calls, at, name), kind) == 0)
                us += story_cell(calls, "us", at);
        }
        if (known && isfinite(us) && is_typical(steps, i) &&
            (story_cell(steps, "prefill", i) > 0) == prefill)
            v[n++] = us;
    }
    return n;
}

/* Twice the standard error of B - A. A mean of n steps has 1/sqrt(n) of a single step's spread. */
static double noise_of(const comparison *c, const char *kind, double *v)
{
    double variance = 0;
    for (int k = 0; k < 2; k++) {
        size_t n = samples(c->side[k].story, c->phase, kind, v);
        double one = spread(v, n);
        variance += one * one / (c->side[k].step ? 1 : (double)n);
    }
    return 2 * sqrt(variance);
}

/* ---- one comparison ---- */

static int largest_first(const void *a, const void *b)
{
    const row *x = a, *y = b;
    double dx = fabs(x->us[1] - x->us[0]), dy = fabs(y->us[1] - y->us[0]);
    return (dx < dy) - (dx > dy);
}

/* The device time of the step that is compared. */
static double step_us(const comparison *c, int k)
{
    const side *s = &c->side[k];
    if (!s->step)
        return story_num(story_phase_named(s->story, c->phase), "step_us");
    ptrdiff_t i = find_step(s->story, s->step);
    return i < 0 ? NAN : story_cell(story_get(s->story, "steps"), "ms", (size_t)i) * 1e3;
}

/* Fills the rows. False: one of the stories has no such steps. */
static vt_status compare(comparison *c, bool *there, vt_err *err)
{
    double sum[2] = {0}, total[2];
    *there = true;
    for (int k = 0; k < 2; k++) {
        if (c->side[k].step)
            TRY(add_step(c, k, err));
        else
            add_mean(c, k);
        total[k] = step_us(c, k);
        *there = *there && isfinite(total[k]);
    }
    double *v = vt_calloc(MAX_SAMPLES, sizeof *v);
    if (!v)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a difference");
    for (int32_t i = 0; i < c->n_rows; i++) {
        c->row[i].noise_us = noise_of(c, c->row[i].kind, v);
        for (int k = 0; k < 2; k++)
            sum[k] += c->row[i].us[k];
    }
    qsort(c->row, (size_t)c->n_rows, sizeof *c->row, largest_first);
    c->row[c->n_rows++] = (row){
        .kind = "outside ops", .us = {total[0] - sum[0], total[1] - sum[1]}, .noise_us = NAN};
    c->row[c->n_rows++] = (row){
        .kind = "the step", .us = {total[0], total[1]}, .noise_us = noise_of(c, "", v)};
    free(v);
    return VT_OK;
}

static bool beyond_noise(const row *r) { return fabs(r->us[1] - r->us[0]) > r->noise_us; }

/* ---- printing ---- */

static void put_signed(vt_buf *b, double us)
{
    if (isfinite(us))
        vt_buf_putc(b, us < 0 ? '-' : '+');
    vt_text_time(b, fabs(us) * 1e-6);
}

static void put_noise(vt_buf *b, double us)
{
    if (isfinite(us)) {
        vt_text_printf(b, "± %f s", us * 1e-6);
    } else
        vt_buf_puts(b, "n/a");
}

typedef struct printer {
    vt_buf *b;
    const vt_term *term;
    bool markdown;
    vt_table table;
} printer;

/* A file's text. In Markdown nothing of it is markup: no tag, no cell's end, no link, no code. */
static void put_text(const printer *p, vt_buf *b, const char *text)
{
    for (; *text; text++)
        if (p->markdown && strchr("&<>|[`", *text))
            vt_buf_printf(b, "&#%d;", *text);
        else
            vt_buf_putc(b, *text);
}

/* "avx2 -> avx512" where an op runs as something else. */
static void put_word(const printer *p, vt_buf *b, const row *r)
{
    if (beyond_noise(r))
        vt_buf_puts(b, r->us[1] > r->us[0] ? "slower" : "faster");
    if (*r->impl[0] && *r->impl[1] && strcmp(r->impl[0], r->impl[1]) != 0) {
        vt_buf_puts(b, b->len ? ", " : "");
        put_text(p, b, r->impl[0]);
        vt_buf_puts(b, " -> ");
        put_text(p, b, r->impl[1]);
    }
}

static void open_table(printer *p, const char *what)
{
    vt_buf titles = {0};
    vt_buf_printf(&titles, "%s|>A|>B|>difference|>noise|", what);
    vt_buf_putc(p->b, '\n');
    if (p->markdown)
        vt_buf_printf(p->b, "| %s | A | B | difference | noise | |\n|---|--:|--:|--:|--:|---|\n",
                      what);
    else
        vt_table_init(&p->table, titles.data ? titles.data : "");
    vt_buf_release(&titles);
}

/* The cells of a row; markdown has them between bars. */
static void put_row(printer *p, const char *name, double a_us, double b_us, const row *r)
{
    vt_buf cell[5] = {0};
    bool marked = r && beyond_noise(r);
    vt_text_time(&cell[0], a_us * 1e-6);
    vt_text_time(&cell[1], b_us * 1e-6);
    put_signed(&cell[2], b_us - a_us);
    put_noise(&cell[3], r ? r->noise_us : NAN);
    if (r)
        put_word(p, &cell[4], r);
    if (p->markdown) {
        vt_buf_puts(p->b, "| ");
        put_text(p, p->b, name);
        vt_buf_putc(p->b, ' ');
    } else
        vt_table_cell(&p->table, "%s", name);
    for (int i = 0; i < 5; i++) {
        const char *text = cell[i].data ? cell[i].data : "";
        vt_buf inked = {0};
        if (p->markdown)
            vt_buf_printf(p->b, "| %s ", text);
        else {
            vt_text_ink(&inked, p->term,
                        !marked || i < 2 || i == 3 ? VT_INK_PLAIN
                        : b_us > a_us              ? VT_INK_RED
                                                   : VT_INK_GREEN,
                        text);
            vt_table_cell(&p->table, "%s", inked.data ? inked.data : "");
        }
        vt_buf_release(&inked);
        vt_buf_release(&cell[i]);
    }
    if (p->markdown)
        vt_buf_puts(p->b, "|\n");
}

static void close_table(printer *p)
{
    if (!p->markdown)
        vt_table_finish(&p->table, p->b, p->term, 1);
}

/* The request's time in the four parts that sum to it. */
static void put_requests(printer *p, const json_t *a, const json_t *b)
{
    static const char *const part[][2] = {{"queue_ms", "queue"},
                                          {"steps_ms", "steps"},
                                          {"waits_ms", "waits"},
                                          {"tail_ms", "tail"},
                                          {"total_ms", "the request"}};
    const json_t *q[2] = {story_get(a, "request"), story_get(b, "request")};
    if (!json_is_object(q[0]) || !json_is_object(q[1]))
        return;
    open_table(p, "part");
    for (size_t i = 0; i < sizeof part / sizeof part[0]; i++)
        put_row(p, part[i][1], story_num(q[0], part[i][0]) * 1e3, story_num(q[1], part[i][0]) * 1e3,
                NULL);
    close_table(p);
    vt_buf_printf(p->b, " %.0f prompt tokens (%.0f cached) and %.0f out; %.0f (%.0f) and %.0f\n",
                  story_num(q[0], "prompt_tokens"), story_num(q[0], "cached_tokens"),
                  story_num(q[0], "completion_tokens"), story_num(q[1], "prompt_tokens"),
                  story_num(q[1], "cached_tokens"), story_num(q[1], "completion_tokens"));
}

/* Writes what A and B are, and what else than time differs between them. */
static void put_title(printer *p, const side s[2])
{
    static const char *const fact[][2] = {{"model", "name"},     {"model", "quant"},
                                          {"engine", "machine"}, {"engine", "device"},
                                          {"engine", "level"},   {"engine", "commit"}};
    vt_buf differs = {0};
    for (int k = 0; k < 2; k++) {
        char model[STORY_TEXT], level[STORY_TEXT], commit[STORY_TEXT];
        const json_t *e = story_get(s[k].story, "engine");
        vt_buf line = {0};
        vt_buf_printf(&line, "%c  %s: %s, %s, commit %s", "AB"[k], s[k].name,
                      story_text(story_get(s[k].story, "model"), "name", model),
                      story_text(e, "level", level), story_text(e, "commit", commit));
        put_text(p, p->b, line.data ? line.data : "");
        vt_buf_puts(p->b, p->markdown ? "  \n" : "\n");
        vt_buf_release(&line);
    }
    for (size_t i = 0; i < sizeof fact / sizeof fact[0]; i++) {
        char x[STORY_TEXT], y[STORY_TEXT];
        story_text(story_get(s[0].story, fact[i][0]), fact[i][1], x);
        story_text(story_get(s[1].story, fact[i][0]), fact[i][1], y);
        if (strcmp(x, y) != 0)
            vt_buf_printf(&differs, "%s%s", differs.len ? ", " : "", fact[i][1]);
    }
    if (differs.len)
        vt_buf_printf(p->b, "They differ in: %s.\n", differs.data);
    vt_buf_release(&differs);
}

static void put_comparison(printer *p, const comparison *c)
{
    char title[96];
    if (c->side[0].step)
        snprintf(title, sizeof title, "step %llu and %llu", (unsigned long long)c->side[0].step,
                 (unsigned long long)c->side[1].step);
    else
        snprintf(title, sizeof title, "one %s step", c->phase);
    open_table(p, title);
    for (int32_t i = 0; i < c->n_rows; i++)
        put_row(p, c->row[i].kind, c->row[i].us[0], c->row[i].us[1], &c->row[i]);
    close_table(p);
}

/* ---- all of it ---- */

/* Returns true if the machine left too few steps of the phase alone to compare its mean step;
 * always false where two single steps were asked for. */
static bool too_disturbed(const comparison *c, int k)
{
    const json_t *p = story_phase_named(c->side[k].story, c->phase);
    double steps = story_num(p, "steps"), disturbed = story_num(p, "disturbed_steps");
    return c->side[k].step == 0 && disturbed > 0 && steps - disturbed < ENOUGH_STEPS;
}

/* Where one of the stories is of a busy machine, differences say little about the program. False:
 * both are fine. */
static bool refuse_to_judge(printer *p, comparison *c)
{
    bool busy[2] = {too_disturbed(c, 0), too_disturbed(c, 1)};
    if (!busy[0] && !busy[1])
        return false;
    for (int32_t i = 0; i < c->n_rows; i++)
        c->row[i].noise_us = NAN; /* the repeats' spread is the machine's */
    put_comparison(p, c);
    vt_buf_printf(p->b,
                  "\nNot judged: the machine left fewer than %d %s steps of %s alone, so these "
                  "differences may be its own.\n",
                  ENOUGH_STEPS, c->phase,
                  busy[0] && busy[1] ? "A and of B"
                  : busy[0]          ? "A"
                                     : "B");
    return true;
}

/* Returns true if the step of B takes longer than allowed, and says so. */
static bool too_slow(printer *p, const comparison *c, double share)
{
    const row *r = &c->row[c->n_rows - 1];
    double grown = r->us[1] / r->us[0] - 1;
    bool failed = grown > share && !(fabs(r->us[1] - r->us[0]) <= r->noise_us);
    if (isfinite(share))
        vt_buf_printf(p->b, "\n%s: the %s step takes %+.1f %%, and %.4g %% more is allowed%s.\n",
                      failed ? "FAILED" : "passed", c->phase, 100 * grown, 100 * share,
                      grown > share && !failed ? " (the difference is within the noise)" : "");
    return failed;
}

/* The phase that decides whether the difference fails: decode where both have it. */
static bool decides(const comparison *c)
{
    return strcmp(c->phase, "decode") == 0 || c->side[0].step ||
           !story_phase_named(c->side[0].story, "decode") ||
           !story_phase_named(c->side[1].story, "decode");
}

static vt_status compare_phase(printer *p, comparison *c, const story_diff_options *o, bool *any,
                               vt_err *err)
{
    bool there;
    c->n_rows = 0;
    TRY(compare(c, &there, err));
    if (!there)
        return VT_OK;
    *any = true;
    if (refuse_to_judge(p, c))
        return VT_OK;
    put_comparison(p, c);
    if (decides(c) && too_slow(p, c, o->fail_over) && o->failed)
        *o->failed = true;
    return VT_OK;
}

static vt_status compare_all(printer *p, comparison *c, const story_diff_options *o, vt_err *err)
{
    bool any = false;
    put_title(p, c->side);
    if (o->step[0]) {
        ptrdiff_t i = find_step(c->side[0].story, o->step[0]);
        const json_t *steps = story_get(c->side[0].story, "steps");
        bool prefill = i >= 0 && story_cell(steps, "prefill", (size_t)i) > 0;
        c->phase = prefill ? "prefill" : "decode";
        TRY(compare_phase(p, c, o, &any, err));
    } else {
        put_requests(p, c->side[0].story, c->side[1].story);
        c->phase = "prefill";
        TRY(compare_phase(p, c, o, &any, err));
        c->phase = "decode";
        TRY(compare_phase(p, c, o, &any, err));
    }
    if (!any)
        return vt_fail(err, VT_ERR_USAGE, "%s and %s: no phase whose calls were timed in both",
                       c->side[0].name, c->side[1].name);
    return VT_OK;
}

vt_status story_diff(const story_file *a, const story_file *b, const story_diff_options *options,
                     const vt_term *term, vt_buf *out, vt_err *err)
{
    printer p = {.b = out, .term = term, .markdown = options->markdown};
    comparison *c = vt_calloc(1, sizeof *c);
    if (!c)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a difference");
    c->side[0] = (side){.name = a->name, .step = options->step[0]};
    c->side[1] = (side){.name = b->name, .step = options->step[1]};
    vt_status status = story_load(a->name, a->json, a->len, &c->side[0].story, err);
    if (status == VT_OK)
        status = story_load(b->name, b->json, b->len, &c->side[1].story, err);
    if (status == VT_OK)
        status = compare_all(&p, c, options, err);
    json_decref(c->side[0].story);
    json_decref(c->side[1].story);
    free(c);
    return status == VT_OK && out->failed ? vt_fail(err, VT_ERR_MEMORY, "out of memory") : status;
}
