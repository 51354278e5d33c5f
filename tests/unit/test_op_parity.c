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

#include "common/op_parity.h"
#include "ops/case_draw.h"
#include "ops/case_text.h"

static const char *only; /* an op's name, the program's argument; NULL: all */

/* In one pass, for the large cases' random numbers take longest. */
static void test_portable_supports_every_case_and_all_match_their_references(void **state)
{
    for (const vt_op *const *op = vt_ops; *op; op++)
        if (!only || strcmp(only, (*op)->name) == 0)
            print_message("%s: %d cases, %d comparisons with the reference\n", (*op)->name,
                          vt_op_n_cases(*op), op_parity_cases(*op, *state));
}

static void test_random_cases_match_their_references(void **state)
{
    const char *text = getenv("VITRINE_DRAW_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 10) : 1;
    for (const vt_op *const *op = vt_ops; *op; op++)
        if (!only || strcmp(only, (*op)->name) == 0)
            op_parity_random(*op, seed, 12, *state);
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
