/* The store of compiled grammars: a text is compiled once, or refused once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/grammar_vocab.h"
#include "grammar/store.h"

static vt_tokenizer *tokenizer;
static vt_grammar_store *store;

static int set_up(void **state)
{
    (void)state;
    tokenizer = grammar_test_tokenizer();
    store = tokenizer ? vt_grammar_store_new(tokenizer, INT32_MAX) : NULL;
    return store ? 0 : 1;
}

static int tear_down(void **state)
{
    (void)state;
    vt_grammar_store_free(store);
    vt_tokenizer_free(tokenizer);
    return 0;
}

static vt_status get(vt_grammar_kind kind, const char *text, vt_grammar **g, vt_err *err)
{
    return vt_grammar_store_get(store, kind, text, strlen(text), g, err);
}

static void test_store_when_a_text_was_refused_then_it_is_not_compiled_again(void **state)
{
    (void)state;
    vt_grammar *g = NULL;
    vt_err first = {0}, second = {0};
    const char *wrong = "{\"type\": \"strong\"}";
    assert_false(vt_grammar_store_has(store, VT_GRAMMAR_JSON_SCHEMA, wrong, strlen(wrong)));
    assert_int_equal(get(VT_GRAMMAR_JSON_SCHEMA, wrong, &g, &first), VT_ERR_USAGE);
    assert_true(vt_grammar_store_has(store, VT_GRAMMAR_JSON_SCHEMA, wrong, strlen(wrong)));
    assert_int_equal(get(VT_GRAMMAR_JSON_SCHEMA, wrong, &g, &second), VT_ERR_USAGE);
    assert_string_equal(first.message, second.message);
    assert_int_equal(first.status, second.status);
    assert_null(g);
    vt_grammar_store_stats s = vt_grammar_store_look(store);
    assert_int_equal(s.n_refused, 1);
    assert_int_equal(s.n_found, 1);
    assert_int_equal(s.n_compiled + s.n, 0);
    /* another kind of the same text is another grammar */
    assert_int_equal(get(VT_GRAMMAR_CHOICE, "[\"a\"]", &g, &first), VT_OK);
    vt_grammar_unref(g);
    assert_int_equal(get(VT_GRAMMAR_JSON_SCHEMA, "[\"a\"]", &g, &first), VT_ERR_USAGE);
}

static void test_store_when_many_texts_are_refused_then_the_grammars_stay(void **state)
{
    (void)state;
    enum { MANY = 300 };
    vt_grammar *g = NULL;
    vt_err err;
    char text[64];
    assert_int_equal(get(VT_GRAMMAR_REGEX, "a+", &g, &err), VT_OK);
    vt_grammar_unref(g);
    for (int i = 0; i < MANY; i++) {
        snprintf(text, sizeof text, "(%d", i);
        assert_int_equal(get(VT_GRAMMAR_REGEX, text, &g, &err), VT_ERR_USAGE);
    }
    assert_true(vt_grammar_store_has(store, VT_GRAMMAR_REGEX, "a+", 2));
    assert_true(vt_grammar_store_has(store, VT_GRAMMAR_REGEX, text, strlen(text)));
    assert_false(vt_grammar_store_has(store, VT_GRAMMAR_REGEX, "(0", 2));
}

/* The grammar of test_grammar_limits that takes too many steps. */
static void test_store_when_a_grammar_cannot_begin_then_it_is_refused_from_then_on(void **state)
{
    (void)state;
    enum { ENDS = 400, ALTERNATIVES = 2000, ROOM = 32 * (ENDS + ALTERNATIVES) };
    char *text = malloc(ROOM);
    vt_grammar *g = NULL;
    vt_err first = {0}, second = {0};
    int n = snprintf(text, ROOM, "root ::= \"x\"");
    for (int i = 0; i < ENDS; i++)
        n += snprintf(text + n, (size_t)(ROOM - n), " | \"a\" \"b\"{0,%d} s", i + 1);
    n += snprintf(text + n, (size_t)(ROOM - n), "\ns ::= \"y\"");
    for (int i = 0; i < ALTERNATIVES; i++)
        n += snprintf(text + n, (size_t)(ROOM - n), " | \"c%d\" s \"d\"", i);
    assert_int_equal(get(VT_GRAMMAR_GBNF, text, &g, &first), VT_OK);
    assert_false(vt_grammar_is_hopeless(g));
    assert_int_equal(vt_grammar_begin(g, 32, &first), VT_ERR_USAGE);
    assert_true(vt_grammar_is_hopeless(g));
    vt_grammar_store_refuse(store, VT_GRAMMAR_GBNF, text, (size_t)n, &first);
    vt_grammar_unref(g);
    assert_int_equal(get(VT_GRAMMAR_GBNF, text, &g, &second), VT_ERR_USAGE);
    assert_string_equal(first.message, second.message);
    free(text);
}

static void test_store_when_memory_was_short_then_the_text_is_compiled_again(void **state)
{
    (void)state;
    vt_grammar *g = NULL;
    vt_err err = {0};
    const vt_err why = {VT_ERR_MEMORY, "the grammar is too large: out of memory"};
    vt_grammar_store_refuse(store, VT_GRAMMAR_REGEX, "b+", 2, &why);
    assert_int_equal(get(VT_GRAMMAR_REGEX, "b+", &g, &err), VT_OK);
    vt_grammar_unref(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            test_store_when_a_text_was_refused_then_it_is_not_compiled_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_store_when_many_texts_are_refused_then_the_grammars_stay, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_store_when_a_grammar_cannot_begin_then_it_is_refused_from_then_on, set_up,
            tear_down),
        cmocka_unit_test_setup_teardown(
            test_store_when_memory_was_short_then_the_text_is_compiled_again, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
