/* Grammars of every kind, made of fragments, on a vocabulary of bytes and short texts: compiling
 * answers or refuses with a sentence, and ends; then a walk through the masks: a token that a mask
 * allows can be taken, one that it does not allow cannot, and taking back restores the mask. With
 * a number of tokens, the shortest way to the end is kept.
 *
 *   first byte: the kind and how many tokens the answer may have; the second: n, times 4 the bytes
 *   of the grammar, the rest chooses tokens
 *   below 128 a byte stands for itself, above it for a fragment of the tables below, and in schemas
 *   a control that is no blank stands for one of the second table */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "grammar/grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { VOCAB = 700, N_WORDS = (VOCAB + 31) / 32, MAX_STEPS = 48 };

static const char *const json[] = {"{\"type\":\"object\"",
                                   "{\"type\":\"array\"",
                                   "{\"type\":\"string\"",
                                   "{\"type\":\"integer\"",
                                   "{\"type\":\"number\"",
                                   ",\"properties\":{",
                                   "\"a\":",
                                   "\"b\":",
                                   "},",
                                   "}",
                                   ",",
                                   "[",
                                   "]",
                                   ",\"required\":[\"a\"]",
                                   ",\"required\":[\"a\",\"z\"]",
                                   ",\"additionalProperties\":",
                                   ",\"items\":",
                                   ",\"prefixItems\":[",
                                   ",\"minItems\":2",
                                   ",\"maxItems\":3",
                                   ",\"minLength\":3",
                                   ",\"maxLength\":5",
                                   ",\"pattern\":\"",
                                   "^[a-z]+$\"",
                                   "a|b\"",
                                   ",\"format\":\"date\"",
                                   ",\"format\":\"uri\"",
                                   ",\"minimum\":-12.5",
                                   ",\"exclusiveMaximum\":100",
                                   ",\"multipleOf\":7",
                                   ",\"multipleOf\":0.01",
                                   "{\"anyOf\":[",
                                   "{\"oneOf\":[",
                                   "{\"allOf\":[",
                                   "{\"enum\":[\"x\",1,null]}",
                                   "{\"const\":\"b\"}",
                                   "{\"$ref\":\"#\"}",
                                   "{\"$ref\":\"#/properties/a\"}",
                                   ",\"$ref\":\"#/$defs/t\"",
                                   ",\"$defs\":{\"t\":",
                                   "true",
                                   "false",
                                   "{}",
                                   ",\"minProperties\":1",
                                   ",\"maxProperties\":2",
                                   ",\"patternProperties\":{\"^a\":",
                                   "null",
                                   "1e400",
                                   "\"\"",
                                   ",\"nullable\":true"};
static const char *const json_more[] = {"{\"not\":",
                                        ",\"not\":",
                                        ",\"if\":",
                                        ",\"then\":",
                                        ",\"else\":",
                                        ",\"contains\":",
                                        ",\"minContains\":2",
                                        ",\"maxContains\":1",
                                        ",\"propertyNames\":",
                                        ",\"uniqueItems\":true",
                                        ",\"unevaluatedProperties\":",
                                        ",\"unevaluatedItems\":",
                                        ",\"dependentRequired\":{\"a\":[\"b\"]}",
                                        ",\"dependentSchemas\":{\"b\":",
                                        ",\"$id\":\"b/c?d\"",
                                        ",\"$id\":\"../../e\"",
                                        ",\"$anchor\":\"x\"",
                                        ",\"$dynamicAnchor\":\"x\"",
                                        "{\"$ref\":\"#x\"",
                                        "{\"$ref\":\"../b/c?d#/properties/a\"",
                                        "{\"$dynamicRef\":\"#x\"",
                                        "{\"enum\":[{\"a\":1},[1,2],true]",
                                        ",\"patternProperties\":{\"b$\":",
                                        "{\"anyOf\":["};
static const char *const pattern[] = {
    "(?:",      ")",          "|",   "*",   "+",      "?",      "{2,5}",  "{1000}",
    "[",        "]",          "[^",  "-",   "\\p{L}", "\\P{L}", "\\s",    "\\S",
    "\\d",      "\\w",        "(?=", "(?!", "^",      "$",      ".",      "a",
    "\xC3\xA9", "\\u00e9",    "(",   "\\n", "\\x41",  "{0,}",   "(a|b)*", "\\p{Script=Greek}",
    "[a-z]",    "\\u{1F600}", "a{3}"};
static const char *const gbnf[] = {
    "root ::= ", "\na ::= ", "\nb ::= ", "a",  "b",    "root",    "\"x\"",         "\"ab\"",
    "[a-z]",     "[^\"]",    "|",        "*",  "+",    "?",       "{2,4}",         "(",
    ")",         ".",        " ",        "\n", "#c\n", "\"\\n\"", "[\\x00-\\x1F]", "{,3}",
    "{900}",     "::="};
static const char *const choice[] = {"[", "]", "\"a\"", "\"ab\"", ",", "\"\xC3\xA9\"", "\"\\n\""};

static const struct {
    const char *const *part;
    size_t n;
} parts[] = {
    [VT_GRAMMAR_JSON_SCHEMA] = {json, sizeof json / sizeof *json},
    [VT_GRAMMAR_JSON_STRICT] = {json, sizeof json / sizeof *json},
    [VT_GRAMMAR_JSON_OBJECT] = {json, sizeof json / sizeof *json},
    [VT_GRAMMAR_REGEX] = {pattern, sizeof pattern / sizeof *pattern},
    [VT_GRAMMAR_CHOICE] = {choice, sizeof choice / sizeof *choice},
    [VT_GRAMMAR_GBNF] = {gbnf, sizeof gbnf / sizeof *gbnf},
};

static void require(bool ok)
{
    if (!ok)
        abort();
}

/* Made once; the sanitizers see it as in use. */
static vt_grammar_vocab *vocab(void)
{
    static vt_tokenizer *t;
    static vt_grammar_vocab *v;
    if (!v) {
        require(vt_tokenizer_synthetic(VOCAB, &t, NULL) == VT_OK);
        require(vt_grammar_vocab_new(t, VOCAB, &v, NULL) == VT_OK);
    }
    return v;
}

/* A block of exactly the grammar's size: a read beyond it is seen. */
static vt_grammar *compile(vt_grammar_kind kind, const uint8_t *data, size_t n)
{
    vt_grammar *g = NULL;
    vt_err err = {0};
    vt_buf text = {0};
    vt_buf_puts(&text, "");
    bool schema = parts[kind].part == json;
    for (size_t i = 0; i < n; i++)
        if (schema && data[i] < 32 && !strchr("\t\n\r", data[i]))
            vt_buf_puts(&text, json_more[data[i] % (sizeof json_more / sizeof *json_more)]);
        else if (data[i] < 128)
            vt_buf_putc(&text, (char)data[i]);
        else
            vt_buf_puts(&text, parts[kind].part[data[i] % parts[kind].n]);
    char *copy = malloc(text.len ? text.len : 1);
    require(copy && !text.failed);
    if (text.len)
        memcpy(copy, text.data, text.len);
    vt_status status = vt_grammar_compile(vocab(), kind, copy, text.len, &g, &err);
    require(status == VT_OK ? g != NULL : g == NULL && err.message[0]);
    free(copy);
    vt_buf_release(&text);
    return g;
}

static bool bit(const uint32_t *words, int32_t id) { return words[id / 32] >> id % 32 & 1; }

/* The next allowed token from a place on. */
static int32_t allowed(const uint32_t *words, int32_t from)
{
    for (int32_t i = 0; i < VOCAB; i++)
        if (bit(words, (from + i) % VOCAB))
            return (from + i) % VOCAB;
    return -1;
}

/* Takes one token that is allowed, and tries one that may not be. False: the answer ends here. */
static bool step(vt_matcher *m, int32_t at, bool counted)
{
    uint32_t words[N_WORDS] = {0}, again[N_WORDS] = {0};
    if (!vt_matcher_mask(m, words, N_WORDS))
        return false;
    int32_t id = allowed(words, at), other = at * 31 % VOCAB;
    require(id >= 0);
    if (vt_matcher_take(m, other)) {
        require(bit(words, other) || counted); /* the mask near the end is narrower */
        vt_matcher_undo(m, 1);
    }
    require(vt_matcher_take(m, id));
    vt_matcher_undo(m, 1);
    require(vt_matcher_mask(m, again, N_WORDS) && memcmp(words, again, sizeof words) == 0);
    return vt_matcher_take(m, id);
}

static void walk(vt_grammar *g, const uint8_t *data, size_t size, int32_t most)
{
    vt_matcher *m = vt_matcher_new(g, most);
    require(m != NULL);
    for (int32_t i = 0; i < MAX_STEPS && (most == 0 || i < most); i++) {
        int32_t at = size ? data[(size_t)i % size] * 7 + i : i * 61;
        if (!step(m, at % VOCAB, most > 0))
            break;
    }
    vt_matcher_free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    vt_grammar_kind kind = (vt_grammar_kind)(VT_GRAMMAR_JSON_SCHEMA + data[0] % 6);
    size_t n = (size_t)data[1] * 4;
    n = n < size - 2 ? n : size - 2;
    vt_grammar *g = compile(kind, data + 2, n);
    if (g)
        walk(g, data + 2 + n, size - 2 - n, data[0] / 6);
    vt_grammar_unref(g);
    return 0;
}
