/* Sampling a GPU's counters over time (device/cupti/pm.h), on the emulated library: what is told of
 * each sample, what a ring that wraps does, and the sentence for everything that can stand against
 * it. How many samples there are depends on the clock; what they hold does not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "base/clock.h"
#include "common/emulated_gpu.h"
#include "device/cupti/pm.h"

enum { INTERVAL = 50000 /* nanoseconds */ };

/* What all samples of some drains held. */
typedef struct seen {
    int64_t n, n_asleep, n_wrong, last_end_ns, first_begin_ns;
    float lost_us;
} seen;

static bool near(float a, double b) { return fabs((double)a - b) <= 1e-6 * fabs(b); }

static void note(void *user, const vt_pm_event *e)
{
    static const double busy[VT_PM_LANES] = {0.9, 0.125, 1e9, 2e7, 0.25, 2e9, 1e9};
    seen *s = user;
    bool asleep = e->value[VT_PM_SM] == 0;
    s->n_wrong += e->end_ns - e->begin_ns != INTERVAL;
    for (int i = 0; i < VT_PM_LANES; i++)
        s->n_wrong += !near(e->value[i], asleep ? 0 : busy[i]);
    s->first_begin_ns = s->n == 0 ? e->begin_ns : s->first_begin_ns;
    s->last_end_ns = e->end_ns;
    s->n++;
    s->n_asleep += asleep;
    s->lost_us += e->lost_us;
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

static vt_pm *open_pm(vt_cuda *c)
{
    vt_pm *p = NULL;
    vt_err err = {0};
    if (vt_pm_open(c, &p, &err) != VT_OK)
        fail_msg("%s", err.message);
    return p;
}

static void sleep_ms(int ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
    nanosleep(&t, NULL);
}

static void test_pm_when_it_samples_then_every_lane_has_its_value_and_its_time(void **state)
{
    vt_err err = {0};
    seen s = {0};
    (void)state;
    vt_cuda *c = gpu("");
    vt_pm *p = open_pm(c);
    assert_int_equal(vt_pm_sampled(p)->n, VT_PM_LANES);
    int64_t begin = vt_now_ns();
    assert_int_equal(vt_pm_start(p, INTERVAL, &err), VT_OK);
    for (int i = 0; i < 3; i++) {
        sleep_ms(5);
        assert_int_equal(vt_pm_drain(p, 0, INT64_MAX, note, &s, &err), VT_OK);
    }
    int64_t end = vt_now_ns();
    assert_int_equal(s.n_wrong, 0);
    assert_true(s.n >= 3 * 5000000 / INTERVAL - 1); /* all but the first one, which has no begin */
    assert_in_range(s.n_asleep, s.n / 4 - 1, s.n / 4 + 1);
    assert_true(s.lost_us == 0);
    /* the two clocks are read one after the other */
    assert_true(s.first_begin_ns > begin - 1000000 && s.last_end_ns < end + 1000000);
    assert_int_equal(vt_pm_stop(p, &err), VT_OK);
    assert_int_equal(vt_pm_drain(p, 0, INT64_MAX, note, &s, &err), VT_OK);
    vt_pm_close(p);
    vt_cuda_close(c);
}

static void test_pm_when_only_some_time_is_wanted_then_other_samples_are_dropped(void **state)
{
    vt_err err = {0};
    seen s = {0};
    (void)state;
    vt_cuda *c = gpu("");
    vt_pm *p = open_pm(c);
    assert_int_equal(vt_pm_start(p, INTERVAL, &err), VT_OK);
    sleep_ms(2);
    int64_t from = vt_now_ns(), to = from + 3000000;
    sleep_ms(6);
    assert_int_equal(vt_pm_drain(p, from, to, note, &s, &err), VT_OK);
    assert_int_equal(s.n_wrong, 0);
    assert_in_range(s.n, 3000000 / INTERVAL, 3000000 / INTERVAL + 1);
    assert_true(s.first_begin_ns > from - INTERVAL && s.last_end_ns < to + INTERVAL);
    vt_pm_close(p);
    vt_cuda_close(c);
}

static void test_pm_when_the_ring_wraps_then_the_missing_time_is_told(void **state)
{
    vt_err err = {0};
    seen s = {0};
    (void)state;
    vt_cuda *c = gpu("ring=20");
    vt_pm *p = open_pm(c);
    assert_int_equal(vt_pm_start(p, INTERVAL, &err), VT_OK);
    sleep_ms(1);
    assert_int_equal(vt_pm_drain(p, 0, INT64_MAX, note, &s, &err), VT_OK);
    int64_t first = s.n, end = s.last_end_ns;
    sleep_ms(10);
    assert_int_equal(vt_pm_drain(p, 0, INT64_MAX, note, &s, &err), VT_OK);
    assert_int_equal(s.n - first, 20); /* the latest */
    double missing = (double)(s.last_end_ns - end) * 1e-3 - 20 * INTERVAL * 1e-3;
    assert_true(missing > 0 && fabs((double)s.lost_us - missing) <= 1e-3 * missing + 1);
    vt_pm_close(p);
    vt_cuda_close(c);
}

static void test_pm_when_a_metric_is_not_to_be_had_then_it_is_said_by_name(void **state)
{
    vt_err err = {0};
    (void)state;
    vt_cuda *c = gpu("no=dram__bytes_write.sum,refused=pcie__read_bytes.sum,"
                     "pass=sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed");
    vt_pm *p = open_pm(c);
    const vt_pm_set *set = vt_pm_sampled(p);
    assert_int_equal(set->n, VT_PM_LANES - 3);
    assert_non_null(strstr(set->why_not[VT_PM_DRAM_WRITTEN], "adding metrics"));
    assert_non_null(strstr(set->why_not[VT_PM_PCIE_IN], "setting what to sample"));
    assert_non_null(strstr(set->why_not[VT_PM_TENSOR], "adding metrics")); /* the second choice */
    assert_string_equal(set->why_not[VT_PM_PCIE_OUT], "");
    assert_int_equal(vt_pm_start(p, INTERVAL, &err), VT_OK);
    vt_pm_close(p);
    vt_cuda_close(c);
}

static void expect_refused(const char *planted, const char *says)
{
    vt_pm *p = NULL;
    vt_err err = {0};
    vt_cuda *c = gpu(planted);
    assert_int_equal(vt_pm_open(c, &p, &err), VT_ERR_UNSUPPORTED);
    if (!strstr(err.message, says))
        fail_msg("\"%s\" says nothing of \"%s\"", err.message, says);
    assert_null(p);
    vt_cuda_close(c);
}

static void test_pm_when_something_stands_against_it_then_it_is_named(void **state)
{
    char old[1100];
    (void)state;
    expect_refused("forbidden", "NVreg_RestrictProfilingToAdminUsers=0");
    expect_refused("vgpu", "a virtual GPU is switched off");
    expect_refused("watched", "another profiler");
    assert_true(emulated_gpu_file("cupti-12.5/libcupti.so.12", old, sizeof old));
    setenv("VITRINE_CUPTI", old, 1);
    expect_refused("", "CUPTI 12.5 has no function cuptiPmSamplingEnable");
    unsetenv("VITRINE_CUPTI");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pm_when_it_samples_then_every_lane_has_its_value_and_its_time),
        cmocka_unit_test(test_pm_when_only_some_time_is_wanted_then_other_samples_are_dropped),
        cmocka_unit_test(test_pm_when_the_ring_wraps_then_the_missing_time_is_told),
        cmocka_unit_test(test_pm_when_a_metric_is_not_to_be_had_then_it_is_said_by_name),
        cmocka_unit_test(test_pm_when_something_stands_against_it_then_it_is_named),
    };
    return cmocka_run_group_tests(tests, emulated_gpu_open, NULL);
}
