/* A recording put in order: steps by number, with their sequences, parts and op calls. */
#ifndef VT_STORY_RECORD_H
#define VT_STORY_RECORD_H

#include "story/story.h"

typedef struct span {
    int64_t begin_ns, end_ns; /* both 0: not recorded */
} span;

typedef struct step_seq {
    uint64_t request;
    int32_t q_len, kv_len;
    int32_t shared_pages; /* as in vt_step_seq */
} step_seq;

/* One source's part of a step: a CPU worker's, or a GPU stream's. */
typedef struct step_lane {
    int16_t source;       /* its index in story_input.source */
    double busy_s;        /* in calls, where the step's calls are known */
    double wait_s;        /* in calls for the other lanes */
    int32_t first_kernel; /* kernel[first_kernel ..) of the record: what its calls launched */
    int32_t n_kernel;
    /* Streams alone: */
    bool launched;        /* the step's launch is in the recording; the rest is known then */
    bool timed;           /* its calls are; else only the step as a whole */
    bool stamped;         /* timed by stamps: it ran as it always does, not call by call */
    int32_t graph_tokens; /* of the graph that the step fits; 0: none. A step that ran call by call
                             does not use it */
    int32_t n_kernels;
    span device;
    double idle_s; /* of the device before it */
    double move_s[VT_MOVES];
    double launch_s;
    int64_t first_ns; /* when its first call behind the uploads began; 0: no call is known */
    int64_t move_bytes[VT_MOVES];
} step_lane;

/* The machine gave the workers this for a step (machine.h). */
typedef struct step_use {
    bool known;
    bool disturbed; /* the machine withheld something: its times say little about the program */
    double delay_s; /* the longest that one worker was ready and had no CPU, */
    double delays_s, cpu_s; /* and sums over the workers */
    int32_t sm_mhz;         /* a GPU's clock; 0: not known */
    int32_t switches, minor_faults, major_faults;
    unsigned counted; /* bits of the hardware events that all workers counted, and their sums */
    double count[VT_COUNTERS];
} step_use;

typedef struct step_record {
    uint64_t id;
    span device;         /* the device's work */
    span part[VT_PARTS]; /* what the engine's thread did for it */
    span text;           /* the beginning of part PUBLISH: text was made of its tokens */
    int32_t n_tokens, n_seqs, n_decode;
    int32_t pages_held, pages_cached, pages_free; /* after it */
    int32_t first_seq, n_seq;                     /* seq[first_seq ..): those in the recording */
    int32_t first_call, n_call; /* in call, in program order; 0: its calls are not known */
    int32_t n_sources;          /* sources that have the step's spans from its beginning on */
    bool chosen;                /* belongs to the story */
    bool prefill;               /* of the story's request (or of any, where it is about all) */
    int32_t q_len, kv_len;      /* of the story's request in this step */
    double outside_s;           /* of streams: before the first call and between calls, when none
                                   of them ran one */
    int64_t calls_end_ns;       /* the end of the last call */
    bool typical;               /* the op tables are the mean of these steps (phases.c), which
                                   are chosen, but for those that a phase borrows */
    step_lane *lane; /* [n_lanes] of the sources that have something of it, in their order */
    int32_t n_lanes;
    const step_lane *stream; /* the lane of the stream that ended last, for which the others waited;
                                NULL: none has its launch, as where CPU workers ran it */
    step_use use;
} step_record;

/* A call, seen by all workers (or streams) of the team that ran it. */
typedef struct call_time {
    int32_t call;            /* index in the program */
    double s;                /* from the end of the call before it to its own end (record.c) */
    int64_t begin_ns;        /* where that time begins */
    int64_t last_begin_ns;   /* when the last stream began it; 0: CPU workers ran it */
    int64_t ran_ns;          /* latest end of the work */
    int64_t met_ns, left_ns; /* earliest and latest end of a wait after it; 0: no one waits */
    int64_t least_wait_ns;   /* the shortest wait after it, */
    int64_t early_ns; /* of a stream that was stamped: how long before the end of the call before it
                         its first CTA began */
    int16_t late;     /* and the source that had it, so came last; -1: no one waits */
    int16_t n_waits;  /* sources that waited after it, the one that came last among them, */
    int64_t wait_ns;  /* when the first of them began to wait, */
    int64_t waits_ns; /* and how much later the others did, in sum */
} call_time;

/* The work of a source in the chosen steps; of disturbed ones only where all are disturbed. */
typedef struct lane_sum {
    double busy_s, wait_s;      /* in steps whose calls are known: in calls, and waiting in them */
    int32_t n_steps;            /* launches, */
    double device_s, idle_s;    /* their times, and those of the device before them */
    double join_s, join_wait_s; /* in calls that join ranks: moving and adding, and waiting */
    int32_t n_joins;            /* such calls */
    int32_t n_late_calls,
        n_last; /* calls, and steps, in which it was the one that was waited for */
} lane_sum;

/* How long one source waited for another: in calls, and at the end of steps. */
typedef struct lane_wait {
    double call_s, end_s;
    double longer_s; /* of call_s, until the other had run the call */
    int32_t n_calls, n_ends;
} lane_wait;

/* Call `call` launched kernel `kernel`. */
typedef struct kernel_call {
    int32_t call, kernel;
} kernel_call;

typedef struct request_record {
    uint64_t id;
    int64_t arrive_ns, finish_ns;
    span match;
    span parse, template, tokenise; /* before the request came to the engine */
    span wait;                      /* in the queue, up to its first admission */
    span write;                     /* its text was given to the reader, in pieces, */
    int64_t write_ns, write_bytes;  /* which took so long; how much text */
    vt_wait_reason waited_for;
    uint64_t first_step; /* the low 32 bits of the step that it was admitted to */
    int32_t n_prompt, n_cached, n_copied, n_pages, n_output, n_retracted;
    int32_t adapter;                               /* 0: none */
    int32_t n_masks, n_new_masks, slowest_mask_us; /* of constrained completions */
    int64_t mask_ns;
    int32_t n_late_masks;                 /* made while the request was in no step, */
    int64_t late_mask_ns;                 /* how long it waited for them */
    int32_t n_forced;                     /* tokens that a constraint left no choice of */
    int32_t draft_tokens, draft_accepted; /* guesses that steps verified, and those that held */
    vt_end_reason end;                    /* NONE: not over */
    int32_t left_page;  /* the last page that it left in the prefix tree; -1: not known */
    uint32_t left_step; /* the low half of the step that wrote it */
    int64_t
        *token_ns; /* [n_token_ns] when the device had made each token; the story's request only */
    int32_t n_token_ns;
} request_record;

typedef struct story_record {
    vt_arena arena;
    step_record *step; /* [n_steps], by id; ids may be missing */
    int32_t n_steps;
    step_seq *seq;
    call_time *call;
    int32_t n_calls;
    kernel_call *kernel;
    int32_t n_kernels;
    request_record *request; /* [n_requests] by id */
    int32_t n_requests;
    request_record *mine;          /* NULL where the story is about all steps */
    const vt_request_event *event; /* [n_events] the engine's, as recorded; borrowed */
    uint64_t n_events;
    lane_sum *sum;    /* [n_sources] */
    lane_wait *wait;  /* [n_sources][n_sources]: who waited for whom */
    bool any_calm;    /* disturbed steps are left out of these sums */
    int32_t n_worked; /* steps with known calls that these are sums over */
    story_seq *bound; /* the sequences of the step that story_bind_step set last */
} story_record;

/* Fails with VT_ERR_USAGE if the recording has nothing about the request. */
vt_status story_record_make(const story_input *in, vt_request_id id, story_record *out,
                            vt_err *err);
void story_record_release(story_record *r);
/* Reads the spans and launches of all sources into the record, whose steps are known: their lanes
 * and their calls. (lanes.c) */
vt_status story_read_lanes(const story_input *in, story_record *r, vt_err *err);
/* Sums up what the lanes did, and who waited for whom. (lanes.c) */
vt_status story_sum_lanes(const story_input *in, story_record *r, vt_err *err);
/* Returns true if the sums over lanes count the calls of this step. */
static inline bool story_is_summed(const story_record *r, const step_record *s)
{
    return s->chosen && s->n_call > 0 && !(r->any_calm && s->use.disturbed);
}
/* The step of this id; NULL: it is not in the recording. */
step_record *story_find_step(const story_record *r, uint64_t id);
/* When the device had made a token; 0: it is not known. */
int64_t story_token_time(const story_record *r, const vt_req_token *e);
const request_record *story_find_request(const story_record *r, uint64_t id);
/* The moment from which a story's times count: the first that is known of its request, or the begin
 * of the first step in a story about all steps. */
int64_t story_origin(const story_record *r);

/* Returns true if the machine kept so much from a step that its times say little about the
 * program. */
bool step_is_disturbed(const step_record *s);
/* The step computes prompt tokens, or a retracted sequence's tokens again. */
static inline bool step_has_chunk(const step_record *s) { return s->n_seqs > s->n_decode; }

/* Returns true if a stream's step has times of its calls: it ran call by call, or was stamped. */
static inline bool step_is_timed(const step_record *s) { return s->stream && s->stream->timed; }
/* Returns the tokens of the graph that the step fits; 0: none, or no launch is known. */
static inline int32_t step_graph(const step_record *s)
{
    return s->stream ? s->stream->graph_tokens : 0;
}
/* Sums over the step's CPU workers. */
step_lane step_workers(const story_input *in, const step_record *s);

static inline double span_s(span s) { return (double)(s.end_ns - s.begin_ns) * 1e-9; }

#endif
