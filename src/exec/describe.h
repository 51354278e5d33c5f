/* A program that never runs: it is built from a model's description for some device, without
 * packing a weight or allocating a cache. It can be printed and costed (explain,
 * bench simulate), and works for dummy models of any size. */
#ifndef VT_EXEC_DESCRIBE_H
#define VT_EXEC_DESCRIBE_H

#include "device/hardware.h"
#include "exec/program.h"

typedef struct vt_described {
    vt_program *program;
    struct vt_weights *weights;
    struct vt_cuda_weights *cuda_weights; /* instead of `weights` if the target is a GPU */
    vt_kv_cache kv;
    vt_comm_rank comm; /* of a rank */
} vt_described;

/* The programs of all ranks of a group. On a CPU they are joined (vt_program.next_rank): what a
 * step of the first one costs is the cost of all, which share the CPU. */
typedef struct vt_described_ranks {
    int32_t n;
    vt_described *rank; /* [n] */
    vt_comm *comm;
    vt_comm_gpu gpu;
} vt_described_ranks;

/* The target for describing a program on hardware that need not be here. On a GPU cuBLASLt is
 * assumed to be installed. */
vt_target vt_target_named(const vt_hardware *h, const vt_limits *limits);

/* The target that an engine would have for `m` on GPU `ordinal` of this machine. It opens the GPU,
 * and cuBLASLt if the engine would. *library is then its version, such as 130100, or 0. */
vt_status vt_target_here(const vt_model *m, int32_t ordinal, const vt_limits *limits,
                         vt_target *out, size_t *library, vt_err *err);

/* Builds the program of `m` for `target`; vt_described_release frees it. */
vt_status vt_describe(const vt_model *m, const vt_target *target, vt_dtype kv_dtype,
                      vt_described *out, vt_err *err);
void vt_described_release(vt_described *d);

/* The same for each of `n` ranks, which have passed vt_ranks_check; on GPUs at most COMM_GPU_RANKS.
 * `whole_experts`: as in vt_rank. `staged`: GPUs meet through the host's memory.
 * vt_described_ranks_free frees *out. */
vt_status vt_describe_ranks(const vt_model *m, const vt_target *target, vt_dtype kv_dtype,
                            int32_t n, bool whole_experts, bool staged, vt_described_ranks **out,
                            vt_err *err);
void vt_described_ranks_free(vt_described_ranks *d);

#endif
