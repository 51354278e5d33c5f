/* rmsnorm and add_rmsnorm on the emulated GPU: a grid has no more CTAs than fit on the SMs at the
 * same time, whatever their registers, and a row has the same bits whether its CTA has one row or
 * walks on to others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "common/emulated_ops.h"
#include "ops/access.h"
#include "ops/case_text.h"
#include "ops/rmsnorm/rmsnorm.h"

static int open_gpu(void **state) { return emulated_ops_open(state, &(on_cuda_options){0}); }

typedef struct call {
    vt_case text;
    vt_arena arena;
    rmsnorm_args *args;
    vt_tensor *output[VT_MAX_OUTPUTS];
    int32_t n_outputs;
    on_cuda c;
} call;

/* A call of the shape; with residual_stride != 0 the rows of the residual lie so many elements
 * apart. */
static void call_make(call *k, const vt_op *op, const char *shape, int64_t residual_stride)
{
    vt_err err = {0};
    if (vt_case_from_text(op, shape, &k->text, &err) != VT_OK)
        fail_msg("%s", err.message);
    vt_arena_init(&k->arena, 0);
    k->args = op->make_args(&k->text, 5, &k->arena, k->output, &k->n_outputs);
    assert_non_null(k->args);
    vt_tensor *r = k->args->residual;
    if (residual_stride) {
        r->row_stride = residual_stride;
        r->data = vt_arena_alloc(&k->arena, (size_t)(r->dim[0] * residual_stride), sizeof(float));
        assert_non_null(r->data);
        for (int64_t i = 0; i < r->dim[0] * r->dim[1]; i++)
            tensor_set(r, i / r->dim[1], i % r->dim[1], (float)(i % 251) / 64 - 2);
    }
    assert_int_equal(on_cuda_round(op, k->args, &err), VT_OK);
    if (on_cuda_make(&k->c, &gpu, op, k->args, NULL, &err) != VT_OK)
        fail_msg("%s", err.message);
}

static void call_release(call *k)
{
    on_cuda_release(&k->c);
    vt_arena_release(&k->arena);
}

/* Runs rows [at, at + n); bytes[i] are those of output i, for the caller to free. */
static void run_rows(call *k, int64_t at, int64_t n, void *bytes[VT_MAX_OUTPUTS])
{
    vt_err err = {0};
    const vt_impl *impl = vt_op_row(k->c.op, VT_DEVICE_CUDA, "rows");
    assert_non_null(impl);
    on_cuda_window(&k->c, at, n);
    if (on_cuda_take(&k->c, impl, &err) != VT_OK || on_cuda_run(&k->c, &err) != VT_OK)
        fail_msg("%s %s: %s", k->c.op->name, k->text.name, err.message);
    for (int32_t i = 0; i < k->n_outputs; i++)
        assert_int_equal(on_cuda_fetch(&k->c, k->output[i], &bytes[i], &err), VT_OK);
}

static void check_reference(call *k)
{
    vt_err err = {0};
    on_cuda_error e;
    k->c.op->reference(k->args);
    assert_int_equal(on_cuda_compare(&k->c, k->output, k->n_outputs, &e, &err), VT_OK);
    if (!e.good)
        fail_msg("%s %s: %s", k->c.op->name, k->text.name, e.why);
}

/* Returns what the row launches for the call, and how it describes that. */
static cuda_launch launch_of(const call *k, int64_t rows, vt_cut *cut)
{
    cuda_launch record[2];
    vt_cuda_lane l = {.cuda = gpu.cuda, .collect = true, .record = record, .max_record = 2};
    vt_lane lane = {.target = &k->c.target, .cuda = &l};
    const vt_impl *impl = vt_op_row(k->c.op, VT_DEVICE_CUDA, "rows");
    vt_tensor x = *k->args->x, y = *k->args->y, residual;
    rmsnorm_args a = *k->args;
    x.dtype = y.dtype = VT_BF16;
    x.dim[0] = y.dim[0] = rows;
    a.x = &x;
    a.y = &y;
    if (a.residual) {
        residual = *a.residual;
        residual.dtype = VT_BF16;
        a.residual = &residual;
    }
    *cut = (vt_cut){.shape = ""};
    impl->describe(&a, &k->c.target, NULL, cut);
    assert_int_equal(impl->run(&a, &lane), VT_OK);
    assert_int_equal(l.n_record, 1);
    return record[0];
}

/* ---- grids ---- */

typedef struct grid_case {
    const vt_op *op;
    const char *shape;
    uint32_t threads;
    int32_t resident, together; /* CTAs of an SM; rows that a CTA works on at the same time */
    int32_t
        alone; /* CTAs of an SM where many rows have a CTA each; 0: CTAs walk any number of rows */
} grid_case;

/* 8 elements a thread take 40 registers, with the addition up to 64; 16 take 64 and 128; more take
 * 128. An SM has 65,536. */
static const grid_case grids[] = {
    {&rmsnorm_op, "tokens=1,hidden=128", 256, 6, 16},
    {&rmsnorm_op, "tokens=1,hidden=576", 96, 16, 1},
    {&rmsnorm_op, "tokens=1,hidden=1024", 128, 12, 1},
    {&rmsnorm_op, "tokens=1,hidden=4096", 512, 3, 1},
    {&rmsnorm_op, "tokens=1,hidden=5120", 320, 3, 1},
    {&rmsnorm_op, "tokens=1,hidden=8192", 512, 2, 1},
    {&rmsnorm_op, "tokens=1,hidden=16384", 512, 1, 1},
    {&rmsnorm_op, "tokens=1,hidden=1027", 352, 4, 1},
    {&add_rmsnorm_op, "tokens=1,hidden=128", 256, 4, 16},
    {&add_rmsnorm_op, "tokens=1,hidden=1024", 128, 8, 1, 12},
    {&add_rmsnorm_op, "tokens=1,hidden=2880", 384, 2, 1},
    {&add_rmsnorm_op, "tokens=1,hidden=4096", 512, 2, 1, 3},
    {&add_rmsnorm_op, "tokens=1,hidden=5120", 320, 2, 1},
    {&add_rmsnorm_op, "tokens=1,hidden=8192", 512, 2, 1},
    {&add_rmsnorm_op, "tokens=1,hidden=8191", 512, 1, 1},
};

static void check_grid(const grid_case *g, const call *k, int64_t ctas)
{
    vt_cut cut;
    int64_t most = (int64_t)gpu.target.sm_count * g->resident;
    bool alone = g->alone > 0 && ctas >= 4 * most;
    cuda_launch l = launch_of(k, ctas * g->together, &cut);
    assert_int_equal(l.threads, g->threads);
    assert_int_equal(l.grid[0], ctas < most || alone ? ctas : most);
    assert_int_equal(cut.resident, alone ? g->alone : g->resident);
    assert_int_equal(cut.items, ctas);
    assert_true(ctas > most ? cut.waves > 1 : cut.waves <= 1);
    assert_string_equal(cut.roles, ctas > most && !alone ? "CTAs that walk the rows" : "");
}

static void test_a_grid_has_the_ctas_that_fit(void **state)
{
    (void)state;
    static call k;
    for (size_t i = 0; i < sizeof grids / sizeof *grids; i++) {
        int64_t most = (int64_t)gpu.target.sm_count * grids[i].resident;
        call_make(&k, grids[i].op, grids[i].shape, 0);
        check_grid(&grids[i], &k, 1);
        check_grid(&grids[i], &k, most);
        check_grid(&grids[i], &k, most + 1);
        check_grid(&grids[i], &k, 100 * most);
        call_release(&k);
    }
}

/* ---- bits ---- */

/* Bytes of an output's rows [at, at + n). */
static void check_equal(const call *k, void *const one[], void *const two[], int64_t at, int64_t n)
{
    for (int32_t i = 0; i < k->n_outputs; i++) {
        const on_cuda_twin *t = on_cuda_find(&k->c, k->output[i]);
        size_t row = t->bytes / (size_t)t->host.dim[0];
        if (memcmp((char *)one[i] + (size_t)at * row, (char *)two[i] + (size_t)at * row,
                   (size_t)n * row) != 0)
            fail_msg("%s %s: rows %lld to %lld of output %d have other bits without their company",
                     k->c.op->name, k->text.name, (long long)at, (long long)(at + n - 1), i);
    }
}

static void release(const call *k, void *bytes[])
{
    for (int32_t i = 0; i < k->n_outputs; i++)
        free(bytes[i]);
}

/* All rows at once; then as many as need no walk; then the last one, which was walked to. */
static void check_walk(const vt_op *op, const char *shape)
{
    static call k;
    vt_cut cut;
    void *all[VT_MAX_OUTPUTS], *part[VT_MAX_OUTPUTS];
    call_make(&k, op, shape, 0);
    int64_t n = k.args->y->dim[0];
    cuda_launch l = launch_of(&k, n, &cut);
    int64_t fit = l.grid[0] * (n / cut.items);
    assert_true(cut.items > l.grid[0]);
    run_rows(&k, 0, n, all);
    check_reference(&k);
    run_rows(&k, 0, fit, part);
    check_equal(&k, all, part, 0, fit);
    release(&k, part);
    run_rows(&k, n - 1, 1, part);
    check_equal(&k, all, part, n - 1, 1);
    release(&k, part);
    release(&k, all);
    call_release(&k);
}

/* Just more rows than CTAs that fit on 4 SMs, and many more. 128: 16 rows a CTA. */
static void test_a_row_has_the_same_bits_where_ctas_walk(void **state)
{
    (void)state;
    assert_int_equal(gpu.target.sm_count, 4);
    check_walk(&rmsnorm_op, "tokens=391,hidden=128");
    check_walk(&rmsnorm_op, "tokens=49,hidden=1024,plus_one=1");
    check_walk(&rmsnorm_op, "tokens=13,hidden=4096");
    check_walk(&rmsnorm_op, "tokens=30,hidden=5120");
    check_walk(&rmsnorm_op, "tokens=5,hidden=16384");
    check_walk(&rmsnorm_op, "tokens=18,hidden=1027");
    check_walk(&add_rmsnorm_op, "tokens=300,hidden=128");
    check_walk(&add_rmsnorm_op, "tokens=9,hidden=4096");
    check_walk(&add_rmsnorm_op, "tokens=25,hidden=5120");
    check_walk(&add_rmsnorm_op, "tokens=9,hidden=4097");
}

/* Rows of 16-byte vectors in x and y, but not in the residual, are read by single elements: 640 for
 * 320 threads. (80 vectors would have 96. The emulator allows vectors at any address.) */
static void test_a_residual_whose_rows_are_not_aligned(void **state)
{
    (void)state;
    static call k;
    void *bytes[VT_MAX_OUTPUTS];
    vt_cut cut;
    call_make(&k, &add_rmsnorm_op, "tokens=5,hidden=640", 641);
    assert_int_equal(launch_of(&k, 5, &cut).threads, 320);
    assert_int_equal(cut.vector_bytes, 2);
    run_rows(&k, 0, 5, bytes);
    check_reference(&k);
    release(&k, bytes);
    call_release(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_grid_has_the_ctas_that_fit),
        cmocka_unit_test(test_a_row_has_the_same_bits_where_ctas_walk),
        cmocka_unit_test(test_a_residual_whose_rows_are_not_aligned),
    };
    return cmocka_run_group_tests(tests, open_gpu, emulated_ops_close);
}
