/* Every call of the driver that can be refused is refused once, on the emulated GPU. An engine that
 * cannot be made says why and leaves nothing behind. A running engine answers as if nothing had
 * happened, or gives the request an error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dlfcn.h>

#include "common/emulated_gpu.h"
#include "common/tiny_model.h"
#include "device/cuda/cuda.h"
#include "engine/engine.h"
#include "engine/options.h"
#include "exec/cuda.h"
#include "exec/weights_cuda.h"
#include "model/load.h"

enum { REQUESTS = 3, PROMPT = 20, TOKENS = 4, MOST = 4000 };

typedef struct request {
    int32_t prompt[PROMPT], token[TOKENS], n;
    vt_finish finish;
} request;

static int (*was_refused)(void);
static size_t (*left_over)(void);
static const char *(*call_name)(size_t);
static size_t (*pending)(void);
static void (*refuse)(uint64_t);

static int open_emulator(void **state)
{
    if (emulated_gpu_open(state) != 0)
        return 1;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    *(void **)&was_refused = dlsym(library, "emu_was_refused");
    *(void **)&left_over = dlsym(library, "emu_left_over");
    *(void **)&call_name = dlsym(library, "emu_call_name");
    *(void **)&pending = dlsym(library, "emu_pending");
    *(void **)&refuse = dlsym(library, "emu_refuse");
    return !was_refused || !left_over || !call_name || !pending || !refuse;
}

/* Deterministic, because a second attempt may be cut into other steps. */
static vt_status open_engine(const vt_model *m, int64_t call, vt_engine **e, vt_err *err)
{
    static const char *const fixed[][2] = {{"device", "cuda"},     {"threads", "1"},
                                           {"page-size", "16"},    {"max-running", "2"},
                                           {"token-budget", "16"}, {"max-context", "64"},
                                           {"kv-memory", "64K"},   {"deterministic", "true"}};
    char text[64];
    vt_options *o;
    snprintf(text, sizeof text, "memory=256,refuse=%lld", (long long)call);
    setenv("VITRINE_EMULATOR", text, 1);
    assert_int_equal(vt_options_new(&o, err), VT_OK);
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        if (vt_options_set(o, fixed[i][0], fixed[i][1], err) != VT_OK)
            fail_msg("%s", err->message);
    vt_status status = vt_engine_new(m, o, e, err);
    vt_options_free(o);
    return status;
}

static void on_event(void *user, const vt_event *e)
{
    request *r = user;
    for (int32_t i = 0; i < e->n_tokens && r->n < TOKENS; i++)
        r->token[r->n++] = e->tokens[i];
    r->finish = e->finish;
}

/* Some requests have common beginnings, so that pages are copied too. */
static void run_requests(vt_engine *e, request *r)
{
    bool idle = false;
    for (int32_t k = 0; k < REQUESTS; k++) {
        vt_request_params p;
        vt_request_id id;
        r[k] = (request){0};
        for (int32_t i = 0; i < PROMPT; i++)
            r[k].prompt[i] = (i < PROMPT - 3 ? i * 5 : i * 5 + k) % 60;
        vt_request_init(&p);
        p.prompt = r[k].prompt;
        p.n_prompt = PROMPT;
        p.max_tokens = TOKENS;
        p.ignore_eos = true;
        p.temperature = k == 1 ? 0.8f : 0;
        p.repetition_penalty = k == 2 ? 1.3f : 1;
        p.has_seed = true;
        p.logprobs = 0;
        p.callback = on_event;
        p.user = &r[k];
        assert_int_equal(vt_engine_submit(e, &p, &id, NULL), VT_OK);
    }
    for (int32_t steps = 0; !idle; steps++) {
        if (vt_engine_step(e, &idle, NULL) != VT_OK) /* requests get the error */
            assert_int_equal(pending(), 0);          /* nothing reads what the next step writes */
        assert_true(steps < 1000);
    }
}

/* Returns whether call number `call` was ever made. */
static bool refuse_one(const vt_model *m, int64_t call, const request *want)
{
    vt_engine *e;
    vt_err err = {0};
    request got[REQUESTS];
    if (open_engine(m, call, &e, &err) != VT_OK) {
        assert_true(was_refused());
        if (err.status == VT_OK || err.status == VT_ERR_USAGE || strlen(err.message) < 10)
            fail_msg("call %lld: status %d, '%s'", (long long)call, err.status, err.message);
    } else {
        run_requests(e, got);
        for (int32_t k = 0; k < REQUESTS; k++) {
            bool same = got[k].n == want[k].n &&
                        memcmp(got[k].token, want[k].token, sizeof got[k].token) == 0;
            if (!(got[k].finish == VT_FINISH_LENGTH && same))
                fail_msg("call %lld: request %d has %d tokens, finish %d", (long long)call, k,
                         got[k].n, got[k].finish);
        }
        vt_engine_free(e);
    }
    if (left_over() > 0)
        fail_msg("call %lld: %zu objects are left ('%s')", (long long)call, left_over(),
                 err.message);
    return was_refused();
}

static bool alike(const char *const *name, int32_t i, int32_t k)
{
    return strcmp(name[i], name[k]) == 0 && strcmp(name[i - 1], name[k - 1]) == 0 &&
           strcmp(name[i + 1], name[k + 1]) == 0;
}

/* Calls of the same name between the same neighbours are alike, and a few of them are enough.
 * VITRINE_EMULATOR_EACH=1 takes every call, which takes minutes. */
static bool is_chosen(const char *const *name, int32_t i, int32_t n, int32_t of_a_kind)
{
    int32_t before = 0;
    if (i == 0 || i == n - 1 || getenv("VITRINE_EMULATOR_EACH"))
        return true;
    for (int32_t k = 1; k < i; k++)
        before += alike(name, i, k);
    return before < of_a_kind;
}

static void test_engine_when_any_call_is_refused_then_nothing_is_lost(void **state)
{
    (void)state;
    vt_model *m = tiny_model("llama");
    vt_engine *e;
    vt_err err = {0};
    request want[REQUESTS];
    if (open_engine(m, 0, &e, &err) != VT_OK)
        fail_msg("%s", err.message);
    run_requests(e, want);
    for (int32_t k = 0; k < REQUESTS; k++)
        assert_int_equal(want[k].n, TOKENS);
    vt_engine_free(e);
    assert_int_equal(left_over(), 0);
    static const char *name[MOST];
    int32_t n = 0, refused = 0;
    while (n < MOST && (name[n] = call_name((size_t)n + 1)))
        n++;
    for (int32_t i = 0; i < n; i++)
        if (is_chosen(name, i, n, 2) && refuse_one(m, i + 1, want))
            refused++;
    print_message("%d of %d calls\n", refused, n);
    assert_true(n < MOST && refused > 50);
    vt_model_free(m);
}

/* Kernels make the matrices of a dummy model while its vectors are uploaded. If an upload fails,
 * the kernels must have ended before their memory is freed. */
static void
test_weights_when_an_upload_is_refused_then_no_kernel_writes_to_what_is_gone(void **state)
{
    (void)state;
    vt_model *m;
    vt_cuda *c;
    vt_cuda_weights *w;
    vt_err err = {0};
    setenv("VITRINE_EMULATOR", "memory=256", 1);
    assert_int_equal(vt_model_load("dummy:smollm2-135m", &m, &err), VT_OK);
    m->arch.n_layers = 1;
    assert_int_equal(vt_cuda_open(0, &c, &err), VT_OK);
    refuse(20); /* the first pinned buffer */
    assert_int_equal(vt_cuda_weights_load(c, m, 64, 1, &w, &err), VT_ERR_MEMORY);
    assert_non_null(strstr(err.message, "pinned host memory"));
    assert_int_equal(pending(), 0);
    vt_cuda_close(c);
    assert_int_equal(left_over(), 0);
    vt_model_free(m);
}

/* The first launch loads a kernel, finds it, asks for its shared memory and parameters and sets an
 * attribute. Whichever of these calls is refused, the next launch may try again. */
static void test_compile_when_a_kernel_cannot_be_loaded_then_the_next_try_loads_it(void **state)
{
    (void)state;
    setenv("VITRINE_EMULATOR", "memory=64", 1);
    for (uint64_t n = 1; n <= 5; n++) {
        vt_cuda *c;
        vt_err err = {0};
        assert_int_equal(vt_cuda_open(0, &c, &err), VT_OK);
        int32_t i = vt_jit_want(c->jit, &JIT_SPEC("roofs.cu", "roofs_empty", {NULL, 0}));
        refuse(n);
        assert_int_equal(vt_cuda_compile(c, NULL, NULL, &err), VT_ERR_DEVICE);
        assert_non_null(strstr(err.message, "loading roofs_empty"));
        assert_null(c->kernel[i].kernel);
        assert_int_equal(vt_cuda_compile(c, NULL, NULL, &err), VT_OK);
        assert_non_null(c->kernel[i].kernel);
        assert_true(c->kernel[i].max_shared > 0);
        vt_cuda_close(c);
        assert_int_equal(left_over(), 0);
    }
}

/* The number of tickets is the same for every call. Limits that need more are refused at the start,
 * by the first call that needs them. */
static void test_executor_when_its_limits_need_too_many_tickets_then_refused(void **state)
{
    (void)state;
    static const struct {
        int32_t seqs, rows;
        const char *message;
    } row[] = {{CUDA_TICKETS + 1, 4,
                "L00.attention_decode: max-running 65537 with 4 rows of logits per step needs "},
               {4, CUDA_TICKETS + 1,
                "sample: max-running 4 with 65537 rows of logits per step needs 65537 tickets, "
                "but there are only 65536: set a smaller max-running"}};
    setenv("VITRINE_EMULATOR", "memory=256", 1);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        vt_model *m = tiny_model("llama");
        vt_executor_config config = {.limits = {.max_tokens = 64,
                                                .max_seqs = row[i].seqs,
                                                .max_rows = row[i].rows,
                                                .max_context = 64,
                                                .page_size = 16,
                                                .n_workers = 1},
                                     .n_pages = 8,
                                     .n_pool_slots = 2,
                                     .kv_dtype = VT_BF16,
                                     .n_threads = 1};
        vt_cuda_options options = {.graphs = true, .pdl = true};
        vt_executor *x = NULL;
        vt_err err = {0};
        assert_int_equal(vt_executor_cuda_new(m, &config, &options, &x, &err), VT_ERR_UNSUPPORTED);
        if (strncmp(err.message, row[i].message, strlen(row[i].message)) != 0)
            fail_msg("%s", err.message);
        assert_non_null(strstr(err.message, "set a smaller max-running"));
        assert_int_equal(strstr(err.message, "set a smaller max-running, at most ") != NULL,
                         i == 0);
        assert_null(x);
        assert_int_equal(left_over(), 0);
        vt_model_free(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compile_when_a_kernel_cannot_be_loaded_then_the_next_try_loads_it),
        cmocka_unit_test(
            test_weights_when_an_upload_is_refused_then_no_kernel_writes_to_what_is_gone),
        cmocka_unit_test(test_executor_when_its_limits_need_too_many_tickets_then_refused),
        cmocka_unit_test(test_engine_when_any_call_is_refused_then_nothing_is_lost),
    };
    return cmocka_run_group_tests(tests, open_emulator, NULL);
}
