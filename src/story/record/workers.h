/* CPU workers of a story: what each did with its time, the hardware events that were counted for
 * them, and which of them the others waited for. */
#ifndef VT_STORY_WORKERS_H
#define VT_STORY_WORKERS_H

#include "base/json_write.h"
#include "story/record/phases.h"

/* Sums over the system's readings of one worker, for the steps of the story. */
typedef struct worker_use {
    double cpu_s, delay_s, device_s; /* device_s: of the story's steps that they speak of */
    double switches, minor_faults, major_faults;
    unsigned counted; /* bits of what every reading knew */
    double count[VT_COUNTERS];
    int32_t cpu, node, n_moves; /* at the last reading, -1: not known; changes of the CPU */
} worker_use;

worker_use story_worker_use(const story_record *r, const story_source *s);
/* Writes "threads": one object for each worker. */
void story_put_threads(vt_json *w, const story_input *in, const story_record *r);
/* Writes "counters" of a phase: means of its typical steps; null where none were counted. */
void story_put_counters(vt_json *w, const story_input *in, const story_record *r, bool prefill);
/* Writes "imbalance" and "straggler" of an op; both null where no workers met after its calls. */
void story_put_imbalance(vt_json *w, const story_input *in, const op_sum *o);
/* Returns the bits of the hardware events that were counted in a chosen step. */
unsigned story_counted(const story_record *r);
/* Returns true if slots and all that became of them are among the counted events. */
bool story_has_slots(unsigned counted);
/* The hardware event's value in a step, as a sum over the workers; NAN: it was not counted. */
double step_count(const step_record *s, vt_counter c);

#endif
