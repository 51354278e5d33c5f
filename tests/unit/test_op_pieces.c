/* The rule of determinism, op by op: a row's bits are the same whether a batch is processed whole
 * or in pieces, as prefill or as decode, beside neighbours or alone. Runs on every implementation
 * the machine has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/op_run.h"
#include "ops/access.h"
#include "ops/attention/attention_impls.h"
#include "ops/cases.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/rope/rope.h"
#include "ops/silu_mul/silu_mul.h"

/* ---- attention ---- */

/* A sub-batch of one sequence's tokens [from, from + n) of `whole`, as a prefill or (n 1) a
 * decode. */
typedef struct piece {
    vt_batch batch;
    int32_t q_start[2], kv_len[1], page_start[2];
} piece;

static void piece_init(piece *p, const vt_batch *whole, int32_t seq, int32_t from, int32_t n,
                       bool decode)
{
    const int32_t *pages = whole->page_ids + whole->page_start[seq];
    int32_t n_pages = whole->page_start[seq + 1] - whole->page_start[seq];
    *p = (piece){.q_start = {0, n},
                 .kv_len = {whole->position[from + n - 1] + 1},
                 .page_start = {0, n_pages}};
    p->batch = (vt_batch){.n_tokens = n,
                          .n_seqs = 1,
                          .n_decode = decode ? 1 : 0,
                          .n_pages = n_pages,
                          .page_size = whole->page_size,
                          .position = whole->position + from,
                          .q_start = p->q_start,
                          .kv_len = p->kv_len,
                          .page_start = p->page_start,
                          .page_ids = pages};
}

static const vt_impl *same_name(const vt_op *op, const char *name)
{
    for (const vt_impl *const *impl = op->impls; *impl; impl++)
        if (strcmp((*impl)->name, name) == 0)
            return *impl;
    return NULL;
}

/* Computes every token of a prefill case again, in chunks of `chunk` tokens; chunk 1 uses the
 * decode op. */
static void check_chunks(const vt_impl *prefill, const vt_case *c, int32_t chunk,
                         const op_teams *teams, int32_t workers)
{
    op_args whole;
    op_args_make(&whole, &attention_prefill_op, c);
    op_run(&attention_prefill_op, prefill, &whole, teams, 1);
    const attention_args *w = whole.args;
    const vt_batch *b = w->batch;
    int64_t width = w->o->dim[1];
    const vt_op *op = chunk == 1 ? &attention_decode_op : &attention_prefill_op;
    const vt_impl *impl = same_name(op, prefill->name);
    vt_tensor *part = case_tensor_2d(&whole.arena, VT_F32, chunk, width);
    assert_true(impl && part);
    for (int32_t s = b->n_decode; s < b->n_seqs; s++)
        for (int32_t t = b->q_start[s], n; t < b->q_start[s + 1]; t += n) {
            n = b->q_start[s + 1] - t < chunk ? b->q_start[s + 1] - t : chunk;
            piece p;
            piece_init(&p, b, s, t, n, chunk == 1);
            attention_args args = *w;
            vt_tensor q = *w->q, o = *part;
            q.data = row_f32(w->q, t);
            q.dim[0] = o.dim[0] = n;
            args.batch = &p.batch;
            args.q = &q;
            args.o = &o;
            op_args piece_args = {.args = &args};
            op_run(op, impl, &piece_args, teams, workers);
            if (memcmp(o.data, row_f32(w->o, t), (size_t)(n * width) * sizeof(float)) != 0)
                fail_msg("%s, %s: token %d differs in chunks of %d", impl->name, c->name, t, chunk);
        }
    op_args_release(&whole);
}

static void test_attention_chunks_and_decodes_give_the_same_bits(void **state)
{
    static const vt_case cases[] = {
        {.name = "9/3 d=64", .p = {2, 70, 600, 9, 3, 64, VT_F16, 16, [11] = 37}},
        {.name = "4/1 d=256 window=100", .p = {1, 40, 400, 4, 1, 256, VT_F16, 16, 100}},
        {.name = "16/8 d=128 f32", .p = {1, 37, 290, 16, 8, 128, VT_F32, 16}},
        {.name = "3/3 d=20 page=7", .p = {2, 130, 130, 3, 3, 20, VT_F16, 7, [11] = 37}},
        /* lengths of heads that are no multiple of a decode's slabs, or shorter than one */
        {.name = "2/2 d=128 bf16", .p = {1, 20, 200, 2, 2, 128, VT_BF16, 16}},
        {.name = "9/3 d=64 fp8", .p = {2, 30, 150, 9, 3, 64, VT_FP8_E4M3, 16, [11] = 37}},
        {.name = "4/1 d=16 page=7", .p = {1, 9, 90, 4, 1, 16, VT_F16, 7}},
        {.name = "2/1 d=16 fp8", .p = {1, 9, 90, 2, 1, 16, VT_FP8_E4M3, 7}},
        {.name = "6/3 d=80 window=50", .p = {1, 9, 170, 6, 3, 80, VT_F16, 16, 50}},
        {.name = "3/1 d=80 fp8 window=70", .p = {1, 9, 170, 3, 1, 80, VT_FP8_E4M3, 16, 70}},
        {.name = "5/1 d=48 f32", .p = {1, 9, 90, 5, 1, 48, VT_F32, 5}},
        {.name = "12/2 d=112 fp8", .p = {1, 9, 90, 12, 2, 112, VT_FP8_E4M3, 16}},
    };
    static const int32_t chunks[] = {1, 3, 32, 64};
    for (const vt_impl *const *impl = attention_prefill_op.impls; *impl; impl++)
        for (size_t c = 0; op_may_run(*impl) && c < sizeof cases / sizeof *cases; c++)
            for (size_t k = 0; k < sizeof chunks / sizeof *chunks; k++)
                check_chunks(*impl, &cases[c], chunks[k], *state, 1 + (int32_t)k);
}

/* Computes every decode of a case alone, where it shares pages with no other. */
static void check_alone(const vt_impl *impl, const vt_case *c, const op_teams *teams,
                        int32_t workers)
{
    op_args whole;
    op_args_make(&whole, &attention_decode_op, c);
    const attention_args *w = whole.args;
    const vt_batch *b = w->batch;
    int64_t width = w->o->dim[1], saved;
    assert_true(attention_plan_tiles(w, b, workers, &saved) > 0);
    op_run(&attention_decode_op, impl, &whole, teams, workers);
    for (int32_t s = 0; s < b->n_decode; s++) {
        int32_t from = b->q_start[s], n = b->q_start[s + 1] - from;
        piece p;
        piece_init(&p, b, s, from, n, true);
        attention_args args = *w;
        vt_tensor q = *w->q, o = *case_tensor_2d(&whole.arena, VT_F32, n, width);
        q.data = row_f32(w->q, from);
        q.dim[0] = n;
        args.batch = &p.batch;
        args.q = &q;
        args.o = &o;
        op_args alone = {.args = &args};
        op_run(&attention_decode_op, impl, &alone, teams, 1);
        if (memcmp(o.data, row_f32(w->o, from), (size_t)(n * width) * sizeof(float)) != 0)
            fail_msg("%s, %s, %d workers: decode %d differs alone", impl->name, c->name, workers,
                     s);
    }
    op_args_release(&whole);
}

/* The parts that are shared end within a chunk, at its end, and behind it; tiles have few and many
 * rows; in one family and in several. */
static void test_attention_decodes_that_share_pages_have_the_bits_of_each_alone(void **state)
{
    static const vt_case cases[] = {
        {.name = "9/3 d=64", .p = {64, 1, 330, 9, 3, 64, VT_F16, 16, 0, 1, 20, 1}},
        {.name = "9/3 d=64 fp8", .p = {40, 1, 530, 9, 3, 64, VT_FP8_E4M3, 16, 0, 2, 33, 1}},
        {.name = "32/8 d=128", .p = {9, 1, 257, 32, 8, 128, VT_F16, 16, 0, 1, 16, 3}},
        {.name = "16/8 d=128 bf16", .p = {12, 1, 300, 16, 8, 128, VT_BF16, 64, 0, 3, 4, 5}},
        {.name = "4/4 d=40 f32 page=7", .p = {30, 1, 100, 4, 4, 40, VT_F32, 7, 0, 5, 14, 2}},
        {.name = "8/2 d=64 two to eight tokens, fp8",
         .p = {16, 2, 200, 8, 2, 64, VT_FP8_E4M3, 16, 0, 1, 10, 1, 0}},
        {.name = "12/4 d=112 sinks, cap",
         .p = {10, 2, 150, 12, 4, 112, VT_F16, 16, 0, 1, 8, 1, 0, 0, 1, 0, 0, 5}},
        {.name = "40/20 d=64 window=900", .p = {8, 1, 700, 40, 20, 64, VT_F16, 16, 900, 1, 40, 4}},
        {.name = "16/8 d=192 v=128",
         .p = {12, 1, 180, 16, 8, 192, VT_F16, 16, 0, 1, 9, 1, 0, 0, 0, 0, 128}},
        {.name = "16/8 d=50 v=37",
         .p = {12, 1, 180, 16, 8, 50, VT_F32, 16, 0, 1, 9, 1, 0, 0, 0, 0, 37}},
    };
    for (const vt_impl *const *impl = attention_decode_op.impls; *impl; impl++)
        for (size_t c = 0; op_may_run(*impl) && c < sizeof cases / sizeof *cases; c++)
            for (int32_t workers = 1; workers <= 4; workers++)
                check_alone(*impl, &cases[c], *state, workers);
}

/* Puts the NaN of e4m3 into one element of the KV head that a case's only sequence has, and returns
 * how many values of its first output row are NaN. */
static int nan_of(const vt_impl *impl, const vt_case *c, bool keys, int64_t pos, int64_t i,
                  const op_teams *teams)
{
    op_args run;
    op_args_make(&run, &attention_decode_op, c);
    const attention_args *a = run.args;
    int64_t size = a->batch->page_size, page = a->batch->page_ids[pos / size];
    uint8_t *pool = (keys ? a->k_pool : a->v_pool)->data;
    pool[(page * size + pos % size) * a->head_dim + i] = pos & 1 ? 0xff : 0x7f;
    op_run(&attention_decode_op, impl, &run, teams, 1);
    int n = 0;
    for (int64_t k = 0; k < a->o->dim[1]; k++)
        n += row_f32(a->o, 0)[k] != row_f32(a->o, 0)[k];
    op_args_release(&run);
    return n;
}

static void test_attention_decode_keeps_a_nan_of_fp8(void **state)
{
    static const int64_t positions[] = {0, 63, 64, 70};
    vt_case c = {.name = "3/1 d=80 fp8", .p = {1, 1, 71, 3, 1, 80, VT_FP8_E4M3, 16}};
    for (const vt_impl *const *impl = attention_decode_op.impls; *impl; impl++)
        for (int64_t k = 0; op_may_run(*impl) && k < 4; k++) {
            assert_int_equal(nan_of(*impl, &c, true, positions[k], 79, *state), 3 * 80);
            assert_int_equal(nan_of(*impl, &c, false, positions[k], 20 * k, *state), 3);
        }
}

/* ---- ops whose rows are independent: run whole, then row by row ---- */

static void check_rows(const vt_op *op, const vt_impl *impl, const op_teams *teams,
                       const vt_case *c,
                       void (*cut)(void *args, const void *whole, int64_t row, vt_arena *arena),
                       vt_tensor *(*output)(const void *args))
{
    op_args whole, fresh;
    op_args_make(&whole, op, c);
    op_args_make(&fresh, op, c);
    op_run(op, impl, &whole, teams, 3);
    const vt_tensor *want = output(whole.args), *got = output(fresh.args);
    for (int64_t r = 0; r < want->dim[0]; r++) {
        char args[256];
        assert_true(op->args_size <= sizeof args);
        cut(args, fresh.args, r, &fresh.arena);
        op_args one = {.args = args};
        op_run(op, impl, &one, teams, 2);
    }
    for (int64_t r = 0; r < want->dim[0]; r++)
        if (memcmp(row_f32(want, r), row_f32(got, r), (size_t)want->dim[1] * sizeof(float)) != 0)
            fail_msg("%s, %s, %s: row %d differs alone", op->name, impl->name, c->name, (int)r);
    op_args_release(&whole);
    op_args_release(&fresh);
}

/* Row `row` of t as a tensor of one row. */
static vt_tensor *one_row(const vt_tensor *t, int64_t row, vt_arena *arena)
{
    vt_tensor *r = vt_arena_alloc(arena, 1, sizeof *r);
    assert_non_null(r);
    *r = *t;
    r->dim[0] = 1;
    r->data = row_f32(t, row);
    return r;
}

static void cut_rmsnorm(void *args, const void *whole, int64_t row, vt_arena *arena)
{
    rmsnorm_args a = *(const rmsnorm_args *)whole;
    a.x = one_row(a.x, row, arena);
    a.y = one_row(a.y, row, arena);
    a.residual = a.residual ? one_row(a.residual, row, arena) : NULL;
    memcpy(args, &a, sizeof a);
}

static vt_tensor *out_rmsnorm(const void *args) { return ((const rmsnorm_args *)args)->y; }

static void cut_silu(void *args, const void *whole, int64_t row, vt_arena *arena)
{
    silu_mul_args a = *(const silu_mul_args *)whole;
    a.x = one_row(a.x, row, arena);
    a.y = one_row(a.y, row, arena);
    memcpy(args, &a, sizeof a);
}

static vt_tensor *out_silu(const void *args) { return ((const silu_mul_args *)args)->y; }

static void cut_rope(void *args, const void *whole, int64_t row, vt_arena *arena)
{
    rope_args a = *(const rope_args *)whole;
    vt_batch *b = vt_arena_alloc(arena, 1, sizeof *b);
    assert_non_null(b);
    *b = (vt_batch){.n_tokens = 1, .position = a.batch->position + row};
    a.batch = b;
    a.q = one_row(a.q, row, arena);
    a.k = one_row(a.k, row, arena);
    memcpy(args, &a, sizeof a);
}

static vt_tensor *out_rope(const void *args) { return ((const rope_args *)args)->q; }

static void test_rows_alone_give_the_same_bits(void **state)
{
    static const vt_case norm = {.name = "norm", .p = {7, 1027, 0, VT_F32}};
    static const vt_case silu = {.name = "silu", .p = {5, 1537, VT_ACT_SILU, 2}};
    static const vt_case rope = {.name = "rope", .p = {6, 5, 1, 72, 72, 0, 1}};
    const struct {
        const vt_op *op;
        const vt_case *c;
        void (*cut)(void *, const void *, int64_t, vt_arena *);
        vt_tensor *(*output)(const void *);
    } ops[] = {{&rmsnorm_op, &norm, cut_rmsnorm, out_rmsnorm},
               {&add_rmsnorm_op, &norm, cut_rmsnorm, out_rmsnorm},
               {&silu_mul_op, &silu, cut_silu, out_silu},
               {&rope_op, &rope, cut_rope, out_rope}};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        for (const vt_impl *const *impl = ops[i].op->impls; *impl; impl++)
            if (op_may_run(*impl))
                check_rows(ops[i].op, *impl, *state, ops[i].c, ops[i].cut, ops[i].output);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention_chunks_and_decodes_give_the_same_bits),
        cmocka_unit_test(test_attention_decodes_that_share_pages_have_the_bits_of_each_alone),
        cmocka_unit_test(test_attention_decode_keeps_a_nan_of_fp8),
        cmocka_unit_test(test_rows_alone_give_the_same_bits),
    };
    return cmocka_run_group_tests(tests, op_teams_setup, op_teams_teardown);
}
