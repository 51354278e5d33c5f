/* Observation -> cause -> action (causes.h): every row has a planted measurement that gets this
 * row and no other. A kernel is planted as the figures that a lab has of it, with counters as the
 * CSV that ncu writes; a recording as the names of a story's or lab's findings. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "lab/report/causes.h"

#define STALL(reason) "smsp__average_warps_issue_stalled_" reason "_per_issue_active.ratio"

enum { MEMORY_ROOF = 4000 }; /* GB/s; a call without work takes 2 us */

/* What ncu counted: bytes in ns, cycles with an issue and with the matrix unit in per cent, and
 * warps that wait for memory, at barriers, and for anything else. */
typedef struct counters {
    double bytes, ns, issue, matrix, memory, barrier, other;
} counters;

/* A kernel without a fault: 60 % of the memory roof, 4 full waves, half of an SM's warps. Each case
 * changes what it names. */
typedef struct planted {
    const char *key, *what;
    double time_us, of_roof, occupancy, waves, extra;
    const char *bound, *limited_by;
    int32_t spill_bytes, ctas;
    const counters *ncu;
} planted;

static const counters copying = {3.4e6, 1e3, 12, 0, 5, 0.2, 3}, /* 3.4 TB/s while schedulers rest */
    computing = {0.4e6, 1e3, 85, 0, 1, 0.3, 6},                 /* 0.4 TB/s while they issue */
    waiting = {1.6e6, 1e3, 15, 0, 20, 1, 4},                    /* for memory */
    meeting = {1.6e6, 1e3, 20, 0, 4, 12, 4},                    /* at barriers */
    torn = {1.6e6, 1e3, 20, 0, 13, 12, 4},                      /* a little more for memory */
    starving = {0.8e6, 1e3, 20, 11, 2, 1, 10},   /* the matrix unit works 11 % of the cycles */
    multiplying = {0.4e6, 1e3, 30, 85, 1, 1, 9}; /* a healthy matrix product */

static const planted kernels[] = {
    {"launch", "a copy of 64 rows: its bytes take 0.1 us", .time_us = 2.4, .of_roof = 0.05},
    {"launch", "even with a grid of one CTA and bad counters", .time_us = 2.4, .of_roof = 0.05,
     .waves = 0.002, .ncu = &waiting},
    {"spill", "a norm that holds a row in registers", .of_roof = 0.4, .spill_bytes = 96},
    {"memory_bound", "a copy, with counters", .of_roof = 0.85, .ncu = &copying},
    {"near_roof", "a norm, without counters", .of_roof = 0.85},
    {"near_roof", "a matrix product at its roof", .of_roof = 0.8, .bound = "bf16",
     .ncu = &multiplying},
    {"few_ctas", "8 CTAs on 132 SMs", .of_roof = 0.05, .waves = 8.0 / 132 / 4},
    {"few_ctas", "the long waits of 8 CTAs follow from their number", .of_roof = 0.05,
     .waves = 8.0 / 132 / 4, .ncu = &waiting},
    {"tail", "a wave, and a tenth of another one", .of_roof = 0.55, .waves = 1.1},
    {"split_fine", "partial results of 64 chunks", .of_roof = 0.55, .extra = 0.6},
    {"matrix_idle", "small tiles, with counters", .of_roof = 0.35, .bound = "bf16",
     .ncu = &starving},
    {"matrix_idle", "small tiles, without", .of_roof = 0.2, .bound = "bf16"},
    {"barrier", "a pipeline of one stage", .of_roof = 0.4, .ncu = &meeting},
    {"long_scoreboard", "one load in flight a thread", .of_roof = 0.4, .ncu = &waiting},
    {"long_scoreboard", "memory, and barriers a little less", .of_roof = 0.4, .ncu = &torn},
    {"occupancy_shared", "200 KiB a CTA", .of_roof = 0.4, .occupancy = 0.125, .ctas = 1,
     .limited_by = "shared memory"},
    {"occupancy_registers", "255 registers a thread", .of_roof = 0.4, .occupancy = 0.125,
     .limited_by = "registers"},
    {"compute", "a norm with a sine in its loop", .of_roof = 0.1, .ncu = &computing},
    {"uncoalesced", "a thread a row", .of_roof = 0.1},
    {NULL, "nothing is wrong, and little is left", .of_roof = 0.6},
    {NULL, "a full last wave", .of_roof = 0.6, .waves = 1.9},
    {NULL, "few warps that are limited by nothing", .of_roof = 0.6, .occupancy = 0.2,
     .limited_by = "warps"},
};

enum { N_KERNELS = sizeof kernels / sizeof *kernels, MOST = 8, CSV = 4096 };

/* The counters as ncu writes them: names, units, one launch. */
static void put_csv(const counters *c, char *out)
{
    snprintf(
        out, CSV,
        "==PROF== Connected\n"
        "\"ID\",\"Kernel Name\",\"gpu__time_duration.sum\",\"dram__bytes.sum\","
        "\"smsp__issue_active.avg.pct_of_peak_sustained_active\","
        "\"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active\",\"" STALL(
            "long_scoreboard") "\",\"" STALL("barrier") "\",\"" STALL("wait") "\"\n"
                                                                              "\"\",\"\",\"ns\","
                                                                              "\"byte\",\"%%\",\"%%"
                                                                              "\",\"inst\","
                                                                              "\"inst\",\"inst\"\n"
                                                                              "\"0\",\"planted\","
                                                                              "\"%g\",\"%.0f\",\"%"
                                                                              "g\",\"%g\",\"%g\","
                                                                              "\"%g\",\"%g\"\n",
        c->ns, c->bytes, c->issue, c->matrix, c->memory, c->barrier, c->other);
}

static lab_signs signs_of(const planted *p)
{
    lab l = {.ordinal = 0}; /* it has no roofs */
    lab_kernel k = {.median_s = (p->time_us ? p->time_us : 200) * 1e-6,
                    .of_roof = p->of_roof,
                    .bound = p->bound ? p->bound : "memory",
                    .spill_bytes = p->spill_bytes,
                    .occupancy = p->occupancy ? p->occupancy : 0.5,
                    .waves = p->waves ? p->waves : 4,
                    .ctas_per_sm = p->ctas ? p->ctas : 4,
                    .bytes = 1e6,
                    .extra_bytes = p->extra * 1e6};
    char text[CSV];
    ncu_report r;
    vt_err err;
    k.tail = 1 - k.waves / ceil(k.waves);
    snprintf(k.limited_by, sizeof k.limited_by, "%s", p->limited_by ? p->limited_by : "warps");
    lab_signs s = lab_signs_kernel(&l, &k);
    s.launch_s = 2e-6;
    s.limited_by = p->limited_by; /* k goes away */
    if (p->ncu) {
        put_csv(p->ncu, text);
        assert_int_equal(ncu_report_read("planted", text, strlen(text), &r, &err), VT_OK);
        lab_signs_add_ncu(&s, &r, ncu_report_find(&r, "planted"), MEMORY_ROOF * 1e9);
        ncu_report_release(&r);
    }
    return s;
}

static void expect_one(const lab_signs *s, const char *key, const char *what)
{
    const report_cause *c[MOST];
    int32_t n = report_causes_of(s, c, MOST);
    if (n != (key != NULL) || (key && strcmp(c[0]->key, key) != 0))
        fail_msg("%s: %d rows, the first is %s; expected %s alone", what, n, n ? c[0]->key : "none",
                 key ? key : "none");
}

static void test_causes_a_planted_kernel_gets_its_row_and_no_other(void **state)
{
    (void)state;
    for (int i = 0; i < N_KERNELS; i++) {
        lab_signs s = signs_of(&kernels[i]);
        expect_one(&s, kernels[i].key, kernels[i].what);
    }
}

/* ---- two measurements of one thing ---- */

typedef struct pair {
    const char *key, *what;
    lab_signs s; /* members at 0 are not known */
} pair;

static const pair pairs[] = {
    {"scattered",
     "random slots take 1.4 times as long",
     {.sequential_s = 1e-5, .scattered_s = 1.4e-5}},
    {NULL, "random slots take as long", {.sequential_s = 1e-5, .scattered_s = 1.02e-5}},
    {"small_gain", "half of the prompt saves a third", {.saved_tokens = 0.5, .saved_time = 0.33}},
    {NULL, "half of the prompt saves half", {.saved_tokens = 0.5, .saved_time = 0.5}},
    {"skew", "8 MiB in 80 us, 20 us by the link", {.reduce_s = 8e-5, .reduce_floor_s = 2e-5}},
    {NULL, "8 MiB in 22 us", {.reduce_s = 2.2e-5, .reduce_floor_s = 2e-5}},
    {NULL, "into the buffer alone", {.reduce_copies = 1}},
    {"copied", "into the buffer and out of it", {.reduce_copies = 2}},
    {"cold", "4 s, then 0.2 s", {.first_s = 4, .later_s = 0.2}},
    {NULL, "0.21 s, then 0.2 s", {.first_s = 0.21, .later_s = 0.2}},
    {"different", "one token of 64", {.n_different = 1}},
    {"noisy", "times 30 % apart", {.spread = 0.3}},
    {NULL, "times 3 % apart", {.spread = 0.03}},
};

enum { N_PAIRS = sizeof pairs / sizeof *pairs };

static double known(double v) { return v != 0 ? v : NAN; }

static void test_causes_of_two_measurements(void **state)
{
    (void)state;
    for (int i = 0; i < N_PAIRS; i++) {
        const lab_signs *p = &pairs[i].s;
        lab_signs s = lab_signs_none();
        s.sequential_s = known(p->sequential_s);
        s.scattered_s = known(p->scattered_s);
        s.saved_tokens = known(p->saved_tokens);
        s.saved_time = known(p->saved_time);
        s.reduce_s = known(p->reduce_s);
        s.reduce_floor_s = known(p->reduce_floor_s);
        s.reduce_copies = known(p->reduce_copies);
        s.first_s = known(p->first_s);
        s.later_s = known(p->later_s);
        s.n_different = known(p->n_different);
        s.spread = known(p->spread);
        expect_one(&s, pairs[i].key, pairs[i].what);
    }
}

/* ---- recordings ---- */

static const struct {
    const char *finding, *key;
} recordings[] = {{"gpu.idle", "gaps"},
                  {"host.gaps", "gaps"},
                  {"host.exposed", "gaps"},
                  {"itl.slope", "itl_slope"},
                  {"itl.spread", "slow_token"},
                  {"prefill.steals", "slow_token"},
                  {"cache.evicted", "evicted"},
                  {"cache.miss", "evicted"},
                  {"cold.first", "cold"},
                  {"machine.shared", "noisy"},
                  {"machine.busy", "noisy"},
                  {"kernel.spill", "spill"},
                  {"wave.few", "few_ctas"},
                  {"wave.tail", "tail"},
                  {"roof.memory", "memory_bound"},
                  {"roof.gap", "uncoalesced"},
                  {"call.latency", "launch"},
                  {"cause.barrier", "barrier"},
                  {"batch.shared", NULL},
                  {"cause.", NULL},
                  {"", NULL}};

enum { N_RECORDINGS = sizeof recordings / sizeof *recordings };

static void test_causes_a_finding_belongs_to_one_row(void **state)
{
    (void)state;
    for (int i = 0; i < N_RECORDINGS; i++) {
        const report_cause *c = report_cause_of_finding(recordings[i].finding);
        if (!recordings[i].key)
            assert_null(c);
        else
            assert_string_equal(c ? c->key : "none", recordings[i].key);
    }
    for (const report_cause *c = report_causes; c->seen; c++)
        for (size_t i = 0; i < sizeof c->finding / sizeof *c->finding && c->finding[i]; i++)
            assert_ptr_equal(report_cause_of_finding(c->finding[i]), c);
}

static void test_causes_every_row_has_a_planted_measurement(void **state)
{
    (void)state;
    int rows = 0;
    for (const report_cause *c = report_causes; c->seen; c++, rows++) {
        bool has = false;
        for (int i = 0; i < N_KERNELS; i++)
            has |= kernels[i].key && strcmp(kernels[i].key, c->key) == 0;
        for (int i = 0; i < N_PAIRS; i++)
            has |= pairs[i].key && strcmp(pairs[i].key, c->key) == 0;
        for (int i = 0; i < N_RECORDINGS && !c->holds; i++)
            has |= recordings[i].key && strcmp(recordings[i].key, c->key) == 0;
        if (!has)
            fail_msg("the row '%s' (%s) has no planted measurement", c->seen, c->key);
    }
    assert_true(rows >= 25);
}

static void test_causes_nothing_known_gets_no_row(void **state)
{
    (void)state;
    lab_signs s = lab_signs_none();
    expect_one(&s, NULL, "no sign at all");
}

/* ---- telling ---- */

static void test_causes_are_findings_but_on_a_busy_machine_or_an_emulated_gpu(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        lab l = {.busy = i == 1, .emulated = i == 2, .result = json_object()};
        lab_signs s = lab_signs_none();
        s.n_different = 3;
        json_object_set_new(l.result, "findings", json_array());
        lab_tell_causes(&l, &s, "two runs of 64 tokens");
        const json_t *list = json_object_get(l.result, "findings");
        assert_int_equal(json_array_size(list), i == 0);
        if (i == 0) {
            const json_t *f = json_array_get(list, 0);
            assert_string_equal(json_string_value(json_object_get(f, "rule")), "cause.different");
            assert_string_equal(json_string_value(json_object_get(f, "text")),
                                "two runs of 64 tokens: results differ from run to run. Likely "
                                "cause: the order of sums depends on the batch. What to do: "
                                "--deterministic, at the cost that the labs measure");
        }
        json_decref(l.result);
    }
}

/* The findings of a story, as names; the rows that a lab on this device tells. */
static void expect_of_story(int32_t ordinal, const char *const *finding, const char *expected)
{
    lab l = {.ordinal = ordinal, .result = json_object()};
    json_t *story = json_object(), *list = json_array();
    char told[256] = "";
    for (; *finding; finding++)
        json_array_append_new(list, json_pack("{s:s, s:s}", "rule", *finding, "text", "planted"));
    json_object_set_new(story, "findings", list);
    json_object_set_new(l.result, "findings", json_array());
    lab_tell_story_causes(&l, story);
    const json_t *f;
    size_t i;
    json_array_foreach(json_object_get(l.result, "findings"), i, f)
    {
        size_t n = strlen(told);
        snprintf(told + n, sizeof told - n, "%s ",
                 json_string_value(json_object_get(f, "rule")) + strlen("cause."));
        const char *text = json_string_value(json_object_get(f, "text"));
        assert_non_null(strstr(text, "planted. Likely cause: "));
    }
    assert_string_equal(told, expected);
    json_decref(story);
    json_decref(l.result);
}

static void test_causes_of_a_planted_recording(void **state)
{
    (void)state;
    const char *const slope[] = {"itl.slope", "share.largest", NULL},
                      *const idle[] = {"gpu.idle", "host.gaps", "host.exposed", NULL},
                      *const evicted[] = {"cache.miss", NULL}, *const slow[] = {"itl.spread", NULL},
                      *const cold[] = {"cold.first", NULL}, *const gap[] = {"roof.gap", NULL},
                      *const shared[] = {"machine.shared", "queue.share", NULL};
    expect_of_story(0, slope, "itl_slope ");
    expect_of_story(0, idle, "gaps ");
    expect_of_story(-1, evicted, "evicted ");
    expect_of_story(-1, slow, "slow_token ");
    expect_of_story(-1, cold, "cold ");
    expect_of_story(0, gap, "uncoalesced ");
    expect_of_story(-1, gap, "");
    expect_of_story(-1, shared, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_causes_a_planted_kernel_gets_its_row_and_no_other),
        cmocka_unit_test(test_causes_of_two_measurements),
        cmocka_unit_test(test_causes_a_finding_belongs_to_one_row),
        cmocka_unit_test(test_causes_every_row_has_a_planted_measurement),
        cmocka_unit_test(test_causes_nothing_known_gets_no_row),
        cmocka_unit_test(test_causes_of_a_planted_recording),
        cmocka_unit_test(test_causes_are_findings_but_on_a_busy_machine_or_an_emulated_gpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
