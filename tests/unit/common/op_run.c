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
