/* Lab 02 of the track mini-sglang: the index kernel, which is op embed.
 *
 *   token ids      table [vocab, hidden]            y [tokens, hidden]
 *   [ 7 2 7 ]      row 2  ................    -->   row 7
 *                  row 7  ................          row 2
 *                                                   row 7
 *
 * A gather of rows computes nothing. So it has two limits: bytes over the roof of the memory they
 * pass, and the launch of a call. Which of the two holds depends on the number of tokens, and the
 * sweep shows where it flips. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "lab/mini_sglang/mini_sglang.h"

enum { MAIN_TOKENS = 64, MAIN_HIDDEN = 4096, VOCAB = 4096 };

/* Small enough to make in an instant; a gather touches only the rows that it looks up. */
static void shape_text(char *out, size_t size, int64_t tokens, int64_t hidden)
{
    snprintf(out, size, "tokens=%lld,type=f16,vocab=%d,hidden=%lld", (long long)tokens, VOCAB,
             (long long)hidden);
}

/* ---- items ---- */

static void tell_cut(lab *l, const mini_rows *r)
{
    const lab_kernel *k = &r->k[0];
    int32_t vector = mini_vector_bytes(k), warps = 0;
    int64_t row = 2 * (int64_t)MAIN_HIDDEN;
    for (int32_t i = 1; i < r->n; i++)
        warps += strncmp(r->k[i].impl, "rows", 4) == 0;
    if (l->ordinal < 0) {
        lab_item(l, "warps_splits",
                 "a CPU has no warps: each worker (there are %d) takes whole rows, and no row is "
                 "split, so one "
                 "token keeps one worker busy (%s)",
                 l->threads, k->cut);
        lab_item(l, "threads",
                 "the thread count is fixed (%d here). %d tokens keep all workers busy; 1 token "
                 "keeps 1 busy, and the adaptive answer is to do just that, because no row is "
                 "worth splitting: one of %d takes %f s, and a meeting of the workers %s",
                 l->threads, MAIN_TOKENS, MAIN_TOKENS, k->median_s / MAIN_TOKENS,
                 l->threads > 1 ? vt_figure_of(mini_launch_s(l), VT_SECONDS).text
                                : "is not needed");
    } else {
        int64_t threads = MAIN_TOKENS * row / (vector ? vector : 16);
        lab_item(
            l, "warps_splits",
            "the engine's row has a thread for each vector of %d bytes, so a row of %lld bytes "
            "is split over %lld warps (%s); %d variants give a row to a fixed number of warps",
            vector ? vector : 16, (long long)row, (long long)(row / (vector ? vector : 16) / 32),
            k->cut, warps);
        const lab_kernel *fixed = mini_rows_find(r, "rows"),
                         *adaptive = mini_rows_find(r, "rows-adaptive");
        lab_item(l, "threads",
                 "the engine's row grows with the work: %d tokens make %lld threads in %lld CTAs "
                 "of 128. A warp a row in CTAs of 128 threads makes %d CTAs, whatever the length "
                 "of a row (%f s); with threads chosen by the number of rows it takes %f s",
                 MAIN_TOKENS, (long long)threads, (long long)(threads / 128), MAIN_TOKENS / 4,
                 fixed ? fixed->median_s : NAN, adaptive ? adaptive->median_s : NAN);
    }
    if (vector)
        lab_item(l, "vector", "one load moves %d bytes, so a row of %lld bytes takes %lld loads",
                 vector, (long long)row, (long long)(row / vector));
    else
        lab_item(l, "vector",
                 "row %s does not say how wide its loads are: the compiler chooses them, and it "
                 "widens each value to fp32 on the way",
                 k->impl);
}

static void tell_memory(lab *l, const lab_kernel *k, const lab_kernel *large)
{
    int64_t line = mini_line_bytes(l);
    lab_item(l, "coalescing",
             "a row is one run of %d bytes, that is %lld whole lines of %lld bytes: 100 %% of what "
             "is fetched is used. Rows of 612 bytes (576 values of Q8_0) use %.0f %%, because they "
             "begin and end inside a line",
             2 * MAIN_HIDDEN, (long long)(2 * MAIN_HIDDEN / line), (long long)line,
             100 * mini_line_use(l, 612, 612));
    lab_number(l, "bytes", k->bytes, VT_BYTES, "derived",
               "rows read, ids read and rows written for 64 tokens; none of it is avoidable");
    if (!isfinite(k->median_s)) {
        lab_missing(l, "bandwidth", "times mean nothing on an emulated GPU");
        return;
    }
    lab_item(l, "bandwidth", "%d tokens: %f s, which is %f B/s, %s; %s: %f B/s, %s", MAIN_TOKENS,
             k->median_s, k->bytes / k->median_s, mini_of_copy(l, k->bytes / k->median_s).text,
             large->shape, large->bytes / large->median_s,
             mini_of_copy(l, large->bytes / large->median_s).text);
}

/* Where the launch stops mattering: the copy roof moves as many bytes in the time of a launch. */
static void tell_floor(lab *l, const lab_kernel *k)
{
    if (l->ordinal < 0 && l->threads == 1) {
        lab_item(
            l, "launch_floor",
            "one worker has nobody to meet, so a call costs no more than its bytes: they limit "
            "a gather of any size");
        return;
    }
    double floor_s = mini_launch_s(l), per_token = k->bytes / MAIN_TOKENS,
           tokens = floor_s * l->roofs.copy_bytes_per_s / per_token,
           work_s = k->bytes / l->roofs.copy_bytes_per_s;
    if (!isfinite(floor_s) || !(l->roofs.copy_bytes_per_s > 0)) {
        lab_missing(l, "launch_floor", "the roofs of %s are not measured",
                    l->emulated ? "an emulated GPU" : "this machine");
        return;
    }
    double least = fmax(work_s, floor_s);
    char beyond[200] = "", bound[160];
    if (tokens >= 1)
        snprintf(bound, sizeof bound,
                 "below %.1f tokens of %d values a gather is bound by its launch, and no faster "
                 "kernel helps there",
                 tokens, MAIN_HIDDEN);
    else
        snprintf(bound, sizeof bound,
                 "even one token of %d values takes longer than that, so no gather is bound by "
                 "its launch",
                 MAIN_HIDDEN);
    if (k->median_s > 3 * least)
        snprintf(beyond, sizeof beyond,
                 ". It takes %.1f times as long as either allows: what limits row %s is %s",
                 k->median_s / least, k->impl,
                 l->ordinal < 0 ? "converting each value to fp32, one after the other"
                                : "neither of the two");
    lab_item(l, "launch_floor",
             "a call that does nothing takes %f s (measured: %s). The bytes of %d tokens take %f s "
             "at the copy roof, so of the two %s weigh more here; %s%s",
             floor_s,
             l->ordinal >= 0 ? "an empty kernel in a graph" : "all workers meet at a barrier",
             MAIN_TOKENS, work_s, work_s > floor_s ? "its bytes" : "the launch and the end", bound,
             beyond);
}

/* ---- the sweep ---- */

/* Runs tokens x row sizes; leaves the one with the most bytes in *large. */
static vt_status sweep(lab *l, lab_kernel *large, vt_err *err)
{
    static const int64_t few[] = {1, 64, 1024}, many[] = {1, 16, 64, 256, 1024, 4096},
                         narrow[] = {1024, 4096}, wide[] = {576, 1024, 4096, 8192};
    bool all = lab_flag(l, "sweep") || !l->quick;
    size_t n_tokens = all ? 6 : 3, n_hidden = all ? 4 : 2;
    large->bytes = 0;
    lab_table(l, "sweep", "tokens and row sizes: the time of one gather",
              "tokens|row|>bytes|>time|>rate|>of roof|bound");
    for (size_t i = 0; i < n_tokens * n_hidden; i++) {
        char shape[160];
        lab_kernel k;
        int64_t tokens = (all ? many : few)[i / n_hidden],
                hidden = (all ? wide : narrow)[i % n_hidden];
        if (l->emulated && tokens > 256)
            continue;
        shape_text(shape, sizeof shape, tokens, hidden);
        lab_note(l, "embed, %s", shape);
        TRY(lab_kernel_run(l, &(lab_kernel_ask){.op = "embed", .shape = shape}, &k, err));
        lab_cells(l, "%lld|%lld x 2 bytes|%f B|%f s|%f B/s|%f share|%s", (long long)tokens,
                  (long long)hidden, k.bytes, k.median_s, k.bytes / k.median_s, k.of_roof,
                  k.bound ? k.bound : "not known");
        if (k.bytes > large->bytes)
            *large = k;
    }
    return VT_OK;
}

static vt_status run(lab *l, vt_err *err)
{
    static const char what[] = "time of a gather of 64 rows of 4096 fp16 values";
    char shape[160];
    mini_rows *r = NULL;
    lab_kernel large;
    shape_text(shape, sizeof shape, MAIN_TOKENS, MAIN_HIDDEN);
    TRY(lab_kernel_predict(l, what, &(lab_kernel_ask){.op = "embed", .shape = shape},
                           "the launch, and the bytes at the roof of where they lie", err));
    TRY(mini_rows_run(l, "embed", shape, &r, err));
    const lab_kernel *k = &r->k[0];
    lab_outcome(l, what, k->median_s, k->disturbed);
    mini_rows_table(l, "variants", "64 rows of 4096: every row and variant that is here", r);
    lab_kernel_card(l, "card", k, "gathers one row of the embedding table a token",
                    l->ordinal < 0 && k->of_roof < 0.5
                        ? "vector instructions that convert a row to fp32: the row is far from its "
                          "roof"
                        : "none in the kernel: its bytes are compulsory; a larger batch spreads "
                          "the launch over more tokens");
    vt_status status = sweep(l, &large, err);
    if (status == VT_OK) {
        tell_cut(l, r);
        tell_memory(l, k, &large);
        tell_floor(l, k);
        status = mini_turn_index(l, r, shape, err);
    }
    free(r);
    return status;
}

const lab_def mini_profile_index = {
    .track = LAB_MINI_SGLANG,
    .number = "02",
    .name = "profile_index",
    .goal = "You know why a gather of embedding rows is bound by its launch for few tokens and by "
            "memory for many, and why no variant of the kernel changes that.",
    .about = {"One row of the embedding table is copied for each token: 64 rows of 4096 fp16 "
              "values.",
              "512 KiB are read from the table and 512 KiB (on a CPU, in fp32, 1 MiB) are written.",
              "Then batch and row size change, and each variant of the kernel does the same "
              "work."},
    .alias = {"02_profile_index.py", NULL},
    .knobs = {{"wider vectors, not", LAB_RUNS, "embed", NULL,
               "rows of the embedding table are copied by the widest vectors"},
              {"--threads", LAB_RUNS, "embed", NULL, "a gather is cut over all threads"},
              {"VITRINE_CUDA_PDL", LAB_RUNS, LAB_STEP, NULL,
               "a kernel starts while the one before it ends (programmatic dependent launch)"},
              {"variant", LAB_OFFERED, "embed", LAB_BY_CARD},
              {"the model's file", LAB_OFFERED, "embed", LAB_BY_FILE}},
    .items = {{"variants", "every row and variant of the card beside the engine's own form", false},
              {"warps_splits", "warps and splits a row", false},
              {"vector", "vector width", false},
              {"bytes", "bytes that a gather moves", false},
              {"sweep", "sweep over batch and row size", false},
              {"threads", "fixed against adaptive thread count", false},
              {"card", "the kernel's card: execution, hardware, bottleneck, opportunity", true},
              {"coalescing", "what share of each fetched line is used", true},
              {"bandwidth", "bytes a second beside the copy roof", true},
              {"launch_floor", "where a gather is bound by its launch", true},
              {"counters", "what each variant moves and executes, by ncu (--ncu)", true}},
    .kernels = true,
    .run = run,
};
