/* The regular-expression engine: matches, refused patterns, and that it never hangs.
 * test_tokenizer_golden.c tests its agreement with Oniguruma on whole texts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "text/regex/regex.h"

/* All matches as "start-end start-end ...". */
static void find_all(const char *pattern, const char *text, char *out, size_t size)
{
    vt_regex *re = NULL;
    vt_err err = {0};
    vt_regex_scratch scratch = {0};
    if (vt_regex_compile(pattern, strlen(pattern), &re, &err) != VT_OK)
        fail_msg("%s: %s", pattern, err.message);
    size_t n = strlen(text), from = 0, start, end, used = 0;
    vt_regex_scratch_begin(&scratch, n);
    out[0] = 0;
    while (from <= n && vt_regex_find(re, &scratch, text, n, from, &start, &end) == 1) {
        used += (size_t)snprintf(out + used, size - used, "%s%zu-%zu", used ? " " : "", start, end);
        from = end > start ? end : end + 1;
    }
    vt_regex_scratch_release(&scratch);
    vt_regex_free(re);
}

static void test_regex_matches_are_leftmost_and_alternatives_in_order(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *text, *want;
    } cases[] = {
        {"a|ab", "xab", "1-2"},
        {"ab|a", "xab", "1-3"},
        {"a*", "aab", "0-2 2-2 3-3"},
        {"a+?", "aa", "0-1 1-2"},
        {"a{2}", "aaaaa", "0-2 2-4"},
        {"a{2,}", "aaaaa", "0-5"},
        {"a{,2}b", "aaab", "1-4"},
        {"x{", "x{", "0-2"},
        {"a++a", "aaa", ""},
        {"(?>a|ab)c", "abc", ""},
        {"(?:ab)*c", "ababc", "0-5"},
        {"(?:ab){1,2}", "ababab", "0-4 4-6"},
        {"(a*)*b", "aab", "0-3"},
        {"(?i:don't)", "DON'T don't", "0-5 6-11"},
        {"(?i)a|b", "AB", "0-1 1-2"},
        {"(?i:a)b", "aB Ab", "3-5"},
        {"(?i:s)", "s\xC5\xBFS", "0-1 1-3 3-4"},
        {"a(?=b)", "acab", "2-3"},
        {"a(?!b)", "abac", "2-3"},
        {"(?<=a)b", "bab", "2-3"},
        {"(?<!a)b", "bab", "0-1"},
        {"\\s+(?!\\S)|\\s+", "a  b ", "1-2 2-3 4-5"},
        {"^a", "a\na", "0-1 2-3"},
        {"a$", "a\na", "0-1 2-3"},
        {"\\Aa", "aa", "0-1"},
        {"a\\z", "aa", "1-2"},
        {"a\\Z", "a\na\n", "2-3"}, /* the end, or the newline before it */
        {"\\ba", "a ba a", "0-1 5-6"},
        {"a\\b", "a ab", "0-1"},
        {"\\Ba", "aab a", "1-2"},
        {"[a-c&&[^b]]+", "abcca", "0-1 2-5"},
        {"[]a]", "a]", "0-1 1-2"},
        {"[^\\d]", "1a", "1-2"},
        {"[a\\-z]+", "a-zb", "0-3"},
        {".", "\n\xC3\xA9", "1-3"},
        {"\\x{1F600}", "\xF0\x9F\x98\x80", "0-4"},
        {"\\u00e9", "\xC3\xA9", "0-2"},
        {"\\p{Han}+", "a\xE6\xBC\xA2\xE5\xAD\x97z", "1-7"},
        {"\\p{Lu}\\p{Ll}", "aB Ab", "3-5"},
        {"\\P{L}", "a1", "1-2"},
        {"\\p{^L}", "a1", "1-2"},
        {"\\p{L}", "\xE1\xB2\x89", "0-3"}, /* U+1C89, new in Unicode 16 */
        {"[b-da-c[x-z]y]+", "abcdxyz-", "0-7"},
        {"[[^a-y]]", "ayz", "2-3"},
        {"[[^\\p{L}]a]+", "1a!b", "0-3"},
        {"[^[^a]]", "ba", "1-2"},
        {"[a[^\\S]]+", "b a\xC2\xA0", "1-5"},
        {"[^[\\p{Han}][a-z]]+", "a\xE6\xBC\xA2\xC3\xA9Z", "4-7"},
        {"[\\p{L}&&[^\\p{Han}a]]+", "a\xE6\xBC\xA2\xC3\xA9Z", "4-7"},
        {"[[a-z&&[^b]]b]+", "abc", "0-3"},
        {"a*ab", "aaab aab", "0-4 5-8"},
        {"\\s*\\n", "  \n \n  ", "0-5"},
        {"\\w+\\d", "ab1c2d", "0-5"},
        {"\\w{2,4}c", "abccc", "0-5"},
    };
    char got[256];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        find_all(cases[i].pattern, cases[i].text, got, sizeof got);
        if (strcmp(got, cases[i].want) != 0)
            fail_msg("/%s/: got '%s', want '%s'", cases[i].pattern, got, cases[i].want);
    }
}

static void test_regex_unknown_constructs_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *message;
    } cases[] = {
        {"(a", "regex: ( without )"},
        {"a)", "regex: ) without ( at byte 1"},
        {"[a", "regex: [ without ]"},
        {"*a", "regex: nothing to repeat at byte 0"},
        {"(a)\\1", "regex: \\1 is not supported"},
        {"(?<n>a)", "regex: group (?<n is not supported"},
        {"(?", "regex: group (? is not supported"},
        {"[[:alpha:]]", "regex: POSIX bracket [: is not supported"},
        {"\\p{Klingon}", "regex: property \\p{Klingon} is not known"},
        {"(?<=a*)b", "regex: lookbehind of varying length is not supported"},
        {"a{2,1}", "regex: repetition {2,1} is out of range"},
        {"[b-a]", "regex: an empty range in a class at byte 4"},
        {"\\", "regex: a backslash ends the pattern"},
        {"\xFF", "regex: the pattern is not UTF-8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        vt_regex *re = NULL;
        vt_err err = {0};
        assert_int_equal(vt_regex_compile(cases[i].pattern, strlen(cases[i].pattern), &re, &err),
                         VT_ERR_UNSUPPORTED);
        assert_string_equal(err.message, cases[i].message);
        assert_null(re);
    }
}

static void test_regex_deep_nesting_and_huge_programs_are_refused(void **state)
{
    (void)state;
    char deep[4000];
    memset(deep, '(', 2000);
    memset(deep + 2000, ')', 2000);
    vt_regex *re = NULL;
    assert_int_equal(vt_regex_compile(deep, sizeof deep, &re, NULL), VT_ERR_UNSUPPORTED);
    static const char huge[] = "(((ab){99}){99}){99}";
    assert_int_equal(vt_regex_compile(huge, strlen(huge), &re, NULL), VT_ERR_UNSUPPORTED);
}

static void test_regex_exponential_backtracking_gives_up(void **state)
{
    (void)state;
    static const char pattern[] = "(?:(?:a|b|ab)*)*c";
    char text[200];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = "ab"[i % 2];
    vt_regex *re = NULL;
    vt_regex_scratch scratch = {0};
    size_t start, end;
    assert_int_equal(vt_regex_compile(pattern, strlen(pattern), &re, NULL), VT_OK);
    vt_regex_scratch_begin(&scratch, 0);
    assert_int_equal(vt_regex_find(re, &scratch, text, sizeof text, 0, &start, &end), -1);
    vt_regex_scratch_release(&scratch);
    vt_regex_free(re);
}

/* NUL is a character of a property's name and does not end it. */
static void test_regex_property_name_with_nul_is_not_known(void **state)
{
    (void)state;
    static const char pattern[] = "\\p{L\0\0\0a}";
    vt_regex *re = NULL;
    assert_int_equal(vt_regex_compile(pattern, sizeof pattern - 1, &re, NULL), VT_ERR_UNSUPPORTED);
    assert_null(re);
}

/* Repetitions of an empty expression emit no instructions, so the limit of instructions does not
 * bound them. */
static void test_regex_repetition_of_nothing_is_bounded(void **state)
{
    (void)state;
    static const char *const patterns[] = {
        "(){1000}{1000}{1000}{1000}", "((((){1000}){1000}){1000}){1000}",
        "(?:(?:(?:|){1000}){1000}){1000}", "(?:(?<=(?:(){1000}){1000}){1000}){1000}"};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        vt_regex *re = NULL;
        assert_int_equal(vt_regex_compile(patterns[i], strlen(patterns[i]), &re, NULL),
                         VT_ERR_UNSUPPORTED);
        assert_null(re);
    }
}

/* The first result of vt_regex_find in n copies of s, with the steps for a text of that size. */
static int first_in_copies(const char *pattern, const char *s, size_t n, uint64_t *steps)
{
    vt_regex *re = NULL;
    vt_err err = {0};
    vt_regex_scratch scratch = {0};
    size_t len = strlen(s), start, end;
    char *text = malloc(len * n);
    assert_non_null(text);
    for (size_t i = 0; i < n; i++)
        memcpy(text + i * len, s, len);
    if (vt_regex_compile(pattern, strlen(pattern), &re, &err) != VT_OK)
        fail_msg("%s: %s", pattern, err.message);
    vt_regex_scratch_begin(&scratch, len * n);
    uint64_t had = scratch.steps;
    int found = vt_regex_find(re, &scratch, text, len * n, 0, &start, &end);
    *steps = had - scratch.steps;
    vt_regex_scratch_release(&scratch);
    vt_regex_free(re);
    free(text);
    return found;
}

/* Walking over characters costs steps, in a repetition and in what it gives back. */
static void test_regex_walking_is_paid_for(void **state)
{
    (void)state;
    static const char *const patterns[] = {"a{0,999}ab", "(?=(?:aaa)+b)a", "(?:a+)+b", "a*?b",
                                           "(?<=a{999})ac|(?<=a{1000})ac"};
    uint64_t steps;
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        if (first_in_copies(patterns[i], "a", 100000, &steps) != -1)
            fail_msg("/%s/ did not give up", patterns[i]);
}

/* A long run is walked over once, however many matches it is cut into. */
static void test_regex_long_runs_are_walked_once(void **state)
{
    (void)state;
    enum { N = 1000000 };
    static const char pattern[] = "\\s*[\\r\\n]+|\\s{512}(?!\\S)|\\s{1,2}(?!\\S)|\\s";
    char *text = malloc(N);
    vt_regex *re = NULL;
    vt_regex_scratch scratch = {0};
    size_t start, end, from = 0, matches = 0;
    assert_non_null(text);
    memset(text, ' ', N);
    assert_int_equal(vt_regex_compile(pattern, strlen(pattern), &re, NULL), VT_OK);
    vt_regex_scratch_begin(&scratch, N);
    uint64_t had = scratch.steps;
    for (; vt_regex_find(re, &scratch, text, N, from, &start, &end) == 1; from = end, matches++)
        assert_int_equal(start, from);
    assert_int_equal(from, N);
    assert_int_equal(matches, (N + 511) / 512 + (N % 512) / 2 - 1);
    assert_true(had - scratch.steps < N);
    vt_regex_scratch_release(&scratch);
    vt_regex_free(re);
    free(text);
}

/* A long run without a match is walked over once, for all starts together. */
static void test_regex_runs_without_what_must_follow_are_cheap(void **state)
{
    (void)state;
    static const char *const patterns[] = {"a+b", "[^b]*b", "(?=(a+)b)a", "a*[bc]+|b"};
    uint64_t steps;
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        assert_int_equal(first_in_copies(patterns[i], "a", 100000, &steps), 0);
        assert_true(steps < 1000000);
    }
}

/* The engine must not use what it remembers of a walk for another text or another place. */
static void test_regex_walks_do_not_outlive_their_text(void **state)
{
    (void)state;
    char text[301], want[64], got[64];
    static const char pattern[] = "a*b|a{7}";
    for (size_t cut = 100; cut < 300; cut += 7) {
        memset(text, 'a', 300);
        text[300] = 0;
        vt_regex *re = NULL;
        vt_regex_scratch scratch = {0};
        size_t start, end;
        assert_int_equal(vt_regex_compile(pattern, strlen(pattern), &re, NULL), VT_OK);
        vt_regex_scratch_begin(&scratch, 300);
        for (size_t from = 0; from < 90; from = end)
            assert_int_equal(vt_regex_find(re, &scratch, text, 300, from, &start, &end), 1);
        text[cut] = 'b'; /* another text at the same place */
        assert_int_equal(vt_regex_find(re, &scratch, text, 300, 0, &start, &end), 1);
        snprintf(got, sizeof got, "%zu-%zu", start, end);
        snprintf(want, sizeof want, "0-%zu", cut + 1);
        assert_string_equal(got, want);
        vt_regex_scratch_release(&scratch);
        vt_regex_free(re);
    }
}

/* A class of thousands of equal scripts is one sorted list of ranges, as cheap as one of them. */
static void test_regex_class_of_many_scripts_costs_as_one(void **state)
{
    (void)state;
    enum { COPIES = 8000 };
    char *pattern = malloc(COPIES * 7 + 8);
    uint64_t one, many;
    assert_non_null(pattern);
    pattern[0] = '[';
    for (int i = 0; i < COPIES; i++)
        memcpy(pattern + 1 + i * 7, "\\p{Han}", 8);
    memcpy(pattern + 1 + COPIES * 7, "]+", 3);
    assert_int_equal(first_in_copies("[\\p{Han}]+", "\xC3\xA9", 1000, &one), 0);
    assert_int_equal(first_in_copies(pattern, "\xC3\xA9", 1000, &many), 0);
    assert_int_equal(one, many);
    free(pattern);
}

/* The number of sets that cannot be merged is limited, and each costs a step per look-up. */
static void test_regex_sets_that_cannot_be_merged_are_limited(void **state)
{
    (void)state;
    char pattern[65 * 7 + 8] = "[";
    for (int i = 0; i < 65; i++)
        memcpy(pattern + 1 + i * 7, "[^\\w\\d]", 7);
    pattern[1 + 65 * 7] = ']';
    vt_regex *re = NULL;
    vt_err err = {0};
    assert_int_equal(vt_regex_compile(pattern, strlen(pattern), &re, &err), VT_ERR_UNSUPPORTED);
    assert_string_equal(err.message, "regex: a class of more than 64 sets that cannot be merged");
}

/* Every prefix of some patterns, in a block of exactly its size, so that a sanitizer sees reads
 * beyond it. */
static void test_regex_pattern_needs_no_byte_behind_it(void **state)
{
    (void)state;
    static const char *const patterns[] = {"(?<n>a)", "(?-i:a)[^a-\\x{41}&&\\p{^Han}]{1,2}+?",
                                           "\\u0041\\x4\\Z(?<!b)", "a{,2}|\\p{L}"};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        for (size_t n = 1; n <= strlen(patterns[i]); n++) {
            char *copy = malloc(n);
            vt_regex *re = NULL;
            assert_non_null(copy);
            memcpy(copy, patterns[i], n);
            vt_status status = vt_regex_compile(copy, n, &re, NULL);
            assert_true((status == VT_OK) == (re != NULL));
            vt_regex_free(re);
            free(copy);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_regex_matches_are_leftmost_and_alternatives_in_order),
        cmocka_unit_test(test_regex_unknown_constructs_are_refused_by_name),
        cmocka_unit_test(test_regex_deep_nesting_and_huge_programs_are_refused),
        cmocka_unit_test(test_regex_exponential_backtracking_gives_up),
        cmocka_unit_test(test_regex_property_name_with_nul_is_not_known),
        cmocka_unit_test(test_regex_repetition_of_nothing_is_bounded),
        cmocka_unit_test(test_regex_walking_is_paid_for),
        cmocka_unit_test(test_regex_long_runs_are_walked_once),
        cmocka_unit_test(test_regex_runs_without_what_must_follow_are_cheap),
        cmocka_unit_test(test_regex_walks_do_not_outlive_their_text),
        cmocka_unit_test(test_regex_class_of_many_scripts_costs_as_one),
        cmocka_unit_test(test_regex_sets_that_cannot_be_merged_are_limited),
        cmocka_unit_test(test_regex_pattern_needs_no_byte_behind_it),
    };
    return cmocka_run_group_tests_name("regex", tests, NULL, NULL);
}
