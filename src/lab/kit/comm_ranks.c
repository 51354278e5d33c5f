/* Measuring all-reduces between ranks (comm_ranks.h). */
#include "lab/kit/comm_ranks.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "ops/all_gather/all_gather.h"
#include "ops/all_reduce/all_reduce.h"
#include "ops/reduce_scatter/reduce_scatter.h"

void lab_comm_open(const lab *l, int32_t n, lab_comm *c)
{
    vt_err err = {0};
    int32_t gpu[COMM_GPU_RANKS];
    *c = (lab_comm){.repetitions = l->quick ? 5 : 20};
    if (l->emulated) {
        snprintf(c->why, sizeof c->why, "times mean nothing on an emulated GPU");
    } else if (l->ordinal < 0 && l->threads < n) {
        snprintf(c->why, sizeof c->why,
                 "%d ranks need a core each, and this lab has %d thread%s (--threads)", n,
                 l->threads, l->threads == 1 ? "" : "s");
    } else if (l->ordinal < 0) {
        c->n = n;
    } else {
        for (int32_t r = 0; r < COMM_GPU_RANKS; r++)
            gpu[r] = r;
        if (comm_gpus_open(gpu, n, "auto", &c->gpus, &err) == VT_OK) {
            c->n = n;
            c->nccl = comm_gpus_add_nccl(c->gpus, &err) == VT_OK;
        } else {
            snprintf(c->why, sizeof c->why, "%s", err.message);
        }
    }
}

void lab_comm_close(lab_comm *c)
{
    comm_gpus_close(c->gpus);
    *c = (lab_comm){0};
}

bool lab_comm_sum(const lab_comm *c, const char *row, double bytes, comm_how how, comm_result *out)
{
    vt_err err;
    bool nccl = row && strcmp(row, "nccl") == 0;
    int64_t each = c->gpus ? 2 : 4;
    if (c->n == 0 || (nccl && !c->nccl) || (how == COMM_PLAIN && !nccl))
        return false;
    if (c->gpus) {
        comm_ask ask = {.op = &all_reduce_op,
                        .row = nccl ? NULL : row,
                        .nccl = nccl,
                        .rows = 1,
                        .n = (int64_t)bytes / each,
                        .how = how,
                        .repetitions = c->repetitions};
        return comm_gpus_run(c->gpus, &ask, out, &err) == VT_OK;
    }
    /* ranks of a CPU have one row for all sizes */
    return !row && comm_bench(&all_reduce_op, c->n, (int64_t)bytes / each, how, c->repetitions, out,
                              &err) == VT_OK;
}

/* Logits, which all_gather joins, are fp32 everywhere. */
static bool time_op(const lab_comm *c, const vt_op *op, double bytes, comm_result *out)
{
    vt_err err;
    int64_t n = (int64_t)bytes / (c->gpus && op != &all_gather_op ? 2 : 4);
    if (c->gpus) {
        comm_ask ask = {.op = op, .rows = 1, .n = n, .repetitions = c->repetitions};
        return comm_gpus_run(c->gpus, &ask, out, &err) == VT_OK;
    }
    return comm_bench(op, c->n, n, COMM_REGISTERED, c->repetitions, out, &err) == VT_OK;
}

bool lab_comm_halves(const lab_comm *c, double bytes, comm_result *out)
{
    comm_result scatter, gather;
    if (c->n == 0 || !time_op(c, &reduce_scatter_op, bytes, &scatter) ||
        !time_op(c, &all_gather_op, bytes, &gather))
        return false;
    bool waits = scatter.wait_ns >= 0 && gather.wait_ns >= 0;
    *out = scatter;
    out->row = "in halves";
    out->median_ns += gather.median_ns;
    out->best_ns += gather.best_ns;
    out->wait_ns = waits ? scatter.wait_ns + gather.wait_ns : -1;
    return true;
}
