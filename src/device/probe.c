/* Finds out what can be observed on this machine (device/probe.h). Everything is tried out: a file
 * may exist and still not load, and a kernel with perf events may refuse them to a guest. */
#include "device/probe.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__linux__)
#include <linux/perf_event.h>
#include <sys/syscall.h>
#endif

bool vt_probe_perf_events(char *why, size_t size)
{
#if defined(__linux__)
    struct perf_event_attr attr = {.type = PERF_TYPE_HARDWARE,
                                   .size = sizeof attr,
                                   .config = PERF_COUNT_HW_CPU_CYCLES,
                                   .exclude_kernel = 1,
                                   .exclude_hv = 1};
    long fd = syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0UL);
    if (fd >= 0) {
        uint64_t cycles = 0;
        bool counts = read((int)fd, &cycles, sizeof cycles) == sizeof cycles && cycles > 0;
        close((int)fd);
        if (counts)
            return true;
        snprintf(why, size, "the hardware counters of this machine stand still (tier T0)");
    } else if (errno == ENOENT || errno == EOPNOTSUPP || errno == ENODEV)
        snprintf(why, size, "this machine gives no hardware events to a guest (tier T0)");
    else if (errno == EACCES || errno == EPERM)
        snprintf(why, size,
                 "the kernel does not allow it: see kernel.perf_event_paranoid (tier T0)");
    else
        snprintf(why, size, "perf_event_open: %s (tier T0)", strerror(errno));
#else
    snprintf(why, size, "no perf events on this system (tier T0)");
#endif
    return false;
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
