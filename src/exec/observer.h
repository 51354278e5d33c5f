/* An executor calls its observer while it launches steps. Today that is a recorder of spans; a
 * reader of hardware counters can be another. An executor without one makes none of these calls. */
#ifndef VT_EXEC_OBSERVER_H
#define VT_EXEC_OBSERVER_H

#include "exec/executor.h"

typedef enum vt_mark_kind {
    VT_MARK_UPLOADED, /* the step is launched up to the end of its uploads */
    VT_MARK_CALL,     /* the step is launched up to the end of call `value` */
    VT_MARK_GRAPH,    /* the step fits a graph for `value` tokens, padding included */
    VT_MARK_IN,       /* a copy of `value` bytes to the device is launched */
    VT_MARK_OUT,      /* a copy of `value` bytes to the host is launched */
    VT_MARK_LAUNCHED  /* the whole step is launched, but for the event at its end */
} vt_mark_kind;

typedef struct vt_observer vt_observer;
struct vt_observer {
    /* Called before the step is launched. True asks the executor to run the step's calls one by
     * one, with a mark after each, even where it has a graph for them. */
    bool (*begin)(vt_observer *o, const vt_step *step);
    vt_status (*mark)(vt_observer *o, vt_mark_kind kind, int64_t value, vt_err *err);
    /* Called when the oldest step in flight has ended; may correct the times in `view`. */
    vt_status (*end)(vt_observer *o, vt_step_result *view, vt_err *err);
    void (*free)(vt_observer *o);
};

static inline vt_status vt_observe(vt_observer *o, vt_mark_kind kind, int64_t value, vt_err *err)
{
    return o ? o->mark(o, kind, value, err) : VT_OK;
}

#endif
