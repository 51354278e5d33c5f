/* The end of Gemma 4's layers: a factor, and before it, in the small models, a part of the token's
 * embedding that is meant for this layer.
 *
 *   per_layer    [tokens, layers p]  made once a step:
 *                                    (E[token] sqrt(p) + norm(W x / sqrt(hidden))) / sqrt(2),
 *                                    x being the embedding, and norms of each p numbers
 *   per_layer_in [tokens, layers p]  W x / sqrt(hidden)
 *   per_layer_gate [tokens, p]       gelu(gate x) times the layer's part of per_layer
 *
 *   x = (x + norm(t))                the last block's result
 *   x = (x + norm(out per_layer_gate)) factor
 *
 * The table E is the largest tensor of these models. On a CPU a step reads its tokens' rows where
 * they lie in the file. */
#include <math.h>

#include "base/err.h"
#include "exec/blocks/block.h"
#include "ops/embed/embed.h"
#include "ops/part_norm/part_norm.h"
#include "ops/silu_mul/silu_mul.h"

void vt_layer_end_tensors(builder *b)
{
    int64_t p = b->m->arch.per_layer, all = p * b->m->arch.n_layers;
    if (p == 0)
        return;
    b->per_layer = build_activation(b, "per_layer", VT_FOLLOWS_TOKENS, all, b->p->activation);
    b->per_layer_in = build_activation(b, "per_layer_in", VT_FOLLOWS_TOKENS, all, b->p->activation);
    b->per_layer_gate = build_activation(b, "per_layer_gate", VT_FOLLOWS_TOKENS, p,
                                         b->p->activation);
}

void vt_layer_embeddings(builder *b)
{
    const vt_arch *a = &b->m->arch;
    const float half = sqrtf(0.5f);
    if (a->per_layer == 0)
        return;
    EMIT(b, embed, -1, "per_layer", VT_WHEN_TOKENS,
         {.table = b->w->ends.tensor[VT_ROLE_PER_LAYER],
          .tokens = &b->p->batch.token,
          .token_pool = &b->p->token_pool,
          .y = b->per_layer,
          .scale = sqrtf((float)a->per_layer) * half});
    build_linear(b, -1, "per_layer_in",
                 (linear_args){.x = b->x,
                               .w = b->w->ends.weight[VT_ROLE_PER_LAYER_IN],
                               .scale = 1 / sqrtf((float)a->hidden),
                               .y = b->per_layer_in},
                 VT_WHEN_TOKENS);
    EMIT(b, part_norm, -1, "per_layer", VT_WHEN_TOKENS,
         {.x = b->per_layer_in,
          .weight = b->w->ends.tensor[VT_ROLE_PER_LAYER_NORM],
          .add = b->per_layer,
          .y = b->per_layer,
          .dim = a->per_layer,
          .eps = a->norm_eps,
          .scale = half});
}

/* x = (x + norm(t)) gain */
static void emit_join(builder *b, int32_t i, const char *what, const vt_tensor *weight,
                      const vt_tensor *gain)
{
    EMIT(b, part_norm, i, what, VT_WHEN_TOKENS,
         {.x = b->t,
          .weight = weight,
          .add = b->x,
          .gain = gain,
          .y = b->x,
          .dim = b->m->arch.hidden,
          .eps = b->m->arch.norm_eps});
}

bool vt_layer_end(builder *b, int32_t layer, const vt_tensor *after)
{
    const vt_layer_weights *lw = &b->w->layer[layer];
    const vt_tensor *factor = lw->tensor[VT_ROLE_LAYER_SCALE];
    int32_t p = b->m->arch.per_layer;
    if (!factor)
        return false;
    emit_join(b, layer, "post_ffn", after, p > 0 ? NULL : factor);
    if (p == 0)
        return true;
    build_linear(
        b, layer, "per_layer.gate",
        (linear_args){.x = b->x, .w = lw->weight[VT_ROLE_PER_LAYER_GATE], .y = b->per_layer_gate},
        VT_WHEN_TOKENS);
    EMIT(b, silu_mul, layer, "per_layer", VT_WHEN_TOKENS,
         {.x = b->per_layer_gate,
          .up = build_slice(b, "per_layer", b->per_layer, (int64_t)layer * p, p),
          .y = b->per_layer_gate,
          .activation = b->m->arch.activation});
    build_linear(
        b, layer, "per_layer.out",
        (linear_args){.x = b->per_layer_gate, .w = lw->weight[VT_ROLE_PER_LAYER_OUT], .y = b->t},
        VT_WHEN_TOKENS);
    emit_join(b, layer, "post_per_layer", lw->tensor[VT_ROLE_PER_LAYER_POST_NORM], factor);
    return true;
}
