/* How decode attention's KV is split (decode_plan.h). */
#include "lab/kit/decode_plan.h"

#include <math.h>

#include "base/err.h"
#include "ops/attention/attention_cuda.h"
#include "ops/attention/attention_impls.h"
#include "ops/cases.h"

static vt_batch *batch_of(vt_arena *arena, const lab_heads *h, int32_t n_seqs, int32_t kv_len)
{
    uint64_t state = 1;
    case_seq *seq = vt_arena_alloc(arena, (size_t)n_seqs, sizeof *seq);
    for (int32_t s = 0; seq && s < n_seqs; s++)
        seq[s] = (case_seq){1, kv_len};
    return seq ? case_batch(arena, h->page, n_seqs, seq, true, 100, &state) : NULL;
}

/* The plan of the split kernel: items are KV ranges. */
static vt_status plan_gpu(const attention_args *a, const vt_target *t, const lab_heads *h,
                          decode_plan *out, vt_err *err)
{
    const vt_batch *b = a->batch;
    attention_plan_config c = attention_plan_config_of(a, t, NULL, 0);
    int32_t capacity = attention_decode_capacity(&c, b->n_decode, b->kv_len[0]);
    attention_decode_item *item = vt_calloc(attention_decode_plan_ints(capacity, b->n_decode),
                                            sizeof(int32_t));
    if (!item)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a plan of %d items", capacity);
    out->items = attention_decode_fill(&c, b, item, capacity);
    for (int32_t i = 0; i < out->items; i++) {
        int32_t len = item[i].end - item[i].begin;
        out->longest = len > out->longest ? len : out->longest;
        out->parts += item[i].seq == 0;
    }
    if (out->items > b->n_decode)
        out->partial_bytes = 2.0 * out->items * h->heads * (h->dim + 2) * 4;
    free(item);
    return VT_OK;
}

/* The plan of the CPU's rows: a task is a KV head of a sequence, an item a chunk of a task. */
static void plan_cpu(const attention_args *a, const vt_target *t, const lab_heads *h,
                     decode_plan *out)
{
    int32_t n = a->batch->n_decode, stride = (int32_t)vt_round_up((size_t)h->dim, 16);
    vt_limits limits = t->limits;
    limits.max_context = a->batch->kv_len[0];
    attention_plan p = attention_plan_make(a, 0, n, limits.n_workers, stride,
                                           attention_budget_floats(a, &limits, stride));
    out->items = (p.n_items ? p.n_items : p.n_tasks) / h->kv_heads;
    out->parts = out->items / n;
    out->longest = out->parts > 1 ? ATTENTION_CHUNK : a->batch->kv_len[0];
    out->partial_bytes = p.n_items ? 2.0 * p.n_items * (double)p.part_floats * 4 : 0;
}

vt_status lab_decode_plan(const vt_target *t, const lab_heads *h, int32_t n_seqs, int32_t kv_len,
                          decode_plan *out, vt_err *err)
{
    char heads[120], shape[160];
    lab_call c;
    lab_heads_text(h, heads, sizeof heads);
    snprintf(shape, sizeof shape, "kv_len=2,%s", heads);
    *out = (decode_plan){0};
    TRY(lab_call_make(t, "attention_decode", shape, &c, err));
    attention_args a = *(const attention_args *)c.args;
    a.batch = batch_of(&c.arena, h, n_seqs, kv_len);
    vt_status status = VT_OK;
    if (!a.batch)
        status = vt_fail(err, VT_ERR_MEMORY, "out of memory for %d sequences", n_seqs);
    else if (t->device == VT_DEVICE_CUDA)
        status = plan_gpu(&a, t, h, out, err);
    else
        plan_cpu(&a, t, h, out);
    out->work = (int64_t)out->items * h->kv_heads;
    lab_call_release(&c);
    return status;
}

softmax_state softmax_of(const double *score, const double *value, int32_t n)
{
    softmax_state s = {.m = -INFINITY};
    for (int32_t i = 0; i < n; i++)
        s.m = fmax(s.m, score[i]);
    for (int32_t i = 0; i < n; i++) {
        double p = exp2(score[i] - s.m);
        s.l += p;
        s.o += p * value[i];
    }
    return s;
}

softmax_state softmax_merge(softmax_state a, softmax_state b)
{
    softmax_state s = {.m = fmax(a.m, b.m)};
    double x = isinf(a.m) ? 0 : exp2(a.m - s.m), y = isinf(b.m) ? 0 : exp2(b.m - s.m);
    s.l = a.l * x + b.l * y;
    s.o = a.o * x + b.o * y;
    return s;
}
