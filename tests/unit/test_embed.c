/* The embedding lookup against its reference, for every type, one worker and two. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "ops/case_text.h"
#include "ops/cases.h"
#include "ops/embed/embed.h"

/* Runs the workers one after the other, which is possible because embed has no barrier. */
static void run_all(const embed_args *a, int32_t n_workers)
{
    for (int32_t i = 0; i < n_workers; i++) {
        vt_lane lane = {.worker = i, .n_workers = n_workers};
        assert_int_equal(vt_op_row(&embed_op, VT_DEVICE_CPU, "portable")->run(a, &lane), VT_OK);
    }
}

static void test_embed_agrees_with_the_reference_in_every_case(void **state)
{
    (void)state;
    vt_case c;
    for (int32_t i = 0; vt_op_case(&embed_op, i, &c); i++) {
        vt_tensor *out[VT_MAX_OUTPUTS];
        int32_t n_out;
        vt_arena arena;
        vt_arena_init(&arena, 0);
        embed_args *a = embed_op.make_args(&c, 3, &arena, out, &n_out);
        assert_non_null(a);
        size_t n = (size_t)vt_tensor_elems(a->y);
        float *want = vt_arena_alloc(&arena, n, sizeof *want), *y = a->y->data;
        assert_non_null(want);
        embed_op.reference(a);
        memcpy(want, y, n * sizeof *y);
        for (int32_t workers = 1; workers <= 2; workers++) {
            memset(y, 0xff, n * sizeof *y);
            run_all(a, workers);
            for (size_t k = 0; k < n; k++)
                if (!(fabsf(y[k] - want[k]) <= embed_op.tolerance * (1 + fabsf(want[k]))))
                    fail_msg("%s: y[%zu] is %g, expected %g", c.name, k, (double)y[k],
                             (double)want[k]);
        }
        vt_arena_release(&arena);
    }
}

static void test_embed_picks_the_row_of_each_token(void **state)
{
    (void)state;
    float table[3][2] = {{1, 2}, {3, 4}, {5, 6}}, y[2][2];
    const int32_t ids[2] = {2, 0}, *tokens = ids;
    vt_tensor tt = vt_tensor_2d(table, VT_F32, 3, 2), ty = vt_tensor_2d(y, VT_F32, 2, 2);
    embed_args a = {.table = &tt, .tokens = &tokens, .y = &ty, .scale = 10};
    run_all(&a, 1);
    assert_float_equal(y[0][0], 50, 0);
    assert_float_equal(y[0][1], 60, 0);
    assert_float_equal(y[1][0], 10, 0);
    assert_float_equal(y[1][1], 20, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embed_agrees_with_the_reference_in_every_case),
        cmocka_unit_test(test_embed_picks_the_row_of_each_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
