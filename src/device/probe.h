/* Finds out what can be observed on this machine. Everything is tried out, nothing is guessed. */
#ifndef VT_DEVICE_PROBE_H
#define VT_DEVICE_PROBE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/counters.h"
#include "device/uncore.h"

/* True if this process can count its own hardware events (cycles); else `why` gets the reason. */
bool vt_probe_perf_events(char *why, size_t size);
/* The same of one event. */
bool vt_probe_counter(vt_counter which, char *why, size_t size);
/* Returns true if bytes by the memory controllers can be read (device/uncore.h); `out` gets of how
 * many, or what stands against it. */
bool vt_probe_cpu_uncore(const char *root, vt_uncore_opener *opener, char *out, size_t size);
/* Returns true if top-down slots, which not every CPU has, can be counted: the kernel names them
 * below root/sys, and they grow here. `out` gets where they are told, or what stands against it. */
bool vt_probe_cpu_topdown(const char *root, char *out, size_t size);
/* Says why perf_event_open gave this errno: no hardware, a setting, or a container. `root` is put
 * in front of /proc: "" for this machine. */
void vt_probe_perf_reason(const char *root, int error, char *why, size_t size);

typedef enum vt_allowed { VT_ALLOWED_NO, VT_ALLOWED_YES, VT_ALLOWED_UNKNOWN } vt_allowed;

/* Tells whether the driver's settings let this process read a GPU's counters, as ncu and CUPTI do;
 * `why` says by what. `root` is put in front of /proc: "" for this machine. */
vt_allowed vt_probe_gpu_counters(const char *root, char *why, size_t size);

/* A library that is loaded at run time if it is installed. */
typedef struct vt_probe_library {
    const char *name; /* "nvrtc" */
    const char *file; /* the name that is tried first */
    const char *purpose;
} vt_probe_library;

const vt_probe_library *vt_probe_libraries(int *n);
/* The path of an open library; `name` where the loader does not tell. */
void vt_probe_path(void *handle, const char *name, char *out, size_t size);
/* True if it can be opened; `found` gets the file's path, or the reason why not. */
bool vt_probe_open(const vt_probe_library *l, char *found, size_t size);

#endif
