/* The CUDA executor (exec/executor.h) and what a person may ask of it. */
#ifndef VT_EXEC_CUDA_H
#define VT_EXEC_CUDA_H

#include "device/cuda.h"
#include "exec/executor.h"

typedef struct vt_cuda_options {
    int32_t ordinal;
    bool graphs; /* steps of up to 1,024 tokens as graphs */
    bool pdl;
    bool one_graph;      /* sampling joined to the forward pass */
    bool deterministic;  /* a row's result does not depend on what else is in the batch */
    int32_t shared_rows; /* vt_target.shared_rows; 0: never */
} vt_cuda_options;

/* Graphs, PDL and shared pages read once, as far as the knobs (base/knob.h) say nothing else; not
 * deterministic. */
void vt_cuda_options_init(vt_cuda_options *o);

/* KV bytes that fit beside the weights: 90 % of the free memory less weights and workspaces. */
vt_status vt_executor_cuda_kv_bytes(const vt_model *m, int32_t ordinal, int32_t max_context,
                                    int64_t *bytes, vt_err *err);
/* An error for a KV type that CUDA does not have. */
vt_status vt_executor_cuda_check_kv(vt_dtype kv_dtype, vt_err *err);
vt_status vt_executor_cuda_new(const vt_model *m, const vt_executor_config *config,
                               const vt_cuda_options *options, vt_executor **out, vt_err *err);

typedef struct vt_cuda_startup {
    double open_ms, weights_ms, compile_ms, capture_ms;
    int32_t n_kernels, n_graphs, late_compiles;
    size_t weight_bytes;
    uint64_t shared_items; /* so far: pieces of decode attention that were several sequences' */
} vt_cuda_startup;
/* false: not a CUDA executor. */
bool vt_executor_cuda_startup(const vt_executor *x, vt_cuda_startup *out);

/* The GPU's idle time between one step's end and the next one's beginning, in microseconds: numbers
 * [since, *end) of all that were ever measured (one a step from the second on), the last `most` of
 * them at most, into us[]. Returns how many. 0 for other executors. */
int32_t vt_executor_cuda_gaps(const vt_executor *x, uint64_t since, float *us, int32_t most,
                              uint64_t *end);

/* What a CUDA executor that records lets a story read; valid as long as it. */
typedef struct vt_cuda_recording {
    const vt_trace_ring *ring; /* VT_TRACE_LAUNCH of every step; moves, calls, kernels of timed */
    vt_cuda *cuda;             /* the device, and the kernels' names in its JIT */
    size_t weight_bytes;       /* on the device */
    int32_t period;            /* one decode step in so many is timed */
    double notice_ns; /* measured: from an event on the device to the host's knowing of it */
    double event_ns;  /* measured: what an event between two kernels takes of the device's time */
    double read_ns;   /* measured: the host's reading of one event's time, mean */
} vt_cuda_recording;
/* false: not a CUDA executor, or one that does not record. */
bool vt_executor_cuda_recording(const vt_executor *x, vt_cuda_recording *out);

/* Compiles every kernel that this model can need on `level` for `arch`, without a device. The JIT
 * belongs to the caller. For tests and for making bundles. */
vt_status vt_executor_cuda_collect(const vt_model *m, const vt_limits *limits, vt_dtype kv_dtype,
                                   const char *arch, int32_t level, vt_cuda **out, vt_err *err);

#endif
