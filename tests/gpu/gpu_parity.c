/* Every CUDA implementation against its card's reference, case by case, on the device.
 *
 *   card's make_args (host, fp32) ── round to bf16 in place ──> reference (host)
 *                                └─> device twins (bf16; vectors fp32) ──> run() ──> compare
 *
 * Outputs are poisoned with NaN patterns before the run, so an element that nobody writes is seen.
 * The tolerance is that of a bf16 result of fp32 sums: |got - want| <= 0.01 (1 + |want|); fp32
 * results 0.002; ids, copies: exact. A quantised weight meets few tokens (64) as the integers and
 * scales that the reference has too, so the same holds, as do slots of experts; more tokens meet it
 * rounded to bf16: 0.02. Bench cases are timed too: median of 20 single launches, L2 flushed by a
 * 256 MiB fill before each, between events (which read about 2 us for nothing); GB/s counts the
 * card's compulsory bytes.
 *
 * usage: gpu_parity [--time] [--small] [--op NAME] [--case NAME] [--shard I/N] [--pdl]
 *     [--deterministic] [--random N] [--seed S] [--list]
 * TAP on stdout; exit 1 when a case fails or none was found, 77 without a GPU. --list prints op,
 * tab, case and needs none. --shard: every Nth case from number I, for several processes at once
 * (the references are single-threaded and take most of the time). --random: in place of these cases
 * N of random shapes of each op. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "device/cublaslt.h"
#include "gpu_cases.h"
#include "gpu_options.h"
#include "base/quant.h"
#include "ops/cuda_impls.h"
#include "ops/attention/attention_cuda.h"
#include "ops/embed/embed.h"
#include "ops/kv_store/kv_store.h"
#include "ops/linear/linear.h"
#include "ops/linear/linear_impl.h"
#include "ops/linear/linear_quant.h"
#include "ops/moe/moe.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/rope/rope.h"
#include "ops/sample/sample_cuda.h"
#include "ops/silu_mul/silu_mul.h"

enum { MAX_TWINS = 64, WORKSPACE = 256 << 20, LIBRARY_PAIRS = 32 << 20, FLUSH = 256 << 20 };

typedef struct twin {
    vt_tensor *host;
    vt_tensor device;
    bool output;
} twin;

typedef struct rig {
    vt_cuda *cuda;
    vt_cuda_lane lane;
    vt_lane op_lane;
    void *flush;
    twin twin[MAX_TWINS];
    int32_t n_twins;
    void *blocks[2 * MAX_TWINS + 32];
    int32_t n_blocks;
    vt_arena arena;
    gpu_options o;
    int32_t seen; /* cases, of all shards */
    int32_t passed, failed, skipped, number;
    char why[512];
} rig;

static void must(vt_status status, const vt_err *err)
{
    if (status == VT_OK)
        return;
    printf("Bail out! %s\n", err->message);
    exit(1);
}

static void check(rig *r, cu_result code, const char *what)
{
    vt_err err = {0};
    must(vt_cuda_check(r->cuda, code, what, &err), &err);
}

static void sync(rig *r)
{
    check(r, r->cuda->driver.stream_sync(r->lane.stream), "running a kernel");
}

static void *device_block(rig *r, const void *from, size_t bytes)
{
    vt_err err = {0};
    void *p = NULL;
    must(vt_cuda_alloc(r->cuda, bytes + 256, &p, &err), &err);
    r->blocks[r->n_blocks++] = p;
    if (from && bytes)
        check(r, r->cuda->driver.copy_to_device((cu_ptr)(uintptr_t)p, from, bytes, r->lane.stream),
              "upload");
    sync(r);
    return p;
}

static void release_blocks(rig *r)
{
    for (int32_t i = 0; i < r->n_blocks; i++)
        vt_cuda_free(r->cuda, r->blocks[i]);
    r->n_blocks = r->n_twins = 0;
}

/* ---- tensors ---- */

static int64_t n_rows(const vt_tensor *t)
{
    return t->rank == 1 ? 1 : vt_tensor_elems(t) / t->dim[t->rank - 1];
}
static int64_t n_cols(const vt_tensor *t) { return t->dim[t->rank - 1]; }

static char *host_row(const vt_tensor *t, int64_t row)
{
    int64_t stride = t->rank == 2 && !vt_dtype_quantised(t->dtype) ? t->row_stride : n_cols(t);
    return (char *)t->data + row * vt_dtype_row_bytes(t->dtype, stride);
}

static float round_bf16(float f) { return isnan(f) ? f : vt_bf16_to_f32(vt_f32_to_bf16(f)); }

/* Values become bf16 values, in the tensor's own type; of quantised weights only the twin does. */
static void round_host(rig *r, vt_tensor *t)
{
    if (vt_dtype_quantised(t->dtype) || t->dtype == VT_BF16 || t->dtype == VT_FP8_E4M3)
        return;
    float *row = vt_arena_alloc(&r->arena, (size_t)n_cols(t), sizeof *row);
    for (int64_t i = 0; i < n_rows(t); i++) {
        vt_dequant_row(t->dtype, host_row(t, i), row, n_cols(t));
        for (int64_t k = 0; k < n_cols(t); k++)
            row[k] = round_bf16(row[k]);
        vt_quant_row(t->dtype, row, host_row(t, i), n_cols(t));
    }
}

static bool is_integer(vt_dtype t) { return t >= VT_I8; }

/* The device's twin of a host tensor, made once per address; BF16, F32 for vectors, integers as
 * they are. */
static vt_tensor *on_device(rig *r, const vt_tensor *host, vt_dtype type)
{
    if (!host)
        return NULL;
    for (int32_t i = 0; i < r->n_twins; i++)
        if (r->twin[i].host->data == host->data && r->twin[i].host->dim[1] == host->dim[1])
            return &r->twin[i].device;
    twin *w = &r->twin[r->n_twins++];
    w->host = (vt_tensor *)(uintptr_t)host;
    w->output = false;
    w->device = *host;
    w->device.dtype = type;
    size_t size = (size_t)vt_dtype_get(type)->bytes;
    int64_t cols = n_cols(host), rows = n_rows(host),
            stride = host->rank == 2 ? host->row_stride : cols;
    char *image = calloc((size_t)(rows * stride) + 8, size);
    float *values = malloc((size_t)cols * sizeof *values);
    for (int64_t i = 0; i < rows; i++) {
        char *to = image + (size_t)(i * stride) * size;
        if (is_integer(host->dtype)) {
            memcpy(to, host_row(host, i), (size_t)cols * size);
            continue;
        }
        vt_dequant_row(host->dtype, host_row(host, i), values, cols);
        vt_quant_row(type, values, to, cols);
    }
    w->device.row_stride = stride;
    w->device.data = device_block(r, image, (size_t)(rows * stride) * size);
    free(values);
    free(image);
    return &w->device;
}

static void poison(rig *r, vt_tensor *const *outputs, int32_t n, const vt_tensor *const *inputs,
                   int32_t n_inputs)
{
    for (int32_t i = 0; i < r->n_twins; i++)
        for (int32_t k = 0; k < n; k++) {
            twin *w = &r->twin[i];
            bool input = false;
            for (int32_t j = 0; j < n_inputs; j++)
                input = input || (inputs[j] && inputs[j]->data == w->host->data);
            if (outputs[k]->data != w->host->data || w->host->dim[1] != outputs[k]->dim[1])
                continue;
            w->output = true;
            if (!input)
                check(r,
                      r->cuda->driver.fill8((cu_ptr)(uintptr_t)w->device.data, 0xff,
                                            (size_t)n_rows(w->host) * (size_t)w->device.row_stride *
                                                (size_t)vt_dtype_get(w->device.dtype)->bytes,
                                            r->lane.stream),
                      "poison");
        }
}

/* ---- batches ---- */

static const int32_t *ints(rig *r, const int32_t *host, int64_t n)
{
    return device_block(r, host, (size_t)n * 4);
}

static vt_batch *batch_on_device(rig *r, const vt_batch *b)
{
    vt_batch *d = vt_arena_alloc(&r->arena, 1, sizeof *d);
    *d = *b;
    d->token = ints(r, b->token, b->n_tokens);
    d->position = ints(r, b->position, b->n_tokens);
    d->seq_of = ints(r, b->seq_of, b->n_tokens);
    d->slot = ints(r, b->slot, b->n_tokens);
    d->q_start = ints(r, b->q_start, b->n_seqs + 1);
    d->kv_len = ints(r, b->kv_len, b->n_seqs);
    d->page_start = ints(r, b->page_start, b->n_seqs + 1);
    d->page_ids = ints(r, b->page_ids, b->n_pages);
    d->row_token = b->n_rows ? ints(r, b->row_token, b->n_rows) : NULL;
    return d;
}

/* ---- one op's args on the device ---- */

typedef struct device_args {
    union {
        embed_args embed;
        rmsnorm_args rmsnorm;
        linear_args linear;
        rope_args rope;
        kv_store_args kv_store;
        attention_args attention;
        silu_mul_args silu_mul;
        sample_args sample;
        moe_route_args moe_route;
        moe_linear_args moe_linear;
    };
    vt_weight weight;
    vt_tensor part;
    const int32_t *row;
    int32_t *pool;
    const vt_tensor *inputs[8];
    int32_t n_inputs;
} device_args;

static void input(device_args *d, const vt_tensor *t) { d->inputs[d->n_inputs++] = t; }

/* A matrix in quantised tiles, as exec/cuda_weights.c makes them. */
static void *tiles_on_device(rig *r, const linear_quant_source *s, int64_t rows)
{
    const vt_tensor *t = s->part[0].rows;
    size_t bytes = linear_quant_matrix_bytes(t->dtype, rows, t->dim[1], s->paired);
    void *image = malloc(bytes);
    linear_quant_pack(s, 0, (int64_t)bytes / linear_quant_tile_bytes(t->dtype, t->dim[1]), image);
    void *there = device_block(r, image, bytes);
    free(image);
    return there;
}

static void make_embed(rig *r, const embed_args *a, device_args *d)
{
    const vt_tensor *t = a->table;
    d->embed = *a;
    if (linear_quant_type(t->dtype, t->dim[1])) {
        linear_quant_source s = {.part = {{.rows = t}}, .n_parts = 1};
        d->part = *t;
        d->part.data = tiles_on_device(r, &s, t->dim[0]);
        d->embed.table = &d->part;
    } else {
        d->embed.table = on_device(r, t, VT_BF16);
    }
    d->embed.tokens = ints(r, a->tokens, a->y->dim[0]);
    d->embed.y = on_device(r, a->y, VT_BF16);
}

static void make_rmsnorm(rig *r, const rmsnorm_args *a, device_args *d)
{
    round_host(r, (vt_tensor *)(uintptr_t)a->x);
    if (a->residual)
        round_host(r, a->residual);
    d->rmsnorm = *a;
    d->rmsnorm.x = on_device(r, a->x, VT_BF16);
    d->rmsnorm.weight = on_device(r, a->weight, VT_F32);
    d->rmsnorm.residual = on_device(r, a->residual, VT_BF16);
    d->rmsnorm.y = on_device(r, a->y, VT_BF16);
    if (a->row) {
        d->row = ints(r, *a->row, a->y->dim[0]);
        d->rmsnorm.row = &d->row;
    }
    input(d, a->x);
    input(d, a->residual);
}

/* Quantised weights in tiles; others as BF16, the parts one after the other. */
static void make_weight(rig *r, const vt_weight *w, device_args *d)
{
    d->weight = *w;
    d->weight.part[0] = &d->part;
    d->weight.part[1] = d->weight.part[2] = NULL;
    d->weight.n_parts = 1;
    memset(d->weight.scale, 0, sizeof d->weight.scale);
    if (linear_quant_type(w->dtype, w->cols)) {
        linear_quant_source s = {.n_parts = w->n_parts, .paired = w->paired};
        for (int32_t p = 0; p < w->n_parts; p++) {
            s.part[p].rows = w->part[p];
            s.part[p].scale = w->scale[p];
        }
        d->part = vt_tensor_2d(tiles_on_device(r, &s, w->rows), w->dtype, w->rows, w->cols);
        d->weight.packed_for = &linear_cuda_impl;
        d->weight.packed_bytes = linear_quant_matrix_bytes(w->dtype, w->rows, w->cols, w->paired);
        return;
    }
    uint16_t *image = malloc((size_t)(w->rows * w->cols) * 2);
    float *row = malloc((size_t)w->cols * sizeof *row);
    for (int32_t p = 0; p < w->n_parts; p++)
        round_host(r, (vt_tensor *)(uintptr_t)w->part[p]);
    for (int64_t i = 0; i < w->rows; i++) { /* with its FP8 scales */
        linear_weight_row(w, i, row);
        vt_quant_row(VT_BF16, row, image + i * w->cols, w->cols);
    }
    d->weight.dtype = VT_BF16;
    d->part = vt_tensor_2d(device_block(r, image, (size_t)(w->rows * w->cols) * 2), VT_BF16,
                           w->rows, w->cols);
    free(row);
    free(image);
}

static void make_linear(rig *r, const linear_args *a, device_args *d, bool f32_out)
{
    d->linear = *a;
    make_weight(r, a->w, d);
    round_host(r, (vt_tensor *)(uintptr_t)a->x);
    if (a->residual)
        round_host(r, (vt_tensor *)(uintptr_t)a->residual);
    d->linear.w = &d->weight;
    d->linear.x = on_device(r, a->x, VT_BF16);
    d->linear.bias = on_device(r, a->bias, VT_F32);
    d->linear.residual = on_device(r, a->residual, VT_BF16);
    d->linear.y = on_device(r, a->y, f32_out ? VT_F32 : VT_BF16);
    input(d, a->residual);
}

static void make_rope(rig *r, const rope_args *a, device_args *d)
{
    round_host(r, a->q);
    round_host(r, a->k);
    d->rope = *a;
    d->rope.batch = batch_on_device(r, a->batch);
    d->rope.q = on_device(r, a->q, VT_BF16);
    d->rope.k = on_device(r, a->k, VT_BF16);
    d->rope.cos_sin = on_device(r, a->cos_sin, VT_F32);
    d->rope.q_norm = on_device(r, a->q_norm, VT_F32);
    d->rope.k_norm = on_device(r, a->k_norm, VT_F32);
    input(d, a->q);
    input(d, a->k);
}

static vt_dtype pool_type(const vt_tensor *pool)
{
    return pool->dtype == VT_FP8_E4M3 ? VT_FP8_E4M3 : VT_BF16;
}

static void make_kv_store(rig *r, const kv_store_args *a, device_args *d)
{
    round_host(r, (vt_tensor *)(uintptr_t)a->k);
    round_host(r, (vt_tensor *)(uintptr_t)a->v);
    d->kv_store = *a;
    d->kv_store.batch = batch_on_device(r, a->batch);
    d->kv_store.k = on_device(r, a->k, VT_BF16);
    d->kv_store.v = on_device(r, a->v, VT_BF16);
    d->kv_store.k_pool = on_device(r, a->k_pool, pool_type(a->k_pool));
    d->kv_store.v_pool = on_device(r, a->v_pool, pool_type(a->v_pool));
    input(d, a->k_pool); /* slots that no token goes to keep what they had */
    input(d, a->v_pool);
}

static void make_attention(rig *r, const attention_args *a, device_args *d)
{
    round_host(r, (vt_tensor *)(uintptr_t)a->q);
    round_host(r, (vt_tensor *)(uintptr_t)a->k_pool);
    round_host(r, (vt_tensor *)(uintptr_t)a->v_pool);
    d->attention = *a;
    d->attention.batch = batch_on_device(r, a->batch);
    d->attention.q = on_device(r, a->q, VT_BF16);
    d->attention.k_pool = on_device(r, a->k_pool, pool_type(a->k_pool));
    d->attention.v_pool = on_device(r, a->v_pool, pool_type(a->v_pool));
    d->attention.o = on_device(r, a->o, VT_BF16);
    attention_plan_config c = {
        .heads = a->heads,
        .kv_heads = a->kv_heads,
        .few = attention_decode_shape_of(r->cuda, a->head_dim, ATTENTION_FEW),
        .sm_count = r->cuda->sm_count,
        .prefill_rows = attention_prefill_rows(r->cuda, a->head_dim, a->batch->page_size),
        .deterministic = r->lane.deterministic,
        .shared_rows = 1};
    r->lane.prefill_rows = c.prefill_rows;
    int32_t cap_decode = attention_decode_capacity(&c, a->batch->n_decode, 1 << 20);
    int32_t cap_prefill = attention_prefill_capacity(&c, a->batch->n_seqs, a->batch->n_tokens),
            used[2];
    size_t n_decode = attention_decode_plan_ints(cap_decode, a->batch->n_decode),
           n = n_decode + (size_t)cap_prefill * PREFILL_ITEM_INTS;
    int32_t *plan = calloc(n, sizeof *plan);
    attention_cuda_plan(&c, a->batch, plan, cap_decode, plan + n_decode, cap_prefill, &used[0],
                        &used[1]);
    r->lane.attention_plan = ints(r, plan, (int64_t)n);
    r->lane.prefill_plan = r->lane.attention_plan + n_decode;
    r->lane.decodes = a->batch->n_decode;
    r->lane.decode_shares = attention_may_share(&c, a->batch->n_decode);
    r->lane.decode_items = a->batch->n_decode ? cap_decode
                                              : 0; /* padding items too, as a graph has them */
    r->lane.prefill_items = a->batch->n_seqs > a->batch->n_decode ? cap_prefill : 0;
    free(plan);
}

static void make_silu_mul(rig *r, const silu_mul_args *a, device_args *d)
{
    round_host(r, (vt_tensor *)(uintptr_t)a->x);
    d->silu_mul = *a;
    d->silu_mul.x = on_device(r, a->x, VT_BF16);
    d->silu_mul.y = on_device(r, a->y, VT_BF16);
}

static void make_sample(rig *r, const sample_args *a, device_args *d)
{
    int32_t rows = (int32_t)a->logits->dim[0];
    int32_t vocab = (int32_t)a->logits->dim[1];
    sample_cuda_counts n = sample_cuda_count(*a->row, rows, vocab);
    sample_cuda_row *row = calloc((size_t)rows + 1, sizeof *row);
    int32_t *contexts = calloc((size_t)n.contexts + 1, sizeof *contexts);
    vt_logit_bias *biases = calloc((size_t)n.biases + 1, sizeof *biases);
    uint32_t *masks = calloc((size_t)n.mask_words + 1, sizeof *masks);
    sample_cuda_pack(*a->row, rows, vocab, row, contexts, biases, masks);
    r->lane.sample_rows = device_block(r, row, (size_t)rows * sizeof *row);
    r->lane.sample_contexts = device_block(r, contexts, (size_t)n.contexts * sizeof *contexts);
    r->lane.sample_biases = device_block(r, biases, (size_t)n.biases * sizeof *biases);
    r->lane.sample_masks = device_block(r, masks, (size_t)n.mask_words * sizeof *masks);
    free(masks);
    free(biases);
    free(contexts);
    free(row);
    d->sample = *a;
    d->sample.logits = on_device(r, a->logits, VT_F32);
    d->sample.token = on_device(r, a->token, VT_I32);
    d->sample.logprob = on_device(r, a->logprob, VT_F32);
    d->sample.top_id = on_device(r, a->top_id, VT_I32);
    d->sample.top_logprob = on_device(r, a->top_logprob, VT_F32);
    if (a->token_pool) {
        d->pool = (int32_t *)(uintptr_t)ints(r, *a->token_pool, 4096);
        d->sample.token_pool = &d->pool;
    }
}

/* Logits of a router must not be near-ties for the choice to be the same: x is rounded, the router
 * is not. */
static void make_moe_route(rig *r, const moe_route_args *a, device_args *d)
{
    round_host(r, (vt_tensor *)(uintptr_t)a->x);
    d->moe_route = *a;
    d->moe_route.x = on_device(r, a->x, VT_BF16);
    d->moe_route.router = on_device(r, a->router, VT_F32);
    d->moe_route.expert = on_device(r, a->expert, VT_I32);
    d->moe_route.weight = on_device(r, a->weight, VT_F32);
}

/* All experts' matrices in one block, as exec/cuda_weights.c lays them out: BF16 rows, or tiles. */
static void *experts_as_bf16(rig *r, const vt_weight *w, int32_t n, size_t *each)
{
    int64_t rows = w->rows, cols = w->cols;
    uint16_t *image = calloc((size_t)(n * rows * cols), 2), *to = image;
    float *row = malloc((size_t)cols * sizeof *row);
    *each = (size_t)(rows * cols) * 2;
    for (int32_t e = 0; e < n; e++) {
        for (int32_t p = 0; p < w[e].n_parts; p++)
            round_host(r, (vt_tensor *)(uintptr_t)w[e].part[p]);
        for (int64_t i = 0; i < rows; i++, to += cols) { /* with its FP8 scales */
            linear_weight_row(&w[e], i, row);
            vt_quant_row(VT_BF16, row, to, cols);
        }
    }
    free(row);
    return image;
}

static void *experts_as_tiles(const vt_weight *w, int32_t n, size_t *each)
{
    *each = linear_quant_matrix_bytes(w->dtype, w->rows, w->cols, w->paired);
    char *image = calloc((size_t)n, *each);
    for (int32_t e = 0; e < n; e++) {
        linear_quant_source s = {.n_parts = w[e].n_parts, .paired = w[e].paired};
        for (int32_t p = 0; p < w[e].n_parts; p++) {
            s.part[p].rows = w[e].part[p];
            s.part[p].scale = w[e].scale[p];
        }
        linear_quant_pack(&s, 0, (int64_t)*each / linear_quant_tile_bytes(w->dtype, w->cols),
                          image + (size_t)e * *each);
    }
    return image;
}

static const vt_weight *stack_experts(rig *r, const vt_weight *w, int32_t n, bool tiles)
{
    size_t each;
    void *image = tiles ? experts_as_tiles(w, n, &each) : experts_as_bf16(r, w, n, &each);
    char *there = device_block(r, image, (size_t)n * each);
    vt_weight *out = vt_arena_alloc(&r->arena, (size_t)n, sizeof *out);
    for (int32_t e = 0; e < n; e++) {
        vt_tensor *t = vt_arena_alloc(&r->arena, 1, sizeof *t);
        *t = vt_tensor_2d(there + (size_t)e * each, tiles ? w->dtype : VT_BF16, w->rows, w->cols);
        out[e] = (vt_weight){.part = {t},
                             .n_parts = 1,
                             .paired = w->paired,
                             .rows = w->rows,
                             .cols = w->cols,
                             .dtype = t->dtype,
                             .packed_bytes = tiles ? each : 0,
                             .packed_for = tiles ? &linear_cuda_impl : NULL};
    }
    free(image);
    return out;
}

static void make_moe_linear(rig *r, const moe_linear_args *a, device_args *d)
{
    round_host(r, (vt_tensor *)(uintptr_t)a->x);
    if (a->accumulate)
        round_host(r, a->y);
    d->moe_linear = *a;
    d->moe_linear.x = on_device(r, a->x, VT_BF16);
    d->moe_linear.expert = on_device(r, a->expert, VT_I32);
    d->moe_linear.weight = on_device(r, a->weight, VT_F32);
    bool tiles = linear_quant_type(a->gate_up->dtype, a->gate_up->cols) &&
                 linear_quant_type(a->down->dtype, a->down->cols);
    d->moe_linear.gate_up = stack_experts(r, a->gate_up, a->n_experts, tiles);
    d->moe_linear.down = stack_experts(r, a->down, a->n_experts, tiles);
    d->moe_linear.y = on_device(r, a->y, VT_BF16);
    if (a->accumulate)
        input(d, a->y);
}

static bool make_device_args(rig *r, const vt_op *op, const void *args, device_args *d,
                             bool f32_out)
{
    memset(d, 0, sizeof *d);
    if (op == &embed_op)
        make_embed(r, args, d);
    else if (op == &rmsnorm_op || op == &add_rmsnorm_op)
        make_rmsnorm(r, args, d);
    else if (op == &linear_op)
        make_linear(r, args, d, f32_out);
    else if (op == &rope_op)
        make_rope(r, args, d);
    else if (op == &kv_store_op)
        make_kv_store(r, args, d);
    else if (op == &attention_decode_op || op == &attention_prefill_op)
        make_attention(r, args, d);
    else if (op == &silu_mul_op)
        make_silu_mul(r, args, d);
    else if (op == &sample_op)
        make_sample(r, args, d);
    else if (op == &moe_route_op)
        make_moe_route(r, args, d);
    else if (op == &moe_linear_op)
        make_moe_linear(r, args, d);
    else
        return false;
    return true;
}

/* ---- comparing ---- */

/* Attention writes the rows of its own sequences only. */
static bool row_counts(const vt_op *op, const void *args, int64_t row)
{
    if (op != &attention_decode_op && op != &attention_prefill_op)
        return true;
    const attention_args *a = args;
    bool decode = row < a->batch->q_start[a->batch->n_decode];
    return decode == (op == &attention_decode_op);
}

/* Weights that the reference has quantised and a kernel as BF16: the panels that a linear of more
 * than 64 tokens makes. Few tokens, and slots of experts, meet the quants themselves. */
static bool weights_are_rounded(const vt_op *op, const void *args)
{
    const linear_args *a = args;
    return op == &linear_op && a->x->dim[0] > 64 && linear_quant_type(a->w->dtype, a->w->cols);
}

static bool compare(rig *r, const vt_op *op, const void *args, const twin *w, double *worst)
{
    const vt_tensor *h = w->host, *d = &w->device;
    int64_t rows = n_rows(h), cols = n_cols(h);
    size_t size = (size_t)vt_dtype_get(d->dtype)->bytes;
    char *image = malloc((size_t)(rows * d->row_stride) * size + 8);
    check(r,
          r->cuda->driver.copy_to_host(image, (cu_ptr)(uintptr_t)d->data,
                                       (size_t)(rows * d->row_stride) * size, r->lane.stream),
          "download");
    sync(r);
    float *want = malloc((size_t)cols * 4), *got = malloc((size_t)cols * 4);
    double tolerance = op == &kv_store_op              ? 0
                       : weights_are_rounded(op, args) ? 0.02
                       : d->dtype == VT_BF16           ? 0.01
                                                       : 0.002;
    bool good = true;
    for (int64_t i = 0; i < rows && good; i++) {
        if (!row_counts(op, args, i))
            continue;
        const char *from = image + (size_t)(i * d->row_stride) * size;
        if (is_integer(h->dtype)) {
            for (int64_t k = 0; k < cols && good; k++)
                if (((const int32_t *)from)[k] != ((const int32_t *)host_row(h, i))[k]) {
                    snprintf(r->why, sizeof r->why, "row %lld, %lld: %d, expected %d", (long long)i,
                             (long long)k, ((const int32_t *)from)[k],
                             ((const int32_t *)host_row(h, i))[k]);
                    good = false;
                }
            continue;
        }
        vt_dequant_row(h->dtype, host_row(h, i), want, cols);
        vt_dequant_row(d->dtype, from, got, cols);
        for (int64_t k = 0; k < cols && good; k++) {
            double e = fabs((double)got[k] - want[k]) / (1 + fabs((double)want[k]));
            if (want[k] == got[k] || (isnan(want[k]) && isnan(got[k])))
                continue;
            if (!(e <= tolerance)) {
                snprintf(r->why, sizeof r->why,
                         "row %lld, %lld: %g, expected %g (error %.3g, allowed %.3g)", (long long)i,
                         (long long)k, (double)got[k], (double)want[k], e, tolerance);
                good = false;
            }
            *worst = e > *worst ? e : *worst;
        }
    }
    free(got);
    free(want);
    free(image);
    return good;
}

/* ---- timing ---- */

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static double time_us(rig *r, const vt_impl *impl, const void *args)
{
    enum { REPS = 20 };
    const cuda_driver *d = &r->cuda->driver;
    cu_event from, to;
    float ms[REPS];
    check(r, d->event_create(&from, CU_EVENT_DEFAULT), "event");
    check(r, d->event_create(&to, CU_EVENT_DEFAULT), "event");
    for (int i = 0; i < REPS; i++) {
        check(r, d->fill8((cu_ptr)(uintptr_t)r->flush, (unsigned char)i, FLUSH, r->lane.stream),
              "flush");
        check(r, d->event_record(from, r->lane.stream), "event");
        impl->run(args, &r->op_lane);
        check(r, d->event_record(to, r->lane.stream), "event");
        sync(r);
        check(r, d->event_elapsed(&ms[i], from, to), "event");
    }
    d->event_destroy(from);
    d->event_destroy(to);
    qsort(ms, REPS, sizeof *ms, by_value);
    return ms[REPS / 2] * 1e3;
}

static void print_time(rig *r, const vt_op *op, const vt_impl *impl, const void *args,
                       const void *d)
{
    double us = time_us(r, impl, d);
    bool paged = op == &attention_decode_op ||
                 op == &attention_prefill_op; /* cost reads the batch's arrays */
    vt_cost cost = op->cost(paged ? args : d);
    printf("  %.1f us  %.0f GB/s  %.1f TFLOP/s", us, (double)vt_cost_bytes(&cost) / us * 1e-3,
           (double)vt_cost_flops(&cost) / us * 1e-6);
}

/* ---- one case ---- */

static char *download(rig *r, const vt_tensor *t, size_t bytes)
{
    char *image = malloc(bytes + 8);
    check(r, r->cuda->driver.copy_to_host(image, (cu_ptr)(uintptr_t)t->data, bytes, r->lane.stream),
          "download");
    sync(r);
    return image;
}

/* A linear's rows have the same bits in the smallest step that would be padded to this one
 * (exec/cuda_step.c). */
static bool same_in_bucket(rig *r, const vt_impl *impl, const linear_args *whole)
{
    int64_t m = whole->x->dim[0], least = m <= 16   ? 1
                                          : m <= 32 ? 17
                                          : m <= 64 ? 33
                                                    : (m - 1) / 64 * 64 + 1;
    vt_tensor x = *whole->x, y = *whole->y, residual = whole->residual ? *whole->residual : y;
    linear_args few = *whole;
    size_t size = (size_t)vt_dtype_get(y.dtype)->bytes, row = (size_t)y.row_stride * size,
           bytes = (size_t)least * row;
    if (m <= least)
        return true;
    char *before = download(r, &y, bytes);
    x.dim[0] = y.dim[0] = residual.dim[0] = least;
    few.x = &x;
    few.y = &y;
    few.residual = whole->residual ? &residual : NULL;
    check(r, r->cuda->driver.fill8((cu_ptr)(uintptr_t)y.data, 0xff, bytes, r->lane.stream), "fill");
    bool good = impl->run(&few, &r->op_lane) == VT_OK;
    char *after = download(r, &y, bytes);
    for (int64_t i = 0; i < least && good; i++)
        good = memcmp(before + (size_t)i * row, after + (size_t)i * row,
                      (size_t)n_cols(&y) * size) == 0;
    if (!good)
        snprintf(r->why, sizeof r->why, "%s",
                 r->lane.err.status != VT_OK ? r->lane.err.message
                                             : "other bits with fewer tokens of the same bucket");
    free(before);
    free(after);
    return good;
}

/* Whether the run that was noted launched a kernel of cuBLASLt. */
static bool used_cublaslt(const rig *r)
{
    for (int32_t i = 0; i < r->lane.n_launches && i < r->lane.max_note; i++)
        if (strncmp(vt_jit_name(r->cuda->jit, r->lane.note[i]), "cublasLt", 8) == 0)
            return true;
    return false;
}

/* Collects, compiles, runs and compares. `library`: on cuBLASLt, and nothing where it is not
 * taken. */
static void try_case(rig *r, const vt_op *op, const vt_impl *impl, const char *name,
                     const void *args, const device_args *d, vt_tensor *const *outputs,
                     int32_t n_outputs, bool library)
{
    enum { MOST = 256 };
    int32_t note[MOST], use = r->cuda->cublaslt_use;
    vt_err err = {0};
    double worst = 0;
    bool good = true;
    r->why[0] = 0;
    r->lane.err = (vt_err){0};
    r->cuda->cublaslt_use = library ? CUBLASLT_ALL : CUBLASLT_NEVER;
    r->lane.collect = true;
    impl->run(d, &r->op_lane);
    r->lane.collect = false;
    must(vt_cuda_compile(r->cuda, NULL, NULL, &err), &err);
    poison(r, outputs, n_outputs, d->inputs, d->n_inputs);
    if (library) /* which leaves pairs in the workspace, for silu_mul to read */
        check(r,
              r->cuda->driver.fill8((cu_ptr)(uintptr_t)r->lane.workspace, 0xff, LIBRARY_PAIRS,
                                    r->lane.stream),
              "poison");
    r->lane.note = note;
    r->lane.max_note = MOST;
    r->lane.n_launches = 0;
    if (impl->run(d, &r->op_lane) != VT_OK) {
        snprintf(r->why, sizeof r->why, "%s", r->lane.err.message);
        good = false;
    }
    sync(r);
    bool ran = !library || !good || used_cublaslt(r);
    r->lane.note = NULL;
    int32_t n_compared = 0;
    for (int32_t i = 0; i < r->n_twins && good; i++)
        if (r->twin[i].output) {
            good = compare(r, op, args, &r->twin[i], &worst);
            n_compared++;
        }
    if (good && n_compared != n_outputs) {
        snprintf(r->why, sizeof r->why, "%d outputs compared, expected %d", n_compared, n_outputs);
        good = false;
    }
    if (good && op == &linear_op)
        good = same_in_bucket(r, impl, &d->linear);
    if (ran) {
        printf("%s %d - %s %s  worst %.2g %s", good ? "ok" : "not ok", ++r->number, op->name, name,
               worst, r->why);
        good ? r->passed++ : r->failed++;
    }
    r->cuda->cublaslt_use = use;
}

static void run_case(rig *r, const vt_op *op, const gpu_case *g)
{
    const vt_case *c = &g->c;
    bool f32_out = g->f32_out;
    if ((r->o.small && c->bench) || (r->o.only_case && strcmp(r->o.only_case, c->name) != 0))
        return;
    if (r->o.list) {
        printf("%s\t%s\n", op->name, c->name);
        return;
    }
    if (r->seen++ % r->o.shards != r->o.shard)
        return;
    vt_tensor *outputs[VT_MAX_OUTPUTS] = {0};
    int32_t n_outputs = 0;
    device_args d;
    vt_arena_init(&r->arena, (size_t)12 << 30);
    void *args = (g->make ? g->make : op->make_args)(c, g->seed ? g->seed : 42, &r->arena, outputs,
                                                     &n_outputs);
    const char *skip = !args                                         ? "out of host memory"
                       : !make_device_args(r, op, args, &d, f32_out) ? "no CUDA twin"
                                                                     : NULL;
    const vt_impl *impl = skip ? NULL : vt_op_select(op, VT_DEVICE_CUDA, VT_ISA_PORTABLE, &d);
    if (!skip && !impl)
        skip = "not supported on CUDA";
    char name[160];
    snprintf(name, sizeof name, "%s%s", c->name, f32_out ? " f32" : "");
    if (skip) {
        r->skipped++;
        printf("ok %d - %s %s # skip %s\n", ++r->number, op->name, c->name, skip);
    } else {
        op->reference(args);
        try_case(r, op, impl, name, args, &d, outputs, n_outputs, false);
        if (r->o.timing && c->bench)
            print_time(r, op, impl, args, &d);
        printf("\n");
    }
    if (!skip && op == &linear_op && r->cuda->cublaslt_use != CUBLASLT_NEVER) {
        int32_t before = r->number;
        char on_library[180];
        snprintf(on_library, sizeof on_library, "%s cublasLt", name);
        try_case(r, op, impl, on_library, args, &d, outputs, n_outputs, true);
        if (r->number > before)
            printf("\n");
    }
    fflush(stdout);
    release_blocks(r);
    vt_arena_release(&r->arena);
}

static void run_cases(rig *r)
{
    for (const vt_op *const *op = vt_ops; *op; op++) {
        if (r->o.only_op && strcmp(r->o.only_op, (*op)->name) != 0)
            continue;
        gpu_case g;
        for (int32_t i = 0; i < r->o.n_random && gpu_random_case((*op)->name, r->o.seed, i, &g);
             i++)
            run_case(r, *op, &g);
        for (int32_t i = 0; i < (*op)->n_cases && r->o.n_random == 0; i++)
            run_case(r, *op, &(gpu_case){.c = (*op)->cases[i]});
        for (const gpu_case *c = gpu_cases; c->op && r->o.n_random == 0; c++)
            if (strcmp(c->op, (*op)->name) == 0)
                run_case(r, *op, c);
    }
}

int main(int argc, char **argv)
{
    static rig r;
    vt_err err = {0};
    (void)argc;
    if (!gpu_options_read(&r.o, argv + 1))
        return 2;
    if (r.o.list) {
        run_cases(&r);
        return 0;
    }
    if (vt_cuda_open(0, &r.cuda, &err) != VT_OK) {
        printf("1..0 # skip %s\n", err.message);
        return 77;
    }
    r.lane = (vt_cuda_lane){.cuda = r.cuda,
                            .workspace_bytes = WORKSPACE,
                            .pdl = r.o.pdl,
                            .deterministic = r.o.deterministic};
    must(vt_cuda_check(r.cuda,
                       r.cuda->driver.stream_create(&r.lane.stream, CU_STREAM_NON_BLOCKING, 0),
                       "stream", &err),
         &err);
    must(vt_cuda_alloc(r.cuda, WORKSPACE, &r.lane.workspace, &err), &err);
    must(vt_cuda_alloc(r.cuda, FLUSH, &r.flush, &err), &err);
    void *tickets;
    must(vt_cuda_alloc(r.cuda, CUDA_TICKETS * 4, &tickets, &err), &err);
    r.lane.tickets = tickets;
    check(&r, r.cuda->driver.fill8((cu_ptr)(uintptr_t)tickets, 0, CUDA_TICKETS * 4, r.lane.stream),
          "tickets");
    r.op_lane = (vt_lane){.device = VT_DEVICE_CUDA, .cuda = &r.lane};
    printf("# %s, %s, level %d, driver %d, pdl %d\n", r.cuda->name, r.cuda->arch, r.cuda->level,
           r.cuda->driver_version, r.lane.pdl);
    run_cases(&r);
    printf("1..%d\n# passed %d, failed %d, skipped %d\n", r.number, r.passed, r.failed, r.skipped);
    return r.failed != 0 || r.number == 0;
}
