/* An executor calls its observers while it launches steps. A recorder of spans is one; a reader of
 * hardware counters can be another. */
#ifndef VT_EXEC_OBSERVER_H
#define VT_EXEC_OBSERVER_H

#include "exec/executor.h"

typedef enum vt_mark_kind {
    VT_MARK_APART,    /* the step's calls will run one by one: an observer asked for it */
    VT_MARK_UPLOADED, /* the step is launched up to the end of its uploads */
    VT_MARK_BEGIN,    /* call `value` is launched next */
    VT_MARK_CALL,     /* the step is launched up to the end of call `value` */
    VT_MARK_RAN,      /* the step is launched up to the end of its calls */
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
    /* Gives back what it holds of the device (`live`: that still exists); its recording stays. */
    void (*release)(vt_observer *o, bool live);
    /* Takes it again, in a new context. */
    vt_status (*renew)(vt_observer *o, vt_err *err);
    /* The source that it writes, as vt_executor.sources. NULL: nothing that a story reads. */
    int32_t (*sources)(const vt_observer *o, vt_source *out, int32_t max);
    /* `release` was called before. */
    void (*free)(vt_observer *o);
};

enum { VT_OBSERVERS = 5 };

/* The observers of an executor, in the order in which they are called. */
typedef struct vt_observers {
    vt_observer *one[VT_OBSERVERS];
    int32_t n;
} vt_observers;

/* Each asks all observers. */
bool vt_observers_begin(const vt_observers *all, const vt_step *step);
vt_status vt_observe(const vt_observers *all, vt_mark_kind kind, int64_t value, vt_err *err);
vt_status vt_observers_end(const vt_observers *all, vt_step_result *view, vt_err *err);
void vt_observers_release(const vt_observers *all, bool live);
vt_status vt_observers_renew(const vt_observers *all, vt_err *err);
int32_t vt_observers_sources(const vt_observers *all, vt_source *out, int32_t max);
/* Frees them; the list is empty then. */
void vt_observers_free(vt_observers *all);

#endif
