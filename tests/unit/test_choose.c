/* How a program chooses rows: the table of a call gives the same row as the card at every size, no
 * bucket of padding lies across a change of rows, and a row that the user asks for is taken
 * wherever it fits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

#include "exec/cuda_inside.h"
#include "exec/describe.h"
#include "model/load.h"
#include "ops/linear/linear.h"

enum { MAX_TOKENS = 4096, MAX_ROWS = 256, GPUS = 6 };

static const char *const models[] = {"dummy:qwen3-8b", "dummy:qwen3-0.6b", "dummy:smollm2-135m"};
enum { MODELS = sizeof models / sizeof *models };

static const struct {
    int32_t level;
    bool deterministic, cublaslt;
} gpus[GPUS] = {{80, false, false}, {80, true, false}, {90, false, false},
                {90, false, true},  {90, true, false}, {90, true, true}};

static vt_target gpu(int32_t i)
{
    vt_limits limits = {.max_tokens = MAX_TOKENS,
                        .max_seqs = 256,
                        .max_rows = MAX_ROWS,
                        .max_context = 4096,
                        .page_size = 64};
    vt_target t = vt_target_named(vt_hardware_find("h200", NULL), &limits);
    t.level = gpus[i].level;
    t.deterministic = gpus[i].deterministic;
    t.cublaslt = gpus[i].cublaslt;
    return t;
}

static vt_model *load(const char *name)
{
    vt_model *m;
    vt_err err = {0};
    if (vt_model_load(name, &m, &err) != VT_OK)
        fail_msg("%s", err.message);
    m->arch.n_layers = 1; /* all layers are alike */
    return m;
}

/* Calls check(program, call) for every call of every model's program on every GPU. */
static void for_each_call(void (*check)(const vt_program *p, const vt_call *c))
{
    for (int32_t k = 0; k < MODELS; k++) {
        vt_model *m = load(models[k]);
        for (int32_t i = 0; i < GPUS; i++) {
            vt_target t = gpu(i);
            vt_described d;
            vt_err err = {0};
            if (vt_describe(m, &t, VT_BF16, &d, &err) != VT_OK)
                fail_msg("%s", err.message);
            for (int32_t n = 0; n < d.program->n_calls; n++)
                check(d.program, &d.program->call[n]);
            vt_described_release(&d);
        }
        vt_model_free(m);
    }
}

/* The size of a step of n tokens, decodes and rows. */
static vt_size of(int32_t n)
{
    return (vt_size){.tokens = n, .seqs = n, .rows = n, .decodes = n, .prefills = n, .copies = n};
}

static int32_t most_of(const vt_call *c) { return c->when == VT_WHEN_ROWS ? MAX_ROWS : MAX_TOKENS; }

static void check_ascending(const vt_program *p, const vt_call *c)
{
    assert_in_range(c->n_choices, 1, VT_MAX_CHOICES);
    for (int32_t i = 0; i < c->n_choices; i++) {
        const vt_impl *impl = c->choice[i].impl;
        assert_true(c->choice[i].upto > (i ? c->choice[i - 1].upto : 0));
        if (i > 0)
            assert_ptr_not_equal(impl, c->choice[i - 1].impl);
        assert_true(impl->device == VT_DEVICE_CUDA && impl->level <= p->target.level);
        if (p->target.deterministic && !impl->fixed_order)
            fail_msg("%s: %s has no fixed order", c->label, impl->name);
    }
    assert_int_equal(c->choice[c->n_choices - 1].upto, INT32_MAX);
}

static void test_table_ascends_to_the_largest_number_and_keeps_a_fixed_order(void **state)
{
    (void)state;
    for_each_call(check_ascending);
}

static void check_selected(const vt_program *p, const vt_call *c)
{
    if (c->op != &linear_op)
        return;
    for (int32_t n = 1; n <= most_of(c); n++) {
        vt_size size = of(n);
        const vt_impl *card = vt_op_select(c->op, c->args, &p->target, &size),
                      *table = vt_call_impl(c, &size);
        if (card != table)
            fail_msg("%s, level %d, deterministic %d, cublaslt %d: at %d the card takes %s, the "
                     "table %s",
                     c->label, p->target.level, p->target.deterministic, p->target.cublaslt, n,
                     card->name, table->name);
    }
}

static void test_table_of_a_linear_agrees_with_the_card_at_every_size(void **state)
{
    (void)state;
    for_each_call(check_selected);
}

/* Returns what a step of n tokens is padded to (exec/cuda_step.c), when it is not all decodes. */
static int32_t padded_body(int32_t n)
{
    return n > GRAPH_TOKENS || n <= 2 ? n
           : n <= 4                   ? 4
           : n <= 16                  ? 16
           : n <= 32                  ? 32
                                      : (n + 63) / 64 * 64;
}

static void expect_same_row(const vt_program *p, const vt_call *c, int32_t n, int32_t padded)
{
    vt_size a = of(n), b = of(padded);
    const vt_impl *own = vt_call_impl(c, &a), *in_bucket = vt_call_impl(c, &b);
    bool same_bits = p->target.deterministic; /* all rows with a fixed order have the same */
    if (own != in_bucket && !same_bits)
        fail_msg("%s, level %d, cublaslt %d: %d run on %s, padded to %d on %s", c->label,
                 p->target.level, p->target.cublaslt, n, own->name, padded, in_bucket->name);
}

static void check_buckets(const vt_program *p, const vt_call *c)
{
    for (int32_t n = 1; n <= most_of(c); n++) {
        int32_t bucket = cuda_step_bucket(n, 256);
        if (bucket > 0)
            expect_same_row(p, c, n, bucket);
        if (c->when == VT_WHEN_TOKENS || c->when == VT_WHEN_PREFILL)
            expect_same_row(p, c, n, padded_body(n));
    }
}

static void test_bucket_never_lies_across_a_change_of_rows(void **state)
{
    (void)state;
    for_each_call(check_buckets);
}

/* ---- how the split kernel cuts ---- */

/* Expects the row for n tokens, and, where bm is given, tiles of bm tokens and bn weight rows with
 * K in `split` parts. */
static void expect_cut(const vt_program *p, const char *label, int32_t n, const char *row,
                       int64_t bm, int64_t bn, int32_t split)
{
    for (int32_t i = 0; i < p->n_calls; i++) {
        const vt_call *c = &p->call[i];
        vt_size size = of(n);
        vt_cut cut = {0};
        if (c->op != &linear_op || !strstr(c->label, label))
            continue;
        const vt_impl *impl = vt_call_impl(c, &size);
        assert_string_equal(impl->name, row);
        if (bm == 0)
            return;
        impl->describe(c->args, &p->target, &size, &cut);
        assert_int_equal(cut.tile[0], bm);
        assert_int_equal(cut.tile[1], bn);
        assert_int_equal(cut.split, split);
        return;
    }
    fail_msg("no call %s", label);
}

static void
test_split_kernel_when_a_weight_is_small_then_tiles_are_narrow_or_of_64_tokens(void **state)
{
    (void)state;
    enum { LIBRARY = 3 };
    vt_target t = gpu(LIBRARY);
    vt_described d;
    vt_err err = {0};
    vt_model *m = load("dummy:qwen3-0.6b");
    assert_int_equal(vt_describe(m, &t, VT_BF16, &d, &err), VT_OK);
    for (int32_t n = 17; n <= 64; n += 47) { /* a K of 1,024 is not cut */
        expect_cut(d.program, "linear.qkv", n, "split_sm90", 64, 32, 1);
        expect_cut(d.program, "linear.gate+up", n, "split_sm90", 64, 32, 1);
        expect_cut(d.program, "linear.o", n, "split_sm90", 64, 64, 8);
    }
    for (int32_t n = 65; n <= 128; n += 63) { /* two tiles of tokens, not one of 128 */
        expect_cut(d.program, "linear.o", n, "split_sm90", 64, 64, 4);
        expect_cut(d.program, "linear.down", n, "split_sm90", 64, 64, 4);
        expect_cut(d.program, "linear.qkv", n, "cublaslt", 0, 0, 0);
    }
    expect_cut(d.program, "linear.o", 129, "cublaslt", 0, 0, 0);
    vt_described_release(&d);
    vt_model_free(m);
    m = load("dummy:qwen3-8b");
    assert_int_equal(vt_describe(m, &t, VT_BF16, &d, &err), VT_OK);
    expect_cut(d.program, "linear.o", 128, "cublaslt", 0, 0, 0);
    expect_cut(d.program, "linear.qkv", 64, "split_sm90", 64, 64, 2);
    vt_described_release(&d);
    vt_model_free(m);
}

/* ---- rows that are wanted ---- */

static vt_status describe_wanting(const char *model, const vt_target *t, const char *op,
                                  const char *row, vt_described *d, vt_err *err)
{
    vt_model *m = load(model);
    vt_target wanting = *t;
    wanting.backend[wanting.n_backends++] = (vt_backend){op, row};
    vt_status status = vt_describe(m, &wanting, VT_BF16, d, err);
    vt_model_free(m);
    return status;
}

/* Returns true if a call of n tokens or rows runs on a row of this name or family. It must if such
 * a row fits. */
static bool took_wanted(const vt_program *p, const vt_call *c, int32_t n, const char *want)
{
    vt_size size = of(n);
    const vt_impl *taken = vt_call_impl(c, &size);
    bool fits = false;
    for (const vt_impl *const *impl = c->op->impls; *impl; impl++)
        fits = fits || (vt_impl_is(*impl, want) && vt_impl_fits(*impl, c->args, &p->target, &size));
    if (fits != vt_impl_is(taken, want))
        fail_msg("%s, %d: %s %s, and %s was taken", c->label, n, want,
                 fits ? "fits" : "does not fit", taken->name);
    return fits;
}

/* A row is asked for by its name or family: it is taken wherever it fits, and the card's own choice
 * elsewhere. */
static void test_row_when_wanted_then_it_is_taken_wherever_it_fits(void **state)
{
    (void)state;
    static const char *const want[] = {"normed",     "small", "gemm_sm80", "gemm_sm90",
                                       "split_sm90", "sm90",  "cublaslt"};
    vt_target t = gpu(3);
    for (size_t w = 0; w < sizeof want / sizeof *want; w++) {
        vt_described d;
        vt_err err = {0};
        int32_t taken = 0;
        if (describe_wanting("dummy:qwen3-0.6b", &t, "linear", want[w], &d, &err) != VT_OK)
            fail_msg("%s", err.message);
        for (int32_t i = 0; i < d.program->n_calls; i++) {
            const vt_call *c = &d.program->call[i];
            for (int32_t n = 1; c->op == &linear_op && n <= most_of(c); n++)
                taken += took_wanted(d.program, c, n, want[w]);
        }
        assert_true(taken > 0);
        vt_described_release(&d);
    }
}

static void test_row_when_wanted_and_it_fits_nowhere_then_the_message_names_it(void **state)
{
    (void)state;
    static const struct {
        int32_t gpu;
        const char *op, *row, *message;
    } wrong[] = {{0, "linear", "sm90", "linear cannot run on sm90 here"},
                 {2, "linear", "cublaslt", "linear cannot run on cublaslt here"},
                 {2, "linear", "passes", "linear cannot run on passes here"},
                 {0, "attention_decode", "fa3", "attention_decode cannot run on fa3 here"},
                 {4, "linear", "small",
                  "linear cannot run on small here (deterministic takes only rows whose sums "
                  "have a fixed order)"},
                 {4, "attention_decode", "split",
                  "attention_decode cannot run on split here (deterministic takes only rows "
                  "whose sums have a fixed order)"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        vt_target t = gpu(wrong[i].gpu);
        vt_described d = {0};
        vt_err err = {0};
        assert_int_equal(
            describe_wanting("dummy:qwen3-0.6b", &t, wrong[i].op, wrong[i].row, &d, &err),
            VT_ERR_UNSUPPORTED);
        assert_null(d.program);
        if (!strstr(err.message, wrong[i].message))
            fail_msg("%s", err.message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table_ascends_to_the_largest_number_and_keeps_a_fixed_order),
        cmocka_unit_test(test_table_of_a_linear_agrees_with_the_card_at_every_size),
        cmocka_unit_test(test_bucket_never_lies_across_a_change_of_rows),
        cmocka_unit_test(
            test_split_kernel_when_a_weight_is_small_then_tiles_are_narrow_or_of_64_tokens),
        cmocka_unit_test(test_row_when_wanted_then_it_is_taken_wherever_it_fits),
        cmocka_unit_test(test_row_when_wanted_and_it_fits_nowhere_then_the_message_names_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
