/* Shapes of a program's calls (ops/shape_of.h): for each op the inverse of its make_args. */
#include "ops/shape_of.h"

#include <stdio.h>
#include <string.h>

#include "ops/attention/attention.h"
#include "ops/cases.h"
#include "ops/embed/embed.h"
#include "ops/kv_store/kv_store.h"
#include "ops/linear/linear.h"
#include "ops/moe/moe.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/rope/rope.h"
#include "ops/rope_store/rope_store.h"
#include "ops/sample/sample.h"
#include "ops/silu_mul/silu_mul.h"

typedef struct shape {
    const vt_batch *batch;
    int64_t most_weights;
    bool as_class;
    char *out;
    size_t at;
} shape;

/* The nearest power of two in the logarithm: 3 -> 4, 23 -> 16, 24 -> 32. */
static int64_t nearest_power(int64_t n)
{
    int64_t p = 1;
    while (n * n > 2 * p * p)
        p *= 2;
    return p;
}

static int64_t step_size(const shape *s, int64_t n, int64_t most)
{
    n = n < 1 ? 1 : n > most ? most : n;
    return s->as_class ? nearest_power(n) : n;
}

static void put(shape *s, const char *name, int64_t v)
{
    if (s->at < VT_SHAPE_TEXT)
        s->at += (size_t)snprintf(s->out + s->at, VT_SHAPE_TEXT - s->at, "%s%s=%lld",
                                  s->at ? "," : "", name, (long long)v);
}

static void put_word(shape *s, const char *name, const char *word)
{
    if (s->at < VT_SHAPE_TEXT)
        s->at += (size_t)snprintf(s->out + s->at, VT_SHAPE_TEXT - s->at, "%s%s=%s",
                                  s->at ? "," : "", name, word);
}

/* Fields that are 0 or 1 and usually 0. */
static void put_flag(shape *s, const char *name, bool on)
{
    if (on)
        put(s, name, 1);
}

static void put_type(shape *s, const char *name, vt_dtype t)
{
    put_word(s, name, t == VT_FP8_E4M3 ? "fp8" : vt_dtype_get(t)->name);
}

static void put_scales(shape *s, const vt_weight *w)
{
    if (w->dtype == VT_FP8_E4M3 && w->scale[0])
        put_word(s, "scales",
                 case_scale_words[vt_tensor_elems(w->scale[0]) > 1 ? CASE_SCALE_BLOCKS
                                                                   : CASE_SCALE_ONE]);
}

/* Rows of an activation in this batch. */
static void put_tokens(shape *s, const vt_tensor *x)
{
    int64_t most = case_limits(1).max_tokens;
    put(s, "tokens", step_size(s, vt_batch_rows(x, s->batch), most));
}

/* Such a case has one sequence of `tokens` new tokens beside its decodes; if all sequences are
 * decodes, one of them is that sequence. */
static void put_decodes(shape *s, const vt_tensor *x)
{
    int64_t all = step_size(s, vt_batch_rows(x, s->batch), case_limits(1).max_tokens),
            decodes = s->batch->n_decode ? step_size(s, s->batch->n_decode, case_limits(1).max_seqs)
                                         : 0;
    if (decodes >= all)
        decodes = all - 1;
    put(s, "tokens", all - decodes);
    if (decodes > 0)
        put(s, "decodes", decodes);
}

/* ---- ops ---- */

static void linear_shape(shape *s, const linear_args *a)
{
    static const char *const name[] = {"rows", "rows2", "rows3"};
    static const char *const epilogue[] = {"none", "swiglu", "geglu"};
    const vt_weight *w = a->w;
    int64_t most = s->most_weights / w->cols;
    put_tokens(s, a->y);
    put_type(s, "type", w->dtype);
    put(s, "cols", w->cols);
    /* on a GPU gate and up are one matrix, and a case has them as two */
    bool joined = a->epilogue != LINEAR_NONE && w->n_parts == 1;
    for (int32_t i = 0; i < w->n_parts + joined; i++) {
        int64_t rows = joined ? w->rows / 2 : w->part[i]->dim[0];
        if (w->rows > most) /* the same share of each part, in whole tiles */
            rows = rows * most / w->rows / 128 * 128 + 128;
        put(s, name[i], rows);
    }
    if (a->epilogue != LINEAR_NONE)
        put_word(s, "epilogue", epilogue[a->epilogue]);
    put_flag(s, "bias", a->bias != NULL);
    put_flag(s, "residual", a->residual != NULL);
    put_flag(s, "logits", a->y->follows == VT_FOLLOWS_ROWS);
    put_scales(s, w);
}

static void attention_shape(shape *s, const attention_args *a, bool decode)
{
    const vt_batch *b = s->batch;
    vt_limits most = case_limits(1);
    int32_t from = decode ? 0 : b->n_decode, to = decode ? b->n_decode : b->n_seqs;
    int64_t n = to > from ? to - from : 1, q = 0, kv = 0;
    for (int32_t i = from; i < to; i++) {
        q += b->q_start[i + 1] - b->q_start[i];
        kv += b->kv_len[i];
    }
    q = step_size(s, q / n, most.max_tokens);
    kv = step_size(s, kv / n, most.max_context);
    n = step_size(s, n, most.max_tokens / q < most.max_seqs ? most.max_tokens / q : most.max_seqs);
    put(s, "seqs", n);
    if (!decode)
        put(s, "q_len", q);
    put(s, "kv_len", kv > q ? kv : q);
    put(s, "heads", a->heads);
    put(s, "kv_heads", a->kv_heads);
    put(s, "head_dim", a->head_dim);
    put_type(s, "kv_type", a->k_pool->dtype);
    put(s, "page", a->k_pool->dim[2]);
    if (a->window > 0)
        put(s, "window", a->window);
}

static void embed_shape(shape *s, const embed_args *a)
{
    int64_t hidden = a->table->dim[1], most = s->most_weights / hidden;
    put_tokens(s, a->y);
    put_type(s, "type", a->table->dtype);
    put(s, "vocab", a->table->dim[0] < most ? a->table->dim[0] : most);
    put(s, "hidden", hidden);
}

static void rmsnorm_shape(shape *s, const rmsnorm_args *a)
{
    int64_t most = case_limits(1).max_tokens, tokens = vt_batch_rows(a->x, s->batch);
    put(s, "tokens", step_size(s, tokens, most));
    put(s, "hidden", a->x->dim[1]);
    if (a->row)
        put(s, "rows", step_size(s, s->batch->n_rows < tokens ? s->batch->n_rows : tokens, most));
    put_type(s, "type", a->weight->dtype);
}

static void put_heads(shape *s, const rope_args *a)
{
    put(s, "heads", a->q->dim[1] / a->head_dim);
    put(s, "kv_heads", a->k->dim[1] / a->head_dim);
    put(s, "head_dim", a->head_dim);
    if (a->dims != a->head_dim)
        put(s, "dims", a->dims);
    put_flag(s, "interleaved", a->interleaved);
    put_flag(s, "norm", a->q_norm != NULL);
}

static void rope_store_shape(shape *s, const rope_store_args *a)
{
    put_decodes(s, a->rope.q);
    put_heads(s, &a->rope);
    put_type(s, "kv_type", a->store.k_pool->dtype);
    put(s, "page", a->store.k_pool->dim[2]);
}

static void kv_store_shape(shape *s, const kv_store_args *a)
{
    put_decodes(s, a->k);
    put(s, "kv_heads", a->k_pool->dim[1]);
    put(s, "head_dim", a->k_pool->dim[3]);
    put_type(s, "kv_type", a->k_pool->dtype);
    put(s, "page", a->k_pool->dim[2]);
}

static void moe_route_shape(shape *s, const moe_route_args *a)
{
    put_tokens(s, a->x);
    put(s, "hidden", a->router->dim[1]);
    put(s, "experts", a->router->dim[0]);
    put(s, "k", a->k);
    put(s, "normalise", a->normalise);
    put_type(s, "type", a->router->dtype);
}

/* As many experts as the limit on weights allows, but no fewer than a token uses. */
static void moe_linear_shape(shape *s, const moe_linear_args *a)
{
    int64_t hidden = a->gate_up->cols, ffn = a->down->cols, k = a->expert->dim[1],
            most = s->most_weights / (3 * hidden * ffn);
    put_tokens(s, a->x);
    put(s, "hidden", hidden);
    put(s, "ffn", ffn);
    put(s, "experts", a->n_experts < most ? a->n_experts : most > k ? most : k);
    put(s, "k", k);
    put_type(s, "type", a->gate_up->dtype);
    put_scales(s, a->gate_up);
    if (a->activation == VT_ACT_GELU_TANH)
        put_word(s, "activation", "gelu");
    put_flag(s, "accumulate", a->accumulate);
}

bool vt_shape_of(const vt_op *op, const void *args, const vt_batch *batch, int64_t most_weights,
                 bool as_class, char out[VT_SHAPE_TEXT])
{
    shape s = {batch, most_weights, as_class, out, 0};
    out[0] = '\0';
    if (op == &linear_op)
        linear_shape(&s, args);
    else if (op == &attention_decode_op || op == &attention_prefill_op)
        attention_shape(&s, args, op == &attention_decode_op);
    else if (op == &embed_op)
        embed_shape(&s, args);
    else if (op == &rmsnorm_op || op == &add_rmsnorm_op)
        rmsnorm_shape(&s, args);
    else if (op == &rope_store_op)
        rope_store_shape(&s, args);
    else if (op == &kv_store_op)
        kv_store_shape(&s, args);
    else if (op == &moe_route_op)
        moe_route_shape(&s, args);
    else if (op == &moe_linear_op)
        moe_linear_shape(&s, args);
    else if (op == &rope_op) {
        put_tokens(&s, ((const rope_args *)args)->q);
        put_heads(&s, args);
    } else if (op == &silu_mul_op) {
        put_tokens(&s, ((const silu_mul_args *)args)->y);
        put(&s, "n", ((const silu_mul_args *)args)->y->dim[1]);
    } else if (op == &sample_op) {
        const sample_args *a = args;
        put(&s, "rows", step_size(&s, batch->n_rows, case_limits(1).max_seqs));
        put(&s, "vocab", a->logits->dim[1]);
    } else
        return false;
    return s.at > 0 && s.at < VT_SHAPE_TEXT;
}
