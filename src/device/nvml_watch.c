/* Watching a GPU while it works (device/nvml.h).
 *
 *   launches   | | | | | | | |                     | | |
 *   samples    s    s    s    s    s  (sleeps)     s    s
 *              |<- EVERY_MS ->|
 *
 * The first sample comes EVERY_MS after the library was opened, so an engine that ends before has
 * none. The thread then samples every EVERY_MS, sleeps after a period in which no step was
 * launched, and samples at once when it is woken. Opening the library takes tens of milliseconds,
 * so the thread does it. Reading takes up to a millisecond, which is why steps do not read. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "device/nvml_inside.h"

enum {
    EVERY_MS = 500,         /* story/record/energy.c says this number */
    RING_SAMPLES = 1 << 12, /* half an hour of work, 256 KB */
    MOST_PROCESSES = 64
};

struct vt_nvml_watch {
    char place[32];
    vt_trace_ring samples;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool quit;             /* guarded by the lock */
    atomic_bool asleep;    /* set under the lock */
    atomic_ulong launched; /* steps */
    /* of the thread */
    nvml n;
    nvml_device device;
    unsigned long long seen_us; /* processes were last asked for at this time of theirs */
};

/* Returns what processes other than this one used of the GPU since the last call, in percent; -1:
 * not known. In a container the library tells the host's numbers for processes: a single one is
 * taken for this one, and of several it cannot be told which is. */
static int32_t others(vt_nvml_watch *w)
{
    nvml_process p[MOST_PROCESSES];
    unsigned n = MOST_PROCESSES, mine = 0, sum = 0;
    if (!w->n.processes || w->n.processes(w->device, p, &n, w->seen_us) != 0)
        return -1;
    for (unsigned i = 0; i < n && i < MOST_PROCESSES; i++) {
        w->seen_us = p[i].at_us > w->seen_us ? p[i].at_us : w->seen_us;
        if (p[i].pid == (unsigned)getpid())
            mine++;
        else
            sum += p[i].sm;
    }
    if (n <= 1 && mine == 0)
        return 0;
    return mine ? (int32_t)sum : -1;
}

static void look(vt_nvml_watch *w)
{
    vt_gpu_state s;
    unsigned long long energy = 0;
    nvml_read_state(&w->n, w->device, &s);
    bool metered = w->n.energy && w->n.energy(w->device, &energy) == 0;
    vt_machine_event e = {.at_ns = vt_now_ns(),
                          .pressure_us = -1,
                          .steal_ticks = -1,
                          .ticks = -1,
                          .energy_mj = metered ? (int64_t)energy : -1,
                          .throttle = s.throttle,
                          .sm_mhz = s.sm_mhz,
                          .memory_mhz = s.memory_mhz,
                          .power_mw = s.power_w < 0 ? -1 : (int32_t)(s.power_w * 1e3),
                          .others_percent = others(w)};
    vt_trace_machine(&w->samples, &e);
}

/* Waits for the next period, or, if nothing was launched in the last one, for a launch. False: the
 * watch is over. Lock held. */
static bool wait_for_period(vt_nvml_watch *w, unsigned long *seen)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += EVERY_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    for (int rc = 0; !w->quit && rc != ETIMEDOUT;)
        rc = pthread_cond_timedwait(&w->wake, &w->lock, &until);
    atomic_store(&w->asleep, true);
    while (!w->quit && atomic_load(&w->launched) == *seen)
        pthread_cond_wait(&w->wake, &w->lock);
    atomic_store(&w->asleep, false);
    *seen = atomic_load(&w->launched);
    return !w->quit;
}

static void *watch(void *arg)
{
    vt_nvml_watch *w = arg;
    unsigned long seen = 0;
    if (nvml_open(&w->n, NULL) != VT_OK || w->n.init() != 0)
        return NULL;
    bool found = w->n.by_pci(w->place, &w->device) == 0;
    pthread_mutex_lock(&w->lock);
    while (found && wait_for_period(w, &seen)) {
        pthread_mutex_unlock(&w->lock);
        look(w);
        pthread_mutex_lock(&w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    w->n.shutdown();
    return NULL;
}

vt_status vt_nvml_watch_new(int32_t ordinal, vt_nvml_watch **out, vt_err *err)
{
    vt_nvml_watch *w = vt_calloc(1, sizeof *w);
    if (!w)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for watching the GPU");
    vt_status status = vt_trace_init(&w->samples, sizeof(vt_machine_event), RING_SAMPLES, err);
    if (status != VT_OK || nvml_place(ordinal, w->place, sizeof w->place, NULL) != VT_OK) {
        vt_trace_release(&w->samples);
        free(w);
        return status;
    }
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&w->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&w->lock, NULL);
    if (pthread_create(&w->thread, NULL, watch, w) != 0) {
        pthread_cond_destroy(&w->wake);
        pthread_mutex_destroy(&w->lock);
        vt_trace_release(&w->samples);
        free(w);
        return vt_fail(err, VT_ERR_MEMORY, "a thread that watches the GPU could not be started");
    }
    *out = w;
    return VT_OK;
}

void vt_nvml_watch_free(vt_nvml_watch *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->quit = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    vt_trace_release(&w->samples);
    free(w);
}

/* The thread sets `asleep` before it looks at `launched`, so one of the two sees the other. */
void vt_nvml_watch_step(vt_nvml_watch *w)
{
    if (!w)
        return;
    atomic_fetch_add(&w->launched, 1);
    if (!atomic_load(&w->asleep))
        return;
    pthread_mutex_lock(&w->lock);
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
}

const vt_trace_ring *vt_nvml_watch_samples(const vt_nvml_watch *w)
{
    return w ? &w->samples : NULL;
}
