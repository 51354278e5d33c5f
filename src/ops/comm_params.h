/* A kernel that joins ranks knows this of its group (ops/comm.h, comm.cuh). The host's code and the
 * kernels include this file. */
#ifndef VT_OPS_COMM_PARAMS_H
#define VT_OPS_COMM_PARAMS_H

#ifndef VT_KERNEL
#include "ops/params_host.h"
#endif

enum {
    COMM_GPU_RANKS = 8, /* the most ranks on GPUs */
    COMM_CTAS = 64,     /* the most CTAs of a call: each has flags of its own */
    COMM_THREADS = 512,
    COMM_MEETINGS = 2 /* the most of a call */
};

/* *failed becomes this when rank `peer` did not come to call number `order`. */
#define comm_failure(peer, order) (((order) << 8) | ((peer) + 1))

typedef struct comm_params {
    uint32_t *flag[COMM_GPU_RANKS]; /* of each rank, in its memory: [COMM_CTAS][COMM_GPU_RANKS] */
    uint32_t *failed;               /* in host memory: 0, or what comm_failure made */
    const uint32_t *base;           /* of this step */
    uint64_t limit_ns;              /* how long a rank is waited for; 0: for ever */
    uint64_t *waited; /* of a stamped call: a word a meeting (stamp_params.h); NULL: none */
    uint32_t order, rank;
} comm_params;

#endif
