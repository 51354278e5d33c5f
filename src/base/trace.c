/* The trace ring: one writer, any number of readers, newest events win.
 *
 *   slot[written % capacity] is the next to be overwritten
 *
 * A reader copies a window and then looks at `written` again: events that the writer may have
 * overwritten meanwhile are dropped from the front of the copy. The copy of an event that is being
 * written may be torn, but it is always among those dropped.
 *
 * Slots are written and read in words, as relaxed atomics: plain moves on every machine, and no
 * data race for the language. The fences order them: who reads a word of event n reads `written` >=
 * n afterwards. */
#include "base/trace.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

static const uint64_t kMaxCapacity = (uint64_t)1 << 26;
enum { WORD = sizeof(uint64_t), MAX_EVENT_BYTES = 48 * WORD };

_Static_assert(sizeof(vt_request_event) == 40, "base/trace.h says so");
_Static_assert(sizeof(vt_step_event) == 56, "base/trace.h says so");
_Static_assert(sizeof(vt_span) == 16, "base/trace.h says so");
_Static_assert(sizeof(vt_launch_event) == 88, "base/trace.h says so");
_Static_assert(sizeof(vt_packed_token) == 16, "base/trace.h says so");
_Static_assert(sizeof(vt_packed_seq) == 16, "base/trace.h says so");
_Static_assert(sizeof(vt_use_event) == 112, "base/trace.h says so");
_Static_assert(sizeof(vt_machine_event) == 88, "base/trace.h says so");

vt_status vt_trace_init(vt_trace_ring *r, size_t event_bytes, uint64_t capacity, vt_err *err)
{
    assert(event_bytes > 0 && event_bytes <= MAX_EVENT_BYTES && event_bytes % WORD == 0);
    if (capacity == 0 || capacity > kMaxCapacity)
        return vt_fail(err, VT_ERR_USAGE, "trace ring: capacity %llu is not in 1..%llu",
                       (unsigned long long)capacity, (unsigned long long)kMaxCapacity);
    uint64_t cap = 1;
    while (cap < capacity)
        cap *= 2;
    _Atomic uint64_t *slot = vt_calloc(cap, event_bytes);
    if (!slot)
        return vt_fail(err, VT_ERR_MEMORY, "trace ring: out of memory for %llu events",
                       (unsigned long long)cap);
    r->slot = slot;
    r->event_bytes = event_bytes;
    r->capacity = cap;
    atomic_store(&r->written, 0);
    return VT_OK;
}

void vt_trace_release(vt_trace_ring *r)
{
    if (!r)
        return;
    free(r->slot);
    r->slot = NULL;
    r->capacity = 0;
    atomic_store(&r->written, 0);
}

/* `bytes` is a constant at every call, so the loop is a few moves. */
static inline void put(vt_trace_ring *r, const void *event, size_t bytes)
{
    if (!r || !r->slot)
        return;
    assert(r->event_bytes == bytes);
    uint64_t n = atomic_load_explicit(&r->written, memory_order_relaxed),
             word[MAX_EVENT_BYTES / WORD];
    _Atomic uint64_t *slot = r->slot + (n & (r->capacity - 1)) * (bytes / WORD);
    memcpy(word, event, bytes);
    atomic_thread_fence(memory_order_release);
    for (size_t i = 0; i < bytes / WORD; i++)
        atomic_store_explicit(&slot[i], word[i], memory_order_relaxed);
    atomic_store_explicit(&r->written, n + 1, memory_order_release);
}

uint64_t vt_trace_copy(const vt_trace_ring *r, void *out, uint64_t max)
{
    if (!r || !r->slot || max == 0)
        return 0;
    /* The slot of the oldest event is the one the writer may be filling now: it is never copied. */
    uint64_t end = atomic_load_explicit(&r->written, memory_order_acquire);
    uint64_t held = end < r->capacity ? end : r->capacity - 1;
    uint64_t n = held < max ? held : max;
    uint64_t begin = end - n;
    size_t words = r->event_bytes / WORD;
    uint64_t *to = out;
    for (uint64_t i = 0; i < n; i++) {
        const _Atomic uint64_t *slot = r->slot + ((begin + i) & (r->capacity - 1)) * words;
        for (size_t k = 0; k < words; k++)
            *to++ = atomic_load_explicit(&slot[k], memory_order_relaxed);
    }
    atomic_thread_fence(memory_order_acquire);
    uint64_t now = atomic_load_explicit(&r->written, memory_order_relaxed);
    /* the first event that is surely whole */
    uint64_t whole = now + 1 > r->capacity ? now + 1 - r->capacity : 0;
    uint64_t lost = whole > begin ? whole - begin : 0;
    if (lost >= n)
        return 0;
    memmove(out, (char *)out + lost * r->event_bytes, (n - lost) * r->event_bytes);
    return n - lost;
}

/* ---- requests ---- */

static void put_request(vt_trace_ring *r, const vt_request_event *e) { put(r, e, sizeof *e); }

void vt_trace_arrive(vt_trace_ring *r, uint64_t request, int64_t at_ns, int32_t n_prompt,
                     int32_t adapter)
{
    put_request(r,
                &(vt_request_event){.arrive = {VT_REQ_ARRIVE, n_prompt, request, at_ns, adapter}});
}

void vt_trace_tokenise(vt_trace_ring *r, uint64_t request, int64_t begin_ns, int64_t end_ns,
                       int32_t n_tokens)
{
    put_request(
        r, &(vt_request_event){.tokenise = {VT_REQ_TOKENISE, n_tokens, request, begin_ns, end_ns}});
}

void vt_trace_req_part(vt_trace_ring *r, vt_request_kind kind, uint64_t request, int64_t begin_ns,
                       int64_t end_ns)
{
    put_request(r, &(vt_request_event){.part = {kind, request, begin_ns, end_ns}});
}

void vt_trace_req_wait(vt_trace_ring *r, uint64_t request, int32_t index, int64_t begin_ns,
                       int64_t end_ns, vt_wait_reason reason, uint64_t step)
{
    put_request(r, &(vt_request_event){.wait = {VT_REQ_WAIT, reason, request, begin_ns, end_ns,
                                                (uint32_t)step, index}});
}

const char *vt_wait_reason_name(int32_t reason)
{
    static const char *const name[VT_WAIT_REASONS] = {"none",  "step",   "tokens", "rows",  "slots",
                                                      "pages", "prefix", "policy", "flight"};
    return reason >= 0 && reason < VT_WAIT_REASONS ? name[reason] : NULL;
}

void vt_trace_match(vt_trace_ring *r, uint64_t request, int64_t begin_ns, int64_t end_ns,
                    int32_t n_cached, int32_t n_copied)
{
    put_request(r, &(vt_request_event){
                       .match = {VT_REQ_MATCH, n_cached, request, begin_ns, end_ns, n_copied}});
}

void vt_trace_admit(vt_trace_ring *r, uint64_t request, int64_t at_ns, int32_t n_pages)
{
    put_request(r, &(vt_request_event){.admit = {VT_REQ_ADMIT, n_pages, request, at_ns}});
}

void vt_trace_retract(vt_trace_ring *r, uint64_t request, int64_t at_ns)
{
    put_request(r, &(vt_request_event){.retract = {VT_REQ_RETRACT, request, at_ns}});
}

void vt_trace_token(vt_trace_ring *r, uint64_t request, int64_t at_ns, uint64_t step, int32_t index,
                    int32_t token)
{
    if (!r || r->event_bytes != sizeof(vt_packed_token)) {
        put_request(
            r, &(vt_request_event){.token = {VT_REQ_TOKEN, index, request, at_ns, step, token}});
        return;
    }
    vt_packed_token e = {.request = request & (((uint64_t)1 << 36) - 1),
                         .index = (uint32_t)index & 0xfffffff,
                         .step = step & (((uint64_t)1 << 40) - 1),
                         .token = (uint32_t)token & 0xffffff};
    put(r, &e, sizeof e);
}

/* The packed events lie in the last part of `out` first: each is read before what is written in its
 * place. */
uint64_t vt_trace_copy_tokens(const vt_trace_ring *r, vt_request_event *out, uint64_t max)
{
    vt_packed_token *packed = (vt_packed_token *)((char *)out +
                                                  max * (sizeof *out - sizeof *packed));
    uint64_t n = vt_trace_copy(r, packed, max);
    for (uint64_t i = 0; i < n; i++) {
        vt_packed_token e = packed[i];
        out[i] = (vt_request_event){
            .token = {VT_REQ_TOKEN, (int32_t)e.index, e.request, 0, e.step, (int32_t)e.token}};
    }
    return n;
}

void vt_trace_finish(vt_trace_ring *r, uint64_t request, int64_t at_ns, int32_t end,
                     int32_t n_output)
{
    put_request(r, &(vt_request_event){.finish = {VT_REQ_FINISH, end, request, at_ns, n_output}});
}

void vt_trace_masks(vt_trace_ring *r, uint64_t request, int64_t at_ns, int32_t n, int32_t n_new,
                    int64_t ns, int64_t slowest_ns)
{
    int64_t us = slowest_ns / 1000;
    put_request(r, &(vt_request_event){.masks = {VT_REQ_MASKS, n, request, at_ns, ns, n_new,
                                                 us < INT32_MAX ? (int32_t)us : INT32_MAX}});
}

void vt_trace_drafts(vt_trace_ring *r, uint64_t request, int64_t at_ns, int32_t n,
                     int32_t n_accepted, int32_t n_forced)
{
    put_request(
        r, &(vt_request_event){.drafts = {VT_REQ_DRAFTS, n, request, at_ns, n_accepted, n_forced}});
}

void vt_trace_write(vt_trace_ring *r, uint64_t request, int64_t begin_ns, int64_t end_ns,
                    int64_t spent_ns, int64_t n_bytes)
{
    int32_t n = n_bytes < INT32_MAX ? (int32_t)n_bytes : INT32_MAX;
    put_request(
        r, &(vt_request_event){.write = {VT_REQ_WRITE, n, request, begin_ns, end_ns, spent_ns}});
}

void vt_trace_left(vt_trace_ring *r, uint64_t request, int64_t at_ns, int32_t page, uint64_t step)
{
    put_request(r, &(vt_request_event){.cache = {.kind = VT_REQ_CACHE,
                                                 .n = page,
                                                 .request = request,
                                                 .at_ns = at_ns,
                                                 .what = VT_CACHE_LEFT,
                                                 .why = (int32_t)(uint32_t)step}});
}

void vt_trace_cache_event(vt_trace_ring *r, uint64_t request, int64_t at_ns, vt_trace_cache what,
                          int32_t n)
{
    put_request(r, &(vt_request_event){.cache = {VT_REQ_CACHE, n, request, at_ns, what, 0}});
}

void vt_trace_evict(vt_trace_ring *r, int64_t at_ns, int32_t n, int32_t why)
{
    put_request(
        r,
        &(vt_request_event){
            .cache = {
                .kind = VT_REQ_CACHE, .n = n, .at_ns = at_ns, .what = VT_CACHE_EVICT, .why = why}});
}

/* ---- steps ---- */

static void put_step(vt_trace_ring *r, const vt_step_event *e) { put(r, e, sizeof *e); }

void vt_trace_step(vt_trace_ring *r, const vt_step_ran *ran)
{
    vt_step_event e = {.ran = *ran};
    e.ran.kind = VT_STEP_RAN;
    put_step(r, &e);
}

void vt_trace_part_of(vt_trace_ring *r, uint64_t step, vt_trace_part part, int64_t begin_ns,
                      int64_t end_ns)
{
    put_step(r, &(vt_step_event){.part = {VT_STEP_PART, part, step, begin_ns, end_ns}});
}

void vt_trace_publish(vt_trace_ring *r, uint64_t step, int64_t begin_ns, int64_t text_ns,
                      int64_t end_ns)
{
    put_step(r, &(vt_step_event){
                    .part = {VT_STEP_PART, VT_PART_PUBLISH, step, begin_ns, end_ns, text_ns}});
}

void vt_trace_seq(vt_trace_ring *r, uint64_t step, uint64_t request, int32_t q_len, int32_t kv_len,
                  int32_t shared_pages)
{
    if (!r || r->event_bytes != sizeof(vt_packed_seq)) {
        put_step(
            r, &(vt_step_event){.seq = {VT_STEP_SEQ, q_len, step, request, kv_len, shared_pages}});
        return;
    }
    vt_packed_seq e = {.request = request & (((uint64_t)1 << 36) - 1),
                       .q_len = (uint32_t)q_len & 0xfffffff,
                       .step = step & 0xffffff,
                       .kv_len = (uint32_t)kv_len & 0xffffff,
                       .shared_pages = shared_pages < UINT16_MAX ? (uint16_t)shared_pages
                                                                 : UINT16_MAX};
    put(r, &e, sizeof e);
}

uint64_t vt_trace_copy_seqs(const vt_trace_ring *r, uint64_t newest, vt_step_event *out,
                            uint64_t max)
{
    vt_packed_seq *packed = (vt_packed_seq *)((char *)out + max * (sizeof *out - sizeof *packed));
    uint64_t n = vt_trace_copy(r, packed, max);
    for (uint64_t i = 0; i < n; i++) {
        vt_packed_seq e = packed[i];
        uint64_t below = (newest - e.step) & 0xffffff;
        out[i] = (vt_step_event){.seq = {VT_STEP_SEQ, (int32_t)e.q_len, newest - below, e.request,
                                         (int32_t)e.kv_len, (int32_t)e.shared_pages}};
    }
    return n;
}

/* ---- spans ---- */

static const uint64_t kMost = ((uint64_t)1 << 40) - 1; /* of a time in a span */

static uint64_t since(int64_t from_ns, int64_t to_ns)
{
    uint64_t ns = to_ns > from_ns ? (uint64_t)(to_ns - from_ns) : 0;
    return ns < kMost ? ns : kMost;
}

static void put_span(vt_trace_ring *r, vt_span_kind kind, int64_t base_ns, int32_t call,
                     int64_t begin_ns, int64_t end_ns, int64_t early_ns)
{
    static const int64_t most_early = (1 << 24) - 1;
    vt_span e = {
        .call = {.kind = kind & 15,
                 .call = (uint32_t)call & 0xfffff,
                 .begin_ns = since(base_ns, begin_ns) & kMost,
                 .length_ns = since(begin_ns, end_ns) & kMost,
                 .early_ns = (uint64_t)(early_ns < most_early ? early_ns : most_early) & 0xffffff}};
    put(r, &e, sizeof e);
}

void vt_trace_base(vt_trace_ring *r, uint64_t step, int64_t begin_ns)
{
    vt_span e = {.base = {.kind = VT_SPAN_BASE,
                          .step = step & (((uint64_t)1 << 60) - 1),
                          .begin_ns = begin_ns}};
    put(r, &e, sizeof e);
}

void vt_trace_call(vt_trace_ring *r, int64_t base_ns, int32_t call, int64_t begin_ns,
                   int64_t end_ns)
{
    put_span(r, VT_SPAN_CALL, base_ns, call, begin_ns, end_ns, 0);
}

void vt_trace_stamped(vt_trace_ring *r, int64_t base_ns, int32_t call, int64_t begin_ns,
                      int64_t end_ns, int64_t early_ns)
{
    put_span(r, VT_SPAN_CALL, base_ns, call, begin_ns, end_ns, early_ns);
}

void vt_trace_wait(vt_trace_ring *r, int64_t base_ns, int32_t call, int64_t begin_ns,
                   int64_t end_ns)
{
    put_span(r, VT_SPAN_WAIT, base_ns, call, begin_ns, end_ns, 0);
}

void vt_trace_met(vt_trace_ring *r, int64_t base_ns, int32_t call, int64_t begin_ns, int64_t ran_ns,
                  int64_t met_ns)
{
    uint64_t length = since(begin_ns, ran_ns), wait = since(ran_ns, met_ns);
    if (length > UINT32_MAX || wait > UINT32_MAX) {
        vt_trace_call(r, base_ns, call, begin_ns, ran_ns);
        vt_trace_wait(r, base_ns, call, ran_ns, met_ns);
        return;
    }
    vt_span e = {.met = {.kind = VT_SPAN_MET,
                         .call = (uint32_t)call & 0xfffff,
                         .begin_ns = since(base_ns, begin_ns) & kMost,
                         .length_ns = (uint32_t)length,
                         .wait_ns = (uint32_t)wait}};
    put(r, &e, sizeof e);
}

void vt_trace_kernel(vt_trace_ring *r, int32_t call, int32_t kernel)
{
    vt_span e = {.kernel = {.kind = VT_SPAN_KERNEL,
                            .call = (uint32_t)call & 0xfffff,
                            .kernel = (uint32_t)kernel}};
    put(r, &e, sizeof e);
}

vt_status vt_spans_init(vt_span_rings *r, int64_t spans, vt_err *err)
{
    uint64_t room = (uint64_t)spans * VT_SPAN_STEPS;
    TRY(vt_trace_init(&r->prompts, sizeof(vt_span), room, err));
    for (int i = 0; i < VT_SPAN_LEVELS; i++)
        TRY(vt_trace_init(&r->level[i], sizeof(vt_span), room, err));
    return VT_OK;
}

void vt_spans_release(vt_span_rings *r)
{
    vt_trace_release(&r->prompts);
    for (int i = 0; i < VT_SPAN_LEVELS; i++)
        vt_trace_release(&r->level[i]);
}

vt_trace_ring *vt_spans_of(vt_span_rings *r, uint64_t step, bool prompts)
{
    int level = 0;
    while (level < VT_SPAN_LEVELS - 1 && step % 4 == 0) {
        step /= 4;
        level++;
    }
    return prompts ? &r->prompts : &r->level[level];
}

uint64_t vt_spans_held(const vt_span_rings *r)
{
    uint64_t n = r->prompts.capacity;
    for (int i = 0; i < VT_SPAN_LEVELS; i++)
        n += r->level[i].capacity;
    return n;
}

/* Appends a ring's spans, from its first base on: those before it belong to no known step. */
static uint64_t append_spans(const vt_trace_ring *r, vt_span *out, uint64_t max)
{
    uint64_t n = vt_trace_copy(r, out, max), lost = 0;
    while (lost < n && out[lost].kind != VT_SPAN_BASE)
        lost++;
    memmove(out, out + lost, (size_t)(n - lost) * sizeof *out);
    return n - lost;
}

uint64_t vt_spans_copy(const vt_span_rings *r, vt_span *out, uint64_t max)
{
    uint64_t n = append_spans(&r->prompts, out, max);
    for (int i = 0; i < VT_SPAN_LEVELS; i++)
        n += append_spans(&r->level[i], out + n, max - n);
    return n;
}

/* ---- use, samples ---- */

void vt_trace_use(vt_trace_ring *r, const vt_use_event *e) { put(r, e, sizeof *e); }
void vt_trace_pm(vt_trace_ring *r, const vt_pm_event *e) { put(r, e, sizeof *e); }

void vt_trace_activity(vt_trace_ring *r, const vt_activity_event *e) { put(r, e, sizeof *e); }
void vt_trace_vitals(vt_trace_ring *r, const vt_vital_event *e) { put(r, e, sizeof *e); }
void vt_trace_machine(vt_trace_ring *r, const vt_machine_event *e) { put(r, e, sizeof *e); }

/* ---- launches ---- */

void vt_trace_launch(vt_trace_ring *r, const vt_launch_event *e) { put(r, e, sizeof *e); }
