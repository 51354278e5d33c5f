/* An observer is told what an executor launches and when: the recorder of spans (cuda_spans.c) is
 * one, hardware counters will be another. An executor without an observer skips all of this. */
#ifndef VT_EXEC_OBSERVER_H
#define VT_EXEC_OBSERVER_H

#include "exec/executor.h"

typedef enum vt_mark_kind {
    VT_MARK_UPLOADED, /* the step's uploads and everything before them have been launched */
    VT_MARK_CALL,     /* call `value` and everything before it have been launched */
    VT_MARK_GRAPH,    /* the step fits a graph of `value` tokens, padding included */
    VT_MARK_IN,       /* a copy of `value` bytes to the device was launched */
    VT_MARK_OUT,      /* a copy of `value` bytes of results to the host was launched */
    VT_MARK_LAUNCHED  /* the whole step has been launched, except for the event at its end */
} vt_mark_kind;

typedef struct vt_observer vt_observer;
struct vt_observer {
    /* Called before anything of the step is launched. Returns true if the step's calls are to be
     * launched one by one, with a mark after each, even where there is a graph for them. */
    bool (*begin)(vt_observer *o, const vt_step *step);
    vt_status (*mark)(vt_observer *o, vt_mark_kind kind, int64_t value, vt_err *err);
    /* Called when the oldest step in flight has ended; may correct the times in `view`. */
    vt_status (*end)(vt_observer *o, vt_step_result *view, vt_err *err);
    void (*free)(vt_observer *o);
};

/* Tells the observer; does nothing without one. */
static inline vt_status vt_observe(vt_observer *o, vt_mark_kind kind, int64_t value, vt_err *err)
{
    return o ? o->mark(o, kind, value, err) : VT_OK;
}

#endif
