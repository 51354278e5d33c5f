/* Lab 04 of the track mini-sglang: attention in prefill and in decode.
 *
 *   prefill   512 query rows share each K and V row      many FLOPs a byte: arithmetic limits
 *   decode    1 query row a sequence reads all of K, V   few FLOPs a byte: memory limits
 *
 * A batch of decodes has more rows, but each sequence brings its own K and V: attention's FLOPs a
 * byte do not change with the batch. Those of the linear layers do, because their weights are
 * shared. The trail shows both. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "lab/mini_sglang/mini_sglang.h"
#include "lab/profilers/ncu_run.h"
#include "ops/attention/attention.h"

enum { HEADS = 32, KV_HEADS = 8, HEAD_DIM = 128, MAX_TRAIL = 8, PREFILL = 512 };

static void shape_text(const lab *l, char *out, size_t size, int32_t seqs, int32_t q_len,
                       int32_t kv_len)
{
    size_t n = 0;
    vt_append(out, size, &n,
              "seqs=%d,kv_len=%d,heads=%d,kv_heads=%d,head_dim=%d,kv_type=%s,page=%d", seqs, kv_len,
              HEADS, KV_HEADS, HEAD_DIM, l->ordinal >= 0 ? "bf16" : "f16",
              l->ordinal >= 0 ? 64 : 16);
    if (q_len > 1)
        vt_append(out, size, &n, ",q_len=%d", q_len);
}

static vt_status attend(lab *l, int32_t seqs, int32_t q_len, int32_t kv_len, const char *impl,
                        lab_kernel *out, vt_err *err)
{
    char shape[160];
    shape_text(l, shape, sizeof shape, seqs, q_len, kv_len);
    const char *op = q_len > 1 ? "attention_prefill" : "attention_decode";
    lab_note(l, "%s, %s", op, shape);
    return lab_kernel_run(l, &(lab_kernel_ask){.op = op, .shape = shape, .impl = impl}, out, err);
}

static double intensity(const lab_kernel *k) { return k->flops / k->bytes; }

/* The arithmetic roof that attention is held against. */
static double peak_per_s(const lab *l)
{
    const vt_roofs *r = &l->roofs;
    return l->ordinal >= 0 && r->bf16_per_s > 0 ? r->bf16_per_s : r->fp32_per_s;
}

/* ---- the trail ---- */

typedef struct point {
    char mark; /* 'P', '1', '2', '4', '8', 'a' (16), 'b' (32) */
    char name[40];
    lab_kernel k;
    double linear; /* FLOPs a byte of the model's linear layers in such a step; NAN: not known */
} point;

typedef struct trail {
    point at[MAX_TRAIL];
    int32_t n;
    int32_t context;
} trail;

/* FLOPs a byte of all linear layers of the model in a step of n sequences. */
static double linear_intensity(mini_pass *p, int32_t n, int32_t q_len, int32_t kv_len)
{
    vt_err err;
    vt_cost sum = {0};
    if (mini_pass_set(p, n, q_len, kv_len, &err) != VT_OK)
        return NAN;
    for (int32_t i = 0; i < p->described.program->n_calls; i++) {
        vt_cost c = {0}, extra = {0};
        if (strcmp(p->described.program->call[i].op->name, "linear") == 0 &&
            story_step_cost(p->step, i, &c, &extra))
            vt_cost_add(&sum, &c);
    }
    return vt_cost_bytes(&sum) ? (double)vt_cost_flops(&sum) / (double)vt_cost_bytes(&sum) : NAN;
}

static vt_status add_point(lab *l, mini_pass *p, trail *t, int32_t seqs, int32_t q_len,
                           int32_t kv_len, vt_err *err)
{
    static const char mark[] = "1248ab";
    point *x = &t->at[t->n];
    TRY(attend(l, seqs, q_len, kv_len, NULL, &x->k, err));
    x->linear = linear_intensity(p, seqs, q_len, kv_len);
    x->mark = q_len > 1 ? 'P' : mark[t->n - 1];
    if (q_len > 1)
        snprintf(x->name, sizeof x->name, "prefill of %d", q_len);
    else
        snprintf(x->name, sizeof x->name, "decode x %d, %d KV", seqs, kv_len);
    t->n++;
    return VT_OK;
}

static void trail_table(lab *l, const trail *t)
{
    lab_table(l, "compare",
              t->context < 4096 && !l->emulated
                  ? "attention, 32 heads and 8 KV heads of 128 (decode x 32 with 4096 KV reads 537 "
                    "MB: full form)"
                  : "attention from prefill to decode, 32 heads and 8 KV heads of 128",
              "mark|step|>bytes|>FLOP/B|>time|>GB/s|>GFLOP/s|>of roof|bound|>linear");
    for (int32_t i = 0; i < t->n; i++) {
        const point *x = &t->at[i];
        lab_cells(l, "%c|%s|%f B|%.1f|%f s", x->mark, x->name, x->k.bytes, intensity(&x->k),
                  x->k.median_s);
        lab_cell(l, isfinite(x->k.median_s) ? "%.1f" : "n/a", x->k.bytes / x->k.median_s * 1e-9);
        lab_cell(l, isfinite(x->k.median_s) ? "%.0f" : "n/a", x->k.flops / x->k.median_s * 1e-9);
        lab_cells(l, "%f share|%s", x->k.of_roof, x->k.bound ? x->k.bound : "not known");
        lab_cell(l, isfinite(x->linear) ? "%.1f" : "n/a", x->linear);
    }
}

static void draw(lab *l, const trail *t)
{
    mini_point p[MAX_TRAIL];
    for (int32_t i = 0; i < t->n; i++)
        p[i] = (mini_point){t->at[i].mark, intensity(&t->at[i].k),
                            t->at[i].k.flops / t->at[i].k.median_s};
    mini_roofline(l, "trail", "the roofline trail from prefill to decode", peak_per_s(l), p, t->n,
                  "P prefill; 1 2 4 8 a b: decodes at batch 1 2 4 8 16 32");
}

static vt_status measure_trail(lab *l, mini_pass *p, trail *t, vt_err *err)
{
    bool all = lab_flag(l, "sweep") || !l->quick;
    int32_t prefill = l->emulated ? 64 : PREFILL;
    TRY(add_point(l, p, t, 1, prefill, prefill, err));
    int32_t most = !l->emulated && (all || l->ordinal >= 0) ? 32 : 8;
    for (int32_t batch = 1; batch <= most; batch *= 2)
        TRY(add_point(l, p, t, batch, 1, t->context, err));
    return VT_OK;
}

/* ---- which kernel is chosen ---- */

static void put_choices(lab *l, const vt_program *p, const char *op)
{
    for (int32_t i = 0; i < p->n_calls; i++) {
        const vt_call *c = &p->call[i];
        if (strcmp(c->op->name, op) != 0)
            continue;
        for (int32_t n = 0; n < c->n_choices; n++) {
            lab_cell(l, "%s", op);
            if (n + 1 < c->n_choices)
                lab_cell(l, "up to %d", c->choice[n].upto);
            else
                lab_cell(l, "%s", n ? "more" : "every size");
            lab_cells(l, "%s|%s", c->choice[n].impl->name,
                      c->choice[n].impl->plan ? c->choice[n].impl->plan->name : "none");
        }
        return; /* all layers are alike */
    }
}

static void tell_choice(lab *l, const mini_pass *p)
{
    lab_table(l, "chosen", "the row that the engine runs, by size (tokens, or decodes)",
              "op|size|row|plan a step");
    put_choices(l, p->described.program, "attention_prefill");
    put_choices(l, p->described.program, "attention_decode");
    lab_item(
        l, "chosen_why",
        "a sequence with one new token is a decode and goes to attention_decode, all others go "
        "to attention_prefill; within a card the first row that supports the call and suits its "
        "size is taken, and --attention-backend puts another one first");
}

/* ---- hardware ---- */

static void tell_hardware(lab *l, const trail *t)
{
    const lab_kernel *p = &t->at[0].k, *d = &t->at[1].k;
    if (l->ordinal < 0) {
        double busy = d->waves < 1 && d->waves > 0 ? d->waves : 1;
        lab_item(l, "occupancy",
                 "a CPU has no occupancy; its like is how many workers have work: prefill: %s. "
                 "Decode at batch 1: %s. %.0f %% of the %d workers",
                 p->cut, d->cut, 100 * busy, l->threads);
        lab_item(
            l, "matrix_unit",
            "this row multiplies in fp32 (%s); int8 and bf16 units are not used by attention, so "
            "prefill reaches %.0f %% of the fp32 roof and decode at batch 1 %.0f %%",
            l->roofs.fp32_how ? l->roofs.fp32_how : "scalar",
            100 * p->flops / p->median_s / l->roofs.fp32_per_s,
            100 * d->flops / d->median_s / l->roofs.fp32_per_s);
    } else {
        lab_item(l, "occupancy",
                 "prefill: %.0f %% of an SM's warps, limited by %s, %.2f waves; decode at batch 1: "
                 "%.0f %%, limited by %s, %.2f waves (computed from registers, shared memory and "
                 "threads)",
                 100 * p->occupancy, p->limited_by, p->waves, 100 * d->occupancy, d->limited_by,
                 d->waves);
        if (isfinite(p->median_s))
            lab_item(l, "matrix_unit",
                     "prefill reaches %.0f %% of the measured bf16 matrix roof, decode at batch 1 "
                     "%.1f %%: with one query row a tile of 16 or 64 rows is mostly empty",
                     100 * p->flops / p->median_s / l->roofs.bf16_per_s,
                     100 * d->flops / d->median_s / l->roofs.bf16_per_s);
        else
            lab_missing(l, "matrix_unit", "times mean nothing on an emulated GPU");
    }
    char shape[160];
    lab_counters c;
    shape_text(l, shape, sizeof shape, 1, 1, t->context);
    lab_ncu_item(l, &(lab_kernel_ask){.op = "attention_decode", .shape = shape, .impl = d->impl},
                 "attention", "ncu_decode.csv", "stalls", &c);
}

/* ---- knobs ---- */

/* Every other row on the decode of batch 1 and on the prefill. */
static vt_status turn_rows(lab *l, const trail *t, vt_err *err)
{
    for (int32_t i = 0; i < 2; i++) {
        const lab_kernel *before = &t->at[i].k;
        const char *name[MINI_MAX_ROWS], *op = i ? "attention_decode" : "attention_prefill";
        char shape[160], where[96];
        int32_t q = i ? 1 : l->emulated ? 64 : PREFILL;
        shape_text(l, shape, sizeof shape, 1, q, i ? t->context : q);
        int32_t n = lab_kernel_rows(l, op, shape, name, MINI_MAX_ROWS, err);
        for (int32_t r = 0; r < n; r++) {
            lab_kernel after;
            /* other rows of a prefill, such as the scalar one, take seconds */
            bool slow = l->quick && i == 0 && !lab_flag(l, "compare");
            if (strcmp(name[r], before->impl) == 0 || slow ||
                attend(l, 1, q, i ? t->context : q, name[r], &after, err) != VT_OK)
                continue;
            if (lab_is_variant(op, name[r]))
                snprintf(where, sizeof where, "variant %s of %s", name[r], op);
            else
                snprintf(where, sizeof where, "--attention-backend %s", name[r]);
            lab_turn_kernels(l, name[r], where, after.shape, before->least_s / after.least_s,
                             before, &after,
                             "the same bytes and FLOPs: a difference is how well the "
                             "row uses the units and hides latency");
        }
    }
    return VT_OK;
}

static vt_status turn_type(lab *l, const trail *t, vt_err *err)
{
    char shape[200];
    lab_kernel after;
    const lab_kernel *before = &t->at[1].k;
    snprintf(shape, sizeof shape,
             "seqs=1,kv_len=%d,heads=%d,kv_heads=%d,head_dim=%d,kv_type=fp8,page=%d", t->context,
             HEADS, KV_HEADS, HEAD_DIM, l->ordinal >= 0 ? 64 : 16);
    TRY(lab_kernel_run(l, &(lab_kernel_ask){.op = "attention_decode", .shape = shape}, &after,
                       err));
    lab_turn_kernels(l, "KV cache in FP8", "--kv-dtype fp8", before->shape,
                     before->bytes / after.bytes, before, &after,
                     "a decode that memory limits reads half the bytes; one that "
                     "instructions limit pays for the conversion");
    return VT_OK;
}

static void tell_trail(lab *l, const trail *t)
{
    const point *p = &t->at[0], *one = &t->at[1], *last = &t->at[t->n - 1];
    lab_finding(l, "attention.intensity",
                "attention has %.1f FLOP a byte in the prefill and %.1f in a decode at batch 1; at "
                "%s it still has %.1f, because every sequence reads a KV of its own. The linear "
                "layers of this model go from %.1f to %.1f FLOP a byte over the same batches: "
                "batching helps them, and attention only by filling the machine",
                intensity(&p->k), intensity(&one->k), last->name, intensity(&last->k), one->linear,
                last->linear);
}

static vt_status measure(lab *l, mini_pass *p, trail *t, vt_err *err)
{
    static const char what[] = "time of a decode's attention at batch 1";
    char shape[160];
    t->context = l->emulated ? 128 : l->quick && l->ordinal < 0 ? 1024 : 4096;
    shape_text(l, shape, sizeof shape, 1, 1, t->context);
    TRY(lab_kernel_predict(l, what, &(lab_kernel_ask){.op = "attention_decode", .shape = shape},
                           "K and V of the context at the memory roof, and the launch", err));
    TRY(measure_trail(l, p, t, err));
    if (t->n < 2)
        return VT_OK; /* interrupted */
    lab_outcome(l, what, t->at[1].k.median_s, t->at[1].k.disturbed);
    trail_table(l, t);
    if (l->emulated)
        lab_missing(l, "trail", "times and roofs mean nothing on an emulated GPU");
    else
        draw(l, t);
    tell_choice(l, p);
    tell_hardware(l, t);
    tell_trail(l, t);
    lab_kernel_card(l, "card_prefill", &t->at[0].k, "online softmax over tiles of Q and K",
                    "more query rows a tile, where registers allow");
    lab_kernel_card(l, "card_decode", &t->at[1].k, "one query row a head reads all of K and V",
                    "fewer bytes: KV in FP8, or pages that several sequences share");
    TRY(turn_rows(l, t, err));
    return turn_type(l, t, err);
}

static vt_status run(lab *l, vt_err *err)
{
    mini_pass p;
    trail *t = calloc(1, sizeof *t);
    if (!t)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for the trail");
    vt_status status = mini_pass_open(l, &p, err);
    if (status == VT_OK) {
        status = measure(l, &p, t, err);
        mini_pass_close(&p);
    }
    free(t);
    return status;
}

const lab_def mini_profile_attention = {
    .track = LAB_MINI_SGLANG,
    .number = "04",
    .name = "profile_attention",
    .goal =
        "You know how many FLOPs a byte attention has in prefill and in decode, which roof that "
        "means on this machine, and why a larger batch does not change it.",
    .about = {"The attention of one prompt, then of 1, 2, 4 ... decodes, with 32 heads that share "
              "8 KV heads.",
              "A decode reads the K and V of its whole context once: 2 x 8 x 128 values a token.",
              "Each point goes onto one roofline."},
    .alias = {"04_profile_attention.py", NULL},
    .knobs = {{"--attention-backend", LAB_OFFERED, "attention", "--attention-backend"},
              {"variant", LAB_OFFERED, "attention", LAB_BY_CARD},
              {"--kv-dtype fp8", LAB_OFFERED, "attention", "--kv-dtype fp8"}},
    .items = {{"compare", "prefill against decode", false},
              {"chosen", "when which kernel is chosen", false},
              {"chosen_why", "why", false},
              {"trail", "the roofline trail from prefill to decode at batch 1, 2, 4 ...", false},
              {"card_prefill", "prefill: execution, hardware, bottleneck, opportunity", true},
              {"card_decode", "decode: execution, hardware, bottleneck, opportunity", true},
              {"occupancy", "occupancy and its limiter", true},
              {"matrix_unit", "share of the matrix unit", true},
              {"stalls", "stall reasons", true}},
    .kernels = true,
    .run = run,
};
