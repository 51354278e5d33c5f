/* The check that every executor makes of a step. */
#include "exec/executor.h"

#include "base/err.h"

vt_status vt_step_check(const vt_limits *lim, const vt_step *s, vt_err *err)
{
    if (s->batch.n_tokens > lim->max_tokens || s->batch.n_seqs > lim->max_seqs ||
        s->batch.n_rows > lim->max_rows)
        return vt_fail(
            err, VT_ERR_USAGE,
            "step %llu: %d tokens, %d sequences, %d rows are beyond the limits %d, %d, %d",
            (unsigned long long)s->id, s->batch.n_tokens, s->batch.n_seqs, s->batch.n_rows,
            lim->max_tokens, lim->max_seqs, lim->max_rows);
    return VT_OK;
}
