/* Experiment 3: where a request's time goes, and what a batch and a cached prefix do to it. */
#include <math.h>

#include "base/err.h"
#include "lab/experiments/experiments.h"
#include "lab/sglang/inside.h"
#include "story/read.h"

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
        lab_cells(l, "%s|%f s|%f share", what[i], ms * 1e-3, ms / total);
        json_object_set_new(o, part[i], isfinite(ms) ? json_real(ms) : json_null());
    }
    json_object_set_new(file, "breakdown", o);
    const json_t *decode = story_phase_named(story, "decode"),
                 *top = json_array_get(story_get(decode, "ops"), 0);
    char kind[STORY_TEXT], bound[STORY_TEXT];
    if (top && isfinite(sglang_of_roof(top)))
        lab_item(l, "hardware", "%s takes %.0f %% of a decode step, at %.0f %% of its %s roof",
                 story_text(top, "kind", kind), 100 * story_num(top, "share"),
                 100 * sglang_of_roof(top), story_text(top, "bound", bound));
    else if (top)
        lab_item(l, "hardware", "%s takes %.0f %% of a decode step, beside its neighbours",
                 story_text(top, "kind", kind), 100 * story_num(top, "share"));
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
    TRY(lab_newest_story(s, &story, err));
    tell_breakdown(l, story, file);
    json_decref(story);
    return VT_OK;
}

static void put_number(json_t *o, const char *key, double v)
{
    json_object_set_new(o, key, isfinite(v) ? json_real(v) : json_null());
}

static void batch_row(lab *l, json_t *rows, int32_t at_once, const vt_load_summary *m, double alone)
{
    json_t *o = json_object();
    lab_cells(l, "%f|%f s|%f tokens/s|%f ratio", (double)at_once, m->wall_s, m->output_tokens_per_s,
              alone / m->wall_s);
    put_number(o, "at_once", at_once);
    put_number(o, "wall_s", m->wall_s);
    put_number(o, "output_tokens_per_s", m->output_tokens_per_s);
    json_array_append_new(rows, o);
}

/* Before the first request: what 8 requests at once gain, from bytes. */
static vt_status predict_batches(lab *l, const lab_server *s, double *gain, vt_err *err)
{
    lab_server_memory memory;
    double generated = (double)lab_int(l, "gen", 16, 48);
    TRY(lab_server_memory_of(s, &memory, err));
    *gain = lab_batch_gain(&memory, 8, 32 + generated / 2);
    lab_predict(l, "gain of 8 requests at once", *gain, VT_RATIO,
                "bytes of 8 decode steps of one sequence over those of one step of 8");
    return VT_OK;
}

static vt_status batches(lab *l, const lab_server *s, double gain, json_t *file, vt_err *err)
{
    static const int32_t at_once[] = {1, 2, 4, 8};
    enum { N = sizeof at_once / sizeof *at_once };
    lab_load load = {.n = 8, .input = 32, .output = (int32_t)lab_int(l, "gen", 16, 48), .turns = 1};
    lab_knob k = {.name = "8 requests at once",
                  .gain = gain,
                  .where = "of the clients",
                  .what = "8 requests, one after the other against all at once",
                  .why = "each step reads the weights once for all its sequences; prefill and "
                         "arithmetic do not shrink with the batch"};
    json_t *rows = json_array();
    json_object_set_new(file, "concurrency", rows);
    lab_table(l, "concurrency", "8 requests, by how many are open at once",
              ">at once|>all done after|>output tokens/s|>against 1");
    for (size_t i = 0; i < N; i++) {
        lab_answers a;
        load.concurrency = at_once[i];
        load.seed = 3100 + i;
        TRY(lab_load_run(l, s, &load, &a, err));
        k.before_s = i == 0 ? a.sum.wall_s : k.before_s;
        k.before_noise = i == 0 ? lab_answers_noise(&a) : k.before_noise;
        k.after_s = a.sum.wall_s;
        k.after_noise = lab_answers_noise(&a);
        batch_row(l, rows, at_once[i], &a.sum, k.before_s);
        lab_answers_release(&a);
    }
    lab_outcome(l, "gain of 8 requests at once", k.before_s / k.after_s, false);
    lab_turn(l, &k);
    return VT_OK;
}

/* Twice the same session: a plan of one group with one session each time has the same words.
 * Another session runs twice before: the first steps of both sizes, of a whole prompt and of a
 * cached one, cost more than those after them. */
static vt_status again(lab *l, const lab_server *s, json_t *file, vt_err *err)
{
    double ttft[2], cached[2];
    for (int i = 0; i < 4; i++) {
        lab_load load = {1, 1, 16, 8, 1, 400, 1, i < 2 ? 3199 : 3200};
        lab_answers a;
        TRY(lab_load_run(l, s, &load, &a, err));
        ttft[i % 2] = a.sum.ttft.p50;
        cached[i % 2] = (double)a.sum.cached_tokens;
        lab_answers_release(&a);
    }
    if (ttft[1] > 1.1 * ttft[0])
        lab_finding(l, "times.contradict",
                    "the same prompt again takes %.1f ms to its first token and took %.1f ms when "
                    "all of it was computed: fewer FLOPs cannot take longer, so the first of "
                    "these times holds something else, such as other programs",
                    ttft[1] * 1e3, ttft[0] * 1e3);
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
        lab_cells(l, "%f|%f s|%f", tokens, a.sum.ttft.p50, a.sum.ttft.p50 / tokens * 1e6);
        json_t *o = json_object();
        put_number(o, "prompt_tokens", tokens);
        put_number(o, "ttft_ms", a.sum.ttft.p50 * 1e3);
        json_array_append_new(rows, o);
        lab_answers_release(&a);
    }
    return VT_OK;
}

static vt_status measure(lab *l, const lab_server *s, vt_err *err)
{
    double gain;
    json_t *file = json_object();
    vt_status status = predict_batches(l, s, &gain, err);
    if (status == VT_OK)
        status = one_request(l, s, file, err);
    if (status == VT_OK)
        status = batches(l, s, gain, file, err);
    if (status == VT_OK)
        status = again(l, s, file, err);
    if (status == VT_OK)
        status = lengths(l, s, file, err);
    if (status == VT_OK)
        status = lab_write_json(l, "profiling_results.json", file, "all four measurements", err);
    json_decref(file);
    return status;
}

static vt_status run_profile(lab *l, vt_err *err) { return lab_server_with(l, measure, err); }

const lab_def lab_experiment_3 = {
    .track = LAB_EXPERIMENTS,
    .number = "3",
    .name = "profile_requests",
    .goal = "where a request's time goes, and what batching and caching do to it",
    .about = {"One request is told by the server's story; then several at once, the same prompt "
              "again, and longer prompts."},
    .alias = {"03_profile_with_torch.py", "03_profile_requests"},
    .knobs = {{"of the clients", LAB_LOAD}},
    .items = {{"breakdown", "latency of one request, part by part", false},
              {"concurrency", "what a batch brings", false},
              {"prefix", "the same prompt again", false},
              {"length", "time to the first token by prompt length", false},
              {"hardware", "which roof binds its decode steps", true},
              {"flame", "where the time of the server's steps went, drawn", false},
              {"over_time", "memory and units over time, drawn", true}},
    .run = run_profile};
