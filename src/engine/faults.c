/* Takes care of a step that failed.
 *
 *   1. The steps in flight are dropped. Their sequences keep their tokens and go back into the
 *      queue, and the prefix cache is emptied, because the failed step may have written anything.
 *      A sequence that has failed more than VT_MAX_FAULTS times ends with an error.
 *   2. If only the step failed, the next one is planned as usual: it computes the KV again.
 *   3. If the device is lost (vt_executor.lost), it is made again, at most VT_MAX_RECOVERIES times
 *      an hour. The requests wait meanwhile, and go on with the tokens that they have.
 *   4. If it cannot be made again, all requests end with one error. Later requests meet the lost
 *      device too: each tries step 3 once more, or ends at once while the limit holds. Nothing is
 *      planned before, because a thread of the device may still read the last plans. */
#include "base/err.h"
#include "engine/engine_inside.h"

static const int64_t kHour = 3600 * (int64_t)1000000000;

/* Returns true if the limit allows one more try now. Notes the try. */
static bool may_recover(vt_engine *e)
{
    int64_t now = engine_now(e), *oldest = &e->recovered_ns[e->n_tried % VT_MAX_RECOVERIES];
    if (e->n_tried >= VT_MAX_RECOVERIES && now - *oldest < kHour)
        return false;
    *oldest = now;
    e->n_tried++;
    return true;
}

static vt_status recover(vt_engine *e, const vt_err *why, vt_err *err)
{
    int64_t begin = engine_now(e);
    if (!may_recover(e))
        return vt_fail(err, VT_ERR_DEVICE,
                       "%s; the device was made again %d times within the last hour, which is the "
                       "limit",
                       why->message, VT_MAX_RECOVERIES);
    vt_err again = {0};
    if (e->executor->renew(e->executor, &again) != VT_OK) {
        return vt_fail(err, VT_ERR_DEVICE,
                       "%s; the device cannot be used again in this process (%s): start it again",
                       why->message, again.message);
    }
    e->n_recovered++;
    vt_notice_tell(&e->config.notice,
                   "the device was lost (%s) and made again in %.2f s; %d sequences go on",
                   why->message, (double)(engine_now(e) - begin) * 1e-9, e->sched.n_queue);
    return VT_OK;
}

/* Makes the lost device again. If that fails all requests end. */
static vt_status mend(vt_engine *e, vt_err *err)
{
    e->lost = recover(e, &e->cause, &e->fault) != VT_OK;
    if (!e->lost)
        return VT_OK;
    vt_sched_lose_all(&e->sched);
    engine_publish_all(e, NULL);
    if (err)
        *err = e->fault;
    return e->fault.status;
}

vt_status engine_mend(vt_engine *e, vt_err *err)
{
    return e->lost && e->sched.n_queue > 0 ? mend(e, err) : VT_OK;
}

vt_status engine_fault(vt_engine *e, const vt_err *why, vt_err *err)
{
    vt_executor *x = e->executor;
    vt_sched_fault(&e->sched);
    e->n_flight = 0;
    engine_publish_all(e, NULL);
    e->cause = *why;
    if (x->lost && x->lost(x))
        return mend(e, err);
    if (err)
        *err = *why;
    return why->status;
}
