/* The emulated driver tells the emulated libcupti (cupti_activity.c) about work by these functions,
 * which libcupti fills in. Each may be NULL; the driver calls them with its lock held, and they do
 * not call it. */
#ifndef EMULATOR_ACTIVITY_H
#define EMULATOR_ACTIVITY_H

#include <stdint.h>

enum emu_work { EMU_OTHER, EMU_KERNEL, EMU_COPY, EMU_FILL };

typedef struct emu_activity {
    /* A node was captured by this thread; a graph was instantiated, and nodes first to
     * first + n - 1 are clones of from to from + n - 1; nodes are gone. */
    void (*captured)(uint64_t node);
    void (*cloned)(uint64_t first, uint64_t from, uint64_t n);
    void (*ended)(uint64_t first, uint64_t n);
    /* A call puts work on a stream; returns its number, which is told of the work when it runs. */
    uint32_t (*called)(void);
    void (*ran)(int work, const char *name, uint64_t bytes, uint64_t node, uint32_t call);
} emu_activity;

#endif
