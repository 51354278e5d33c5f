/* A full forward pass in lab 06 of the track mini-sglang: one request through the engine, its
 * timeline, every kernel of its steps, and what overlapping the engine's own work with the device
 * brings. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/stats.h"
#include "lab/mini_sglang/mini_sglang.h"
#include "lab/sglang/counted.h"
#include "lab/sglang/waits.h"
#include "story/forms.h"
#include "story/read.h"

enum { PROMPT = 128, GENERATED = 33 };

static double member(const json_t *o, const char *key, double scale)
{
    return story_num(o, key) * scale;
}

static void put_ops(lab *l, const json_t *story, const char *phase)
{
    const json_t *ops = story_get(story_phase_named(story, phase), "ops"), *op;
    char kind[STORY_TEXT], impl[STORY_TEXT], bound[STORY_TEXT];
    size_t i;
    json_array_foreach(ops, i, op) lab_cells(
        l, "%s|%s|%s|%.0f|%f s|%f s|%f share|%f share|%s", phase, story_text(op, "kind", kind),
        story_text(op, "impl", impl), story_num(op, "calls"), member(op, "expected_us", 1e-6),
        member(op, "time_us", 1e-6), story_num(op, "share"), sglang_of_roof(op),
        story_text(op, "bound", bound));
}

static void put_moment(vt_buf *b, double at_s, const char *branch, const char *name, double took_s,
                       const char *text)
{
    enum { COLUMN = 38 };
    size_t start = b->len;
    vt_buf_printf(b, "%10s  %s %-10.10s %10s", vt_figure_of(at_s, VT_SECONDS).text, branch, name,
                  isfinite(took_s) ? vt_figure_of(took_s, VT_SECONDS).text : "");
    vt_text_pad(b, start, COLUMN);
    vt_text_wrap(b, text, COLUMN, VT_TERM_WIDTH - 4);
    vt_buf_putc(b, '\n');
}

/* From arrival to the last token, each event at its time, and what lies between them. */
static void draw_timeline(lab *l, const json_t *story)
{
    const json_t *list = story_get(story, "timeline"), *e;
    char name[STORY_TEXT], text[STORY_TEXT];
    vt_buf b = {0};
    size_t i, n = json_array_size(list);
    json_array_foreach(list, i, e)
    {
        bool transition = strcmp(story_text(e, "event", name), "transition") == 0;
        bool phase = strcmp(name, "prefill") == 0 || strcmp(name, "decode") == 0;
        for (char *c = name; phase && *c; c++)
            *c = (char)(*c - 'a' + 'A');
        sglang_gap gap = sglang_gap_before(story, i);
        if (gap.ms > 0)
            put_moment(&b, gap.at_ms * 1e-3, "├─", "gap", gap.ms * 1e-3, gap.why);
        put_moment(&b, story_num(e, "at_ms") * 1e-3,
                   transition   ? "╞═"
                   : i + 1 == n ? "└─"
                   : i          ? "├─"
                                : "┌─",
                   name, story_num(e, "ms") * 1e-3, story_text(e, "text", text));
    }
    lab_drawing(l, "timeline", "one request, from its arrival to its last token", &b);
    vt_buf_release(&b);
}

static const char step_time[] = "time of a decode step of the engine";

static const char *const settings_of_pass[] = {"max-context", "512", "kv-memory", "64M", NULL};

vt_status mini_forward_predict(lab *l, vt_err *err)
{
    sglang_cost cost;
    vt_engine *e;
    story_seq seq = {.q_len = 1, .kv_len = PROMPT + GENERATED / 2, .n_rows = 1};
    TRY(lab_engine_open(l, settings_of_pass, &e, err));
    vt_status status = sglang_cost_step(l, e, &seq, 1, true, &cost, err);
    vt_engine_free(e);
    TRY(status);
    lab_predict(l, step_time, sglang_best_s(&cost), VT_SECONDS,
                "each call's launch, and its work at the efficiency that its row was measured to "
                "have alone");
    return VT_OK;
}

/* The decode step beside what the roofs and the rows' efficiencies say. */
static void tell_step(lab *l, const json_t *story)
{
    const json_t *decode = story_phase_named(story, "decode");
    double expected = member(decode, "expected_us", 1e-6), step = sglang_step_s(story),
           timed = member(decode, "step_us", 1e-6);
    char watched[160] = "";
    if (fabs(timed - step) > 0.02 * step)
        snprintf(watched, sizeof watched,
                 "; the steps whose calls were timed take %s, and the table of kernels is theirs",
                 vt_figure_of(timed, VT_SECONDS).text);
    lab_outcome(l, step_time, step, sglang_disturbed(story, "decode"));
    lab_item(l, "step",
             "a decode step takes %f s; no machine with these roofs does it in less than %f s, and "
             "%f s was expected; %.1f %% of it lies outside all calls%s",
             step, member(decode, "floor_us", 1e-6), expected,
             100 * story_num(decode, "unexplained"), watched);
}

static vt_status write_timeline(lab *l, const json_t *story, vt_err *err)
{
    vt_buf b = {0};
    char *text = json_dumps(story, JSON_COMPACT);
    if (!text)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for the story");
    vt_status status = story_export(&(story_file){"the story", text, strlen(text)}, "chrome", &b,
                                    err);
    if (status == VT_OK)
        status = mini_write_file(l, "timeline.json", "the request as a trace for Perfetto's page",
                                 &b, err);
    if (status == VT_OK)
        lab_item(l, "trace",
                 "timeline.json has %zu bytes in Chrome's form; ui.perfetto.dev opens it", b.len);
    vt_buf_release(&b);
    free(text);
    return status;
}

static vt_status read_pass(lab *l, vt_engine *e, json_t **story, vt_err *err)
{
    int32_t prompt[PROMPT];
    lab_request r = {.prompt = prompt, .n_prompt = PROMPT, .n_gen = GENERATED};
    lab_random_prompt(l, 11, prompt, PROMPT);
    TRY(lab_engine_warm(l, e, err));
    vt_status status = lab_requests_run(l, e, &r, 1, err);
    if (status == VT_OK) {
        lab_check(l, r.n_tokens == r.n_gen && !r.error,
                  "the request generated %d tokens (expected "
                  "%d)",
                  r.n_tokens, r.n_gen);
        status = lab_story(l, e, r.id, story, err);
    }
    lab_request_release(&r);
    return status;
}

/* Seconds from token to token over three requests: their median and noise. */
static vt_status token_times(lab *l, bool overlap, double *median, double *noise, vt_err *err)
{
    enum { TIMES = 3 };
    vt_engine *e;
    double s[TIMES] = {0};
    int32_t prompt[PROMPT];
    const char *const settings[] = {
        "max-context", "512", "kv-memory", "64M", "no-overlap", overlap ? "false" : "true", NULL};
    vt_status status = VT_OK;
    TRY(lab_engine_open(l, settings, &e, err));
    for (int i = 0; i < TIMES && status == VT_OK; i++) {
        lab_request r = {.prompt = prompt, .n_prompt = PROMPT, .n_gen = GENERATED};
        lab_random_prompt(l, 20 + (uint64_t)i, prompt, PROMPT);
        status = lab_requests_run(l, e, &r, 1, err);
        if (status == VT_OK && r.n_tokens > 1)
            s[i] = (r.token_s[r.n_tokens - 1] - r.token_s[0]) / (r.n_tokens - 1);
        lab_request_release(&r);
    }
    vt_engine_free(e);
    *median = vt_median(s, TIMES);
    *noise = vt_noise(s, TIMES);
    return status;
}

/* The engine's own work runs beside the step before; without overlap it runs between steps. */
static vt_status turn_overlap(lab *l, const json_t *story, vt_err *err)
{
    const json_t *decode = story_phase_named(story, "decode"),
                 *each = story_get(decode, "per_step");
    double step = sglang_step_s(story),
           hidden = (story_num(each, "schedule_us") + story_num(each, "prepare_us")) * 1e-6;
    lab_knob k = {.name = "no overlap",
                  .where = "--no-overlap",
                  .what = "seconds from token to token, one request",
                  .gain = step / (step + hidden),
                  .why = "planning runs beside the step; it takes microseconds, so there is little "
                         "to hide"};
    TRY(token_times(l, true, &k.before_s, &k.before_noise, err));
    TRY(token_times(l, false, &k.after_s, &k.after_noise, err));
    lab_turn(l, &k);
    return VT_OK;
}

vt_status mini_forward(lab *l, vt_err *err)
{
    vt_engine *e;
    json_t *story = NULL;
    TRY(lab_engine_open(l, settings_of_pass, &e, err));
    vt_status status = read_pass(l, e, &story, err);
    vt_engine_free(e);
    TRY(status);
    lab_table(l, "kernels", "every kernel of the pass, the longest first: sums over a step",
              "phase|call|row|>calls|>expected|>time|>share|>of roof|bound");
    put_ops(l, story, "prefill");
    put_ops(l, story, "decode");
    draw_timeline(l, story);
    tell_step(l, story);
    if (lab_flag(l, "timeline") || lab_flag(l, "all"))
        status = write_timeline(l, story, err);
    else
        lab_missing(l, "trace", "--timeline was not given: it writes timeline.json");
    if (status == VT_OK)
        status = turn_overlap(l, story, err);
    if (status == VT_OK)
        status = mini_turn_engine(l, story, err);
    if (status == VT_OK) {
        sglang_counted(l, PROMPT);
        sglang_waits(l, story, PROMPT);
    }
    json_decref(story);
    return status;
}
