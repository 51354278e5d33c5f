/* JSON in one flat array: escapes, limits, and what is no JSON. (The fuzz targets of safetensors,
 * hubs and tokenizers go through the same parser.) */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "files/json_flat.h"

static void is_string(const char *json, const char *want)
{
    vt_flat_doc doc;
    vt_err err = {0};
    if (vt_flat_parse("test", json, strlen(json), &doc, &err) != VT_OK)
        fail_msg("%s: %s", json, err.message);
    assert_int_equal(doc.node->type, VT_FLAT_STRING);
    assert_int_equal(doc.node->len, strlen(want));
    assert_memory_equal(doc.node->s, want, strlen(want));
    vt_flat_release(&doc);
}

static void refuse(const char *json, const char *words)
{
    vt_flat_doc doc;
    vt_err err = {0};
    assert_int_equal(vt_flat_parse("test", json, strlen(json), &doc, &err), VT_ERR_FORMAT);
    if (!strstr(err.message, words))
        fail_msg("%s: \"%s\" lacks \"%s\"", json, err.message, words);
}

static void test_flat_string_when_escaped_then_the_characters(void **state)
{
    (void)state;
    is_string("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t");
    is_string("\"\\u00e9\\u20AC\"", "\xc3\xa9\xe2\x82\xac");
    is_string("\"\\ud83d\\ude00\"", "\xf0\x9f\x98\x80"); /* U+1F600 */
    is_string("\"\\uDBFF\\uDFFF\"", "\xf4\x8f\xbf\xbf"); /* U+10FFFF, the last */
    is_string("\"\\ud800\\udc00\"", "\xf0\x90\x80\x80"); /* U+10000, the first */
}

static void test_flat_string_when_ill_formed_then_refused(void **state)
{
    (void)state;
    refuse("\"\\ud83d\"", "half a surrogate pair");
    refuse("\"\\ude00\"", "half a surrogate pair");
    refuse("\"\\ud83d\\u0041\"", "half a surrogate pair");
    refuse("\"\\ud83d\\ud83d\"", "half a surrogate pair");
    refuse("\"\\x41\"", "wrong escape");
    refuse("\"\\u00g0\"", "wrong escape");
    refuse("\"a\nb\"", "");
    refuse("\"\xff\"", "not UTF-8");
    refuse("\"open", "ends in a string");
}

static void test_flat_numbers_when_read_then_as_written(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        double want;
    } row[] = {{"0", 0},
               {"-0.5", -0.5},
               {"-17", -17},
               {"1e3", 1000},
               {"2.5E-1", .25},
               {"9007199254740993", 9007199254740992.0},
               {"12345678901234567890", 12345678901234567890.0}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        vt_flat_doc doc;
        assert_int_equal(vt_flat_parse("n", row[i].json, strlen(row[i].json), &doc, NULL), VT_OK);
        assert_true(doc.node->type == VT_FLAT_NUMBER && doc.node->number == row[i].want);
        vt_flat_release(&doc);
    }
    refuse("01", "a value was expected");
    refuse("1.2.3", "a wrong number");
    refuse("-", "a value was expected");
}

static void test_flat_members_when_twice_then_the_last_counts_and_null_is_absent(void **state)
{
    (void)state;
    const char *json = "{\"a\": [1, {\"a\": 2}], \"b\": null, \"a\": \"last\", \"c\": false}";
    vt_flat_doc doc;
    assert_int_equal(vt_flat_parse("m", json, strlen(json), &doc, NULL), VT_OK);
    assert_int_equal(doc.node->len, 4);
    assert_true(vt_flat_is(vt_flat_get(&doc, doc.node, "a"), "last"));
    assert_null(vt_flat_get(&doc, doc.node, "b"));
    assert_null(vt_flat_get(&doc, doc.node, "d"));
    assert_false(vt_flat_bool(vt_flat_get(&doc, doc.node, "c"), true));
    assert_true(vt_flat_bool(vt_flat_get(&doc, doc.node, "d"), true));
    vt_flat_release(&doc);
}

/* The parser recurses: what nests too deep must end before the stack does. */
static void test_flat_when_nested_too_deep_then_refused(void **state)
{
    (void)state;
    enum { DEEP = 20000 };
    static char json[2 * DEEP + 1];
    vt_flat_doc doc;
    memset(json, '[', DEEP);
    memset(json + DEEP, ']', DEEP);
    refuse(json, "nested too deep");
    assert_int_equal(vt_flat_parse("n", json + DEEP - 30, 60, &doc, NULL), VT_OK);
    vt_flat_release(&doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flat_string_when_escaped_then_the_characters),
        cmocka_unit_test(test_flat_string_when_ill_formed_then_refused),
        cmocka_unit_test(test_flat_numbers_when_read_then_as_written),
        cmocka_unit_test(test_flat_members_when_twice_then_the_last_counts_and_null_is_absent),
        cmocka_unit_test(test_flat_when_nested_too_deep_then_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
