/* Capacity planning: a trace of requests through the real scheduler and prefix cache, on devices
 * that compute nothing and take the time that a cost model says.
 *
 *   trace ──> replica with the least to do ──> engine ──> fake device, cost_ns(step)
 *                                                               └── events: TTFT, ITL
 *
 * vt_capacity_run replays the trace once; vt_capacity_search replays it at several rates and finds
 * out which is too much. */
#ifndef VT_SIM_CAPACITY_H
#define VT_SIM_CAPACITY_H

#include "engine/scheduler.h"
#include "sim/trace_file.h"

typedef struct vt_capacity_setup {
    vt_sched_config sched; /* of each replica */
    bool overlap;
    int32_t n_replicas;
    int64_t (*cost_ns)(void *user, const vt_step *step);
    bool (*go_on)(void *user, double rate); /* before a rate is tried; false: stop. NULL: go on */
    void *user;                             /* of both */
} vt_capacity_setup;

typedef struct vt_percentiles {
    double p50, p90, p99, mean; /* seconds; 0 where there is nothing */
} vt_percentiles;

typedef struct vt_capacity_result {
    double rate; /* the trace's arrivals this many times as fast */
    int32_t n_done;
    int32_t n_too_long; /* refused: prompt and one token are longer than the context */
    int32_t n_no_room;  /* refused: the prompt is larger than a replica's KV memory */
    int32_t n_cut;      /* served with fewer output tokens than asked: context or KV memory full */
    int64_t cut_tokens; /* that these lack, all together */
    double offered_per_s; /* of requests that are not refused; 0 if all arrive in one moment */
    /* Requests ended a second. A run ends after its last arrival even on an idle machine; from a
     * search that tail is left out, as long as it was at the rate where the devices idle. */
    double served_per_s;
    double output_tokens_per_s, hit_share, device_share;
    double span_s, tail_s; /* first to last arrival; last arrival to last end */
    vt_percentiles ttft, itl;
    uint64_t steps, retracted;
    int32_t most_running; /* sequences at once, on one replica */
} vt_capacity_result;

vt_status vt_capacity_run(const vt_capacity_setup *s, const vt_trace_file *t, double rate,
                          vt_capacity_result *out, vt_err *err);

enum { VT_CAPACITY_RATES = 40 };

typedef struct vt_capacity_table {
    vt_capacity_result row[VT_CAPACITY_RATES]; /* by rate, each twice the one before or more */
    int32_t n;
    int32_t idle;      /* the row of the rate at which the devices idle: served is offered there */
    int32_t saturated; /* the first row whose served_per_s is less than nine tenths of
                          offered_per_s; -1: none was found */
} vt_capacity_table;

/* Searches from a rate at which the devices idle more than half of the time, doubling the rate
 * until they fall behind. VT_ERR_USAGE for a trace whose requests all arrive at one moment: it has
 * no rate. VT_ERR_CANCELLED if go_on stopped it. If no request can be served there is one row. */
vt_status vt_capacity_search(const vt_capacity_setup *s, const vt_trace_file *t,
                             vt_capacity_table *out, vt_err *err);

#endif
