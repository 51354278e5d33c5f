/* The state of a rendering: failures, the step budget, depth, memory. */
#include "text/template/values.h"

#include <stdarg.h>
#include <stdio.h>

/* ---- failures ---- */

static vt_status fail_at(tpl_run *r, vt_status status, const char *fmt, va_list args)
{
    char what[480];
    vsnprintf(what, sizeof what, fmt, args);
    return vt_fail(r->err, status, "%s:%d: %s", r->name, r->line, what);
}

vt_status tpl_fail(tpl_run *r, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vt_status status = fail_at(r, VT_ERR_USAGE, fmt, args);
    va_end(args);
    return status;
}

vt_status tpl_unsupported(tpl_run *r, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vt_status status = fail_at(r, VT_ERR_UNSUPPORTED, fmt, args);
    va_end(args);
    return status;
}

vt_status tpl_limit(tpl_run *r, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vt_status status = fail_at(r, VT_ERR_MEMORY, fmt, args);
    va_end(args);
    return status;
}

vt_status tpl_overflow(tpl_run *r)
{
    return tpl_unsupported(r, "an integer passes 64 bits, which templates here do not have");
}

/* ---- limits ---- */

/* The budget lies in two parts: steps_now, taken without further questions, and steps_later. Each
 * time steps_now is used up, the caller is asked whether to stop and a new part is cut off. */
vt_status tpl_charge_slowly(tpl_run *r, size_t steps)
{
    size_t left = (size_t)(r->steps_now + r->steps_later);
    if (r->stop && r->stop(r->stop_context)) {
        vt_fail(r->err, VT_ERR_CANCELLED, "interrupted");
        return VT_ERR_CANCELLED;
    }
    if (steps > left) {
        r->steps_now = r->steps_later = 0;
        return tpl_limit(r, "the rendering takes more than %lld steps", (long long)r->max_steps);
    }
    left -= steps;
    r->steps_now = left < TPL_LOOK_EVERY ? (int64_t)left : TPL_LOOK_EVERY;
    r->steps_later = (int64_t)left - r->steps_now;
    return VT_OK;
}

int64_t tpl_steps_taken(const tpl_run *r) { return r->max_steps - r->steps_now - r->steps_later; }

vt_status tpl_enter(tpl_run *r)
{
    if (r->depth >= r->max_depth)
        return tpl_limit(r, "calls and values are nested deeper than %d", (int)r->max_depth);
    r->depth++;
    return VT_OK;
}

void *tpl_alloc(tpl_run *r, size_t n, size_t size)
{
    void *p = vt_arena_alloc(&r->arena, n, size);
    if (!p)
        tpl_limit(r, "the rendering needs more than %d MiB for its values, or memory ran out",
                  TPL_MEMORY >> 20);
    return p;
}
