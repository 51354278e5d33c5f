/* Attention: the cards of attention_prefill and attention_decode, the portable form and the
 * reference.
 *
 * The cost is compulsory traffic. Each KV row that any query row of the step may see counts as read
 * once, even if several tiles read it again from cache, or if several decodes have the same first
 * pages (KV that prefills share counts for each of them). FLOPs are the two products for every
 * visible (row, position) pair, 2 head_dim + 2 v_dim. The few operations of the softmax per pair
 * are not counted, as in the papers. */
#include "ops/attention/attention.h"

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "ops/cases.h"
#include "ops/cuda_impls.h"
#include "ops/simd_portable.h"
#include "ops/attention/attention_impls.h"
#include "ops/attention/attention_kernel.h"
#include "ops/rope/rope_impls.h"
#include "ops/shared_kv.h"

/* A query at `position` sees positions from the one that is returned on. */
static int64_t span_begin(const attention_args *a, int64_t position)
{
    return a->window > 0 && position >= a->window ? position - a->window + 1 : 0;
}

/* Bytes of K and V of this many positions, all heads. */
static int64_t kv_bytes(const attention_args *a, int64_t positions)
{
    int64_t row = vt_dtype_row_bytes(a->k_pool->dtype, a->head_dim);
    return (a->v_dim ? 1 : 2) * positions * a->kv_heads * row;
}

static vt_cost attention_cost(const attention_args *a, const vt_batch *b, int32_t first_seq,
                              int32_t last_seq)
{
    int64_t rows = 0, kv = 0, pairs = 0, pages = 0;
    for (int32_t s = first_seq; s < last_seq; s++) {
        int32_t from = b->q_start[s], to = b->q_start[s + 1];
        if (from == to)
            continue;
        int64_t begin = span_begin(a, b->position[from]),
                end = attention_span_end(a, b, s, b->position[to - 1]);
        rows += to - from;
        kv += end - begin;
        pages += (end - 1) / b->page_size - begin / b->page_size + 1;
        for (int32_t t = from; t < to; t++)
            pairs += attention_span_end(a, b, s, b->position[t]) - span_begin(a, b->position[t]);
    }
    int64_t width = (int64_t)a->heads * a->head_dim, out = (int64_t)a->heads * attention_v_dim(a),
            flops = 2 * pairs * (width + out);
    bool fp32 = a->q->dtype == VT_F32;
    return (vt_cost){
        .read = {.weights = a->sinks && rows > 0 ? vt_tensor_bytes(a->sinks) : 0,
                 .kv = kv_bytes(a, kv),
                 .activations = vt_dtype_row_bytes(a->q->dtype, rows * width) + 4 * (rows + pages)},
        .write = {.activations = vt_dtype_row_bytes(a->o->dtype, rows * out)},
        .flops = {.fp32 = fp32 ? flops : 0, .bf16 = fp32 ? 0 : flops},
    };
}

/* For each KV head, the KV rows that decodes read although another decode reads them too. With a
 * window, the member of a group with the least context sees the most of the shared part. */
static int64_t seen_again(const attention_args *a, const vt_batch *b)
{
    int32_t tokens[SHARED_MOST_SEQS], n = b->n_decode;
    const int32_t *shared = b->shared_kv;
    int64_t again = 0;
    if (!shared && b->page_ids && n > 1 && n <= SHARED_MOST_SEQS) {
        shared_kv_find(b, tokens);
        shared = tokens;
    }
    for (int32_t s = 0; shared && s < n; s++) {
        int64_t seen = shared[s] - span_begin(a, b->position[b->q_start[s]]);
        again += seen > 0 ? seen : 0;
    }
    return again;
}

static vt_cost prefill_cost(const void *args, const vt_batch *batch)
{
    const attention_args *a = args;
    const vt_batch *b = batch ? batch : a->batch;
    return attention_cost(a, b, b->n_decode, b->n_seqs);
}

static vt_cost decode_cost(const void *args, const vt_batch *batch)
{
    const attention_args *a = args;
    const vt_batch *b = batch ? batch : a->batch;
    vt_cost c = attention_cost(a, b, 0, b->n_decode);
    c.read.kv -= kv_bytes(a, seen_again(a, b));
    return c;
}

/* Tasks of the CPU's rows read the KV of a tile once, and tiles of one group read it again. */
vt_cost attention_decode_extra(const void *args, const vt_target *t, const vt_batch *batch)
{
    const attention_args *a = args;
    const vt_batch *b = batch ? batch : a->batch;
    int64_t saved, again = seen_again(a, b);
    if (again > 0) {
        (void)attention_plan_tiles(a, b, t->limits.n_workers, &saved);
        again -= saved;
    }
    return (vt_cost){.read = {.kv = kv_bytes(a, again)}};
}

/* ---- reference: one row at a time, in double ---- */

static int64_t pool_row(const attention_args *a, int32_t seq, int64_t h, int64_t pos)
{
    const vt_batch *b = a->batch;
    int64_t page = b->page_ids[b->page_start[seq] + pos / b->page_size];
    return (page * a->kv_heads + h) * b->page_size + pos % b->page_size;
}

/* Four sums beside each other, because a single one would wait for every addition. */
static double reference_dot(const double *x, const double *y, int64_t n)
{
    double sum[4] = {0};
    int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int k = 0; k < 4; k++)
            sum[k] += x[i + k] * y[i + k];
    for (; i < n; i++)
        sum[0] += x[i] * y[i];
    return sum[0] + sum[1] + (sum[2] + sum[3]);
}

/* k, v: [positions from `begin` on, head_dim], v the last v_dim values of each row; room:
 * [2 head_dim + positions]. */
static void reference_row(const attention_args *a, int64_t t, int64_t h, int64_t begin,
                          const double *k, const double *v, double *room)
{
    int64_t position = a->batch->position[t], first = span_begin(a, position), d = a->head_dim,
            n = attention_v_dim(a);
    int64_t end = attention_span_end(a, a->batch, a->batch->seq_of[t], position);
    double max = -INFINITY, sum = 0, *q = room, *acc = q + d, *p = acc + d;
    for (int64_t i = 0; i < d; i++) {
        q[i] = (double)tensor_get(a->q, t, h * d + i);
        acc[i] = 0;
    }
    for (int64_t j = first; j < end; j++) {
        p[j - first] = reference_dot(q, k + (j - begin) * d, d) * a->scale * a->k_scale;
        if (a->cap > 0)
            p[j - first] = a->cap * tanh(p[j - first] / a->cap);
        max = fmax(max, p[j - first]);
    }
    double sink = a->sinks ? (double)tensor_get(a->sinks, 0, h) : -INFINITY;
    max = fmax(max, sink);
    sum = exp(sink - max);
    for (int64_t j = first; j < end; j++) {
        double weight = exp(p[j - first] - max);
        const double *row = v + (j - begin + 1) * d - n;
        sum += weight;
        for (int64_t i = 0; i < n; i++)
            acc[i] += weight * row[i];
    }
    for (int64_t i = 0; i < n; i++)
        tensor_set(a->o, t, h * n + i, (float)(acc[i] / sum * a->v_scale));
}

/* Computes one sequence and KV head. K and V of the positions that its rows see are converted to
 * double once. */
static void reference_head(const attention_args *a, int32_t seq, int64_t kv_head)
{
    const vt_batch *b = a->batch;
    int32_t from = b->q_start[seq], to = b->q_start[seq + 1], group = a->heads / a->kv_heads;
    if (from == to)
        return;
    int64_t d = a->head_dim, begin = span_begin(a, b->position[from]),
            n = attention_span_end(a, b, seq, b->position[to - 1]) - begin;
    double *k = vt_calloc((size_t)(2 * n * d + 2 * d + n), sizeof *k);
    if (!k)
        return;
    double *v = k + n * d, *room = v + n * d;
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0, row = pool_row(a, seq, kv_head, begin + j); i < d; i++) {
            k[j * d + i] = (double)tensor_get(a->k_pool, row, i);
            v[j * d + i] = (double)tensor_get(a->v_pool, row, i);
        }
    for (int32_t t = from; t < to; t++)
        for (int32_t h = 0; h < group; h++)
            reference_row(a, t, kv_head * group + h, begin, k, v, room);
    free(k);
}

static void reference(const attention_args *a, int32_t first_seq, int32_t last_seq)
{
    for (int32_t s = first_seq; s < last_seq; s++)
        for (int32_t h = 0; h < a->kv_heads; h++)
            reference_head(a, s, h);
}

static void prefill_reference(const void *args)
{
    const attention_args *a = args;
    reference(a, a->batch->n_decode, a->batch->n_seqs);
}

static void decode_reference(const void *args)
{
    const attention_args *a = args;
    reference(a, 0, a->batch->n_decode);
}

/* ---- cases ---- */

enum {
    SEQS,
    Q_LEN,
    KV_LEN,
    HEADS,
    KV_HEADS,
    HEAD_DIM,
    POOL,
    PAGE,
    WINDOW,
    FAMILIES,
    SHARED,
    STEP,
    Q_STEP,
    MIXED,
    SINKS,
    AFTER,
    V_DIM,
    CAP,
    BEFORE
};

enum { AFTER_ALL = 1 << 16 }; /* more than the tokens of a case */

static const vt_field attention_fields[] = {
    [SEQS] = {"seqs", 1, false, 4096, .grows = VT_GROWS_SEQS},
    [Q_LEN] = {"q_len", 1, false, 1 << 15, .grows = VT_GROWS_EACH},
    [KV_LEN] = {"kv_len", 1024, false, 1 << 17, .grows = VT_GROWS_CONTEXT},
    [HEADS] = {"heads", 32, false, 512},
    [KV_HEADS] = {"kv_heads", 8, false, 512},
    [HEAD_DIM] = {"head_dim", 128, false, 1024},
    [POOL] = {"kv_type", VT_BF16, true},
    [PAGE] = {"page", 64, false, 1024},
    [WINDOW] = {"window", 0, false, 1 << 17},
    [FAMILIES] = {"families", 1, false, 4096},
    [SHARED] = {"shared", 0, false, 1 << 14},
    [STEP] = {"step", 0, false, 1024},
    [Q_STEP] = {"q_step", 0, false, 1024},
    [MIXED] = {"mixed", 0, false, 1},
    [SINKS] = {"sinks", 0, false, 1},
    [AFTER] = {"after", 0, false, AFTER_ALL},
    [V_DIM] = {"v_dim", 0, false, 1024},
    [CAP] = {"cap", 0, false, 1000},
    [BEFORE] = {"before", 0, false, 4},
};

static const char *attention_refuses(const vt_case *c)
{
    const int64_t *p = c->p;
    if (p[POOL] > VT_FP8_E4M3)
        return "kv_type: f32, f16, bf16 or fp8";
    if (p[HEADS] % p[KV_HEADS])
        return "heads: a multiple of kv_heads";
    if (p[V_DIM] > p[HEAD_DIM])
        return "v_dim: at most head_dim, for V is a part of K's rows";
    if (p[Q_LEN] > p[KV_LEN])
        return "q_len: at most kv_len";
    if (p[AFTER] && (p[Q_LEN] != p[KV_LEN] || p[STEP] != p[Q_STEP] || p[MIXED]))
        return "after: with whole sequences, q_len = kv_len and q_step = step";
    if (p[SHARED] && (p[SHARED] * p[PAGE] >= p[KV_LEN] || p[FAMILIES] > p[SEQS]))
        return "shared: pages before the last one of kv_len, of at most seqs families";
    if (p[Q_STEP] > p[STEP])
        return "q_step: at most step, so that no sequence has more new tokens than tokens";
    if (p[BEFORE] && (p[V_DIM] || p[HEAD_DIM] % 2))
        return "before: of heads of even size that have V apart";
    return p[SEQS] * (p[Q_LEN] + p[Q_STEP] * p[SEQS]) > VT_FIELD_MOST ||
                   p[SEQS] * (p[KV_LEN] + p[STEP] * p[SEQS]) > (int64_t)1 << 24
               ? "seqs: at most 2^18 new tokens and 2^24 of KV"
               : NULL;
}

/* A decode of one token, unless the text says more. In a mixed batch q_len is of the others. */
static const char *decode_refuses(const vt_case *c)
{
    const char *why = attention_refuses(c);
    int64_t most = c->p[Q_LEN] + c->p[Q_STEP] * (c->p[SEQS] - 1);
    if (!why && !c->p[MIXED] && most > VT_DECODE_MOST)
        why = "q_len: at most 8 tokens a decode";
    if (!why && c->p[AFTER])
        why = "after: a decode sees what lies before it";
    return why;
}

/* Sequence s has kv_len + step s tokens, the last q_len + q_step s of them new. A decode of one
 * token stands in front of every prefill case. Decodes: `shared` first pages are common to the
 * sequences of a family, of which there are `families`; every seventh sequence is of none. An FP8
 * pool has a k_scale of 1/30 and a v_scale of 20: large K, small V.
 *
 * mixed: sequences of any lengths in one batch, some decodes and then chunks of prefill, with up
 * to q_len new tokens behind up to kv_len. Some begin with the pages of another sequence. Scores
 * spread wider, so that a token which is left out, or counted twice, moves its row beyond the
 * tolerance.
 *
 * before: a decode comes with the call that makes q and stores K and V. 1: of a rotation alone,
 * 2: of a norm and a rotation, 3: of a rotation and a norm whose weights lack 1, 4: as 2, and q has
 * a table of its own. */
static const char *const prefill_cases[] = {
    "*seqs=1 q_len=512 kv_len=512 heads=9 kv_heads=3 head_dim=64 kv_type=f16 page=16 step=37",
    "*seqs=1 q_len=2048 kv_len=2048 heads=9 kv_heads=3 head_dim=64 kv_type=f16 page=16 step=37",
    "*seqs=1 q_len=512 kv_len=512 heads=16 kv_heads=8 head_dim=128 kv_type=f16 page=16 step=37",
    "*seqs=1 q_len=512 kv_len=900 heads=4 kv_heads=1 head_dim=256 kv_type=f16 page=16 window=512 "
    "step=37",
    "*seqs=4 q_len=16 kv_len=1000 heads=9 kv_heads=3 head_dim=64 kv_type=f16 page=16 step=37",
    "seqs=1 q_len=100 kv_len=300 heads=9 kv_heads=3 head_dim=64 kv_type=f16 page=16 step=37",
    "seqs=2 q_len=40 kv_len=80 heads=16 kv_heads=8 head_dim=128 kv_type=f16 page=16 step=37",
    "seqs=1 q_len=65 kv_len=200 heads=4 kv_heads=1 head_dim=256 kv_type=f16 page=16 window=64 "
    "step=37",
    "seqs=3 q_len=5 kv_len=5 heads=3 kv_heads=1 head_dim=20 kv_type=f16 page=7 step=37",
    "seqs=2 q_len=70 kv_len=133 heads=4 kv_heads=2 head_dim=40 kv_type=f32 page=16 step=37",
    "seqs=2 q_len=33 kv_len=300 heads=2 kv_heads=2 head_dim=8 page=64 step=37",
    "seqs=1 q_len=9 kv_len=700 heads=8 kv_heads=1 head_dim=72 kv_type=f16 page=16 window=50 "
    "step=37",
    "seqs=2 q_len=130 kv_len=130 heads=3 kv_heads=3 head_dim=24 kv_type=f16 page=16 window=1 "
    "step=37",
    "seqs=1 q_len=3 kv_len=40 heads=100 kv_heads=1 head_dim=16 kv_type=f32 page=16 step=37",
    "seqs=2 q_len=70 kv_len=300 heads=9 kv_heads=3 head_dim=64 kv_type=fp8 page=16 step=37",
    "seqs=2 q_len=40 kv_len=80 heads=5 kv_heads=1 head_dim=20 kv_type=fp8 page=7 window=30 step=37",
    "seqs=2 q_len=70 kv_len=200 heads=8 kv_heads=2 head_dim=64 kv_type=f16 page=16 step=37 sinks=1",
    "seqs=2 q_len=9 kv_len=9 heads=6 kv_heads=2 head_dim=20 page=7 window=4 step=37 sinks=1",
    "seqs=2 q_len=70 kv_len=200 heads=8 kv_heads=4 head_dim=256 kv_type=f16 page=16 window=64 "
    "step=37 cap=50",
    "seqs=2 q_len=33 kv_len=70 heads=3 kv_heads=1 head_dim=20 kv_type=f32 page=7 step=37 cap=1",
    "*seqs=16 q_len=32 kv_len=32 heads=12 kv_heads=12 head_dim=32 kv_type=f32 page=16 "
    "after=65536",
    "seqs=3 q_len=133 kv_len=133 heads=12 kv_heads=12 head_dim=32 kv_type=f16 page=16 step=150 "
    "q_step=150 after=65536",
    "seqs=3 q_len=1 kv_len=1 heads=4 kv_heads=2 head_dim=20 kv_type=f32 page=7 step=90 q_step=90 "
    "window=9 after=8",
    "seqs=3 q_len=70 kv_len=70 heads=4 kv_heads=4 head_dim=64 kv_type=f16 page=16 step=150 "
    "q_step=150 after=65536",
    "seqs=2 q_len=150 kv_len=150 heads=6 kv_heads=2 head_dim=64 page=16 step=90 q_step=90 "
    "window=41 after=40",
    "seqs=2 q_len=40 kv_len=40 heads=3 kv_heads=1 head_dim=256 kv_type=fp8 page=64 step=60 "
    "q_step=60 window=20 after=19",
    "*seqs=1 q_len=128 kv_len=128 heads=16 kv_heads=1 head_dim=576 v_dim=512 kv_type=f16 page=16",
    "seqs=2 q_len=37 kv_len=90 heads=5 kv_heads=1 head_dim=44 v_dim=29 kv_type=f32 page=7 step=37",
    "seqs=2 q_len=9 kv_len=300 heads=3 kv_heads=1 head_dim=80 v_dim=64 page=16 step=37 window=50",
    "seqs=1 q_len=9 kv_len=70 heads=7 kv_heads=1 head_dim=48 v_dim=40 kv_type=fp8 page=16",
    NULL,
};

static const char *const decode_cases[] = {
    "*seqs=1 q_len=1 kv_len=1024 heads=9 kv_heads=3 head_dim=64 kv_type=f16 page=16 step=37",
    "*seqs=1 q_len=1 kv_len=8192 heads=9 kv_heads=3 head_dim=64 kv_type=f16 page=16 step=37",
    "*seqs=32 q_len=1 kv_len=1024 heads=9 kv_heads=3 head_dim=64 kv_type=f16 page=16 step=37",
    "*seqs=8 q_len=1 kv_len=2048 heads=16 kv_heads=8 head_dim=128 kv_type=f16 page=16 step=37",
    "*seqs=4 q_len=1 kv_len=1024 heads=4 kv_heads=1 head_dim=256 kv_type=f16 page=16 window=512 "
    "step=37",
    "seqs=2 q_len=1 kv_len=300 heads=9 kv_heads=3 head_dim=64 kv_type=f16 page=16 step=37",
    "seqs=1 q_len=1 kv_len=600 heads=16 kv_heads=8 head_dim=128 kv_type=f16 page=16 step=37",
    "seqs=1 q_len=1 kv_len=520 heads=4 kv_heads=1 head_dim=256 kv_type=f16 page=16 step=37",
    "seqs=5 q_len=1 kv_len=1 heads=3 kv_heads=1 head_dim=20 kv_type=f16 page=7 step=37",
    "seqs=2 q_len=1 kv_len=257 heads=4 kv_heads=2 head_dim=40 kv_type=f32 page=16 step=37",
    "seqs=3 q_len=1 kv_len=64 heads=8 kv_heads=8 head_dim=8 page=64 step=37",
    "seqs=1 q_len=1 kv_len=1500 heads=7 kv_heads=1 head_dim=120 kv_type=f16 page=16 window=300 "
    "step=37",
    "seqs=3 q_len=1 kv_len=63 heads=20 kv_heads=2 head_dim=96 kv_type=f32 page=1 step=37",
    "seqs=3 q_len=1 kv_len=600 heads=4 kv_heads=2 head_dim=64 page=256 step=37",
    "*seqs=8 q_len=1 kv_len=2048 heads=16 kv_heads=8 head_dim=128 kv_type=fp8 page=16 step=37",
    "seqs=3 q_len=1 kv_len=300 heads=9 kv_heads=3 head_dim=64 kv_type=fp8 page=16 step=37",
    "seqs=3 q_len=1 kv_len=130 heads=7 kv_heads=1 head_dim=20 kv_type=fp8 page=7 window=50 step=37",
    "seqs=3 q_len=2 kv_len=300 heads=9 kv_heads=3 head_dim=64 kv_type=f16 page=16 step=37 q_step=2",
    "seqs=2 q_len=8 kv_len=8 heads=4 kv_heads=2 head_dim=40 kv_type=f32 page=16 window=5 step=37",
    "seqs=3 q_len=1 kv_len=600 heads=8 kv_heads=2 head_dim=64 kv_type=f16 page=16 step=37 sinks=1",
    "seqs=3 q_len=1 kv_len=1 heads=6 kv_heads=2 head_dim=20 page=7 window=4 step=37 sinks=1",
    "seqs=3 q_len=1 kv_len=300 heads=8 kv_heads=4 head_dim=256 kv_type=f16 page=16 step=37 cap=50",
    "seqs=3 q_len=2 kv_len=70 heads=3 kv_heads=1 head_dim=20 kv_type=fp8 page=7 step=37 cap=2",
    "*seqs=8 q_len=1 kv_len=1024 heads=16 kv_heads=1 head_dim=576 v_dim=512 kv_type=f16 page=16 "
    "step=37",
    "seqs=3 q_len=1 kv_len=300 heads=4 kv_heads=1 head_dim=80 v_dim=64 kv_type=f16 page=16 step=37",
    "seqs=3 q_len=2 kv_len=70 heads=3 kv_heads=1 head_dim=48 v_dim=31 kv_type=f32 page=7 step=37",
    "seqs=2 q_len=1 kv_len=130 heads=7 kv_heads=1 head_dim=40 v_dim=32 kv_type=fp8 page=16 step=9",
    "*seqs=1|64 kv_len=512 heads=16 kv_heads=8 before=2",
    "seqs=3 kv_len=70 heads=6 kv_heads=2 head_dim=20 page=7 step=5 before=1|3",
    "seqs=3 q_len=2 kv_len=70 heads=4 kv_heads=2 head_dim=64 kv_type=fp8 page=16 step=5 before=4",
    NULL,
};

#define ANY_LENGTHS "mixed=1 seqs=1..12 q_len=150 kv_len=400 window=0|0|1|17|64|130 sinks=0|0|1 "

#define ANY_WIDE "mixed=1 seqs=1..5 q_len=30 kv_len=300 " /* latents and heads of more than 256 */

#define WHOLE \
    "seqs=1..9 q_len=70 kv_len=70 step=33 q_step=33 window=0|9|64 after=3|70|65536 sinks=0|0|1 "

#define DRAWS_OF_BOTH                                                              \
    ANY_LENGTHS "heads=32 kv_heads=8 head_dim=128 kv_type=bf16|fp8 page=64",       \
        ANY_LENGTHS "heads=9 kv_heads=3 head_dim=64 kv_type=bf16|fp8 page=16",     \
        ANY_LENGTHS "heads=4 kv_heads=1 head_dim=256 kv_type=bf16|fp8 page=32|64", \
        ANY_LENGTHS "heads=5 kv_heads=5 head_dim=96 kv_type=bf16 page=16",         \
        ANY_LENGTHS "heads=6 kv_heads=3 head_dim=112 kv_type=fp8 page=7",          \
        ANY_LENGTHS "heads=3 kv_heads=1 head_dim=13 kv_type=bf16 page=5",          \
        ANY_LENGTHS "heads=35 kv_heads=5 head_dim=13 kv_type=fp8 page=5",          \
        ANY_LENGTHS "heads=40 kv_heads=2 head_dim=64 kv_type=bf16 page=64",        \
        ANY_LENGTHS "heads=16 kv_heads=1 head_dim=64 kv_type=fp8 page=16"

static const char *const prefill_draws[] = {
    DRAWS_OF_BOTH,
    WHOLE "heads=8 kv_heads=4 head_dim=64|128|32 kv_type=bf16|fp8 page=16|64",
    WHOLE "heads=6 kv_heads=2 head_dim=20 kv_type=bf16 page=7",
    ANY_WIDE "heads=5|16 kv_heads=1 head_dim=576 v_dim=512 kv_type=bf16 page=16|7",
    ANY_WIDE "heads=8 kv_heads=2 head_dim=512 kv_type=bf16 page=64",
    NULL,
};

static const char *const decode_draws[] = {
    DRAWS_OF_BOTH,
    "seqs=1..9 kv_len=1|15|16|17|64|333|1500 step=0..40 heads=8 kv_heads=8|4|2|1 "
    "head_dim=64|128|256|96 page=16|64|5 kv_type=bf16|fp8 window=0|0|1|50 before=1|2|3|4",
    "seqs=1..9 kv_len=1|130|900 step=0..40 heads=14 kv_heads=14|7|2|1 head_dim=64|128 "
    "kv_type=bf16|fp8 sinks=0|1 cap=0|5 before=1|2|3|4",
    ANY_WIDE "heads=1|5|16|20 kv_heads=1 head_dim=576 v_dim=512 kv_type=bf16 page=16|7",
    ANY_WIDE "heads=8 kv_heads=2 head_dim=512 kv_type=bf16 page=64",
    NULL,
};

static void copy_row(vt_tensor *const pool[2], int64_t from, int64_t to)
{
    for (int p = 0; p < 2; p++) {
        int64_t bytes = vt_dtype_row_bytes(pool[p]->dtype, pool[p]->dim[3]);
        memcpy((char *)pool[p]->data + to * bytes, (char *)pool[p]->data + from * bytes,
               (size_t)bytes);
    }
}

enum { DISTINCT_SEQS = 13 };

/* In a large batch sequence s has the KV of sequence s % DISTINCT_SEQS, because drawing random KV
 * takes long. */
static bool repeats(const attention_args *a, int32_t s, int64_t pos)
{
    const vt_batch *b = a->batch;
    int64_t numbers = (int64_t)b->n_pages * b->page_size * a->kv_heads * a->head_dim;
    return numbers > 1 << 24 && s >= DISTINCT_SEQS && pos < b->kv_len[s % DISTINCT_SEQS];
}

/* Pools whose slots hold NaN except where a sequence has stored something, so that a read of an
 * unwritten slot shows. */
static void fill_pools(const attention_args *a, vt_tensor *const pool[2], uint64_t *state)
{
    const vt_batch *b = a->batch;
    if (case_sizes_alone)
        return;
    for (int p = 0; p < 2; p++)
        memset(pool[p]->data, 0xff, (size_t)vt_tensor_bytes(pool[p]));
    for (int32_t s = 0; s < b->n_seqs; s++)
        for (int64_t pos = 0; pos < b->kv_len[s]; pos++)
            for (int64_t h = 0; h < a->kv_heads; h++)
                for (int64_t i = 0, row = pool_row(a, s, h, pos); i < a->head_dim; i++) {
                    if (repeats(a, s, pos)) {
                        copy_row(pool, pool_row(a, s % DISTINCT_SEQS, h, pos), row);
                        break;
                    }
                    tensor_set(pool[0], row, i, case_normal(state) / a->k_scale);
                    if (!a->v_dim)
                        tensor_set(pool[1], row, i, case_normal(state) / a->v_scale);
                }
}

/* Makes the families of a case: replaces the first pages of each member by those of the family's
 * first member, which is the sequence with the family's number. */
static void share_pages(vt_batch *b, int32_t families, int32_t n)
{
    int32_t *ids = (int32_t *)(uintptr_t)b->page_ids;
    for (int32_t s = families; s < b->n_seqs; s++)
        if (s % 7 != 6)
            memcpy(ids + b->page_start[s], ids + b->page_start[s % families],
                   (size_t)n * sizeof *ids);
}

static int32_t whole_pages(const vt_batch *b, int32_t s)
{
    return (b->kv_len[s] - (b->q_start[s + 1] - b->q_start[s])) / b->page_size;
}

/* Some sequences of a mixed batch take their first pages from another one. No such page holds a
 * token of this step. */
static void share_any_pages(vt_batch *b, uint64_t *seed)
{
    int32_t *ids = (int32_t *)(uintptr_t)b->page_ids;
    for (int32_t s = 1; s < b->n_seqs; s++) {
        int32_t from = (int32_t)case_between(seed, 0, s - 1);
        int32_t most = whole_pages(b, s), there = whole_pages(b, from);
        most = most < there ? most : there;
        if (most > 0 && case_between(seed, 0, 2))
            memcpy(ids + b->page_start[s], ids + b->page_start[from],
                   (size_t)case_between(seed, 1, most) * sizeof *ids);
    }
}

/* The sequences of a case. */
static vt_batch *make_batch(vt_arena *arena, const int64_t *p, bool decode, uint64_t *seed)
{
    int32_t before = decode || p[MIXED] ? 0 : 1, n = (int32_t)p[SEQS] + before;
    case_seq *seq = vt_arena_alloc(arena, (size_t)n, sizeof *seq);
    if (!seq)
        return NULL;
    seq[0] = (case_seq){1, 30};
    for (int32_t s = before; s < n; s++)
        seq[s] = (case_seq){(int32_t)(p[Q_LEN] + p[Q_STEP] * (s - before)),
                            (int32_t)(p[KV_LEN] + p[STEP] * (s - before))};
    int64_t decodes = p[MIXED] ? case_between(seed, 0, n) : 0,
            most = p[MIXED] && case_between(seed, 0, 1) ? VT_DECODE_MOST : 1;
    for (int32_t s = 0; p[MIXED] && s < n; s++) {
        int64_t there = case_between(seed, 0, 3) ? case_few(seed, p[KV_LEN]) : 0;
        int64_t q = s < decodes ? case_between(seed, 1, most) : case_few(seed, p[Q_LEN]);
        seq[s] = (case_seq){(int32_t)q, (int32_t)(there + q)};
    }
    vt_batch *b = case_batch(arena, (int32_t)p[PAGE], n, seq, true, 100, seed);
    if (b && (decode || p[MIXED]))
        b->n_decode = p[MIXED] ? (int32_t)decodes : n; /* of several tokens too */
    if (b && p[MIXED])
        share_any_pages(b, seed);
    else if (b && decode && p[SHARED])
        share_pages(b, (int32_t)p[FAMILIES], (int32_t)p[SHARED]);
    return b;
}

/* Rounds to values that BF16 has, so that a GPU rotates the same numbers as the reference. */
static void round_to_bf16(vt_tensor *t)
{
    for (int64_t i = 0; i < vt_tensor_elems(t); i++)
        ((float *)t->data)[i] = vt_bf16_to_f32(vt_f32_to_bf16(((float *)t->data)[i]));
}

/* Adds the call in front of a decode, and makes q and the tokens' own K and V by it. */
static bool add_before(const int64_t *p, vt_arena *arena, attention_args *a,
                       vt_tensor *const pool[2], uint64_t *seed)
{
    const vt_batch *b = a->batch;
    int64_t n_q = p[HEADS] * p[HEAD_DIM], n_k = p[KV_HEADS] * p[HEAD_DIM];
    vt_tensor *qkv[2]; /* as the projection leaves it, and turned */
    rope_store_args call[2];
    int32_t context = 1;
    for (int32_t s = 0; s < b->n_seqs; s++)
        context = b->kv_len[s] > context ? b->kv_len[s] : context;
    for (int i = 0; i < 2; i++)
        qkv[i] = case_tensor_2d(arena, VT_F32, b->n_tokens, n_q + 2 * n_k);
    if (!qkv[0] || !qkv[1] || !case_fill(arena, qkv[0], 0, 1.5f, seed))
        return false;
    rope_case sizes = {.batch = (vt_batch *)(uintptr_t)b,
                       .qkv = qkv[0],
                       .heads = p[HEADS],
                       .kv_heads = p[KV_HEADS],
                       .head_dim = p[HEAD_DIM],
                       .context = context,
                       .norm = p[BEFORE] == 4 ? 1 : (int)p[BEFORE] - 1,
                       .own = p[BEFORE] == 4,
                       .norm_type = VT_F32};
    if (!rope_case_args(&sizes, arena, seed, &call[0].rope))
        return false;
    call[0].rope.plus_one = p[BEFORE] == 3;
    for (int i = 0; i < 2; i++) {
        call[i].rope = call[0].rope;
        call[i].rope.q = case_slice(arena, qkv[i], 0, n_q);
        call[i].rope.k = case_slice(arena, qkv[i], n_q, n_k);
        call[i].latent_norm = NULL;
        call[i].store = (kv_store_args){.batch = b,
                                        .k = call[i].rope.k,
                                        .v = case_slice(arena, qkv[i], n_q + n_k, n_k),
                                        .k_pool = pool[0],
                                        .v_pool = pool[1],
                                        .k_scale = a->k_scale,
                                        .v_scale = a->v_scale};
        if (!call[i].rope.q || !call[i].rope.k || !call[i].store.v)
            return false;
    }
    a->before = call[0];
    a->q = call[1].rope.q;
    if (case_sizes_alone)
        return true;
    round_to_bf16(qkv[0]);
    memcpy(qkv[1]->data, qkv[0]->data, (size_t)vt_tensor_bytes(qkv[0]));
    rope_store_op.reference(&call[1]);
    return true;
}

static void *make_args(const vt_case *c, uint64_t seed, vt_arena *arena, vt_tensor **outputs,
                       int32_t *n_outputs, bool decode)
{
    const int64_t *p = c->p;
    int32_t heads = (int32_t)p[HEADS], kv_heads = (int32_t)p[KV_HEADS], d = (int32_t)p[HEAD_DIM];
    attention_args *a = vt_arena_alloc(arena, 1, sizeof *a);
    vt_batch *b = make_batch(arena, p, decode, &seed);
    if (!a || !b)
        return NULL;
    int64_t width = (int64_t)(heads + 2 * kv_heads) * d;
    vt_tensor *qkv = case_fill(arena, case_tensor_2d(arena, VT_F32, b->n_tokens, width), 0,
                               p[MIXED] ? 3 : 1.5f, &seed);
    *a = (attention_args){.batch = b,
                          .q = case_slice(arena, qkv, 0, (int64_t)heads * d),
                          .heads = heads,
                          .kv_heads = kv_heads,
                          .head_dim = d,
                          .v_dim = (int32_t)p[V_DIM],
                          .scale = 1 / sqrtf((float)d),
                          .k_scale = p[POOL] == VT_FP8_E4M3 ? 1 / 30.0f : 1,
                          .v_scale = p[POOL] != VT_FP8_E4M3 ? 1
                                     : p[V_DIM]             ? 1 / 30.0f
                                                            : 20,
                          .window = (int32_t)p[WINDOW],
                          .after = (int32_t)p[AFTER],
                          .cap = (float)p[CAP]};
    vt_tensor *pool[2];
    for (int i = 0; i < 2; i++)
        pool[i] = i && p[V_DIM] ? pool[0]
                                : case_tensor_4d(arena, (vt_dtype)p[POOL], case_batch_pages(b),
                                                 kv_heads, p[PAGE], d);
    a->o = case_tensor_2d(arena, VT_F32, b->n_tokens, (int64_t)heads * attention_v_dim(a));
    if (p[SINKS])
        a->sinks = case_fill(arena, case_tensor_1d(arena, VT_F32, heads), 1, 2, &seed);
    if (!a->q || !pool[0] || !pool[1] || !a->o || (p[SINKS] && !a->sinks))
        return NULL;
    a->k_pool = pool[0];
    a->v_pool = pool[1];
    fill_pools(a, pool, &seed);
    outputs[0] = a->o;
    *n_outputs = 1;
    if (p[BEFORE] && decode) {
        if (!add_before(p, arena, a, pool, &seed))
            return NULL;
        outputs[1] = pool[0];
        outputs[2] = pool[1];
        *n_outputs = 3;
    }
    return a;
}

static void *prefill_make_args(const vt_case *c, uint64_t seed, vt_arena *arena,
                               vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs)
{
    return make_args(c, seed, arena, outputs, n_outputs, false);
}

static void *decode_make_args(const vt_case *c, uint64_t seed, vt_arena *arena,
                              vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs)
{
    return make_args(c, seed, arena, outputs, n_outputs, true);
}

static void shape(const attention_args *a, const vt_batch *b, int32_t first_seq, int32_t last_seq,
                  int64_t *p)
{
    int64_t n = last_seq > first_seq ? last_seq - first_seq : 1, q = 0, kv = 0;
    for (int32_t s = first_seq; s < last_seq; s++) {
        q += b->q_start[s + 1] - b->q_start[s];
        kv += b->kv_len[s];
    }
    p[SEQS] = n;
    p[Q_LEN] = q / n;
    p[KV_LEN] = kv / n;
    p[HEADS] = a->heads;
    p[KV_HEADS] = a->kv_heads;
    p[HEAD_DIM] = a->head_dim;
    p[POOL] = a->k_pool->dtype;
    p[PAGE] = a->k_pool->dim[2];
    p[WINDOW] = a->window > 0 ? a->window : 0;
    p[SINKS] = a->sinks != NULL;
    p[V_DIM] = a->v_dim;
    p[CAP] = (int64_t)a->cap;
    p[AFTER] = a->after < AFTER_ALL ? a->after : AFTER_ALL;
    if (a->after) { /* whole sequences */
        p[KV_LEN] = p[Q_LEN] > 0 ? p[Q_LEN] : 1;
        p[Q_LEN] = p[KV_LEN];
    }
}

static void prefill_shape(const void *args, const vt_batch *batch, int64_t most_weights, int64_t *p)
{
    const attention_args *a = args;
    const vt_batch *b = batch ? batch : a->batch;
    (void)most_weights;
    shape(a, b, b->n_decode, b->n_seqs, p);
}

static void decode_shape(const void *args, const vt_batch *batch, int64_t most_weights, int64_t *p)
{
    const attention_args *a = args;
    const vt_batch *b = batch ? batch : a->batch;
    (void)most_weights;
    shape(a, b, 0, b->n_decode, p);
    if (p[Q_LEN] <= 1)
        p[Q_LEN] = VT_UNSAID;
    const rope_args *r = &a->before.rope;
    p[BEFORE] = !r->q ? 0 : !r->q_norm ? 1 : r->norm_after ? 3 : r->q_cos_sin ? 4 : 2;
}

static const vt_impl *const prefill_impls[] = {
    CPU_ROWS(attention_prefill), &attention_prefill_fa3, &attention_prefill_fa2,
    &attention_prefill_wide,     &attention_prefill_any, NULL,
};

static const vt_impl *const decode_impls[] = {
    CPU_ROWS(attention_decode),
    &attention_decode_split,
    &attention_decode_fa3,
    &attention_decode_fa2,
    &attention_decode_wide,
    &attention_decode_any,
    NULL,
};

#define BEFORE_OPERAND(name, member, kind, written)                                        \
    {                                                                                      \
        name, offsetof(attention_args, before.member), VT_OPERAND_##kind, true, written, 0 \
    }

static const vt_operand attention_operands[] = {
    {"batch", offsetof(attention_args, batch), VT_OPERAND_BATCH, true, false, 0},
    {"q", offsetof(attention_args, q), VT_OPERAND_ACTIVATION, true, false, 0},
    {"k_pool", offsetof(attention_args, k_pool), VT_OPERAND_KV, true, false, 0},
    {"v_pool", offsetof(attention_args, v_pool), VT_OPERAND_KV, true, false, 0},
    {"o", offsetof(attention_args, o), VT_OPERAND_ACTIVATION, false, true, 0},
    {"sinks", offsetof(attention_args, sinks), VT_OPERAND_F32, true, false, 0},
    BEFORE_OPERAND("batch", rope.batch, BATCH, false),
    BEFORE_OPERAND("batch", store.batch, BATCH, false),
    BEFORE_OPERAND("raw_q", rope.q, ACTIVATION, true),
    BEFORE_OPERAND("raw_k", rope.k, ACTIVATION, true),
    BEFORE_OPERAND("raw_k", store.k, ACTIVATION, true),
    BEFORE_OPERAND("v", store.v, ACTIVATION, false),
    BEFORE_OPERAND("cos_sin", rope.cos_sin, F32, false),
    BEFORE_OPERAND("q_cos_sin", rope.q_cos_sin, F32, false),
    BEFORE_OPERAND("q_norm", rope.q_norm, F32, false),
    BEFORE_OPERAND("k_norm", rope.k_norm, F32, false),
    BEFORE_OPERAND("k_pool", store.k_pool, KV, true),
    BEFORE_OPERAND("v_pool", store.v_pool, KV, true),
};

/* The members that both cards share. */
#define ATTENTION_CARD                                                                          \
    .args_size = sizeof(attention_args), .tolerance = 1e-5,                                     \
    .tolerance_reason =                                                                         \
        "fp32 scores of size up to 20 carry 2e-6, which the exponential makes relative",        \
    .fields = attention_fields, .n_fields = sizeof attention_fields / sizeof *attention_fields, \
    .operands = attention_operands,                                                             \
    .n_operands = sizeof attention_operands / sizeof *attention_operands, .backend = "attention"

const vt_op attention_prefill_op = {
    ATTENTION_CARD,
    .name = "attention_prefill",
    .what = "attention of new tokens over paged KV",
    .cost = prefill_cost,
    .reference = prefill_reference,
    .refuses = attention_refuses,
    .cases = prefill_cases,
    .draws = prefill_draws,
    .make_args = prefill_make_args,
    .shape = prefill_shape,
    .impls = prefill_impls,
    .is = VT_OP_PREFILLS,
};

static const vt_impl *const decode_variants[] = {
    &attention_decode_splits_1, &attention_decode_splits_2,  &attention_decode_splits_4,
    &attention_decode_splits_8, &attention_decode_splits_16, NULL};

const vt_op attention_decode_op = {
    ATTENTION_CARD,
    .name = "attention_decode",
    .what = "attention of one new token a sequence, or of a few, over paged KV",
    .cost = decode_cost,
    .reference = decode_reference,
    .refuses = decode_refuses,
    .cases = decode_cases,
    .draws = decode_draws,
    .make_args = decode_make_args,
    .shape = decode_shape,
    .impls = decode_impls,
    .variants = decode_variants,
    .one_family_with = "attention_prefill",
    .is = VT_OP_DECODES,
    .knob = &attention_shared_knob,
};
