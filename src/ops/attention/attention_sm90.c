/* The launch of attention_prefill_sm90.cu: tensor maps of the pools and of Q, one CTA an SM. */
#include "ops/attention/attention_cuda.h"

#include "base/err.h"
#include "ops/cuda_impls.h"
#include "ops/attention/attention_sm90_params.h"

enum { SHARED_SLACK = 1024, STAGES = 2, ROWS = ATTENTION_PREFILL_ROWS_SM90 };

static vt_status encode_pool(vt_cuda *c, const vt_tensor *pool, cu_tensor_map *out, vt_err *err)
{
    int64_t rows = pool->dim[0] * pool->dim[1] * pool->dim[2], d = pool->dim[3];
    return vt_cuda_tensor_map_2d(c, pool->data, rows, d, d * 2, (uint32_t)pool->dim[2], 64, out,
                                 err);
}

static vt_status encode_maps(const attention_args *a, vt_cuda *c, int32_t group,
                             attention_prefill_sm90_params *p, vt_err *err)
{
    if (a->k_pool->dtype == VT_BF16) {
        TRY(encode_pool(c, a->k_pool, &p->k, err));
        TRY(encode_pool(c, a->v_pool, &p->v, err));
    }
    if (ROWS % group != 0)
        return VT_OK; /* the kernel fetches Q without a map */
    const int64_t dim[3] = {a->head_dim, a->heads, a->q->dim[0]};
    const int64_t stride[2] = {(int64_t)a->head_dim * 2, a->q->row_stride * 2};
    const uint32_t box[3] = {64, (uint32_t)group, (uint32_t)(ROWS / group)};
    return vt_cuda_tensor_map_3d(c, a->q->data, dim, stride, box, &p->q_map, err);
}

vt_status attention_prefill_sm90_run(const attention_args *a, const vt_lane *lane, bool decode)
{
    vt_cuda_lane *l = lane->cuda;
    int32_t n_items = lane->items;
    bool chunks_only = decode || lane->target->deterministic;
    attention_chunk_states chunks = attention_chunk_states_of(a, lane);
    int32_t group = a->heads / a->kv_heads, block = a->head_dim == 256 ? 64 : 128;
    bool fp8 = a->k_pool->dtype == VT_FP8_E4M3;
    int32_t raw_stages = !fp8 ? 0 : a->head_dim == 256 ? 1 : 2; /* the kernel's RAW_STAGES */
    attention_prefill_sm90_params p = {.q = a->q->data,
                                       .o = a->o->data,
                                       .items = lane->plan,
                                       .q_start = a->batch->q_start,
                                       .kv_len = a->batch->kv_len,
                                       .page_start = a->batch->page_start,
                                       .page_ids = a->batch->page_ids,
                                       .n_items = n_items,
                                       .q_stride = (int32_t)a->q->row_stride,
                                       .o_stride = (int32_t)a->o->row_stride,
                                       .kv_heads = a->kv_heads,
                                       .window = a->window,
                                       .scale_log2 = a->scale * a->k_scale * 1.44269504f,
                                       .v_scale = a->v_scale,
                                       .k_pool = a->k_pool->data,
                                       .v_pool = a->v_pool->data,
                                       .partial = chunks.o,
                                       .state = chunks.state,
                                       .tickets = lane->tickets};
    if (!l->collect)
        TRY(encode_maps(a, l->cuda, group, &p, &l->err));
    int64_t work = (int64_t)n_items * a->kv_heads;
    return vt_cuda_launch(
        l,
        &(cuda_launch){
            .spec = JIT_SPEC("attention_prefill_sm90.cu", "attention_prefill_sm90",
                             {"head_dim", a->head_dim}, {"group", group},
                             {"page", (int32_t)a->k_pool->dim[2]}, {"window", a->window > 0},
                             {"fp8", fp8}, {"chunk", chunks_only ? ATTENTION_CUDA_CHUNK : 0},
                             {"decode", decode}),
            .grid = {(uint32_t)(work < lane->target->sm_count ? work : lane->target->sm_count), 1,
                     1},
            .threads = 384,
            .shared_bytes = (uint32_t)((ROWS + 2 * STAGES * block + raw_stages * block) *
                                           a->head_dim * 2 +
                                       SHARED_SLACK)},
        &p, sizeof p);
}
