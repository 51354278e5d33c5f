/* The exponential that the kernels share, against libm in double: its stated error, and its
 * edges. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/exp2_kernels.h"
#include "device/cpu.h"

typedef void (*exp2_fn)(const float *x, float *y, int n);

static void check_range(exp2_fn fn)
{
    enum { N = 4096 };
    float x[N], y[N];
    double worst = 0;
    for (int block = 0; block < 300; block++) {
        for (int i = 0; i < N; i++)
            x[i] = -126.0f + 253.0f * ((float)block + (float)i / N) / 300.0f;
        fn(x, y, N);
        for (int i = 0; i < N; i++)
            worst = fmax(worst, fabs((double)y[i] / exp2((double)x[i]) - 1));
    }
    assert_true(worst < 1.5e-7);
}

static void check_edges(exp2_fn fn)
{
    float x[16] = {0,      -0.0f,     1,        -1,  127,  200, -126, -126.5f,
                   -1e30f, -INFINITY, INFINITY, NAN, -127, 3,   10,   -20};
    float y[16];
    fn(x, y, 16);
    const float want[16] = {1, 1, 2,        0.5f, 0x1p127f, 0x1p127f, 0x1p-126f, 0,
                            0, 0, 0x1p127f, NAN,  0,        8,        1024,      0x1p-20f};
    for (int i = 0; i < 16; i++)
        assert_true(y[i] == want[i] || (isnan(y[i]) && isnan(want[i])));
}

static void test_exp2_stays_within_its_stated_error(void **state)
{
    (void)state;
    check_range(exp2_portable);
    check_edges(exp2_portable);
#if defined(__x86_64__)
    if (vt_cpu_get()->best >= VT_ISA_AVX2) {
        check_range(exp2_avx2);
        check_edges(exp2_avx2);
    }
    if (vt_cpu_get()->best >= VT_ISA_AVX512) {
        check_range(exp2_avx512);
        check_edges(exp2_avx512);
    }
#elif defined(__aarch64__)
    check_range(exp2_neon);
    check_edges(exp2_neon);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_exp2_stays_within_its_stated_error)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
