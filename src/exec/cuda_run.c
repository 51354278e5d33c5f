/* Running calls of the bound program on the lane. A call gets its own plan, side data and number of
 * items, the workspace and the tickets that all calls share, and nothing else of the step. */
#include "base/err.h"
#include "device/nvtx.h"
#include "exec/cuda_inside.h"

/* The lane for a call that uses plan number `plan`; -1: it uses none. */
static vt_lane lane_of(cuda_executor *x, int16_t plan)
{
    vt_lane lane = {.target = &x->prog->target,
                    .size = &x->prog->size,
                    .workspace = x->workspace,
                    .workspace_bytes = x->prog->target.workspace_bytes,
                    .cuda = &x->lane,
                    .tickets = x->tickets};
    if (plan < 0)
        return lane;
    lane.items = x->bound->items[plan];
    lane.variant = x->bound->variant[plan];
    lane.plan = (const char *)x->step_block + x->bound_layout.plan[plan];
    if (x->side_part[plan] >= 0)
        lane.side = (const char *)x->side.base + (size_t)x->side_part[plan] * x->side.stride;
    return lane;
}

/* Tells the lane's stamps which call is launched next. Its end is told by the first launch of the
 * next call, unless that is a library's or there is none before call `end`. */
static void stamp_call(const cuda_executor *x, int32_t call, int32_t end)
{
    const vt_program *p = x->prog;
    int32_t next = call + 1;
    while (next < end && !vt_call_active(&p->call[next], &p->size))
        next++;
    const vt_call *c = next < end ? &p->call[next] : NULL;
    x->lane.stamps->call = call;
    x->lane.stamps->launch = 0;
    x->lane.stamps->ends = !c || c->choice[vt_call_choice(c, &p->size)].impl->library;
}

vt_status cuda_run_calls(cuda_executor *x, int32_t begin, int32_t end, vt_err *err)
{
    vt_program *p = x->prog;
    x->lane.err = (vt_err){0};
    for (int32_t i = begin; i < end; i++) {
        const vt_call *c = &p->call[i];
        if (!vt_call_active(c, &p->size))
            continue;
        int32_t choice = vt_call_choice(c, &p->size);
        vt_lane lane = lane_of(x, c->plan[choice]);
        TRY(vt_observe(&x->observers, VT_MARK_BEGIN, i, err));
        cuda_activity_call(x, i);
        if (x->lane.stamps)
            stamp_call(x, i, end);
        vt_nvtx_push(c->label);
        vt_status status = c->choice[choice].impl->run(c->args, &lane);
        vt_nvtx_pop();
        cuda_activity_call(x, -1);
        if (status != VT_OK) {
            if (x->lane.err.status != VT_OK && err)
                *err = x->lane.err;
            else if (x->lane.err.status == VT_OK)
                vt_fail(err, status, "%s failed on %s", c->label, c->choice[choice].impl->name);
            return status;
        }
        TRY(vt_observe(&x->observers, VT_MARK_CALL, i, err));
    }
    return VT_OK;
}
