/* Reading a GPU's counters (device/cupti), on the emulated library: what is counted, and the
 * sentence for everything that can stand against it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "common/emulated_gpu.h"
#include "device/cupti/ranges.h"

typedef struct seen {
    int32_t n;
    int number[8];
    double value[8][VT_VITALS];
} seen;

static void note(void *user, const char *name, const double value[VT_VITALS])
{
    seen *s = user;
    assert_in_range(s->n, 0, 7);
    s->number[s->n] = (int)strtol(name, NULL, 10);
    memcpy(s->value[s->n++], value, VT_VITALS * sizeof *value);
}

static vt_cuda *gpu(const char *planted)
{
    vt_cuda *c;
    vt_err err = {0};
    setenv("EMULATED_CUPTI", planted, 1);
    if (vt_cuda_open(0, &c, &err) != VT_OK)
        fail_msg("%s", err.message);
    return c;
}

static vt_ranges *open_ranges(vt_cuda *c, int32_t most)
{
    vt_ranges *r = NULL;
    vt_err err = {0};
    if (vt_ranges_open(c, most, &r, &err) != VT_OK)
        fail_msg("%s", err.message);
    return r;
}

/* Two ranges, 7 and 40. */
static vt_status count_set(vt_ranges *r, int32_t set, seen *s, vt_err *err)
{
    static const char *const name[] = {"7", "40"};
    *s = (seen){0};
    TRY(vt_ranges_begin(r, set, err));
    for (int i = 0; i < 2; i++) {
        TRY(vt_ranges_push(r, name[i], err));
        TRY(vt_ranges_pop(r, err));
    }
    return vt_ranges_end(r, note, s, err);
}

static vt_status count(vt_ranges *r, seen *s, vt_err *err) { return count_set(r, 0, s, err); }

static void test_ranges_when_counted_then_each_has_its_own_values(void **state)
{
    seen s;
    vt_err err = {0};
    vt_cuda *c = gpu("");
    vt_ranges *r = open_ranges(c, 4);
    (void)state;
    for (int again = 0; again < 2; again++) {
        assert_int_equal(count(r, &s, &err), VT_OK);
        assert_int_equal(s.n, 2);
        for (int i = 0; i < 2; i++) {
            int number = i == 0 ? 7 : 40;
            assert_int_equal(s.number[i], number);
            assert_true(s.value[i][VT_VITAL_TIME] == 2000 + number);
            assert_true(s.value[i][VT_VITAL_DRAM_READ] == 1000000 + 1000 * number);
            assert_true(fabs(s.value[i][VT_VITAL_SM] - 0.9) < 1e-12);
            assert_true(fabs(s.value[i][VT_VITAL_L2_HIT] - 0.25) < 1e-12);
        }
    }
    vt_ranges_close(r);
    vt_cuda_close(c);
}

/* Half of each range passes without work: shares are of the other half, and none is above 1. */
static void
test_ranges_when_they_are_longer_than_their_work_then_shares_are_of_the_work(void **state)
{
    seen s;
    vt_err err = {0};
    vt_cuda *c = gpu("sm__cycles_active.max=500,sm__cycles_active.avg=450,"
                     "sm__cycles_active.avg.pct_of_peak_sustained_elapsed=45");
    vt_ranges *r = open_ranges(c, 4);
    (void)state;
    assert_int_equal(count(r, &s, &err), VT_OK);
    assert_true(fabs(s.value[0][VT_VITAL_SM] - 0.9) < 1e-12);
    assert_true(fabs(s.value[0][VT_VITAL_TENSOR] - 0.25) < 1e-12);
    assert_true(s.value[0][VT_VITAL_DRAM] == 1);
    assert_true(fabs(s.value[0][VT_VITAL_WARPS] - 0.5) < 1e-12);
    vt_ranges_close(r);
    vt_cuda_close(c);
}

/* Every set has the time and the cycles of all warps; the emulated GPU takes two stall reasons in a
 * pass. All sets together count everything. */
static void test_sets_when_taken_in_turns_then_every_vital_is_counted(void **state)
{
    seen s;
    vt_err err = {0};
    bool counted[VT_VITALS] = {false};
    double stalled = 0, cycles = 0;
    vt_cuda *c = gpu("");
    vt_ranges *r = open_ranges(c, 4);
    const vt_vital_sets *sets = vt_ranges_sets(r);
    (void)state;
    assert_int_equal(sets->n, 1 + (VT_STALLS - 1) / 2);
    assert_int_equal(sets->set[0].n, VT_VITAL_STALLED + 1);
    for (int32_t i = 0; i < sets->n; i++) {
        assert_int_equal(count_set(r, i, &s, &err), VT_OK);
        assert_true(isfinite(s.value[0][VT_VITAL_TIME]));
        for (int k = 0; k < VT_VITALS; k++)
            counted[k] = counted[k] || isfinite(s.value[0][k]);
        for (int k = 0; k < VT_STALLS; k++)
            if (isfinite(s.value[0][VT_VITAL_STALLED + k]))
                stalled += s.value[0][VT_VITAL_STALLED + k];
        cycles = s.value[0][VT_VITAL_WARP_CYCLES];
    }
    for (int k = 0; k < VT_VITALS; k++)
        assert_true(counted[k]);
    assert_true(stalled == cycles);
    vt_ranges_close(r);
    vt_cuda_close(c);
}

static void test_sets_when_a_metric_is_not_lent_then_the_others_are_counted(void **state)
{
    seen s;
    vt_err err = {0};
    vt_cuda *c = gpu("no=dram__bytes_write.sum,"
                     "no=LTS.TriageCompute.lts__average_t_sector_hit_rate_realtime.pct,"
                     "no=smsp__warps_issue_stalled_gmma.sum,"
                     "pass=sm__warps_active.avg.pct_of_peak_sustained_active");
    vt_ranges *r = open_ranges(c, 4);
    const vt_vital_sets *sets = vt_ranges_sets(r);
    (void)state;
    assert_int_equal(sets->set[0].n, VT_VITAL_STALLED + 1 - 2);
    assert_non_null(strstr(sets->why_not[VT_VITAL_DRAM_WRITTEN], "adding metrics"));
    assert_non_null(strstr(sets->why_not[VT_VITAL_STALLED + VT_STALL_gmma], "adding metrics"));
    /* it takes a pass more beside whatever it is with */
    assert_non_null(strstr(sets->why_not[VT_VITAL_WARPS], "needs 2 passes"));
    assert_int_equal(count(r, &s, &err), VT_OK);
    assert_true(isnan(s.value[0][VT_VITAL_DRAM_WRITTEN]));
    assert_true(isnan(s.value[0][VT_VITAL_WARPS]));
    assert_true(fabs(s.value[0][VT_VITAL_L2_HIT] - 0.24) < 1e-12); /* the second choice */
    vt_ranges_close(r);
    vt_cuda_close(c);
}

/* The error of opening with these words planted. */
static void expect_refused(const char *planted, const char *says)
{
    vt_ranges *r = NULL;
    vt_err err = {0};
    vt_cuda *c = gpu(planted);
    assert_int_equal(vt_ranges_open(c, 4, &r, &err), VT_ERR_UNSUPPORTED);
    if (!strstr(err.message, says))
        fail_msg("\"%s\" says nothing of \"%s\"", err.message, says);
    assert_null(r);
    vt_cuda_close(c);
}

static void test_ranges_when_something_stands_against_them_then_it_is_named(void **state)
{
    char old[1100];
    (void)state;
    expect_refused("forbidden", "NVreg_RestrictProfilingToAdminUsers=0");
    expect_refused("vgpu", "a virtual GPU is switched off");
    setenv("VITRINE_CUPTI", "/nowhere/libcupti.so", 1);
    expect_refused("", "VITRINE_CUPTI=/nowhere/libcupti.so cannot be opened");
    assert_true(emulated_gpu_file("cupti-12.5/libcupti.so.12", old, sizeof old));
    setenv("VITRINE_CUPTI", old, 1);
    expect_refused("", "CUPTI 12.5 has no function cuptiProfilerHostInitialize, which CUDA 12.6's "
                       "and later have");
    unsetenv("VITRINE_CUPTI");
}

static void test_ranges_when_cupti_is_of_cuda_12_6_then_they_are_counted(void **state)
{
    char old[1100];
    seen s;
    vt_err err = {0};
    (void)state;
    assert_true(emulated_gpu_file("cupti-12.6/libcupti.so.12", old, sizeof old));
    setenv("VITRINE_CUPTI", old, 1);
    vt_cuda *c = gpu("");
    vt_ranges *r = open_ranges(c, 4);
    assert_int_equal(count(r, &s, &err), VT_OK);
    assert_int_equal(s.n, 2);
    vt_ranges_close(r);
    vt_cuda_close(c);
    unsetenv("VITRINE_CUPTI");
}

/* CUDA 12.1's question what a GPU supports has no member for the part that is asked about. */
static void test_supported_when_cupti_is_of_cuda_12_1_then_its_shorter_question_is_asked(void **st)
{
    char old[1100];
    vt_cupti cupti;
    vt_err err = {0};
    (void)st;
    assert_true(emulated_gpu_file("cupti-12.1/libcupti.so.12", old, sizeof old));
    setenv("VITRINE_CUPTI", old, 1);
    vt_cuda *c = gpu("");
    assert_int_equal(vt_cupti_open(&cupti, &err), VT_OK);
    assert_int_equal(cupti.version, 18);
    assert_int_equal(vt_cupti_supported(&cupti, c, CUPTI_API_PC_SAMPLING, &err), VT_OK);
    setenv("EMULATED_CUPTI", "vgpu", 1);
    assert_int_equal(vt_cupti_supported(&cupti, c, CUPTI_API_PC_SAMPLING, &err),
                     VT_ERR_UNSUPPORTED);
    assert_string_equal(err.message,
                        "CUPTI cannot count on this GPU: a virtual GPU is switched off");
    vt_cuda_close(c);
    unsetenv("VITRINE_CUPTI");
}

static void test_ranges_when_counting_fails_then_the_next_count_works(void **state)
{
    seen s;
    vt_err err = {0};
    vt_cuda *c = gpu("");
    vt_ranges *r = open_ranges(c, 1); /* room for one */
    (void)state;
    assert_int_equal(count(r, &s, &err), VT_ERR_UNSUPPORTED);
    assert_string_equal(err.message, "CUPTI dropped 1 ranges");
    vt_ranges_close(r);
    r = open_ranges(c, 4);
    setenv("EMULATED_CUPTI", "watched", 1);
    assert_int_equal(count(r, &s, &err), VT_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "another profiler"));
    setenv("EMULATED_CUPTI", "", 1);
    assert_int_equal(vt_ranges_begin(r, 0, &err), VT_OK);
    assert_int_equal(vt_ranges_push(r, "1", &err), VT_OK);
    assert_int_equal(vt_ranges_end(r, NULL, NULL, &err), VT_OK); /* without a pop */
    assert_int_equal(count(r, &s, &err), VT_OK);
    assert_int_equal(s.n, 2);
    vt_ranges_close(r);
    vt_cuda_close(c);
}

static void test_release_when_a_version_is_known_then_it_is_cudas(void **state)
{
    char text[32];
    (void)state;
    vt_cupti_release(18, text, sizeof text);
    assert_string_equal(text, "12.1");
    vt_cupti_release(23, text, sizeof text);
    assert_string_equal(text, "12.5");
    vt_cupti_release(130001, text, sizeof text);
    assert_string_equal(text, "13.0");
    vt_cupti_release(99, text, sizeof text);
    assert_string_equal(text, "of API version 99");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges_when_counted_then_each_has_its_own_values),
        cmocka_unit_test(
            test_ranges_when_they_are_longer_than_their_work_then_shares_are_of_the_work),
        cmocka_unit_test(test_sets_when_taken_in_turns_then_every_vital_is_counted),
        cmocka_unit_test(test_sets_when_a_metric_is_not_lent_then_the_others_are_counted),
        cmocka_unit_test(test_ranges_when_something_stands_against_them_then_it_is_named),
        cmocka_unit_test(test_ranges_when_counting_fails_then_the_next_count_works),
        cmocka_unit_test(test_ranges_when_cupti_is_of_cuda_12_6_then_they_are_counted),
        cmocka_unit_test(
            test_supported_when_cupti_is_of_cuda_12_1_then_its_shorter_question_is_asked),
        cmocka_unit_test(test_release_when_a_version_is_known_then_it_is_cudas),
    };
    return cmocka_run_group_tests(tests, emulated_gpu_open, NULL);
}
