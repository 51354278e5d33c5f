/* A GPU's counters over time (device/cupti/pm.h), where options.lanes asks for it. An observer that
 * only notes when steps begin and end; a thread of its own takes the samples out of the hardware's
 * ring every PERIOD_MS and writes them into a trace ring, of which a story reads the newest.
 *
 *   steps    |--| |--|          |--|
 *   samples  ssssssssssssssssssssssssssssss     the hardware writes them all the time
 *   read     ssssssssss      ssssss             from the begin of a step to the end of the last one
 *
 * Reading a sample takes some tens of microseconds of a CPU, so those of an idle GPU are dropped
 * unread. If CUPTI fails, sampling ends, steps go on, and the story says why. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "device/cupti/pm.h"
#include "exec/cuda_inside.h"

enum {
    INTERVAL_NS = 200000, /* from one sample to the next */
    PERIOD_MS = 20,
    RING_SAMPLES = 1 << 17, /* 26 seconds of steps, 6 MB */
    PATIENCE = 5,           /* further drains until the newest step's samples are there */
    LIMIT_S = 3             /* a call of CUPTI that takes longer is taken to hang */
};

typedef struct cuda_pm {
    vt_observer base;
    cuda_executor *x;
    vt_trace_ring ring;
    vt_pm_set set; /* what is sampled */
    pthread_mutex_t lock;
    pthread_cond_t wake, answered;
    pthread_t thread;
    vt_pm *pm; /* the thread's; NULL: nothing is sampled */
    /* guarded by the lock */
    bool has_thread, quit, failed, ended;
    uint64_t n_asked, n_answered; /* that everything up to now shall be in the ring */
    char why_not[320];
    /* of the steps, written by the thread that runs them */
    atomic_int in_flight;
    _Atomic int64_t first_ns, last_ns; /* begin of the first since a drain (0: none); end of last */
    /* of the sampling thread */
    int64_t newest_ns; /* end of the newest sample */
    bool busy;         /* steps ran up to the last drain */
} cuda_pm;

static void note(void *user, const vt_pm_event *e)
{
    cuda_pm *p = user;
    p->newest_ns = e->end_ns;
    vt_trace_pm(&p->ring, e);
}

/* Takes out what was sampled while steps ran. */
static vt_status drain(cuda_pm *p, vt_err *err)
{
    int64_t first = atomic_exchange(&p->first_ns, 0);
    bool runs = atomic_load(&p->in_flight) > 0;
    int64_t last = atomic_load(&p->last_ns);
    int64_t from = p->busy ? 0 : first ? first : INT64_MAX, to = runs ? INT64_MAX : last;
    p->busy = runs;
    return vt_pm_drain(p->pm, from, to, note, p, err);
}

/* The moment `ms` from now. */
static struct timespec moment_in(int64_t ms)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += (long)(ms % 1000) * 1000000L;
    t.tv_sec += ms / 1000 + t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}

/* Waits for the next period or for somebody who asks. False: it is over. Lock held. */
static bool wait_for_period(cuda_pm *p)
{
    struct timespec until = moment_in(PERIOD_MS);
    int rc = 0;
    while (rc == 0 && !p->quit && p->n_asked == p->n_answered)
        rc = pthread_cond_timedwait(&p->wake, &p->lock, &until);
    return !p->quit;
}

/* Drains until the samples of the last step's end are there. */
static vt_status drain_all(cuda_pm *p, vt_err *err)
{
    TRY(drain(p, err));
    for (int i = 0; i < PATIENCE && p->newest_ns < atomic_load(&p->last_ns); i++) {
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
        p->busy = true;
        TRY(drain(p, err));
    }
    return VT_OK;
}

static void *sampling(void *arg)
{
    cuda_pm *p = arg;
    vt_err why = {0};
    vt_status status = VT_OK;
    pthread_mutex_lock(&p->lock);
    while (status == VT_OK && wait_for_period(p)) {
        uint64_t asked = p->n_asked;
        bool all = asked > p->n_answered;
        pthread_mutex_unlock(&p->lock);
        status = all ? drain_all(p, &why) : drain(p, &why);
        pthread_mutex_lock(&p->lock);
        p->n_answered = asked;
        pthread_cond_broadcast(&p->answered);
    }
    if (status != VT_OK) {
        p->failed = true;
        snprintf(p->why_not, sizeof p->why_not, "%.319s", why.message);
    }
    p->ended = true; /* nobody waits for it any more */
    pthread_cond_broadcast(&p->answered);
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* ---- the observer ---- */

static bool pm_begin(vt_observer *o, const vt_step *step)
{
    cuda_pm *p = (cuda_pm *)o;
    int64_t none = 0;
    (void)step;
    atomic_fetch_add(&p->in_flight, 1);
    atomic_compare_exchange_strong(&p->first_ns, &none, vt_now_ns());
    return false;
}

static vt_status pm_mark(vt_observer *o, vt_mark_kind kind, int64_t value, vt_err *err)
{
    (void)o, (void)kind, (void)value, (void)err;
    return VT_OK;
}

static vt_status pm_end(vt_observer *o, vt_step_result *view, vt_err *err)
{
    cuda_pm *p = (cuda_pm *)o;
    (void)view, (void)err;
    atomic_store(&p->last_ns, vt_now_ns());
    atomic_fetch_sub(&p->in_flight, 1);
    return VT_OK;
}

/* Waits until the thread has ended or answered `asked`. False: it hangs in CUPTI. Lock held. */
static bool wait_for_thread(cuda_pm *p, uint64_t asked)
{
    struct timespec until = moment_in(LIMIT_S * 1000);
    int rc = 0;
    pthread_cond_signal(&p->wake);
    while (rc == 0 && !p->ended && p->n_answered < asked)
        rc = pthread_cond_timedwait(&p->answered, &p->lock, &until);
    return p->ended || p->n_answered >= asked;
}

/* A thread that hangs in CUPTI is left behind with what it uses; sampling is over then. */
static void pm_release(vt_observer *o, bool live)
{
    cuda_pm *p = (cuda_pm *)o;
    bool ended = true;
    (void)live;
    if (p->has_thread) {
        pthread_mutex_lock(&p->lock);
        p->quit = true;
        ended = wait_for_thread(p, UINT64_MAX);
        pthread_mutex_unlock(&p->lock);
    }
    if (!ended)
        return;
    if (p->has_thread)
        pthread_join(p->thread, NULL);
    p->has_thread = false;
    vt_pm_close(p->pm);
    p->pm = NULL;
    atomic_store(&p->in_flight, 0);
}

static void pm_free(vt_observer *o)
{
    cuda_pm *p = (cuda_pm *)o;
    p->x->pm = NULL;
    if (p->has_thread)
        return;
    vt_trace_release(&p->ring);
    pthread_cond_destroy(&p->wake);
    pthread_cond_destroy(&p->answered);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

static vt_status start(cuda_pm *p, vt_err *err)
{
    int32_t other = cuda_shares_with(p->x);
    if (other >= 0)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "rank %d, on the same GPU, samples for both",
                       other);
    TRY(vt_pm_open(p->x->cuda, &p->pm, err));
    p->set = *vt_pm_sampled(p->pm);
    TRY(vt_pm_start(p->pm, INTERVAL_NS, err));
    p->quit = p->failed = p->ended = p->busy = false;
    p->n_asked = p->n_answered = 0;
    if (pthread_create(&p->thread, NULL, sampling, p) != 0)
        return vt_fail(err, VT_ERR_MEMORY, "a thread that samples the GPU could not be started");
    p->has_thread = true;
    return VT_OK;
}

/* A machine without counters runs models all the same. */
static vt_status pm_renew(vt_observer *o, vt_err *err)
{
    cuda_pm *p = (cuda_pm *)o;
    vt_err why = {0};
    (void)err;
    if (p->has_thread) /* left behind */
        return VT_OK;
    if (start(p, &why) != VT_OK) {
        snprintf(p->why_not, sizeof p->why_not, "%.319s", why.message);
        p->failed = true;
        vt_pm_close(p->pm);
        p->pm = NULL;
    }
    return VT_OK;
}

/* ---- what a story asks for ---- */

void cuda_pm_tell(const cuda_executor *x, vt_source *out)
{
    cuda_pm *p = x->pm;
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    if (p->has_thread && !p->failed) {
        bool answers = wait_for_thread(p, ++p->n_asked);
        if (!answers) {
            p->failed = true;
            snprintf(p->why_not, sizeof p->why_not, "CUPTI did not answer within %d s", LIMIT_S);
        }
    }
    out->pm = &p->ring;
    out->pm_set = &p->set;
    out->no_pm = p->failed ? p->why_not : NULL;
    pthread_mutex_unlock(&p->lock);
}

static vt_status make(cuda_pm *p, vt_err *err)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&p->wake, &monotonic);
    pthread_cond_init(&p->answered, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&p->lock, NULL);
    return vt_trace_init(&p->ring, sizeof(vt_pm_event), RING_SAMPLES, err);
}

vt_status cuda_pm_new(cuda_executor *x, vt_err *err)
{
    if (!x->options.lanes)
        return VT_OK;
    cuda_pm *p = vt_calloc(1, sizeof *p);
    if (!p)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for sampling a GPU");
    p->base = (vt_observer){.begin = pm_begin,
                            .mark = pm_mark,
                            .end = pm_end,
                            .release = pm_release,
                            .renew = pm_renew,
                            .free = pm_free};
    p->x = x;
    x->pm = p;
    x->observers.one[x->observers.n++] = &p->base;
    TRY(make(p, err));
    return pm_renew(&p->base, err);
}
