/* Literal ranges: parts of a text in which no special token is recognised, in a text that is
 * tokenised as a whole. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/random.h"
#include "text/tokenizer/tokenizer.h"

/* A vocabulary of single characters and a few merges; one special token, spelled `marker`, which
 * has id 30, with the attributes and the normaliser that a test is about. */
static vt_tokenizer *load(const char *normalizer, const char *marker, const char *attributes)
{
    char json[4096];
    int n = snprintf(
        json, sizeof json,
        "{\"normalizer\":%s,\"model\":{\"type\":\"BPE\",\"unk_token\":\"?\",\"vocab\":{"
        "\"<\":0,\"|\":1,\">\":2,\"a\":3,\"b\":4,\" \":5,\"_\":6,\"\\n\":7,\"e\":8,\"\xC3\xA9\":9,"
        "\"\xCC\x81\":10,\"?\":11,\"\xE4\xB8\xAD\":12,\"<|\":13,\"|>\":14,\"a|\":15,\"ab\":16,"
        "\"> \":17,\">\\n\":18,\"b<\":19,\"  \":20,\"__\":21,\"A\":22,\"pad1\":23,\"pad2\":24,"
        "\"pad3\":25,\"pad4\":26,\"pad5\":27,\"pad6\":28,\"pad7\":29},\"merges\":["
        "[\"<\",\"|\"],[\"|\",\">\"],[\"a\",\"|\"],[\"a\",\"b\"],[\">\",\" \"],[\">\",\"\\n\"],"
        "[\"b\",\"<\"],[\" \",\" \"],[\"_\",\"_\"]]},"
        "\"added_tokens\":[{\"id\":30,\"content\":\"%s\",\"special\":true%s}]}",
        normalizer, marker, attributes);
    vt_tokenizer *t = NULL;
    vt_err err = {0};
    assert_true(n > 0 && (size_t)n < sizeof json);
    if (vt_tokenizer_from_json("test", json, (size_t)n, NULL, 0, &t, &err) != VT_OK)
        fail_msg("%s", err.message);
    return t;
}

static void expect_equal(const vt_ids *got, const vt_ids *want, const char *text)
{
    bool same = got->n == want->n;
    for (size_t i = 0; same && i < got->n; i++)
        same = got->id[i] == want->id[i];
    if (!same)
        fail_msg("%zu ids, %zu expected, or other ids, of \"%s\"", got->n, want->n, text);
}

/* A chat of contents between markers; ranges are the contents. */
typedef struct chat {
    char text[2048];
    size_t len, n;
    vt_text_range content[8];
} chat;

static void add(chat *c, const char *text)
{
    size_t n = strlen(text);
    assert_true(c->len + n < sizeof c->text);
    memcpy(c->text + c->len, text, n + 1);
    c->len += n;
}

/* The same chat with another marker: equal seeds draw equal contents. */
static chat draw(uint64_t seed, const char *marker, const char *const *part, size_t n_part)
{
    static const char *const between[] = {"", "\n", " ", "|>", "a", "<|"};
    chat c = {.n = 1 + vt_random_next(&seed) % 7};
    for (size_t i = 0; i < c.n; i++) {
        add(&c, marker);
        add(&c, between[vt_random_next(&seed) % 6]);
        c.content[i].begin = c.len;
        for (uint64_t k = vt_random_next(&seed) % 8; k > 0; k--)
            add(&c, part[vt_random_next(&seed) % n_part]);
        c.content[i].end = c.len;
        add(&c, between[vt_random_next(&seed) % 6]);
    }
    add(&c, marker);
    return c;
}

static const char *const normalizers[] = {
    "null",
    "{\"type\":\"NFC\"}",
    "{\"type\":\"Lowercase\"}",
    "{\"type\":\"Prepend\",\"prepend\":\"_\"}",
    "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"_\"},"
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"_\"}]}",
    "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFD\"},{\"type\":\"StripAccents\"},"
    "{\"type\":\"Strip\"}]}",
    "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"[ \\n]+\"},\"content\":\"_\"}",
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\"b\"},\"content\":\"\"}",
};
static const char *const attributes[] = {"", ",\"normalized\":true", ",\"rstrip\":true",
                                         ",\"lstrip\":true,\"normalized\":true",
                                         ",\"single_word\":true"};
enum { N_NORMALIZERS = 8, N_ATTRIBUTES = 5, ROUNDS = 200 };

/* With Prepend, a normalised token is only found with a space in front, which here would belong to
 * the content. Such a match touches a literal range, so it must not count. */
static bool needs_space(int k)
{
    return strstr(normalizers[k % N_NORMALIZERS], "Prepend") &&
           strstr(attributes[k / N_NORMALIZERS], "normalized");
}

/* If contents do not spell the special token, all ids are the same as without ranges. */
static void test_tokenizer_literal_ranges_without_special_spelling_change_nothing(void **state)
{
    (void)state;
    static const char *const part[] = {"a", "b",        " ",         "\n",       "<",
                                       ">", "\xC3\xA9", "e\xCC\x81", "\xCC\x81", "\xE4\xB8\xAD",
                                       "A", "\xFF",     "\xE4\xB8"};
    for (int k = 0; k < N_NORMALIZERS * N_ATTRIBUTES; k++) {
        if (needs_space(k))
            continue;
        vt_tokenizer *t = load(normalizers[k % N_NORMALIZERS], "<|a|>",
                               attributes[k / N_NORMALIZERS]);
        for (uint64_t seed = 0; seed < ROUNDS; seed++) {
            chat c = draw(seed, "<|a|>", part, sizeof part / sizeof *part);
            vt_ids plain = {0}, literal = {0};
            assert_int_equal(
                vt_tokenizer_encode(t, c.text, c.len, VT_TOKENIZE_SPECIAL, &plain, NULL), VT_OK);
            assert_int_equal(vt_tokenizer_encode_literal(t, c.text, c.len, VT_TOKENIZE_SPECIAL,
                                                         c.content, c.n, &literal, NULL),
                             VT_OK);
            expect_equal(&literal, &plain, c.text);
            vt_ids_release(&plain);
            vt_ids_release(&literal);
        }
        vt_tokenizer_free(t);
    }
}

/* Contents that spell the special token, or parts of it at their ends: the ids are those of a
 * vocabulary whose special token is spelled otherwise, so that the contents cannot name it. */
static void test_tokenizer_literal_ranges_hide_special_spellings(void **state)
{
    (void)state;
    static const char *const part[] = {"<|a|>", "<|a", "a|>", "<",        "|>",           "a",
                                       "b",     " ",   "\n",  "\xCC\x81", "\xE4\xB8\xAD", "<|A|>"};
    for (int k = 0; k < N_NORMALIZERS * (N_ATTRIBUTES - 1); k++) { /* without single_word */
        if (needs_space(k))
            continue;
        const char *normalizer = normalizers[k % N_NORMALIZERS];
        vt_tokenizer *t = load(normalizer, "<|a|>", attributes[k / N_NORMALIZERS]);
        vt_tokenizer *other = load(normalizer, "[+]", attributes[k / N_NORMALIZERS]);
        for (uint64_t seed = 0; seed < ROUNDS; seed++) {
            chat c = draw(seed, "<|a|>", part, sizeof part / sizeof *part);
            chat o = draw(seed, "[+]", part, sizeof part / sizeof *part);
            vt_ids got = {0}, want = {0};
            assert_int_equal(vt_tokenizer_encode_literal(t, c.text, c.len, VT_TOKENIZE_SPECIAL,
                                                         c.content, c.n, &got, NULL),
                             VT_OK);
            assert_int_equal(
                vt_tokenizer_encode(other, o.text, o.len, VT_TOKENIZE_SPECIAL, &want, NULL), VT_OK);
            expect_equal(&got, &want, c.text);
            vt_ids_release(&got);
            vt_ids_release(&want);
        }
        vt_tokenizer_free(t);
        vt_tokenizer_free(other);
    }
}

/* One range over the whole text has the same effect as leaving out VT_TOKENIZE_SPECIAL. */
static void test_tokenizer_literal_whole_text_equals_plain_tokenising(void **state)
{
    (void)state;
    static const char *const part[] = {"<|a|>", "<|a", "|>", "a", " ", "\n"};
    vt_tokenizer *t = load("null", "<|a|>", "");
    for (uint64_t seed = 0; seed < ROUNDS; seed++) {
        chat c = draw(seed, "<|a|>", part, 6);
        vt_ids plain = {0}, literal = {0};
        vt_text_range all = {0, c.len};
        assert_int_equal(vt_tokenizer_encode(t, c.text, c.len, 0, &plain, NULL), VT_OK);
        assert_int_equal(vt_tokenizer_encode_literal(t, c.text, c.len, VT_TOKENIZE_SPECIAL, &all, 1,
                                                     &literal, NULL),
                         VT_OK);
        expect_equal(&literal, &plain, c.text);
        vt_ids_release(&plain);
        vt_ids_release(&literal);
    }
    vt_tokenizer_free(t);
}

/* A content must not hide the template's special token by completing a longer spelling. */
static void test_tokenizer_literal_range_cannot_hide_the_special_token_beside_it(void **state)
{
    (void)state;
    static const char json[] =
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"x\":0,\"<\":1,\"s\":2,\">\":3},\"merges\":[]},"
        "\"added_tokens\":[{\"content\":\"<s>\",\"special\":true},"
        "{\"content\":\"<s>x\",\"special\":true},{\"content\":\"x<s>\",\"special\":true}]}";
    vt_tokenizer *t = NULL;
    vt_err err = {0};
    vt_ids ids = {0};
    vt_text_range content = {3, 4};
    if (vt_tokenizer_from_json("test", json, sizeof json - 1, NULL, 0, &t, &err) != VT_OK)
        fail_msg("%s", err.message);
    assert_int_equal(
        vt_tokenizer_encode_literal(t, "<s>x<s>", 7, VT_TOKENIZE_SPECIAL, &content, 1, &ids, NULL),
        VT_OK);
    assert_int_equal(ids.n, 3);
    assert_int_equal(ids.id[0], 4);
    assert_int_equal(ids.id[1], 0);
    assert_int_equal(ids.id[2], 4);
    vt_ids_release(&ids);
    vt_tokenizer_free(t);
}

static void test_tokenizer_literal_ranges_out_of_order_are_refused(void **state)
{
    (void)state;
    static const vt_text_range wrong[][2] = {
        {{2, 1}, {3, 3}}, {{0, 2}, {1, 3}}, {{2, 3}, {0, 1}}, {{0, 1}, {2, 9}}};
    vt_tokenizer *t = load("null", "<|a|>", "");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        vt_ids ids = {0};
        vt_err err = {0};
        assert_int_equal(vt_tokenizer_encode_literal(t, "abab", 4, 0, wrong[i], 2, &ids, &err),
                         VT_ERR_USAGE);
        assert_non_null(strstr(err.message, "literal range"));
        vt_ids_release(&ids);
    }
    vt_tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokenizer_literal_ranges_without_special_spelling_change_nothing),
        cmocka_unit_test(test_tokenizer_literal_ranges_hide_special_spellings),
        cmocka_unit_test(test_tokenizer_literal_whole_text_equals_plain_tokenising),
        cmocka_unit_test(test_tokenizer_literal_range_cannot_hide_the_special_token_beside_it),
        cmocka_unit_test(test_tokenizer_literal_ranges_out_of_order_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
