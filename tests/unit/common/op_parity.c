#include "op_parity.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "ops/case_draw.h"
#include "ops/case_text.h"
#include "ops/cases.h"

/* One implementation on one case: within tolerance of the reference, the same bits for every
 * team. One set of arguments serves the teams: drawing random numbers takes longer than most
 * calls. */
static void check_impl(const vt_op *op, const vt_impl *impl, const vt_case *c, const op_args *want,
                       op_teams *teams)
{
    op_args got;
    op_args_make(&got, op, c);
    op_copy begin = op_copy_take(op, &got), first = {0};
    for (int32_t workers = 1; workers <= OP_MAX_WORKERS; workers++) {
        op_copy_put(&begin);
        op_poison(&got);
        op_run(op, impl, &got, teams, workers);
        double error = op_error(&got, want), allowed = vt_op_tolerance(op, want->args);
        if (!(error <= allowed))
            fail_msg("%s, %s, %s, %d workers: error %.3g, allowed %.3g", op->name, impl->name,
                     c->name, workers, error, allowed);
        if (workers == 1)
            first = op_copy_take(op, &got);
        else if (!op_copy_same(&first))
            fail_msg("%s, %s, %s: %d workers give other bits than 1", op->name, impl->name, c->name,
                     workers);
    }
    op_copy_release(&begin);
    op_copy_release(&first);
    op_args_release(&got);
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

int32_t op_parity_case(const vt_op *op, const vt_case *c, op_teams *teams)
{
    op_args want;
    case_sizes_alone = true; /* filling the large cases would take most of the time */
    op_args_make(&want, op, c);
    case_sizes_alone = false;
    check_portable(op, &want);
    bool quick = is_quick(op, &want);
    op_args_release(&want);
    if (!quick)
        return 0;
    op_args_make(&want, op, c);
    op_poison(&want);
    op->reference(want.args);
    int32_t compared = check_all_impls(op, c, &want, teams);
    op_args_release(&want);
    return compared;
}

int32_t op_parity_cases(const vt_op *op, op_teams *teams)
{
    int32_t compared = 0;
    vt_case c;
    for (int32_t i = 0; vt_op_case(op, i, &c); i++)
        compared += op_parity_case(op, &c, teams);
    if (compared == 0)
        fail_msg("%s: no case is small enough to be compared", op->name);
    return compared;
}

int32_t op_parity_random(const vt_op *op, uint64_t seed, int32_t n, op_teams *teams)
{
    int32_t compared = 0, drawn = 0;
    vt_case c;
    for (; drawn < n && vt_op_draw(op, &seed, &c); drawn++)
        compared += op_parity_case(op, &c, teams);
    if (op->no_draw ? drawn != 0 : drawn != n || compared == 0)
        fail_msg("%s: %d of %d random cases, %d comparisons", op->name, drawn, n, compared);
    return compared;
}
