/* Lab sglang 02: the prefix cache.
 *
 *   cold       a prompt of 1,024 tokens that nobody sent before
 *   warm       the same prompt again
 *   lengths    prompts of 1,024 tokens that begin with the first k of it
 *   together   requests with one prefix, submitted at once
 *   pressure   more prompts than the KV memory holds (sglang/pressure.c)
 *
 * What a hit saves is exact: the bytes and FLOPs of the steps that did not run. Half a prompt saves
 * half of the linear layers' work but only a quarter of the attention's, because a token attends to
 * those before it: the first half of n tokens has n^2/8 pairs of n^2/2. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/stats.h"
#include "engine/engine.h"
#include "lab/report/causes.h"
#include "lab/sglang/inside.h"
#include "lab/sglang/radix.h"
#include "story/read.h"

enum { PROMPT = 1024, LENGTHS = 4, SHARERS = 4, TAIL = 64, PAIRS = 4 };

typedef struct hit {
    int32_t shared; /* tokens that begin like the base prompt */
    lab_request r;
    json_t *story;
    sglang_cost cost; /* of the part that is computed */
} hit;

typedef struct run_of {
    vt_engine *engine;
    int32_t *base, gen; /* base: [PROMPT] */
    hit cold, warm, length[LENGTHS];
} run_of;

static void release_hit(hit *h)
{
    sglang_release(&h->r, 1);
    json_decref(h->story);
}

static void release(run_of *r)
{
    release_hit(&r->cold);
    release_hit(&r->warm);
    for (int i = 0; i < LENGTHS; i++)
        release_hit(&r->length[i]);
    free(r->base);
    vt_engine_free(r->engine);
}

/* Runs a prompt of PROMPT tokens of which the first `shared` are the base's. */
static vt_status run_hit(lab *l, run_of *r, int32_t shared, uint64_t seed, hit *h, vt_err *err)
{
    int32_t *ids = NULL;
    TRY(sglang_prompt(l, seed, r->base, shared, PROMPT, &ids, err));
    h->shared = shared;
    h->r = (lab_request){.prompt = ids, .n_prompt = PROMPT, .n_gen = r->gen};
    TRY(lab_requests_run(l, r->engine, &h->r, 1, err));
    TRY(lab_story(l, r->engine, h->r.id, &h->story, err));
    return sglang_cost_prompt(l, r->engine, PROMPT, h->r.n_cached, false, &h->cost, err);
}

/* ---- cold and warm ---- */

static double prefill_s(const json_t *story)
{
    return story_num(story_phase_named(story, "prefill"), "device_ms") * 1e-3;
}

static void put_hit(lab *l, const char *name, const hit *h, const hit *cold)
{
    const json_t *prefix = story_get(h->story, "prefix");
    lab_cells(l, "%s|%d|%d|%f B|%.3g G|%f s|%f s|%f s|%f ratio", name, h->r.n_cached,
              h->r.n_prompt - h->r.n_cached, story_num(prefix, "saved_bytes"),
              story_num(prefix, "saved_flops") * 1e-9, story_num(prefix, "saved_ms") * 1e-3,
              prefill_s(h->story), h->r.ttft_s, cold->r.ttft_s / h->r.ttft_s);
}

static const char hit_columns[] =
    "prompt|>cached|>computed|>bytes saved|>FLOP saved|>saved (modelled)|>prefill|>TTFT|>faster";

/* Tells times that arithmetic excludes: a part of a prompt that takes longer than the whole, or
 * saves more time than FLOPs. Returns true if there is none. */
static bool tell_contradiction(lab *l, const hit *part, const hit *whole)
{
    static const double least = 1.1; /* two runs of one step differ by less */
    double part_s = prefill_s(part->story), whole_s = prefill_s(whole->story),
           flops = whole->cost.flops / part->cost.flops;
    bool slower = part_s > least * whole_s, faster = whole_s > least * flops * part_s;
    if (!slower && !faster)
        return true;
    if (slower)
        lab_finding(l, "times.contradict",
                    "%d tokens of which %d are computed take %f s, and all %d computed take %f s: "
                    "fewer FLOPs cannot take longer. The first of these times holds something "
                    "else, such as the first use of its size or other programs; neither says "
                    "what a prefix saves",
                    PROMPT, PROMPT - part->r.n_cached, part_s, PROMPT, whole_s);
    else
        lab_finding(l, "times.contradict",
                    "%d tokens of which %d are computed take %f s, and all %d computed take %f s: "
                    "%.2fx, where FLOPs allow at most %.2fx. The second of these times holds "
                    "something else, such as the first use of memory or other programs",
                    PROMPT, PROMPT - part->r.n_cached, part_s, PROMPT, whole_s, whole_s / part_s,
                    flops);
    return false;
}

/* Says of a first token that a hit did not bring earlier why its line shows no gain. */
static void tell_no_gain(lab *l, const hit *part, const hit *whole)
{
    double share = 1 - part->cost.flops / whole->cost.flops;
    if (part->r.ttft_s < whole->r.ttft_s)
        return;
    lab_finding(l, "hit.no_gain",
                "with %d of %d tokens cached the first token came after %f s, with none after "
                "%f s. Both are single runs, so this line shows neither a gain nor a loss; the "
                "%f share of the FLOPs that was skipped is exact all the same",
                part->r.n_cached, PROMPT, part->r.ttft_s, whole->r.ttft_s, share);
}

static void tell_hits(lab *l, const run_of *r)
{
    char name[32];
    lab_table(l, "cold_warm", "One prompt of 1,024 tokens, sent twice", hit_columns);
    put_hit(l, "cold", &r->cold, &r->cold);
    put_hit(l, "warm", &r->warm, &r->cold);
    lab_table(l, "length_gain", "Prompts of 1,024 tokens whose first k are cached", hit_columns);
    put_hit(l, "k = 0", &r->cold, &r->cold);
    for (int i = 0; i < LENGTHS; i++) {
        snprintf(name, sizeof name, "k = %d", r->length[i].shared);
        put_hit(l, name, &r->length[i], &r->cold);
    }
    bool agree = true;
    for (int i = 0; i <= LENGTHS; i++) {
        const hit *part = i < LENGTHS ? &r->length[i] : &r->warm;
        bool possible = tell_contradiction(l, part, &r->cold);
        if (possible)
            tell_no_gain(l, part, &r->cold);
        agree = possible && agree;
    }
    lab_signs signs = lab_signs_none();
    signs.saved_tokens = r->length[1].r.n_cached / (double)PROMPT;
    signs.saved_time = 1 - prefill_s(r->length[1].story) / prefill_s(r->cold.story);
    if (agree && !sglang_disturbed(r->cold.story, "prefill") &&
        !sglang_disturbed(r->length[1].story, "prefill"))
        lab_tell_causes(l, &signs, "the device's time for a prompt of which half was cached");
}

static void tell_causal(lab *l, const run_of *r)
{
    lab_table(l, "causal", "What the first half of a causal prompt costs",
              "cached|>attention FLOP saved|>other FLOP saved|>all FLOP saved");
    for (int i = 0; i < LENGTHS; i++) {
        const sglang_cost *c = &r->length[i].cost, *all = &r->cold.cost;
        lab_cells(l, "%d of %d|%f share|%f share|%f share", r->length[i].r.n_cached, PROMPT,
                  1 - c->attention_flops / all->attention_flops,
                  1 - (c->flops - c->attention_flops) / (all->flops - all->attention_flops),
                  1 - c->flops / all->flops);
    }
}

/* The "miss" of the story of a request whose prompt was found in part. */
static void tell_transition(lab *l, const hit *half)
{
    size_t i;
    json_t *t;
    char kind[STORY_TEXT], reason[STORY_TEXT], what[STORY_TEXT];
    json_array_foreach(story_get(half->story, "transitions"), i, t)
    {
        if (strcmp(story_text(t, "kind", kind), "miss") != 0)
            continue;
        const json_t *after = story_get(t, "after");
        lab_item(l, "hit_miss",
                 "%s: %s. The first step behind it moves %f B at %.1f FLOP a byte; the %d tokens "
                 "before it cost no step at all",
                 story_text(t, "what", what), story_text(t, "reason", reason),
                 story_num(after, "bytes"), story_num(after, "flop_per_byte"), half->r.n_cached);
        return;
    }
    lab_item(l, "hit_miss",
             "the first %d of %d tokens were found, so the first step computes token %d; nothing "
             "ran for those before it",
             half->r.n_cached, PROMPT, half->r.n_cached + 1);
}

static void tell_skipped(lab *l, const hit *warm, const hit *cold)
{
    const json_t *prefix = story_get(warm->story, "prefix");
    lab_item(
        l, "skipped",
        "the warm prompt skips %f B and %.4g GFLOP, %.1f %% of the prompt's: whole steps are not "
        "run. They were expected to take %f s; measured, the prefill takes %f s cold and %f s warm",
        story_num(prefix, "saved_bytes"), story_num(prefix, "saved_flops") * 1e-9,
        100 * story_num(prefix, "saved_flops") /
            (story_num(prefix, "saved_flops") + warm->cost.flops),
        story_num(prefix, "saved_ms") * 1e-3, prefill_s(cold->story), prefill_s(warm->story));
}

/* ---- access pattern ---- */

/* The pages that the tree has for the first n tokens of a prompt, and how they lie in memory. */
static vt_status tell_access(lab *l, const char *key, const char *verb, const hit *h, int32_t n,
                             const vt_engine *e, vt_err *err)
{
    const vt_sched *s = vt_engine_scheduler(e);
    int32_t size = s->radix.page_size, room = h->r.n_prompt / size + 1, runs = 0, longest = 0;
    int32_t *page = vt_calloc((size_t)room, sizeof *page), tenant = -1;
    if (!page)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for %d pages", room);
    for (int32_t i = 0; tenant < 0 && i < s->radix.n_tenants; i++)
        if (s->radix.tenant[i].live && s->radix.tenant[i].salt_len == 0)
            tenant = i;
    vt_radix_match m = {0};
    if (tenant >= 0)
        m = vt_radix_find(&s->radix, tenant, h->r.prompt, n, UINT64_MAX, page);
    for (int32_t i = 0, length = 0; i < m.n_pages; i++) {
        bool next = i > 0 && abs(page[i] - page[i - 1]) == 1;
        length = next ? length + 1 : 1;
        runs += !next;
        longest = length > longest ? length : longest;
    }
    free(page);
    double pool = story_num(story_get(h->story, "memory"), "kv_pool_bytes"),
           pages = story_num(story_get(h->story, "memory"), "pages"), page_bytes = pool / pages;
    double copied = story_num(story_get(h->story, "prefix"), "copied_tokens");
    if (m.n_pages == 0)
        lab_missing(l, key, "the tree has no page of this prompt any more");
    else
        lab_item(l, key,
                 "%s %d pages of %d tokens (%f B each over all layers, %f B in all) in %d run%s of "
                 "neighbouring page numbers, the longest of %d; %.0f tokens of a part of a page "
                 "were copied (%f B)",
                 verb, m.n_pages, size, page_bytes, page_bytes * m.n_pages, runs,
                 runs == 1 ? "" : "s", longest, copied, copied * page_bytes / size);
    return VT_OK;
}

/* ---- together ---- */

/* Submits SHARERS requests at once whose first 512 tokens are equal. */
static vt_status run_sharers(lab *l, vt_engine *e, uint64_t seed, lab_request *r,
                             uint64_t *computed, vt_err *err)
{
    vt_stats before, after;
    int32_t *prefix = NULL;
    vt_status status = sglang_prompt(l, seed, NULL, 0, PROMPT / 2, &prefix, err);
    for (int32_t i = 0; status == VT_OK && i < SHARERS; i++) {
        int32_t *ids = NULL;
        status = sglang_prompt(l, seed + 1 + (uint64_t)i, prefix, PROMPT / 2, PROMPT / 2 + TAIL,
                               &ids, err);
        r[i] = (lab_request){.prompt = ids, .n_prompt = PROMPT / 2 + TAIL, .n_gen = 4};
    }
    free(prefix);
    if (status == VT_OK)
        status = vt_engine_get_stats(e, &before, err);
    if (status == VT_OK)
        status = lab_requests_run(l, e, r, SHARERS, err);
    if (status == VT_OK)
        status = vt_engine_get_stats(e, &after, err);
    if (status == VT_OK)
        *computed = after.prefill_tokens - before.prefill_tokens;
    return status;
}

static double last_first(const lab_request *r)
{
    double last = 0;
    for (int i = 0; i < SHARERS; i++)
        last = fmax(last, r[i].ttft_s);
    return last;
}

enum { MOST_REPEATS = 5 };

/* The load several times, each time with another prefix. */
static vt_status repeat_sharers(lab *l, vt_engine *e, int32_t n, double *last_s, uint64_t *computed,
                                vt_err *err)
{
    vt_status status = VT_OK;
    for (int32_t i = 0; status == VT_OK && i < n; i++) {
        lab_request r[SHARERS] = {{0}};
        status = run_sharers(l, e, 500 + 10 * (uint64_t)i, r, computed, err);
        if (status == VT_OK)
            last_s[i] = last_first(r);
        sglang_release(r, SHARERS);
    }
    return status;
}

static void tell_together(lab *l, int32_t n, double *with, double *alone, const uint64_t *computed)
{
    double noise[2] = {vt_noise(with, (size_t)n), vt_noise(alone, (size_t)n)},
           median[2] = {vt_median(with, (size_t)n), vt_median(alone, (size_t)n)};
    lab_table(l, "concurrent", "Four requests with one prefix of 512 tokens, submitted at once",
              "prefix cache|>prompt tokens|>computed|>until every first token");
    for (int i = 0; i < 2; i++)
        lab_cells(l, "%s|%d|%llu|%f s", i == 0 ? "on" : "off", SHARERS * (PROMPT / 2 + TAIL),
                  (unsigned long long)computed[i], median[i]);
    lab_check(l, computed[0] == PROMPT / 2 + SHARERS * TAIL,
              "the shared prefix was computed once: %llu prompt tokens computed, expected %d "
              "(512 once and 64 for each)",
              (unsigned long long)computed[0], PROMPT / 2 + SHARERS * TAIL);
    lab_turn(l, &(lab_knob){.name = "prefix cache",
                            .where = "--no-prefix-cache",
                            .what = "4 x 576 tokens, 512 of them shared: all first tokens",
                            .gain = (double)computed[1] / (double)computed[0],
                            .before_s = median[1],
                            .before_noise = noise[1],
                            .after_s = median[0],
                            .after_noise = noise[0],
                            .why = "the prefix is computed once; the other requests wait for its "
                                   "pages and then compute their own tails"});
}

static vt_status run_together(lab *l, run_of *r, vt_err *err)
{
    double with[MOST_REPEATS], alone[MOST_REPEATS];
    uint64_t computed[2] = {0, 0};
    int32_t n = l->quick ? 2 : MOST_REPEATS;
    vt_engine *e = NULL;
    vt_status status = repeat_sharers(l, r->engine, n, with, &computed[0], err);
    if (status == VT_OK)
        status = sglang_open(l, (const char *const[]){"no-prefix-cache", "true", NULL}, SHARERS, &e,
                             err);
    if (status == VT_OK)
        status = repeat_sharers(l, e, n, alone, &computed[1], err);
    vt_engine_free(e);
    if (status == VT_OK)
        tell_together(l, n, with, alone, computed);
    return status;
}

/* ---- all ---- */

static vt_status check_hits(lab *l, const run_of *r, vt_err *err)
{
    int32_t size = vt_engine_scheduler(r->engine)->radix.page_size;
    for (int i = 0; i < LENGTHS; i++) {
        const hit *h = &r->length[i];
        lab_check(l, h->r.n_cached >= h->shared / size * size && h->r.n_cached <= h->shared,
                  "%d of %d shared tokens were found, expected all whole pages of %d tokens",
                  h->r.n_cached, h->shared, size);
    }
    bool equal = memcmp(r->cold.r.token, r->warm.r.token,
                        (size_t)r->gen * sizeof *r->warm.r.token) == 0;
    if (l->ordinal < 0)
        lab_check(l, equal,
                  "the warm request generates the same %d tokens as the cold one: K and "
                  "V are read from the cache bit for bit",
                  r->gen);
    (void)err;
    return VT_OK;
}

/* Runs a prompt of n tokens whose time nobody reads. The first step of a size pays for memory that
 * nothing has touched yet and, on a GPU, for kernels that start and a graph that is made: these are
 * no cost of a prefix. */
static vt_status warm_size(lab *l, run_of *r, int32_t n, vt_err *err)
{
    int32_t *ids = NULL;
    lab_request out = {0};
    TRY(sglang_prompt(l, 9000 + (uint64_t)n, NULL, 0, n, &ids, err));
    lab_note(l, "a prompt of %d tokens, for the first use of its size", n);
    vt_status status = sglang_run_one(l, r->engine, ids, n, 1, &out, err);
    lab_request_release(&out);
    free(ids);
    return status;
}

/* The base prompt, cold and then warm: a new one while the machine withholds CPU time from either,
 * because two steps are too few for a median. */
static vt_status run_pair(lab *l, run_of *r, vt_err *err)
{
    bool again = true;
    TRY(lab_engine_warm(l, r->engine, err));
    for (uint64_t seed = 77; again && seed < 77 + PAIRS; seed++) {
        release_hit(&r->cold);
        release_hit(&r->warm);
        free(r->base);
        r->base = NULL;
        r->cold = r->warm = (hit){0};
        TRY(sglang_prompt(l, seed, NULL, 0, PROMPT, &r->base, err));
        TRY(run_hit(l, r, PROMPT, seed, &r->cold, err));
        TRY(run_hit(l, r, PROMPT, seed, &r->warm, err));
        again = !l->emulated && (sglang_disturbed(r->cold.story, "prefill") ||
                                 sglang_disturbed(r->warm.story, "prefill"));
    }
    return VT_OK;
}

static vt_status measure(lab *l, run_of *r, vt_err *err)
{
    static const int32_t shared[LENGTHS] = {PROMPT / 4, PROMPT / 2, PROMPT * 3 / 4, PROMPT - 24};
    sglang_cost cold, warm;
    r->gen = l->quick ? 4 : 16;
    TRY(sglang_open(l, NULL, SHARERS, &r->engine, err));
    if (PROMPT + r->gen > vt_engine_max_context(r->engine))
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "%s: contexts of %d tokens, expected at least %d for this lab", l->model,
                       vt_engine_max_context(r->engine), PROMPT + r->gen);
    TRY(sglang_cost_prompt(l, r->engine, PROMPT, 0, true, &cold, err));
    TRY(sglang_cost_prompt(l, r->engine, PROMPT, PROMPT - 1, true, &warm, err));
    lab_predict(l, "gain of a warm prompt", sglang_best_s(&cold) / sglang_best_s(&warm), VT_RATIO,
                "expected time of the prompt's steps, divided by that of the last token alone");
    TRY(warm_size(l, r, PROMPT, err));
    if (l->ordinal >= 0) /* once more: a hit's copy of a page and its step of one token */
        TRY(warm_size(l, r, PROMPT, err));
    for (int i = 0; i < LENGTHS && l->ordinal >= 0; i++) /* a CPU's sizes share their memory */
        TRY(warm_size(l, r, PROMPT - shared[i], err));
    TRY(run_pair(l, r, err));
    for (int i = 0; i < LENGTHS; i++)
        TRY(run_hit(l, r, shared[i], 100 + (uint64_t)i, &r->length[i], err));
    lab_outcome(l, "gain of a warm prompt", prefill_s(r->cold.story) / prefill_s(r->warm.story),
                sglang_disturbed(r->cold.story, "prefill") ||
                    sglang_disturbed(r->warm.story, "prefill"));
    TRY(check_hits(l, r, err));
    tell_hits(l, r);
    tell_causal(l, r);
    tell_transition(l, &r->length[1]);
    tell_skipped(l, &r->warm, &r->cold);
    const hit *most = &r->length[LENGTHS - 1];
    TRY(tell_access(l, "access_miss", "a cold prompt writes", &r->cold, PROMPT, r->engine, err));
    TRY(tell_access(l, "access_hit", "a prompt that is found in part shares", most,
                    most->r.n_cached, r->engine, err));
    TRY(run_together(l, r, err));
    return sglang_pressure(l,
                           story_num(story_get(r->cold.story, "memory"), "kv_pool_bytes") /
                               story_num(story_get(r->cold.story, "memory"), "pages"),
                           vt_engine_scheduler(r->engine)->radix.page_size, err);
}

static vt_status run(lab *l, vt_err *err)
{
    run_of r = {0};
    vt_status status = measure(l, &r, err);
    release(&r);
    return status;
}

const lab_def sglang_radix = {
    .track = LAB_SGLANG,
    .number = "02",
    .name = "radix_cache_analysis",
    .goal = "You can say what a prefix hit saves, where it turns into a miss, and what is evicted "
            "when memory is short.",
    .about = {"A prompt of 1,024 tokens runs cold, then warm, then others share its beginning.",
              "A hit moves no data: pages that are there get another user.",
              "Then more prompts arrive than the KV memory holds, and pages must go."},
    .alias = {"02_radix_cache_analysis.py"},
    .knobs = {{"prefix-cache", LAB_RUNS, LAB_FIRST, NULL,
               "a prefix that prompts share is computed once"}},
    .items = {{"hit_miss", "the transition from hit to miss inside one prompt", false},
              {"cold_warm", "the same prompt cold and warm", false},
              {"length_gain", "prefix length against gain: bytes, FLOPs, ms saved", false},
              {"causal", "half a prompt saves a quarter of the attention", false},
              {"concurrent", "concurrent requests that share a prefix (in the batch)", false},
              {"eviction", "what is evicted under memory pressure, and why", false},
              {"tree_before", "the tree before the eviction", false},
              {"tree_after", "the tree after the eviction", false},
              {"pressure", "hit share against KV memory (--pressure)", false},
              {"skipped", "bytes and FLOPs that a hit skips", true},
              {"access_hit",
               "access pattern of a hit: pages read, runs of contiguous pages, bytes copied", true},
              {"access_miss", "access pattern of a miss: pages written, runs of contiguous pages",
               true}},
    .run = run,
};
