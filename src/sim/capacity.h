/* Capacity planning: a trace of requests is replayed through the real scheduler and prefix cache,
 * on fake devices that compute nothing and take the time that a cost model predicts.
 *
 *   trace ──> least loaded replica ──> engine ──> fake device, cost_ns(step)
 *                                        └── events: TTFT, ITL
 *
 * vt_capacity_run replays the trace once; vt_capacity_search replays it at several rates and finds
 * the first that is too high. */
#ifndef VT_SIM_CAPACITY_H
#define VT_SIM_CAPACITY_H

#include "engine/scheduler.h"
#include "sim/trace_file.h"

typedef struct vt_capacity_setup {
    vt_sched_config sched; /* the same for each replica */
    bool overlap;
    int32_t n_replicas;
    /* The time of a step of one replica while n_busy of them, this one counted, have requests. */
    int64_t (*cost_ns)(void *user, const vt_step *step, int32_t n_busy);
    /* Asked before a rate is tried; false stops the search. NULL: never stop. */
    bool (*go_on)(void *user, double rate);
    void *user; /* passed to both functions */
} vt_capacity_setup;

typedef struct vt_percentiles {
    double p50, p90, p99, mean; /* seconds; 0 if there are no values */
} vt_percentiles;

typedef struct vt_capacity_result {
    double rate; /* requests arrive this many times as fast as in the trace */
    int32_t n_done;
    int32_t n_too_long;   /* refused: the prompt and one token are longer than the context */
    int32_t n_no_room;    /* refused: the prompt is larger than a replica's KV memory */
    int32_t n_cut;        /* got fewer output tokens than asked: context or KV memory was full */
    int64_t cut_tokens;   /* output tokens that these requests lack, all together */
    double offered_per_s; /* arrivals per second, without refused ones; 0: all at one moment */
    /* Requests that ended per second. Even an idle machine needs some time after the last arrival.
     * In the results of a search that time, as it was at the rate where the devices idle, is not
     * counted. */
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
    /* In rising order of rate; each rate is at least twice the one before. */
    vt_capacity_result row[VT_CAPACITY_RATES];
    int32_t n;
    int32_t idle;      /* the row at whose rate the devices idle: it serves all that is offered */
    int32_t saturated; /* the first row whose served_per_s is less than nine tenths of
                          offered_per_s; -1: none was found */
} vt_capacity_table;

/* Starts at a rate at which the devices idle more than half of the time, and doubles the rate until
 * they fall behind. VT_ERR_USAGE for a trace whose requests all arrive at one moment, because it
 * has no rate. VT_ERR_CANCELLED if go_on stopped the search. If no request can be served the table
 * has one row. */
vt_status vt_capacity_search(const vt_capacity_setup *s, const vt_trace_file *t,
                             vt_capacity_table *out, vt_err *err);

#endif
