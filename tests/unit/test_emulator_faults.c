/* Faults that VITRINE_EMULATOR plants (tests/emulator/emulator.h): a kernel that faults, a kernel
 * that never ends, and what a reset of the primary context leaves of either. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>

#include "common/emulated_gpu.h"
#include "device/cuda/cuda.h"

enum {
    INVALID_HANDLE = 400,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    CONTEXT_IS_DESTROYED = 709,
    N = 64
};

/* The parameters of cuda/dummy_fill.cu, which fills out[0..n) with bf16(base) if scale is
 * 0 */
typedef struct fill_params {
    void *out;
    uint64_t key, n, first;
    float base, scale;
} fill_params;

/* A GPU with the kernel loaded, a stream and a block of N bf16. */
typedef struct rig {
    vt_cuda *cuda;
    cuda_driver d;
    cu_kernel fill;
    cu_stream stream;
    cu_ptr block;
    cu_event event;
} rig;

static void (*end_hang)(void);
static size_t (*waiting)(void), (*left_over)(void);

#define OK(call) assert_int_equal(call, 0)

static int open_emulator(void **state)
{
    if (emulated_gpu_open(state) != 0)
        return 1;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    *(void **)&end_hang = dlsym(library, "emu_end_hang");
    *(void **)&waiting = dlsym(library, "emu_waiting");
    *(void **)&left_over = dlsym(library, "emu_left_over");
    return !end_hang || !waiting || !left_over;
}

static void make_objects(rig *r)
{
    OK(r->d.stream_create(&r->stream, CU_STREAM_NON_BLOCKING, 0));
    OK(r->d.mem_alloc(&r->block, N * sizeof(uint16_t)));
    OK(r->d.event_create(&r->event, CU_EVENT_NO_TIMING));
}

static void open_rig(rig *r, const char *setting)
{
    vt_err err = {0};
    setenv("VITRINE_EMULATOR", setting, 1);
    if (vt_cuda_open(0, &r->cuda, &err) != VT_OK)
        fail_msg("%s", err.message);
    jit_spec spec = JIT_SPEC("dummy_fill.cu", "dummy_fill", {"level", 80}, {"pdl", 0});
    int32_t index = vt_jit_want(r->cuda->jit, &spec);
    if (vt_cuda_compile(r->cuda, NULL, NULL, &err) != VT_OK)
        fail_msg("%s", err.message);
    r->d = r->cuda->driver;
    r->fill = r->cuda->kernel[index].kernel;
    make_objects(r);
}

static void close_rig(rig *r)
{
    OK(r->d.event_destroy(r->event));
    OK(r->d.mem_free(r->block));
    OK(r->d.stream_destroy(r->stream));
    vt_cuda_close(r->cuda);
    assert_int_equal(left_over(), 0);
}

/* Fills the block with a value that bf16 holds exactly. */
static cu_result launch(rig *r, float value)
{
    cu_launch_config config = {1, 1, 1, 256, 1, 1, 0, r->stream, NULL, 0};
    fill_params p = {.out = (void *)(uintptr_t)r->block, .n = N, .base = value};
    void *args[1] = {&p};
    return r->d.launch(&config, r->fill, args, NULL);
}

static void block_must_be(rig *r, float value)
{
    uint16_t got[N];
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    OK(r->d.copy_to_host(got, r->block, sizeof got, r->stream));
    assert_int_equal(got[0], bits >> 16);
    assert_int_equal(got[N - 1], bits >> 16);
}

/* Makes a new context with the kernel in it; drops the old handles. */
static void come_back(rig *r)
{
    cu_context c;
    vt_cuda *lost = r->cuda;
    OK(r->d.context_retain(&c, 0));
    OK(r->d.context_set(c));
    assert_int_equal(r->d.stream_sync(r->stream), INVALID_HANDLE);
    r->stream = NULL;
    assert_int_equal(launch(r, 1), INVALID_HANDLE); /* kernels are gone too */
    open_rig(r, getenv("VITRINE_EMULATOR"));
    vt_cuda_close(lost); /* a release after a reset is allowed */
    OK(r->d.context_release(0));
}

static void test_fault_when_a_kernel_makes_one_then_every_call_says_so_until_a_reset(void **state)
{
    (void)state;
    rig r;
    cu_ptr p;
    open_rig(&r, "fault=3");
    for (int i = 1; i <= 2; i++) {
        OK(launch(&r, (float)i));
        block_must_be(&r, (float)i);
    }
    OK(launch(&r, 3)); /* the error comes when a call waits */
    OK(r.d.event_record(r.event, r.stream));
    assert_int_equal(r.d.stream_sync(r.stream), ILLEGAL_ADDRESS);
    assert_int_equal(r.d.event_query(r.event), ILLEGAL_ADDRESS);
    assert_int_equal(r.d.event_sync(r.event), ILLEGAL_ADDRESS);
    assert_int_equal(r.d.mem_alloc(&p, N), ILLEGAL_ADDRESS);
    assert_int_equal(r.d.mem_free(r.block), ILLEGAL_ADDRESS);
    assert_int_equal(launch(&r, 4), ILLEGAL_ADDRESS);
    OK(r.d.context_reset(0));
    assert_int_equal(r.d.mem_alloc(&p, N), CONTEXT_IS_DESTROYED);
    come_back(&r);
    for (int i = 4; i <= 8; i++) { /* it strikes once */
        OK(launch(&r, (float)i));
        block_must_be(&r, (float)i);
    }
    close_rig(&r);
}

static void test_fault_when_the_last_owner_releases_then_a_new_context_works(void **state)
{
    (void)state;
    rig r;
    open_rig(&r, "fault=1");
    OK(launch(&r, 1));
    assert_int_equal(r.d.stream_sync(r.stream), ILLEGAL_ADDRESS);
    vt_cuda_close(r.cuda);
    open_rig(&r, "fault=1");
    OK(launch(&r, 2));
    block_must_be(&r, 2);
    close_rig(&r);
}

typedef struct waiter {
    rig *rig;
    cu_context context;
    cu_result result;
} waiter;

static void *wait_for_event(void *arg)
{
    waiter *w = arg;
    w->result = w->rig->d.context_set(w->context);
    if (w->result == 0)
        w->result = w->rig->d.event_sync(w->rig->event);
    return NULL;
}

static void test_hang_when_a_kernel_never_ends_then_queries_say_so_and_a_reset_ends_it(void **state)
{
    (void)state;
    rig r;
    cu_stream other;
    cu_ptr block;
    unsigned char got[N];
    pthread_t thread;
    open_rig(&r, "hang=2");
    waiter w = {&r, r.cuda->context, 0};
    OK(launch(&r, 1));
    block_must_be(&r, 1);
    OK(launch(&r, 2));
    OK(r.d.event_record(r.event, r.stream));
    for (int i = 0; i < 1000; i++)
        assert_int_equal(r.d.event_query(r.event), NOT_READY);
    OK(r.d.stream_create(&other, CU_STREAM_NON_BLOCKING, 0)); /* other streams go on */
    block = r.block;
    OK(r.d.fill8(block, 7, N, other));
    OK(r.d.copy_to_host(got, block, N, other));
    assert_int_equal(got[N - 1], 7);
    OK(pthread_create(&thread, NULL, wait_for_event, &w));
    while (waiting() == 0)
        sched_yield();
    assert_int_equal(r.d.event_query(r.event), NOT_READY);
    OK(r.d.context_reset(0));
    OK(pthread_join(thread, NULL));
    assert_int_equal(w.result, CONTEXT_IS_DESTROYED);
    come_back(&r);
    OK(launch(&r, 3));
    block_must_be(&r, 3);
    close_rig(&r);
}

static void test_hang_when_it_ends_in_a_graph_then_each_node_has_run_once(void **state)
{
    (void)state;
    rig r;
    cu_graph graph;
    cu_graph_exec exec;
    pthread_t thread;
    open_rig(&r, "hang=2,memory=64"); /* another text than above: kernels are counted anew */
    waiter w = {&r, r.cuda->context, -1};
    OK(r.d.capture_begin(r.stream, CU_CAPTURE_THREAD_LOCAL));
    OK(launch(&r, 1));
    OK(launch(&r, 2)); /* hangs */
    OK(r.d.fill8(r.block, 0x40, 2, r.stream));
    OK(r.d.capture_end(r.stream, &graph));
    OK(r.d.graph_instantiate(&exec, graph, 0));
    OK(r.d.graph_destroy(graph));
    OK(r.d.graph_launch(exec, r.stream));
    OK(r.d.event_record(r.event, r.stream));
    for (int i = 0; i < 1000; i++)
        assert_int_equal(r.d.event_query(r.event), NOT_READY);
    OK(pthread_create(&thread, NULL, wait_for_event, &w));
    while (waiting() == 0)
        sched_yield();
    end_hang();
    OK(pthread_join(thread, NULL));
    OK(w.result);
    uint16_t got[N];
    OK(r.d.copy_to_host(got, r.block, sizeof got, r.stream));
    assert_int_equal(got[0], 0x4040);
    assert_int_equal(got[1], 0x4000); /* 2 */
    OK(r.d.graph_exec_destroy(exec));
    close_rig(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fault_when_a_kernel_makes_one_then_every_call_says_so_until_a_reset),
        cmocka_unit_test(test_fault_when_the_last_owner_releases_then_a_new_context_works),
        cmocka_unit_test(
            test_hang_when_a_kernel_never_ends_then_queries_say_so_and_a_reset_ends_it),
        cmocka_unit_test(test_hang_when_it_ends_in_a_graph_then_each_node_has_run_once),
    };
    return cmocka_run_group_tests(tests, open_emulator, NULL);
}
