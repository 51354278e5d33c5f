/* The trace ring: what happened, when, in fixed-size events.
 *
 * One ring per writing thread, single producer, overwriting the oldest. The engine and the
 * executors write; the story reads a copied window. Writing is ~20 ns, never allocates, never
 * blocks. Names are not stored: an event holds indices (step, call, request) that the reader
 * resolves through the program and the request table. */
#ifndef VT_BASE_TRACE_H
#define VT_BASE_TRACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "vitrine.h"

typedef enum vt_trace_kind {
    VT_TRACE_NONE = 0,
    VT_TRACE_REQUEST,   /* id = request; a = vt_trace_request; b, c by stage (see below) */
    VT_TRACE_STEP,      /* one engine step: id = step; a = tokens, b = sequences, c = decodes */
    VT_TRACE_STEP_PART, /* id = step; a = vt_trace_part */
    VT_TRACE_STEP_SEQ,  /* a sequence's share: id = request; a = step, b = q_len, c = kv_len,
                           spare = pages that another decode of the step has too (the same for all
                           of a group, and 0 for one of them) */
    VT_TRACE_CALL,      /* one op call as the device ran it: id = step; a = index in the program,
                           b = worker or stream */
    VT_TRACE_WAIT,      /* a worker waited at the barrier after call `a` of step `id`: b = worker;
                           a = -1: a GPU had nothing to do before the step */
    VT_TRACE_MEMORY,    /* after step id: a = pages held, b = cached, c = free */
    VT_TRACE_CACHE,     /* id = request; a = vt_trace_cache, b = tokens or pages */
    VT_TRACE_LAUNCH, /* how a GPU ran step id (its span there): a = kernels, b = bytes copied to the
                           device, c = tokens of the graph that it fits, padded (0: none), spare = 1
                           where its calls ran one by one between events instead */
    VT_TRACE_MOVE,   /* a span of a timed step in which no call ran: id = step, a = vt_trace_move,
                           b = bytes */
    VT_TRACE_KERNEL, /* call a of step id launched instance b of the JIT's list */
    VT_TRACE_KINDS
} vt_trace_kind;

/* Field a of VT_TRACE_REQUEST. */
typedef enum vt_trace_request {
    VT_REQ_ARRIVE = 0, /* b = prompt tokens, c = prompt bytes (0 if it came as ids) */
    VT_REQ_TOKENISE,   /* span; b = tokens */
    VT_REQ_MATCH,      /* span; b = cached tokens, c = those copied from a partly matching page */
    VT_REQ_ADMIT,      /* b = pages taken */
    VT_REQ_RETRACT,
    VT_REQ_TOKEN, /* published: b = index in the output, c = token id */
    VT_REQ_FINISH /* b = vt_finish, c = completion tokens */
} vt_trace_request;

typedef enum vt_trace_part {
    VT_PART_SCHEDULE = 0,
    VT_PART_PREPARE,
    VT_PART_DEVICE,
    VT_PART_SAMPLE,
    VT_PART_PUBLISH,
    VT_PARTS
} vt_trace_part;

/* The step's arrays on their way to the device (page copies with them), and its results back. */
typedef enum vt_trace_move { VT_MOVE_TO_DEVICE = 0, VT_MOVE_TO_HOST, VT_MOVES } vt_trace_move;

typedef enum vt_trace_cache { VT_CACHE_HIT = 0, VT_CACHE_INSERT, VT_CACHE_EVICT } vt_trace_cache;

typedef struct vt_trace_event {
    int64_t begin_ns, end_ns; /* equal for an instant */
    uint64_t id;
    uint16_t kind; /* vt_trace_kind */
    uint16_t spare;
    int32_t a, b, c;
} vt_trace_event; /* 40 bytes */

typedef struct vt_trace_ring {
    vt_trace_event *event; /* [capacity], capacity a power of two */
    uint64_t capacity;
    _Atomic uint64_t written; /* events ever written; index is written & (capacity - 1) */
} vt_trace_ring;

vt_status vt_trace_init(vt_trace_ring *r, uint64_t capacity, vt_err *err); /* rounded up to 2^k */
void vt_trace_release(vt_trace_ring *r);
/* NULL ring: nothing is recorded. */
void vt_trace_add(vt_trace_ring *r, const vt_trace_event *e);
/* Copies the newest up to `max` events, oldest first; returns how many. Safe against a running
 * writer: events overwritten during the copy are left out. */
uint64_t vt_trace_copy(const vt_trace_ring *r, vt_trace_event *out, uint64_t max);

#endif
