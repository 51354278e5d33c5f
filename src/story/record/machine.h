/* Finds what the machine withheld from a request: run delay, clocks. Which steps were disturbed by
 * it, and what the story says about it. */
#ifndef VT_STORY_MACHINE_H
#define VT_STORY_MACHINE_H

#include "base/json_write.h"
#include "story/record/energy.h"

enum { STORY_ENOUGH_STEPS = 8 }; /* undisturbed ones, for judging ops */

/* Over the chosen steps of a story. Seconds are sums over the workers; NAN: not known. */
typedef struct story_machine {
    int32_t n_steps, n_disturbed;
    int32_t n_known; /* steps whose run delay or clock was recorded */
    int32_t n_slow;  /* disturbed because a clock was lower than in other steps */
    double delay_s, cpu_s;
    double withheld;  /* share of the CPU time asked for: delay / (delay + cpu) */
    double longest_s; /* the longest run delay of a worker in a step, */
    uint64_t longest_step;
    int64_t switches, minor_faults, major_faults;
    double pressure, steal; /* shares of the time between two samples around the story */
    /* memory controllers that were read, and what they moved in so long around the story */
    int64_t controllers;
    double controllers_s, controllers_read, controllers_written;
    /* a GPU's samples during these steps */
    int32_t n_samples, mhz_least, mhz_most;
    int64_t throttle;         /* bits of all samples; -1: not known */
    double power_w, energy_j; /* mean; between the first and the last sample */
    story_energy energy;      /* of the device that ran the steps */
    int32_t others_percent;   /* most that other processes used of the GPU's time; -1: not known */
} story_machine;

/* Sets step_use of every step. */
void story_read_use(const story_input *in, story_record *r);
void story_sum_machine(const story_input *in, const story_record *r, story_machine *out);
/* Returns true if too few of the steps are undisturbed for judging ops by them. */
bool story_too_few(int32_t n_steps, int32_t n_disturbed);
/* Writes "machine". */
void story_put_machine(vt_json *w, const story_machine *m);
/* The headline's beginning where too few steps are undisturbed; else nothing. */
void story_withheld(vt_buf *b, const story_machine *m);

#endif
