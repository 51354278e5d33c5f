/* The launches of attention_prefill_sm90.cu (one CTA per SM), for tiles that are cut over KV of
 * attention_merge.cu, and of attention_chunks_sm90.cu, which takes decodes in the same order of
 * sums: tensor maps of the pools and of Q. */
#include "ops/attention/attention_cuda.h"

#include "base/err.h"
#include "ops/cuda_impls.h"
#include "ops/cut.h"
#include "ops/attention/attention_sm90_params.h"

enum {
    SHARED_SLACK = 1024,
    STAGES = 2,
    ROWS = ATTENTION_PREFILL_ROWS_SM90,
    MERGE_THREADS = 512,
    CHUNK_ROWS = 64, /* attention_chunks_sm90.cu: rows of a tile, keys of a unit, CTAs of an SM */
    UNIT_KEYS = 64,
    FEW_KEYS = 16,
    CHUNK_RESIDENT = 2
};

static vt_status encode_pool(vt_cuda *c, const vt_tensor *pool, int64_t keys, cu_tensor_map *out,
                             vt_err *err)
{
    int64_t rows = pool->dim[0] * pool->dim[1] * pool->dim[2], d = pool->dim[3];
    return vt_cuda_tensor_map_2d(c, pool->data, rows, d, d * 2, (uint32_t)keys, 64, out, err);
}

static vt_status encode_maps(const attention_args *a, vt_cuda *c, int32_t group,
                             attention_prefill_sm90_params *p, vt_err *err)
{
    if (a->k_pool->dtype == VT_BF16) {
        int64_t page = a->k_pool->dim[2];
        TRY(encode_pool(c, a->k_pool, page, &p->k, err));
        TRY(encode_pool(c, a->v_pool, page, &p->v, err));
        TRY(encode_pool(c, a->k_pool, FEW_KEYS, &p->k_few, err));
        TRY(encode_pool(c, a->v_pool, FEW_KEYS, &p->v_few, err));
    }
    if (ROWS % group != 0)
        return VT_OK; /* the kernel then loads Q without a map */
    const int64_t dim[3] = {a->head_dim, a->heads, a->q->dim[0]};
    const int64_t stride[2] = {(int64_t)a->head_dim * 2, a->q->row_stride * 2};
    const uint32_t box[3] = {64, (uint32_t)group, (uint32_t)(ROWS / group)};
    return vt_cuda_tensor_map(c, a->q->data, 3, dim, stride, box, &p->q_map, err);
}

static int32_t block_of(const attention_args *a) { return a->head_dim == 256 ? 64 : 128; }

/* Tiles of Q in shared memory. With two, the next item's Q arrives while this item's O leaves
 * through the other one. There is no room for two with head_dim 256, nor beside the raw tiles of
 * FP8 KV with head_dim 128. KV ranges of decodes and of tiles are too few for each CTA to gain by
 * it. */
static int32_t q_stages_of(const attention_args *a, bool ranges)
{
    bool room = a->head_dim == 64 || (a->head_dim == 128 && a->k_pool->dtype == VT_BF16);
    return room && !ranges ? 2 : 1;
}

static cuda_launch launch_of(const attention_args *a, const vt_target *t, int32_t items,
                             bool decode, bool split)
{
    int32_t group = a->heads / a->kv_heads, block = block_of(a);
    bool fp8 = a->k_pool->dtype == VT_FP8_E4M3, chunks_only = decode || t->deterministic;
    int32_t raw_stages = !fp8 ? 0 : a->head_dim == 256 ? 1 : 2; /* the kernel's RAW_STAGES */
    int32_t q_stages = q_stages_of(a, decode || split),
            tiles = q_stages * ROWS + 2 * STAGES * block;
    int64_t work = (int64_t)items * a->kv_heads;
    return (cuda_launch){
        .spec = JIT_SPEC("attention_prefill_sm90.cu", "attention_prefill_sm90",
                         {"head_dim", a->head_dim}, {"group", group},
                         {"page", (int32_t)a->k_pool->dim[2]}, {"window", a->window > 0},
                         {"fp8", fp8}, {"chunk", chunks_only ? ATTENTION_CUDA_CHUNK : 0},
                         {"decode", decode}, {"split", split}, {"q_stages", q_stages},
                         {"sinks", a->sinks != NULL}, {"cap", a->cap > 0}, {"after", a->after > 0}),
        .grid = {(uint32_t)(work < t->sm_count ? work : t->sm_count), 1, 1},
        .threads = 384,
        .shared_bytes = (uint32_t)((tiles + raw_stages * block) * a->head_dim * 2 + SHARED_SLACK)};
}

/* Where the states of tiles that are cut lie in the workspace. */
static attention_chunk_states cut_states_of(const attention_args *a, const vt_lane *lane)
{
    attention_plan_config c = attention_plan_config_of(a, lane->target, NULL, ROWS);
    size_t states = (size_t)attention_ranges_more(&c) * (size_t)a->kv_heads * ROWS;
    float *state = lane->workspace;
    return (attention_chunk_states){
        .o = state + vt_round_up(states * 2, 32), .state = state, .rows = ROWS};
}

/* Joins the ranges that the kernel before has left. */
static vt_status merge_run(const attention_args *a, const vt_lane *lane,
                           const attention_chunk_states *chunks)
{
    cuda_launch launch = {
        .spec = JIT_SPEC("attention_merge.cu", "attention_merge", {"head_dim", a->head_dim},
                         {"group", a->heads / a->kv_heads}, {"kv_heads", a->kv_heads}, {"fp8", 0},
                         {"sinks", a->sinks != NULL}),
        .grid = {(uint32_t)lane->items, (uint32_t)a->kv_heads, 1},
        .threads = MERGE_THREADS};
    attention_merge_params p = {.items = lane->plan,
                                .partial = chunks->o,
                                .state = chunks->state,
                                .o = a->o->data,
                                .sinks = a->sinks ? a->sinks->data : NULL,
                                .o_stride = (int32_t)a->o->row_stride,
                                .slot_rows = chunks->rows,
                                .v_scale = a->v_scale};
    return vt_cuda_launch(lane->cuda, &launch, &p, sizeof p);
}

int32_t attention_chunk_rows_sm90(const attention_args *a)
{
    bool narrow = a->head_dim <= 128 && a->k_pool->dtype == VT_BF16 && a->after == 0;
    return narrow ? CHUNK_ROWS : ROWS;
}

/* The launch of attention_chunks_sm90.cu for decodes of one token, or of as many as a decode can
 * have. */
static cuda_launch chunks_launch_of(const attention_args *a, const vt_target *t,
                                    const vt_size *size, int32_t items)
{
    bool several = size && size->decode_tokens > 1;
    int32_t group = a->heads / a->kv_heads, rows = group * (several ? VT_DECODE_MOST : 1);
    int32_t tiles = rows <= 16 ? 1 : rows <= 32 ? 2 : 4; /* of 16 rows */
    int32_t units = tiles == 1 ? 6 : tiles == 2 ? 5 : 4; /* an SM has room for two CTAs */
    int64_t work = (int64_t)items * a->kv_heads, ctas = (int64_t)t->sm_count * CHUNK_RESIDENT;
    int32_t q_bytes = tiles * 16 * a->head_dim * 2, p_bytes = tiles * 16 * block_of(a) * 2;
    return (cuda_launch){
        .spec = JIT_SPEC(
            "attention_chunks_sm90.cu", "attention_chunks_sm90", {"head_dim", a->head_dim},
            {"group", group}, {"page", (int32_t)a->k_pool->dim[2]}, {"window", a->window > 0},
            {"fp8", 0}, {"chunk", ATTENTION_CUDA_CHUNK}, {"units", units}, {"tiles", tiles},
            {"resident", CHUNK_RESIDENT}, {"halves", rows <= 8 ? 1 : 2},
            {"sinks", a->sinks != NULL}, {"cap", a->cap > 0}),
        .grid = {(uint32_t)(work < ctas ? work : ctas), 1, 1},
        .threads = 160,
        .shared_bytes = (uint32_t)(units * UNIT_KEYS * a->head_dim * 2 + q_bytes + p_bytes +
                                   SHARED_SLACK)};
}

vt_status attention_prefill_sm90_run(const attention_args *a, const vt_lane *lane, bool decode)
{
    vt_cuda_lane *l = lane->cuda;
    bool narrow = decode && attention_chunk_rows_sm90(a) == CHUNK_ROWS;
    bool split = !decode && lane->variant == TILES_CUT;
    attention_chunk_states chunks = split ? cut_states_of(a, lane)
                                          : attention_chunk_states_of(a, lane,
                                                                      attention_chunk_rows_sm90(a));
    cuda_launch launch = narrow ? chunks_launch_of(a, lane->target, lane->size, lane->items)
                                : launch_of(a, lane->target, lane->items, decode, split);
    attention_prefill_sm90_params p = {ATTENTION_PARAMS(a),      .items = lane->plan,
                                       .n_items = lane->items,   .kv_heads = a->kv_heads,
                                       .partial = chunks.o,      .state = chunks.state,
                                       .tickets = lane->tickets, .slot_rows = chunks.rows,
                                       .tiles = chunks.tiles,    .after = a->after};
    if (!l->collect)
        TRY(encode_maps(a, l->cuda, a->heads / a->kv_heads, &p, &l->err));
    TRY(vt_cuda_launch(l, &launch, &p, sizeof p));
    return split ? merge_run(a, lane, &chunks) : VT_OK;
}

void attention_prefill_sm90_describe(const attention_args *a, const vt_target *t,
                                     const vt_size *size, bool decode, vt_cut *out)
{
    vt_size of = attention_size_of(a, size);
    const vt_host_plan *plan = decode ? &attention_chunks_128 : &attention_tiles_128;
    int32_t items = plan->items(a, t, &of, NULL);
    bool narrow = decode && attention_chunk_rows_sm90(a) == CHUNK_ROWS;
    cuda_launch l = narrow ? chunks_launch_of(a, t, &of, items)
                           : launch_of(a, t, items, decode, false);
    if (decode)
        attention_cut_shape(a, of.decodes, attention_decode_tokens(&of), out);
    else
        attention_cut_shape(a, of.prefills, of.tokens - of.decodes, out);
    out->tile[0] = narrow ? CHUNK_ROWS : ROWS;
    out->tile[1] = a->head_dim;
    out->tile[2] = block_of(a);
    vt_cut_roles(out,
                 a->k_pool->dtype == VT_FP8_E4M3
                     ? "1 converting producer warpgroup, 2 consumer warpgroups"
                 : narrow ? "1 TMA producer warp, 1 consumer warpgroup"
                          : "1 TMA producer warpgroup, 2 consumer warpgroups",
                 decode ? "last warpgroup, in rising order" : NULL);
    vt_cut_cuda(out, t, (int64_t)items * a->kv_heads, &l, 16);
    out->resident = narrow ? CHUNK_RESIDENT : 1; /* their registers fill an SM */
    out->waves = (double)out->items / out->workers / out->resident;
}
