/* Observation -> likely cause -> what to do: the rows with which a result is read, and which of
 * them a measurement shows.
 *
 *   a kernel in a lab, ncu's counters  ──> signs ──> at most one row: the first that holds
 *   findings of labs and stories       ──> names ──> the row that lists the name
 *
 * The table of all rows is cause_table.c; INDEX prints it. A kernel often shows several signs at
 * once, and most of them follow from another one: a grid of eight CTAs has little bandwidth, few
 * warps and long waits. So the rows of kernels stand in the order in which they explain each other,
 * and the first that holds is told alone. */
#ifndef VT_LAB_REPORT_CAUSES_H
#define VT_LAB_REPORT_CAUSES_H

#include "lab/kit/lab.h"
#include "lab/profilers/ncu_csv.h"

/* Measurements of a kernel, or of two runs of the same thing. Begin with lab_signs_none. */
typedef struct lab_signs {
    bool gpu;
    /* one kernel; NAN or NULL: not known */
    double time_s, launch_s;            /* a call; a call without work */
    double of_roof;                     /* share of the roof that binds it */
    const char *bound;                  /* that roof: "memory", "bf16" ... */
    double memory_share;                /* counters, as shares of the peak: bytes of HBM, */
    double issue_share;                 /* cycles in which a scheduler issued, */
    double matrix_share;                /* cycles in which the matrix unit worked */
    double barrier_share, memory_waits; /* of all waits of warps: at barriers, for HBM or L2 */
    double spill_bytes;                 /* a thread */
    double occupancy;                   /* share of an SM's warps */
    const char *limited_by;             /* what limits it: a name of device/cuda/occupancy.h */
    double ctas_a_sm;                   /* CTAs of the grid over SMs */
    double tail;                        /* share of the places of all waves that stay empty */
    double partial_share;               /* bytes of partial results over the bytes that must move */
    /* two measurements of one thing */
    double sequential_s, scattered_s; /* the same store with sequential and with random slots */
    double saved_tokens, saved_time;  /* shares of the prompt and of its time, by a prefix hit */
    double reduce_s, reduce_floor_s;  /* an all-reduce; what its bytes explain */
    double reduce_copies;             /* copies of its buffer, before and after it */
    double first_s, later_s;          /* the first request; a later one */
    double spread;                    /* of repeated runs: (worst - best) / median */
    double n_different;               /* tokens that differ between runs with equal inputs */
} lab_signs;

typedef struct report_cause {
    const char *seen, *cause, *action;
    const char *key;                   /* "launch"; a finding of a lab is "cause.launch" */
    bool (*holds)(const lab_signs *s); /* NULL: told by findings alone */
    bool kernel;                       /* of a kernel: only the first of these is told */
    const char *finding[5];            /* names of findings that are this observation */
} report_cause;

extern const report_cause report_causes[]; /* ends with seen NULL */

lab_signs lab_signs_none(void);
/* A kernel that a lab has run. */
lab_signs lab_signs_kernel(const lab *l, const lab_kernel *k);
/* Adds what ncu counted in a launch; memory_bytes_per_s: the peak (0: not known). */
void lab_signs_add_ncu(lab_signs *s, const ncu_report *r, int32_t launch,
                       double memory_bytes_per_s);

/* The rows that hold, in their order; returns how many of them are in out[max]. */
int32_t report_causes_of(const lab_signs *s, const report_cause **out, int32_t max);
/* The row of a finding's name; NULL: it is none's. */
const report_cause *report_cause_of_finding(const char *rule);

/* Returns true if the lab has told a finding of this rule. */
bool lab_has_told(const lab *l, const char *rule);
/* Tells the rows that findings of a story show, each once, with the story's own sentence. Rows of
 * kernels are told on a GPU only. */
void lab_tell_story_causes(lab *l, const json_t *story);
/* Tells the rows that hold as findings "cause.KEY" of the lab; `what` was measured. Nothing is told
 * where the machine was busy or the GPU is emulated. */
void lab_tell_causes(lab *l, const lab_signs *s, const char *what);

#endif
