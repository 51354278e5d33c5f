/* The CUDA executor (exec/executor.h) and its options. */
#ifndef VT_EXEC_CUDA_H
#define VT_EXEC_CUDA_H

#include "device/cuda/cuda.h"
#include "exec/executor.h"

typedef struct vt_cuda_options {
    int32_t ordinal;
    int32_t n_ranks;             /* of a tensor-parallel group (docs/ranks.md); 0 counts as 1 */
    bool whole_experts;          /* ranks divide the experts (vt_rank) */
    int32_t gpu[COMM_GPU_RANKS]; /* [n_ranks] the GPU of each rank; gpu[0] is `ordinal` */
    bool staged;                 /* ranks meet through the host's memory (vt_comm_gpu.staged) */
    bool graphs;                 /* steps of up to 1,024 tokens as graphs */
    bool pdl;
    bool one_graph;     /* sampling joined to the forward pass */
    bool brief;         /* one sequence runs at a time: cuBLASLt is not worth opening at level 90 */
    bool deterministic; /* a row's result does not depend on what else is in the batch */
    bool untimed;       /* no step runs call by call to be timed (exec/cuda_spans.c) */
    bool story;         /* a story of the first steps was asked for: more of them are timed */
    bool stamps;        /* timed steps have stamped kernels, where the GPU's timer is fine enough */
    bool ctas;          /* all CTAs of a step of each kind are stamped (exec/cuda_stamped.c) */
    bool counters;      /* hardware counters of some steps are read (exec/cuda_vitals.c) */
    bool lanes;         /* those of the whole GPU are sampled over time (exec/cuda_pm.c) */
    bool activity;      /* CUPTI records the kernels of some steps (exec/cuda_activity.c) */
    bool lines;         /* the program counter is sampled in some steps (exec/cuda_lines.c) */
    /* Opened by vt_executor_cuda_open; vt_executor_cuda_new owns it, also if it fails. NULL: it
     * opens the GPU itself. */
    vt_cuda *device;
    vt_cuda *peer[COMM_GPU_RANKS]; /* those of ranks 1 on, likewise */
    double open_ms;                /* what opening them took */
} vt_cuda_options;

/* Graphs and PDL, as far as the knobs (base/knob.h) say nothing else; not
 * deterministic. */
void vt_cuda_options_init(vt_cuda_options *o);
/* Closes the devices that nobody has taken over. */
void vt_cuda_options_close(vt_cuda_options *o);

struct vt_layout;

/* The target of programs for this GPU, without the user's choice of rows. `library`: cuBLASLt is
 * there and may be used. */
vt_target vt_target_cuda(const vt_cuda *c, const vt_cuda_options *o, bool library,
                         const vt_limits *limits);
/* Returns true if an executor of a model with this layout uses cuBLASLt, if it is installed. */
bool vt_cuda_may_use_library(const vt_cuda *c, const vt_cuda_options *o,
                             const struct vt_layout *layout);

/* Opens GPU o->ordinal for this model, or the GPUs of all ranks; o->device, o->peer and o->open_ms
 * are set. Making a context takes a tenth of a second or more, so what is asked before the executor
 * is made shares it. */
vt_status vt_executor_cuda_open(const vt_model *m, vt_cuda_options *o, vt_err *err);
/* Sets o->staged as option tp-link says (auto, p2p, host), for GPUs that are open. *from and *to:
 * two GPUs because of which auto takes the host; else -1. */
vt_status vt_executor_cuda_link(vt_cuda_options *o, const char *link, int32_t *from, int32_t *to,
                                vt_err *err);
/* KV bytes, of all ranks, that fit beside the weights: 90 % of the free memory less weights and
 * workspaces. */
vt_status vt_executor_cuda_kv_bytes(const vt_model *m, const vt_cuda_options *o,
                                    int32_t max_context, int64_t *bytes, vt_err *err);
/* An error if the GPUs, were they empty, could not hold the weights and this much KV. */
vt_status vt_executor_cuda_check_kv_bytes(const vt_model *m, const vt_cuda_options *o,
                                          int32_t max_context, int64_t bytes, vt_err *err);
/* An error for a KV type that no CUDA kernel reads. */
vt_status vt_executor_cuda_check_kv(vt_dtype kv_dtype, vt_err *err);
vt_status vt_executor_cuda_new(const vt_model *m, const vt_executor_config *config,
                               const vt_cuda_options *options, vt_executor **out, vt_err *err);

/* Names every kernel that this model can need on `level` for `arch`, without a device; `stamps`:
 * and their stamped twins. The JIT belongs to the caller. For tests and for making bundles. */
vt_status vt_executor_cuda_collect(const vt_model *m, const vt_limits *limits, vt_dtype kv_dtype,
                                   const char *arch, int32_t level, bool stamps, vt_cuda **out,
                                   vt_err *err);

#endif
