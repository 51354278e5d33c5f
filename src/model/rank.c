#include "model/rank.h"

#include <math.h>
#include <string.h>

#include "base/quant.h"
#include "model/family.h"
#include "model/load.h"
#include "text/tokenizer/tokenizer.h"

vt_rank_head vt_rank_head_of(const vt_model *m)
{
    vt_rank_head h = {.m = m, .yes = -1, .no = -1};
    if (m->ranker.out)
        return h;
    if (m->tokenizer && m->head && m->family && strcmp(m->family->name, "qwen3") == 0) {
        h.yes = vt_tokenizer_find(m->tokenizer, "yes", 3);
        h.no = vt_tokenizer_find(m->tokenizer, "no", 2);
    }
    return h.yes >= 0 && h.no >= 0 ? h : (vt_rank_head){0};
}

vt_status vt_rank_keep_weights(const vt_rank_head *h, vt_err *err)
{
    const vt_tensor *read = h->m->ranker.out ? h->m->ranker.dense : h->m->head;
    if (!vt_dtype_quantised(read->dtype))
        return VT_OK;
    TRY(vt_model_host_weights(h->m, err));
    vt_model_host_weights_done(h->m, true);
    return VT_OK;
}

bool vt_rank_reads_last(const vt_rank_head *h) { return h->m && !h->m->ranker.out; }

/* Returns the product of a row of a matrix and x [n]. */
static double row_dot(const vt_tensor *t, int64_t row, const double *x, float *work)
{
    int64_t n = t->dim[t->rank - 1];
    double sum = 0;
    vt_dequant_row(t->dtype, (const char *)t->data + row * vt_dtype_row_bytes(t->dtype, n), work,
                   n);
    for (int64_t i = 0; i < n; i++)
        sum += (double)work[i] * x[i];
    return sum;
}

/* Returns a number of a vector, or of a matrix of one row, of a float type. */
static double vector_at(const vt_tensor *t, int64_t i)
{
    float v = 0;
    vt_dequant_row(t->dtype, (const char *)t->data + vt_dtype_row_bytes(t->dtype, i), &v, 1);
    return (double)v;
}

/* Returns the classifier's logit. Each number behind tanh is used as it is made, for the last
 * matrix has one row. */
static double classify(const vt_ranker *r, const double *state, float *work)
{
    double logit = vector_at(r->out_bias, 0);
    for (int64_t i = 0; i < r->dense->dim[0]; i++) {
        double inner = row_dot(r->dense, i, state, work) + vector_at(r->dense_bias, i);
        logit += tanh(inner) * vector_at(r->out, i);
    }
    return logit;
}

float vt_rank_score(const vt_rank_head *h, const double *state, float *work, bool logit)
{
    const vt_model *m = h->m;
    double v = m->ranker.out
                   ? classify(&m->ranker, state, work)
                   : row_dot(m->head, h->yes, state, work) - row_dot(m->head, h->no, state, work);
    return (float)(logit || m->ranker.linear ? v : 1 / (1 + exp(-v)));
}
