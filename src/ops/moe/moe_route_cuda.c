/* Routing on CUDA for rows of whole 16-byte vectors: one launch. moe_route.cu says how it works.
 *
 * How a launch is cut depends on the number of tokens; the order of a logit's sum does not, so the
 * choice has the same bits for any number of tokens. Few tokens: an expert a warp, so that the
 * router's weights are spread over many SMs and all of them are on their way before the kernel's
 * turn. Many tokens: tiles of 8 tokens by 4 experts a warp, so that L2 is read less. */
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

static cuda_launch route_launch_of(const moe_route_args *a, int64_t tokens)
{
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
    cuda_launch l = route_launch_of(a, a->x->dim[0]);
    return vt_cuda_launch(lane->cuda, &l, &p, sizeof p);
}

static size_t route_workspace(const void *args, const vt_target *t)
{
    const moe_route_args *a = args;
    return (size_t)t->limits.max_tokens * (size_t)a->router->dim[0] * sizeof(float);
}

/* One for each block of tokens. Of smaller steps the one with the most tokens of each form counts,
 * because its blocks may be smaller. */
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
    cuda_launch l = route_launch_of(a, tokens);
    moe_cuda_route_shape(a, size, out);
    out->tile[0] = f->tokens * f->token_warps;
    out->tile[1] = f->experts * f->expert_warps;
    vt_cut_roles(out, "warps score experts, then choose", "last CTA of a block of tokens");
    vt_cut_grid(out, t, &l, 16);
}

const vt_impl moe_route_cuda_impl = {CUDA_ROW("token", route, route_supports), .fixed_order = true,
                                     .plan = &moe_cuda_tokens_plan, .workspace = route_workspace,
                                     .tickets = route_tickets};
