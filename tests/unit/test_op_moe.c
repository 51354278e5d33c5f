/* Experts with quantised weights: the activations between the two linears are quantised to int8,
 * which costs a bounded error; a token's bits do not depend on its neighbours; and a router's
 * experts are different ones whatever its logits are. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/op_run.h"
#include "ops/access.h"
#include "ops/cases.h"
#include "ops/moe/moe.h"

static const vt_case quantised[] = {
    {.name = "Q8_0", .p = {9, 256, 96, 6, 3, VT_Q8_0}},
    {.name = "Q4_1", .p = {5, 64, 160, 8, 2, VT_Q4_1}},
    {.name = "Q4_K", .p = {3, 512, 256, 4, 4, VT_Q4_K}},
};

/* Root mean square of the difference, divided by that of the reference. */
static double relative_rms(const vt_tensor *got, const vt_tensor *want)
{
    double difference = 0, size = 0;
    for (int64_t r = 0; r < want->dim[0]; r++)
        for (int64_t c = 0; c < want->dim[1]; c++) {
            double x = tensor_get(got, r, c), y = tensor_get(want, r, c);
            difference += (x - y) * (x - y);
            size += y * y;
        }
    return sqrt(difference / size);
}

/* Each of the two quantisations adds an error of half a percent to a normally distributed
 * vector. */
static void test_moe_quantised_stays_within_a_percent_and_a_half(void **state)
{
    const vt_impl *impl = moe_linear_op.impls[0];
    for (size_t i = 0; i < sizeof quantised / sizeof *quantised; i++) {
        op_args want, got;
        op_args_make(&want, &moe_linear_op, &quantised[i]);
        op_args_make(&got, &moe_linear_op, &quantised[i]);
        moe_linear_op.reference(want.args);
        op_run(&moe_linear_op, impl, &got, *state, 2);
        double error = relative_rms(got.output[0], want.output[0]);
        if (!(error < 0.015))
            fail_msg("%s: relative error %.4f", quantised[i].name, error);
        op_args_release(&want);
        op_args_release(&got);
    }
}

static void compare_alone(const vt_case *c, const op_teams *teams)
{
    const vt_impl *impl = moe_linear_op.impls[0];
    op_args whole, alone;
    op_args_make(&whole, &moe_linear_op, c);
    op_args_make(&alone, &moe_linear_op, c);
    op_run(&moe_linear_op, impl, &whole, teams, 3);
    const moe_linear_args *w = whole.args;
    moe_linear_args *a = alone.args;
    vt_tensor x = *a->x, y = *a->y, expert = *a->expert, weight = *a->weight;
    a->x = &x, a->y = &y, a->expert = &expert, a->weight = &weight;
    x.dim[0] = y.dim[0] = expert.dim[0] = weight.dim[0] = 1;
    for (int64_t t = 0; t < w->y->dim[0]; t++) {
        x.data = row_f32(w->x, t);
        expert.data = (int32_t *)w->expert->data + t * w->expert->row_stride;
        weight.data = row_f32(w->weight, t);
        op_run(&moe_linear_op, impl, &alone, teams, 2);
        assert_memory_equal(y.data, row_f32(w->y, t), (size_t)y.dim[1] * sizeof(float));
    }
    op_args_release(&whole);
    op_args_release(&alone);
}

static void test_moe_token_alone_gives_the_same_bits(void **state)
{
    static const vt_case fp8 = {.name = "FP8 blocks",
                                .p = {9, 264, 136, 6, 3, VT_FP8_E4M3, CASE_SCALE_BLOCKS}};
    compare_alone(&quantised[0], *state);
    compare_alone(&fp8, *state);
}

/* Experts 0 and 1, 2 and 3 ... have equal rows of the router. */
static void make_ties(op_args *a)
{
    const vt_tensor *router = ((moe_route_args *)a->args)->router;
    for (int64_t e = 1; e < router->dim[0]; e += 2)
        memcpy((float *)router->data + e * router->row_stride,
               (float *)router->data + (e - 1) * router->row_stride,
               (size_t)router->dim[1] * sizeof(float));
}

/* Which of equal experts is chosen must not depend on the machine: the one of the lower index. */
static void test_moe_route_when_experts_are_equal_then_the_lower_one_comes_first(void **state)
{
    static const vt_case c = {.name = "ties", .p = {5, 40, 11, 4, 1, VT_F32}};
    for (const vt_impl *const *impl = moe_route_op.impls; *impl; impl++) {
        op_args want, got;
        if (!op_may_run(*impl))
            continue;
        op_args_make(&want, &moe_route_op, &c);
        op_args_make(&got, &moe_route_op, &c);
        make_ties(&want);
        make_ties(&got);
        moe_route_op.reference(want.args);
        op_run(&moe_route_op, *impl, &got, *state, 2);
        const int32_t *expert = got.output[0]->data;
        assert_memory_equal(expert, want.output[0]->data, 5 * 4 * sizeof *expert);
        for (int t = 0; t < 5; t++)
            for (int k = 0; k + 1 < 4; k++)
                if (expert[4 * t + k] / 2 == expert[4 * t + k + 1] / 2)
                    assert_true(expert[4 * t + k] < expert[4 * t + k + 1]);
        op_args_release(&want);
        op_args_release(&got);
    }
}

/* moe_linear has room for one row a token and expert. */
static void test_moe_route_when_logits_are_nan_then_experts_exist_and_differ(void **state)
{
    static const vt_case c = {.name = "NaN", .p = {2, 64, 5, 4, 1, VT_F32}};
    for (const vt_impl *const *impl = moe_route_op.impls; *impl; impl++) {
        if (!op_may_run(*impl))
            continue;
        op_args a;
        op_args_make(&a, &moe_route_op, &c);
        const moe_route_args *r = a.args;
        tensor_set((vt_tensor *)(uintptr_t)r->x, 0, 3, NAN);
        op_run(&moe_route_op, *impl, &a, *state, 2);
        uint32_t seen = 0;
        for (int j = 0; j < 4; j++) {
            int32_t e = ((const int32_t *)r->expert->data)[j];
            assert_in_range(e, 0, 4);
            seen |= 1u << e;
            assert_true(isnan(row_f32(r->weight, 0)[j]) && !isnan(row_f32(r->weight, 1)[j]));
        }
        assert_int_equal(__builtin_popcount(seen), 4);
        op_args_release(&a);
    }
}

/* A group whose biases are infinite in both directions has no sum, and a NaN is no key. */
static void
test_moe_route_of_groups_when_numbers_are_absurd_then_experts_exist_and_differ(void **state)
{
    static const vt_case c = {.name = "absurd", .p = {2, 64, 8, 4, 1, VT_F32, 0, 1, 1, 4, 2, 0}};
    static const float absurd[8] = {INFINITY, -INFINITY, 0, NAN, INFINITY, INFINITY, NAN, NAN};
    for (const vt_impl *const *impl = moe_route_op.impls; *impl; impl++) {
        if (!op_may_run(*impl))
            continue;
        op_args a;
        op_args_make(&a, &moe_route_op, &c);
        const moe_route_args *r = a.args;
        memcpy(r->choice->data, absurd, sizeof absurd);
        tensor_set((vt_tensor *)(uintptr_t)r->x, 0, 3, NAN);
        op_run(&moe_route_op, *impl, &a, *state, 2);
        for (int t = 0; t < 2; t++) {
            uint32_t seen = 0;
            for (int j = 0; j < 4; j++) {
                int32_t e = ((const int32_t *)r->expert->data)[4 * t + j];
                assert_in_range(e, 0, 7);
                seen |= 1u << e;
                assert_true(isnan(row_f32(r->weight, t)[j]) == (t == 0));
            }
            assert_int_equal(__builtin_popcount(seen), 4);
        }
        op_args_release(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_moe_quantised_stays_within_a_percent_and_a_half),
        cmocka_unit_test(test_moe_token_alone_gives_the_same_bits),
        cmocka_unit_test(test_moe_route_when_logits_are_nan_then_experts_exist_and_differ),
        cmocka_unit_test(test_moe_route_when_experts_are_equal_then_the_lower_one_comes_first),
        cmocka_unit_test(
            test_moe_route_of_groups_when_numbers_are_absurd_then_experts_exist_and_differ),
    };
    return cmocka_run_group_tests(tests, op_teams_setup, op_teams_teardown);
}
