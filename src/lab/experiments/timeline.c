/* Experiment 4: the server's timeline, as a trace, as a summary of kernels, and under nsys. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/stats.h"
#include "lab/experiments/experiments.h"
#include "lab/profilers/nsys_run.h"
#include "lab/sglang/inside.h"
#include "story/forms.h"
#include "story/read.h"

vt_status lab_newest_story(const lab_server *s, json_t **out, vt_err *err)
{
    json_t *list = NULL;
    char path[64];
    TRY(lab_server_json(s, "/story", &list, err));
    const json_t *newest = json_array_get(json_object_get(list, "ended"), 0);
    json_int_t id = json_integer_value(json_object_get(newest, "story"));
    json_decref(list);
    if (id <= 0)
        return vt_fail(err, VT_ERR_FORMAT, "%s/story lists no request", s->url);
    snprintf(path, sizeof path, "/story/%lld", (long long)id);
    return lab_server_json(s, path, out, err);
}

/* Share, total ns, calls, mean ns, kernel: the columns of a profiler's summary. `story` is that of
 * the whole recording: on a GPU few steps are timed call by call, and a request may have none. */
static vt_status write_kernels(lab *l, const json_t *story, vt_err *err)
{
    static const char *const name[] = {"prefill", "decode"};
    vt_buf text = {0};
    double all = 0;
    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1) {
            vt_buf_puts(&text, "  share %      total ns     calls      mean ns  kernel\n");
            lab_table(l, "kernels", "over all steps that the server recorded",
                      "kernel|>share|>time|>calls|>mean");
        }
        for (int k = 0; k < 2; k++) {
            const json_t *p = story_phase_named(story, name[k]);
            double steps = story_num(p, "steps");
            size_t i;
            json_t *op;
            json_array_foreach(story_get(p, "ops"), i, op)
            {
                char kind[STORY_TEXT];
                double us = story_num(op, "time_us") * steps,
                       calls = round(story_num(op, "calls") * steps);
                if (!isfinite(us) || !(calls >= 1) || i >= STORY_ROWS)
                    continue;
                if (pass == 0) {
                    all += us;
                    continue;
                }
                vt_buf_printf(&text, "%9.2f  %12.0f  %8.0f  %11.0f  %s %s\n", 100 * us / all,
                              us * 1e3, calls, us * 1e3 / calls, name[k],
                              story_text(op, "kind", kind));
                lab_cells(l, "%s %s|%f share|%f s|%f|%f s", name[k], kind, us / all, us * 1e-6,
                          calls, us * 1e-6 / calls);
            }
        }
    }
    vt_status status = lab_write_text(l, "kernel_summary.txt", &text,
                                      "share, total, calls, mean of each kind of kernel", err);
    vt_buf_release(&text);
    return status;
}

static vt_status write_timeline(lab *l, const json_t *story, vt_err *err)
{
    vt_buf trace = {0};
    char *text = json_dumps(story, JSON_COMPACT);
    if (!text)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a timeline");
    vt_status status = story_export(&(story_file){"story", text, strlen(text)}, "chrome", &trace,
                                    err);
    free(text);
    if (status == VT_OK)
        status = lab_write_text(l, "timeline.json", &trace,
                                "opens in https://ui.perfetto.dev or chrome://tracing", err);
    if (status == VT_OK)
        lab_item(l, "timeline", "timeline.json, %zu KB: steps, calls, pages and lanes",
                 trace.len >> 10);
    vt_buf_release(&trace);
    return status;
}

static void tell_overlap(lab *l, const json_t *story)
{
    const json_t *per = story_get(story_phase_named(story, "decode"), "per_step");
    double schedule = story_num(per, "schedule_us"), hidden = story_num(per, "schedule_hidden"),
           publish = story_num(per, "publish_us"),
           publish_hidden = story_num(per, "publish_hidden");
    if (isfinite(schedule) && isfinite(publish))
        lab_item(l, "overlap",
                 "a decode step is planned in %.1f us, %.0f %% of it while the device works; its "
                 "tokens are published in %.1f us, %.0f %% hidden",
                 schedule, 100 * hidden, publish, 100 * publish_hidden);
    else
        lab_missing(l, "overlap", "the story has no decode step");
}

/* ---- overlap turned off ---- */

enum { ROUNDS = 2 };

/* The same requests on the server and on one that plans and publishes between its steps, in turn:
 * times[0] with overlap, times[1] without. */
static vt_status run_rounds(lab *l, const lab_server *s, const lab_server *apart,
                            double times[2][ROUNDS], vt_err *err)
{
    lab_load load = {.n = 2,
                     .concurrency = 1,
                     .input = 128,
                     .output = (int32_t)lab_int(l, "gen", 32, 128),
                     .turns = 1};
    for (int i = 0; i < ROUNDS; i++)
        for (int k = 1; k >= 0; k--) {
            lab_answers a;
            load.seed = 4001 + (uint64_t)i;
            TRY(lab_load_run(l, k == 1 ? apart : s, &load, &a, err));
            times[k][i] = a.sum.e2e.p50;
            lab_answers_release(&a);
        }
    return VT_OK;
}

static double mean(const double v[ROUNDS]) { return (v[0] + v[1]) / 2; }

static double noise(const double v[ROUNDS]) { return vt_noise((double[]){v[0], v[1]}, 2); }

static void turn_overlap(lab *l, const json_t *story, double times[2][ROUNDS])
{
    const json_t *decode = story_phase_named(story, "decode"), *per = story_get(decode, "per_step");
    double step_us = sglang_step_s(story) * 1e6,
           hidden_us = story_num(per, "schedule_us") * story_num(per, "schedule_hidden") +
                       story_num(per, "publish_us") * story_num(per, "publish_hidden");
    lab_turn(l, &(lab_knob){.name = "overlap",
                            .where = "--no-overlap",
                            .what = "a request, one at a time",
                            .gain = 1 + hidden_us / step_us,
                            .before_s = mean(times[1]),
                            .before_noise = noise(times[1]),
                            .after_s = mean(times[0]),
                            .after_noise = noise(times[0]),
                            .why = "overlap hides the planning of a step and the publishing of its "
                                   "tokens behind the device's work; what it can gain is their "
                                   "share of a step"});
}

/* ---- all ---- */

static vt_status tell_all(lab *l, const json_t *story, const json_t *all, vt_err *err)
{
    TRY(write_kernels(l, all, err));
    TRY(write_timeline(l, story, err));
    tell_overlap(l, story);
    lab_outcome(l, "a decode step", sglang_step_s(story), false);
    return lab_nsys(l, "timeline", err);
}

/* Before the requests: what the server's weights promise. */
static vt_status predict_step(lab *l, const lab_server *s, vt_err *err)
{
    lab_server_memory m;
    double tokens = 128 + (double)lab_int(l, "gen", 32, 128) / 2,
           roof = l->roofs.memory_bytes_per_s;
    TRY(lab_server_memory_of(s, &m, err));
    lab_predict(l, "a decode step", roof > 0 ? lab_step_bytes(&m, 1, tokens) / roof : NAN,
                VT_SECONDS,
                "weights, and K and V of the request's tokens, at the measured memory roof: the "
                "least");
    return VT_OK;
}

/* Tells what the server holds after the requests. */
static vt_status tell_memory(lab *l, const lab_server *s, vt_err *err)
{
    lab_server_memory m;
    TRY(lab_server_memory_of(s, &m, err));
    lab_number(l, "memory", lab_resident_bytes(s->pid), VT_BYTES, "measured", "resident");
    return lab_write_memory(l, s, &m, err);
}

/* Everything that needs the two servers. */
static vt_status measure(lab *l, const lab_server *s, double times[2][ROUNDS], json_t **story,
                         json_t **all, vt_err *err)
{
    static const char *const off[] = {"--no-overlap",  "--kv-memory", "1G",
                                      "--max-context", "2048",        NULL};
    lab_server apart;
    TRY(predict_step(l, s, err));
    TRY(lab_server_start_with_log(l, off, "server_no_overlap.log", &apart, err));
    vt_status status = run_rounds(l, s, &apart, times, err);
    lab_server_stop(&apart);
    lab_file(l, "server_no_overlap.log", "what the second server said");
    if (status == VT_OK)
        status = tell_memory(l, s, err);
    if (status == VT_OK)
        status = lab_server_json(s, "/story/0", all, err);
    return status == VT_OK ? lab_newest_story(s, story, err) : status;
}

static vt_status run_timeline(lab *l, vt_err *err)
{
    lab_server s;
    bool own;
    double times[2][ROUNDS];
    json_t *story = NULL, *all = NULL;
    TRY(lab_server_borrow(l, NULL, &s, &own, err));
    vt_status status = measure(l, &s, times, &story, &all, err);
    if (status == VT_OK)
        lab_draw_server(l, &s);
    if (own)
        lab_server_stop(&s);
    if (status == VT_OK)
        status = tell_all(l, story, all, err);
    if (status == VT_OK)
        turn_overlap(l, story, times);
    json_decref(story);
    json_decref(all);
    return status;
}

const lab_def lab_experiment_4 = {
    .track = LAB_EXPERIMENTS,
    .number = "4",
    .name = "timeline_profile",
    .goal = "the server's timeline: kernels, overlap, memory",
    .about = {"Four requests are answered, and four more by a server without overlap, in turn; the",
              "story of the last one is written as a trace, and the kernels of all of them as a "
              "summary.",
              "--nsys runs a bench under nsys where that is installed."},
    .alias = {"04_nsys_profile.sh"},
    .knobs = {{"--no-overlap", LAB_RUNS, NULL, NULL,
               "the next step is planned while the device computes this one"}},
    .items = {{"kernels", "share of each kind of kernel", true},
              {"timeline", "the timeline as a file", false},
              {"overlap", "how much of the host's work the device hid", false},
              {"memory", "memory of the server", true},
              {"nsys", "the same seen by nsys", true},
              {"flame", "where the time of the server's steps went, drawn", false},
              {"over_time", "memory and units over time, drawn", true}},
    .run = run_timeline};
