/* story.json as a person reads it in a terminal: headline, TIME, ONE DECODE STEP, (of a GPU)
 * KERNELS and GPU, MEMORY, THREADS, FINDINGS, NOT MEASURED, OBSERVER. At most 100 cells wide; reads
 * as well without colour.
 *
 * The JSON may come from a file of unknown origin: every read tolerates members that are missing or
 * of another type, counts are bounded, and control characters are taken out of text before it goes
 * to a terminal. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "files/json.h"
#include "story/story.h"

enum { MAX_ROWS = 64, SPARK_CELLS = 48, BAR_CELLS = 16, TIME_COLUMN = 11, TEXT_MAX = 300 };

typedef struct page {
    vt_buf *b;
    const vt_term *term;
    const json_t *story;
} page;

/* ---- reading ---- */

static const json_t *get(const json_t *o, const char *key) { return json_object_get(o, key); }

/* The value of a number, plain or tagged; NAN if the member is neither. */
static double num(const json_t *o, const char *key)
{
    const json_t *v = get(o, key);
    if (json_is_object(v))
        v = get(v, "value");
    return json_is_number(v) ? json_number_value(v) : NAN;
}

/* The ending of a counted noun. */
static const char *s_of(double n) { return n == 1 ? "" : "s"; }

/* Text for the terminal, in a buffer of the caller's: no control characters, of bounded length. */
static const char *text(const json_t *o, const char *key, char out[TEXT_MAX])
{
    const char *s = json_string_value(get(o, key));
    size_t n = s ? strnlen(s, TEXT_MAX - 1) : 0;
    memcpy(out, s ? s : "", n);
    out[n] = '\0';
    vt_text_clean_line(out);
    return out;
}

static const json_t *phase_named(const json_t *story, const char *name)
{
    size_t i;
    json_t *p;
    json_array_foreach(get(story, "phases"), i, p)
    {
        const char *s = json_string_value(get(p, "name"));
        if (s && strcmp(s, name) == 0)
            return p;
    }
    return NULL;
}

/* ---- writing ---- */

static void heading(page *p, const char *title, const char *right)
{
    vt_buf_putc(p->b, '\n');
    size_t start = p->b->len;
    vt_text_ink(p->b, p->term, VT_INK_BOLD, title);
    if (right) {
        vt_text_pad(p->b, start, p->term->width - vt_text_width(right, strlen(right)));
        vt_text_ink(p->b, p->term, VT_INK_DIM, right);
    }
    vt_buf_putc(p->b, '\n');
}

static void put_ms(vt_buf *b, double ms) { vt_text_time(b, ms * 1e-3); }

/* "    1.23 ms  " or blanks: the column in front of the tree. */
static void time_column(page *p, double at_ms)
{
    size_t start = p->b->len;
    if (isfinite(at_ms)) {
        vt_buf t = {0};
        vt_buf_printf(&t, "%.1f ms", at_ms);
        for (size_t i = t.len; i < TIME_COLUMN - 1; i++)
            vt_buf_putc(p->b, ' ');
        vt_buf_puts(p->b, t.data ? t.data : "");
        vt_buf_release(&t);
    }
    vt_text_pad(p->b, start, TIME_COLUMN);
}

static void tree_line(page *p, double at_ms, const char *branch, const char *name, double ms,
                      const char *note)
{
    enum { NAME = 32, NOTE = 44 };
    size_t start = p->b->len;
    time_column(p, at_ms);
    vt_buf_printf(p->b, "%s ", branch);
    vt_text_ink(p->b, p->term, VT_INK_BOLD, name);
    vt_text_pad(p->b, start, NAME);
    if (isfinite(ms))
        put_ms(p->b, ms);
    vt_text_pad(p->b, start, NOTE);
    vt_text_wrap(p->b, note, NOTE, p->term->width);
    vt_buf_putc(p->b, '\n');
}

/* ---- TIME ---- */

static void op_line(page *p, const json_t *op, bool hotspot, const char *branch)
{
    char kind[TEXT_MAX], bound[TEXT_MAX];
    double share = num(op, "share"), of_roof = num(op, "of_roof");
    size_t start = p->b->len;
    time_column(p, NAN);
    vt_buf_printf(p->b, "│   %s %s", branch, text(op, "kind", kind));
    vt_text_pad(p->b, start, 40);
    vt_buf_printf(p->b, "%3.0f %%  ", 100 * share);
    vt_text_bar(p->b, share, BAR_CELLS);
    vt_text_pad(p->b, start, 48 + BAR_CELLS);
    if (isfinite(of_roof))
        vt_buf_printf(p->b, "%3.0f %% of %s roof", 100 * of_roof, text(op, "bound", bound));
    if (hotspot)
        vt_text_ink(p->b, p->term, VT_INK_YELLOW, "  <- hotspot");
    vt_buf_putc(p->b, '\n');
}

/* The three largest kinds; the rest as one line. */
static void phase_ops(page *p, const json_t *phase)
{
    enum { SHOWN = 3 };
    size_t i;
    json_t *op;
    double rest = 0;
    size_t n = json_array_size(get(phase, "ops"));
    json_array_foreach(get(phase, "ops"), i, op)
    {
        if (i < SHOWN)
            op_line(p, op, i == 0, i + 1 == n ? "└─" : "├─");
        else if (isfinite(num(op, "share")))
            rest += num(op, "share");
    }
    if (n > SHOWN) {
        size_t start = p->b->len;
        time_column(p, NAN);
        vt_buf_puts(p->b, "│   └─ other");
        vt_text_pad(p->b, start, 40);
        vt_buf_printf(p->b, "%3.0f %%  ", 100 * rest);
        vt_text_bar(p->b, rest, BAR_CELLS);
        vt_buf_putc(p->b, '\n');
    }
}

/* A kernel's name without its template parameters. */
static const char *kernel_base(const json_t *o, const char *key, char out[TEXT_MAX])
{
    text(o, key, out);
    out[strcspn(out, "<")] = '\0';
    return out;
}

static void kernel_text(vt_buf *b, const json_t *side)
{
    char impl[TEXT_MAX], attention[TEXT_MAX], how[TEXT_MAX];
    bool gpu = json_is_string(get(side, "kernel"));
    vt_buf_printf(b, "%s/%s, %.0f query row%s a step", text(side, "attention", attention),
                  gpu ? kernel_base(side, "kernel", impl) : text(side, "impl", impl),
                  num(side, "rows"), s_of(num(side, "rows")));
    if (*text(side, "how", how))
        vt_buf_printf(b, ", %s", how);
}

static void hardware_text(vt_buf *b, const json_t *side)
{
    static const char *const unit[] = {"memory", "int8", "fp32", "bf16"};
    static const char *const key[] = {"of_memory", "of_int8", "of_fp32", "of_bf16"};
    vt_buf_printf(b, "%.1f FLOP/byte", num(side, "flop_per_byte"));
    for (int i = 0; i < 4; i++)
        if (num(side, key[i]) > 0)
            vt_buf_printf(b, ", %s %.1f %%", unit[i], 100 * num(side, key[i]));
    vt_buf_puts(b, " of roof");
}

static void side_line(page *p, const char *name, const json_t *side,
                      void (*put)(vt_buf *, const json_t *), const char *tail)
{
    enum { TEXT_COLUMN = 26 };
    vt_buf line = {0};
    put(&line, side);
    vt_buf_puts(&line, tail);
    time_column(p, NAN);
    vt_buf_printf(p->b, "│     %s", name);
    vt_text_wrap(p->b, line.data ? line.data : "", TEXT_COLUMN, p->term->width);
    vt_buf_putc(p->b, '\n');
    vt_buf_release(&line);
}

static void transition(page *p, double at_ms, const char *note)
{
    const json_t *t = get(p->story, "transition");
    char reason[TEXT_MAX];
    time_column(p, at_ms);
    vt_buf_puts(p->b, "╞═ ");
    vt_text_ink(p->b, p->term, VT_INK_CYAN, "TRANSITION ");
    vt_text_ink(p->b, p->term, VT_INK_CYAN, note);
    vt_buf_putc(p->b, '\n');
    if (!json_is_object(t))
        return;
    side_line(p, "kernel   ", get(t, "before"), kernel_text, " ->");
    side_line(p, "         ", get(t, "after"), kernel_text, "");
    time_column(p, NAN);
    vt_buf_printf(p->b, "│     reason   %s\n", text(t, "reason", reason));
    side_line(p, "hardware ", get(t, "before"), hardware_text, " ->");
    side_line(p, "         ", get(t, "after"), hardware_text, "");
}

static void spark_of(page *p, const json_t *list, int32_t cells)
{
    double v[512];
    int32_t n = 0;
    size_t i;
    json_t *x;
    json_array_foreach(get(list, "values"), i, x)
    {
        if (n == (int32_t)(sizeof v / sizeof v[0]))
            break;
        v[n++] = json_is_number(x) ? json_number_value(x) : NAN;
    }
    vt_text_spark(p->b, v, n, cells);
}

static void itl_line(page *p)
{
    const json_t *q = get(p->story, "request");
    if (json_array_size(get(get(q, "itl_ms"), "values")) == 0)
        return;
    time_column(p, NAN);
    vt_buf_puts(p->b, "│   ITL ");
    spark_of(p, get(q, "itl_ms"), SPARK_CELLS);
    vt_buf_printf(p->b, "  p50 %.2f ms, p99 %.2f ms\n", num(q, "itl_p50_ms"), num(q, "itl_p99_ms"));
}

static void timeline(page *p)
{
    static const struct {
        const char *event, *name;
    } known[] = {{"arrive", "arrives"},
                 {"match", "match prefix"},
                 {"prefill", "PREFILL"},
                 {"decode", "DECODE"}};
    size_t i;
    json_t *e;
    heading(p, "TIME", "[measured]");
    json_array_foreach(get(p->story, "timeline"), i, e)
    {
        char event[TEXT_MAX], note[TEXT_MAX];
        text(e, "event", event);
        text(e, "text", note);
        double at = num(e, "at_ms");
        if (i >= MAX_ROWS)
            break;
        if (strcmp(event, "transition") == 0) {
            transition(p, at, note);
            continue;
        }
        const char *name = event, *branch = i == 0                       ? "┌─"
                                            : strcmp(event, "done") == 0 ? "└─"
                                                                         : "├─";
        for (size_t k = 0; k < sizeof known / sizeof known[0]; k++)
            if (strcmp(event, known[k].event) == 0)
                name = known[k].name;
        tree_line(p, at, branch, name, num(e, "ms"), note);
        const json_t *phase = phase_named(p->story, event);
        if (phase)
            phase_ops(p, phase);
        if (phase && strcmp(event, "decode") == 0)
            itl_line(p);
    }
}

/* ---- one step, op by op ---- */

static void cell(vt_table *t, void (*put)(vt_buf *, double), double v)
{
    vt_buf c = {0};
    put(&c, v);
    vt_table_cell(t, "%s", c.data ? c.data : "");
    vt_buf_release(&c);
}

static void percent_cell(vt_table *t, double share, int digits)
{
    if (isfinite(share))
        vt_table_cell(t, "%.*f %%", digits, 100 * share);
    else
        vt_table_cell(t, "n/a");
}

static double expected_bytes(const json_t *op)
{
    const json_t *e = get(op, "expected_bytes");
    return num(e, "weights") + num(e, "kv") + num(e, "activations");
}

static void step_row(vt_table *t, const json_t *op, bool gpu)
{
    char kind[TEXT_MAX], impl[TEXT_MAX], bound[TEXT_MAX];
    double first = num(op, "layer_first"), last = num(op, "layer_last");
    if (first >= 0 && last >= first && last < 10000)
        vt_table_cell(t, "L%02.0f..L%02.0f %s", first, last, text(op, "kind", kind));
    else
        vt_table_cell(t, "%s", text(op, "kind", kind));
    size_t kernels = json_array_size(get(op, "kernels"));
    if (kernels == 1)
        vt_table_cell(t, "%s", kernel_base(json_array_get(get(op, "kernels"), 0), "name", impl));
    else if (kernels > 1)
        vt_table_cell(t, "%zu kernels", kernels);
    else
        vt_table_cell(t, "%s", text(op, "impl", impl));
    cell(t, vt_text_time, num(op, "time_us") * 1e-6);
    percent_cell(t, num(op, "share"), 1);
    cell(t, vt_text_bytes, expected_bytes(op));
    if (!gpu) /* room for kernels' names: NOT MEASURED says that they are not */
        cell(t, vt_text_bytes, num(op, "measured_bytes"));
    vt_buf rate = {0};
    vt_text_rate(&rate, num(op, "bytes_per_s"), "B");
    vt_table_cell(t, "%s", rate.data ? rate.data : "");
    vt_buf_release(&rate);
    percent_cell(t, num(op, "of_roof"), 0);
    vt_table_cell(t, "%s", text(op, "bound", bound));
}

static void step_table(page *p, const json_t *phase, const char *title)
{
    vt_table t;
    size_t i;
    json_t *op;
    char range[64];
    if (!phase || num(phase, "timed_steps") < 1)
        return;
    bool timed = isfinite(num(phase, "timed_kv_first")); /* older stories do not have it */
    snprintf(range, sizeof range, "[mean of %.0f, context %.0f to %.0f]", num(phase, "timed_steps"),
             num(phase, timed ? "timed_kv_first" : "kv_first"),
             num(phase, timed ? "timed_kv_last" : "kv_last"));
    heading(p, title, range);
    bool gpu = json_is_object(get(phase, "gpu"));
    vt_table_init(&t, gpu ? "op|runs as|>time|>share|>bytes exp|>speed|>of roof|bound"
                          : "op|runs as|>time|>share|>bytes exp|>meas|>speed|>of roof|bound");
    json_array_foreach(get(phase, "ops"), i, op)
    {
        if (i < MAX_ROWS)
            step_row(&t, op, gpu);
    }
    vt_table_finish(&t, p->b, p->term, 1);
    vt_buf_puts(p->b, " sum ");
    vt_text_time(p->b, num(phase, "ops_us") * 1e-6);
    vt_buf_puts(p->b, " of ");
    vt_text_time(p->b, num(phase, "step_us") * 1e-6);
    vt_buf_printf(p->b, ": %.1f %% unexplained; the roofs allow ", 100 * num(phase, "unexplained"));
    vt_text_time(p->b, num(phase, "floor_us") * 1e-6);
    vt_buf_puts(p->b, "\n");
    if (isfinite(num(get(phase, "gpu"), "whole_step_us"))) {
        vt_buf_puts(p->b, " left alone a step takes ");
        vt_text_time(p->b, num(get(phase, "gpu"), "whole_step_us") * 1e-6);
        vt_buf_printf(p->b, " (mean of %.0f): timing its calls makes that %.2f times as much\n",
                      num(get(phase, "gpu"), "whole_steps"), num(get(phase, "gpu"), "slower"));
    }
}

/* ---- sections of a GPU's stories ---- */

static void kernel_lines(page *p, const json_t *op)
{
    size_t i;
    json_t *k;
    char kind[TEXT_MAX], name[TEXT_MAX];
    json_array_foreach(get(op, "kernels"), i, k)
    {
        enum { NAME = 24 };
        vt_buf line = {0};
        if (i >= MAX_ROWS)
            break;
        size_t start = p->b->len;
        vt_buf_printf(p->b, " %s", i == 0 ? text(op, "kind", kind) : "");
        vt_text_pad(p->b, start, NAME);
        /* parameters are read best with blanks to break at */
        for (const char *c = text(k, "name", name); *c; c++)
            vt_buf_puts(&line, *c == ',' ? ", " : (char[2]){*c, '\0'});
        vt_buf_printf(&line, " x%.3g", num(k, "launches"));
        if (num(k, "registers") > 0)
            vt_buf_printf(&line, ", %.0f registers", num(k, "registers"));
        if (num(k, "spill_bytes") > 0)
            vt_buf_printf(&line, ", %.0f bytes spilled", num(k, "spill_bytes"));
        vt_text_wrap(p->b, line.data ? line.data : "", NAME, p->term->width);
        vt_buf_putc(p->b, '\n');
        vt_buf_release(&line);
    }
}

static void gpu_phase(page *p, const json_t *phase)
{
    const json_t *g = get(phase, "gpu");
    char name[TEXT_MAX], how[TEXT_MAX];
    if (!json_is_object(g))
        return;
    vt_buf line = {0};
    vt_buf_printf(&line, "%s %s, %.0f kernels a step, ", text(phase, "name", name),
                  text(g, "how", how), num(g, "kernels_per_step"));
    vt_text_bytes(&line, num(g, "host_to_device_bytes"));
    vt_buf_puts(&line, " to the device");
    if (isfinite(num(g, "idle_us"))) {
        vt_buf_puts(&line, ", idle ");
        vt_text_time(&line, num(g, "idle_us") * 1e-6);
        vt_buf_puts(&line, " before a step");
    }
    vt_buf_putc(p->b, ' ');
    vt_text_wrap(p->b, line.data ? line.data : "", 3, p->term->width);
    vt_buf_putc(p->b, '\n');
    vt_buf_release(&line);
}

static void put_of(vt_buf *b, const char *what, double now, double most, const char *unit)
{
    if (!isfinite(now))
        return;
    vt_buf_printf(b, "%s%s%.0f", b->len ? ", " : "", what, now);
    if (isfinite(most))
        vt_buf_printf(b, " of %.0f", most);
    vt_buf_printf(b, " %s", unit);
}

static void gpu_state(page *p, const json_t *s)
{
    vt_buf line = {0};
    char why[TEXT_MAX];
    size_t i;
    json_t *held;
    put_of(&line, "SM ", num(s, "sm_mhz"), num(s, "sm_max_mhz"), "MHz");
    put_of(&line, "memory ", num(s, "memory_mhz"), num(s, "memory_max_mhz"), "MHz");
    put_of(&line, "", num(s, "power_w"), num(s, "power_limit_w"), "W");
    put_of(&line, "", num(s, "temperature_c"), NAN, "C");
    json_array_foreach(get(s, "clocks_held_by"), i, held)
    {
        if (i < MAX_ROWS && json_is_string(held)) {
            json_t *o = json_pack("{s:O}", "held", held);
            vt_buf_printf(&line, "%s%s", i ? " and " : "; clocks held by ", text(o, "held", why));
            json_decref(o);
        }
    }
    if (line.len) {
        vt_buf_puts(&line, " (when the story was made)");
        vt_buf_putc(p->b, ' ');
        vt_text_wrap(p->b, line.data, 3, p->term->width);
        vt_buf_putc(p->b, '\n');
    }
    vt_buf_release(&line);
}

static void gpu(page *p)
{
    const json_t *e = get(get(p->story, "engine"), "gpu"), *r = get(p->story, "roofs");
    size_t i;
    json_t *phase;
    vt_buf line = {0};
    if (!json_is_object(e))
        return;
    heading(p, "GPU", NULL);
    vt_buf_printf(&line, "%.0f multiprocessors; roofs, measured: memory ",
                  num(e, "multiprocessors"));
    vt_text_rate(&line, num(r, "memory_bytes_per_s"), "B");
    vt_buf_puts(&line, ", L2 ");
    vt_text_rate(&line, num(r, "l2_bytes_per_s"), "B");
    vt_buf_puts(&line, ", bf16 ");
    vt_text_rate(&line, num(r, "bf16_per_s"), "FLOP");
    vt_buf_puts(&line, ", fp32 ");
    vt_text_rate(&line, num(r, "fp32_per_s"), "FLOP");
    vt_buf_puts(&line, ", an empty kernel ");
    vt_text_time(&line, num(r, "kernel_us") * 1e-6);
    vt_buf_putc(p->b, ' ');
    vt_text_wrap(p->b, line.data ? line.data : "", 3, p->term->width);
    vt_buf_putc(p->b, '\n');
    vt_buf_release(&line);
    gpu_state(p, get(e, "state"));
    json_array_foreach(get(p->story, "phases"), i, phase)
    {
        if (i < MAX_ROWS)
            gpu_phase(p, phase);
    }
}

static void kernels(page *p, const json_t *phase)
{
    size_t i;
    json_t *op;
    char title[64], name[TEXT_MAX];
    if (!json_is_object(get(phase, "gpu")) || num(phase, "timed_steps") < 1)
        return;
    snprintf(title, sizeof title, "KERNELS of a %.20s step", text(phase, "name", name));
    heading(p, title, NULL);
    json_array_foreach(get(phase, "ops"), i, op)
    {
        if (i < MAX_ROWS)
            kernel_lines(p, op);
    }
}

/* ---- the rest ---- */

static void memory(page *p)
{
    const json_t *m = get(p->story, "memory");
    if (!json_is_object(m))
        return;
    heading(p, "MEMORY", NULL);
    vt_buf_puts(p->b, " weights ");
    vt_text_bytes(p->b, num(m, "weight_bytes"));
    if (num(m, "packed_bytes") > 0) {
        vt_buf_puts(p->b, " (+ ");
        vt_text_bytes(p->b, num(m, "packed_bytes"));
        vt_buf_puts(p->b, json_is_object(get(get(p->story, "engine"), "gpu")) ? " on the GPU)"
                                                                              : " repacked)");
    }
    vt_buf_puts(p->b, " │ KV pool ");
    vt_text_bytes(p->b, num(m, "kv_pool_bytes"));
    vt_buf_printf(p->b, ", %.0f pages of %.0f │ resident ", num(m, "pages"), num(m, "page_size"));
    vt_text_bytes(p->b, num(m, "resident_bytes"));
    if (isfinite(num(m, "device_free_bytes"))) {
        vt_buf_puts(p->b, "\n GPU memory used ");
        vt_text_bytes(p->b, num(m, "device_bytes") - num(m, "device_free_bytes"));
        vt_buf_puts(p->b, " of ");
        vt_text_bytes(p->b, num(m, "device_bytes"));
    }
    vt_buf_puts(p->b, "\n pages held ");
    spark_of(p, get(m, "pages_held"), 24);
    vt_buf_puts(p->b, " │ cached ");
    spark_of(p, get(m, "pages_cached"), 24);
    vt_buf_putc(p->b, '\n');
}

static void threads(page *p)
{
    size_t i;
    json_t *w;
    size_t n = json_array_size(get(p->story, "threads"));
    if (n == 0)
        return;
    heading(p, "THREADS", NULL);
    vt_buf line = {0};
    json_array_foreach(get(p->story, "threads"), i, w)
    {
        if (i < MAX_ROWS)
            vt_buf_printf(&line, "%sworker %zu %.1f %% busy", i ? ", " : "", i,
                          100 * num(w, "busy"));
    }
    vt_buf_puts(&line, "; the rest is waiting at barriers");
    vt_buf_putc(p->b, ' ');
    vt_text_wrap(p->b, line.data ? line.data : "", 1, p->term->width);
    vt_buf_putc(p->b, '\n');
    vt_buf_release(&line);
}

static void findings(page *p)
{
    size_t i;
    json_t *f;
    heading(p, "FINDINGS", NULL);
    json_array_foreach(get(p->story, "findings"), i, f)
    {
        char id[TEXT_MAX], rule[TEXT_MAX], what[TEXT_MAX], threshold[TEXT_MAX];
        vt_buf line = {0};
        if (i >= MAX_ROWS)
            break;
        text(f, "id", id);
        size_t start = p->b->len;
        vt_buf_putc(p->b, ' ');
        vt_text_ink(p->b, p->term, id[0] == 'W' ? VT_INK_YELLOW : VT_INK_GREEN, id);
        vt_buf_printf(&line, "%s [%s: %s]", text(f, "text", what), text(f, "rule", rule),
                      text(f, "threshold", threshold));
        vt_text_pad(p->b, start, 5);
        vt_text_wrap(p->b, line.data ? line.data : "", 5, p->term->width);
        vt_buf_putc(p->b, '\n');
        vt_buf_release(&line);
    }
    if (json_array_size(get(p->story, "findings")) == 0)
        vt_buf_puts(p->b, " none: no rule applies\n");
}

static void not_measured(page *p)
{
    size_t i;
    json_t *n;
    heading(p, "NOT MEASURED", NULL);
    json_array_foreach(get(p->story, "not_measured"), i, n)
    {
        char what[TEXT_MAX], why[TEXT_MAX];
        vt_buf line = {0};
        if (i >= MAX_ROWS)
            break;
        vt_buf_printf(&line, "%s: %s", text(n, "what", what), text(n, "why", why));
        vt_buf_putc(p->b, ' ');
        vt_text_wrap(p->b, line.data ? line.data : "", 3, p->term->width);
        vt_buf_putc(p->b, '\n');
        vt_buf_release(&line);
    }
}

static void gpu_observer(page *p, const json_t *o)
{
    vt_buf line = {0};
    vt_buf_printf(&line, "1 decode step in %.0f runs call by call, %.0f events between: ",
                  num(o, "period"), num(o, "events_per_step"));
    vt_text_time(&line, num(o, "timed_step_us") * 1e-6);
    if (isfinite(num(o, "whole_step_us"))) {
        vt_buf_puts(&line, " where the others take ");
        vt_text_time(&line, num(o, "whole_step_us") * 1e-6);
        vt_buf_printf(&line, ", %.1f %% tax on the mean", 100 * num(o, "tax"));
    }
    vt_buf_puts(&line, "; an event takes ");
    vt_text_time(&line, num(o, "event_ns") * 1e-9);
    vt_buf_puts(&line, " of the device, reading it ");
    vt_text_time(&line, num(o, "read_ns") * 1e-9);
    vt_buf_puts(&line,
                " of the host [measured]; prompts are always timed; device times lie at most ");
    vt_text_time(&line, num(get(get(p->story, "engine"), "gpu"), "clock_error_us") * 1e-6);
    vt_buf_puts(&line, " late on the host's clock");
    vt_buf_putc(p->b, ' ');
    vt_text_wrap(p->b, line.data ? line.data : "", 3, p->term->width);
    vt_buf_putc(p->b, '\n');
    vt_buf_release(&line);
}

static void observer(page *p)
{
    const json_t *o = get(p->story, "observer");
    if (!isfinite(num(o, "tax")) && !isfinite(num(o, "measured_tax")) &&
        !isfinite(num(o, "timed_step_us")))
        return;
    heading(p, "OBSERVER", NULL);
    if (num(o, "period") > 0) {
        gpu_observer(p, o);
    } else if (isfinite(num(o, "tax"))) {
        vt_buf_printf(p->b, " %.0f events a step of %.0f ns each: ", num(o, "events_per_step"),
                      num(o, "event_ns"));
        vt_text_time(p->b, num(o, "step_us") * 1e-6);
        vt_buf_printf(p->b, " a step, %.2f %% tax [derived]\n", 100 * num(o, "tax"));
    }
    if (isfinite(num(o, "measured_tax"))) {
        vt_buf_puts(p->b, " recorder on ");
        vt_text_time(p->b, num(o, "on_us") * 1e-6);
        vt_buf_puts(p->b, " a token, off ");
        vt_text_time(p->b, num(o, "off_us") * 1e-6);
        vt_buf_printf(p->b, ": %.1f %% tax [measured, p50 of %.0f tokens]\n",
                      100 * num(o, "measured_tax"), num(o, "tokens"));
    }
    if (isfinite(num(o, "first_on_us"))) {
        vt_buf_puts(p->b, " first token: recorder on ");
        vt_text_time(p->b, num(o, "first_on_us") * 1e-6);
        vt_buf_puts(p->b, ", off ");
        vt_text_time(p->b, num(o, "first_off_us") * 1e-6);
        vt_buf_puts(p->b, " [measured, once each]\n");
    }
}

static void title(page *p)
{
    const json_t *q = get(p->story, "request"), *m = get(p->story, "model"),
                 *e = get(p->story, "engine");
    char name[TEXT_MAX], quant[TEXT_MAX], device[TEXT_MAX], level[TEXT_MAX], headline[TEXT_MAX];
    char about[64];
    vt_buf line = {0};
    if (json_is_object(q))
        snprintf(about, sizeof about, "REQUEST %.0f", num(q, "id"));
    else
        snprintf(about, sizeof about, "RECORDING");
    text(m, "name", name);
    text(m, "quant", quant);
    vt_buf_printf(&line, "%s%s%s · %s %s", name, strstr(name, quant) ? "" : " ",
                  strstr(name, quant) ? "" : quant, text(e, "device", device),
                  text(e, "level", level));
    if (json_is_object(get(e, "gpu")))
        vt_buf_printf(&line, ", %s", text(get(e, "gpu"), "name", level));
    else if (isfinite(num(e, "threads")))
        vt_buf_printf(&line, ", %.0f thread%s", num(e, "threads"), s_of(num(e, "threads")));
    if (json_is_object(q))
        vt_buf_printf(&line, " · %.0f prompt token%s (%.0f cached) -> %.0f out",
                      num(q, "prompt_tokens"), s_of(num(q, "prompt_tokens")),
                      num(q, "cached_tokens"), num(q, "completion_tokens"));
    vt_text_ink(p->b, p->term, VT_INK_BOLD, about);
    vt_buf_puts(p->b, "  ");
    vt_text_wrap(p->b, line.data ? line.data : "", 2, p->term->width - 12);
    vt_buf_putc(p->b, '\n');
    vt_text_wrap(p->b, text(p->story, "headline", headline), 0, p->term->width);
    vt_buf_putc(p->b, '\n');
    vt_buf_release(&line);
}

vt_status story_render(const char *name, const char *json, size_t len, const vt_term *term,
                       vt_buf *out, vt_err *err)
{
    json_t *story;
    TRY(vt_json_load(name, json, len, JSON_REJECT_DUPLICATES, VT_JSON_MAX_TREE, &story, err));
    const char *schema = json_string_value(get(story, "schema"));
    json_int_t version = json_is_integer(get(story, "version"))
                             ? json_integer_value(get(story, "version"))
                             : -1;
    if (!schema || strcmp(schema, "vitrine.story") != 0 || version < 0 || version > STORY_VERSION) {
        json_decref(story);
        return vt_fail(err, VT_ERR_FORMAT,
                       "%s: not a story of schema vitrine.story, version 0 to %d", name,
                       STORY_VERSION);
    }
    if (!json_is_array(get(story, "phases"))) {
        json_decref(story);
        return vt_fail(err, VT_ERR_FORMAT, "%s: no list 'phases', which every story has", name);
    }
    page p = {out, term, story};
    title(&p);
    if (json_array_size(get(story, "timeline")) > 0)
        timeline(&p);
    const json_t *decode = phase_named(story, "decode");
    if (decode)
        step_table(&p, decode, "ONE DECODE STEP, op by op");
    else
        step_table(&p, phase_named(story, "prefill"), "ONE PREFILL STEP, op by op");
    kernels(&p, decode ? decode : phase_named(story, "prefill"));
    gpu(&p);
    memory(&p);
    threads(&p);
    findings(&p);
    not_measured(&p);
    observer(&p);
    json_decref(story);
    return out->failed ? vt_fail(err, VT_ERR_MEMORY, "out of memory for a story") : VT_OK;
}
