/* A rank of a tensor-parallel group is a narrowed layout and a KV cache with some of the heads:
 * the program takes its sizes from these. Two ranks run here call by call on the CPU, and what each
 * adds to the residual stream is summed behind the projections o and down; the logits of both must
 * be those of one program with all weights. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>

#include "base/team.h"
#include "common/tiny_model.h"
#include "device/cpu.h"
#include "exec/program.h"
#include "ops/linear/linear.h"

enum { N = 24, PAGE = 8, PAGES = N / PAGE, RANKS = 2, PLAN_BYTES = 1 << 16 };

typedef struct rank {
    vt_weights *w;
    vt_kv_cache kv;
    vt_program *p;
    void *workspace, *plan[VT_MAX_PLANS];
    int32_t items[VT_MAX_PLANS];
} rank;

static void must(vt_status status, const vt_err *err)
{
    if (status != VT_OK)
        fail_msg("%s", err->message);
}

/* Takes rank r's share of n: rows of what makes heads and of gate and up, columns of o and down. */
static void narrow(vt_layout *l, int32_t r, int32_t n)
{
    for (int32_t i = 0; i < l->n; i++) {
        vt_layout_entry *e = &l->entry[i];
        bool cols = e->role == VT_ROLE_O || e->role == VT_ROLE_DOWN;
        bool rows = e->role == VT_ROLE_QKV || e->role == VT_ROLE_Q || e->role == VT_ROLE_GATE_UP;
        for (int32_t k = 0; k < e->n_parts; k++) {
            vt_layout_part *p = &e->part[k];
            if (rows) {
                p->rows /= n;
                p->row = r * p->rows;
            } else if (cols) {
                p->cols /= n;
                p->col = r * p->cols;
            }
        }
    }
}

static rank make_rank(const vt_model *m, vt_team *team, int32_t r, int32_t n)
{
    rank out = {0};
    vt_err err = {0};
    vt_layout *l;
    vt_kv_shape shape;
    vt_limits limits = {.max_tokens = N,
                        .max_seqs = 1,
                        .max_rows = N,
                        .max_context = N,
                        .page_size = PAGE,
                        .n_workers = 1};
    vt_program_config config = {.target = vt_target_cpu(vt_cpu_get()->level, &limits),
                                .activation = VT_F32};
    must(vt_layout_make(m, &l, &err), &err);
    narrow(l, r, n);
    must(vt_weights_realise_cpu(l, team, &config.target, NULL, &out.w, &err), &err);
    vt_layout_free(l);
    vt_kv_shape_of(m, VT_F32, &shape);
    for (int32_t g = 0; g < shape.n_groups; g++)
        shape.group[g].kv_heads /= n;
    must(vt_kv_cache_init_cpu(&out.kv, &shape, PAGES, PAGE, &err), &err);
    must(vt_program_build(m, out.w, &out.kv, &config, &out.p, &err), &err);
    out.workspace = vt_aligned_alloc(VT_CACHE_LINE, out.p->target.workspace_bytes + VT_CACHE_LINE);
    assert_non_null(out.workspace);
    return out;
}

static void free_rank(rank *r)
{
    for (int32_t i = 0; i < VT_MAX_PLANS; i++)
        free(r->plan[i]);
    free(r->workspace);
    vt_program_free(r->p);
    vt_kv_cache_release(&r->kv);
    vt_weights_free(r->w);
}

static void bind(rank *r, const vt_batch *batch)
{
    vt_size size = vt_size_of(batch);
    vt_program *p = r->p;
    vt_program_bind(p, batch, &size, NULL);
    for (int32_t i = 0; i < p->n_plans; i++) {
        const vt_host_plan *plan = p->plan[i].plan;
        int32_t items = vt_plan_items(plan, p->plan[i].args, &p->target, &p->size, &p->batch);
        assert_true(plan->bytes(p->plan[i].args, &p->target, &p->size, items) <= PLAN_BYTES);
        r->plan[i] = vt_aligned_alloc(VT_CACHE_LINE, PLAN_BYTES);
        assert_non_null(r->plan[i]);
        r->items[i] = plan->fill(p->plan[i].args, &p->target, &p->size, &p->batch, items,
                                 r->plan[i], NULL);
    }
}

static void run_call(rank *r, vt_team *team, int32_t i)
{
    const vt_call *c = &r->p->call[i];
    atomic_int ticket = 0;
    int32_t plan = c->plan[0];
    vt_lane lane = {.target = &r->p->target,
                    .size = &r->p->size,
                    .team = team,
                    .n_workers = 1,
                    .workspace = r->workspace,
                    .workspace_bytes = r->p->target.workspace_bytes,
                    .ticket = &ticket,
                    .plan = plan >= 0 ? r->plan[plan] : NULL,
                    .items = plan >= 0 ? r->items[plan] : 0};
    assert_int_equal(c->choice[0].impl->run(c->args, &lane), VT_OK);
}

/* Returns what call i adds to the residual stream; NULL: it is no projection into it. */
static float *joined(const rank *r, int32_t i)
{
    const vt_call *c = &r->p->call[i];
    const linear_args *a = c->args;
    bool joins = c->op == &linear_op && c->layer >= 0 && a->residual;
    return joins ? a->y->data : NULL;
}

/* Runs n ranks in step: after a projection, each holds x plus the sum of all that was added. */
static void run(rank *r, int32_t n, vt_team *team, int64_t hidden)
{
    for (int32_t i = r->p->n_before; i < r->p->n_forward; i++) {
        float *x = joined(&r[0], i), before[N * 128];
        if (!vt_call_active(&r->p->call[i], &r->p->size))
            continue;
        if (x)
            memcpy(before, x, (size_t)(N * hidden) * sizeof *x);
        for (int32_t k = 0; k < n; k++)
            run_call(&r[k], team, i);
        for (int64_t j = 0; x && j < N * hidden; j++) {
            float sum = before[j];
            for (int32_t k = 0; k < n; k++)
                sum += joined(&r[k], i)[j] - before[j];
            for (int32_t k = 0; k < n; k++)
                joined(&r[k], i)[j] = sum;
        }
    }
}

static void compare(const char *name)
{
    vt_model *m = tiny_model(name);
    vt_team *team;
    vt_err err = {0};
    must(vt_team_new(1, &team, &err), &err);
    int32_t id[N], position[N], seq_of[N] = {0}, slot[N], row[N], page[PAGES];
    for (int32_t i = 0; i < PAGES; i++)
        page[i] = PAGES - 1 - i;
    for (int32_t i = 0; i < N; i++) {
        id[i] = (i * 97 + 31) % m->arch.vocab;
        position[i] = row[i] = i;
        slot[i] = page[i / PAGE] * PAGE + i % PAGE;
    }
    int32_t q_start[2] = {0, N}, kv_len[1] = {N}, page_start[2] = {0, PAGES};
    vt_batch batch = {.n_tokens = N,
                      .n_seqs = 1,
                      .n_rows = N,
                      .n_pages = PAGES,
                      .page_size = PAGE,
                      .token = id,
                      .position = position,
                      .seq_of = seq_of,
                      .slot = slot,
                      .q_start = q_start,
                      .kv_len = kv_len,
                      .page_start = page_start,
                      .page_ids = page,
                      .row_token = row};
    rank whole = make_rank(m, team, 0, 1), part[RANKS];
    bind(&whole, &batch);
    run(&whole, 1, team, m->arch.hidden);
    for (int32_t r = 0; r < RANKS; r++) {
        part[r] = make_rank(m, team, r, RANKS);
        assert_true(part[r].p->activation_bytes < whole.p->activation_bytes);
        assert_int_equal(part[r].kv.bytes, whole.kv.bytes / RANKS);
        bind(&part[r], &batch);
    }
    run(part, RANKS, team, m->arch.hidden);
    const float *want = whole.p->logits->data;
    for (int32_t r = 0; r < RANKS; r++)
        for (int64_t i = 0; i < (int64_t)N * m->arch.vocab; i++) {
            double got = (double)((const float *)part[r].p->logits->data)[i];
            if (!(fabs(got - (double)want[i]) <= 1e-4))
                fail_msg("%s: rank %d has logit %lld %g in place of %g", name, r, (long long)i, got,
                         (double)want[i]);
        }
    for (int32_t r = 0; r < RANKS; r++)
        free_rank(&part[r]);
    free_rank(&whole);
    vt_team_free(team);
    vt_model_free(m);
}

static void test_two_ranks_add_up_to_the_whole(void **state)
{
    (void)state;
    compare("llama");
    compare("qwen3"); /* norms of q and k */
    compare("mixed"); /* heads of two shapes; q alone in some layers */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_two_ranks_add_up_to_the_whole)};
    return cmocka_run_group_tests_name("ranks", tests, NULL, NULL);
}
