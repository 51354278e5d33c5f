/* Limits of grammars: patterns and rules that take too much are refused by name, and large ones
 * that are allowed stay small. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/grammar_fixture.h"
#include "grammar/internal.h"

/* Each takes a look at all characters: 64 KB of them would take minutes. */
static void test_pattern_when_its_sets_of_characters_are_too_many_then_refused(void **state)
{
    (void)state;
    enum { SETS = 1000 };
    char text[5 * SETS];
    vt_grammar *g = NULL;
    vt_err err = {0};
    for (int i = 0; i < SETS; i++)
        memcpy(text + 5 * (size_t)i, "\\P{L}", 5);
    assert_int_not_equal(vt_grammar_compile(vocab, VT_GRAMMAR_REGEX, text, sizeof text, &g, &err),
                         VT_OK);
    assert_non_null(strstr(err.message, "sets of characters are too many"));
}

/* Its derivatives are hundreds of calls deep, while the table that remembers them is small: it was
 * filled to its last place on the way back, and the next search in it had no end. */
static void test_gbnf_of_hundreds_of_optional_parts_is_followed(void **state)
{
    (void)state;
    enum { MANY = 400, WIDTH = 5 };
    char text[16 + MANY * WIDTH + 1];
    int n = snprintf(text, sizeof text, "root ::=");
    for (int i = 0; i < MANY; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, " \"a\"?");
    vt_grammar *g = compile(VT_GRAMMAR_GBNF, text);
    assert_true(accepts(g, "") && accepts(g, "aaa") && !accepts(g, "ab"));
    vt_grammar_unref(g);
}

/* Behind one letter each of 400 lexemes may end, and 2,000 alternatives follow each: fewer ways
 * than are refused for their number, but more work than a token may take. */
static void test_gbnf_that_takes_too_many_steps_then_refused(void **state)
{
    (void)state;
    enum { ENDS = 400, ALTERNATIVES = 2000, ROOM = 32 * (ENDS + ALTERNATIVES) };
    char *text = malloc(ROOM);
    vt_err err = {0};
    int n = snprintf(text, ROOM, "root ::= \"x\"");
    for (int i = 0; i < ENDS; i++)
        n += snprintf(text + n, (size_t)(ROOM - n), " | \"a\" \"b\"{0,%d} s", i + 1);
    n += snprintf(text + n, (size_t)(ROOM - n), "\ns ::= \"y\"");
    for (int i = 0; i < ALTERNATIVES; i++)
        n += snprintf(text + n, (size_t)(ROOM - n), " | \"c%d\" s \"d\"", i);
    vt_grammar *g = compile(VT_GRAMMAR_GBNF, text);
    assert_int_equal(vt_grammar_begin(g, 32, &err), VT_ERR_USAGE);
    if (!strstr(err.message, "more than 1,000,000 steps"))
        fail_msg("%s", err.message);
    vt_grammar_unref(g);
    free(text);
}

/* A pattern that counts words in a string of counted characters makes 4,400 states for one mask on
 * a vocabulary of 150,000 tokens (MaskBench, Github_hard---o21073). Here each byte makes one. */
static void test_call_may_make_thousands_of_states_but_not_any_number(void **state)
{
    (void)state;
    enum { MAY = 7900, MAY_NOT = 8200 };
    char text[MAY_NOT];
    memset(text, 'a', sizeof text);
    for (int i = 0; i < 2; i++) {
        vt_grammar *g = compile(VT_GRAMMAR_REGEX, "[ab]{0,9000}c");
        vt_matcher *m = vt_matcher_new(g, 0);
        assert_int_equal(vt_matcher_begin(m, text, i == 0 ? MAY : MAY_NOT), i == 0);
        assert_int_equal(vt_matcher_is_too_large(m), i == 1);
        vt_matcher_free(m);
        vt_grammar_unref(g);
    }
}

/* A pattern of many alternatives keeps a few lists of them, not one for each. */
static void test_regex_of_thousands_of_alternatives_stays_small(void **state)
{
    (void)state;
    enum { MANY = 4000, WIDTH = 6 };
    char *text = malloc(MANY * WIDTH + 1);
    for (int i = 0; i < MANY; i++)
        snprintf(text + i * WIDTH, WIDTH + 1, "%sw%04d", i ? "|" : "^", i);
    vt_grammar *g = compile(VT_GRAMMAR_REGEX, text);
    size_t bytes = vt_grammar_bytes(g);
    if (bytes > 8u << 20)
        fail_msg("a text of %d bytes became a grammar of %zu", MANY * WIDTH, bytes);
    assert_true(accepts(g, "w0000") && accepts(g, "w2345") && accepts(g, "w3999"));
    assert_false(accepts(g, "w4000") || accepts(g, "w1"));
    vt_grammar_unref(g);
    free(text);
}

static void test_gbnf_of_thousands_of_alternatives_stays_small(void **state)
{
    (void)state;
    enum { MANY = 5000, WIDTH = 10 };
    char *text = malloc(16 + MANY * WIDTH);
    int n = snprintf(text, 16, "root ::= \"x\"");
    for (int i = 0; i < MANY; i++)
        n += snprintf(text + n, WIDTH + 1, " | \"w%04d\"", i);
    vt_grammar *g = compile(VT_GRAMMAR_GBNF, text);
    size_t bytes = vt_grammar_bytes(g);
    if (bytes > 8u << 20)
        fail_msg("a text of %d bytes became a grammar of %zu", n, bytes);
    assert_true(accepts(g, "x") && accepts(g, "w0000") && accepts(g, "w4999"));
    assert_false(accepts(g, "w5000") || accepts(g, "w1"));
    vt_grammar_unref(g);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pattern_when_its_sets_of_characters_are_too_many_then_refused),
        cmocka_unit_test(test_gbnf_of_hundreds_of_optional_parts_is_followed),
        cmocka_unit_test(test_gbnf_that_takes_too_many_steps_then_refused),
        cmocka_unit_test(test_call_may_make_thousands_of_states_but_not_any_number),
        cmocka_unit_test(test_regex_of_thousands_of_alternatives_stays_small),
        cmocka_unit_test(test_gbnf_of_thousands_of_alternatives_stays_small),
    };
    return cmocka_run_group_tests_name("grammar_limits", tests, grammar_set_up, grammar_tear_down);
}
