#include "op_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ops/bench/bench.h"
#include "ops/calls/on_cpu.h"
#include "ops/cases.h"

int op_teams_setup(void **state)
{
    op_teams *t = calloc(1, sizeof *t);
    for (int32_t n = 1; t && n <= OP_MAX_WORKERS; n++)
        if (vt_team_new(n, &t->team[n], NULL) != VT_OK)
            return -1;
    *state = t;
    return t ? 0 : -1;
}

int op_teams_teardown(void **state)
{
    op_teams *t = *state;
    for (int32_t n = 1; n <= OP_MAX_WORKERS; n++)
        vt_team_free(t->team[n]);
    free(t);
    return 0;
}

static bool all_zero(const vt_tensor *t)
{
    const char *bytes = t->data;
    int64_t row = vt_dtype_row_bytes(t->dtype, t->dim[t->rank - 1]),
            stride = vt_dtype_row_bytes(t->dtype, t->row_stride);
    for (int64_t r = 0; r < vt_tensor_bytes(t) / row; r++)
        for (int64_t i = 0; i < row; i++)
            if (bytes[r * stride + i])
                return false;
    return true;
}

void op_args_make(op_args *a, const vt_op *op, const vt_case *c)
{
    *a = (op_args){0};
    vt_arena_init(&a->arena, 0);
    a->args = op->make_args(c, 42, &a->arena, a->output, &a->n_outputs);
    assert_non_null(a->args);
    assert_true(a->n_outputs > 0 && a->n_outputs <= VT_MAX_OUTPUTS);
    for (int32_t i = 0; i < a->n_outputs; i++)
        a->untouched[i] = all_zero(a->output[i]);
}

void op_args_release(op_args *a) { vt_arena_release(&a->arena); }

void op_poison(op_args *a)
{
    for (int32_t i = 0; i < a->n_outputs; i++)
        if (a->untouched[i]) /* pure outputs are dense */
            memset(a->output[i]->data, 0xff, (size_t)vt_tensor_bytes(a->output[i]));
}

bool op_may_run(const vt_impl *impl)
{
    return impl->device == VT_DEVICE_CPU &&
           (impl->isa == VT_ISA_PORTABLE || impl->isa <= vt_cpu_get()->best);
}

typedef struct op_job {
    const vt_impl *impl;
    const void *args;
    vt_team *team;
    on_cpu on;
    atomic_int ticket;
    atomic_int failures;
} op_job;

static void job_main(void *p, int32_t worker)
{
    op_job *job = p;
    vt_lane lane = on_cpu_lane(&job->on, job->team, worker, &job->ticket);
    if (job->impl->run(job->args, &lane) != VT_OK)
        atomic_fetch_add(&job->failures, 1);
}

void op_run(const vt_op *op, const vt_impl *impl, op_args *a, const op_teams *teams,
            int32_t workers)
{
    assert_true(case_pack(op, impl, a->args, &a->arena));
    op_job job = {.impl = impl, .args = a->args, .team = teams->team[workers]};
    assert_int_equal(on_cpu_make(&job.on, op, impl, a->args, workers, NULL), VT_OK);
    memset(job.on.workspace, 0xff, job.on.target.workspace_bytes);
    vt_team_run(job.team, job_main, &job);
    on_cpu_release(&job.on);
    if (atomic_load(&job.failures))
        fail_msg("%s: run failed with %d workers", impl->name, workers);
}

double op_error(const op_args *got, const op_args *want)
{
    return bench_error(got->output, want->output, want->n_outputs);
}

/* The rows of a tensor: how many, their bytes, and from one to the next. */
typedef struct row_span {
    int64_t rows, bytes, stride;
} row_span;

static row_span rows_of(const vt_tensor *t)
{
    int64_t bytes = vt_dtype_row_bytes(t->dtype, t->dim[t->rank - 1]);
    return (row_span){bytes ? vt_tensor_bytes(t) / bytes : 0, bytes,
                      vt_dtype_row_bytes(t->dtype, t->row_stride)};
}

static void copy_tensor(op_copy *o, vt_tensor *t)
{
    assert_true(o->n < OP_MOST_WRITTEN);
    row_span s = rows_of(t);
    char *rows = malloc((size_t)(s.rows * s.bytes) + 1);
    assert_non_null(rows);
    for (int64_t r = 0; r < s.rows; r++)
        memcpy(rows + r * s.bytes, (const char *)t->data + r * s.stride, (size_t)s.bytes);
    o->tensor[o->n] = t;
    o->rows[o->n++] = rows;
}

op_copy op_copy_take(const vt_op *op, const op_args *a)
{
    op_copy o = {0};
    for (int32_t i = 0; i < op->n_operands; i++) {
        const vt_operand *d = &op->operands[i];
        char *args = a->args;
        bool tensor = d->written && d->kind != VT_OPERAND_POOL; /* of the pool, results alone */
        vt_tensor *t = tensor ? *(vt_tensor **)(args + d->offset) : NULL;
        int32_t n = d->kind == VT_OPERAND_KV_LAYERS ? *(int32_t *)(args + d->count) : 1;
        for (int32_t k = 0; t && k < n; k++)
            copy_tensor(&o, &t[k]);
    }
    for (int32_t i = 0; i < a->n_outputs; i++) {
        int32_t k = 0;
        while (k < o.n && o.tensor[k]->data != a->output[i]->data)
            k++;
        if (k == o.n) /* of an op without operands, which no GPU computes */
            copy_tensor(&o, a->output[i]);
    }
    return o;
}

void op_copy_put(const op_copy *o)
{
    for (int32_t i = 0; i < o->n; i++) {
        row_span s = rows_of(o->tensor[i]);
        for (int64_t r = 0; r < s.rows; r++)
            memcpy((char *)o->tensor[i]->data + r * s.stride, o->rows[i] + r * s.bytes,
                   (size_t)s.bytes);
    }
}

bool op_copy_same(const op_copy *o)
{
    for (int32_t i = 0; i < o->n; i++) {
        row_span s = rows_of(o->tensor[i]);
        for (int64_t r = 0; r < s.rows; r++)
            if (memcmp((const char *)o->tensor[i]->data + r * s.stride, o->rows[i] + r * s.bytes,
                       (size_t)s.bytes))
                return false;
    }
    return true;
}

void op_copy_release(op_copy *o)
{
    for (int32_t i = 0; i < o->n; i++)
        free(o->rows[i]);
}

bool op_same_bits(const op_args *a, const op_args *b)
{
    for (int32_t i = 0; i < a->n_outputs; i++) {
        const vt_tensor *t = a->output[i];
        int64_t row = vt_dtype_row_bytes(t->dtype, t->dim[t->rank - 1]);
        int64_t stride = vt_dtype_row_bytes(t->dtype, t->row_stride);
        for (int64_t r = 0; r < vt_tensor_bytes(t) / row; r++)
            if (memcmp((const char *)t->data + r * stride,
                       (const char *)b->output[i]->data + r * stride, (size_t)row))
                return false;
    }
    return true;
}
