/* Parameters of attention_prefill_sm90.cu. The host's code and the kernels include this file. */
#ifndef VT_OPS_ATTENTION_ATTENTION_SM90_PARAMS_H
#define VT_OPS_ATTENTION_ATTENTION_SM90_PARAMS_H

#ifndef VT_KERNEL
#include "ops/params_host.h"
#endif

/* Which piece of work CTA `cta` takes in its round number `round`. Pieces fall in length, so every
 * second round is dealt backwards. With 4 CTAs:
 *
 *   round 0    0 1 2 3
 *   round 1    7 6 5 4
 *   round 2    8 9 ...
 *
 * If every round were dealt forwards, CTA 0 would get the longest piece of each: with 1 x 4096
 * tokens its work was 12 % (32/8 heads) or 25 % (16/8) more than the mean, counted in KV blocks.
 * Now it is 0 %. A CTA's pieces rise in number. */
static inline int32_t attention_dealt(int32_t round, int32_t cta, int32_t n_ctas)
{
    return round * n_ctas + (round % 2 == 0 ? cta : n_ctas - 1 - cta);
}

typedef struct attention_prefill_sm90_params {
    cu_tensor_map k,
        v; /* pools as [pages * kv_heads * PAGE, HEAD_DIM], boxes [PAGE, 64]; FP8: unused */
    cu_tensor_map q_map; /* [tokens, heads, HEAD_DIM], boxes [128 / GROUP, GROUP, 64]; unused where
                            GROUP does not divide 128 */
    const uint16_t *q;
    uint16_t *o;
    const void *items; /* [n_items] attention_prefill_item; DECODE: attention_chunk_item; SPLIT:
                          attention_range_item */
    const int32_t *q_start, *kv_len, *page_start, *page_ids;
    int32_t n_items, q_stride, o_stride, kv_heads, window, after;
    float scale_log2; /* scale * k_scale * log2(e), CAP: cap * log2(e) */
    float v_scale;
    const uint8_t *k_pool, *v_pool; /* FP8 */
    float *partial, *state;         /* DECODE, SPLIT: see attention_chunk.cuh */
    uint32_t *tickets;              /* DECODE: [seqs][tiles][kv_heads][2] */
    int32_t slot_rows, tiles;       /* rows of a slot; DECODE: tiles of a decode, at most */
    const float *sinks;             /* [heads]; NULL: none */
    float cap_factor;               /* CAP: see attention_cap.cuh */
    cu_tensor_map k_few, v_few;     /* attention_chunks_sm90.cu: pools in boxes of 16 keys */
} attention_prefill_sm90_params;

#endif
