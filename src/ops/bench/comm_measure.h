/* The limits of the forms of a sum (device/roofs/comm_limits.h) for the GPUs of a group: kept ones,
 * or measured now in graphs of calls, as bench comm does. That takes about a second, once for each
 * set of GPUs, driver and link. */
#ifndef VT_OPS_BENCH_COMM_MEASURE_H
#define VT_OPS_BENCH_COMM_MEASURE_H

#include "base/json_write.h"
#include "device/cuda/cuda.h"
#include "device/roofs/comm_limits.h"

/* Which GPUs, and how they meet. */
typedef struct comm_set {
    const vt_cuda *first; /* the open GPU of rank 0 */
    const int32_t *gpu;   /* [n] */
    int32_t n;
    bool staged; /* through the host's memory */
} comm_set;

/* Sets *out to the limits of the group; times are measured only if `measure` is set and none are
 * kept. They stay fixed with VITRINE_COMM_TIMES=0, where two ranks share a GPU, on an emulated GPU
 * without a file, and where measuring fails. Returns true if they come from times. */
bool vt_comm_limits_get(const comm_set *set, bool measure, vt_comm_limits *out);

/* Times all forms on the first n_sizes sizes. */
vt_status vt_comm_times_measure(const comm_set *set, int32_t n_sizes, comm_times *out, vt_err *err);

/* The key of the file of times: it changes with the GPUs, the driver, and how they meet. */
void vt_comm_times_key(const comm_set *set, char *out, size_t size);

/* Appends "sums: push to 64 KiB, then one-shot; with the norm: ... (measured 2026-11-29)". */
void vt_comm_limits_tell(vt_buf *b, const vt_comm_limits *l);
/* Writes {"sum": {"push": bytes, "one_shot": bytes; null: all}, "norm": ..., "measured": date}. */
void vt_comm_limits_put(vt_json *w, const char *key, const vt_comm_limits *l);

#endif
