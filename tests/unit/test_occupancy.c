/* Occupancy by our rules against NVIDIA's (tools/fixtures/occupancy.py). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "device/cuda/occupancy.h"

static void test_occupancy_of_many_launches_is_nvidias(void **state)
{
    (void)state;
    FILE *f = fopen("tests/golden/occupancy/rules.txt", "r");
    int cc, threads, registers, shared, ctas, n = 0;
    assert_non_null(f);
    for (; fscanf(f, "%d %d %d %d %d", &cc, &threads, &registers, &shared, &ctas) == 5; n++) {
        vt_occupancy_input in = {
            .cc = cc, .threads = threads, .registers = registers, .shared_bytes = shared};
        vt_occupancy o;
        assert_true(vt_occupancy_of(&in, &o));
        if (o.ctas != ctas)
            fail_msg("cc %d, %d threads, %d registers, %d bytes: %d CTAs, expected %d", cc, threads,
                     registers, shared, o.ctas, ctas);
    }
    fclose(f);
    assert_true(n > 4000);
}

static void test_occupancy_names_its_limiter_and_what_would_help(void **state)
{
    (void)state;
    /* 256 threads of 128 registers: 2 CTAs; of 80: 3, if shared memory allows. */
    vt_occupancy_input in = {.cc = 90, .threads = 256, .registers = 128, .shared_bytes = 1000};
    vt_occupancy o;
    assert_true(vt_occupancy_of(&in, &o));
    assert_int_equal(o.ctas, 2);
    assert_int_equal(o.limit, VT_LIMIT_REGISTERS);
    assert_int_equal(o.fewer_registers, 80);
    assert_int_equal(o.less_shared, -1);
    in = (vt_occupancy_input){.cc = 90, .threads = 256, .registers = 32, .shared_bytes = 120 << 10};
    assert_true(vt_occupancy_of(&in, &o));
    assert_int_equal(o.limit, VT_LIMIT_SHARED);
    assert_int_equal(o.ctas, 1);
    assert_int_equal(o.less_shared, 113 << 10); /* two of 114 KB, 1 KB of each the driver's */
    in.shared_bytes = o.less_shared;
    assert_true(vt_occupancy_of(&in, &o));
    assert_int_equal(o.ctas, 2);
}

static void test_occupancy_of_a_launch_has_waves_and_a_tail(void **state)
{
    (void)state;
    vt_occupancy_input in = {
        .cc = 90, .threads = 1024, .registers = 32, .grid = 330, .sm_count = 132};
    vt_occupancy o;
    assert_true(vt_occupancy_of(&in, &o));
    assert_int_equal(o.ctas, 2);
    assert_int_equal(o.limit, VT_LIMIT_NONE);
    assert_true(fabs(o.waves - 1.25) < 1e-9);
    assert_true(fabs(o.tail - 0.375) < 1e-9); /* 330 of 528 places */
    in.cc = 70;
    assert_false(vt_occupancy_of(&in, &o));
    in.cc = 90;
    in.threads = 0;
    assert_false(vt_occupancy_of(&in, &o));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_occupancy_of_many_launches_is_nvidias),
        cmocka_unit_test(test_occupancy_names_its_limiter_and_what_would_help),
        cmocka_unit_test(test_occupancy_of_a_launch_has_waves_and_a_tail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
