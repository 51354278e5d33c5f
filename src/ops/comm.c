/* Groups of ranks and their meetings (ops/comm.h). */
#include "ops/comm.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/err.h"

vt_status vt_comm_new(int32_t n, vt_comm **out, vt_err *err)
{
    if (n < 1 || n > VT_MAX_RANKS)
        return vt_fail(err, VT_ERR_USAGE, "tp is %d, expected 1 to %d", n, VT_MAX_RANKS);
    vt_comm *c = vt_calloc(1, sizeof *c);
    vt_word *flag = vt_aligned_alloc(VT_CACHE_LINE, (size_t)n * sizeof *flag);
    if (!c || !flag) {
        free(c);
        free(flag);
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a group of %d ranks", n);
    }
    for (int32_t r = 0; r < n; r++)
        flag[r] = (vt_word){0};
    *c = (vt_comm){.n = n, .flag = flag, .failed = -1};
    *out = c;
    return VT_OK;
}

void vt_comm_free(vt_comm *c)
{
    if (!c)
        return;
    free(c->flag);
    free(c);
}

void vt_comm_fail(vt_comm *c, int32_t rank)
{
    int none = -1;
    atomic_compare_exchange_strong(&c->failed, &none, rank);
}

bool vt_comm_meet(const vt_comm_rank *c, unsigned k, const vt_lane *lane)
{
    vt_comm *g = c->group;
    unsigned target = c->base + k;
    bool all = true, there = true;
    if (lane->worker == 0 && !vt_word_reached(&g->flag[c->rank], target))
        vt_word_set(&g->flag[c->rank], target);
    for (int32_t r = 0; r < g->n && there; r++)
        there = vt_word_reached(&g->flag[r], target);
    if (there) /* no wait: no look at the clock */
        return true;
    int64_t begin = lane->waited_ns ? vt_now_ns() : 0;
    for (int32_t r = 0; r < g->n && all; r++)
        all = r == c->rank || vt_word_reach(&g->flag[r], target, &g->failed);
    if (lane->waited_ns)
        *lane->waited_ns += vt_now_ns() - begin;
    return all;
}

vt_comm_rank *case_comm(vt_arena *arena, int32_t rank, int32_t n)
{
    vt_comm_rank *c = vt_arena_alloc(arena, 1, sizeof *c);
    vt_comm *g = vt_arena_alloc(arena, 1, sizeof *g);
    char *flags = vt_arena_alloc(arena, (size_t)n * sizeof(vt_word) + VT_CACHE_LINE, 1);
    if (!c || !g || !flags)
        return NULL;
    flags += -(uintptr_t)flags % VT_CACHE_LINE;
    *g = (vt_comm){.n = n, .flag = (vt_word *)flags, .failed = -1};
    for (int32_t r = 0; r < n; r++)
        atomic_init(&g->flag[r].value, INT32_MAX);
    *c = (vt_comm_rank){.group = g, .rank = rank};
    return c;
}
