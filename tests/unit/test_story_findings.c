/* Rules of a story's findings on artificial recordings: each with a planted case that it names and
 * one in which it is silent. */
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
#include "story/story.h"

enum { MAX_EVENTS = 1 << 16, PROMPT = 20, US = 1000, MS = 1000000, MINE = 7, OTHER = 21 };

/* A recording of one worker, or of a GPU. */
typedef struct fake {
    story_input in;
    story_source source[2]; /* the engine, a worker or a GPU */
    vt_kernel_facts kernel; /* that the GPU runs for every call */
    vt_trace_ring requests, steps, spans, launches, uses;
    vt_described described;
    story_step *plan;
    uint64_t n_step;
    int64_t at; /* when the last step ended */
    int32_t n_tokens;
} fake;

/* A step of a request, `wait` after the one before it. Other members: another request's chunk in
 * it, and how long publishing it takes. */
typedef struct planted {
    int32_t q_len, kv_len;
    int64_t wait, length, publish;
    int32_t chunk;
    int64_t delay;    /* the worker was ready and had no CPU */
    const char *slow; /* calls with this in their labels take slow_by more; NULL: none */
    int64_t slow_by;
} planted;

static void add(fake *f, planted p)
{
    uint64_t id = ++f->n_step;
    const vt_program *program = story_step_program(f->plan);
    story_seq seq[2] = {{.q_len = p.q_len, .kv_len = p.kv_len, .n_rows = p.kv_len >= PROMPT},
                        {.q_len = p.chunk, .kv_len = p.chunk, .n_rows = 0}};
    int64_t begin = f->at + p.wait, later = 0;
    int32_t n = 0, at = 0, n_seqs = 1 + (p.chunk > 0);
    assert_int_equal(story_step_set(f->plan, seq, n_seqs, NULL), VT_OK);
    vt_trace_base(&f->spans, id, begin);
    for (int32_t i = 0; i < program->n_calls; i++)
        n += story_step_impl(f->plan, i) != NULL;
    for (int32_t i = 0; i < program->n_calls; i++) {
        if (!story_step_impl(f->plan, i))
            continue;
        int64_t from = begin + later + p.length * at / n;
        if (p.slow && strstr(program->call[i].label, p.slow))
            later += p.slow_by;
        vt_trace_call(&f->spans, begin, i, from, begin + later + p.length * (at + 1) / n);
        vt_trace_kernel(&f->spans, i, 0);
        at++;
    }
    int64_t end = begin + p.length + later;
    vt_trace_step(&f->steps, &(vt_step_ran){.step = id,
                                            .begin_ns = begin,
                                            .end_ns = end,
                                            .n_tokens = p.q_len + p.chunk,
                                            .n_seqs = n_seqs,
                                            .n_decode = p.q_len == 1,
                                            .pages_held = 2,
                                            .pages_free = 6});
    vt_trace_seq(&f->steps, id, MINE, p.q_len, p.kv_len, 0);
    if (p.chunk)
        vt_trace_seq(&f->steps, id, OTHER, p.chunk, p.chunk, 0);
    vt_trace_launch(
        &f->launches,
        &(vt_launch_event){
            .step = id, .begin_ns = begin, .end_ns = end, .n_kernels = n, .timed = true});
    if (p.delay)
        vt_trace_use(&f->uses, &(vt_use_event){.step = id,
                                               .n_steps = 1,
                                               .elapsed_ns = (uint64_t)p.length,
                                               .cpu_ns = (uint64_t)(p.length - p.delay),
                                               .delay_ns = (uint64_t)p.delay});
    if (p.publish)
        vt_trace_part_of(&f->steps, id, VT_PART_PUBLISH, end, end + p.publish);
    if (p.kv_len >= PROMPT)
        vt_trace_token(&f->requests, MINE, end, id, f->n_tokens++, 42);
    f->at = end;
}

static void add_prompt(fake *f)
{
    vt_trace_arrive(&f->requests, OTHER, 1, 64, 0);
    vt_trace_arrive(&f->requests, MINE, 2, PROMPT, 0);
    f->at = MS;
    add(f, (planted){.q_len = PROMPT, .kv_len = PROMPT, .length = 10 * MS});
}

/* Decode steps of 5 ms that follow each other at once. */
static void add_decodes(fake *f, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        add(f, (planted){.q_len = 1, .kv_len = PROMPT + f->n_tokens, .length = 5 * MS});
}

static int open_fake(void **state, int32_t n_workers)
{
    fake *f = calloc(1, sizeof *f);
    vt_model *m = NULL;
    *state = f;
    if (!f || vt_cpu_init(NULL) != VT_OK || vt_model_load_dummy("smollm2-135m", &m, NULL) != VT_OK)
        return -1;
    vt_limits limits = {.max_tokens = 128,
                        .max_seqs = 4,
                        .max_rows = 64,
                        .max_context = 2048,
                        .page_size = 16,
                        .n_workers = n_workers};
    vt_target target = vt_target_cpu(VT_ISA_PORTABLE, &limits);
    if (vt_describe(m, &target, VT_F16, &f->described, NULL) != VT_OK)
        return -1;
    f->in = (story_input){.model = m,
                          .program = f->described.program,
                          .source = f->source,
                          .n_sources = 2,
                          .device = "cpu",
                          .n_pages = 8,
                          .event_cost_ns = 25,
                          .roofs = {.name = "a machine of the test",
                                    .memory_bytes_per_s = 25e9,
                                    .fp32_per_s = 1e12,
                                    .int8_per_s = 4e12,
                                    .threads = 1}};
    f->source[0].is = (vt_source){.name = "engine", .kind = VT_SOURCE_ENGINE};
    f->source[1].is = (vt_source){.kind = VT_SOURCE_WORKER, .device = {.level = "portable"}};
    return vt_trace_init(&f->requests, sizeof(vt_request_event), MAX_EVENTS, NULL) == VT_OK &&
                   vt_trace_init(&f->steps, sizeof(vt_step_event), MAX_EVENTS, NULL) == VT_OK &&
                   vt_trace_init(&f->spans, sizeof(vt_span), MAX_EVENTS, NULL) == VT_OK &&
                   vt_trace_init(&f->launches, sizeof(vt_launch_event), MAX_EVENTS, NULL) ==
                       VT_OK &&
                   vt_trace_init(&f->uses, sizeof(vt_use_event), MAX_EVENTS, NULL) == VT_OK &&
                   story_step_new(f->in.program, 128, 4, &f->plan, NULL) == VT_OK
               ? 0
               : -1;
}

static int setup(void **state) { return open_fake(state, 1); }
static int setup_two(void **state) { return open_fake(state, 2); }

/* The worker's place is taken by a GPU of 132 SMs, whose only kernel has CTAs of 8 warps. */
static void use_gpu(fake *f, int32_t registers, uint32_t grid)
{
    f->kernel = (vt_kernel_facts){
        .name = "any<>", .registers = registers, .grid = {grid, 1, 1}, .threads = 256};
    f->source[1].is = (vt_source){.kind = VT_SOURCE_STREAM,
                                  .device = {.level = "sm_90a", .capability = 90, .sm_count = 132},
                                  .n_kernels = 1};
    f->source[1].kernel = &f->kernel;
}

static int teardown(void **state)
{
    fake *f = *state;
    story_step_free(f->plan);
    vt_described_release(&f->described);
    vt_model_free((vt_model *)f->in.model);
    vt_trace_release(&f->requests);
    vt_trace_release(&f->steps);
    vt_trace_release(&f->spans);
    vt_trace_release(&f->launches);
    vt_trace_release(&f->uses);
    free(f);
    return 0;
}

static void *copy(const vt_trace_ring *r, uint64_t *n)
{
    void *out = calloc(MAX_EVENTS, r->event_bytes);
    assert_non_null(out);
    *n = vt_trace_copy(r, out, MAX_EVENTS);
    return out;
}

static json_t *tell(fake *f)
{
    char *text = NULL;
    size_t len = 0;
    vt_err err = {0};
    f->source[0].request = copy(&f->requests, &f->source[0].n_requests);
    f->source[0].step = copy(&f->steps, &f->source[0].n_steps);
    f->source[1].span = copy(&f->spans, &f->source[1].n_spans);
    f->source[1].use = copy(&f->uses, &f->source[1].n_uses);
    f->source[1].launch = copy(&f->launches, &f->source[1].n_launches);
    if (f->source[1].is.kind == VT_SOURCE_WORKER)
        f->source[1].n_launches = 0;
    if (story_build(&f->in, MINE, &text, &len, NULL, &err) != VT_OK)
        fail_msg("%s", err.message);
    free((void *)f->source[0].request);
    free((void *)f->source[0].step);
    free((void *)f->source[1].span);
    free((void *)f->source[1].use);
    free((void *)f->source[1].launch);
    json_t *story = json_loadb(text, len, 0, NULL);
    free(text);
    assert_non_null(story);
    return story;
}

/* A finding of this rule, or a symptom of one. */
static const json_t *finding(const json_t *story, const char *rule)
{
    size_t i, k;
    json_t *f, *symptom;
    json_array_foreach(json_object_get(story, "findings"), i, f)
    {
        if (strcmp(json_string_value(json_object_get(f, "rule")), rule) == 0)
            return f;
        json_array_foreach(json_object_get(f, "symptoms"), k, symptom)
        {
            if (strcmp(json_string_value(json_object_get(symptom, "rule")), rule) == 0)
                return symptom;
        }
    }
    return NULL;
}

static double value(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_number_value(json_is_object(v) ? json_object_get(v, "value") : v);
}

static double evidence(const json_t *found, const char *key)
{
    assert_non_null(found);
    return value(json_object_get(found, "evidence"), key);
}

#define NEAR(a, b) assert_true(fabs((a) - (b)) <= 1e-2 * fabs(b))

static void test_findings_when_steps_are_even_then_no_further_rule_speaks(void **state)
{
    static const char *const rule[] = {
        "launch",     "host.exposed",     "prefill.steals", "cache.miss", "itl.slope",
        "cold.first", "itl.spread",       "host.gaps",      "wave.tail",  "wave.few",
        "occupancy",  "fusion.candidate", "machine.shared", "call.once"};
    fake *f = *state;
    add_prompt(f);
    add_decodes(f, 100);
    json_t *s = tell(f);
    for (size_t i = 0; i < sizeof rule / sizeof rule[0]; i++)
        if (finding(s, rule[i]))
            fail_msg("%s", rule[i]);
    json_decref(s);
}

/* 40 decodes, every fourth of them with a chunk and 10 ms longer. */
static void test_findings_when_prompts_of_others_are_in_steps_then_prefill_steals(void **state)
{
    fake *f = *state;
    add_prompt(f);
    for (int i = 0; i < 10; i++) {
        add_decodes(f, 3);
        add(f,
            (planted){.q_len = 1, .kv_len = PROMPT + f->n_tokens, .length = 15 * MS, .chunk = 64});
    }
    json_t *s = tell(f);
    const json_t *found = finding(s, "prefill.steals");
    NEAR(evidence(found, "ms"), 100.0);
    NEAR(evidence(found, "steps"), 10.0);
    /* tokens come unevenly for the same reason: told once */
    const json_t *spread = finding(s, "itl.spread");
    assert_non_null(spread);
    size_t i;
    json_t *e;
    json_array_foreach(json_object_get(s, "findings"), i, e)
    {
        const char *rule = json_string_value(json_object_get(e, "rule"));
        if (strcmp(rule, "prefill.steals") == 0 || strcmp(rule, "itl.spread") == 0)
            assert_int_equal(json_array_size(json_object_get(e, "symptoms")), 1);
    }
    json_decref(s);
}

/* The device waits for 1 ms of publishing before each step of 5 ms. */
static void test_findings_when_publishing_is_not_hidden_then_host_exposed(void **state)
{
    fake *f = *state;
    add_prompt(f);
    for (int i = 0; i < 20; i++)
        add(f, (planted){.q_len = 1,
                         .kv_len = PROMPT + f->n_tokens,
                         .wait = MS,
                         .length = 5 * MS,
                         .publish = MS});
    json_t *s = tell(f);
    NEAR(evidence(finding(s, "host.exposed"), "exposed_us"), 1000.0);
    json_decref(s);
}

/* A step takes 5 ms and 10 us for each token of context. */
static void test_findings_when_steps_grow_faster_than_their_bytes_then_slope(void **state)
{
    fake *f = *state;
    add_prompt(f);
    for (int i = 0; i < 128; i++) {
        int32_t kv = PROMPT + f->n_tokens;
        add(f, (planted){.q_len = 1, .kv_len = kv, .length = 5 * MS + 10 * US * kv});
    }
    json_t *s = tell(f);
    const json_t *found = finding(s, "itl.slope");
    NEAR(evidence(found, "us_per_100_tokens"), 1000.0);
    /* 30 layers, K and V, 3 heads of 64, 2 bytes: 23,040 bytes a token at 25 GB/s */
    assert_true(evidence(found, "explained_us_per_100_tokens") > 80 &&
                evidence(found, "explained_us_per_100_tokens") < 105);
    json_decref(s);
}

static void test_findings_when_the_first_decode_is_long_then_cold(void **state)
{
    fake *f = *state;
    add_prompt(f);
    add(f, (planted){.q_len = 1, .kv_len = PROMPT + f->n_tokens, .length = 9 * MS});
    add_decodes(f, 20);
    json_t *s = tell(f);
    const json_t *found = finding(s, "cold.first");
    NEAR(evidence(found, "first_ms"), 9.0);
    NEAR(evidence(found, "typical_ms"), 5.0);
    NEAR(value(found, "gain_ms_per_token"), 4.0 / 21);
    assert_int_equal(value(json_array_get(json_object_get(found, "links"), 0), "step"), 2);
    json_decref(s);
}

/* It had 40 tokens, came back with 16 of them, and computed 25 again. */
static void test_findings_when_a_retraction_lost_pages_then_cache_miss(void **state)
{
    fake *f = *state;
    vt_trace_arrive(&f->requests, OTHER, 1, 64, 0);
    vt_trace_arrive(&f->requests, MINE, 2, PROMPT, 0);
    vt_trace_match(&f->requests, MINE, 3, 4, 0, 0);
    f->at = MS;
    add(f, (planted){.q_len = PROMPT, .kv_len = PROMPT, .length = 10 * MS});
    add_decodes(f, 20);
    vt_trace_retract(&f->requests, MINE, f->at + 1);
    vt_trace_match(&f->requests, MINE, f->at + MS, f->at + MS + 1, 16, 0);
    add(f, (planted){.q_len = 25, .kv_len = 41, .wait = 2 * MS, .length = 12 * MS});
    add_decodes(f, 20);
    json_t *s = tell(f);
    const json_t *found = finding(s, "cache.miss");
    NEAR(evidence(found, "tokens"), 40 - 1 - 16.0);
    NEAR(evidence(found, "ms"), 12.0);
    json_decref(s);
}

/* Small calls take 18 us, of which starting and ending one takes 10. */
static void test_findings_when_launches_take_a_tenth_of_a_step_then_said(void **state)
{
    fake *f = *state;
    add_prompt(f);
    add_decodes(f, 20);
    f->in.roofs.kernel_s = 10e-6;
    json_t *s = tell(f);
    const json_t *found = finding(s, "launch");
    assert_true(evidence(found, "calls") >= 120); /* the norms, rope and attention of 30 layers */
    assert_true(evidence(found, "share") > 0.2);
    json_decref(s);
}

/* At 0.1 GB/s each byte between two neighbours matters. */
static void test_findings_when_neighbours_pass_much_then_fusion(void **state)
{
    fake *f = *state;
    add_prompt(f);
    add_decodes(f, 20);
    json_t *s = tell(f);
    assert_null(finding(s, "fusion.candidate"));
    json_decref(s);
    f->in.roofs.memory_bytes_per_s = 0.1e9;
    s = tell(f);
    const json_t *found = finding(s, "fusion.candidate");
    assert_non_null(found);
    assert_int_equal(evidence(found, "pairs"), 30);
    json_decref(s);
}

/* Workers had no CPU for a fifth of every second step. */
static void test_findings_when_workers_had_no_cpu_then_machine_shared(void **state)
{
    fake *f = *state;
    add_prompt(f);
    for (int i = 0; i < 20; i++)
        add(f, (planted){.q_len = 1,
                         .kv_len = PROMPT + f->n_tokens,
                         .length = 5 * MS,
                         .delay = i % 2 ? MS : 5 * US});
    json_t *s = tell(f);
    const json_t *found = finding(s, "machine.shared");
    NEAR(evidence(found, "disturbed_steps"), 10.0);
    NEAR(evidence(found, "run_delay_ms"), 10.0 + 10 * 0.005);
    json_decref(s);
}

/* The finding of a rule about an op in a phase, or a symptom; NULL: there is none. */
static const json_t *about(const json_t *story, const char *phase, const char *rule, const char *op)
{
    size_t i, k;
    json_t *f, *symptom;
    json_array_foreach(json_object_get(story, "findings"), i, f)
    {
        const json_t *all = json_object_get(f, "symptoms");
        for (k = 0; k <= json_array_size(all); k++) {
            symptom = k ? json_array_get(all, k - 1) : f;
            const json_t *e = json_object_get(symptom, "evidence");
            const char *about = json_string_value(json_object_get(e, "op")),
                       *in = json_string_value(json_object_get(e, "phase"));
            if (strcmp(json_string_value(json_object_get(symptom, "rule")), rule) == 0 && about &&
                strcmp(about, op) == 0 && strcmp(in, phase) == 0)
                return symptom;
        }
    }
    return NULL;
}

static const json_t *about_op(const json_t *story, const char *rule, const char *op)
{
    return about(story, "decode", rule, op);
}

/* ---- single slow calls ---- */

/* A prompt of 10 ms in which the calls with `slow` in their labels take `by` more, and decodes. */
static json_t *tell_slow(fake *f, const char *slow, int64_t by)
{
    vt_trace_arrive(&f->requests, OTHER, 1, 64, 0);
    vt_trace_arrive(&f->requests, MINE, 2, PROMPT, 0);
    f->at = MS;
    add(f, (planted){
               .q_len = PROMPT, .kv_len = PROMPT, .length = 10 * MS, .slow = slow, .slow_by = by});
    add_decodes(f, 20);
    use_gpu(f, 64, 264);
    return tell(f);
}

static double op_us(const json_t *story, const char *op, const char *key)
{
    size_t i;
    json_t *o;
    const json_t *prefill = json_array_get(json_object_get(story, "phases"), 0);
    json_array_foreach(json_object_get(prefill, "ops"), i, o)
    {
        if (strcmp(json_string_value(json_object_get(o, "kind")), op) == 0)
            return value(o, key);
    }
    fail_msg("no op %s", op);
    return 0;
}

/* cuBLASLt is started by the first call of linear.qkv: 20 ms more than the 36 us of its sisters. */
static void test_findings_when_one_first_call_is_slow_then_a_start_and_no_gap(void **state)
{
    fake *f = *state;
    json_t *s = tell_slow(f, "L00.linear.qkv", 20 * MS);
    const json_t *found = about(s, "prefill", "cold.first", "linear.qkv");
    double usual_ms = evidence(found, "typical_ms");
    assert_true(usual_ms > 0.03 && usual_ms < 0.05);
    NEAR(evidence(found, "first_ms"), 20 + usual_ms);
    NEAR(evidence(found, "once_ms"), 20.0);
    NEAR(value(found, "gain_ms_per_token"), 1.0);
    const json_t *link = json_array_get(json_object_get(found, "links"), 0);
    assert_int_equal(value(link, "step"), 1);
    assert_string_equal(json_string_value(json_object_get(link, "call")), "L00.linear.qkv");
    const char *text = json_string_value(json_object_get(found, "text"));
    assert_non_null(strstr(text, "its first call (layer 0) took 20 ms"));
    assert_non_null(strstr(text, "a library or a kernel was started here"));
    assert_non_null(strstr(text, "a second prompt of this size does not pay it"));
    assert_null(about(s, "prefill", "roof.gap", "linear.qkv"));
    assert_null(about(s, "prefill", "share.largest", "linear.qkv"));
    assert_null(about(s, "prefill", "call.once", "linear.qkv"));
    NEAR(op_us(s, "linear.qkv", "time_us"), 20000 + 30 * usual_ms * 1e3); /* stays the sum */
    NEAR(op_us(s, "linear.qkv", "once_us"), 20000.0);
    assert_int_equal(op_us(s, "linear.o", "once_us"), 0);
    json_decref(s);
}

/* A start is paid once: the page does not share it out over the tokens. */
static void test_findings_of_a_start_name_its_whole_time(void **state)
{
    fake *f = *state;
    vt_term term = {.width = 2000};
    vt_buf page = {0};
    json_t *s = tell_slow(f, "L00.linear.qkv", 20 * MS);
    char *text = json_dumps(s, 0);
    assert_int_equal(story_render("s", text, strlen(text), &term, &page, NULL), VT_OK);
    assert_non_null(strstr(page.data, "; up to 20.0 ms, once [cold.first: "));
    vt_buf_release(&page);
    free(text);
    json_decref(s);
}

static void test_findings_when_an_op_is_slow_in_every_layer_then_a_gap_and_no_start(void **state)
{
    fake *f = *state;
    json_t *s = tell_slow(f, ".linear.qkv", MS);
    assert_non_null(about(s, "prefill", "roof.gap", "linear.qkv"));
    assert_non_null(about(s, "prefill", "share.largest", "linear.qkv"));
    assert_null(finding(s, "cold.first"));
    assert_null(finding(s, "call.once"));
    json_decref(s);
}

/* A gap that is there beside the start is told of the other calls. */
static void test_findings_when_an_op_starts_and_is_slow_then_both(void **state)
{
    fake *f = *state;
    f->in.roofs.memory_bytes_per_s = 250e9;
    f->in.roofs.fp32_per_s = f->in.roofs.int8_per_s = 1e13;
    json_t *s = tell_slow(f, "L00.linear.qkv", MS);
    const json_t *gap = about(s, "prefill", "roof.gap", "linear.qkv");
    assert_non_null(about(s, "prefill", "cold.first", "linear.qkv"));
    assert_non_null(gap);
    assert_true(evidence(gap, "share") < 0.13); /* a ninth of the time, as each op of a layer */
    assert_non_null(strstr(json_string_value(json_object_get(gap, "text")),
                           "(the start in its first call left out)"));
    json_decref(s);
}

/* L10 to L19: ten of thirty calls are how the op runs. */
static void test_findings_when_many_calls_are_slow_then_no_start(void **state)
{
    fake *f = *state;
    json_t *s = tell_slow(f, "L1", MS);
    assert_null(finding(s, "cold.first"));
    assert_null(finding(s, "call.once"));
    json_decref(s);
}

static void test_findings_when_a_later_call_is_slow_then_it_is_no_start(void **state)
{
    fake *f = *state;
    json_t *s = tell_slow(f, "L17.linear.down", 20 * MS);
    const json_t *found = about(s, "prefill", "call.once", "linear.down");
    NEAR(evidence(found, "once_ms"), 20.0);
    assert_int_equal(evidence(found, "layer"), 17);
    assert_null(finding(s, "cold.first"));
    assert_null(about(s, "prefill", "roof.gap", "linear.down"));
    json_decref(s);
}

/* A start is not what every step pays. */
static void test_findings_when_layer_0_is_slow_in_each_step_then_no_start(void **state)
{
    fake *f = *state;
    add_prompt(f);
    for (int i = 0; i < 20; i++)
        add(f, (planted){.q_len = 1,
                         .kv_len = PROMPT + f->n_tokens,
                         .length = 5 * MS,
                         .slow = "L00.linear.down",
                         .slow_by = 10 * MS});
    json_t *s = tell(f);
    assert_non_null(about_op(s, "roof.gap", "linear.down"));
    assert_null(finding(s, "cold.first"));
    assert_null(finding(s, "call.once"));
    json_decref(s);
}

/* Two workers: 3 heads of K and V are one and a half waves, and a row of rmsnorm is half a one. */
static void test_findings_when_items_do_not_fill_the_workers_then_wave(void **state)
{
    fake *f = *state;
    add_prompt(f);
    add_decodes(f, 20);
    json_t *s = tell(f);
    const json_t *tail = about_op(s, "wave.tail", "attention_decode"),
                 *few = about_op(s, "wave.few", "rmsnorm.attn");
    NEAR(evidence(tail, "waves"), 1.5);
    NEAR(evidence(tail, "tail"), 0.25);
    NEAR(evidence(few, "waves"), 0.5);
    assert_null(about_op(s, "wave.few", "attention_decode"));
    assert_null(about_op(s, "wave.tail", "rmsnorm.attn"));
    json_decref(s);
}

/* At 128 registers an SM holds 2 CTAs of 8 warps, and the GPU 264. */
static void test_findings_when_the_last_wave_is_nearly_empty_then_tail_and_occupancy(void **state)
{
    fake *f = *state;
    add_prompt(f);
    add_decodes(f, 20);
    use_gpu(f, 128, 300);
    json_t *s = tell(f);
    const json_t *tail = about_op(s, "wave.tail", "attention_decode"),
                 *low = about_op(s, "occupancy", "attention_decode");
    NEAR(evidence(tail, "waves"), 300 / 264.0);
    NEAR(evidence(tail, "tail"), 1 - 300 / 528.0);
    NEAR(evidence(low, "occupancy"), 0.25);
    assert_non_null(strstr(json_string_value(json_object_get(low, "text")),
                           "2 CTAs of its kernel, 16 of 64 warps, by registers; an SM would hold "
                           "3 CTAs with 80 registers"));
    json_decref(s);
}

/* Full waves have no tail, half of the warps is no low occupancy, and without a launch nothing is
 * known. */
static void test_findings_when_waves_are_full_then_no_rule_about_cuts(void **state)
{
    fake *f = *state;
    add_prompt(f);
    add_decodes(f, 20);
    for (int i = 0; i < 3; i++) {
        use_gpu(f, i == 1 ? 128 : 64, i == 1 ? 264 : 4 * 132 * 8);
        f->kernel.threads = i == 2 ? 0 : 256;
        json_t *s = tell(f);
        assert_null(about_op(s, "wave.tail", "attention_decode"));
        assert_null(about_op(s, "wave.few", "attention_decode"));
        assert_int_equal(about_op(s, "occupancy", "attention_decode") != NULL, i == 1);
        json_decref(s);
    }
}

/* 100 CTAs for 132 SMs; low occupancy is no finding where not even one wave is full. Where a row
 * has more tiles than its kernel has CTAs, they are what is divided. */
static void test_findings_when_ctas_are_few_then_wave_few_or_tiles(void **state)
{
    fake *f = *state;
    add_prompt(f);
    add_decodes(f, 20);
    use_gpu(f, 128, 100);
    json_t *s = tell(f);
    NEAR(evidence(about_op(s, "wave.few", "attention_decode"), "items"), 100.0);
    assert_null(finding(s, "wave.tail"));
    assert_null(finding(s, "occupancy"));
    json_decref(s);
    use_gpu(f, 64, 2);
    s = tell(f);
    NEAR(evidence(about_op(s, "wave.tail", "attention_decode"), "waves"), 1.5);
    json_decref(s);
}

/* The finding that could bring most stands first, and every gain is an upper bound that fits the
 * request. */
static void test_findings_are_in_the_order_of_their_gains(void **state)
{
    fake *f = *state;
    double last = INFINITY;
    size_t i;
    json_t *e;
    add_prompt(f);
    for (int k = 0; k < 20; k++) {
        add_decodes(f, 2);
        add(f, (planted){.q_len = 1,
                         .kv_len = PROMPT + f->n_tokens,
                         .wait = MS,
                         .length = 25 * MS,
                         .publish = MS,
                         .chunk = 64});
    }
    json_t *s = tell(f);
    json_array_foreach(json_object_get(s, "findings"), i, e)
    {
        double gain = value(e, "gain_ms_per_token");
        if (json_string_value(json_object_get(e, "id"))[0] != 'W')
            break;
        assert_true(gain <= last);
        last = gain > 0 ? gain : last;
    }
    assert_true(i >= 2);
    json_decref(s);
}

int main(void)
{
#define TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_findings_when_steps_are_even_then_no_further_rule_speaks),
        TEST(test_findings_when_prompts_of_others_are_in_steps_then_prefill_steals),
        TEST(test_findings_when_publishing_is_not_hidden_then_host_exposed),
        TEST(test_findings_when_steps_grow_faster_than_their_bytes_then_slope),
        TEST(test_findings_when_the_first_decode_is_long_then_cold),
        TEST(test_findings_when_a_retraction_lost_pages_then_cache_miss),
        TEST(test_findings_when_launches_take_a_tenth_of_a_step_then_said),
        TEST(test_findings_when_neighbours_pass_much_then_fusion),
        TEST(test_findings_when_workers_had_no_cpu_then_machine_shared),
        cmocka_unit_test_setup_teardown(test_findings_when_items_do_not_fill_the_workers_then_wave,
                                        setup_two, teardown),
        TEST(test_findings_when_the_last_wave_is_nearly_empty_then_tail_and_occupancy),
        TEST(test_findings_when_waves_are_full_then_no_rule_about_cuts),
        TEST(test_findings_when_ctas_are_few_then_wave_few_or_tiles),
        TEST(test_findings_when_one_first_call_is_slow_then_a_start_and_no_gap),
        TEST(test_findings_of_a_start_name_its_whole_time),
        TEST(test_findings_when_an_op_is_slow_in_every_layer_then_a_gap_and_no_start),
        TEST(test_findings_when_an_op_starts_and_is_slow_then_both),
        TEST(test_findings_when_many_calls_are_slow_then_no_start),
        TEST(test_findings_when_a_later_call_is_slow_then_it_is_no_start),
        TEST(test_findings_when_layer_0_is_slow_in_each_step_then_no_start),
        TEST(test_findings_are_in_the_order_of_their_gains),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
