/* Waiting on a word (base/word.h). */
#include "base/word.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

enum {
    SPINS_PER_CLOCK = 64,
    /* Times the time of spinning that a wait then yields. Sleeping and being woken takes 50 us and
     * more in a virtual machine, which gives up its CPU: a decode of 16 sequences slept 48 times a
     * step for each of two workers, and has 14 to 20 % more tokens a second without. Spinning on
     * for as long takes the CPU from whom it is waiting for where threads are more than CPUs (0.3
     * of the tokens with twice as many). */
    YIELDS = 25,
    LOOK_NS = 100000000
};

static atomic_llong spin_ns = 20000;

void vt_word_spin(int64_t us) { atomic_store_explicit(&spin_ns, 1000 * us, memory_order_relaxed); }

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

/* Waits awake until the value is no longer `value`, or has come to it if `reach`: spins, then lets
 * other threads of this CPU run in between. Returns false if it is time to sleep. */
static bool wait_awake(const vt_word *w, unsigned value, bool reach)
{
    const int64_t begin = vt_now_ns(), spin = atomic_load_explicit(&spin_ns, memory_order_relaxed);
    for (int64_t now = begin; now - begin <= (1 + YIELDS) * spin; now = vt_now_ns()) {
        const bool yields = now - begin > spin;
        for (int i = 0; i < (yields ? 1 : SPINS_PER_CLOCK); i++) {
            if (reach ? vt_word_reached(w, value)
                      : atomic_load_explicit(&w->value, memory_order_acquire) != value)
                return true;
            cpu_relax();
        }
        if (yields)
            sched_yield();
    }
    return false;
}

void vt_word_wait(vt_word *w, unsigned old)
{
    if (wait_awake(w, old, false))
        return;
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
    if (wait_awake(w, target, true))
        return true;
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
