/* Stories on machines that withhold CPU time or lower their clocks, and what recording costs: from
 * artificial recordings, in which every number is known beforehand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "exec/describe.h"
#include "model/load.h"
#include "story/record/machine.h"
#include "story/record/observer.h"
#include "story/story.h"

enum { WORKERS = 2, SOURCES = WORKERS + 2, PROMPT = 20, MS = 1000000, EVENTS = 1 << 16, ID = 7 };
enum { ENGINE, WORKER_0, STREAM = WORKER_0 + WORKERS };

/* Step `k` (from 0) of a recording: how long it takes, and how long worker 1 was ready and had no
 * CPU in it. */
typedef struct told_step {
    int64_t length_ns, delay_ns;
} told_step;

typedef struct fake {
    story_input in;
    story_source source[SOURCES];
    vt_trace_ring requests, steps, uses[WORKERS], samples;
    vt_span_rings spans[WORKERS];
    vt_described described;
    story_step *plan;
    int64_t at_ns;
    uint64_t n_step;
    double busy_1;   /* of worker 1, where it is not that of all; 0: it is */
    bool sleeps_0;   /* worker 0 sleeps in its wait behind every second call, into the next */
    double slower_1; /* the share that worker 1's clock is lower by */
    int32_t n_pages; /* from a disk, a step */
    bool one_node;
    unsigned counted; /* hardware events that the planted readings have */
} fake;

static void *copy(const vt_trace_ring *r, uint64_t *n)
{
    void *out = calloc(EVENTS, r->event_bytes);
    assert_non_null(out);
    *n = vt_trace_copy(r, out, EVENTS);
    return out;
}

/* The spans of a step's calls: workers work for `busy` of the time and wait for the rest. */
static void add_spans(fake *f, uint64_t id, bool prompt, told_step t, double busy)
{
    const vt_program *p = story_step_program(f->plan);
    int32_t n = 0, at = 0;
    for (int32_t i = 0; i < p->n_calls; i++)
        n += story_step_impl(f->plan, i) != NULL;
    for (int w = 0; w < WORKERS; w++)
        vt_trace_base(vt_spans_of(&f->spans[w], id, prompt), id, f->at_ns);
    for (int32_t i = 0; i < p->n_calls; i++) {
        if (!story_step_impl(f->plan, i))
            continue;
        int64_t from = f->at_ns + t.length_ns * at / n, to = f->at_ns + t.length_ns * (at + 1) / n;
        for (int w = 0; w < WORKERS; w++) {
            double part = w && f->busy_1 > 0 ? f->busy_1 : busy;
            bool late = f->sleeps_0 && w == 0 && at % 2, sleeps = f->sleeps_0 && w == 0 && !late;
            int64_t slept = (int64_t)(0.85 * (double)(to - from)),
                    begin = from + (late ? slept : 0),
                    ran = begin + (int64_t)(part * (double)(to - from));
            vt_trace_met(vt_spans_of(&f->spans[w], id, prompt), f->at_ns, i, begin, ran,
                         to + (sleeps && at + 1 < n ? slept : 0));
        }
        at++;
    }
}

static uint64_t cycles_of(const fake *f, int w, told_step t)
{
    return (uint64_t)((double)t.length_ns * 2 * (w ? 1 - f->slower_1 : 1));
}

static void add_step(fake *f, int32_t q_len, int32_t kv_len, told_step t, double busy)
{
    uint64_t id = ++f->n_step;
    bool prompt = q_len > 1;
    story_seq seq = {.q_len = q_len, .kv_len = kv_len, .n_rows = kv_len >= PROMPT};
    assert_int_equal(story_step_set(f->plan, &seq, 1, NULL), VT_OK);
    if (prompt || vt_spans_on(id))
        add_spans(f, id, prompt, t, busy);
    for (int w = 0; w < WORKERS; w++)
        vt_trace_use(&f->uses[w],
                     &(vt_use_event){.step = id,
                                     .n_steps = 1,
                                     .elapsed_ns = (uint64_t)t.length_ns,
                                     .cpu_ns = (uint64_t)(t.length_ns - (w ? t.delay_ns : 0)),
                                     .delay_ns = w ? (uint64_t)t.delay_ns : 0,
                                     .switches = w && t.delay_ns,
                                     .minor_faults = 3,
                                     .counted = f->counted & 0xffff,
                                     .placed = 1,
                                     .cpu = (unsigned)w * 8 + (id > 20 && w),
                                     .node = f->one_node ? 0 : (unsigned)w,
                                     .major_faults = (unsigned)f->n_pages & 0xfffff,
                                     .count = {[VT_COUNT_CYCLES] = cycles_of(f, w, t),
                                               [VT_COUNT_INSTRUCTIONS] = MS + id,
                                               [VT_COUNT_MISSES] = 40,
                                               [VT_COUNT_AMX] = cycles_of(f, w, t) / 4,
                                               [VT_COUNT_SLOTS] = 6000,
                                               [VT_COUNT_RETIRING] = 1500,
                                               [VT_COUNT_BAD] = 300,
                                               [VT_COUNT_FRONT] = 600,
                                               [VT_COUNT_BACK] = 3600}});
    vt_trace_step(&f->steps, &(vt_step_ran){.step = id,
                                            .begin_ns = f->at_ns,
                                            .end_ns = f->at_ns + t.length_ns,
                                            .n_tokens = q_len,
                                            .n_seqs = 1,
                                            .n_decode = q_len == 1});
    vt_trace_seq(&f->steps, id, ID, q_len, kv_len, 0);
    f->at_ns += t.length_ns;
    vt_trace_token(&f->requests, ID, f->at_ns, id, kv_len - PROMPT, 42);
    f->at_ns += MS / 10;
}

/* A prompt, and `n` decode steps that `step` tells of. */
static void tell_steps(fake *f, int32_t n, double busy, told_step (*step)(int32_t k))
{
    f->at_ns = 3 * MS;
    vt_trace_arrive(&f->requests, ID, 1 * MS, PROMPT, 0);
    add_step(f, PROMPT, PROMPT, (told_step){10 * MS, step(0).delay_ns}, busy);
    for (int32_t k = 0; k < n; k++)
        add_step(f, 1, PROMPT + 1 + k, step(k), busy);
    vt_trace_finish(&f->requests, ID, f->at_ns + MS, VT_END_MAX_TOKENS, n + 1);
}

static int setup(void **state)
{
    fake *f = calloc(1, sizeof *f);
    vt_model *m = NULL;
    *state = f;
    if (!f || vt_cpu_init(NULL) != VT_OK || vt_model_load_dummy("smollm2-135m", &m, NULL) != VT_OK)
        return -1;
    vt_limits limits = {.max_tokens = 64,
                        .max_seqs = 4,
                        .max_rows = 64,
                        .max_context = 1024,
                        .page_size = 16,
                        .n_workers = WORKERS};
    vt_target target = vt_target_cpu(VT_ISA_PORTABLE, &limits);
    if (vt_describe(m, &target, VT_F16, &f->described, NULL) != VT_OK)
        return -1;
    f->in = (story_input){.model = m,
                          .program = f->described.program,
                          .source = f->source,
                          .n_sources = STREAM,
                          .device = "cpu",
                          .n_pages = 8,
                          .event_cost_ns = 50,
                          .roofs = {.name = "a machine of the test",
                                    .memory_bytes_per_s = 500e9,
                                    .fp32_per_s = 9000e9,
                                    .int8_per_s = 9000e9,
                                    .threads = WORKERS}};
    bool ok = vt_trace_init(&f->requests, sizeof(vt_request_event), 4096, NULL) == VT_OK &&
              vt_trace_init(&f->steps, sizeof(vt_step_event), 4096, NULL) == VT_OK &&
              vt_trace_init(&f->samples, sizeof(vt_machine_event), 64, NULL) == VT_OK;
    for (int w = 0; w < WORKERS; w++)
        ok = ok && vt_spans_init(&f->spans[w], f->in.program->n_calls + 1, NULL) == VT_OK &&
             vt_trace_init(&f->uses[w], sizeof(vt_use_event), 4096, NULL) == VT_OK;
    return ok && story_step_new(f->in.program, 64, 4, &f->plan, NULL) == VT_OK ? 0 : -1;
}

static void forget(fake *f)
{
    for (int i = 0; i < SOURCES; i++) {
        free((void *)f->source[i].request);
        free((void *)f->source[i].step);
        free((void *)f->source[i].span);
        free((void *)f->source[i].use);
        free((void *)f->source[i].sample);
    }
    memset(f->source, 0, sizeof f->source);
}

static int teardown(void **state)
{
    fake *f = *state;
    forget(f);
    story_step_free(f->plan);
    vt_described_release(&f->described);
    vt_model_free((vt_model *)f->in.model);
    vt_trace_release(&f->requests);
    vt_trace_release(&f->steps);
    vt_trace_release(&f->samples);
    for (int w = 0; w < WORKERS; w++) {
        vt_spans_release(&f->spans[w]);
        vt_trace_release(&f->uses[w]);
    }
    free(f);
    return 0;
}

static void collect(fake *f)
{
    forget(f);
    story_source *e = &f->source[ENGINE];
    e->is.kind = VT_SOURCE_ENGINE;
    e->request = copy(&f->requests, &e->n_requests);
    e->step = copy(&f->steps, &e->n_steps);
    for (int i = 0; i < WORKERS; i++) {
        story_source *w = &f->source[WORKER_0 + i];
        w->is = (vt_source){.kind = VT_SOURCE_WORKER, .device = {.level = "portable"}};
        uint64_t most = vt_spans_held(&f->spans[i]);
        vt_span *spans = calloc(most, sizeof *spans);
        assert_non_null(spans);
        w->n_spans = vt_spans_copy(&f->spans[i], spans, most);
        w->span = spans;
        w->use = copy(&f->uses[i], &w->n_uses);
    }
}

static json_t *build(fake *f)
{
    char *text = NULL;
    size_t len = 0;
    vt_err err = {0};
    if (story_build(&f->in, ID, &text, &len, NULL, &err) != VT_OK)
        fail_msg("%s", err.message);
    json_t *story = json_loadb(text, len, 0, NULL);
    free(text);
    assert_non_null(story);
    return story;
}

static json_t *tell(fake *f)
{
    collect(f);
    return build(f);
}

static double value(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    assert_non_null(v);
    return json_number_value(json_is_object(v) ? json_object_get(v, "value") : v);
}

static const char *string(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

static bool has_rule(const json_t *story, const char *rule)
{
    size_t i;
    json_t *f;
    json_array_foreach(json_object_get(story, "findings"), i, f)
    {
        if (strcmp(string(f, "rule"), rule) == 0)
            return true;
    }
    return false;
}

#define NEAR(a, b) assert_true(fabs((a) - (b)) <= 2e-3 * fabs(b))

static told_step quiet(int32_t k)
{
    (void)k;
    return (told_step){5 * MS, 0};
}

/* Worker 1 was ready for 3 of 5 ms of every step and had no CPU. */
static told_step withheld(int32_t k)
{
    (void)k;
    return (told_step){5 * MS, 3 * MS};
}

/* Every third step takes four times as long, because worker 1 was off its CPU. */
static told_step third(int32_t k)
{
    return k % 3 ? (told_step){5 * MS, MS / 20} : (told_step){20 * MS, 15 * MS};
}

static void test_machine_when_quiet_then_said_and_ops_are_judged(void **state)
{
    fake *f = *state;
    tell_steps(f, 40, 0.5, quiet);
    json_t *s = tell(f), *m = json_object_get(s, "machine");
    assert_string_equal(string(m, "state"), "quiet");
    assert_non_null(strstr(string(m, "text"), "run delay 0.0 %"));
    assert_int_equal(value(m, "steps"), 41);
    assert_int_equal(value(m, "minor_faults"), 41 * WORKERS * 3);
    assert_null(strstr(string(s, "headline"), "withheld"));
    assert_true(has_rule(s, "threads.wait"));
    assert_true(has_rule(s, "roof.gap") || has_rule(s, "call.latency"));
    assert_false(has_rule(s, "machine.shared"));
    json_decref(s);
}

static void test_machine_when_it_withholds_then_headline_says_so_and_no_op_is_blamed(void **state)
{
    fake *f = *state;
    tell_steps(f, 40, 0.5, withheld);
    json_t *s = tell(f), *m = json_object_get(s, "machine");
    const char *begins = "The machine withheld 29 % of the CPU time asked for";
    assert_string_equal(string(m, "state"), "disturbed");
    assert_int_equal(value(m, "disturbed_steps"), 41);
    assert_memory_equal(string(s, "headline"), begins, strlen(begins));
    assert_true(has_rule(s, "machine.shared"));
    assert_false(has_rule(s, "threads.wait"));
    assert_false(has_rule(s, "roof.gap"));
    assert_false(has_rule(s, "call.latency"));
    assert_false(has_rule(s, "itl.spread"));
    json_decref(s);
}

static void
test_machine_when_some_steps_are_disturbed_then_op_figures_are_of_the_others(void **state)
{
    fake *f = *state;
    tell_steps(f, 60, 0.5, third);
    json_t *s = tell(f), *m = json_object_get(s, "machine");
    const json_t *d = json_array_get(json_object_get(s, "phases"), 1);
    assert_int_equal(value(m, "disturbed_steps"), 21); /* the prompt's step among them */
    assert_non_null(strstr(string(m, "text"), "op figures below are of the 40 undisturbed steps"));
    assert_int_equal(value(d, "disturbed_steps"), 20);
    assert_true(value(d, "undisturbed_steps") < value(d, "timed_steps"));
    NEAR(value(d, "step_us"), 5000.0);
    NEAR(value(d, "ops_us"), 5000.0);
    NEAR(value(m, "longest_delay_ms"), 15.0);
    assert_true(has_rule(s, "machine.shared"));
    assert_false(has_rule(s, "itl.spread")); /* the even gaps are the program's */
    assert_null(strstr(string(s, "headline"), "withheld"));
    json_decref(s);
}

/* Finds an object of a list whose member `key` is `text`. */
static const json_t *find(const json_t *list, const char *key, const char *text)
{
    size_t i;
    json_t *o;
    json_array_foreach(list, i, o)
    {
        if (strcmp(string(o, key), text) == 0)
            return o;
    }
    fail_msg("no %s %s", key, text);
    return NULL;
}

/* Each worker counts 2 cycles a ns, which is 2 GHz, and 40 misses a step; instructions grow. */
static void test_workers_when_events_are_counted_then_told_of_steps_and_phases(void **state)
{
    fake *f = *state;
    f->counted = 1 << VT_COUNT_CYCLES | 1 << VT_COUNT_INSTRUCTIONS | 1 << VT_COUNT_MISSES;
    tell_steps(f, 40, 0.5, quiet);
    json_t *s = tell(f), *steps = json_object_get(json_object_get(s, "steps"), "columns");
    const json_t *c = json_object_get(find(json_object_get(s, "phases"), "name", "decode"),
                                      "counters");
    NEAR(value(c, "cycles"), 2 * 2 * 5e6);
    NEAR(value(c, "clock_hz"), 2e9);
    NEAR(value(c, "cache_misses"), 80.0);
    NEAR(value(c, "ipc"), value(c, "instructions") / 20e6);
    for (size_t i = 0; i < 41; i++)
        assert_int_equal(
            json_number_value(json_array_get(json_object_get(steps, "instructions"), i)),
            2 * (MS + i + 1));
    const json_t *w = json_array_get(json_object_get(s, "threads"), 1);
    NEAR(value(w, "cache_misses"), 41.0 * 40);
    assert_int_equal(value(w, "node"), 1);
    assert_int_equal(value(w, "cpu"), 9);
    assert_int_equal(value(w, "moves"), 1);
    assert_true(
        json_is_true(json_object_get(json_object_get(json_object_get(s, "tiers"), "T1"), "used")));
    json_decref(s);
}

/* A quarter of each worker's slots retired an instruction; AMX worked in a fourth of the time. */
static void test_workers_when_slots_and_amx_are_counted_then_their_shares_are_told(void **state)
{
    fake *f = *state;
    f->counted = (1 << VT_COUNTERS) - 1;
    tell_steps(f, 40, 0.5, quiet);
    json_t *s = tell(f);
    const json_t *c = json_object_get(find(json_object_get(s, "phases"), "name", "decode"),
                                      "counters"),
                 *w = json_array_get(json_object_get(s, "threads"), 1),
                 *part[] = {json_object_get(c, "topdown"), json_object_get(w, "topdown")};
    NEAR(value(c, "amx_busy"), 5e6);
    NEAR(value(c, "amx"), 0.25);
    NEAR(value(part[0], "slots"), 2 * 6000.0);
    NEAR(value(part[1], "slots"), 41 * 6000.0);
    for (int i = 0; i < 2; i++) {
        NEAR(value(part[i], "retiring"), 0.25);
        NEAR(value(part[i], "bad_speculation"), 0.05);
        NEAR(value(part[i], "front_end"), 0.1);
        NEAR(value(part[i], "back_end"), 0.6);
    }
    assert_true(
        json_is_true(json_object_get(json_object_get(json_object_get(s, "tiers"), "T3"), "used")));
    assert_null(json_object_get(json_object_get(json_object_get(s, "steps"), "columns"), "slots"));
    json_decref(s);
}

/* A CPU that counts slots, and not all that became of them. */
static void test_workers_when_a_part_of_the_slots_is_missing_then_no_share_is_told(void **state)
{
    fake *f = *state;
    f->counted = 1 << VT_COUNT_CYCLES | 1 << VT_COUNT_SLOTS | 1 << VT_COUNT_BACK;
    tell_steps(f, 40, 0.5, quiet);
    json_t *s = tell(f);
    const json_t *c = json_object_get(find(json_object_get(s, "phases"), "name", "decode"),
                                      "counters");
    assert_true(json_is_null(json_object_get(c, "topdown")));
    assert_true(json_is_null(json_object_get(json_object_get(c, "amx"), "value")));
    assert_false(
        json_is_true(json_object_get(json_object_get(json_object_get(s, "tiers"), "T3"), "used")));
    json_decref(s);
}

static void test_workers_when_an_event_is_missing_then_the_others_are_told(void **state)
{
    fake *f = *state;
    f->counted = 1 << VT_COUNT_CYCLES;
    tell_steps(f, 40, 0.5, withheld);
    json_t *s = tell(f), *steps = json_object_get(json_object_get(s, "steps"), "columns");
    const json_t *c = json_object_get(find(json_object_get(s, "phases"), "name", "decode"),
                                      "counters");
    NEAR(value(c, "cycles"), 20e6);
    assert_true(json_is_null(json_object_get(json_object_get(c, "ipc"), "value")));
    assert_null(json_object_get(steps, "cache_misses"));
    find(json_object_get(s, "not_measured"), "what", "cache misses");
    const json_t *w = json_object_get(s, "threads");
    NEAR(value(json_array_get(w, 1), "off_cpu"), 41 * 3.0 / (10 + 40 * 5));
    assert_true(value(json_array_get(w, 0), "off_cpu") == 0);
    json_decref(s);
}

static void test_workers_when_one_comes_last_then_ops_name_it(void **state)
{
    fake *f = *state;
    f->busy_1 = 0.9;
    tell_steps(f, 40, 0.5, quiet);
    json_t *s = tell(f);
    const json_t *d = find(json_object_get(s, "phases"), "name", "decode"),
                 *op = json_array_get(json_object_get(d, "ops"), 0),
                 *late = json_object_get(op, "straggler");
    assert_true(json_is_null(json_object_get(d, "counters")));
    NEAR(value(op, "imbalance"), (0.5 + 0.1) / 2 - 0.1);
    assert_int_equal(value(late, "worker"), 1);
    assert_int_equal(value(late, "calls"), value(late, "of"));
    json_decref(s);
}

/* Worker 1 has run each call at 0.9 of it. Worker 0 has run the first of two calls at 0.1, sleeps
 * until 0.85 of the second, and has run that at 0.95. */
static void test_workers_when_one_sleeps_after_a_barrier_then_it_does_not_wait_there(void **state)
{
    size_t i;
    fake *f = *state;
    f->sleeps_0 = true;
    f->busy_1 = 0.9;
    tell_steps(f, 40, 0.1, quiet);
    json_t *s = tell(f), *op;
    json_array_foreach(json_object_get(find(json_object_get(s, "phases"), "name", "decode"), "ops"),
                       i, op) assert_true(value(op, "imbalance") < 0.5);
    json_decref(s);
}

/* Each rule about workers with a story in which it must speak, and others in which it must not. */
static void test_workers_when_something_sets_them_apart_then_a_finding_names_it(void **state)
{
    fake *f = *state;
    f->one_node = true;
    tell_steps(f, 40, 0.5, quiet);
    json_t *s = tell(f);
    assert_false(has_rule(s, "threads.straggler") || has_rule(s, "numa.apart") ||
                 has_rule(s, "memory.faults"));
    json_decref(s);
    teardown(state);
    assert_int_equal(setup(state), 0);
    f = *state;
    f->busy_1 = 0.95;
    f->slower_1 = 0.2;
    f->counted = 1 << VT_COUNT_CYCLES;
    f->n_pages = 2;
    tell_steps(f, 40, 0.5, quiet);
    s = tell(f);
    const char *text = string(find(json_object_get(s, "findings"), "rule", "threads.straggler"),
                              "text");
    assert_non_null(strstr(text, "100 % of the time that workers wait"));
    assert_non_null(strstr(text, "its CPU ran at 1.60 GHz, those of the others at 2.00 GHz"));
    assert_true(has_rule(s, "numa.apart"));
    text = string(find(json_object_get(s, "findings"), "rule", "memory.faults"), "text");
    assert_non_null(strstr(text, "164 pages came from a disk"));
    json_decref(s);
    teardown(state);
    assert_int_equal(setup(state), 0);
    f = *state;
    f->busy_1 = 0.95;
    tell_steps(f, 40, 0.5, quiet);
    s = tell(f);
    text = string(find(json_object_get(s, "findings"), "rule", "threads.straggler"), "text");
    assert_non_null(strstr(text, "it ran on NUMA node 1, the others on node 0"));
    json_decref(s);
}

/* A reading that speaks of several short steps disturbs all of them. */
static void test_machine_when_a_reading_covers_steps_then_its_delay_is_spread(void **state)
{
    fake *f = *state;
    story_record r;
    for (int w = 0; w < WORKERS; w++)
        vt_trace_release(&f->uses[w]);
    tell_steps(f, 9, 0.5, quiet);
    assert_int_equal(vt_trace_init(&f->uses[0], sizeof(vt_use_event), 16, NULL), VT_OK);
    assert_int_equal(vt_trace_init(&f->uses[1], sizeof(vt_use_event), 16, NULL), VT_OK);
    vt_trace_use(&f->uses[1], &(vt_use_event){.step = 5, .n_steps = 3, .delay_ns = 6 * MS});
    collect(f);
    assert_int_equal(story_record_make(&f->in, ID, &r, NULL), VT_OK);
    for (int32_t i = 0; i < r.n_steps; i++) {
        bool covered = r.step[i].id >= 3 && r.step[i].id <= 5;
        assert_int_equal(r.step[i].use.disturbed, covered);
        assert_true(fabs(r.step[i].use.delay_s - (covered ? 2e-3 : 0)) < 1e-9);
    }
    story_record_release(&r);
}

static void test_machine_when_a_clock_falls_then_its_steps_are_disturbed(void **state)
{
    fake *f = *state;
    story_record r;
    story_machine m;
    tell_steps(f, 20, 0.5, quiet);
    for (int64_t k = 0; k < 12; k++) /* every 10 ms; the clock is low from 50 to 70 ms */
        vt_trace_machine(&f->samples, &(vt_machine_event){.at_ns = k * 10 * MS,
                                                          .sm_mhz = k == 5 || k == 6 ? 1800 : 1900,
                                                          .power_mw = 500000,
                                                          .energy_mj = k * 5000,
                                                          .throttle = k == 5 ? 4 : 0,
                                                          .others_percent = -1});
    collect(f);
    story_source *g = &f->source[STREAM];
    g->is.kind = VT_SOURCE_STREAM;
    g->sample = copy(&f->samples, &g->n_samples);
    f->in.n_sources = SOURCES;
    assert_int_equal(story_record_make(&f->in, ID, &r, NULL), VT_OK);
    for (int32_t i = 0; i < r.n_steps; i++) {
        double middle = (double)(r.step[i].device.begin_ns + r.step[i].device.end_ns) / 2 / MS;
        assert_int_equal(r.step[i].use.disturbed, middle > 45 && middle < 65);
    }
    story_sum_machine(&f->in, &r, &m);
    assert_int_equal(m.n_slow, m.n_disturbed);
    assert_int_equal(m.mhz_least, 1800);
    assert_int_equal(m.throttle, 4);
    NEAR(m.power_w, 500.0);
    assert_true(m.energy_j > 0);
    story_record_release(&r);
}

/* A GPU that stays within its power is told of as a note, one that is too hot as a warning. */
static void test_machine_when_clocks_are_held_then_a_finding_says_by_what(void **state)
{
    fake *f = *state;
    tell_steps(f, 20, 0.5, quiet);
    for (int64_t k = 0; k < 12; k++)
        vt_trace_machine(&f->samples, &(vt_machine_event){.at_ns = k * 10 * MS,
                                                          .sm_mhz = 1930 + 10 * (int32_t)(k % 2),
                                                          .power_mw = 690000,
                                                          .energy_mj = -1,
                                                          .throttle = k < 6 ? 1 : 4 | 32,
                                                          .others_percent = -1});
    collect(f);
    story_source *g = &f->source[STREAM];
    g->is.kind = VT_SOURCE_STREAM;
    g->sample = copy(&f->samples, &g->n_samples);
    f->in.n_sources = SOURCES;
    json_t *s = build(f), *first = json_array_get(json_object_get(s, "findings"), 0);
    assert_string_equal(string(first, "rule"), "machine.clocks");
    assert_int_equal(string(first, "id")[0], 'W');
    assert_non_null(strstr(string(first, "text"),
                           "held by power-cap and thermal-cap: SMs at 1930 to 1940 MHz, 690 W"));
    json_decref(s);
}

/* Samples of the energy counter alone say nothing of the machine's load. */
static void
test_machine_when_samples_are_of_energy_alone_then_pressure_is_of_the_others(void **state)
{
    fake *f = *state;
    story_record r;
    story_machine m;
    tell_steps(f, 20, 0.5, quiet);
    for (int64_t k = 0; k <= 20; k++) {
        bool whole = k % 20 == 0;
        vt_trace_machine(&f->samples,
                         &(vt_machine_event){.at_ns = 1 + k * 10 * MS,
                                             .pressure_us = whole ? k * 10 * 1000 / 4 : -1,
                                             .steal_ticks = whole ? k : -1,
                                             .ticks = whole ? k * 10 : -1,
                                             .energy_mj = k * 5000});
    }
    collect(f);
    f->source[ENGINE].sample = copy(&f->samples, &f->source[ENGINE].n_samples);
    assert_int_equal(story_record_make(&f->in, ID, &r, NULL), VT_OK);
    story_sum_machine(&f->in, &r, &m);
    NEAR(m.pressure, 0.25);
    NEAR(m.steal, 0.1);
    story_record_release(&r);
}

/* Controllers move 3 MB in and 1 MB out every 10 ms; of other samples nothing is taken. */
static void test_machine_when_controllers_are_read_then_bytes_a_second_are_told(void **state)
{
    fake *f = *state;
    story_record r;
    story_machine m;
    vt_buf out = {0};
    vt_json w;
    tell_steps(f, 20, 0.5, quiet);
    for (int64_t k = 0; k <= 40; k++)
        vt_trace_machine(&f->samples, &(vt_machine_event){.at_ns = 1 + k * 10 * MS,
                                                          .pressure_us = -1,
                                                          .ticks = -1,
                                                          .controllers = k % 2 ? 0 : 16,
                                                          .read_bytes = k * 3000000,
                                                          .written_bytes = k * 1000000});
    collect(f);
    assert_int_equal(story_record_make(&f->in, ID, &r, NULL), VT_OK);
    story_sum_machine(&f->in, &r, &m);
    assert_int_equal(m.controllers, 0);
    f->source[ENGINE].sample = copy(&f->samples, &f->source[ENGINE].n_samples);
    story_sum_machine(&f->in, &r, &m);
    assert_int_equal(m.controllers, 16);
    NEAR(m.controllers_read / m.controllers_s, 3e8);
    NEAR(m.controllers_written / m.controllers_s, 1e8);
    int64_t begin = r.step[0].device.begin_ns, end = r.step[r.n_steps - 1].device.end_ns;
    assert_true(m.controllers_s * 1e9 >= (double)(end - begin));
    assert_true(m.controllers_s * 1e9 <= (double)(end - begin + 40 * MS));
    vt_json_begin(&w, &out, -1);
    vt_json_open(&w, NULL, '{');
    story_put_machine(&w, &m);
    vt_json_close(&w);
    assert_non_null(strstr(out.data, "16 memory controllers read 300 MB/s and wrote 100 MB/s for"));
    vt_buf_release(&out);
    story_record_release(&r);
}

/* 500 W, sampled every 10 ms: 2.5 J a decode step of 5 ms, and what the prefill step takes. Samples
 * that lie 200 ms apart say nothing about a prefill of 10 ms. */
static void test_energy_when_sampled_then_joules_of_steps_are_shared_by_their_tokens(void **state)
{
    fake *f = *state;
    story_record r;
    story_energy e;
    tell_steps(f, 20, 0.5, quiet);
    for (int64_t k = 0; k <= 40; k++) {
        vt_trace_machine(&f->samples,
                         &(vt_machine_event){.at_ns = k * 10 * MS,
                                             .pressure_us = -1,
                                             .ticks = -1,
                                             .energy_mj = k % 2 ? -1 : 1000 + k * 5000});
    }
    collect(f);
    story_source *engine = &f->source[0];
    engine->is.kind = VT_SOURCE_ENGINE;
    engine->is.no_energy = "no counter in this test";
    assert_int_equal(story_record_make(&f->in, ID, &r, NULL), VT_OK);
    story_find_energy(&f->in, &r, &e);
    assert_null(e.counter);
    assert_string_equal(e.why, "no counter in this test");
    free((void *)engine->sample);
    engine->sample = copy(&f->samples, &engine->n_samples);
    story_find_energy(&f->in, &r, &e);
    assert_non_null(strstr(e.counter, "RAPL"));
    assert_int_equal(e.generated, 20);
    int64_t begin = r.step[0].device.begin_ns, prompt = r.step[0].device.end_ns,
            end = r.step[r.n_steps - 1].device.end_ns;
    NEAR(e.decode_j, 500 * (double)(end - prompt) * 1e-9);
    NEAR(e.prompt_j, 500 * (double)(prompt - begin) * 1e-9);
    assert_null(e.why);
    const vt_machine_event *all = engine->sample;
    uint64_t n_all = engine->n_samples;
    engine->sample += 2; /* the first reading is now of 20 ms: the prompt ended before */
    engine->n_samples -= 2;
    story_find_energy(&f->in, &r, &e);
    assert_true(isnan(e.prompt_j) && e.prompt_tokens == 0 && e.decode_j > 0);
    assert_true(e.generated > 0 && e.generated < 20);
    assert_non_null(strstr(e.why, "not read before and after some of the steps"));
    engine->sample = all;
    engine->n_samples = n_all;
    engine->n_samples = 1; /* one reading is none */
    story_find_energy(&f->in, &r, &e);
    assert_null(e.counter);
    ((vt_machine_event *)engine->sample)[1] = engine->sample[40];
    engine->n_samples = 2; /* 400 ms apart: too far for a prefill, and for 20 decodes */
    story_find_energy(&f->in, &r, &e);
    assert_true(isnan(e.prompt_j) && isnan(e.decode_j));
    assert_non_null(strstr(e.why, "too short"));
    story_record_release(&r);
}

/* The reasons why a GPU's story has no joules: nobody answers, the steps were over before the first
 * reading, or readings lack the counter. */
static void test_energy_of_a_gpu_when_not_read_then_the_true_reason_is_told(void **state)
{
    static const struct {
        uint64_t n_samples;
        bool has_state;
        int64_t energy_mj; /* of the first sample; the second has none */
        const char *why;
    } at[] = {{0, false, -1, "could not be asked"},
              {0, true, -1, "over before the GPU's energy counter was read"},
              {1, true, 1000, "was read once"},
              {2, true, 1000, "was read once"},
              {2, true, -1, "gave no energy counter"}};
    fake *f = *state;
    story_record r;
    story_energy e;
    tell_steps(f, 20, 0.5, quiet);
    collect(f);
    assert_int_equal(story_record_make(&f->in, ID, &r, NULL), VT_OK);
    story_source *gpu = &f->source[1];
    gpu->is.kind = VT_SOURCE_STREAM;
    for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) {
        vt_machine_event sample[2] = {{.at_ns = 1, .energy_mj = at[i].energy_mj},
                                      {.at_ns = 2, .energy_mj = -1}};
        gpu->sample = sample;
        gpu->n_samples = at[i].n_samples;
        gpu->has_state = at[i].has_state;
        story_find_energy(&f->in, &r, &e);
        assert_null(e.counter);
        if (!strstr(e.why, at[i].why))
            fail_msg("%zu: %s", i, e.why);
    }
    gpu->is.kind = VT_SOURCE_WORKER;
    gpu->sample = NULL;
    gpu->n_samples = 0;
    story_record_release(&r);
}

/* Unrecorded steps take 5 ms and 1 us more with each step; recorded ones 40 us longer. */
static told_step taxed(int32_t k)
{
    uint64_t id = (uint64_t)k + 2;
    return (told_step){5 * MS + k * 1000 + (vt_spans_on(id) ? 40000 : 0), 0};
}

static void test_tax_when_steps_grow_then_the_growth_is_not_in_it(void **state)
{
    fake *f = *state;
    tell_steps(f, 400, 0.9, taxed);
    json_t *s = tell(f), *o = json_object_get(s, "observer");
    double off_us = value(o, "off_us"), tax = value(o, "measured_tax");
    assert_true(value(o, "pairs") >= 190);
    assert_true(off_us > 5100 && off_us < 5300);
    assert_true(fabs(tax * off_us - 40) < 8.5); /* a pair's steps are 8 apart: 8 us, either way */
    assert_true(value(o, "measured_tax_low") <= tax && tax <= value(o, "measured_tax_high"));
    /* each pair is of a recorded and an unrecorded step: all differences are 40 us, and 8 off it */
    assert_true(value(o, "measured_tax_low") * off_us > 30);
    json_decref(s);
}

static void test_tax_when_pairs_are_few_or_disturbed_then_none(void **state)
{
    fake *f = *state;
    tell_steps(f, 300, 0.9, withheld);
    json_t *s = tell(f), *o = json_object_get(s, "observer");
    assert_int_equal(value(o, "pairs"), 0);
    assert_true(json_is_null(json_object_get(json_object_get(o, "measured_tax"), "value")));
    json_decref(s);
}

/* Each step a little longer than the one before it. */
static told_step growing(int32_t k) { return (told_step){5 * MS + k * 10000, 0}; }

/* More calls than fit: the step that is nearest to the mean of the typical ones is there, although
 * it is an old one, and no step in part. */
static void test_calls_when_many_then_the_most_typical_step_is_among_them(void **state)
{
    enum { MOST = 4096 };
    fake *f = *state;
    tell_steps(f, 900, 0.9, growing);
    json_t *s = tell(f), *calls = json_object_get(s, "calls"), *x;
    const json_t *decode = json_array_get(json_object_get(s, "phases"), 1);
    double mean_ms = value(decode, "step_us") * 1e-3, nearest = INFINITY;
    size_t i, n = 0;
    json_array_foreach(json_object_get(json_object_get(calls, "columns"), "step"), i, x)
    {
        double ms = 5 + 0.01 * (double)(json_integer_value(x) - 2);
        nearest = fmin(nearest, fabs(ms - mean_ms));
        n++;
    }
    assert_true(n > MOST / 2 && n <= MOST);
    assert_true(value(calls, "left_out") > 0);
    assert_true(nearest < 0.1);
    json_array_foreach(json_object_get(calls, "labels"), i, x)
    {
        if (strstr(json_string_value(x), "attention_prefill") == NULL)
            continue; /* no decode step runs it: it has no time, and not 0 */
        const json_t *typical = json_array_get(
            json_object_get(json_object_get(s, "typical"), "phases"), 1);
        const json_t *us = json_object_get(json_object_get(typical, "columns"), "us");
        assert_true(json_is_null(json_array_get(us, i)));
    }
    json_decref(s);
}

/* The story of a long answer has its prefill, its transition and decode steps of its whole
 * length. */
static void test_story_when_the_answer_is_long_then_its_prefill_is_there(void **state)
{
    enum { LONG = 900 };
    fake *f = *state;
    story_record r;
    tell_steps(f, LONG, 0.9, quiet);
    json_t *s = tell(f);
    const json_t *p = json_array_get(json_object_get(s, "phases"), 0);
    assert_string_equal(string(p, "name"), "prefill");
    assert_int_equal(value(p, "timed_steps"), 1);
    assert_true(json_is_object(json_object_get(s, "transition")));
    json_decref(s);
    assert_int_equal(story_record_make(&f->in, ID, &r, NULL), VT_OK);
    int32_t with_calls[3] = {0};
    for (int32_t i = 1; i < r.n_steps; i++)
        with_calls[3 * i / r.n_steps] += r.step[i].n_call > 0;
    assert_true(with_calls[0] > 3 && with_calls[1] > with_calls[0] &&
                with_calls[2] > with_calls[1]);
    story_record_release(&r);
}

int main(void)
{
#define TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_machine_when_quiet_then_said_and_ops_are_judged),
        TEST(test_workers_when_events_are_counted_then_told_of_steps_and_phases),
        TEST(test_workers_when_slots_and_amx_are_counted_then_their_shares_are_told),
        TEST(test_workers_when_a_part_of_the_slots_is_missing_then_no_share_is_told),
        TEST(test_workers_when_an_event_is_missing_then_the_others_are_told),
        TEST(test_workers_when_one_comes_last_then_ops_name_it),
        TEST(test_workers_when_one_sleeps_after_a_barrier_then_it_does_not_wait_there),
        TEST(test_workers_when_something_sets_them_apart_then_a_finding_names_it),
        TEST(test_machine_when_it_withholds_then_headline_says_so_and_no_op_is_blamed),
        TEST(test_machine_when_some_steps_are_disturbed_then_op_figures_are_of_the_others),
        TEST(test_machine_when_a_reading_covers_steps_then_its_delay_is_spread),
        TEST(test_machine_when_a_clock_falls_then_its_steps_are_disturbed),
        TEST(test_machine_when_clocks_are_held_then_a_finding_says_by_what),
        TEST(test_machine_when_samples_are_of_energy_alone_then_pressure_is_of_the_others),
        TEST(test_machine_when_controllers_are_read_then_bytes_a_second_are_told),
        TEST(test_energy_when_sampled_then_joules_of_steps_are_shared_by_their_tokens),
        TEST(test_energy_of_a_gpu_when_not_read_then_the_true_reason_is_told),
        TEST(test_tax_when_steps_grow_then_the_growth_is_not_in_it),
        TEST(test_tax_when_pairs_are_few_or_disturbed_then_none),
        TEST(test_calls_when_many_then_the_most_typical_step_is_among_them),
        TEST(test_story_when_the_answer_is_long_then_its_prefill_is_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
