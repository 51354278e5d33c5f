/* The launch of attention_prefill_sm80.cu. attention_sm90.c launches the other tile kernel. */
#include "ops/attention/attention_cuda.h"

#include "ops/cuda_impls.h"
#include "ops/cut.h"
#include "ops/attention/attention_params.h"

attention_chunk_states attention_chunk_states_of(const attention_args *a, const vt_lane *lane,
                                                 int32_t tile_rows)
{
    attention_plan_config c = attention_plan_config_of(a, lane->target, lane->size, tile_rows);
    int32_t all = attention_decode_rows(&c), rows = all < tile_rows ? all : tile_rows;
    size_t states = (size_t)lane->items * (size_t)a->kv_heads * (size_t)rows;
    float *state = lane->workspace;
    return (attention_chunk_states){.o = state + vt_round_up(states * 2, 32),
                                    .state = state,
                                    .rows = rows,
                                    .tiles = (int32_t)vt_ceil_div(all, tile_rows)};
}

static int32_t block_of(const attention_args *a) { return a->head_dim > 128 ? 16 : 64; }

static cuda_launch launch_of(const attention_args *a, const vt_target *t, int32_t items,
                             bool decode)
{
    int32_t group = a->heads / a->kv_heads, block = block_of(a);
    int32_t element = vt_dtype_get(a->k_pool->dtype)->bytes;
    bool chunks_only = decode || t->deterministic;
    return (cuda_launch){
        .spec = JIT_SPEC("attention_prefill_sm80.cu", "attention_prefill_sm80",
                         {"head_dim", a->head_dim}, {"group", group}, {"kv_heads", a->kv_heads},
                         {"page", (int32_t)a->k_pool->dim[2]}, {"warps", ATTENTION_PREFILL_WARPS},
                         {"block", block}, {"windowed", a->window > 0}, {"fp8", element == 1},
                         {"chunk", chunks_only ? ATTENTION_CUDA_CHUNK : 0}, {"decode", decode},
                         {"sinks", a->sinks != NULL}, {"cap", a->cap > 0}, {"after", a->after > 0}),
        .grid = {(uint32_t)items, (uint32_t)a->kv_heads, 1},
        .threads = ATTENTION_PREFILL_WARPS * 32,
        .shared_bytes = (uint32_t)((ATTENTION_PREFILL_ROWS * 2 + 4 * block * element) *
                                   a->head_dim)};
}

vt_status attention_prefill_sm80_run(const attention_args *a, const vt_lane *lane, bool decode)
{
    attention_chunk_states chunks = attention_chunk_states_of(a, lane, ATTENTION_PREFILL_ROWS);
    cuda_launch l = launch_of(a, lane->target, lane->items, decode);
    attention_prefill_sm80_params p = {ATTENTION_PARAMS(a),      .items = lane->plan,
                                       .partial = chunks.o,      .state = chunks.state,
                                       .tickets = lane->tickets, .slot_rows = chunks.rows,
                                       .tiles = chunks.tiles,    .after = a->after};
    return vt_cuda_launch(lane->cuda, &l, &p, sizeof p);
}

void attention_prefill_sm80_describe(const attention_args *a, const vt_target *t,
                                     const vt_size *size, bool decode, vt_cut *out)
{
    vt_size of = attention_size_of(a, size);
    const vt_host_plan *plan = decode ? &attention_chunks_64 : &attention_tiles_64;
    cuda_launch l = launch_of(a, t, plan->items(a, t, &of, NULL), decode);
    if (decode)
        attention_cut_shape(a, of.decodes, attention_decode_tokens(&of), out);
    else
        attention_cut_shape(a, of.prefills, of.tokens - of.decodes, out);
    out->tile[0] = ATTENTION_PREFILL_ROWS;
    out->tile[1] = a->head_dim;
    out->tile[2] = block_of(a);
    vt_cut_roles(out, "4 warps of 16 rows", decode ? "last CTA, in rising order" : NULL);
    vt_cut_grid(out, t, &l, 16);
}
