/* Scalar conversions against brute force, dequantisation against the gguf package's answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>

#include "base/tensor.h"
#include "base/quant.h"

static uint64_t next_random(uint64_t *s)
{
    *s ^= *s << 13;
    *s ^= *s >> 7;
    *s ^= *s << 17;
    return *s;
}

static float float_of_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static void test_f16_every_value_survives_the_round_trip(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float f = vt_f16_to_f32((uint16_t)h);
        int exp = h >> 10 & 31, man = h & 1023;
        if (exp == 31 && man != 0) {
            assert_true(isnan(f) && isnan(vt_f16_to_f32(vt_f32_to_f16(f))));
            continue;
        }
        double want = exp == 31  ? INFINITY
                      : exp == 0 ? ldexp(man, -24)
                                 : ldexp(1024 + man, exp - 25);
        assert_true((double)f == (h & 0x8000 ? -want : want));
        assert_int_equal(vt_f32_to_f16(f), h);
    }
}

/* For every format: the result of narrowing x is a nearest value, and the one with an even code
 * where two are equally near. `up` and `down` are the neighbouring codes of the result. */
static void check_nearest(float x, float got, float down, float up, bool even)
{
    double e = fabs((double)x - (double)got);
    double e_down = isfinite(down) ? fabs((double)x - (double)down) : INFINITY;
    double e_up = isfinite(up) ? fabs((double)x - (double)up) : INFINITY;
    assert_true(e <= e_down && e <= e_up);
    if (e == e_down || e == e_up)
        assert_true(even);
}

static void test_f16_narrowing_takes_the_nearest_with_ties_to_even(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (int i = 0; i < 400000; i++) {
        uint32_t u = (uint32_t)next_random(&seed);
        if (i % 4 == 0) /* a tie, or a neighbour of one, between two codes */
            u = (u & 0xffffe000u) + 0x1000u + (uint32_t)(i / 4 % 3) - 1;
        float x = float_of_bits((u & 0x80ffffffu) | (101u + (u >> 24) % 42u) << 23);
        uint16_t h = vt_f32_to_f16(x), a = h & 0x7fff;
        if (a == 0 || a >= 0x7bff)
            continue;
        float s = h & 0x8000 ? -1 : 1;
        check_nearest(x, vt_f16_to_f32(h), s * vt_f16_to_f32((uint16_t)(a - 1)),
                      s * vt_f16_to_f32((uint16_t)(a + 1)), (h & 1) == 0);
    }
}

static void test_f16_narrowing_at_the_ends_of_the_range(void **state)
{
    (void)state;
    assert_int_equal(vt_f32_to_f16(65519.996f), 0x7bff);
    assert_int_equal(vt_f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(vt_f32_to_f16(-INFINITY), 0xfc00);
    assert_int_equal(vt_f32_to_f16(0x1p-25f),
                     0); /* a tie between 0 and the least subnormal: even */
    assert_int_equal(vt_f32_to_f16(0x1.000002p-25f), 1);
    assert_int_equal(vt_f32_to_f16(0x1.8p-24f), 2);
    assert_int_equal(vt_f32_to_f16(-0.0f), 0x8000);
    assert_true(isnan(vt_f16_to_f32(vt_f32_to_f16(NAN))));
}

static void test_bf16_narrowing_takes_the_nearest_with_ties_to_even(void **state)
{
    (void)state;
    uint64_t seed = 2;
    for (int i = 0; i < 400000; i++) {
        uint32_t u = (uint32_t)next_random(&seed);
        if (i % 4 == 0)
            u = (u & 0xffff0000u) + 0x8000u + (uint32_t)(i / 4 % 3) - 1;
        float x = float_of_bits(u);
        uint16_t h = vt_f32_to_bf16(x), a = h & 0x7fff;
        if (!isfinite(x) || a == 0 || a >= 0x7f7f)
            continue;
        float s = h & 0x8000 ? -1 : 1;
        check_nearest(x, vt_bf16_to_f32(h), s * vt_bf16_to_f32((uint16_t)(a - 1)),
                      s * vt_bf16_to_f32((uint16_t)(a + 1)), (h & 1) == 0);
    }
    assert_int_equal(vt_f32_to_bf16(INFINITY), 0x7f80);
    assert_int_equal(vt_f32_to_bf16(3.4e38f), 0x7f80);
    assert_true(isnan(vt_bf16_to_f32(vt_f32_to_bf16(NAN))));
    assert_true(isnan(vt_bf16_to_f32(vt_f32_to_bf16(float_of_bits(0x7f800001u)))));
}

static void test_fp8_every_value_survives_and_narrowing_takes_the_nearest(void **state)
{
    (void)state;
    for (int v = 0; v < 256; v++) {
        float f = vt_fp8_e4m3_to_f32((uint8_t)v);
        int exp = v >> 3 & 15, man = v & 7;
        if (exp == 15 && man == 7) {
            assert_true(isnan(f));
            continue;
        }
        double want = exp == 0 ? ldexp(man, -9) : ldexp(8 + man, exp - 10);
        assert_true((double)f == (v & 0x80 ? -want : want));
        assert_int_equal(vt_f32_to_fp8_e4m3(f), v);
    }
    for (int i = 0; i < 40000;
         i++) { /* steps of a sixteenth of the least subnormal, ties included */
        float x = (float)i * 0x1p-13f * (i % 3 ? 1 : 4096);
        uint8_t v = vt_f32_to_fp8_e4m3(x);
        assert_true(v <= 0x7e);
        if (v == 0x7e) {
            assert_true(x >= 432);
            continue;
        }
        float below = v ? vt_fp8_e4m3_to_f32((uint8_t)(v - 1)) : -INFINITY;
        check_nearest(x, vt_fp8_e4m3_to_f32(v), below, vt_fp8_e4m3_to_f32((uint8_t)(v + 1)),
                      (v & 1) == 0);
    }
    assert_int_equal(vt_f32_to_fp8_e4m3(1e9f), 0x7e);
    assert_int_equal(vt_f32_to_fp8_e4m3(-INFINITY), 0xfe);
    assert_true(isnan(vt_fp8_e4m3_to_f32(vt_f32_to_fp8_e4m3(NAN))));
}

static void test_tensor_sizes_follow_type_and_shape(void **state)
{
    (void)state;
    assert_int_equal(vt_dtype_row_bytes(VT_Q4_K, 512), 288);
    assert_int_equal(vt_dtype_row_bytes(VT_BF16, 7), 14);
    assert_int_equal(vt_dtype_row_bytes(VT_Q8_0, 0), 0);
    vt_tensor t = {.dtype = VT_Q4_1, .rank = 3, .dim = {3, 5, 64}, .row_stride = 64};
    assert_int_equal(vt_tensor_elems(&t), 960);
    assert_int_equal(vt_tensor_bytes(&t), 3 * 5 * 40);
    vt_tensor scalar = {.dtype = VT_BF16};
    assert_int_equal(vt_tensor_elems(&scalar), 1);
    assert_int_equal(vt_tensor_bytes(&scalar), 2);
}

/* ---- quantised types ---- */

enum { N = 1024 };

static const vt_dtype quantised[] = {VT_Q8_0, VT_Q4_0,   VT_Q4_1, VT_Q5_0,   VT_Q5_1,
                                     VT_Q4_K, VT_Q5_K,   VT_Q6_K, VT_IQ4_NL, VT_MXFP4,
                                     VT_Q3_K, VT_IQ4_XS, VT_Q2_K};

static void test_dequant_of_every_type_equals_the_gguf_package_bit_for_bit(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof quantised / sizeof *quantised; i++) {
        vt_dtype t = quantised[i];
        char path[100];
        uint8_t raw[N * 2];
        float want[N], got[N];
        size_t bytes = (size_t)vt_dtype_row_bytes(t, N);
        snprintf(path, sizeof path, "tests/golden/quant/%s.bin", vt_dtype_get(t)->name);
        FILE *f = fopen(path, "rb");
        assert_non_null(f);
        assert_int_equal(fread(raw, 1, bytes, f), bytes);
        assert_int_equal(fread(want, sizeof *want, N, f), N);
        fclose(f);
        vt_dequant_row(t, raw, got, N);
        for (int k = 0; k < N; k++)
            if (memcmp(&got[k], &want[k], sizeof *got) != 0)
                fail_msg("%s element %d: %a, expected %a", vt_dtype_get(t)->name, k, (double)got[k],
                         (double)want[k]);
    }
}

/* Property: an element moves by at most half of its block's step, widened where the scales
 * themselves are rounded: steps of (range / levels) for the blocks of 32, twice that for the K
 * types, whose 6- or 8-bit group scales may be off by half a unit in the worst group. */
static void test_quant_row_stays_within_the_step_of_the_type(void **state)
{
    (void)state;
    static const double levels[] = {254, 16, 15, 32, 31, 15, 31, 64, 16, 7, 8, 16, 3};
    uint64_t seed = 3;
    for (size_t i = 0; i < sizeof quantised / sizeof *quantised; i++) {
        vt_dtype t = quantised[i];
        bool k_type = vt_dtype_get(t)->block == 256;
        float x[N], y[N];
        uint8_t raw[N * 2];
        for (int k = 0; k < N; k++)
            x[k] = (float)((double)next_random(&seed) / 1.8446744073709552e19 - 0.4) *
                   (1 + k / 256);
        vt_quant_row(t, x, raw, N);
        vt_dequant_row(t, raw, y, N);
        for (int k = 0; k < N; k++) {
            double range = 1.2 * (1 + k / 256); /* symmetric types spend levels on [-0.6, 0.6] */
            double bound = range / levels[i] * (k_type ? 2 : 1);
            if (!(fabs((double)x[k] - (double)y[k]) <= bound))
                fail_msg("%s element %d: %g became %g, more than %g away", vt_dtype_get(t)->name, k,
                         (double)x[k], (double)y[k], bound);
        }
    }
}

static void test_quant_row_of_zeros_gives_zeros(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof quantised / sizeof *quantised; i++) {
        float x[N] = {0}, y[N];
        uint8_t raw[N * 2];
        vt_quant_row(quantised[i], x, raw, N);
        vt_dequant_row(quantised[i], raw, y, N);
        for (int k = 0; k < N; k++)
            assert_true(y[k] == 0);
    }
}

static void test_quant_row_of_dequantised_values_is_a_fixed_point_of_float_types(void **state)
{
    (void)state;
    static const vt_dtype types[] = {VT_F32, VT_F16, VT_BF16, VT_FP8_E4M3};
    static const float x[8] = {0, 1, -1.5f, 448, 0.015625f, -0.001953125f, 2, 240};
    for (size_t i = 0; i < 4; i++) {
        uint8_t raw[32];
        float y[8];
        vt_quant_row(types[i], x, raw, 8);
        vt_dequant_row(types[i], raw, y, 8);
        assert_memory_equal(x, y, sizeof x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f16_every_value_survives_the_round_trip),
        cmocka_unit_test(test_f16_narrowing_takes_the_nearest_with_ties_to_even),
        cmocka_unit_test(test_f16_narrowing_at_the_ends_of_the_range),
        cmocka_unit_test(test_bf16_narrowing_takes_the_nearest_with_ties_to_even),
        cmocka_unit_test(test_fp8_every_value_survives_and_narrowing_takes_the_nearest),
        cmocka_unit_test(test_tensor_sizes_follow_type_and_shape),
        cmocka_unit_test(test_dequant_of_every_type_equals_the_gguf_package_bit_for_bit),
        cmocka_unit_test(test_quant_row_stays_within_the_step_of_the_type),
        cmocka_unit_test(test_quant_row_of_zeros_gives_zeros),
        cmocka_unit_test(test_quant_row_of_dequantised_values_is_a_fixed_point_of_float_types),
    };
    return cmocka_run_group_tests_name("tensor", tests, NULL, NULL);
}
