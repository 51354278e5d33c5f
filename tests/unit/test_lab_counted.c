/* What labs tell of a GPU's hardware counters (lab/sglang/counted.h), from a story that was made
 * up: two phases of two layers, whose counters say that prefill computes and decode reads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "lab/kit/run.h"
#include "lab/sglang/counted.h"

/* One counted op: kind, time, shares of SMs, matrix unit, memory and L2. */
#define OP(kind, us, sm, tensor, dram, l2)                                                         \
    "{\"kind\":\"" kind "\",\"impl\":\"rows\",\"time_us\":" us ",\"sm\":" sm ",\"tensor\":" tensor \
    ",\"dram\":" dram ",\"l2_hit\":" l2 ",\"occupancy\":0.25,\"dram_read\":3e6,"                   \
    "\"dram_written\":1e6,\"bank_conflicts\":5,\"shared_wavefronts\":100,\"of_compulsory\":1.25}"

static const char story_text_of[] =
    "{\"calls\":{\"labels\":[\"embed\",\"L00.linear.qkv\",\"L00.rmsnorm\",\"L01.linear.qkv\","
    "\"L01.rmsnorm\",\"sample\"],\"layers\":[-1,0,0,1,1,-1]},"
    "\"typical\":{\"phases\":["
    "{\"name\":\"prefill\",\"columns\":{\"us\":[1,90,9,30,10,2]}},"
    "{\"name\":\"decode\",\"columns\":{\"us\":[1,9,9,null,null,2]}}]},"
    "\"phases\":[{\"name\":\"prefill\",\"steps\":2,\"tokens\":64,\"ops_us\":142,"
    "\"ops\":[{\"kind\":\"linear.qkv\",\"cut\":\"8 items over 4: 2.00 waves\","
    "\"kernels\":[{\"name\":\"gemm<m=64,n=32>\"}]}]},"
    "{\"name\":\"decode\",\"steps\":4,\"tokens\":4,\"ops_us\":21,\"ops\":[]}],"
    "\"gpu_counters\":{\"why\":null,\"phases\":["
    "{\"name\":\"prefill\",\"ops\":[" OP("linear.qkv", "30", "0.9", "0.7", "0.2", "0.5") "," OP(
        "rmsnorm", "10", "0.5", "0", "0.6",
        "0.1") "]},"
               "{\"name\":\"decode\",\"ops\":[" OP("linear.qkv", "9", "0.8", "0.1", "0.9",
                                                   "0.1") "]}]}}";

static const char *told; /* the story that the lab tells */

static vt_status run_counted(lab *l, vt_err *err)
{
    (void)err;
    json_t *story = json_loads(told, 0, NULL);
    assert_non_null(story);
    sglang_tell_counted(l, story, 2);
    json_decref(story);
    return VT_OK;
}

static const lab_def def = {
    .track = LAB_SGLANG,
    .number = "97",
    .name = "counted",
    .goal = "a test",
    .about = {"something happens"},
    .items = {{"counted", "counters by op", true}, {"hardware", "a layer", true}},
    .kernels = true,
    .run = run_counted};

static json_t *result_of(const char *story)
{
    json_t *result = NULL;
    vt_options *o;
    bool failed;
    vt_err err = {0};
    told = story;
    assert_int_equal(vt_options_new(&o, &err), VT_OK);
    lab_ask ask = {.options = o,
                   .model = "dummy:smollm2-135m",
                   .folder = "/nowhere",
                   .ordinal = -1,
                   .threads = 1,
                   .quick = true};
    assert_int_equal(lab_run(&ask, &def, &result, &failed, &err), VT_OK);
    vt_options_free(o);
    return result;
}

static const json_t *item(const json_t *result, const char *key)
{
    return json_object_get(json_object_get(result, "items"), key);
}

static double cell(const json_t *table, size_t row, size_t column)
{
    return json_number_value(json_object_get(
        json_array_get(json_array_get(json_object_get(table, "rows"), row), column), "value"));
}

static void test_every_counted_op_is_a_row_of_its_shares(void **state)
{
    (void)state;
    json_t *result = result_of(story_text_of);
    const json_t *t = item(result, "counted");
    assert_int_equal(json_array_size(json_object_get(t, "rows")), 3);
    static const double qkv[] = {0.9, 0.7, 0.2, 0.5, 0.25, 0.05, 4e6, 1.25};
    for (size_t i = 0; i < sizeof qkv / sizeof *qkv; i++)
        assert_float_equal(cell(t, 0, 3 + i), qkv[i], 1e-9);
    assert_non_null(strstr(json_string_value(json_object_get(result, "tier")), "CUPTI"));
    json_decref(result);
}

static void test_a_layer_is_drawn_with_the_hardware_at_each_call(void **state)
{
    (void)state;
    json_t *result = result_of(story_text_of);
    const char *d = json_string_value(json_object_get(item(result, "hardware"), "drawing"));
    assert_non_null(d);
    /* the middle layer's calls alone, their sum, and the means weighted by counted time */
    static const char *const part[] = {"PREFILL: a step of 32 tokens, whose calls take 142 us",
                                       "LAYER 1, one of 2",
                                       "40.0 us",
                                       "matrix unit 70 %, memory 20 %, L2 hits 50 %",
                                       "HOTSPOT, 75 % of the",
                                       "gemm<m=64, n=32>",
                                       "bound by the matrix unit",
                                       "DECODE: a step of 1 token",
                                       "matrix unit 52 % -> 10 %, memory 30 % -> 90 %"};
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        if (!strstr(d, part[i]))
            fail_msg("'%s' is not in\n%s", part[i], d);
    assert_null(strstr(d, "90.0 us")); /* of layer 0 */
    json_decref(result);
}

static void test_the_longest_op_of_a_phase_is_a_finding(void **state)
{
    (void)state;
    json_t *result = result_of(story_text_of), *f;
    size_t i, n = 0;
    json_array_foreach(json_object_get(result, "findings"), i, f)
    {
        if (strcmp(json_string_value(json_object_get(f, "rule")), "counters.binds") != 0)
            continue;
        const char *text = json_string_value(json_object_get(f, "text"));
        assert_non_null(strstr(text, n == 0 ? "bound by the matrix unit" : "memory-bound"));
        n++;
    }
    assert_int_equal(n, 2);
    json_decref(result);
}

static void test_what_no_gpu_lends_is_missing_with_the_reason(void **state)
{
    (void)state;
    json_t *result = result_of(
        "{\"gpu_counters\":{\"why\":\"the driver lends none\",\"phases\":[]}}");
    for (const char *const *k = (const char *const[]){"counted", "hardware", NULL}; *k; k++)
        assert_string_equal(json_string_value(json_object_get(item(result, *k), "missing")),
                            "the driver lends none");
    json_decref(result);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_counted_op_is_a_row_of_its_shares),
        cmocka_unit_test(test_a_layer_is_drawn_with_the_hardware_at_each_call),
        cmocka_unit_test(test_the_longest_op_of_a_phase_is_a_finding),
        cmocka_unit_test(test_what_no_gpu_lends_is_missing_with_the_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
