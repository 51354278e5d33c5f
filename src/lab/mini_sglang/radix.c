/* Lab radix of the track mini-sglang: the prefix-match kernel of the radix tree, op prefix_match.
 *
 *   prompt    12  7  7 93  5  5 41 ...
 *   cached    12  7  7 93  5  8 ...
 *             =  =  =  =  =  x          the common prefix has 5 ids
 *
 * It runs on the engine's thread while a step is planned, never on a GPU. So the lab measures it
 * with one thread, beside the roofs that one thread has. The bytes of a comparison depend on where
 * the first difference lies; they are two streams of 4-byte ids up to there. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "lab/mini_sglang/mini_sglang.h"
#include "story/read.h"

enum { MAIN_IDS = 1024, ID_BYTES = 4, L1_BYTES = 16 << 10, PAGE = 16 };

/* ---- roofs of one thread ---- */

typedef struct level {
    const char *name;
    int64_t bytes; /* the largest working set that is told to lie here */
    double per_s;  /* reading it with one thread; NAN: not measured */
} level;

enum { LEVELS = 4 };

static uint64_t (*read_kernel(void))(const void *, size_t)
{
#if defined(__x86_64__)
    switch (vt_cpu_get()->level) {
    case VT_ISA_AVX512:
    case VT_ISA_AMX:
        return roofs_avx512.read[0];
    case VT_ISA_AVX2:
        return roofs_avx2.read[0];
    default:
        break;
    }
#endif
    return NULL;
}

/* The roofs that are kept begin at L2, so that of L1 is measured here, with the same kernel: the
 * best of many reads of a block that lies in L1. NAN: this instruction set has no such kernel. */
static double l1_read_per_s(void)
{
    enum { RUNS = 50, READS = 200 };
    uint64_t (*read)(const void *, size_t) = read_kernel();
    volatile uint64_t sum = 0; /* so that no compiler may drop the reads */
    char *block = read ? aligned_alloc(64, L1_BYTES) : NULL;
    int64_t best = INT64_MAX;
    if (block)
        memset(block, 1, L1_BYTES);
    for (int i = 0; block && i < RUNS; i++) {
        int64_t begin = vt_now_ns();
        for (int k = 0; k < READS; k++)
            sum = sum + read(block, L1_BYTES);
        int64_t took = vt_now_ns() - begin;
        best = took < best ? took : best;
    }
    double per_s = block ? (double)L1_BYTES * READS / (double)best * 1e9 : NAN;
    free(block);
    return per_s;
}

static void find_levels(const vt_roofs *r, level out[LEVELS])
{
    const vt_cpu *cpu = vt_cpu_get();
    out[0] = (level){"L1", cpu->l1d_bytes, l1_read_per_s()};
    out[1] = (level){"L2", cpu->l2_bytes, r->l2_bytes_per_s > 0 ? r->l2_bytes_per_s : NAN};
    out[2] = (level){"L3", cpu->l3_bytes, r->l3_bytes_per_s > 0 ? r->l3_bytes_per_s : NAN};
    out[3] = (level){"memory", INT64_MAX, r->memory_bytes_per_s};
}

/* The cache that holds this many bytes; a machine without an L3 goes on to memory. */
static const level *level_of(const level *all, double bytes)
{
    int i = 0;
    while (i + 1 < LEVELS && bytes > (double)all[i].bytes)
        i++;
    return &all[i];
}

/* ---- kernels ---- */

static vt_status match(lab *l, int64_t n, int64_t differ, const char *impl, lab_kernel *out,
                       vt_err *err)
{
    char shape[96];
    snprintf(shape, sizeof shape, "n=%lld,differ=%lld", (long long)n, (long long)differ);
    lab_note(l, "prefix_match, %s", shape);
    return lab_kernel_run(l, &(lab_kernel_ask){.op = "prefix_match", .shape = shape, .impl = impl},
                          out, err);
}

/* Time over length, and the roof of where both sequences lie. */
static vt_status lengths(lab *l, const level *levels, lab_kernel *main, vt_err *err)
{
    static const int64_t few[] = {PAGE, 64, MAIN_IDS, 8192, 65536, 1 << 22},
                         many[] = {PAGE,  64,    256,     MAIN_IDS, 4096,   8192,
                                   16384, 65536, 1 << 18, 1 << 20,  1 << 22};
    bool all = lab_flag(l, "sweep") || !l->quick;
    size_t n = all ? sizeof many / sizeof *many : sizeof few / sizeof *few;
    lab_table(l, "length", "two equal sequences: time over length, one thread",
              "ids|>bytes|lies in|>time|>rate|>roof|>of roof");
    for (size_t i = 0; i < n; i++) {
        lab_kernel k;
        int64_t ids = (all ? many : few)[i];
        double bytes = 2.0 * ID_BYTES * (double)ids;
        const level *at = level_of(levels, bytes);
        TRY(match(l, ids, ids, NULL, &k, err));
        if (ids == MAIN_IDS)
            *main = k;
        double per_s = bytes / k.median_s, share = per_s / at->per_s;
        lab_cells(l, "%lld|%f B|%s|%f s|%f B/s|%f B/s|%f share", (long long)ids, bytes, at->name,
                  k.median_s, per_s, at->per_s, share > 1 ? NAN : share);
    }
    return VT_OK;
}

static vt_status mismatches(lab *l, vt_err *err)
{
    static const int64_t at[] = {0, 16, 64, 256, 512, MAIN_IDS};
    lab_table(l, "first_mismatch", "1024 ids with the first difference at different places",
              "differs at|>bytes read|>time|>of the whole");
    double whole_s = NAN, s[sizeof at / sizeof *at];
    size_t n = sizeof at / sizeof *at;
    for (size_t i = n; i-- > 0;) {
        lab_kernel k;
        TRY(match(l, MAIN_IDS, at[i], NULL, &k, err));
        s[i] = k.median_s;
        whole_s = at[i] == MAIN_IDS ? k.median_s : whole_s;
    }
    for (size_t i = 0; i < n; i++) {
        if (at[i] < MAIN_IDS)
            lab_cell(l, "id %lld", (long long)at[i]);
        else
            lab_cell(l, "nowhere");
        lab_cells(l, "%f B|%f s|%f share",
                  2.0 * ID_BYTES * (double)(at[i] < MAIN_IDS ? at[i] + 1 : at[i]), s[i],
                  s[i] / whole_s);
    }
    return VT_OK;
}

/* Portable against vectorised. */
static vt_status compare_rows(lab *l, const lab_kernel *main, vt_err *err)
{
    const char *name[8];
    char shape[96];
    snprintf(shape, sizeof shape, "n=%d,differ=%d", MAIN_IDS, MAIN_IDS);
    int32_t n = lab_kernel_rows(l, "prefix_match", shape, name, 8, err), slow = -1;
    lab_kernel k[8];
    lab_table(l, "rows", "1024 equal ids by every row of the card",
              "row|>loads of|>time|>rate|>to the engine's");
    for (int32_t i = 0; i < n; i++) {
        TRY(match(l, MAIN_IDS, MAIN_IDS, name[i], &k[i], err));
        slow = strcmp(name[i], "portable") == 0 ? i : slow;
        lab_cells(l, "%s|%d bytes|%f s|%f B/s|%f ratio", k[i].impl, mini_vector_bytes(&k[i]),
                  k[i].median_s, 2.0 * ID_BYTES * MAIN_IDS / k[i].median_s,
                  main->median_s / k[i].median_s);
    }
    int32_t vector = mini_vector_bytes(main);
    lab_item(
        l, "vector_width",
        "row %s compares %d ids with one load of %d bytes from each sequence (%s); what is left "
        "at the end, and any sequence shorter than a tile, is compared id by id",
        main->impl, vector / ID_BYTES, vector, main->cut);
    if (slow < 0 || strcmp(main->impl, "portable") == 0)
        return VT_OK;
    lab_turn_kernels(l, "instruction set", "VITRINE_ISA", "prefix_match, 1024 equal ids",
                     (double)vector / mini_vector_bytes(&k[slow]), &k[slow], main,
                     "wider loads need fewer instructions, until the L1 has no more "
                     "bytes a cycle; the meeting that the measurement adds to each "
                     "call does not shrink");
    return VT_OK;
}

/* ---- share of a scheduling step ---- */

typedef struct planned {
    double match_s; /* of the request whose prefix was cached; NAN: not known */
    int32_t prompt, cached;
} planned;

static void read_story(const json_t *story, planned *out)
{
    const json_t *list = story_get(story, "timeline"), *e;
    char text[STORY_TEXT];
    size_t i;
    json_array_foreach(list, i, e) if (strcmp(story_text(e, "event", text), "match") == 0)
        out->match_s = story_num(e, "ms") * 1e-3;
}

/* Two requests with the same prompt, one after the other: the second finds it in the tree. */
static vt_status run_twice(lab *l, vt_engine *e, planned *out, vt_err *err)
{
    int32_t n = out->prompt, prompt[MAIN_IDS];
    json_t *story = NULL;
    lab_random_prompt(l, 7, prompt, n);
    for (int i = 0; i < 2; i++) {
        lab_request r = {.prompt = prompt, .n_prompt = n, .n_gen = 2};
        vt_status status = lab_requests_run(l, e, &r, 1, err);
        out->cached = r.n_cached;
        if (status == VT_OK && i == 1)
            status = lab_story(l, e, r.id, &story, err);
        lab_request_release(&r);
        TRY(status);
    }
    read_story(story, out);
    json_decref(story);
    return VT_OK;
}

static vt_status plan_step(lab *l, planned *out, vt_err *err)
{
    vt_engine *e;
    *out = (planned){NAN, l->quick ? 256 : MAIN_IDS, 0};
    TRY(lab_engine_open(l, (const char *const[]){"max-context", "2048", "kv-memory", "256M", NULL},
                        &e, err));
    vt_status status = run_twice(l, e, out, err);
    vt_engine_free(e);
    return status;
}

static void tell_plan(lab *l, const planned *p, const lab_kernel *page, const lab_kernel *main)
{
    lab_check(l, p->cached > 0,
              "the second request found %d of its %d ids in the tree (expected "
              "more than 0: the first one left them there)",
              p->cached, p->prompt);
    if (!isfinite(p->match_s)) {
        lab_missing(l, "step_share", "the recording has no time for planning this step");
        return;
    }
    double pages = (double)(p->cached / PAGE);
    lab_item(
        l, "step_share",
        "finding %d of %d ids in the tree took %f s. The tree compares page by page, and the last "
        "page in part: %.0f comparisons of %d ids, %f s each here, are %f s or %.0f %% of the "
        "look-up; the rest is finding the pages. One comparison of all %d ids would take %f s",
        p->cached, p->prompt, p->match_s, pages, PAGE, page->median_s, pages * page->median_s,
        100 * pages * page->median_s / p->match_s, MAIN_IDS, main->median_s);
}

static void tell_roofs(lab *l, const level *levels, const lab_kernel *main, const lab_kernel *page)
{
    static const char *const key[LEVELS] = {"l1_roof", "l2_roof", "l3_roof", "memory_roof"};
    for (int i = 0; i < LEVELS; i++)
        if (isfinite(levels[i].per_s) && levels[i].bytes > 0)
            lab_number(l, key[i], levels[i].per_s, VT_BYTES_PER_S, "measured",
                       "one thread reads: the roof of comparing two sequences that lie there");
        else
            lab_missing(l, key[i], "this machine has no such cache, or no kernel to measure it");
    double l1 = levels[0].per_s, long_rate = 2.0 * ID_BYTES * MAIN_IDS / main->median_s,
           short_rate = 2.0 * ID_BYTES * PAGE / page->median_s;
    if (isfinite(l1))
        lab_finding(
            l, "prefix_match.latency",
            "a comparison of 1024 ids runs at %.0f %% of the rate of L1, one of a page of 16 "
            "ids at %.0f %%: a call this short is bound by its own start, so wider vectors "
            "help long sequences, and the tree compares short ones",
            100 * long_rate / l1, 100 * short_rate / l1);
}

static const char comparing[] = "time of comparing 1024 equal ids";

/* The kernel runs on the engine's thread alone, so it is one of a CPU with one thread. */
static vt_status use_one_thread(lab *l, vt_err *err)
{
    l->ordinal = -1;
    l->threads = 1;
    return vt_roofs_get(1, 0, &l->roofs, err);
}

/* The prediction is about the kernel, and the requests come before it: for the prediction alone,
 * the lab is one of one thread here already. */
static vt_status predict(lab *l, vt_err *err)
{
    char shape[96];
    vt_roofs roofs = l->roofs;
    int32_t ordinal = l->ordinal, threads = l->threads;
    snprintf(shape, sizeof shape, "n=%d,differ=%d", MAIN_IDS, MAIN_IDS);
    TRY(use_one_thread(l, err));
    TRY(lab_kernel_predict(
        l, comparing, &(lab_kernel_ask){.op = "prefix_match", .shape = shape},
        "8 KiB at the rate of the cache, and the meeting that ends a measured call", err));
    l->ordinal = ordinal;
    l->threads = threads;
    l->roofs = roofs;
    return VT_OK;
}

static vt_status measure(lab *l, const planned *p, vt_err *err)
{
    level levels[LEVELS];
    lab_kernel main = {0}, page;
    find_levels(&l->roofs, levels);
    TRY(match(l, PAGE, PAGE, NULL, &page, err));
    TRY(lengths(l, levels, &main, err));
    lab_outcome(l, comparing, main.median_s, main.disturbed);
    lab_kernel_card(l, "card", &main, "finds the first difference of two sequences of ids",
                    "a masked comparison of less than a tile, because the tree compares pages of "
                    "16 ids");
    TRY(mismatches(l, err));
    TRY(compare_rows(l, &main, err));
    tell_roofs(l, levels, &main, &page);
    tell_plan(l, p, &page, &main);
    return VT_OK;
}

/* The requests run as everywhere; the kernel after them on one thread. */
static vt_status run(lab *l, vt_err *err)
{
    planned p;
    TRY(predict(l, err));
    TRY(plan_step(l, &p, err));
    TRY(use_one_thread(l, err));
    return measure(l, &p, err);
}

const lab_def mini_profile_radix = {
    .track = LAB_MINI_SGLANG,
    .number = "radix",
    .name = "profile_radix",
    .goal = "You know what looking a prompt up in the prefix cache costs the scheduler, and what "
            "part of that the vector instructions decide.",
    .about = {"Two sequences of token ids are compared until they differ, on one thread.",
              "Two streams of 4 bytes an id are read; nothing is written but the length.",
              "Then two requests with one prompt show what share of planning a step this is."},
    .alias = {"profile_radix.py", NULL},
    .knobs = {{"VITRINE_ISA", LAB_RUNS, NULL, NULL,
               "prefixes are compared by vectors, many ids at once"}},
    .items = {{"length", "time over length", false},
              {"first_mismatch", "time over the place of the first difference", false},
              {"vector_width", "ids that one load compares", false},
              {"rows", "portable against vectorised", false},
              {"step_share", "share of a scheduling step", false},
              {"card", "the kernel's card: execution, hardware, bottleneck, opportunity", true},
              {"l1_roof", "the L1 roof of a comparison", true},
              {"l2_roof", "the L2 roof of a comparison", true},
              {"l3_roof", "the L3 roof of a comparison", true},
              {"memory_roof", "the memory roof of a comparison", true}},
    .kernels = false,
    .run = run,
};
