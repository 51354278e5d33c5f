/* The launch of attention_prefill_sm80.cu (attention_sm90.c has the other tile kernel's). */
#include "ops/attention/attention_cuda.h"

#include "ops/cuda_impls.h"
#include "ops/attention/attention_params.h"

attention_chunk_states attention_chunk_states_of(const attention_args *a, const vt_lane *lane)
{
    size_t states = (size_t)lane->items * (size_t)a->heads;
    float *state = lane->workspace;
    return (attention_chunk_states){.o = state + vt_round_up(states * 2, 32), .state = state};
}

vt_status attention_prefill_sm80_run(const attention_args *a, const vt_lane *lane, bool decode)
{
    int32_t group = a->heads / a->kv_heads, block = a->head_dim > 128 ? 16 : 64;
    int32_t element = vt_dtype_get(a->k_pool->dtype)->bytes;
    bool chunks_only = decode || lane->target->deterministic;
    attention_chunk_states chunks = attention_chunk_states_of(a, lane);
    attention_prefill_sm80_params p = {.q = a->q->data,
                                       .k_pool = a->k_pool->data,
                                       .v_pool = a->v_pool->data,
                                       .o = a->o->data,
                                       .items = lane->plan,
                                       .kv_len = a->batch->kv_len,
                                       .page_start = a->batch->page_start,
                                       .page_ids = a->batch->page_ids,
                                       .q_start = a->batch->q_start,
                                       .q_stride = (int32_t)a->q->row_stride,
                                       .o_stride = (int32_t)a->o->row_stride,
                                       .window = a->window,
                                       .scale_log2 = a->scale * a->k_scale * 1.44269504f,
                                       .v_scale = a->v_scale,
                                       .partial = chunks.o,
                                       .state = chunks.state,
                                       .tickets = lane->tickets};
    return vt_cuda_launch(
        lane->cuda,
        &(cuda_launch){
            .spec = JIT_SPEC("attention_prefill_sm80.cu", "attention_prefill_sm80",
                             {"head_dim", a->head_dim}, {"group", group}, {"kv_heads", a->kv_heads},
                             {"page", (int32_t)a->k_pool->dim[2]},
                             {"warps", ATTENTION_PREFILL_WARPS}, {"block", block},
                             {"windowed", a->window > 0}, {"fp8", element == 1},
                             {"chunk", chunks_only ? ATTENTION_CUDA_CHUNK : 0}, {"decode", decode}),
            .grid = {(uint32_t)lane->items, (uint32_t)a->kv_heads, 1},
            .threads = ATTENTION_PREFILL_WARPS * 32,
            .shared_bytes = (uint32_t)((ATTENTION_PREFILL_ROWS * 2 + 4 * block * element) *
                                       a->head_dim)},
        &p, sizeof p);
}
