/* The struct behind vt_engine: for engine.c, publish.c, faults.c and api.c. */
#ifndef VT_ENGINE_ENGINE_INSIDE_H
#define VT_ENGINE_ENGINE_INSIDE_H

#include <pthread.h>

#include "device/energy.h"
#include "device/uncore.h"
#include "engine/constraint/late_masks.h"
#include "engine/end_reason.h"
#include "engine/engine.h"
#include "grammar/store.h"

/* A launched step and when the CPU did what for it. */
typedef struct vt_flight {
    vt_plan *plan;
    int64_t begin_ns, planned_ns, launched_ns;
    int64_t draft_ns; /* of the time until planned_ns: a draft model computed guesses */
} vt_flight;

struct vt_engine {
    vt_engine_config config;
    vt_executor *executor;
    const vt_model *model; /* NULL if the engine was made by vt_engine_create */
    vt_model *own_model;   /* what was allocated for it, and shares all else; or NULL */
    /* used by the thread that runs the step alone */
    vt_sched sched;
    bool has_sched;
    vt_flight flight[VT_PLANS]; /* oldest first */
    int32_t n_flight;
    /* Steps with prompt tokens have a ring of their own, with their sequences: the many steps of a
     * long answer do not overwrite its prefill. The sequences of decode steps are in `seqs`. */
    vt_trace_ring requests, tokens, steps, prompt_steps, seqs, samples;
    int64_t sampled_ns; /* when the machine was last looked at, */
    int64_t metered_ns; /* and its energy counter */
    vt_energy energy;
    vt_uncore uncore;
    int64_t ended_ns; /* when the last step's end was learned */
    int64_t text_ns;  /* when the text of its tokens was made */
    vt_token_logprob *logprob,
        *top; /* [max_rows], [max_rows][VT_MAX_TOP_LOGPROBS]: an event's arrays */
    vt_pooler pooler;
    uint64_t n_ended[VT_END_REASONS], n_output_tokens;
    vt_mask_cost masks; /* of sequences that have ended */
    vt_late_masks *late_masks;
    /* pages that recorded cache events have counted */
    uint64_t told_inserted, told_evicted[VT_EVICT_CAUSES];
    int64_t schedule_ns, device_ns, publish_ns;
    int64_t recovered_ns[VT_MAX_RECOVERIES]; /* when the last recoveries were tried */
    uint64_t n_tried, n_recovered;
    bool lost;    /* the device is lost, and could not be made again */
    vt_err cause; /* why it was lost, */
    vt_err fault; /* and what requests were told when it could not be made again */
    /* guarded by the lock */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    vt_req **inbox; /* [max_queued] submitted, and not yet in the scheduler */
    int32_t n_inbox;
    vt_req **live; /* [live_cap] requests that were submitted and have not ended */
    int32_t n_live, live_cap;
    int32_t n_waiting; /* sequences queued or in the inbox */
    int32_t n_aborts;
    bool flush, quit;
    bool masks_made;            /* since the engine last slept */
    bool started;               /* the loop has a thread */
    bool stepping;              /* a step is under way, on thread `stepper` */
    vt_grammar_store *grammars; /* compiled; NULL: no tokenizer */
    bool closing;               /* vt_engine_free is at work: nothing more is accepted */
    int32_t n_holds;
    pthread_t thread, stepper;
    vt_request_id next_id;
    vt_engine_stats stats;
    vt_trace_ring writes;       /* written under the lock by any thread; read without it */
    const vt_trace_ring **ring; /* [n_rings] all rings, the executor's too; set when it is made */
    int32_t n_rings;
};

int64_t engine_now(const vt_engine *e);

/* ---- recording.c ---- */

enum { ENGINE_SOURCE_RINGS = 12 + VT_SPAN_LEVELS }; /* the most that one source has */
vt_status engine_recording_init(vt_engine *e, vt_err *err);
void engine_recording_release(vt_engine *e);
/* Memory that recording has come to use; any thread. */
size_t engine_recorder_bytes(const vt_engine *e);

/* ---- constraint_grammar.c ---- */

/* vt_engine_submit for a request that may have a grammar. */
vt_status engine_submit_grammar(vt_engine *e, const vt_request_params *p, vt_request_id *id,
                                vt_err *err);

/* ---- publish.c ---- */

/* Makes text of one output that is of no step's result, and calls back. */
void engine_publish(vt_engine *e, vt_output *o);
/* Publishes all outputs of the scheduler, then frees the requests that are over. `result`: of the
 * step that they come from; NULL: of none. */
void engine_publish_all(vt_engine *e, const vt_step_result *result);

/* ---- faults.c ---- */

/* A step failed, as `why` says, and none is in flight. VT_OK: the device was lost, it is there
 * again, and all requests go on. Else `why` is the error, also in *err (which may be NULL). */
vt_status engine_fault(vt_engine *e, const vt_err *why, vt_err *err);
/* Before a plan. Requests that meet a lost device wait until it is made again, or end. VT_OK: the
 * device is there, or nothing waits for it. */
vt_status engine_mend(vt_engine *e, vt_err *err);

#endif
