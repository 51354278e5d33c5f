/* Times communication ops on real ranks of the CPU: a thread a rank, each with buffers of its own.
 *
 * Every rank calls the row many times in a row, with two alternating buffers, as a step does.
 * Before each call it writes its buffer anew, as a product would, so the bytes that peers read come
 * from its caches. The time of a call is that of rank 0, its meeting included. */
#ifndef VT_OPS_BENCH_COMM_BENCH_H
#define VT_OPS_BENCH_COMM_BENCH_H

#include "ops/op.h"

typedef enum comm_how {
    COMM_REGISTERED, /* peers read where the data was made */
    COMM_COPIED,     /* made elsewhere: the copy into the registered buffer belongs to the call */
    COMM_PLAIN,      /* of NCCL alone: buffers that the library was not told of */
    COMM_HOWS
} comm_how;

extern const char *const comm_how_name[COMM_HOWS];

typedef struct comm_result {
    const char *row;       /* of the op's card, or "nccl" */
    int64_t message_bytes; /* of a rank's buffer */
    int64_t moved_bytes;   /* that a rank reads and writes, copies too */
    int64_t best_ns, median_ns;
    int64_t wait_ns; /* of a call, in which rank 0 waited for its peers, in runs of its own; -1:
                        not known (NCCL, and GPUs whose kernels cannot be stamped) */
    double noise;    /* vt_noise of the repetitions */
    double error;    /* the largest difference from the reference, as the card's tolerance counts */
    bool agree;      /* all ranks have the same bits; of parts: the bits of the sum in order */
    uint64_t bits;   /* on GPUs: of rank 0's result; results with the same bits have the same */
    int64_t register_ns; /* NCCL: to register a buffer of all ranks, once; else 0 */
} comm_result;

/* Columns of a result of n values: norms are of rows as wide as a model's. */
int64_t comm_columns(const vt_op *op, int64_t n);

/* Runs an op that joins ranks on `n` fp32 values a rank. `all_gather`: n values are those of all
 * ranks together. */
vt_status comm_bench(const vt_op *op, int32_t ranks, int64_t n, comm_how how, int32_t repetitions,
                     comm_result *out, vt_err *err);

#endif
