/* vt_cuda_launch on the emulated GPU (tests/emulator): a launch with a wrong parameter struct, or
 * with more shared memory than the GPU has, is refused before it runs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/emulated_gpu.h"
#include "device/cuda/cuda.h"

/* DummyFillParams of src/device/cuda/dummy_fill.cu */
typedef struct fill_params {
    void *out;
    uint64_t key, n, first;
    float base, scale;
} fill_params;

enum { N = 64, INVALID_VALUE = 1, ONE = 0x3f80 /* 1 in bf16 */ };

static vt_cuda *open_gpu(void)
{
    vt_cuda *c;
    vt_err err = {0};
    if (vt_cuda_open(0, &c, &err) != VT_OK)
        fail_msg("%s", err.message);
    return c;
}

static vt_status fill_with(vt_cuda_lane *lane, void *out, size_t params_bytes,
                           uint32_t shared_bytes)
{
    /* room after the struct, so that a size that is too large reads no other memory */
    struct {
        fill_params p;
        char room[16];
    } params = {.p = {.out = out, .n = N, .base = 1, .scale = 0}};
    return vt_cuda_launch(lane,
                          &(cuda_launch){.spec = JIT_SPEC("dummy_fill.cu", "dummy_fill", {NULL, 0}),
                                         .grid = {1, 1, 1},
                                         .threads = 256,
                                         .shared_bytes = shared_bytes},
                          &params, params_bytes);
}

static vt_status fill(vt_cuda_lane *lane, void *out, size_t params_bytes)
{
    return fill_with(lane, out, params_bytes, 0);
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

static void open_capability(int cc, vt_cuda_lane *lane, void **out)
{
    char text[32];
    snprintf(text, sizeof text, "cc=%d", cc);
    setenv("VITRINE_EMULATOR", text, 1);
    *lane = (vt_cuda_lane){.cuda = open_gpu()};
    assert_int_equal(10 * lane->cuda->cc_major + lane->cuda->cc_minor, cc);
    assert_int_equal(lane->cuda->driver.stream_create(&lane->stream, CU_STREAM_NON_BLOCKING, 0), 0);
    assert_int_equal(vt_cuda_alloc(lane->cuda, N * sizeof(uint16_t), out, NULL), VT_OK);
}

static cu_library load_text(const cuda_driver *d, const char *text)
{
    cuda_nvrtc n;
    nvrtc_program p;
    size_t size;
    vt_err err = {0};
    cu_library library;
    const char *const options[] = {"-arch=sm_90a"};
    if (cuda_nvrtc_open(&n, &err) != VT_OK)
        fail_msg("%s", err.message);
    assert_int_equal(n.create(&p, text, "test.cu", 0, NULL, NULL), 0);
    assert_int_equal(n.compile(p, 1, options), 0);
    assert_int_equal(n.cubin_size(p, &size), 0);
    char *cubin = malloc(size);
    assert_non_null(cubin);
    assert_int_equal(n.cubin(p, cubin), 0);
    n.destroy(&p);
    assert_int_equal(d->library_load(&library, cubin, NULL, NULL, 0, NULL, NULL, 0), 0);
    free(cubin);
    return library;
}

static int fact(const vt_cuda *c, cu_kernel k, int attribute)
{
    int value = -1;
    assert_int_equal(c->driver.kernel_get(&value, attribute, k, c->device), 0);
    return value;
}

/* The driver says what stories print about a kernel. */
static void test_kernel_when_asked_then_launch_bounds_shared_memory_and_parameters(void **state)
{
    (void)state;
    vt_cuda *c = open_gpu();
    cu_kernel k;
    size_t offset = 1, bytes = 0;
    cu_library library = load_text(
        &c->driver,
        "struct P { int n[3]; int *out; };\n"
        "extern \"C\" __global__ void __launch_bounds__(96) test(const __grid_constant__ P p)\n"
        "{\n  __shared__ int a[10];\n  a[threadIdx.x % 10] = p.n[0];\n  *p.out = a[0];\n}\n");
    assert_int_equal(c->driver.library_kernel(&k, library, "test"), 0);
    assert_int_equal(fact(c, k, CU_FUNC_MAX_THREADS), 96);
    assert_int_equal(fact(c, k, CU_FUNC_SHARED_BYTES), 40);
    assert_int_equal(fact(c, k, CU_FUNC_MAX_DYNAMIC_SHARED), (48 << 10) - 40);
    assert_int_equal(c->driver.kernel_param(k, 0, &offset, &bytes), 0);
    assert_int_equal(offset, 0);
    assert_int_equal(bytes, 24);
    assert_int_equal(c->driver.kernel_param(k, 1, &offset, &bytes), INVALID_VALUE);
    assert_int_equal(c->driver.library_unload(library), 0);
    vt_cuda_close(c);
}

/* The limits are those of the CUDA programming guide's table of compute capabilities. */
static void
test_launch_when_more_shared_memory_is_asked_for_than_a_block_has_then_refused(void **state)
{
    (void)state;
    static const struct {
        int cc, bytes;
    } gpu[] = {{80, 166912}, {86, 101376}, {89, 101376}, {90, 232448}, {120, 101376}};
    for (size_t i = 0; i < sizeof gpu / sizeof *gpu; i++) {
        uint32_t most = (uint32_t)gpu[i].bytes;
        vt_cuda_lane lane;
        void *out;
        open_capability(gpu[i].cc, &lane, &out);
        const cuda_driver *d = &lane.cuda->driver;
        assert_int_equal(lane.cuda->max_shared_bytes, most);
        assert_int_equal(fill_with(&lane, out, sizeof(fill_params), most), VT_OK);
        assert_int_equal(d->stream_sync(lane.stream), 0);
        assert_int_equal(fill_with(&lane, out, sizeof(fill_params), most + 1), VT_ERR_UNSUPPORTED);
        assert_non_null(strstr(lane.err.message, "the GPU gives a block"));
        /* and the driver itself refuses more */
        cu_kernel k = lane.cuda->kernel[0].kernel;
        cu_launch_config config = {1, 1, 1, 256, 1, 1, most + 1, lane.stream, NULL, 0};
        fill_params params = {.out = out, .n = N};
        void *args[1] = {&params};
        assert_int_equal(d->kernel_set(CU_FUNC_MAX_DYNAMIC_SHARED, gpu[i].bytes + 1, k, 0),
                         INVALID_VALUE);
        assert_int_equal(d->launch(&config, k, args, NULL), INVALID_VALUE);
        vt_cuda_free(lane.cuda, out);
        assert_int_equal(d->stream_destroy(lane.stream), 0);
        vt_cuda_close(lane.cuda);
    }
    unsetenv("VITRINE_EMULATOR");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_launch_when_the_parameter_struct_differs_then_it_is_refused),
        cmocka_unit_test(test_kernel_when_asked_then_launch_bounds_shared_memory_and_parameters),
        cmocka_unit_test(test_launch_when_the_driver_cannot_tell_the_size_then_it_runs),
        cmocka_unit_test(
            test_launch_when_more_shared_memory_is_asked_for_than_a_block_has_then_refused),
    };
    return cmocka_run_group_tests(tests, emulated_gpu_open, NULL);
}
