/* Engines over several emulated GPUs (tests/emulator): greedy tokens are those of one GPU except at
 * near-ties, also where two ranks share a GPU; a rank that hangs, or whose kernel faults, is named;
 * GPUs without peer access are refused. And the rows of the communication ops, over odd shapes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "common/emulated_gpu.h"
#include "common/engine_run.h"
#include "common/prefix_hits.h"
#include "engine/engine_inside.h"
#include "ops/bench/comm_gpus.h"
#include "ops/bench/comm_measure.h"

#define MODELS "tests/golden/models/"

enum { PROMPT = 24, TOKENS = 16, REQUESTS = 3 };

/* A margin, in log-probability, below which BF16 may choose the other token; and where BF16 may
 * choose the other of two experts that nearly tie. */
static const double kTie = 0.08, kExpertTie = 0.4;

/* How far log-probabilities may be from those of one GPU: twice the farthest that was seen. */
static const double kFar = 0.4;

typedef struct answer {
    int32_t token[TOKENS], n;
    double margin[TOKENS];
    float logprob[TOKENS]; /* of the chosen tokens */
    vt_finish finish;
    char error[300];
} answer;

static char notice[400];

static void on_event(void *user, const vt_event *e)
{
    answer *a = user;
    for (int32_t i = 0; i < e->n_tokens && a->n < TOKENS; i++) {
        const vt_token_logprob *top = e->top_logprobs + i * e->n_top;
        a->margin[a->n] = (double)(top[0].logprob - top[1].logprob);
        a->logprob[a->n] = e->logprobs[i].logprob;
        a->token[a->n++] = e->tokens[i];
    }
    if (e->finish != VT_FINISH_NONE)
        a->finish = e->finish;
    if (e->error)
        snprintf(a->error, sizeof a->error, "%s", e->error);
}

static void on_notice(void *user, const char *text)
{
    (void)user;
    snprintf(notice, sizeof notice, "%s", text);
}

/* Options tp-link and enable-expert-parallel of the next options. */
static const char *link_of = "auto";
static bool whole_experts;

static vt_options *options_of(const char *model, const char *device, int32_t tp)
{
    vt_options *o;
    assert_int_equal(vt_options_new(&o, NULL), VT_OK);
    engine_option(o, "model", model);
    engine_option(o, "device", device);
    engine_option_int(o, "tp", tp);
    engine_option(o, "tp-link", tp > 1 ? link_of : "auto");
    engine_option(o, "enable-expert-parallel", tp > 1 && whole_experts ? "true" : "false");
    engine_option_int(o, "max-context", 96);
    engine_option_int(o, "max-running", 4);
    engine_option_int(o, "token-budget", 32);
    engine_option_int(o, "kv-memory", 8 << 20);
    engine_option_int(o, "threads", tp == 3 ? 3 : 4);
    assert_int_equal(vt_options_set_notice(o, on_notice, NULL, NULL), VT_OK);
    notice[0] = '\0';
    return o;
}

/* Submits the requests. Their prompts are not of one length, so steps mix prompts and decodes. */
static void ask(vt_engine *e, const vt_model *m, answer *a)
{
    for (int32_t k = 0; k < REQUESTS; k++) {
        int32_t prompt[PROMPT];
        vt_request_params p;
        for (int32_t i = 0; i < PROMPT; i++)
            prompt[i] = (i * i * 31 + k * 977 + 5) % vt_model_vocab_size(m);
        vt_request_init(&p);
        p.prompt = prompt;
        p.n_prompt = PROMPT - 7 * k;
        p.max_tokens = TOKENS;
        p.ignore_eos = true;
        p.logprobs = 2;
        p.callback = on_event;
        p.user = &a[k];
        a[k] = (answer){0};
        engine_submit(e, &p);
    }
}

static void answers(const char *model, const char *device, int32_t tp, answer *a)
{
    vt_model *m;
    vt_err err = {0};
    vt_options *o = options_of(model, device, tp);
    if (vt_model_open(o, &m, &err) != VT_OK)
        fail_msg("%s", err.message);
    vt_engine *e = engine_open(m, o);
    ask(e, m, a);
    engine_run(e);
    for (int32_t k = 0; k < REQUESTS; k++)
        assert_int_equal(a[k].finish, VT_FINISH_LENGTH);
    vt_engine_free(e);
    vt_model_free(m);
    vt_options_free(o);
}

/* The tokens of one GPU up to the first near-tie, which is printed, with log-probabilities near
 * those of one GPU. */
static void compare_within(double tie, const char *model, const answer *one, const char *device,
                           int32_t tp)
{
    answer many[REQUESTS];
    double farthest = 0;
    answers(model, device, tp, many);
    for (int32_t k = 0; k < REQUESTS; k++) {
        int32_t same = 0;
        while (same < TOKENS && many[k].token[same] == one[k].token[same]) {
            double far = fabs((double)(many[k].logprob[same] - one[k].logprob[same]));
            if (!(far <= kFar))
                fail_msg("log-probabilities of token %d are %g apart, not %g", same, far, kFar);
            farthest = fmax(farthest, far);
            same++;
        }
        if (same == TOKENS)
            continue;
        print_message("%s, request %d, tp %d on %s: token %d is another, its margin is %.2g\n",
                      model, k, tp, device, same, one[k].margin[same]);
        if (!(one[k].margin[same] <= tie))
            fail_msg("a margin of %g is no near-tie (%g)", one[k].margin[same], tie);
    }
    print_message("%s, tp %d on %s: log-probabilities within %.2g of one GPU\n", model, tp, device,
                  farthest);
}

static void compare(const char *model, const answer *one, const char *device, int32_t tp)
{
    compare_within(kTie, model, one, device, tp);
}

static void test_tokens_equal_those_of_one_gpu(void **state)
{
    (void)state;
    answer one[REQUESTS];
    setenv("VITRINE_EMULATOR", "devices=4", 1);
    answers(MODELS "llama-gqa8-llama3-f32", "cuda", 1, one);
    compare(MODELS "llama-gqa8-llama3-f32", one, "cuda", 2);
    compare(MODELS "llama-gqa8-llama3-f32", one, "cuda:3,1", 2);
    compare(MODELS "llama-gqa8-llama3-f32", one, "cuda:0,0", 2);
    compare(MODELS "llama-gqa8-llama3-f32", one, "cuda", 4);
    answers(MODELS "qwen3moe-raw", "cuda", 1, one);
    compare(MODELS "qwen3moe-raw", one, "cuda", 2);
    answers(MODELS "glm4moe-groups", "cuda", 1, one); /* a shared expert */
    compare(MODELS "glm4moe-groups", one, "cuda", 2);
    answers(MODELS "gpt-oss-sinks", "cuda", 1, one); /* sinks, biases of experts */
    compare_within(kExpertTie, MODELS "gpt-oss-sinks", one, "cuda", 2);
    answers(MODELS "qwen35-delta", "cuda", 1, one); /* sequence state, a gate beside q */
    compare(MODELS "qwen35-delta", one, "cuda", 2);
    compare(MODELS "qwen35-delta-BF16.gguf", one, "cuda", 3);
    answers(MODELS "deepseekv2-latents", "cuda", 1, one); /* heads of latents */
    compare(MODELS "deepseekv2-latents", one, "cuda", 2);
    answers(MODELS "gemma2-caps", "cuda", 1, one);
    compare(MODELS "gemma2-caps", one, "cuda", 2);
}

/* Norms of q and k over the heads of all ranks. Of three ranks two have a copy of one KV head. */
static void test_norms_over_all_heads_give_the_tokens_of_one_gpu(void **state)
{
    (void)state;
    answer one[REQUESTS];
    setenv("VITRINE_EMULATOR", "devices=3", 1);
    answers(MODELS "olmo2-whole-norms", "cuda", 1, one);
    compare(MODELS "olmo2-whole-norms", one, "cuda", 2);
    compare(MODELS "olmo2-whole-norms", one, "cuda", 3);
    compare(MODELS "olmo2-whole-norms", one, "cuda:0,0", 2);
    answers(MODELS "olmo3-windows-yarn", "cuda", 1, one);
    compare(MODELS "olmo3-windows-yarn", one, "cuda", 3);
    answers(MODELS "minimaxm2-whole-norms", "cuda", 1, one);
    compare_within(kExpertTie, MODELS "minimaxm2-whole-norms", one, "cuda", 2);
    link_of = "host";
    compare_within(kExpertTie, MODELS "minimaxm2-whole-norms", one, "cuda", 3);
    link_of = "auto";
}

/* State spaces: the heads of one group are divided, and their norm; two ranks have a group each. */
static void test_state_spaces_give_the_tokens_of_one_gpu(void **state)
{
    (void)state;
    answer one[REQUESTS];
    setenv("VITRINE_EMULATOR", "devices=3", 1);
    answers(MODELS "granite4-mamba", "cuda", 1, one);
    compare(MODELS "granite4-mamba", one, "cuda", 2);
    compare(MODELS "granite4-mamba-BF16.gguf", one, "cuda", 3);
    answers(MODELS "nemotronh-experts", "cuda", 1, one); /* experts without gates */
    compare_within(kExpertTie, MODELS "nemotronh-experts", one, "cuda", 2);
}

/* Ranks with whole experts: tokens alone, few and many; uneven numbers; a shared expert; biases. */
static void test_whole_experts_give_the_tokens_of_one_gpu(void **state)
{
    (void)state;
    answer one[REQUESTS];
    setenv("VITRINE_EMULATOR", "devices=4", 1);
    whole_experts = true;
    answers(MODELS "qwen3moe-raw", "cuda", 1, one);
    compare(MODELS "qwen3moe-raw", one, "cuda", 2);
    compare(MODELS "qwen3moe-raw", one, "cuda", 3);
    answers(MODELS "glm4moe-groups", "cuda", 1, one);
    compare(MODELS "glm4moe-groups", one, "cuda:0,0", 2);
    answers(MODELS "gpt-oss-sinks", "cuda", 1, one);
    compare_within(kExpertTie, MODELS "gpt-oss-sinks", one, "cuda", 2);
    whole_experts = false;
}

/* Six query heads and two KV heads: of three ranks two have a copy of one KV head, and two and one
 * of its query heads. */
static void test_uneven_heads(void **state)
{
    (void)state;
    answer one[REQUESTS];
    setenv("VITRINE_EMULATOR", "devices=4", 1);
    answers(MODELS "llama-gqa3-linear-bias", "cuda", 1, one);
    compare(MODELS "llama-gqa3-linear-bias", one, "cuda", 2);
    compare(MODELS "llama-gqa3-linear-bias", one, "cuda", 3);
}

static void hits(const char *model, const char *device, int32_t tp, prefix_hits *out)
{
    vt_model *m;
    vt_err err = {0};
    vt_options *o = options_of(model, device, tp);
    engine_option_int(o, "page-size", PREFIX_PAGE);
    if (vt_model_open(o, &m, &err) != VT_OK)
        fail_msg("%s", err.message);
    prefix_hits_of(m, o, out);
    vt_model_free(m);
    vt_options_free(o);
}

/* The prefix cache has as much of each prompt as on one GPU. */
static void test_prefix_hits_equal_those_of_one_gpu(void **state)
{
    (void)state;
    static const char *const model[] = {MODELS "llama-gqa8-llama3-f32", MODELS "qwen35-delta"};
    setenv("VITRINE_EMULATOR", "devices=2", 1);
    for (size_t i = 0; i < sizeof model / sizeof *model; i++) {
        prefix_hits one, two;
        hits(model[i], "cuda", 1, &one);
        hits(model[i], "cuda", 2, &two);
        assert_memory_equal(two.cached, one.cached, sizeof one.cached);
        assert_int_equal(one.cached[0], 0);
        for (int32_t k = 1; k < PREFIX_ASKS; k++)
            assert_true(one.cached[k] >= PREFIX_PAGE);
    }
}

/* GPUs that cannot access each other's memory meet through the host's, and have the bits of those
 * that can. */
static void test_link_when_no_peer_access_then_the_host(void **state)
{
    (void)state;
    answer p2p[REQUESTS], host[REQUESTS];
    setenv("VITRINE_EMULATOR", "devices=3", 1);
    answers(MODELS "llama-gqa3-linear-bias", "cuda", 3, p2p);
    assert_null(strstr(notice, "host's memory"));
    setenv("VITRINE_EMULATOR", "devices=3,peers=none", 1);
    answers(MODELS "llama-gqa3-linear-bias", "cuda", 3, host);
    assert_non_null(strstr(notice, "cuda:0 cannot access the memory of cuda:1: the ranks meet "
                                   "through the host's memory"));
    for (int32_t k = 0; k < REQUESTS; k++) {
        assert_memory_equal(p2p[k].token, host[k].token, sizeof p2p[k].token);
        assert_memory_equal(p2p[k].logprob, host[k].logprob, sizeof p2p[k].logprob);
    }
}

/* ---- what goes wrong ---- */

static vt_status open_fails(const char *emulator, const char *device, int32_t tp, vt_err *err)
{
    vt_model *m;
    vt_engine *e = NULL;
    setenv("VITRINE_EMULATOR", emulator, 1);
    vt_options *o = options_of(MODELS "llama-gqa8-llama3-f32", device, tp);
    assert_int_equal(vt_model_open(o, &m, err), VT_OK);
    vt_status status = vt_engine_new(m, o, &e, err);
    assert_null(e);
    vt_model_free(m);
    vt_options_free(o);
    return status;
}

static void test_devices_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    vt_err err = {0};
    assert_int_equal(open_fails("devices=2", "cuda:0,1", 1, &err), VT_ERR_USAGE);
    assert_string_equal(err.message, "device is cuda:0,1, which names 2 GPUs for 1 rank (tp)");
    assert_int_equal(open_fails("devices=2", "cuda:0,1", 4, &err), VT_ERR_USAGE);
    assert_string_equal(err.message, "device is cuda:0,1, which names 2 GPUs for 4 ranks (tp)");
    assert_int_equal(open_fails("devices=2", "cuda:1", 2, &err), VT_ERR_DEVICE);
    assert_non_null(strstr(err.message, "cuda:2: the driver shows 2 GPUs"));
    link_of = "p2p";
    assert_int_equal(open_fails("devices=2,peers=none", "cuda", 2, &err), VT_ERR_UNSUPPORTED);
    link_of = "auto";
    assert_non_null(strstr(err.message, "cuda:0 cannot access the memory of cuda:1"));
}

/* Runs requests whose engine meets a planted fault. */
static void break_one(const char *emulator, answer *a)
{
    vt_model *m;
    vt_options *o = options_of(MODELS "llama-gqa8-llama3-f32", "cuda", 2);
    setenv("VITRINE_EMULATOR", emulator, 1);
    assert_int_equal(vt_model_open(o, &m, NULL), VT_OK);
    vt_engine *e = engine_open(m, o);
    vt_err err = {0};
    ask(e, m, a);
    for (bool idle = false; !idle;)
        (void)vt_engine_step(e, &idle, &err);
    vt_engine_free(e);
    vt_model_free(m);
    vt_options_free(o);
}

/* The 40th kernel of a run of two ranks: which rank's it is depends on how they take turns. */
static void test_rank_that_hangs_is_named(void **state)
{
    (void)state;
    answer a[REQUESTS];
    setenv("VITRINE_RANK_LIMIT", "1", 1);
    setenv("VITRINE_CUDA_STEP_LIMIT", "3", 1);
    break_one("devices=2,hang=40", a);
    unsetenv("VITRINE_RANK_LIMIT");
    unsetenv("VITRINE_CUDA_STEP_LIMIT");
    assert_int_equal(a[0].finish, VT_FINISH_ERROR);
    if (!strstr(a[0].error, "of 2 did not come to"))
        fail_msg("%s", a[0].error);
}

static void test_rank_that_faults_is_made_again(void **state)
{
    (void)state;
    answer want[REQUESTS], a[REQUESTS];
    setenv("VITRINE_EMULATOR", "devices=2", 1);
    answers(MODELS "llama-gqa8-llama3-f32", "cuda", 2, want);
    break_one("devices=2,fault=90", a);
    if (!strstr(notice, "rank ") || !strstr(notice, "of 2"))
        fail_msg("the notice is '%s'", notice);
    for (int32_t k = 0; k < REQUESTS; k++) {
        assert_int_equal(a[k].finish, VT_FINISH_LENGTH);
        assert_int_equal(a[k].n, TOKENS);
    }
    assert_memory_equal(a[0].token, want[0].token, sizeof a[0].token);
}

/* ---- the rows ---- */

/* Returns the bits of the result. */
static uint64_t run_row(comm_gpus *g, const char *op, const char *row, int64_t rows, int64_t n,
                        bool residual, comm_how how)
{
    comm_result r;
    vt_err err = {0};
    comm_ask a = {.op = vt_op_find(op),
                  .row = row,
                  .rows = rows,
                  .n = n,
                  .residual = residual,
                  .how = how,
                  .repetitions = n < 100 ? 1 : 0};
    if (comm_gpus_run(g, &a, &r, &err) != VT_OK)
        fail_msg("%s %s: %s", op, row ? row : "", err.message);
    bool coarse = strstr(getenv("VITRINE_EMULATOR"), "cc=80"); /* its timer: no stamps */
    assert_int_equal(r.wait_ns >= 0, a.repetitions > 0 && !coarse);
    double allowed = a.op->tolerance > 0 ? COMM_BF16_TOLERANCE : 0;
    if (!r.agree || !(r.error <= allowed))
        fail_msg("%s %s, %lld x %lld: error %g, ranks %s", op, row ? row : "", (long long)rows,
                 (long long)n, r.error, r.agree ? "agree" : "differ");
    return r.bits;
}

/* The fused rows have the bits of the two ops, one after the other. */
static void norm_rows(comm_gpus *g, int64_t rows, int64_t cols, bool fused)
{
    static const char op[] = "all_reduce_rmsnorm";
    uint64_t bits = run_row(g, op, "sum-then-norm", rows, cols, true, COMM_REGISTERED);
    if (fused && run_row(g, op, "push", rows, cols, true, COMM_REGISTERED) != bits)
        fail_msg("push, %lld x %lld: other bits than sum-then-norm", (long long)rows,
                 (long long)cols);
    if (fused && run_row(g, op, "one-shot", rows, cols, true, COMM_REGISTERED) != bits)
        fail_msg("one-shot, %lld x %lld: other bits than sum-then-norm", (long long)rows,
                 (long long)cols);
}

/* Sums of squares as packets have the bits of those behind a meeting. */
static void sharded_norm_rows(comm_gpus *g, int64_t rows, int64_t cols, bool staged)
{
    static const char op[] = "sharded_rmsnorm";
    uint64_t bits = run_row(g, op, "one-shot", rows, cols, false, COMM_REGISTERED);
    if (!staged && run_row(g, op, "push", rows, cols, false, COMM_REGISTERED) != bits)
        fail_msg("push, %lld x %lld: other bits than one-shot", (long long)rows, (long long)cols);
}

/* The parts of all ranks together have the bits of all_reduce. */
static void parts_of_sums(comm_gpus *g, int64_t rows, int64_t cols, bool push)
{
    static const char op[] = "reduce_scatter";
    uint64_t bits = run_row(g, "all_reduce", "one-shot", rows, cols, false, COMM_REGISTERED);
    if (run_row(g, "all_reduce", "two-shot", rows, cols, false, COMM_COPIED) != bits)
        fail_msg("two-shot, %lld x %lld: other bits than one-shot", (long long)rows,
                 (long long)cols);
    if (run_row(g, op, "one-shot", rows, cols, false, COMM_REGISTERED) != bits)
        fail_msg("%s, %lld x %lld: other bits than all_reduce", op, (long long)rows,
                 (long long)cols);
    if (push && run_row(g, op, "push", rows, cols, false, COMM_COPIED) != bits)
        fail_msg("%s push, %lld x %lld: other bits than all_reduce", op, (long long)rows,
                 (long long)cols);
}

static void rows_on(const char *emulator, const int32_t *gpu, int32_t n, const char *link)
{
    static const int64_t shape[][2] = {{1, 64},  {3, 129}, {2, 576},  {1, 1},
                                       {7, 333}, {5, 7},   {1, 4096}, {33, 2048}};
    size_t n_shapes = strstr(emulator, "race") ? 3 : sizeof shape / sizeof *shape;
    comm_gpus *g = NULL;
    vt_err err = {0};
    setenv("VITRINE_EMULATOR", emulator, 1);
    if (comm_gpus_open(gpu, n, link, &g, &err) != VT_OK)
        fail_msg("%s", err.message);
    bool staged = strcmp(comm_gpus_link(g), "host") == 0;
    for (size_t i = 0; i < n_shapes; i++) {
        int64_t rows = shape[i][0], cols = shape[i][1];
        if (cols % 8 == 0 && cols < 2000 && !staged) /* it sends into peers' memory */
            run_row(g, "all_reduce", "push", rows, cols, i % 2, COMM_REGISTERED);
        run_row(g, "all_reduce", "one-shot", rows, cols, i % 2, COMM_REGISTERED);
        run_row(g, "all_reduce", "two-shot", rows, cols, i % 2, COMM_REGISTERED);
        run_row(g, "all_reduce", NULL, rows, cols, true, COMM_COPIED);
        if (cols < 600 && rows < 7)
            norm_rows(g, rows, cols, cols % 8 == 0 && !staged);
        if (cols < 600 || rows > 7)
            sharded_norm_rows(g, rows, cols, staged);
        if (cols >= n)
            parts_of_sums(g, rows, cols, cols % 8 == 0 && cols / 8 >= n && cols < 2000 && !staged);
        if (cols >= n)
            run_row(g, "all_gather", "one-shot", rows, cols, false, COMM_REGISTERED);
    }
    comm_gpus_close(g);
}

static void test_rows_over_odd_shapes(void **state)
{
    (void)state;
    rows_on("devices=2", (const int32_t[]){0, 1}, 2, "p2p");
    rows_on("devices=3,cc=80", (const int32_t[]){2, 0, 1}, 3, "auto");
    rows_on("devices=4,order=7", (const int32_t[]){0, 1, 2, 3}, 4, "p2p");
    rows_on("devices=1,order=3", (const int32_t[]){0, 0}, 2, "p2p");
    rows_on("devices=2,peers=none,order=5", (const int32_t[]){0, 1}, 2, "auto");
    rows_on("devices=3,peers=none,cc=80", (const int32_t[]){1, 2, 0}, 3, "host");
}

/* Under the race detector: what a rank reads of another's memory lies behind a flag. */
static void test_rows_when_races_are_looked_for_then_none(void **state)
{
    (void)state;
    rows_on("devices=2,race", (const int32_t[]){0, 1}, 2, "p2p");
}

/* Whole steps: what is between the meetings, and buffers that are written again. */
static void test_steps_when_races_are_looked_for_then_none(void **state)
{
    (void)state;
    answer a[REQUESTS];
    setenv("VITRINE_EMULATOR", "devices=2,race", 1);
    answers(MODELS "llama-gqa8-llama3-f32", "cuda", 2, a);
}

/* ---- limits of the forms, from planted times ---- */

/* Times by which one form is the fastest at every size. */
static comm_times planted(comm_form fastest)
{
    comm_times t = {.when = 1764000000};
    for (int form = 0; form < COMM_FORMS; form++)
        for (int32_t i = 0; i < COMM_SIZES; i++) {
            double s = form == (int)fastest ? 1e-6 : 9e-6;
            t.norm[form][i] = s;
            t.sum[form][i] = s;
        }
    return t;
}

static const char *taken(const int32_t *gpu, int32_t n, const char *op)
{
    static comm_result r;
    comm_gpus *g;
    vt_err err = {0};
    assert_int_equal(comm_gpus_open(gpu, n, "p2p", &g, &err), VT_OK);
    comm_ask a = {.op = vt_op_find(op), .rows = 2, .n = 64, .residual = true};
    if (comm_gpus_run(g, &a, &r, &err) != VT_OK)
        fail_msg("%s", err.message);
    comm_gpus_close(g);
    return r.row;
}

static void plant(int32_t n, const int32_t *gpu, comm_form fastest)
{
    char key[192];
    vt_cuda *first;
    comm_times t = planted(fastest);
    assert_int_equal(vt_cuda_open(gpu[0], &first, NULL), VT_OK);
    vt_comm_times_key(&(comm_set){first, gpu, n, false}, key, sizeof key);
    vt_cuda_close(first);
    vt_comm_times_write(key, &t);
}

/* The times themselves mean nothing here; which there are does. */
static void test_forms_are_timed_where_engines_have_them(void **state)
{
    static const int32_t gpu[] = {0, 1, 2};
    (void)state;
    for (int32_t n = 2; n <= 3; n++)
        for (int staged = 0; staged < 2; staged++) {
            comm_times t;
            vt_cuda *first;
            vt_err err = {0};
            setenv("VITRINE_EMULATOR", "devices=3", 1);
            assert_int_equal(vt_cuda_open(0, &first, NULL), VT_OK);
            if (vt_comm_times_measure(&(comm_set){first, gpu, n, staged != 0}, 1, &t, &err) !=
                VT_OK)
                fail_msg("%s", err.message);
            vt_cuda_close(first);
            for (int form = 0; form < COMM_FORMS; form++) {
                bool there = form == COMM_ONE_SHOT || (form == COMM_PUSH && !staged);
                assert_int_equal(t.sum[form][0] > 0, there || (form == COMM_OTHER && n > 2));
                assert_int_equal(t.norm[form][0] > 0, form == COMM_OTHER || (there && !staged));
                assert_true(t.sum[form][1] == 0);
            }
            assert_true(t.when > 0);
        }
}

/* Kept times decide which form a call takes, and change no bit. */
static void test_kept_times_choose_the_form_and_change_no_token(void **state)
{
    static const int32_t gpu[] = {0, 1, 2};
    static const struct {
        comm_form fastest;
        const char *sum, *norm;
    } row[] = {{COMM_PUSH, "push", "push"},
               {COMM_ONE_SHOT, "one-shot", "one-shot"},
               {COMM_OTHER, "two-shot", "sum-then-norm"}};
    static char folder[] = "/tmp/vitrine-limits-XXXXXX";
    answer want[REQUESTS], a[REQUESTS];
    char command[64];
    (void)state;
    setenv("VITRINE_EMULATOR", "devices=3", 1);
    answers(MODELS "llama-gqa8-llama3-f32", "cuda", 3, want);
    const char *before = getenv("VITRINE_CACHE");
    assert_non_null(mkdtemp(folder));
    setenv("VITRINE_CACHE", folder, 1);
    assert_string_equal(taken(gpu, 3, "all_reduce"), "one-shot"); /* nothing is kept */
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        plant(3, gpu, row[i].fastest);
        assert_string_equal(taken(gpu, 3, "all_reduce"), row[i].sum);
        assert_string_equal(taken(gpu, 3, "all_reduce_rmsnorm"), row[i].norm);
        answers(MODELS "llama-gqa8-llama3-f32", "cuda", 3, a);
        for (int32_t k = 0; k < REQUESTS; k++) {
            assert_memory_equal(a[k].token, want[k].token, sizeof a[k].token);
            assert_memory_equal(a[k].logprob, want[k].logprob, sizeof a[k].logprob);
        }
    }
    setenv("VITRINE_COMM_TIMES", "0", 1); /* they are there, and forbidden */
    assert_string_equal(taken(gpu, 3, "all_reduce"), "one-shot");
    unsetenv("VITRINE_COMM_TIMES");
    if (before)
        setenv("VITRINE_CACHE", before, 1);
    else
        unsetenv("VITRINE_CACHE");
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

/* ---- NCCL beside them ---- */

static vt_status run_nccl(comm_gpus *g, const char *op, int64_t n, comm_how how, comm_result *r,
                          vt_err *err)
{
    comm_ask a = {
        .op = vt_op_find(op), .nccl = true, .rows = 1, .n = n, .how = how, .repetitions = 2};
    return comm_gpus_run(g, &a, r, err);
}

static void test_nccl_computes_what_our_rows_do(void **state)
{
    static const comm_how how[] = {COMM_PLAIN, COMM_REGISTERED, COMM_COPIED};
    (void)state;
    for (int32_t n = 2; n <= 3; n++) {
        comm_gpus *g = NULL;
        comm_result r;
        vt_err err = {0};
        setenv("VITRINE_EMULATOR", "devices=3,order=7", 1);
        assert_int_equal(comm_gpus_open((const int32_t[]){2, 0, 1}, n, "p2p", &g, &err), VT_OK);
        assert_int_equal(run_nccl(g, "all_reduce", 64, COMM_PLAIN, &r, &err), VT_ERR_UNSUPPORTED);
        assert_null(comm_gpus_nccl(g));
        if (comm_gpus_add_nccl(g, &err) != VT_OK)
            fail_msg("%s", err.message);
        assert_string_equal(comm_gpus_nccl(g), "2.28.9");
        for (size_t i = 0; i < 3; i++)
            for (int32_t k = 0; k < 3; k++) {
                const char *op = k == 0 ? "all_reduce" : k == 1 ? "all_gather" : "reduce_scatter";
                if (run_nccl(g, op,
                             k == 0   ? 517
                             : k == 1 ? 15 * n
                                      : 48 * n,
                             how[i], &r, &err) != VT_OK)
                    fail_msg("%s: %s", op, err.message);
                assert_string_equal(r.row, "nccl");
                assert_true(r.agree && r.error <= (k == 1 ? 0 : COMM_BF16_TOLERANCE));
                assert_true(r.best_ns > 0 && r.best_ns <= r.median_ns);
                assert_int_equal(r.register_ns > 0, how[i] != COMM_PLAIN);
            }
        assert_int_equal(run_nccl(g, "all_gather", 64 * n + 1, COMM_PLAIN, &r, &err),
                         VT_ERR_UNSUPPORTED);
        assert_int_equal(run_nccl(g, "reduce_scatter", 8 * (n + 1), COMM_PLAIN, &r, &err),
                         VT_ERR_UNSUPPORTED); /* parts of whole vectors are not equal */
        comm_gpus_close(g);
    }
}

static void test_nccl_that_fails_is_an_error_of_its_own(void **state)
{
    static const struct {
        const char *emulator, *words;
        int32_t gpu;
        bool added;
    } row[] = {{"devices=2,nccl=broken", "failed at making communicators", 1, false},
               {"devices=2", "no two ranks on one GPU", 0, false},
               {"devices=2,nccl=failing", "failed at registering a buffer", 1, true},
               {"devices=2,nccl=wrong", "", 1, true}};
    (void)state;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        comm_gpus *g = NULL;
        comm_result r = {0};
        vt_err err = {0};
        setenv("VITRINE_EMULATOR", row[i].emulator, 1);
        assert_int_equal(comm_gpus_open((const int32_t[]){0, row[i].gpu}, 2, "p2p", &g, &err),
                         VT_OK);
        vt_status status = comm_gpus_add_nccl(g, &err);
        assert_int_equal(status == VT_OK, row[i].added);
        if (row[i].added)
            status = run_nccl(g, "all_reduce", 64, COMM_REGISTERED, &r, &err);
        assert_int_equal(status == VT_OK, !*row[i].words);
        if (!strstr(err.message, row[i].words))
            fail_msg("%s", err.message);
        if (status == VT_OK) /* the sums are not right, and that is seen */
            assert_true(r.error > COMM_BF16_TOLERANCE);
        run_row(g, "all_reduce", "one-shot", 1, 64, false, COMM_REGISTERED); /* ours go on */
        comm_gpus_close(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_over_odd_shapes),
        cmocka_unit_test(test_rows_when_races_are_looked_for_then_none),
        cmocka_unit_test(test_steps_when_races_are_looked_for_then_none),
        cmocka_unit_test(test_forms_are_timed_where_engines_have_them),
        cmocka_unit_test(test_kept_times_choose_the_form_and_change_no_token),
        cmocka_unit_test(test_nccl_computes_what_our_rows_do),
        cmocka_unit_test(test_nccl_that_fails_is_an_error_of_its_own),
        cmocka_unit_test(test_tokens_equal_those_of_one_gpu),
        cmocka_unit_test(test_norms_over_all_heads_give_the_tokens_of_one_gpu),
        cmocka_unit_test(test_state_spaces_give_the_tokens_of_one_gpu),
        cmocka_unit_test(test_whole_experts_give_the_tokens_of_one_gpu),
        cmocka_unit_test(test_uneven_heads),
        cmocka_unit_test(test_prefix_hits_equal_those_of_one_gpu),
        cmocka_unit_test(test_link_when_no_peer_access_then_the_host),
        cmocka_unit_test(test_devices_that_do_not_fit_are_refused),
        cmocka_unit_test(test_rank_that_faults_is_made_again),
        cmocka_unit_test(test_rank_that_hangs_is_named),
    };
    return cmocka_run_group_tests(tests, emulated_gpu_open, NULL);
}
