/* The CPU team: n workers that run the same function together (SPMD) and meet at barriers.
 *
 * Worker 0 is the caller of vt_team_run; the others are pinned threads. Between runs and at
 * barriers a worker spins for at most 20 us (VITRINE_SPIN_US), then sleeps on a futex, so that an
 * idle team costs no CPU time. */
#ifndef VT_BASE_TEAM_H
#define VT_BASE_TEAM_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/word.h"
#include "vitrine.h"

typedef struct vt_team vt_team;
typedef void (*vt_team_fn)(void *arg, int32_t worker);

/* Makes a team of n >= 1 workers. Its threads are pinned to the last n - 1 CPUs that this process
 * may use, if it has n of them; if it has more, to the last ones that no other process claimed. */
vt_status vt_team_new(int32_t n, vt_team **out, vt_err *err);

/* Where the workers of one of several teams sit. Seat 1 is the last of these CPUs, seat 2 the one
 * before it; worker i >= 1 gets seat first + i * step. */
typedef struct vt_team_seat {
    int32_t first, step;
    int32_t of; /* the workers of all teams: with fewer CPUs than these, no worker is pinned */
} vt_team_seat;
vt_status vt_team_new_at(int32_t n, const vt_team_seat *seat, vt_team **out, vt_err *err);
void vt_team_free(vt_team *t);
int32_t vt_team_size(const vt_team *t);

/* Calls fn(arg, w) on every worker w and returns when all calls have returned. Only one thread may
 * call this at a time. */
void vt_team_run(vt_team *t, vt_team_fn fn, void *arg);
/* Waits until all workers have called it. To be called only inside a run, by every worker the same
 * number of times. */
void vt_team_barrier(vt_team *t, int32_t worker);
/* The same; a worker that waits reads ahead meanwhile. */
void vt_team_barrier_ahead(vt_team *t, vt_ahead *ahead);

#endif
