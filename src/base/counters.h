/* Counts hardware events of the calling thread, in user mode alone: cycles, instructions, cache
 * misses, and what only some CPUs count: AMX and top-down slots. The kernel may refuse them
 * (kernel.perf_event_paranoid, a container's seccomp filter), and a virtual machine may have none;
 * each counter is opened on its own, so one that is missing leaves the others. */
#ifndef VT_BASE_COUNTERS_H
#define VT_BASE_COUNTERS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/trace.h"

/* An event as perf_event_open takes it. */
typedef struct vt_counter_kind {
    const char *name; /* "cycles" */
    uint32_t type;    /* VT_NO_EVENT: this CPU has none */
    uint64_t config;
} vt_counter_kind;

#define VT_NO_EVENT UINT32_MAX

/* Those that the kernel knows of every CPU; device/events.h fills in the others. */
extern const vt_counter_kind vt_counter_kinds[VT_COUNTERS];

/* Counters are read in two groups: that of cycles, and that of slots, which must lead its own. */
enum { VT_COUNTER_GROUPS = 2 };

typedef struct vt_counters {
    int fd[VT_COUNTERS]; /* -1: it was not opened, for the reason error[] (an errno) */
    int error[VT_COUNTERS];
    uint64_t id[VT_COUNTERS];
    /* The descriptor by which all of a group are read at once; -1: none was opened. */
    int leader[VT_COUNTER_GROUPS];
} vt_counters;

/* Sums since the counters were opened. */
typedef struct vt_counts {
    unsigned known; /* bits of the counters that were read */
    uint64_t value[VT_COUNTERS];
    /* The time since then, and how much of it the CPU had registers for a group: where several
     * programs count, the kernel lets them take turns. */
    uint64_t enabled_ns[VT_COUNTER_GROUPS], running_ns[VT_COUNTER_GROUPS];
} vt_counts;

/* Opens kind[VT_COUNTERS] for the calling thread. Returns true if it got any of them. */
bool vt_counters_open(vt_counters *c, const vt_counter_kind *kind);
void vt_counters_close(vt_counters *c);
/* Costs a system call a group, about 1 us. known is 0 where nothing can be read. */
void vt_counters_read(const vt_counters *c, vt_counts *out);
/* Computes what counter c grew by between two readings, projected to the whole time where it was
 * counted for a part of it. False: it is not known. */
bool vt_counts_grown(const vt_counts *from, const vt_counts *to, vt_counter c, uint64_t *out);

#endif
