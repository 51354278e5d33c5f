/* Finds out what can be observed on this machine (device/probe.h). Everything is tried out: a file
 * may exist and still not load, and a kernel with perf events may refuse them to a guest. */
#include "device/probe.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/events.h"

/* The number in a file that has nothing else; -1: there is none. */
static int read_number(const char *root, const char *path)
{
    char name[512];
    int v = -1;
    snprintf(name, sizeof name, "%s%s", root, path);
    FILE *f = fopen(name, "r");
    if (f && fscanf(f, "%d", &v) != 1)
        v = -1;
    if (f)
        fclose(f);
    return v;
}

void vt_probe_perf_reason(const char *root, int error, char *why, size_t size)
{
    enum { MOST = 2 }; /* of perf_event_paranoid, with which a process may count its own events */
    int paranoid = read_number(root, "/proc/sys/kernel/perf_event_paranoid");
    if (error == ENOENT || error == EOPNOTSUPP || error == ENODEV)
        snprintf(why, size, "this machine gives no hardware events to a guest (tier T0)");
    else if ((error == EACCES || error == EPERM) && paranoid > MOST)
        snprintf(why, size,
                 "the kernel does not allow it: kernel.perf_event_paranoid is %d, %d or less is "
                 "needed (tier T0)",
                 paranoid, MOST);
    else if (error == EACCES || error == EPERM)
        snprintf(why, size,
                 "perf_event_open is refused, as by a container's seccomp filter "
                 "(kernel.perf_event_paranoid is %d, which allows it; tier T0)",
                 paranoid);
    else if (error == ENOSYS)
        snprintf(why, size, "no perf events on this system (tier T0)");
    else
        snprintf(why, size, "perf_event_open: %s (tier T0)", strerror(error));
}

bool vt_probe_counter(vt_counter which, char *why, size_t size)
{
    vt_counters c;
    vt_counts from, to;
    vt_counter_kind kind[VT_COUNTERS];
    uint64_t grown = 0;
    vt_cpu_events("", kind);
    vt_counters_open(&c, kind);
    int error = c.error[which];
    bool some = c.leader[0] >= 0;
    vt_counters_read(&c, &from);
    for (volatile int i = 0; i < 10000; i++)
        ;
    vt_counters_read(&c, &to);
    bool counts = vt_counts_grown(&from, &to, which, &grown) &&
                  (grown > 0 || which == VT_COUNT_MISSES || which == VT_COUNT_AMX ||
                   which > VT_COUNT_SLOTS);
    vt_counters_close(&c);
    if (counts)
        return true;
    if (error == 0)
        snprintf(why, size, "the hardware counters of this machine stand still (tier T0)");
    else if (some)
        snprintf(why, size, "this CPU has no event for %s (%s)", vt_counter_kinds[which].name,
                 strerror(error));
    else
        vt_probe_perf_reason("", error, why, size);
    return false;
}

bool vt_probe_perf_events(char *why, size_t size)
{
    return vt_probe_counter(VT_COUNT_CYCLES, why, size);
}

/* Returns true if the kernel names an event device that begins so; `found` gets its name. */
static bool find_device(const char *root, const char *begins, char *found, size_t size)
{
    char path[512];
    snprintf(path, sizeof path, "%s/sys/bus/event_source/devices", root);
    DIR *d = opendir(path);
    const struct dirent *e = NULL;
    while (d && (e = readdir(d)))
        if (strncmp(e->d_name, begins, strlen(begins)) == 0) {
            snprintf(found, size, "%.60s", e->d_name);
            break;
        }
    if (d)
        closedir(d);
    return e != NULL;
}

bool vt_probe_cpu_uncore(const char *root, vt_uncore_opener *opener, char *out, size_t size)
{
    static const char *const others[] = {"amd_umc", "amd_df", "arm_cmn"};
    char name[64];
    vt_uncore u;
    int paranoid = read_number(root, "/proc/sys/kernel/perf_event_paranoid");
    vt_uncore_open(root, opener, &u);
    bool opened = u.n > 0, found = false;
    for (size_t i = 0; i < sizeof others / sizeof others[0] && !found; i++)
        found = find_device(root, others[i], name, sizeof name);
    if (opened)
        snprintf(out, size,
                 "in every story: bytes that %d memory controllers read and wrote, of all programs",
                 u.n_controllers);
    else if (find_device(root, "uncore_imc", name, sizeof name))
        snprintf(out, size,
                 "%.160s; it counts for the whole machine, which needs kernel.perf_event_paranoid "
                 "0 (it is %d) or CAP_PERFMON",
                 u.why, paranoid);
    else if (found)
        snprintf(out, size, "not read: the kernel names no events of bytes for %s", name);
    else
        snprintf(out, size, "%s", u.why);
    vt_uncore_close(&u);
    return opened;
}

bool vt_probe_cpu_topdown(const char *root, char *out, size_t size)
{
    char name[64];
    vt_counter_kind kind[VT_COUNTERS];
    vt_cpu_events(root, kind);
    bool named = kind[VT_COUNT_SLOTS].type != VT_NO_EVENT;
    if (!find_device(root, "cpu", name, sizeof name))
        snprintf(out, size, "the kernel names no counters of a CPU among its event devices");
    else if (!named)
        snprintf(out, size, "the kernel names no slots among the events of %s", name);
    else if (vt_probe_counter(VT_COUNT_SLOTS, out, size))
        snprintf(out, size, "in every story: what became of each worker's slots");
    else
        named = false;
    return named;
}

/* The value behind "KEY:" in a file of such lines, as a number of this base; -1: it is not
 * there. */
static long long setting(const char *root, const char *name, const char *key, int base)
{
    char path[512], line[256], *end;
    long long v = -1;
    snprintf(path, sizeof path, "%s/proc/%s", root, name);
    FILE *f = fopen(path, "r");
    size_t n = strlen(key);
    while (f && v < 0 && fgets(line, sizeof line, f))
        if (strncmp(line, key, n) == 0 && line[n] == ':') {
            v = strtoll(line + n + 1, &end, base);
            v = end == line + n + 1 || v < 0 ? -1 : v;
        }
    if (f)
        fclose(f);
    return v;
}

vt_allowed vt_probe_gpu_counters(const char *root, char *why, size_t size)
{
    enum { SYS_ADMIN = 21 }; /* CAP_SYS_ADMIN */
    long long admin_only = setting(root, "driver/nvidia/params", "RmProfilingAdminOnly", 10);
    long long capable = setting(root, "self/status", "CapEff", 16);
    bool admin = capable >= 0 && (capable >> SYS_ADMIN & 1);
    if (admin_only < 0) {
        snprintf(why, size,
                 "the driver does not tell (no RmProfilingAdminOnly in "
                 "/proc/driver/nvidia/params); ncu itself shows it");
        return VT_ALLOWED_UNKNOWN;
    }
    if (admin_only == 0) {
        snprintf(why, size, "the driver lets every user read them (RmProfilingAdminOnly 0)");
        return VT_ALLOWED_YES;
    }
    snprintf(why, size,
             "the driver lets only administrators read them (RmProfilingAdminOnly %lld), "
             "and this process %s one",
             admin_only, admin ? "is" : "is not");
    return admin ? VT_ALLOWED_YES : VT_ALLOWED_NO;
}

static const vt_probe_library library[] = {
    {"cuda", "libcuda.so.1", "the GPU's driver"},
    {"nvrtc", "libnvrtc.so", "compiles GPU kernels"},
    {"cublasLt", "libcublasLt.so", "large matrix products"},
    {"nccl", "libnccl.so.2", "communication between GPUs"},
    {"cupti", "libcupti.so", "GPU counters and timelines"},
    {"nvml", "libnvidia-ml.so.1", "GPU clocks, power, topology"},
    {"edit", "libedit.so.2", "line editing in chat"},
};

const vt_probe_library *vt_probe_libraries(int *n)
{
    *n = sizeof library / sizeof library[0];
    return library;
}

/* Tries the names with version numbers first, as those who use the libraries do: a library that is
 * open is found again by its name, so another choice here would be theirs too. */
static void *open_any(const char *file)
{
    static const char *const version[] = {".13", ".12", ""};
    char name[128];
    for (size_t i = 0; i < sizeof version / sizeof version[0]; i++) {
        snprintf(name, sizeof name, "%s%s", file, version[i]);
        void *handle = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
        if (handle)
            return handle;
        snprintf(name, sizeof name, "/usr/local/cuda/lib64/%s%s", file, version[i]);
        handle = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
        if (handle)
            return handle;
    }
    return NULL;
}

void vt_probe_path(void *handle, const char *name, char *out, size_t size)
{
    struct link_map *map = NULL;
    bool named = dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name[0];
    snprintf(out, size, "%s", named ? map->l_name : name);
}

bool vt_probe_open(const vt_probe_library *l, char *found, size_t size)
{
    void *handle = open_any(l->file);
    if (!handle) {
        snprintf(found, size, "%s was not found", l->file);
        return false;
    }
    vt_probe_path(handle, l->file, found, size);
    return true; /* not closed: CUDA's libraries leak when closed, and this is called once */
}
