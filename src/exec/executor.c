/* The check that every executor makes of a step. */
#include "exec/executor.h"

#include <string.h>

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

bool vt_executor_find(const vt_executor *x, const char *key, vt_report *out)
{
    vt_report all[VT_MAX_REPORTS];
    int32_t n = x->report ? x->report(x, all, VT_MAX_REPORTS) : 0;
    for (int32_t i = 0; i < n && i < VT_MAX_REPORTS; i++)
        if (strcmp(all[i].key, key) == 0) {
            *out = all[i];
            return true;
        }
    return false;
}

double vt_executor_value(const vt_executor *x, const char *key, double otherwise)
{
    vt_report r;
    return vt_executor_find(x, key, &r) ? r.value : otherwise;
}
