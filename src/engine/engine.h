/* The program's own layers (server, simulator, story, tests) need this of an engine beyond
 * include/vitrine.h.
 *
 *   any thread          engine thread
 *   submit ─> inbox ──> scheduler ──> executor (steps N, N+1) ──> commit ──> text, callbacks
 *   abort  ─> flags ──┘
 *
 * One lock guards the inbox, the abort flags and the published statistics; it is never held
 * while a step is planned, waited for or published. */
#ifndef VT_ENGINE_ENGINE_H
#define VT_ENGINE_ENGINE_H

#include "base/buf.h"
#include "exec/executor.h"
#include "engine/constraint/constraint.h"
#include "engine/scheduler.h"
#include "grammar/store.h"

typedef struct vt_engine_config {
    vt_sched_config sched;
    vt_req_limits request; /* page_size, n_pages, max_queued and eos are filled in from sched */
    bool overlap;          /* plan a step while the one before it runs */
    int64_t (*now)(void *clock); /* nanoseconds; NULL: vt_now_ns */
    void *clock;
    bool alone; /* late masks have no thread of their own: for simulations, whose runs repeat */
    vt_notice_hook notice; /* told that the device was lost and made again */
} vt_engine_config;

/* A lost device is made again at most this often within an hour; after that, requests end with an
 * error. A request whose own steps lose the device ends after VT_MAX_FAULTS + 1 of them, so the
 * limit leaves room for two such requests. */
enum { VT_MAX_RECOVERIES = 8 };

/* Makes an engine on any executor. The engine owns the executor and what the drafter points at from
 * this call on, also if the call fails. */
vt_status vt_engine_create(const vt_engine_config *c, vt_executor *x, vt_engine **out, vt_err *err);

/* As of the end of the last step. vt_stats of include/vitrine.h is made of it. */
typedef struct vt_engine_stats {
    int32_t n_running, n_queued; /* sequences that the scheduler has */
    int32_t n_waiting;           /* sequences queued, or submitted and not yet in the scheduler */
    int32_t pages, pages_free, pages_held, pages_cached, page_size;
    uint64_t requests, finished[VT_FINISH_ERROR + 1]; /* sequences by vt_finish */
    uint64_t ended[VT_END_REASONS];                   /* the same by vt_end_reason */
    uint64_t output_tokens, recoveries;
    vt_sched_stats sched;
    vt_radix_stats cache;
    int64_t last_step_ns; /* when a step last ended */
    bool lost; /* the device is lost and could not be made again: only a new process helps */
    int64_t schedule_ns, device_ns, publish_ns; /* sums over all steps */
    vt_mask_cost masks; /* of constrained sequences that have ended; worst_ns is not told */
    vt_grammar_store_stats grammars;
    size_t recorder_bytes; /* memory that the recording, the executor's too, has come to use */
    vt_executor_held held;
} vt_engine_stats;

/* vt_engine_submit for a request whose tokens are constrained (engine/constraint/constraint.h).
 * `maker` is used during the call only; the rules that it makes are freed with the request. NULL:
 * none. */
vt_status vt_engine_submit_constrained(vt_engine *e, const vt_request_params *p,
                                       const vt_constraint_maker *maker, vt_request_id *id,
                                       vt_err *err);
void vt_engine_copy_stats(vt_engine *e, vt_engine_stats *out); /* any thread */
/* Any thread: empties the prefix cache, but for pages that sequences use, before the next step. */
void vt_engine_flush_cache(vt_engine *e);
/* Ends every open request with VT_FINISH_ABORT; callbacks come from this call. The loop must not
 * run. */
void vt_engine_end_requests(vt_engine *e);
bool vt_engine_embeds(const vt_engine *e);         /* requests are to embed, none generates */
bool vt_engine_ranks(const vt_engine *e);          /* they are to score pairs of texts */
int32_t vt_engine_max_context(const vt_engine *e); /* tokens of the longest sequence */
/* Sequences that may run and wait together: one request can have no more. */
int32_t vt_engine_max_sequences(const vt_engine *e);
/* The prefix cache as text. Only between steps, on the engine's thread. */
void vt_engine_dump_cache(const vt_engine *e, vt_buf *out);
/* Waits for the end of the step under way, and keeps the next one from beginning until
 * vt_engine_release: for reading what steps write. Any thread; several may hold at once.
 * VT_ERR_USAGE in a callback. */
vt_status vt_engine_hold(vt_engine *e, vt_err *err);
void vt_engine_release(vt_engine *e);

/* Where an engine writes its events: its own rings first, then its executor's. Fills out[0 .. max)
 * and returns how many there are. */
int32_t vt_engine_sources(const vt_engine *e, vt_source *out, int32_t max);
const vt_executor *vt_engine_executor(const vt_engine *e);
const vt_model *vt_engine_model(const vt_engine *e); /* NULL if made by vt_engine_create */
/* For tests and the simulator. */
const vt_sched *vt_engine_scheduler(const vt_engine *e);

#endif
