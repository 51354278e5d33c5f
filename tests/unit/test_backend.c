/* --attention-backend and --linear-backend: which names are known, what they choose, and what a
 * program refuses. Also knobs, which are switches in the environment. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "ops/knobs.h"
#include "exec/backend.h"
#include "exec/describe.h"
#include "model/load.h"

static const char *const attention[] = {"attention_prefill", "attention_decode", NULL};

static void test_names_are_those_of_the_card(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        vt_device_kind device;
        const char *prefill, *decode; /* NULL: the user did not set it */
        bool known;
    } row[] = {
        {"auto", VT_DEVICE_CUDA, NULL, NULL, true},
        {"fa2", VT_DEVICE_CUDA, "fa2", "fa2", true},
        {"split", VT_DEVICE_CUDA, NULL, "split", true},
        {"fa3,split", VT_DEVICE_CUDA, "fa3", "split", true},
        {"auto,fa2-tiles", VT_DEVICE_CUDA, NULL, "fa2-tiles", true},
        {"avx2", VT_DEVICE_CPU, "avx2", "avx2", true},
        {"avx2,portable", VT_DEVICE_CPU, "avx2", "portable", true},
        {"fa2", VT_DEVICE_CPU, NULL, NULL, false},
        {"avx2", VT_DEVICE_CUDA, NULL, NULL, false},
        {"split,split", VT_DEVICE_CUDA, NULL, NULL, false},
        {"fa2,", VT_DEVICE_CUDA, NULL, NULL, false},
        {"fa2,fa2,fa2", VT_DEVICE_CUDA, NULL, NULL, false},
        {"fa", VT_DEVICE_CUDA, NULL, NULL, false},
        {"", VT_DEVICE_CUDA, NULL, NULL, false},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        vt_backend got[VT_MAX_BACKENDS];
        const char *asked[2] = {NULL, NULL};
        int32_t n = 0;
        vt_err err = {0};
        vt_status status = vt_backend_parse("attention", row[i].text, row[i].device, got, &n, &err);
        if (status != (row[i].known ? VT_OK : VT_ERR_USAGE))
            fail_msg("%s: %s", row[i].text, err.message);
        if (!row[i].known)
            continue;
        for (int32_t k = 0; k < n; k++)
            asked[strcmp(got[k].op, "attention_decode") == 0] = got[k].row;
        const char *want[2] = {row[i].prefill, row[i].decode};
        for (int k = 0; k < 2; k++)
            if (!want[k] != !asked[k] || (want[k] && strcmp(want[k], asked[k]) != 0))
                fail_msg("%s: %s runs on %s", row[i].text, attention[k], asked[k]);
    }
}

static void test_an_unknown_name_lists_the_known_ones(void **state)
{
    (void)state;
    vt_backend got[VT_MAX_BACKENDS];
    int32_t n = 0;
    vt_err err = {0};
    assert_int_equal(vt_backend_parse("linear", "cublas", VT_DEVICE_CUDA, got, &n, &err),
                     VT_ERR_USAGE);
    assert_non_null(strstr(err.message, "linear-backend is 'cublas'; on a GPU it may be auto, "));
    assert_non_null(strstr(err.message, ", cublaslt,"));
    assert_non_null(strstr(err.message, ", gemm_sm80, sm80,"));
}

/* The program of a model on a GPU of this level, with these values of the two options. */
static vt_status describe(int32_t level, bool deterministic, const char *attention_text,
                          const char *linear_text, vt_described *d, vt_err *err)
{
    static vt_model *m;
    vt_limits limits = {.max_tokens = 2048,
                        .max_seqs = 64,
                        .max_rows = 64,
                        .max_context = 4096,
                        .page_size = 64,
                        .n_workers = 1};
    vt_target target = vt_target_named(vt_hardware_find("h200", NULL), &limits);
    if (!m && vt_model_load_dummy("qwen3-0.6b", &m, err) != VT_OK)
        return err->status;
    target.level = level;
    target.deterministic = deterministic;
    assert_int_equal(vt_backend_parse("attention", attention_text, VT_DEVICE_CUDA, target.backend,
                                      &target.n_backends, NULL),
                     VT_OK);
    assert_int_equal(vt_backend_parse("linear", linear_text, VT_DEVICE_CUDA, target.backend,
                                      &target.n_backends, NULL),
                     VT_OK);
    return vt_describe(m, &target, VT_BF16, d, err);
}

/* Returns true if all rows of all calls of the op have this name or family. */
static bool all_on(const vt_program *p, const char *op, const char *name)
{
    bool all = true, any = false;
    for (int32_t i = 0; i < p->n_calls; i++)
        for (int32_t k = 0; strcmp(p->call[i].op->name, op) == 0 && k < p->call[i].n_choices; k++) {
            any = true;
            all = all && vt_impl_is(p->call[i].choice[k].impl, name);
        }
    return any && all;
}

static void test_a_program_runs_on_what_was_asked_for(void **state)
{
    (void)state;
    static const struct {
        int32_t level;
        bool deterministic;
        const char *attention, *linear;
        const char *prefill, *decode, *product; /* names or families; NULL: any */
    } row[] = {
        {90, false, "auto", "auto", "fa3", "fa2", NULL},
        {90, false, "fa2", "gemm_sm80", "fa2", "fa2", "gemm_sm80"},
        {90, false, "fa3", "sm80", "fa3", "fa3-tiles", "sm80"},
        {90, true, "auto", "auto", "fa3", "fa3", NULL},
        {90, true, "fa2", "auto", "fa2", "fa2-tiles", NULL},
        {80, true, "auto", "auto", "fa2", "fa2-tiles", NULL},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        vt_described d;
        vt_err err = {0};
        if (describe(row[i].level, row[i].deterministic, row[i].attention, row[i].linear, &d,
                     &err) != VT_OK)
            fail_msg("%zu: %s", i, err.message);
        assert_true(all_on(d.program, "attention_prefill", row[i].prefill));
        assert_true(all_on(d.program, "attention_decode", row[i].decode));
        assert_true(!row[i].product || all_on(d.program, "linear", row[i].product));
        vt_described_release(&d);
    }
}

/* Returns how many calls of an op a step of this size runs on an H200. */
static int32_t active_calls(const char *model, bool deterministic, const vt_size *size,
                            const char *op)
{
    vt_model *m;
    vt_described d;
    vt_err err = {0};
    vt_limits limits = {.max_tokens = 2048,
                        .max_seqs = 64,
                        .max_rows = 64,
                        .max_context = 4096,
                        .page_size = 64,
                        .n_workers = 1};
    vt_target target = vt_target_named(vt_hardware_find("h200", NULL), &limits);
    int32_t n = 0;
    target.deterministic = deterministic;
    if (vt_model_load(model, &m, &err) != VT_OK ||
        vt_describe(m, &target, VT_BF16, &d, &err) != VT_OK)
        fail_msg("%s", err.message);
    for (int32_t i = 0; i < d.program->n_calls; i++) {
        const vt_call *c = &d.program->call[i];
        n += strcmp(c->op->name, op) == 0 && vt_call_active(c, size);
    }
    vt_described_release(&d);
    vt_model_free(m);
    return n;
}

static void test_norms_that_their_readers_make_are_left_out(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        bool deterministic;
        int32_t tokens, norms; /* the last norm's rows among them */
    } row[] = {
        /* before q_a and kv_a, behind q_a, before one layer's gate and up (ordered: rows too
         * long for its one warp); not before routers */
        {"dummy:glm-4.7-flash", false, 1, 46 + 1},
        {"dummy:glm-4.7-flash", false, 2, 46 + 1},
        {"dummy:glm-4.7-flash", false, 8, 3 * 47 + 1},
        {"dummy:glm-4.7-flash", true, 1, 47 + 1},
        {"dummy:glm-4.7-flash", true, 8, 3 * 47 + 1},
        {"dummy:qwen3.5-35b-a3b", false, 1, 40 + 1},
        {"dummy:qwen3.5-35b-a3b", false, 8, 2 * 40 + 1},
        {"dummy:exaone-4.0-1.2b", false, 1, 1}, /* norms of results, which part_norm adds */
        {"dummy:exaone-4.0-1.2b", false, 64, 1},
        /* quantised weights */
        {"tests/golden/models/llama-quantised-Q4_K.gguf", false, 4, 1},
        {"tests/golden/models/llama-quantised-Q4_K.gguf", false, 8, 2 + 1},
        {"tests/golden/models/llama-quantised-Q4_K.gguf", true, 1, 2 + 1},
        {"tests/golden/models/llama-quantised-Q8_0.gguf", false, 1, 1},
        {"tests/golden/models/llama-quantised-Q8_0.gguf", false, 8, 2 * 2 + 1},
        {"tests/golden/models/qwen3-fp8", false, 1, 1},
        {"tests/golden/models/qwen3-fp8", false, 8, 2 + 1},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        vt_size size = {.tokens = row[i].tokens, .decodes = row[i].tokens, .rows = row[i].tokens};
        int32_t got = active_calls(row[i].model, row[i].deterministic, &size, "rmsnorm");
        if (got != row[i].norms)
            fail_msg("%s, %d tokens: %d norms", row[i].model, row[i].tokens, got);
    }
}

static void test_what_decodes_turn_themselves_is_left_out(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        bool deterministic;
        vt_size size;
        int32_t calls; /* of rope_store */
    } row[] = {
        {"dummy:qwen3-0.6b", false, {.tokens = 1, .seqs = 1, .decodes = 1, .rows = 1}, 0},
        {"dummy:qwen3-0.6b", false, {.tokens = 16, .seqs = 16, .decodes = 16, .rows = 16}, 0},
        {"dummy:qwen3-0.6b", false, {.tokens = 24, .seqs = 24, .decodes = 24, .rows = 24}, 28},
        {"dummy:qwen3-0.6b", true, {.tokens = 1, .seqs = 1, .decodes = 1, .rows = 1}, 28},
        /* prefills read it too, and decodes of several tokens have a kernel that does not turn */
        {"dummy:qwen3-0.6b",
         false,
         {.tokens = 9, .seqs = 2, .decodes = 1, .prefills = 1, .rows = 2},
         28},
        {"dummy:qwen3-0.6b", false, {.tokens = 9, .seqs = 1, .prefills = 1, .rows = 1}, 28},
        {"dummy:qwen3-0.6b",
         false,
         {.tokens = 4, .seqs = 2, .decodes = 2, .decode_tokens = 2, .rows = 4},
         28},
        {"dummy:qwen3-30b-a3b", false, {.tokens = 2, .seqs = 2, .decodes = 2, .rows = 2}, 0},
        {"dummy:gpt-oss-20b", false, {.tokens = 1, .seqs = 1, .decodes = 1, .rows = 1}, 0},
        {"dummy:qwen3.5-0.8b",
         false,
         {.tokens = 1, .seqs = 1, .decodes = 1, .rows = 1},
         6}, /* in part */
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        int32_t got = active_calls(row[i].model, row[i].deterministic, &row[i].size, "rope_store");
        if (got != row[i].calls)
            fail_msg("%zu, %s: %d calls of rope_store", i, row[i].model, got);
    }
}

static void test_what_cannot_run_is_refused(void **state)
{
    (void)state;
    static const struct {
        int32_t level;
        bool deterministic;
        const char *attention, *linear, *message;
    } row[] = {
        {80, false, "fa3", "auto", "attention_prefill cannot run on fa3 here"},
        {80, false, "auto", "gemm_sm90", "linear cannot run on gemm_sm90 here"},
        {90, true, "auto,split", "auto",
         "attention_decode cannot run on split here (deterministic"},
        {90, true, "fa3,fa2", "auto", "attention_decode runs on fa2 and attention_prefill on fa3"},
        {90, true, "fa2,auto", "auto", "attention_decode runs on fa3 and attention_prefill on fa2"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        vt_described d;
        vt_err err = {0};
        assert_int_equal(
            describe(row[i].level, row[i].deterministic, row[i].attention, row[i].linear, &d, &err),
            VT_ERR_UNSUPPORTED);
        if (!strstr(err.message, row[i].message))
            fail_msg("%s", err.message);
    }
}

static void test_knobs_take_what_they_declare(void **state)
{
    (void)state;
    const vt_knob_row *shared = vt_op_find("attention_decode")->knob;
    const struct {
        const vt_knob_row *knob;
        const char *text, *message; /* NULL: allowed */
    } row[] = {
        {&vt_knobs[VT_KNOB_CUDA_PDL], "0", NULL},
        {&vt_knobs[VT_KNOB_CUDA_PDL], "", NULL},
        {&vt_knobs[VT_KNOB_CUDA_PDL], "2", "VITRINE_CUDA_PDL=2: expected 0 or 1"},
        {&vt_knobs[VT_KNOB_CUDA_PDL], "0|1", "VITRINE_CUDA_PDL=0|1: expected 0 or 1"},
        {shared, "2147483647", NULL},
        {shared, "2147483648",
         "VITRINE_CUDA_SHARED=2147483648: expected a number of KV rows from 0 to 2147483647"},
        {&vt_knobs[VT_KNOB_CUBLASLT], "/lib/x.so", NULL},
        {&vt_knobs[VT_KNOB_CUBLASLT], "lib/x.so",
         "VITRINE_CUBLASLT=lib/x.so: expected 0, all or the library's path"},
        {&vt_knobs[VT_KNOB_NVRTC], "libnvrtc.so.12", NULL},
        {&vt_knobs[VT_KNOB_ISA], "AVX2", NULL},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        vt_err err = {0};
        setenv(row[i].knob->env, row[i].text, 1);
        vt_status status = vt_knob_check(row[i].knob, &err);
        assert_int_equal(status, row[i].message ? VT_ERR_USAGE : VT_OK);
        if (row[i].message)
            assert_string_equal(err.message, row[i].message);
        unsetenv(row[i].knob->env);
    }
    assert_int_equal(vt_knob_int(&vt_knobs[VT_KNOB_CUDA_PDL]), 1);
    assert_int_equal(vt_knob_int(shared), 1 << 18);
}

static void test_knob_of_a_card_is_listed_and_reaches_the_target(void **state)
{
    (void)state;
    const vt_knob_row *shared = vt_op_find("attention_decode")->knob, *k;
    vt_target t = {.device = VT_DEVICE_CUDA};
    int32_t n = 0, found = 0;
    for (; (k = vt_knob_at(n)); n++)
        found += k == shared;
    assert_int_equal(found, 1);
    assert_true(n > VT_N_KNOBS);
    assert_int_equal(vt_target_knob(&t, shared), 1 << 18);
    setenv(shared->env, "77", 1);
    vt_target_read_knobs(&t);
    assert_int_equal(vt_target_knob(&t, shared), 77);
    vt_target_turn_knobs(&t, 1);
    assert_int_equal(vt_target_knob(&t, shared), 1);
    vt_err err = {0};
    setenv(shared->env, "many", 1);
    assert_int_equal(vt_knob_check_all(&err), VT_ERR_USAGE);
    assert_non_null(strstr(err.message, "VITRINE_CUDA_SHARED=many"));
    unsetenv(shared->env);
    assert_int_equal(vt_knob_check_all(&err), VT_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_are_those_of_the_card),
        cmocka_unit_test(test_an_unknown_name_lists_the_known_ones),
        cmocka_unit_test(test_a_program_runs_on_what_was_asked_for),
        cmocka_unit_test(test_norms_that_their_readers_make_are_left_out),
        cmocka_unit_test(test_what_decodes_turn_themselves_is_left_out),
        cmocka_unit_test(test_what_cannot_run_is_refused),
        cmocka_unit_test(test_knobs_take_what_they_declare),
        cmocka_unit_test(test_knob_of_a_card_is_listed_and_reaches_the_target),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
