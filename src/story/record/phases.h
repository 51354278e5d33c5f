/* Phases of a story: prefill and decode, each with its steps, its op kinds and what they cost. */
#ifndef VT_STORY_PHASES_H
#define VT_STORY_PHASES_H

#include "story/record/record.h"

enum { OP_KERNELS = 8 };

/* A kernel that calls of a kind launched, n times. */
typedef struct kernel_sum {
    const story_source *source; /* that launched it: the first stream that the step was timed on */
    int32_t kernel, n;
} kernel_sum;

/* One or two calls of a kind that took far longer than its other calls (once.h). */
typedef struct op_once {
    int32_t n;         /* 0: there is none; the other members are 0 then */
    double excess_s;   /* what they took beyond the usual time, in sum */
    double s, usual_s; /* the longest of them: its time, and what would be usual */
    const char *call;  /* its label, */
    int32_t layer;     /* its layer, */
    uint64_t step;     /* and its step */
    bool first; /* it is the first call of the kind, so something may have been started in it */
} op_once;

/* A call of the step that is being added. */
typedef struct call_mark {
    int32_t op, call; /* indices in phase.op and in the program */
    double s, floor_s;
} call_mark;

/* All calls of a kind ("linear.qkv") in a phase, as sums over its typical steps. What a GPU's step
 * spends outside calls is a kind too ("upload", "launch", "ranks", "results"): its cost is the
 * bytes that crossed the link, and it has no roof. */
typedef struct op_sum {
    const char *kind, *op, *impl;
    bool link;
    kernel_sum kernel[OP_KERNELS];
    int32_t n_kernels;
    int32_t n_calls, layer_first, layer_last; /* layers: -1 outside */
    double s;                                 /* device time */
    double wait_s;                            /* of it, waiting for the last worker; their mean */
    int32_t n_waits;                          /* calls that workers met after */
    int32_t *late;                            /* [sources] how often each came last */
    double early_s; /* that their kernels began before the calls before them had ended; stamped */
    vt_cost cost, extra;           /* compulsory, exact; beyond it */
    double floor_s;                /* under the roofs, call by call */
    double expected_s;             /* of the calls; NAN: not known */
    double work_s;                 /* the same without the launch or meeting of a call */
    double by_bound[STORY_BOUNDS]; /* seconds of floor_s set by each roof */
    double slowest_s;              /* the call that took longest */
    const char *slowest;           /* its label, */
    uint64_t slowest_step;         /* and its step */
    double if_twice_s;      /* a step's, modelled: with twice the sequences; NAN: not known */
    double if_small_s;      /* the same with weights of `small_type`, */
    const char *small_type; /* NULL: they get no smaller */
    op_once once;
    vt_cut first_cut; /* how its first call was cut; all 0: its row does not say */
    const char *cut;  /* the same in words (story/cut.h); NULL: its row does not say */
} op_sum;

/* A stream's recording says this about the steps of a phase. */
typedef struct phase_lane {
    const story_source *source;
    double floor_s, typical_s; /* of the typical steps: by its own roofs, and as it took */
    int32_t n_steps;           /* whose launches are in the recording */
    int32_t n_timed;           /* of them, those whose calls were timed, */
    int32_t n_stamped;         /* and of these, those that were stamped */
    int32_t
        n_whole; /* of the others, which ran in their graphs, the undisturbed ones if there are */
    double device_s, whole_s;                /* device time of all steps; of the latter */
    int32_t graph_least, graph_most;         /* tokens of the graphs, padded; 0: none fits */
    double kernels, bytes_in, tokens;        /* sums over the known steps */
    double prepare_timed_s, prepare_whole_s; /* of the host, for steps of either kind */
    int32_t n_idle;
    double idle_s; /* before steps other than the phase's first */
} phase_lane;

typedef struct phase {
    const char *name;          /* "prefill", "decode" */
    int32_t n_steps, n_tokens; /* of the request (or of all, in a story about all) */
    int32_t n_disturbed;       /* of n_steps (machine.h) */
    int32_t n_recorded;        /* steps whose op calls are in the recording */
    int32_t n_undisturbed;     /* of them, those that the machine left alone */
    int32_t n_alone;    /* of those in turn, steps of decodes alone; the others have a chunk */
    int32_t n_timed;    /* the typical ones: the sums below are over these */
    int32_t n_borrowed; /* of the typical ones, steps without the story's request (phases.c) */
    bool with_chunk;    /* the typical decode steps have a chunk of a prompt, too */
    bool only_calm;     /* disturbed steps are left out of the sums over all steps, */
    bool calm_whole;    /* and of lane[].n_whole */
    int64_t begin_ns, end_ns; /* of its first step's beginning and its last step's end */
    double device_s, timed_s; /* device time of all steps; of the typical ones */
    double ops_s;             /* sum over the ops */
    double part_s[VT_PARTS];  /* the engine thread's work, all steps */
    double text_s;            /* of VT_PART_PUBLISH, making text of tokens */
    double others;            /* mean number of other sequences in its steps */
    double busy_s, wait_s;    /* sums over CPU workers, typical steps */
    op_sum *op;               /* [n_ops], longest first */
    int32_t n_ops;
    double floor_s;
    double expected_s; /* of the ops that have an expected time; NAN: of none */
    double once_s;     /* of ops_s: excess_s of all `once` */
    call_mark *mark;   /* [n_mark] while the steps are summed up: the calls of one step */
    double *times;     /* room for as many */
    int32_t n_mark;
    int32_t kv_first, kv_last;             /* context of the request in its first and last step, */
    int32_t timed_kv_first, timed_kv_last; /* and in the first and last of the typical ones */
    phase_lane *lane; /* [n_lanes] one a stream; none where CPU workers ran the steps */
    int32_t n_lanes;
} phase;

typedef enum story_phase { STORY_PREFILL, STORY_DECODE, STORY_PHASES } story_phase;

/* Sums up the chosen steps; op calls, over the typical steps of each phase (phases.c). Arrays come
 * from the record's arena; `plan` is set for each step. */
vt_status story_sum_phases(const story_input *in, story_record *r, story_step *plan,
                           phase out[STORY_PHASES], vt_err *err);
/* A recorded sequence of a step, as costs are counted for it. */
story_seq story_seq_of(const story_record *r, const step_seq *q);
/* Sets the sequences of a recorded step. False: not all of them are in the recording. */
bool story_bind_step(const story_record *r, const step_record *s, story_step *plan);
story_bound op_bound(const op_sum *o);
/* Returns true if all of its calls have an expected time. Moves of data have none. */
bool op_is_expected(const op_sum *o);
/* Compulsory bytes moved by an op kind. */
static inline double op_bytes(const op_sum *o) { return (double)vt_cost_bytes(&o->cost); }
/* Device time of a step as it runs unobserved, in the mean: of the steps that were not timed call
 * by call, if the recording has any; else of the timed ones. NAN without either. */
double phase_step_s(const phase *p);
/* Returns true if too few undisturbed steps are left for judging the phase's ops. */
bool phase_too_few(const phase *p);
/* The lane that took longest, for which the others waited; NULL: CPU workers ran the steps. */
const phase_lane *phase_stream(const phase *p);
/* Returns true if the times of its calls are stamps: of steps that ran as they always do. */
static inline bool phase_is_stamped(const phase *p)
{
    const phase_lane *g = phase_stream(p);
    return g && g->n_stamped > 0;
}
/* A kernel as its source describes it. */
static inline const vt_kernel_facts *kernel_facts(const kernel_sum *k)
{
    return &k->source->kernel[k->kernel];
}
/* The kernel instance that most calls of an op kind launched; NULL: none, or not on a GPU. */
const kernel_sum *op_kernel(const op_sum *o);
/* Device time without what single calls took beyond their usual time: what rules judge an op by. */
static inline double op_usual_s(const op_sum *o) { return o->s - o->once.excess_s; }
static inline double phase_usual_s(const phase *p) { return p->ops_s - p->once_s; }
/* floor / usual time, or NAN. */
double op_usual_of_roof(const op_sum *o);
/* floor / time, or NAN. */
double op_of_roof(const op_sum *o);
/* Returns true if an op of weight ran faster than its roof allows: the roof was measured too
 * low. */
bool op_beats_roof(const phase *p, const op_sum *o);

#endif
