/* Communication ops on GPUs outside an executor, a rank a GPU: for `vitrine bench comm` and tests.
 *
 * A run makes random buffers, calls the op's row on all ranks, compares every rank's result with
 * the reference and with the others' bits, and times a graph of many calls. */
#ifndef VT_OPS_BENCH_COMM_GPUS_H
#define VT_OPS_BENCH_COMM_GPUS_H

#include "device/cuda/cuda.h"
#include "ops/comm.h"
#include "ops/bench/comm_bench.h"

/* How far a sum in BF16 may be from the reference, as a card's tolerance counts. */
#define COMM_BF16_TOLERANCE 0.01

typedef struct comm_gpus comm_gpus;

/* Opens a GPU for each rank; a number may come twice. `link` is a value of option tp-link. */
vt_status comm_gpus_open(const int32_t *gpu, int32_t n, const char *link, comm_gpus **out,
                         vt_err *err);
const char *comm_gpus_link(const comm_gpus *g); /* p2p or host */
void comm_gpus_close(comm_gpus *g);
const char *comm_gpus_name(const comm_gpus *g); /* of the first one */
/* The limits of the forms of its sums: an engine's, as far as times are kept. */
vt_comm_limits comm_gpus_limits(const comm_gpus *g);
/* Makes NCCL's communicators beside. VT_ERR_UNSUPPORTED: it is not here, or takes no such ranks. */
vt_status comm_gpus_add_nccl(comm_gpus *g, vt_err *err);
const char *comm_gpus_nccl(const comm_gpus *g); /* its version; NULL: not added */

typedef struct comm_ask {
    const vt_op *op;
    const char *row; /* NULL: the one that a program takes */
    bool nccl;       /* NCCL in place of a row: one row of values, no residual */
    int64_t rows, n; /* of the result */
    bool residual;   /* of sums of whole rows */
    comm_how how;
    int32_t repetitions; /* of the timing; 0: none */
    bool unchecked;      /* timed alone: on zeros, without waits */
} comm_ask;

vt_status comm_gpus_run(comm_gpus *g, const comm_ask *ask, comm_result *out, vt_err *err);

#endif
