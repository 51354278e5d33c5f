/* Reads what the operating system gave a thread: CPU time, how long it was ready to run and no CPU
 * was free (run delay), involuntary context switches and page faults, on which CPU and NUMA node it
 * is; and how busy the whole machine was. Nothing of that needs a privilege. A thread's hardware
 * events may need one, and are read where they can be had. */
#ifndef VT_BASE_USE_H
#define VT_BASE_USE_H

#include <pthread.h>
#include <stdbool.h>

#include "base/counters.h"
#include "base/trace.h"

/* Reads the use of one thread at a time; another thread that takes over is noticed. */
typedef struct vt_use {
    int fd; /* the thread's schedstat file; -1: it could not be opened */
    bool is_open;
    pthread_t thread; /* that the numbers below are of */
    int64_t at_ns, cpu_ns, delay_ns, switches, minor_faults, major_faults; /* at the last reading */
    uint64_t step; /* the last one that a reading spoke of */
    unsigned cpu, node;
    bool is_placed;              /* cpu and node are known */
    const vt_counter_kind *kind; /* [VT_COUNTERS] to count; NULL: none */
    vt_counters counters;
    vt_counts counts;
} vt_use;

/* A reading costs four system calls, 1 to 3 us. Shorter steps than this share one. */
enum { VT_USE_EVERY_NS = 500000 };

/* kind[VT_COUNTERS]: the hardware events to count, vt_counter_kinds; NULL: none. */
void vt_use_init(vt_use *u, const vt_counter_kind *kind);
void vt_use_release(vt_use *u);
/* To be called by the thread before its part of a step: makes the first reading where there is none
 * of this thread yet. Costs a comparison otherwise. */
void vt_use_begin(vt_use *u, uint64_t step);
/* To be called by the same thread after its part of `step`: at least VT_USE_EVERY_NS after the last
 * reading it makes another one, and writes the difference to the ring. */
void vt_use_end(vt_use *u, uint64_t step, vt_trace_ring *ring);

/* Reads how long tasks of this machine have waited for a CPU, and what a hypervisor took, in sums
 * since the machine's start (of a container: as far as it may see); -1 for what is not known. Fills
 * those members and at_ns, and sets the others to -1. Costs about 50 us. */
void vt_use_machine(vt_machine_event *out);

#endif
