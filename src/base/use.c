/* Reading what the operating system gave a thread (base/use.h).
 *
 *   value                 from                                            a reading costs
 *   run delay             /proc/thread-self/schedstat, second number      0.6 us (one pread)
 *   CPU time              CLOCK_THREAD_CPUTIME_ID                         0.2 us
 *   switches and faults   getrusage(RUSAGE_THREAD)                        0.3 us
 *   CPU and node          getcpu                                          none
 *   hardware events       base/counters.h                                 1 us
 *
 * The first number of schedstat is CPU time too, but the kernel brings it up to date only at its
 * timer's ticks. */
#include "base/use.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

void vt_use_init(vt_use *u, const vt_counter_kind *kind)
{
    *u = (vt_use){.fd = -1, .kind = kind, .counters.leader = {-1, -1}};
}

void vt_use_release(vt_use *u)
{
    if (u->is_open && u->fd >= 0)
        close(u->fd);
    vt_counters_close(&u->counters);
    vt_use_init(u, u->kind);
}

/* The second number of "run delay slices"; -1: there is none. */
static int64_t read_delay(int fd)
{
    char text[64];
    ssize_t n = fd >= 0 ? pread(fd, text, sizeof text - 1, 0) : -1;
    if (n <= 0)
        return -1;
    text[n] = '\0';
    const char *second = strchr(text, ' ');
    return second ? strtoll(second, NULL, 10) : -1;
}

/* Reads everything for the calling thread. */
static void take(vt_use *u)
{
    struct timespec cpu = {0};
    struct rusage r = {0};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
    getrusage(RUSAGE_THREAD, &r);
    u->at_ns = vt_now_ns();
    u->cpu_ns = (int64_t)cpu.tv_sec * 1000000000 + cpu.tv_nsec;
    u->delay_ns = read_delay(u->fd);
    u->switches = r.ru_nivcsw;
    u->minor_faults = r.ru_minflt;
    u->major_faults = r.ru_majflt;
    u->is_placed = getcpu(&u->cpu, &u->node) == 0;
    vt_counters_read(&u->counters, &u->counts);
}

void vt_use_begin(vt_use *u, uint64_t step)
{
    if (u->is_open && pthread_equal(u->thread, pthread_self()))
        return;
    vt_use_release(u);
    u->fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    if (u->kind)
        vt_counters_open(&u->counters, u->kind);
    u->is_open = true;
    u->thread = pthread_self();
    take(u);
    u->step = step - 1;
}

static uint64_t grown(int64_t from, int64_t to, int bits)
{
    uint64_t most = ((uint64_t)1 << bits) - 1, d = to > from ? (uint64_t)(to - from) : 0;
    return d < most ? d : most;
}

void vt_use_end(vt_use *u, uint64_t step, vt_trace_ring *ring)
{
    int64_t now = vt_now_ns();
    if (u->fd < 0 || now - u->at_ns < VT_USE_EVERY_NS)
        return;
    vt_use before = *u;
    take(u);
    if (u->delay_ns < 0)
        return;
    uint64_t steps = step - before.step;
    vt_use_event e = {
        .step = step & (((uint64_t)1 << 48) - 1),
        .n_steps = (steps < UINT16_MAX ? steps : UINT16_MAX) & UINT16_MAX,
        .elapsed_ns = grown(before.at_ns, u->at_ns, 44),
        .switches = grown(before.switches, u->switches, 20) & 0xfffff,
        .cpu_ns = grown(before.cpu_ns, u->cpu_ns, 44),
        .minor_faults = grown(before.minor_faults, u->minor_faults, 20) & 0xfffff,
        .delay_ns = grown(before.delay_ns, u->delay_ns, 44),
        .major_faults = grown(before.major_faults, u->major_faults, 20) & 0xfffff,
        .placed = u->is_placed,
        .cpu = u->cpu & 0xfffff,
        .node = u->node & 0xfff,
    };
    for (int c = 0; c < VT_COUNTERS; c++)
        if (vt_counts_grown(&before.counts, &u->counts, (vt_counter)c, &e.count[c]))
            e.counted |= 1u << c & 0xffff;
    vt_trace_use(ring, &e);
    u->step = step;
}

/* The first bytes of a file, with a 0 behind them; "" where it cannot be read. */
static const char *read_head(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, out, size - 1) : 0;
    if (fd >= 0)
        close(fd);
    out[n > 0 ? n : 0] = '\0';
    return out;
}

void vt_use_machine(vt_machine_event *out)
{
    char text[512];
    long long v[8] = {0}, total = -1;
    *out = (vt_machine_event){.at_ns = vt_now_ns(),
                              .pressure_us = -1,
                              .steal_ticks = -1,
                              .ticks = -1,
                              .energy_mj = -1,
                              .throttle = -1,
                              .sm_mhz = -1,
                              .memory_mhz = -1,
                              .power_mw = -1,
                              .others_percent = -1};
    const char *some = strstr(read_head("/proc/pressure/cpu", text, sizeof text), "total=");
    if (some && sscanf(some, "total=%lld", &total) == 1)
        out->pressure_us = total;
    /* user nice system idle iowait irq softirq steal */
    if (sscanf(read_head("/proc/stat", text, sizeof text),
               "cpu %lld %lld %lld %lld %lld %lld %lld %lld", &v[0], &v[1], &v[2], &v[3], &v[4],
               &v[5], &v[6], &v[7]) == 8) {
        out->steal_ticks = v[7];
        out->ticks = 0;
        for (int i = 0; i < 8; i++)
            out->ticks += v[i];
    }
}
