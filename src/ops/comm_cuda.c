/* The rows for GPUs of ops that join ranks have this in common (ops/comm.h, comm.cuh). */
#include "ops/comm.h"

#include <assert.h>
#include <string.h>

#include "device/cuda/stamps.h"

enum { STAGE_ALIGN = 256, FLAG_BYTES = COMM_CTAS * COMM_GPU_RANKS * 4 };
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

size_t vt_comm_part_bytes(int32_t ranks, int32_t max_tokens, int32_t hidden)
{
    int64_t vectors = vt_ceil_div((int64_t)max_tokens * hidden, 8);
    return ranks > 2 ? (size_t)vt_ceil_div(vectors, ranks) * 16 : 0;
}

/* [ *failed | flags of each rank | parts of each rank | slot 0 of each rank | slot 1 ... ] */
size_t vt_comm_stage_bytes(const vt_comm_gpu *g, int32_t ranks, const size_t slot[VT_COMM_SLOTS])
{
    size_t of_rank = FLAG_BYTES + vt_round_up(g->part_bytes, STAGE_ALIGN);
    for (int32_t s = 0; s < VT_COMM_SLOTS; s++)
        of_rank += vt_round_up(slot[s], STAGE_ALIGN);
    return STAGE_ALIGN + (size_t)ranks * of_rank;
}

void vt_comm_stage_place(vt_comm_gpu *g, int32_t ranks, const size_t slot[VT_COMM_SLOTS],
                         void *block)
{
    char *at = (char *)block + STAGE_ALIGN;
    memset(block, 0, STAGE_ALIGN + (size_t)ranks * FLAG_BYTES);
    g->failed = block;
    for (int32_t r = 0; r < ranks; r++, at += FLAG_BYTES)
        g->flag[r] = (uint32_t *)(void *)at;
    for (int32_t r = 0; r < ranks; r++, at += vt_round_up(g->part_bytes, STAGE_ALIGN))
        g->part[r] = at;
    for (int32_t s = 0; s < VT_COMM_SLOTS; s++)
        for (int32_t r = 0; r < ranks; r++, at += vt_round_up(slot[s], STAGE_ALIGN))
            g->stage[s][r] = at;
}

void *vt_comm_sources(const vt_comm_rank *c, vt_comm_slot slot, const void *x[COMM_GPU_RANKS])
{
    const vt_comm *g = c->group;
    for (int32_t r = 0; r < g->n; r++)
        x[r] = g->gpu->staged && r != c->rank ? g->gpu->stage[slot][r] : g->buffer[slot][r]->data;
    return g->gpu->staged ? g->gpu->stage[slot][c->rank] : NULL;
}

void *vt_comm_inbox(const vt_comm_rank *c, int32_t r)
{
    const vt_comm_gpu *g = c->group->gpu;
    return g->staged ? NULL : (char *)g->part[r] + g->part_bytes;
}

static_assert(COMM_MEETINGS == STAMP_WAITS, "a meeting has a word for its wait");

comm_params vt_comm_params(const vt_comm_rank *c, unsigned order, const vt_lane *lane)
{
    const vt_comm_gpu *g = c->group->gpu;
    comm_params p = {.failed = g->failed,
                     .base = lane->plan,
                     .limit_ns = g->limit_ns,
                     .waited = cuda_stamps_waits(lane->cuda->stamps),
                     .order = order,
                     .rank = (uint32_t)c->rank};
    for (int32_t r = 0; r < c->group->n; r++)
        p.flag[r] = g->flag[r];
    return p;
}

vt_comm_limits vt_comm_limits_of(const vt_comm *c)
{
    return c->gpu->limits.when > 0 ? c->gpu->limits : vt_comm_fixed_limits(c->n);
}

uint32_t vt_comm_ctas(const vt_comm_rank *c, int64_t vectors)
{
    int64_t n = vt_ceil_div(vectors, COMM_THREADS),
            most = c->group->gpu->together ? CTAS_TOGETHER : COMM_CTAS;
    return (uint32_t)(n < 1 ? 1 : n < most ? n : most);
}
