/* ncu's CSV (lab/profilers/ncu_csv.h). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "lab/profilers/ncu_csv.h"

static const char good[] =
    "==PROF== Connected to process 4711 (vitrine)\n"
    "attention_decode  attention of one new token\n"
    "\"ID\",\"Kernel Name\",\"gpu__time_duration.sum\",\"dram__bytes.sum\",\"warps\"\n"
    "\"\",\"\",\"ns\",\"byte\",\"%\"\n"
    "\"0\",\"fill\",\"1,234\",\"1048576\",\"50\"\n"
    "==PROF== a message between rows\n"
    "\"1\",\"attention<128, \"\"bf16\"\">\",\"12,345.5\",\"n/a\",\"31.25\"\n"
    "\"2\",\"fill\",\"1\",\"2\",\"3\"\n";

static void read_good(ncu_report *r)
{
    vt_err err;
    assert_int_equal(ncu_report_read("good", good, sizeof good - 1, r, &err), VT_OK);
}

static void test_ncu_csv_skips_messages_and_reads_rows(void **state)
{
    (void)state;
    ncu_report r;
    read_good(&r);
    assert_int_equal(r.n_columns, 5);
    assert_int_equal(r.n_launches, 3);
    assert_string_equal(ncu_report_text(&r, 1, "Kernel Name"), "attention<128, \"bf16\">");
    ncu_report_release(&r);
}

static void test_ncu_csv_numbers_are_in_base_units(void **state)
{
    (void)state;
    ncu_report r;
    read_good(&r);
    assert_true(fabs(ncu_report_number(&r, 1, "gpu__time_duration.sum") - 12345.5e-9) < 1e-12);
    assert_true(ncu_report_number(&r, 0, "dram__bytes.sum") == 1048576);
    assert_true(ncu_report_number(&r, 1, "warps") == 0.3125);
    ncu_report_release(&r);
}

/* As nsys 2023.4 prints it with --quiet; a kernel's name has commas. */
static void test_ncu_csv_reads_what_nsys_stats_prints(void **state)
{
    (void)state;
    static const char text[] = "NOTICE: a line of nsys\n"
                               "Time (%),Total Time (ns),Instances,Name\n"
                               "60.5,1234567,30,\"gemm<64, 8>\"\n"
                               "39.5,7,2,fill\n\n";
    ncu_report r = {0};
    vt_err err;
    assert_int_equal(nsys_stats_read("stats", text, sizeof text - 1, &r, &err), VT_OK);
    assert_int_equal(r.n_launches, 2);
    assert_string_equal(ncu_report_text(&r, 0, "Name"), "gemm<64, 8>");
    assert_true(ncu_report_number(&r, 0, "Total Time (ns)") == 1234567);
    assert_true(ncu_report_number(&r, 1, "Time (%)") == 39.5);
    ncu_report_release(&r);
    assert_int_equal(nsys_stats_read("stats", "SKIPPED\n", 8, &r, &err), VT_ERR_FORMAT);
    assert_non_null(strstr(err.message, "Time (%)"));
    assert_int_equal(nsys_stats_read("good", good, sizeof good - 1, &r, &err), VT_ERR_FORMAT);
}

static void test_ncu_csv_what_is_not_there_is_no_number(void **state)
{
    (void)state;
    ncu_report r;
    read_good(&r);
    assert_true(isnan(ncu_report_number(&r, 1, "dram__bytes.sum"))); /* n/a */
    assert_true(isnan(ncu_report_number(&r, 0, "no such column")));
    assert_true(isnan(ncu_report_number(&r, 3, "warps")));
    assert_null(ncu_report_text(&r, -1, "warps"));
    ncu_report_release(&r);
}

static void test_ncu_csv_finds_the_newest_launch_of_a_kernel(void **state)
{
    (void)state;
    ncu_report r;
    read_good(&r);
    assert_int_equal(ncu_report_find(&r, "attention"), 1);
    assert_int_equal(ncu_report_find(&r, "fill"), 2);
    assert_int_equal(ncu_report_find(&r, "rmsnorm"), -1);
    ncu_report_release(&r);
}

static void refuses(const char *text, const char *needle)
{
    ncu_report r = {0};
    vt_err err = {0};
    assert_int_not_equal(ncu_report_read("bad.csv", text, strlen(text), &r, &err), VT_OK);
    assert_non_null(strstr(err.message, "bad.csv: "));
    assert_non_null(strstr(err.message, needle));
    assert_null(r.text);
}

static void test_ncu_csv_names_what_is_wrong(void **state)
{
    (void)state;
    refuses("", "no line of column names");
    refuses("nothing here\n", "no line of column names");
    refuses("\"ID\",\"Kernel Name\"\n", "the line of units is missing");
    refuses("\"ID\",\"Kernel Name\"\n\"\",\"\"\n\"0\"\n",
            "line 3 of the table has 1 fields, expected 2");
    refuses("\"ID\",\"a\"\n\"\",\"\"\n\"0\",\"1\",\"2\"\n", "has 3 fields, expected 2");
}

static void test_ncu_csv_limits_columns(void **state)
{
    (void)state;
    static char text[3 + 2 * NCU_MAX_COLUMNS + 1] = "ID,"; /* then "a," for each, and one NUL */
    for (int i = 0; i < NCU_MAX_COLUMNS; i++)
        memcpy(text + 3 + 2 * i, "a,", 2);
    refuses(text, "columns, expected at most 512");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ncu_csv_skips_messages_and_reads_rows),
        cmocka_unit_test(test_ncu_csv_numbers_are_in_base_units),
        cmocka_unit_test(test_ncu_csv_reads_what_nsys_stats_prints),
        cmocka_unit_test(test_ncu_csv_what_is_not_there_is_no_number),
        cmocka_unit_test(test_ncu_csv_finds_the_newest_launch_of_a_kernel),
        cmocka_unit_test(test_ncu_csv_names_what_is_wrong),
        cmocka_unit_test(test_ncu_csv_limits_columns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
