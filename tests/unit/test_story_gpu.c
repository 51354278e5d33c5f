/* Stories of artificial recordings of a GPU, in which every number is known beforehand. */
#include "gpu_story_fixture.h"

/* 240 decode steps, 3 ms from end to end, and `more` ns longer in recorded blocks: the device runs
 * each for 2 ms. Every 64th is timed and takes twice as long. */
static json_t *tell_blocks(fake *f, int64_t more)
{
    int64_t at = 13 * MS;
    f->last_end = 2 * MS;
    vt_trace_arrive(&f->request_ring, 7, 1 * MS, PROMPT, 0);
    step(f, PROMPT, PROMPT, 1, 0, true, 3 * MS, at);
    for (int32_t i = 0; i < 240; i++) {
        bool timed = i % 64 == 0;
        int64_t length = (timed ? 6 : 3) * MS + (vt_spans_on(f->n_step + 1) ? more : 0);
        step(f, 1, PROMPT + 1 + i, 1, 1, timed, at + length - (timed ? 5 : 2) * MS, at + length);
        at += length;
        vt_trace_token(&f->request_ring, 7, at, f->n_step, i + 1, 43);
    }
    return tell(f);
}

static const json_t *phase(const json_t *story, size_t i)
{
    const json_t *p = json_array_get(json_object_get(story, "phases"), i);
    assert_non_null(p);
    return p;
}

static void test_gpu_story_ops_sum_to_the_timed_steps(void **state)
{
    fake *f = *state;
    tell_plain(f, 9, 1, 1);
    json_t *s = tell(f);
    for (size_t i = 0; i < 2; i++) {
        const json_t *p = phase(s, i);
        size_t k;
        json_t *op;
        double us = 0, share = 0;
        json_array_foreach(json_object_get(p, "ops"), k, op)
        {
            us += value(op, "time_us");
            share += value(op, "share");
        }
        NEAR(us, value(p, "ops_us"));
        NEAR(us, value(p, "step_us"));
        NEAR(share, 1.0);
        assert_true(fabs(value(p, "unexplained")) < 1e-3);
    }
    const json_t *d = phase(s, 1);
    assert_int_equal(value(d, "steps"), 9);
    assert_int_equal(value(d, "timed_steps"), 3);
    NEAR(value(d, "step_us"), 5000.0);
    NEAR(value(op_of(d, "upload"), "time_us"), (double)UPLOAD_US);
    NEAR(value(op_of(d, "results"), "time_us"), (double)RESULTS_US);
    assert_null(op_of(d, "kv_store"));
    assert_null(op_of(d, "rope_store")); /* which attention of few decodes makes */
    assert_non_null(op_of(phase(s, 0), "rope_store"));
    json_decref(s);
}

static void test_gpu_story_bytes_are_those_of_the_program(void **state)
{
    fake *f = *state;
    tell_plain(f, 1, 1, 1);
    json_t *s = tell(f);
    const vt_program *p = story_step_program(f->plan);
    const story_seq seq = {.q_len = 1, .kv_len = PROMPT + 1, .n_rows = 1};
    double weights = 0, kv = 0, told_weights = 0, told_kv = 0;
    vt_cost cost, extra;
    assert_int_equal(story_step_set(f->plan, &seq, 1, NULL), VT_OK);
    for (int32_t i = 0; i < p->n_calls; i++)
        if (story_step_cost(f->plan, i, &cost, &extra)) {
            weights += (double)(cost.read.weights + cost.write.weights);
            kv += (double)(cost.read.kv + cost.write.kv);
        }
    size_t k;
    json_t *op;
    json_array_foreach(json_object_get(phase(s, 1), "ops"), k, op)
    {
        told_weights += value(json_object_get(op, "expected_bytes"), "weights");
        told_kv += value(json_object_get(op, "expected_bytes"), "kv");
    }
    NEAR(told_weights, weights);
    NEAR(told_kv, kv);
    /* 28 layers, K and V, 8 heads of 128, bf16: one token written, 21 read */
    NEAR(told_kv, 28.0 * 2 * 8 * 128 * 2 * (1 + 21));
    json_decref(s);
}

/* Three sequences have a context of 21 tokens each, and share its first page of 16. */
static void test_gpu_story_bytes_of_shared_pages_count_once(void **state)
{
    fake *f = *state;
    f->shared_pages = 1;
    tell_plain(f, 1, 3, 4);
    json_t *s = tell(f), *op;
    double told_kv = 0;
    size_t k;
    json_array_foreach(json_object_get(phase(s, 1), "ops"), k, op)
    {
        told_kv += value(json_object_get(op, "expected_bytes"), "kv");
    }
    NEAR(told_kv, 28.0 * 2 * 8 * 128 * 2 * (3 + 3 * 21 - 2 * 16));
    json_decref(s);
}

static void test_gpu_story_tells_how_steps_ran(void **state)
{
    fake *f = *state;
    tell_plain(f, 9, 5, 8);
    json_t *s = tell(f);
    const json_t *g = json_object_get(phase(s, 1), "gpu");
    assert_string_equal(json_string_value(json_object_get(g, "how")),
                        "in the graph for 8 sequences, 5 used");
    assert_int_equal(value(g, "whole_steps"), 6);
    NEAR(value(g, "whole_step_us"), 2000.0);
    NEAR(value(g, "slower"), 2.5);
    NEAR(value(g, "idle_us"), 1000.0);
    NEAR(value(g, "prepare_timed_us"), (double)PREPARE_US);
    assert_non_null(finding(s, "timed.starved"));
    assert_null(finding(s, "kernel.count")); /* 228 us of 2 ms */
    NEAR(value(g, "kernels_per_step"), 228.0);
    NEAR(value(g, "host_to_device_bytes"), 4096.0);
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(phase(s, 0), "gpu"), "how")),
        "launched kernel by kernel");
    assert_non_null(finding(s, "graph.padding"));
    assert_non_null(finding(s, "timed.slower"));
    assert_non_null(finding(s, "gpu.idle"));
    const json_t *o = json_object_get(s, "observer");
    NEAR(value(o, "timed_step_us"), 5000.0);
    NEAR(value(o, "whole_step_us"), 2000.0);
    double period = json_number_value(json_object_get(o, "period"));
    assert_true(period >= 3 && period <= 6); /* every fourth step is timed */
    NEAR(value(o, "tax"), 1.5 / period);
    json_decref(s);
}

/* The batch grows from 1 sequence to 5, and the graph from 1 to 8. */
static void test_gpu_story_when_the_graph_changes_then_a_transition(void **state)
{
    fake *f = *state;
    tell_plain(f, 4, 1, 1);
    for (int i = 0; i < 4; i++)
        step(f, 1, PROMPT + 5 + i, 5, 8, false, f->last_end + MS, f->last_end + 3 * MS);
    json_t *s = tell(f), *t;
    size_t i;
    bool bucket = false;
    json_array_foreach(json_object_get(s, "transitions"), i, t)
    {
        if (strcmp(json_string_value(json_object_get(t, "kind")), "bucket") != 0)
            continue;
        assert_false(bucket);
        bucket = true;
        assert_string_equal(json_string_value(json_object_get(t, "what")),
                            "graph for 1 -> graph for 8");
        assert_string_equal(json_string_value(json_object_get(t, "reason")),
                            "5 tokens a step, 1 before; 3 rows are padding");
        assert_int_equal(value(t, "step"), 6);
        assert_true(value(json_object_get(t, "after"), "flop_per_byte") >
                    3 * value(json_object_get(t, "before"), "flop_per_byte"));
    }
    assert_true(bucket);
    json_decref(s);
}

/* Steps that are not timed take 2 ms, so a token comes every 3 ms. The time of timed steps is not
 * counted. */
static void test_gpu_story_itl_leaves_timed_steps_out(void **state)
{
    fake *f = *state;
    tell_plain(f, 9, 1, 1);
    json_t *s = tell(f);
    const json_t *q = json_object_get(s, "request");
    NEAR(value(q, "itl_p50_ms"), 3.0);
    NEAR(value(q, "itl_p99_ms"), 3.0);
    assert_int_equal(value(q, "itl_left_out"), 3);
    assert_int_equal(json_array_size(json_object_get(json_object_get(q, "itl_ms"), "values")), 9);
    assert_null(finding(s, "itl.spread"));
    json_decref(s);
}

static void test_gpu_story_names_kernels(void **state)
{
    fake *f = *state;
    f->in.roofs.kernel_s = 3e-6;
    tell_plain(f, 2, 1, 1);
    json_t *s = tell(f);
    const json_t *op = op_of(phase(s, 1), "linear.qkv");
    const json_t *k = json_array_get(json_object_get(op, "kernels"), 0);
    assert_string_equal(json_string_value(json_object_get(k, "name")), "gemm_sm90<bn=128>");
    NEAR(value(k, "launches"), 28.0);
    assert_int_equal(value(k, "registers"), 168);
    assert_non_null(finding(s, "kernel.spill"));
    assert_non_null(finding(s, "kernel.count"));
    const json_t *t = json_object_get(s, "transition");
    assert_string_equal(json_string_value(json_object_get(json_object_get(t, "before"), "kernel")),
                        kernels[0].name);
    assert_string_equal(json_string_value(json_object_get(json_object_get(t, "after"), "kernel")),
                        kernels[1].name);
    json_decref(s);
}

static void test_gpu_story_when_no_step_was_timed_then_said(void **state)
{
    fake *f = *state;
    f->last_end = 2 * MS;
    vt_trace_arrive(&f->request_ring, 7, 1 * MS, PROMPT, 0);
    step(f, 1, PROMPT + 1, 1, 1, false, 3 * MS, 5 * MS);
    json_t *s = tell(f);
    assert_int_equal(value(phase(s, 0), "timed_steps"), 0);
    assert_true(json_is_null(json_object_get(s, "transition")));
    char *why = json_dumps(json_object_get(s, "not_measured"), 0);
    assert_non_null(strstr(why, "op calls of 1 step"));
    assert_null(strstr(why, "older"));
    free(why);
    json_decref(s);
}

static void test_gpu_story_when_no_decode_was_timed_then_the_table_is_borrowed(void **state)
{
    fake *f = *state;
    f->last_end = 2 * MS;
    vt_trace_arrive(&f->request_ring, 7, 1 * MS, PROMPT, 0);
    f->others = 100;
    for (int64_t i = 0; i < 3; i++)
        step(f, 1, PROMPT + 1, 6, 8, true, (3 + 5 * i) * MS, (8 + 5 * i) * MS);
    step(f, 1, PROMPT + 1, 3, 4, true, 18 * MS, 22 * MS); /* another graph */
    f->others = 0;
    for (int64_t i = 0; i < 5; i++) {
        step(f, 1, PROMPT + 1, 5, 8, false, (30 + 2 * i) * MS, (32 + 2 * i) * MS);
        vt_trace_token(&f->request_ring, 7, (32 + 2 * i) * MS, f->n_step, (int32_t)i, 43);
    }
    json_t *s = tell(f);
    const json_t *p = phase(s, 0);
    assert_int_equal(value(p, "steps"), 5);
    assert_int_equal(value(p, "timed_steps"), 0);
    assert_int_equal(value(p, "typical_steps"), 3);
    assert_int_equal(value(p, "borrowed_steps"), 3);
    assert_true(value(p, "step_us") > 4999 && value(p, "step_us") < 5001);
    assert_non_null(op_of(p, "attention_decode"));
    char *text = json_dumps(s, 0);
    vt_buf out = {0};
    vt_term term = {.width = VT_TERM_WIDTH};
    assert_int_equal(story_render("test", text, strlen(text), &term, &out, NULL), VT_OK);
    assert_non_null(strstr(out.data, "None of this request's steps was timed call by call."));
    assert_non_null(strstr(out.data, "(8 tokens)"));
    vt_buf_release(&out);
    free(text);
    json_decref(s);
}

static void test_gpu_story_when_a_step_lost_its_beginning_then_not_timed(void **state)
{
    fake *f = *state;
    tell_plain(f, 5, 1, 1);
    json_t *s = tell_without(f, 2); /* the prefill's first spans are overwritten */
    assert_int_equal(value(phase(s, 0), "timed_steps"), 0);
    assert_int_equal(value(phase(s, 1), "timed_steps"), 2);
    json_decref(s);
}

static void test_gpu_render_when_told_then_sections_within_width(void **state)
{
    fake *f = *state;
    static const char *const word[] = {"a GPU of the test",
                                       "TRANSITION",
                                       "attention_prefill_sm90",
                                       "KERNELS of a decode step",
                                       "GPU",
                                       "OBSERVER",
                                       "in the graph for 8 sequences, 5 used",
                                       "left alone",
                                       "GPU memory used 40.0 GB of 141 GB",
                                       "SM 1500 of 1980 MHz, 690 of 700 W, 45 C; clocks held by"};
    vt_term term = {.width = VT_TERM_WIDTH};
    vt_buf out = {0};
    char *text = NULL;
    size_t len = 0;
    tell_plain(f, 9, 5, 8);
    collect(f, 0);
    assert_int_equal(story_build(&f->in, 7, &text, &len, NULL, NULL), VT_OK);
    assert_int_equal(story_render("test", text, len, &term, &out, NULL), VT_OK);
    for (size_t i = 0; i < sizeof word / sizeof word[0]; i++)
        if (!strstr(out.data, word[i]))
            fail_msg("no '%s' in:\n%s", word[i], out.data);
    assert_null(strstr(out.data, "threads"));
    for (const char *p = out.data; *p;) {
        size_t n = strcspn(p, "\n");
        if (vt_text_width(p, n) > VT_TERM_WIDTH)
            fail_msg("wider than %d: %.*s", VT_TERM_WIDTH, (int)n, p);
        p += n + (p[n] == '\n');
    }
    free(text);
    vt_buf_release(&out);
}

/* Steps of tell_blocks: 1 is the prompt, and 2, 66, 130 ... are timed. The step after one of these
 * begins when a longer one ended. */
static bool can_be_compared(uint64_t id)
{
    return id >= 3 && id <= 241 && (id - 2) % 64 != 0 && (id - 3) % 64 != 0;
}

/* The next step begins late because of what the host does in recorded blocks: it is in the time
 * from end to end, and not in the device's. */
static void test_gpu_tax_when_recorded_steps_end_later_then_measured(void **state)
{
    fake *f = *state;
    json_t *s = tell_blocks(f, 30000), *o = json_object_get(s, "observer");
    int32_t pairs = 0;
    for (uint64_t id = 1; id <= 241; id++)
        if (vt_spans_on(id)) {
            uint64_t other = id / VT_SPAN_BLOCK % 4 == 0 ? id + VT_SPAN_BLOCK : id - VT_SPAN_BLOCK;
            pairs += can_be_compared(id) && can_be_compared(other);
        }
    assert_int_equal(value(o, "pairs"), pairs);
    NEAR(value(o, "off_us"), 3000.0);
    NEAR(value(o, "measured_tax"), 0.01);
    NEAR(value(o, "measured_tax_low"), 0.01);
    json_decref(s);
}

static void test_gpu_tax_when_blocks_are_alike_then_its_interval_holds_zero(void **state)
{
    fake *f = *state;
    vt_term term = {.width = VT_TERM_WIDTH};
    vt_buf page = {0};
    json_t *s = tell_blocks(f, 0), *o = json_object_get(s, "observer");
    assert_true(value(o, "measured_tax_low") <= 0 && value(o, "measured_tax_high") >= 0);
    char *text = json_dumps(s, 0);
    assert_int_equal(story_render("s", text, strlen(text), &term, &page, NULL), VT_OK);
    assert_non_null(strstr(page.data, "the host's recorder below 0.1 % of a step [0.0 .. 0.0]"));
    vt_buf_release(&page);
    free(text);
    json_decref(s);
}

/* ---- two ranks ---- */

/* What a second rank records beside the fixture's. */
typedef struct second {
    vt_trace_ring span_ring, launch_ring;
    vt_span spans[4096];
    vt_launch_event launches[64];
    vt_roofs roofs;
    int64_t inside_ns; /* so long after the first rank its calls begin, and before it they end */
    int64_t late_ns; /* so long after the first rank it sets out; its upload takes a half of that */
} second;

/* A timed step of one rank: each call takes its slot, of which the rank works for `share` and waits
 * for the rest. */
static void plant_calls(fake *f, vt_trace_ring *ring, int64_t begin, int64_t end, double share)
{
    const vt_program *p = story_step_program(f->plan);
    int32_t n = 0, at = 0;
    vt_trace_base(ring, f->n_step, begin);
    for (int32_t i = 0; i < p->n_calls; i++)
        n += story_step_impl(f->plan, i) != NULL;
    for (int32_t i = 0; i < p->n_calls; i++) {
        if (!story_step_impl(f->plan, i))
            continue;
        int64_t from = begin + (end - begin) * at / n, to = begin + (end - begin) * (at + 1) / n;
        vt_trace_met(ring, begin, i, from, from + (int64_t)((double)(to - from) * share), to);
        vt_trace_kernel(ring, i, kernel_of(&p->call[i]));
        at++;
    }
}

/* A decode step of two ranks of 4 ms. Where it is timed rank 0 waits for a quarter of every call;
 * where it is not it ends 1 ms before rank 1. */
static void step_of_two(fake *f, second *b, int32_t kv_len, bool timed, int64_t begin)
{
    int64_t end = begin + 4 * MS;
    story_seq seq = {.q_len = 1, .kv_len = kv_len, .n_rows = 1};
    vt_launch_event e = {.step = ++f->n_step,
                         .begin_ns = begin,
                         .end_ns = timed ? end : end - MS,
                         .n_kernels = 228,
                         .graph_tokens = 1,
                         .timed = timed};
    assert_int_equal(story_step_set(f->plan, &seq, 1, NULL), VT_OK);
    vt_trace_seq(&f->step_ring, f->n_step, 7, 1, kv_len, 0);
    vt_trace_step(&f->step_ring, &(vt_step_ran){.step = f->n_step,
                                                .begin_ns = begin,
                                                .end_ns = end,
                                                .n_tokens = 1,
                                                .n_seqs = 1,
                                                .n_decode = 1});
    if (timed) {
        plant_calls(f, &f->span_ring, begin, end, 0.75);
        plant_calls(f, &b->span_ring, begin + b->inside_ns + b->late_ns * 3 / 2, end - b->inside_ns,
                    1);
    }
    vt_trace_launch(&f->launch_ring, &e);
    e.begin_ns += b->inside_ns + b->late_ns;
    e.end_ns = end;
    e.n_kernels = 230;
    e.move_ns[VT_MOVE_TO_DEVICE] = b->late_ns / 2;
    vt_trace_launch(&b->launch_ring, &e);
}

/* 12 decode steps 5 ms apart, of which the first and every fourth is timed. The second rank's
 * memory is half as fast. */
static json_t *tell_two(fake *f, second *b)
{
    assert_int_equal(vt_trace_init(&b->span_ring, sizeof(vt_span), 4096, NULL), VT_OK);
    assert_int_equal(vt_trace_init(&b->launch_ring, sizeof(vt_launch_event), 64, NULL), VT_OK);
    vt_trace_arrive(&f->request_ring, 7, 1 * MS, PROMPT, PROMPT - 1);
    for (int32_t i = 0; i < 12; i++) {
        step_of_two(f, b, PROMPT + i, i % 4 == 0, (3 + 5 * i) * MS);
        vt_trace_token(&f->request_ring, 7, (7 + 5 * i) * MS, f->n_step, i, 43);
    }
    vt_trace_finish(&f->request_ring, 7, 70 * MS, VT_END_MAX_TOKENS, 12);
    f->source[2] = f->source[1];
    b->roofs = f->in.roofs;
    snprintf(b->roofs.name, sizeof b->roofs.name, "a slower GPU");
    b->roofs.memory_bytes_per_s /= 2;
    snprintf(f->source[2].is.name, sizeof f->source[2].is.name, "rank 1");
    f->source[2].is.device.ordinal = 1;
    f->source[2].span = b->spans;
    f->source[2].launch = b->launches;
    f->source[2].n_spans = vt_trace_copy(&b->span_ring, b->spans, 4096);
    f->source[2].n_launches = vt_trace_copy(&b->launch_ring, b->launches, 64);
    f->source[2].roofs = &b->roofs;
    f->in.n_sources = 3;
    vt_trace_release(&b->span_ring);
    vt_trace_release(&b->launch_ring);
    return tell(f);
}

static const json_t *rank(const json_t *story, size_t i)
{
    const json_t *items = json_object_get(json_object_get(story, "ranks"), "items");
    assert_int_equal(json_array_size(items), 2);
    return json_array_get(items, i);
}

static void test_ranks_when_one_is_late_then_the_other_waited_for_it(void **state)
{
    fake *f = *state;
    second *b = calloc(1, sizeof *b);
    assert_non_null(b);
    json_t *s = tell_two(f, b);
    int32_t n_calls = 0;
    for (int32_t i = 0; i < story_step_program(f->plan)->n_calls; i++)
        n_calls += story_step_impl(f->plan, i) != NULL;
    /* rank 0: 3 timed steps of 4 ms, of which a quarter is waiting; 9 others that end 1 ms early */
    const json_t *r0 = rank(s, 0), *r1 = rank(s, 1), *waits = json_object_get(r0, "waited_for"),
                 *for1 = json_array_get(waits, 0);
    assert_string_equal(json_string_value(json_object_get(r0, "name")), "rank 0");
    assert_int_equal(json_array_size(waits), 1);
    assert_string_equal(json_string_value(json_object_get(for1, "rank")), "rank 1");
    assert_int_equal(value(for1, "calls"), 3 * n_calls);
    NEAR(value(for1, "calls_ms"), 3.0);
    assert_int_equal(value(for1, "steps"), 9);
    NEAR(value(for1, "steps_ms"), 9.0);
    NEAR(value(r0, "busy_ms"), 9.0);
    NEAR(value(r0, "waited_ms"), 12.0);
    assert_int_equal(value(r0, "last_steps"), 3); /* of equal ends the first counts */
    assert_int_equal(value(r0, "late_calls"), 0);
    /* rank 1 waited for nobody */
    assert_int_equal(json_array_size(json_object_get(r1, "waited_for")), 0);
    assert_int_equal(value(r1, "late_calls"), 3 * n_calls);
    assert_int_equal(value(r1, "last_steps"), 9);
    NEAR(value(r1, "device_ms"), 48.0);
    /* the finding says so */
    const json_t *found = json_object_get(finding(s, "rank.waits"), "evidence");
    assert_string_equal(json_string_value(json_object_get(found, "rank")), "rank 0");
    assert_string_equal(json_string_value(json_object_get(found, "waits_for")), "rank 1");
    json_decref(s);
    free(b);
}

/* Time of an op of the decode phase in a step, in us. */
static double op_us(const json_t *story, const char *kind)
{
    size_t i;
    json_t *op;
    json_array_foreach(json_object_get(json_array_get(json_object_get(story, "phases"), 1), "ops"),
                       i, op)
    {
        if (strcmp(json_string_value(json_object_get(op, "kind")), kind) == 0)
            return value(op, "time_us");
    }
    fail_msg("no op %s", kind);
    return 0;
}

/* Rank 1 sets out 0.4 ms after rank 0 and uploads for 0.2 ms more. Its first call takes a share of
 * what is left of the step, and takes in neither: they are ops of their own, and all sum to the
 * step. */
static void test_ranks_when_one_sets_out_late_then_that_is_no_time_of_the_first_call(void **state)
{
    fake *f = *state;
    second *b = calloc(1, sizeof *b);
    assert_non_null(b);
    b->late_ns = 4 * MS / 10;
    json_t *s = tell_two(f, b);
    const json_t *decode = json_array_get(json_object_get(s, "phases"), 1);
    int32_t n_calls = 0;
    for (int32_t i = 0; i < story_step_program(f->plan)->n_calls; i++)
        n_calls += story_step_impl(f->plan, i) != NULL;
    NEAR(op_us(s, "ranks"), 400.0);
    NEAR(op_us(s, "upload"), 200.0);
    NEAR(op_us(s, "embed"), 3400.0 / n_calls);
    NEAR(value(decode, "ops_us"), 4000.0);
    NEAR(value(decode, "step_us"), 4000.0);
    json_decref(s);
    free(b);
}

/* A step's calls take from the last rank's begin to the last one's end. */
static void
test_calls_of_two_ranks_when_one_runs_inside_of_the_other_then_from_its_begin(void **state)
{
    fake *f = *state;
    second *b = calloc(1, sizeof *b);
    assert_non_null(b);
    b->inside_ns = MS / 10;
    json_t *s = tell_two(f, b);
    const json_t *calls = json_object_get(json_object_get(s, "calls"), "columns"),
                 *step = json_object_get(calls, "step"), *us = json_object_get(calls, "us");
    double sum = 0;
    for (size_t i = 0; i < json_array_size(us); i++)
        if (json_equal(json_array_get(step, i), json_array_get(step, 0)))
            sum += json_number_value(json_array_get(us, i));
    NEAR(sum, 3900.0);
    NEAR(op_us(s, "ranks"), 100.0);
    json_decref(s);
    free(b);
}

/* The terminal form of the story. */
static char *page_of(fake *f)
{
    char *text = NULL;
    size_t len = 0;
    vt_buf page = {0};
    vt_term term = {.width = 100};
    assert_int_equal(story_build(&f->in, 7, &text, &len, NULL, NULL), VT_OK);
    assert_int_equal(story_render("test", text, len, &term, &page, NULL), VT_OK);
    free(text);
    return vt_buf_detach(&page, &len);
}

static void test_ranks_are_shown_with_whom_they_waited_for(void **state)
{
    fake *f = *state;
    second *b = calloc(1, sizeof *b);
    assert_non_null(b);
    json_decref(tell_two(f, b));
    char *page = page_of(f), *ranks = strstr(page, "\nRANKS ");
    assert_non_null(ranks);
    char *first = strstr(ranks, "\n rank 0 "), *next = strstr(ranks, "\n rank 1 ");
    assert_true(first && next && first < next);
    char *waited = strstr(first, "waited for rank 1: 3.00 ms in");
    assert_true(waited && waited < next);
    assert_non_null(strstr(next, "a slower GPU; 12 steps of 4.00 ms; waited for nobody"));
    free(page);
    free(b);
}

static void test_ranks_are_judged_by_the_roofs_of_their_own_hardware(void **state)
{
    fake *f = *state;
    second *b = calloc(1, sizeof *b);
    assert_non_null(b);
    json_t *s = tell_two(f, b);
    const json_t *hardware = json_object_get(s, "hardware"), *phases[2];
    assert_int_equal(json_array_size(hardware), 2);
    for (size_t i = 0; i < 2; i++) {
        const json_t *roofs = json_object_get(json_array_get(hardware, i), "roofs");
        NEAR(value(roofs, "memory_bytes_per_s"), i == 0 ? 4e12 : 2e12);
        assert_int_equal(value(rank(s, i), "hardware"), i);
        phases[i] = json_array_get(json_object_get(rank(s, i), "phases"), 1);
        assert_string_equal(json_string_value(json_object_get(phases[i], "name")), "decode");
    }
    /* both take as long for the same bytes, of which the slower memory would need twice as long */
    double fast = value(phases[0], "of_roof"), slow = value(phases[1], "of_roof");
    assert_true(slow > 1.5 * fast && slow < 2.01 * fast);
    NEAR(value(json_object_get(phases[1], "gpu"), "kernels_per_step"), 230.0);
    NEAR(value(json_object_get(phases[0], "gpu"), "kernels_per_step"), 228.0);
    json_decref(s);
    free(b);
}

static void test_ranks_of_one_device_are_an_empty_list(void **state)
{
    fake *f = *state;
    tell_plain(f, 9, 1, 1);
    json_t *s = tell(f);
    const json_t *ranks = json_object_get(s, "ranks"), *hardware = json_object_get(s, "hardware");
    assert_int_equal(json_array_size(json_object_get(ranks, "items")), 0);
    assert_string_equal(json_string_value(json_object_get(ranks, "why")),
                        "one device ran all steps");
    assert_int_equal(json_array_size(hardware), 1);
    assert_null(finding(s, "rank.waits"));
    json_decref(s);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_gpu_story_ops_sum_to_the_timed_steps),
        TEST(test_gpu_story_bytes_are_those_of_the_program),
        TEST(test_gpu_story_bytes_of_shared_pages_count_once),
        TEST(test_gpu_story_tells_how_steps_ran),
        TEST(test_gpu_story_when_the_graph_changes_then_a_transition),
        TEST(test_gpu_story_itl_leaves_timed_steps_out),
        TEST(test_gpu_tax_when_recorded_steps_end_later_then_measured),
        TEST(test_gpu_tax_when_blocks_are_alike_then_its_interval_holds_zero),
        TEST(test_gpu_story_names_kernels),
        TEST(test_gpu_story_when_no_step_was_timed_then_said),
        TEST(test_gpu_story_when_no_decode_was_timed_then_the_table_is_borrowed),
        TEST(test_gpu_story_when_a_step_lost_its_beginning_then_not_timed),
        TEST(test_gpu_render_when_told_then_sections_within_width),
        TEST(test_ranks_when_one_is_late_then_the_other_waited_for_it),
        TEST(test_ranks_when_one_sets_out_late_then_that_is_no_time_of_the_first_call),
        TEST(test_calls_of_two_ranks_when_one_runs_inside_of_the_other_then_from_its_begin),
        TEST(test_ranks_are_shown_with_whom_they_waited_for),
        TEST(test_ranks_are_judged_by_the_roofs_of_their_own_hardware),
        TEST(test_ranks_of_one_device_are_an_empty_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
