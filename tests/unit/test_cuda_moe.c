/* Mixture of experts on the emulated GPU, beyond parity with the reference (gpu_parity): a token's
 * choice has the same bits in any company, padding tokens go to no expert, logits that are not
 * numbers choose experts that exist, and grids of a million tokens fit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/emulated_ops.h"
#include "ops/access.h"
#include "ops/case_text.h"
#include "ops/moe/moe.h"

static int open_gpu(void **state)
{
    return emulated_ops_open(state, &(on_cuda_options){.pdl = true});
}

typedef struct call {
    vt_case text;
    vt_arena arena;
    void *args;
    vt_tensor *output[VT_MAX_OUTPUTS];
    int32_t n_outputs;
    on_cuda c;
} call;

static void must(vt_status status, const vt_err *err)
{
    if (status != VT_OK)
        fail_msg("%s", err->message);
}

/* Args on the host; change() may change them before the device gets its copy. */
static void call_make(call *k, const vt_op *op, const char *shape, void (*change)(void *args))
{
    vt_err err = {0};
    *k = (call){0};
    must(vt_case_from_text(op, shape, &k->text, &err), &err);
    vt_arena_init(&k->arena, 0);
    k->args = op->make_args(&k->text, 5, &k->arena, k->output, &k->n_outputs);
    assert_non_null(k->args);
    must(on_cuda_round(op, k->args, &err), &err);
    if (change)
        change(k->args);
    must(on_cuda_make(&k->c, &gpu, op, k->args, NULL, &err), &err);
}

static void call_release(call *k)
{
    on_cuda_release(&k->c);
    vt_arena_release(&k->arena);
}

static void run(call *k, const char *row)
{
    vt_err err = {0};
    must(on_cuda_take(&k->c, vt_op_row(k->c.op, VT_DEVICE_CUDA, row), &err), &err);
    must(on_cuda_run(&k->c, &err), &err);
}

/* The device's [tokens, k] of an output, 4 bytes an element; the caller frees it. */
static uint32_t *fetch(call *k, int32_t output)
{
    vt_err err = {0};
    void *bytes;
    must(on_cuda_fetch(&k->c, k->output[output], &bytes, &err), &err);
    return bytes;
}

static const char *const kRows[] = {"token", "any"};

/* Every form of a deterministic program's launch: 1, 4, 16, 64, 512 and more tokens. */
static void test_moe_route_when_a_token_is_in_other_company_then_the_same_bits(void **state)
{
    (void)state;
    enum { TOKENS = 530, USED = 3 };
    static const int32_t window[] = {1, 3, 9, 40, 100};
    static call k;
    call_make(&k, &moe_route_op, "tokens=530,hidden=328,experts=21,k=3", NULL);
    k.c.target.deterministic = true;
    run(&k, "token");
    uint32_t *want[2] = {fetch(&k, 0), fetch(&k, 1)};
    for (size_t i = 0; i < sizeof window / sizeof *window; i++) {
        int32_t at = 23 * (int32_t)i, n = window[i];
        on_cuda_window(&k.c, at, n);
        run(&k, "token");
        for (int o = 0; o < 2; o++) {
            uint32_t *got = fetch(&k, o);
            assert_memory_equal(got + at * USED, want[o] + at * USED, (size_t)n * USED * 4);
            free(got);
        }
    }
    free(want[0]);
    free(want[1]);
    call_release(&k);
}

/* The plan says how many tokens are not padding. */
static void check_padding(const char *shape, int32_t tokens, int32_t used, int32_t real)
{
    static call k;
    for (int r = 0; r < 2; r++) {
        call_make(&k, &moe_route_op, shape, NULL);
        run(&k, kRows[r]);
        uint32_t *all[2] = {fetch(&k, 0), fetch(&k, 1)};
        k.c.counted.n_tokens = real;
        run(&k, kRows[r]);
        uint32_t *got[2] = {fetch(&k, 0), fetch(&k, 1)};
        for (int o = 0; o < 2; o++)
            assert_memory_equal(got[o], all[o], (size_t)(real * used) * 4);
        for (int32_t i = real * used; i < tokens * used; i++) {
            assert_int_equal((int32_t)got[0][i], -1);
            assert_int_equal(got[1][i], 0);
        }
        for (int o = 0; o < 2; o++) {
            free(all[o]);
            free(got[o]);
        }
        call_release(&k);
    }
}

static void test_moe_route_when_tokens_are_padding_then_they_go_to_no_expert(void **state)
{
    (void)state;
    check_padding("tokens=8,hidden=64,experts=6,k=2", 8, 2, 5);
    check_padding("tokens=64,hidden=64,experts=6,k=2", 64, 2, 17);
    check_padding("tokens=96,hidden=64,experts=6,k=2", 96, 2, 64);
    check_padding("tokens=300,hidden=64,experts=200,k=2", 300, 2, 7);
    check_padding("tokens=300,hidden=64,experts=200,k=2", 300, 2, 129);
}

/* Leaves in the upper half of the weights numbers of bf16, for which the tensor cores' sum has one
 * part of three. */
static void round_router(void *args)
{
    const moe_route_args *a = args;
    uint32_t *w = a->router->data;
    for (int64_t i = 0; i < a->router->dim[0] / 2 * a->router->dim[1]; i++)
        w[i] &= 0xffff0000;
}

static void test_moe_route_when_tokens_are_many_then_rows_agree(void **state)
{
    (void)state;
    enum { NUMBERS = 300 * 4 };
    static call k;
    call_make(&k, &moe_route_op, "tokens=300,hidden=264,experts=200,k=4", round_router);
    uint32_t *expert[2], *weight[2];
    for (int r = 0; r < 2; r++) {
        run(&k, kRows[r]);
        expert[r] = fetch(&k, 0);
        weight[r] = fetch(&k, 1);
    }
    assert_memory_equal(expert[0], expert[1], NUMBERS * sizeof **expert);
    for (int i = 0; i < NUMBERS; i++) {
        float a, b;
        memcpy(&a, &weight[0][i], sizeof a);
        memcpy(&b, &weight[1][i], sizeof b);
        assert_float_equal(a, b, 2e-6f);
    }
    for (int r = 0; r < 2; r++) {
        free(expert[r]);
        free(weight[r]);
    }
    call_release(&k);
}

static void spoil_x(void *args)
{
    const moe_route_args *a = args;
    tensor_set((vt_tensor *)(uintptr_t)a->x, 0, 3, NAN); /* every logit of this token is NaN */
}

static void test_moe_route_when_logits_are_nan_then_experts_exist_and_differ(void **state)
{
    (void)state;
    enum { USED = 4 };
    static const char *const shape[] = {"tokens=2,hidden=64,experts=5,k=4",
                                        "tokens=2,hidden=64,experts=5,k=4,sigmoid=1,choice=1"};
    static call k;
    for (int r = 0; r < 4; r++) {
        call_make(&k, &moe_route_op, shape[r / 2], spoil_x);
        run(&k, kRows[r % 2]);
        uint32_t *expert = fetch(&k, 0), *weight = fetch(&k, 1), seen = 0;
        for (int i = 0; i < USED; i++) {
            assert_in_range(expert[i], 0, 4);
            seen |= 1u << expert[i];
            assert_true((weight[i] & 0x7fffffff) > 0x7f800000); /* the token stays NaN */
            assert_true((weight[USED + i] & 0x7fffffff) < 0x7f800000);
        }
        assert_int_equal(__builtin_popcount(seen), USED);
        free(expert);
        free(weight);
        call_release(&k);
    }
}

/* Every width of tile of the row for many tokens, and rows of x in the order of the slots: on it
 * --deterministic relies. */
static void check_company(const char *shape, int64_t row_bytes, int32_t tokens)
{
    const int32_t window[] = {1, 9, 60, 140, tokens - 20};
    static call k;
    call_make(&k, &moe_linear_op, shape, NULL);
    run(&k, "grouped_sm90");
    uint8_t *want = (uint8_t *)fetch(&k, 0);
    for (size_t i = 0; i < sizeof window / sizeof *window; i++) {
        int32_t at = 3 * (int32_t)i, n = window[i];
        on_cuda_window(&k.c, at, n);
        run(&k, "grouped_sm90");
        uint8_t *got = (uint8_t *)fetch(&k, 0);
        assert_memory_equal(got + at * row_bytes, want + at * row_bytes, (size_t)(n * row_bytes));
        free(got);
    }
    free(want);
    call_release(&k);
}

static void test_moe_linear_when_a_token_is_in_other_company_then_the_same_bits(void **state)
{
    (void)state;
    check_company("tokens=150,hidden=192,ffn=64,experts=2,k=1", 192 * 2, 150);
    check_company("tokens=450,hidden=136,ffn=72,experts=2,k=1", 136 * 2, 450);
    check_company("tokens=150,hidden=192,ffn=64,experts=2,k=1,type=q4_0", 192 * 2, 150);
    check_company("tokens=150,hidden=192,ffn=72,experts=2,k=1,activation=relu2", 192 * 2, 150);
    check_company("tokens=150,hidden=192,ffn=64,experts=2,k=1,type=q8_0,activation=relu2", 192 * 2,
                  150);
}

static void test_moe_linear_when_a_step_has_a_million_tokens_then_its_grids_fit(void **state)
{
    (void)state;
    static call k;
    call_make(&k, &moe_linear_op, "tokens=1,hidden=64,ffn=64,experts=16,k=8", NULL);
    moe_linear_args *a = k.c.args;
    const vt_tensor *const tall[] = {a->x, a->y, a->expert, a->weight};
    for (size_t i = 0; i < sizeof tall / sizeof *tall; i++)
        ((vt_tensor *)(uintptr_t)tall[i])->dim[0] = 1 << 20;
    vt_size size = {.tokens = 1 << 20};
    const vt_impl *impl = vt_op_row(&moe_linear_op, VT_DEVICE_CUDA, "grouped");
    assert_true(vt_impl_fits(impl, a, &k.c.target, &size));
    cuda_launch launch[8];
    vt_cuda_lane l = {.cuda = gpu.cuda, .collect = true, .record = launch, .max_record = 8};
    vt_lane lane = {.target = &k.c.target, .size = &size, .cuda = &l};
    assert_int_equal(impl->run(a, &lane), VT_OK);
    assert_int_equal(l.n_record, 4);
    for (int32_t i = 0; i < l.n_record; i++) {
        assert_in_range(launch[i].grid[0], 1, INT32_MAX);
        assert_in_range(launch[i].grid[1], 1, 65535);
    }
    /* a tile of 16 slots for every group of 8 outputs: all of them are there */
    assert_true(launch[1].grid[0] >= (1u << 20) * 8 / 16 * (64 / 8));
    call_release(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_moe_route_when_a_token_is_in_other_company_then_the_same_bits),
        cmocka_unit_test(test_moe_route_when_tokens_are_padding_then_they_go_to_no_expert),
        cmocka_unit_test(test_moe_route_when_tokens_are_many_then_rows_agree),
        cmocka_unit_test(test_moe_route_when_logits_are_nan_then_experts_exist_and_differ),
        cmocka_unit_test(test_moe_linear_when_a_token_is_in_other_company_then_the_same_bits),
        cmocka_unit_test(test_moe_linear_when_a_step_has_a_million_tokens_then_its_grids_fit),
    };
    return cmocka_run_group_tests_name("cuda_moe", tests, open_gpu, emulated_ops_close);
}
