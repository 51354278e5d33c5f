/* Waiting on a word (base/word.h). */
#include "base/word.h"

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

enum { SPINS_PER_CLOCK = 64, LOOK_NS = 100000000 };

static atomic_llong spin_ns = 20000;

void vt_word_spin(int64_t us) { atomic_store_explicit(&spin_ns, 1000 * us, memory_order_relaxed); }

/* The time at which a wait that begins now no longer spins. */
static int64_t deadline_of_spin(void)
{
    return vt_now_ns() + atomic_load_explicit(&spin_ns, memory_order_relaxed);
}

static void cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Sleeps until the word is woken, unless its value is no longer `old`; for LOOK_NS at most if
 * `looks`. */
static void word_sleep(vt_word *w, unsigned old, bool looks)
{
    struct timespec look = {.tv_nsec = LOOK_NS};
    atomic_fetch_add(&w->sleepers, 1);
    if (atomic_load(&w->value) == old)
        syscall(SYS_futex, &w->value, FUTEX_WAIT_PRIVATE, old, looks ? &look : NULL, NULL, 0);
    atomic_fetch_sub(&w->sleepers, 1);
}

void vt_word_wait(vt_word *w, unsigned old)
{
    int64_t deadline = deadline_of_spin();
    do {
        for (int i = 0; i < SPINS_PER_CLOCK; i++) {
            if (atomic_load_explicit(&w->value, memory_order_acquire) != old)
                return;
            cpu_relax();
        }
    } while (vt_now_ns() <= deadline);
    while (atomic_load(&w->value) == old)
        word_sleep(w, old, false);
}

void vt_word_wait_ahead(vt_word *w, unsigned old, vt_ahead *ahead)
{
    for (; ahead->at < ahead->bytes; ahead->at += VT_CACHE_LINE)
        for (int32_t i = 0; i < ahead->n; i++) {
            if (atomic_load_explicit(&w->value, memory_order_acquire) != old)
                return;
            __builtin_prefetch(ahead->place[i] + ahead->at, 0, 2);
        }
    vt_word_wait(w, old);
}

bool vt_word_reach(vt_word *w, unsigned target, const atomic_int *stop)
{
    int64_t deadline = deadline_of_spin();
    do {
        for (int i = 0; i < SPINS_PER_CLOCK; i++) {
            if (vt_word_reached(w, target))
                return true;
            cpu_relax();
        }
    } while (vt_now_ns() <= deadline);
    for (;;) {
        unsigned now = atomic_load(&w->value);
        if ((int)(now - target) >= 0)
            return true;
        if (atomic_load(stop) >= 0)
            return false;
        word_sleep(w, now, true);
    }
}

static void word_wake(vt_word *w)
{
    if (atomic_load(&w->sleepers) > 0)
        syscall(SYS_futex, &w->value, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void vt_word_bump(vt_word *w)
{
    atomic_fetch_add(&w->value, 1); /* sequentially consistent: before the read of `sleepers` */
    word_wake(w);
}

void vt_word_set(vt_word *w, unsigned value)
{
    atomic_store(&w->value, value); /* likewise */
    word_wake(w);
}
