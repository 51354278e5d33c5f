/* Lab flashinfer 02: prefill attention. Online softmax with the tiles of the row that runs here,
 * how tiles become items for SMs or workers, and what a last, half-empty wave costs. */
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "lab/flashinfer/tiles.h"
#include "lab/kit/roofline.h"
#include "lab/kit/rows.h"
#include "lab/profilers/ncu_run.h"

enum { TOKENS = 512, EMULATED_TOKENS = 64 };

static const char op[] = "attention_prefill";

static int32_t tokens_of(const lab *l) { return l->emulated ? EMULATED_TOKENS : TOKENS; }

static void shape_of(const lab_heads *h, int32_t tokens, char *out, size_t size)
{
    char heads[120];
    lab_heads_text(h, heads, sizeof heads);
    snprintf(out, size, "seqs=1,q_len=%d,kv_len=%d,%s", tokens, tokens, heads);
}

static vt_status run_length(lab *l, const lab_heads *h, const char *impl, int32_t tokens,
                            lab_kernel *out, vt_err *err)
{
    char shape[160];
    shape_of(h, tokens, shape, sizeof shape);
    return lab_run_shape(l, op, impl, out, err, "%s", shape);
}

/* A call of these heads, to ask rows about. */
static vt_status call_of(const vt_target *t, const lab_heads *h, lab_call *out, vt_err *err)
{
    char heads[120], shape[160];
    lab_heads_text(h, heads, sizeof heads);
    snprintf(shape, sizeof shape, "seqs=1,q_len=2,kv_len=2,%s", heads);
    return lab_call_make(t, op, shape, out, err);
}

/* ---- how the work is cut ---- */

static void tell_cut(lab *l, const lab_heads *h, const vt_cut *cut, int32_t tokens, double moved)
{
    vt_buf b = {0};
    const char *who = l->ordinal < 0 ? "workers, a core each" : "SMs";
    lab_put_softmax(&b, h, cut, tokens, moved);
    lab_drawing(l, "online_softmax", "the tiles are those of the row that runs here", &b);
    vt_buf_clear(&b);
    lab_put_tiles(&b, h, cut, tokens);
    lab_drawing(l, "tiles", "one KV head of the call with 32 heads", &b);
    vt_buf_release(&b);
    lab_item(l, "work_distribution",
             "%lld items (%lld Q tiles x %d KV heads) on %d %s%s: %.2f waves. %s%s",
             (long long)cut->items, (long long)(cut->items / h->kv_heads), h->kv_heads,
             cut->workers, who, cut->resident > 1 ? ", several CTAs each" : "", cut->waves,
             l->ordinal < 0 ? "A worker takes the next item when it has finished one; the longest "
                              "items (the last tokens, which see the most keys) come first"
                            : "The longest items (the last tokens, which see the most keys) come "
                              "first, so the last ones to start are short",
             cut->roles[0] ? "" : ".");
    lab_item(l, "roles", "%s",
             cut->roles[0] ? cut->roles
                           : "no specialised threads: a worker loads, multiplies and does the "
                             "softmax of its item itself");
}

/* ---- the wave border ---- */

static vt_status run_border(lab *l, const lab_call *c, const lab_heads *h, const lab_kernel *chosen,
                            vt_err *err)
{
    int32_t from = tokens_of(l) / 2;
    int32_t border = lab_wave_border(c, chosen->impl, from, 4 * tokens_of(l));
    if (border == 0) {
        lab_missing(l, "wave_quantisation", "no border between waves up to %d tokens",
                    4 * tokens_of(l));
        lab_missing(l, "wave_step", "there is no such border here");
        return VT_OK;
    }
    int32_t next = lab_wave_border(c, chosen->impl, border, 8 * tokens_of(l));
    const int32_t length[] = {border - 1, border, next > 0 ? next - 1 : border + 1};
    lab_kernel k[3];
    double waves[3];
    lab_table(l, "wave_quantisation", "one token more, and the rest of the wave",
              "tokens|>items|>waves|>rounds|>time|>time a token|>of roof");
    for (int i = 0; i < 3; i++) {
        vt_cut cut;
        lab_prompt_cut(c, chosen->impl, length[i], &cut);
        waves[i] = cut.waves;
        TRY(run_length(l, h, chosen->impl, length[i], &k[i], err));
        lab_cells(l, "%d%s|%lld|%.2f|%.0f|%f s|%f s|%f share", length[i],
                  i == 0   ? " (just below)"
                  : i == 1 ? " (just above)"
                           : " (that wave full)",
                  (long long)cut.items, cut.waves, ceil(cut.waves - 1e-9), k[i].median_s,
                  k[i].median_s / (double)length[i], k[i].of_roof);
    }
    double equal = ceil(waves[1] - 1e-9) / ceil(waves[0] - 1e-9);
    lab_item(l, "wave_step",
             "one token more makes %.0f rounds instead of %.0f: %.2fx the time if all items were "
             "equally long. Measured %.2fx. %s",
             ceil(waves[1] - 1e-9), ceil(waves[0] - 1e-9), equal,
             lab_over(k[1].median_s, k[0].median_s),
             l->ordinal < 0
                 ? "On a CPU an item is as long as its rows are many: the new tile has one token's "
                   "rows, so there is hardly a step"
                 : "A tile of one token costs the tensor cores as much as a full one, but under "
                   "the causal mask items differ in length, longest first, which hides a part");
    return VT_OK;
}

/* The border of the documents' shape on an H200, by the plan alone. */
static vt_status tell_model(lab *l, vt_err *err)
{
    lab_heads h = {.heads = 32, .kv_heads = 8, .dim = 128, .page = 64, .kv = "bf16"};
    vt_target t;
    vt_cut below, above;
    lab_call c;
    TRY(lab_target_named("h200", &t, err));
    TRY(call_of(&t, &h, &c, err));
    int32_t border = lab_wave_border(&c, NULL, TOKENS / 2, 8 * TOKENS);
    if (border > 0 && lab_prompt_cut(&c, NULL, border - 1, &below) &&
        lab_prompt_cut(&c, NULL, border, &above))
        lab_item(
            l, "wave_model",
            "on an H200 (%d SMs, modelled: a plan is host work) 32/8 heads of 128 are cut into "
            "tiles of %d rows: %d tokens are %lld items, %.2f waves; %d tokens are %lld "
            "items, %.2f waves. %s",
            below.workers, below.tile[0], border - 1, (long long)below.items, below.waves, border,
            (long long)above.items, above.waves, below.roles);
    else
        lab_missing(l, "wave_model", "no border between waves up to %d tokens", 8 * TOKENS);
    lab_call_release(&c);
    return VT_OK;
}

/* ---- the sweep ---- */

static vt_status add_run(lab *l, lab_runs *r, const lab_heads *h, const char *impl, int32_t tokens,
                         const char *note, vt_err *err)
{
    if (r->n == LAB_MAX_RUNS)
        return VT_OK;
    lab_kernel *k = &r->k[r->n];
    TRY(run_length(l, h, impl, tokens, k, err));
    snprintf(r->name[r->n], sizeof r->name[0], "%d tokens, %d/%d heads of %d%s", tokens, h->heads,
             h->kv_heads, h->dim, note);
    r->n++;
    return VT_OK;
}

static vt_status sweep(lab *l, lab_runs *r, vt_err *err)
{
    static const int32_t quick[] = {128, 0}, full[] = {64, 128, 256, 512, 1024, 0},
                         swept[] = {32, 64, 128, 256, 512, 1024, 2048, 0}, small[] = {16, 32, 0};
    lab_heads h = lab_heads_model(l);
    const int32_t *length = lab_sizes(l, small, quick, full, swept);
    for (int i = 0; length[i]; i++) {
        lab_note(l, "%d tokens", length[i]);
        TRY(add_run(l, r, &h, NULL, length[i], "", err));
    }
    return VT_OK;
}

/* ---- hardware ---- */

static void tell_stalls(lab *l, const lab_kernel *k)
{
    char shape[200];
    lab_counters c;
    lab_heads h = lab_heads_32(l);
    shape_of(&h, tokens_of(l), shape, sizeof shape);
    if (lab_ncu_item(l, &(lab_kernel_ask){.op = op, .shape = shape, .impl = k->impl}, "attention",
                     "ncu_prefill.csv", "stalls", &c))
        lab_finding(l, "attention.counters",
                    "the matrix unit is busy in %.0f %% of the cycles in which an SM works, and "
                    "%.0f %% of an SM's warps are resident (read by ncu)",
                    100 * c.tensor, 100 * c.occupancy);
}

static void tell_hardware(lab *l, const lab_runs *r)
{
    const lab_kernel *k = &r->k[0];
    roofline_roof roof = lab_roof(l, true);
    lab_tell_occupancy(l, "occupancy", k);
    double share = lab_over(lab_over(k->flops, k->median_s), roof.flops_per_s);
    if (l->ordinal < 0)
        lab_item(l, "tensor_share",
                 "attention uses no matrix unit on a CPU; its vectors do %.0f %% of the "
                 "measured fp32 roof",
                 100 * share);
    else
        lab_figure(l, "tensor_share", share, VT_SHARE,
                   "of the measured bf16 roof of the tensor cores; FLOPs of the card");
    lab_figure(l, "hbm_share", lab_over(lab_bandwidth(k), roof.bytes_per_s), VT_SHARE,
               "of the measured memory roof; bytes of Q, K, V and O, each once");
    tell_stalls(l, k);
    lab_tell_roofline(l, r, "roofline", &roof);
}

/* ---- knobs ---- */

/* The next row of the card that takes the same call: another instruction set or another family. */
static vt_status turn_row(lab *l, const lab_heads *h, const lab_call *c, const lab_kernel *chosen,
                          vt_err *err)
{
    const char *row[16];
    char shape[200];
    lab_kernel other;
    shape_of(h, tokens_of(l), shape, sizeof shape);
    int32_t n = lab_kernel_rows(l, op, shape, row, 16, err);
    vt_cut a, b;
    for (int32_t i = 0; i < n; i++) {
        if (strcmp(row[i], chosen->impl) == 0 || strcmp(row[i], "any") == 0)
            continue;
        bool cpu = l->ordinal < 0 && lab_prompt_cut(c, chosen->impl, tokens_of(l), &a) &&
                   lab_prompt_cut(c, row[i], tokens_of(l), &b) && a.vector_bytes > 0;
        TRY(run_length(l, h, row[i], tokens_of(l), &other, err));
        lab_turn_kernels(l, row[i], l->ordinal < 0 ? "VITRINE_ISA" : "--attention-backend", op,
                         cpu ? (double)b.vector_bytes / a.vector_bytes : NAN, chosen, &other,
                         cpu ? "the same bytes and FLOPs; each instruction computes fewer of them"
                             : "the same bytes and FLOPs by mma.sync in place of wgmma: no byte "
                               "count tells them apart");
        break;
    }
    return VT_OK;
}

static vt_status turn_kv_type(lab *l, const lab_heads *h, const lab_kernel *chosen, vt_err *err)
{
    lab_heads fp8 = *h;
    lab_kernel k;
    fp8.kv = "fp8";
    TRY(run_length(l, &fp8, NULL, tokens_of(l), &k, err));
    lab_turn_kernels(l, "FP8 KV", "--kv-dtype fp8", op, lab_over(chosen->least_s, k.least_s),
                     chosen, &k,
                     "half the bytes of KV; but arithmetic limits here, so what is left to gain is "
                     "in the caches, less what widening FP8 costs");
    return VT_OK;
}

/* ---- the lab ---- */

static vt_status measure(lab *l, const lab_call *c, const lab_heads *h, vt_err *err)
{
    static const char what[] = "time of the call with 32 heads";
    lab_runs r = {.n = 0};
    vt_cut cut;
    char shape[160];
    int32_t tokens = tokens_of(l);
    shape_of(h, tokens, shape, sizeof shape);
    TRY(lab_kernel_predict(
        l, what, &(lab_kernel_ask){.op = op, .shape = shape},
        "FLOPs and bytes of the card over the measured roofs, and a launch or a meeting", err));
    lab_note(l, "%d tokens, %d heads", tokens, h->heads);
    TRY(add_run(l, &r, h, NULL, tokens, "", err));
    const lab_kernel *k = &r.k[0];
    lab_outcome(l, what, k->median_s, !l->emulated && k->disturbed);
    if (!lab_prompt_cut(c, k->impl, tokens, &cut))
        return vt_fail(err, VT_ERR_UNSUPPORTED, "%s does not say how it cuts its work", k->impl);
    tell_cut(l, h, &cut, tokens, k->bytes);
    TRY(sweep(l, &r, err));
    lab_tell_runs(l, &r, "lengths", "call", true);
    lab_heads model = lab_heads_model(l);
    lab_call small;
    TRY(call_of(&c->target, &model, &small, err));
    vt_status status = l->ordinal < 0 ? run_border(l, &small, &model, k, err)
                                      : run_border(l, c, h, k, err);
    lab_call_release(&small);
    TRY(status);
    TRY(tell_model(l, err));
    tell_hardware(l, &r);
    lab_kernel_card(l, "explanation", k, "causal attention of a whole prompt, online softmax",
                    "longer prompts raise FLOP/byte; short ones share a step with others");
    TRY(turn_row(l, h, c, k, err));
    return turn_kv_type(l, h, k, err);
}

static vt_status run(lab *l, vt_err *err)
{
    lab_heads h = lab_heads_32(l);
    vt_target t;
    lab_call c;
    TRY(lab_target(l, &t, err));
    TRY(call_of(&t, &h, &c, err));
    vt_status status = measure(l, &c, &h, err);
    lab_call_release(&c);
    return status;
}

const lab_def lab_flashinfer_prefill = {
    .track = LAB_FLASHINFER,
    .number = "02",
    .name = "profile_prefill",
    .goal = "You can say how a prompt's attention is cut into tiles and items, what limits it, and "
            "what a half-empty last wave costs.",
    .about = {"Attention of a prompt of 512 new tokens runs: 32 query heads, 8 KV heads.",
              "Q, K and V are read once and O is written once; the scores never leave the chip.",
              "Other lengths follow, among them two on either side of a border between waves."},
    .alias = {"02_profile_prefill.py"},
    .knobs = {{"VITRINE_ISA", LAB_OFFERED, "what", "VITRINE_ISA"},
              {"--attention-backend", LAB_OFFERED, "prefill attention_prefill",
               "--attention-backend"},
              {"--kv-dtype fp8", LAB_OFFERED, "prefill attention_prefill", "--kv-dtype fp8"}},
    .items = {{"online_softmax", "online softmax with the real tiles", false},
              {"tiles", "tiles of Q and K, and those that the mask skips", false},
              {"work_distribution", "items over SMs or cores", false},
              {"roles", "specialised warps", false},
              {"wave_quantisation", "lengths just below and above a border between waves", false},
              {"wave_step", "what one token more costs at the border", false},
              {"wave_model", "the same border on a GPU of 132 SMs", false},
              {"lengths", "several lengths, 512 tokens with 32 heads among them", false},
              {"occupancy", "occupancy and its limiter", true},
              {"tensor_share", "share of the matrix unit", true},
              {"hbm_share", "share of the memory roof", true},
              {"stalls", "what warps wait for", true},
              {"roofline", "position on the roofline", true},
              {"explanation", "operation, execution, hardware, bottleneck, opportunity", true}},
    .kernels = true,
    .run = run,
};
