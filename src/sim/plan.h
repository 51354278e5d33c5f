/* Capacity planning: a trace of requests through the real scheduler and prefix cache, on devices
 * that compute nothing and take the time a cost model says.
 *
 *   trace ──> replica with the least to do ──> engine ──> fake device, cost_ns(step)
 *                                                               └── events: TTFT, ITL
 *
 * The trace format is Mooncake's (github.com/kvcache-ai/Mooncake): JSON lines of timestamp (ms),
 * input_length, output_length, hash_ids; equal hash_ids stand for equal blocks of 512 tokens, so
 * the prefix cache finds what it would have found. */
#ifndef VT_SIM_PLAN_H
#define VT_SIM_PLAN_H

#include "engine/scheduler.h"

enum { VT_TRACE_BLOCK = 512 };

typedef struct vt_trace_line {
    int64_t arrive_ns;
    int32_t input, output;
    int32_t first_hash, n_hash; /* in vt_trace_file.hash */
} vt_trace_line;

typedef struct vt_trace_file {
    vt_trace_line *line; /* [n], by time of arrival */
    int32_t n;
    int64_t *hash;
    int32_t n_hash;
} vt_trace_file;

/* At most `max` lines; `name` is used in messages. Times are made to begin at 0. */
vt_status vt_trace_parse(const char *name, const char *text, size_t len, int32_t max,
                         vt_trace_file *out, vt_err *err);
void vt_trace_file_release(vt_trace_file *t);

typedef struct vt_plan_setup {
    vt_sched_config sched; /* of each replica */
    bool overlap;
    int32_t n_replicas;
    int64_t (*cost_ns)(void *user, const vt_step *step);
    void *user;
} vt_plan_setup;

typedef struct vt_percentiles {
    double p50, p90, p99, mean; /* seconds; 0 where there is nothing */
} vt_percentiles;

typedef struct vt_plan_result {
    int32_t n_done, n_refused; /* refused: longer than the context or the KV cache */
    double offered_per_s, served_per_s, output_tokens_per_s, hit_share, device_share;
    vt_percentiles ttft, itl;
    uint64_t steps, retracted;
    int32_t most_running; /* sequences at once, on one replica */
} vt_plan_result;

/* Replays the trace with its arrivals `rate` times as fast. */
vt_status vt_plan_run(const vt_plan_setup *s, const vt_trace_file *t, double rate,
                      vt_plan_result *out, vt_err *err);

#endif
