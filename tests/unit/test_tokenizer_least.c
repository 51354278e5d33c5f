/* vt_tokenizer_least (text/tokenizer/bound.c): never more than the tokens that a text makes, and
 * near them where nothing but the longest piece decides. test_tokenizer_golden.c asks the same of
 * its texts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/random.h"
#include "text/tokenizer/internal.h"
#include "text/tokenizer/tokenizer.h"
#include "text/unicode/unicode.h"

/* A byte-level tokenizer of all bytes but `without` (-1: all), with the piece "aaaa", and with
 * `members` in its file. */
static vt_tokenizer *bytes_with(const char *members, int without)
{
    vt_buf json;
    vt_err err = {0};
    vt_tokenizer *t = NULL;
    vt_buf_init(&json, 0);
    vt_buf_printf(&json,
                  "{%s \"model\": {\"type\": \"BPE\", \"merges\": [\"a a\", \"aa aa\"], "
                  "\"vocab\": {\"aa\": 256, \"aaaa\": 257",
                  members);
    for (int b = 0; b < 256; b++) {
        char s[5] = "";
        vt_utf8_put(tok_byte_char((unsigned char)b), s);
        if (b != without)
            vt_buf_printf(&json, ", \"%s%s\": %d", b == '"' || b == '\\' ? "\\" : "", s, b);
    }
    vt_buf_puts(&json, "}}}");
    if (vt_tokenizer_from_json("t", json.data, json.len, NULL, 0, &t, &err) != VT_OK)
        fail_msg("%s", err.message);
    vt_buf_release(&json);
    return t;
}

static size_t count(const vt_tokenizer *t, const char *text, size_t n)
{
    vt_ids ids = {0};
    vt_err err = {0};
    if (vt_tokenizer_encode(t, text, n, VT_TOKENIZE_SPECIAL, &ids, &err) != VT_OK)
        fail_msg("%s", err.message);
    size_t tokens = ids.n;
    vt_ids_release(&ids);
    return tokens;
}

#define BYTES "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false},"
#define NORM(step) "\"normalizer\": " step "," BYTES
#define ADDED(member) "\"added_tokens\": [{\"id\": 300, \"content\": \"<x>\"" member "}],"

/* Members of a file, and whether a bound is known then. */
static const struct {
    const char *members;
    int without;
    bool bounded;
} kinds[] = {
    {BYTES, -1, true},
    {BYTES, 4, true},
    {BYTES, 0xF5, true},
    {BYTES, 0xBD, false},
    {NORM("{\"type\": \"NFC\"}"), -1, true},
    {NORM("{\"type\": \"NFKC\"}"), -1, true},
    {NORM("{\"type\": \"NFKD\"}"), -1, true},
    {NORM("{\"type\": \"NFC\"}"), 4, false},
    {NORM("{\"type\": \"Lowercase\"}"), -1, true},
    {NORM("{\"type\": \"Strip\"}"), -1, true},
    {NORM("{\"type\": \"StripAccents\"}"), -1, false},
    {NORM("{\"type\": \"Prepend\", \"prepend\": \"aaa\"}"), -1, true},
    {NORM("{\"type\": \"Replace\", \"pattern\": {\"String\": \"aaaaa\"}, \"content\": \"bb\"}"), -1,
     true},
    {NORM("{\"type\": \"Replace\", \"pattern\": {\"String\": \"aa\"}, \"content\": \"\"}"), -1,
     false},
    {NORM("{\"type\": \"Replace\", \"pattern\": {\"Regex\": \" +\"}, \"content\": \" \"}"), -1,
     false},
    {NORM("{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Replace\", \"pattern\": "
          "{\"String\": \"a\"}, \"content\": \" \"}, {\"type\": \"Strip\"}]}"),
     -1, false},
    {ADDED("") BYTES, -1, true},
    {ADDED(", \"lstrip\": true") BYTES, -1, true},
    {ADDED(", \"rstrip\": true") BYTES, -1, true},
    {ADDED(", \"rstrip\": true, \"normalized\": true") NORM("{\"type\": \"NFC\"}"), -1, false},
    {"\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": "
     "\"WhitespaceSplit\"}, {\"type\": \"ByteLevel\", \"add_prefix_space\": false}]},",
     -1, true},
    {"\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", "
     "\"pattern\": {\"String\": \"a\"}, \"behavior\": \"Removed\"}, {\"type\": \"ByteLevel\", "
     "\"add_prefix_space\": false}]},",
     -1, false},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

/* Texts that shrink: what is composed, replaced, stripped or dropped, many times over. */
static size_t shrinking_text(char *out, size_t size, uint64_t *random)
{
    static const char *const parts[] = {
        "aaaa",
        "aaaaa",
        " ",
        "   ",
        "\xE3\x80\x80",
        "\x04",
        "\xF5",
        "\xC3",
        "<x>",
        "b",
        "\xE2\x84\xAA",                         /* Kelvin sign */
        "\xF0\x9D\x96\x86",                     /* bold fraktur a */
        "\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8", /* three jamo */
        "\xF0\x9D\x91\xA2\xCC\x88\xCC\x84",     /* italic u, diaeresis, macron */
        "\xE2\x84\xA6\xCC\x93\xCC\x80\xCD\x85", /* Ohm sign with three marks */
    };
    enum { N_PARTS = sizeof parts / sizeof *parts };
    size_t n = 0, only = vt_random_next(random) % (2 * N_PARTS);
    while (n + 16 < size) {
        const char *s = parts[only < N_PARTS ? only : vt_random_next(random) % N_PARTS];
        memcpy(out + n, s, strlen(s));
        n += strlen(s);
    }
    return n;
}

static void test_tokenizer_least_is_never_more_than_there_are(void **state)
{
    (void)state;
    char text[600];
    uint64_t random = 7;
    for (int i = 0; i < N_KINDS; i++) {
        vt_tokenizer *t = bytes_with(kinds[i].members, kinds[i].without);
        for (int k = 0; k < 200; k++) {
            size_t n = shrinking_text(text, sizeof text - 500 * (k % 2), &random);
            size_t least = vt_tokenizer_least(t, text, n), there = count(t, text, n);
            if (least > there)
                fail_msg("kind %d: at least %zu, but there are %zu", i, least, there);
        }
        vt_tokenizer_free(t);
    }
}

static void test_tokenizer_least_is_known_where_steps_have_a_bound(void **state)
{
    (void)state;
    char text[5000];
    memset(text, 'a', sizeof text);
    for (int i = 0; i < N_KINDS; i++) {
        vt_tokenizer *t = bytes_with(kinds[i].members, kinds[i].without);
        size_t least = vt_tokenizer_least(t, text, sizeof text);
        if ((least > 0) != kinds[i].bounded)
            fail_msg("kind %d: at least %zu", i, least);
        vt_tokenizer_free(t);
    }
}

static void test_tokenizer_least_of_longest_pieces_is_exact(void **state)
{
    (void)state;
    char text[4001];
    memset(text, 'a', sizeof text);
    vt_tokenizer *t = bytes_with(BYTES, -1);
    assert_int_equal(vt_tokenizer_least(t, text, 4000), 1000);
    assert_int_equal(count(t, text, 4000), 1000);
    assert_int_equal(vt_tokenizer_least(t, text, 4001), 1001);
    assert_int_equal(vt_tokenizer_least(t, text, 0), 0);
    vt_tokenizer_free(t);
    t = bytes_with(ADDED("") BYTES, -1); /* shorter than "aaaa": nothing changes */
    assert_int_equal(vt_tokenizer_least(t, text, 4000), 1000);
    vt_tokenizer_free(t);
    t = bytes_with("\"added_tokens\": [{\"id\": 300, \"content\": \"12345678\"}]," BYTES, -1);
    assert_int_equal(vt_tokenizer_least(t, text, 4000), 500);
    vt_tokenizer_free(t);
}

/* White space and bytes without a token do not count where they may vanish, and count elsewhere. */
static void test_tokenizer_least_counts_what_stays(void **state)
{
    (void)state;
    char text[4000];
    memset(text, ' ', sizeof text);
    vt_tokenizer *t = bytes_with(BYTES, 4);
    assert_int_equal(vt_tokenizer_least(t, text, sizeof text), 1000);
    memset(text, 4, sizeof text);
    assert_int_equal(vt_tokenizer_least(t, text, sizeof text), 0);
    assert_int_equal(count(t, text, sizeof text), 0);
    vt_tokenizer_free(t);
    memset(text, ' ', sizeof text / 2);
    memset(text + sizeof text / 2, 'a', sizeof text / 2);
    t = bytes_with(NORM("{\"type\": \"Strip\"}"), -1);
    assert_int_equal(vt_tokenizer_least(t, text, sizeof text), 500);
    assert_int_equal(count(t, text, sizeof text), 500);
    vt_tokenizer_free(t);
}

/* bound.c's factors: no character of a form is shorter than a sixth of the longest text that is
 * composed into it, and lower case takes at most two thirds of a character away. */
static void test_tokenizer_least_knows_how_much_unicode_shrinks(void **state)
{
    (void)state;
    size_t worst_form = 0, worst_lower = 0;
    vt_buf made;
    vt_buf_init(&made, 0);
    for (uint32_t c = 1; c < 0x110000; c++) {
        char s[4];
        if (c >= 0xD800 && c < 0xE000)
            continue;
        size_t len = (size_t)vt_utf8_put(c, s), parts = 0;
        vt_buf_clear(&made);
        assert_true(vt_unicode_normalize(&made, s, len, VT_NFD));
        for (size_t i = 0; i < made.len; i++)
            parts += ((unsigned char)made.data[i] & 0xC0) != 0x80;
        worst_form = 4 * parts > worst_form * len ? (4 * parts + len - 1) / len : worst_form;
        vt_buf_clear(&made);
        assert_true(vt_unicode_lower(&made, s, len));
        worst_lower = len > worst_lower * made.len ? (len + made.len - 1) / made.len : worst_lower;
    }
    assert_int_equal(worst_form, 6);
    assert_int_equal(worst_lower, 3);
    vt_buf_release(&made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokenizer_least_is_never_more_than_there_are),
        cmocka_unit_test(test_tokenizer_least_is_known_where_steps_have_a_bound),
        cmocka_unit_test(test_tokenizer_least_of_longest_pieces_is_exact),
        cmocka_unit_test(test_tokenizer_least_counts_what_stays),
        cmocka_unit_test(test_tokenizer_least_knows_how_much_unicode_shrinks),
    };
    return cmocka_run_group_tests_name("tokenizer_least", tests, NULL, NULL);
}
