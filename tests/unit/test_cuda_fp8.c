/* linear in E4M3 on the emulated GPU: how activations are rounded, and which calls run so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/emulated_ops.h"
#include "ops/access.h"
#include "ops/case_text.h"
#include "ops/cuda_impls.h"
#include "ops/linear/linear.h"
#include "ops/linear/linear_pack_cuda.h"

enum { UNIT = 128, COLS = 3 * UNIT, TOKENS = 70, ONE = 0x38 /* 1.0 in E4M3 */ };

static int open_gpu(void **state) { return emulated_ops_open(state, &(on_cuda_options){0}); }

/* ---- rounding ---- */

/* The E4M3 value next to v, of two the one with an even code; found by looking at all of them. */
static float nearest_e4m3(float v)
{
    int best = 0;
    for (int code = 1; code < 0x7f; code++) {
        float apart = fabsf(vt_fp8_e4m3_to_f32((uint8_t)code) - fabsf(v)),
              least = fabsf(vt_fp8_e4m3_to_f32((uint8_t)best) - fabsf(v));
        if (apart < least || (apart == least && code % 2 == 0))
            best = code;
    }
    return copysignf(vt_fp8_e4m3_to_f32((uint8_t)best), v);
}

/* Numbers of any size: units of different magnitudes, some of zeros, some with a single value, and
 * some whose scale has no reciprocal. */
static void fill(vt_tensor *x)
{
    uint32_t state = 7;
    for (int64_t t = 0; t < x->dim[0]; t++)
        for (int64_t k = 0; k < x->dim[1]; k++) {
            state = state * 1664525u + 1013904223u;
            float v = ldexpf((float)(int32_t)state, -31 - (int)(t % 23) * (int)(k / UNIT));
            v *= powf(2, (float)(state >> 8 & 15) - 12);
            if (t == 3 || (t == 4 && k % UNIT != 77))
                v = 0;
            if (t == 5 || t == 6)
                v = k % 3 ? 0 : 1e-38f;
            tensor_set(x, t, k, vt_bf16_to_f32(vt_f32_to_bf16(v)));
        }
}

/* The identity, with scales of 1: the product is what the activations were rounded to. */
static void make_identity(vt_weight *w)
{
    memset(w->part[0]->data, 0, COLS * COLS);
    for (int64_t i = 0; i < COLS; i++)
        ((uint8_t *)w->part[0]->data)[i * COLS + i] = ONE;
    for (int64_t i = 0; i < vt_tensor_elems(w->scale[0]); i++)
        ((float *)w->scale[0]->data)[i] = 1;
}

static void check_rounded(const vt_tensor *x, const uint16_t *y, const char *row)
{
    for (int64_t t = 0; t < TOKENS; t++)
        for (int64_t k = 0; k < COLS; k++) {
            float most = 0;
            for (int64_t i = k / UNIT * UNIT; i < k / UNIT * UNIT + UNIT; i++)
                most = fmaxf(most, fabsf(tensor_get(x, t, i)));
            float scale = most / 448,
                  want = most > 1e-30f ? nearest_e4m3(tensor_get(x, t, k) * (448 / most)) * scale
                                       : 0;
            float got = vt_bf16_to_f32(y[t * COLS + k]);
            if (fabsf(got - want) > fabsf(want) / 128)
                fail_msg("%s: token %d, column %d: %g became %g, expected %g", row, (int)t, (int)k,
                         (double)tensor_get(x, t, k), (double)got, (double)want);
        }
}

/* Property: each unit of 128 columns of a token is rounded to the nearest multiples of its own
 * scale, its largest value / 448, in both kernels' orders of columns. */
static void test_activations_are_rounded_to_the_nearest_e4m3_of_their_unit(void **state)
{
    (void)state;
    static const char *const rows[] = {"fp8_sm90", "gemm_fp8_sm90"};
    vt_case text;
    vt_err err = {0};
    vt_arena arena;
    vt_tensor *output[VT_MAX_OUTPUTS];
    int32_t n_outputs;
    on_cuda c;
    void *bytes;
    if (vt_case_from_text(&linear_op, "tokens=70,type=fp8,cols=384,rows=384,scales=blocks", &text,
                          &err) != VT_OK)
        fail_msg("%s", err.message);
    vt_arena_init(&arena, 0);
    linear_args *a = linear_op.make_args(&text, 5, &arena, output, &n_outputs);
    assert_non_null(a);
    fill((vt_tensor *)a->x);
    make_identity((vt_weight *)a->w);
    if (on_cuda_make(&c, &gpu, &linear_op, a, NULL, &err) != VT_OK)
        fail_msg("%s", err.message);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const vt_impl *impl = vt_op_row(&linear_op, VT_DEVICE_CUDA, rows[i]);
        assert_non_null(impl);
        if (on_cuda_take(&c, impl, &err) != VT_OK || on_cuda_run(&c, &err) != VT_OK ||
            on_cuda_fetch(&c, output[0], &bytes, &err) != VT_OK)
            fail_msg("%s: %s", rows[i], err.message);
        check_rounded(a->x, bytes, rows[i]);
        free(bytes);
    }
    on_cuda_release(&c);
    vt_arena_release(&arena);
}

/* ---- which calls ---- */

/* The row of a weight in FP8 on 132 SMs. */
static const char *row_for(int64_t rows, int64_t cols, int64_t tokens, bool blocks,
                           bool deterministic)
{
    vt_tensor x = vt_tensor_2d(NULL, VT_BF16, tokens, cols),
              y = vt_tensor_2d(NULL, VT_BF16, tokens, rows);
    vt_weight weight = {.n_parts = 1,
                        .rows = rows,
                        .cols = cols,
                        .dtype = VT_FP8_E4M3,
                        .packing = &linear_cuda_packing,
                        .packed_in_blocks = blocks};
    linear_args a = {.x = &x, .w = &weight, .y = &y, .scale = 1};
    vt_target t = {.device = VT_DEVICE_CUDA,
                   .level = 90,
                   .sm_count = 132,
                   .max_shared_bytes = 232448,
                   .deterministic = deterministic};
    vt_size size = {.tokens = (int32_t)tokens, .seqs = (int32_t)tokens, .rows = (int32_t)tokens};
    return vt_op_select(&linear_op, &a, &t, &size)->name;
}

/* Property: products run in E4M3 where that was measured to be faster on an H200. */
static void test_calls_that_were_faster_in_e4m3_run_so(void **state)
{
    (void)state;
    static const struct {
        int64_t rows, cols, tokens;
        const char *row;
    } want[] = {
        {6144, 4096, 7, "passes"},           {6144, 4096, 8, "fp8_sm90"},
        {6144, 4096, 128, "fp8_sm90"},       {6144, 4096, 256, "gemm_fp8_sm90"},
        {4096, 4096, 256, "fp8_sm90"},       {4096, 12288, 256, "fp8_sm90"},
        {24576, 4096, 256, "gemm_fp8_sm90"}, {4096, 4096, 257, "gemm_fp8_sm90"},
        {4096, 1024, 32, "passes"},          {4096, 1024, 33, "fp8_sm90"},
        {4096, 1000, 4096, "panels"}, /* columns that are no whole units */
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        assert_string_equal(row_for(want[i].rows, want[i].cols, want[i].tokens, true, false),
                            want[i].row);
}

/* Property: activations stay BF16 where the weight has one scale, and with --deterministic. */
static void test_activations_stay_bf16_without_blocks_and_in_deterministic_programs(void **state)
{
    (void)state;
    assert_string_equal(row_for(6144, 4096, 64, false, false), "quant_sm90");
    assert_string_equal(row_for(6144, 4096, 4096, false, false), "panels");
    assert_string_equal(row_for(6144, 4096, 64, true, true), "passes");
    assert_string_equal(row_for(6144, 4096, 4096, true, true), "passes");
}

/* Property: a weight is in blocks if each of its parts begins a block, and keeps that when it is
 * packed. */
static void test_weight_is_in_blocks_if_its_parts_begin_blocks(void **state)
{
    (void)state;
    static const struct {
        const char *shape;
        bool blocks;
    } want[] = {
        {"tokens=1,type=fp8,cols=256,rows=300,scales=blocks", true},
        {"tokens=1,type=fp8,cols=256,rows=256,rows2=128,rows3=72,scales=blocks", true},
        {"tokens=1,type=fp8,cols=256,rows=200,rows2=128,rows3=72,scales=blocks", false},
        {"tokens=1,type=fp8,cols=256,rows=200,rows2=200,epilogue=swiglu,scales=blocks", true},
        {"tokens=1,type=fp8,cols=256,rows=300,scales=one", false},
        {"tokens=1,type=fp8,cols=256,rows=300", false},
        {"tokens=1,type=q8_0,cols=256,rows=300", false},
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        vt_case text;
        vt_err err = {0};
        vt_arena arena;
        vt_tensor *output[VT_MAX_OUTPUTS];
        int32_t n_outputs;
        assert_int_equal(vt_case_from_text(&linear_op, want[i].shape, &text, &err), VT_OK);
        vt_arena_init(&arena, 0);
        linear_args *a = linear_op.make_args(&text, 5, &arena, output, &n_outputs);
        assert_non_null(a);
        vt_tensor part = vt_tensor_2d(NULL, a->w->dtype, a->w->rows, a->w->cols);
        vt_weight packed = vt_weight_packed(a->w, &linear_cuda_packing, &part);
        assert_int_equal(vt_weight_in_blocks(a->w), want[i].blocks);
        assert_int_equal(vt_weight_in_blocks(&packed), want[i].blocks);
        vt_arena_release(&arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_activations_are_rounded_to_the_nearest_e4m3_of_their_unit),
        cmocka_unit_test(test_calls_that_were_faster_in_e4m3_run_so),
        cmocka_unit_test(test_activations_stay_bf16_without_blocks_and_in_deterministic_programs),
        cmocka_unit_test(test_weight_is_in_blocks_if_its_parts_begin_blocks),
    };
    return cmocka_run_group_tests(tests, open_gpu, emulated_ops_close);
}
