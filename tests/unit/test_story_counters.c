/* What a story says of a GPU's hardware counters: planted ones, in an artificial recording. */
#include "gpu_story_fixture.h"

/* Writes counts of the newest step's calls. linear.down moves `down` times what it must, and
 * linear.gate+up `up` times; attention spends `lost` of its wavefronts on bank conflicts. */
static uint64_t plant_vitals(const fake *f, double down, double up, double lost,
                             vt_vital_event *out, uint64_t max)
{
    const vt_program *p = story_step_program(f->plan);
    uint64_t n = 0;
    for (int32_t i = 0; i < p->n_calls && n < max; i++) {
        vt_cost cost, extra;
        if (!story_step_cost(f->plan, i, &cost, &extra))
            continue;
        const char *kind = story_call_kind(&p->call[i]);
        bool is_down = strcmp(kind, "linear.down") == 0,
             is_up = strcmp(kind, "linear.gate+up") == 0,
             attention = strcmp(kind, "attention_decode") == 0;
        double bytes = (double)vt_cost_bytes(&cost);
        vt_vital_event *e = &out[n++];
        *e = (vt_vital_event){.step = f->n_step, .call = (uint64_t)i & 0xffffff};
        e->value[VT_VITAL_TIME] = is_down || is_up || attention ? 1000 : 10;
        e->value[VT_VITAL_DRAM_READ] = bytes * (is_down ? down : is_up ? up : 1);
        e->value[VT_VITAL_WAVEFRONTS] = 200;
        e->value[VT_VITAL_CONFLICTS] = attention ? 200 * lost : 0;
    }
    return n;
}

/* A story of three decodes of which the last was counted. */
static json_t *tell_counted(fake *f, double down, double up, double lost)
{
    static vt_vital_event planted[1024];
    tell_plain(f, 3, 1, 1);
    f->source[1].vital = planted;
    f->source[1].n_vitals = plant_vitals(f, down, up, lost, planted, 1024);
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
                {"counters.bank-conflicts", "share", 0.25}};
    json_t *story = tell_counted(*state, 1.5, 0.5, 0.25);
    const json_t *decode = json_array_get(
        json_object_get(json_object_get(story, "gpu_counters"), "phases"), 0);
    NEAR(value(op_of(decode, "linear.down"), "of_compulsory"), 1.5);
    NEAR(value(op_of(decode, "linear.qkv"), "of_compulsory"), 1.0);
    for (size_t i = 0; i < 3; i++) {
        const json_t *found = finding(story, want[i].rule);
        assert_non_null(found);
        NEAR(value(json_object_get(found, "evidence"), want[i].key), want[i].value);
    }
    json_decref(story);
}

static void test_gpu_counters_when_as_they_should_be_then_nothing_is_found(void **state)
{
    json_t *story = tell_counted(*state, 1.1, 0.9, 0.05);
    assert_null(finding(story, "counters.rereads"));
    assert_null(finding(story, "counters.cached"));
    assert_null(finding(story, "counters.bank-conflicts"));
    json_decref(story);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_gpu_counters_when_planted_then_found, setup, teardown),
        cmocka_unit_test_setup_teardown(
            test_gpu_counters_when_as_they_should_be_then_nothing_is_found, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
