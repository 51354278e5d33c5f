/* cuBLASLt as an implementation of linear (cuda/cublaslt.h), on the emulated library: when it
 * runs, when our own kernels run in its place, and which errors it gives. tests/gpu/gpu_parity
 * tests its results; test_cuda_graphs tests that padding changes no bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "common/emulated_gpu.h"
#include "device/cuda/cublaslt.h"
#include "ops/cuda_impls.h"
#include "ops/linear/linear_cuda.h"

enum { TOKENS = 70, ROWS = 96, COLS = 64, WORKSPACE = 64 << 20 };

typedef struct rig {
    vt_cuda *cuda;
    vt_cuda_lane lane;
    vt_target target;
    void *workspace, *x, *w, *y, *bias;
    linear_args args;
    vt_tensor tx, tw, ty, tb;
    vt_weight weight;
    int32_t note[8];
} rig;

static void *block(rig *r, size_t bytes)
{
    void *p;
    vt_err err = {0};
    if (vt_cuda_alloc(r->cuda, bytes, &p, &err) != VT_OK)
        fail_msg("%s", err.message);
    assert_int_equal(r->cuda->driver.fill8((cu_ptr)(uintptr_t)p, 0x3c, bytes, r->lane.stream), 0);
    return p;
}

/* The state that the executor finds when it starts (exec/cuda_start.c). */
static vt_target target_of(vt_cuda *c)
{
    char why[160];
    bool there = vt_cublaslt_open(c, why, sizeof why) > 0;
    return (vt_target){.device = VT_DEVICE_CUDA,
                       .limits = {.max_tokens = TOKENS, .max_seqs = TOKENS, .max_rows = TOKENS},
                       .workspace_bytes = WORKSPACE,
                       .level = c->level,
                       .sm_count = c->sm_count,
                       .max_shared_bytes = c->max_shared_bytes,
                       .cublaslt = there,
                       .cublaslt_all = there && c->cublaslt_use == CUBLASLT_ALL};
}

/* y = x W^T on a device that `emulator` and `want` (VITRINE_CUBLASLT) describe. */
static void open_rig(rig *r, const char *emulator, const char *want)
{
    vt_err err = {0};
    *r = (rig){0};
    setenv("VITRINE_EMULATOR", emulator, 1);
    setenv("VITRINE_CUBLASLT", want, 1);
    if (vt_cuda_open(0, &r->cuda, &err) != VT_OK)
        fail_msg("%s", err.message);
    r->target = target_of(r->cuda);
    r->lane = (vt_cuda_lane){.cuda = r->cuda, .max_note = 8};
    r->lane.note = r->note;
    assert_int_equal(r->cuda->driver.stream_create(&r->lane.stream, CU_STREAM_NON_BLOCKING, 0), 0);
    r->workspace = block(r, WORKSPACE);
    r->tx = vt_tensor_2d(r->x = block(r, TOKENS * COLS * 2), VT_BF16, TOKENS, COLS);
    r->tw = vt_tensor_2d(r->w = block(r, ROWS * COLS * 2), VT_BF16, ROWS, COLS);
    r->ty = vt_tensor_2d(r->y = block(r, TOKENS * ROWS * 2), VT_BF16, TOKENS, ROWS);
    r->tb = (vt_tensor){.data = r->bias = block(r, ROWS * 4),
                        .dtype = VT_F32,
                        .rank = 1,
                        .dim = {ROWS},
                        .row_stride = ROWS};
    r->weight = (vt_weight){
        .part = {&r->tw}, .n_parts = 1, .rows = ROWS, .cols = COLS, .dtype = VT_BF16};
    r->args = (linear_args){.x = &r->tx, .w = &r->weight, .y = &r->ty, .scale = 1};
}

static void close_rig(rig *r)
{
    void *blocks[] = {r->workspace, r->x, r->w, r->y, r->bias};
    r->cuda->driver.stream_sync(r->lane.stream);
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        vt_cuda_free(r->cuda, blocks[i]);
    r->cuda->driver.stream_destroy(r->lane.stream);
    vt_cuda_close(r->cuda);
    unsetenv("VITRINE_CUBLASLT");
}

/* The row that the card takes for the rig's product. */
static const vt_impl *row_of(const rig *r)
{
    int32_t tokens = (int32_t)r->tx.dim[0];
    const vt_impl *impl = vt_op_select(&linear_op, &r->args, &r->target,
                                       &(vt_size){.tokens = tokens, .rows = tokens});
    assert_non_null(impl);
    return impl;
}

static vt_status run_on(rig *r, const vt_impl *impl)
{
    vt_size size = {.tokens = (int32_t)r->tx.dim[0], .rows = (int32_t)r->tx.dim[0]};
    vt_lane lane = {.target = &r->target,
                    .size = &size,
                    .workspace = r->workspace,
                    .workspace_bytes = WORKSPACE,
                    .cuda = &r->lane};
    return impl->run(&r->args, &lane);
}

static vt_status collect_and_run(rig *r)
{
    const vt_impl *impl = row_of(r);
    vt_err err = {0};
    r->lane.collect = true;
    assert_int_equal(run_on(r, impl), VT_OK);
    r->lane.collect = false;
    if (vt_cuda_compile(r->cuda, NULL, NULL, &err) != VT_OK)
        fail_msg("%s", err.message);
    r->lane.n_launches = 0;
    return run_on(r, impl);
}

/* Runs the product, which must work, and says whether the library did it. */
static bool on_library(rig *r)
{
    if (collect_and_run(r) != VT_OK)
        fail_msg("%s", r->lane.err.message);
    assert_int_equal(r->cuda->driver.stream_sync(r->lane.stream), 0);
    assert_true(r->lane.n_launches > 0);
    int32_t last = r->note[r->lane.n_launches - 1]; /* a bias is made bf16 before */
    return strncmp(vt_jit_name(r->cuda->jit, last), "cublasLt<", 9) == 0;
}

static bool runs_there(const char *emulator, const char *want)
{
    rig r;
    open_rig(&r, emulator, want);
    bool there = on_library(&r);
    close_rig(&r);
    return there;
}

static void test_product_when_all_are_wanted_then_the_library_runs_it(void **state)
{
    (void)state;
    assert_true(runs_there("cc=90", "all"));
    assert_true(runs_there("cc=80", "all"));
    assert_false(runs_there("cc=90", "0"));
    assert_false(runs_there("cc=90", "")); /* too small to be faster there */
}

static void test_product_when_it_may_not_then_a_kernel_of_ours_runs_it(void **state)
{
    (void)state;
    rig r;
    open_rig(&r, "cc=90", "all");
    r.target.deterministic = true;
    assert_false(on_library(&r));
    r.target.deterministic = false;
    r.tx.dim[0] = r.ty.dim[0] = 16;
    assert_false(on_library(&r));
    r.tx.dim[0] = r.ty.dim[0] = 17;
    assert_true(on_library(&r));
    r.target.cublaslt = false;
    assert_false(on_library(&r));
    close_rig(&r);
}

/* Property: each output has its own bias, in bf16 and in fp32. Sums without it are below 0.01. */
static void test_product_with_a_bias_when_the_library_runs_it_then_it_is_added(void **state)
{
    (void)state;
    float bias[ROWS], wide[ROWS];
    uint16_t y[ROWS];
    for (int i = 0; i < ROWS; i++)
        bias[i] = (float)i;
    for (int f32 = 0; f32 < 2; f32++) {
        rig r;
        open_rig(&r, "cc=90", "all");
        const cuda_driver *d = &r.cuda->driver;
        r.args.bias = &r.tb;
        if (f32) {
            vt_cuda_free(r.cuda, r.y);
            r.ty = vt_tensor_2d(r.y = block(&r, TOKENS * ROWS * 4), VT_F32, TOKENS, ROWS);
        }
        assert_int_equal(
            d->copy_to_device((cu_ptr)(uintptr_t)r.bias, bias, sizeof bias, r.lane.stream), 0);
        assert_true(on_library(&r));
        char *row = (char *)r.y + (TOKENS - 1) * ROWS * (f32 ? 4 : 2);
        assert_int_equal(d->copy_to_host(f32 ? (void *)wide : y, (cu_ptr)(uintptr_t)row,
                                         f32 ? sizeof wide : sizeof y, r.lane.stream),
                         0);
        assert_int_equal(d->stream_sync(r.lane.stream), 0);
        for (int i = 0; i < ROWS; i++) {
            uint32_t bits = (uint32_t)y[i] << 16;
            float got = wide[i];
            if (!f32)
                memcpy(&got, &bits, sizeof got);
            assert_float_equal(got, bias[i], 0.02f + bias[i] / 256);
        }
        close_rig(&r);
    }
}

static void
test_library_when_it_is_missing_or_broken_then_ours_runs_and_env_can_say_why(void **state)
{
    (void)state;
    static const struct {
        const char *emulator, *want, *why;
    } row[] = {{"cc=90,cublaslt=broken", "all", "could not be started"},
               {"cc=90", "0", "VITRINE_CUBLASLT=0"}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char why[160];
        rig r;
        open_rig(&r, row[i].emulator, row[i].want);
        r.cuda->cublaslt_use = i == 1 ? CUBLASLT_NEVER : CUBLASLT_ALL;
        assert_int_equal(vt_cublaslt_open(r.cuda, why, sizeof why), 0);
        assert_non_null(strstr(why, row[i].why));
        r.target = target_of(r.cuda);
        assert_false(on_library(&r));
        r.target.cublaslt = r.target.cublaslt_all = true; /* although the device has none */
        assert_ptr_equal(row_of(&r), &linear_cuda_cublaslt);
        assert_false(on_library(&r));
        close_rig(&r);
    }
    assert_false(runs_there("cc=90,cublaslt=none", "all"));
}

/* If the library cannot launch a product the first time, our own kernel runs. If it could before
 * and now cannot, that is an error. */
static void
test_product_when_the_library_refuses_it_then_ours_or_an_error_that_names_it(void **state)
{
    (void)state;
    rig r;
    assert_false(runs_there("cc=90,cublaslt=failing", "all"));
    open_rig(&r, "cc=90", "all");
    assert_true(on_library(&r));
    setenv("VITRINE_EMULATOR", "cc=90,cublaslt=failing", 1);
    assert_int_equal(run_on(&r, row_of(&r)), VT_ERR_DEVICE);
    assert_non_null(strstr(r.lane.err.message, "cublasLtMatmul of 70 tokens by [96, 64] failed"));
    assert_non_null(strstr(r.lane.err.message, "VITRINE_CUBLASLT=0"));
    close_rig(&r);
}

/* Rows of the table in linear_cublaslt.c. */
static void test_products_when_measured_to_be_faster_there_then_they_are_chosen(void **state)
{
    (void)state;
    static const struct {
        int32_t tokens, rows, cols;
        bool pair, f32, chosen, at_80, bias;
    } row[] = {{64, 1024, 2048, false, false, false, false},
               {128, 1024, 2048, false, false, false, true},
               {256, 1024, 2048, false, false, true, true},
               {8192, 1024, 2048, false, false, true, true},
               {16, 4096, 4096, false, false, false, false},
               {64, 4096, 4096, false, false, true, true},
               {2048, 6144, 4096, false, false, true, true},
               {8192, 6144, 4096, false, false, false, true},
               {128, 24576, 4096, true, false, true, true},
               {256, 24576, 4096, true, false, false, true},
               {256, 34816, 5120, true, false, true, true},
               {512, 34816, 5120, true, false, false, true},
               {128, 151936, 4096, false, true, false, true},
               {256, 151936, 4096, false, true, true, true},
               {256, 49152, 576, false, true, false, false},
               {128, 6144, 1024, true, false, false, true},
               {512, 768, 768, false, false, false, false, true},
               {1024, 768, 768, false, false, true, true, true},
               {1024, 768, 768, false, false, false, false, false},
               {16384, 768, 3072, false, false, true, true, true},
               {16384, 1536, 384, false, false, false, false, true},
               {128, 4608, 3584, false, false, true, true, true}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        int64_t n = row[i].pair ? row[i].rows / 2 : row[i].rows;
        vt_tensor x = vt_tensor_2d(NULL, VT_BF16, row[i].tokens, row[i].cols),
                  w = vt_tensor_2d(NULL, VT_BF16, row[i].rows, row[i].cols),
                  y = vt_tensor_2d(NULL, row[i].f32 ? VT_F32 : VT_BF16, row[i].tokens, n);
        vt_weight weight = {.part = {&w},
                            .n_parts = 1,
                            .paired = row[i].pair,
                            .rows = row[i].rows,
                            .cols = row[i].cols,
                            .dtype = VT_BF16};
        vt_tensor bias = {.dtype = VT_F32, .rank = 1, .dim = {row[i].rows}};
        linear_args a = {.x = &x,
                         .bias = row[i].bias ? &bias : NULL,
                         .w = &weight,
                         .y = &y,
                         .epilogue = row[i].pair ? LINEAR_SWIGLU : LINEAR_NONE,
                         .scale = 1};
        for (int32_t level = 80; level <= 90; level += 10) {
            vt_target t = {.device = VT_DEVICE_CUDA,
                           .level = level,
                           .sm_count = 132,
                           .max_shared_bytes = 227 << 10,
                           .cublaslt = true};
            vt_size size = {.tokens = row[i].tokens, .rows = row[i].tokens};
            bool want = level == 80 ? row[i].at_80 : row[i].chosen;
            if ((vt_op_select(&linear_op, &a, &t, &size) == &linear_cuda_cublaslt) != want)
                fail_msg("level %d, %d tokens by [%d, %d]: %d expected", level, row[i].tokens,
                         row[i].rows, row[i].cols, want);
        }
    }
}

static void test_device_when_the_variable_is_not_known_then_it_does_not_open(void **state)
{
    (void)state;
    static const char *const row[][2] = {
        {"yes", "VITRINE_CUBLASLT=yes: expected 0, all or the library's path"},
        {"/nowhere/libcublasLt.so", "VITRINE_CUBLASLT=/nowhere/libcublasLt.so cannot be opened: "},
        {"/proc/self/status", "VITRINE_CUBLASLT=/proc/self/status cannot be opened: "}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        vt_cuda *cuda;
        vt_err err = {0};
        setenv("VITRINE_CUBLASLT", row[i][0], 1);
        assert_int_not_equal(vt_cuda_open(0, &cuda, &err), VT_OK);
        assert_non_null(strstr(err.message, row[i][1]));
    }
    unsetenv("VITRINE_CUBLASLT");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_product_when_all_are_wanted_then_the_library_runs_it),
        cmocka_unit_test(test_product_when_it_may_not_then_a_kernel_of_ours_runs_it),
        cmocka_unit_test(test_product_with_a_bias_when_the_library_runs_it_then_it_is_added),
        cmocka_unit_test(
            test_library_when_it_is_missing_or_broken_then_ours_runs_and_env_can_say_why),
        cmocka_unit_test(
            test_product_when_the_library_refuses_it_then_ours_or_an_error_that_names_it),
        cmocka_unit_test(test_products_when_measured_to_be_faster_there_then_they_are_chosen),
        cmocka_unit_test(test_device_when_the_variable_is_not_known_then_it_does_not_open),
    };
    return cmocka_run_group_tests_name("cublaslt", tests, emulated_gpu_open, NULL);
}
