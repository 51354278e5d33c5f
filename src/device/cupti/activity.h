/* When every kernel and copy ran, by CUPTI's activity records, and which call it belongs to.
 *
 *   vt_activity_open    once, before graphs are captured: from here on their nodes are noted
 *     vt_activity_call  before each call's launches, whether they run or are captured
 *   vt_activity_begin   with an empty stream: from here on CUPTI writes records
 *     ... launches, of graphs too ...
 *   vt_activity_end     with an empty stream: tells of every record, and of how many were lost
 *
 * A kernel that a graph launches is told by its node: CUPTI says when a node is made, which is
 * while its call is captured, and when it is cloned, which is while the graph is instantiated. Any
 * other kernel is told by the driver's call that launched it.
 *
 * CUPTI has one subscriber a process, and its callbacks have no user, so only one of these is open
 * at a time. The calls come from the thread that launches, with the GPU's context current. */
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
} vt_activity_totals;

/* In the order in which they began. */
typedef void vt_activity_seen(void *user, const vt_activity_record *r);

/* The error says why nothing can be recorded. */
vt_status vt_activity_open(const vt_cuda *gpu, vt_activity **out, vt_err *err);
void vt_activity_close(vt_activity *a);
/* Which call is launched or captured next; -1: none. */
void vt_activity_call(vt_activity *a, int32_t call);

vt_status vt_activity_begin(vt_activity *a, vt_err *err);
/* Recording ends, also if it fails; does nothing without a begin. */
vt_status vt_activity_end(vt_activity *a, vt_activity_seen *seen, void *user,
                          vt_activity_totals *totals, vt_err *err);

#endif
