/* Hardware events of the calling thread (base/counters.h).
 *
 *   leader ── cycles         one read() of the leader gives the values of the whole group
 *     ├────── instructions   { n, enabled ns, running ns, (value, id) x n }
 *     ├────── misses
 *     └────── AMX busy
 *   leader ── slots          another read()
 *     ├────── retiring
 *     └────── bad, front, back
 *
 * As a group they are counted at the same times, so instructions by cycles is a true quotient. The
 * kernel reads what became of slots as shares of them, so their group begins with slots. */
#include "base/counters.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define OF_SOME_CPUS                                                                             \
    [VT_COUNT_AMX] = {"AMX busy", VT_NO_EVENT, 0}, [VT_COUNT_SLOTS] = {"slots", VT_NO_EVENT, 0}, \
    [VT_COUNT_RETIRING] = {"slots that retired an instruction", VT_NO_EVENT, 0},                 \
    [VT_COUNT_BAD] = {"slots of instructions that were thrown away", VT_NO_EVENT, 0},            \
    [VT_COUNT_FRONT] = {"slots without an instruction", VT_NO_EVENT, 0},                         \
    [VT_COUNT_BACK] = {"slots whose instruction waited", VT_NO_EVENT, 0}

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
    [VT_COUNT_MISSES] = {"cache misses", PERF_TYPE_HW_CACHE, LAST_LEVEL_READ_MISS},
    OF_SOME_CPUS};

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
    [VT_COUNT_MISSES] = {"cache misses", 0, 0},
    OF_SOME_CPUS};

static int open_one(const vt_counter_kind *k, int leader, uint64_t *id)
{
    (void)k, (void)leader, (void)id;
    errno = ENOSYS;
    return -1;
}
#endif

static int group_of(int counter) { return counter >= VT_COUNT_SLOTS; }

/* Opens a counter into its group. The first that opens leads it; of slots none but themselves. */
static void open_counter(vt_counters *c, const vt_counter_kind *k, int i)
{
    int *leader = &c->leader[group_of(i)];
    bool led = i <= VT_COUNT_SLOTS || *leader >= 0;
    errno = ENOENT;
    c->fd[i] = k->type != VT_NO_EVENT && led ? open_one(k, *leader, &c->id[i]) : -1;
    c->error[i] = c->fd[i] < 0 ? errno : 0;
    *leader = *leader < 0 ? c->fd[i] : *leader;
}

bool vt_counters_open(vt_counters *c, const vt_counter_kind *kind)
{
    *c = (vt_counters){.leader = {-1, -1}};
    for (int i = 0; i < VT_COUNTERS; i++)
        open_counter(c, &kind[i], i);
    return c->leader[0] >= 0 || c->leader[1] >= 0;
}

void vt_counters_close(vt_counters *c)
{
    for (int i = 0; i < VT_COUNTERS; i++)
        if (c->leader[group_of(i)] >= 0 && c->fd[i] >= 0)
            close(c->fd[i]);
    c->leader[0] = c->leader[1] = -1;
}

static void read_group(const vt_counters *c, int group, vt_counts *out)
{
    struct {
        uint64_t n, enabled_ns, running_ns;
        struct {
            uint64_t value, id;
        } of[VT_COUNTERS];
    } got;
    ssize_t n = c->leader[group] >= 0 ? read(c->leader[group], &got, sizeof got) : -1;
    if (n < (ssize_t)(3 * sizeof(uint64_t)) || got.n > VT_COUNTERS)
        return;
    out->enabled_ns[group] = got.enabled_ns;
    out->running_ns[group] = got.running_ns;
    for (uint64_t k = 0; k < got.n; k++)
        for (int i = 0; i < VT_COUNTERS; i++)
            if (group_of(i) == group && c->fd[i] >= 0 && c->id[i] == got.of[k].id) {
                out->value[i] = got.of[k].value;
                out->known |= 1u << i;
            }
}

void vt_counters_read(const vt_counters *c, vt_counts *out)
{
    *out = (vt_counts){0};
    for (int g = 0; g < VT_COUNTER_GROUPS; g++)
        read_group(c, g, out);
}

bool vt_counts_grown(const vt_counts *from, const vt_counts *to, vt_counter c, uint64_t *out)
{
    int g = group_of((int)c);
    uint64_t enabled = to->enabled_ns[g] - from->enabled_ns[g],
             running = to->running_ns[g] - from->running_ns[g];
    if (!(from->known & to->known & 1u << c) || to->running_ns[g] <= from->running_ns[g] ||
        to->value[c] < from->value[c])
        return false;
    uint64_t grown = to->value[c] - from->value[c];
    *out = enabled > running ? (uint64_t)((double)grown * (double)enabled / (double)running)
                             : grown;
    return true;
}
