/* Engines over several ranks on the CPU: greedy tokens are those of one rank except at near-ties,
 * whose margin is printed, and a rank that hangs or fails ends the requests with an error that
 * names it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>
#include <unistd.h>
#include <jansson.h>

#include "common/engine_run.h"
#include "common/prefix_hits.h"
#include "engine/engine_inside.h"
#include "exec/cpu_inside.h"
#include "story/read.h"

#define MODELS "tests/golden/models/"

enum { PROMPT = 40, TOKENS = 32 };
#ifdef VT_SANITIZE
enum { PROMPTS = 1 }; /* of each model */
#else
enum { PROMPTS = 4 };
#endif

typedef struct answer {
    int32_t token[TOKENS], n;
    double margin[TOKENS]; /* of the best token over the second, in log-probability */
    float logprob[TOKENS]; /* of the best token */
    vt_finish finish;
    char error[200];
} answer;

static void on_event(void *user, const vt_event *e)
{
    answer *a = user;
    for (int32_t i = 0; i < e->n_tokens; i++) {
        const vt_token_logprob *top = e->top_logprobs + i * e->n_top;
        a->margin[a->n] = (double)(top[0].logprob - top[1].logprob);
        a->logprob[a->n] = top[0].logprob;
        a->token[a->n++] = e->tokens[i];
    }
    if (e->finish != VT_FINISH_NONE) {
        a->finish = e->finish;
        snprintf(a->error, sizeof a->error, "%s", e->error ? e->error : "");
    }
}

static vt_request_params ask(const int32_t *prompt, answer *a)
{
    vt_request_params p;
    vt_request_init(&p);
    p.prompt = prompt;
    p.n_prompt = PROMPT;
    p.max_tokens = TOKENS;
    p.ignore_eos = true;
    p.logprobs = 2;
    p.callback = on_event;
    p.user = a;
    *a = (answer){0};
    return p;
}

/* Returns NULL if the model cannot be opened. */
static vt_model *open_model(const char *name, vt_options **o)
{
    vt_model *m = NULL;
    vt_err err = {0};
    assert_int_equal(vt_options_new(o, &err), VT_OK);
    engine_option(*o, "device", "cpu");
    if (name)
        engine_option(*o, "model", name);
    engine_option_int(*o, "max-context", 256);
    if (vt_model_open(*o, &m, &err) != VT_OK)
        print_message("skipped: %s\n", err.message);
    return m;
}

static void greedy(const vt_model *m, vt_options *o, int32_t tp, int32_t threads,
                   bool whole_experts, const int32_t *prompt, answer *a)
{
    engine_option_int(o, "tp", tp);
    engine_option(o, "enable-expert-parallel", tp > 1 && whole_experts ? "true" : "false");
    engine_option_int(o, "threads", threads);
    vt_engine *e = engine_open(m, o);
    vt_request_params p = ask(prompt, a);
    engine_submit(e, &p);
    engine_run(e);
    vt_engine_free(e);
    assert_int_equal(a->n, TOKENS);
}

/* `tie`: margins below this are near-ties. */
static void compare_as(const char *name, double tie, bool whole_experts)
{
    vt_options *o;
    vt_model *m = open_model(name, &o);
    for (int32_t prompt_of = 0; m && prompt_of < PROMPTS; prompt_of++) {
        int32_t prompt[PROMPT];
        answer one, many;
        for (int32_t i = 0; i < PROMPT; i++)
            prompt[i] = (i * i * 31 + prompt_of * 977 + 5) % vt_model_vocab_size(m);
        greedy(m, o, 1, 2, false, prompt, &one);
        const int32_t groups = m->arch.mamba.groups, most = groups > 1 ? groups : m->arch.n_heads;
        for (int32_t tp = 2; tp <= 4 && tp <= most; tp++) {
            int32_t same = 0;
            greedy(m, o, tp, tp, whole_experts, prompt, &many);
            while (same < TOKENS && many.token[same] == one.token[same])
                same++;
            if (same == TOKENS)
                continue;
            print_message("%s, prompt %d, %d ranks: token %d is another, its margin is %.2g\n",
                          m->name, prompt_of, tp, same, one.margin[same]);
            if (!(one.margin[same] <= tie))
                fail_msg("a margin of %g is no near-tie (%g)", one.margin[same], tie);
        }
    }
    vt_model_free(m);
    vt_options_free(o);
}

static void compare(const char *name, double tie) { compare_as(name, tie, false); }

static void test_greedy_tokens_equal_those_of_one_rank(void **state)
{
    (void)state;
    compare(MODELS "llama-gqa8-llama3-f32", 1e-4);
    compare(MODELS "qwen3-gqa5-yarn", 1e-2); /* its KV is F16 */
    compare(MODELS "qwen3moe-raw", 1e-2);
    compare(MODELS "qwen3moe-norm-mixed", 1e-2); /* experts and dense layers in turn */
    compare(MODELS "glm4moe-groups", 1e-2);      /* a shared expert */
    compare(MODELS "qwen2-gqa7", 1e-2);          /* seven query heads to a KV head, with biases */
    compare(MODELS "mistral-gqa4-window", 1e-2);
    compare(MODELS "gpt-oss-sinks", 1e-2);          /* biases of experts too */
    compare(MODELS "qwen35-delta", 1e-2);           /* sequence state; heads in groups ... */
    compare(MODELS "qwen35-delta-BF16.gguf", 1e-2); /* ... and in tiles */
    compare(MODELS "qwen35moe-outer", 1e-2);
    compare("dummy:hybrid-tiny", 1e-2);
    compare(MODELS "granite4-mamba", 1e-2);    /* a state space's heads ... */
    compare(MODELS "nemotronh-experts", 1e-2); /* ... and its groups; experts without gates */
    compare(MODELS "deepseekv2-latents-BF16.gguf", 1e-2); /* heads of latent attention */
    compare(MODELS "deepseekv3-groups", 1e-2);
    compare(MODELS "glm4moelite-latents", 1e-2); /* three heads */
    compare(MODELS "gemma2-caps", 1e-2);
    compare(MODELS "gemma4-per-layer", 1e-2);
    compare(MODELS "gemma4-experts-BF16.gguf", 1e-2); /* norms before the experts' sum */
    compare(MODELS "olmo2-whole-norms", 1e-2); /* norms over all heads; KV heads have copies */
    compare(MODELS "olmo3-windows-yarn", 1e-2);
    compare(MODELS "minimaxm2-whole-norms", 1e-2);
    compare(NULL, 0.75); /* the default model, if it is there: activations in 8 bits */
}

static void test_whole_experts_give_the_tokens_of_one_rank(void **state)
{
    (void)state;
    compare_as(MODELS "qwen3moe-norm-mixed", 1e-2, true);
    compare_as(MODELS "glm4moe-groups", 1e-2, true);
    compare_as(MODELS "gpt-oss-mxfp4", 1e-2, true);
    compare_as(MODELS "gemma4-experts-BF16.gguf", 1e-2, true);
}

/* Sums over another number of ranks are in another order, no more: F32 weights, values and KV. With
 * the same number the bits are the same, whatever the threads. */
static void test_logprobs_differ_in_the_last_places(void **state)
{
    (void)state;
    vt_options *o;
    vt_model *m = open_model(MODELS "llama-gqa8-llama3-f32", &o);
    double worst = 0;
    int32_t prompt[PROMPT];
    answer one, many, again;
    for (int32_t i = 0; i < PROMPT; i++)
        prompt[i] = (i * i * 31 + 5) % vt_model_vocab_size(m);
    greedy(m, o, 1, 2, false, prompt, &one);
    for (int32_t tp = 2; tp <= 4; tp++) {
        greedy(m, o, tp, tp, false, prompt, &many);
        greedy(m, o, tp, 2 * tp, false, prompt, &again);
        assert_memory_equal(again.logprob, many.logprob, sizeof many.logprob);
        for (int32_t i = 0; i < TOKENS && many.token[i] == one.token[i]; i++)
            worst = fmax(worst, fabs((double)many.logprob[i] - (double)one.logprob[i]));
    }
    print_message("log-probabilities over ranks differ by %.2g\n", worst);
    assert_true(worst <= 1e-5);
    vt_model_free(m);
    vt_options_free(o);
}

/* ---- the prefix cache ---- */

/* The cache has as much of each prompt as with one rank, and an answer behind a hit has the bits of
 * one without a cache. */
static void compare_hits(const char *name)
{
    vt_options *o;
    vt_model *m = open_model(name, &o);
    prefix_hits one, many, none;
    engine_option_int(o, "page-size", PREFIX_PAGE);
    for (int32_t tp = 1; m && tp <= 3 && tp <= m->arch.n_heads; tp++) {
        engine_option_int(o, "tp", tp);
        engine_option_int(o, "threads", tp);
        prefix_hits_of(m, o, &many);
        engine_option_flag(o, "no-prefix-cache", true);
        prefix_hits_of(m, o, &none);
        engine_option_flag(o, "no-prefix-cache", false);
        if (tp == 1)
            one = many;
        assert_memory_equal(many.cached, one.cached, sizeof one.cached);
        assert_memory_equal(many.token, none.token, sizeof none.token);
    }
    assert_non_null(m);
    assert_int_equal(one.cached[0], 0);
    for (int32_t k = 1; k < PREFIX_ASKS; k++)
        assert_true(one.cached[k] >= PREFIX_PAGE);
    vt_model_free(m);
    vt_options_free(o);
}

static void test_prefix_hits_equal_those_of_one_rank(void **state)
{
    (void)state;
    compare_hits(MODELS "llama-gqa8-llama3-f32");
    compare_hits(MODELS "deepseekv3-groups");
    compare_hits(MODELS "qwen35-delta"); /* snapshots of its state */
}

/* ---- ranks that hang or fail ---- */

/* What the planted implementation does; 0: what the one that it replaces does. */
enum { WORKS, HANGS, FAILS };
static atomic_int does;
static const vt_impl *replaced;

static vt_status run_planted(const void *args, const vt_lane *lane)
{
    while (atomic_load(&does) == HANGS)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    return atomic_load(&does) == FAILS ? VT_ERR_DEVICE : replaced->run(args, lane);
}

static const vt_impl planted = {.name = "planted", .run = run_planted};

/* Replaces the implementation of a rank's call. */
static void plant(vt_engine *e, int32_t rank, const char *label)
{
    vt_program *p = ((cpu_executor *)e->executor)->rank[rank].prog;
    for (int32_t i = 0; i < p->n_calls; i++)
        if (strcmp(p->call[i].label, label) == 0) {
            replaced = p->call[i].choice[0].impl;
            p->call[i].choice[0].impl = &planted;
            return;
        }
    fail_msg("no call %s", label);
}

/* Steps until the request has ended. */
static void run_to_end(vt_engine *e, const answer *a)
{
    vt_err err = {0};
    for (bool idle = false; a->finish == VT_FINISH_NONE && !idle;)
        (void)vt_engine_step(e, &idle, &err);
    assert_int_not_equal(a->finish, VT_FINISH_NONE);
}

/* The last notice of an engine. */
static char notice[300];

static void on_notice(void *user, const char *text)
{
    (void)user;
    snprintf(notice, sizeof notice, "%s", text);
}

/* Ends a request by what was planted, sees the error, or the notice where the engine tried again,
 * takes it out and sees the same tokens again. */
static void break_and_mend(int32_t rank, const char *label, int what, const char *expected)
{
    vt_options *o;
    vt_model *m = open_model(MODELS "llama-gqa8-llama3-f32", &o);
    int32_t prompt[PROMPT];
    answer before, broken, after;
    for (int32_t i = 0; i < PROMPT; i++)
        prompt[i] = (i * 7 + 3) % vt_model_vocab_size(m);
    engine_option_int(o, "tp", 2);
    engine_option_int(o, "threads", 2);
    assert_int_equal(vt_options_set_notice(o, on_notice, NULL, NULL), VT_OK);
    notice[0] = '\0';
    vt_engine *e = engine_open(m, o);
    atomic_store(&does, WORKS);
    plant(e, rank, label);
    vt_request_params p = ask(prompt, &before);
    engine_submit(e, &p);
    engine_run(e);
    atomic_store(&does, what);
    p = ask(prompt, &broken);
    engine_submit(e, &p);
    run_to_end(e, &broken);
    assert_int_equal(broken.finish, VT_FINISH_ERROR);
    if (!strstr(broken.error, expected) && !strstr(notice, expected))
        fail_msg("neither '%s' nor '%s' says '%s'", broken.error, notice, expected);
    atomic_store(&does, WORKS);
    p = ask(prompt, &after);
    engine_submit(e, &p);
    run_to_end(e, &after);
    assert_int_equal(after.finish, VT_FINISH_LENGTH);
    assert_memory_equal(after.token, before.token, sizeof after.token);
    vt_engine_free(e);
    vt_model_free(m);
    vt_options_free(o);
}

static void test_rank_that_hangs_is_named_and_ends_requests(void **state)
{
    (void)state;
    break_and_mend(1, "L00.linear.o", HANGS, "rank 1 of 2 hangs in L00.linear.o");
    break_and_mend(0, "L01.linear.down", HANGS, "rank 0 of 2 hangs in L01.linear.down");
    break_and_mend(1, "sample", HANGS, "rank 1 of 2 hangs in sample");
}

static void test_rank_that_fails_is_named_and_ends_requests(void **state)
{
    (void)state;
    break_and_mend(1, "L00.linear.o", FAILS, "rank 1 of 2 failed in L00.linear.o");
}

/* An engine that is freed while a rank hangs returns, and leaves its memory to the rank. */
static void test_engine_is_freed_although_a_rank_hangs(void **state)
{
    (void)state;
    vt_options *o;
    vt_model *m = open_model(MODELS "llama-gqa8-llama3-f32", &o);
    int32_t prompt[PROMPT] = {1, 2, 3};
    answer a;
    engine_option_int(o, "tp", 2);
    engine_option_int(o, "threads", 2);
    vt_engine *e = engine_open(m, o);
    plant(e, 1, "L00.linear.o");
    atomic_store(&does, HANGS);
    vt_request_params p = ask(prompt, &a);
    engine_submit(e, &p);
    run_to_end(e, &a);
    vt_engine_free(e); /* the model stays for the thread that hangs */
    vt_options_free(o);
}

/* ---- stories ---- */

/* Runs the program of this build with these arguments. Returns its exit status. */
static int program(const char *arguments)
{
    char self[400], command[1200];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(n > 0);
    self[n] = 0;
    char *tests = NULL; /* the last one: folders above may be called so too */
    for (char *at = self; (at = strstr(at, "/tests/")); at++)
        tests = at;
    assert_non_null(tests);
    *tests = 0;
    snprintf(command, sizeof command, "env -u VITRINE_RANK_LIMIT %s/vitrine %s", self, arguments);
    return system(command);
}

/* The story of a request over two ranks shows both, what each moved, and who waited for whom. */
static void test_story_shows_both_ranks(void **state)
{
    (void)state;
    char made[] = "/tmp/vitrine-tp-XXXXXX", file[40], arguments[500];
    double waited = 0, bytes[2], calls[2];
    size_t i, k;
    json_t *rank, *x;
    int fd = mkstemp(made);
    assert_true(fd >= 0);
    close(fd);
    snprintf(file, sizeof file, "%s.json", made);
    snprintf(arguments, sizeof arguments,
             "run --device cpu -m dummy:smollm2-135m --tp 2 --threads 2 --ignore-eos -n 12 Hello "
             "--story=%s >/dev/null </dev/null",
             file);
    assert_int_equal(program(arguments), 0);
    unlink(made);
    json_t *story = json_load_file(file, 0, NULL);
    assert_non_null(story);
    json_t *items = json_object_get(json_object_get(story, "ranks"), "items");
    assert_int_equal(json_array_size(items), 2);
    json_array_foreach(items, i, rank)
    {
        const json_t *c = json_object_get(rank, "communication");
        char name[8];
        snprintf(name, sizeof name, "rank %d", (int)(i & 1));
        assert_memory_equal(json_string_value(json_object_get(rank, "name")), name, 6);
        calls[i] = story_num(c, "calls");
        bytes[i] = story_num(c, "bytes");
        assert_true(story_num(c, "transfer_ms") > 0);
        assert_true(story_num(c, "transfer_ms") < story_num(rank, "busy_ms"));
        assert_true(story_num(c, "wait_ms") <= story_num(rank, "wait_ms"));
        json_array_foreach(json_object_get(rank, "waited_for"), k, x)
        {
            const char *other = json_string_value(json_object_get(x, "rank"));
            assert_memory_not_equal(other, name, 6);
            assert_true(story_num(x, "calls") <= calls[i]);
            waited += story_num(x, "calls");
        }
    }
    assert_true(calls[0] > 0 && calls[0] == calls[1]);
    assert_true(bytes[0] > 0 && bytes[0] == bytes[1]);
    assert_true(waited > 0);
    assert_int_equal(json_array_size(json_object_get(story, "threads")), 2);
    json_decref(story);
    snprintf(arguments, sizeof arguments, "story show %s | grep -q 'rank 1 .*communication calls'",
             file);
    assert_int_equal(program(arguments), 0);
    unlink(file);
}

static int set_limit(void **state)
{
    (void)state;
    return setenv("VITRINE_RANK_LIMIT", "1", 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_greedy_tokens_equal_those_of_one_rank),
        cmocka_unit_test(test_whole_experts_give_the_tokens_of_one_rank),
        cmocka_unit_test(test_logprobs_differ_in_the_last_places),
        cmocka_unit_test(test_prefix_hits_equal_those_of_one_rank),
        cmocka_unit_test(test_story_shows_both_ranks),
        cmocka_unit_test(test_rank_that_hangs_is_named_and_ends_requests),
        cmocka_unit_test(test_rank_that_fails_is_named_and_ends_requests),
        cmocka_unit_test(test_engine_is_freed_although_a_rank_hangs),
    };
    return cmocka_run_group_tests_name("tp", tests, set_limit, NULL);
}
