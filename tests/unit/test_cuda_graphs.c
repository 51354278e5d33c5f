/* The CUDA executor's graphs on the emulated GPU (tests/emulator): the same requests give the same
 * tokens and log-probabilities with and without graphs, to the last bit, although every step that
 * runs as a graph is padded.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <dlfcn.h>

#include "base/clock.h"
#include "base/mem.h"
#include "common/emulated_gpu.h"
#include "engine/engine.h"
#include "exec/cuda_inside.h"
#include "model/load.h"
#include "model/model.h"

enum { ROUNDS = 2, REQUESTS = 7, MAX_ANSWER = 64, BUDGET = 160 };

static const int32_t kPrompt[REQUESTS] = {5, 70, 130, 33, 1, 200, 17};
static const int32_t kAnswer[REQUESTS] = {7, 3, 5, 9, 6, 2, 4};

typedef struct answer {
    int32_t token[MAX_ANSWER], n, n_scores;
    float logprob[MAX_ANSWER], score[MAX_ANSWER];
    bool done;
} answer;

typedef struct outcome {
    answer answer[ROUNDS][REQUESTS];
    int32_t n_graphs[ROUNDS + 1]; /* at start-up, after each round */
    int32_t n_kernels;
    uint64_t n_gaps, drafts, accepted;
} outcome;

static void hear(void *user, const vt_event *e)
{
    answer *a = user;
    if (e->finish == VT_FINISH_ERROR)
        fail_msg("%s", e->error);
    a->done = a->done || e->finish != VT_FINISH_NONE;
    for (int32_t i = 0; i < e->n_tokens; i++) {
        bool scored = e->completion_tokens == 0;
        assert_in_range(scored ? a->n_scores : a->n, 0, MAX_ANSWER - 1);
        if (scored) {
            a->score[a->n_scores++] = e->logprobs[i].logprob;
            continue;
        }
        a->token[a->n] = e->tokens[i];
        a->logprob[a->n++] = e->logprobs[i].logprob;
    }
}

/* LONG: the answers are five times as long, and of two tokens only, so that three in a row come
 * again. GUESSED: these, with guesses of the next tokens. */
typedef enum answers { SHORT, LONG, GUESSED } answers;

static int32_t length_of(int32_t which, answers how)
{
    return kAnswer[which] * (how == SHORT ? 1 : 5);
}

static void submit(vt_engine *e, int32_t which, int32_t round, int32_t vocab, answers how,
                   answer *a)
{
    int32_t prompt[256];
    vt_request_id id;
    vt_err err = {0};
    const int32_t two[] = {3, 7};
    for (int32_t i = 0; i < kPrompt[which]; i++)
        prompt[i] = (i * 37 + which * 11 + round * 5 + 3) % vocab;
    vt_request_params p;
    vt_request_init(&p);
    p.prompt = prompt;
    p.n_prompt = kPrompt[which];
    p.max_tokens = length_of(which, how);
    p.allowed = how == SHORT ? NULL : two;
    p.n_allowed = how == SHORT ? 0 : 2;
    p.ignore_eos = true;
    p.temperature = which % 2 ? 0.9f : 0.0f;
    p.seed = (uint64_t)which;
    p.has_seed = true;
    p.logprobs = which % 3 ? 0 : 2;
    p.prompt_logprobs = which == 3; /* wants rows for tokens that are not the last of a sequence */
    p.callback = hear;
    p.user = a;
    if (vt_engine_submit(e, &p, &id, &err) != VT_OK)
        fail_msg("%s", err.message);
}

/* Runs three requests, and the others while those decode: prefill, mixed and decode steps. */
static void run_round(vt_engine *e, int32_t round, int32_t vocab, answers how, answer a[REQUESTS])
{
    vt_err err = {0};
    bool idle = false;
    for (int32_t i = 0; i < 3; i++)
        submit(e, i, round, vocab, how, &a[i]);
    for (int32_t step = 0; !idle; step++) {
        if (step == 3)
            for (int32_t i = 3; i < REQUESTS; i++)
                submit(e, i, round, vocab, how, &a[i]);
        if (vt_engine_step(e, &idle, &err) != VT_OK)
            fail_msg("%s", err.message);
    }
    for (int32_t i = 0; i < REQUESTS; i++) {
        assert_true(a[i].done);
        assert_int_equal(a[i].n, length_of(i, how));
    }
}

/* The gaps between steps do not overlap, so their sum is less than the time of the run. */
static void check_gaps(vt_executor *x, uint64_t *n_gaps, int64_t begin_ns)
{
    vt_report gaps;
    double sum = 0;
    assert_true(vt_executor_find(x, "step_gap", &gaps));
    assert_non_null(gaps.series);
    *n_gaps = gaps.series->n;
    assert_true(*n_gaps > 0 && *n_gaps <= (uint64_t)gaps.series->capacity);
    for (uint64_t i = 0; i < *n_gaps; i++) {
        assert_true(gaps.series->value[i] > 0);
        sum += (double)gaps.series->value[i];
    }
    assert_true(sum * 1e3 < (double)(vt_now_ns() - begin_ns));
}

static outcome *run(const vt_model *m, const vt_cuda_options *options, answers how)
{
    bool draft = how == GUESSED;
    vt_limits lim = {.max_tokens = BUDGET,
                     .max_seqs = 5,
                     .max_rows = 48,
                     .max_context = 256,
                     .page_size = 16,
                     .n_workers = 1,
                     .decode_tokens = draft ? 1 + VT_DRAFT_MOST : 1};
    vt_executor_config config = {.limits = lim,
                                 .n_pages = 100,
                                 .n_pool_slots = lim.max_seqs,
                                 .kv_dtype = VT_BF16,
                                 .n_threads = 1};
    vt_engine_config c = {
        .sched = {.limits = lim,
                  .n_pages = config.n_pages,
                  .max_queued = 16,
                  .drafter = draft ? vt_draft_lookup : (vt_drafter){0}},
        .request = {.vocab = m->arch.vocab, .max_context = lim.max_context, .lookup = draft},
        .overlap = true};
    outcome *o = calloc(1, sizeof *o);
    vt_executor *x;
    vt_engine *e;
    vt_err err = {0};
    assert_non_null(o);
    if (vt_executor_cuda_new(m, &config, options, &x, &err) != VT_OK ||
        vt_engine_create(&c, x, &e, &err) != VT_OK)
        fail_msg("%s", err.message);
    o->n_graphs[0] = (int32_t)vt_executor_value(x, "startup.graphs", -1);
    int64_t begin = vt_now_ns();
    for (int32_t r = 0; r < ROUNDS; r++) {
        run_round(e, r, m->arch.vocab, how, o->answer[r]);
        o->n_graphs[r + 1] = (int32_t)vt_executor_value(x, "startup.graphs", -1);
    }
    o->n_kernels = (int32_t)vt_executor_value(x, "startup.kernels", -1);
    check_gaps(x, &o->n_gaps, begin);
    vt_engine_stats st;
    vt_engine_copy_stats(e, &st);
    o->drafts = st.sched.draft_tokens;
    o->accepted = st.sched.draft_accepted;
    vt_engine_free(e);
    return o;
}

/* Returns how many kernels the steps used. */
static int32_t compare_graphs(const char *model, bool deterministic)
{
    vt_model *m;
    vt_err err = {0};
    if (vt_model_load(model, &m, &err) != VT_OK)
        fail_msg("%s", err.message);
    vt_cuda_options plain = {.pdl = true, .deterministic = deterministic, .untimed = true},
                    graphs = plain, one;
    graphs.graphs = true;
    one = graphs;
    one.one_graph = true;
    outcome *a = run(m, &plain, SHORT), *b = run(m, &graphs, SHORT), *c = run(m, &one, SHORT);
    int32_t n_kernels = a->n_kernels;
    assert_int_equal(a->n_graphs[ROUNDS], 0);
    assert_memory_equal(a->answer, b->answer, sizeof a->answer);
    assert_memory_equal(a->answer, c->answer, sizeof a->answer);
    assert_true(a->answer[0][3].n_scores == kPrompt[3] - 1);
    /* graphs of prefill steps and of rows came in the first round, and the second found them */
    assert_true(b->n_graphs[1] > b->n_graphs[0] + 3);
    assert_int_equal(b->n_graphs[2], b->n_graphs[1]);
    assert_true(c->n_graphs[0] > 0 && c->n_graphs[0] < b->n_graphs[0]);
    assert_true(a->n_gaps > 20 && b->n_gaps == a->n_gaps);
    free(a);
    free(b);
    free(c);
    vt_model_free(m);
    return n_kernels;
}

static void test_graphs_when_on_then_answers_are_bitwise_those_without(void **state)
{
    (void)state;
    compare_graphs("tests/golden/models/qwen3-fp8", false);
    compare_graphs("tests/golden/models/qwen3-fp8", true);
    compare_graphs("tests/golden/models/qwen3moe-norm-mixed", false);
}

/* Steps that verify guesses are padded too, and the second round finds their graphs. */
static void
test_graphs_when_steps_verify_guesses_then_answers_are_bitwise_those_without(void **state)
{
    (void)state;
    vt_model *m;
    vt_err err = {0};
    if (vt_model_load("tests/golden/models/qwen3-fp8", &m, &err) != VT_OK)
        fail_msg("%s", err.message);
    for (int deterministic = 0; deterministic < 2; deterministic++) {
        vt_cuda_options plain = {.pdl = true, .deterministic = deterministic, .untimed = true},
                        graphs = plain;
        graphs.graphs = true;
        outcome *a = run(m, &plain, GUESSED), *b = run(m, &graphs, GUESSED);
        assert_memory_equal(a->answer, b->answer, sizeof a->answer);
        print_message("%llu of %llu guesses held; graphs %d, %d, %d\n",
                      (unsigned long long)b->accepted, (unsigned long long)b->drafts,
                      b->n_graphs[0], b->n_graphs[1], b->n_graphs[2]);
        assert_true(b->accepted > 20 && b->accepted < b->drafts);
        assert_int_equal(a->drafts, b->drafts);
        if (deterministic) { /* also those without guesses */
            outcome *c = run(m, &graphs, LONG);
            assert_memory_equal(a->answer, c->answer, sizeof a->answer);
            assert_int_equal(c->drafts, 0);
            free(c);
        }
        free(a);
        free(b);
    }
    vt_model_free(m);
}

/* The algorithms of the emulated library give different bits, and its choice depends on the number
 * of tokens that it is asked about. */
static void
test_graphs_when_products_are_cublaslts_then_answers_are_bitwise_those_without(void **state)
{
    (void)state;
    setenv("VITRINE_CUBLASLT", "all", 1);
    int32_t with = compare_graphs("tests/golden/models/qwen3-gqa5-yarn", false);
    setenv("VITRINE_CUBLASLT", "0", 1);
    int32_t without = compare_graphs("tests/golden/models/qwen3-gqa5-yarn", false);
    unsetenv("VITRINE_CUBLASLT");
    assert_true(with > without); /* its products are counted among the kernels */
}

/* ---- a cache that is full, and captures that fail ---- */

static vt_engine *open_small_with(const vt_model *m, const vt_cuda_options *options,
                                  cuda_executor **x)
{
    vt_limits lim = {.max_tokens = 128,
                     .max_seqs = 2,
                     .max_rows = 2,
                     .max_context = 256,
                     .page_size = 16,
                     .n_workers = 1};
    vt_executor_config config = {
        .limits = lim, .n_pages = 64, .n_pool_slots = 2, .kv_dtype = VT_BF16, .n_threads = 1};
    vt_engine_config c = {.sched = {.limits = lim, .n_pages = 64, .max_queued = 16},
                          .request = {.vocab = m->arch.vocab, .max_context = lim.max_context}};
    vt_executor *base;
    vt_engine *e;
    vt_err err = {0};
    if (vt_executor_cuda_new(m, &config, options, &base, &err) != VT_OK ||
        vt_engine_create(&c, base, &e, &err) != VT_OK)
        fail_msg("%s", err.message);
    *x = (cuda_executor *)base;
    return e;
}

static vt_engine *open_small(const vt_model *m, cuda_executor **x)
{
    vt_cuda_options options = {.graphs = true, .pdl = true, .untimed = true};
    return open_small_with(m, &options, x);
}

/* A prompt of n tokens, then two decodes: three steps. */
static answer ask(vt_engine *e, int32_t n, int32_t vocab)
{
    int32_t prompt[256];
    answer a = {0};
    bool idle = false;
    vt_err err = {0};
    vt_request_params p;
    for (int32_t i = 0; i < n; i++)
        prompt[i] = (i * 37 + n) % vocab;
    vt_request_init(&p);
    p.prompt = prompt;
    p.n_prompt = n;
    p.max_tokens = 3;
    p.ignore_eos = true;
    p.logprobs = 0;
    p.callback = hear;
    p.user = &a;
    if (vt_engine_submit(e, &p, NULL, &err) != VT_OK)
        fail_msg("%s", err.message);
    while (!idle)
        if (vt_engine_step(e, &idle, &err) != VT_OK)
            fail_msg("%s", err.message);
    assert_int_equal(a.n, 3);
    return a;
}

/* Returns true if the layers of a prefill of this bucket have a graph. */
static bool has_tokens(const cuda_executor *x, int32_t tokens)
{
    for (int32_t i = 0; i < x->n_graphs; i++)
        if (x->graph[i].piece.tokens == tokens && x->graph[i].piece.end == x->n_body)
            return true;
    return false;
}

static vt_model *open_model(void)
{
    vt_model *m;
    vt_err err = {0};
    if (vt_model_load("tests/golden/models/qwen3-fp8", &m, &err) != VT_OK)
        fail_msg("%s", err.message);
    return m;
}

static void test_graphs_when_the_cache_is_full_then_the_least_recent_goes(void **state)
{
    (void)state;
    vt_model *m = open_model();
    cuda_executor *x;
    vt_engine *e = open_small(m, &x);
    answer first = ask(e, 12, m->arch.vocab); /* 16 tokens, and all other pieces of a prefill */
    ask(e, 30, m->arch.vocab);                /* 32 tokens */
    assert_true(has_tokens(x, 16) && has_tokens(x, 32));
    x->max_graphs = x->n_graphs;
    ask(e, 60, m->arch.vocab); /* 64 tokens for the first time: they displace nothing */
    assert_false(has_tokens(x, 64));
    assert_true(has_tokens(x, 16) && has_tokens(x, 32));
    for (int32_t i = 0; i < 6; i++) {
        ask(e, 12, m->arch.vocab);
        ask(e, 60, m->arch.vocab);
        ask(e, 100, m->arch.vocab);
    }
    assert_int_equal(x->n_graphs, x->max_graphs);
    assert_true(has_tokens(x, 16) && has_tokens(x, 64) && has_tokens(x, 128));
    answer again = ask(e, 12, m->arch.vocab);
    assert_memory_equal(&again, &first, sizeof again);
    vt_engine_free(e);
    vt_model_free(m);
}

static int64_t nodes_of(const cuda_executor *x)
{
    int64_t n = 0;
    for (int32_t i = 0; i < x->n_graphs; i++)
        n += x->graph[i].graph.n_nodes;
    return n;
}

/* An engine says what it holds: graphs, how many were ever captured, and their host memory, which
 * grows with their nodes, also where one takes the place of another. */
static void test_graphs_when_captured_then_the_engine_tells_them_and_their_memory(void **state)
{
    (void)state;
    vt_model *m = open_model();
    cuda_executor *x;
    vt_engine_stats at_first, then, full;
    vt_engine *e = open_small(m, &x);
    vt_engine_copy_stats(e, &at_first);
    assert_true(at_first.held.graphs > 0 && at_first.held.kernels > 0);
    assert_int_equal(at_first.held.captures, at_first.held.graphs);
    if (vt_malloc_look().used > 0) /* else this C library does not tell */
        assert_true(x->node_host_bytes > 0);
    x->node_host_bytes = 1000;
    ask(e, 12, m->arch.vocab);
    ask(e, 30, m->arch.vocab);
    vt_engine_copy_stats(e, &then);
    assert_int_equal(then.held.graphs, x->n_graphs);
    assert_true(then.held.graphs > at_first.held.graphs);
    assert_int_equal(then.held.captures, then.held.graphs);
    assert_int_equal(then.held.graph_host_bytes, 1000 * nodes_of(x));
    x->max_graphs = x->n_graphs;
    for (int32_t i = 0; i < 6; i++) {
        ask(e, 60, m->arch.vocab);
        ask(e, 100, m->arch.vocab);
    }
    vt_engine_copy_stats(e, &full);
    assert_int_equal(full.held.graphs, then.held.graphs);
    assert_true(full.held.captures > then.held.captures);
    assert_int_equal(full.held.graph_host_bytes, 1000 * nodes_of(x));
    vt_engine_free(e);
    vt_model_free(m);
}

static size_t filled(const vt_trace_ring *r)
{
    uint64_t n = r ? atomic_load(&r->written) : 0;
    return r ? (n < r->capacity ? n : r->capacity) * r->event_bytes : 0;
}

/* The recorder's memory is that of the engine's rings and of the executor's. A thread samples the
 * GPU meanwhile, so its ring may have grown between two readings. */
static void test_recorder_bytes_are_those_of_all_rings(void **state)
{
    (void)state;
    vt_model *m = open_model();
    cuda_executor *x;
    vt_source s[2];
    vt_engine_stats stats;
    vt_engine *e = open_small(m, &x);
    ask(e, 12, m->arch.vocab);
    assert_int_equal(vt_engine_sources(e, s, 2), 2);
    size_t samples = filled(s[1].samples);
    vt_engine_copy_stats(e, &stats);
    size_t engine = filled(s[0].requests) + filled(s[0].tokens) + filled(s[0].writes) +
                    filled(s[0].steps) + filled(s[0].prompt_steps) + filled(s[0].seqs) +
                    filled(s[0].samples),
           gpu = filled(s[1].launches) + filled(s[1].uses) + filled(&s[1].spans->prompts);
    for (int i = 0; i < VT_SPAN_LEVELS; i++)
        gpu += filled(&s[1].spans->level[i]);
    assert_int_equal(filled(s[1].launches), 3 * sizeof(vt_launch_event)); /* three steps */
    assert_in_range(stats.recorder_bytes, engine + gpu + samples,
                    engine + gpu + filled(s[1].samples));
    vt_engine_free(e);
    vt_model_free(m);
}

static void test_graphs_when_a_capture_fails_then_it_is_tried_again_later(void **state)
{
    (void)state;
    vt_model *m = open_model();
    cuda_executor *x;
    void (*refuse)(uint64_t) = NULL;
    const char *(*call_name)(size_t) = NULL;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    *(void **)&refuse = dlsym(driver, "emu_refuse");
    *(void **)&call_name = dlsym(driver, "emu_call_name");
    assert_true(refuse && call_name);
    vt_engine *e = open_small(m, &x); /* an undisturbed run tells which call begins a capture */
    size_t begin = 0, from = 0;
    int32_t before = x->n_graphs;
    while (call_name(from + 1))
        from++;
    answer first = ask(e, 12, m->arch.vocab);
    assert_true(x->n_graphs > before);
    for (size_t i = from + 1; call_name(i) && begin == 0; i++)
        if (strcmp(call_name(i), "cuStreamBeginCapture") == 0)
            begin = i - from;
    assert_true(begin > 0);
    vt_engine_free(e);
    e = open_small(m, &x);
    x->retry_steps = 4;
    refuse(begin);
    answer now = ask(e, 12, m->arch.vocab); /* steps 0 to 2; the first fails to capture */
    assert_memory_equal(&now, &first, sizeof now);
    assert_int_equal(x->n_graphs, before);
    ask(e, 12, m->arch.vocab); /* steps 3 to 5: the prefill comes too early */
    assert_false(has_tokens(x, 16));
    ask(e, 12, m->arch.vocab);
    assert_true(has_tokens(x, 16));
    vt_engine_free(e);
    vt_model_free(m);
}

/* ---- steps that are timed ---- */

/* An observer beside the executor's own: has the step number `apart` run call by call, and counts
 * the marks and the calls that are launched one by one. */
typedef struct apart_observer {
    vt_observer base;
    int32_t apart, steps, ends, marks, calls[8]; /* calls[step] */
} apart_observer;

static bool apart_begin(vt_observer *o, const vt_step *step)
{
    (void)step;
    apart_observer *a = (apart_observer *)o;
    return a->steps++ == a->apart;
}

static vt_status apart_mark(vt_observer *o, vt_mark_kind kind, int64_t value, vt_err *err)
{
    (void)value;
    (void)err;
    apart_observer *a = (apart_observer *)o;
    a->marks++;
    a->calls[a->steps - 1] += kind == VT_MARK_CALL;
    return VT_OK;
}

static vt_status apart_end(vt_observer *o, vt_step_result *view, vt_err *err)
{
    (void)view;
    (void)err;
    ((apart_observer *)o)->ends++;
    return VT_OK;
}

static int32_t apart_sources(const vt_observer *o, vt_source *out, int32_t max)
{
    (void)o;
    if (max > 0)
        *out = (vt_source){.name = "apart", .kind = VT_SOURCE_STREAM};
    return 1;
}

/* Asks with the first decode apart, and with no step that the recorder of spans wants apart. */
static apart_observer ask_apart(vt_engine *e, cuda_executor *x, answer *out, int32_t vocab)
{
    apart_observer a = {.base = {.begin = apart_begin,
                                 .mark = apart_mark,
                                 .end = apart_end,
                                 .sources = apart_sources},
                        .apart = 1};
    x->options.untimed = true;
    x->observers.one[x->observers.n++] = &a.base;
    *out = ask(e, 12, vocab);
    x->observers.n--;
    return a;
}

/* Launches that the recorder of spans has as having run call by call. */
static int32_t timed_launches(const cuda_executor *x)
{
    enum { MAX = 64 };
    vt_source from;
    vt_launch_event e[MAX];
    int32_t timed = 0;
    assert_int_equal(vt_observers_sources(&x->observers, &from, 1), 1);
    uint64_t n = vt_trace_copy(from.launches, e, MAX);
    for (uint64_t i = 0; i < n; i++)
        timed += e[i].timed;
    return timed;
}

static void test_observers_when_there_are_two_then_each_sees_every_step(void **state)
{
    (void)state;
    vt_model *m = open_model();
    cuda_executor *x;
    answer out;
    vt_source from[2];
    vt_engine *e = open_small(m, &x);
    int32_t before = timed_launches(x);
    apart_observer a = ask_apart(e, x, &out, m->arch.vocab);
    assert_true(a.steps > 2);
    assert_int_equal(a.ends, a.steps);
    assert_true(a.marks > 4 * a.steps);
    assert_true(a.calls[1] > 8);
    /* the other one, which did not ask, was told; and it leaves out the step behind as well */
    assert_int_equal(timed_launches(x), before + 2);
    x->observers.one[x->observers.n++] = &a.base;
    assert_int_equal(vt_observers_sources(&x->observers, NULL, 0), 2);
    assert_int_equal(vt_observers_sources(&x->observers, from, 2), 2);
    assert_string_equal(from[0].name, "rank 0");
    assert_string_equal(from[1].name, "apart");
    x->observers.n--;
    vt_engine_free(e);
    vt_model_free(m);
}

static void test_graphs_when_a_decode_was_timed_then_the_next_restores_the_overlap(void **state)
{
    (void)state;
    vt_model *m = open_model();
    cuda_executor *x;
    vt_engine *e = open_small(m, &x);
    answer first, again;
    apart_observer a = ask_apart(e, x, &first, m->arch.vocab); /* the prefill has no graph yet */
    assert_true(a.calls[1] > 8);
    assert_int_equal(a.calls[2], 0);
    a = ask_apart(e, x, &again, m->arch.vocab);
    assert_int_equal(a.calls[0], 0);
    assert_true(a.calls[1] > 8);
    assert_int_equal(a.calls[2], 2); /* of three: a norm is left out */
    assert_memory_equal(&again, &first, sizeof again);
    assert_true(x->overlapping && !x->restore);
    vt_engine_free(e);
    vt_model_free(m);
}

/* ---- steps that are stamped ---- */

/* Steps of all kinds, some of which are stamped, in graphs and without. */
static void test_stamps_when_on_then_answers_are_bitwise_those_without(void **state)
{
    (void)state;
    vt_model *m = open_model();
    vt_cuda_options plain = {.graphs = true, .pdl = true, .untimed = true},
                    stamps = {.graphs = true, .pdl = true, .stamps = true, .story = true};
    outcome *a = run(m, &plain, SHORT), *b = run(m, &stamps, SHORT);
    stamps.graphs = false;
    outcome *c = run(m, &stamps, SHORT);
    assert_memory_equal(a->answer, b->answer, sizeof a->answer);
    assert_memory_equal(a->answer, c->answer, sizeof a->answer);
    assert_true(b->n_kernels > a->n_kernels); /* the twins */
    free(a);
    free(b);
    free(c);
    vt_model_free(m);
}

/* Checks the stamps of the step that was read last: here kernels run one after the other. Two of
 * its launches stamp their ends: the last one of each piece. Returns how many calls it has. */
static int32_t check_stamps(const cuda_executor *x)
{
    const stamped_step *step = &x->stamped.step[0];
    step += x->stamped.step[1].number > step->number;
    const cuda_stamps *s = &step->stamps;
    uint64_t last = 0;
    int32_t calls = 0, ends = 0;
    assert_true(s->n_notes > 8 && !step->pending);
    for (int32_t i = 0; i < s->n_notes; i++) {
        const cuda_stamp_note *note = &s->note[i];
        cuda_stamp at = cuda_stamps_read(step->copy, note);
        assert_true(0 < at.begin && at.begin <= at.before);
        assert_true(note->launch > 0 || last <= at.begin);
        assert_true(!at.end || at.before <= at.end);
        assert_true(i == 0 || note->call >= s->note[i - 1].call);
        assert_null(strstr(vt_jit_name(x->cuda->jit, note->kernel), JIT_STAMPED));
        calls += note->launch == 0;
        ends += at.end > 0;
        last = at.end ? at.end : at.before;
    }
    assert_int_equal(ends, 2);
    return calls;
}

/* Launches that the recorder of spans has as stamped. */
static int32_t stamped_launches(const cuda_executor *x)
{
    enum { MAX = 64 };
    vt_source from;
    vt_launch_event e[MAX];
    int32_t stamped = 0;
    assert_int_equal(vt_observers_sources(&x->observers, &from, 1), 1);
    assert_null(from.no_stamps);
    uint64_t n = vt_trace_copy(from.launches, e, MAX);
    for (uint64_t i = 0; i < n; i++) {
        assert_false(e[i].timed);
        stamped += e[i].stamped;
    }
    return stamped;
}

/* With one place for graphs, a step's pieces displace each other's and run call by call. */
static void test_stamps_when_a_decode_is_stamped_then_every_kernel_of_its_graph_is(void **state)
{
    (void)state;
    vt_model *m = open_model();
    vt_cuda_options options = {.graphs = true, .pdl = true, .stamps = true, .story = true};
    for (int32_t places = MAX_STAMPED; places > 0; places -= MAX_STAMPED - 1) {
        cuda_executor *x;
        vt_engine *e = open_small_with(m, &options, &x);
        assert_true(x->stamped.on);
        x->stamped.max_graphs = places;
        ask(e, 12, m->arch.vocab); /* the prefill, and the first decode */
        assert_int_equal(stamped_launches(x), 2);
        /* all calls but the attention of prompts, and two norms that linears make */
        assert_int_equal(check_stamps(x), x->prog->n_calls - x->prog->n_before - 3);
        assert_int_equal(x->stamped.n_graphs, places == 1 ? 1 : 4);
        assert_int_equal(vt_executor_value(&x->base, "late_compiles", -1), 0);
        vt_engine_free(e);
    }
    vt_model_free(m);
}

/* An observer that lets the device end the uploads and wait for the host. */
typedef struct late_host {
    vt_observer base;
    const cuda_executor *x;
} late_host;

enum { LATE_NS = 20000000 };

static bool late_begin(vt_observer *o, const vt_step *step)
{
    (void)o, (void)step;
    return false;
}

static vt_status late_mark(vt_observer *o, vt_mark_kind kind, int64_t value, vt_err *err)
{
    const cuda_executor *x = ((late_host *)o)->x;
    (void)value, (void)err;
    if (kind != VT_MARK_UPLOADED)
        return VT_OK;
    assert_int_equal(x->cuda->driver.stream_sync(x->lane.stream), 0);
    for (int64_t until = vt_now_ns() + LATE_NS; vt_now_ns() < until;)
        ;
    return VT_OK;
}

static vt_status late_end(vt_observer *o, vt_step_result *view, vt_err *err)
{
    (void)o, (void)view, (void)err;
    return VT_OK;
}

/* The first call begins with its first CTA: what the device waited for the launch is none of its
 * time. */
static void test_stamps_when_the_host_launches_late_then_no_call_is_blamed(void **state)
{
    enum { MAX = 8, SPANS = 512 };
    (void)state;
    vt_model *m = open_model();
    vt_cuda_options options = {.graphs = true, .pdl = true, .stamps = true, .story = true};
    cuda_executor *x;
    vt_launch_event launch[MAX];
    vt_span span[SPANS];
    vt_source from;
    vt_engine *e = open_small_with(m, &options, &x);
    late_host late = {.base = {.begin = late_begin, .mark = late_mark, .end = late_end}, .x = x};
    x->observers.one[x->observers.n++] = &late.base;
    ask(e, 12, m->arch.vocab); /* the prefill, and the first decode, are stamped */
    x->observers.n--;
    assert_int_equal(vt_observers_sources(&x->observers, &from, 1), 1);
    uint64_t n = vt_trace_copy(from.launches, launch, MAX);
    assert_true(n >= 2 && launch[0].stamped && launch[1].stamped);
    for (int i = 0; i < 2; i++) {
        const vt_launch_event *l = &launch[i];
        assert_true(l->launch_ns >= LATE_NS - 1000); /* two clocks that count in steps */
        uint64_t n_spans = vt_spans_copy(from.spans, span, SPANS), k = 0;
        while (k < n_spans && !(span[k].kind == VT_SPAN_BASE && span[k].base.step == l->step))
            k++;
        assert_true(k + 1 < n_spans && span[k + 1].kind == VT_SPAN_CALL);
        assert_int_equal(span[k + 1].call.begin_ns, l->move_ns[VT_MOVE_TO_DEVICE] + l->launch_ns);
    }
    vt_engine_free(e);
    vt_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_graphs_when_on_then_answers_are_bitwise_those_without),
        cmocka_unit_test(
            test_graphs_when_steps_verify_guesses_then_answers_are_bitwise_those_without),
        cmocka_unit_test(
            test_graphs_when_products_are_cublaslts_then_answers_are_bitwise_those_without),
        cmocka_unit_test(test_graphs_when_the_cache_is_full_then_the_least_recent_goes),
        cmocka_unit_test(test_graphs_when_captured_then_the_engine_tells_them_and_their_memory),
        cmocka_unit_test(test_recorder_bytes_are_those_of_all_rings),
        cmocka_unit_test(test_graphs_when_a_capture_fails_then_it_is_tried_again_later),
        cmocka_unit_test(test_observers_when_there_are_two_then_each_sees_every_step),
        cmocka_unit_test(test_graphs_when_a_decode_was_timed_then_the_next_restores_the_overlap),
        cmocka_unit_test(test_stamps_when_on_then_answers_are_bitwise_those_without),
        cmocka_unit_test(test_stamps_when_a_decode_is_stamped_then_every_kernel_of_its_graph_is),
        cmocka_unit_test(test_stamps_when_the_host_launches_late_then_no_call_is_blamed),
    };
    return cmocka_run_group_tests(tests, emulated_gpu_open, NULL);
}
