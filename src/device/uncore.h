/* Bytes that the memory controllers of a CPU have read and written, from the kernel's perf events
 * of the "uncore" (Intel's uncore_imc devices, whose events the kernel names in sysfs). A
 * controller serves every program of the machine, so the kernel lets only those read it that may
 * look at the whole machine. */
#ifndef VT_DEVICE_UNCORE_H
#define VT_DEVICE_UNCORE_H

#include <stdbool.h>
#include <stdint.h>

enum { VT_UNCORE_COUNTERS = 128 };

typedef struct vt_uncore {
    int32_t n;             /* counters that are open; 0: none, and `why` says why */
    int32_t n_controllers; /* that they are of, on all sockets */
    int fd[VT_UNCORE_COUNTERS];
    double bytes[VT_UNCORE_COUNTERS]; /* that one count stands for */
    bool writes[VT_UNCORE_COUNTERS];
    char why[256];
} vt_uncore;

/* Opens a counter of all programs on a CPU: a descriptor; or -1 and errno. */
typedef int vt_uncore_opener(uint32_t type, uint64_t config, int cpu);

/* Opens the controllers' counters that root/sys names; `opener` NULL: perf_event_open. All of them
 * must open, or none is used. Never fails: a machine without counters has none. */
void vt_uncore_open(const char *root, vt_uncore_opener *opener, vt_uncore *u);
void vt_uncore_close(vt_uncore *u);
/* Bytes since vt_uncore_open. False: they cannot be read. A reading costs some 2 us a counter. */
bool vt_uncore_read(const vt_uncore *u, int64_t *read_bytes, int64_t *written_bytes);

#endif
