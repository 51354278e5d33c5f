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

#include "common/program_run.h"
#include "common/tiny_model.h"
#include "ops/linear/linear.h"

enum { N = 24, PAGES = N / PROGRAM_PAGE, RANKS = 2 };

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

static program_run make_rank(const vt_model *m, int32_t r, int32_t n)
{
    vt_err err = {0};
    vt_layout *l;
    vt_kv_shape shape;
    if (vt_layout_make(m, &l, &err) != VT_OK)
        fail_msg("%s", err.message);
    narrow(l, r, n);
    vt_kv_shape_of(m, VT_F32, &shape);
    for (int32_t g = 0; g < shape.n_groups; g++)
        shape.group[g].kv_heads /= n;
    return program_run_new(l, &shape, N, VT_END_LOGITS);
}

/* Returns what call i adds to the residual stream; NULL: it is no projection into it. */
static float *joined(const program_run *r, int32_t i)
{
    const vt_call *c = &r->p->call[i];
    const linear_args *a = c->args;
    bool joins = c->op == &linear_op && c->layer >= 0 && a->residual;
    return joins ? a->y->data : NULL;
}

/* Runs n ranks in step: after a projection, each holds x plus the sum of all that was added. */
static void run(program_run *r, int32_t n, int64_t hidden)
{
    for (int32_t i = r->p->n_before; i < r->p->n_forward; i++) {
        float *x = joined(&r[0], i), before[N * 128];
        if (x)
            memcpy(before, x, (size_t)(N * hidden) * sizeof *x);
        for (int32_t k = 0; k < n; k++)
            program_run_call(&r[k], i);
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
    int32_t id[N], position[N], seq_of[N] = {0}, slot[N], row[N], page[PAGES];
    for (int32_t i = 0; i < PAGES; i++)
        page[i] = PAGES - 1 - i;
    for (int32_t i = 0; i < N; i++) {
        id[i] = (i * 97 + 31) % m->arch.vocab;
        position[i] = row[i] = i;
        slot[i] = page[i / PROGRAM_PAGE] * PROGRAM_PAGE + i % PROGRAM_PAGE;
    }
    int32_t q_start[2] = {0, N}, kv_len[1] = {N}, page_start[2] = {0, PAGES};
    vt_batch batch = {.n_tokens = N,
                      .n_seqs = 1,
                      .n_rows = N,
                      .n_pages = PAGES,
                      .page_size = PROGRAM_PAGE,
                      .token = id,
                      .position = position,
                      .seq_of = seq_of,
                      .slot = slot,
                      .q_start = q_start,
                      .kv_len = kv_len,
                      .page_start = page_start,
                      .page_ids = page,
                      .row_token = row};
    program_run whole = make_rank(m, 0, 1), part[RANKS];
    program_run_bind(&whole, &batch);
    run(&whole, 1, m->arch.hidden);
    for (int32_t r = 0; r < RANKS; r++) {
        part[r] = make_rank(m, r, RANKS);
        assert_true(part[r].p->activation_bytes < whole.p->activation_bytes);
        assert_int_equal(part[r].kv.bytes, whole.kv.bytes / RANKS);
        program_run_bind(&part[r], &batch);
    }
    run(part, RANKS, m->arch.hidden);
    const float *want = whole.p->logits->data;
    for (int32_t r = 0; r < RANKS; r++)
        for (int64_t i = 0; i < (int64_t)N * m->arch.vocab; i++) {
            double got = (double)((const float *)part[r].p->logits->data)[i];
            if (!(fabs(got - (double)want[i]) <= 1e-4))
                fail_msg("%s: rank %d has logit %lld %g in place of %g", name, r, (long long)i, got,
                         (double)want[i]);
        }
    for (int32_t r = 0; r < RANKS; r++)
        program_run_free(&part[r]);
    program_run_free(&whole);
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
