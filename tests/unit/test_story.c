/* Stories of artificial recordings, in which every number is known beforehand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "exec/describe.h"
#include "model/load.h"
#include "ops/bench/bench_one.h"
#include "ops/shape_of.h"
#include "story/predict.h"
#include "story/record/record.h"
#include "story/story.h"

enum { MAX_EVENTS = 20000, PROMPT = 20, MS = 1000000 };

enum { ENGINE, WORKER_0, WORKER_1, SOURCES };

/* An artificial recording: one request of PROMPT tokens, two workers. */
typedef struct fake {
    story_input in;
    story_source source[SOURCES];
    vt_trace_ring requests, steps, spans[2];
    vt_described described;
    story_step *plan;
    uint64_t n_step;
    int64_t late_ns; /* how late the first token is published */
} fake;

static void end_step(fake *f, uint64_t id, uint64_t request, int32_t q_len, int32_t kv_len,
                     int64_t begin, int64_t end)
{
    vt_trace_step(&f->steps, &(vt_step_ran){.step = id,
                                            .begin_ns = begin,
                                            .end_ns = end,
                                            .n_tokens = q_len,
                                            .n_seqs = 1,
                                            .n_decode = q_len == 1,
                                            .pages_held = 2,
                                            .pages_free = 6});
    vt_trace_seq(&f->steps, id, request, q_len, kv_len, 0);
}

/* A step of one sequence whose device time [begin, end) is divided equally among the calls. In each
 * call a worker works for nine tenths of the time and waits for one tenth. */
static void add_step(fake *f, uint64_t request, int32_t q_len, int32_t kv_len, int64_t begin,
                     int64_t end)
{
    uint64_t id = ++f->n_step;
    const vt_program *p = story_step_program(f->plan);
    story_seq seq = {.q_len = q_len, .kv_len = kv_len, .n_rows = kv_len >= PROMPT};
    assert_int_equal(story_step_set(f->plan, &seq, 1, NULL), VT_OK);
    int32_t n_active = 0, at = 0;
    for (int32_t w = 0; w < 2; w++)
        vt_trace_base(&f->spans[w], id, begin);
    for (int32_t i = 0; i < p->n_calls; i++)
        n_active += story_step_impl(f->plan, i) != NULL;
    for (int32_t i = 0; i < p->n_calls; i++) {
        if (!story_step_impl(f->plan, i))
            continue;
        int64_t from = begin + (end - begin) * at / n_active,
                to = begin + (end - begin) * (at + 1) / n_active;
        for (int32_t w = 0; w < 2; w++) {
            int64_t ran = to - (to - from) / 10;
            vt_trace_call(&f->spans[w], begin, i, from, ran);
            vt_trace_wait(&f->spans[w], begin, i, ran, to);
        }
        at++;
    }
    end_step(f, id, request, q_len, kv_len, begin, end);
}

/* The request arrives at 1 ms. Its prefill lasts from 3 to 13 ms. Decodes take 5 ms with 1 ms
 * between them. It is done 1 ms after the last. */
static void tell_plain(fake *f, int32_t n_decode)
{
    int64_t at = 13 * MS;
    vt_trace_arrive(&f->requests, 7, 1 * MS, PROMPT, 0);
    vt_trace_match(&f->requests, 7, 2 * MS, 2 * MS + 5000, 0, 0);
    add_step(f, 7, PROMPT, PROMPT, 3 * MS, at);
    vt_trace_token(&f->requests, 7, at + f->late_ns, f->n_step, 0, 42);
    for (int32_t i = 0; i < n_decode; i++) {
        add_step(f, 7, 1, PROMPT + 1 + i, at + MS, at + 6 * MS);
        at += 6 * MS;
        vt_trace_token(&f->requests, 7, at + 1000, f->n_step, i + 1, 43);
    }
    vt_trace_finish(&f->requests, 7, at + MS, VT_END_MAX_TOKENS, n_decode + 1);
}

static void *copy(const vt_trace_ring *r, uint64_t *n)
{
    void *out = calloc(MAX_EVENTS, r->event_bytes);
    assert_non_null(out);
    *n = vt_trace_copy(r, out, MAX_EVENTS);
    assert_true(*n < MAX_EVENTS);
    return out;
}

static void forget(fake *f)
{
    free((void *)f->source[ENGINE].request);
    free((void *)f->source[ENGINE].step);
    for (int w = 0; w < 2; w++)
        free((void *)f->source[WORKER_0 + w].span);
    memset(f->source, 0, sizeof f->source);
}

/* The sources, with copies of the rings' contents. `lost`: how many spans of worker 0 are
 * missing. */
static void collect(fake *f, uint64_t lost)
{
    forget(f);
    story_source *e = &f->source[ENGINE];
    e->is = (vt_source){.name = "engine", .kind = VT_SOURCE_ENGINE};
    e->request = copy(&f->requests, &e->n_requests);
    e->step = copy(&f->steps, &e->n_steps);
    for (int i = 0; i < 2; i++) {
        story_source *w = &f->source[WORKER_0 + i];
        w->is = (vt_source){.kind = VT_SOURCE_WORKER, .device = {.level = "portable"}};
        vt_span *spans = copy(&f->spans[i], &w->n_spans);
        uint64_t gone = i == 0 ? lost : 0;
        w->n_spans -= gone;
        memmove(spans, spans + gone, w->n_spans * sizeof *spans);
        w->span = spans;
    }
}

static int setup(void **state)
{
    fake *f = calloc(1, sizeof *f);
    vt_model *m = NULL;
    *state = f;
    if (!f || vt_cpu_init(NULL) != VT_OK || vt_model_load_dummy("smollm2-135m", &m, NULL) != VT_OK)
        return -1;
    f->in.model = m;
    vt_limits limits = {.max_tokens = 64,
                        .max_seqs = 4,
                        .max_rows = 64,
                        .max_context = 512,
                        .page_size = 16,
                        .n_workers = 2};
    vt_target target = vt_target_cpu(VT_ISA_PORTABLE, &limits);
    if (vt_describe(m, &target, VT_F16, &f->described, NULL) != VT_OK)
        return -1;
    f->in.program = f->described.program;
    f->in.source = f->source;
    f->in.n_sources = SOURCES;
    f->in.device = "cpu";
    f->in.n_pages = 8;
    f->in.event_cost_ns = 25;
    f->in.roofs = (vt_roofs){.name = "a machine of the test",
                             .memory_bytes_per_s = 20e9,
                             .fp32_per_s = 100e9,
                             .int8_per_s = 400e9,
                             .threads = 2};
    if (vt_trace_init(&f->requests, sizeof(vt_request_event), MAX_EVENTS, NULL) != VT_OK ||
        vt_trace_init(&f->steps, sizeof(vt_step_event), MAX_EVENTS, NULL) != VT_OK)
        return -1;
    for (int w = 0; w < 2; w++)
        if (vt_trace_init(&f->spans[w], sizeof(vt_span), MAX_EVENTS, NULL) != VT_OK)
            return -1;
    return story_step_new(f->in.program, 64, 4, &f->plan, NULL) == VT_OK ? 0 : -1;
}

static int teardown(void **state)
{
    fake *f = *state;
    story_step_free(f->plan);
    vt_described_release(&f->described);
    vt_model_free((vt_model *)f->in.model);
    forget(f);
    vt_trace_release(&f->requests);
    vt_trace_release(&f->steps);
    for (int w = 0; w < 2; w++)
        vt_trace_release(&f->spans[w]);
    free(f);
    return 0;
}

static json_t *tell_without(fake *f, vt_request_id id, uint64_t lost)
{
    char *text = NULL;
    size_t len = 0;
    vt_err err = {0};
    collect(f, lost);
    if (story_build(&f->in, id, &text, &len, NULL, &err) != VT_OK)
        fail_msg("%s", err.message);
    json_t *story = json_loadb(text, len, 0, NULL);
    free(text);
    assert_non_null(story);
    return story;
}

static json_t *tell(fake *f, vt_request_id id) { return tell_without(f, id, 0); }

static double value(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    assert_non_null(v);
    return json_number_value(json_is_object(v) ? json_object_get(v, "value") : v);
}

#define NEAR(a, b) assert_true(fabs((a) - (b)) <= 1e-3 * fabs(b))

static void test_story_times_when_known_then_exact(void **state)
{
    fake *f = *state;
    tell_plain(f, 4);
    json_t *s = tell(f, 7);
    const json_t *q = json_object_get(s, "request");
    NEAR(value(q, "total_ms"), 37.0);
    NEAR(value(q, "queue_ms"), 2.0);
    NEAR(value(q, "steps_ms"), 10.0 + 4 * 5.0);
    NEAR(value(q, "waits_ms"), 4.0);
    NEAR(value(q, "tail_ms"), 1.0);
    NEAR(value(q, "ttft_ms"), 12.0);
    NEAR(value(q, "itl_p50_ms"), 6.0);
    assert_int_equal(value(q, "completion_tokens"), 5);
    const json_t *p = json_array_get(json_object_get(s, "phases"), 0);
    const json_t *d = json_array_get(json_object_get(s, "phases"), 1);
    assert_int_equal(value(p, "tokens"), PROMPT);
    assert_int_equal(value(d, "steps"), 4);
    assert_int_equal(value(d, "timed_steps"), 4);
    NEAR(value(d, "step_us"), 5000.0);
    NEAR(value(d, "ops_us"), 5000.0);
    assert_true(fabs(value(d, "unexplained")) < 1e-3);
    json_decref(s);
}

/* One step of 2 s among twenty of 5 ms: before, the table told of steps of 100 ms. */
static void
test_story_when_one_step_is_interrupted_then_the_table_tells_the_typical_one(void **state)
{
    fake *f = *state;
    int64_t at = 13 * MS;
    vt_trace_arrive(&f->requests, 7, 1 * MS, PROMPT, 0);
    add_step(f, 7, PROMPT, PROMPT, 3 * MS, at);
    vt_trace_token(&f->requests, 7, at, f->n_step, 0, 42);
    for (int32_t i = 0; i < 21; i++) {
        int64_t length = i == 10 ? 2000 * MS : 5 * MS;
        add_step(f, 7, 1, PROMPT + 1 + i, at, at + length);
        at += length;
        vt_trace_token(&f->requests, 7, at, f->n_step, i + 1, 43);
    }
    json_t *s = tell(f, 7);
    const json_t *d = json_array_get(json_object_get(s, "phases"), 1),
                 *slow = json_object_get(s, "slow_tokens");
    assert_int_equal(value(d, "timed_steps"), 21);
    assert_int_equal(value(d, "typical_steps"), 11);
    NEAR(value(d, "step_us"), 5000.0);
    NEAR(value(d, "ops_us"), 5000.0);
    NEAR(value(json_object_get(s, "request"), "itl_p50_ms"), 5.0);
    assert_int_equal(value(slow, "count"), 1);
    assert_int_equal(value(slow, "not_known"), 1);
    assert_int_equal(value(json_array_get(json_object_get(slow, "tokens"), 0), "token"), 11);
    json_decref(s);
}

static void test_story_ops_when_costed_then_bytes_are_the_models(void **state)
{
    fake *f = *state;
    tell_plain(f, 2);
    json_t *s = tell(f, 7), *op;
    size_t i;
    double weights = 0, kv = 0, calls = 0;
    json_array_foreach(json_object_get(json_array_get(json_object_get(s, "phases"), 1), "ops"), i,
                       op)
    {
        weights += value(json_object_get(op, "expected_bytes"), "weights");
        kv += value(json_object_get(op, "expected_bytes"), "kv");
        calls += value(op, "calls");
    }
    /* The embedding is also the head, so nearly all weights are read once. */
    assert_true(weights > 0.98 * (double)f->in.model->weight_bytes);
    assert_true(weights < 1.02 * (double)f->in.model->weight_bytes);
    /* 30 layers, K and V, 3 heads of 64, 2 bytes: one token written, 21 and 22 read. */
    NEAR(kv, 30 * 2 * 3 * 64 * 2 * (1 + 21.5));
    assert_true(calls > 200);
    json_decref(s);
}

static const json_t *op_named(const json_t *phase, const char *kind)
{
    size_t i;
    json_t *op;
    json_array_foreach(json_object_get(phase, "ops"), i, op)
    {
        if (strcmp(json_string_value(json_object_get(op, "kind")), kind) == 0)
            return op;
    }
    fail_msg("no op %s", kind);
    return NULL;
}

/* A prompt in four chunks of 2 tokens, which move weights, and one of 12, which computes. Alone the
 * last is the longest; the four are longer together, so memory binds most of the work. */
static void test_story_bound_of_an_op_is_that_of_most_of_its_work(void **state)
{
    fake *f = *state;
    vt_trace_arrive(&f->requests, 7, 1 * MS, PROMPT, 0);
    for (int32_t i = 0; i < 5; i++)
        add_step(f, 7, i < 4 ? 2 : 12, i < 4 ? 2 * i + 2 : PROMPT, (100 * i + 100) * MS,
                 (100 * i + 200) * MS);
    json_t *s = tell(f, 7);
    const json_t *p = json_array_get(json_object_get(s, "phases"), 0);
    const json_t *op = op_named(p, "linear.gate+up");
    assert_int_equal(value(p, "timed_steps"), 5);
    assert_string_equal(json_string_value(json_object_get(op, "bound")), "memory");
    NEAR(value(op, "of_roof"), value(op, "floor_us") / value(op, "time_us"));
    json_decref(s);
}

static void test_story_when_old_calls_overwritten_then_said(void **state)
{
    fake *f = *state;
    tell_plain(f, 3);
    json_t *s = tell_without(f, 7, 100); /* the first 100 spans of the prefill are gone */
    assert_int_equal(value(json_array_get(json_object_get(s, "phases"), 0), "timed_steps"), 0);
    assert_int_equal(value(json_array_get(json_object_get(s, "phases"), 1), "timed_steps"), 3);
    char *not_measured = json_dumps(json_object_get(s, "not_measured"), 0);
    assert_non_null(strstr(not_measured, "op calls of some steps"));
    free(not_measured);
    json_decref(s);
}

/* Two calls of a decode step in the spans of two workers. Worker 0 sleeps after the barrier of the
 * first call, from 1 ms to 9 ms. Meanwhile worker 1 runs the second call and then waits for worker
 * 0. */
static void add_descheduled(fake *f, int32_t first, int32_t second, bool sleeps)
{
    int64_t begin = 100 * MS, wake = sleeps ? 9 * MS : MS, end = begin + wake + 3 * MS;
    uint64_t id = ++f->n_step;
    const int64_t met[2] = {begin + wake, begin + MS}, ran[2] = {end, begin + 4 * MS};
    for (int w = 0; w < 2; w++) {
        vt_trace_base(&f->spans[w], id, begin);
        vt_trace_call(&f->spans[w], begin, first, begin, begin + MS - 1000 * w);
        vt_trace_wait(&f->spans[w], begin, first, begin + MS - 1000 * w, met[w]);
        vt_trace_call(&f->spans[w], begin, second, met[w], ran[w]);
        vt_trace_wait(&f->spans[w], begin, second, ran[w], end);
    }
    end_step(f, id, 7, 1, PROMPT + 1, begin, end);
}

static int32_t call_of(const fake *f, const char *label)
{
    const vt_program *p = f->in.program;
    for (int32_t i = 0; i < p->n_calls; i++)
        if (strcmp(p->call[i].label, label) == 0)
            return i;
    fail_msg("no call %s", label);
    return -1;
}

/* Before, an op's time was worker 0's own: rmsnorm.final took 9 ms, and linear.head nothing. */
static void test_story_when_a_worker_sleeps_at_a_barrier_then_no_op_beats_its_roof(void **state)
{
    fake *f = *state;
    vt_trace_arrive(&f->requests, 7, 1 * MS, PROMPT, 0);
    add_descheduled(f, call_of(f, "rmsnorm.final"), call_of(f, "linear.head"), true);
    json_t *s = tell(f, 7), *op;
    const json_t *d = json_array_get(json_object_get(s, "phases"), 0);
    size_t i;
    assert_int_equal(value(d, "timed_steps"), 1);
    json_array_foreach(json_object_get(d, "ops"), i, op)
    {
        bool head = strcmp(json_string_value(json_object_get(op, "kind")), "linear.head") == 0;
        NEAR(value(op, "time_us"), head ? 11000.0 : 1000.0);
        assert_true(value(op, "of_roof") < 1);
    }
    NEAR(value(d, "ops_us"), 12000.0);
    assert_true(fabs(value(d, "unexplained")) < 0.02);
    json_decref(s);
}

/* A decode step of two calls: the final norm takes 10 us, the head 20 ms, and nothing `idle_ns`. */
static void add_head(fake *f, int64_t begin, int64_t idle_ns)
{
    int32_t call[2] = {call_of(f, "rmsnorm.final"), call_of(f, "linear.head")};
    int64_t border[3] = {begin, begin + 10000, begin + 10000 + 20 * MS};
    uint64_t id = ++f->n_step;
    for (int w = 0; w < 2; w++) {
        vt_trace_base(&f->spans[w], id, begin);
        for (int i = 0; i < 2; i++) {
            vt_trace_call(&f->spans[w], begin, call[i], border[i], border[i + 1]);
            vt_trace_wait(&f->spans[w], begin, call[i], border[i + 1], border[i + 1]);
        }
    }
    end_step(f, id, 7, 1, PROMPT + 1, begin, border[2] + idle_ns);
}

/* A worker whose spans tell of other calls than worker 0's: the step has no op times. */
static void test_story_when_workers_disagree_then_step_is_not_timed(void **state)
{
    fake *f = *state;
    vt_trace_arrive(&f->requests, 7, 1 * MS, PROMPT, 0);
    add_descheduled(f, call_of(f, "rmsnorm.final"), call_of(f, "linear.head"), false);
    vt_trace_base(&f->spans[0], ++f->n_step, 200 * MS);
    vt_trace_base(&f->spans[1], f->n_step, 200 * MS);
    vt_trace_call(&f->spans[0], 200 * MS, 3, 200 * MS, 201 * MS);
    vt_trace_call(&f->spans[1], 200 * MS, 4, 200 * MS, 201 * MS);
    end_step(f, f->n_step, 7, 1, PROMPT + 2, 200 * MS, 201 * MS);
    json_t *s = tell(f, 7);
    const json_t *d = json_array_get(json_object_get(s, "phases"), 0);
    assert_int_equal(value(d, "steps"), 2);
    assert_int_equal(value(d, "timed_steps"), 1);
    assert_int_equal(value(d, "timed_kv_last"), PROMPT + 1);
    json_decref(s);
}

/* The first token is published 4 ms late. The gap after it is still that of the steps. */
static void test_story_when_a_token_is_published_late_then_gaps_are_the_devices(void **state)
{
    fake *f = *state;
    f->late_ns = 4 * MS;
    tell_plain(f, 2);
    json_t *s = tell(f, 7);
    const json_t *q = json_object_get(s, "request");
    NEAR(value(q, "ttft_ms"), 12.0);
    NEAR(value(q, "itl_p50_ms"), 6.0);
    NEAR(value(q, "itl_p99_ms"), 6.0);
    const char *headline = json_string_value(json_object_get(s, "headline"));
    assert_non_null(strstr(headline, "First token after 12.0 ms."));
    assert_null(strstr(headline, "then one every")); /* two decoded tokens do not tell a speed */
    json_decref(s);
}

static void test_story_when_three_tokens_decoded_then_headline_names_the_gap(void **state)
{
    fake *f = *state;
    tell_plain(f, 3);
    json_t *s = tell(f, 7);
    assert_non_null(strstr(json_string_value(json_object_get(s, "headline")),
                           "First token after 12.0 ms, then one every 6.00 ms."));
    json_decref(s);
}

/* Building a story is a pure function: it says that a roof was beaten and measures nothing. */
static void test_story_when_roof_beaten_then_said_and_left_alone(void **state)
{
    fake *f = *state;
    char *text[2] = {NULL};
    size_t len[2] = {0};
    bool beaten = false;
    f->in.roofs.measured = true;
    f->in.roofs.memory_bytes_per_s = 1e6;
    const vt_roofs before = f->in.roofs;
    tell_plain(f, 3);
    collect(f, 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(story_build(&f->in, 7, &text[i], &len[i], &beaten, NULL), VT_OK);
    assert_true(beaten);
    assert_memory_equal(&before, &f->in.roofs, sizeof before);
    assert_non_null(strstr(text[0], "roof.beaten"));
    f->in.roofs.memory_bytes_per_s = f->in.roofs.fp32_per_s = f->in.roofs.int8_per_s = 1e15;
    free(text[1]);
    assert_int_equal(story_build(&f->in, 7, &text[1], &len[1], &beaten, NULL), VT_OK);
    assert_false(beaten);
    assert_null(strstr(text[1], "roof.beaten"));
    free(text[0]);
    free(text[1]);
}

static void test_story_when_request_unknown_then_refused(void **state)
{
    fake *f = *state;
    char *text = NULL;
    size_t len = 0;
    vt_err err = {0};
    tell_plain(f, 1);
    collect(f, 0);
    assert_int_equal(story_build(&f->in, 8, &text, &len, NULL, &err), VT_ERR_USAGE);
    assert_non_null(strstr(err.message, "request 8"));
    assert_null(text);
}

static void test_story_when_about_all_then_every_step(void **state)
{
    fake *f = *state;
    tell_plain(f, 2);
    vt_trace_arrive(&f->requests, 9, 40 * MS, PROMPT, 0);
    add_step(f, 9, PROMPT, PROMPT, 41 * MS, 51 * MS);
    json_t *s = tell(f, 0);
    assert_true(json_is_null(json_object_get(s, "request")));
    assert_int_equal(value(json_array_get(json_object_get(s, "phases"), 0), "steps"), 2);
    assert_int_equal(value(json_array_get(json_object_get(s, "phases"), 0), "tokens"), 2 * PROMPT);
    assert_int_equal(value(json_array_get(json_object_get(s, "phases"), 1), "steps"), 2);
    json_decref(s);
}

static void test_story_when_ring_empty_then_still_a_story(void **state)
{
    fake *f = *state;
    json_t *s = tell(f, 0);
    assert_int_equal(json_array_size(json_object_get(s, "phases")), 0);
    json_decref(s);
}

static const json_t *finding(const json_t *story, const char *rule)
{
    size_t i;
    json_t *f;
    json_array_foreach(json_object_get(story, "findings"), i,
                       f) if (strcmp(json_string_value(json_object_get(f, "rule")), rule) ==
                              0) return f;
    return NULL;
}

static void test_findings_when_thresholds_passed_then_named(void **state)
{
    fake *f = *state;
    tell_plain(f, 4); /* gaps of 1 ms in 37: 11 %; a tenth of all time at barriers */
    json_t *s = tell(f, 7);
    assert_non_null(finding(s, "host.gaps"));
    assert_null(finding(s, "queue.share"));
    assert_null(finding(s, "itl.spread"));
    assert_null(finding(s, "time.unexplained"));
    assert_null(finding(s, "batch.shared"));
    /* Equal times for all calls: the small ones are far from their roof. */
    const json_t *gap = finding(s, "roof.gap");
    assert_non_null(gap);
    assert_non_null(json_object_get(gap, "evidence"));
    assert_non_null(strstr(json_string_value(json_object_get(gap, "threshold")), "35 %"));
    json_decref(s);
}

/* "35 % of the roof", the finding says: 40 % is no gap, 30 % is one. At 80 % memory binds. */
static void test_findings_gap_is_below_35_percent_of_the_roof(void **state)
{
    fake *f = *state;
    vt_trace_arrive(&f->requests, 7, 1 * MS, PROMPT, 0);
    add_head(f, 100 * MS, 0);
    f->in.roofs.fp32_per_s = f->in.roofs.int8_per_s = 1e15;
    for (int i = 0; i < 3; i++) {
        double want = (double[]){0.40, 0.30, 0.80}[i];
        json_t *s = tell(f, 7);
        f->in.roofs.memory_bytes_per_s *=
            value(op_named(json_array_get(json_object_get(s, "phases"), 0), "linear.head"),
                  "of_roof") /
            want;
        json_decref(s);
        s = tell(f, 7);
        const json_t *gap = finding(s, "roof.gap");
        assert_true(!!gap == (i == 1) && !!finding(s, "roof.memory") == (i == 2));
        gap = gap ? gap : finding(s, "share.outside"); /* both are about the head */
        assert_non_null(strstr(json_string_value(json_object_get(gap, "text")), "linear.head"));
        json_decref(s);
    }
}

/* With a planted efficiency for every class of shapes a call is expected to take its launch and its
 * work divided by the efficiency. Without one nothing is expected of it, nor of the step. */
static void test_story_expects_times_where_efficiencies_are_known(void **state)
{
    fake *f = *state;
    vt_efficiencies e = {0};
    char shape[VT_SHAPE_TEXT], key[VT_EFFICIENCY_KEY], missing[VT_EFFICIENCY_KEY] = "";
    vt_efficiency last = {0};
    f->in.efficiencies = &e;
    f->in.roofs.meeting_s = 1e-3;
    const story_seq decode = {1, PROMPT + 1, 1, 0};
    assert_int_equal(story_step_set(f->plan, &decode, 1, NULL), VT_OK);
    double work_s = 0, n = 0;
    for (int32_t i = 0; i < f->in.program->n_calls; i++) {
        vt_cost cost, extra;
        story_bound bound;
        const vt_call *c = &f->in.program->call[i];
        if (!story_step_cost(f->plan, i, &cost, &extra))
            continue;
        assert_true(isnan(story_expected_s(f->plan, i, &f->in.roofs, NULL)));
        assert_true(vt_shape_of(c->op, c->args, story_step_batch(f->plan), INT64_C(256) << 20, true,
                                shape));
        snprintf(key, sizeof key, "%s %s %s%s", c->op->name, story_step_impl(f->plan, i)->name,
                 shape, vt_bench_one_streams(c->op) ? " set=128M" : ""); /* the most */
        /* the same call, measured at a quarter of its roof */
        const vt_efficiency x = {
            .seconds = 1e-3 + 4 * story_work_s(&cost, &f->in.roofs, &bound),
            .bytes = (double)(cost.read.weights + cost.read.kv + cost.write.kv),
            .activations = (double)(cost.read.activations + cost.write.activations),
            .fp32 = (double)cost.flops.fp32,
            .bf16 = (double)cost.flops.bf16,
            .int8 = (double)cost.flops.int8};
        if (strcmp(c->op->name, "sample") == 0) {
            snprintf(missing, sizeof missing, "%s", key);
            last = x;
        } else {
            assert_true(vt_efficiency_add(&e, key, &x));
            assert_true(fabs(story_expected_s(f->plan, i, &f->in.roofs, &e) / x.seconds - 1) <
                        0.05);
        }
        work_s += story_work_s(&cost, &f->in.roofs, &bound);
        n++;
    }
    tell_plain(f, 2);
    json_t *s = tell(f, 7), *p = json_array_get(json_object_get(s, "phases"), 1);
    double without_us = value(p, "expected_us"); /* only the sampling's share is not known */
    json_t *left_out = json_object_get(p, "expected_without");
    assert_int_equal(json_array_size(left_out), 1);
    assert_string_equal(json_string_value(json_array_get(left_out, 0)), "sample");
    json_decref(s);
    assert_true(vt_efficiency_add(&e, missing, &last));
    s = tell(f, 7);
    p = json_array_get(json_object_get(s, "phases"), 1);
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(p, "expected_us"), "tag")), "modelled");
    assert_true(fabs(value(p, "expected_us") - 1e6 * (n * 1e-3 + 4 * work_s)) <
                0.05 * value(p, "expected_us"));
    assert_true(without_us > 0 && without_us < value(p, "expected_us"));
    assert_null(json_object_get(p, "expected_without"));
    json_decref(s);
    vt_efficiencies_release(&e);
}

/* Rows that stream weights or KV are not kept while the memory gives much less than its roof. Each
 * call of the step is measured once for its class. */
static void test_measured_rows_when_the_memory_is_starved_then_not_kept(void **state)
{
    fake *f = *state;
    vt_efficiencies e = {0};
    vt_roofs r = f->in.roofs;
    r.threads = 1;
    r.memory_bytes_per_s = 1e17; /* no machine reaches that now */
    const story_seq decode = {1, PROMPT + 1, 1, 0};
    assert_int_equal(story_step_set(f->plan, &decode, 1, NULL), VT_OK);
    assert_int_equal(story_measure_rows(f->plan, &r, -1, &e, NULL, NULL, NULL), VT_OK);
    int32_t n = 0;
    for (int32_t i = 0; i < e.n; i++)
        if (strstr(e.item[i].key, " set=")) {
            assert_false(e.item[i].steady);
            n++;
        }
    assert_true(n >= 5); /* qkv, attention, o, gate and up, down; the head */
    for (int32_t i = 0; i < f->in.program->n_calls; i++)
        if (story_step_impl(f->plan, i) && f->in.program->call[i].when != VT_WHEN_COPIES)
            assert_true(story_expected_s(f->plan, i, &r, &e) > 0);
    vt_efficiencies_release(&e);
}

/* Rows that several replicas run at once are measured so, and known under another name. */
static void test_measured_rows_when_replicas_share_the_cpu_then_by_their_number(void **state)
{
    fake *f = *state;
    vt_efficiencies e = {0};
    vt_roofs r = f->in.roofs;
    r.threads = 1;
    const story_seq decode = {1, PROMPT + 1, 1, 0};
    assert_int_equal(story_step_set(f->plan, &decode, 1, NULL), VT_OK);
    story_step_set_replicas(f->plan, 2);
    assert_int_equal(story_measure_rows(f->plan, &r, -1, &e, NULL, NULL, NULL), VT_OK);
    assert_true(e.n >= 5);
    for (int32_t i = 0; i < e.n; i++)
        assert_non_null(strstr(e.item[i].key, " teams=2"));
    assert_true(story_expected_s(f->plan, call_of(f, "L00.linear.qkv"), &r, &e) > 0);
    story_step_set_replicas(f->plan, 1);
    assert_true(isnan(story_expected_s(f->plan, call_of(f, "L00.linear.qkv"), &r, &e)));
    vt_efficiencies_release(&e);
}

/* A share is one of the ops' times: what lies outside of them is told apart, as unexplained. */
static void test_story_shares_when_half_of_a_step_is_unexplained_then_they_sum_to_one(void **state)
{
    fake *f = *state;
    vt_trace_arrive(&f->requests, 7, 1 * MS, PROMPT, 0);
    add_head(f, 100 * MS, 20 * MS);
    json_t *s = tell(f, 7);
    const json_t *d = json_array_get(json_object_get(s, "phases"), 0);
    NEAR(value(op_named(d, "linear.head"), "share") + value(op_named(d, "rmsnorm.final"), "share"),
         1.0);
    NEAR(value(d, "unexplained"), 0.5);
    json_decref(s);
}

/* A prompt of one token has no context to decode from: the prefill kernel runs it. */
static void test_step_when_a_prompt_has_one_token_then_it_is_a_prefill(void **state)
{
    fake *f = *state;
    const int32_t decode = call_of(f, "L00.attention_decode"),
                  prefill = call_of(f, "L00.attention_prefill");
    for (int32_t kv_len = 1; kv_len <= 2; kv_len++) {
        story_seq seq = {.q_len = 1, .kv_len = kv_len, .n_rows = 1};
        assert_int_equal(story_step_set(f->plan, &seq, 1, NULL), VT_OK);
        assert_int_equal(story_step_impl(f->plan, decode) != NULL, kv_len == 2);
        assert_int_equal(story_step_impl(f->plan, prefill) != NULL, kv_len == 1);
    }
}

static const json_t *event_named(const json_t *story, const char *name)
{
    size_t i;
    json_t *e;
    json_array_foreach(json_object_get(story, "timeline"), i, e)
    {
        if (strcmp(json_string_value(json_object_get(e, "event")), name) == 0)
            return e;
    }
    fail_msg("no event %s", name);
    return NULL;
}

/* Returns true if not_measured has it. */
static bool is_missing(const json_t *story, const char *what)
{
    size_t i;
    json_t *e;
    json_array_foreach(json_object_get(story, "not_measured"), i, e)
    {
        if (strcmp(json_string_value(json_object_get(e, "what")), what) == 0)
            return true;
    }
    return false;
}

static void assert_told(const json_t *story, const char *event, double at_ms, double ms,
                        const char *words)
{
    const json_t *e = event_named(story, event);
    NEAR(value(e, "at_ms") + 1, at_ms + 1);
    if (ms >= 0)
        NEAR(value(e, "ms"), ms);
    if (!strstr(json_string_value(json_object_get(e, "text")), words))
        fail_msg("%s: '%s'", event, json_string_value(json_object_get(e, "text")));
}

/* A request's way from the first byte of its body on, with a wait behind another's step. */
static void test_story_timeline_tells_the_way_before_the_first_step(void **state)
{
    fake *f = *state;
    add_step(f, 3, 16, 16, 1 * MS, 8 * MS);
    vt_trace_req_part(&f->requests, VT_REQ_PARSE, 7, 2 * MS, 3 * MS);
    vt_trace_req_part(&f->requests, VT_REQ_TEMPLATE, 7, 3 * MS, 4 * MS);
    vt_trace_tokenise(&f->requests, 7, 4 * MS, 5 * MS, PROMPT);
    vt_trace_arrive(&f->requests, 7, 5 * MS, PROMPT, 0);
    vt_trace_req_wait(&f->requests, 7, 0, 5 * MS, 8 * MS, VT_WAIT_PAGES, 2);
    vt_trace_match(&f->requests, 7, 8 * MS, 8 * MS + 5000, 18, 2);
    vt_trace_admit(&f->requests, 7, 8 * MS + 5000, 2);
    add_step(f, 7, 2, PROMPT, 9 * MS, 12 * MS);
    vt_trace_retract(&f->requests, 7, 13 * MS);
    vt_trace_evict(&f->requests, 14 * MS, 5, 1);
    vt_trace_req_part(&f->requests, VT_REQ_LATE_MASK, 7, 15 * MS, 17 * MS);
    vt_trace_masks(&f->requests, 7, 18 * MS, 4, 2, MS, MS / 2);
    vt_trace_finish(&f->requests, 7, 20 * MS, VT_END_MAX_TOKENS, 1);
    json_t *s = tell(f, 7);
    assert_told(s, "parse", 0, 1, "body");
    assert_told(s, "template", 1, 1, "one text");
    assert_told(s, "tokenise", 2, 1, "20 tokens, 20 tokens/ms");
    assert_told(s, "arrive", 3, -1, "20 prompt tokens");
    assert_told(s, "wait", 3, 3, "too few KV pages were free or could be evicted; behind step 1");
    assert_told(s, "match", 6, 0.005, "18 of 20 tokens found in the cache (1 whole page, 2 tokens");
    assert_told(s, "retract", 11, -1, "no page was left");
    assert_told(s, "evict", 12, -1, "5 pages that no running sequence used");
    assert_told(s, "evict", 12, -1, "room for the next page of a running sequence");
    assert_told(s, "mask", 13, 2, "takes long");
    const json_t *masks = json_object_get(json_object_get(s, "request"), "masks");
    assert_int_equal(value(masks, "late"), 1);
    NEAR(value(masks, "late_ms"), 2.0);
    NEAR(value(masks, "total_ms"), 1.0);
    NEAR(value(json_object_get(s, "request"), "before_ms"), 3.0);
    const json_t *prefix = json_object_get(s, "prefix"),
                 *miss = json_array_get(json_object_get(s, "transitions"), 0);
    assert_int_equal(value(prefix, "found_pages"), 1);
    assert_int_equal(value(prefix, "prompt_pages"), 2);
    /* 18 of 20 tokens: their linear layers alone are 2 FLOP a weight and token */
    assert_true(value(prefix, "saved_flops") > 18 * 2 * 100e6);
    assert_true(value(prefix, "saved_bytes") > 0 && value(prefix, "saved_ms") > 0);
    assert_string_equal(json_string_value(json_object_get(miss, "what")),
                        "hit -> miss at token 18 of 20");
    json_decref(s);
}

/* Of step 1 a fifth of publishing is making text; step 2 was recorded without that. */
static void test_story_timeline_tells_text_callbacks_and_writing_apart(void **state)
{
    fake *f = *state;
    vt_trace_arrive(&f->requests, 7, 1 * MS, PROMPT, 0);
    add_step(f, 7, PROMPT, PROMPT, 2 * MS, 10 * MS);
    vt_trace_publish(&f->steps, 1, 10 * MS, 10 * MS + MS / 5, 11 * MS);
    json_t *s = tell(f, 7);
    const json_t *per_step = json_object_get(json_array_get(json_object_get(s, "phases"), 0),
                                             "per_step");
    assert_told(s, "detokenise", 9, 0.2, "text of tokens: 200.0 us a step, over 1 step");
    assert_told(s, "publish", 9.2, 0.8, "callbacks");
    NEAR(value(per_step, "detokenise_us"), 200.0);
    NEAR(value(per_step, "publish_us"), 1000.0);
    assert_true(is_missing(s, "writing the text"));
    json_decref(s);
    add_step(f, 7, 1, PROMPT + 1, 12 * MS, 15 * MS);
    vt_trace_part_of(&f->steps, 2, VT_PART_PUBLISH, 15 * MS, 17 * MS);
    vt_trace_write(&f->requests, 7, 10 * MS, 19 * MS, 3 * MS, 1234);
    s = tell(f, 7);
    assert_told(s, "detokenise", 9, 0.2, "over 1 step");
    assert_told(s, "write", 9, 3, "1234 bytes given to the reader, in pieces over 9.0 ms");
    assert_false(is_missing(s, "writing the text"));
    json_decref(s);
}

/* Publishing step 1 takes 1 ms: half of it while step 2 is on the device. */
static void test_story_says_how_much_host_work_the_device_hid(void **state)
{
    fake *f = *state;
    vt_trace_arrive(&f->requests, 7, 1 * MS, PROMPT, 0);
    add_step(f, 7, PROMPT, PROMPT, 2 * MS, 10 * MS);
    add_step(f, 7, 1, PROMPT + 1, 10 * MS + MS / 2, 15 * MS);
    vt_trace_part_of(&f->steps, 1, VT_PART_PUBLISH, 10 * MS, 11 * MS);
    json_t *s = tell(f, 7);
    const json_t *p = json_array_get(json_object_get(s, "phases"), 0);
    NEAR(value(json_object_get(p, "per_step"), "publish_hidden"), 0.5);
    json_decref(s);
}

static void test_render_when_story_told_then_sections_within_width(void **state)
{
    fake *f = *state;
    static const char *const word[] = {"REQUEST 7", "PREFILL", "TRANSITION", "ONE DECODE STEP",
                                       "OBSERVER"};
    vt_term term = {.width = VT_TERM_WIDTH};
    vt_buf out = {0};
    char *text = NULL;
    size_t len = 0;
    tell_plain(f, 3);
    collect(f, 0);
    assert_int_equal(story_build(&f->in, 7, &text, &len, NULL, NULL), VT_OK);
    assert_int_equal(story_render("test", text, len, &term, &out, NULL), VT_OK);
    for (size_t i = 0; i < sizeof word / sizeof word[0]; i++)
        assert_non_null(strstr(out.data, word[i]));
    for (const char *p = out.data; *p;) {
        size_t n = strcspn(p, "\n");
        if (vt_text_width(p, n) > VT_TERM_WIDTH)
            fail_msg("wider than %d: %.*s", VT_TERM_WIDTH, (int)n, p);
        p += n + (p[n] == '\n');
    }
    free(text);
    vt_buf_release(&out);
}

static void test_plan_bind_when_impossible_then_refused(void **state)
{
    fake *f = *state;
    const story_seq bad[] = {{0, 1, 0, 0},   {2, 1, 0, 0},  {1, 9999, 1, 0}, {1, 5, 2, 0},
                             {65, 65, 1, 0}, {1, 16, 1, 1}, {1, 5, 1, -1}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(story_step_set(f->plan, &bad[i], 1, NULL), VT_ERR_USAGE);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_story_times_when_known_then_exact),
        TEST(test_story_when_one_step_is_interrupted_then_the_table_tells_the_typical_one),
        TEST(test_story_ops_when_costed_then_bytes_are_the_models),
        TEST(test_story_bound_of_an_op_is_that_of_most_of_its_work),
        TEST(test_story_when_old_calls_overwritten_then_said),
        TEST(test_story_when_a_worker_sleeps_at_a_barrier_then_no_op_beats_its_roof),
        TEST(test_story_when_workers_disagree_then_step_is_not_timed),
        TEST(test_story_when_a_token_is_published_late_then_gaps_are_the_devices),
        TEST(test_story_when_three_tokens_decoded_then_headline_names_the_gap),
        TEST(test_story_when_roof_beaten_then_said_and_left_alone),
        TEST(test_story_when_request_unknown_then_refused),
        TEST(test_story_when_about_all_then_every_step),
        TEST(test_story_when_ring_empty_then_still_a_story),
        TEST(test_findings_when_thresholds_passed_then_named),
        TEST(test_findings_gap_is_below_35_percent_of_the_roof),
        TEST(test_story_expects_times_where_efficiencies_are_known),
        TEST(test_measured_rows_when_replicas_share_the_cpu_then_by_their_number),
        TEST(test_measured_rows_when_the_memory_is_starved_then_not_kept),
        TEST(test_story_shares_when_half_of_a_step_is_unexplained_then_they_sum_to_one),
        TEST(test_step_when_a_prompt_has_one_token_then_it_is_a_prefill),
        TEST(test_story_timeline_tells_the_way_before_the_first_step),
        TEST(test_story_timeline_tells_text_callbacks_and_writing_apart),
        TEST(test_story_says_how_much_host_work_the_device_hid),
        TEST(test_render_when_story_told_then_sections_within_width),
        TEST(test_plan_bind_when_impossible_then_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
