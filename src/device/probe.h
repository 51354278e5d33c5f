/* What can be found and observed on this machine, tried out and not guessed. */
#ifndef VT_DEVICE_PROBE_H
#define VT_DEVICE_PROBE_H

#include <stdbool.h>
#include <stddef.h>

/* True where this process may count hardware events (cycles) of itself; else `why` says what stands
 * against it. */
bool vt_probe_perf_events(char *why, size_t size);

/* A library that is loaded at run time, where it is there. */
typedef struct vt_probe_library {
    const char *name; /* "nvrtc" */
    const char *file; /* what dlopen is asked for first */
    const char *purpose;
} vt_probe_library;

const vt_probe_library *vt_probe_libraries(int *n);
/* True if it can be opened; `found` gets the file's path, or the reason why not. */
bool vt_probe_open(const vt_probe_library *l, char *found, size_t size);

#endif
