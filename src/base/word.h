/* A 32-bit word that threads wait on: they spin for at most 20 us (VITRINE_SPIN_US), then yield to
 * other threads for 25 times as long, then sleep on it with a futex.
 *
 * A waiter announces itself in `sleepers` before it sleeps, so a writer that sees 0 there skips the
 * system call. */
#ifndef VT_BASE_WORD_H
#define VT_BASE_WORD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"

typedef struct vt_word {
    _Alignas(VT_CACHE_LINE) atomic_uint value; /* on a cache line of its own */
    atomic_int sleepers;
} vt_word;

/* Memory that a thread will read soon. It comes into the second-level cache line by line, from the
 * `n` places in turn, while the thread waits. */
enum { VT_AHEAD_PLACES = 8 };
typedef struct vt_ahead {
    const char *place[VT_AHEAD_PLACES];
    int32_t n;         /* places; 0: nothing is read ahead */
    int64_t at, bytes; /* read so far, and in all, of each place */
} vt_ahead;

/* Sets how long all waits spin from now on. */
void vt_word_spin(int64_t us);
/* Returns once the value is no longer `old`. */
void vt_word_wait(vt_word *w, unsigned old);
/* The same, and reads ahead meanwhile. */
void vt_word_wait_ahead(vt_word *w, unsigned old, vt_ahead *ahead);
/* Adds one and wakes all waiters. */
void vt_word_bump(vt_word *w);

/* Returns true if the value has come to `target`; values are compared around 2^32. */
static inline bool vt_word_reached(const vt_word *w, unsigned target)
{
    return (int)(atomic_load_explicit(&w->value, memory_order_acquire) - target) >= 0;
}
/* Waits until the value has come to `target`. Returns false if *stop is not negative: it then waits
 * no longer, and sees the change within a tenth of a second. */
bool vt_word_reach(vt_word *w, unsigned target, const atomic_int *stop);
/* Sets the value and wakes all waiters. */
void vt_word_set(vt_word *w, unsigned value);

#endif
