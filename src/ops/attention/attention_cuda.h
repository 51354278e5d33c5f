/* The work of a step's attention, cut into pieces on the host: one upload, used by every layer.
 *
 *   decode item   a KV range [begin, end) of a sequence, or of several that share its pages
 *   member        a sequence that has shared items: where its partial results lie
 *   prefill item  a sequence and a tile of its packed rows (token, head of the group)
 *
 * A sequence with several ranges has a slot of the workspace for each, one behind the other in
 * rising order of KV: those that it shares first, then its own. Items, int32 [8]:
 *
 *   own      sequence       | begin | end | first slot | slots | its slot         | 0       | -
 *   shared   its 1st member | begin | end | -          | -     | slot of a member | members | -
 *   member   sequence | first slot | slots | -
 *
 * Buffers: decode items [decode_capacity][8] and behind them members [decodes][4]; prefill items
 * [prefill_capacity][2]; all int32. Unused items have seq -1 and lie at the end, so that a captured
 * graph's grid fits every step of its bucket.
 *
 * With `deterministic` a decode is a prefill of one token and runs through that kernel. Its items
 * (attention_chunks.c) are a chunk of ATTENTION_CUDA_CHUNK positions each, or the whole KV, of one
 * tile of the token's rows; nothing is shared, because its order of sums is that of absolute
 * positions:
 *
 *   sequence | begin | end | its first item | its items | tile | - | - */
#ifndef VT_OPS_ATTENTION_CUDA_H
#define VT_OPS_ATTENTION_CUDA_H

#include "device/cuda.h"
#include "ops/attention/attention.h"

enum {
    ATTENTION_PREFILL_WARPS = 4,
    ATTENTION_PREFILL_ROWS = 16 * ATTENTION_PREFILL_WARPS,
    ATTENTION_PREFILL_ROWS_SM90 = 128,
    ATTENTION_SHARED_ROWS = 64, /* (sequence, head) that one shared item computes, at most */
    DECODE_ITEM_INTS = 8,
    DECODE_MEMBER_INTS = 4,
    PREFILL_ITEM_INTS = 2,
    ATTENTION_CUDA_CHUNK = 512 /* a deterministic row's sums: attention_chunk.cuh */
};

/* A CTA of the decode kernel: warps, and blocks of 16 tokens in each one's ring. */
typedef struct attention_decode_shape {
    int32_t warps, stages;
} attention_decode_shape;

typedef struct attention_plan_config {
    int32_t heads, kv_heads, sm_count;
    attention_decode_shape few; /* of ATTENTION_FEW decodes */
    int32_t prefill_rows;       /* of a tile: attention_prefill_rows() */
    bool deterministic;         /* decodes run as prefills of one token */
    /* Decodes with the same first pages read these once where that saves so many KV rows (tokens
     * times kv_heads) or more; 0: never */
    int32_t shared_rows;
} attention_plan_config;

enum {
    ATTENTION_SHARED_ROWS_LEAST = 1 << 18, /* shared_rows where nobody says otherwise */
    /* So many decodes or fewer are cut for latency and never share: it was measured to lose. A
     * border of all buckets (cuda_step.c), so that padding changes neither. */
    ATTENTION_FEW = 4
};

/* Of the kernel's CTAs for so many decodes; the plan's config carries that of ATTENTION_FEW. */
attention_decode_shape attention_decode_shape_of(const vt_cuda *c, int32_t head_dim,
                                                 int32_t n_decode);

/* Whether a plan of so many decodes may have items of several sequences. The kernel for plans that
 * cannot has no code for them (lane.decode_shares), so the answer must be the same for a batch and
 * for the bucket that it is padded to. */
bool attention_may_share(const attention_plan_config *c, int32_t n_decode);

/* Packed rows of a prefill tile, which says which kernel runs: 128 for attention_prefill_sm90.cu,
 * else 64.
 * The plan's config and the lane must carry the same number. */
int32_t attention_prefill_rows(const vt_cuda *c, int32_t head_dim, int32_t page_size);

/* Most items a batch within these bounds can need. */
int32_t attention_decode_capacity(const attention_plan_config *c, int32_t n_decode,
                                  int32_t max_context);
int32_t attention_prefill_capacity(const attention_plan_config *c, int32_t n_seqs,
                                   int32_t n_tokens);

/* Ints of a decode plan of so many items for so many decodes. */
size_t attention_decode_plan_ints(int32_t items, int32_t n_decode);

/* `batch` has host arrays. Fills both parts; *n_decode and *n_prefill get the items used. */
void attention_cuda_plan(const attention_plan_config *c, const vt_batch *batch,
                         int32_t *decode_plan, int32_t decode_capacity, int32_t *prefill_plan,
                         int32_t prefill_capacity, int32_t *n_decode, int32_t *n_prefill);

/* How many of a decode plan's items are of several sequences. */
int32_t attention_shared_items(const attention_plan_config *c, const int32_t *decode_plan,
                               int32_t n_decode);

/* Adds a sequence of one KV token to a decode plan that holds `at` items; returns how many it
 * takes. */
int32_t attention_decode_single(const attention_plan_config *c, int32_t seq, int32_t *plan,
                                int32_t at);

/* The three above where c->deterministic, of the decode part. */
int32_t attention_chunks_capacity(const attention_plan_config *c, int32_t n_decode,
                                  int32_t max_context);
int32_t attention_chunks_plan(const attention_plan_config *c, const vt_batch *b, int32_t *plan,
                              int32_t capacity);
int32_t attention_chunks_single(const attention_plan_config *c, int32_t seq, int32_t *plan,
                                int32_t at);

/* Bytes of lane workspace that decode with this many items needs. */
size_t attention_decode_workspace(const attention_plan_config *c, int32_t items, int32_t head_dim);

/* Where chunks leave their states in the lane's workspace. */
typedef struct attention_chunk_states {
    float *o, *state; /* [items][heads][head_dim], [items][heads][2] */
} attention_chunk_states;
attention_chunk_states attention_chunk_states_of(const attention_args *a, const vt_cuda_lane *l);

/* The launch of attention_prefill_sm90.cu over prefill items, or deterministic decode items, for
 * lanes with 128 prefill rows. */
vt_status attention_prefill_sm90_run(const attention_args *a, vt_cuda_lane *l, const int32_t *items,
                                     int32_t n_items, bool decode);

#endif
