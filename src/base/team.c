/* The CPU team: SPMD runs and barriers on pinned threads.
 *
 *   worker 0 = the caller       run():  generation++  ──> workers 1..n-1 leave their wait, call fn
 *                                       fn(arg, 0)         ... and count themselves done
 *                                       wait until done == n - 1
 *
 * Every wait spins on a 32-bit word for up to SPIN_NS, then sleeps on it with a futex. A waiter
 * announces itself in `sleepers` before it sleeps, so a waker that sees 0 there skips the system
 * call. While all workers spin, a barrier costs one atomic add and one store (about 0.2 us for 2
 * workers).
 *
 * The barrier is a counter and a phase word; the last worker to arrive resets the counter and
 * increments the phase. Pinning: worker i of 1..n-1 gets the i-th CPU from the end of the process's
 * set; worker 0 is the caller's thread and keeps its CPUs. If the team is larger than the set no
 * worker is pinned. */
#include "base/team.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"

enum { TEAM_MAX = 1024, SPIN_NS = 20000, SPINS_PER_CLOCK = 64 };

typedef struct team_word { /* a futex word and its number of sleepers, on their own cache line */
    _Alignas(VT_CACHE_LINE) atomic_uint value;
    atomic_int sleepers;
} team_word;

struct vt_team {
    int32_t n;
    team_word generation; /* incremented to start a run */
    team_word done;       /* incremented by each worker that finished the run */
    team_word phase;      /* incremented by the last worker to arrive at a barrier */
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
};

static void cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Returns once word->value != old. */
static void word_wait(team_word *word, unsigned old)
{
    int64_t deadline = vt_now_ns() + SPIN_NS;
    for (;;) {
        for (int i = 0; i < SPINS_PER_CLOCK; i++) {
            if (atomic_load_explicit(&word->value, memory_order_acquire) != old)
                return;
            cpu_relax();
        }
        if (vt_now_ns() > deadline)
            break;
    }
    atomic_fetch_add(&word->sleepers, 1);
    while (atomic_load(&word->value) == old)
        syscall(SYS_futex, &word->value, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
    atomic_fetch_sub(&word->sleepers, 1);
}

static void word_bump(team_word *word)
{
    atomic_fetch_add(&word->value, 1); /* sequentially consistent: before the read of `sleepers` */
    if (atomic_load(&word->sleepers) > 0)
        syscall(SYS_futex, &word->value, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void *team_main(void *p)
{
    struct team_thread *self = p;
    vt_team *t = self->team;
    for (unsigned seen = 0;; seen++) {
        word_wait(&t->generation, seen);
        if (t->quit)
            return NULL;
        t->fn(t->arg, self->worker);
        word_bump(&t->done);
    }
}

/* Pins worker 1 to the last CPU that this process may use, worker 2 to the one before it, and so
 * on. Does nothing if there are too few. */
static void team_pin(vt_team *t)
{
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < t->n)
        return;
    int cpu = CPU_SETSIZE - 1;
    for (int32_t i = 0; i < t->n_started; i++) {
        while (cpu > 0 && !CPU_ISSET(cpu, &allowed))
            cpu--;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpu--, &one);
        pthread_setaffinity_np(t->thread[i].thread, sizeof one,
                               &one); /* a hint: failure is no error */
    }
}

vt_status vt_team_new(int32_t n, vt_team **out, vt_err *err)
{
    if (n < 1 || n > TEAM_MAX)
        return vt_fail(err, VT_ERR_USAGE, "threads: %d is not in 1..%d", n, TEAM_MAX);
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
    team_pin(t);
    *out = t;
    return VT_OK;
}

void vt_team_free(vt_team *t)
{
    if (!t)
        return;
    t->quit = true;
    word_bump(&t->generation);
    for (int32_t i = 0; i < t->n_started; i++)
        pthread_join(t->thread[i].thread, NULL);
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
    word_bump(&t->generation);
    fn(arg, 0);
    for (unsigned seen; (seen = atomic_load(&t->done.value)) != target;)
        word_wait(&t->done, seen);
}

void vt_team_barrier(vt_team *t, int32_t worker)
{
    (void)worker;
    if (t->n == 1)
        return;
    unsigned phase = atomic_load_explicit(&t->phase.value, memory_order_acquire);
    if (atomic_fetch_add(&t->arrived, 1) == t->n - 1) {
        atomic_store(&t->arrived, 0);
        word_bump(&t->phase);
    } else {
        word_wait(&t->phase, phase);
    }
}
