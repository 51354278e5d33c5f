/* Grammars over one vocabulary share the walks of their masks (src/grammar/split.c): their masks
 * are those that each makes by itself, and a walk lives as long as anybody uses it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "common/grammar_vocab.h"
#include "grammar/internal.h"
#include "grammar/vocab.h"

enum { WORDS = 64 };

static vt_tokenizer *tokenizer;
static int32_t n_words;

static int set_up(void **state)
{
    (void)state;
    tokenizer = grammar_test_tokenizer();
    n_words = tokenizer ? (vt_tokenizer_vocab(tokenizer) + 31) / 32 : 0;
    return tokenizer && n_words <= WORDS ? 0 : 1;
}

static int tear_down(void **state)
{
    (void)state;
    vt_tokenizer_free(tokenizer);
    return 0;
}

static vt_grammar_vocab *fresh(void)
{
    vt_grammar_vocab *v = NULL;
    vt_err err;
    assert_int_equal(vt_grammar_vocab_new(tokenizer, INT32_MAX, &v, &err), VT_OK);
    return v;
}

static vt_grammar *compile(vt_grammar_vocab *v, vt_grammar_kind kind, const char *text)
{
    vt_grammar *g = NULL;
    vt_err err;
    if (vt_grammar_compile(v, kind, text, strlen(text), &g, &err) != VT_OK)
        fail_msg("%s: %s", text, err.message);
    return g;
}

/* Walks two matchers of one grammar at random through what is allowed; their masks are equal. */
static void walk_both(vt_grammar *a, vt_grammar *b, int32_t most, uint64_t draw)
{
    vt_matcher *x = vt_matcher_new(a, most), *y = vt_matcher_new(b, most);
    for (int step = 0; step < 60; step++) {
        uint32_t one[WORDS] = {0}, two[WORDS] = {0};
        int32_t allowed[32 * WORDS], n = 0;
        assert_int_equal(vt_matcher_mask(x, one, n_words), vt_matcher_mask(y, two, n_words));
        assert_memory_equal(one, two, sizeof one);
        for (int32_t id = 0; id < 32 * n_words; id++)
            if (one[id / 32] >> id % 32 & 1)
                allowed[n++] = id;
        int32_t id = n > 0 ? allowed[vt_random_next(&draw) % (uint64_t)n] : 0;
        if (n == 0 || !vt_matcher_take(x, id) || !vt_matcher_take(y, id))
            break;
    }
    vt_matcher_free(x);
    vt_matcher_free(y);
}

/* Returns how many splits a grammar shares with another. */
static int shared(const vt_grammar *a, const vt_grammar *b)
{
    int n = 0;
    for (const split_use *x = a->m.splits; x; x = x->next)
        for (const split_use *y = b->m.splits; y; y = y->next)
            n += x->s == y->s;
    return n;
}

static const char *const schema[] = {
    "{\"properties\":{\"a\":{\"pattern\":\"^[a-d ]+[x-z]?$\"}},\"required\":[\"a\"]}",
    "{\"properties\":{\"b\":{\"type\":\"integer\"},\"name\":{\"pattern\":\"^[a-d ]+[x-z]?$\"}},"
    "\"required\":[\"name\"]}",
    "{\"items\":{\"anyOf\":[{\"pattern\":\"^[a-d ]+[x-z]?$\"},{\"type\":\"number\"},{\"pattern\":"
    "\"e{2,}$\"}]},\"minItems\":2}",
    "{\"type\":\"object\",\"patternProperties\":{\"^[a-d ]+$\":{\"pattern\":\"^[a-d ]+[x-z]?$\"}}}",
    "{\"type\":\"array\",\"items\":{\"type\":[\"number\",\"boolean\",\"null\",\"object\"]}}",
    "{\"type\":\"string\",\"pattern\":\"^[a-c ]{14,29}$\"}",
    "{\"items\":{\"pattern\":\"^[a-c ]{14,29}$\"}}",
};
enum { SCHEMAS = sizeof schema / sizeof *schema };

static void
test_mask_when_other_grammars_have_been_there_then_as_on_a_fresh_vocabulary(void **state)
{
    (void)state;
    vt_grammar_vocab *used = fresh();
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < SCHEMAS; i++) {
            vt_grammar_vocab *own = fresh();
            vt_grammar *a = compile(own, VT_GRAMMAR_JSON_SCHEMA, schema[i]);
            vt_grammar *b = compile(used, VT_GRAMMAR_JSON_SCHEMA, schema[i]);
            for (uint64_t run = 1; run <= 6; run++)
                walk_both(a, b, run % 2 ? 0 : 25, 100 * run + (uint64_t)i);
            vt_grammar_unref(a);
            vt_grammar_unref(b);
            vt_grammar_vocab_free(own);
        }
    vt_grammar_vocab_free(used);
}

static void test_split_when_its_first_grammar_goes_then_the_others_keep_it(void **state)
{
    (void)state;
    vt_grammar_vocab *v = fresh();
    vt_grammar *a = compile(v, VT_GRAMMAR_JSON_SCHEMA, schema[0]);
    vt_grammar *b = compile(v, VT_GRAMMAR_JSON_SCHEMA, schema[1]);
    vt_grammar *c = compile(v, VT_GRAMMAR_JSON_SCHEMA, schema[1]);
    for (uint64_t run = 1; run <= 6; run++) {
        walk_both(a, a, 0, run);
        walk_both(b, b, 0, run);
    }
    assert_true(shared(a, b) > 0);
    vt_grammar_unref(a);
    shelf_release(&v->shelf); /* all of its places */
    memset(v->shelf.place, 0, sizeof v->shelf.place);
    v->shelf.bytes = 0;
    pthread_mutex_init(&v->shelf.lock, NULL);
    walk_both(b, c, 0, 7);
    vt_grammar_unref(b);
    vt_grammar_unref(c);
    vt_grammar_vocab_free(v);
}

/* The bytes of the splits on a shelf, each counted once. */
static size_t bytes_of(const vt_grammar_vocab *v)
{
    size_t bytes = 0;
    for (int i = 0; i < SHELF_PLACES; i++) {
        const split *s = v->shelf.place[i].split;
        bool first = s != NULL;
        for (int k = 0; first && k < i; k++)
            first = v->shelf.place[k].split != s;
        bytes += first ? split_bytes(s, v) : 0;
    }
    return bytes;
}

/* Each count that is left is a state with a place of its own: together more than there are. */
static void test_shelf_when_its_places_are_taken_then_old_ones_go_and_bytes_are_right(void **state)
{
    (void)state;
    enum { GRAMMARS = 5, STEPS = 600 };
    vt_grammar_vocab *v = fresh(), *own = fresh();
    for (int i = 0; i < GRAMMARS; i++) {
        char pattern[32];
        snprintf(pattern, sizeof pattern, "[a-%c ,.]{%d}", 'e' + i, 700 + i);
        vt_grammar *g = compile(v, VT_GRAMMAR_REGEX, pattern);
        vt_grammar *alone = compile(own, VT_GRAMMAR_REGEX, pattern);
        vt_matcher *m = vt_matcher_new(g, 0);
        for (int step = 0; step < STEPS; step++) {
            uint32_t words[WORDS] = {0};
            assert_true(vt_matcher_mask(m, words, n_words));
            assert_true(vt_matcher_take(m, 'a'));
        }
        vt_matcher_free(m);
        walk_both(g, alone, 0, (uint64_t)i + 1);
        vt_grammar_unref(g);
        vt_grammar_unref(alone);
        assert_int_equal(bytes_of(v), v->shelf.bytes);
    }
    vt_grammar_vocab_free(v);
    vt_grammar_vocab_free(own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            test_mask_when_other_grammars_have_been_there_then_as_on_a_fresh_vocabulary),
        cmocka_unit_test(test_split_when_its_first_grammar_goes_then_the_others_keep_it),
        cmocka_unit_test(test_shelf_when_its_places_are_taken_then_old_ones_go_and_bytes_are_right),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
