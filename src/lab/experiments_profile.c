/* Experiments 3 and 4: where a request's time goes, and the server's timeline. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "lab/experiments.h"
#include "story/forms.h"
#include "story/read.h"

static const char *const args[] = {"--quiet", NULL};

/* The story of the newest request that the server answered. */
static vt_status newest_story(const lab_server *s, json_t **out, vt_err *err)
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

/* ---- 3: one request, many, again, longer ---- */

static const lab_item_def profile_items[] = {
    {"breakdown", "latency of one request, part by part", false},
    {"concurrency", "what a batch brings", false},
    {"prefix", "the same prompt again", false},
    {"length", "time to the first token by prompt length", false},
    {"hardware", "which roof binds its decode steps", true},
    {NULL, NULL, false}};

static void tell_breakdown(lab *l, const json_t *story, json_t *file)
{
    static const char *const part[] = {"before_ms", "queue_ms", "steps_ms",
                                       "waits_ms",  "tail_ms",  "total_ms"};
    static const char *const what[] = {
        "before its submission", "in the queue",        "in steps",
        "between steps",         "after the last step", "from submission to end"};
    const json_t *q = story_get(story, "request");
    json_t *o = json_object();
    double total = story_num(q, "total_ms");
    lab_table(l, "breakdown", "one request, from the server's own story",
              "part|>time|>of the whole");
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        double ms = story_num(q, part[i]);
        lab_cell(l, "%s", what[i]);
        lab_cell_number(l, ms * 1e-3, LAB_SECONDS);
        lab_cell_number(l, ms / total, LAB_SHARE);
        json_object_set_new(o, part[i], isfinite(ms) ? json_real(ms) : json_null());
    }
    lab_table_end(l);
    json_object_set_new(file, "breakdown", o);
    const json_t *decode = story_phase_named(story, "decode"),
                 *top = json_array_get(story_get(decode, "ops"), 0);
    char kind[STORY_TEXT], bound[STORY_TEXT];
    if (top)
        lab_item(l, "hardware", "%s takes %.0f %% of a decode step, at %.0f %% of its %s roof",
                 story_text(top, "kind", kind), 100 * story_num(top, "share"),
                 100 * story_num(top, "of_roof"), story_text(top, "bound", bound));
    else
        lab_missing(l, "hardware", "no decode step of the request was timed call by call");
}

static vt_status one_request(lab *l, const lab_server *s, json_t *file, vt_err *err)
{
    lab_answers a;
    json_t *story = NULL;
    lab_load load = {1, 1, 64, (int32_t)lab_int(l, "gen", 24, 64), 1, 0, 1, 3001};
    TRY(lab_load_run(l, s, &load, &a, err));
    lab_answers_release(&a);
    TRY(newest_story(s, &story, err));
    tell_breakdown(l, story, file);
    json_decref(story);
    return VT_OK;
}

static void put_number(json_t *o, const char *key, double v)
{
    json_object_set_new(o, key, isfinite(v) ? json_real(v) : json_null());
}

static vt_status batches(lab *l, const lab_server *s, json_t *file, vt_err *err)
{
    static const int32_t at_once[] = {1, 2, 4, 8};
    json_t *rows = json_array();
    json_object_set_new(file, "concurrency", rows);
    lab_table(l, "concurrency", "8 requests, by how many are open at once",
              ">at once|>all done after|>output tokens/s|>against 1");
    double first = NAN;
    for (size_t i = 0; i < sizeof at_once / sizeof *at_once; i++) {
        lab_answers a;
        lab_load load = {8, at_once[i], 32, (int32_t)lab_int(l, "gen", 16, 48), 1, 0, 1, 3100 + i};
        TRY(lab_load_run(l, s, &load, &a, err));
        first = i == 0 ? a.sum.output_tokens_per_s : first;
        lab_cell_number(l, at_once[i], LAB_COUNT);
        lab_cell_number(l, a.sum.wall_s, LAB_SECONDS);
        lab_cell_number(l, a.sum.output_tokens_per_s, LAB_TOKENS_PER_S);
        lab_cell_number(l, a.sum.output_tokens_per_s / first, LAB_RATIO);
        json_t *o = json_object();
        put_number(o, "at_once", at_once[i]);
        put_number(o, "wall_s", a.sum.wall_s);
        put_number(o, "output_tokens_per_s", a.sum.output_tokens_per_s);
        json_array_append_new(rows, o);
        lab_answers_release(&a);
    }
    lab_table_end(l);
    return VT_OK;
}

/* Twice the same session: a plan of one group with one session each time has the same words. */
static vt_status again(lab *l, const lab_server *s, json_t *file, vt_err *err)
{
    double ttft[2], cached[2];
    lab_load load = {1, 1, 16, 8, 1, 400, 1, 3200};
    for (int i = 0; i < 2; i++) {
        lab_answers a;
        TRY(lab_load_run(l, s, &load, &a, err));
        ttft[i] = a.sum.ttft.p50;
        cached[i] = (double)a.sum.cached_tokens;
        lab_answers_release(&a);
    }
    lab_check(l, cached[1] > cached[0],
              "the second time %.0f prompt tokens come from the cache, "
              "the first time %.0f",
              cached[1], cached[0]);
    lab_item(l, "prefix",
             "first token after %.1f ms; the same prompt again: %.1f ms, %.2f times as fast, %.0f "
             "tokens found in the prefix cache",
             ttft[0] * 1e3, ttft[1] * 1e3, ttft[0] / ttft[1], cached[1]);
    json_t *o = json_object();
    put_number(o, "first_ttft_ms", ttft[0] * 1e3);
    put_number(o, "again_ttft_ms", ttft[1] * 1e3);
    put_number(o, "again_cached_tokens", cached[1]);
    json_object_set_new(file, "prefix", o);
    return VT_OK;
}

static vt_status lengths(lab *l, const lab_server *s, json_t *file, vt_err *err)
{
    static const int32_t input[] = {32, 128, 512, 1024};
    json_t *rows = json_array();
    int n = l->quick ? 3 : 4;
    json_object_set_new(file, "length", rows);
    lab_table(l, "length", "one request at a time", ">prompt tokens|>TTFT|>us a prompt token");
    for (int i = 0; i < n; i++) {
        lab_answers a;
        lab_load load = {1, 1, input[i], 4, 1, 0, 1, 3300 + (uint64_t)i};
        TRY(lab_load_run(l, s, &load, &a, err));
        double tokens = (double)a.sum.prompt_tokens;
        lab_cell_number(l, tokens, LAB_COUNT);
        lab_cell_number(l, a.sum.ttft.p50, LAB_SECONDS);
        lab_cell_number(l, a.sum.ttft.p50 / tokens * 1e6, LAB_COUNT);
        json_t *o = json_object();
        put_number(o, "prompt_tokens", tokens);
        put_number(o, "ttft_ms", a.sum.ttft.p50 * 1e3);
        json_array_append_new(rows, o);
        lab_answers_release(&a);
    }
    lab_table_end(l);
    return VT_OK;
}

static vt_status run_profile(lab *l, vt_err *err)
{
    lab_server s;
    bool own;
    TRY(lab_server_borrow(l, args, &s, &own, err));
    json_t *file = json_object();
    vt_status status = one_request(l, &s, file, err);
    if (status == VT_OK)
        status = batches(l, &s, file, err);
    if (status == VT_OK)
        status = again(l, &s, file, err);
    if (status == VT_OK)
        status = lengths(l, &s, file, err);
    if (status == VT_OK)
        status = lab_write_json(l, "profiling_results.json", file, "all four measurements", err);
    json_decref(file);
    if (own)
        lab_server_stop(&s);
    return status;
}

const lab_def lab_experiment_3 = {
    .track = LAB_EXPERIMENTS,
    .number = "3",
    .name = "profile_requests",
    .goal = "where a request's time goes, and what batching and caching do to it",
    .about = {"One request is told by the server's story; then several at once, the same prompt "
              "again, and longer prompts."},
    .alias = {"03_profile_with_torch.py", "03_profile_requests"},
    .items = profile_items,
    .run = run_profile};

/* ---- 4: the timeline ---- */

static const lab_item_def timeline_items[] = {
    {"kernels", "share of each kind of kernel", true},
    {"timeline", "the timeline as a file", false},
    {"overlap", "how much of the host's work the device hid", false},
    {"memory", "memory of the server", true},
    {"nsys", "the same seen by nsys", true},
    {NULL, NULL, false}};

/* Share, total ns, calls, mean ns, kernel: the columns of a profiler's summary. */
static vt_status write_kernels(lab *l, const json_t *story, vt_err *err)
{
    static const char *const name[] = {"prefill", "decode"};
    vt_buf text = {0};
    double all = 0;
    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1) {
            vt_buf_puts(&text, "  share %      total ns     calls      mean ns  kernel\n");
            lab_table(l, "kernels", "over the request", "kernel|>share|>time|>calls|>mean");
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
                       calls = story_num(op, "calls") * steps;
                if (!isfinite(us) || !isfinite(calls) || i >= STORY_ROWS)
                    continue;
                if (pass == 0) {
                    all += us;
                    continue;
                }
                vt_buf_printf(&text, "%9.2f  %12.0f  %8.0f  %11.0f  %s %s\n", 100 * us / all,
                              us * 1e3, calls, us * 1e3 / calls, name[k],
                              story_text(op, "kind", kind));
                lab_cell(l, "%s %s", name[k], kind);
                lab_cell_number(l, us / all, LAB_SHARE);
                lab_cell_number(l, us * 1e-6, LAB_SECONDS);
                lab_cell_number(l, calls, LAB_COUNT);
                lab_cell_number(l, us * 1e-6 / calls, LAB_SECONDS);
            }
        }
    }
    lab_table_end(l);
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
    vt_status status = story_export_chrome("story", text, strlen(text), &trace, err);
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

/* nsys wraps a run of its own: it cannot be attached to a server that runs already. */
static vt_status try_nsys(lab *l, vt_err *err)
{
    char path[PATH_MAX], out[PATH_MAX];
    int status = 0;
    vt_err why = {0};
    if (!lab_tool_find("nsys", path, sizeof path)) {
        lab_missing(l, "nsys", "nsys is not on PATH");
        return VT_OK;
    }
    if (!lab_flag(l, "nsys")) {
        lab_missing(l, "nsys", "nsys was not asked for; %s is there, --nsys runs it", path);
        return VT_OK;
    }
    snprintf(out, sizeof out, "%s/vitrine_benchmark", l->results);
    const char *const argv[] = {"nsys",     "profile", "--force-overwrite",
                                "true",     "-o",      out,
                                lab_self(), "bench",   "latency",
                                "-m",       l->model,  "--prompt",
                                "64",       "--gen",   "16",
                                "--reps",   "1",       "-q",
                                NULL};
    (void)err;
    if (lab_tool_run(l, argv, NULL, 300, &status, &why) != VT_OK || status != 0) {
        lab_missing(l, "nsys", "%s", why.message[0] ? why.message : "nsys ended with an error");
        return VT_OK;
    }
    lab_file(l, "vitrine_benchmark.nsys-rep", "opens in nsys-ui");
    lab_item(l, "nsys", "vitrine_benchmark.nsys-rep holds a run of bench latency under nsys");
    return VT_OK;
}

static vt_status run_timeline(lab *l, vt_err *err)
{
    lab_server s;
    bool own;
    lab_answers a;
    json_t *story = NULL;
    vt_buf memory = {0};
    lab_load load = {1, 1, 128, (int32_t)lab_int(l, "gen", 32, 128), 1, 0, 1, 4001};
    TRY(lab_server_borrow(l, args, &s, &own, err));
    double resident = lab_resident_bytes(s.pid);
    vt_status status = lab_load_run(l, &s, &load, &a, err);
    if (status == VT_OK)
        lab_answers_release(&a);
    if (status == VT_OK)
        status = newest_story(&s, &story, err);
    if (own)
        lab_server_stop(&s);
    if (status == VT_OK)
        status = write_kernels(l, story, err);
    if (status == VT_OK)
        status = write_timeline(l, story, err);
    if (status == VT_OK) {
        tell_overlap(l, story);
        lab_number(l, "memory", resident, LAB_BYTES, "measured", "resident");
        vt_buf_printf(&memory,
                      "server resident bytes %.0f\nKV pool bytes %.0f\nweights bytes %.0f\n",
                      resident, story_num(story_get(story, "memory"), "kv_pool_bytes"),
                      story_num(story_get(story, "memory"), "weight_bytes"));
        status = lab_write_text(l, "memory_summary.txt", &memory, "memory of the server", err);
        vt_buf_release(&memory);
    }
    if (status == VT_OK)
        status = try_nsys(l, err);
    json_decref(story);
    return status;
}

const lab_def lab_experiment_4 = {
    .track = LAB_EXPERIMENTS,
    .number = "4",
    .name = "timeline_profile",
    .goal = "the server's timeline: kernels, overlap, memory",
    .about =
        {"One request is answered, and its story written as a trace and as a summary of kernels."},
    .alias = {"04_nsys_profile.sh"},
    .items = timeline_items,
    .run = run_timeline};
