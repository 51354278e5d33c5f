/* Engines on the emulated GPU (tests/emulator) when the GPU fails them: a kernel that faults loses
 * the context, and the engine makes everything again and goes on; a kernel that never ends ends the
 * requests. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <dlfcn.h>
#include <unistd.h>

#include "common/emulated_gpu.h"
#include "common/engine_run.h"
#include "common/tiny_model.h"
#include "engine/engine.h"
#include "exec/cuda_inside.h"

enum { REQUESTS = 3, TOKENS = 12, PROMPT = 30, PAGE = 16 };

typedef struct request {
    int32_t prompt[PROMPT], token[TOKENS], n;
    vt_finish finish;
    char error[512];
} request;

typedef struct notices {
    int32_t n;
    char last[1000];
} notices;

static void (*end_hang)(void);
static size_t (*left_over)(void);

static int open_emulator(void **state)
{
    if (emulated_gpu_open(state) != 0)
        return 1;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    *(void **)&end_hang = dlsym(library, "emu_end_hang");
    *(void **)&left_over = dlsym(library, "emu_left_over");
    return !end_hang || !left_over;
}

static void on_event(void *user, const vt_event *e)
{
    request *r = user;
    for (int32_t i = 0; i < e->n_tokens && r->n < TOKENS; i++)
        r->token[r->n++] = e->tokens[i];
    r->finish = e->finish;
    if (e->finish == VT_FINISH_ERROR)
        snprintf(r->error, sizeof r->error, "%s", e->error);
}

static void on_notice(void *user, const char *sentence)
{
    notices *told = user;
    told->n++;
    snprintf(told->last, sizeof told->last, "%s", sentence);
}

static vt_engine *open_engine(const vt_model *m, const char *emulator, notices *told)
{
    vt_options *o;
    vt_err err;
    setenv("VITRINE_EMULATOR", emulator, 1);
    assert_int_equal(vt_options_new(&o, &err), VT_OK);
    engine_option(o, "device", "cuda");
    engine_option_int(o, "threads", 2);
    engine_option_int(o, "page-size", PAGE);
    engine_option_int(o, "max-running", 2);
    engine_option_int(o, "token-budget", 24);
    engine_option_int(o, "max-context", 96);
    engine_option_int(o, "kv-memory",
                      (int64_t)64 * PAGE * m->arch.n_layers * 2 * m->arch.n_kv_heads *
                          m->arch.head_dim * 2);
    engine_option_flag(o, "deterministic", true); /* KV computed again has the same bits */
    assert_int_equal(vt_options_set_notice(o, on_notice, told, &err), VT_OK);
    vt_engine *e = engine_open(m, o);
    vt_options_free(o);
    return e;
}

static void submit_all(vt_engine *e, request *r, int32_t vocab)
{
    for (int32_t k = 0; k < REQUESTS; k++) {
        vt_request_params p;
        r[k] = (request){0};
        for (int32_t i = 0; i < PROMPT; i++)
            r[k].prompt[i] = (i < PROMPT / 2 ? i * 5 : i * 5 + k) % (vocab < 60 ? vocab : 60);
        vt_request_init(&p);
        p.prompt = r[k].prompt;
        p.n_prompt = PROMPT;
        p.max_tokens = TOKENS;
        p.ignore_eos = true;
        p.temperature = k == 1 ? 0.8f : 0;
        p.repetition_penalty = k == 2 ? 1.3f : 1;
        p.has_seed = true;
        p.callback = on_event;
        p.user = &r[k];
        engine_submit(e, &p);
    }
}

static void assert_all_done(const request *got, const request *want)
{
    for (int32_t k = 0; k < REQUESTS; k++) {
        if (got[k].finish != VT_FINISH_LENGTH)
            fail_msg("request %d: finish %d (%s)", k, got[k].finish, got[k].error);
        assert_int_equal(got[k].n, TOKENS);
        assert_memory_equal(got[k].token, want[k].token, sizeof got[k].token);
    }
}

static void run_undisturbed(const vt_model *m, request *want)
{
    notices told = {0};
    vt_engine *e = open_engine(m, "cc=90,memory=512", &told);
    submit_all(e, want, m->arch.vocab);
    engine_run(e);
    vt_engine_free(e);
    assert_int_equal(told.n, 0);
    for (int32_t k = 0; k < REQUESTS; k++)
        assert_int_equal(want[k].n, TOKENS);
}

/* Plants a fault in the n-th kernel; returns whether a step met it. */
static bool run_with_fault(const vt_model *m, int32_t n, const request *want)
{
    request got[REQUESTS];
    notices told = {0};
    vt_stats st;
    vt_err err = {0};
    char setting[64];
    snprintf(setting, sizeof setting, "cc=90,memory=512,fault=%d", n);
    vt_engine *e = open_engine(m, setting, &told);
    submit_all(e, got, m->arch.vocab);
    engine_run(e); /* every step succeeds, or the engine recovers in it */
    assert_all_done(got, want);
    assert_int_equal(vt_engine_get_stats(e, &st, &err), VT_OK);
    assert_int_equal(st.device_recoveries, told.n);
    if (told.n > 0) {
        assert_int_equal(told.n, 1);
        assert_non_null(strstr(told.last, "CUDA_ERROR_ILLEGAL_ADDRESS"));
        assert_non_null(strstr(told.last, " and made again in "));
    }
    submit_all(e, got, m->arch.vocab); /* the new context serves later requests too */
    engine_run(e);
    assert_all_done(got, want);
    if (told.n > 0) { /* else the fault might come while the story measures roofs */
        char *json;   /* the story holds what was recorded before and after */
        size_t len;
        if (vt_engine_story(e, 0, &json, &len, &err) != VT_OK)
            fail_msg("%s", err.message);
        vt_free(json);
    }
    vt_engine_free(e);
    assert_int_equal(left_over(), 0);
    return told.n > 0;
}

static void
test_request_when_a_kernel_faults_then_the_same_tokens_come_in_a_new_context(void **state)
{
    (void)state;
    vt_model *m = tiny_model("llama");
    request want[REQUESTS];
    int32_t met = 0;
    run_undisturbed(m, want);
    for (int32_t n = 1; n < 1200; n = n * 3 + 1) /* early and late, in prefills and decodes */
        met += run_with_fault(m, n, want);
    met += run_with_fault(m, 200, want);
    print_message("%d recoveries\n", met);
    assert_true(met >= 5);
    vt_model_free(m);
}

/* Both engines use the primary context: the one that meets the fault resets it, and the other finds
 * that and takes the new one. */
static void test_engines_when_one_resets_the_context_then_both_go_on(void **state)
{
    (void)state;
    vt_model *m = tiny_model("llama");
    request want[REQUESTS], one[REQUESTS], two[REQUESTS];
    notices told_one = {0}, told_two = {0};
    run_undisturbed(m, want);
    vt_engine *a = open_engine(m, "cc=90,memory=512,fault=300", &told_one),
              *b = open_engine(m, "cc=90,memory=512,fault=300", &told_two);
    submit_all(a, one, m->arch.vocab);
    submit_all(b, two, m->arch.vocab);
    for (bool more = true; more;) {
        more = engine_step(a);
        more = engine_step(b) || more;
    }
    assert_all_done(one, want);
    assert_all_done(two, want);
    assert_int_equal(told_one.n, 1);
    assert_int_equal(told_two.n, 1);
    vt_engine_free(a);
    vt_engine_free(b);
    assert_int_equal(left_over(), 0);
    vt_model_free(m);
}

/* Two lines for the requests: those that ran, and those that come afterwards. */
static void test_request_when_a_kernel_never_ends_then_it_ends_in_an_error(void **state)
{
    (void)state;
    vt_model *m = tiny_model("llama");
    request r[REQUESTS];
    notices told = {0};
    vt_err err = {0};
    bool idle = false;
    setenv("VITRINE_CUDA_STEP_LIMIT", "1", 1);
    vt_engine *e = open_engine(m, "cc=90,memory=512,hang=200", &told);
    unsetenv("VITRINE_CUDA_STEP_LIMIT");
    submit_all(e, r, m->arch.vocab);
    while (vt_engine_step(e, &idle, &err) == VT_OK)
        assert_false(idle);
    const char *want = "the GPU did not end a step within 1 s (VITRINE_CUDA_STEP_LIMIT)";
    if (err.status != VT_ERR_DEVICE || strncmp(err.message, want, strlen(want)) != 0)
        fail_msg("%d: %s", err.status, err.message);
    for (int32_t k = 0; k < REQUESTS; k++) {
        assert_int_equal(r[k].finish, VT_FINISH_ERROR);
        assert_non_null(strstr(r[k].error, "the GPU did not end a step"));
    }
    assert_true(vt_cuda_any_hung());
    submit_all(e, r, m->arch.vocab);
    assert_int_equal(vt_engine_step(e, &idle, &err), VT_ERR_DEVICE);
    for (int32_t k = 0; k < REQUESTS; k++)
        assert_non_null(strstr(r[k].error, "the GPU did not end a step"));
    vt_engine_free(e); /* returns although the kernel still runs */
    end_hang();
    vt_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            test_request_when_a_kernel_faults_then_the_same_tokens_come_in_a_new_context),
        cmocka_unit_test(test_engines_when_one_resets_the_context_then_both_go_on),
        cmocka_unit_test(test_request_when_a_kernel_never_ends_then_it_ends_in_an_error),
    };
    return cmocka_run_group_tests_name("cuda_recover", tests, open_emulator, NULL);
}
