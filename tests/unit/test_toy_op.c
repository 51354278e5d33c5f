/* An op that has a folder (tests/unit/toy/softcap) and a line in a list (tests/unit/toy/cards.h),
 * and nothing else, has what every op has: parity tests, random cases, a benchmark, a shape that
 * can be asked for, an expected time, and a lab's table.
 *
 * This program's registry of cards takes the place of the library's (ops/cards.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "base/buf.h"
#include "common/op_parity.h"
#include "device/cpu.h"
#include "lab/kit/result.h"
#include "lab/kit/run.h"
#include "ops/bench/bench.h"
#include "ops/case_text.h"
#include "ops/cases.h"
#include "ops/shape_of.h"
#include "story/predict.h"
#include "toy/softcap/softcap.c"

#define VT_CARD(name) extern const vt_op name##_op;
#include "ops/cards.h"
#undef VT_CARD

#define VT_CARD(name) &name##_op,
const vt_op *const vt_ops[] = {
#include "ops/cards.h"
#include "toy/cards.h"
    NULL,
};
#undef VT_CARD

static void test_toy_op_is_found_by_name(void **state)
{
    (void)state;
    assert_ptr_equal(vt_op_find("softcap"), &softcap_op);
    assert_non_null(vt_op_find("linear"));
}

static void test_toy_op_matches_its_reference(void **state)
{
    assert_int_equal(vt_op_n_cases(&softcap_op), 4);
    assert_int_equal(op_parity_cases(&softcap_op, *state), 4);
}

static void test_toy_op_has_random_cases(void **state)
{
    assert_int_equal(op_parity_random(&softcap_op, 1, 10, *state), 10);
}

/* ---- bench ---- */

typedef struct timed {
    int32_t n;
    int64_t bytes;
} timed;

static void note(void *user, const bench_result *r)
{
    timed *t = user;
    assert_ptr_equal(r->op, &softcap_op);
    assert_false(r->wrong);
    assert_true(r->error <= softcap_op.tolerance && r->median_ns > 0);
    assert_true(strncmp(r->cut.shape, "1 rows of ", 10) == 0 || r->c->p[TOKENS] > 1);
    t->bytes += r->bytes;
    t->n++;
}

static void bench(op_teams *teams, const char *shape, int32_t n, int64_t elements)
{
    timed t = {0};
    vt_err err = {0};
    bench_options o = {.repetitions = 1, .min_rep_ns = 1000, .shape = shape};
    if (bench_kernels("softcap", teams->team[2], vt_cpu_get()->best, &o, note, &t, &err) != VT_OK)
        fail_msg("%s", err.message);
    assert_int_equal(t.n, n);
    assert_int_equal(t.bytes, 2 * (int64_t)sizeof(float) * elements);
}

static void test_toy_op_is_timed_on_its_cases_and_on_any_shape(void **state)
{
    bench(*state, NULL, 2, 65 * 4096);
    bench(*state, "tokens=1|3,n=5", 2, 4 * 5);
}

/* ---- expected time ---- */

static void test_toy_op_has_an_expected_time(void **state)
{
    (void)state;
    vt_arena arena;
    vt_tensor *output[VT_MAX_OUTPUTS];
    int32_t n;
    vt_case c;
    vt_err err = {0};
    vt_arena_init(&arena, 0);
    assert_int_equal(vt_case_from_text(&softcap_op, "tokens=64,n=512", &c, &err), VT_OK);
    softcap_args *a = softcap_op.make_args(&c, 1, &arena, output, &n);
    assert_non_null(a);
    ((vt_tensor *)(uintptr_t)a->x)->follows = a->y->follows = VT_FOLLOWS_TOKENS;
    vt_limits limits = case_limits(2);
    vt_choice choice = {INT32_MAX, &softcap_portable};
    vt_call call = {.op = &softcap_op, .args = a, .choice = &choice, .n_choices = 1};
    vt_program p = {.target = vt_target_cpu(VT_ISA_PORTABLE, &limits), .call = &call, .n_calls = 1};
    vt_roofs roofs = {.threads = 2, .memory_bytes_per_s = 1e10, .fp32_per_s = 1e11};
    vt_efficiencies e = {0};
    story_step *s;
    story_seq seq = {.q_len = 37, .kv_len = 37, .n_rows = 1};
    assert_int_equal(story_step_new(&p, 64, 1, &s, &err), VT_OK);
    assert_int_equal(story_step_set(s, &seq, 1, &err), VT_OK);
    assert_true(isnan(story_expected_s(s, 0, &roofs, &e)));
    if (story_measure_rows(s, &roofs, -1, &e, NULL, NULL, &err) != VT_OK)
        fail_msg("%s", err.message);
    assert_int_equal(e.n, 1);
    assert_string_equal(e.item[0].key, "softcap portable tokens=32,n=512");
    assert_true(story_expected_s(s, 0, &roofs, &e) > 0);
    vt_efficiencies_release(&e);
    story_step_free(s);
    vt_arena_release(&arena);
}

/* ---- a lab's table ---- */

static vt_status run_lab(lab *l, vt_err *err)
{
    lab_kernel k;
    const char *rows[4];
    lab_kernel_ask ask = {.op = "softcap", .shape = "tokens=16,n=512"};
    vt_status status = lab_kernel_run(l, &ask, &k, err);
    if (status != VT_OK)
        return status;
    assert_int_equal(lab_kernel_rows(l, "softcap", ask.shape, rows, 4, err), 1);
    lab_table(l, "shapes", "one shape", lab_kernel_columns);
    lab_kernel_cells(l, &k);
    return VT_OK;
}

static lab_def def = {.track = LAB_MINI_SGLANG,
                      .number = "99",
                      .name = "toy",
                      .goal = "nothing",
                      .about = {"Values are capped."},
                      .items = {{"shapes", "time over shapes", true}},
                      .kernels = true,
                      .run = run_lab};

static void test_toy_op_has_a_row_in_a_labs_table(void **state)
{
    (void)state;
    vt_options *o;
    json_t *result;
    bool failed;
    vt_buf page = {0};
    vt_term term = {.width = 100};
    vt_err err = {0};
    assert_int_equal(vt_options_new(&o, &err), VT_OK);
    vt_options_open_to(o, ~0u);
    lab_ask ask = {.options = o,
                   .model = "none",
                   .folder = "/tmp",
                   .ordinal = -1,
                   .threads = 2,
                   .quick = true};
    if (lab_run(&ask, &def, &result, &failed, &err) != VT_OK)
        fail_msg("%s", err.message);
    assert_false(failed);
    lab_result_render(result, &term, &page);
    if (!strstr(page.data, "softcap") || !strstr(page.data, "portable"))
        fail_msg("no softcap in:\n%s", page.data);
    vt_buf_release(&page);
    json_decref(result);
    vt_options_free(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_toy_op_is_found_by_name),
        cmocka_unit_test(test_toy_op_matches_its_reference),
        cmocka_unit_test(test_toy_op_has_random_cases),
        cmocka_unit_test(test_toy_op_is_timed_on_its_cases_and_on_any_shape),
        cmocka_unit_test(test_toy_op_has_an_expected_time),
        cmocka_unit_test(test_toy_op_has_a_row_in_a_labs_table),
    };
    return cmocka_run_group_tests(tests, op_teams_setup, op_teams_teardown);
}
