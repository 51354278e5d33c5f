#include "cli/top_frame.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/term/figure.h"
#include "openai/json_load.h"

enum { LABEL = 10, MOST_ROWS = 200 };

/* ---- reading looks ---- */

static const json_t *at(const json_t *look, const char *group, const char *key)
{
    const json_t *g = group ? json_object_get(look, group) : look;
    return key ? json_object_get(g, key) : g;
}

static double number(const json_t *look, const char *group, const char *key)
{
    const json_t *v = at(look, group, key);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

static double count(const json_t *look, const char *group, const char *key)
{
    double v = number(look, group, key);
    return v >= 0 && v < 9e15 ? floor(v) : 0;
}

static void add_step(top_view *v, const json_t *s)
{
    int64_t id = (int64_t)count(s, NULL, "id");
    if (v->n_steps > 0 && id <= v->step[v->n_steps - 1])
        return; /* the history and what came since may have steps in common */
    if (v->n_steps == TOP_STEPS) {
        size_t rest = TOP_STEPS - 1;
        memmove(v->step, v->step + 1, rest * sizeof *v->step);
        memmove(v->decodes, v->decodes + 1, rest * sizeof *v->decodes);
        memmove(v->prefill, v->prefill + 1, rest * sizeof *v->prefill);
        memmove(v->ms, v->ms + 1, rest * sizeof *v->ms);
        v->n_steps--;
    }
    int32_t i = v->n_steps++;
    v->step[i] = id;
    v->decodes[i] = count(s, NULL, "decodes");
    v->prefill[i] = fmax(0, count(s, NULL, "tokens") - v->decodes[i]);
    v->ms[i] = number(s, NULL, "ms");
}

bool top_view_take(top_view *v, const char *data, size_t len)
{
    json_t *look = NULL;
    vt_openai_error e = {0};
    if (vt_openai_json_load(data, len, &look, &e) != VT_OK)
        return false;
    const json_t *busy = at(look, "busy", NULL);
    v->busy_s = busy ? fmax(0, number(look, "busy", "step_s")) : 0;
    if (busy || !json_is_object(at(look, "now", NULL))) {
        json_decref(look);
        return busy != NULL;
    }
    const json_t *steps = at(look, "steps", NULL);
    for (size_t i = 0; i < json_array_size(steps); i++)
        add_step(v, json_array_get(steps, i));
    json_decref(v->look);
    v->look = look;
    return true;
}

void top_view_release(top_view *v)
{
    json_decref(v->look);
    v->look = NULL;
}

/* ---- pieces of text ---- */

typedef struct frame {
    vt_buf *out;
    const vt_term *term;
    size_t line; /* where the line that is being written begins */
    int32_t rows_left;
} frame;

/* Drops the end of a line that is wider than the terminal. Escape sequences stand in front only. */
static void cut_line(frame *f)
{
    vt_buf *b = f->out;
    while (b->len > f->line &&
           vt_text_width(b->data + f->line, b->len - f->line) > f->term->width) {
        while (b->len > f->line + 1 && ((unsigned char)b->data[b->len - 1] & 0xc0) == 0x80)
            b->len--;
        b->data[--b->len] = '\0';
    }
}

/* Ends a line; nothing is left of it where the rows are used up. */
static void end_line(frame *f)
{
    cut_line(f);
    if (f->rows_left-- <= 0) {
        f->out->len = f->line;
        if (f->out->data)
            f->out->data[f->line] = '\0';
    } else
        vt_buf_putc(f->out, '\n');
    f->line = f->out->len;
}

static void label(frame *f, const char *text)
{
    vt_text_ink(f->out, f->term, VT_INK_DIM, text);
    vt_text_pad(f->out, f->line, LABEL);
}

/* 12,345 */
static void put_count(vt_buf *b, double n)
{
    char digits[32];
    int len = snprintf(digits, sizeof digits, "%.0f", n);
    for (int i = 0; i < len; i++) {
        if (i > 0 && (len - i) % 3 == 0)
            vt_buf_putc(b, ',');
        vt_buf_putc(b, digits[i]);
    }
}

static void put_named(vt_buf *b, double n, const char *what)
{
    put_count(b, n);
    vt_buf_puts(b, what);
}

/* The newest of n values, as many as there are cells, each against the largest of them. */
static void put_spark(vt_buf *b, const double *value, int32_t n, int32_t cells)
{
    static const char *const level[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    double most = 0;
    int32_t from = n > cells ? n - cells : 0;
    for (int32_t i = from; i < n; i++)
        most = fmax(most, value[i]);
    for (int32_t i = n - cells; i < n; i++) {
        double share = i >= from && most > 0 && value[i] > 0 ? value[i] / most : 0;
        vt_buf_puts(b, level[share > 0 ? (int)fmax(1, lround(share * 8)) : 0]);
    }
}

static void put_text(vt_buf *b, const json_t *string, size_t most)
{
    char text[128];
    snprintf(text, sizeof text, "%.*s", (int)most,
             json_is_string(string) ? json_string_value(string) : "");
    vt_text_clean_line(text);
    vt_buf_puts(b, text);
}

static void put_ms(vt_buf *b, const char *name, double ms)
{
    vt_buf_puts(b, name);
    if (isnan(ms))
        vt_buf_puts(b, "-");
    else
        vt_text_time(b, ms * 1e-3);
}

/* ---- parts of the frame ---- */

static void draw_title(frame *f, const top_view *v)
{
    const json_t *k = v->look;
    double up = count(k, "engine", "uptime_s");
    char text[64];
    vt_text_ink(f->out, f->term, VT_INK_BOLD, "vitrine top  ");
    put_text(f->out, at(k, "engine", "model"), 40);
    vt_buf_puts(f->out, "  ");
    put_text(f->out, at(k, "engine", "device"), 10);
    snprintf(text, sizeof text, "  up %.0f:%02.0f:%02.0f", floor(up / 3600),
             floor(fmod(up, 3600) / 60), fmod(up, 60));
    vt_buf_puts(f->out, text);
    if (v->busy_s > 0)
        vt_buf_printf(f->out, "  in a step of %.0f s", v->busy_s);
    end_line(f);
    end_line(f);
}

static void draw_rate(frame *f, const json_t *k, const char *name, const char *now,
                      const char *series)
{
    double value[TOP_STEPS];
    const json_t *list = at(k, "rates", series);
    size_t n = json_array_size(list), from = n > TOP_STEPS ? n - TOP_STEPS : 0;
    int32_t cells = f->term->width - 34;
    for (size_t i = from; i < n; i++)
        value[i - from] = json_number_value(json_array_get(list, i));
    label(f, name);
    put_named(f->out, count(k, "now", now), " tokens/s");
    vt_text_pad(f->out, f->line, 32);
    if (cells > 60)
        cells = 60;
    put_spark(f->out, value, (int32_t)(n - from), cells);
    end_line(f);
}

static void draw_latency(frame *f, const json_t *k, const char *name, const char *key)
{
    label(f, name);
    put_ms(f->out, "p50 ", number(k, key, "p50_ms"));
    vt_text_pad(f->out, f->line, LABEL + 15);
    put_ms(f->out, "p90 ", number(k, key, "p90_ms"));
    vt_text_pad(f->out, f->line, LABEL + 30);
    put_ms(f->out, "p99 ", number(k, key, "p99_ms"));
    end_line(f);
}

static void draw_figures(frame *f, const json_t *k)
{
    draw_rate(f, k, "output", "output_per_s", "output");
    draw_rate(f, k, "prompts", "prefill_per_s", "prefill");
    label(f, "requests");
    put_named(f->out, count(k, "now", "running"), " running, ");
    put_named(f->out, count(k, "now", "waiting"), " waiting, ");
    put_named(f->out, count(k, "now", "stopped") + count(k, "now", "length"), " answered, ");
    put_named(f->out, count(k, "now", "aborted"), " stopped, ");
    put_named(f->out, count(k, "now", "failed"), " failed");
    end_line(f);
    draw_latency(f, k, "TTFT", "ttft");
    draw_latency(f, k, "ITL", "itl");
    end_line(f);
}

static void draw_batch(frame *f, const top_view *v)
{
    int32_t cells = f->term->width - LABEL, last = v->n_steps - 1;
    label(f, "decodes");
    put_spark(f->out, v->decodes, v->n_steps, cells);
    end_line(f);
    label(f, "prefill");
    put_spark(f->out, v->prefill, v->n_steps, cells);
    end_line(f);
    label(f, "time");
    put_spark(f->out, v->ms, v->n_steps, cells);
    end_line(f);
    label(f, "last step");
    if (last < 0)
        vt_buf_puts(f->out, "none yet");
    else {
        vt_buf_printf(f->out, "%lld: ", (long long)v->step[last]);
        put_named(f->out, v->decodes[last], " decodes and ");
        put_named(f->out, v->prefill[last], " prompt tokens in ");
        put_ms(f->out, "", v->ms[last]);
    }
    end_line(f);
    end_line(f);
}

/* [#####-----      ]: used, cached, free */
static void draw_memory(frame *f, const json_t *k)
{
    double used = count(k, "pages", "used"), cached = count(k, "pages", "cached");
    double all = fmax(1, count(k, "pages", "all"));
    int32_t cells = f->term->width - LABEL - 2;
    int32_t n_used = (int32_t)ceil(fmin(1, used / all) * cells);
    int32_t n_cached = (int32_t)ceil(fmin(1, (used + cached) / all) * cells);
    label(f, "KV pages");
    vt_buf_putc(f->out, '[');
    for (int32_t i = 0; i < cells; i++)
        vt_buf_puts(f->out, i < n_used ? "█" : i < n_cached ? "░" : " ");
    vt_buf_putc(f->out, ']');
    end_line(f);
    label(f, "");
    put_named(f->out, used, " used, ");
    put_named(f->out, cached, " cached, ");
    put_named(f->out, count(k, "pages", "free"), " free of ");
    put_named(f->out, count(k, "pages", "all"), " pages of ");
    put_named(f->out, count(k, "pages", "tokens"), " tokens");
    end_line(f);
    double looked = count(k, "tree", "lookup_tokens"), hit = count(k, "tree", "hit_tokens");
    label(f, "prefixes");
    vt_buf_printf(f->out, "%.0f %% of prompt tokens found, ",
                  looked > 0 ? 100 * hit / looked : 0.0);
    put_named(f->out, hit, " saved, ");
    put_named(f->out, count(k, "tree", "evicted_pages"), " pages evicted");
    end_line(f);
    end_line(f);
}

static void draw_running(frame *f, const json_t *r)
{
    double done = count(r, NULL, "output"), most = count(r, NULL, "most");
    const char *verb = "wrote ";
    if (done == 0) {
        verb = "reads ";
        done = count(r, NULL, "computed");
        most = count(r, NULL, "prompt");
    }
    int32_t cells = f->term->width - 56;
    vt_buf_printf(f->out, "#%.0f", count(r, NULL, "request"));
    vt_text_pad(f->out, f->line, LABEL);
    vt_buf_puts(f->out, verb);
    put_named(f->out, done, " of ");
    put_count(f->out, most);
    vt_text_pad(f->out, f->line, 32);
    vt_text_bar(f->out, most > 0 ? done / most : 0, cells);
    vt_text_pad(f->out, f->line, 34 + cells);
    put_named(f->out, count(r, NULL, "pages"), " pages");
    if (count(r, NULL, "cached") > 0) {
        vt_buf_puts(f->out, ", ");
        put_named(f->out, count(r, NULL, "cached"), " cached");
    }
    end_line(f);
}

static void draw_queued(frame *f, const json_t *q)
{
    static const char *const why[][2] = {{"soon", "next step"},
                                         {"batch full", "the batch is full"},
                                         {"no pages", "too few free pages"},
                                         {"behind", "older ones first"},
                                         {"retracted", "gave its pages up"},
                                         {"token budget", "the step's tokens are used up"}};
    const char *given = json_string_value(at(q, NULL, "why"));
    vt_buf_printf(f->out, "#%.0f", count(q, NULL, "request"));
    vt_text_pad(f->out, f->line, LABEL);
    vt_text_printf(f->out, "waits %f s", fmax(0, number(q, NULL, "waits_s")));
    vt_text_pad(f->out, f->line, 32);
    put_named(f->out, count(q, NULL, "tokens"), " tokens: ");
    for (size_t i = 0; given && i < sizeof why / sizeof *why; i++)
        if (strcmp(why[i][0], given) == 0)
            vt_buf_puts(f->out, why[i][1]);
    end_line(f);
}

/* Requests in the batch and in the queue share the rows that are left: at least a third is the
 * queue's where it needs that. */
static void draw_requests(frame *f, const json_t *k)
{
    const json_t *running = at(k, "running", NULL), *queue = at(k, "queue", NULL);
    int32_t rows = f->rows_left, n_run = (int32_t)json_array_size(running);
    int32_t n_queue = (int32_t)json_array_size(queue);
    int32_t for_queue = n_queue < rows / 3 ? n_queue : rows / 3;
    n_run = n_run < rows - for_queue ? n_run : rows - for_queue;
    n_queue = n_queue < rows - n_run ? n_queue : rows - n_run;
    for (int32_t i = 0; i < n_run; i++)
        draw_running(f, json_array_get(running, (size_t)i));
    for (int32_t i = 0; i < n_queue; i++)
        draw_queued(f, json_array_get(queue, (size_t)i));
}

void top_view_draw(const top_view *v, const vt_term *term, int32_t rows, vt_buf *out)
{
    frame f = {out, term, out->len, rows < MOST_ROWS ? rows : MOST_ROWS};
    if (!v->look) {
        vt_buf_puts(out, "waiting for the engine's first step to end");
        end_line(&f);
        return;
    }
    draw_title(&f, v);
    draw_figures(&f, v->look);
    draw_batch(&f, v);
    draw_memory(&f, v->look);
    draw_requests(&f, v->look);
}
