/* A program that is only looked at: built from a model's description for some device, without
 * packing a weight, allocating a cache or opening a device. It can be printed and costed (explain,
 * bench simulate), and works for dummy models of any size. */
#ifndef VT_EXEC_DESCRIBE_H
#define VT_EXEC_DESCRIBE_H

#include "exec/program.h"

typedef struct vt_described {
    vt_program *program;
    struct vt_weights *weights;
    struct vt_cuda_weights *cuda_weights; /* of a GPU's program */
    vt_kv_cache kv;
} vt_described;

/* A GPU that is not asked: an H200's multiprocessors and shared memory, cuBLASLt. */
vt_target vt_target_of_h200(const vt_limits *limits);

vt_status vt_describe(const vt_model *m, const vt_target *target, vt_dtype kv_dtype,
                      vt_described *out, vt_err *err);
void vt_described_release(vt_described *d);

#endif
