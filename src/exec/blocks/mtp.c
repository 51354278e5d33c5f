/* The input of an MTP head (model/mtp.h):
 *
 *   pair [tokens, 2 hidden]   the normed embedding, and the normed hidden state of the token before
 *   x = in pair */
#include "exec/blocks/block.h"
#include "ops/rmsnorm/rmsnorm.h"

void vt_mtp_tensors(builder *b)
{
    int64_t hidden = b->m->arch.hidden;
    if (b->m->mtp.behind == 0)
        return;
    b->p->before = build_input(b, "before", hidden);
    b->pair = build_activation(b, "pair", VT_FOLLOWS_TOKENS, 2 * hidden, b->p->activation);
}

/* One half of the pair. */
static void emit_half(builder *b, const char *what, const vt_tensor *x, vt_role norm, int64_t at)
{
    EMIT(b, rmsnorm, -1, what, VT_WHEN_TOKENS,
         {.x = x,
          .weight = b->w->ends.tensor[norm],
          .y = build_slice(b, "half", b->pair, at, b->m->arch.hidden),
          .eps = b->m->arch.norm_eps,
          .plus_one = b->m->arch.norm_plus_one});
}

void vt_mtp_input(builder *b)
{
    if (b->m->mtp.behind == 0)
        return;
    emit_half(b, "mtp.embed", b->x, VT_ROLE_MTP_EMBED_NORM, 0);
    emit_half(b, "mtp.hidden", b->p->before, VT_ROLE_MTP_HIDDEN_NORM, b->m->arch.hidden);
    build_linear(b, -1, "mtp.in",
                 (linear_args){.x = b->pair, .w = b->w->ends.weight[VT_ROLE_MTP_IN], .y = b->x},
                 VT_WHEN_TOKENS);
}
