/* Parameters and plan items of the attention kernels. The host's code and the kernels include this
 * file. */
#ifndef VT_OPS_ATTENTION_ATTENTION_PARAMS_H
#define VT_OPS_ATTENTION_ATTENTION_PARAMS_H

#ifndef VT_KERNEL
#include "ops/params_host.h"
#endif

/* ---- items of the plans (attention_cuda.h says how work is cut) ---- */

/* A KV range [begin, end) of one sequence, or of several that share its pages. An unused item has
 * seq -1. */
typedef struct attention_decode_item {
    int32_t seq;        /* shared: index of its first member */
    int32_t begin, end; /* KV positions */
    int32_t first_slot; /* the sequence's first slot; not set in shared items */
    int32_t n_slots;    /* the sequence's slots; not set in shared items */
    int32_t slot;       /* the item's own slot; shared: its place among a member's slots */
    int32_t n_members;  /* shared: number of sequences; else 0 */
    int32_t spare;
} attention_decode_item;

/* A sequence that has shared items: where its partial results lie. */
typedef struct attention_decode_member {
    int32_t seq, first_slot, n_slots, spare;
} attention_decode_member;

/* A tile of a sequence's packed rows (token, head of the group). Unused: seq -1. */
typedef struct attention_prefill_item {
    int32_t seq, tile;
} attention_prefill_item;

/* A KV range [begin, end) of a tile of rows: of a decode's in a fixed order, or of a prefill's.
 * Unused: seq -1. */
typedef struct attention_chunk_item {
    int32_t seq, begin, end;
    int32_t first_slot, n_items; /* the slots of this tile's items, which lie in a row */
    int32_t tile, slot, spare;
} attention_chunk_item;

/* A KV range of a prefill's tile, and what the batch's arrays say of its sequence: q_start[seq],
 * new tokens, kv_len[seq], page_start[seq]. So the first loads wait for memory twice less. */
typedef struct attention_range_item {
    attention_chunk_item chunk;
    int32_t token0, tokens, kv_len, page0;
} attention_range_item;

/* A tile that is cut: where its ranges' states lie. Unused: seq -1. */
typedef struct attention_wide_merge_item {
    int32_t seq, tile, first_slot, n_slots;
} attention_wide_merge_item;

/* ---- parameters ---- */

/* For attention_turn.cuh, which rotates q and k, and stores k and v. */
typedef struct attention_turn_params {
    const uint16_t *k, *v;
    kv_t *k_pool, *v_pool;
    const int32_t *slot;
    const float *cos_sin, *q_cos_sin; /* [context][HEAD_DIM] */
    const float *q_norm, *k_norm;     /* [HEAD_DIM], or NULL */
    int32_t k_stride, v_stride;
    float eps, k_inverse, v_inverse;
} attention_turn_params;

/* attention_decode.cu */
typedef struct attention_decode_params {
    const uint16_t *q;
    const kv_t *k_pool, *v_pool;
    uint16_t *o;
    const attention_decode_item *items;
    const attention_decode_member *members;
    const int32_t *kv_len, *page_start, *page_ids, *q_start;
    float *partial;    /* [slots][kv_heads][rows][HEAD_DIM] */
    float *state;      /* [slots][kv_heads][rows][2]: maximum, sum */
    uint32_t *tickets; /* [seqs * kv_heads * tiles of 16 rows] */
    int32_t q_stride, o_stride, window;
    int32_t rows;               /* of a slot: GROUP, MULTI: times the most tokens of a decode */
    float scale_log2, v_scale;  /* scale * k_scale * log2(e), CAP: cap * log2(e) */
    const float *sinks;         /* [heads]; NULL: none */
    float cap_factor;           /* CAP: see attention_cap.cuh */
    attention_turn_params turn; /* TURN */
} attention_decode_params;

/* attention_prefill_sm80.cu */
typedef struct attention_prefill_sm80_params {
    const uint16_t *q;
    const kv_t *k_pool, *v_pool;
    uint16_t *o;
    const void *items; /* attention_prefill_item; DECODE: attention_chunk_item */
    const int32_t *kv_len, *page_start, *page_ids, *q_start;
    int32_t q_stride, o_stride, window, after;
    float scale_log2, v_scale;
    float *partial, *state;   /* DECODE: see attention_chunk.cuh */
    uint32_t *tickets;        /* DECODE: [seqs][tiles][kv_heads] */
    int32_t slot_rows, tiles; /* DECODE: rows of a slot, tiles of a decode, at most */
    const float *sinks;       /* [heads]; NULL: none */
    float cap_factor;         /* CAP: see attention_cap.cuh */
} attention_prefill_sm80_params;

/* attention_wide.cu and attention_wide_merge.cu */
typedef struct attention_wide_params {
    const uint16_t *q;
    const kv_t *k_pool, *v_pool;
    uint16_t *o;
    const attention_chunk_item *items;
    const attention_wide_merge_item *merges;
    const int32_t *kv_len, *page_start, *page_ids, *q_start;
    int32_t q_stride, o_stride, window;
    float scale_log2, v_scale;
    float *partial; /* [slots][kv_heads][rows of a tile][V_DIM] */
    float *state;   /* [slots][kv_heads][rows of a tile][2]: maximum, sum */
    const float *sinks;
    float cap_factor;
} attention_wide_params;

/* attention_merge.cu */
typedef struct attention_merge_params {
    const attention_range_item *items;
    const float *partial; /* [slots][kv_heads][rows of a tile][HEAD_DIM] */
    const float *state;   /* [slots][kv_heads][rows of a tile][2]: maximum, sum */
    uint16_t *o;
    const float *sinks; /* [heads]; NULL: none */
    int32_t o_stride, slot_rows;
    float v_scale;
} attention_merge_params;

/* attention_any.cu */
typedef struct attention_any_params {
    const uint16_t *q;
    const kv_t *k_pool, *v_pool;
    uint16_t *o;
    const attention_prefill_item *items; /* DECODE: none */
    const int32_t *seq_of, *kv_len, *page_start, *page_ids, *q_start;
    int32_t q_stride, o_stride, window, after;
    int32_t n_decode, decode_tokens; /* DECODE: as in a step's size; at least 1 */
    float scale_log2, v_scale;
    const float *sinks; /* [heads]; NULL: none */
    float cap_factor;   /* CAP: see attention_cap.cuh */
} attention_any_params;

#endif
