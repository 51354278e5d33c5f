/* Trace rings: what happened and when, in events of a fixed size.
 *
 * A ring has one writer at a time and any number of readers; new events overwrite the oldest. The
 * engine and the executors write; a story reads a copy. Writing takes about 20 ns, never allocates
 * and never blocks. Events hold indices (step, call, request) in place of names: the reader
 * resolves them through the program and the requests.
 *
 *   ring       its events        written by                        bytes
 *   requests   vt_request_event  the engine's thread                  40
 *   writes     vt_request_event  who gives out a request's text       40
 *   tokens     vt_packed_token   the engine's thread                  16
 *   steps      vt_step_event     the engine's thread                  56
 *   seqs       vt_packed_seq     the engine's thread                  16
 *   spans      vt_span           each CPU worker, each GPU stream     16
 *   launches   vt_launch_event   each GPU stream                      88
 *   use        vt_use_event      each CPU worker                      64
 *   samples    vt_machine_event  whoever watches the machine          88
 *
 * What there is much of takes 16 bytes. Spans are by far the most: one for each op call of each
 * step and worker. They have several rings (vt_span_rings, below), so that old steps are thinned
 * out and prompts are kept. Of tokens and of sequences of decode steps there is one for each step
 * and sequence; they have rings of their own, so that they do not overwrite arrivals and steps.
 *
 * Each kind of event has a struct, and one function that writes it. All times are those of
 * vt_now_ns. */
#ifndef VT_BASE_TRACE_H
#define VT_BASE_TRACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vitrine.h"

/* ---- rings ---- */

typedef struct vt_trace_ring {
    _Atomic uint64_t *slot;   /* [capacity] of event_bytes each */
    size_t event_bytes;       /* a multiple of 8 */
    uint64_t capacity;        /* a power of two */
    _Atomic uint64_t written; /* events ever written; the next goes to slot written % capacity */
} vt_trace_ring;

/* Room for `capacity` events, rounded up to a power of two. */
vt_status vt_trace_init(vt_trace_ring *r, size_t event_bytes, uint64_t capacity, vt_err *err);
void vt_trace_release(vt_trace_ring *r);
/* Copies the newest up to `max` events, oldest first, to out[max * event_bytes], aligned to
 * 8 bytes; returns how many. Safe against a running writer: events that are overwritten during the
 * copy are left out. */
uint64_t vt_trace_copy(const vt_trace_ring *r, void *out, uint64_t max);

/* ---- requests: what the engine's thread did with them ---- */

/* In the order in which a request that is never retracted has them; CACHE at any time. */
typedef enum vt_request_kind {
    VT_REQ_PARSE = 1,
    VT_REQ_TEMPLATE,
    VT_REQ_TOKENISE,
    VT_REQ_ARRIVE,
    VT_REQ_WAIT,
    VT_REQ_MATCH,
    VT_REQ_ADMIT,
    VT_REQ_RETRACT,
    VT_REQ_TOKEN,
    VT_REQ_FINISH,
    VT_REQ_WRITE,
    VT_REQ_CACHE,
    VT_REQ_MASKS,
    VT_REQ_DRAFTS,
    VT_REQ_LATE_MASK
} vt_request_kind;

/* The reason why a sequence stayed in the queue. */
typedef enum vt_wait_reason {
    VT_WAIT_NONE = 0, /* nothing: it was admitted at the first plan after it came */
    VT_WAIT_STEP,     /* it came while a step was being run: the plan had been made */
    VT_WAIT_TOKENS,   /* the step's token budget was used up */
    VT_WAIT_ROWS,     /* the step's rows of logits were used up */
    VT_WAIT_SLOTS,    /* as many sequences ran as may run at once */
    VT_WAIT_PAGES,    /* too few KV pages were free or evictable */
    VT_WAIT_PREFIX,   /* another sequence was computing pages that it can share */
    VT_WAIT_POLICY,   /* others went before it */
    VT_WAIT_FLIGHT,   /* its own last step was still in flight (after a retraction) */
    VT_WAIT_REASONS
} vt_wait_reason;

/* "tokens", "pages"; NULL: no such reason. */
const char *vt_wait_reason_name(int32_t reason);

typedef enum vt_trace_cache {
    VT_CACHE_HIT = 0,
    VT_CACHE_INSERT,
    VT_CACHE_EVICT,
    VT_CACHE_LEFT /* a sequence ended; its KV stays cached, up to this page */
} vt_trace_cache;

/* vt_engine_submit was called. */
typedef struct vt_req_arrive {
    vt_request_kind kind;
    int32_t n_prompt; /* tokens */
    uint64_t request;
    int64_t at_ns;
    int32_t adapter; /* 0: none */
} vt_req_arrive;

typedef struct vt_req_tokenise {
    vt_request_kind kind;
    int32_t n_tokens;
    uint64_t request;
    int64_t begin_ns, end_ns;
} vt_req_tokenise;

/* PARSE: reading the request, from its first byte. TEMPLATE: rendering the chat template.
 * LATE_MASK: from the step whose token needed a mask that takes long until the mask was there. */
typedef struct vt_req_part {
    vt_request_kind kind;
    uint64_t request;
    int64_t begin_ns, end_ns;
} vt_req_part;

/* A completion left the queue for the first time. `reason` is what kept it there at the last plan
 * before, `step` the first step that it is in. */
typedef struct vt_req_wait {
    vt_request_kind kind;
    vt_wait_reason reason;
    uint64_t request;
    int64_t begin_ns, end_ns;
    uint32_t step; /* the low 32 bits of its number */
    int32_t index; /* which of the request's completions */
} vt_req_wait;

/* The look-up in the prefix cache. */
typedef struct vt_req_match {
    vt_request_kind kind;
    int32_t n_cached; /* tokens found, */
    uint64_t request;
    int64_t begin_ns, end_ns;
    int32_t n_copied; /* and those of them that were copied from a page that matches in part */
} vt_req_match;

typedef struct vt_req_admit {
    vt_request_kind kind;
    int32_t n_pages; /* taken */
    uint64_t request;
    int64_t at_ns;
} vt_req_admit;

typedef struct vt_req_retract {
    vt_request_kind kind;
    uint64_t request;
    int64_t at_ns;
} vt_req_retract;

/* A token was published. */
typedef struct vt_req_token {
    vt_request_kind kind;
    int32_t index; /* in the output */
    uint64_t request;
    int64_t at_ns;
    uint64_t step; /* that made it; 0: none is known */
    int32_t token;
} vt_req_token;

typedef struct vt_req_finish {
    vt_request_kind kind;
    int32_t end; /* vt_end_reason */
    uint64_t request;
    int64_t at_ns;
    int32_t n_output; /* completion tokens */
} vt_req_finish;

/* The text was given to whoever reads it, in pieces between begin and end. */
typedef struct vt_req_write {
    vt_request_kind kind;
    int32_t n_bytes; /* at most INT32_MAX is told */
    uint64_t request;
    int64_t begin_ns, end_ns;
    int64_t spent_ns; /* what writing the pieces took */
} vt_req_write;

typedef struct vt_req_cache {
    vt_request_kind kind;
    int32_t n;        /* HIT: tokens; INSERT, EVICT: pages; LEFT: the number of the page */
    uint64_t request; /* 0: of no request in particular */
    int64_t at_ns;
    vt_trace_cache what;
    int32_t why; /* EVICT: vt_evict (kv/radix.h); LEFT: the low half of the step that writes it */
} vt_req_cache;

/* The masks of a constrained completion, which has ended. */
typedef struct vt_req_masks {
    vt_request_kind kind;
    int32_t n;
    uint64_t request;
    int64_t at_ns, ns; /* ns: of all */
    int32_t n_new;     /* those that had to be made */
    int32_t slowest_us;
} vt_req_masks;

/* The guesses of a completion that steps verified, and the tokens that a constraint left no choice
 * of. It has ended. */
typedef struct vt_req_drafts {
    vt_request_kind kind;
    int32_t n;
    uint64_t request;
    int64_t at_ns;
    int32_t n_accepted, n_forced;
} vt_req_drafts;

typedef union vt_request_event {
    vt_request_kind kind;
    struct { /* the members that all kinds begin with */
        vt_request_kind kind_;
        int32_t n_;
        uint64_t request;
    };
    vt_req_arrive arrive;
    vt_req_tokenise tokenise;
    vt_req_match match;
    vt_req_admit admit;
    vt_req_retract retract;
    vt_req_token token;
    vt_req_finish finish;
    vt_req_cache cache;
    vt_req_part part;
    vt_req_wait wait;
    vt_req_write write;
    vt_req_masks masks;
    vt_req_drafts drafts;
} vt_request_event;

/* A ring of NULL, or one that was never made, records nothing: so with all writers below. */
void vt_trace_arrive(vt_trace_ring *r, uint64_t request, int64_t at_ns, int32_t n_prompt,
                     int32_t adapter);
void vt_trace_tokenise(vt_trace_ring *r, uint64_t request, int64_t begin_ns, int64_t end_ns,
                       int32_t n_tokens);
/* kind: VT_REQ_PARSE, VT_REQ_TEMPLATE or VT_REQ_LATE_MASK. */
void vt_trace_req_part(vt_trace_ring *r, vt_request_kind kind, uint64_t request, int64_t begin_ns,
                       int64_t end_ns);
void vt_trace_req_wait(vt_trace_ring *r, uint64_t request, int32_t index, int64_t begin_ns,
                       int64_t end_ns, vt_wait_reason reason, uint64_t step);
void vt_trace_match(vt_trace_ring *r, uint64_t request, int64_t begin_ns, int64_t end_ns,
                    int32_t n_cached, int32_t n_copied);
void vt_trace_admit(vt_trace_ring *r, uint64_t request, int64_t at_ns, int32_t n_pages);
void vt_trace_retract(vt_trace_ring *r, uint64_t request, int64_t at_ns);
void vt_trace_token(vt_trace_ring *r, uint64_t request, int64_t at_ns, uint64_t step, int32_t index,
                    int32_t token);
void vt_trace_finish(vt_trace_ring *r, uint64_t request, int64_t at_ns, int32_t end,
                     int32_t n_output);
void vt_trace_masks(vt_trace_ring *r, uint64_t request, int64_t at_ns, int32_t n, int32_t n_new,
                    int64_t ns, int64_t slowest_ns);
void vt_trace_drafts(vt_trace_ring *r, uint64_t request, int64_t at_ns, int32_t n,
                     int32_t n_accepted, int32_t n_forced);
void vt_trace_write(vt_trace_ring *r, uint64_t request, int64_t begin_ns, int64_t end_ns,
                    int64_t spent_ns, int64_t n_bytes);
/* A sequence ended; the prefix tree has its KV up to this page, whose last token the step wrote. */
void vt_trace_left(vt_trace_ring *r, uint64_t request, int64_t at_ns, int32_t page, uint64_t step);
void vt_trace_cache_event(vt_trace_ring *r, uint64_t request, int64_t at_ns, vt_trace_cache what,
                          int32_t n);
/* Pages were evicted; why: vt_evict. */
void vt_trace_evict(vt_trace_ring *r, int64_t at_ns, int32_t n, int32_t why);

/* A vt_req_token in a ring of such events, which says nothing of when it was published: its step
 * tells when it was made. vt_trace_token writes this form to a ring of 16-byte events. */
typedef struct vt_packed_token {
    uint64_t request : 36, index : 28;
    uint64_t step : 40, token : 24;
} vt_packed_token;

/* vt_trace_copy of a ring of packed tokens, as VT_REQ_TOKEN events whose at_ns is 0. */
uint64_t vt_trace_copy_tokens(const vt_trace_ring *r, vt_request_event *out, uint64_t max);

/* ---- steps: events that the engine's thread writes ---- */

typedef enum vt_step_kind { VT_STEP_RAN = 1, VT_STEP_PART, VT_STEP_SEQ } vt_step_kind;

/* The parts of the engine's work for a step: it decides what is in it; launches it; takes in the
 * tokens that the device sampled; makes text of them and calls back. Before it decides, a draft
 * model may compute guesses for it. */
typedef enum vt_trace_part {
    VT_PART_SCHEDULE = 0,
    VT_PART_PREPARE,
    VT_PART_SAMPLE,
    VT_PART_PUBLISH,
    VT_PART_DRAFT,
    VT_PARTS
} vt_trace_part;

/* A step's device work is over. */
typedef struct vt_step_ran {
    vt_step_kind kind;
    int32_t n_tokens;
    uint64_t step;
    int64_t begin_ns, end_ns; /* of the device's work */
    int32_t n_seqs, n_decode;
    int32_t pages_held, pages_cached, pages_free; /* after it */
} vt_step_ran;

typedef struct vt_step_part {
    vt_step_kind kind;
    vt_trace_part part;
    uint64_t step;
    int64_t begin_ns, end_ns;
    int64_t text_ns; /* PUBLISH: the text was made, the callbacks began; else, or not known: 0 */
} vt_step_part;

/* One sequence of a step. */
typedef struct vt_step_seq {
    vt_step_kind kind;
    int32_t q_len; /* new tokens; kv_len: its context after them */
    uint64_t step, request;
    int32_t kv_len;
    /* pages that another decode of the step has too: the same number for all of a group, and 0 for
     * one of them */
    int32_t shared_pages;
} vt_step_seq;

typedef union vt_step_event {
    vt_step_kind kind;
    struct { /* the members that all kinds begin with */
        vt_step_kind kind_;
        int32_t n_;
        uint64_t step;
    };
    vt_step_ran ran;
    vt_step_part part;
    vt_step_seq seq;
} vt_step_event;

/* A vt_step_seq in a ring of such events; vt_trace_seq writes this form to a ring of 16-byte
 * events. More shared pages than fit are told as the most that do. */
typedef struct vt_packed_seq {
    uint64_t request : 36, q_len : 28;
    uint64_t step : 24, kv_len : 24, shared_pages : 16; /* step: its low bits */
} vt_packed_seq;

/* vt_trace_copy of a ring of packed sequences, as VT_STEP_SEQ events. `newest`: a step number that
 * none of them is above, and none more than 2^24 below. */
uint64_t vt_trace_copy_seqs(const vt_trace_ring *r, uint64_t newest, vt_step_event *out,
                            uint64_t max);

/* `e`: all but its kind. */
void vt_trace_step(vt_trace_ring *r, const vt_step_ran *e);
void vt_trace_part_of(vt_trace_ring *r, uint64_t step, vt_trace_part part, int64_t begin_ns,
                      int64_t end_ns);
/* VT_PART_PUBLISH: making text of tokens from begin to text_ns, and calling back from there. */
void vt_trace_publish(vt_trace_ring *r, uint64_t step, int64_t begin_ns, int64_t text_ns,
                      int64_t end_ns);
void vt_trace_seq(vt_trace_ring *r, uint64_t step, uint64_t request, int32_t q_len, int32_t kv_len,
                  int32_t shared_pages);

/* ---- spans: when the calls of a step ran ----
 *
 *   base 17 | call 0 | wait 0 | call 1 | wait 1 | ... | base 18 | call 0 ...
 *
 * Times are relative to the base in front of them, so that a span takes 16 bytes. A span may begin
 * and last up to 2^40 ns (18 minutes) after its base; a longer time is cut to that. Spans whose
 * base has been overwritten belong to no step.
 *
 * A worker of a CPU team writes one span for a call and the wait after it (VT_SPAN_MET). Where one
 * of the two lasts longer than 2^32 ns (4.3 s), it writes a call and a wait. So does a stream that
 * waits for other ranks within a call. */

typedef enum vt_span_kind {
    VT_SPAN_BASE = 1,
    VT_SPAN_CALL,
    VT_SPAN_WAIT,
    VT_SPAN_KERNEL,
    VT_SPAN_MET
} vt_span_kind;

/* The records that follow belong to this step. */
typedef struct vt_span_base {
    uint64_t kind : 4, step : 60;
    int64_t begin_ns;
} vt_span_base;

/* A call as this worker or stream ran it; `call` is its index in the program. A wait: what the
 * worker waited at the barrier after the call. */
typedef struct vt_span_call {
    uint64_t kind : 4, call : 20, begin_ns : 40;
    uint64_t length_ns : 40, early_ns : 24; /* early_ns: of a call, vt_trace_stamped's */
} vt_span_call;

/* A call, and the wait at the barrier that followed it at once. */
typedef struct vt_span_met {
    uint64_t kind : 4, call : 20, begin_ns : 40;
    uint32_t length_ns, wait_ns;
} vt_span_met;

/* The call launched kernel instance `kernel` of the source's list. */
typedef struct vt_span_kernel {
    uint64_t kind : 4, call : 20, kernel : 40;
    uint64_t unused;
} vt_span_kernel;

typedef union vt_span {
    struct {
        uint64_t kind : 4, : 60;
    };
    vt_span_base base;
    vt_span_call call, wait;
    vt_span_kernel kernel;
    vt_span_met met;
} vt_span;

void vt_trace_base(vt_trace_ring *r, uint64_t step, int64_t begin_ns);
/* base_ns: the begin_ns of the last vt_trace_base. */
void vt_trace_call(vt_trace_ring *r, int64_t base_ns, int32_t call, int64_t begin_ns,
                   int64_t end_ns);
/* The same; its first CTA had begun early_ns (at most 16 ms is told) before the end of the call
 * before it, which is its begin_ns. */
void vt_trace_stamped(vt_trace_ring *r, int64_t base_ns, int32_t call, int64_t begin_ns,
                      int64_t end_ns, int64_t early_ns);
void vt_trace_wait(vt_trace_ring *r, int64_t base_ns, int32_t call, int64_t begin_ns,
                   int64_t end_ns);
/* A call that ran from begin to ran_ns, and a wait from there to met_ns. */
void vt_trace_met(vt_trace_ring *r, int64_t base_ns, int32_t call, int64_t begin_ns, int64_t ran_ns,
                  int64_t met_ns);
void vt_trace_kernel(vt_trace_ring *r, int32_t call, int32_t kernel);

/* The spans of one worker or stream. Each step's spans are in one of these rings:
 *
 *   step                                      ring       recorded      how far back it reaches
 *   has prompt tokens                         prompts    every one     the newest 48
 *   decodes alone, number not divisible by 4  level[0]   every 2nd     128 steps
 *   ... by 4 and not by 16                    level[1]   every 2nd     512 steps
 *   ... by 16 and not by 64                   level[2]   every 3rd     3,072 steps
 *   ... by 64 and not by 256                  level[3]   every one     4,096 steps
 *   ... by 256                                level[4]   every one     12,288 steps
 *
 * Near the present most recorded steps are there, and the further back, the fewer; nothing is ever
 * moved. A ring has room for 48 steps that run every call of the program, so this is the least that
 * it holds. Memory: 6 rings of 48 steps, rounded up to a power of two of 16 bytes each: 1.5 MB a
 * worker for 30 layers (275 calls). */
enum { VT_SPAN_LEVELS = 5, VT_SPAN_STEPS = 48 };

typedef struct vt_span_rings {
    vt_trace_ring prompts, level[VT_SPAN_LEVELS];
} vt_span_rings;

/* Room for VT_SPAN_STEPS steps of up to `spans` spans each, in every ring. */
vt_status vt_spans_init(vt_span_rings *r, int64_t spans, vt_err *err);
void vt_spans_release(vt_span_rings *r);
/* The ring of step number `step`. */
vt_trace_ring *vt_spans_of(vt_span_rings *r, uint64_t step, bool prompts);
/* The most spans that vt_spans_copy can give now. */
uint64_t vt_spans_held(const vt_span_rings *r);
/* Copies what all rings hold to out[max]; returns how many spans. Each step's spans are together,
 * behind their base; the steps are in no order. */
uint64_t vt_spans_copy(const vt_span_rings *r, vt_span *out, uint64_t max);

/* Returns true if the op calls of decode step `step` are recorded. They are in blocks of 8 steps in
 * turn: on, off, off, on. Comparing neighbouring blocks tells what recording costs, inside every
 * request, and a drift (a growing context) cancels out: in every second pair the recorded block
 * comes first. */
enum { VT_SPAN_BLOCK = 8 };
static inline bool vt_spans_on(uint64_t step)
{
    uint64_t block = step / VT_SPAN_BLOCK % 4;
    return block == 0 || block == 3;
}

/* ---- use: what the operating system gave a thread, between two readings ---- */

/* Hardware events that a CPU counts for a thread (base/counters.h). */
typedef enum vt_counter {
    VT_COUNT_CYCLES,
    VT_COUNT_INSTRUCTIONS,
    VT_COUNT_MISSES, /* reads that the last-level cache did not have, without a prefetcher's */
    VT_COUNT_AMX,    /* cycles in which AMX had work */
    /* Slots, of which a core issues several a cycle, and what became of them (Intel's top-down
     * method). A CPU counts all of them at the same times, or none. */
    VT_COUNT_SLOTS,
    VT_COUNT_RETIRING, /* their instruction was carried out */
    VT_COUNT_BAD,      /* or thrown away: a wrong guess of a branch */
    VT_COUNT_FRONT,    /* there was no instruction to issue */
    VT_COUNT_BACK,     /* the instruction waited: for memory, or for a unit of the core */
    VT_COUNTERS,
    VT_COUNTERS_OF_STEPS = VT_COUNT_AMX /* that a story tells step by step */
} vt_counter;

/* About the steps step - n_steps + 1 .. step, and what lies between them. A value too large for its
 * bits is the largest that fits. */
typedef struct vt_use_event {
    uint64_t step : 48, n_steps : 16;
    uint64_t elapsed_ns : 44, switches : 20; /* involuntary context switches */
    uint64_t cpu_ns : 44, minor_faults : 20;
    uint64_t delay_ns : 44, major_faults : 20; /* ready to run, and no CPU was free */
    /* counted: bit c is set where count[c] is known. cpu, node: where the thread was at the end;
     * they are known where `placed` is set. */
    uint64_t counted : 16, placed : 1, cpu : 20, node : 12, : 15;
    uint64_t count[VT_COUNTERS];
} vt_use_event;

void vt_trace_use(vt_trace_ring *r, const vt_use_event *e);

/* ---- vitals: what a GPU's hardware counted while a call ran ---- */

/* Why a warp issues no instruction, by CUPTI's names (device/cupti/stalls.h has the words). */
typedef enum vt_stall {
    VT_STALL_long_scoreboard,
    VT_STALL_short_scoreboard,
    VT_STALL_barrier,
    VT_STALL_gmma,
    VT_STALL_math_pipe_throttle,
    VT_STALL_wait,
    VT_STALL_mio_throttle,
    VT_STALL_lg_throttle,
    VT_STALL_not_selected,
    VT_STALL_no_instruction,
    VT_STALL_selected,
    VT_STALL_membar,
    VT_STALL_drain,
    VT_STALL_dispatch_stall,
    VT_STALL_branch_resolving,
    VT_STALL_sleeping,
    VT_STALL_imc_miss,
    VT_STALL_misc,
    VT_STALL_tex_throttle,
    VT_STALLS
} vt_stall;

/* Rows of vt_vitals (device/cupti/vitals.h), which has their names. */
typedef enum vt_vital {
    VT_VITAL_TIME, /* nanoseconds */
    VT_VITAL_SM,
    VT_VITAL_TENSOR,
    VT_VITAL_DRAM_READ,
    VT_VITAL_DRAM_WRITTEN,
    VT_VITAL_DRAM,
    VT_VITAL_L2_HIT,
    VT_VITAL_WARPS,
    VT_VITAL_CONFLICTS,
    VT_VITAL_WAVEFRONTS,
    VT_VITAL_SM_CYCLES,   /* in which an SM had work, of the mean SM */
    VT_VITAL_SM_MOST,     /* of the SM that had work longest */
    VT_VITAL_WARP_CYCLES, /* cycles of all warps: those of all stall reasons together */
    VT_VITAL_INSTRUCTIONS,
    VT_VITAL_STALLED, /* cycles of the first stall reason; the others follow in their order */
    VT_VITAL_LOADS = VT_VITAL_STALLED + VT_STALLS,
    VT_VITAL_LOAD_SECTORS,
    VT_VITAL_LOCAL_LOADS,
    VT_VITAL_LOCAL_STORES,
    VT_VITALS
} vt_vital;

/* The counts of call `call` of a step, which ran alone and in no graph. NAN stands for a value not
 * counted. Shares are of 1. */
typedef struct vt_vital_event {
    uint64_t step : 40, call : 24;
    double value[VT_VITALS];
} vt_vital_event;

void vt_trace_vitals(vt_trace_ring *r, const vt_vital_event *e);

/* ---- counters over time: what a whole GPU was doing, at equal intervals ---- */

/* Rows of vt_pm_rows (device/cupti/pm.h), which has their names. */
typedef enum vt_pm_lane {
    VT_PM_SM,
    VT_PM_TENSOR,
    VT_PM_DRAM_READ,
    VT_PM_DRAM_WRITTEN,
    VT_PM_L2_HIT,
    VT_PM_PCIE_IN,
    VT_PM_PCIE_OUT,
    VT_PM_LANES
} vt_pm_lane;

/* Counts between two moments. NAN stands for a value not counted. */
typedef struct vt_pm_event {
    int64_t begin_ns, end_ns;
    float value[VT_PM_LANES]; /* a share of 1, or bytes a second */
    float lost_us;            /* before it, of which the hardware's record was overwritten */
} vt_pm_event;

void vt_trace_pm(vt_trace_ring *r, const vt_pm_event *e);

/* ---- activity: when a GPU's kernels and copies ran, as CUPTI tells it ---- */

typedef enum vt_activity_kind {
    VT_ACTIVITY_KERNEL,
    VT_ACTIVITY_COPY,
    VT_ACTIVITY_FILL
} vt_activity_kind;

/* A kernel, copy or fill of a step that was recorded. */
typedef struct vt_activity_event {
    uint64_t step : 40, call : 24; /* call: all bits set: of no call, or not known */
    int64_t begin_ns, end_ns;
    uint64_t kind : 2, in_graph : 1, : 5, name : 16, bytes : 40; /* name: vt_activity_facts.name */
} vt_activity_event;

enum { VT_ACTIVITY_NO_CALL = 0xffffff };

void vt_trace_activity(vt_trace_ring *r, const vt_activity_event *e);

/* ---- samples: what the whole machine, or a whole GPU, was doing ---- */

/* A value that is not known is -1. */
typedef struct vt_machine_event {
    int64_t at_ns;
    int64_t pressure_us;               /* some task had to wait for a CPU: a sum since the start */
    int64_t steal_ticks, ticks;        /* that a hypervisor took; all. Sums since the start */
    int64_t energy_mj;                 /* of the GPU, or of all CPU packages: a sum */
    int64_t controllers;               /* memory controllers that were read; 0: none, */
    int64_t read_bytes, written_bytes; /* and what they moved: sums since the start */
    int64_t throttle;                  /* bits: vt_nvml_reason */
    int32_t sm_mhz, memory_mhz;
    int32_t power_mw, others_percent; /* of the GPU's time that other processes used */
} vt_machine_event;

void vt_trace_machine(vt_trace_ring *r, const vt_machine_event *e);

/* ---- launches: how a GPU ran its steps ---- */

/* A step's arrays on their way to the device (page copies with them), and its results back. */
typedef enum vt_trace_move { VT_MOVE_TO_DEVICE = 0, VT_MOVE_TO_HOST, VT_MOVES } vt_trace_move;

typedef struct vt_launch_event {
    uint64_t step;
    int64_t begin_ns, end_ns; /* on the device */
    int64_t idle_ns;          /* the device had nothing to do for so long before the step */
    int64_t move_bytes[VT_MOVES];
    /* The time that a timed step spent before its first call and after its last one. */
    int64_t move_ns[VT_MOVES];
    int64_t
        launch_ns; /* of a stamped step: from the end of its upload until its first call began */
    int32_t n_kernels;
    int32_t graph_tokens; /* of the graph that the step fits, with its padding; 0: none */
    bool timed;   /* its calls ran one by one, and there are spans if events lay between them; or it
                   * was recorded by CUPTI: its length is not that of other steps */
    bool stamped; /* it ran as it always does, and its kernels were stamped: there are spans */
} vt_launch_event;

void vt_trace_launch(vt_trace_ring *r, const vt_launch_event *e);

#endif
