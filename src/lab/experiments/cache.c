/* Experiment 6: the prefix cache, seen by a client. */
#include <math.h>

#include "base/err.h"
#include "base/stats.h"
#include "lab/experiments/experiments.h"

static void put(json_t *o, const char *key, double v)
{
    json_object_set_new(o, key, isfinite(v) ? json_real(v) : json_null());
}

static double ttft_of(const vt_load_result *r)
{
    return (double)(r->first_ns - r->begin_ns) * 1e-9;
}

enum { PREFIXES = 3, SHARING = 9 };

/* Mean and noise of some first tokens. */
static double mean_ttft(const vt_load_result *r, int n, double *noise)
{
    double sum = 0, each[SHARING];
    for (int i = 0; i < n; i++) {
        each[i] = ttft_of(&r[i]);
        sum += each[i];
    }
    *noise = vt_noise(each, (size_t)n);
    return sum / n;
}

/* Three prefixes of 512 tokens in turn, each three times, one request after the other: the first of
 * each prefix computes it, the later ones find it. */
static vt_status sharing(lab *l, const lab_server *s, json_t *file, vt_err *err)
{
    lab_answers a;
    lab_knob k = {.name = "a prefix in the cache",
                  .where = "--no-prefix-cache",
                  .what = "first token, 512 of the prompt's tokens shared",
                  .why = "tokens that are found are not computed; what remains is the rest of the "
                         "prompt, and what a step costs that has few tokens"};
    lab_load load = {SHARING, 1, 16, 4, 1, 512, PREFIXES, 6001};
    lab_predict(l, "speed-up of a hit", (load.input + 512.0) / load.input, VT_RATIO,
                "a prompt's 528 tokens over the 16 that its prefix does not hold; each token costs "
                "the same, and the chat template's are not counted");
    TRY(lab_load_run(l, s, &load, &a, err));
    const vt_load_result *hit = &a.result[PREFIXES];
    double first = mean_ttft(a.result, PREFIXES, &k.before_noise),
           later = mean_ttft(hit, SHARING - PREFIXES, &k.after_noise);
    lab_check(l, hit->cached >= 500,
              "a later request finds %d tokens in the cache, the 512 shared ones among them",
              hit->cached);
    lab_item(l, "sharing",
             "first token of the first request of a prefix after %.1f ms, of the later ones after "
             "%.1f ms: %.2f times as fast",
             first * 1e3, later * 1e3, first / later);
    lab_item(l, "access",
             "a hit computes %d of %d prompt tokens; the K and V of the other %d are read from "
             "pages that are there, which decode would read anyway",
             hit->prompt - hit->cached, hit->prompt, hit->cached);
    put(file, "first_ttft_ms", first * 1e3);
    put(file, "later_ttft_ms", later * 1e3);
    put(file, "hit_speedup", first / later);
    k.gain = (double)hit->prompt / (hit->prompt - hit->cached);
    k.before_s = first;
    k.after_s = later;
    lab_outcome(l, "speed-up of a hit", first / later, false);
    lab_turn(l, &k);
    lab_answers_release(&a);
    return VT_OK;
}

static vt_status lengths(lab *l, const lab_server *s, json_t *file, vt_err *err)
{
    static const int32_t shared[] = {64, 256, 1024};
    json_t *rows = json_array();
    json_object_set_new(file, "by_length", rows);
    lab_table(l, "length", "first token, without and with the prefix in the cache",
              ">prefix tokens|>miss|>hit|>gain");
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++) {
        lab_answers a;
        lab_load load = {2, 1, 16, 2, 1, shared[i], 1, 6100 + i};
        TRY(lab_load_run(l, s, &load, &a, err));
        double miss = ttft_of(&a.result[0]), hit = ttft_of(&a.result[1]);
        lab_cells(l, "%f|%f s|%f s|%f ratio", (double)shared[i], miss, hit, miss / hit);
        json_t *o = json_object();
        put(o, "prefix_tokens", shared[i]);
        put(o, "miss_ttft_ms", miss * 1e3);
        put(o, "hit_ttft_ms", hit * 1e3);
        json_array_append_new(rows, o);
        lab_answers_release(&a);
    }
    return VT_OK;
}

/* Eight requests at once on a prefix that is not there yet: one computes it, the others wait for
 * its pages. */
static vt_status concurrent(lab *l, const lab_server *s, json_t *file, vt_err *err)
{
    lab_answers one, many;
    lab_load load = {8, 1, 16, 4, 1, 512, 1, 6201};
    TRY(lab_load_run(l, s, &load, &one, err));
    load.concurrency = 8;
    load.seed = 6202;
    vt_status status = lab_load_run(l, s, &load, &many, err);
    if (status == VT_OK) {
        double gain = one.sum.wall_s / many.sum.wall_s;
        lab_check(l, many.sum.cached_tokens >= 7 * 500,
                  "of 8 requests at once 7 find the prefix: %lld tokens cached",
                  (long long)many.sum.cached_tokens);
        lab_item(l, "concurrent",
                 "8 requests one after the other take %.2f s, at once %.2f s: %.2f times as fast; "
                 "the prefix is computed once",
                 one.sum.wall_s, many.sum.wall_s, gain);
        put(file, "concurrent_gain", gain);
        lab_answers_release(&many);
    }
    lab_answers_release(&one);
    return status;
}

/* On a GPU the KV pool begins small, and memory is added by another thread while it fills. Requests
 * that come faster than that evict the cache, so the pool is made to grow first. */
static vt_status grow_pool(lab *l, const lab_server *s, vt_err *err)
{
    lab_answers a;
    TRY(lab_load_run(l, s, &(lab_load){10, 1, 16, 2, 1, 700, 10, 6302}, &a, err));
    lab_answers_release(&a);
    return VT_OK;
}

/* Three prefixes in turn, then the first again, in room for little more than one. */
static vt_status eviction(lab *l, json_t *file, vt_err *err)
{
    lab_server s;
    lab_answers a;
    int32_t cached[2] = {0, 0};
    const char *const tight[] = {"--max-context", "1024", "--kv-memory",
                                 l->ordinal >= 0 ? "192M" : "40M", NULL},
                      *const roomy[] = {"--max-context", "1024", "--kv-memory", "1G", NULL};
    lab_load load = {4, 1, 16, 2, 1, 700, 3, 6301};
    for (int i = 0; i < 2; i++) {
        TRY(lab_server_start_with_log(l, i == 0 ? roomy : tight,
                                      i == 0 ? "server_roomy.log" : "server_tight.log", &s, err));
        vt_status status = i == 0 && l->ordinal >= 0 ? grow_pool(l, &s, err) : VT_OK;
        if (status == VT_OK)
            status = lab_load_run(l, &s, &load, &a, err);
        lab_server_stop(&s);
        if (status != VT_OK)
            return status;
        cached[i] = a.result[3].cached;
        lab_answers_release(&a);
    }
    lab_file(l, "server_roomy.log", "what the server with room for all said");
    lab_file(l, "server_tight.log", "what the server with little memory said");
    lab_check(l, cached[0] >= 640,
              "with room for all, the first prefix is found again: %d tokens, "
              "expected its whole pages, of 64 tokens at most",
              cached[0]);
    lab_check(l, cached[1] < cached[0], "with %s of KV memory %d of them are left", tight[3],
              cached[1]);
    lab_item(
        l, "eviction",
        "three prefixes of 700 tokens in turn, then the first again: %d tokens found with room "
        "for all; with %s of KV memory %d, because the pages used longest ago were evicted for "
        "the others",
        cached[0], tight[3], cached[1]);
    put(file, "found_with_room", cached[0]);
    put(file, "found_under_pressure", cached[1]);
    return VT_OK;
}

static vt_status run(lab *l, vt_err *err)
{
    lab_server s;
    bool own;
    TRY(lab_server_borrow(l, NULL, &s, &own, err));
    json_t *file = json_object();
    vt_status status = sharing(l, &s, file, err);
    if (status == VT_OK)
        status = lengths(l, &s, file, err);
    if (status == VT_OK)
        status = concurrent(l, &s, file, err);
    if (status == VT_OK)
        lab_draw_server(l, &s);
    if (own)
        lab_server_stop(&s);
    if (status == VT_OK)
        status = eviction(l, file, err);
    if (status == VT_OK)
        status = lab_write_json(l, "radix_cache_results.json", file, "all four measurements", err);
    json_decref(file);
    return status;
}

const lab_def lab_experiment_6 = {
    .track = LAB_EXPERIMENTS,
    .number = "6",
    .name = "radix_cache_analysis",
    .goal = "what a prefix cache brings, and when it forgets",
    .about = {"Requests share the beginning of their prompts: one after the other, at once, with "
              "longer prefixes, and in too little memory."},
    .alias = {"06_radix_cache_analysis.py"},
    .items = {{"sharing", "requests that share a prefix, first and later", false},
              {"length", "gain by the length of the prefix", false},
              {"concurrent", "requests at once that share a prefix", false},
              {"eviction", "a prefix that comes back after others", false},
              {"access", "what a hit reads and what a miss computes", true},
              {"flame", "where the time of the server's steps went, drawn", false},
              {"over_time", "memory and units over time, drawn", true}},
    .run = run};
