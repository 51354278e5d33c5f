/* What the story layer may read of an engine that records (option `record`). */
#ifndef VT_ENGINE_RECORDING_H
#define VT_ENGINE_RECORDING_H

#include "base/trace.h"
#include "exec/cuda.h"
#include "exec/program.h"

/* Pointers stay valid as long as the engine. Rings may be written while they are read
 * (vt_trace_copy). */
typedef struct vt_recording {
    const vt_model *model;
    const vt_trace_ring *engine;        /* requests, steps, their parts, memory, cache events */
    const vt_trace_ring *const *worker; /* [n_workers] op calls and waits */
    int32_t n_workers;
    const vt_program *program; /* what the calls' indices mean */
    vt_dtype kv_dtype;
    int32_t page_size, n_pages;
    int64_t kv_bytes, packed_bytes; /* of the KV pool; of repacked weights */
    bool on_gpu;
    vt_cuda_recording gpu; /* where on_gpu; there are no workers then */
} vt_recording;

/* VT_ERR_USAGE where the engine was made without `record`. */
vt_status vt_engine_recording(vt_engine *e, vt_recording *out, vt_err *err);

#endif
