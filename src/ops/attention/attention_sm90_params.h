/* Parameters of attention_prefill_sm90.cu. The host's code and the kernels include this file. */
#ifndef VT_OPS_ATTENTION_ATTENTION_SM90_PARAMS_H
#define VT_OPS_ATTENTION_ATTENTION_SM90_PARAMS_H

#ifndef VT_KERNEL
#include "ops/params_host.h"
#endif

typedef struct attention_prefill_sm90_params {
    cu_tensor_map k,
        v; /* pools as [pages * kv_heads * PAGE, HEAD_DIM], boxes [PAGE, 64]; FP8: unused */
    cu_tensor_map q_map; /* [tokens, heads, HEAD_DIM], boxes [128 / GROUP, GROUP, 64]; unused where
                            GROUP does not divide 128 */
    const uint16_t *q;
    uint16_t *o;
    const void *items; /* [n_items] attention_prefill_item; DECODE: attention_chunk_item */
    const int32_t *q_start, *kv_len, *page_start, *page_ids;
    int32_t n_items, q_stride, o_stride, kv_heads, window;
    float scale_log2; /* scale * k_scale * log2(e) */
    float v_scale;
    const uint8_t *k_pool, *v_pool; /* FP8 */
    float *partial, *state;         /* DECODE: see attention_chunk.cuh */
    uint32_t *tickets;              /* DECODE: [seqs][tiles of a token][kv_heads][2] */
} attention_prefill_sm90_params;

#endif
