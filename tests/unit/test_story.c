/* Stories of made-up recordings, whose every number is known beforehand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "model/load.h"
#include "exec/describe.h"
#include "story/record.h"
#include "story/story.h"

enum { MAX_EVENTS = 20000, PROMPT = 20, MS = 1000000 };

/* A recording that is being made up: one request of PROMPT tokens, one worker or two. */
typedef struct fake {
    story_input in;
    vt_trace_event *engine, *worker[2];
    vt_described described;
    story_step *plan;
    uint64_t n_step;
} fake;

static vt_trace_event *add(vt_trace_event *list, uint64_t *n, vt_trace_kind kind, uint64_t id,
                           int64_t begin, int64_t end)
{
    assert_true(*n < MAX_EVENTS);
    vt_trace_event *e = &list[(*n)++];
    *e = (vt_trace_event){.begin_ns = begin, .end_ns = end, .id = id, .kind = (uint16_t)kind};
    return e;
}

static void add_request(fake *f, uint64_t id, vt_trace_request what, int32_t b, int32_t c,
                        int64_t begin, int64_t end)
{
    vt_trace_event *e = add(f->engine, &f->in.n_engine, VT_TRACE_REQUEST, id, begin, end);
    e->a = what;
    e->b = b;
    e->c = c;
}

/* A step of one sequence whose device time [begin, end) is cut into equal calls; each worker works
 * for nine tenths of a call and waits for one. */
static void add_step(fake *f, uint64_t request, int32_t q_len, int32_t kv_len, int64_t begin,
                     int64_t end)
{
    uint64_t id = ++f->n_step;
    const vt_program *p = story_step_program(f->plan);
    story_seq seq = {.q_len = q_len, .kv_len = kv_len, .n_rows = kv_len >= PROMPT};
    assert_int_equal(story_step_set(f->plan, &seq, 1, NULL), VT_OK);
    int32_t n_active = 0, at = 0;
    for (int32_t i = 0; i < p->n_calls; i++)
        n_active += story_step_impl(f->plan, i) != NULL;
    for (int32_t i = 0; i < p->n_calls; i++) {
        if (!story_step_impl(f->plan, i))
            continue;
        int64_t from = begin + (end - begin) * at / n_active,
                to = begin + (end - begin) * (at + 1) / n_active;
        for (int32_t w = 0; w < f->in.n_workers; w++) {
            int64_t ran = to - (to - from) / 10;
            add(f->worker[w], &f->in.n_worker[w], VT_TRACE_CALL, id, from, ran)->a = i;
            add(f->worker[w], &f->in.n_worker[w], VT_TRACE_WAIT, id, ran, to)->a = i;
        }
        at++;
    }
    vt_trace_event *e = add(f->engine, &f->in.n_engine, VT_TRACE_STEP, id, begin, end);
    e->a = q_len;
    e->b = 1;
    e->c = q_len == 1;
    e = add(f->engine, &f->in.n_engine, VT_TRACE_STEP_SEQ, request, begin, end);
    e->a = (int32_t)id;
    e->b = q_len;
    e->c = kv_len;
    e = add(f->engine, &f->in.n_engine, VT_TRACE_MEMORY, id, end, end);
    e->a = 2;
    e->c = 6;
}

/* Arrives at 1 ms; prefill 3 to 13 ms; decodes of 5 ms with 1 ms between them; done 1 ms after the
 * last. */
static void tell_plain(fake *f, int32_t n_decode)
{
    int64_t at = 13 * MS;
    add_request(f, 7, VT_REQ_ARRIVE, PROMPT, 0, 1 * MS, 1 * MS);
    add_request(f, 7, VT_REQ_MATCH, 0, 0, 2 * MS, 2 * MS + 5000);
    add_step(f, 7, PROMPT, PROMPT, 3 * MS, at);
    add_request(f, 7, VT_REQ_TOKEN, 0, 42, at, at);
    for (int32_t i = 0; i < n_decode; i++) {
        add_step(f, 7, 1, PROMPT + 1 + i, at + MS, at + 6 * MS);
        at += 6 * MS;
        add_request(f, 7, VT_REQ_TOKEN, i + 1, 43, at, at);
    }
    add_request(f, 7, VT_REQ_FINISH, VT_FINISH_LENGTH, n_decode + 1, at + MS, at + MS);
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
    f->in.n_workers = 2;
    f->in.device = "cpu";
    f->in.n_pages = 8;
    f->in.event_cost_ns = 25;
    f->in.roofs = (vt_roofs){.name = "a machine of the test",
                             .memory_bytes_per_s = 20e9,
                             .fp32_per_s = 100e9,
                             .int8_per_s = 400e9,
                             .threads = 2};
    f->engine = calloc(MAX_EVENTS, sizeof *f->engine);
    f->in.engine = f->engine;
    for (int w = 0; w < 2; w++)
        f->in.worker[w] = f->worker[w] = calloc(MAX_EVENTS, sizeof **f->worker);
    return story_step_new(f->in.program, 64, 4, &f->plan, NULL) == VT_OK ? 0 : -1;
}

static int teardown(void **state)
{
    fake *f = *state;
    story_step_free(f->plan);
    vt_described_release(&f->described);
    vt_model_free((vt_model *)f->in.model);
    free(f->engine);
    free(f->worker[0]);
    free(f->worker[1]);
    free(f);
    return 0;
}

static json_t *tell(fake *f, vt_request_id id)
{
    char *text = NULL;
    size_t len = 0;
    vt_err err = {0};
    if (story_build(&f->in, id, &text, &len, &err) != VT_OK)
        fail_msg("%s", err.message);
    json_t *story = json_loadb(text, len, 0, NULL);
    free(text);
    assert_non_null(story);
    return story;
}

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
    /* The embedding is the head too, so all weights are read once, nearly. */
    assert_true(weights > 0.98 * (double)f->in.model->weight_bytes);
    assert_true(weights < 1.02 * (double)f->in.model->weight_bytes);
    /* 30 layers, K and V, 3 heads of 64, 2 bytes: one token written, 21 and 22 read. */
    NEAR(kv, 30 * 2 * 3 * 64 * 2 * (1 + 21.5));
    assert_true(calls > 200);
    json_decref(s);
}

static void test_story_when_old_calls_overwritten_then_said(void **state)
{
    fake *f = *state;
    tell_plain(f, 3);
    f->in.worker[0] += 100; /* the first 100 events of the prefill are gone */
    f->in.n_worker[0] -= 100;
    json_t *s = tell(f, 7);
    assert_int_equal(value(json_array_get(json_object_get(s, "phases"), 0), "timed_steps"), 0);
    assert_int_equal(value(json_array_get(json_object_get(s, "phases"), 1), "timed_steps"), 3);
    char *not_measured = json_dumps(json_object_get(s, "not_measured"), 0);
    assert_non_null(strstr(not_measured, "1 steps are older"));
    free(not_measured);
    json_decref(s);
}

static void test_story_when_request_unknown_then_refused(void **state)
{
    fake *f = *state;
    char *text = NULL;
    size_t len = 0;
    vt_err err = {0};
    tell_plain(f, 1);
    assert_int_equal(story_build(&f->in, 8, &text, &len, &err), VT_ERR_USAGE);
    assert_non_null(strstr(err.message, "request 8"));
    assert_null(text);
}

static void test_story_when_about_all_then_every_step(void **state)
{
    fake *f = *state;
    tell_plain(f, 2);
    add_request(f, 9, VT_REQ_ARRIVE, PROMPT, 0, 40 * MS, 40 * MS);
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
    assert_int_equal(story_build(&f->in, 7, &text, &len, NULL), VT_OK);
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

static void test_plan_floor_when_unit_missing_then_the_next_one(void **state)
{
    (void)state;
    story_bound bound;
    vt_cost c = {.read = {.weights = 1000}, .flops = {.fp32 = 500}};
    vt_roofs r = {.memory_bytes_per_s = 1000, .bf16_per_s = 100};
    NEAR(story_floor_s(&c, &r, &bound), 5.0);
    assert_int_equal(bound, STORY_BOUND_BF16);
    r.fp32_per_s = 1000;
    NEAR(story_floor_s(&c, &r, &bound), 1.0);
    assert_int_equal(bound, STORY_BOUND_MEMORY);
}

static void test_plan_bind_when_impossible_then_refused(void **state)
{
    fake *f = *state;
    const story_seq bad[] = {{0, 1, 0, 0},   {2, 1, 0, 0},  {1, 9999, 1, 0}, {1, 5, 2, 0},
                             {65, 65, 1, 0}, {1, 16, 1, 1}, {1, 5, 1, -1}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(story_step_set(f->plan, &bad[i], 1, NULL), VT_ERR_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_story_times_when_known_then_exact, setup, teardown),
        cmocka_unit_test_setup_teardown(test_story_ops_when_costed_then_bytes_are_the_models, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_story_when_old_calls_overwritten_then_said, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_story_when_request_unknown_then_refused, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_story_when_about_all_then_every_step, setup, teardown),
        cmocka_unit_test_setup_teardown(test_story_when_ring_empty_then_still_a_story, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_findings_when_thresholds_passed_then_named, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_render_when_story_told_then_sections_within_width,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_plan_bind_when_impossible_then_refused, setup,
                                        teardown),
        cmocka_unit_test(test_plan_floor_when_unit_missing_then_the_next_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
