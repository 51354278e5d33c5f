/* Running a plan against a server.
 *
 *   closed loop: `concurrency` sessions at any time, the next one begins when one ends
 *   open loop:   sessions begin at their times, whether or not earlier ones have ended
 *
 * Later turns of a session follow at once when the turn before has been answered. */
#ifndef VT_LOAD_RUN_H
#define VT_LOAD_RUN_H

#include "load/client.h"
#include "load/measure.h"
#include "load/plan.h"

typedef enum vt_load_arrivals {
    VT_LOAD_CLOSED,
    VT_LOAD_POISSON, /* `rate` sessions a second; exponential times between them, by the seed */
    VT_LOAD_TRACE    /* the times of the sessions, divided by `rate` */
} vt_load_arrivals;

typedef struct vt_load_progress {
    int32_t sent, ended, failed, total, busy;
    int64_t pieces;
    double elapsed_s;
} vt_load_progress;

typedef struct vt_load_options {
    const vt_load_plan *plan;
    const vt_load_target *target;
    const char *key;   /* NULL: none */
    const char *model; /* NULL: left out of the requests */
    bool chat, stream, ignore_eos;
    double temperature; /* NAN: left out */
    vt_load_arrivals arrivals;
    double rate;
    int32_t concurrency; /* sessions at once; of open loops, the most connections */
    double timeout_s;    /* of a request */
    /* Called some ten times a second. False: stop now. */
    bool (*on_tick)(void *user, const vt_load_progress *progress);
    void *user;
} vt_load_options;

typedef struct vt_load_outcome {
    vt_load_result *result; /* [n]: result[i] is of plan->turn[i]; begin_ns 0: it was not sent */
    int32_t n;
    float *gap; /* [n_gaps] seconds between pieces of text */
    size_t n_gaps;
    size_t n_gaps_lost; /* beyond what memory allows */
    int64_t begin_ns, end_ns;
    double cpu_s; /* of this thread */
    bool stopped; /* on_tick said so */
    vt_load_client_stats client;
} vt_load_outcome;

vt_status vt_load_run(const vt_load_options *o, vt_load_outcome *out, vt_err *err);
void vt_load_outcome_release(vt_load_outcome *out);

#endif
