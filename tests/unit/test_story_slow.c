/* Slow tokens of artificial recordings, in which every late token has a cause that was planted. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/stats.h"
#include "story/findings/slow.h"

enum { MAX_EVENTS = 1 << 14, PROMPT = 20, MS = 1000000, TOKENS = 60, MINE = 7, OTHER = 21 };

typedef struct fake {
    story_input in;
    story_source source[2]; /* the engine, a GPU */
    vt_trace_ring requests, steps, launches;
    story_record record;
    uint64_t n_step;
    int32_t n_tokens, pages, graph;
    int64_t at; /* when the last step ended */
} fake;

/* A step after a wait. `chunk`: prompt tokens of another request in it; `others`: how many decodes
 * beside the request's. mine: the request is in the step and gets a token. */
typedef struct planted {
    int64_t wait, length, schedule, prepare, publish;
    int32_t chunk, others;
    bool not_mine, timed;
} planted;

static void add(fake *f, planted p)
{
    uint64_t id = ++f->n_step;
    int64_t begin = f->at + (p.wait ? p.wait : MS / 2),
            end = begin + (p.length ? p.length : 5 * MS);
    int32_t n_decode = !p.not_mine + p.others;
    int64_t schedule = p.schedule ? p.schedule : MS / 10, prepare = p.prepare ? p.prepare : MS / 10,
            publish = p.publish ? p.publish : MS / 10;
    vt_trace_step(&f->steps, &(vt_step_ran){.step = id,
                                            .begin_ns = begin,
                                            .end_ns = end,
                                            .n_tokens = n_decode + p.chunk,
                                            .n_seqs = n_decode + (p.chunk > 0),
                                            .n_decode = n_decode,
                                            .pages_held = 2,
                                            .pages_free = f->pages - 2});
    if (!p.not_mine)
        vt_trace_seq(&f->steps, id, MINE, 1, PROMPT + 1 + f->n_tokens, 0);
    for (int32_t i = 0; i < p.others; i++)
        vt_trace_seq(&f->steps, id, 100 + (uint64_t)i, 1, 50, 0);
    if (p.chunk)
        vt_trace_seq(&f->steps, id, OTHER, p.chunk, p.chunk, 0);
    vt_trace_part_of(&f->steps, id, VT_PART_SCHEDULE, begin - prepare - schedule, begin - prepare);
    vt_trace_part_of(&f->steps, id, VT_PART_PREPARE, begin - prepare, begin);
    vt_trace_part_of(&f->steps, id, VT_PART_PUBLISH, end, end + publish);
    if (f->graph)
        vt_trace_launch(&f->launches, &(vt_launch_event){.step = id,
                                                         .begin_ns = begin,
                                                         .end_ns = end,
                                                         .graph_tokens = f->graph,
                                                         .timed = p.timed});
    if (!p.not_mine)
        vt_trace_token(&f->requests, MINE, end, id, f->n_tokens++, 42);
    f->at = end;
}

static void add_plain(fake *f, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        add(f, (planted){0});
}

static int setup(void **state)
{
    fake *f = calloc(1, sizeof *f);
    *state = f;
    if (!f || vt_trace_init(&f->requests, sizeof(vt_request_event), MAX_EVENTS, NULL) != VT_OK ||
        vt_trace_init(&f->steps, sizeof(vt_step_event), MAX_EVENTS, NULL) != VT_OK ||
        vt_trace_init(&f->launches, sizeof(vt_launch_event), MAX_EVENTS, NULL) != VT_OK)
        return -1;
    f->in.source = f->source;
    f->in.n_sources = 2;
    f->source[0].is = (vt_source){.name = "engine", .kind = VT_SOURCE_ENGINE};
    f->source[1].is = (vt_source){.name = "gpu", .kind = VT_SOURCE_STREAM};
    f->pages = 100;
    vt_trace_arrive(&f->requests, MINE, 1, PROMPT, 0);
    return 0;
}

static void forget(fake *f)
{
    free((void *)f->source[0].request);
    free((void *)f->source[0].step);
    free((void *)f->source[1].launch);
    f->source[0].request = NULL;
    f->source[0].step = NULL;
    f->source[1].launch = NULL;
    story_record_release(&f->record);
    f->record = (story_record){0};
}

static int teardown(void **state)
{
    fake *f = *state;
    forget(f);
    vt_trace_release(&f->requests);
    vt_trace_release(&f->steps);
    vt_trace_release(&f->launches);
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

static void collect(fake *f)
{
    forget(f);
    f->source[0].request = copy(&f->requests, &f->source[0].n_requests);
    f->source[0].step = copy(&f->steps, &f->source[0].n_steps);
    f->source[1].launch = copy(&f->launches, &f->source[1].n_launches);
    assert_int_equal(story_record_make(&f->in, MINE, &f->record, NULL), VT_OK);
}

static slow_tokens find(fake *f)
{
    slow_tokens out;
    static double gap[MAX_EVENTS], sorted[MAX_EVENTS];
    const request_record *q = f->record.mine;
    int32_t n = q->n_token_ns - 1;
    for (int32_t i = 0; i < n; i++)
        sorted[i] = gap[i] = (double)(q->token_ns[i + 1] - q->token_ns[i]) * 1e-9;
    assert_int_equal(story_find_slow(&f->record, gap, n, vt_median(sorted, (size_t)n), &out, NULL),
                     VT_OK);
    return out;
}

static const slow_token *only(const slow_tokens *s, slow_cause cause)
{
    assert_int_equal(s->n, 1);
    assert_string_equal(slow_cause_name(s->token[0].cause), slow_cause_name(cause));
    return &s->token[0];
}

static void test_slow_when_steps_are_even_then_none(void **state)
{
    fake *f = *state;
    add_plain(f, TOKENS);
    collect(f);
    assert_int_equal(find(f).n, 0);
}

static void test_slow_when_another_prompt_is_in_the_step_then_its_chunk(void **state)
{
    fake *f = *state;
    add_plain(f, 20);
    add(f, (planted){.length = 25 * MS, .chunk = 512});
    add_plain(f, 20);
    collect(f);
    slow_tokens s = find(f);
    const slow_token *t = only(&s, SLOW_CHUNK);
    assert_int_equal(t->token, 20);
    assert_int_equal(t->step, 21);
    assert_int_equal(t->request, OTHER);
    assert_string_equal(t->text, "a chunk of request 21 (512 tokens) in step 21");
    assert_true(s.named_s > 0.99 * s.excess_s);
}

static void test_slow_when_publishing_takes_long_then_publish(void **state)
{
    fake *f = *state;
    add_plain(f, 20);
    add(f, (planted){.publish = 30 * MS});
    add(f, (planted){.wait = 31 * MS});
    add_plain(f, 20);
    collect(f);
    slow_tokens s = find(f);
    assert_int_equal(only(&s, SLOW_PUBLISH)->step, 21);
    assert_true(s.named_s > 0.95 * s.excess_s);
}

static void test_slow_when_a_size_is_met_first_then_made_ready_late(void **state)
{
    fake *f = *state;
    f->graph = 1;
    add_plain(f, 20);
    f->graph = 2;
    add(f, (planted){.wait = 41 * MS, .prepare = 40 * MS, .others = 1});
    add_plain(f, 3);
    add(f, (planted){.wait = 41 * MS, .prepare = 40 * MS, .others = 1});
    add_plain(f, 20);
    collect(f);
    slow_tokens s = find(f);
    assert_int_equal(s.n, 2);
    assert_int_equal(s.token[0].cause, SLOW_FIRST_SIZE);
    assert_non_null(strstr(s.token[0].text, "2 tokens"));
    assert_int_equal(s.token[1].cause, SLOW_PREPARE); /* its size is known by then */
}

static void test_slow_when_planning_evicts_then_eviction(void **state)
{
    fake *f = *state;
    add_plain(f, 20);
    vt_trace_cache_event(&f->requests, 0, f->at + 20 * MS, VT_CACHE_EVICT, 12);
    add(f, (planted){.wait = 21 * MS, .schedule = 20 * MS});
    add_plain(f, 3);
    add(f, (planted){.wait = 21 * MS, .schedule = 20 * MS});
    add_plain(f, 20);
    collect(f);
    slow_tokens s = find(f);
    assert_int_equal(s.n, 2);
    assert_int_equal(s.token[0].cause, SLOW_EVICTION);
    assert_non_null(strstr(s.token[0].text, "12 cached pages"));
    assert_int_equal(s.token[1].cause, SLOW_SCHEDULE);
}

static void test_slow_when_retracted_then_recomputed(void **state)
{
    fake *f = *state;
    add_plain(f, 20);
    vt_trace_retract(&f->requests, MINE, f->at + MS);
    for (int i = 0; i < 4; i++)
        add(f, (planted){.not_mine = true, .others = 1});
    add_plain(f, 20);
    collect(f);
    slow_tokens s = find(f);
    assert_int_equal(only(&s, SLOW_RECOMPUTE)->token, 20);
    assert_true(s.named_s > 0.99 * s.excess_s);
}

static void test_slow_when_its_mask_is_late_then_mask(void **state)
{
    fake *f = *state;
    add_plain(f, 20);
    vt_trace_req_part(&f->requests, VT_REQ_LATE_MASK, MINE, f->at + MS, f->at + 3 * MS);
    for (int i = 0; i < 4; i++)
        add(f, (planted){.not_mine = true, .others = 1});
    add_plain(f, 20);
    collect(f);
    slow_tokens s = find(f);
    assert_int_equal(only(&s, SLOW_MASK)->token, 20);
    assert_non_null(strstr(only(&s, SLOW_MASK)->text, "its mask took 2.00 ms"));
}

static void test_slow_when_a_step_leaves_the_request_out_then_other_step(void **state)
{
    fake *f = *state;
    add_plain(f, 20);
    for (int i = 0; i < 4; i++)
        add(f, (planted){.not_mine = true, .others = 1});
    add_plain(f, 20);
    collect(f);
    slow_tokens s = find(f);
    only(&s, SLOW_OTHER_STEP);
}

static void test_slow_when_timed_then_the_story_itself(void **state)
{
    fake *f = *state;
    f->graph = 1;
    add_plain(f, 20);
    add(f, (planted){.length = 15 * MS, .timed = true});
    add_plain(f, 20);
    collect(f);
    slow_tokens s = find(f);
    only(&s, SLOW_TIMED);
}

static void test_slow_when_the_batch_grows_then_batch(void **state)
{
    fake *f = *state;
    add_plain(f, 20);
    add(f, (planted){.length = 15 * MS, .others = 12});
    add_plain(f, 20);
    collect(f);
    slow_tokens s = find(f);
    assert_non_null(strstr(only(&s, SLOW_BATCH)->text, "13 sequences, usually 1"));
}

static void test_slow_when_kv_memory_grows_then_said(void **state)
{
    fake *f = *state;
    add_plain(f, 20);
    f->pages = 164;
    add(f, (planted){.wait = 20 * MS});
    add_plain(f, 20);
    collect(f);
    slow_tokens s = find(f);
    assert_non_null(strstr(only(&s, SLOW_KV_GROWN)->text, "64 more KV pages"));
}

static void test_slow_when_the_machine_withholds_then_named(void **state)
{
    static const slow_cause want[] = {SLOW_OFF_CPU, SLOW_CLOCK, SLOW_FAULTS, SLOW_UNKNOWN};
    fake *f = *state;
    for (int i = 0; i < 4; i++) {
        add_plain(f, 20);
        add(f, (planted){.length = 20 * MS});
    }
    add_plain(f, 20);
    collect(f);
    for (int32_t i = 0; i < f->record.n_steps; i++)
        f->record.step[i].use.sm_mhz = 1980;
    f->record.step[20].use.delay_s = 14.5e-3;
    f->record.step[41].use.sm_mhz = 500;
    f->record.step[62].use.minor_faults = 4000;
    slow_tokens s = find(f);
    assert_int_equal(s.n, 4);
    for (int i = 0; i < 4; i++)
        assert_string_equal(slow_cause_name(s.token[i].cause), slow_cause_name(want[i]));
    assert_int_equal(s.n_unknown, 1);
    assert_string_equal(s.token[3].text, "not known");
}

/* A step that was off the CPU and had page faults: both explain all of its 15 ms, which are told
 * once. */
static void test_slow_when_two_causes_overlap_then_they_sum_to_the_excess(void **state)
{
    fake *f = *state;
    double sum = 0;
    add_plain(f, 20);
    add(f, (planted){.length = 20 * MS});
    add_plain(f, 20);
    collect(f);
    f->record.step[20].use.delay_s = 60e-3; /* of a reading that spoke of more than this step */
    f->record.step[20].use.minor_faults = 4000;
    slow_tokens s = find(f);
    assert_int_equal(s.n, 1);
    for (int c = 0; c < SLOW_CAUSES; c++)
        sum += s.token[0].by_cause_s[c];
    assert_true(fabs(sum - s.token[0].excess_s) < 1e-9);
    assert_true(s.token[0].by_cause_s[SLOW_OFF_CPU] <= s.token[0].excess_s);
}

static void test_slow_when_no_part_covers_a_wait_then_outside(void **state)
{
    fake *f = *state;
    add_plain(f, 20);
    add(f, (planted){.wait = 20 * MS});
    add_plain(f, 20);
    collect(f);
    slow_tokens s = find(f);
    only(&s, SLOW_OUTSIDE);
}

/* All causes in one request, each several times: 95 % of the time that is beyond the median is
 * named, and no part is counted twice. */
static void test_slow_when_many_causes_then_95_percent_is_named(void **state)
{
    fake *f = *state;
    f->graph = 1;
    for (int i = 0; i < 5; i++) {
        add_plain(f, 20);
        add(f, (planted){.length = (12 + i) * MS, .chunk = 64 << i});
        add_plain(f, 7);
        add(f, (planted){.length = 15 * MS, .timed = true});
        add_plain(f, 7);
        add(f, (planted){.publish = 9 * MS});
        add(f, (planted){.wait = 10 * MS});
        add_plain(f, 7);
        add(f, (planted){.not_mine = true, .others = 1});
        add(f, (planted){.not_mine = true, .others = 1, .chunk = 32, .length = 20 * MS});
        add_plain(f, 7);
        vt_trace_retract(&f->requests, MINE, f->at + MS);
        add(f, (planted){.not_mine = true, .others = 3, .length = 30 * MS});
        add_plain(f, 7);
    }
    collect(f);
    slow_tokens s = find(f);
    assert_true(s.n >= 20);
    assert_int_equal(s.n_unknown, 0);
    assert_true(s.named_s > 0.95 * s.excess_s);
    for (int32_t i = 0; i < s.n; i++) {
        double sum = 0;
        for (int c = 0; c < SLOW_CAUSES; c++)
            sum += s.token[i].by_cause_s[c];
        assert_true(fabs(sum - s.token[i].excess_s) < 1e-9);
    }
}

int main(void)
{
#define TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_slow_when_steps_are_even_then_none),
        TEST(test_slow_when_another_prompt_is_in_the_step_then_its_chunk),
        TEST(test_slow_when_publishing_takes_long_then_publish),
        TEST(test_slow_when_a_size_is_met_first_then_made_ready_late),
        TEST(test_slow_when_planning_evicts_then_eviction),
        TEST(test_slow_when_retracted_then_recomputed),
        TEST(test_slow_when_its_mask_is_late_then_mask),
        TEST(test_slow_when_a_step_leaves_the_request_out_then_other_step),
        TEST(test_slow_when_timed_then_the_story_itself),
        TEST(test_slow_when_the_batch_grows_then_batch),
        TEST(test_slow_when_kv_memory_grows_then_said),
        TEST(test_slow_when_the_machine_withholds_then_named),
        TEST(test_slow_when_two_causes_overlap_then_they_sum_to_the_excess),
        TEST(test_slow_when_no_part_covers_a_wait_then_outside),
        TEST(test_slow_when_many_causes_then_95_percent_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
