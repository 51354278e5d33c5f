/* Somebody who looks on while an executor launches steps: a recorder of spans now, hardware
 * counters later. An executor without one does nothing of this. */
#ifndef VT_EXEC_OBSERVER_H
#define VT_EXEC_OBSERVER_H

#include "exec/executor.h"

typedef enum vt_mark_kind {
    VT_MARK_UPLOADED, /* everything up to the end of the uploads is launched */
    VT_MARK_CALL,     /* everything up to the end of call `value` is launched */
    VT_MARK_GRAPH,    /* there is a graph for the step: it has `value` tokens, padding counted */
    VT_MARK_IN,       /* `value` bytes of the step were copied to the device */
    VT_MARK_OUT,      /* ... and back to the host */
    VT_MARK_LAUNCHED  /* all of the step but its end is launched */
} vt_mark_kind;

typedef struct vt_observer vt_observer;
struct vt_observer {
    /* Before anything of the step is launched. True: its calls shall run one by one, with a mark
     * behind each, even where there is a graph for them. */
    bool (*begin)(vt_observer *o, const vt_step *step);
    vt_status (*mark)(vt_observer *o, vt_mark_kind kind, int64_t value, vt_err *err);
    /* The oldest step that has not ended did now; may correct the times in `view`. */
    vt_status (*end)(vt_observer *o, vt_step_result *view, vt_err *err);
    void (*free)(vt_observer *o);
};

static inline vt_status vt_observe(vt_observer *o, vt_mark_kind kind, int64_t value, vt_err *err)
{
    return o ? o->mark(o, kind, value, err) : VT_OK;
}

#endif
