/* vt_cuda_launch on the emulated GPU (tests/emulator): a launch whose parameter struct is not the
 * kernel's is refused before it runs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/emulated_gpu.h"
#include "device/cuda.h"

/* DummyFillParams of src/device/dummy_fill.cu */
typedef struct fill_params {
    void *out;
    uint64_t key, n, first;
    float base, scale;
} fill_params;

enum { N = 64, ONE = 0x3f80 /* 1 in bf16 */ };

static vt_cuda *open_gpu(void)
{
    vt_cuda *c;
    vt_err err = {0};
    if (vt_cuda_open(0, &c, &err) != VT_OK)
        fail_msg("%s", err.message);
    return c;
}

static vt_status fill(vt_cuda_lane *lane, void *out, size_t params_bytes)
{
    /* room behind the struct, so that a size that is too large reads nothing foreign */
    struct {
        fill_params p;
        char room[16];
    } params = {.p = {.out = out, .n = N, .base = 1, .scale = 0}};
    return vt_cuda_launch(lane,
                          &(cuda_launch){.spec = JIT_SPEC("dummy_fill.cu", "dummy_fill", {NULL, 0}),
                                         .grid = {1, 1, 1},
                                         .threads = 256},
                          &params, params_bytes);
}

static void must_run(vt_cuda_lane *lane, void *out)
{
    uint16_t got[N] = {0};
    if (fill(lane, out, sizeof(fill_params)) != VT_OK)
        fail_msg("%s", lane->err.message);
    assert_int_equal(
        lane->cuda->driver.copy_to_host(got, (cu_ptr)(uintptr_t)out, sizeof got, lane->stream), 0);
    assert_int_equal(got[0], ONE);
    assert_int_equal(got[N - 1], ONE);
}

static void must_be_refused(vt_cuda_lane *lane, void *out, size_t params_bytes)
{
    char passed[32];
    snprintf(passed, sizeof passed, "one of %zu", params_bytes);
    lane->err = (vt_err){0};
    assert_int_equal(fill(lane, out, params_bytes), VT_ERR_DEVICE);
    assert_int_equal(lane->err.status, VT_ERR_DEVICE);
    assert_non_null(strstr(lane->err.message, "dummy_fill<"));
    assert_non_null(strstr(lane->err.message, "parameter struct of 40 bytes"));
    assert_non_null(strstr(lane->err.message, passed));
}

static void test_launch_when_the_parameter_struct_differs_then_it_is_refused(void **state)
{
    (void)state;
    vt_cuda *c = open_gpu();
    vt_cuda_lane lane = {.cuda = c};
    void *out;
    assert_int_equal(c->driver.stream_create(&lane.stream, CU_STREAM_NON_BLOCKING, 0), 0);
    assert_int_equal(vt_cuda_alloc(c, N * sizeof(uint16_t), &out, NULL), VT_OK);
    must_be_refused(&lane, out, sizeof(fill_params) - 8);
    must_be_refused(&lane, out, sizeof(fill_params) + 8);
    assert_int_equal(lane.n_launches, 0);
    lane.err = (vt_err){0};
    must_run(&lane, out); /* the refused ones did no harm */
    vt_cuda_free(c, out);
    assert_int_equal(c->driver.stream_destroy(lane.stream), 0);
    vt_cuda_close(c);
}

/* CUDA 12.3 has no cuKernelGetParamInfo. */
static void test_launch_when_the_driver_cannot_tell_the_size_then_it_runs(void **state)
{
    (void)state;
    vt_cuda *c = open_gpu();
    vt_cuda_lane lane = {.cuda = c};
    void *out;
    c->driver.kernel_param = NULL;
    assert_int_equal(c->driver.stream_create(&lane.stream, CU_STREAM_NON_BLOCKING, 0), 0);
    assert_int_equal(vt_cuda_alloc(c, N * sizeof(uint16_t), &out, NULL), VT_OK);
    must_run(&lane, out);
    vt_cuda_free(c, out);
    assert_int_equal(c->driver.stream_destroy(lane.stream), 0);
    vt_cuda_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_launch_when_the_parameter_struct_differs_then_it_is_refused),
        cmocka_unit_test(test_launch_when_the_driver_cannot_tell_the_size_then_it_runs),
    };
    return cmocka_run_group_tests(tests, emulated_gpu_open, NULL);
}
