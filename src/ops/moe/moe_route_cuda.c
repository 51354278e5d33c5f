/* Routing on CUDA for rows of whole 16-byte vectors: one launch. moe_route.cu and
 * moe_route_tiles.cu say how it works.
 *
 * How a launch is cut depends on the number of tokens. Few tokens: an expert a warp, so that the
 * router's weights are spread over many SMs and all of them are on their way before the kernel's
 * turn. More: tiles of 8 tokens by 4 experts a warp, so that L2 is read less. The order of a
 * logit's sum is the same in these, so the choice has the same bits for any number of tokens; a
 * deterministic program has no others. Many tokens: tensor cores. */
#include "ops/cuda_impls.h"
#include "ops/cut.h"
#include "ops/moe/moe.h"
#include "ops/moe/moe_cuda.h"
#include "ops/moe/moe_params.h"

/* ---- which tokens are padding ---- */

static int32_t one_item(const void *args, const vt_target *t, const vt_size *size,
                        const vt_batch *batch)
{
    (void)args, (void)t, (void)size, (void)batch;
    return 1;
}

static size_t count_bytes(const void *args, const vt_target *t, const vt_size *size, int32_t items)
{
    (void)args, (void)t, (void)size, (void)items;
    return sizeof(int32_t);
}

static int32_t fill_count(const void *args, const vt_target *t, const vt_size *size,
                          const vt_batch *batch, int32_t items, void *out, void *side)
{
    (void)args, (void)t, (void)size, (void)items, (void)side;
    *(int32_t *)out = batch->n_tokens;
    return 1;
}

const vt_host_plan moe_cuda_tokens_plan = {
    .name = "tokens", .items = one_item, .bytes = count_bytes, .fill = fill_count};

/* ---- the launch ---- */

typedef struct route_form {
    int64_t upto;                                       /* tokens */
    int32_t tokens, experts, token_warps, expert_warps; /* a warp's tile; warps of a CTA */
} route_form;

/* Sizes at which the form changes are sizes at which kernels are collected (exec/cuda_start.c). */
static const route_form forms[] = {{1, 1, 1, 1, 4},  {4, 4, 1, 1, 4},   {16, 8, 1, 1, 4},
                                   {64, 8, 2, 1, 4}, {512, 8, 4, 2, 2}, {INT64_MAX, 8, 4, 4, 4}};

static const route_form *form_for(int64_t tokens)
{
    const route_form *f = forms;
    while (tokens > f->upto)
        f++;
    return f;
}

/* How moe_route_tiles.cu cuts a launch; tokens 0: it does not run. */
typedef struct route_tile {
    int32_t tokens, experts, stages;
} route_tile;

static uint32_t tile_bytes(route_tile t)
{
    return (uint32_t)(t.stages * 64 * (t.tokens * 2 + t.experts * 4));
}

/* One H200, 2,048 columns, best 8, us, without tiles / tiles of 32 tokens / of 64. Alone a CTA of
 * 32 takes 35 us, one of 64 takes 52 us, so what counts is how many an SM has.
 *   128 experts   256 tokens 21.6 / 34.7 / 52.4, 512 39.2 / 34.7 / 52.6, 1,024 51.0 / 34.8 / 52.7,
 *                 2,048 96.5 / 35.3 / 52.8, 4,096 181 / 55.9 / 53.6
 *   256 experts   256 tokens 40.8 / 36.0, 512 59.4 / 36.1, 1,024 98.5 / 36.5, 2,048 187 / 55.4,
 *                 4,096 360 / 103 */
static route_tile tile_for(const moe_route_args *a, const vt_target *t, int64_t tokens)
{
    int64_t experts = a->router->dim[0], from = experts >= 192 ? 256 : experts >= 96 ? 512 : 1024;
    if (t->deterministic || tokens <= from)
        return (route_tile){0};
    route_tile tile = {tokens <= 2048 ? 32 : 64, 64, 4};
    while (t->max_shared_bytes > 0 && tile_bytes(tile) > (uint32_t)t->max_shared_bytes)
        tile.stages--;
    return tile;
}

static int64_t token_blocks(const route_form *f, int64_t tokens)
{
    return vt_ceil_div(tokens, (int64_t)f->tokens * f->token_warps);
}

static bool route_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const moe_route_args *a = args;
    return (!a->bias || a->bias->dtype == VT_F32) &&
           (!a->by_expert || a->by_expert->dtype == VT_F32) && a->x->dtype == VT_BF16 &&
           a->router->dtype == VT_F32 && a->router->dim[1] % 8 == 0 && a->x->row_stride % 8 == 0 &&
           a->router->dim[0] <= MOE_CUDA_EXPERTS && a->k <= 16 && a->groups <= 32;
}

static cuda_launch tiles_launch_of(const moe_route_args *a, route_tile t, int64_t tokens)
{
    int32_t experts = (int32_t)a->router->dim[0];
    return (cuda_launch){
        .spec = JIT_SPEC("moe_route_tiles.cu", "moe_route_tiles",
                         {"hidden", (int32_t)a->router->dim[1]}, {"experts", experts},
                         {"k_used", a->k}, {"normalise", a->normalise}, {"tokens", t.tokens},
                         {"per", t.experts}, {"stages", t.stages}, {"bias", a->bias != NULL},
                         {"sigmoid", a->sigmoid}, {"groups", a->groups},
                         {"groups_used", a->groups_used}),
        .grid = {cuda_blocks(tokens, t.tokens), cuda_blocks(experts, t.experts), 1},
        .threads = 256,
        .shared_bytes = tile_bytes(t)};
}

static cuda_launch route_launch_of(const moe_route_args *a, const vt_target *target, int64_t tokens)
{
    route_tile tile = tile_for(a, target, tokens);
    if (tile.tokens > 0)
        return tiles_launch_of(a, tile, tokens);
    const route_form *f = form_for(tokens);
    int32_t experts = (int32_t)a->router->dim[0];
    return (cuda_launch){
        .spec = JIT_SPEC("moe_route.cu", "moe_route", {"hidden", (int32_t)a->router->dim[1]},
                         {"experts", experts}, {"k_used", a->k}, {"normalise", a->normalise},
                         {"tokens", f->tokens}, {"per", f->experts},
                         {"token_warps", f->token_warps}, {"expert_warps", f->expert_warps},
                         {"bias", a->bias != NULL}, {"sigmoid", a->sigmoid}, {"groups", a->groups},
                         {"groups_used", a->groups_used}),
        .grid = {(uint32_t)token_blocks(f, tokens),
                 cuda_blocks(experts, (int64_t)f->experts * f->expert_warps), 1},
        .threads = (uint32_t)(f->token_warps * f->expert_warps) * 32};
}

moe_route_params moe_cuda_route_params(const moe_route_args *a, const vt_lane *lane)
{
    return (moe_route_params){.x = a->x->data,
                              .router = a->router->data,
                              .bias = a->bias ? a->bias->data : NULL,
                              .choice = a->choice ? a->choice->data : NULL,
                              .by_expert = a->by_expert ? a->by_expert->data : NULL,
                              .scale = a->scale == 0 ? 1 : a->scale,
                              .expert = a->expert->data,
                              .weight = a->weight->data,
                              .n_real = lane->plan,
                              .x_stride = (int32_t)a->x->row_stride,
                              .n_tokens = (int32_t)a->x->dim[0],
                              .first = a->first,
                              .mine = a->mine ? a->mine : (int32_t)a->router->dim[0]};
}

static vt_status route_run(const void *args, const vt_lane *lane)
{
    const moe_route_args *a = args;
    moe_route_params p = moe_cuda_route_params(a, lane);
    p.logits = lane->workspace;
    p.tickets = lane->tickets;
    cuda_launch l = route_launch_of(a, lane->target, a->x->dim[0]);
    return vt_cuda_launch(lane->cuda, &l, &p, sizeof p);
}

static size_t route_workspace(const void *args, const vt_target *t)
{
    const moe_route_args *a = args;
    return (size_t)t->limits.max_tokens * (size_t)a->router->dim[0] * sizeof(float);
}

/* One for each block of tokens. Of smaller steps the one with the most tokens of each form counts,
 * because its blocks may be smaller. Those of moe_route_tiles.cu are never smaller than 32. */
static int64_t route_tickets(const void *args, const vt_target *t)
{
    (void)args;
    int64_t most = 0, tokens = t->limits.max_tokens;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        int64_t n = token_blocks(&forms[i], tokens < forms[i].upto ? tokens : forms[i].upto);
        most = n > most ? n : most;
        if (tokens <= forms[i].upto)
            break;
    }
    return most;
}

void moe_cuda_route_shape(const moe_route_args *a, const vt_size *size, vt_cut *out)
{
    vt_cut_shape(out, "[%lld x %lld] x [%lld x %lld], best %d", (long long)vt_size_rows(a->x, size),
                 (long long)a->router->dim[1], (long long)a->router->dim[1],
                 (long long)a->router->dim[0], a->k);
}

static void route_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    const moe_route_args *a = args;
    int64_t tokens = vt_size_rows(a->x, size);
    const route_form *f = form_for(tokens);
    route_tile tile = tile_for(a, t, tokens);
    cuda_launch l = route_launch_of(a, t, tokens);
    moe_cuda_route_shape(a, size, out);
    out->tile[0] = tile.tokens ? tile.tokens : f->tokens * f->token_warps;
    out->tile[1] = tile.tokens ? tile.experts : f->experts * f->expert_warps;
    vt_cut_roles(out, "warps score experts, then choose", "last CTA of a block of tokens");
    vt_cut_grid(out, t, &l, 16);
}

const vt_impl moe_route_cuda_impl = {CUDA_ROW("token", route, route_supports), .fixed_order = true,
                                     .plan = &moe_cuda_tokens_plan, .workspace = route_workspace,
                                     .tickets = route_tickets};
