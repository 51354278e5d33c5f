/* Attention to latents and to heads of more than 256 on CUDA: the rows of attention_wide.cu and
 * attention_wide_merge.cu for both cards. */
#include "ops/attention/attention_wide.h"

#include "base/err.h"
#include "ops/cuda_impls.h"
#include "ops/cut.h"
#include "ops/attention/attention_impls.h"

enum {
    WARPS = 8,
    MERGE_COLUMNS = 128,
    SPREAD_MERGES = 16, /* of up to so many, warps share the slots */
    ORDERED_TILES = 2
};

static int32_t key_warps(attention_wide_shape s)
{
    int32_t most = WARPS / s.tiles;
    return most < s.keys / 8 ? most : s.keys / 8;
}

uint32_t attention_wide_shared_bytes(const attention_args *a, attention_wide_shape s)
{
    int32_t rows = 16 * s.tiles, value = a->v_dim ? 0 : a->head_dim;
    return (uint32_t)(s.stages * s.keys * (a->head_dim + value) * 2 + rows * a->head_dim * 2 +
                      rows * (s.keys * 2 + 16) +
                      ((s.ordered ? s.keys / 8 : key_warps(s)) + 1) * rows * 4);
}

/* The first ring, with as many tiles as fit and no more than `most`. */
static attention_wide_shape shape_that_fits(const attention_args *a, const vt_target *t,
                                            int32_t most, bool ordered)
{
    static const int32_t ring[][2] = {{64, 2}, {32, 3}, {32, 2}, {16, 2}};
    for (int32_t tiles = most; tiles > 0; tiles /= 2)
        for (size_t i = 0; i < sizeof ring / sizeof *ring; i++) {
            attention_wide_shape s = {tiles, ring[i][0], ring[i][1], ordered};
            if (t->max_shared_bytes <= 0 ||
                attention_wide_shared_bytes(a, s) <= (uint32_t)t->max_shared_bytes)
                return s;
        }
    return (attention_wide_shape){0};
}

attention_wide_shape attention_wide_shape_of(const attention_args *a, const vt_target *t,
                                             int64_t rows)
{
    int32_t most = rows <= 16 ? 1 : rows <= 32 ? 2 : 4;
    if (!t->deterministic)
        return shape_that_fits(a, t, most, false);
    attention_wide_shape s = shape_that_fits(a, t, ORDERED_TILES, true);
    s.tiles = most < s.tiles ? most : s.tiles;
    return s;
}

attention_wide_shape attention_wide_fine(attention_wide_shape s)
{
    s.keys = ATTENTION_WIDE_FINE;
    return s;
}

attention_wide_config attention_wide_config_of(const attention_args *a, const vt_target *t,
                                               const vt_size *size, bool decode)
{
    int32_t group = a->heads / a->kv_heads,
            tokens = size->decode_tokens > 1 ? size->decode_tokens : 1,
            at_once = t->sm_count / a->kv_heads;
    return (attention_wide_config){
        .shape = attention_wide_shape_of(a, t, decode ? (int64_t)group * tokens : INT32_MAX),
        .group = group,
        .kv_heads = a->kv_heads,
        .at_once = at_once > 1 ? at_once : 1,
        .decode = decode,
        .tokens = tokens};
}

static bool wide_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)upto;
    const attention_args *a = args;
    int32_t d = a->head_dim, v = attention_v_dim(a);
    bool dims = d % 64 == 0 && v % 128 == 0 && v <= 512 && (a->v_dim ? d <= 640 : d > 256);
    return dims && !a->sinks && a->window <= 0 && a->after == 0 && !(a->cap > 0) &&
           a->q->dtype == VT_BF16 && a->k_pool->dtype == VT_BF16 && a->o->dtype == VT_BF16 &&
           a->q->row_stride % 8 == 0 && a->o->row_stride % 8 == 0 &&
           attention_wide_shape_of(a, t, 1).tiles > 0;
}

static cuda_launch launch_of(const attention_args *a, const attention_wide_config *c, int32_t items)
{
    return (cuda_launch){
        .spec = JIT_SPEC("attention_wide.cu", "attention_wide", {"head_dim", a->head_dim},
                         {"v_dim", attention_v_dim(a)}, {"latent", a->v_dim > 0},
                         {"group", c->group}, {"kv_heads", a->kv_heads},
                         {"page", (int32_t)a->k_pool->dim[2]}, {"tiles", c->shape.tiles},
                         {"keys", c->shape.keys}, {"stages", c->shape.stages},
                         {"decode", c->decode}, {"ordered", c->shape.ordered}, {"fp8", 0}),
        .grid = {(uint32_t)items, (uint32_t)a->kv_heads, 1},
        .threads = WARPS * 32,
        .shared_bytes = attention_wide_shared_bytes(a, c->shape)};
}

static cuda_launch merge_of(const attention_args *a, const attention_wide_config *c, int32_t merges)
{
    int32_t rows = 16 * c->shape.tiles, v = attention_v_dim(a), parts = v / MERGE_COLUMNS;
    int32_t used = c->decode && c->group * c->tokens < rows ? c->group * c->tokens : rows;
    bool spread = merges <= SPREAD_MERGES;
    return (cuda_launch){
        .spec = JIT_SPEC("attention_wide_merge.cu", "attention_wide_merge", {"v_dim", v},
                         {"group", c->group}, {"kv_heads", a->kv_heads}, {"rows", rows},
                         {"spread", spread}, {"fp8", 0}),
        .grid = {spread ? (uint32_t)parts : 1, (uint32_t)used, (uint32_t)(merges * a->kv_heads)},
        .threads = spread ? 128 : (uint32_t)parts * 32};
}

static vt_status run(const attention_args *a, const vt_lane *lane, bool decode)
{
    attention_wide_config c = attention_wide_config_of(a, lane->target, lane->size, decode);
    if (lane->variant == WIDE_FINE)
        c.shape = attention_wide_fine(c.shape);
    int32_t items = lane->items, merges = attention_wide_merges(&c, lane->size);
    size_t states = (size_t)attention_wide_slots(&c) * (size_t)a->kv_heads * 16 *
                    (size_t)c.shape.tiles;
    const attention_chunk_item *item = lane->plan;
    attention_wide_params p = {ATTENTION_PARAMS(a), .items = item,
                               .merges = (const attention_wide_merge_item *)(item + items),
                               .state = lane->workspace,
                               .partial = (float *)lane->workspace + vt_round_up(states * 2, 32)};
    cuda_launch attend = launch_of(a, &c, items), merge = merge_of(a, &c, merges);
    TRY(vt_cuda_launch(lane->cuda, &attend, &p, sizeof p));
    return lane->variant == WIDE_WHOLE ? VT_OK : vt_cuda_launch(lane->cuda, &merge, &p, sizeof p);
}

static size_t workspace(const attention_args *a, const vt_target *t, bool decode)
{
    vt_size most = vt_size_most(&t->limits);
    size_t bytes = 0;
    /* Fewer tokens a sequence mean narrower tiles, and as many slots. */
    attention_wide_config c = attention_wide_config_of(a, t, &most, decode);
    size_t rows = (size_t)attention_wide_slots(&c) * (size_t)a->kv_heads * 16 *
                  (size_t)c.shape.tiles;
    bytes = rows * ((size_t)attention_v_dim(a) + 2) * sizeof(float) + 256;
    return bytes;
}

static void describe(const attention_args *a, const vt_target *t, const vt_size *size, bool decode,
                     vt_cut *out)
{
    vt_size of = attention_size_of(a, size);
    attention_wide_config c = attention_wide_config_of(a, t, &of, decode);
    const vt_host_plan *plan = decode ? &attention_wide_decode_plan : &attention_wide_prefill_plan;
    cuda_launch l = launch_of(a, &c, plan->items(a, t, &of, NULL));
    if (decode)
        attention_cut_shape(a, of.decodes, attention_decode_tokens(&of), out);
    else
        attention_cut_shape(a, of.prefills, of.tokens - of.decodes, out);
    out->tile[0] = 16 * c.shape.tiles;
    out->tile[1] = attention_v_dim(a);
    out->tile[2] = c.shape.keys;
    vt_cut_roles(out, "8 warps: scores by keys, values by columns", "a second kernel");
    vt_cut_grid(out, t, &l, 16);
}

/* A row has functions and no data, so each card has its own. */
#define WIDE(form, is_decode)                                                                     \
    static vt_status wide_##form##_run(const void *args, const vt_lane *lane)                     \
    {                                                                                             \
        return run(args, lane, is_decode);                                                        \
    }                                                                                             \
    static void wide_##form##_describe(const void *args, const vt_target *t, const vt_size *size, \
                                       vt_cut *out)                                               \
    {                                                                                             \
        describe(args, t, size, is_decode, out);                                                  \
    }                                                                                             \
    static size_t wide_##form##_workspace(const void *args, const vt_target *t)                   \
    {                                                                                             \
        return workspace(args, t, is_decode);                                                     \
    }                                                                                             \
    const vt_impl attention_##form##_wide = {                                                     \
        CUDA_ROW("wide", wide_##form, wide_supports), .family = "wide", .fixed_order = true,      \
        .plan = &attention_wide_##form##_plan, .workspace = wide_##form##_workspace}

WIDE(decode, true);
WIDE(prefill, false);
