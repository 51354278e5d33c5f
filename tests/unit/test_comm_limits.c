/* Limits of the forms of a sum over ranks: what planted times decide, and the file that keeps them.
 * No time is measured. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/roofs/comm_limits.h"

enum { KIB = 1 << 10, MIB = 1 << 20 };

/* Microseconds at a size: a start and a rate. */
typedef struct line {
    double us, us_a_mib;
} line;

static void plant(double t[COMM_FORMS][COMM_SIZES], comm_form form, line l, int64_t most)
{
    for (int32_t i = 0; i < COMM_SIZES; i++) {
        int64_t bytes = (int64_t)COMM_LEAST_BYTES << i;
        t[form][i] = bytes > most ? 0 : (l.us + l.us_a_mib * (double)bytes / MIB) * 1e-6;
    }
}

/* As four ranks would measure: push to 256 KiB is the nearest, two-shot moves the fewest bytes. */
static comm_times times(line push, line one_shot, line other)
{
    comm_times t = {.when = 1764000000};
    plant(t.sum, COMM_PUSH, push, 256 * KIB);
    plant(t.sum, COMM_ONE_SHOT, one_shot, 8 * MIB);
    plant(t.sum, COMM_OTHER, other, 8 * MIB);
    memcpy(t.norm, t.sum, sizeof t.sum);
    return t;
}

static void test_limits_lie_where_planted_times_cross(void **state)
{
    (void)state;
    /* push is faster up to 1/24 MiB, one-shot up to 3/5 MiB */
    comm_times t = times((line){2, 40}, (line){3, 16}, (line){6, 11});
    vt_comm_limits l = vt_comm_limits_from(&t, 4);
    assert_int_equal(l.sum.push, 32 * KIB);
    assert_int_equal(l.sum.one_shot, 512 * KIB);
    assert_int_equal(l.norm.push, 32 * KIB);
    assert_int_equal(l.when, t.when);
    t = times((line){2, 200}, (line){1, 16}, (line){6, 1});
    l = vt_comm_limits_from(&t, 4);
    assert_int_equal(l.sum.push, 0);
    assert_int_equal(l.sum.one_shot, 256 * KIB);
    t = times((line){1, 1}, (line){2, 2}, (line){.5, .1}); /* two-shot everywhere */
    l = vt_comm_limits_from(&t, 4);
    assert_int_equal(l.sum.push, 0);
    assert_int_equal(l.sum.one_shot, 0);
}

static void test_limits_of_the_largest_size_hold_beyond_it(void **state)
{
    (void)state;
    comm_times t = times((line){2, 400}, (line){3, 4}, (line){6, 10});
    memset(t.sum[COMM_OTHER], 0, sizeof t.sum[COMM_OTHER]); /* two ranks have no two-shot */
    vt_comm_limits l = vt_comm_limits_from(&t, 2);
    assert_int_equal(l.sum.one_shot, INT64_MAX);
    assert_int_equal(l.norm.one_shot, 8 * MIB);
}

/* A form that is as fast but for noise changes nothing; one size alone that is far off does not
 * move a limit past others. */
static void test_limits_stay_fixed_where_no_others_gain(void **state)
{
    (void)state;
    vt_comm_limits fixed = vt_comm_fixed_limits(2);
    comm_times t = times((line){2, 2}, (line){2, 2}, (line){9, 9});
    t.sum[COMM_PUSH][6] *= 0.99;
    vt_comm_limits l = vt_comm_limits_from(&t, 2);
    assert_int_equal(l.sum.push, fixed.sum.push);
    assert_int_equal(l.sum.one_shot, fixed.sum.one_shot);
    t = times((line){2, 0}, (line){3, 0}, (line){9, 9});
    t.sum[COMM_PUSH][0] *= 1.6; /* disturbed: push at 8 KiB alone is slower */
    l = vt_comm_limits_from(&t, 2);
    assert_int_equal(l.sum.push, 256 * KIB);
}

static void test_times_are_kept_in_a_file(void **state)
{
    (void)state;
    comm_times t = times((line){2, 48}, (line){3, 16}, (line){6, 10}), back;
    assert_false(vt_comm_times_read("NVIDIA X-driver1-p2p-0-1", &back));
    vt_comm_times_write("NVIDIA X-driver1-p2p-0-1", &t);
    assert_true(vt_comm_times_read("NVIDIA X-driver1-p2p-0-1", &back));
    assert_false(vt_comm_times_read("NVIDIA X-driver1-p2p-0-2", &back)); /* other GPUs */
    assert_int_equal(back.when, t.when);
    for (int form = 0; form < COMM_FORMS; form++)
        for (int32_t i = 0; i < COMM_SIZES; i++)
            assert_true(back.sum[form][i] > t.sum[form][i] - 1e-9 &&
                        back.sum[form][i] < t.sum[form][i] + 1e-9);
    vt_comm_limits a = vt_comm_limits_from(&t, 4), b = vt_comm_limits_from(&back, 4);
    assert_memory_equal(&a, &b, sizeof a);
}

/* The text lies in the cache as the file of this key. */
static bool reads(const char *text)
{
    comm_times t;
    char path[256];
    snprintf(path, sizeof path, "%s/comm-broken.json", getenv("VITRINE_CACHE"));
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    return vt_comm_times_read("broken", &t);
}

static void test_a_file_that_makes_no_sense_is_not_read(void **state)
{
#define NULLS "null,null,null,null,null,null,null,null,null,null,null"
#define ONES "1,1,1,1,1,1,1,1,1,1,1"
#define FORMS(push, one_shot, other) \
    "{\"push\":[" push "],\"one_shot\":[" one_shot "],\"other\":[" other "]}"
#define ALL(date, sum, norm) \
    "{\"version\":1,\"date\":\"" date "\",\"sum\":" sum ",\"norm\":" norm "}"
#define DATE "2026-11-29T18:00:00Z"
#define GOOD FORMS(NULLS, ONES, NULLS)
    (void)state;
    assert_true(reads(ALL(DATE, GOOD, GOOD)));
    static const char *const bad[] = {"",
                                      "[]",
                                      "{\"version\":2}",
                                      ALL("yesterday", GOOD, GOOD),
                                      ALL(DATE, GOOD, FORMS(NULLS, NULLS, NULLS)),
                                      ALL(DATE, GOOD, FORMS("-1", ONES, NULLS)),
                                      ALL(DATE, FORMS(NULLS, "1e99", NULLS), GOOD),
                                      ALL(DATE, GOOD, "{}")};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (reads(bad[i]))
            fail_msg("%s", bad[i]);
}

int main(void)
{
    static char folder[] = "/tmp/vitrine-limits-XXXXXX";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limits_lie_where_planted_times_cross),
        cmocka_unit_test(test_limits_of_the_largest_size_hold_beyond_it),
        cmocka_unit_test(test_limits_stay_fixed_where_no_others_gain),
        cmocka_unit_test(test_times_are_kept_in_a_file),
        cmocka_unit_test(test_a_file_that_makes_no_sense_is_not_read),
    };
    if (!mkdtemp(folder) || setenv("VITRINE_CACHE", folder, 1) != 0)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command) != 0 || failed;
}
