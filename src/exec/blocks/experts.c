/* Experts: a router chooses some of them for each token; feed-forwards with gates, or without them
 * where the activation is the square of ReLU.
 *
 *   expert, expert_weight [tokens, experts used]   which, and their shares
 *   shared [tokens, shared ffn]                    of an expert that every token has, if there is
 *                                                  one; its share of a token is a sigmoid, or 1
 *
 * In Gemma 4 the experts stand beside a feed-forward that every token has, and each has norms of
 * its own; the router reads the residual stream:
 *
 *   t = norm1(ffn(h)) + norm2(experts(norm(x)))     chosen by router(rms(x) scale / sqrt(hidden))
 *   e [tokens, hidden]                              the experts' result
 *
 * Ranks sum the parts of both before their norms. The slot of the embedding serves the first: of
 * two communication calls that follow each other no two then have one slot (ops/comm.h). */
#include <math.h>

#include "base/err.h"
#include "exec/blocks/block.h"
#include "ops/moe/moe.h"
#include "ops/part_norm/part_norm.h"
#include "ops/relu2/relu2.h"
#include "ops/sigmoid_gate/sigmoid_gate.h"

/* Adds an expert's two first matrices as a pair, or one alone if there are no gates. */
static void add_up(vt_layout *l, vt_role pair, vt_role gate, vt_role up, int32_t layer)
{
    if (l->model->layer[layer].weight[gate])
        vt_layout_add_pair(l, pair, gate, up, layer);
    else
        vt_layout_add_role(l, up, layer);
}

static vt_status shared_weights(vt_layout *l, int32_t layer, vt_err *err)
{
    const vt_layer *src = &l->model->layer[layer];
    const vt_tensor *gate = src->weight[VT_ROLE_SHARED_GATE], *up = src->weight[VT_ROLE_SHARED_UP];
    if (gate && gate->dtype != up->dtype)
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "%s: a shared expert in layer %d whose gate is %s and up is %s is not "
                       "supported; both must have one type",
                       l->model->name, layer, vt_dtype_get(gate->dtype)->name,
                       vt_dtype_get(up->dtype)->name);
    vt_layout_add_role(l, VT_ROLE_SHARED_SHARE, layer);
    add_up(l, VT_ROLE_SHARED_GATE_UP, VT_ROLE_SHARED_GATE, VT_ROLE_SHARED_UP, layer);
    vt_layout_add_role(l, VT_ROLE_SHARED_DOWN, layer);
    return VT_OK;
}

/* Gate and up are always paired, if there are gates. */
static vt_status weights(vt_layout *l, int32_t layer, vt_err *err)
{
    const vt_layer *src = &l->model->layer[layer];
    const vt_tensor *gate = src->weight[VT_ROLE_EXPERT_GATE], *up = src->weight[VT_ROLE_EXPERT_UP];
    if (gate && gate->dtype != up->dtype)
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "%s: experts of layer %d whose gate is %s and up is %s are not supported; "
                       "both must have one type",
                       l->model->name, layer, vt_dtype_get(gate->dtype)->name,
                       vt_dtype_get(up->dtype)->name);
    vt_layout_add_role(l, VT_ROLE_ROUTER, layer);
    add_up(l, VT_ROLE_EXPERT_GATE_UP, VT_ROLE_EXPERT_GATE, VT_ROLE_EXPERT_UP, layer);
    vt_layout_add_role(l, VT_ROLE_EXPERT_DOWN, layer);
    vt_layout_add_role(l, VT_ROLE_ROUTER_BIAS, layer);
    vt_layout_add_role(l, VT_ROLE_ROUTER_CHOICE, layer);
    vt_layout_add_role(l, VT_ROLE_EXPERT_DOWN_BIAS, layer);
    for (int32_t r = VT_ROLE_SHARED_POST_NORM; r <= VT_ROLE_ROUTER_OWN; r++)
        vt_layout_add_role(l, (vt_role)r, layer);
    if (src->weight[VT_ROLE_EXPERT_GATE_BIAS]) {
        vt_layout_entry *e = vt_layout_add(l, VT_ROLE_EXPERT_BIAS, layer);
        vt_layout_stack(e, src->weight[VT_ROLE_EXPERT_GATE_BIAS], NULL);
        vt_layout_stack(e, src->weight[VT_ROLE_EXPERT_UP_BIAS], NULL);
    }
    if (src->weight[VT_ROLE_SHARED_UP])
        TRY(shared_weights(l, layer, err));
    return VT_OK;
}

static void tensors(builder *b)
{
    int32_t used = b->m->arch.n_experts_used;
    b->expert = build_activation(b, "expert", VT_FOLLOWS_TOKENS, used, VT_I32);
    b->expert_weight = build_activation(b, "expert_weight", VT_FOLLOWS_TOKENS, used, VT_F32);
    if (b->m->arch.shared_ffn > 0)
        b->shared = build_activation(b, "shared", VT_FOLLOWS_TOKENS, b->m->arch.shared_ffn,
                                     b->p->activation);
    for (int32_t i = 0; i < b->m->arch.n_layers && !b->e; i++)
        if (b->w->layer[i].tensor[VT_ROLE_EXPERT_NORM])
            b->e = build_activation(b, "e", VT_FOLLOWS_TOKENS, b->m->arch.hidden, b->p->activation);
}

/* Returns the placed weight of an expert's first product: a pair, or up alone. */
static const vt_weight *first_of(const builder *b, int32_t layer, vt_role pair, vt_role up)
{
    const vt_layer_weights *lw = &b->w->layer[layer];
    return lw->weight[pair] ? lw->weight[pair] : lw->weight[up];
}

static linear_epilogue epilogue_of(const builder *b)
{
    vt_activation a = b->m->arch.activation;
    return a == VT_ACT_RELU2 ? LINEAR_NONE : a == VT_ACT_SILU ? LINEAR_SWIGLU : LINEAR_GEGLU;
}

/* y += share * ffn(x), of the expert that every token has; y = if it is `first` */
static void emit_shared(builder *b, int32_t i, const vt_tensor *x, bool first, vt_tensor *y)
{
    const vt_layer_weights *lw = &b->w->layer[i];
    vt_tensor *f = build_narrow(b, b->shared, lw->weight[VT_ROLE_SHARED_DOWN]->cols);
    bool gates = b->m->arch.activation != VT_ACT_RELU2;
    build_linear(b, i, gates ? "shared.gate+up" : "shared.up",
                 (linear_args){.x = x,
                               .w = first_of(b, i, VT_ROLE_SHARED_GATE_UP, VT_ROLE_SHARED_UP),
                               .y = f,
                               .epilogue = epilogue_of(b)},
                 VT_WHEN_TOKENS);
    if (!gates)
        EMIT(b, relu2, i, "shared", VT_WHEN_TOKENS, {.x = f, .y = f});
    if (lw->tensor[VT_ROLE_SHARED_SHARE])
        EMIT(b, row_gate, i, "shared", VT_WHEN_TOKENS,
             {.x = x, .w = lw->tensor[VT_ROLE_SHARED_SHARE], .y = f});
    build_linear(b, i, "shared.down",
                 (linear_args){.x = f,
                               .w = lw->weight[VT_ROLE_SHARED_DOWN],
                               .residual = first ? NULL : y,
                               .scale = b->m->arch.residual_scale,
                               .y = y},
                 VT_WHEN_TOKENS);
}

/* Returns true if other ranks have experts that this one has not. */
static bool has_some(const builder *b) { return b->w->n_experts < b->m->arch.n_experts; }

static float factor(float x) { return x == 0 ? 1 : x; } /* 0: not set */

/* Chooses the experts of each token. Their shares have the factor of what a block adds to the
 * residual stream. */
static void emit_route(builder *b, int32_t i, const vt_tensor *x)
{
    const vt_arch *a = &b->m->arch;
    const vt_layer_weights *lw = &b->w->layer[i];
    EMIT(b, moe_route, i, "", VT_WHEN_TOKENS,
         {.x = x,
          .router = lw->tensor[VT_ROLE_ROUTER],
          .bias = lw->tensor[VT_ROLE_ROUTER_BIAS],
          .choice = lw->tensor[VT_ROLE_ROUTER_CHOICE],
          .by_expert = lw->tensor[VT_ROLE_ROUTER_OWN],
          .k = a->n_experts_used,
          .normalise = a->norm_topk,
          .sigmoid = a->route_sigmoid,
          .groups = a->expert_groups,
          .groups_used = a->expert_groups_used,
          .scale = factor(a->route_scale) * factor(a->residual_scale),
          .first = b->w->first_expert,
          .mine = has_some(b) ? b->w->n_experts : 0,
          .expert = b->expert,
          .weight = b->expert_weight});
}

/* y = experts(x), or y += */
static void emit_experts(builder *b, int32_t i, const vt_tensor *x, bool accumulate, vt_tensor *y)
{
    const vt_arch *a = &b->m->arch;
    const vt_layer_weights *lw = &b->w->layer[i];
    const vt_tensor *down_bias = lw->tensor[VT_ROLE_EXPERT_DOWN_BIAS];
    EMIT(b, moe_linear, i, "", VT_WHEN_TOKENS,
         {.x = x,
          .expert = b->expert,
          .weight = b->expert_weight,
          .gate_up = first_of(b, i, VT_ROLE_EXPERT_GATE_UP, VT_ROLE_EXPERT_UP),
          .down = lw->weight[VT_ROLE_EXPERT_DOWN],
          .bias = lw->tensor[VT_ROLE_EXPERT_BIAS],
          .down_bias = has_some(b) ? down_bias : build_joined_bias(b, down_bias),
          .n_experts = b->w->n_experts,
          .all_experts = has_some(b) ? a->n_experts : 0,
          .activation = a->activation,
          .limit = a->act_limit,
          .y = y,
          .accumulate = accumulate});
}

/* y = norm(x) of whole rows, plus `add` if that is not NULL. */
static void emit_norm(builder *b, int32_t i, const char *what, const vt_tensor *x,
                      const vt_tensor *weight, const vt_tensor *add, float scale, vt_tensor *y)
{
    EMIT(b, part_norm, i, what, VT_WHEN_TOKENS,
         {.x = x,
          .weight = weight,
          .add = add,
          .y = y,
          .dim = b->m->arch.hidden,
          .eps = b->m->arch.norm_eps,
          .scale = scale});
}

/* A feed-forward and experts side by side, with norms of their own. h, which was read, holds the
 * input of the router and then that of the experts. */
static void emit_beside(builder *b, int32_t i, const vt_tensor *x, vt_tensor *y)
{
    const vt_layer_weights *lw = &b->w->layer[i];
    emit_shared(b, i, x, true, build_part(b, VT_SLOT_EMBED, y));
    build_all_reduce(b, i, "shared", VT_SLOT_EMBED, NULL, y);
    emit_norm(b, i, "post_shared", y, lw->tensor[VT_ROLE_SHARED_POST_NORM], NULL, 1, y);
    emit_norm(b, i, "router", b->x, lw->tensor[VT_ROLE_ROUTER_NORM], NULL,
              1 / sqrtf((float)b->m->arch.hidden), b->h);
    emit_route(b, i, b->h);
    emit_norm(b, i, "experts", b->x, lw->tensor[VT_ROLE_EXPERT_NORM], NULL, 1, b->h);
    emit_experts(b, i, b->h, false, build_part(b, VT_SLOT_FFN, b->e));
    build_all_reduce(b, i, "experts", VT_SLOT_FFN, NULL, b->e);
    emit_norm(b, i, "post_experts", b->e, lw->tensor[VT_ROLE_EXPERT_POST_NORM], y, 1, y);
}

static bool joins(const builder *b, int32_t i)
{
    return b->w->layer[i].tensor[VT_ROLE_EXPERT_NORM] != NULL;
}

static void emit(builder *b, int32_t i, const vt_tensor *x, vt_tensor *y)
{
    if (joins(b, i)) {
        emit_beside(b, i, x, y);
        return;
    }
    const vt_layer_weights *lw = &b->w->layer[i];
    bool shared = lw->weight[VT_ROLE_SHARED_DOWN] != NULL, adds = y == b->x;
    /* On a GPU nothing may stand between the router and the experts (3 to 5 % of a step of 64
     * tokens). An H200 is faster with a shared expert of three calls in front of both, and with one
     * of two calls behind them. */
    bool three = b->m->arch.activation == VT_ACT_RELU2 || lw->tensor[VT_ROLE_SHARED_SHARE];
    if (shared && x != y && three) {
        emit_shared(b, i, x, !adds, y);
        shared = false;
        adds = true;
    }
    emit_route(b, i, x);
    emit_experts(b, i, x, adds, y);
    if (shared)
        emit_shared(b, i, x, false, y);
}

const vt_block vt_block_experts = {.weights = weights,
                                   .tensors = tensors,
                                   .emit = emit,
                                   .joins = joins,
                                   VT_BLOCK_NORMS("ffn", FFN)};
