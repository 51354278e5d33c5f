/* What a story says of CUPTI's records of a step's kernels: planted ones, in an artificial
 * recording. */
#include "gpu_story_fixture.h"
#include "story/forms/trace.h"

enum { MAX_RECORDS = 2048, COPY_NS = 2000, GAP_NS = 10 };

static const char *const names[] = {"gemm_sm90", "nvjet_of_a_library", "other"};

typedef struct plant {
    double slower;     /* than stamped: each call, from its predecessor's end to its own */
    int32_t lost_from; /* records from this one on are missing */
    bool strange;      /* one kernel of no call */
} plant;

/* The records of the newest step: a copy, and a kernel for each call, which begins GAP_NS after the
 * end of the one before it. The head's is a library's. */
static uint64_t plant_records(const fake *f, const plant *t, vt_activity_event *out)
{
    const vt_program *p = story_step_program(f->plan);
    int64_t at = 100 * MS, n_calls = 0;
    uint64_t n = 0;
    for (int32_t i = 0; i < p->n_calls; i++)
        n_calls += story_step_impl(f->plan, i) != NULL;
    int64_t stamped = (5 * MS - (UPLOAD_US + RESULTS_US) * 1000) / n_calls,
            length = (int64_t)((double)stamped * t->slower);
    out[n++] = (vt_activity_event){.step = f->n_step,
                                   .call = VT_ACTIVITY_NO_CALL,
                                   .begin_ns = at,
                                   .end_ns = at + COPY_NS,
                                   .kind = VT_ACTIVITY_COPY,
                                   .bytes = 292};
    at += COPY_NS;
    for (int32_t i = 0; i < p->n_calls; i++) {
        if (!story_step_impl(f->plan, i))
            continue;
        const char *kind = story_call_kind(&p->call[i]);
        out[n++] = (vt_activity_event){.step = f->n_step,
                                       .call = (uint64_t)i & 0xffffff,
                                       .begin_ns = at + GAP_NS,
                                       .end_ns = at + length,
                                       .in_graph = true,
                                       .name = strcmp(kind, "linear.head") == 0             ? 1u
                                               : strcmp(p->call[i].op->name, "linear") == 0 ? 0u
                                                                                            : 2u};
        at += length;
    }
    if (t->strange)
        out[n++] = (vt_activity_event){.step = f->n_step,
                                       .call = VT_ACTIVITY_NO_CALL,
                                       .begin_ns = at,
                                       .end_ns = at + 1,
                                       .name = 2};
    return t->lost_from ? (uint64_t)t->lost_from : n;
}

/* A story of three decodes, of which the first was stamped and the last recorded. */
static json_t *tell_recorded(fake *f, const plant *t)
{
    static vt_activity_event planted[MAX_RECORDS];
    static const vt_activity_facts facts = {
        .steps = 1, .lost = 3, .on_ns = 2 * MS, .off_ns = MS, .n_names = 3, .name = names};
    tell_plain(f, 3, 1, 1);
    collect(f, 0);
    for (uint64_t i = 0; i < f->source[1].n_launches; i++) {
        f->launches[i].stamped = f->launches[i].timed;
        f->launches[i].timed = false;
    }
    f->launches[f->source[1].n_launches - 1].timed = true; /* it is in no time */
    f->source[1].activity = planted;
    f->source[1].n_activity = plant_records(f, t, planted);
    f->source[1].is.activity = &f->span_ring; /* somebody asked */
    f->source[1].is.activity_facts = &facts;
    return tell_collected(f);
}

static const json_t *phase_of(const json_t *story)
{
    return json_array_get(json_object_get(json_object_get(story, "activity"), "phases"), 0);
}

static void test_activity_when_recorded_then_ops_stand_beside_their_stamps(void **state)
{
    json_t *story = tell_recorded(*state, &(plant){.slower = 1.01});
    const json_t *a = json_object_get(story, "activity"), *p = phase_of(story),
                 *down = op_of(p, "linear.down"), *head = op_of(p, "linear.head"), *k;
    assert_string_equal(json_string_value(json_object_get(p, "name")), "decode");
    assert_int_equal(value(a, "lost"), 3);
    NEAR(value(a, "begin_ms"), 2.0);
    assert_int_equal(value(p, "recorded_steps"), 1);
    assert_int_equal(value(a, "broken_steps"), 0);
    assert_int_equal(value(p, "unknown"), 0);
    NEAR(value(p, "of_stamped"), 1.01);
    NEAR(value(p, "calls_us"), 1.01 * (5000 - UPLOAD_US - RESULTS_US));
    NEAR(value(p, "step_us"), value(p, "calls_us") + COPY_NS * 1e-3);
    NEAR(value(p, "unrecorded_step_us"), 2000.0);
    NEAR(value(down, "of_stamped"), 1.01);
    NEAR(value(down, "calls"), 28.0);
    NEAR(value(down, "kernel_us"), value(down, "time_us") - 28 * GAP_NS * 1e-3);
    assert_int_equal(value(json_object_get(p, "copies"), "bytes"), 292);
    k = json_array_get(json_object_get(down, "kernels"), 0);
    assert_string_equal(json_string_value(json_object_get(k, "name")), "gemm_sm90");
    assert_false(json_is_true(json_object_get(k, "library")));
    k = json_array_get(json_object_get(head, "kernels"), 0);
    assert_string_equal(json_string_value(json_object_get(k, "name")), "nvjet_of_a_library");
    assert_true(json_is_true(json_object_get(k, "library")));
    const json_t *columns = json_object_get(json_object_get(p, "newest"), "columns");
    assert_int_equal(json_array_size(json_object_get(columns, "end_us")),
                     (size_t)value(p, "records"));
    assert_true(json_is_null(json_array_get(json_object_get(columns, "label"), 0)));
    json_decref(story);
}

/* Each record is a span of the trace, on a track where nothing overlaps it. */
static void test_activity_when_exported_then_each_record_is_a_span_of_its_step(void **state)
{
    json_t *story = tell_recorded(*state, &(plant){.slower = 1.01});
    const json_t *p = phase_of(story), *newest = json_object_get(p, "newest"), *columns, *begin;
    size_t n = 0;
    double last[TRACE_TRACKS] = {0}, first = INFINITY;
    trace t;
    /* the second kernel began while the first one ran */
    columns = json_object_get(newest, "columns");
    begin = json_object_get(columns, "begin_us");
    json_array_set_new((json_t *)(uintptr_t)begin, 2,
                       json_real(json_number_value(json_array_get(begin, 1)) + 0.001));
    assert_int_equal(trace_of_story(story, &t, NULL), VT_OK);
    assert_int_equal(t.n_tracks, TRACE_BESIDE + 1);
    for (size_t i = 0; i < t.n_spans; i++) {
        const trace_span *s = &t.span[i];
        if (s->track == TRACE_STEPS && s->step == (int64_t)value(newest, "step"))
            first = s->begin_us;
        if (s->track < TRACE_KERNELS)
            continue;
        assert_true(isfinite(first) && s->begin_us >= fmax(first, last[s->track]));
        assert_int_equal(s->step, (int64_t)value(newest, "step"));
        if (n++ == 0)
            assert_string_equal(s->name, "copy");
        last[s->track] = s->begin_us + s->us - 1e-6;
    }
    assert_int_equal(n, (size_t)value(p, "records"));
    /* behind the embedding: it makes the norm before it */
    assert_string_equal(t.span[t.n_spans - 1].name, "L00.linear.qkv");
    trace_release(&t);
    json_decref(story);
}

static void test_activity_when_records_are_lost_then_the_step_is_left_out(void **state)
{
    json_t *story = tell_recorded(*state, &(plant){.slower = 1, .lost_from = 100});
    assert_null(phase_of(story));
    assert_int_equal(value(json_object_get(story, "activity"), "broken_steps"), 1);
    const json_t *tier = json_object_get(json_object_get(story, "tiers"), "T1");
    assert_true(json_is_true(json_object_get(tier, "used")));
    json_decref(story);
}

static void test_activity_when_a_kernel_is_of_no_call_then_it_is_counted(void **state)
{
    json_t *story = tell_recorded(*state, &(plant){.slower = 1, .strange = true});
    assert_int_equal(value(phase_of(story), "unknown"), 1);
    json_decref(story);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            test_activity_when_recorded_then_ops_stand_beside_their_stamps, setup, teardown),
        cmocka_unit_test_setup_teardown(
            test_activity_when_exported_then_each_record_is_a_span_of_its_step, setup, teardown),
        cmocka_unit_test_setup_teardown(
            test_activity_when_records_are_lost_then_the_step_is_left_out, setup, teardown),
        cmocka_unit_test_setup_teardown(
            test_activity_when_a_kernel_is_of_no_call_then_it_is_counted, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
