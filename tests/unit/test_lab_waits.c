/* Which call of a story a launch that ncu saw belongs to (lab/sglang/waits.h): a step of a prompt
 * and one of a decode, two launches of each kernel and grid, a library's kernels among them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "lab/kit/run.h"
#include "lab/sglang/waits.h"

#define KERNEL(name, x) "{\"name\":\"" name "\",\"launch\":{\"grid\":[" x ",1,1]}}"
#define OP(kind, impl, kernel) \
    "{\"kind\":\"" kind "\",\"impl\":\"" impl "\",\"kernels\":[" kernel "]}"
#define NORMS                                                \
    OP("rmsnorm.attn", "rows", KERNEL("rmsnorm<k=8>", "64")) \
    "," OP("rmsnorm.final", "rows", KERNEL("rmsnorm<k=8>", "1"))

/* clang-format off */
static const char story_text_of[] =
    "{\"calls\":{\"labels\":[\"embed\",\"L00.rmsnorm.attn\",\"L00.linear.qkv\",\"L00.linear.o\","
    "\"L01.rmsnorm.attn\",\"L01.linear.qkv\",\"L01.linear.o\",\"rmsnorm.final\",\"sample\"]},"
    "\"typical\":{\"phases\":["
    "{\"name\":\"prefill\",\"columns\":{\"us\":[1,2,3,4,2,3,4,2,1]}},"
    "{\"name\":\"decode\",\"columns\":{\"us\":[1,2,3,4,2,3,4,2,1]}}]},"
    "\"phases\":[{\"name\":\"prefill\",\"ops\":[" NORMS ","
    OP("embed", "gather", KERNEL("embed<>", "64")) ","
    OP("linear.qkv", "cublaslt", "") ","
    OP("linear.o", "gemm", KERNEL("gemm<m=64>", "8")) ","
    OP("sample", "parts", KERNEL("sample<>", "4")) "]},"
    "{\"name\":\"decode\",\"ops\":["
    OP("embed", "gather", KERNEL("embed<>", "1")) ","
    OP("rmsnorm.attn", "rows", KERNEL("rmsnorm<k=8>", "1")) ","
    OP("rmsnorm.final", "rows", KERNEL("rmsnorm<k=8>", "1")) ","
    OP("linear.qkv", "small", KERNEL("linear_small<>", "96")) ","
    OP("linear.o", "small", KERNEL("linear_small<>", "32")) ","
    OP("sample", "parts", KERNEL("sample<>", "4")) "]}]}";
/* clang-format on */

#define HEAD                                                                 \
    "\"ID\",\"Kernel Name\",\"Grid Size\",\"gpu__time_duration.sum\","       \
    "\"sm__cycles_active.avg.pct_of_peak_sustained_elapsed\","               \
    "\"smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio\"\n" \
    "\"\",\"\",\"\",\"ns\",\"%\",\"inst\"\n"
#define LAUNCH(name, x, ns, sm) \
    "\"1\",\"" name "\",\"(" x ", 1, 1)\",\"" ns "\",\"" sm "\",\"3.0\"\n"

/* A library tries kernels before the step begins; of rmsnorm the second launch is layer 1's. */
/* clang-format off */
static const char csv_of[] = HEAD
    LAUNCH("nvjet_a", "2", "100", "1")
    LAUNCH("embed", "64", "200", "11")
    LAUNCH("rmsnorm", "64", "300", "12")
    LAUNCH("nvjet_b", "9", "400", "13")
    LAUNCH("gemm", "8", "500", "14")
    LAUNCH("rmsnorm", "64", "600", "15")
    LAUNCH("nvjet_b", "9", "700", "16")
    LAUNCH("gemm", "8", "800", "17")
    LAUNCH("rmsnorm", "1", "900", "18")
    LAUNCH("sample", "4", "1,000", "19")
    LAUNCH("embed", "1", "1,100", "20")
    LAUNCH("linear_small", "96", "1,200", "21")
    LAUNCH("linear_small", "32", "1,300", "22");
/* clang-format on */

static vt_status run_waits(lab *l, vt_err *err)
{
    ncu_report r;
    json_t *story = json_loads(story_text_of, 0, NULL);
    assert_non_null(story);
    assert_int_equal(ncu_report_read("a test", csv_of, strlen(csv_of), &r, err), VT_OK);
    assert_int_equal(sglang_tell_launches(l, story, &r), 9);
    ncu_report_release(&r);
    json_decref(story);
    return VT_OK;
}

static const lab_def def = {.track = LAB_SGLANG,
                            .number = "96",
                            .name = "waits",
                            .goal = "a test",
                            .about = {"something happens"},
                            .items = {{"waits", "kernels under ncu", true}},
                            .kernels = true,
                            .run = run_waits};

static const char *text(const json_t *row, size_t column)
{
    return json_string_value(json_object_get(json_array_get(row, column), "text"));
}

static void test_a_launch_is_told_as_the_call_that_it_belongs_to(void **state)
{
    (void)state;
    json_t *result = NULL;
    vt_options *o;
    bool failed;
    vt_err err = {0};
    assert_int_equal(vt_options_new(&o, &err), VT_OK);
    lab_ask ask = {.options = o,
                   .model = "dummy:smollm2-135m",
                   .folder = "/nowhere",
                   .ordinal = -1,
                   .threads = 1,
                   .quick = true};
    assert_int_equal(lab_run(&ask, &def, &result, &failed, &err), VT_OK);
    vt_options_free(o);
    const json_t *rows = json_object_get(json_object_get(json_object_get(result, "items"), "waits"),
                                         "rows");
    static const char *const want[][4] = {{"prefill", "embed", "200 ns", "11 %"},
                                          {"prefill", "rmsnorm.attn", "300 ns", "12 %"},
                                          {"prefill", "linear.qkv", "400 ns", "13 %"},
                                          {"prefill", "linear.o", "500 ns", "14 %"},
                                          {"prefill", "rmsnorm.final", "900 ns", "18 %"},
                                          {"prefill", "sample", "1.00 us", "19 %"},
                                          {"decode", "embed", "1.10 us", "20 %"},
                                          {"decode", "linear.qkv", "1.20 us", "21 %"},
                                          {"decode", "linear.o", "1.30 us", "22 %"}};
    assert_int_equal(json_array_size(rows), 9);
    for (size_t i = 0; i < 9; i++) {
        const json_t *row = json_array_get(rows, i);
        assert_string_equal(text(row, 0), want[i][0]);
        assert_string_equal(text(row, 1), want[i][1]);
        assert_string_equal(text(row, 3), want[i][2]);
        assert_string_equal(text(row, 4), want[i][3]);
        assert_non_null(strstr(text(row, 9), "barrier 100 %: waits for other warps"));
    }
    json_decref(result);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_launch_is_told_as_the_call_that_it_belongs_to),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
