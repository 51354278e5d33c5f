/* The trace ring: one producer, any number of readers, newest events win.
 *
 *   event[written & (capacity - 1)] is the next to be overwritten
 *
 * A reader copies a window and then looks at `written` again: events that the producer may have
 * overwritten meanwhile are dropped from the front of the copy. The copy of an event that is being
 * written may be torn, but it is always among those dropped. */
#include "base/trace.h"

#include <stdlib.h>

#include "base/err.h"
#include "base/mem.h"

static const uint64_t kMaxCapacity = (uint64_t)1 << 26;

vt_status vt_trace_init(vt_trace_ring *r, uint64_t capacity, vt_err *err)
{
    if (capacity == 0 || capacity > kMaxCapacity)
        return vt_fail(err, VT_ERR_USAGE, "trace ring: capacity %llu is not in 1..%llu",
                       (unsigned long long)capacity, (unsigned long long)kMaxCapacity);
    uint64_t cap = 1;
    while (cap < capacity)
        cap *= 2;
    vt_trace_event *event = vt_calloc(cap, sizeof *event);
    if (!event)
        return vt_fail(err, VT_ERR_MEMORY, "trace ring: out of memory for %llu events",
                       (unsigned long long)cap);
    r->event = event;
    r->capacity = cap;
    atomic_store(&r->written, 0);
    return VT_OK;
}

void vt_trace_release(vt_trace_ring *r)
{
    if (!r)
        return;
    free(r->event);
    r->event = NULL;
    r->capacity = 0;
    atomic_store(&r->written, 0);
}

void vt_trace_add(vt_trace_ring *r, const vt_trace_event *e)
{
    if (!r || !r->event)
        return;
    uint64_t n = atomic_load_explicit(&r->written, memory_order_relaxed);
    r->event[n & (r->capacity - 1)] = *e;
    atomic_store_explicit(&r->written, n + 1, memory_order_release);
}

uint64_t vt_trace_copy(const vt_trace_ring *r, vt_trace_event *out, uint64_t max)
{
    if (!r || !r->event || max == 0)
        return 0;
    /* The slot of the oldest event is the one the producer may be writing now: it is never
     * copied. */
    uint64_t end = atomic_load_explicit(&r->written, memory_order_acquire);
    uint64_t held = end < r->capacity ? end : r->capacity - 1;
    uint64_t n = held < max ? held : max;
    uint64_t begin = end - n;
    for (uint64_t i = 0; i < n; i++)
        out[i] = r->event[(begin + i) & (r->capacity - 1)];
    atomic_thread_fence(memory_order_acquire);
    uint64_t now = atomic_load_explicit(&r->written, memory_order_relaxed);
    uint64_t whole = now + 1 > r->capacity ? now + 1 - r->capacity
                                           : 0; /* the first event surely whole */
    uint64_t lost = whole > begin ? whole - begin : 0;
    if (lost >= n)
        return 0;
    for (uint64_t i = lost; i < n; i++)
        out[i - lost] = out[i];
    return n - lost;
}
