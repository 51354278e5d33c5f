/* A program that never runs: it is built from a model's description for some device, without
 * packing a weight, allocating a cache or opening a device. It can be printed and costed (explain,
 * bench simulate), and works for dummy models of any size. */
#ifndef VT_EXEC_DESCRIBE_H
#define VT_EXEC_DESCRIBE_H

#include "exec/program.h"

typedef struct vt_described {
    vt_program *program;
    struct vt_weights *weights;
    struct vt_cuda_weights *cuda_weights; /* instead of `weights` if the target is a GPU */
    vt_kv_cache kv;
} vt_described;

/* The target for describing a GPU program on a machine without one: an H200's number of
 * multiprocessors and shared memory, with cuBLASLt. */
vt_target vt_target_of_h200(const vt_limits *limits);

/* Builds the program of `m` for `target`; vt_described_release frees it. */
vt_status vt_describe(const vt_model *m, const vt_target *target, vt_dtype kv_dtype,
                      vt_described *out, vt_err *err);
void vt_described_release(vt_described *d);

#endif
