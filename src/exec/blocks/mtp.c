/* The input of an MTP head (model/mtp.h):
 *
 *   pair [tokens, 2 hidden]   the normed embedding, and the normed hidden state of the token before
 *   x = in pair
 *
 * and of an EAGLE-3 head (model/eagle.h), whose attention reads the pair itself. Its residual
 * stream begins with the hidden state, or with the normed one. */
#include "exec/blocks/block.h"
#include "ops/rmsnorm/rmsnorm.h"

void vt_mtp_tensors(builder *b)
{
    int64_t hidden = b->m->arch.hidden;
    if (!vt_model_is_head(b->m))
        return;
    b->p->before = build_input(b, "before", hidden);
    b->pair = build_activation(b, "pair", VT_FOLLOWS_TOKENS, 2 * hidden, b->p->activation);
    if (b->m->eagle.is && !b->m->eagle.normed_stream)
        b->stream = b->p->before;
}

static void emit_norm(builder *b, const char *what, const vt_tensor *x, vt_role norm, vt_tensor *y)
{
    EMIT(b, rmsnorm, -1, what, VT_WHEN_TOKENS,
         {.x = x,
          .weight = b->w->ends.tensor[norm],
          .y = y,
          .eps = b->m->arch.norm_eps,
          .plus_one = b->m->arch.norm_plus_one});
}

void vt_mtp_input(builder *b)
{
    int64_t hidden = b->m->arch.hidden;
    if (!vt_model_is_head(b->m))
        return;
    emit_norm(b, "mtp.embed", b->x, VT_ROLE_MTP_EMBED_NORM,
              build_slice(b, "half", b->pair, 0, hidden));
    emit_norm(b, "mtp.hidden", b->p->before, VT_ROLE_MTP_HIDDEN_NORM,
              build_slice(b, "half", b->pair, hidden, hidden));
    if (b->m->eagle.normed_stream)
        emit_norm(b, "mtp.stream", b->p->before, VT_ROLE_MTP_HIDDEN_NORM, b->x);
    if (!b->m->eagle.is)
        build_linear(b, -1, "mtp.in",
                     (linear_args){.x = b->pair, .w = b->w->ends.weight[VT_ROLE_MTP_IN], .y = b->x},
                     VT_WHEN_TOKENS);
}
