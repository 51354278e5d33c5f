/* The rows for GPUs of ops that join ranks have this in common (ops/comm.h, comm.cuh). */
#include "ops/comm.h"

enum { CTAS_TOGETHER = 16 }; /* of a rank that shares its GPU: COMM_GPU_RANKS of them fit */

int32_t vt_comm_plan_items(const void *args, const vt_target *t, const vt_size *size,
                           const vt_batch *batch)
{
    (void)args, (void)t, (void)size, (void)batch;
    return 1;
}

size_t vt_comm_plan_bytes(const void *args, const vt_target *t, const vt_size *size, int32_t items)
{
    (void)args, (void)t, (void)size;
    return (size_t)items * sizeof(uint32_t);
}

int32_t vt_comm_plan_fill(const void *args, const vt_target *t, const vt_size *size,
                          const vt_batch *batch, int32_t items, void *out, void *side)
{
    (void)t, (void)size, (void)batch, (void)items, (void)side;
    const vt_comm_rank *c = *(const vt_comm_rank *const *)args;
    *(uint32_t *)out = c->base;
    return 1;
}

comm_params vt_comm_params(const vt_comm_rank *c, unsigned order, const vt_lane *lane)
{
    const vt_comm_gpu *g = c->group->gpu;
    comm_params p = {.failed = g->failed,
                     .base = lane->plan,
                     .limit_ns = g->limit_ns,
                     .order = order,
                     .rank = (uint32_t)c->rank};
    for (int32_t r = 0; r < c->group->n; r++)
        p.flag[r] = g->flag[r];
    return p;
}

uint32_t vt_comm_ctas(const vt_comm_rank *c, int64_t vectors)
{
    int64_t n = vt_ceil_div(vectors, COMM_THREADS),
            most = c->group->gpu->together ? CTAS_TOGETHER : COMM_CTAS;
    return (uint32_t)(n < 1 ? 1 : n < most ? n : most);
}
