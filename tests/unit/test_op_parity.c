/* What follows from a card alone: every implementation of every op, variants too, on every case,
 * against the reference; the same bits for 1 to 4 workers and whatever lies in the workspace. The
 * same for random cases, a few of each op; VITRINE_DRAW_SEED=n draws others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/op_run.h"
#include "ops/case_draw.h"
#include "ops/case_text.h"

enum { N_RANDOM = 12 };

/* One implementation on one case: within tolerance of the reference, the same bits for every
 * team. */
static void check_impl(const vt_op *op, const vt_impl *impl, const vt_case *c, const op_args *want,
                       op_teams *teams)
{
    op_args first;
    for (int32_t workers = 1; workers <= OP_MAX_WORKERS; workers++) {
        op_args got;
        op_args_make(&got, op, c);
        op_poison(&got);
        op_run(op, impl, &got, teams, workers);
        double error = op_error(&got, want), allowed = vt_op_tolerance(op, want->args);
        if (!(error <= allowed))
            fail_msg("%s, %s, %s, %d workers: error %.3g, allowed %.3g", op->name, impl->name,
                     c->name, workers, error, allowed);
        if (workers == 1) {
            first = got;
            continue;
        }
        if (!op_same_bits(&got, &first))
            fail_msg("%s, %s, %s: %d workers give other bits than 1", op->name, impl->name, c->name,
                     workers);
        op_args_release(&got);
    }
    op_args_release(&first);
}

/* Larger cases are checked by `vitrine bench kernels`, which prints the error beside the time. */
static bool is_quick(const vt_op *op, const op_args *a)
{
    vt_cost cost = op->cost(a->args, NULL);
    return vt_cost_flops(&cost) < 100000000 && vt_cost_bytes(&cost) < 8000000;
}

/* The portable implementation of a card is chosen at the lowest level, and supports every case. */
static void check_portable(const vt_op *op, const op_args *a)
{
    vt_target lowest = vt_target_cpu(VT_ISA_PORTABLE, NULL);
    const vt_impl *impl = vt_op_select(op, a->args, &lowest, NULL);
    assert_non_null(impl);
    assert_int_equal(impl->isa, VT_ISA_PORTABLE);
}

/* Every row and every variant of a card that this CPU can run, on one case. Returns how many. */
static int32_t check_all_impls(const vt_op *op, const vt_case *c, const op_args *want,
                               op_teams *teams)
{
    const vt_impl *const *const table[] = {op->impls, op->variants};
    vt_target best = vt_target_cpu(vt_cpu_get()->best, NULL);
    int32_t compared = 0;
    for (int t = 0; t < 2; t++)
        for (const vt_impl *const *impl = table[t]; impl && *impl; impl++)
            if (op_may_run(*impl) && vt_impl_fits(*impl, want->args, &best, NULL)) {
                check_impl(op, *impl, c, want, teams);
                compared++;
            }
    return compared;
}

static const char *only; /* an op's name, the program's argument; NULL: all */

/* Returns the number of comparisons: 0 if the case is too large for the reference. */
static int32_t check_case(const vt_op *op, const vt_case *c, op_teams *teams)
{
    int32_t compared = 0;
    op_args want;
    op_args_make(&want, op, c);
    check_portable(op, &want);
    bool quick = is_quick(op, &want);
    op_poison(&want);
    if (quick)
        op->reference(want.args);
    if (quick)
        compared = check_all_impls(op, c, &want, teams);
    op_args_release(&want);
    return compared;
}

/* In one pass, for the large cases' random numbers take longest. */
static void test_portable_supports_every_case_and_all_match_their_references(void **state)
{
    for (const vt_op *const *op = vt_ops; *op; op++) {
        int32_t compared = 0;
        if (only && strcmp(only, (*op)->name) != 0)
            continue;
        vt_case c;
        for (int32_t i = 0; vt_op_case(*op, i, &c); i++)
            compared += check_case(*op, &c, *state);
        if (compared == 0)
            fail_msg("%s: no case is small enough to be compared", (*op)->name);
        print_message("%s: %d cases, %d comparisons with the reference\n", (*op)->name,
                      vt_op_n_cases(*op), compared);
    }
}

static void test_random_cases_match_their_references(void **state)
{
    const char *text = getenv("VITRINE_DRAW_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 10) : 1;
    for (const vt_op *const *op = vt_ops; *op; op++) {
        int32_t compared = 0, n = 0;
        vt_case c;
        if (only && strcmp(only, (*op)->name) != 0)
            continue;
        uint64_t draw = seed;
        for (; n < N_RANDOM && vt_op_draw(*op, &draw, &c); n++)
            compared += check_case(*op, &c, *state);
        if ((*op)->no_draw ? n != 0 : n != N_RANDOM || compared == 0)
            fail_msg("%s: %d random cases, %d comparisons", (*op)->name, n, compared);
    }
    print_message("VITRINE_DRAW_SEED=%llu\n", (unsigned long long)seed);
}

/* Values are drawn within the limits of their fields, and not always the same ones. */
static void test_every_text_of_draws_makes_cases(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (const vt_op *const *op = vt_ops; *op; op++)
        for (const char *const *text = (*op)->draws; text && *text; text++) {
            int32_t taken = 0, others = 0;
            vt_case c, first, again;
            vt_err err;
            for (int i = 0; i < 300; i++) {
                if (!vt_case_draw(*op, *text, &seed, &c))
                    continue;
                first = taken++ == 0 ? c : first;
                others += memcmp(c.p, first.p, sizeof c.p) != 0;
                if (vt_case_from_text(*op, c.name, &again, &err) != VT_OK)
                    fail_msg("%s, %s: %s", (*op)->name, *text, err.message);
                assert_memory_equal(again.p, c.p, sizeof c.p);
            }
            if (taken < 30 || others < taken / 2)
                fail_msg("%s, %s: %d of 300 taken, %d others than the first", (*op)->name, *text,
                         taken, others);
        }
}

static void test_every_card_is_complete(void **state)
{
    (void)state;
    for (const vt_op *const *op = vt_ops; *op; op++) {
        const vt_op *o = *op;
        assert_true(o->name && o->what && o->tolerance_reason && o->cost && o->reference &&
                    o->make_args);
        int32_t n_cases = vt_op_n_cases(o);
        assert_true(n_cases > 0 && o->impls[0]);
        assert_ptr_equal(vt_op_find(o->name), o);
        int32_t n_bench = 0;
        vt_case c;
        for (int32_t i = 0; vt_op_case(o, i, &c); i++)
            n_bench += c.bench;
        assert_true(n_bench > 0 && n_bench < n_cases);
    }
    assert_null(vt_op_find("no_such_op"));
}

/* Cases of a card turn its flags on and off, and so can who asks for a shape. */
static void test_every_flag_of_a_card_can_be_turned_on_and_off(void **state)
{
    (void)state;
    static vt_case made;
    for (const vt_op *const *op = vt_ops; *op; op++)
        for (int32_t i = 0; i < (*op)->n_fields; i++)
            for (int on = 0; on < 2 && (*op)->fields[i].most == 1; on++) {
                char shape[80];
                vt_err err = {0};
                snprintf(shape, sizeof shape, "%s=%d", (*op)->fields[i].name, on);
                if (vt_case_from_text(*op, shape, &made, &err) != VT_OK &&
                    strstr(err.message, "expected a number"))
                    fail_msg("%s", err.message);
            }
}

int main(int argc, char **argv)
{
    only = argc > 1 ? argv[1] : NULL;
    if (only && !vt_op_find(only)) {
        fprintf(stderr, "%s is no op\n", only);
        return 2;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_card_is_complete),
        cmocka_unit_test(test_every_flag_of_a_card_can_be_turned_on_and_off),
        cmocka_unit_test(test_portable_supports_every_case_and_all_match_their_references),
        cmocka_unit_test(test_every_text_of_draws_makes_cases),
        cmocka_unit_test(test_random_cases_match_their_references),
    };
    return cmocka_run_group_tests(tests, op_teams_setup, op_teams_teardown);
}
