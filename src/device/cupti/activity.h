/* When every kernel and copy ran, by CUPTI's activity records, and which call it belongs to.
 *
 *   vt_activity_open    once, before graphs are captured: from here on their nodes are noted
 *     vt_activity_call  before each call's launches, whether they run or are captured
 *   vt_activity_begin   with an empty stream: from here on CUPTI writes records
 *     ... launches, of graphs too ...
 *   vt_activity_end     with an empty stream: every record is told, and how many were lost
 *
 * A kernel that a graph launches is told by its node: CUPTI says when a node is made, which is
 * while its call is captured, and when it is cloned, which is while the graph is instantiated. Any
 * other kernel is told by the driver's call that launched it.
 *
 * CUPTI has one subscriber a process, and its callbacks have no user. So the ranks of an engine,
 * each of which opens one of these, share a subscriber and the buffers, and a record goes to the
 * rank that captured its node or called the driver:
 *
 *   rank 0   begin | launches ......... | end
 *   rank 1     begin | launches ............ | end   <- the last one reads for both
 *
 * The calls come from the thread that launches for the rank, with the GPU's context current. */
#ifndef VT_DEVICE_CUPTI_ACTIVITY_H
#define VT_DEVICE_CUPTI_ACTIVITY_H

#include "base/trace.h"
#include "device/cupti/cupti.h"

typedef struct vt_activity vt_activity;

typedef struct vt_activity_record {
    vt_activity_kind kind;
    int32_t call;             /* -1: not known, or of no call */
    bool in_graph;            /* a graph launched it */
    int64_t begin_ns, end_ns; /* of vt_now_ns */
    int64_t bytes;            /* of a copy or a fill */
    const char *name;         /* of a kernel; "" for the others; stays */
} vt_activity_record;

/* The sums of one begin and end. */
typedef struct vt_activity_totals {
    int64_t records, lost; /* lost: CUPTI dropped them, or there was no room here */
    int64_t unknown;       /* kernels whose call is not known */
    int64_t read_ns;       /* that reading took, for all ranks */
} vt_activity_totals;

/* Told what was recorded. Both functions are called by the rank that ends last, maybe on another
 * thread than the rank's own; they must not call back. */
typedef struct vt_activity_reader {
    /* One record, in the order in which they began; NULL: nobody asks. */
    void (*seen)(void *user, const vt_activity_record *r);
    /* All records were told. `why`: reading failed; NULL: it did not. */
    void (*ended)(void *user, const vt_activity_totals *totals, const vt_err *why);
    void *user;
} vt_activity_reader;

enum { VT_ACTIVITY_RANKS = 8 };

/* For rank `rank` of `n_ranks`, at most VT_ACTIVITY_RANKS. The error says why nothing can be
 * recorded. */
vt_status vt_activity_open(const vt_cuda *gpu, int32_t rank, int32_t n_ranks, vt_activity **out,
                           vt_err *err);
void vt_activity_close(vt_activity *a);
/* Which call is launched or captured next by this thread; -1: none. */
void vt_activity_call(vt_activity *a, int32_t call);

vt_status vt_activity_begin(vt_activity *a, const vt_activity_reader *reader, vt_err *err);
/* Recording ends for this rank; does nothing without a begin. */
void vt_activity_end(vt_activity *a);

#endif
