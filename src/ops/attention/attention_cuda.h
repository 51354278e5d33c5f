/* The host cuts the work of a step's attention into items. They are uploaded once, and every layer
 * uses them.
 *
 *   decode item   a KV range [begin, end) of a sequence, or of several that share its pages
 *   member        a sequence that has shared items: where its partial results lie
 *   prefill item  a sequence and a tile of its packed rows (token, head of the group)
 *
 * A sequence with several ranges has a slot of the workspace for each of them. Its slots lie in
 * rising order of KV: first those of shared ranges, then its own. Items are int32 [8]:
 *
 *   own      sequence       | begin | end | first slot | slots | its slot         | 0       | -
 *   shared   its 1st member | begin | end | -          | -     | slot of a member | members | -
 *   member   sequence | first slot | slots | -
 *
 * Buffers: decode items [decode_capacity][8] followed by members [decodes][4]; prefill items
 * [prefill_capacity][2]; all int32. Unused items have seq -1 and lie at the end, so that the grid
 * of a captured graph fits every step of its bucket.
 *
 * In a fixed order (--deterministic, or if the user asks for the tile kernels) a decode is a
 * prefill of few tokens and runs through that kernel. An item is one tile of its rows with a chunk
 * of ATTENTION_CUDA_CHUNK positions, or with the whole KV. Nothing is shared, because
 * absolute positions fix the order of sums:
 *
 *   sequence | begin | end | its first item | its items | tile | - | - */
#ifndef VT_OPS_ATTENTION_CUDA_H
#define VT_OPS_ATTENTION_CUDA_H

#include "device/cuda/cuda.h"
#include "ops/attention/attention.h"
#include "ops/attention/attention_params.h"

enum {
    ATTENTION_PREFILL_WARPS = 4,
    ATTENTION_PREFILL_ROWS = 16 * ATTENTION_PREFILL_WARPS,
    ATTENTION_PREFILL_ROWS_SM90 = 128,
    ATTENTION_SHARED_ROWS = 64, /* the most (sequence, head) pairs that one shared item computes */
    ATTENTION_SHARED_WARPS = 4, /* warps for these, 16 rows each */
    DECODE_ITEM_INTS = sizeof(attention_decode_item) / sizeof(int32_t),
    DECODE_MEMBER_INTS = sizeof(attention_decode_member) / sizeof(int32_t),
    PREFILL_ITEM_INTS = sizeof(attention_prefill_item) / sizeof(int32_t),
    ATTENTION_CUDA_CHUNK = 512 /* keys in a chunk of a sum in fixed order: attention_chunk.cuh */
};

/* A CTA of the decode kernel: its warps, and the blocks of 16 tokens in each warp's ring. */
typedef struct attention_decode_shape {
    int32_t warps, stages;
} attention_decode_shape;

/* A plan depends on these besides the batch. */
typedef struct attention_plan_config {
    int32_t heads, kv_heads, sm_count;
    int32_t decode_tokens;      /* vt_size.decode_tokens of the step */
    attention_decode_shape few; /* the shape for at most ATTENTION_FEW decodes */
    bool deterministic;         /* vt_target.deterministic */
    bool narrow;                /* CTAs for more decodes have too few warps for shared items */
    int32_t tile_rows;          /* packed rows of a prefill tile */
    int32_t shared_rows;        /* attention_shared_knob */
} attention_plan_config;

enum {
    /* Up to this many decodes are cut for low latency and never share pages, because sharing was
     * measured to be slower for so few. Padding never crosses this number (exec/cuda_step.c), so it
     * changes neither. */
    ATTENTION_FEW = 4,
    DECODE_BLOCK = 16 /* tokens that a warp of the decode kernel works on at a time */
};

/* `size` NULL: every decode brings one token. */
attention_plan_config attention_plan_config_of(const attention_args *a, const vt_target *t,
                                               const vt_size *size, int32_t tile_rows);
/* Packed rows (token, head of the group) of a decode, at most. */
int32_t attention_decode_rows(const attention_plan_config *c);

/* ---- attention_decode_plan.c: the split decode kernel ---- */

/* The shape of the kernel's CTAs for this many decodes and this size of KV elements. Its rings fit
 * into the shared memory that the target gives a CTA. */
attention_decode_shape attention_decode_shape_of(const vt_target *t, int32_t head_dim,
                                                 int32_t element_bytes, int32_t n_decode);
/* Bytes of the rings of such a CTA. */
int64_t attention_decode_ring_bytes(attention_decode_shape s, int32_t head_dim,
                                    int32_t element_bytes);
/* Returns true if a plan for this many decodes may have items of several sequences. The answer is
 * the same for a batch and for the bucket that it is padded to. */
bool attention_may_share(const attention_plan_config *c, int32_t n_decode);
/* Returns true if this batch's plan has items of several sequences. The kernel has an instance
 * without code for them. */
bool attention_shares(const attention_plan_config *c, const vt_batch *b);
/* The most items that a batch of n_decode decodes can need. */
int32_t attention_decode_capacity(const attention_plan_config *c, int32_t n_decode,
                                  int32_t max_context);
/* The number of ints in a plan with this many items for this many decodes. */
size_t attention_decode_plan_ints(int32_t items, int32_t n_decode);
/* Fills a plan of `capacity` items from a batch with host arrays. Returns the items that the batch
 * needs; those beyond `capacity` are not written. */
int32_t attention_decode_fill(const attention_plan_config *c, const vt_batch *b, void *plan,
                              int32_t capacity);
/* Adds a sequence of one KV token after the first `at` items. Returns how many items it takes. */
int32_t attention_decode_single(const attention_plan_config *c, int32_t seq, void *plan,
                                int32_t at);
/* A plan in which every decode has `splits` ranges of equal length, or fewer if they would be
 * shorter than 64 tokens. capacity is `splits` for each decode, padding counted. */
int32_t attention_decode_fill_splits(const vt_batch *b, int32_t pad_seqs, int32_t splits,
                                     void *plan, int32_t capacity);
/* Returns how many of a plan's items serve several sequences. */
int32_t attention_shared_items(const void *plan, int32_t n_items);
/* The most slots for partial results that a plan with this many items can need, and the bytes of
 * workspace for them. */
int32_t attention_decode_slots(const attention_plan_config *c, int32_t items);
size_t attention_decode_workspace(const attention_plan_config *c, int32_t items, int32_t head_dim);

/* ---- attention_tiles_plan.c: the tile kernels ---- */

/* Capacities and fills as above. */
int32_t attention_tiles_capacity(const attention_plan_config *c, int32_t n_seqs, int32_t n_tokens);
int32_t attention_tiles_fill(const attention_plan_config *c, const vt_batch *b, void *plan,
                             int32_t capacity);
int32_t attention_chunks_capacity(const attention_plan_config *c, int32_t n_decode,
                                  int32_t max_context);
int32_t attention_chunks_fill(const attention_plan_config *c, const vt_batch *b, void *plan,
                              int32_t capacity);
int32_t attention_chunks_single(const attention_plan_config *c, int32_t seq, void *plan,
                                int32_t at);
/* Plans of prefill tiles, and of decodes in a fixed order, for tiles of 64 or 128 rows. */
extern const vt_host_plan attention_tiles_64, attention_tiles_128, attention_chunks_64,
    attention_chunks_128;

/* Variants of attention_tiles_128. Items are attention_prefill_item, CUT: attention_range_item. */
enum { TILES_WHOLE, TILES_CUT, TILES_VARIANTS };

/* ---- attention_ranges_plan.c: prefill tiles that are cut over KV ---- */

/* Returns how many keys the ranges have into which a batch's tiles are cut; 0: none is cut. */
int32_t attention_ranges_of(const attention_plan_config *c, const vt_batch *b);
/* The number of items for such a range; and how many a step has at most beyond its tiles. */
int32_t attention_ranges_items(const attention_plan_config *c, const vt_batch *b, int32_t range);
int32_t attention_ranges_more(const attention_plan_config *c);
/* Fills a plan of attention_range_item, and returns its items, as attention_tiles_fill does. */
int32_t attention_ranges_fill(const attention_plan_config *c, const vt_batch *b, int32_t range,
                              void *plan, int32_t capacity);
size_t attention_ranges_workspace(const attention_plan_config *c, int32_t head_dim);

/* ---- attention_tiles.c: launches of the tile kernels ---- */

/* The factor that turns a kernel's scores into those of the softmax: with a cap the kernel has
 * tanh(score / cap). */
static inline float attention_scale(const attention_args *a)
{
    return a->cap > 0 ? a->cap : a->scale * a->k_scale;
}

/* The parameters that every attention kernel has. */
#define ATTENTION_PARAMS(a)                                                                \
    .q = (a)->q->data, .k_pool = (a)->k_pool->data, .v_pool = (a)->v_pool->data,           \
    .o = (a)->o->data, .kv_len = (a)->batch->kv_len, .page_start = (a)->batch->page_start, \
    .page_ids = (a)->batch->page_ids, .q_start = (a)->batch->q_start,                      \
    .q_stride = (int32_t)(a)->q->row_stride, .o_stride = (int32_t)(a)->o->row_stride,      \
    .window = (a)->window, .scale_log2 = attention_scale(a) * 1.44269504f,                 \
    .cap_factor = (a)->cap > 0 ? 2.88539008f * (a)->scale * (a)->k_scale / (a)->cap : 0,   \
    .v_scale = (a)->v_scale, .sinks = (a)->sinks ? (a)->sinks->data : NULL

/* Where the kernels store the states of chunks in the workspace. */
typedef struct attention_chunk_states {
    float *o, *state;    /* [items][kv_heads][rows][head_dim], [items][kv_heads][rows][2] */
    int32_t rows, tiles; /* rows of a tile, tiles of a decode, at most */
} attention_chunk_states;
attention_chunk_states attention_chunk_states_of(const attention_args *a, const vt_lane *lane,
                                                 int32_t tile_rows);

/* Launches the kernel over prefill items, or over the items of decodes in a fixed order. */
vt_status attention_prefill_sm80_run(const attention_args *a, const vt_lane *lane, bool decode);
vt_status attention_prefill_sm90_run(const attention_args *a, const vt_lane *lane, bool decode);

/* Returns how many rows the tiles of decodes have in fa3-tiles: 64 where attention_chunks_sm90.cu
 * runs them, else 128. */
int32_t attention_chunk_rows_sm90(const attention_args *a);

void attention_prefill_sm80_describe(const attention_args *a, const vt_target *t,
                                     const vt_size *size, bool decode, vt_cut *out);
void attention_prefill_sm90_describe(const attention_args *a, const vt_target *t,
                                     const vt_size *size, bool decode, vt_cut *out);

/* For describe(): the given size, or the batch's own if there is none; new tokens; vt_cut.shape. */
vt_size attention_size_of(const attention_args *a, const vt_size *size);
int64_t attention_decode_tokens(const vt_size *size); /* the most new tokens of all decodes */
void attention_cut_shape(const attention_args *a, int64_t seqs, int64_t tokens, vt_cut *out);

/* Returns true if the tensor-core kernels support the call. */
bool attention_cuda_supports(const void *args, const vt_target *t, const vt_size *upto);

#endif
