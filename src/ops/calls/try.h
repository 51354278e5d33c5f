/* Does an op work on this machine? Runs one small case of its card on the row that an engine would
 * choose, compares with the reference, and tells what had to be compiled for it.
 *
 *   vt_try t;
 *   vt_try_cuda(op, NULL, &gpu, &t);
 *   t.good ? "ok" : t.why
 *
 * Whatever goes wrong is in `why`: no row takes a case, a kernel does not compile or does not run,
 * the result is wrong, memory ran out. */
#ifndef VT_OPS_CALLS_TRY_H
#define VT_OPS_CALLS_TRY_H

#include "device/cuda/jit.h"
#include "ops/calls/on_cuda.h"
#include "ops/op.h"

typedef struct vt_try {
    const vt_op *op;
    const vt_impl *impl;      /* NULL: no row of this device takes a small case */
    char shape[VT_CASE_NAME]; /* the case's name; empty where impl is NULL */
    vt_device_kind device;
    char kernel[JIT_NAME_MAX]; /* GPU: the first kernel it launched, with template parameters */
    int32_t n_kernels;         /* GPU: different ones */
    bool cached;               /* GPU: all of them came from the cache on disk */
    double compile_ms;         /* GPU: to compile them, now or when they came into the cache */
    double error, allowed;     /* difference from the reference, and its limit; NAN: not compared */
    bool good;
    char why[512];
} vt_try;

/* On the CPU, with all workers of the team, at this instruction set level. */
void vt_try_cpu(const vt_op *op, vt_isa level, vt_team *team, vt_try *out);
/* On a GPU. `impl`: this row instead of the one that an engine would choose; or NULL. */
void vt_try_cuda(const vt_op *op, const vt_impl *impl, on_cuda_gpu *gpu, vt_try *out);

#endif
