/* base: errors, checked memory, buffers, the trace ring and the team. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/claim/cpu_claim.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/team.h"
#include "base/trace.h"
#include "base/use.h"

static void test_fail_with_control_characters_gives_one_line(void **state)
{
    (void)state;
    vt_err err = {0};
    assert_int_equal(vt_fail(&err, VT_ERR_IO, "a\nb\x1b[31m%s", "\rc"), VT_ERR_IO);
    assert_string_equal(err.message, "a b [31m c");
    assert_int_equal(vt_fail(NULL, VT_ERR_MODEL, "x"), VT_ERR_MODEL);
}

static void test_fail_longer_than_the_message_is_cut(void **state)
{
    (void)state;
    char *big = malloc(5000);
    memset(big, 'x', 4999);
    big[4999] = 0;
    vt_err err;
    vt_fail(&err, VT_ERR_IO, "%s", big);
    assert_int_equal(strlen(err.message), sizeof err.message - 1);
    free(big);
}

static void test_arena_blocks_are_zeroed_aligned_and_apart(void **state)
{
    (void)state;
    for (int on_pages = 0; on_pages < 2; on_pages++) {
        vt_arena a;
        if (on_pages)
            vt_arena_init_on_pages(&a, 0);
        else
            vt_arena_init(&a, 0);
        unsigned char *last = NULL;
        for (size_t i = 1; i < 9000; i += 7) { /* 17 MB: several blocks of either kind */
            unsigned char *p = vt_arena_alloc(&a, i, 3);
            assert_non_null(p);
            assert_int_equal((uintptr_t)p % 16, 0);
            assert_true(p[0] == 0 && memcmp(p, p + 1, 3 * i - 1) == 0);
            memset(p, 0xff, 3 * i);
            if (last)
                assert_int_equal(last[0], 0xff);
            last = p;
        }
        vt_arena_release(&a);
        assert_null(a.head);
    }
}

static void test_arena_beyond_limit_or_overflow_returns_null(void **state)
{
    (void)state;
    vt_arena a;
    vt_arena_init(&a, 1000);
    assert_non_null(vt_arena_alloc(&a, 1, 900));
    assert_null(vt_arena_alloc(&a, 1, 200));
    assert_null(vt_arena_alloc(&a, SIZE_MAX / 2, 3));
    assert_null(vt_arena_alloc(&a, 1, SIZE_MAX - 3));
    vt_arena_release(&a);
}

static void test_buf_beyond_max_fails_and_stays_valid(void **state)
{
    (void)state;
    vt_buf b;
    vt_buf_init(&b, 10);
    assert_true(vt_buf_puts(&b, "12345"));
    assert_false(vt_buf_puts(&b, "678901"));
    assert_true(b.failed);
    assert_string_equal(b.data, "12345");
    assert_false(vt_buf_putc(&b, '6')); /* sticky: a writer may check once at the end */
    assert_null(vt_buf_detach(&b, NULL));
    assert_int_equal(b.len, 0);
}

static void test_buf_printf_and_detach_hand_over_the_bytes(void **state)
{
    (void)state;
    vt_buf b;
    vt_buf_init(&b, 0);
    for (int i = 0; i < 500; i++)
        assert_true(vt_buf_printf(&b, "%d,", i));
    size_t len;
    char *s = vt_buf_detach(&b, &len);
    assert_int_equal(len, 10 * 2 + 90 * 3 + 400 * 4);
    assert_memory_equal(s + len - 8, "498,499,", 8);
    assert_null(b.data);
    free(s);
}

static void test_append_when_it_does_not_fit_then_cuts_and_goes_on(void **state)
{
    (void)state;
    char text[12];
    size_t used = 0;
    memset(text, 'x', sizeof text);
    assert_true(vt_append(text, 8, &used, "%d", 1234));
    assert_true(vt_append(text, 8, &used, "%s", ""));
    assert_int_equal(used, 4);
    assert_false(vt_append(text, 8, &used, "%.0f", 1e300));
    assert_int_equal(used, 7);
    assert_int_equal(strlen(text), 7);
    assert_false(vt_append(text, 8, &used, "]"));
    assert_int_equal(used, 7);
    assert_memory_equal(text + 8, "xxxx", 4);
    used = 0;
    assert_false(vt_append(text, 0, &used, "y"));
    assert_int_equal(text[0], '1');
}

static void test_trace_ring_keeps_the_newest(void **state)
{
    (void)state;
    vt_trace_ring r = {0};
    assert_int_equal(vt_trace_init(&r, sizeof(vt_request_event), 100, NULL), VT_OK);
    assert_int_equal(r.capacity, 128);
    for (int i = 0; i < 1000; i++)
        vt_trace_retract(&r, (uint64_t)i, i);
    vt_request_event out[200];
    uint64_t n = vt_trace_copy(&r, out, 200);
    assert_int_equal(n, 127);
    for (uint64_t i = 0; i < n; i++)
        assert_int_equal(out[i].request, 1000 - n + i);
    assert_int_equal(vt_trace_copy(&r, out, 5), 5);
    assert_int_equal(out[4].request, 999);
    vt_trace_release(&r);
    vt_trace_retract(&r, 1, 1); /* a released ring records nothing */
    assert_int_equal(vt_trace_copy(&r, out, 5), 0);
}

/* Every kind of event reads back the values that were written. */
static void test_trace_events_read_back(void **state)
{
    (void)state;
    vt_trace_ring r = {0};
    vt_request_event q[12];
    vt_step_event s[3];
    assert_int_equal(vt_trace_init(&r, sizeof *q, 16, NULL), VT_OK);
    vt_trace_req_part(&r, VT_REQ_PARSE, 7, 97, 98);
    vt_trace_req_part(&r, VT_REQ_TEMPLATE, 7, 98, 99);
    vt_trace_tokenise(&r, 7, 101, 102, 20);
    vt_trace_arrive(&r, 7, 100, 20, 80);
    vt_trace_req_wait(&r, 7, 3, 100, 103, VT_WAIT_PAGES, (UINT64_C(1) << 32) + 8);
    vt_trace_match(&r, 7, 103, 104, 16, 3);
    vt_trace_admit(&r, 7, 105, 2);
    vt_trace_retract(&r, 7, 106);
    vt_trace_token(&r, 7, 107, 55, 4, 4711);
    vt_trace_finish(&r, 7, 108, VT_END_MAX_TOKENS, 5);
    vt_trace_write(&r, 7, 90, 110, 8, INT64_C(1) << 40);
    vt_trace_cache_event(&r, 7, 109, VT_CACHE_EVICT, 6);
    assert_int_equal(vt_trace_copy(&r, q, 12), 12);
    for (int i = 0; i < 12; i++) {
        assert_int_equal(q[i].kind, VT_REQ_PARSE + i);
        assert_int_equal(q[i].request, 7);
    }
    assert_true(q[0].part.begin_ns == 97 && q[0].part.end_ns == 98 && q[1].part.end_ns == 99);
    assert_true(q[2].tokenise.begin_ns == 101 && q[2].tokenise.end_ns == 102 &&
                q[2].tokenise.n_tokens == 20);
    assert_true(q[3].arrive.at_ns == 100 && q[3].arrive.n_prompt == 20 &&
                q[3].arrive.adapter == 80);
    assert_true(q[4].wait.begin_ns == 100 && q[4].wait.end_ns == 103 &&
                q[4].wait.reason == VT_WAIT_PAGES && q[4].wait.step == 8 && q[4].wait.index == 3);
    assert_true(q[5].match.begin_ns == 103 && q[5].match.end_ns == 104 &&
                q[5].match.n_cached == 16 && q[5].match.n_copied == 3);
    assert_true(q[6].admit.at_ns == 105 && q[6].admit.n_pages == 2 && q[7].retract.at_ns == 106);
    assert_true(q[8].token.at_ns == 107 && q[8].token.step == 55 && q[8].token.index == 4 &&
                q[8].token.token == 4711);
    assert_true(q[9].finish.at_ns == 108 && q[9].finish.end == VT_END_MAX_TOKENS &&
                q[9].finish.n_output == 5);
    assert_true(q[10].write.begin_ns == 90 && q[10].write.end_ns == 110 &&
                q[10].write.spent_ns == 8 && q[10].write.n_bytes == INT32_MAX);
    assert_true(q[11].cache.at_ns == 109 && q[11].cache.what == VT_CACHE_EVICT &&
                q[11].cache.n == 6);
    vt_trace_release(&r);
    assert_int_equal(vt_trace_init(&r, sizeof *s, 16, NULL), VT_OK);
    vt_trace_step(&r, &(vt_step_ran){.step = 9, .n_tokens = 3, .pages_free = 4});
    vt_trace_publish(&r, 9, 1, 2, 3);
    vt_trace_seq(&r, 9, 7, 1, 21, 2);
    assert_int_equal(vt_trace_copy(&r, s, 3), 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(s[i].kind, VT_STEP_RAN + i);
        assert_int_equal(s[i].step, 9);
    }
    assert_true(s[0].ran.n_tokens == 3 && s[0].ran.pages_free == 4);
    assert_true(s[1].part.part == VT_PART_PUBLISH && s[1].part.begin_ns == 1 &&
                s[1].part.text_ns == 2 && s[1].part.end_ns == 3);
    assert_true(s[2].seq.request == 7 && s[2].seq.q_len == 1 && s[2].seq.kv_len == 21 &&
                s[2].seq.shared_pages == 2);
    vt_trace_release(&r);
}

/* A span takes 16 bytes. Times before its base become 0, times that do not fit are cut. */
static void test_trace_spans_are_relative_to_their_base(void **state)
{
    (void)state;
    const int64_t base = INT64_C(1) << 50, most = (INT64_C(1) << 40) - 1;
    vt_trace_ring r = {0};
    vt_span s[6];
    assert_int_equal(sizeof(vt_span), 16);
    assert_int_equal(vt_trace_init(&r, sizeof *s, 16, NULL), VT_OK);
    vt_trace_base(&r, UINT64_C(1) << 59, base);
    vt_trace_call(&r, base, 275, base + 3, base + 10);
    vt_trace_wait(&r, base, 275, base + 10, base + 11);
    vt_trace_kernel(&r, 275, 12345);
    vt_trace_call(&r, base, (1 << 20) - 1, base - 5, base - 7);
    vt_trace_call(&r, base, 0, base + 2 * most, base + 5 * most);
    assert_int_equal(vt_trace_copy(&r, s, 6), 6);
    assert_true(s[0].kind == VT_SPAN_BASE && s[0].base.step == UINT64_C(1) << 59 &&
                s[0].base.begin_ns == base);
    assert_true(s[1].kind == VT_SPAN_CALL && s[1].call.call == 275 && s[1].call.begin_ns == 3 &&
                s[1].call.length_ns == 7);
    assert_true(s[2].kind == VT_SPAN_WAIT && s[2].wait.call == 275 && s[2].wait.begin_ns == 10 &&
                s[2].wait.length_ns == 1);
    assert_true(s[3].kind == VT_SPAN_KERNEL && s[3].kernel.call == 275 &&
                s[3].kernel.kernel == 12345);
    assert_true(s[4].call.call == (1 << 20) - 1 && s[4].call.begin_ns == 0 &&
                s[4].call.length_ns == 0);
    assert_true(s[5].call.begin_ns == (uint64_t)most && s[5].call.length_ns == (uint64_t)most);
    vt_trace_release(&r);
}

/* Tokens and sequences in their packed forms, over a wrap of the step's low bits. */
static void test_trace_packed_events_read_back(void **state)
{
    enum { MANY = 5 };
    (void)state;
    vt_trace_ring r = {0};
    vt_request_event q[MANY];
    vt_step_event s[MANY];
    const uint64_t step = (UINT64_C(1) << 33) - 2;
    assert_int_equal(vt_trace_init(&r, sizeof(vt_packed_token), 16, NULL), VT_OK);
    for (int i = 0; i < MANY; i++)
        vt_trace_token(&r, 7 + (uint64_t)i, 100, step + (uint64_t)i, i, 4711 + i);
    assert_int_equal(vt_trace_copy_tokens(&r, q, MANY), MANY);
    for (int i = 0; i < MANY; i++)
        assert_true(q[i].kind == VT_REQ_TOKEN && q[i].request == 7 + (uint64_t)i &&
                    q[i].token.step == step + (uint64_t)i && q[i].token.index == i &&
                    q[i].token.token == 4711 + i && q[i].token.at_ns == 0);
    vt_trace_release(&r);
    assert_int_equal(vt_trace_init(&r, sizeof(vt_packed_seq), 16, NULL), VT_OK);
    for (int i = 0; i < MANY; i++)
        vt_trace_seq(&r, step + (uint64_t)i, 9, 1 + i, 1000000 + i, i ? 3 : 70000);
    assert_int_equal(vt_trace_copy_seqs(&r, step + MANY, s, MANY), MANY);
    for (int i = 0; i < MANY; i++)
        assert_true(s[i].kind == VT_STEP_SEQ && s[i].step == step + (uint64_t)i &&
                    s[i].seq.request == 9 && s[i].seq.q_len == 1 + i &&
                    s[i].seq.kv_len == 1000000 + i &&
                    s[i].seq.shared_pages == (i ? 3 : UINT16_MAX));
    vt_trace_release(&r);
}

/* One event tells a call and the wait after it; what is too long for it takes two. */
static void test_trace_met_when_too_long_then_two_spans(void **state)
{
    (void)state;
    const int64_t base = INT64_C(1) << 50, most = UINT32_MAX;
    vt_trace_ring r = {0};
    vt_span s[3];
    assert_int_equal(vt_trace_init(&r, sizeof *s, 16, NULL), VT_OK);
    vt_trace_met(&r, base, 275, base + 3, base + 3 + most, base + 3 + 2 * most);
    vt_trace_met(&r, base, 276, base + 9, base + 10, base + 11 + most);
    assert_int_equal(vt_trace_copy(&r, s, 4), 3);
    assert_true(s[0].kind == VT_SPAN_MET && s[0].met.call == 275 && s[0].met.begin_ns == 3);
    assert_true(s[0].met.length_ns == most && s[0].met.wait_ns == most);
    assert_true(s[1].kind == VT_SPAN_CALL && s[1].call.call == 276 && s[1].call.length_ns == 1);
    assert_true(s[2].kind == VT_SPAN_WAIT && s[2].wait.begin_ns == 10 &&
                s[2].wait.length_ns == (uint64_t)most + 1);
    vt_trace_release(&r);
}

/* Of 8,192 decode steps behind a prompt: the prompt's spans are whole, the newest recorded steps
 * are there, and each quarter of the answer has some steps. */
static void test_spans_when_an_answer_is_long_then_old_steps_are_thinned(void **state)
{
    enum { STEPS = 8192, CALLS = 30 };
    (void)state;
    vt_span_rings r = {0};
    assert_int_equal(vt_spans_init(&r, CALLS + 1, NULL), VT_OK);
    for (uint64_t step = 1; step <= STEPS; step++) {
        vt_trace_ring *ring = vt_spans_of(&r, step, step == 1);
        if (step > 1 && !vt_spans_on(step))
            continue;
        vt_trace_base(ring, step, (int64_t)step * 1000);
        for (int32_t i = 0; i < CALLS; i++)
            vt_trace_met(ring, (int64_t)step * 1000, i, (int64_t)step * 1000 + i, 0, 0);
    }
    uint64_t most = vt_spans_held(&r);
    vt_span *s = calloc(most, sizeof *s);
    assert_non_null(s);
    uint64_t n = vt_spans_copy(&r, s, most);
    assert_true(n <= most && s[0].kind == VT_SPAN_BASE && s[0].base.step == 1);
    int32_t quarter[4] = {0}, newest = 0;
    for (uint64_t i = 0; i < n; i += CALLS + 1) {
        assert_int_equal(s[i].kind, VT_SPAN_BASE); /* no step is there in part */
        uint64_t step = s[i].base.step;
        quarter[(step - 1) * 4 / STEPS]++;
        newest += step > STEPS - 128;
    }
    assert_int_equal(newest, 64); /* every second one */
    for (int i = 0; i < 4; i++)
        assert_true(quarter[i] >= 8);
    assert_true(quarter[3] > quarter[0]);
    free(s);
    vt_spans_release(&r);
}

static void *spin_a_while(void *arg)
{
    vt_trace_ring *ring = arg;
    vt_use u;
    vt_use_init(&u, vt_counter_kinds);
    vt_use_begin(&u, 5);
    for (int64_t until = vt_now_ns() + 2 * VT_USE_EVERY_NS; vt_now_ns() < until;)
        ;
    vt_use_end(&u, 7, ring);
    vt_use_end(&u, 8, ring); /* too soon after the last one: no reading */
    vt_use_release(&u);
    return NULL;
}

static void test_use_when_a_thread_worked_then_a_reading_tells_of_its_steps(void **state)
{
    (void)state;
    vt_trace_ring r = {0};
    vt_use_event e[4];
    pthread_t thread;
    if (access("/proc/thread-self/schedstat", R_OK) != 0)
        skip();
    assert_int_equal(vt_trace_init(&r, sizeof *e, 16, NULL), VT_OK);
    assert_int_equal(pthread_create(&thread, NULL, spin_a_while, &r), 0);
    pthread_join(thread, NULL);
    assert_true(vt_trace_copy(&r, e, 4) >= 1);
    assert_int_equal(e[0].step, 7);
    assert_int_equal(e[0].n_steps, 3);
    assert_true(e[0].elapsed_ns >= 2 * VT_USE_EVERY_NS);
    assert_true(e[0].cpu_ns > 0 && e[0].cpu_ns <= e[0].elapsed_ns + VT_USE_EVERY_NS);
    vt_trace_release(&r);
}

enum { FAULTS = 64 };

/* Events of the kernel's own, which need no hardware, in place of a CPU's: page faults, an event
 * that no kernel has, and the faults that needed no disk. Slots lead a group of their own. */
static const vt_counter_kind planted_kinds[VT_COUNTERS] = {
    [VT_COUNT_CYCLES] = {"page faults", 1 /* PERF_TYPE_SOFTWARE */, 2},
    [VT_COUNT_INSTRUCTIONS] = {"none", 1, 999},
    [VT_COUNT_MISSES] = {"minor faults", 1, 5},
    [VT_COUNT_AMX] = {"no AMX", VT_NO_EVENT, 0},
    [VT_COUNT_SLOTS] = {"page faults", 1, 2},
    [VT_COUNT_RETIRING] = {"minor faults", 1, 5},
    [VT_COUNT_BAD] = {"major faults", 1, 6},
    [VT_COUNT_FRONT] = {"none", 1, 999},
    [VT_COUNT_BACK] = {"minor faults", 1, 5}};

static void *fault_a_while(void *arg)
{
    vt_trace_ring *ring = arg;
    vt_use u;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    volatile char *p = mmap(NULL, FAULTS * page, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise((void *)(uintptr_t)p, FAULTS * page, MADV_NOHUGEPAGE);
    vt_use_init(&u, planted_kinds);
    vt_use_begin(&u, 5);
    int64_t until = vt_now_ns() + 2 * VT_USE_EVERY_NS;
    for (size_t i = 0; i < FAULTS; i++)
        p[i * page] = 1;
    while (vt_now_ns() < until)
        ;
    vt_use_end(&u, 5, ring);
    vt_use_release(&u);
    munmap((void *)(uintptr_t)p, FAULTS * page);
    return NULL;
}

static void test_use_when_events_are_counted_then_each_that_there_is(void **state)
{
    (void)state;
    vt_trace_ring r = {0};
    vt_use_event e[4];
    vt_counters c;
    pthread_t thread;
    bool any = vt_counters_open(&c, planted_kinds);
    assert_true(c.fd[1] < 0 && c.error[1] > 0);
    vt_counters_close(&c);
    vt_counters_close(&c); /* a second time does nothing */
    if (!any || access("/proc/thread-self/schedstat", R_OK) != 0)
        skip(); /* a container may refuse perf_event_open altogether */
    assert_int_equal(vt_trace_init(&r, sizeof *e, 16, NULL), VT_OK);
    assert_int_equal(pthread_create(&thread, NULL, fault_a_while, &r), 0);
    pthread_join(thread, NULL);
    assert_int_equal(vt_trace_copy(&r, e, 4), 1);
    assert_int_equal(e[0].counted, 1 << VT_COUNT_CYCLES | 1 << VT_COUNT_MISSES |
                                       1 << VT_COUNT_SLOTS | 1 << VT_COUNT_RETIRING |
                                       1 << VT_COUNT_BAD | 1 << VT_COUNT_BACK);
    assert_true(e[0].count[VT_COUNT_SLOTS] >= FAULTS);
    assert_true(e[0].count[VT_COUNT_RETIRING] >= FAULTS);
    assert_int_equal(e[0].count[VT_COUNT_BACK], e[0].count[VT_COUNT_RETIRING]);
    assert_true(e[0].count[0] >= FAULTS && e[0].count[0] < 100 * FAULTS);
    assert_true(e[0].minor_faults >= FAULTS);
    assert_true(e[0].count[2] >= FAULTS && e[0].count[2] <= e[0].count[0]);
    assert_true(e[0].placed && e[0].cpu < (uint64_t)sysconf(_SC_NPROCESSORS_CONF));
    vt_trace_release(&r);
}

/* The shares are of slots, so without slots none of them is opened. */
static void test_counters_when_slots_are_missing_then_nothing_of_them_is_opened(void **state)
{
    (void)state;
    vt_counters c;
    vt_counter_kind kind[VT_COUNTERS];
    memcpy(kind, planted_kinds, sizeof kind);
    kind[VT_COUNT_SLOTS].type = VT_NO_EVENT;
    vt_counters_open(&c, kind);
    for (int i = VT_COUNT_SLOTS; i < VT_COUNTERS; i++)
        assert_int_equal(c.error[i], ENOENT);
    assert_int_equal(c.leader[1], -1);
    assert_int_equal(c.error[VT_COUNT_AMX], ENOENT);
    vt_counters_close(&c);
}

/* Two programs took turns: what was counted half of the time is projected to all of it. */
static void test_counts_when_they_took_turns_then_projected(void **state)
{
    (void)state;
    uint64_t grown = 0;
    vt_counts from = {.known = 3, .value = {100, 5}, .enabled_ns = {1000}, .running_ns = {1000}};
    vt_counts to = {
        .known = 7, .value = {400, 5, 9}, .enabled_ns = {3000, 9}, .running_ns = {2000, 9}};
    assert_true(vt_counts_grown(&from, &to, VT_COUNT_CYCLES, &grown));
    assert_int_equal(grown, 600);
    assert_true(vt_counts_grown(&from, &to, VT_COUNT_INSTRUCTIONS, &grown));
    assert_int_equal(grown, 0);
    assert_false(vt_counts_grown(&from, &to, VT_COUNT_MISSES, &grown)); /* known at the end alone */
    to.running_ns[0] = from.running_ns[0];
    assert_false(vt_counts_grown(&from, &to, VT_COUNT_CYCLES, &grown)); /* it never ran */
    from.known = to.known = 1 << VT_COUNT_SLOTS; /* the other group ran all the time */
    to.value[VT_COUNT_SLOTS] = 70;
    assert_true(vt_counts_grown(&from, &to, VT_COUNT_SLOTS, &grown));
    assert_int_equal(grown, 70);
}

enum { RACE = 4096 };

typedef struct trace_race {
    vt_trace_ring ring;
    atomic_bool stop;
} trace_race;

static void *write_events(void *arg)
{
    trace_race *t = arg;
    for (uint64_t i = 1; !atomic_load_explicit(&t->stop, memory_order_relaxed); i++)
        vt_trace_tokenise(&t->ring, i, (int64_t)i, (int64_t)(2 * i), (int32_t)(i & 0xffff));
    return NULL;
}

/* Copies of a ring that is being written hold complete events in order. */
static void test_trace_copy_beside_a_writer_holds_whole_events(void **state)
{
    (void)state;
    static trace_race t;
    static vt_request_event out[RACE];
    pthread_t writer;
    uint64_t copied = 0;
    assert_int_equal(vt_trace_init(&t.ring, sizeof *out, RACE, NULL), VT_OK);
    assert_int_equal(pthread_create(&writer, NULL, write_events, &t), 0);
    for (int round = 0; round < 10000000 && copied < 100000; round++) {
        uint64_t n = vt_trace_copy(&t.ring, out, RACE / 4);
        copied += n;
        if (n == 0)
            sched_yield(); /* the writer has not begun */
        for (uint64_t i = 0; i < n; i++) {
            const vt_req_tokenise *e = &out[i].tokenise;
            if (e->request != out[0].request + i || (uint64_t)e->begin_ns != e->request ||
                (uint64_t)e->end_ns != 2 * e->request ||
                e->n_tokens != (int32_t)(e->request & 0xffff))
                fail_msg("a torn event %llu", (unsigned long long)e->request);
        }
    }
    atomic_store(&t.stop, true);
    pthread_join(writer, NULL);
    assert_true(copied > 0);
    vt_trace_release(&t.ring);
}

static void test_trace_init_with_bad_capacity_is_refused(void **state)
{
    (void)state;
    vt_trace_ring r = {0};
    assert_int_equal(vt_trace_init(&r, 16, 0, NULL), VT_ERR_USAGE);
    assert_int_equal(vt_trace_init(&r, 16, UINT64_MAX, NULL), VT_ERR_USAGE);
}

enum { TEAM_ROUNDS = 300, TEAM_BARRIERS = 5 };

typedef struct team_probe {
    vt_team *team;
    int32_t n;
    int32_t at[64]; /* barriers passed, by worker */
    char read[256]; /* by workers that wait */
    atomic_int bad;
    atomic_int runs;
} team_probe;

/* After barrier k no worker may still be before it. */
static void team_walk(void *arg, int32_t worker)
{
    team_probe *p = arg;
    atomic_fetch_add(&p->runs, 1);
    for (int k = 0; k < TEAM_BARRIERS; k++) {
        __atomic_store_n(&p->at[worker], k + 1, __ATOMIC_RELEASE);
        vt_team_barrier(p->team, worker);
        for (int32_t w = 0; w < p->n; w++)
            if (__atomic_load_n(&p->at[w], __ATOMIC_ACQUIRE) < k + 1)
                atomic_fetch_add(&p->bad, 1);
        vt_ahead ahead = {.place = {p->read}, .n = 1, .bytes = sizeof p->read};
        vt_team_barrier_ahead(p->team, &ahead);
        if (ahead.at > ahead.bytes || (p->n == 1 && ahead.at > 0))
            atomic_fetch_add(&p->bad, 1);
    }
}

static void test_team_barrier_holds_everybody_back(void **state)
{
    (void)state;
    for (int32_t n = 1; n <= 5; n++) { /* more workers than CPUs too */
        team_probe p = {.n = n};
        assert_int_equal(vt_team_new(n, &p.team, NULL), VT_OK);
        assert_int_equal(vt_team_size(p.team), n);
        int rounds = n > 2 ? TEAM_ROUNDS / 10 : TEAM_ROUNDS;
        for (int r = 0; r < rounds; r++) {
            memset(p.at, 0, sizeof p.at);
            vt_team_run(p.team, team_walk, &p);
        }
        assert_int_equal(atomic_load(&p.bad), 0);
        assert_int_equal(atomic_load(&p.runs), rounds * n);
        vt_team_free(p.team);
    }
}

static void test_team_of_impossible_size_is_refused(void **state)
{
    (void)state;
    vt_team *t = NULL;
    vt_err err;
    assert_int_equal(vt_team_new(0, &t, &err), VT_ERR_USAGE);
    assert_int_equal(vt_team_new(100000, &t, &err), VT_ERR_USAGE);
    assert_non_null(strstr(err.message, "100000"));
    assert_null(t);
    vt_team_free(NULL);
}

static void test_team_when_the_time_to_spin_is_no_number_then_refused(void **state)
{
    (void)state;
    vt_team *t = NULL;
    vt_err err;
    setenv("VITRINE_SPIN_US", "2us", 1);
    assert_int_equal(vt_team_new(2, &t, &err), VT_ERR_USAGE);
    assert_non_null(strstr(err.message, "VITRINE_SPIN_US=2us"));
    setenv("VITRINE_SPIN_US", "0", 1);
    assert_int_equal(vt_team_new(2, &t, &err), VT_OK);
    unsetenv("VITRINE_SPIN_US");
    vt_team_free(t);
}

/* Another process claims the last three of eight CPUs, and ends. */
static void test_claimed_cpus_are_left_to_their_process(void **state)
{
    (void)state;
    enum { FIRST = 40, N = 8 };
    cpu_set_t set;
    char name[32], byte = 0;
    int32_t cpu[N] = {0};
    int ready[2], end[2];
    CPU_ZERO(&set);
    for (int32_t i = 0; i < N; i++)
        CPU_SET(FIRST + i, &set);
    snprintf(name, sizeof name, "vitrine-test-%d", (int)getpid());
    assert_true(pipe(ready) == 0 && pipe(end) == 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(end[1]);
        bool ok = vt_cpu_claim(name, &set, 3, cpu) == 3 && cpu[0] == 47 && cpu[2] == 45 &&
                  write(ready[1], &byte, 1) == 1 && read(end[0], &byte, 1) == 0;
        _exit(ok ? 0 : 1);
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(vt_cpu_claim(name, &set, 2, cpu), 2);
    assert_true(cpu[0] == 44 && cpu[1] == 43);
    vt_cpu_unclaim(cpu, 2);
    assert_int_equal(vt_cpu_claim(name, &set, N, cpu), 5); /* all that are left ... */
    assert_int_equal(vt_cpu_claim(name, &set, 2, cpu + 5), 2);
    assert_int_equal(cpu[5], 44); /* ... and this process's own once more */
    vt_cpu_unclaim(cpu, 7);
    close(end[1]);
    int status;
    assert_true(waitpid(child, &status, 0) == child && WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(vt_cpu_claim(name, &set, 2, cpu), 2);
    assert_true(cpu[0] == 47 && cpu[1] == 46);
    vt_cpu_unclaim(cpu, 2);
    close(ready[0]);
    close(end[0]);
}

static int64_t resident_bytes(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%*d %ld", &pages), 1);
    fclose(f);
    return pages * sysconf(_SC_PAGESIZE);
}

/* 32 MiB in blocks that are not mapped for themselves, below one that stays. */
static void test_malloc_trim_when_much_was_freed_then_it_goes_back_to_the_system(void **state)
{
    (void)state;
#if defined VT_SANITIZE && !defined __SANITIZE_ADDRESS__
    skip(); /* the thread sanitizer's allocator gives nothing back when it is asked */
#endif
    enum { N = 512, BYTES = 64 << 10, MIB = 1 << 20 };
    void *block[N];
    size_t before = vt_malloc_look().used;
    for (int i = 0; i < N; i++)
        memset(block[i] = malloc(BYTES), 1, BYTES);
    assert_true(vt_malloc_look().used >= before + (size_t)N * BYTES);
    for (int i = 0; i < N - 1; i++)
        free(block[i]);
    int64_t then = resident_bytes();
    vt_malloc_trim();
    assert_true(resident_bytes() < then - 16 * MIB);
    assert_true(vt_malloc_look().used < before + 2 * MIB);
    free(block[N - 1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fail_with_control_characters_gives_one_line),
        cmocka_unit_test(test_fail_longer_than_the_message_is_cut),
        cmocka_unit_test(test_arena_blocks_are_zeroed_aligned_and_apart),
        cmocka_unit_test(test_arena_beyond_limit_or_overflow_returns_null),
        cmocka_unit_test(test_malloc_trim_when_much_was_freed_then_it_goes_back_to_the_system),
        cmocka_unit_test(test_buf_beyond_max_fails_and_stays_valid),
        cmocka_unit_test(test_buf_printf_and_detach_hand_over_the_bytes),
        cmocka_unit_test(test_append_when_it_does_not_fit_then_cuts_and_goes_on),
        cmocka_unit_test(test_trace_ring_keeps_the_newest),
        cmocka_unit_test(test_trace_events_read_back),
        cmocka_unit_test(test_trace_spans_are_relative_to_their_base),
        cmocka_unit_test(test_trace_packed_events_read_back),
        cmocka_unit_test(test_trace_met_when_too_long_then_two_spans),
        cmocka_unit_test(test_spans_when_an_answer_is_long_then_old_steps_are_thinned),
        cmocka_unit_test(test_use_when_a_thread_worked_then_a_reading_tells_of_its_steps),
        cmocka_unit_test(test_use_when_events_are_counted_then_each_that_there_is),
        cmocka_unit_test(test_counters_when_slots_are_missing_then_nothing_of_them_is_opened),
        cmocka_unit_test(test_counts_when_they_took_turns_then_projected),
        cmocka_unit_test(test_trace_copy_beside_a_writer_holds_whole_events),
        cmocka_unit_test(test_trace_init_with_bad_capacity_is_refused),
        cmocka_unit_test(test_team_barrier_holds_everybody_back),
        cmocka_unit_test(test_team_of_impossible_size_is_refused),
        cmocka_unit_test(test_team_when_the_time_to_spin_is_no_number_then_refused),
        cmocka_unit_test(test_claimed_cpus_are_left_to_their_process),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
