#include "engine/embedding.h"

#include <math.h>
#include <stdlib.h>

bool vt_pooler_init(vt_pooler *p, vt_pooling how, int32_t n_hidden, const vt_pooled *dense,
                    const vt_rank_head *rank)
{
    *p = (vt_pooler){.n_hidden = n_hidden,
                     .rank = how == VT_POOLING_RANK ? rank : NULL,
                     .dense = dense,
                     .most = vt_dense_most(dense, n_hidden)};
    p->next = vt_calloc((size_t)p->most, sizeof *p->next);
    p->work = vt_calloc((size_t)p->most, sizeof *p->work);
    p->vector = vt_calloc((size_t)p->most, sizeof *p->vector);
    return p->next && p->work && p->vector;
}

void vt_pooler_release(vt_pooler *p)
{
    free(p->next);
    free(p->work);
    free(p->vector);
}

vt_embedding *vt_embedding_new(vt_pooling how, int32_t n_hidden, const vt_pooled *dense,
                               const vt_rank_head *rank, const vt_request_params *p,
                               vt_arena *arena)
{
    vt_embedding *m = vt_arena_alloc(arena, 1, sizeof *m);
    bool ranks = how == VT_POOLING_RANK;
    if (!m)
        return NULL;
    if (ranks)
        how = vt_rank_reads_last(rank) ? VT_POOLING_LAST : VT_POOLING_CLS;
    *m = (vt_embedding){.first = how == VT_POOLING_LAST ? p->n_prompt - 1 : 0,
                        .end = how == VT_POOLING_CLS ? 1 : p->n_prompt,
                        .n_vector = ranks               ? 1
                                    : p->dimensions > 0 ? p->dimensions
                                                        : vt_dense_out(dense, n_hidden),
                        .unscaled = p->unscaled};
    return m;
}

void vt_embedding_release(vt_embedding *m)
{
    if (m)
        free(m->sum);
}

bool vt_embedding_add(const vt_pooler *p, vt_embedding *m, const float *sum, const float *rest)
{
    if (!m->sum)
        m->sum = vt_calloc((size_t)p->most, sizeof *m->sum);
    if (!m->sum)
        return false;
    for (int32_t i = 0; i < p->n_hidden; i++)
        m->sum[i] += (double)sum[i] + (double)rest[i];
    return true;
}

bool vt_embedding_finish(const vt_pooler *p, vt_embedding *m)
{
    if (p->rank) {
        p->vector[0] = vt_rank_score(p->rank, m->sum, p->work, m->unscaled);
        return isfinite(p->vector[0]);
    }
    double squares = 0, scale = 1.0 / (m->end - m->first);
    if (p->dense && p->dense->n_dense) {
        for (int32_t i = 0; i < p->n_hidden; i++)
            m->sum[i] *= scale;
        vt_dense_apply(p->dense, m->sum, p->next, p->work);
        scale = 1;
    }
    for (int32_t i = 0; i < m->n_vector; i++)
        squares += m->sum[i] * m->sum[i];
    if (!m->unscaled) /* a vector of zeros stays one */
        scale = squares > 0 ? 1 / sqrt(squares) : 0;
    bool finite = isfinite(squares);
    for (int32_t i = 0; i < m->n_vector; i++) {
        p->vector[i] = (float)(m->sum[i] * scale);
        finite = finite && isfinite(p->vector[i]);
    }
    return finite;
}
