/* Lab 03 of the track mini-sglang: the store kernel, which is op kv_store.
 *
 *   new K, V [tokens, 1024]            pages of the KV cache
 *   token 0  ====                      page 7   [ .... token 0 .... ]
 *   token 1  ----          scatter     page 2   [ token 2 .......... ]
 *   token 2  ....            -->       page 9   [ ........ token 1 . ]
 *
 * A prefill stores neighbouring tokens into neighbouring slots. Decodes of several requests store
 * one token each, into pages that lie anywhere. The lab stores the same tokens in both orders, and
 * in slots that were sorted before. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/random.h"
#include "base/stats.h"
#include "lab/mini_sglang/mini_sglang.h"
#include "lab/report/causes.h"
#include "ops/case_text.h"
#include "ops/kv_store/kv_store.h"

enum { MAIN_TOKENS = 64, KV_HEADS = 8, HEAD_DIM = 128, SIZES = 3 };

typedef enum pattern { SEQUENTIAL, RANDOM, SORTED, PATTERNS } pattern;

static const char *const pattern_name[PATTERNS] = {"sequential", "random", "sorted"};

static void shape_text(const lab *l, char *out, size_t size, int64_t tokens, const char *slots)
{
    snprintf(out, size, "tokens=%lld,kv_heads=%d,head_dim=%d,kv_type=%s,page=%d,slots=%s",
             (long long)tokens, KV_HEADS, HEAD_DIM, l->ordinal >= 0 ? "bf16" : "f16",
             l->ordinal >= 0 ? 64 : 16, slots);
}

/* ---- slots ---- */

static int by_value(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Counts how many slots occur twice among those of the case, and how many pages they lie in. */
static vt_status count_slots(const char *shape, int32_t *twice, int32_t *pages, vt_err *err)
{
    vt_case text;
    vt_tensor *outputs[VT_MAX_OUTPUTS];
    int32_t n_outputs;
    vt_arena arena;
    TRY(vt_case_from_text(&kv_store_op, shape, &text, err));
    vt_arena_init(&arena, 0);
    const kv_store_args *a = kv_store_op.make_args(&text, 1, &arena, outputs, &n_outputs);
    int32_t n = a ? a->batch->n_tokens : 0, *slot = calloc((size_t)n + 1, sizeof *slot);
    *twice = *pages = 0;
    for (int32_t i = 0; slot && i < n; i++)
        slot[i] = a->batch->slot[i];
    if (slot)
        qsort(slot, (size_t)n, sizeof *slot, by_value);
    for (int32_t i = 0; slot && i < n; i++) {
        *twice += i > 0 && slot[i] == slot[i - 1];
        *pages += i == 0 || slot[i] / a->batch->page_size != slot[i - 1] / a->batch->page_size;
    }
    bool made = a && slot;
    free(slot);
    vt_arena_release(&arena);
    return made ? VT_OK : vt_fail(err, VT_ERR_MEMORY, "out of memory for the slots of %s", shape);
}

/* Seconds that sorting this many slots takes on one core of the host: the median of several. */
static double sort_s(int32_t n)
{
    enum { TIMES = 9 };
    double s[TIMES];
    int32_t *slot = calloc((size_t)n, sizeof *slot);
    for (int t = 0; slot && t < TIMES; t++) {
        uint64_t seed = (uint64_t)t + 1;
        for (int32_t i = 0; i < n; i++)
            slot[i] = (int32_t)(vt_random_next(&seed) % (uint64_t)(16 * n));
        int64_t begin = vt_now_ns();
        qsort(slot, (size_t)n, sizeof *slot, by_value);
        s[t] = (double)(vt_now_ns() - begin) * 1e-9;
    }
    double median = slot ? vt_median(s, TIMES) : NAN;
    free(slot);
    return median;
}

/* ---- patterns ---- */

typedef struct measured {
    int32_t tokens[SIZES], n;
    lab_kernel k[SIZES][PATTERNS];
} measured;

static vt_status measure_pattern(lab *l, measured *m, int32_t size, pattern p, vt_err *err)
{
    char shape[160];
    lab_kernel *k = &m->k[size][p];
    int32_t twice, pages;
    shape_text(l, shape, sizeof shape, m->tokens[size], pattern_name[p]);
    lab_note(l, "kv_store, %d tokens, %s", m->tokens[size], pattern_name[p]);
    TRY(lab_kernel_run(l, &(lab_kernel_ask){.op = "kv_store", .shape = shape}, k, err));
    TRY(count_slots(shape, &twice, &pages, err));
    lab_check(
        l, twice == 0,
        "%d %s slots: %d occur twice (expected 0; two tokens in one slot would leave whichever "
        "was written last)",
        m->tokens[size], pattern_name[p], twice);
    lab_cells(l, "%d x %d|%s|%d|%f B|%f s|%f B/s|%f share|%f ratio", m->tokens[size],
              KV_HEADS * HEAD_DIM, pattern_name[p], pages, k->bytes, k->median_s,
              k->bytes / k->median_s, k->of_roof, m->k[size][SEQUENTIAL].median_s / k->median_s);
    return VT_OK;
}

static vt_status measure_patterns(lab *l, measured *m, vt_err *err)
{
    static const int32_t few[] = {MAIN_TOKENS, 2048}, many[] = {MAIN_TOKENS, 512, 4096};
    bool all = lab_flag(l, "compare-patterns") || !l->quick;
    m->n = all ? 3 : l->emulated ? 1 : 2;
    memcpy(m->tokens, all ? many : few, (size_t)m->n * sizeof(int32_t));
    lab_table(l, "patterns", "the same tokens into slots in three orders",
              "tokens|slots|>pages|>bytes|>time|>rate|>of roof|>to seq.");
    for (int32_t s = 0; s < m->n; s++)
        for (pattern p = SEQUENTIAL; p < PATTERNS; p++)
            TRY(measure_pattern(l, m, s, p, err));
    return VT_OK;
}

/* ---- rows and variants ---- */

static void tell_launches(lab *l, const mini_rows *r)
{
    const lab_kernel *one = &r->k[0], *two = NULL, *async = NULL;
    for (int32_t i = 1; i < r->n; i++) {
        two = strstr(r->k[i].impl, "then") ? &r->k[i] : two;
        async = strstr(r->k[i].impl, "async") ? &r->k[i] : async;
    }
    double floor_s = mini_launch_s(l);
    if (two)
        lab_item(l, "one_launch", "K and V in one launch (%s): %f s; in two (%s): %f s", one->impl,
                 one->median_s, two->impl, two->median_s);
    else if (l->ordinal < 0)
        lab_item(l, "one_launch",
                 "K and V go in one call (%f s): a worker stores a token's K row, then its V row. "
                 "Two calls would read the slots twice and cost a meeting of the workers more (%s)",
                 one->median_s,
                 l->threads > 1 ? vt_figure_of(floor_s, VT_SECONDS).text
                                : "one worker meets nobody");
    else
        lab_item(l, "one_launch",
                 "K and V go in one launch (%f s): each thread stores a vector of K and the same "
                 "vector of V. Two launches would cost one more, %f s",
                 one->median_s, floor_s);
    if (async)
        lab_item(l, "async_copies", "%s: %f s; the engine's row, through registers: %f s",
                 async->impl, async->median_s, one->median_s);
    else if (l->ordinal < 0)
        lab_missing(l, "async_copies",
                    "a CPU has no asynchronous copies: loads and stores of its "
                    "cores overlap by themselves");
    else
        lab_missing(l, "async_copies", "the card has no row with cp.async for this GPU");
}

static void tell_memory(lab *l, const measured *m)
{
    const lab_kernel *seq = &m->k[m->n - 1][SEQUENTIAL], *ran = &m->k[m->n - 1][RANDOM];
    int32_t tokens = m->tokens[m->n - 1], line = mini_line_bytes(l), row = 2 * HEAD_DIM;
    lab_item(
        l, "coalescing",
        "a scattered write has runs of one head's row, %d bytes: %d whole lines of %d bytes. So "
        "even random slots write whole lines, and no line is fetched to be completed",
        row, row / line, line);
    if (!isfinite(seq->median_s)) {
        lab_missing(l, "bandwidth", "times mean nothing on an emulated GPU");
        return;
    }
    lab_signs signs = lab_signs_none();
    signs.sequential_s = seq->median_s;
    signs.scattered_s = ran->median_s;
    if (!seq->disturbed && !ran->disturbed)
        lab_tell_causes(l, &signs, ran->shape);
    lab_item(l, "bandwidth", "%d tokens: sequential %f B/s, %s; random %f B/s, %s", tokens,
             seq->bytes / seq->median_s, mini_of_copy(l, seq->bytes / seq->median_s).text,
             ran->bytes / ran->median_s, mini_of_copy(l, ran->bytes / ran->median_s).text);
}

/* Tells what sorting costs on the host, and what it gains. */
static void tell_sorting(lab *l, const measured *m)
{
    int32_t at = m->n - 1, tokens = m->tokens[at];
    const lab_kernel *ran = &m->k[at][RANDOM], *best = &m->k[at][SORTED];
    double cost = sort_s(tokens), gain = ran->median_s - best->median_s;
    if (!isfinite(gain)) {
        lab_missing(l, "sorting", "times mean nothing on an emulated GPU");
        lab_missing(l, "sorting_layers", "times mean nothing on an emulated GPU");
        return;
    }
    lab_item(
        l, "sorting",
        "sorting %d slots takes %f s on one core; one layer's store then takes %f s instead of %f "
        "s, if its tokens come in that order already (else their K and V are read out of order)",
        tokens, cost, best->median_s, ran->median_s);
    if (strcmp(lab_verdict(ran->median_s, ran->noise, best->median_s, best->noise), "gains") == 0)
        lab_item(l, "sorting_layers",
                 "one sort serves all layers of a step: it has paid for itself after %.0f of them",
                 ceil(cost / gain));
    else
        lab_item(l, "sorting_layers", "never: random slots are as fast, within the noise");
    const char *why = ran->median_s > 1.15 * best->median_s
                          ? "no byte and no line is saved; tokens that follow each other meet the "
                            "same pages of memory, which the TLB and the prefetcher know already"
                          : "the bytes are the same, and so are the lines: a head's row fills "
                            "whole ones";
    lab_turn_kernels(l, "sorted slots", "slots=sorted", ran->shape, 1, ran, best, why);
}

/* Two tokens with one slot: the card must refuse the case. */
static void tell_duplicates(lab *l)
{
    char shape[160];
    lab_kernel k;
    vt_err why = {0};
    shape_text(l, shape, sizeof shape, MAIN_TOKENS, "repeated");
    vt_status status = lab_kernel_run(l, &(lab_kernel_ask){.op = "kv_store", .shape = shape}, &k,
                                      &why);
    lab_check(l, status == VT_ERR_USAGE,
              "64 tokens of which two have one slot: %s (expected: "
              "refused)",
              status == VT_ERR_USAGE ? why.message : "not refused");
    lab_item(
        l, "duplicates",
        "refused: %s. The scheduler gives each token a slot of its own; every list of this lab "
        "is checked above",
        status == VT_OK ? "no" : why.message);
}

static vt_status run(lab *l, vt_err *err)
{
    static const char what[] = "time of storing K and V of 64 tokens";
    char shape[160];
    mini_rows *r = NULL;
    measured *m = calloc(1, sizeof *m);
    if (!m)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for the patterns");
    shape_text(l, shape, sizeof shape, MAIN_TOKENS, pattern_name[SEQUENTIAL]);
    vt_status status = lab_kernel_predict(
        l, what, &(lab_kernel_ask){.op = "kv_store", .shape = shape},
        "the launch, and the bytes at the roof of where they lie", err);
    if (status == VT_OK)
        status = mini_rows_run(l, "kv_store", shape, &r, err);
    if (status == VT_OK) {
        lab_outcome(l, what, r->k[0].median_s, r->k[0].disturbed);
        mini_rows_table(l, "rows", "64 tokens of 1024, sequential slots: every row and variant", r);
        lab_kernel_card(l, "card", &r->k[0], "scatters the new K and V rows to their page slots",
                        "rope and store in one call (op rope_store), which the engine runs: K is "
                        "written once");
        status = measure_patterns(l, m, err);
    }
    if (status == VT_OK) {
        tell_launches(l, r);
        tell_memory(l, m);
        tell_duplicates(l);
        tell_sorting(l, m);
        status = mini_turn_store(l, r, &m->k[0][RANDOM], err);
    }
    free(r);
    free(m);
    return status;
}

const lab_def mini_profile_store = {
    .track = LAB_MINI_SGLANG,
    .number = "03",
    .name = "profile_store",
    .goal = "You know what a scattered write costs, and when sorting slots, splitting a launch or "
            "copying asynchronously could help.",
    .about = {"The K and V rows of 64 tokens (1024 values each) are stored into pages of the KV "
              "cache.",
              "The source is contiguous, the slots are sequential, random, then sorted.",
              "Every list of slots is checked: no slot may occur twice."},
    .alias = {"03_profile_store.py", NULL},
    .knobs = {{"vectors, not", LAB_RUNS, "rope_store", NULL,
               "K and V are stored by the widest vectors"},
              {"beside the norm", LAB_RUNS, "rope_store", NULL,
               "the norms of q and k, the rotation and the store share one call"},
              {"variant", LAB_OFFERED, "rope_store", LAB_BY_CARD},
              {"--kv-dtype fp8", LAB_OFFERED, "rope_store", "--kv-dtype fp8"},
              {"slots=sorted", LAB_OFFERED, "rope_store"},
              {"no form", LAB_OFFERED, "rope_store"}},
    .items = {{"rows", "every row and variant of the card", false},
              {"one_launch", "K and V in one launch against two", false},
              {"async_copies", "asynchronous copies", false},
              {"patterns", "sequential, random and sorted slots", false},
              {"duplicates", "duplicate slots", false},
              {"card", "the kernel's card: execution, hardware, bottleneck, opportunity", true},
              {"coalescing", "how whole the written lines are", true},
              {"bandwidth", "bandwidth of each pattern", true},
              {"sorting", "what sorting costs and gains", true},
              {"sorting_layers", "layers after which a sort has paid for itself", true}},
    .kernels = true,
    .run = run,
};
