/* Experiment 6: the prefix cache, seen by a client. */
#include <math.h>
#include <stdio.h>

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

enum { LENGTHS = 3, OWN_TOKENS = 16 };

/* How much a run computes, by the tokens that requests share (--prompt): all else is in
 * proportion. */
typedef struct sizes {
    int32_t shared;           /* tokens of the prefix that requests have in common */
    int32_t lengths[LENGTHS]; /* of prefixes, one after the other */
    int32_t evicted;          /* tokens of each of three prefixes that do not fit together */
    char context[16], tight[16];
} sizes;

enum { PREFIXES = 3, SHARING = 9, AT_ONCE = 8, USUAL = 512, LEAST = 64, MOST = 2048 };

static vt_status sizes_of(const lab *l, sizes *z, vt_err *err)
{
    int64_t n = lab_int(l, "prompt", USUAL, USUAL);
    if (n < LEAST || n > MOST)
        return vt_fail(err, VT_ERR_USAGE,
                       "--prompt: %lld found, expected %d to %d tokens that requests share",
                       (long long)n, LEAST, MOST);
    *z = (sizes){.shared = (int32_t)n, .lengths = {(int32_t)n / 8, (int32_t)n / 2, (int32_t)n * 2}};
    bool gpu = l->ordinal >= 0; /* whose pool has a least size */
    int64_t of = gpu ? USUAL : n;
    z->evicted = (int32_t)(700 * of / USUAL);
    snprintf(z->context, sizeof z->context, "%lld", (long long)(1024 * of / USUAL));
    snprintf(z->tight, sizeof z->tight, "%lldK", (long long)(40960 * of / USUAL));
    if (gpu)
        snprintf(z->tight, sizeof z->tight, "192M");
    else if (of == USUAL)
        snprintf(z->tight, sizeof z->tight, "40M");
    return VT_OK;
}

/* Tokens of a prefix that may not be found: of a part of a page. */
#define PART_OF_A_PAGE 12

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

/* Prefixes in turn, each several times, one request after the other: the first of each prefix
 * computes it, the later ones find it. */
static vt_status sharing(lab *l, const lab_server *s, const sizes *z, json_t *file, vt_err *err)
{
    lab_answers a;
    char what[96], how[192];
    lab_knob k = {.name = "a prefix in the cache",
                  .where = "--no-prefix-cache",
                  .what = what,
                  .why = "tokens that are found are not computed; what remains is the rest of the "
                         "prompt, and what a step costs that has few tokens"};
    lab_load load = {SHARING, 1, OWN_TOKENS, 4, 1, z->shared, PREFIXES, 6001};
    snprintf(what, sizeof what, "first token, %d of the prompt's tokens shared", z->shared);
    snprintf(how, sizeof how,
             "a prompt's %d tokens over the %d that its prefix does not hold; each token costs the "
             "same, and the chat template's are not counted",
             z->shared + OWN_TOKENS, OWN_TOKENS);
    lab_predict(l, "speed-up of a hit", (z->shared + OWN_TOKENS) / (double)OWN_TOKENS, VT_RATIO,
                how);
    TRY(lab_load_run(l, s, &load, &a, err));
    const vt_load_result *hit = &a.result[PREFIXES];
    double first = mean_ttft(a.result, PREFIXES, &k.before_noise),
           later = mean_ttft(hit, SHARING - PREFIXES, &k.after_noise);
    lab_check(l, hit->cached >= z->shared - PART_OF_A_PAGE,
              "a later request finds %d tokens in the cache, the %d shared ones among them",
              hit->cached, z->shared);
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

static vt_status lengths(lab *l, const lab_server *s, const sizes *z, json_t *file, vt_err *err)
{
    const int32_t *shared = z->lengths;
    json_t *rows = json_array();
    json_object_set_new(file, "by_length", rows);
    lab_table(l, "length", "first token, without and with the prefix in the cache",
              ">prefix tokens|>miss|>hit|>gain");
    for (int i = 0; i < LENGTHS; i++) {
        lab_answers a;
        lab_load load = {2, 1, OWN_TOKENS, 2, 1, shared[i], 1, 6100 + (uint64_t)i};
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

/* Requests at once on a prefix that is not there yet: one computes it, the others wait for
 * its pages. */
static vt_status concurrent(lab *l, const lab_server *s, const sizes *z, json_t *file, vt_err *err)
{
    lab_answers one, many;
    lab_load load = {AT_ONCE, 1, OWN_TOKENS, 4, 1, z->shared, 1, 6201};
    TRY(lab_load_run(l, s, &load, &one, err));
    load.concurrency = AT_ONCE;
    load.seed = 6202;
    vt_status status = lab_load_run(l, s, &load, &many, err);
    if (status == VT_OK) {
        double gain = one.sum.wall_s / many.sum.wall_s;
        lab_check(l, many.sum.cached_tokens >= (AT_ONCE - 1) * (z->shared - PART_OF_A_PAGE),
                  "of %d requests at once %d find the prefix: %lld tokens cached", AT_ONCE,
                  AT_ONCE - 1, (long long)many.sum.cached_tokens);
        lab_item(l, "concurrent",
                 "%d requests one after the other take %.2f s, at once %.2f s: %.2f times as fast; "
                 "the prefix is computed once",
                 AT_ONCE, one.sum.wall_s, many.sum.wall_s, gain);
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
static vt_status eviction(lab *l, const sizes *z, json_t *file, vt_err *err)
{
    lab_server s;
    lab_answers a;
    int32_t cached[2] = {0, 0};
    const char *const tight[] = {"--max-context", z->context, "--kv-memory", z->tight, NULL},
                      *const roomy[] = {"--max-context", z->context, "--kv-memory", "1G", NULL};
    lab_load load = {4, 1, OWN_TOKENS, 2, 1, z->evicted, 3, 6301};
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
    lab_check(l, cached[0] >= z->evicted - 60,
              "with room for all, the first prefix is found "
              "again: %d tokens, "
              "expected its whole pages, of 64 tokens at most",
              cached[0]);
    lab_check(l, cached[1] < cached[0], "with %s of KV memory %d of them are left", tight[3],
              cached[1]);
    lab_item(l, "eviction",
             "three prefixes of %d tokens in turn, then the first "
             "again: %d tokens found with room "
             "for all; with %s of KV memory %d, because the pages "
             "used longest ago were evicted for "
             "the others",
             z->evicted, cached[0], tight[3], cached[1]);
    put(file, "found_with_room", cached[0]);
    put(file, "found_under_pressure", cached[1]);
    return VT_OK;
}

static vt_status run(lab *l, vt_err *err)
{
    lab_server s;
    sizes z;
    bool own;
    TRY(sizes_of(l, &z, err));
    TRY(lab_server_borrow(l, NULL, &s, &own, err));
    json_t *file = json_object();
    vt_status status = sharing(l, &s, &z, file, err);
    if (status == VT_OK)
        status = lengths(l, &s, &z, file, err);
    if (status == VT_OK)
        status = concurrent(l, &s, &z, file, err);
    if (status == VT_OK)
        lab_draw_server(l, &s);
    if (own)
        lab_server_stop(&s);
    if (status == VT_OK)
        status = eviction(l, &z, file, err);
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
    .knobs = {{"prefix-cache", LAB_RUNS, LAB_FIRST, NULL,
               "a prefix that prompts share is computed once"}},
    .items = {{"sharing", "requests that share a prefix, first and later", false},
              {"length", "gain by the length of the prefix", false},
              {"concurrent", "requests at once that share a prefix", false},
              {"eviction", "a prefix that comes back after others", false},
              {"access", "what a hit reads and what a miss computes", true},
              {"flame", "where the time of the server's steps went, drawn", false},
              {"over_time", "memory and units over time, drawn", true}},
    .run = run};
