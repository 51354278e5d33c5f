/* An artificial recording of a GPU, in which every number is known beforehand, and its story: what
 * test_story_gpu.c and test_story_counters.c share. */
#ifndef VT_TESTS_GPU_STORY_FIXTURE_H
#define VT_TESTS_GPU_STORY_FIXTURE_H

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

#include "model/load.h"
#include "exec/describe.h"
#include "story/story.h"

enum {
    MAX_EVENTS = 60000,
    PROMPT = 20,
    MS = 1000000,
    UPLOAD_US = 100,
    RESULTS_US = 50,
    PREPARE_US = 4500
};

static const vt_kernel_facts kernels[] = {
    {.name = "attention_prefill_sm90<head_dim=128>", .registers = 168, .shared_bytes = 1024},
    {.name = "attention_decode<head_dim=128>", .registers = 96, .shared_bytes = 2048},
    {.name = "gemm_sm90<bn=128>", .registers = 168, .spill_bytes = 16},
    {.name = "other<>", .registers = 32},
};

/* An artificial recording: one request of PROMPT tokens. */
typedef struct fake {
    story_input in;
    story_source source[3]; /* the engine, the GPU; a second GPU in stories of two ranks */
    vt_request_event *requests;
    vt_step_event *steps;
    vt_span *spans;
    vt_launch_event *launches;
    vt_trace_ring request_ring, step_ring, span_ring, launch_ring;
    vt_described described;
    story_step *plan;
    uint64_t n_step;
    int64_t last_end;
    int32_t shared_pages; /* for all sequences except the first */
    uint64_t others; /* added to the ids of a step's requests, so that they are other requests */
} fake;

static int32_t kernel_of(const vt_call *c)
{
    return strcmp(c->op->name, "attention_prefill") == 0  ? 0
           : strcmp(c->op->name, "attention_decode") == 0 ? 1
           : strcmp(c->op->name, "linear") == 0           ? 2
                                                          : 3;
}

/* The calls of the step, each with the same time. */
static void add_calls(fake *f, int64_t base, int64_t begin, int64_t end)
{
    const vt_program *p = story_step_program(f->plan);
    int32_t n = 0, at = 0;
    for (int32_t i = 0; i < p->n_calls; i++)
        n += story_step_impl(f->plan, i) != NULL;
    for (int32_t i = 0; i < p->n_calls; i++) {
        if (!story_step_impl(f->plan, i))
            continue;
        vt_trace_call(&f->span_ring, base, i, begin + (end - begin) * at / n,
                      begin + (end - begin) * (at + 1) / n);
        vt_trace_kernel(&f->span_ring, i, kernel_of(&p->call[i]));
        at++;
    }
}

/* A step of `seqs` sequences of equal length, in a graph for `graph` (0: not in a graph). */
static void step(fake *f, int32_t q_len, int32_t kv_len, int32_t seqs, int32_t graph, bool timed,
                 int64_t begin, int64_t end)
{
    uint64_t id = ++f->n_step;
    story_seq seq[8];
    for (int32_t i = 0; i < seqs; i++) {
        seq[i] = (story_seq){.q_len = q_len, .kv_len = kv_len, .n_rows = kv_len >= PROMPT};
        vt_trace_seq(&f->step_ring, id, 7 + f->others + (uint64_t)i, q_len, kv_len,
                     i > 0 ? f->shared_pages : 0);
    }
    assert_int_equal(story_step_set(f->plan, seq, seqs, NULL), VT_OK);
    vt_trace_step(&f->step_ring, &(vt_step_ran){.step = id,
                                                .begin_ns = begin,
                                                .end_ns = end,
                                                .n_tokens = q_len * seqs,
                                                .n_seqs = seqs,
                                                .n_decode = q_len == 1 ? seqs : 0});
    vt_trace_part_of(&f->step_ring, id, VT_PART_PREPARE, begin - PREPARE_US * 1000, begin);
    if (timed) {
        vt_trace_base(&f->span_ring, id, begin);
        add_calls(f, begin, begin + UPLOAD_US * 1000, end - RESULTS_US * 1000);
    }
    vt_trace_launch(&f->launch_ring, &(vt_launch_event){.step = id,
                                                        .begin_ns = begin,
                                                        .end_ns = end,
                                                        .idle_ns = begin - f->last_end,
                                                        .move_bytes = {4096, 4},
                                                        .move_ns = {timed ? UPLOAD_US * 1000 : 0,
                                                                    timed ? RESULTS_US * 1000 : 0},
                                                        .n_kernels = 228,
                                                        .graph_tokens = graph,
                                                        .timed = timed});
    f->last_end = end;
}

/* The request arrives at 1 ms. Its prefill lasts from 3 to 13 ms. Then there is a step every 6 ms:
 * the first and every fourth is timed and takes 5 ms, the others take 2 ms in their graph. Each
 * token is published when its step ends. */
static void tell_plain(fake *f, int32_t n_decode, int32_t seqs, int32_t graph)
{
    int64_t at = 13 * MS;
    f->last_end = 2 * MS;
    vt_trace_arrive(&f->request_ring, 7, 1 * MS, PROMPT, 0);
    vt_trace_match(&f->request_ring, 7, 2 * MS, 2 * MS + 5000, 0, 0);
    step(f, PROMPT, PROMPT, 1, 0, true, 3 * MS, at);
    vt_trace_token(&f->request_ring, 7, at, f->n_step, 0, 42);
    for (int32_t i = 0; i < n_decode; i++) {
        bool timed = i % 4 == 0;
        step(f, 1, PROMPT + 1 + i, seqs, graph, timed, at + MS, at + (timed ? 6 : 3) * MS);
        at += (timed ? 6 : 3) * MS;
        vt_trace_token(&f->request_ring, 7, at, f->n_step, i + 1, 43);
    }
    vt_trace_finish(&f->request_ring, 7, at + MS, VT_END_MAX_TOKENS, n_decode + 1);
}

static int setup(void **state)
{
    fake *f = calloc(1, sizeof *f);
    vt_model *m = NULL;
    *state = f;
    if (!f || vt_cpu_init(NULL) != VT_OK || vt_model_load_dummy("qwen3-0.6b", &m, NULL) != VT_OK)
        return -1;
    f->in.model = m;
    vt_limits limits = {.max_tokens = 64,
                        .max_seqs = 8,
                        .max_rows = 64,
                        .max_context = 512,
                        .page_size = 16,
                        .n_workers = 1};
    vt_target target = vt_target_named(vt_hardware_find("h200", NULL), &limits);
    if (vt_describe(m, &target, VT_BF16, &f->described, NULL) != VT_OK)
        return -1;
    f->in.program = f->described.program;
    f->in.device = "cuda";
    f->in.n_pages = 8;
    f->in.roofs = (vt_roofs){.name = "a GPU of the test",
                             .level = "sm_90a",
                             .memory_bytes_per_s = 4e12,
                             .fp32_per_s = 60e12,
                             .bf16_per_s = 800e12,
                             .l2_bytes = 25 << 20,
                             .l2_bytes_per_s = 8e12,
                             .kernel_s = 1e-6};
    f->requests = calloc(MAX_EVENTS, sizeof *f->requests);
    f->steps = calloc(MAX_EVENTS, sizeof *f->steps);
    f->spans = calloc(MAX_EVENTS, sizeof *f->spans);
    f->launches = calloc(MAX_EVENTS, sizeof *f->launches);
    if (vt_trace_init(&f->request_ring, sizeof *f->requests, MAX_EVENTS, NULL) != VT_OK ||
        vt_trace_init(&f->step_ring, sizeof *f->steps, MAX_EVENTS, NULL) != VT_OK ||
        vt_trace_init(&f->span_ring, sizeof *f->spans, MAX_EVENTS, NULL) != VT_OK ||
        vt_trace_init(&f->launch_ring, sizeof *f->launches, MAX_EVENTS, NULL) != VT_OK)
        return -1;
    f->source[0] = (story_source){.is = {.name = "engine", .kind = VT_SOURCE_ENGINE},
                                  .request = f->requests,
                                  .step = f->steps};
    f->source[1] = (story_source){.is = {.name = "rank 0",
                                         .kind = VT_SOURCE_STREAM,
                                         .device = {.level = "sm_90a",
                                                    .kernel_level = 90,
                                                    .sm_count = 132,
                                                    .memory_bytes = 141000000000},
                                         .clock_error_ns = 12000,
                                         .event_ns = 1000,
                                         .read_ns = 2000,
                                         .n_kernels = sizeof kernels / sizeof *kernels},
                                  .span = f->spans,
                                  .launch = f->launches,
                                  .kernel = kernels,
                                  .free_bytes = 101000000000,
                                  .has_state = true,
                                  .state = {.sm_mhz = 1500,
                                            .sm_max_mhz = 1980,
                                            .memory_mhz = -1,
                                            .memory_max_mhz = -1,
                                            .temperature_c = 45,
                                            .power_w = 690,
                                            .power_limit_w = 700,
                                            .throttle = 4}};
    f->in.source = f->source;
    f->in.n_sources = 2;
    return story_step_new(f->in.program, 64, 8, &f->plan, NULL) == VT_OK ? 0 : -1;
}

static int teardown(void **state)
{
    fake *f = *state;
    story_step_free(f->plan);
    vt_described_release(&f->described);
    vt_model_free((vt_model *)f->in.model);
    vt_trace_release(&f->request_ring);
    vt_trace_release(&f->step_ring);
    vt_trace_release(&f->span_ring);
    vt_trace_release(&f->launch_ring);
    free(f->requests);
    free(f->steps);
    free(f->spans);
    free(f->launches);
    free(f);
    return 0;
}

/* The contents of the rings, without the first `lost` spans. */
static void collect(fake *f, uint64_t lost)
{
    f->source[0].n_requests = vt_trace_copy(&f->request_ring, f->requests, MAX_EVENTS);
    f->source[0].n_steps = vt_trace_copy(&f->step_ring, f->steps, MAX_EVENTS);
    f->source[1].n_launches = vt_trace_copy(&f->launch_ring, f->launches, MAX_EVENTS);
    f->source[1].n_spans = vt_trace_copy(&f->span_ring, f->spans, MAX_EVENTS) - lost;
    f->source[1].span = f->spans + lost;
}

/* The story of what was collected. */
static json_t *tell_collected(fake *f)
{
    char *text = NULL;
    size_t len = 0;
    vt_err err = {0};
    if (story_build(&f->in, 7, &text, &len, NULL, &err) != VT_OK)
        fail_msg("%s", err.message);
    json_t *story = json_loadb(text, len, 0, NULL);
    free(text);
    assert_non_null(story);
    return story;
}

static inline json_t *tell_without(fake *f, uint64_t lost)
{
    collect(f, lost);
    return tell_collected(f);
}

static inline json_t *tell(fake *f) { return tell_without(f, 0); }

static double value(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    assert_non_null(v);
    return json_number_value(json_is_object(v) ? json_object_get(v, "value") : v);
}

static const json_t *op_of(const json_t *p, const char *kind)
{
    size_t i;
    json_t *op;
    json_array_foreach(json_object_get(p, "ops"), i, op)
    {
        if (strcmp(json_string_value(json_object_get(op, "kind")), kind) == 0)
            return op;
    }
    return NULL;
}

/* A finding of this rule, or a symptom of one. */
static inline const json_t *finding(const json_t *story, const char *rule)
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

#define NEAR(a, b) assert_true(fabs((a) - (b)) <= 1e-3 * fabs(b))

#endif
