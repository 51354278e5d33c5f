/* Shapes of a program's calls: each is a case that its op can have, with the work of the call. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "exec/describe.h"
#include "model/load.h"
#include "ops/calls/on_cpu.h"
#include "ops/case_text.h"
#include "ops/shape_of.h"
#include "story/step.h"

static const int64_t no_limit = INT64_C(1) << 40;

/* Calls check() for every call of a step of the model on a CPU or on an H200. */
static void each_call(const char *name, bool gpu, const story_seq *seq, int32_t n,
                      void (*check)(const vt_op *op, const void *args, const vt_batch *b,
                                    const vt_impl *impl))
{
    vt_limits limits = {.max_tokens = 1024,
                        .max_seqs = 64,
                        .max_rows = 64,
                        .max_context = 1024,
                        .page_size = gpu ? 64 : 16,
                        .n_workers = 1};
    vt_target t = gpu ? vt_target_named(vt_hardware_find("h200", NULL), &limits)
                      : vt_target_cpu(VT_ISA_PORTABLE, &limits);
    vt_model *m = NULL;
    vt_described d;
    story_step *s = NULL;
    assert_int_equal(vt_model_load(name, &m, NULL), VT_OK);
    assert_int_equal(vt_describe(m, &t, gpu ? VT_BF16 : VT_F16, &d, NULL), VT_OK);
    assert_int_equal(story_step_new(d.program, 1024, 64, &s, NULL), VT_OK);
    assert_int_equal(story_step_set(s, seq, n, NULL), VT_OK);
    for (int32_t i = 0; i < d.program->n_calls; i++)
        if (story_step_impl(s, i) && d.program->call[i].layer <= 0) /* all layers are alike */
            check(d.program->call[i].op, d.program->call[i].args, story_step_batch(s),
                  story_step_impl(s, i));
    story_step_free(s);
    vt_described_release(&d);
    vt_model_free(m);
}

static void check_case(const vt_op *op, const void *args, const vt_batch *b, const vt_impl *impl)
{
    char shape[VT_SHAPE_TEXT];
    vt_case text;
    vt_err err;
    (void)impl;
    for (int as_class = 0; as_class < 2; as_class++)
        for (int limited = 0; limited < 2; limited++) {
            assert_true(vt_shape_of(op, args, b, limited ? 1 << 20 : no_limit, as_class, shape));
            if (vt_case_from_text(op, shape, &text, &err) != VT_OK)
                fail_msg("%s: %s", op->name, err.message);
        }
}

/* A case of the shape has the FLOPs of the call, and on a CPU its bytes too. */
static void check_work(const vt_op *op, const void *args, const vt_batch *b, const vt_impl *impl)
{
    char shape[VT_SHAPE_TEXT];
    vt_case text;
    vt_arena arena;
    vt_tensor *output[VT_MAX_OUTPUTS];
    int32_t n;
    vt_arena_init(&arena, 0);
    assert_true(vt_shape_of(op, args, b, no_limit, false, shape));
    assert_int_equal(vt_case_from_text(op, shape, &text, NULL), VT_OK);
    void *made = op->make_args(&text, 1, &arena, output, &n);
    assert_non_null(made);
    vt_cost want = op->cost(args, b), got = op->cost(made, NULL);
    if (vt_cost_flops(&got) != vt_cost_flops(&want))
        fail_msg("%s %s: %lld FLOPs, the call has %lld", op->name, shape,
                 (long long)vt_cost_flops(&got), (long long)vt_cost_flops(&want));
    if (impl->device == VT_DEVICE_CPU && vt_cost_bytes(&got) != vt_cost_bytes(&want))
        fail_msg("%s %s: %lld bytes, the call has %lld", op->name, shape,
                 (long long)vt_cost_bytes(&got), (long long)vt_cost_bytes(&want));
    vt_arena_release(&arena);
}

/* A card says which case a call is, or why that has no answer. */
static void test_every_card_has_a_shape_or_says_why_not(void **state)
{
    (void)state;
    for (const vt_op *const *op = vt_ops; *op; op++)
        if (((*op)->shape == NULL) != ((*op)->no_shape != NULL))
            fail_msg("%s: a card has either shape or no_shape", (*op)->name);
}

/* The card's case, with sequences of one length: a shape has no other. */
static vt_case of_one_length(const vt_op *op, const vt_case *c)
{
    vt_case even = *c;
    for (int32_t i = 0; i < op->n_fields; i++)
        if (strcmp(op->fields[i].name, "step") == 0 || strcmp(op->fields[i].name, "q_step") == 0)
            even.p[i] = 0;
    return even;
}

static vt_cost cost_of_case(const vt_op *op, const vt_case *c, char shape[VT_SHAPE_TEXT])
{
    vt_arena arena;
    vt_tensor *output[VT_MAX_OUTPUTS];
    int32_t n;
    vt_arena_init(&arena, 0);
    void *args = op->make_args(c, 7, &arena, output, &n);
    assert_non_null(args);
    vt_cost cost = op->cost(args, NULL);
    assert_true(vt_shape_of(op, args, NULL, no_limit, false, shape));
    vt_arena_release(&arena);
    return cost;
}

static void test_the_shape_of_a_case_costs_what_the_case_costs(void **state)
{
    (void)state;
    vt_case made;
    for (const vt_op *const *op = vt_ops; *op; op++)
        for (int32_t i = 0; (*op)->shape && vt_op_case(*op, i, &made); i++) {
            char shape[VT_SHAPE_TEXT], again[VT_SHAPE_TEXT];
            vt_case text;
            vt_err err;
            vt_case c = of_one_length(*op, &made);
            vt_cost want = cost_of_case(*op, &c, shape);
            if (vt_cost_bytes(&want) == 0) /* a step without tokens has no such call */
                continue;
            if (vt_case_from_text(*op, shape, &text, &err) != VT_OK)
                fail_msg("%s, %s: %s", (*op)->name, c.name, err.message);
            vt_cost got = cost_of_case(*op, &text, again);
            assert_string_equal(shape, again);
            if (memcmp(&got, &want, sizeof got) != 0)
                fail_msg("%s, %s, as %s: %lld bytes and %lld FLOPs, the case has %lld and %lld",
                         (*op)->name, c.name, shape, (long long)vt_cost_bytes(&got),
                         (long long)vt_cost_flops(&got), (long long)vt_cost_bytes(&want),
                         (long long)vt_cost_flops(&want));
        }
}

static const story_seq decode[] = {{1, 300, 1, 0}, {1, 300, 1, 0}, {1, 300, 1, 0}},
                       prefill[] = {{70, 70, 1, 0}},
                       mixed[] = {{1, 40, 1, 0}, {20, 90, 0, 0}, {1, 99, 1, 0}};

static void test_shapes_of_all_calls_are_cases(void **state)
{
    (void)state;
    static const char *const name[] = {"dummy:smollm2-135m", "dummy:qwen3-0.6b",
                                       "dummy:qwen3-30b-a3b"};
    for (size_t m = 0; m < sizeof name / sizeof *name; m++)
        for (int gpu = 0; gpu < 2; gpu++) {
            each_call(name[m], gpu, decode, 3, check_case);
            each_call(name[m], gpu, prefill, 1, check_case);
            each_call(name[m], gpu, mixed, 3, check_case);
        }
}

static void test_shapes_have_the_work_of_their_calls(void **state)
{
    (void)state;
    for (int gpu = 0; gpu < 2; gpu++) {
        each_call("dummy:smollm2-135m", gpu, decode, 3, check_work);
        each_call("dummy:smollm2-135m", gpu, prefill, 1, check_work);
    }
}

static void check_class(const vt_op *op, const void *args, const vt_batch *b, const vt_impl *impl)
{
    char shape[VT_SHAPE_TEXT];
    (void)impl;
    assert_true(vt_shape_of(op, args, b, no_limit, true, shape));
    if (strcmp(op->name, "linear") == 0)
        assert_non_null(strstr(shape, "tokens=64,"));
    if (strcmp(op->name, "attention_prefill") == 0)
        assert_non_null(strstr(shape, "q_len=64,kv_len=64,"));
}

static void test_classes_round_what_changes_from_step_to_step(void **state)
{
    (void)state;
    const story_seq a[] = {{70, 70, 70, 0}}, z[] = {{50, 50, 50, 0}};
    each_call("dummy:smollm2-135m", false, a, 1, check_class);
    each_call("dummy:smollm2-135m", false, z, 1, check_class);
}

static int setup(void **state)
{
    (void)state;
    return vt_cpu_init(NULL) == VT_OK ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_card_has_a_shape_or_says_why_not),
        cmocka_unit_test(test_the_shape_of_a_case_costs_what_the_case_costs),
        cmocka_unit_test(test_shapes_of_all_calls_are_cases),
        cmocka_unit_test(test_shapes_have_the_work_of_their_calls),
        cmocka_unit_test(test_classes_round_what_changes_from_step_to_step),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
