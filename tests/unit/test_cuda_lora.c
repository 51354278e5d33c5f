/* Adapters on the emulated GPU (tests/emulator): log-probabilities near those of PEFT in fp32, over
 * one and several ranks, requests of several adapters bit by bit as alone with --deterministic, no
 * data races, and rows that compute the same bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/emulated_gpu.h"
#include "common/engine_run.h"
#include "common/lora_run.h"
#include "engine/engine.h"
#include "ops/calls/on_cuda.h"
#include "ops/case_text.h"
#include "ops/lora/lora.h"

/* Activations, KV and adapters are BF16, and these models have sharp distributions; without its
 * adapter a token differs by several units. */
static const double kBound = 0.25;

typedef struct opened {
    vt_options *o;
    vt_model *m;
    vt_engine *e;
} opened;

typedef struct setup {
    const char *emulator, *model, *device, *tp;
    const char *lora[3];
    bool deterministic, draft, no_graphs;
} setup;

static void open_with(opened *x, const setup *s)
{
    char path[256];
    vt_err err;
    setenv("VITRINE_EMULATOR", s->emulator, 1);
    snprintf(path, sizeof path, LORA_MODELS "%s", s->model);
    assert_int_equal(vt_options_new(&x->o, NULL), VT_OK);
    engine_option(x->o, "model", path);
    engine_option(x->o, "device", s->device ? s->device : "cuda");
    engine_option(x->o, "tp", s->tp ? s->tp : "1");
    engine_option(x->o, "threads", "2");
    engine_option(x->o, "page-size", "16");
    engine_option(x->o, "max-context", "96");
    engine_option(x->o, "kv-memory", "4M");
    engine_option(x->o, "token-budget", "40");
    engine_option(x->o, "max-running", "6");
    engine_option_flag(x->o, "deterministic", s->deterministic);
    engine_option_flag(x->o, "no-graphs", s->no_graphs);
    engine_option(x->o, "draft", s->draft ? "lookup" : "off");
    for (int i = 0; s->lora[i]; i++)
        engine_option(x->o, "lora", s->lora[i]);
    if (vt_model_open(x->o, &x->m, &err) != VT_OK)
        fail_msg("%s", err.message);
    x->e = engine_open(x->m, x->o);
}

static void close_all(opened *x)
{
    vt_engine_free(x->e);
    vt_model_free(x->m);
    vt_options_free(x->o);
}

static double score(opened *x, const lora_golden *g, const char *adapter)
{
    lora_heard h;
    vt_request_params p = lora_ask(g, adapter, true, &h);
    engine_submit(x->e, &p);
    engine_run(x->e);
    assert_int_equal(h.n_tokens, LORA_TOKENS);
    vt_engine_flush_cache(x->e);
    return lora_worst(g, &h);
}

static void check_near(const setup *s, const char *golden)
{
    lora_golden g;
    opened x;
    lora_read_golden(golden, &g);
    open_with(&x, s);
    double with = score(&x, &g, "a"), without = score(&x, &g, NULL);
    print_message("%s, %s, %s: within %.2g; %.2g without the adapter\n", s->model, s->lora[0],
                  s->emulator, with, without);
    assert_true(with <= kBound);
    assert_true(without > 3 * kBound);
    close_all(&x);
}

static void test_log_probabilities_are_near_those_of_peft(void **state)
{
    (void)state;
    static const char *const emulator[] = {"cc=90,memory=512", "cc=80,memory=512,order=3"};
    for (int i = 0; i < 2; i++) {
        check_near(&(setup){.emulator = emulator[i],
                            .model = "llama-mha-llama3",
                            .lora = {"a=" LORA_GOLDEN "llama-all"}},
                   "llama-all");
        check_near(&(setup){.emulator = emulator[i],
                            .model = "llama-mha-llama3-BF16.gguf",
                            .lora = {"a=" LORA_GOLDEN "llama-patterns"}},
                   "llama-patterns");
    }
    check_near(&(setup){.emulator = emulator[0],
                        .model = "granite-four-scales",
                        .lora = {"a=" LORA_GOLDEN "granite-all"}},
               "granite-all");
}

static void test_log_probabilities_over_ranks_are_near_those_of_peft(void **state)
{
    (void)state;
    check_near(&(setup){.emulator = "cc=90,memory=512",
                        .model = "llama-mha-llama3",
                        .device = "cuda:0,0",
                        .tp = "2",
                        .lora = {"a=" LORA_GOLDEN "llama-all"}},
               "llama-all");
}

static const char *const names[] = {"a", NULL, "b", "a", "b", NULL};

/* With and without graphs, chunks and drafts. */
static void test_requests_when_deterministic_then_bitwise_as_alone(void **state)
{
    (void)state;
    setup s = {.emulator = "cc=90,memory=512",
               .model = "llama-mha-llama3",
               .lora = {"a=" LORA_GOLDEN "llama-all", "b=" LORA_GOLDEN "llama-patterns"},
               .deterministic = true};
    for (int i = 0; i < 2; i++) {
        opened x;
        s.draft = s.no_graphs = i == 1;
        open_with(&x, &s);
        lora_compare_alone(x.e, names, sizeof names / sizeof *names);
        close_all(&x);
    }
}

static void test_kernels_when_adapters_mix_then_no_race(void **state)
{
    (void)state;
    const setup s = {.emulator = "cc=90,memory=512,race",
                     .model = "llama-mha-llama3",
                     .lora = {"a=" LORA_GOLDEN "llama-all", "b=" LORA_GOLDEN "llama-patterns"},
                     .deterministic = true};
    opened x;
    open_with(&x, &s);
    lora_compare_alone(x.e, names, 3);
    close_all(&x);
}

/* ---- rows ---- */

/* Runs a row; bytes[i] are those of output i, for the caller to free. */
static void run_row(on_cuda *c, const char *row, vt_tensor *const *output, int32_t n,
                    void *bytes[VT_MAX_OUTPUTS])
{
    vt_err err = {0};
    const vt_impl *impl = vt_op_row(&lora_op, VT_DEVICE_CUDA, row);
    assert_non_null(impl);
    if (on_cuda_take(c, impl, &err) != VT_OK || on_cuda_run(c, &err) != VT_OK)
        fail_msg("%s: %s", row, err.message);
    for (int32_t i = 0; i < n; i++)
        assert_int_equal(on_cuda_fetch(c, output[i], &bytes[i], &err), VT_OK);
}

static void compare_rows(on_cuda_gpu *gpu, const char *shape)
{
    vt_case text;
    vt_arena arena;
    vt_tensor *output[VT_MAX_OUTPUTS];
    void *cluster[VT_MAX_OUTPUTS], *alone[VT_MAX_OUTPUTS];
    int32_t n;
    on_cuda c;
    vt_err err = {0};
    vt_arena_init(&arena, 0);
    assert_int_equal(vt_case_from_text(&lora_op, shape, &text, &err), VT_OK);
    void *args = lora_op.make_args(&text, 3, &arena, output, &n);
    assert_non_null(args);
    assert_int_equal(on_cuda_round(&lora_op, args, &err), VT_OK);
    assert_int_equal(on_cuda_make(&c, gpu, &lora_op, args, NULL, &err), VT_OK);
    run_row(&c, "cluster", output, n, cluster);
    run_row(&c, "alone", output, n, alone);
    for (int32_t i = 0; i < n; i++) {
        size_t bytes = on_cuda_find(&c, output[i])->bytes;
        assert_memory_equal(cluster[i], alone[i], bytes);
        free(cluster[i]);
        free(alone[i]);
    }
    on_cuda_release(&c);
    vt_arena_release(&arena);
}

/* The number of tokens decides between the rows, and may change no bit. */
static void test_rows_when_a_cluster_shares_then_the_same_bits(void **state)
{
    (void)state;
    on_cuda_gpu gpu;
    on_cuda_options o = {0};
    vt_err err = {0};
    setenv("VITRINE_EMULATOR", "cc=90,memory=512", 1);
    assert_int_equal(on_cuda_open(0, &o, &gpu, &err), VT_OK);
    compare_rows(&gpu, "tokens=21 none=2 adapters=2 rank=19 step=3 cols=1000 rows=520 parts=2 "
                       "next_rows=130");
    compare_rows(&gpu, "tokens=9 rank=8 cols=4104 rows=64");
    compare_rows(&gpu, "tokens=3 rank=16 cols=67 rows=33");
    on_cuda_close(&gpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_when_a_cluster_shares_then_the_same_bits),
        cmocka_unit_test(test_log_probabilities_are_near_those_of_peft),
        cmocka_unit_test(test_log_probabilities_over_ranks_are_near_those_of_peft),
        cmocka_unit_test(test_requests_when_deterministic_then_bitwise_as_alone),
        cmocka_unit_test(test_kernels_when_adapters_mix_then_no_race),
    };
    return cmocka_run_group_tests_name("cuda_lora", tests, emulated_gpu_open, NULL);
}
