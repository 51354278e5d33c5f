/* A recording CUDA engine on the emulated GPU: the stories of requests that share their steps. The
 * recordings, which are artificial in test_story_gpu.c, are real here; only times mean nothing. */
#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include <jansson.h>

#include "common/emulated_gpu.h"
#include "engine/engine.h"
#include "engine/options.h"
#include "engine/recording.h"
#include "exec/describe.h"

enum { REQUESTS = 3, PROMPT = 9, ANSWER = 18 };

typedef struct tale {
    vt_model *model;
    vt_options *options;
    vt_engine *engine;
    vt_request_id id[REQUESTS];
    int32_t token[REQUESTS][ANSWER], n[REQUESTS];
} tale;

typedef struct listener {
    tale *t;
    int32_t i;
} listener;

static void hear(void *user, const vt_event *e)
{
    listener *l = user;
    if (e->finish == VT_FINISH_ERROR)
        fail_msg("%s", e->error);
    for (int32_t k = 0; k < e->n_tokens && l->t->n[l->i] < ANSWER; k++)
        l->t->token[l->i][l->t->n[l->i]++] = e->tokens[k];
}

static void set(tale *t, const char *key, const char *value)
{
    vt_err err = {0};
    if (vt_options_set(t->options, key, value, &err) != VT_OK)
        fail_msg("%s", err.message);
}

/* All requests arrive together and answer with as many tokens: steps hold all of them. */
static void run_requests(tale *t)
{
    listener l[REQUESTS];
    vt_err err = {0};
    bool idle = false;
    memset(t->n, 0, sizeof t->n);
    if (vt_engine_new(t->model, t->options, &t->engine, &err) != VT_OK)
        fail_msg("%s", err.message);
    for (int32_t i = 0; i < REQUESTS; i++) {
        int32_t prompt[PROMPT];
        vt_request_params p;
        for (int32_t k = 0; k < PROMPT; k++)
            prompt[k] = (11 * i + 7 * k) % 60;
        l[i] = (listener){t, i};
        vt_request_init(&p);
        p.prompt = prompt;
        p.n_prompt = PROMPT;
        p.max_tokens = ANSWER;
        p.ignore_eos = true;
        p.callback = hear;
        p.user = &l[i];
        assert_int_equal(vt_engine_submit(t->engine, &p, &t->id[i], &err), VT_OK);
    }
    while (!idle)
        if (vt_engine_step(t->engine, &idle, &err) != VT_OK)
            fail_msg("%s", err.message);
}

static int setup(void **state)
{
    static const char *const option[][2] = {{"model", "tests/golden/models/qwen3-fp8"},
                                            {"device", "cuda"},
                                            {"max-running", "4"},
                                            {"max-context", "128"},
                                            {"kv-memory", "4M"},
                                            {"token-budget", "64"}};
    tale *t = calloc(1, sizeof *t);
    vt_err err = {0};
    *state = t;
    if (!t || vt_options_new(&t->options, &err) != VT_OK)
        return -1;
    for (size_t i = 0; i < sizeof option / sizeof *option; i++)
        set(t, option[i][0], option[i][1]);
    if (vt_model_open(t->options, &t->model, &err) != VT_OK)
        fail_msg("%s", err.message);
    return 0;
}

static int teardown(void **state)
{
    tale *t = *state;
    vt_engine_free(t->engine);
    vt_model_free(t->model);
    vt_options_free(t->options);
    free(t);
    return 0;
}

static json_t *tell(tale *t, vt_request_id id)
{
    char *text = NULL;
    size_t len = 0;
    vt_err err = {0};
    if (vt_engine_story(t->engine, id, &text, &len, &err) != VT_OK)
        fail_msg("%s", err.message);
    json_t *story = json_loadb(text, len, 0, NULL);
    vt_free(text);
    assert_non_null(story);
    return story;
}

static double value(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    assert_non_null(v);
    return json_number_value(json_is_object(v) ? json_object_get(v, "value") : v);
}

#define NEAR(a, b) assert_true(fabs((a) - (b)) <= 1e-3 * fabs(b) + 1e-2)

static void check_sums(const json_t *p)
{
    size_t i;
    json_t *op;
    double us = 0, up = 0, down = 0;
    assert_true(value(p, "timed_steps") > 0);
    json_array_foreach(json_object_get(p, "ops"), i, op)
    {
        const char *bound = json_string_value(json_object_get(op, "bound"));
        bool link = strcmp(bound, "link") == 0, host = strcmp(bound, "host") == 0;
        us += value(op, "time_us");
        if (link) {
            bool upload = strcmp(json_string_value(json_object_get(op, "kind")), "upload") == 0;
            *(upload ? &up : &down) += value(json_object_get(op, "expected_bytes"), "activations");
        }
        assert_true((json_array_size(json_object_get(op, "kernels")) > 0) == !(link || host));
    }
    /* the step's block goes up, and tokens, which are fewer bytes, come down */
    assert_true(down >= (double)sizeof(int32_t) && up > down);
    NEAR(us, value(p, "ops_us"));
    NEAR(us, value(p, "step_us"));
}

static void test_emulated_story_when_requests_share_steps_then_each_adds_up(void **state)
{
    tale *t = *state;
    run_requests(t);
    for (int32_t i = 0; i < REQUESTS; i++) {
        json_t *s = tell(t, t->id[i]);
        const json_t *q = json_object_get(s, "request"), *list = json_object_get(s, "phases");
        const json_t *d = json_array_get(list, 1), *gpu = json_object_get(d, "gpu");
        NEAR(value(q, "queue_ms") + value(q, "steps_ms") + value(q, "waits_ms") +
                 value(q, "tail_ms"),
             value(q, "total_ms"));
        check_sums(json_array_get(list, 0));
        check_sums(d);
        assert_int_equal(value(d, "steps"), ANSWER - 1);
        assert_int_equal(value(d, "timed_steps") + value(gpu, "whole_steps"), ANSWER - 1);
        NEAR(value(d, "others"), REQUESTS - 1.0);
        assert_string_equal(json_string_value(json_object_get(gpu, "how")),
                            "in the graph for 4 sequences, 3 used");
        json_decref(s);
    }
}

static void test_emulated_story_when_about_all_then_every_step_is_in_it(void **state)
{
    tale *t = *state;
    run_requests(t);
    json_t *s = tell(t, 0);
    const json_t *list = json_object_get(s, "phases");
    assert_true(json_is_null(json_object_get(s, "request")));
    assert_int_equal(value(json_array_get(list, 0), "tokens"), REQUESTS * PROMPT);
    assert_int_equal(value(json_array_get(list, 1), "tokens"), REQUESTS * (ANSWER - 1));
    json_decref(s);
}

/* explain describes, without a device, the same program that an engine runs: the same calls, rows
 * and bytes of weights. */
static void test_emulated_program_is_as_described(void **state)
{
    tale *t = *state;
    vt_recording r;
    vt_described d;
    run_requests(t);
    assert_int_equal(vt_engine_recording(t->engine, &r, NULL), VT_OK);
    vt_dtype kv = vt_options_kv_dtype(t->options, vt_model_dtype(t->model));
    assert_int_equal(vt_describe(t->model, &r.program->target, kv, &d, NULL), VT_OK);
    const vt_program *p = d.program;
    assert_int_equal(p->n_calls, r.program->n_calls);
    for (int32_t i = 0; i < p->n_calls; i++) {
        const vt_call *a = &p->call[i], *b = &r.program->call[i];
        assert_string_equal(a->label, b->label);
        assert_int_equal(a->n_choices, b->n_choices);
        for (int32_t k = 0; k < a->n_choices; k++) {
            assert_int_equal(a->choice[k].upto, b->choice[k].upto);
            assert_ptr_equal(a->choice[k].impl, b->choice[k].impl);
        }
        if (strcmp(a->op->name, "linear") == 0)
            assert_int_equal(a->op->cost(a->args, NULL).read.weights,
                             b->op->cost(b->args, NULL).read.weights);
    }
    vt_described_release(&d);
}

static void check_source(const vt_source *s, const char *name, vt_source_kind kind)
{
    assert_string_equal(s->name, name);
    assert_int_equal(s->kind, kind);
    assert_true((s->requests != NULL) == (kind == VT_SOURCE_ENGINE));
    assert_true((s->spans != NULL) == (kind != VT_SOURCE_ENGINE));
    assert_true((s->launches != NULL) == (kind == VT_SOURCE_STREAM));
}

/* Opens the emulated GPU's management library, which lies beside the test's folder. */
static bool open_nvml(void)
{
    char path[512], file[600];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(path, '/');
    if (slash)
        *slash = '\0';
    snprintf(file, sizeof file, "%s/../emulator/libnvidia-ml.so.1", path);
    return dlopen(file, RTLD_NOW | RTLD_LOCAL) != NULL;
}

/* An engine on a GPU and one on a CPU answer the same questions. The caller need not know which of
 * the two it has. */
static void test_sources_and_reports_when_asked_then_each_executor_has_its_own(void **state)
{
    tale *t = *state;
    vt_source s[4];
    vt_kernel_facts k;
    assert_true(open_nvml());
    run_requests(t);
    const vt_executor *x = vt_engine_executor(t->engine);
    assert_int_equal(vt_engine_sources(t->engine, NULL, 0), 2);
    assert_int_equal(vt_engine_sources(t->engine, s, 4), 2);
    check_source(&s[0], "engine", VT_SOURCE_ENGINE);
    check_source(&s[1], "rank 0", VT_SOURCE_STREAM);
    vt_machine_event sample = {0};
    for (int i = 0; i < 600000 && vt_trace_copy(s[1].samples, &sample, 1) == 0; i++)
        usleep(1000); /* the thread that watches the GPU may be late */
    assert_true(sample.sm_mhz == 1500 && sample.power_mw == 250400 && sample.energy_mj > 0);
    assert_int_equal(sample.throttle, 1 << 2 | 1 << 5);
    assert_int_equal(sample.pressure_us, -1);
    assert_true(s[1].device.sm_count > 0 && s[1].clock_error_ns > 0);
    assert_int_equal(s[1].n_kernels, vt_executor_value(x, "startup.kernels", -1));
    s[1].kernel(s[1].owner, 0, &k);
    assert_non_null(strchr(k.name, '<'));
    assert_true(vt_executor_value(x, "packed_bytes", 0) > 0);
    assert_true(vt_executor_value(x, "startup.compile_ms", -1) >= 0);
    assert_true(vt_executor_value(x, "step_gap", -1) >= 0);
    assert_true(isnan(vt_executor_value(x, "no such thing", NAN)));
    vt_engine_free(t->engine);
    t->engine = NULL;

    set(t, "device", "cpu");
    set(t, "threads", "2");
    run_requests(t);
    x = vt_engine_executor(t->engine);
    assert_int_equal(vt_engine_sources(t->engine, s, 4), 3);
    check_source(&s[0], "engine", VT_SOURCE_ENGINE);
    check_source(&s[1], "worker 0", VT_SOURCE_WORKER);
    check_source(&s[2], "worker 1", VT_SOURCE_WORKER);
    assert_true(s[0].samples && s[1].uses && s[2].uses);
    assert_int_equal(s[2].device.sm_count, 0);
    assert_true(vt_executor_value(x, "kv_bytes", 0) > 0);
    assert_true(isnan(vt_executor_value(x, "step_gap", NAN)));
}

/* Steps in graphs and steps whose calls are launched one by one, as those are that get timed, give
 * the same tokens. */
static void test_emulated_tokens_are_the_same_with_and_without_graphs(void **state)
{
    tale *t = *state, plain;
    run_requests(t);
    plain = *t;
    vt_engine_free(t->engine);
    set(t, "no-graphs", "true");
    run_requests(t);
    assert_memory_equal(plain.n, t->n, sizeof t->n);
    assert_memory_equal(plain.token, t->token, sizeof t->token);
}

/* As a command does that was given --story. */
static void ask_for_story(tale *t)
{
    vt_err err = {0};
    const vt_option *story = vt_option_find("story", ~0u);
    assert_non_null(story);
    if (vt_options_assign(t->options, story, "unused.json", "a test", &err) != VT_OK)
        fail_msg("%s", err.message);
}

/* Returns the phase whose calls were stamped; checks that it says so. */
static const json_t *stamped_phase(const json_t *story, size_t k)
{
    size_t i;
    json_t *op;
    const json_t *p = json_array_get(json_object_get(story, "phases"), k);
    check_sums(p);
    assert_string_equal(json_string_value(json_object_get(json_object_get(p, "gpu"), "timed_by")),
                        "stamps");
    json_array_foreach(json_object_get(p, "ops"), i,
                       op) if (json_array_size(json_object_get(op, "kernels")) > 0)
    { /* kernels run one after the other here: what one does before its turn is all that overlaps */
        assert_true(value(op, "overlap_us") >= 0);
        assert_true(value(op, "overlap_us") < value(p, "step_us"));
    }
    return p;
}

/* Where a story was asked for, the kernels of timed steps are stamped. They run in their graphs,
 * and compute the same. */
static void test_emulated_story_when_asked_for_at_the_start_then_steps_are_stamped(void **state)
{
    tale *t = *state, plain;
    run_requests(t);
    plain = *t;
    json_t *s = tell(t, t->id[0]);
    const json_t *p = json_array_get(json_object_get(s, "phases"), 1);
    assert_null(json_object_get(json_object_get(p, "gpu"), "timed_by"));
    assert_null(json_object_get(json_array_get(json_object_get(p, "ops"), 0), "overlap_us"));
    json_decref(s);
    vt_engine_free(t->engine);
    ask_for_story(t);
    run_requests(t);
    assert_memory_equal(plain.n, t->n, sizeof t->n);
    assert_memory_equal(plain.token, t->token, sizeof t->token);
    s = tell(t, t->id[0]);
    stamped_phase(s, 0);
    p = stamped_phase(s, 1);
    assert_string_equal(json_string_value(json_object_get(json_object_get(p, "gpu"), "how")),
                        "in the graph for 4 sequences, 3 used");
    json_decref(s);
}

/* The timer of a GPU before compute capability 9.0 grows by 1 us at a time. */
static void test_emulated_story_when_the_timer_is_coarse_then_steps_run_call_by_call(void **state)
{
    tale *t = *state;
    size_t i;
    json_t *x;
    bool told = false;
    setenv("VITRINE_EMULATOR", "cc=80", 1);
    ask_for_story(t);
    run_requests(t);
    unsetenv("VITRINE_EMULATOR");
    json_t *s = tell(t, t->id[0]);
    const json_t *p = json_array_get(json_object_get(s, "phases"), 1);
    assert_true(value(p, "timed_steps") > 0);
    assert_null(json_object_get(json_object_get(p, "gpu"), "timed_by"));
    json_array_foreach(json_object_get(s, "not_measured"), i, x)
        told = told || strstr(json_string_value(json_object_get(x, "why")),
                              "timer grows in steps of 1000 ns, which is too coarse");
    assert_true(told);
    json_decref(s);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_emulated_story_when_requests_share_steps_then_each_adds_up),
        TEST(test_emulated_story_when_about_all_then_every_step_is_in_it),
        TEST(test_emulated_program_is_as_described),
        TEST(test_sources_and_reports_when_asked_then_each_executor_has_its_own),
        TEST(test_emulated_tokens_are_the_same_with_and_without_graphs),
        TEST(test_emulated_story_when_asked_for_at_the_start_then_steps_are_stamped),
        TEST(test_emulated_story_when_the_timer_is_coarse_then_steps_run_call_by_call),
    };
    return cmocka_run_group_tests(tests, emulated_gpu_open, NULL);
}
