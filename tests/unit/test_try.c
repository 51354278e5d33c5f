/* Trying ops (try.h) on the CPU and on the emulated GPU, and that planted defects are seen. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "common/emulated_gpu.h"
#include "ops/calls/try.h"

static vt_team *team;

static int setup(void **state)
{
    return emulated_gpu_open(state) || vt_team_new(2, &team, NULL) != VT_OK;
}

static int teardown(void **state)
{
    (void)state;
    vt_team_free(team);
    return 0;
}

static void test_every_op_is_right_on_this_cpu(void **state)
{
    (void)state;
    for (const vt_op *const *op = vt_ops; *op; op++) {
        vt_try t;
        vt_try_cpu(*op, vt_cpu_get()->level, team, &t);
        if (!t.good || !t.impl || !t.shape[0] || !(t.error <= (*op)->tolerance))
            fail_msg("%s, %s: %s", (*op)->name, t.impl ? t.shape : "no case", t.why);
        if (t.compile_ms != 0 || t.n_kernels != 0)
            fail_msg("%s: a CPU row compiles nothing", (*op)->name);
    }
}

static void test_the_portable_level_takes_portable_rows(void **state)
{
    (void)state;
    vt_try t;
    vt_try_cpu(vt_op_find("rmsnorm"), VT_ISA_PORTABLE, team, &t);
    assert_true(t.good);
    assert_int_equal(t.impl->isa, VT_ISA_PORTABLE);
}

static vt_status run_nothing(const void *args, const vt_lane *lane)
{
    (void)args;
    (void)lane;
    return VT_OK;
}

static vt_status run_refused(const void *args, const vt_lane *lane)
{
    (void)args;
    (void)lane;
    return VT_ERR_UNSUPPORTED;
}

/* The card of rmsnorm with one row, which runs this. */
static vt_op card_with(vt_status (*run)(const void *, const vt_lane *), vt_impl *row,
                       const vt_impl **rows)
{
    vt_op op = *vt_op_find("rmsnorm");
    *row = (vt_impl){.name = "planted", .device = VT_DEVICE_CPU, .run = run};
    rows[0] = row;
    rows[1] = NULL;
    op.impls = rows;
    return op;
}

static void test_planted_rows_fail_with_a_reason(void **state)
{
    (void)state;
    vt_try t;
    vt_impl row;
    const vt_impl *rows[2];
    vt_op op = card_with(run_nothing, &row, rows);
    vt_try_cpu(&op, VT_ISA_PORTABLE, team, &t);
    assert_false(t.good);
    assert_non_null(strstr(t.why, "differs from the reference"));
    op = card_with(run_refused, &row, rows);
    vt_try_cpu(&op, VT_ISA_PORTABLE, team, &t);
    assert_false(t.good);
    assert_non_null(strstr(t.why, "does not run"));
    rows[0] = NULL;
    vt_try_cpu(&op, VT_ISA_PORTABLE, team, &t);
    assert_false(t.good);
    assert_null(t.impl);
    assert_non_null(strstr(t.why, "no row takes"));
}

static void open_gpu(on_cuda_gpu *g)
{
    vt_err err = {0};
    const on_cuda_options o = {.library = true};
    if (on_cuda_open(0, &o, g, &err) != VT_OK)
        fail_msg("%s", err.message);
    g->target.cublaslt_all = false;
}

static void test_ops_are_compiled_and_right_on_a_gpu(void **state)
{
    (void)state;
    static const char *const name[] = {"embed", "rmsnorm", "linear", "kv_store", "silu_mul"};
    on_cuda_gpu g;
    open_gpu(&g);
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        vt_try t;
        vt_try_cuda(vt_op_find(name[i]), NULL, &g, &t);
        if (!t.good || t.n_kernels < 1 || !(t.compile_ms > 0) || !strchr(t.kernel, '<'))
            fail_msg("%s: %d kernels, %s, %s", name[i], t.n_kernels, t.kernel, t.why);
        assert_int_equal(t.impl->device, VT_DEVICE_CUDA);
    }
    on_cuda_close(&g);
}

static void test_a_row_with_a_library_is_tried_by_name(void **state)
{
    (void)state;
    on_cuda_gpu g;
    vt_try t;
    open_gpu(&g);
    const vt_op *op = vt_op_find("linear");
    const vt_impl *row = vt_op_row(op, VT_DEVICE_CUDA, "cublaslt");
    assert_non_null(row);
    assert_string_equal(row->library, "cublasLt");
    g.target.cublaslt_all = true;
    vt_try_cuda(op, row, &g, &t);
    if (!t.good)
        fail_msg("%s", t.why);
    assert_ptr_equal(t.impl, row);
    on_cuda_close(&g);
}

static vt_status run_late(const void *args, const vt_lane *lane)
{
    (void)args;
    return vt_fail(&lane->cuda->err, VT_ERR_DEVICE, "the planted kernel does not start");
}

static void test_planted_rows_of_a_gpu_fail_with_a_reason(void **state)
{
    (void)state;
    on_cuda_gpu g;
    vt_try t;
    vt_impl row;
    const vt_impl *rows[2];
    open_gpu(&g);
    vt_op op = card_with(run_nothing, &row, rows);
    row.device = VT_DEVICE_CUDA;
    vt_try_cuda(&op, NULL, &g, &t);
    assert_false(t.good);
    assert_true(t.why[0] != '\0');
    row.run = run_late;
    vt_try_cuda(&op, NULL, &g, &t);
    assert_false(t.good);
    assert_string_equal(t.why, "the planted kernel does not start");
    vt_try_cuda(vt_op_find("prefix_match"), NULL, &g, &t);
    assert_false(t.good);
    assert_null(t.impl);
    on_cuda_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_op_is_right_on_this_cpu),
        cmocka_unit_test(test_the_portable_level_takes_portable_rows),
        cmocka_unit_test(test_planted_rows_fail_with_a_reason),
        cmocka_unit_test(test_ops_are_compiled_and_right_on_a_gpu),
        cmocka_unit_test(test_a_row_with_a_library_is_tried_by_name),
        cmocka_unit_test(test_planted_rows_of_a_gpu_fail_with_a_reason),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
