#include "program_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/err.h"
#include "device/cpu.h"
#include "ops/calls/on_cpu.h"

enum { PLAN_BYTES = 1 << 16 };

static void must(vt_status status, const vt_err *err)
{
    if (status != VT_OK)
        fail_msg("%s", err->message);
}

program_run program_run_new(vt_layout *l, const vt_kv_shape *shape, int32_t tokens, vt_end end)
{
    return program_run_rank(l, shape, tokens, end, NULL);
}

program_run program_run_rank(vt_layout *l, const vt_kv_shape *shape, int32_t tokens, vt_end end,
                             vt_comm_rank *comm)
{
    program_run r = {0};
    vt_err err = {0};
    vt_limits limits = {.max_tokens = tokens,
                        .max_seqs = 1,
                        .max_rows = tokens,
                        .max_context = tokens,
                        .page_size = PROGRAM_PAGE,
                        .n_workers = 1};
    vt_program_config config = {.target = vt_target_cpu(vt_cpu_get()->level, &limits),
                                .activation = VT_F32,
                                .end = end,
                                .comm = comm};
    int32_t pages = (int32_t)vt_ceil_div(tokens, PROGRAM_PAGE);
    must(vt_team_new(1, &r.team, &err), &err);
    must(vt_weights_realise_cpu(l, r.team, &config.target, NULL, &r.w, &err), &err);
    must(vt_kv_cache_init_cpu(&r.kv, shape, pages, 0, PROGRAM_PAGE, &err), &err);
    must(vt_kv_cache_add_states_cpu(&r.kv, 1, &err), &err);
    must(vt_program_build(l->model, r.w, &r.kv, &config, &r.p, &err), &err);
    vt_layout_free(l);
    r.workspace = vt_aligned_alloc(VT_CACHE_LINE, r.p->target.workspace_bytes + VT_CACHE_LINE);
    assert_non_null(r.workspace);
    for (int32_t i = 0; i < r.p->n_plans; i++) {
        r.plan[i] = vt_aligned_alloc(VT_CACHE_LINE, PLAN_BYTES);
        assert_non_null(r.plan[i]);
    }
    return r;
}

void program_run_free(program_run *r)
{
    for (int32_t i = 0; i < VT_MAX_PLANS; i++)
        free(r->plan[i]);
    free(r->workspace);
    vt_program_free(r->p);
    vt_kv_cache_release(&r->kv);
    vt_weights_free(r->w);
    vt_team_free(r->team);
}

void program_run_bind(program_run *r, const vt_batch *batch)
{
    vt_size size = vt_size_of(batch);
    vt_program *p = r->p;
    vt_program_bind(p, batch, &size, NULL);
    for (int32_t i = 0; i < p->n_plans; i++) {
        const vt_host_plan *plan = p->plan[i].plan;
        const void *args = p->plan[i].args;
        int32_t items = vt_plan_items(plan, args, &p->target, &p->size, &p->batch);
        assert_true(plan->bytes(args, &p->target, &p->size, items) <= PLAN_BYTES);
        r->items[i] = plan->fill(args, &p->target, &p->size, &p->batch, items, r->plan[i], NULL);
    }
}

void program_run_call(program_run *r, int32_t call)
{
    const vt_call *c = &r->p->call[call];
    atomic_int ticket = 0;
    int32_t plan = c->plan[0];
    vt_lane lane = {.target = &r->p->target,
                    .size = &r->p->size,
                    .team = r->team,
                    .n_workers = 1,
                    .workspace = r->workspace,
                    .workspace_bytes = r->p->target.workspace_bytes,
                    .ticket = &ticket,
                    .plan = plan >= 0 ? r->plan[plan] : NULL,
                    .items = plan >= 0 ? r->items[plan] : 0};
    if (vt_call_active(c, &r->p->size))
        assert_int_equal(c->choice[0].impl->run(c->args, &lane), VT_OK);
}
