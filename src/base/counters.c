/* Hardware events of the calling thread (base/counters.h).
 *
 *   leader ── cycles         one read() of the leader gives the values of the whole group
 *     ├────── instructions   { n, enabled ns, running ns, (value, id) x n }
 *     └────── misses
 *
 * As a group they are counted at the same times, so instructions by cycles is a true quotient. */
#include "base/counters.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#if defined(__linux__)
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

enum {
    LAST_LEVEL_READ_MISS = PERF_COUNT_HW_CACHE_LL | PERF_COUNT_HW_CACHE_OP_READ << 8 |
                           PERF_COUNT_HW_CACHE_RESULT_MISS << 16
};

const vt_counter_kind vt_counter_kinds[VT_COUNTERS] = {
    [VT_COUNT_CYCLES] = {"cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES},
    [VT_COUNT_INSTRUCTIONS] = {"instructions", PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS},
    [VT_COUNT_MISSES] = {"cache misses", PERF_TYPE_HW_CACHE, LAST_LEVEL_READ_MISS}};

/* A counter of this thread on any CPU; -1 and errno: the kernel does not give it. */
static int open_one(const vt_counter_kind *k, int leader, uint64_t *id)
{
    struct perf_event_attr attr = {.type = k->type,
                                   .size = sizeof attr,
                                   .config = k->config,
                                   .read_format = PERF_FORMAT_GROUP | PERF_FORMAT_ID |
                                                  PERF_FORMAT_TOTAL_TIME_ENABLED |
                                                  PERF_FORMAT_TOTAL_TIME_RUNNING,
                                   .exclude_kernel = 1,
                                   .exclude_hv = 1};
    long fd = syscall(SYS_perf_event_open, &attr, 0, -1, leader,
                      (unsigned long)PERF_FLAG_FD_CLOEXEC);
    if (fd >= 0 && ioctl((int)fd, PERF_EVENT_IOC_ID, id) != 0) {
        int error = errno;
        close((int)fd);
        errno = error;
        return -1;
    }
    return (int)fd;
}
#else
const vt_counter_kind vt_counter_kinds[VT_COUNTERS] = {
    [VT_COUNT_CYCLES] = {"cycles", 0, 0},
    [VT_COUNT_INSTRUCTIONS] = {"instructions", 0, 0},
    [VT_COUNT_MISSES] = {"cache misses", 0, 0}};

static int open_one(const vt_counter_kind *k, int leader, uint64_t *id)
{
    (void)k, (void)leader, (void)id;
    errno = ENOSYS;
    return -1;
}
#endif

bool vt_counters_open(vt_counters *c, const vt_counter_kind *kind)
{
    *c = (vt_counters){.leader = -1};
    for (int i = 0; i < VT_COUNTERS; i++) {
        c->fd[i] = open_one(&kind[i], c->leader, &c->id[i]);
        c->error[i] = c->fd[i] < 0 ? errno : 0;
        c->leader = c->leader < 0 ? c->fd[i] : c->leader;
    }
    return c->leader >= 0;
}

void vt_counters_close(vt_counters *c)
{
    for (int i = 0; c->leader >= 0 && i < VT_COUNTERS; i++)
        if (c->fd[i] >= 0)
            close(c->fd[i]);
    c->leader = -1;
}

void vt_counters_read(const vt_counters *c, vt_counts *out)
{
    struct {
        uint64_t n, enabled_ns, running_ns;
        struct {
            uint64_t value, id;
        } of[VT_COUNTERS];
    } got;
    *out = (vt_counts){0};
    ssize_t n = c->leader >= 0 ? read(c->leader, &got, sizeof got) : -1;
    if (n < (ssize_t)(3 * sizeof(uint64_t)) || got.n > VT_COUNTERS)
        return;
    out->enabled_ns = got.enabled_ns;
    out->running_ns = got.running_ns;
    for (uint64_t k = 0; k < got.n; k++)
        for (int i = 0; i < VT_COUNTERS; i++)
            if (c->fd[i] >= 0 && c->id[i] == got.of[k].id) {
                out->value[i] = got.of[k].value;
                out->known |= 1u << i;
            }
}

bool vt_counts_grown(const vt_counts *from, const vt_counts *to, vt_counter c, uint64_t *out)
{
    uint64_t enabled = to->enabled_ns - from->enabled_ns,
             running = to->running_ns - from->running_ns;
    if (!(from->known & to->known & 1u << c) || to->running_ns <= from->running_ns ||
        to->value[c] < from->value[c])
        return false;
    uint64_t grown = to->value[c] - from->value[c];
    *out = enabled > running ? (uint64_t)((double)grown * (double)enabled / (double)running)
                             : grown;
    return true;
}
