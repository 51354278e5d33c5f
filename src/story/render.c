/* story.json as a person reads it in a terminal: headline, MACHINE, TIME, ONE DECODE STEP, how its
 * work is cut, ONE LAYER, (of a GPU) KERNELS and GPU, MEMORY, THREADS, FINDINGS, NOT MEASURED,
 * OBSERVER. 80 to 100 cells wide; reads as well without colour.
 *
 *   render.c        the page: title, machine, memory, threads, findings, observer
 *   render_time.c   TIME
 *   render_batch.c  REQUESTS, BATCH of a whole recording
 *   render_step.c   the op table, cuts, a layer, late tokens
 *   render_gpu.c    KERNELS, GPU
 *
 * The JSON may come from a file of unknown origin: see story/read.h. */
#include "story/render.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "story/story.h"

void render_heading(render_page *p, const char *title, const char *right)
{
    vt_buf_putc(p->b, '\n');
    size_t start = p->b->len;
    vt_text_ink(p->b, p->term, VT_INK_BOLD, title);
    if (right) {
        vt_text_pad(p->b, start, render_width(p) - vt_text_width(right, strlen(right)));
        vt_text_ink(p->b, p->term, VT_INK_DIM, right);
    }
    vt_buf_putc(p->b, '\n');
}

const char *render_tag(const render_page *p, const char *tag)
{
    const json_t *gpu = story_get(story_get(p->story, "engine"), "gpu");
    return json_is_true(story_get(gpu, "emulated")) ? "[n/a: an emulated GPU]" : tag;
}

void render_paragraph(render_page *p, vt_buf *text, int32_t indent)
{
    vt_buf_putc(p->b, ' ');
    vt_text_wrap(p->b, text->data ? text->data : "", indent, render_width(p) - (indent == 0));
    vt_buf_putc(p->b, '\n');
    p->b->failed |= text->failed;
    vt_buf_release(text);
    *text = (vt_buf){0};
}

int32_t render_values(const json_t *list, double *out, int32_t max)
{
    int32_t n = 0;
    size_t i;
    json_t *x;
    json_array_foreach(story_get(list, "values"), i, x)
    {
        if (n == max)
            break;
        out[n++] = json_is_number(x) ? json_number_value(x) : NAN;
    }
    return n;
}

const char *render_kernel_base(const json_t *o, const char *key, char out[STORY_TEXT])
{
    story_text(o, key, out);
    out[strcspn(out, "<")] = '\0';
    return out;
}

/* Draws how many pages there were over the steps, with the scale. */
static void pages_of(render_page *p, const char *name, const json_t *list, double page_bytes)
{
    enum { NAME = 9, CELLS = 24 };
    double v[512], low = INFINITY, high = -INFINITY;
    int32_t n = render_values(list, v, 512);
    for (int32_t i = 0; i < n; i++) {
        low = fmin(low, v[i]);
        high = fmax(high, v[i]);
    }
    if (!(high >= low) || !(fabs(high) < 1e12 && fabs(low) < 1e12))
        return;
    size_t start = p->b->len;
    vt_buf_printf(p->b, " %s", name);
    vt_text_pad(p->b, start, NAME);
    vt_text_spark(p->b, v, n, CELLS);
    if (low < high)
        vt_buf_printf(p->b, " %.0f to", low);
    vt_buf_printf(p->b, " %.0f page%s", high, story_s(high));
    if (isfinite(page_bytes)) {
        vt_buf_puts(p->b, ", ");
        if (low < high) {
            vt_text_bytes(p->b, low * page_bytes);
            vt_buf_puts(p->b, " to ");
        }
        vt_text_bytes(p->b, high * page_bytes);
    }
    vt_buf_putc(p->b, '\n');
}

/* KV pages in use, cached and free over the steps of the story. */
static void pages(render_page *p, const json_t *m)
{
    double page = story_num(m, "kv_pool_bytes") / story_num(m, "pages");
    pages_of(p, "KV used", story_get(m, "pages_held"), page);
    pages_of(p, "cached", story_get(m, "pages_cached"), page);
    pages_of(p, "free", story_get(m, "pages_free"), page);
    double evicted = story_num(m, "evicted_pages");
    if (evicted > 0)
        vt_buf_printf(p->b, " evicted %.0f page%s\n", evicted, story_s(evicted));
}

static void memory(render_page *p)
{
    const json_t *m = story_get(p->story, "memory");
    if (!json_is_object(m))
        return;
    render_heading(p, "MEMORY", NULL);
    vt_buf line = {0};
    vt_buf_puts(&line, "weights ");
    vt_text_bytes(&line, story_num(m, "weight_bytes"));
    if (story_num(m, "packed_bytes") > 0) {
        vt_buf_puts(&line, " (+ ");
        vt_text_bytes(&line, story_num(m, "packed_bytes"));
        vt_buf_puts(&line, json_is_object(story_get(story_get(p->story, "engine"), "gpu"))
                               ? " on the GPU)"
                               : " repacked)");
    }
    vt_buf_puts(&line, " │ KV pool ");
    vt_text_bytes(&line, story_num(m, "kv_pool_bytes"));
    vt_buf_printf(&line, ", %.0f page%s of %.0f tokens │ resident ", story_num(m, "pages"),
                  story_s(story_num(m, "pages")), story_num(m, "page_size"));
    vt_text_bytes(&line, story_num(m, "resident_bytes"));
    render_paragraph(p, &line, 1);
    if (isfinite(story_num(m, "device_free_bytes"))) {
        vt_buf_puts(&line, "GPU memory used ");
        vt_text_bytes(&line, story_num(m, "device_bytes") - story_num(m, "device_free_bytes"));
        vt_buf_puts(&line, " of ");
        vt_text_bytes(&line, story_num(m, "device_bytes"));
        render_paragraph(p, &line, 1);
    }
    pages(p, m);
}

/* Returns how much more the busiest worker did than the mean one; NAN: not known. */
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

static void threads(render_page *p)
{
    size_t i;
    json_t *w;
    const json_t *all = story_get(p->story, "threads");
    size_t n = json_array_size(all);
    double wait_us = 0;
    if (n == 0)
        return;
    render_heading(p, "THREADS", NULL);
    vt_buf line = {0};
    json_array_foreach(all, i, w)
    {
        if (i < STORY_ROWS)
            vt_buf_printf(&line, "%sworker %zu %.1f %% busy", i ? ", " : "", i,
                          100 * story_num(w, "busy"));
        wait_us += story_num(w, "wait_us_a_step") / (double)n;
    }
    if (isfinite(imbalance(all)))
        vt_buf_printf(&line, ": imbalance %.1f %%", 100 * imbalance(all));
    vt_buf_puts(&line, "; the rest is waiting at barriers");
    if (isfinite(wait_us)) {
        vt_buf_puts(&line, ", ");
        vt_text_time(&line, wait_us * 1e-6);
        vt_buf_puts(&line, " a step");
    }
    render_paragraph(p, &line, 1);
}

/* Says what else the same cause shows in. */
static void symptoms(render_page *p, const json_t *finding)
{
    enum { SHOWN = 3 };
    size_t i;
    json_t *f;
    json_array_foreach(story_get(finding, "symptoms"), i, f)
    {
        char rule[STORY_TEXT], what[STORY_TEXT];
        vt_buf line = {0};
        if (i == SHOWN)
            break;
        vt_buf_printf(&line, "· %s [%s]", story_text(f, "text", what), story_text(f, "rule", rule));
        vt_buf_puts(p->b, "    ");
        render_paragraph(p, &line, 7);
    }
}

static void findings(render_page *p)
{
    size_t i;
    json_t *f;
    render_heading(p, "FINDINGS", NULL);
    json_array_foreach(story_get(p->story, "findings"), i, f)
    {
        char id[STORY_TEXT], rule[STORY_TEXT], what[STORY_TEXT], threshold[STORY_TEXT];
        vt_buf line = {0};
        if (i >= STORY_ROWS)
            break;
        story_text(f, "id", id);
        size_t start = p->b->len;
        vt_buf_putc(p->b, ' ');
        vt_text_ink(p->b, p->term, id[0] == 'W' ? VT_INK_YELLOW : VT_INK_GREEN, id);
        vt_buf_puts(&line, story_text(f, "text", what));
        double once_ms = story_num(story_get(f, "evidence"), "once_ms");
        if (once_ms > 0) {
            vt_buf_puts(&line, "; up to ");
            vt_text_time(&line, once_ms * 1e-3);
            vt_buf_puts(&line, ", once");
        } else if (story_num(f, "gain_ms_per_token") > 0) {
            vt_buf_puts(&line, "; up to ");
            vt_text_time(&line, story_num(f, "gain_ms_per_token") * 1e-3);
            vt_buf_puts(&line, " a token");
        }
        vt_buf_printf(&line, " [%s: %s]", story_text(f, "rule", rule),
                      story_text(f, "threshold", threshold));
        vt_text_pad(p->b, start, 5);
        vt_text_wrap(p->b, line.data ? line.data : "", 5, render_width(p));
        vt_buf_putc(p->b, '\n');
        vt_buf_release(&line);
        symptoms(p, f);
    }
    if (json_array_size(story_get(p->story, "findings")) == 0)
        vt_buf_puts(p->b, " none: no rule applies\n");
}

static void not_measured(render_page *p)
{
    size_t i;
    json_t *n;
    render_heading(p, "NOT MEASURED", NULL);
    json_array_foreach(story_get(p->story, "not_measured"), i, n)
    {
        char what[STORY_TEXT], why[STORY_TEXT];
        vt_buf line = {0};
        if (i >= STORY_ROWS)
            break;
        vt_buf_printf(&line, "%s: %s", story_text(n, "what", what), story_text(n, "why", why));
        vt_buf_putc(p->b, ' ');
        vt_text_wrap(p->b, line.data ? line.data : "", 3, render_width(p));
        vt_buf_putc(p->b, '\n');
        vt_buf_release(&line);
    }
}

static void gpu_observer(render_page *p, const json_t *o)
{
    vt_buf line = {0};
    vt_buf_printf(&line, "1 decode step in %.0f runs call by call, %.0f events between: ",
                  story_num(o, "period"), story_num(o, "events_per_step"));
    vt_text_time(&line, story_num(o, "timed_step_us") * 1e-6);
    if (isfinite(story_num(o, "whole_step_us"))) {
        vt_buf_puts(&line, " where the others take ");
        vt_text_time(&line, story_num(o, "whole_step_us") * 1e-6);
        vt_buf_printf(&line, ", %.1f %% tax on the mean", 100 * story_num(o, "tax"));
    }
    vt_buf_puts(&line, "; an event takes ");
    vt_text_time(&line, story_num(o, "event_ns") * 1e-9);
    vt_buf_puts(&line, " of the device, reading it ");
    vt_text_time(&line, story_num(o, "read_ns") * 1e-9);
    vt_buf_puts(&line, " of the host");
    vt_buf_printf(&line, " %s", render_tag(p, "[measured]"));
    vt_buf_puts(&line, "; device times lie at most ");
    vt_text_time(
        &line, story_num(story_get(story_get(p->story, "engine"), "gpu"), "clock_error_us") * 1e-6);
    vt_buf_puts(&line, " late on the host's clock");
    vt_buf_putc(p->b, ' ');
    vt_text_wrap(p->b, line.data ? line.data : "", 3, render_width(p));
    vt_buf_putc(p->b, '\n');
    vt_buf_release(&line);
}

/* An interval that holds zero has no tax to tell, only a bound of it. */
static void measured_tax(render_page *p, const json_t *o)
{
    double low = story_num(o, "measured_tax_low"), high = story_num(o, "measured_tax_high");
    vt_buf line = {0};
    vt_buf_puts(&line, json_is_object(story_get(story_get(p->story, "engine"), "gpu"))
                           ? "the host's recorder "
                           : "recorder ");
    if (low <= 0)
        vt_buf_printf(&line, "below %.1f %%", fmax(0.1, 100 * high));
    else
        vt_buf_printf(&line, "%.1f %%", 100 * story_num(o, "measured_tax"));
    vt_buf_printf(&line,
                  " of a step [%.1f .. %.1f], from %.0f pairs of steps of this request, one "
                  "recorded and one not %s",
                  100 * low, 100 * high, story_num(o, "pairs"),
                  render_tag(p, "[measured, median and 95 % interval]"));
    render_paragraph(p, &line, 3);
}

/* Stories that were told with the request run twice. */
static void two_runs(render_page *p, const json_t *o)
{
    vt_buf line = {0};
    vt_buf_puts(&line, "recorder on ");
    vt_text_time(&line, story_num(o, "on_us") * 1e-6);
    vt_buf_puts(&line, " a token, off ");
    vt_text_time(&line, story_num(o, "off_us") * 1e-6);
    vt_buf_printf(&line, ": %.1f %% tax [measured, p50 of %.0f tokens]",
                  100 * story_num(o, "measured_tax"), story_num(o, "tokens"));
    render_paragraph(p, &line, 3);
    if (!isfinite(story_num(o, "first_on_us")))
        return;
    vt_buf_puts(&line, "first token: recorder on ");
    vt_text_time(&line, story_num(o, "first_on_us") * 1e-6);
    vt_buf_puts(&line, ", off ");
    vt_text_time(&line, story_num(o, "first_off_us") * 1e-6);
    vt_buf_puts(&line, " [measured, once each]");
    render_paragraph(p, &line, 3);
}

static void observer(render_page *p)
{
    const json_t *o = story_get(p->story, "observer");
    if (!isfinite(story_num(o, "tax")) && !isfinite(story_num(o, "measured_tax")) &&
        !isfinite(story_num(o, "timed_step_us")))
        return;
    render_heading(p, "OBSERVER", NULL);
    if (story_num(o, "period") > 0) {
        gpu_observer(p, o);
    } else if (isfinite(story_num(o, "tax"))) {
        vt_buf_printf(p->b, " %.0f calls a step, recorded in %.0f ns each: ",
                      story_num(o, "events_per_step"), story_num(o, "event_ns"));
        vt_text_time(p->b, story_num(o, "step_us") * 1e-6);
        vt_buf_printf(p->b, " a step, %.2f %% tax [derived]\n", 100 * story_num(o, "tax"));
    }
    if (isfinite(story_num(o, "measured_tax_high")))
        measured_tax(p, o);
    else if (isfinite(story_num(o, "measured_tax")))
        two_runs(p, o);
}

/* Writes what the page is about in bold, then the rest, broken where the line is full. */
static void title_line(render_page *p, const char *about, const char *rest)
{
    vt_buf all = {0};
    size_t n = strlen(about);
    vt_buf_printf(&all, "%s  ", about);
    vt_text_ink(p->b, p->term, VT_INK_BOLD, about);
    vt_buf_puts(p->b, "  ");
    /* wraps as if `about` were a word of the text, whose blanks would be taken for breaks */
    for (size_t i = 0; i < n && !all.failed; i++)
        all.data[i] = 'x';
    vt_buf_puts(&all, rest);
    vt_buf lines = {0};
    vt_text_wrap(&lines, all.data ? all.data : "", 2, render_width(p) - 3);
    if (lines.len > n + 1)
        vt_buf_puts(p->b, lines.data + n + 1);
    vt_buf_putc(p->b, '\n');
    vt_buf_release(&lines);
    vt_buf_release(&all);
}

static void put_headline(render_page *p)
{
    char headline[STORY_TEXT];
    vt_text_wrap(p->b, story_text(p->story, "headline", headline), 0, render_width(p));
    vt_buf_putc(p->b, '\n');
}

static void title(render_page *p)
{
    const json_t *q = story_get(p->story, "request"), *m = story_get(p->story, "model"),
                 *e = story_get(p->story, "engine");
    char name[STORY_TEXT], quant[STORY_TEXT], device[STORY_TEXT], level[STORY_TEXT];
    bool emulated = render_tag(p, NULL) != NULL;
    char about[64];
    vt_buf line = {0};
    if (json_is_object(q))
        snprintf(about, sizeof about, "REQUEST %.0f", story_num(q, "id"));
    else
        snprintf(about, sizeof about, "RECORDING");
    story_text(m, "name", name);
    story_text(m, "quant", quant);
    vt_buf_printf(&line, "%s%s%s · %s %s", name, strstr(name, quant) ? "" : " ",
                  strstr(name, quant) ? "" : quant, story_text(e, "device", device),
                  story_text(e, "level", level));
    if (json_is_object(story_get(e, "gpu")))
        vt_buf_printf(&line, ", %s", story_text(story_get(e, "gpu"), "name", level));
    else if (isfinite(story_num(e, "threads")))
        vt_buf_printf(&line, ", %.0f thread%s", story_num(e, "threads"),
                      story_s(story_num(e, "threads")));
    if (json_is_object(q))
        vt_buf_printf(&line, " · %.0f prompt token%s (%.0f cached) -> %.0f out",
                      story_num(q, "prompt_tokens"), story_s(story_num(q, "prompt_tokens")),
                      story_num(q, "cached_tokens"), story_num(q, "completion_tokens"));
    if (emulated) /* the first thing to know of it */
        put_headline(p);
    title_line(p, about, line.data ? line.data : "");
    if (!emulated)
        put_headline(p);
    vt_buf_release(&line);
}

/* "ENERGY   0.21 J a prompt token, 0.83 J a generated token [derived: all CPU packages (RAPL), over
 * the tokens of all requests in these steps]" */
static void energy(render_page *p)
{
    const json_t *e = story_get(story_get(p->story, "machine"), "energy");
    double prompt = story_num(e, "prompt_token_j"), made = story_num(e, "generated_token_j");
    char counter[STORY_TEXT];
    vt_buf line = {0};
    bool emulated = render_tag(p, NULL) != NULL;
    if ((!isfinite(prompt) && !isfinite(made)) || emulated)
        return;
    if (isfinite(prompt))
        vt_buf_printf(&line, "%.3g J a prompt token", prompt);
    if (isfinite(made))
        vt_buf_printf(&line, "%s%.3g J a generated token", isfinite(prompt) ? ", " : "", made);
    vt_buf_printf(&line, " [derived: %s, over the tokens of all requests in these steps]",
                  story_text(e, "counter", counter));
    size_t start = p->b->len;
    vt_text_ink(p->b, p->term, VT_INK_BOLD, "ENERGY");
    vt_text_pad(p->b, start, 9);
    vt_text_wrap(p->b, line.data ? line.data : "", 9, render_width(p));
    vt_buf_putc(p->b, '\n');
    vt_buf_release(&line);
}

/* Says what the machine did meanwhile, where that was recorded. */
static void machine(render_page *p)
{
    char what[STORY_TEXT];
    if (!*story_text(story_get(p->story, "machine"), "text", what))
        return;
    vt_buf_putc(p->b, '\n');
    size_t start = p->b->len;
    vt_text_ink(p->b, p->term, VT_INK_BOLD, "MACHINE");
    vt_text_pad(p->b, start, 9);
    vt_text_wrap(p->b, what, 9, render_width(p));
    vt_buf_putc(p->b, '\n');
    energy(p);
}

/* A lane's values, as a sparkline from 0 to the largest one. */
static void lane_line(render_page *p, const json_t *lane)
{
    enum { NAME = 9, SCALE = 18, MOST = 512 };
    char name[STORY_TEXT], tag[STORY_TEXT], what[STORY_TEXT];
    double v[MOST], most = 0;
    int32_t n = 0, cells = render_width(p) >= 100 ? 24 : 16;
    size_t k;
    json_t *x;
    json_array_foreach(story_get(lane, "values"), k, x)
    {
        if (n == MOST)
            break;
        v[n] = json_is_number(x) ? json_number_value(x) : NAN;
        most = v[n] > most ? v[n] : most;
        n++;
    }
    size_t start = p->b->len;
    vt_buf_printf(p->b, " %.16s", story_text(lane, "name", name));
    vt_text_pad(p->b, start, NAME);
    vt_text_spark(p->b, v, n, cells);
    vt_text_pad(p->b, start, NAME + cells);
    vt_buf_printf(p->b, "  0 to %.1f %%", fmin(100 * most, 1e9));
    vt_text_pad(p->b, start, NAME + cells + SCALE);
    vt_buf note = {0};
    vt_buf_printf(&note, "%s [%s]", story_text(lane, "what", what),
                  render_tag(p, NULL) ? "n/a" : story_text(lane, "tag", tag));
    vt_text_wrap(p->b, note.data ? note.data : "", NAME + cells + SCALE, render_width(p));
    vt_buf_putc(p->b, '\n');
    vt_buf_release(&note);
}

static void lanes(render_page *p)
{
    size_t i;
    json_t *lane;
    const json_t *items = story_get(story_get(p->story, "lanes"), "items");
    if (json_array_size(items) == 0)
        return;
    render_heading(p, "LANES", "[shares, from the first step to the last]");
    json_array_foreach(items, i, lane)
    {
        if (i < STORY_ROWS)
            lane_line(p, lane);
    }
}

/* The head, what the machine did, and the timeline or the batch. */
static void beginning(render_page *p)
{
    title(p);
    machine(p);
    if (json_array_size(story_get(p->story, "timeline")) > 0)
        render_time(p);
    if (!json_is_object(story_get(p->story, "request")))
        render_batch(p);
}

vt_status story_render_short(const char *name, const char *json, size_t len, const vt_term *term,
                             vt_buf *out, vt_err *err)
{
    json_t *story = NULL;
    TRY(story_load(name, json, len, &story, err));
    render_page p = {out, term, story};
    beginning(&p);
    findings(&p);
    json_decref(story);
    return out->failed ? vt_fail(err, VT_ERR_MEMORY, "out of memory for a story") : VT_OK;
}

vt_status story_render(const char *name, const char *json, size_t len, const vt_term *term,
                       vt_buf *out, vt_err *err)
{
    json_t *story = NULL;
    TRY(story_load(name, json, len, &story, err));
    render_page p = {out, term, story};
    beginning(&p);
    const json_t *decode = story_phase_named(story, "decode"),
                 *phase = decode ? decode : story_phase_named(story, "prefill");
    render_step(&p, phase, decode ? "ONE DECODE STEP, op by op" : "ONE PREFILL STEP, op by op");
    render_slow(&p);
    render_cuts(&p, phase);
    render_layer(&p);
    render_kernels(&p, phase);
    render_gpu(&p);
    memory(&p);
    threads(&p);
    lanes(&p);
    findings(&p);
    not_measured(&p);
    observer(&p);
    json_decref(story);
    return out->failed ? vt_fail(err, VT_ERR_MEMORY, "out of memory for a story") : VT_OK;
}
