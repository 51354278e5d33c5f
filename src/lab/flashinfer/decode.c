/* Lab flashinfer 03: decode attention. How one token's KV is split over SMs or workers, and how
 * partial results are merged. flashinfer/pages.c has the part about pages. */
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "base/random.h"
#include "lab/flashinfer/pages.h"
#include "lab/kit/decode_plan.h"
#include "lab/kit/roofline.h"
#include "lab/profilers/ncu_run.h"

enum { SEQS = 32, KV = 4096, CHUNKS = 8 };

/* A batch to measure. */
typedef struct load {
    int32_t seqs, kv_len;
} load;

/* The documents' batch; an emulated GPU gets a small one. */
static load main_load(const lab *l) { return l->emulated ? (load){2, 200} : (load){SEQS, KV}; }

static void load_shape(const lab_heads *h, load b, char *out, size_t size)
{
    char heads[120];
    lab_heads_text(h, heads, sizeof heads);
    snprintf(out, size, "seqs=%d,kv_len=%d,%s", b.seqs, b.kv_len, heads);
}

static vt_status run_load(lab *l, const lab_heads *h, const char *impl, load b, lab_kernel *out,
                          vt_err *err)
{
    char shape[160];
    load_shape(h, b, shape, sizeof shape);
    return lab_run_shape(l, "attention_decode", impl, out, err, "%s", shape);
}

/* ---- split-K, in numbers ---- */

/* One row of 4,096 random scores, whole and in 8 chunks whose states are merged. */
static void tell_merge(lab *l)
{
    double score[KV], value[KV];
    uint64_t state = 7;
    softmax_state part[CHUNKS], all, merged = {.m = -INFINITY};
    vt_buf b = {0};
    for (int i = 0; i < KV; i++) {
        score[i] = (double)(vt_random_next(&state) >> 11) * 0x1p-53 * 16 - 8;
        value[i] = (double)(vt_random_next(&state) >> 11) * 0x1p-53 * 2 - 1;
    }
    all = softmax_of(score, value, KV);
    for (int c = 0; c < CHUNKS; c++) {
        part[c] = softmax_of(score + c * (KV / CHUNKS), value + c * (KV / CHUNKS), KV / CHUNKS);
        merged = softmax_merge(merged, part[c]);
    }
    double lse = all.m + log2(all.l), error = fabs(merged.o / merged.l - all.o / all.l);
    vt_buf_printf(
        &b,
        "one row of %d random scores (base 2) in %d chunks of %d\n"
        "  chunk      m = max    l = sum 2^(s-m)   LSE = m + log2 l   weight 2^(LSE-all)\n",
        KV, CHUNKS, KV / CHUNKS);
    for (int c = 0; c < CHUNKS; c++) {
        double own = part[c].m + log2(part[c].l);
        vt_buf_printf(&b, "  %4d..%4d %8.4f  %16.4f  %16.6f  %16.6f\n", c * (KV / CHUNKS),
                      (c + 1) * (KV / CHUNKS) - 1, part[c].m, part[c].l, own, exp2(own - lse));
    }
    vt_buf_printf(
        &b,
        "  all       %8.4f  %16.4f  %16.6f          1.000000\n"
        "two states become one: m = max(m1, m2), l = l1 2^(m1-m) + l2 2^(m2-m), and O\n"
        "likewise; at the end O / l. So the result is the sum of the chunks' outputs with\n"
        "the weights of the last column: merged %+.12f, whole %+.12f\n",
        all.m, all.l, lse, merged.o / merged.l, all.o / all.l);
    lab_drawing(l, "merge_lse", "why chunks may be computed apart", &b);
    vt_buf_release(&b);
    lab_check(
        l, error < 1e-12,
        "softmax of %d scores in %d merged chunks against the whole: differs by %.1e, allowed "
        "1e-12 (both in double)",
        KV, CHUNKS, error);
}

static void put_plan(lab *l, const char *where, const load *b, const decode_plan *p)
{
    lab_cells(l, "%s|%d x %d|%d|%d|%lld|%f B", where, b->seqs, b->kv_len, p->parts, p->longest,
              (long long)p->work, p->partial_bytes);
}

/* Tells how batches of several sizes are split, here and on an H200. */
static vt_status tell_choice(lab *l, const lab_heads *h, vt_err *err)
{
    static const load batch[] = {{1, 512},  {1, 4096},  {4, 4096},
                                 {8, 4096}, {32, 4096}, {256, 1024}};
    lab_heads big = {.heads = 32, .kv_heads = 8, .dim = 128, .page = 64, .kv = "bf16"};
    vt_target here, h200;
    decode_plan p;
    char name[40];
    bool gpu = l->ordinal >= 0;
    TRY(lab_target(l, &here, err));
    TRY(lab_target_named("h200", &h200, err));
    snprintf(name, sizeof name, "here, %d %s", gpu ? here.sm_count : here.limits.n_workers,
             gpu ? "SMs" : "workers");
    lab_table(l, "split_choice", "asked of the planners; nothing is run",
              "plan|batch x KV|>chunks a sequence|>tokens a chunk|>pieces|>partial results");
    for (size_t i = 0; i < sizeof batch / sizeof *batch; i++) {
        TRY(lab_decode_plan(&here, h, batch[i].seqs, batch[i].kv_len, &p, err));
        put_plan(l, name, &batch[i], &p);
    }
    for (size_t i = 0; i < sizeof batch / sizeof *batch; i++) {
        TRY(lab_decode_plan(&h200, &big, batch[i].seqs, batch[i].kv_len, &p, err));
        put_plan(l, "H200, modelled", &batch[i], &p);
    }
    return VT_OK;
}

static vt_status tell_split(lab *l, const lab_heads *h, vt_err *err)
{
    load b = main_load(l), one = {1, b.kv_len};
    vt_target here;
    decode_plan many, single;
    TRY(lab_target(l, &here, err));
    TRY(lab_decode_plan(&here, h, b.seqs, b.kv_len, &many, err));
    TRY(lab_decode_plan(&here, h, one.seqs, one.kv_len, &single, err));
    lab_item(
        l, "split_k",
        "a piece of work is one KV head and one chunk of a sequence's KV. %d sequences x %d KV "
        "heads are %d pieces before any split, so the plan cuts each sequence into %d chunk%s: "
        "%lld pieces. One sequence alone is %d pieces; it is cut into %d chunks of up to %d "
        "tokens: %lld pieces",
        b.seqs, h->kv_heads, b.seqs * h->kv_heads, many.parts, vt_text_s(many.parts),
        (long long)many.work, h->kv_heads, single.parts, single.longest, (long long)single.work);
    double kv = 2.0 * one.kv_len * h->kv_heads * h->dim * 2;
    lab_item(
        l, "partial_outputs",
        "each piece leaves (m, l, O) in fp32 for its %d query heads: %d values each. For one "
        "sequence of %d tokens they are written and read again: %.0f KB, %.1f %% of its %.0f KB "
        "of KV. %s",
        h->heads / h->kv_heads, h->dim + 2, one.kv_len, single.partial_bytes * 1e-3,
        100 * single.partial_bytes / kv, kv * 1e-3,
        l->ordinal < 0 ? "All workers meet once, then each merges some rows' chunks in rising order"
                       : "The last CTA of a sequence and KV head merges them (a ticket tells it "
                         "so)");
    lab_item(
        l, "split_rule", "%s",
        l->ordinal < 0
            ? "on a CPU chunks lie at multiples of 256 positions, so that a row's bits never "
              "depend on the batch. Tasks are split into them only if there are fewer than 4 "
              "for each worker and the partial results fit into 8 MB"
            : "the aim is two ranges an SM of equal length (one an SM for up to 4 sequences, "
              "where latency matters). A sequence gets round(length / aim) ranges in multiples "
              "of 64 tokens; a batch with a sequence for every place is not split at all");
    return tell_choice(l, h, err);
}

/* ---- measured ---- */

static vt_status add_run(lab *l, lab_runs *r, const lab_heads *h, load b, vt_err *err)
{
    if (r->n == LAB_MAX_RUNS)
        return VT_OK;
    lab_note(l, "%d sequences of %d tokens", b.seqs, b.kv_len);
    TRY(run_load(l, h, NULL, b, &r->k[r->n], err));
    snprintf(r->name[r->n], sizeof r->name[0], "%d x %d, %d/%d heads of %d", b.seqs, b.kv_len,
             h->heads, h->kv_heads, h->dim);
    r->n++;
    return VT_OK;
}

static vt_status sweep(lab *l, lab_runs *r, const lab_heads *h, vt_err *err)
{
    static const load quick[] = {{1, 4096}, {0, 0}},
                      full[] = {{1, 4096}, {1, 512}, {8, 1024}, {0, 0}},
                      swept[] = {{1, 4096}, {1, 512},  {1, 2048}, {1, 16384}, {4, 4096},
                                 {8, 1024}, {8, 4096}, {64, 512}, {0, 0}},
                      small[] = {{1, 300}, {0, 0}};
    const load *b = l->emulated ? small : lab_flag(l, "sweep") ? swept : l->quick ? quick : full;
    for (int i = 0; b[i].seqs; i++)
        TRY(add_run(l, r, h, b[i], err));
    return VT_OK;
}

/* The share of stalls in which a warp waits for memory. */
static void tell_scoreboard(lab *l, const lab_kernel *k)
{
    char shape[160], why[LAB_NCU_WHY];
    lab_counters c;
    lab_heads h = lab_heads_32(l);
    load_shape(&h, main_load(l), shape, sizeof shape);
    if (lab_ncu_read(l,
                     &(lab_kernel_ask){.op = "attention_decode", .shape = shape, .impl = k->impl},
                     "attention", "ncu_decode.csv", &c, why))
        lab_number(l, "long_scoreboard", c.stall[0] / c.stalled, VT_SHARE, "measured",
                   "of the waits that ncu saw; a warp waits for data from memory or L2");
    else
        lab_missing(l, "long_scoreboard", "%s", why);
}

static void tell_hardware(lab *l, const lab_runs *r)
{
    const lab_kernel *k = &r->k[0];
    roofline_roof roof = lab_roof(l, true);
    lab_figure(l, "bandwidth", lab_bandwidth(k), VT_BYTES_PER_S,
               "of KV, Q and O, each counted once, over the measured time");
    lab_figure(l, "memory_share", lab_over(lab_bandwidth(k), roof.bytes_per_s), VT_SHARE,
               "of the measured memory roof");
    tell_scoreboard(l, k);
    lab_tell_occupancy(l, "occupancy", k);
    lab_tell_roofline(l, r, "roof", &roof);
}

/* ---- knobs ---- */

/* The variants of the card: given splits, and no split at all. */
static vt_status turn_splits(lab *l, const lab_heads *h, const lab_kernel *chosen, load b,
                             vt_err *err)
{
    const char *row[32];
    char shape[160];
    load_shape(h, b, shape, sizeof shape);
    int32_t n = lab_kernel_rows(l, "attention_decode", shape, row, 32, err), turned = 0;
    for (int32_t i = 0; i < n; i++) {
        lab_kernel k;
        if (!lab_is_variant("attention_decode", row[i]) || strcmp(row[i], chosen->impl) == 0)
            continue;
        TRY(run_load(l, h, row[i], b, &k, err));
        char name[64], where[80];
        snprintf(name, sizeof name, "split size: %.40s", row[i]);
        snprintf(where, sizeof where, "variant %.32s of attention_decode", row[i]);
        lab_turn_kernels(l, name, where, chosen->shape,
                         lab_over(chosen->bytes + chosen->extra_bytes, k.bytes + k.extra_bytes),
                         chosen, &k,
                         "the same KV is read, and partial results are small beside it, so bytes "
                         "expect nothing: too few pieces leave SMs idle, too many pay for merging");
        turned++;
    }
    if (!turned)
        lab_turn_missing(l, "split size", "variants whole, splits-2 ... of attention_decode", shape,
                         1,
                         l->ordinal < 0 ? "the CPU's rows fix their chunks at 256 positions, "
                                          "because a row's bits must not depend on the split"
                                        : "this GPU's rows have no variant with a given split");
    lab_item(l, "given_splits",
             turned ? "%d variants with a given split were run: see the knobs"
                    : "this device has no variant with a given split (%d were run); the CPU's rows "
                      "fix their chunks at 256 positions, because a row's bits must not depend on "
                      "the split",
             turned);
    return VT_OK;
}

static vt_status turn_kv_type(lab *l, const lab_heads *h, const lab_kernel *chosen, vt_err *err)
{
    lab_heads fp8 = *h;
    lab_kernel k;
    fp8.kv = "fp8";
    TRY(run_load(l, &fp8, NULL, main_load(l), &k, err));
    lab_turn_kernels(l, "FP8 KV", "--kv-dtype fp8", "attention_decode",
                     lab_over(chosen->least_s, k.least_s), chosen, &k,
                     "half the bytes of KV have to be read, as far as widening FP8 keeps up");
    return VT_OK;
}

/* ---- the lab ---- */

static vt_status run(lab *l, vt_err *err)
{
    /* on a CPU the heads of its model: with 32/8 of 128 the KV of this batch is 537 MB */
    lab_heads h = l->ordinal < 0 ? lab_heads_model(l) : lab_heads_32(l);
    static const char what[] = "time of the first call";
    char shape[160];
    lab_runs r = {.n = 0};
    load_shape(&h, main_load(l), shape, sizeof shape);
    TRY(lab_kernel_predict(l, what, &(lab_kernel_ask){.op = "attention_decode", .shape = shape},
                           "bytes of KV over the measured memory roof, and a launch or a meeting",
                           err));
    TRY(add_run(l, &r, &h, main_load(l), err));
    const lab_kernel *k = &r.k[0];
    lab_outcome(l, what, k->median_s, !l->emulated && k->disturbed);
    TRY(tell_split(l, &h, err));
    tell_merge(l);
    TRY(sweep(l, &r, &h, err));
    lab_tell_runs(l, &r, "batches", "batch x KV", false);
    TRY(lab_tell_pages(l, &h, err));
    tell_hardware(l, &r);
    lab_kernel_card(l, "explanation", k, "attention of one new token a sequence, over its KV",
                    "fewer bytes: FP8 KV, fewer KV heads, shared pages read once");
    TRY(turn_splits(l, &h, &r.k[1], l->emulated ? (load){1, 300} : (load){1, KV}, err));
    return turn_kv_type(l, &h, k, err);
}

const lab_def lab_flashinfer_decode = {
    .track = LAB_FLASHINFER,
    .number = "03",
    .name = "profile_decode",
    .goal = "You can say why decode attention waits for memory, when its KV is split and merged, "
            "and what a page size costs.",
    .about = {"Attention of one new token for each of 32 sequences with 4,096 tokens of KV runs.",
              "All of that KV is read once; Q and O are small beside it.",
              "Then other batches, splits and page sizes from 1 to 256 follow."},
    .alias = {"03_profile_decode.py"},
    .knobs = {{"--page-size", LAB_LOAD},
              {"shared pages", LAB_RUNS, NULL, NULL,
               "pages that sequences share are read once for all of them"},
              {"variant", LAB_OFFERED, "attention_decode", LAB_BY_CARD},
              {"--kv-dtype fp8", LAB_OFFERED, "attention_decode", "--kv-dtype fp8"}},
    .items = {{"split_k", "split-K: chunks", false},
              {"partial_outputs", "partial outputs", false},
              {"merge_lse", "the merge with the log-sum-exp", false},
              {"split_rule", "the rule of the split", false},
              {"split_choice", "how the split is chosen", false},
              {"given_splits", "other splits than the plan's", false},
              {"batches", "several batches, 32 x 4096 among them", false},
              {"page_layout", "the page layout", false},
              {"append", "appending a token's KV", false},
              {"page_size", "the effect of the page size", false},
              {"bandwidth", "bandwidth", true},
              {"memory_share", "its share of the roof", true},
              {"long_scoreboard", "waiting for memory", true},
              {"occupancy", "occupancy and its limiter", true},
              {"roof", "position on the roofline", true},
              {"explanation", "operation, execution, hardware, bottleneck, opportunity", true}},
    .kernels = true,
    .run = run,
};
