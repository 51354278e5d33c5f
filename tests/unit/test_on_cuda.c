/* Calls of CUDA rows outside the engine (on_cuda.h), on the emulated GPU: a correct row passes,
 * every kind of planted error is found, and a failed launch gives an error and does not hang. Also
 * shapes as text (ops/case_text.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/emulated_ops.h"
#include "ops/attention/attention.h"
#include "ops/case_text.h"
#include "ops/linear/linear.h"
#include "ops/moe/moe.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/sample/sample.h"
#include "ops/silu_mul/silu_mul.h"

static int open_gpu(void **state)
{
    return emulated_ops_open(state, &(on_cuda_options){.always = true, .flush_bytes = 1 << 16});
}

/* ---- one call ---- */

typedef struct call {
    vt_case text;
    vt_arena arena;
    void *args;
    vt_tensor *output[VT_MAX_OUTPUTS];
    int32_t n_outputs;
    on_cuda c;
} call;

static void call_make(call *k, const vt_op *op, const char *shape)
{
    vt_err err = {0};
    if (vt_case_from_text(op, shape, &k->text, &err) != VT_OK)
        fail_msg("%s", err.message);
    vt_arena_init(&k->arena, 0);
    k->args = op->make_args(&k->text, 5, &k->arena, k->output, &k->n_outputs);
    assert_non_null(k->args);
    assert_int_equal(on_cuda_round(op, k->args, &err), VT_OK);
    if (on_cuda_make(&k->c, &gpu, op, k->args, NULL, &err) != VT_OK)
        fail_msg("%s", err.message);
}

static void call_release(call *k)
{
    on_cuda_release(&k->c);
    vt_arena_release(&k->arena);
}

/* Compares the reference's outputs with one run of the row that a program would take. */
static on_cuda_error run_and_compare(call *k)
{
    on_cuda_error e;
    vt_err err = {0};
    k->c.op->reference(k->args);
    const vt_impl *impl = on_cuda_choice(&k->c);
    assert_non_null(impl);
    assert_int_equal(on_cuda_take(&k->c, impl, &err), VT_OK);
    if (on_cuda_run(&k->c, &err) != VT_OK)
        fail_msg("%s", err.message);
    assert_int_equal(on_cuda_compare(&k->c, k->output, k->n_outputs, &e, &err), VT_OK);
    return e;
}

static void check_right(const vt_op *op, const char *shape)
{
    static call k;
    call_make(&k, op, shape);
    on_cuda_error e = run_and_compare(&k);
    if (!e.good)
        fail_msg("%s %s: %s", op->name, shape, e.why);
    assert_true(k.c.n_kernels > 0);
    call_release(&k);
}

static void test_rows_agree_with_their_references(void **state)
{
    (void)state;
    check_right(&rmsnorm_op, "tokens=3,hidden=64");
    check_right(&rmsnorm_op, "tokens=3,hidden=64,in_place=1");
    check_right(&linear_op, "tokens=3,type=q4_k,cols=256,rows=40,bias=1");
    check_right(&linear_op, "tokens=3,cols=64,rows=40,logits=1");
    check_right(&moe_linear_op, "tokens=3,hidden=64,ffn=64,experts=4,k=2,accumulate=1");
    check_right(&attention_prefill_op, "seqs=2,q_len=5,kv_len=70,heads=4,kv_heads=2,head_dim=64");
    check_right(&attention_decode_op, "seqs=3,kv_len=70,heads=4,kv_heads=2,head_dim=64");
    check_right(vt_op_find("page_copy"), "copies=2,tokens=3,layers=2,kv_heads=2,kv_type=bf16");
    check_right(vt_op_find("rope_store"), "tokens=3,heads=2,kv_heads=1,kv_type=fp8,scaled=1");
    check_right(vt_op_find("embed"), "tokens=4,type=q8_0,vocab=40,hidden=64,pooled=1");
    check_right(&sample_op, "rows=3,vocab=100,kind=each");
}

/* ---- planted errors ---- */

/* The row's args are changed after the reference has run, which has the effect of a wrong
 * kernel. */
static void expect_wrong(call *k, const char *words)
{
    on_cuda_error e = run_and_compare(k);
    assert_false(e.good);
    if (!strstr(e.why, words))
        fail_msg("'%s' does not have '%s'", e.why, words);
    call_release(k);
}

static void test_a_wrong_scale_is_seen(void **state)
{
    static call k;
    (void)state;
    call_make(&k, &linear_op, "tokens=3,cols=64,rows=40");
    ((linear_args *)k.c.args)->scale = 1.1f;
    expect_wrong(&k, "expected");
}

static void test_a_wrong_epsilon_is_seen(void **state)
{
    static call k;
    (void)state;
    call_make(&k, &rmsnorm_op, "tokens=3,hidden=64");
    ((rmsnorm_args *)k.c.args)->eps = 0.1f;
    expect_wrong(&k, "allowed 0.01");
}

static void test_a_row_that_is_not_written_is_seen(void **state)
{
    static call k;
    (void)state;
    call_make(&k, &silu_mul_op, "tokens=4,n=64");
    on_cuda_window(&k.c, 0, 3);
    expect_wrong(&k, "row 3, 0: ");
}

static vt_status run_nothing(const void *args, const vt_lane *lane)
{
    (void)args, (void)lane;
    return VT_OK;
}

/* A parameter struct with a wrong size. */
static vt_status run_badly(const void *args, const vt_lane *lane)
{
    (void)args;
    return vt_cuda_launch(lane->cuda,
                          &(cuda_launch){.spec = JIT_SPEC("dummy_fill.cu", "dummy_fill", {NULL, 0}),
                                         .grid = {1, 1, 1},
                                         .threads = 256},
                          &(int){0}, sizeof(int));
}

static vt_status run_fails(const void *args, const vt_lane *lane)
{
    (void)args, (void)lane;
    return VT_ERR_DEVICE;
}

static void take(call *k, const vt_impl *impl)
{
    vt_err err = {0};
    k->c.op->reference(k->args);
    if (on_cuda_take(&k->c, impl, &err) != VT_OK)
        fail_msg("%s", err.message);
}

static void test_a_row_that_computes_nothing_is_seen(void **state)
{
    static const vt_impl nothing = {
        .name = "nothing", .device = VT_DEVICE_CUDA, .run = run_nothing};
    static call k;
    on_cuda_error e;
    vt_err err = {0};
    (void)state;
    call_make(&k, &sample_op, "rows=2,vocab=40,kind=greedy"); /* integers and floats */
    take(&k, &nothing);
    assert_int_equal(on_cuda_run(&k.c, &err), VT_OK);
    assert_int_equal(on_cuda_compare(&k.c, k.output, k.n_outputs, &e, &err), VT_OK);
    assert_false(e.good);
    call_release(&k);
}

static int64_t one_ticket(const void *args, const vt_target *t)
{
    (void)args, (void)t;
    return 1;
}

static vt_status leave_a_ticket(const void *args, const vt_lane *lane)
{
    if (!lane->cuda->collect)
        lane->cuda->cuda->driver.fill8((cu_ptr)(uintptr_t)lane->tickets, 1, 4, lane->cuda->stream);
    vt_target any = *lane->target;
    return vt_op_select(&silu_mul_op, args, &any, lane->size)->run(args, lane);
}

static void test_tickets_that_are_not_zero_again_are_seen(void **state)
{
    static const vt_impl untidy = {
        .name = "untidy", .device = VT_DEVICE_CUDA, .run = leave_a_ticket, .tickets = one_ticket};
    static call k;
    on_cuda_error e;
    vt_err err = {0};
    (void)state;
    call_make(&k, &silu_mul_op, "tokens=4,n=64");
    take(&k, &untidy);
    assert_int_equal(on_cuda_run(&k.c, &err), VT_OK);
    assert_int_equal(on_cuda_compare(&k.c, k.output, k.n_outputs, &e, &err), VT_OK);
    assert_false(e.good);
    assert_non_null(strstr(e.why, "ticket 0 of 1"));
    call_release(&k);
    check_right(&silu_mul_op, "tokens=4,n=64"); /* the tickets were reset */
}

/* Where run_beside writes a byte: relative to the first byte of the operand's block. */
static struct {
    char *at;
} beside;

static vt_status run_beside(const void *args, const vt_lane *lane)
{
    if (!lane->cuda->collect)
        lane->cuda->cuda->driver.fill8((cu_ptr)(uintptr_t)beside.at, 1, 1, lane->cuda->stream);
    vt_target any = *lane->target;
    return vt_op_select(&silu_mul_op, args, &any, lane->size)->run(args, lane);
}

/* words NULL: nothing is wrong. */
static void check_margins(call *k, char *at, const char *words)
{
    static const vt_impl row = {.name = "beside", .device = VT_DEVICE_CUDA, .run = run_beside};
    vt_err err = {0};
    bool good;
    char why[256] = "";
    beside.at = at;
    assert_int_equal(on_cuda_take(&k->c, &row, &err), VT_OK);
    assert_int_equal(on_cuda_note_margins(&k->c, &err), VT_OK);
    assert_int_equal(on_cuda_run(&k->c, &err), VT_OK);
    assert_int_equal(on_cuda_check_margins(&k->c, &good, why, &err), VT_OK);
    assert_int_equal(good, words == NULL);
    if (words && !strstr(why, words))
        fail_msg("'%s' does not have '%s'", why, words);
}

/* A call of its own each time, because a margin is filled once. */
static void test_a_write_beside_an_operand_is_seen(void **state)
{
    static const struct {
        bool input;
        int64_t at;
        const char *words;
    } row[] = {{false, 0, NULL}, /* the output's own first byte */
               {false, 4 * 64 * 2, "wrote 1 byte behind the end of y, the first of them 0 bytes"},
               {false, 4 * 64 * 2 + 4096 + 255, "behind the end of y, the first of them 4351"},
               {false, -1, "wrote 1 byte in front of y, the last of them 1 bytes in front"},
               {false, -4096, "in front of y, the last of them 4096 bytes"},
               {true, 0, "wrote into x, which the op only reads"},
               {true, 4 * 128 * 2 - 1, "wrote into x"}};
    (void)state;
    gpu.margin = 4096;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        static call k;
        call_make(&k, &silu_mul_op, "tokens=4,n=64");
        const silu_mul_args *a = k.c.args;
        char *base = row[i].input ? a->x->data : a->y->data;
        check_margins(&k, base + row[i].at, row[i].words);
        call_release(&k);
    }
    gpu.margin = 0;
}

static void test_a_failing_launch_is_an_error_with_a_sentence(void **state)
{
    static const vt_impl bad = {.name = "bad", .device = VT_DEVICE_CUDA, .run = run_badly},
                         mute = {.name = "mute", .device = VT_DEVICE_CUDA, .run = run_fails};
    static call k;
    (void)state;
    const vt_impl *const row[] = {&bad, &mute};
    for (int i = 0; i < 2; i++) {
        vt_err err = {0};
        call_make(&k, &silu_mul_op, "tokens=4,n=64");
        take(&k, row[i]);
        assert_int_not_equal(on_cuda_run(&k.c, &err), VT_OK);
        assert_true(err.message[0] != 0);
        call_release(&k);
    }
    check_right(&silu_mul_op, "tokens=4,n=64"); /* the next call is not harmed */
}

static void test_a_row_that_does_not_fit_is_refused(void **state)
{
    static const vt_impl cpu = {.name = "cpu", .device = VT_DEVICE_CPU, .run = run_nothing};
    static call k;
    vt_err err = {0};
    (void)state;
    call_make(&k, &silu_mul_op, "tokens=4,n=64");
    assert_int_equal(on_cuda_take(&k.c, &cpu, &err), VT_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "silu_mul"));
    call_release(&k);
    call_release(&k); /* takes a released one */
}

/* ---- timing: that it ends, and leaves the call as it was ---- */

static void test_every_method_ends_and_the_next_run_is_right(void **state)
{
    static call k;
    on_cuda_error e;
    vt_err err = {0};
    (void)state;
    call_make(&k, &linear_op, "tokens=3,cols=64,rows=40,residual=1");
    assert_true(run_and_compare(&k).good);
    for (int m = 0; m < ON_CUDA_METHODS; m++) {
        on_cuda_times t;
        if (on_cuda_time(&k.c, (on_cuda_method)m, true, &t, &err) != VT_OK)
            fail_msg("%s: %s", on_cuda_method_name[m], err.message);
        assert_true(t.n > 0);
    }
    assert_int_equal(on_cuda_run(&k.c, &err), VT_OK);
    assert_int_equal(on_cuda_compare(&k.c, k.output, k.n_outputs, &e, &err), VT_OK);
    assert_true(e.good);
    call_release(&k);
}

/* ---- shapes ---- */

static void test_shapes_become_cases_and_all_their_combinations(void **state)
{
    static vt_case out[8];
    vt_err err = {0};
    int32_t n;
    (void)state;
    assert_int_equal(
        vt_cases_from_text(&linear_op, "tokens=1|8|64,type=q4_k|bf16,cols=512", out, 8, &n, &err),
        VT_OK);
    assert_int_equal(n, 6);
    assert_string_equal(out[0].name, "tokens=1 type=Q4_K cols=512");
    assert_string_equal(out[5].name, "tokens=64 type=BF16 cols=512");
    assert_int_equal(vt_case_get(&linear_op, &out[3], "tokens"), 8);
    assert_int_equal(vt_case_get(&linear_op, &out[3], "type"), VT_BF16);
    assert_int_equal(vt_case_get(&linear_op, &out[3], "rows"), 4096); /* the preset */
    assert_int_equal(vt_case_from_text(&linear_op, "", out, &err), VT_OK);
    assert_int_equal(vt_case_get(&linear_op, &out[0], "tokens"), 1);
}

static void refused(const vt_op *op, const char *shape, const char *words)
{
    static vt_case out[4];
    vt_err err = {0};
    int32_t n;
    if (vt_cases_from_text(op, shape, out, 4, &n, &err) != VT_ERR_USAGE)
        fail_msg("'%s' was taken", shape);
    if (!strstr(err.message, words) || !strstr(err.message, op->name))
        fail_msg("'%s': '%s' does not have '%s'", shape, err.message, words);
    assert_int_equal(n, 0);
}

static void test_shapes_that_are_wrong_are_refused_by_name(void **state)
{
    (void)state;
    refused(&linear_op, "tokns=3", "'tokns' found, expected some of tokens, type, cols");
    refused(&linear_op, "tokens", "tokens has no value");
    refused(&linear_op, "tokens=", "tokens is ''");
    refused(&linear_op, "cols=0", "from 1 to");
    refused(&linear_op, "tokens=-1", "from 0 to");
    refused(&linear_op, "tokens=3x", "'3x'");
    refused(&linear_op, "tokens=1|", "''");
    refused(&linear_op, "tokens=99999999999999999999", "from 0 to");
    refused(&linear_op, "tokens=3,tokens=4", "tokens is there twice");
    refused(&linear_op, "tokens=3,,cols=64", "''");
    refused(&linear_op, "type=q9", "'q9'");
    refused(&linear_op, "epilogue=relu", "none, swiglu, geglu");
    refused(&linear_op, "tokens=1|2|3|4|5", "more than 4 combinations");
    refused(&linear_op, "type=q4_k,cols=100", "multiple of its block");
    refused(&linear_op, "cols=131072,rows=262144", "2^32");
    refused(&moe_linear_op, "experts=4,k=5", "at most as many");
    refused(&attention_prefill_op, "heads=5,kv_heads=2", "multiple of kv_heads");
    refused(&attention_prefill_op, "seqs=4096,q_len=1024,kv_len=1024", "2^18");
    refused(vt_op_find("rope_store"), "scaled=1,kv_type=bf16", "fp8 pool only");
    refused(vt_op_find("kv_store"), "v_scale=3,kv_type=bf16", "fp8 pool only");
    refused(vt_op_find("page_copy"), "tokens=17,page=16", "a page");
}

/* The shape of every case of a card is one that the card accepts. */
static void test_every_case_of_every_card_is_a_shape(void **state)
{
    static vt_case out[VT_MAX_TEXT_CASES], again;
    vt_err err;
    int32_t n;
    (void)state;
    for (const vt_op *const *op = vt_ops; *op; op++) {
        assert_true((*op)->n_fields > 0 && (*op)->n_fields <= VT_MAX_FIELDS);
        for (const char *const *text = (*op)->cases; *text; text++) {
            if (vt_cases_from_text(*op, *text + (**text == '*'), out, VT_MAX_TEXT_CASES, &n,
                                   &err) != VT_OK)
                fail_msg("%s, %s: %s", (*op)->name, *text, err.message);
            for (int32_t i = 0; i < n; i++) {
                assert_int_equal(vt_case_from_text(*op, out[i].name, &again, &err), VT_OK);
                assert_memory_equal(again.p, out[i].p, sizeof again.p);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_agree_with_their_references),
        cmocka_unit_test(test_a_wrong_scale_is_seen),
        cmocka_unit_test(test_a_wrong_epsilon_is_seen),
        cmocka_unit_test(test_a_row_that_is_not_written_is_seen),
        cmocka_unit_test(test_a_row_that_computes_nothing_is_seen),
        cmocka_unit_test(test_tickets_that_are_not_zero_again_are_seen),
        cmocka_unit_test(test_a_write_beside_an_operand_is_seen),
        cmocka_unit_test(test_a_failing_launch_is_an_error_with_a_sentence),
        cmocka_unit_test(test_a_row_that_does_not_fit_is_refused),
        cmocka_unit_test(test_every_method_ends_and_the_next_run_is_right),
        cmocka_unit_test(test_shapes_become_cases_and_all_their_combinations),
        cmocka_unit_test(test_shapes_that_are_wrong_are_refused_by_name),
        cmocka_unit_test(test_every_case_of_every_card_is_a_shape),
    };
    return cmocka_run_group_tests(tests, open_gpu, emulated_ops_close);
}
