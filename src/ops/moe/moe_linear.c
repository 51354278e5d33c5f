/* The experts' linears: the card, and one implementation that runs every expert through the linear
 * op.
 *
 *   for each expert that some token has chosen, in rising order
 *     gather    x rows of its tokens            -> xe [rows, hidden]
 *     linear    gate+up, gated epilogue         -> he [rows, expert_ffn]
 *     linear    down                            -> oe [rows, hidden]
 *     scatter   y[t] += weight[t, j] * oe[row]
 *
 * A token's results are added in the rising order of its experts, whatever else is in the batch, so
 * its bits depend on nothing else. The linears are those of the dense layers (the same packed
 * layouts, the same instruction sets). All workers call each of them together, with a ticket of its
 * own. An expert costs three barriers of 0.2 us, which is little beside the time for its weights
 * (4.7 MB in Qwen3-30B-A3B at 8 bit).
 *
 * FP8 experts are exact: they are packed as BF16, 2 bytes a weight, which has every E4M3 value;
 * sums of 128 columns are scaled in fp32, each part of each expert by its own scales. */
#include "ops/moe/moe.h"

#include <stdlib.h>
#include <string.h>

#include "ops/access.h"
#include "ops/cases.h"
#include "ops/cuda_impls.h"
#include "ops/cut.h"
#include "ops/linear/linear.h"

/* ---- cost ---- */

static int64_t weight_bytes(const vt_weight *w)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < w->n_parts; i++)
        sum += vt_tensor_bytes(w->part[i]) + (w->scale[i] ? vt_tensor_bytes(w->scale[i]) : 0);
    return sum;
}

static vt_cost moe_linear_cost(const void *args, const vt_batch *batch)
{
    const moe_linear_args *a = args;
    int64_t pairs = moe_own_pairs(a, vt_batch_elems(a->expert, batch)), hidden = a->y->dim[1],
            ffn = a->down[0].cols;
    int64_t experts = pairs < a->n_experts ? pairs : a->n_experts;
    int64_t products = (moe_gated(a) ? 6 : 4) * pairs * hidden * ffn;
    /* on tensor cores of a GPU; on AMX, where a CPU has it */
    bool bf16 = a->x->dtype == VT_BF16 || a->down[0].dtype == VT_BF16;
    bool int8 = !bf16 && vt_dtype_quantised(a->down[0].dtype);
    vt_cost c = {
        .read = {.weights = experts * (weight_bytes(&a->gate_up[0]) + weight_bytes(&a->down[0])),
                 .activations = vt_batch_bytes(a->x, batch) + pairs * 8},
        .write = {.activations = vt_batch_bytes(a->y, batch)},
        .flops = {.int8 = int8 ? products : 0,
                  .bf16 = bf16 ? products : 0,
                  .fp32 = (int8 || bf16 ? 0 : products) +
                          /* the activation; the weighted sum */
                          pairs * ((moe_gated(a) ? 4 : 2) * ffn + 2 * hidden)},
    };
    if (a->bias) {
        c.read.weights += experts * vt_dtype_row_bytes(a->bias->dtype, 2 * ffn);
        c.flops.fp32 += pairs * 2 * ffn;
    }
    if (a->down_bias) {
        c.read.weights += experts * vt_dtype_row_bytes(a->down_bias->dtype, hidden);
        c.flops.fp32 += pairs * hidden;
    }
    if (a->accumulate)
        c.read.activations += vt_batch_bytes(a->y, batch);
    return c;
}

/* ---- reference: one token and one expert at a time, with the linear op's reference ---- */

static linear_epilogue epilogue_of(const moe_linear_args *a)
{
    return !moe_gated(a)                     ? LINEAR_NONE
           : a->activation == VT_ACT_CLAMPED ? LINEAR_CLAMPED
           : a->activation == VT_ACT_SILU    ? LINEAR_SWIGLU
                                             : LINEAR_GEGLU;
}

/* The activation of experts without gates, in place; others have it in the epilogue. */
static void square_relu(const moe_linear_args *a, float *h, int64_t n)
{
    for (int64_t i = 0; i < n && !moe_gated(a); i++)
        h[i] = h[i] > 0 ? h[i] * h[i] : 0;
}

/* Row `row` of a matrix of biases as a vector. */
static vt_tensor bias_row(const vt_tensor *t, int64_t row)
{
    vt_tensor v = *t;
    v.rank = 1;
    v.dim[0] = v.row_stride = t->dim[1];
    v.data = (char *)t->data + row * vt_dtype_row_bytes(t->dtype, t->row_stride);
    return v;
}

/* Writes the biases of an expert's gate and up, one after the other, to `out`. Returns a view of
 * them; without biases it has no elements. */
static vt_tensor pair_bias(const moe_linear_args *a, int32_t e, float *out)
{
    int64_t ffn = a->down[0].cols;
    for (int64_t i = 0; a->bias && i < ffn; i++) {
        out[i] = tensor_get(a->bias, e, i);
        out[ffn + i] = tensor_get(a->bias, a->n_experts + e, i);
    }
    return (vt_tensor){.data = out,
                       .dtype = VT_F32,
                       .rank = 1,
                       .dim = {a->bias ? 2 * ffn : 0},
                       .row_stride = 2 * ffn};
}

/* An expert's first product. */
static linear_args up_args(const moe_linear_args *a, int32_t e, const vt_tensor *x, vt_tensor *h,
                           const vt_tensor *bias)
{
    return (linear_args){.x = x,
                         .w = &a->gate_up[e],
                         .bias = a->bias ? bias : NULL,
                         .y = h,
                         .epilogue = epilogue_of(a),
                         .limit = a->limit,
                         .scale = 1};
}

/* Its second, whose bias becomes `last`. */
static linear_args down_args(const moe_linear_args *a, int32_t e, const vt_tensor *h, vt_tensor *o,
                             vt_tensor *last)
{
    if (a->down_bias)
        *last = bias_row(a->down_bias, e);
    return (linear_args){
        .x = h, .w = &a->down[e], .bias = a->down_bias ? last : NULL, .y = o, .scale = 1};
}

static void moe_linear_reference(const void *args)
{
    const moe_linear_args *a = args;
    int64_t hidden = a->y->dim[1], ffn = a->down[0].cols;
    float *he = malloc((size_t)(3 * ffn + hidden) * sizeof *he), *oe = he + ffn, *be = oe + hidden;
    for (int64_t t = 0; he && t < a->x->dim[0]; t++) {
        float *y = row_f32(a->y, t);
        if (!a->accumulate)
            memset(y, 0, (size_t)hidden * sizeof *y);
        for (int64_t j = 0; j < a->expert->dim[1]; j++) {
            int32_t e = ((const int32_t *)a->expert->data)[t * a->expert->row_stride + j];
            if (e < 0)
                continue;
            vt_tensor x = vt_tensor_2d(row_f32(a->x, t), VT_F32, 1, hidden);
            vt_tensor h = vt_tensor_2d(he, VT_F32, 1, ffn), o = vt_tensor_2d(oe, VT_F32, 1, hidden);
            vt_tensor bias = pair_bias(a, e, be), last;
            linear_args up = up_args(a, e, &x, &h, &bias), down = down_args(a, e, &h, &o, &last);
            linear_op.reference(&up);
            square_relu(a, he, ffn);
            linear_op.reference(&down);
            for (int64_t i = 0; i < hidden; i++)
                y[i] += row_f32(a->weight, t)[j] * oe[i];
        }
    }
    free(he);
}

/* ---- implementation ---- */

/* The shared workspace. Expert e has the pairs p with start[e] <= p < start[e + 1]; pair[p] / k is
 * the token and pair[p] % k says which of its choices this is. */
typedef struct moe_space {
    atomic_int *ticket;    /* [2 n_experts] */
    int32_t *start, *pair; /* [n_experts + 1], [pairs] */
    float *xe, *he, *oe;   /* [tokens][hidden], [tokens][ffn], [tokens][hidden] */
    float *bias;           /* [2 ffn], of the expert's gate and up */
    void *linear;
    size_t bytes, linear_bytes;
} moe_space;

static size_t take(size_t *at, size_t bytes)
{
    size_t from = *at;
    *at += vt_round_up(bytes, VT_CACHE_LINE);
    return from;
}

static moe_space space_at(const moe_linear_args *a, int64_t tokens, char *memory)
{
    uintptr_t base = (uintptr_t)memory; /* NULL where only the size is asked for */
    size_t at = 0, n = (size_t)a->n_experts, rows = (size_t)tokens, k = (size_t)a->expert->dim[1];
    size_t hidden = (size_t)a->y->dim[1] * sizeof(float),
           ffn = (size_t)a->down[0].cols * sizeof(float);
    moe_space s = {0};
    s.ticket = (atomic_int *)(base + take(&at, 2 * n * sizeof *s.ticket));
    s.start = (int32_t *)(base + take(&at, (n + 1) * sizeof *s.start));
    s.pair = (int32_t *)(base + take(&at, rows * k * sizeof *s.pair));
    s.xe = (float *)(base + take(&at, rows * hidden));
    s.he = (float *)(base + take(&at, rows * ffn));
    s.oe = (float *)(base + take(&at, rows * hidden));
    s.bias = (float *)(base + take(&at, a->bias ? 2 * ffn : 0));
    s.linear = (char *)(base + at);
    s.bytes = at;
    return s;
}

static size_t moe_linear_workspace(const void *args, const vt_target *t)
{
    const vt_limits *limits = &t->limits;
    const moe_linear_args *a = args;
    int64_t hidden = a->y->dim[1], ffn = a->down[0].cols, tokens = limits->max_tokens;
    vt_tensor x = vt_tensor_2d(NULL, VT_F32, tokens, hidden),
              h = vt_tensor_2d(NULL, VT_F32, tokens, ffn);
    linear_args up = up_args(a, 0, &x, &h, a->bias);
    linear_args down = {.x = &h, .w = &a->down[0], .y = &x, .scale = 1};
    const vt_impl *iu = linear_packed_row(&up, t), *id = linear_packed_row(&down, t);
    size_t bu = iu->workspace ? iu->workspace(&up, t) : 0,
           bd = id->workspace ? id->workspace(&down, t) : 0;
    return space_at(a, tokens, NULL).bytes + (bu > bd ? bu : bd);
}

/* Sorts the (token, choice) pairs by expert, by counting. Pairs of padding tokens are left out. */
static void sort_pairs(const moe_linear_args *a, const moe_space *s)
{
    int64_t tokens = a->x->dim[0], k = a->expert->dim[1];
    const int32_t *expert = a->expert->data;
    int64_t stride = a->expert->row_stride;
    memset(s->start, 0, (size_t)(a->n_experts + 1) * sizeof *s->start);
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t j = 0; j < k; j++)
            if (expert[t * stride + j] >= 0)
                s->start[expert[t * stride + j] + 1]++;
    for (int32_t e = 0; e < a->n_experts; e++)
        s->start[e + 1] += s->start[e];
    int32_t n_pairs = s->start[a->n_experts];
    for (int64_t t = tokens - 1; t >= 0; t--) /* fills each expert's range from its end */
        for (int64_t j = k - 1; j >= 0; j--)
            if (expert[t * stride + j] >= 0)
                s->pair[--s->start[expert[t * stride + j] + 1]] = (int32_t)(t * k + j);
    for (int32_t e = 0; e < a->n_experts; e++) /* each start has moved one place up */
        s->start[e] = s->start[e + 1];
    s->start[a->n_experts] = n_pairs;
    for (int32_t e = 0; e < 2 * a->n_experts; e++)
        atomic_store_explicit(&s->ticket[e], 0, memory_order_relaxed);
}

static void run_linear(const linear_args *args, const moe_space *s, atomic_int *ticket,
                       const vt_lane *lane)
{
    vt_lane inner = *lane;
    inner.ticket = ticket;
    inner.workspace = s->linear;
    inner.workspace_bytes = s->linear_bytes;
    linear_packed_row(args, lane->target)->run(args, &inner);
    vt_team_barrier(lane->team, lane->worker);
}

static void run_expert(const moe_linear_args *a, int32_t e, const moe_space *s, const vt_lane *lane)
{
    int64_t hidden = a->y->dim[1], ffn = a->down[0].cols, k = a->expert->dim[1], begin, end;
    int64_t rows = s->start[e + 1] - s->start[e];
    const int32_t *pair = s->pair + s->start[e];
    vt_lane_share(lane, rows, 1, &begin, &end);
    for (int64_t r = begin; r < end; r++)
        memcpy(s->xe + r * hidden, row_f32(a->x, pair[r] / k), (size_t)hidden * sizeof(float));
    if (lane->worker == 0)
        pair_bias(a, e, s->bias);
    vt_team_barrier(lane->team, lane->worker);
    vt_tensor bias = {
        .data = s->bias, .dtype = VT_F32, .rank = 1, .dim = {2 * ffn}, .row_stride = 2 * ffn};
    vt_tensor x = vt_tensor_2d(s->xe, VT_F32, rows, hidden),
              h = vt_tensor_2d(s->he, VT_F32, rows, ffn);
    vt_tensor o = vt_tensor_2d(s->oe, VT_F32, rows, hidden), last;
    linear_args up = up_args(a, e, &x, &h, &bias), down = down_args(a, e, &h, &o, &last);
    run_linear(&up, s, &s->ticket[2 * e], lane);
    if (!moe_gated(a)) {
        square_relu(a, s->he + begin * ffn, (end - begin) * ffn);
        vt_team_barrier(lane->team, lane->worker);
    }
    run_linear(&down, s, &s->ticket[2 * e + 1], lane);
    for (int64_t r = begin; r < end;
         r++) { /* a token is in an expert's list once: rows are this worker's own */
        float *y = row_f32(a->y, pair[r] / k),
              weight = row_f32(a->weight, pair[r] / k)[pair[r] % k];
        for (int64_t i = 0; i < hidden; i++)
            y[i] += weight * s->oe[r * hidden + i];
    }
}

static vt_status moe_linear_run(const void *args, const vt_lane *lane)
{
    const moe_linear_args *a = args;
    moe_space s = space_at(a, a->x->dim[0], lane->workspace);
    s.linear_bytes = lane->workspace_bytes - s.bytes;
    if (lane->worker == 0)
        sort_pairs(a, &s);
    int64_t begin, end;
    vt_lane_share(lane, a->y->dim[0], 1, &begin, &end);
    for (int64_t t = begin; t < end && !a->accumulate; t++)
        memset(row_f32(a->y, t), 0, (size_t)a->y->dim[1] * sizeof(float));
    vt_team_barrier(lane->team, lane->worker);
    for (int32_t e = 0; e < a->n_experts; e++)
        if (s.start[e + 1] > s.start[e])
            run_expert(a, e, &s, lane);
    return VT_OK;
}

static bool moe_linear_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const moe_linear_args *a = args;
    return a->x->dtype == VT_F32 && a->y->dtype == VT_F32;
}

/* ---- cases ---- */

enum {
    TOKENS,
    HIDDEN,
    FFN,
    EXPERTS,
    USED,
    TYPE,
    SCALES,
    ACTIVATION,
    ACCUMULATE,
    PADDING,
    BIAS,
    ALL
};

static const char *const activations[] = {[VT_ACT_SILU] = "silu",
                                          [VT_ACT_GELU_TANH] = "gelu",
                                          [VT_ACT_CLAMPED] = "clamped",
                                          [VT_ACT_RELU2] = "relu2",
                                          NULL};

static const vt_field moe_linear_fields[] = {
    [TOKENS] = {"tokens", 1, false, 1 << 14, .grows = VT_GROWS_TOKENS},
    [HIDDEN] = {"hidden", 2048, false, 1 << 14},
    [FFN] = {"ffn", 768, false, 1 << 15},
    [EXPERTS] = {"experts", 16, false, 1024},
    [USED] = {"k", 8, false, 1024},
    [TYPE] = {"type", VT_BF16, true},
    [SCALES] = {"scales", 0, false, 2, case_scale_words},
    [ACTIVATION] = {"activation", 0, false, VT_ACT_RELU2, activations},
    [ACCUMULATE] = {"accumulate", 0, false, 1},
    [PADDING] = {"padding", 0, false, 1 << 14}, /* of the tokens, the last ones */
    [BIAS] = {"bias", 0, false, 2},             /* 2: of gate and up alone */
    [ALL] = {"all", 0, false, 1024},            /* experts of all ranks; 0: there are no others */
};

static const char *moe_linear_refuses(const vt_case *c)
{
    const int64_t *p = c->p;
    int64_t block = vt_dtype_get((vt_dtype)p[TYPE])->block;
    if (!vt_dtype_weight((vt_dtype)p[TYPE]) || p[HIDDEN] % block || p[FFN] % block)
        return "type: hidden and ffn are multiples of its block of columns";
    if (p[SCALES] && p[TYPE] != VT_FP8_E4M3)
        return "scales: of fp8 weights only";
    if (p[ALL] && p[ALL] < p[EXPERTS])
        return "all: at least as many as experts";
    if (p[BIAS] && p[ACTIVATION] == VT_ACT_RELU2)
        return "bias: of experts with gates alone";
    if (p[USED] > (p[ALL] ? p[ALL] : p[EXPERTS]))
        return "k: at most as many as experts";
    if (p[PADDING] > p[TOKENS])
        return "padding: at most as many as tokens";
    return p[HIDDEN] * p[FFN] * p[EXPERTS] > (int64_t)1 << 32
               ? "experts: hidden times ffn times experts is at most 2^32"
               : NULL;
}

/* The cases have float and FP8 weights. With quantised ones a CPU quantises the activations between
 * the two linears to int8, which costs half a percent and would hide errors of that size
 * (tests/unit/test_op_moe.c bounds it). */
static const char *const moe_linear_cases[] = {
    "*tokens=1 hidden=2048 ffn=768 experts=32 k=8 type=fp8 scales=blocks",
    "*tokens=1 hidden=2048 ffn=768 experts=16 k=8",
    "*tokens=64 hidden=1024 ffn=768 experts=16 k=8",
    "tokens=9 hidden=36 ffn=20 experts=5 k=2 type=f32",
    "tokens=7 hidden=64 ffn=96 experts=8 k=3 type=f16 activation=gelu accumulate=1",
    "tokens=8 hidden=64 ffn=40 experts=6 k=2 padding=3",
    "tokens=5 hidden=33 ffn=65 experts=4 k=4",
    "tokens=6 hidden=37 ffn=41 experts=5 k=2 type=fp8 scales=one activation=gelu accumulate=1",
    "tokens=3 hidden=141 ffn=135 experts=9 k=2 type=fp8 scales=blocks",
    "tokens=4 hidden=40 ffn=35 experts=3 k=2 type=fp8 scales=one",
    "tokens=37 hidden=264 ffn=144 experts=3 k=2 type=fp8 scales=blocks",
    "tokens=9 hidden=96 ffn=64 experts=8 k=4 activation=clamped bias=1",
    "tokens=5 hidden=33 ffn=65 experts=4 k=3 type=f32 bias=1 accumulate=1",
    "tokens=6 hidden=96 ffn=64 experts=5 k=3 activation=clamped bias=2",
    "tokens=9 hidden=96 ffn=64 experts=3 k=4 all=10 bias=1 padding=2",
    "tokens=1 hidden=64 ffn=96 experts=2 k=5 all=7 accumulate=1",
    "tokens=7 hidden=33 ffn=65 experts=1 k=3 all=4",
    "tokens=37 hidden=264 ffn=144 experts=3 k=2 all=8 type=fp8 scales=blocks",
    "tokens=1 hidden=96 ffn=72 experts=8 k=4 activation=relu2 accumulate=1",
    "tokens=37 hidden=64 ffn=40 experts=5 k=3 activation=relu2 padding=2",
    "tokens=7 hidden=33 ffn=65 experts=4 k=3 activation=relu2 all=9",
    "tokens=1|20 hidden=256 ffn=64 experts=4 k=2 type=q8_0 activation=relu2",
    NULL,
};

static const char *const moe_linear_draws[] = {
    "tokens=~60 hidden=64|42 ffn=96|27 experts=1..6 k=1..6 activation=silu|gelu|clamped "
    "accumulate=0|1 padding=0|0..30 bias=0|1|2 all=0|6..20",
    "tokens=~60 hidden=160|192 ffn=96|64 experts=1..6 k=1..6 type=q8_0|q4_0|q4_1|mxfp4 "
    "activation=silu|gelu|clamped accumulate=0|1 padding=0|0..30 bias=0|1|2 all=0|6..20",
    "tokens=~60 hidden=256|512 ffn=512|256 experts=1..6 k=1..6 type=q4_k|q6_k|q2_k "
    "activation=silu|gelu accumulate=0|1 padding=0|0..30 all=0|6..20",
    "tokens=~60 hidden=136|264|141|192 ffn=40|64|135|35 experts=1..6 k=1..6 type=fp8 "
    "scales=none|one|blocks activation=silu|gelu accumulate=0|1 padding=0|0..30 all=0|6..20",
    "tokens=~60 hidden=64|192 ffn=96|27 experts=1..6 k=1..6 activation=relu2 accumulate=0|1 "
    "padding=0|0..30 all=0|6..20",
    NULL,
};

/* k different experts a token, at random, with weights that sum to about 1; for the last `padding`
 * tokens none. Those of other ranks have the numbers behind the call's own, and become -1. */
static bool fill_choice(const moe_linear_args *a, int64_t padding, vt_tensor *expert,
                        vt_tensor *weight, vt_arena *arena, uint64_t *state)
{
    int32_t all = a->all_experts ? a->all_experts : a->n_experts;
    int32_t *deck = vt_arena_alloc(arena, (size_t)all, sizeof *deck);
    if (!deck)
        return false;
    for (int64_t t = 0; t < expert->dim[0]; t++) {
        for (int32_t e = 0; e < all; e++) {
            int32_t j = (int32_t)(case_random(state) % (uint64_t)(e + 1));
            deck[e] = deck[j];
            deck[j] = e;
        }
        for (int64_t j = 0; j < expert->dim[1]; j++) {
            bool none = t >= expert->dim[0] - padding || deck[j] >= a->n_experts;
            ((int32_t *)expert->data)[t * expert->row_stride + j] = none ? -1 : deck[j];
            row_f32(weight,
                    t)[j] = none ? 0 : 1.0f / (float)expert->dim[1] + 0.01f * case_normal(state);
        }
    }
    return true;
}

/* How many experts get random weights of their own; the others repeat them, because drawing more
 * takes long. */
enum { DISTINCT = 16, FEW_DISTINCT = 3 };

static void *moe_linear_make_args(const vt_case *c, uint64_t seed, vt_arena *arena,
                                  vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs)
{
    const int64_t *p = c->p;
    int64_t tokens = p[TOKENS], hidden = p[HIDDEN], ffn = p[FFN], experts = p[EXPERTS], k = p[USED];
    moe_linear_args *a = vt_arena_alloc(arena, 1, sizeof *a);
    vt_weight *up = vt_arena_alloc(arena, (size_t)experts, sizeof *up);
    vt_weight *down = vt_arena_alloc(arena, (size_t)experts, sizeof *down);
    bool gates = p[ACTIVATION] != VT_ACT_RELU2;
    float spread = gates ? 1.0f : 0.7f; /* squares are then as large as gated products */
    vt_tensor *x = case_fill(arena, case_tensor_2d(arena, VT_F32, tokens, hidden), 0, spread,
                             &seed);
    vt_tensor *y = case_tensor_2d(arena, VT_F32, tokens, hidden);
    vt_tensor *expert = case_tensor_2d(arena, VT_I32, tokens, k),
              *weight = case_tensor_2d(arena, VT_F32, tokens, k);
    if (!a || !up || !down || !x || !y || !expert || !weight)
        return NULL;
    bool blocks = p[SCALES] == CASE_SCALE_BLOCKS;
    int64_t distinct = experts * hidden * ffn > 1 << 26 ? FEW_DISTINCT : DISTINCT;
    for (int64_t e = 0; e < experts; e++) {
        if (e >= distinct) { /* the same numbers again; each is packed into its own memory */
            up[e] = up[e % distinct];
            down[e] = down[e % distinct];
            continue;
        }
        vt_weight *u = case_weight(arena, (vt_dtype)p[TYPE], gates ? 2 : 1, (int64_t[]){ffn, ffn},
                                   hidden, gates, &seed);
        vt_weight *d = case_weight(arena, (vt_dtype)p[TYPE], 1, &hidden, ffn, false, &seed);
        if (!u || !d)
            return NULL;
        if (p[SCALES] &&
            !(case_scales(arena, u, blocks, &seed) && case_scales(arena, d, blocks, &seed)))
            return NULL;
        u->n_experts = d->n_experts = (int32_t)experts;
        up[e] = *u;
        down[e] = *d;
    }
    *a = (moe_linear_args){.x = x,
                           .expert = expert,
                           .weight = weight,
                           .gate_up = up,
                           .down = down,
                           .n_experts = (int32_t)experts,
                           .all_experts = (int32_t)p[ALL],
                           .activation = (vt_activation)p[ACTIVATION],
                           .limit = 0.7f,
                           .y = y,
                           .accumulate = p[ACCUMULATE] != 0};
    if (p[BIAS]) {
        a->bias = case_fill(arena, case_tensor_2d(arena, VT_F32, 2 * experts, ffn), 0, 0.5f, &seed);
        if (p[BIAS] == 1)
            a->down_bias = case_fill(arena, case_tensor_2d(arena, VT_F32, experts, hidden), 0, 0.5f,
                                     &seed);
        if (!a->bias || (p[BIAS] == 1 && !a->down_bias))
            return NULL;
    }
    if (a->accumulate)
        case_fill(arena, y, 0, 1, &seed);
    outputs[0] = y;
    *n_outputs = 1;
    return fill_choice(a, p[PADDING], expert, weight, arena, &seed) ? a : NULL;
}

/* As many experts as the limit on weights allows, but no fewer than a token uses. */
static void moe_linear_shape(const void *args, const vt_batch *batch, int64_t most_weights,
                             int64_t *p)
{
    const moe_linear_args *a = args;
    int64_t hidden = a->gate_up->cols, ffn = a->down->cols, k = a->expert->dim[1],
            most = most_weights / (3 * hidden * ffn);
    p[TOKENS] = vt_batch_rows(a->x, batch);
    p[HIDDEN] = hidden;
    p[FFN] = ffn;
    p[EXPERTS] = a->n_experts < most ? a->n_experts : most > k ? most : k;
    p[USED] = k;
    p[TYPE] = a->gate_up->dtype;
    p[SCALES] = case_scales_of(a->gate_up);
    p[ACTIVATION] = a->activation;
    p[ACCUMULATE] = a->accumulate;
    p[BIAS] = !a->bias ? 0 : a->down_bias ? 1 : 2;
    p[ALL] = a->all_experts * p[EXPERTS] / a->n_experts;
}

/* Experts run one after the other, each as two products that all workers share. The cut describes
 * one expert's gate and up for its share of the tokens; the items are those of all experts in
 * use. */
static void moe_linear_describe(const void *args, const vt_target *t, const vt_size *size,
                                vt_cut *out)
{
    const moe_linear_args *a = args;
    int64_t pairs = moe_own_pairs(a, vt_size_rows(a->x, size) * a->expert->dim[1]),
            used = pairs < a->n_experts ? pairs : a->n_experts;
    if (used == 0)
        return;
    vt_tensor x = vt_tensor_2d(NULL, VT_F32, vt_ceil_div(pairs, used), a->y->dim[1]),
              h = vt_tensor_2d(NULL, VT_F32, x.dim[0], a->down[0].cols);
    linear_args up = up_args(a, 0, &x, &h, a->bias);
    const vt_impl *impl = linear_packed_row(&up, t);
    if (impl && impl->describe)
        impl->describe(&up, t, NULL, out);
    vt_cut_shape(out, "%lld of %d experts, %lld tokens each, %lld x %lld", (long long)used,
                 a->n_experts, (long long)x.dim[0], (long long)a->y->dim[1],
                 (long long)a->down[0].cols);
    vt_cut_cpu(out, t, used * out->items, out->vector_bytes);
}

static const vt_impl moe_linear_cpu = {.name = "cpu",
                                       .device = VT_DEVICE_CPU,
                                       .supports = moe_linear_supports,
                                       .run = moe_linear_run,
                                       .describe = moe_linear_describe,
                                       .workspace = moe_linear_workspace};

static const vt_impl *const moe_linear_impls[] = {
    &moe_linear_cpu, &moe_linear_sm90_impl, &moe_linear_cuda_impl, &moe_linear_cuda_any_impl, NULL};

static const vt_operand moe_linear_operands[] = {
    {"x", offsetof(moe_linear_args, x), VT_OPERAND_ACTIVATION, true, false, 0},
    {"expert", offsetof(moe_linear_args, expert), VT_OPERAND_INT, true, false, 0},
    {"weight", offsetof(moe_linear_args, weight), VT_OPERAND_F32, true, false, 0},
    {"gate_up", offsetof(moe_linear_args, gate_up), VT_OPERAND_WEIGHTS, true, false,
     offsetof(moe_linear_args, n_experts)},
    {"down", offsetof(moe_linear_args, down), VT_OPERAND_WEIGHTS, true, false,
     offsetof(moe_linear_args, n_experts)},
    {"bias", offsetof(moe_linear_args, bias), VT_OPERAND_F32, true, false, 0},
    {"down_bias", offsetof(moe_linear_args, down_bias), VT_OPERAND_F32, true, false, 0},
    {"y", offsetof(moe_linear_args, y), VT_OPERAND_ACTIVATION, true, true, 0},
};

const vt_op moe_linear_op = {
    CARD_OF(moe_linear),
    .what = "runs each token through its experts and sums them by weight",
    .tolerance = 4e-5,
    .tolerance_reason = "two products in another order than the reference, one after the other; on "
                        "AMX the activations of both keep 16 bits, which is 1.5e-5",
    .quantised_tolerance = 0.05, /* activations become int8 twice: half a percent of a row each */
    .refuses = moe_linear_refuses,
    .is = VT_OP_HEAVY,
    .packs = VT_PACKS_EXPERTS,
    .row_of = linear_row_for,
};
