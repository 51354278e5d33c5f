/* The CPU team: SPMD runs and barriers on pinned threads.
 *
 *   worker 0 = the caller       run():  generation++  ──> workers 1..n-1 leave their wait, call fn
 *                                       fn(arg, 0)         ... and count themselves done
 *                                       wait until done == n - 1
 *
 * Every wait is on a vt_word (base/word.h), which spins, yields and then sleeps. While all workers
 * spin, a barrier costs one atomic add and one store (about 0.2 us for 2 workers).
 *
 * The barrier is a counter and a phase word; the last worker to arrive resets the counter and
 * increments the phase. Pinning: worker i of 1..n-1 gets the i-th CPU from the end of the process's
 * set, or where several teams share the CPUs, the one that vt_team_seat names; worker 0 is the
 * caller's thread and keeps its CPUs. If there are more seats than CPUs no worker is pinned. Where
 * the process has more CPUs than seats, those that other processes claimed are left out
 * (base/claim/cpu_claim.h), and no worker is pinned if too few remain. */
#include "base/team.h"

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/claim/cpu_claim.h"
#include "base/err.h"
#include "base/knob.h"
#include "base/mem.h"
#include "base/word.h"

enum { TEAM_MAX = 1024 };

struct vt_team {
    int32_t n;
    vt_word generation; /* incremented to start a run */
    vt_word done;       /* incremented by each worker that finished the run */
    vt_word phase;      /* incremented by the last worker to arrive at a barrier */
    _Alignas(VT_CACHE_LINE) atomic_int arrived;
    _Alignas(VT_CACHE_LINE) vt_team_fn fn;
    void *arg;
    bool quit;
    struct team_thread {
        pthread_t thread;
        vt_team *team;
        int32_t worker;
    } * thread; /* [n - 1], thread i is worker i + 1 */
    int32_t n_started;
    int32_t *seat;     /* the CPUs of seats 1 and on; NULL: none is pinned */
    int32_t n_claimed; /* of these */
};

static void *team_main(void *p)
{
    struct team_thread *self = p;
    vt_team *t = self->team;
    for (unsigned seen = 0;; seen++) {
        vt_word_wait(&t->generation, seen);
        if (t->quit)
            return NULL;
        t->fn(t->arg, self->worker);
        vt_word_bump(&t->done);
    }
}

/* Finds the CPU of each seat but the first: cpu[0] is that of seat 1. False: there are too few. */
static bool find_seats(vt_team *t, const cpu_set_t *allowed, int32_t n, int32_t *cpu)
{
    int32_t found = 0;
    if (CPU_COUNT(allowed) > n + 1) {
        t->n_claimed = vt_cpu_claim(VT_CPU_CLAIMS, allowed, n, cpu);
        if (t->n_claimed == n)
            return true;
        vt_cpu_unclaim(cpu, t->n_claimed);
        t->n_claimed = 0;
        return false;
    }
    for (int32_t c = CPU_SETSIZE - 1; c >= 0 && found < n; c--)
        if (CPU_ISSET(c, allowed))
            cpu[found++] = c;
    return found == n;
}

/* Pins the threads. That is a hint: no failure is an error. */
static void team_pin(vt_team *t, const vt_team_seat *seat)
{
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < seat->of)
        return;
    t->seat = vt_calloc((size_t)seat->of, sizeof *t->seat);
    if (!t->seat || !find_seats(t, &allowed, seat->of - 1, t->seat))
        return;
    for (int32_t i = 0; i < t->n_started; i++) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(t->seat[seat->first + (i + 1) * seat->step - 1], &one);
        pthread_setaffinity_np(t->thread[i].thread, sizeof one, &one);
    }
}

vt_status vt_team_new(int32_t n, vt_team **out, vt_err *err)
{
    vt_team_seat seat = {.step = 1, .of = n};
    return vt_team_new_at(n, &seat, out, err);
}

vt_status vt_team_new_at(int32_t n, const vt_team_seat *seat, vt_team **out, vt_err *err)
{
    if (n < 1 || n > TEAM_MAX)
        return vt_fail(err, VT_ERR_USAGE, "threads: %d is not in 1..%d", n, TEAM_MAX);
    const vt_knob_row *spin = &vt_knobs[VT_KNOB_SPIN_US];
    TRY(vt_knob_check(spin, err));
    vt_word_spin(vt_knob_int(spin));
    vt_team *t = vt_aligned_alloc(VT_CACHE_LINE, vt_round_up(sizeof *t, VT_CACHE_LINE));
    if (!t)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a team of %d threads", n);
    *t = (vt_team){.n = n};
    t->thread = vt_calloc((size_t)n, sizeof *t->thread);
    if (!t->thread) {
        free(t);
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a team of %d threads", n);
    }
    for (int32_t i = 0; i < n - 1; i++) {
        t->thread[i] = (struct team_thread){.team = t, .worker = i + 1};
        int rc = pthread_create(&t->thread[i].thread, NULL, team_main, &t->thread[i]);
        if (rc != 0) {
            vt_team_free(t);
            return vt_fail(err, VT_ERR_MEMORY, "thread %d of %d could not be started (error %d)",
                           i + 2, n, rc);
        }
        t->n_started++;
    }
    team_pin(t, seat);
    *out = t;
    return VT_OK;
}

void vt_team_free(vt_team *t)
{
    if (!t)
        return;
    t->quit = true;
    vt_word_bump(&t->generation);
    for (int32_t i = 0; i < t->n_started; i++)
        pthread_join(t->thread[i].thread, NULL);
    vt_cpu_unclaim(t->seat, t->n_claimed);
    free(t->seat);
    free(t->thread);
    free(t);
}

int32_t vt_team_size(const vt_team *t) { return t->n; }

void vt_team_run(vt_team *t, vt_team_fn fn, void *arg)
{
    if (t->n == 1) {
        fn(arg, 0);
        return;
    }
    t->fn = fn;
    t->arg = arg;
    unsigned target = atomic_load(&t->done.value) + (unsigned)(t->n - 1);
    vt_word_bump(&t->generation);
    fn(arg, 0);
    for (unsigned seen; (seen = atomic_load(&t->done.value)) != target;)
        vt_word_wait(&t->done, seen);
}

void vt_team_barrier_ahead(vt_team *t, vt_ahead *ahead)
{
    if (t->n == 1)
        return;
    unsigned phase = atomic_load_explicit(&t->phase.value, memory_order_acquire);
    if (atomic_fetch_add(&t->arrived, 1) == t->n - 1) {
        atomic_store(&t->arrived, 0);
        vt_word_bump(&t->phase);
    } else {
        vt_word_wait_ahead(&t->phase, phase, ahead);
    }
}

void vt_team_barrier(vt_team *t, int32_t worker)
{
    (void)worker;
    vt_ahead nothing = {.n = 0};
    vt_team_barrier_ahead(t, &nothing);
}
