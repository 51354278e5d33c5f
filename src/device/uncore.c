/* Reading memory controllers (device/uncore.h).
 *
 *   /sys/bus/event_source/devices/uncore_imc_0/type                        24
 *                                              cpumask                     0,32
 *                                              format/event                config:0-7
 *                                              events/cas_count_read       event=0x04,umask=0x03
 *                                              events/cas_count_read.scale 6.103515625e-5
 *                                              events/cas_count_read.unit  MiB
 *
 * The kernel names the events, so this file knows no event's number. Some CPUs have free-running
 * counters of the same controllers as well (uncore_imc_free_running_0); these are taken only where
 * there are no others. AMD's kernels name no such events (amd_umc, amd_df). */
#include "device/uncore.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/events.h"

#if defined(__linux__)
#include <linux/perf_event.h>
#include <sys/syscall.h>

static int open_counter(uint32_t type, uint64_t config, int cpu)
{
    struct perf_event_attr attr = {.type = type, .size = sizeof attr, .config = config};
    return (int)syscall(SYS_perf_event_open, &attr, -1, cpu, -1,
                        (unsigned long)PERF_FLAG_FD_CLOEXEC);
}
#else
static int open_counter(uint32_t type, uint64_t config, int cpu)
{
    (void)type, (void)config, (void)cpu;
    errno = ENOSYS;
    return -1;
}
#endif

enum { PATH = 512, TEXT = VT_EVENT_TEXT, MOST_CPUS = 4096 };

static const char folder[] = "sys/bus/event_source/devices";

static bool says_why(vt_uncore *u, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static bool says_why(vt_uncore *u, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(u->why, sizeof u->why, fmt, args);
    va_end(args);
    return false;
}

/* Opens one event of a controller on each CPU of its list, "0,32" or "0-1": one a socket. */
static bool open_event(const char *root, const char *device, const char *event, bool writes,
                       vt_uncore_opener *opener, vt_uncore *u)
{
    char file[TEXT], text[TEXT], cpus[TEXT];
    uint64_t config;
    snprintf(file, sizeof file, "events/%s.unit", event);
    if (!vt_event_line(root, device, file, text) || strcmp(text, "MiB") != 0)
        return says_why(u, "%.60s: the unit of %.30s is not MiB", device, event);
    snprintf(file, sizeof file, "events/%s.scale", event);
    double scale = vt_event_line(root, device, file, text) ? strtod(text, NULL) : 0;
    snprintf(file, sizeof file, "events/%s", event);
    if (!(scale > 0 && scale < 1e6) || !vt_event_line(root, device, file, text) ||
        !vt_event_config(root, device, text, &config))
        return says_why(u, "%.60s: %.30s is not an event of the form that is known", device, event);
    if (!vt_event_line(root, device, "type", text) || !vt_event_line(root, device, "cpumask", cpus))
        return says_why(u, "%.60s: the kernel does not name its type or its CPUs", device);
    uint32_t type = (uint32_t)strtoul(text, NULL, 10);
    for (char *at = cpus; *at;) {
        char *end;
        unsigned long cpu = strtoul(at, &end, 10), last = cpu;
        if (end != at && *end == '-')
            last = strtoul(end + 1, &end, 10);
        if (end == at || last < cpu || last >= MOST_CPUS || (*end && *end != ','))
            return says_why(u, "%.60s: its list of CPUs is %.60s", device, cpus);
        for (; cpu <= last; cpu++) {
            if (u->n == VT_UNCORE_COUNTERS)
                return says_why(u, "more than %d counters of memory controllers",
                                VT_UNCORE_COUNTERS);
            int fd = opener(type, config, (int)cpu);
            if (fd < 0)
                return says_why(u, "%.60s: %s", device, strerror(errno));
            u->fd[u->n] = fd;
            u->bytes[u->n] = scale * (1 << 20);
            u->writes[u->n++] = writes;
            u->n_controllers += !writes;
        }
        at = *end ? end + 1 : end;
    }
    return true;
}

static bool has_event(const char *root, const char *device, const char *event)
{
    char path[PATH];
    int n = snprintf(path, sizeof path, "%s/%s/%s/events/%s", root, folder, device, event);
    return n < (int)sizeof path && access(path, R_OK) == 0;
}

/* Opens a controller's two events. */
static bool open_controller(const char *root, const char *device, vt_uncore_opener *opener,
                            vt_uncore *u)
{
    static const char *const pair[][2] = {{"cas_count_read", "cas_count_write"},
                                          {"data_reads", "data_writes"},
                                          {"data_read", "data_write"},
                                          {"read", "write"}};
    for (size_t i = 0; i < sizeof pair / sizeof *pair; i++)
        if (has_event(root, device, pair[i][0]) && has_event(root, device, pair[i][1]))
            return open_event(root, device, pair[i][0], false, opener, u) &&
                   open_event(root, device, pair[i][1], true, opener, u);
    return says_why(u, "%.60s: the kernel names no events of bytes read and written", device);
}

/* Opens all controllers of a kind. False: there are some, and they cannot be read. */
static bool open_kind(const char *root, bool free_running, vt_uncore_opener *opener, vt_uncore *u)
{
    char path[PATH];
    snprintf(path, sizeof path, "%s/%s", root, folder);
    DIR *d = opendir(path);
    const struct dirent *e;
    bool good = true;
    while (d && good && (e = readdir(d)))
        if (strncmp(e->d_name, "uncore_imc", 10) == 0 &&
            (strstr(e->d_name, "free_running") != NULL) == free_running)
            good = open_controller(root, e->d_name, opener, u);
    if (d)
        closedir(d);
    return good;
}

void vt_uncore_open(const char *root, vt_uncore_opener *opener, vt_uncore *u)
{
    *u = (vt_uncore){0};
    opener = opener ? opener : open_counter;
    bool good = open_kind(root, false, opener, u);
    if (good && u->n == 0)
        good = open_kind(root, true, opener, u);
    if (!good)
        vt_uncore_close(u);
    else if (u->n == 0)
        says_why(u, "the kernel names no memory controller among its event devices");
}

void vt_uncore_close(vt_uncore *u)
{
    for (int32_t i = 0; i < u->n; i++)
        close(u->fd[i]);
    u->n = u->n_controllers = 0;
}

bool vt_uncore_read(const vt_uncore *u, int64_t *read_bytes, int64_t *written_bytes)
{
    double sum[2] = {0};
    for (int32_t i = 0; i < u->n; i++) {
        uint64_t count;
        if (read(u->fd[i], &count, sizeof count) != (ssize_t)sizeof count)
            return false;
        sum[u->writes[i]] += (double)count * u->bytes[i];
    }
    *read_bytes = (int64_t)sum[0];
    *written_bytes = (int64_t)sum[1];
    return u->n > 0 && sum[0] < 9e18 && sum[1] < 9e18;
}
