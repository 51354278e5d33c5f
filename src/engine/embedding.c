#include "engine/embedding.h"

#include <math.h>

#include "base/quant.h"

vt_embedding *vt_embedding_new(vt_pooling how, int32_t n_hidden, const vt_pooled *dense,
                               const vt_rank_head *rank, const vt_request_params *p,
                               vt_arena *arena)
{
    vt_embedding *m = vt_arena_alloc(arena, 1, sizeof *m);
    size_t most = (size_t)vt_dense_most(dense, n_hidden);
    bool ranks = how == VT_POOLING_RANK;
    if (!m)
        return NULL;
    if (ranks)
        how = vt_rank_reads_last(rank) ? VT_POOLING_LAST : VT_POOLING_CLS;
    *m = (vt_embedding){.first = how == VT_POOLING_LAST ? p->n_prompt - 1 : 0,
                        .end = how == VT_POOLING_CLS ? 1 : p->n_prompt,
                        .n_hidden = n_hidden,
                        .n_vector = ranks               ? 1
                                    : p->dimensions > 0 ? p->dimensions
                                                        : vt_dense_out(dense, n_hidden),
                        .unscaled = p->unscaled,
                        .rank = ranks ? rank : NULL,
                        .dense = dense,
                        .sum = vt_arena_alloc(arena, most, sizeof *m->sum),
                        .next = vt_arena_alloc(arena, most, sizeof *m->next),
                        .state = vt_arena_alloc(arena, most, sizeof *m->state),
                        .vector = vt_arena_alloc(arena, most, sizeof *m->vector)};
    return m->sum && m->next && m->state && m->vector ? m : NULL;
}

void vt_embedding_add(vt_embedding *m, const void *hidden, vt_dtype dtype, int32_t n)
{
    size_t row = (size_t)vt_dtype_row_bytes(dtype, m->n_hidden);
    for (int32_t r = 0; r < n; r++) {
        vt_dequant_row(dtype, (const char *)hidden + (size_t)r * row, m->state, m->n_hidden);
        for (int32_t i = 0; i < m->n_hidden; i++)
            m->sum[i] += (double)m->state[i];
    }
}

bool vt_embedding_finish(vt_embedding *m)
{
    if (m->rank) {
        m->vector[0] = vt_rank_score(m->rank, m->sum, m->state, m->unscaled);
        return isfinite(m->vector[0]);
    }
    double squares = 0, scale = 1.0 / (m->end - m->first);
    if (m->dense && m->dense->n_dense) {
        for (int32_t i = 0; i < m->n_hidden; i++)
            m->sum[i] *= scale;
        vt_dense_apply(m->dense, m->sum, m->next, m->state);
        scale = 1;
    }
    for (int32_t i = 0; i < m->n_vector; i++)
        squares += m->sum[i] * m->sum[i];
    if (!m->unscaled) /* a vector of zeros stays one */
        scale = squares > 0 ? 1 / sqrt(squares) : 0;
    bool finite = isfinite(squares);
    for (int32_t i = 0; i < m->n_vector; i++) {
        m->vector[i] = (float)(m->sum[i] * scale);
        finite = finite && isfinite(m->vector[i]);
    }
    return finite;
}
