/* The emulated driver without kernels: when queued work runs, what a capture records, and that
 * misuse gets the error that NVIDIA's driver gives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "common/emulated_gpu.h"
#include "device/cuda/cuda_api.h"

enum {
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    INVALID_CONTEXT = 201,
    INVALID_HANDLE = 400,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    CONTEXT_IS_DESTROYED = 709,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
    CAPTURE_UNJOINED = 904,
    CAPTURE_ISOLATION = 905,
    CAPTURED_EVENT = 907,
    CHUNK = 2 << 20,
    N = 64,
    BIG = 8 << 20
};

static cuda_driver d;

#define OK(call) assert_int_equal(call, 0)

static int open_device(void **state)
{
    static const cuda_driver none;
    vt_err err = {0};
    cu_context c;
    if (emulated_gpu_open(state) != 0)
        return 1;
    setenv("VITRINE_EMULATOR", "memory=64,stream=lazy", 1);
    d = none;
    if (cuda_driver_open(&d, &err) != VT_OK) {
        print_message("%s\n", err.message);
        return 1;
    }
    return d.context_retain(&c, 0) != 0 || d.context_set(c) != 0;
}

static int close_device(void **state)
{
    (void)state;
    return d.context_release(0) != 0;
}

static cu_stream new_stream(void)
{
    cu_stream s;
    OK(d.stream_create(&s, CU_STREAM_NON_BLOCKING, 0));
    return s;
}

static cu_ptr new_block(size_t bytes)
{
    cu_ptr p;
    OK(d.mem_alloc(&p, bytes));
    return p;
}

static unsigned char *new_pinned(size_t bytes, int value)
{
    void *p;
    OK(d.host_alloc(&p, bytes, CU_HOST_PORTABLE));
    memset(p, value, bytes);
    return p;
}

static void finish(cu_stream s, cu_ptr p, void *pinned)
{
    OK(d.stream_destroy(s));
    OK(d.mem_free(p));
    if (pinned)
        OK(d.host_free(pinned));
}

/* ---- when work runs ---- */

static void
test_copy_when_pinned_source_is_overwritten_early_then_the_new_bytes_arrive(void **state)
{
    (void)state;
    cu_stream s = new_stream();
    cu_ptr p = new_block(N);
    unsigned char *from = new_pinned(N, 1), got[N];
    OK(d.copy_to_device(p, from, N, s));
    memset(from, 2, N);
    OK(d.copy_to_host(got, p, N, s));
    assert_int_equal(got[0], 2);
    finish(s, p, from);
}

static void test_copy_when_pageable_source_is_overwritten_then_the_old_bytes_arrive(void **state)
{
    (void)state;
    cu_stream s = new_stream();
    cu_ptr p = new_block(N);
    unsigned char from[N] = {1}, got[N];
    OK(d.copy_to_device(p, from, N, s));
    from[0] = 2;
    OK(d.copy_to_host(got, p, N, s)); /* pageable: returns when it is done */
    assert_int_equal(got[0], 1);
    finish(s, p, NULL);
}

static void test_copy_when_results_are_read_before_a_sync_then_they_are_not_there(void **state)
{
    (void)state;
    cu_stream s = new_stream();
    cu_ptr p = new_block(N);
    unsigned char *to = new_pinned(N, 7);
    cu_event e;
    OK(d.event_create(&e, CU_EVENT_DEFAULT));
    OK(d.fill8(p, 3, N, s));
    OK(d.copy_to_host(to, p, N, s));
    OK(d.event_record(e, s));
    assert_int_equal(to[0], 7);
    assert_int_equal(d.event_query(e), NOT_READY);
    assert_int_equal(to[0], 7);
    OK(d.event_sync(e));
    assert_int_equal(to[0], 3);
    OK(d.event_destroy(e));
    finish(s, p, to);
}

static void test_event_query_when_repeated_then_it_ends(void **state)
{
    (void)state;
    cu_stream s = new_stream();
    cu_ptr p = new_block(N);
    cu_event e;
    OK(d.event_create(&e, CU_EVENT_NO_TIMING));
    OK(d.event_query(e)); /* never recorded */
    OK(d.fill8(p, 3, N, s));
    OK(d.event_record(e, s));
    int polls = 0;
    while (d.event_query(e) == NOT_READY)
        assert_true(++polls < 100);
    assert_true(polls > 0);
    OK(d.event_destroy(e));
    finish(s, p, NULL);
}

static void test_wait_event_when_streams_cross_then_order_holds(void **state)
{
    (void)state;
    cu_stream a = new_stream(), b = new_stream();
    cu_ptr p = new_block(N);
    unsigned char got[N];
    cu_event first, second;
    OK(d.event_create(&first, CU_EVENT_NO_TIMING));
    OK(d.event_create(&second, CU_EVENT_NO_TIMING));
    OK(d.fill8(p, 1, N, a));
    OK(d.event_record(first, a));
    OK(d.stream_wait_event(b, first, 0));
    OK(d.fill8(p, 2, N / 2, b));
    OK(d.event_record(second, b));
    OK(d.stream_wait_event(a, second, 0));
    OK(d.fill8(p, 3, N / 4, a));
    OK(d.copy_to_host(got, p, N, a));
    assert_int_equal(got[0], 3);
    assert_int_equal(got[N / 2 - 1], 2);
    assert_int_equal(got[N - 1], 1);
    OK(d.event_destroy(first));
    OK(d.event_destroy(second));
    OK(d.stream_destroy(b));
    finish(a, p, NULL);
}

static void test_elapsed_when_recorded_twice_then_it_is_the_last_record(void **state)
{
    (void)state;
    cu_stream s = new_stream();
    cu_ptr p = new_block(BIG);
    cu_event from, to;
    float ms = -1;
    OK(d.event_create(&from, CU_EVENT_DEFAULT));
    OK(d.event_create(&to, CU_EVENT_DEFAULT));
    assert_int_equal(d.event_elapsed(&ms, from, to), INVALID_HANDLE);
    OK(d.event_record(to, s)); /* measured from here, the time would be negative */
    OK(d.fill8(p, 1, BIG, s));
    OK(d.event_record(from, s));
    OK(d.fill8(p, 2, BIG, s));
    OK(d.event_record(to, s));
    int64_t begin = vt_now_ns();
    OK(d.event_sync(to)); /* everything happens in here */
    int64_t end = vt_now_ns();
    OK(d.event_elapsed(&ms, from, to));
    assert_true(ms > 0 && (double)ms * 1e6 < (double)(end - begin));
    OK(d.event_destroy(from));
    OK(d.event_destroy(to));
    finish(s, p, NULL);
}

/* ---- memory ---- */

static void test_alloc_when_memory_is_spent_then_it_fails_and_the_count_is_true(void **state)
{
    (void)state;
    size_t free_bytes, total, before;
    cu_ptr p, more;
    OK(d.mem_info(&before, &total));
    assert_int_equal(total, 64 << 20);
    OK(d.mem_alloc(&p, 40 << 20));
    OK(d.mem_info(&free_bytes, &total));
    assert_int_equal(before - free_bytes, 40 << 20);
    assert_int_equal(d.mem_alloc(&more, 40 << 20), OUT_OF_MEMORY);
    OK(d.mem_free(p));
    OK(d.mem_info(&free_bytes, &total));
    assert_int_equal(free_bytes, before);
}

static void test_alloc_when_not_written_then_floats_read_as_nan(void **state)
{
    (void)state;
    cu_stream s = new_stream();
    cu_ptr p = new_block(N);
    float got[N / 4];
    OK(d.copy_to_host(got, p, N, s));
    assert_true(got[0] != got[0]);
    finish(s, p, NULL);
}

static void test_copy_when_a_range_is_wrong_then_it_is_refused(void **state)
{
    (void)state;
    cu_stream s = new_stream();
    cu_ptr p = new_block(N);
    unsigned char host[2 * N] = {0}, *pinned = new_pinned(N, 0);
    assert_int_equal(d.copy_to_device(p, host, N + 1, s), INVALID_VALUE);
    assert_int_equal(d.copy_to_device((cu_ptr)(uintptr_t)host, host, 1, s), INVALID_VALUE);
    assert_int_equal(d.copy_to_device(p, (void *)(uintptr_t)p, N, s), INVALID_VALUE);
    assert_int_equal(d.copy_to_host((void *)(uintptr_t)p, p, N, s), INVALID_VALUE);
    assert_int_equal(d.copy_to_host(pinned + 1, p, N, s), INVALID_VALUE);
    assert_int_equal(d.copy_device(p, p + 1, N - 1, s), INVALID_VALUE);
    assert_int_equal(d.fill8(p + N, 0, 1, s), INVALID_VALUE);
    assert_int_equal(d.fill8(p, 0, N, (cu_stream)(void *)host), INVALID_HANDLE);
    assert_int_equal(d.mem_free(p + 1), INVALID_VALUE);
    assert_int_equal(d.host_free(host), INVALID_VALUE);
    finish(s, p, pinned);
}

static void test_range_when_mapped_in_two_pieces_then_copies_cross_the_border(void **state)
{
    (void)state;
    cu_mem_prop prop = {.type = CU_MEM_TYPE_PINNED, .location = {CU_MEM_LOCATION_DEVICE, 0}};
    cu_mem_access access = {prop.location, CU_MEM_ACCESS_READ_WRITE};
    cu_stream s = new_stream();
    cu_mem_handle h[2];
    cu_ptr p;
    unsigned char got[2];
    OK(d.mem_reserve(&p, 4 * CHUNK, 0, 0, 0));
    assert_int_equal(d.mem_create(&h[0], CHUNK + 1, &prop, 0), INVALID_VALUE);
    assert_int_equal(d.mem_create(&h[0], 64 * CHUNK, &prop, 0), OUT_OF_MEMORY);
    for (int i = 0; i < 2; i++) {
        OK(d.mem_create(&h[i], CHUNK, &prop, 0));
        OK(d.mem_map(p + (cu_ptr)i * CHUNK, CHUNK, 0, h[i], 0));
    }
    assert_int_equal(d.mem_map(p, CHUNK, 0, h[0], 0), INVALID_VALUE);
    assert_int_equal(d.fill8(p, 1, 1, s), INVALID_VALUE); /* not open yet */
    OK(d.mem_access(p, 2 * CHUNK, &access, 1));
    OK(d.fill8(p + CHUNK - 1, 5, 2, s));
    OK(d.copy_to_host(got, p + CHUNK - 1, 2, s));
    assert_int_equal(got[0] + got[1], 10);
    assert_int_equal(d.fill8(p + 2 * CHUNK - 1, 5, 2, s), INVALID_VALUE);
    assert_int_equal(d.mem_unmap(p, CHUNK / 2), INVALID_VALUE);
    assert_int_equal(d.mem_unreserve(p, 4 * CHUNK), INVALID_VALUE);
    OK(d.mem_release(h[0]));
    assert_int_equal(d.mem_release(h[0]), INVALID_VALUE);
    OK(d.mem_unmap(p, 2 * CHUNK));
    OK(d.mem_release(h[1]));
    OK(d.mem_unreserve(p, 4 * CHUNK));
    OK(d.stream_destroy(s));
    size_t free_bytes, total;
    OK(d.mem_info(&free_bytes, &total));
    assert_int_equal(free_bytes, total);
}

/* ---- contexts ---- */

static void test_context_when_a_copy_faults_then_it_stays_failed_until_released(void **state)
{
    cu_mem_prop prop = {.type = CU_MEM_TYPE_PINNED, .location = {CU_MEM_LOCATION_DEVICE, 0}};
    cu_mem_access access = {prop.location, CU_MEM_ACCESS_READ_WRITE};
    cu_stream s = new_stream();
    cu_mem_handle h;
    cu_ptr p;
    OK(d.mem_reserve(&p, CHUNK, 0, 0, 0));
    OK(d.mem_create(&h, CHUNK, &prop, 0));
    OK(d.mem_map(p, CHUNK, 0, h, 0));
    OK(d.mem_access(p, CHUNK, &access, 1));
    OK(d.fill8(p, 0, CHUNK, s));
    OK(d.mem_unmap(p, CHUNK)); /* under queued work */
    assert_int_equal(d.stream_sync(s), ILLEGAL_ADDRESS);
    assert_int_equal(d.mem_alloc(&p, 1), ILLEGAL_ADDRESS);
    assert_int_equal(close_device(state), 0);
    assert_int_equal(d.stream_sync(s), CONTEXT_IS_DESTROYED);
    assert_int_equal(open_device(state), 0);
    assert_int_equal(d.stream_sync(s), INVALID_HANDLE); /* it was destroyed with its context */
    OK(d.mem_alloc(&p, 1));
    OK(d.mem_free(p));
}

static void test_call_when_no_context_is_current_then_it_is_refused(void **state)
{
    (void)state;
    cu_context c;
    cu_ptr p;
    OK(d.context_set(NULL));
    assert_int_equal(d.mem_alloc(&p, 1), INVALID_CONTEXT);
    OK(d.context_retain(&c, 0));
    OK(d.context_set(c));
    OK(d.context_release(0));
    OK(d.mem_alloc(&p, 1));
    OK(d.mem_free(p));
}

/* ---- graphs ---- */

static void test_graph_when_launched_twice_then_nodes_run_in_order_each_time(void **state)
{
    (void)state;
    cu_stream s = new_stream();
    cu_ptr p = new_block(N), q = new_block(N);
    unsigned char *from = new_pinned(N, 1), got[N];
    cu_graph graph;
    cu_graph_exec exec;
    size_t n;
    OK(d.capture_begin(s, CU_CAPTURE_THREAD_LOCAL));
    OK(d.copy_to_device(p, from, N, s));
    OK(d.fill8(p, 9, 1, s));
    OK(d.copy_device(q, p, N, s));
    OK(d.capture_end(s, &graph));
    OK(d.graph_nodes(graph, NULL, &n));
    assert_int_equal(n, 3);
    OK(d.graph_instantiate(&exec, graph, 0));
    OK(d.graph_destroy(graph));
    OK(d.graph_upload(exec, s));
    for (int value = 4; value < 6; value++) {
        memset(from, value, N);
        OK(d.graph_launch(exec, s));
        OK(d.copy_to_host(got, q, N, s));
        assert_int_equal(got[0], 9);
        assert_int_equal(got[1], value);
    }
    OK(d.graph_exec_destroy(exec));
    assert_int_equal(d.graph_launch(exec, s), INVALID_HANDLE);
    OK(d.mem_free(q));
    finish(s, p, from);
}

static void test_capture_when_synchronised_or_allocating_then_it_is_spoiled(void **state)
{
    (void)state;
    cu_stream s = new_stream();
    cu_ptr p = new_block(N), other;
    cu_graph graph;
    for (int i = 0; i < 2; i++) {
        OK(d.capture_begin(s, CU_CAPTURE_THREAD_LOCAL));
        assert_int_equal(i == 0 ? d.stream_sync(s) : d.mem_alloc(&other, N), CAPTURE_UNSUPPORTED);
        assert_int_equal(d.fill8(p, 0, N, s), CAPTURE_INVALIDATED);
        assert_int_equal(d.capture_end(s, &graph), CAPTURE_INVALIDATED);
        assert_null(graph);
    }
    OK(d.fill8(p, 0, N, s)); /* the stream itself can be used again */
    OK(d.stream_sync(s));
    finish(s, p, NULL);
}

static void test_capture_when_forked_then_it_must_be_joined(void **state)
{
    (void)state;
    cu_stream a = new_stream(), b = new_stream();
    cu_ptr p = new_block(N);
    cu_event fork, join, outside;
    cu_graph graph;
    size_t n;
    OK(d.event_create(&fork, CU_EVENT_NO_TIMING));
    OK(d.event_create(&join, CU_EVENT_NO_TIMING));
    OK(d.event_create(&outside, CU_EVENT_NO_TIMING));
    OK(d.event_record(outside, b));
    for (int joined = 0; joined < 2; joined++) {
        OK(d.capture_begin(a, CU_CAPTURE_THREAD_LOCAL));
        OK(d.event_record(fork, a));
        OK(d.stream_wait_event(b, fork, 0));
        OK(d.fill8(p, 0, N, b));
        OK(d.event_record(join, b));
        if (joined)
            OK(d.stream_wait_event(a, join, 0));
        assert_int_equal(d.capture_end(a, &graph), joined ? 0 : CAPTURE_UNJOINED);
    }
    OK(d.graph_nodes(graph, NULL, &n));
    assert_int_equal(n, 1);
    OK(d.graph_destroy(graph));
    assert_int_equal(d.event_sync(join), CAPTURED_EVENT);
    OK(d.capture_begin(a, CU_CAPTURE_THREAD_LOCAL));
    assert_int_equal(d.stream_wait_event(a, outside, 0), CAPTURE_ISOLATION);
    assert_int_equal(d.capture_end(a, &graph), CAPTURE_INVALIDATED);
    OK(d.event_destroy(fork));
    OK(d.event_destroy(join));
    OK(d.event_destroy(outside));
    OK(d.stream_destroy(b));
    finish(a, p, NULL);
}

/* ---- tensor maps ---- */

static void test_tensor_map_when_a_rule_is_broken_then_it_is_refused(void **state)
{
    (void)state;
    enum { BF16 = 9, SWIZZLE_128 = 3 };
    cu_ptr p = new_block(64 * 256);
    cu_tensor_map map;
    const uint64_t dim[2] = {64, 128}, stride[1] = {128}, odd_stride[1] = {136};
    const uint32_t box[2] = {64, 64}, wide[2] = {128, 64}, tall[2] = {64, 257}, step[2] = {1, 1};
    void *at = (void *)(uintptr_t)p, *off = (void *)(uintptr_t)(p + 8);
#define ENCODE(address, strides, boxes) \
    d.tensor_map_tiled(&map, BF16, 2, address, dim, strides, boxes, step, 0, SWIZZLE_128, 3, 0)
    OK(ENCODE(at, stride, box));
    assert_int_equal(ENCODE(off, stride, box), INVALID_VALUE);
    assert_int_equal(ENCODE(at, odd_stride, box), INVALID_VALUE);
    assert_int_equal(ENCODE(at, stride, wide), INVALID_VALUE);
    assert_int_equal(ENCODE(at, stride, tall), INVALID_VALUE);
    OK(d.mem_free(p));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            test_copy_when_pinned_source_is_overwritten_early_then_the_new_bytes_arrive),
        cmocka_unit_test(test_copy_when_pageable_source_is_overwritten_then_the_old_bytes_arrive),
        cmocka_unit_test(test_copy_when_results_are_read_before_a_sync_then_they_are_not_there),
        cmocka_unit_test(test_event_query_when_repeated_then_it_ends),
        cmocka_unit_test(test_wait_event_when_streams_cross_then_order_holds),
        cmocka_unit_test(test_elapsed_when_recorded_twice_then_it_is_the_last_record),
        cmocka_unit_test(test_alloc_when_memory_is_spent_then_it_fails_and_the_count_is_true),
        cmocka_unit_test(test_alloc_when_not_written_then_floats_read_as_nan),
        cmocka_unit_test(test_copy_when_a_range_is_wrong_then_it_is_refused),
        cmocka_unit_test(test_range_when_mapped_in_two_pieces_then_copies_cross_the_border),
        cmocka_unit_test(test_context_when_a_copy_faults_then_it_stays_failed_until_released),
        cmocka_unit_test(test_call_when_no_context_is_current_then_it_is_refused),
        cmocka_unit_test(test_graph_when_launched_twice_then_nodes_run_in_order_each_time),
        cmocka_unit_test(test_capture_when_synchronised_or_allocating_then_it_is_spoiled),
        cmocka_unit_test(test_capture_when_forked_then_it_must_be_joined),
        cmocka_unit_test(test_tensor_map_when_a_rule_is_broken_then_it_is_refused),
    };
    return cmocka_run_group_tests_name("emulator_driver", tests, open_device, close_device);
}
