/* What a story says of a GPU's hardware counters: planted ones, in an artificial recording. */
#include "device/cupti/pm.h"
#include "device/cupti/stalls.h"
#include "gpu_story_fixture.h"

/* What the counters of the newest step say. */
typedef struct plant {
    double down, up;    /* linear.down and linear.gate+up move so many times what they must */
    double lost;        /* of attention's wavefronts in shared memory are bank conflicts */
    vt_stall waits_for; /* linear.gate+up's warps, for 60 % of their cycles */
    double dram;        /* its share of memory's peak */
    double tensor;      /* its share of the tensor cores */
    double sectors;     /* a load of attention fetches */
    double local;       /* of attention's instructions, in loads and stores of spilled registers */
} plant;

static const plant healthy = {.down = 1.1,
                              .up = 0.9,
                              .lost = 0.05,
                              .waits_for = VT_STALL_selected,
                              .dram = 0.7,
                              .tensor = 0.6,
                              .sectors = 16};

/* Writes what a call counted. Not counted are the reasons that nothing was planted for. */
static void plant_call(const plant *t, const char *kind, double bytes, vt_vital_event *e)
{
    bool down = strcmp(kind, "linear.down") == 0, up = strcmp(kind, "linear.gate+up") == 0,
         attention = strcmp(kind, "attention_decode") == 0;
    for (int i = 0; i < VT_VITALS; i++)
        e->value[i] = NAN;
    e->value[VT_VITAL_TIME] = down || up || attention ? 1000 : 10;
    e->value[VT_VITAL_DRAM_READ] = bytes * (down ? t->down : up ? t->up : 1);
    e->value[VT_VITAL_DRAM_WRITTEN] = 0;
    e->value[VT_VITAL_WAVEFRONTS] = 200;
    e->value[VT_VITAL_CONFLICTS] = attention ? 200 * t->lost : 0;
    e->value[VT_VITAL_DRAM] = t->dram;
    e->value[VT_VITAL_TENSOR] = t->tensor;
    e->value[VT_VITAL_WARP_CYCLES] = 1000;
    e->value[VT_VITAL_STALLED + VT_STALL_selected] = 100;
    e->value[VT_VITAL_STALLED + t->waits_for] = up ? 600 : 10;
    e->value[VT_VITAL_INSTRUCTIONS] = 1000;
    e->value[VT_VITAL_LOADS] = 100;
    e->value[VT_VITAL_LOAD_SECTORS] = 100 * (attention ? t->sectors : 16);
    e->value[VT_VITAL_LOCAL_LOADS] = e->value[VT_VITAL_LOCAL_STORES] = attention ? 500 * t->local
                                                                                 : 0;
}

static uint64_t plant_vitals(const fake *f, const plant *t, vt_vital_event *out, uint64_t max)
{
    const vt_program *p = story_step_program(f->plan);
    uint64_t n = 0;
    for (int32_t i = 0; i < p->n_calls && n < max; i++) {
        vt_cost cost, extra;
        if (!story_step_cost(f->plan, i, &cost, &extra))
            continue;
        vt_vital_event *e = &out[n++];
        *e = (vt_vital_event){.step = f->n_step, .call = (uint64_t)i & 0xffffff};
        plant_call(t, story_call_kind(&p->call[i]), (double)vt_cost_bytes(&cost), e);
    }
    return n;
}

/* A story of three decodes of `seqs` sequences, of which the last was counted. */
static json_t *tell_counted(fake *f, const plant *t, int32_t seqs)
{
    static vt_vital_event planted[1024];
    tell_plain(f, 3, seqs, seqs);
    f->source[1].vital = planted;
    f->source[1].n_vitals = plant_vitals(f, t, planted, 1024);
    f->source[1].is.vitals = &f->span_ring; /* somebody asked */
    f->source[1].is.device.l2_bytes = 1 << 20;
    return tell(f);
}

static void test_gpu_counters_when_planted_then_found(void **state)
{
    static const struct {
        const char *rule, *key;
        double value;
    } want[] = {{"counters.rereads", "of_compulsory", 1.5},
                {"counters.cached", "of_compulsory", 0.5},
                {"counters.bank-conflicts", "share", 0.25},
                {"counters.coalescing", "sectors", 24},
                {"counters.spills", "share", 0.05}};
    plant t = healthy;
    t.down = 1.5;
    t.up = 0.5;
    t.lost = 0.25;
    t.sectors = 24;
    t.local = 0.05;
    json_t *story = tell_counted(*state, &t, 1);
    const json_t *decode = json_array_get(
        json_object_get(json_object_get(story, "gpu_counters"), "phases"), 0);
    NEAR(value(op_of(decode, "linear.down"), "of_compulsory"), 1.5);
    NEAR(value(op_of(decode, "linear.qkv"), "of_compulsory"), 1.0);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const json_t *found = finding(story, want[i].rule);
        assert_non_null(found);
        NEAR(value(json_object_get(found, "evidence"), want[i].key), want[i].value);
    }
    json_decref(story);
}

/* A wait that the op's roof explains is good to know; any other is worth doing something about. */
static void test_gpu_counters_when_warps_wait_then_the_reason_is_told(void **state)
{
    static const struct {
        vt_stall reason;
        double dram, tensor;
        const char severity;
        const char *says;
    } want[] = {
        {VT_STALL_long_scoreboard, 0.9, 0.1, 'N', "memory was busy meanwhile"},
        {VT_STALL_long_scoreboard, 0.2, 0.1, 'W', "what helps: more loads in flight"},
        {VT_STALL_barrier, 0.9, 0.1, 'W', "waits for other warps of its CTA (barrier, "},
        {VT_STALL_gmma, 0.2, 0.8, 'N', "the tensor cores were busy meanwhile"},
        {VT_STALL_sleeping, 0.2, 0.1, 'N', "nothing is to be done about it"},
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        plant t = healthy;
        void *fresh = *state;
        t.waits_for = want[i].reason;
        t.dram = want[i].dram;
        t.tensor = want[i].tensor;
        if (i > 0)
            assert_int_equal(setup(&fresh), 0);
        json_t *story = tell_counted(fresh, &t, 1);
        const json_t *found = finding(story, "counters.waits");
        assert_non_null(found);
        const json_t *evidence = json_object_get(found, "evidence");
        assert_string_equal(json_string_value(json_object_get(evidence, "op")), "linear.gate+up");
        assert_string_equal(json_string_value(json_object_get(evidence, "reason")),
                            vt_stalls[want[i].reason].name);
        NEAR(json_number_value(json_object_get(evidence, "share")), 0.6);
        assert_int_equal(json_string_value(json_object_get(found, "id"))[0], want[i].severity);
        assert_non_null(strstr(json_string_value(json_object_get(found, "text")), want[i].says));
        json_decref(story);
        if (i > 0)
            teardown(&fresh);
    }
}

/* Roofs under which the products of a decode take longer than its bytes. */
static void
test_gpu_counters_when_tensor_cores_should_be_busy_and_are_not_then_it_is_told(void **state)
{
    fake *f = *state;
    plant t = healthy;
    t.tensor = 0.2;
    f->in.roofs.bf16_per_s = 1e12;
    json_t *story = tell_counted(f, &t, 1);
    const json_t *found = finding(story, "counters.tensor");
    assert_non_null(found);
    NEAR(json_number_value(json_object_get(json_object_get(found, "evidence"), "tensor")), 0.2);
    json_decref(story);
}

static void test_gpu_counters_when_as_they_should_be_then_nothing_is_found(void **state)
{
    static const char *const rules[] = {
        "counters.rereads", "counters.cached", "counters.bank-conflicts", "counters.coalescing",
        "counters.spills",  "counters.waits",  "counters.tensor"};
    json_t *story = tell_counted(*state, &healthy, 1);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        assert_null(finding(story, rules[i]));
    json_decref(story);
}

/* ---- counters over time ---- */

enum { PM_SAMPLES = 8 };

/* Samples of 1 ms: one before the story's steps (from 3 ms on), then seven in them, of which the
 * fifth follows a gap of 2 ms that the hardware lost. SMs: 0.1, 0.2 ... a sample. */
static json_t *tell_sampled(fake *f, const char *why_not)
{
    static vt_pm_event planted[PM_SAMPLES];
    static vt_pm_set set;
    set = (vt_pm_set){.n = 2, .why_not[VT_PM_PCIE_IN] = "the GPU does not lend it"};
    int64_t at = MS;
    for (int i = 0; i < PM_SAMPLES; i++) {
        at += i == 1 ? MS : i == 5 ? 2 * MS : 0;
        planted[i] = (vt_pm_event){.begin_ns = at, .end_ns = at + MS, .lost_us = i == 5 ? 2000 : 0};
        for (int k = 0; k < VT_PM_LANES; k++)
            planted[i].value[k] = NAN;
        planted[i].value[VT_PM_SM] = (float)i / 10;
        planted[i].value[VT_PM_DRAM_READ] = (float)(vt_roofs_bandwidth(&f->in.roofs) / 4);
        at += MS;
    }
    tell_plain(f, 3, 1, 1);
    f->source[1].pm = planted;
    f->source[1].n_pm = why_not ? 0 : PM_SAMPLES;
    f->source[1].is.pm = &f->span_ring; /* somebody asked */
    f->source[1].is.pm_set = &set;
    f->source[1].is.no_pm = why_not;
    return tell(f);
}

static const json_t *lane_of(const json_t *story, const char *name)
{
    size_t i;
    json_t *lane;
    json_array_foreach(json_object_get(json_object_get(story, "lanes"), "items"), i, lane)
    {
        if (strcmp(json_string_value(json_object_get(lane, "name")), name) == 0)
            return lane;
    }
    return NULL;
}

static void test_lanes_when_sampled_then_they_are_of_the_steps_and_have_their_gap(void **state)
{
    json_t *story = tell_sampled(*state, NULL);
    const json_t *sampled = json_object_get(json_object_get(story, "lanes"), "sampled"),
                 *sm = lane_of(story, "sm"), *begin = json_object_get(sm, "begin_ms"),
                 *values = json_object_get(sm, "values");
    assert_int_equal(json_integer_value(json_object_get(sampled, "count")), PM_SAMPLES - 1);
    NEAR(value(sampled, "lost_ms"), 2.0);
    NEAR(value(sampled, "interval_us"), 1000.0);
    NEAR(value(sm, "least"), 0.1);
    NEAR(value(sm, "mean"), 0.4);
    NEAR(value(sm, "most"), 0.7);
    /* seven samples, and a null where the gap begins; times count from the arrival at 1 ms */
    static const double at[] = {2, 3, 4, 5, 6, 8, 9, 10},
                        is[] = {0.1, 0.2, 0.3, 0.4, -1, 0.5, 0.6, 0.7};
    assert_int_equal(json_array_size(values), 8);
    for (size_t i = 0; i < 8; i++) {
        NEAR(json_number_value(json_array_get(begin, i)), at[i]);
        if (is[i] < 0)
            assert_true(json_is_null(json_array_get(values, i)));
        else
            NEAR(json_number_value(json_array_get(values, i)), is[i]);
    }
    NEAR(value(lane_of(story, "dram_read"), "mean"), 0.25);
    assert_null(lane_of(story, "tensor"));
    assert_true(json_is_true(
        json_object_get(json_object_get(json_object_get(story, "tiers"), "T2"), "used")));
    json_t *text = json_object_get(sampled, "not_sampled");
    assert_string_equal(
        json_string_value(json_object_get(json_array_get(text, json_array_size(text) - 2), "why")),
        "the GPU does not lend it");
    json_decref(story);
}

static void test_lanes_when_sampling_failed_then_the_story_says_why(void **state)
{
    json_t *story = tell_sampled(*state, "CUPTI failed");
    const json_t *sampled = json_object_get(json_object_get(story, "lanes"), "sampled"),
                 *tier = json_object_get(json_object_get(story, "tiers"), "T2");
    assert_string_equal(json_string_value(json_object_get(sampled, "why")), "CUPTI failed");
    assert_string_equal(json_string_value(json_object_get(tier, "why")), "CUPTI failed");
    assert_null(lane_of(story, "sm"));
    json_decref(story);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_gpu_counters_when_planted_then_found, setup, teardown),
        cmocka_unit_test_setup_teardown(test_gpu_counters_when_warps_wait_then_the_reason_is_told,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(
            test_gpu_counters_when_tensor_cores_should_be_busy_and_are_not_then_it_is_told, setup,
            teardown),
        cmocka_unit_test_setup_teardown(
            test_gpu_counters_when_as_they_should_be_then_nothing_is_found, setup, teardown),
        cmocka_unit_test_setup_teardown(
            test_lanes_when_sampled_then_they_are_of_the_steps_and_have_their_gap, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lanes_when_sampling_failed_then_the_story_says_why,
                                        setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
