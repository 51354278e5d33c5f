/* Lab sglang 01: one request step by step, then several at once.
 *
 *   alone      P prompt tokens, G generated          -> its story: events, ops, transition
 *   long       a long prompt                         -> decode steps at another context length
 *   together   N requests, at most C of them running -> composition of each step
 *
 * The slope of the time between tokens comes from the first two: both decode alone, at contexts far
 * apart, so that noise of single steps does not decide it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/stats.h"
#include "engine/engine.h"
#include "lab/report/causes.h"
#include "lab/sglang/counted.h"
#include "lab/sglang/waits.h"
#include "story/read.h"

typedef struct run_of {
    vt_engine *engine;
    int32_t prompt, gen, requests, concurrency, far; /* far: prompt tokens of the long request */
    lab_request alone, longer, *together;            /* [requests] */
    json_t *story, *far_story, *all;
    sglang_cost prefill, near_step, far_step; /* expected, before the run */
} run_of;

static void release(run_of *r)
{
    sglang_release(&r->alone, 1);
    sglang_release(&r->longer, 1);
    if (r->together)
        sglang_release(r->together, r->requests);
    free(r->together);
    json_decref(r->story);
    json_decref(r->far_story);
    json_decref(r->all);
    vt_engine_free(r->engine);
}

/* ---- before the run ---- */

static vt_status expect(lab *l, run_of *r, vt_err *err)
{
    story_seq step = {.q_len = 1, .kv_len = r->prompt + r->gen / 2, .n_rows = 1};
    TRY(sglang_cost_prompt(l, r->engine, r->prompt, 0, true, &r->prefill, err));
    TRY(sglang_cost_step(l, r->engine, &step, 1, true, &r->near_step, err));
    step.kv_len = r->far + r->gen / 2;
    TRY(sglang_cost_step(l, r->engine, &step, 1, false, &r->far_step, err));
    lab_predict(l, "a decode step", sglang_best_s(&r->near_step), VT_SECONDS,
                "bytes and FLOPs of every call at the share of its roof that the call's row "
                "reached when it was measured alone");
    lab_predict(l, "time to the first token", sglang_best_s(&r->prefill), VT_SECONDS,
                "the same, summed over the steps that compute the prompt");
    return VT_OK;
}

/* ---- the run ---- */

static vt_status run_together(lab *l, run_of *r, vt_err *err)
{
    r->together = calloc((size_t)r->requests, sizeof *r->together);
    if (!r->together)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for %d requests", r->requests);
    for (int32_t i = 0; i < r->requests; i++) {
        int32_t *ids = NULL, gen = r->gen / 2 + r->gen * (i % 3) / 4;
        TRY(sglang_prompt(l, 1000 + (uint64_t)i, NULL, 0, r->prompt, &ids, err));
        r->together[i] = (lab_request){
            .prompt = ids, .n_prompt = r->prompt, .n_gen = gen > 0 ? gen : 1};
    }
    return lab_requests_run(l, r->engine, r->together, r->requests, err);
}

static vt_status run_all(lab *l, run_of *r, vt_err *err)
{
    int32_t *ids = NULL;
    TRY(sglang_prompt(l, 1, NULL, 0, r->prompt, &ids, err));
    lab_note(l, "one request alone: %d tokens in, %d out", r->prompt, r->gen);
    r->alone = (lab_request){.prompt = ids, .n_prompt = r->prompt, .n_gen = r->gen};
    TRY(lab_requests_run(l, r->engine, &r->alone, 1, err));
    TRY(lab_story(l, r->engine, r->alone.id, &r->story, err));
    TRY(sglang_prompt(l, 2, NULL, 0, r->far, &ids, err));
    lab_note(l, "one with a longer prompt: %d tokens in", r->far);
    r->longer = (lab_request){.prompt = ids, .n_prompt = r->far, .n_gen = r->gen};
    TRY(lab_requests_run(l, r->engine, &r->longer, 1, err));
    TRY(lab_story(l, r->engine, r->longer.id, &r->far_story, err));
    lab_note(l, "%d requests, %d of them at once", r->requests, r->concurrency);
    TRY(run_together(l, r, err));
    return lab_story(l, r->engine, 0, &r->all, err);
}

/* ---- what is told: the process ---- */

/* Tokenising is timed on the text of the prompt; a model without a tokenizer has none. */
static void tell_tokenise(lab *l, const run_of *r)
{
    const vt_model *m = vt_engine_model(r->engine);
    char *text = NULL;
    size_t len = 0, n = 0;
    double s[7];
    vt_err why;
    if (vt_detokenize(m, r->alone.prompt, (size_t)r->prompt, &text, &len, &why) != VT_OK) {
        lab_missing(l, "tokenise", "%s has no tokenizer: the prompt was made of ids",
                    vt_model_name(m));
        return;
    }
    for (int i = 0; i < 7; i++) {
        int32_t *ids = NULL;
        int64_t begin = vt_now_ns();
        if (vt_tokenize(m, text, len, 0, &ids, &n, &why) != VT_OK)
            n = 0;
        s[i] = (double)(vt_now_ns() - begin) * 1e-9;
        vt_free(ids);
    }
    vt_free(text);
    double median = vt_median(s, 7);
    lab_item(l, "tokenise",
             "%zu bytes of text become %zu ids in %f s, %.3g million ids a second, on the CPU and "
             "before the request is submitted; that is %.2g %% of a decode step",
             len, n, median, (double)n / median * 1e-6,
             100 * median / (sglang_decode_median(r->story, "ms", 1) * 1e-3));
}

static void tell_plan(lab *l, const run_of *r)
{
    static const char *const part[] = {"schedule", "prepare", "publish"};
    static const char *const does[] = {"chooses the tokens of the next step",
                                       "fills in the step's arrays and plans",
                                       "hands out the tokens that the step made"};
    lab_table(l, "plan", "The engine's own work for a step; hidden: done while the device works",
              "phase|part|what it does|>a step|>hidden");
    for (int p = 0; p < 2; p++) {
        const char *name = p == 0 ? "prefill" : "decode";
        const json_t *per = story_get(story_phase_named(r->story, name), "per_step");
        for (int i = 0; i < 3 && per; i++) {
            char key[32];
            lab_cells(l, "%s|%s|%s", name, part[i], does[i]);
            snprintf(key, sizeof key, "%s_us", part[i]);
            lab_cell_number(l, story_num(per, key) * 1e-6, VT_SECONDS);
            snprintf(key, sizeof key, "%s_hidden", part[i]);
            lab_cell_number(l, story_num(per, key), VT_SHARE);
        }
    }
}

static void tell_match(lab *l, const run_of *r)
{
    char text[STORY_TEXT];
    double ms;
    if (sglang_event(r->story, "match", &ms, text))
        lab_item(l, "match", "in %f s: %s", ms * 1e-3, text);
    else
        lab_missing(l, "match", "the story has no look-up of this request");
}

static void tell_slope(lab *l, const run_of *r)
{
    double near_ms = sglang_decode_median(r->story, "ms", 1),
           far_ms = sglang_decode_median(r->far_story, "ms", 1),
           near_kv = sglang_decode_median(r->story, "kv", 1),
           far_kv = sglang_decode_median(r->far_story, "kv", 1);
    double hundreds = (far_kv - near_kv) / 100, slope = (far_ms - near_ms) * 1e-3 / hundreds;
    double bytes = (r->far_step.kv - r->near_step.kv) / ((double)(r->far - r->prompt) / 100);
    double explained = (r->far_step.floor_s - r->near_step.floor_s) /
                       ((double)(r->far - r->prompt) / 100);
    if (!isfinite(slope)) {
        lab_missing(l, "itl_slope", "no decode step of one of the two requests was recorded");
        return;
    }
    lab_item(l, "itl_slope",
             "between contexts of %.0f and %.0f tokens a decode step goes from %f s to %f s: %f s "
             "per 100 tokens. 100 tokens of K and V are %f B over all layers, which the measured "
             "roofs read in %f s%s",
             near_kv, far_kv, near_ms * 1e-3, far_ms * 1e-3, slope, bytes, explained,
             sglang_disturbed(r->story, "decode") || sglang_disturbed(r->far_story, "decode")
                 ? " (the machine was busy: the measured slope holds its waits)"
             : slope < 0 ? " (the growth is below the noise of a step)"
             : slope > 2 * explained
                 ? ". It grows by more, so attention of one sequence does not wait for these bytes "
                   "but computes: lab 05 has its share of the roofs"
             : slope < explained
                 ? ". It grows by less, so at the shorter context attention leaves more of the "
                   "device idle"
                 : "");
}

/* Sums of a set of requests: median time to the first token, median gap, tokens a second. */
static void put_latency(lab *l, const char *name, const lab_request *r, int32_t n)
{
    int32_t tokens = 0, gaps = 0;
    double end = 0, *ttft = calloc((size_t)n + 1, sizeof *ttft), *gap;
    for (int32_t i = 0; i < n; i++) {
        tokens += r[i].n_tokens;
        end = fmax(end, r[i].total_s);
    }
    gap = calloc((size_t)tokens + 1, sizeof *gap);
    for (int32_t i = 0; ttft && gap && i < n; i++) {
        ttft[i] = r[i].ttft_s;
        for (int32_t k = 1; k < r[i].n_tokens; k++)
            gap[gaps++] = r[i].token_s[k] - r[i].token_s[k - 1];
    }
    lab_cells(l, "%s|%d|%f s|%f s|%f s|%f tokens/s", name, n,
              ttft ? vt_median(ttft, (size_t)n) : NAN,
              ttft && gap ? vt_median(gap, (size_t)gaps) : NAN,
              gap ? vt_percentile(gap, (size_t)gaps, 0.99) : NAN, tokens / end);
    free(ttft);
    free(gap);
}

static void tell_process(lab *l, const run_of *r)
{
    vt_buf b = {0};
    tell_tokenise(l, r);
    tell_match(l, r);
    tell_plan(l, r);
    sglang_draw_timeline(&b, r->story);
    lab_drawing(l, "steps", "One request from arrival to its last token", &b);
    vt_buf_release(&b);
    sglang_table_ops(l, "prefill", "one step", story_phase_named(r->story, "prefill"), 8);
    sglang_table_ops(l, "layer_ops", "one step", story_phase_named(r->story, "decode"), 10);
    tell_slope(l, r);
    sglang_table_batch(l, "batch", "The whole recording: what each step computed", r->all, 24);
    lab_table(l, "latency", "Latency and throughput",
              "requests|>count|>TTFT median|>ITL median|>ITL p99|>output tokens/s");
    put_latency(l, "alone", &r->alone, 1);
    put_latency(l, "alone, long prompt", &r->longer, 1);
    put_latency(l, "together", r->together, r->requests);
}

/* ---- what is told: the hardware ---- */

static void put_shares(lab *l, const char *name, const json_t *side)
{
    static const char *const share[] = {"of_fp32", "of_bf16", "of_int8", "of_memory"};
    char impl[STORY_TEXT];
    lab_cells(l, "%s|%s|%.1f|%.2f", name, story_text(side, "impl", impl), story_num(side, "rows"),
              story_num(side, "flop_per_byte"));
    for (int i = 0; i < 4; i++)
        lab_cell_number(l, story_num(side, share[i]), VT_SHARE);
}

/* "memory" or the unit with the largest share. */
static const char *largest(const json_t *side)
{
    static const char *const share[] = {"of_memory", "of_fp32", "of_bf16", "of_int8"};
    static const char *const name[] = {"memory", "the fp32 unit", "the bf16 matrix unit",
                                       "the int8 unit"};
    int best = 0;
    for (int i = 1; i < 4; i++)
        if (story_num(side, share[i]) > story_num(side, share[best]))
            best = i;
    return name[best];
}

static void tell_hardware(lab *l, const run_of *r)
{
    const json_t *t = story_get(r->story, "transition"), *before = story_get(t, "before"),
                 *after = story_get(t, "after");
    char text[STORY_TEXT], was[2][STORY_TEXT], is[2][STORY_TEXT];
    if (!json_is_object(t)) {
        for (const char *const *k =
                 (const char *const[]){"transition", "phase_shares", "flips", NULL};
             *k; k++)
            lab_missing(l, *k, "the recording holds no timed step of one of the two phases");
        return;
    }
    lab_item(l, "transition", "attention goes from %s/%s, %.1f rows a step, to %s/%s, %.1f: %s",
             story_text(before, "attention", was[0]), story_text(before, "impl", was[1]),
             story_num(before, "rows"), story_text(after, "attention", is[0]),
             story_text(after, "impl", is[1]), story_num(after, "rows"),
             story_text(t, "reason", text));
    lab_table(l, "phase_shares", "Share of each measured roof that a step of the phase reaches",
              "phase|attention|>rows a step|>FLOP/byte|>fp32|>bf16|>int8|>memory");
    put_shares(l, "prefill", before);
    put_shares(l, "decode", after);
    bool same = strcmp(largest(before), largest(after)) == 0;
    lab_item(l, "flips",
             "a byte that is moved serves %.1f operations before the transition and %.1f after "
             "it, because a weight is read once a step whatever the number of tokens; the largest "
             "share %s%s%s%s",
             story_num(before, "flop_per_byte"), story_num(after, "flop_per_byte"),
             same ? "stays with " : "goes from ", largest(before), same ? "" : " to ",
             same ? "" : largest(after));
}

/* ---- knob ---- */

/* Running together instead of one after the other: the time for all output tokens. */
static vt_status turn_concurrency(lab *l, const run_of *r, vt_err *err)
{
    enum { MOST = 64 };
    story_seq seq[MOST];
    sglang_cost many;
    int32_t c = r->concurrency < MOST ? r->concurrency : MOST;
    for (int32_t i = 0; i < c; i++)
        seq[i] = (story_seq){.q_len = 1, .kv_len = r->prompt + r->gen / 2, .n_rows = 1};
    TRY(sglang_cost_step(l, r->engine, seq, c, false, &many, err));
    double one_s = sglang_decode_median(r->story, "ms", 1) * 1e-3,
           many_s = sglang_decode_median(r->all, "ms", c) * 1e-3 / c;
    lab_turn(l, &(lab_knob){.name = "decode together",
                            .where = "--max-running",
                            .what = "time of an output token of the batch",
                            .gain = c * r->near_step.floor_s / many.floor_s,
                            .before_s = one_s,
                            .before_noise = sglang_decode_noise(r->story, 1),
                            .after_s = many_s,
                            .after_noise = sglang_decode_noise(r->all, c),
                            .why = "the weights are read once a step for all sequences; only K "
                                   "and V are read for each"});
    return VT_OK;
}

static vt_status measure(lab *l, run_of *r, vt_err *err)
{
    r->prompt = (int32_t)lab_int(l, "prompt", 128, 512);
    r->gen = (int32_t)lab_int(l, "gen", 32, 128);
    r->requests = (int32_t)lab_int(l, "requests", 6, 16);
    r->concurrency = (int32_t)lab_int(l, "concurrency", 4, 8);
    TRY(sglang_open(l, NULL, r->concurrency, &r->engine, err));
    int32_t room = vt_engine_max_context(r->engine);
    if (r->prompt + r->gen > room)
        return vt_fail(err, VT_ERR_USAGE, "--prompt and --gen: %d tokens, expected at most %d",
                       r->prompt + r->gen, room);
    r->far = r->prompt + 1024 + r->gen <= room ? r->prompt + 1024 : room - r->gen;
    TRY(expect(l, r, err));
    TRY(run_all(l, r, err));
    lab_outcome(l, "a decode step", sglang_step_s(r->story), sglang_disturbed(r->story, "decode"));
    lab_outcome(l, "time to the first token", r->alone.ttft_s,
                sglang_disturbed(r->story, "prefill"));
    lab_tell_story_causes(l, r->story);
    int32_t short_of = 0;
    for (int32_t i = 0; i < r->requests; i++)
        short_of += r->together[i].n_tokens != r->together[i].n_gen || r->together[i].error;
    lab_check(l, r->alone.n_tokens == r->gen && short_of == 0,
              "every request got as many tokens as it asked for (%d of %d did not)", short_of,
              r->requests);
    tell_process(l, r);
    tell_hardware(l, r);
    sglang_counted(l, r->prompt);
    sglang_waits(l, r->story, r->prompt);
    return turn_concurrency(l, r, err);
}

static vt_status run(lab *l, vt_err *err)
{
    run_of r = {0};
    vt_status status = measure(l, &r, err);
    release(&r);
    return status;
}

const lab_def sglang_baseline = {
    .track = LAB_SGLANG,
    .number = "01",
    .name = "baseline_perf",
    .goal = "You can say what a request does step by step, what limits its prefill and what limits "
            "its decode.",
    .about = {"A request runs alone: its prompt in one or several steps, then a step a token.",
              "Prefill reads all weights once for many tokens; decode reads them for one.",
              "Then several requests run at once and share each reading of the weights."},
    .alias = {"01_baseline_perf.py"},
    .knobs = {{"--max-running", LAB_RUNS, LAB_STEP, NULL,
               "sequences decode together, so that a step reads the weights once for all of them"}},
    .items = {{"tokenise", "from text to ids: time and ids a second", false},
              {"match", "the look-up of the prompt in the prefix cache", false},
              {"plan",
               "what the engine's thread does for a step, and how much of it the device hides",
               false},
              {"steps", "the request's events in the order of time", false},
              {"prefill", "the prefill's ops", false},
              {"layer_ops", "a decode step's ops, a call being one layer's", false},
              {"itl_slope", "ITL slope per 100 KV tokens, beside what its bytes explain", false},
              {"batch", "batch composition step by step", false},
              {"transition", "prefill -> decode: what changes and why", false},
              {"latency", "TTFT, ITL and throughput, alone and together", false},
              {"phase_shares", "compute, matrix-unit and memory share of each phase", true},
              {"flips", "what flips at the transition", true},
              {"counted", "what the hardware did in each op, as its counters say", true},
              {"hardware", "a layer of each phase, call by call, with the hardware's state", true},
              {"waits", "each kernel of a step under ncu: its units, and why its warps wait",
               true}},
    .run = run,
};
