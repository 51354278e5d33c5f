/* Equality with Hugging Face's `tokenizers`, on the texts and small tokenizers that
 * tools/fixtures/make_tokenizers.py writes (the formats are described there): every text encoded
 * both ways and decoded, a megabyte in one piece, random ids decoded; and each decoding streamed
 * token by token. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "text/tokenizer/tokenizer.h"
#include "text/unicode/unicode.h"

#define FOLDER "tests/golden/tokenizers/"
enum { MAX_TEXTS = 1000, MEGABYTE = 1 << 20, RANDOM_LISTS = 100, RANDOM_IDS = 20 };

typedef struct text {
    const char *bytes;
    uint32_t len;
} text;

static char *all;
static text texts[MAX_TEXTS];
static uint32_t n_texts;

static char *read_file(const char *name, const char *suffix, size_t *len)
{
    char path[256];
    snprintf(path, sizeof path, FOLDER "%s%s", name, suffix);
    FILE *f = fopen(path, "rb");
    if (!f)
        fail_msg("%s is missing", path);
    fseek(f, 0, SEEK_END);
    *len = (size_t)ftell(f);
    rewind(f);
    char *bytes = malloc(*len + 1);
    assert_int_equal(fread(bytes, 1, *len, f), *len);
    fclose(f);
    return bytes;
}

static uint32_t crc32_of(const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    uint32_t c = 0xFFFFFFFF;
    for (size_t i = 0; i < n; i++) {
        c ^= p[i];
        for (int k = 0; k < 8; k++)
            c = c >> 1 ^ (c & 1 ? 0xEDB88320 : 0);
    }
    return ~c;
}

static uint32_t little32(const char *p)
{
    const unsigned char *b = (const unsigned char *)p;
    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static int read_texts(void **state)
{
    (void)state;
    size_t len, at = 0;
    all = read_file("texts", ".bin", &len);
    while (at + 4 <= len && n_texts < MAX_TEXTS) {
        texts[n_texts] = (text){all + at + 4, little32(all + at)};
        at += 4 + texts[n_texts++].len;
    }
    return at == len ? 0 : -1;
}

static int free_texts(void **state)
{
    (void)state;
    free(all);
    return 0;
}

static vt_tokenizer *load(const char *name)
{
    size_t len;
    vt_tokenizer *t = NULL;
    vt_err err = {0};
    const char *dot = strrchr(name, '.');
    if (dot) { /* NAME.gguf */
        char path[256];
        gguf_file *f = NULL;
        snprintf(path, sizeof path, FOLDER "%s", name);
        if (gguf_open(path, &f, &err) != VT_OK || vt_tokenizer_from_gguf(f, &t, &err) != VT_OK)
            fail_msg("%s", err.message);
        gguf_close(f);
        return t;
    }
    char *json = read_file(name, ".json", &len);
    if (vt_tokenizer_from_json(name, json, len, NULL, 0, &t, &err) != VT_OK)
        fail_msg("%s", err.message);
    free(json);
    return t;
}

static vt_ids encode(const vt_tokenizer *t, const char *s, size_t n, unsigned flags)
{
    vt_ids ids = {0};
    vt_err err = {0};
    if (vt_tokenizer_encode(t, s, n, flags, &ids, &err) != VT_OK)
        fail_msg("%s", err.message);
    assert_true(vt_tokenizer_least(t, s, n) <= ids.n);
    return ids;
}

static uint32_t crc_of_ids(const vt_ids *ids)
{
    return crc32_of(ids->id, ids->n * sizeof *ids->id);
}

/* The CRC of the ids' text; fails if streaming gives another text or half a character. */
static uint32_t crc_of_decoded(const vt_tokenizer *t, const int32_t *ids, size_t n, bool skip)
{
    vt_buf whole, stream;
    vt_detok d;
    vt_buf_init(&whole, 0);
    vt_buf_init(&stream, 0);
    vt_detok_init(&d, t);
    d.keep_special = !skip;
    assert_int_equal(vt_tokenizer_decode(t, ids, n, skip, &whole, NULL), VT_OK);
    for (size_t i = 0; i <= n; i++) {
        size_t from = stream.len;
        assert_true(i < n ? vt_detok_feed(&d, ids[i], &stream) : vt_detok_finish(&d, &stream));
        if (stream.len > from)
            assert_int_equal(vt_utf8_valid(stream.data + from, stream.len - from),
                             stream.len - from);
    }
    assert_int_equal(whole.len, stream.len);
    if (whole.len)
        assert_memory_equal(whole.data, stream.data, whole.len);
    uint32_t crc = crc32_of(whole.data, whole.len);
    vt_buf_release(&whole);
    vt_buf_release(&stream);
    return crc;
}

/* Prints the first difference and counts the others, so that one run shows how many there are. */
static void expect(const char *name, const char *what, uint32_t i, uint32_t got, uint32_t want,
                   int *wrong)
{
    if (got == want)
        return;
    if ((*wrong)++ < 5)
        print_error("%s: %s %u differs\n", name, what, i);
}

static void check_megabyte(const char *name, const vt_tokenizer *t, const char *want, int *wrong)
{
    size_t cap = MEGABYTE + 65536, len = 0;
    char *mega = malloc(cap);
    uint64_t state = 88172645463325252u;
    while (len < MEGABYTE) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        const text *s = &texts[state % n_texts];
        assert_true(len + s->len <= cap);
        memcpy(mega + len, s->bytes, s->len);
        len += s->len;
    }
    vt_ids ids = encode(t, mega, len, 0);
    expect(name, "length of the megabyte", 0, (uint32_t)ids.n, little32(want), wrong);
    expect(name, "megabyte", 0, crc_of_ids(&ids), little32(want + 4), wrong);
    vt_ids_release(&ids);
    free(mega);
}

static void check(void **state)
{
    const char *name = *state, *dot = strrchr(name, '.');
    char stem[64];
    size_t len;
    int wrong = 0;
    snprintf(stem, sizeof stem, "%.*s", (int)(dot ? dot - name : (ptrdiff_t)strlen(name)), name);
    char *want = read_file(stem, ".want", &len);
    vt_tokenizer *t = load(name);
    assert_int_equal(len, 4 * (3 * n_texts + 2 + RANDOM_LISTS));
    const char *at = want;
    for (uint32_t i = 0; i < n_texts; i++, at += 12) {
        vt_ids plain = encode(t, texts[i].bytes, texts[i].len, 0);
        vt_ids parsed = encode(t, texts[i].bytes, texts[i].len, VT_TOKENIZE_SPECIAL);
        expect(name, "text", i, crc_of_ids(&plain), little32(at), &wrong);
        expect(name, "text with special tokens", i, crc_of_ids(&parsed), little32(at + 4), &wrong);
        expect(name, "decoding of text", i, crc_of_decoded(t, parsed.id, parsed.n, false),
               little32(at + 8), &wrong);
        vt_ids_release(&plain);
        vt_ids_release(&parsed);
    }
    check_megabyte(name, t, at, &wrong);
    at += 8;
    for (uint32_t i = 0, random = 1; i < RANDOM_LISTS; i++, at += 4) {
        int32_t ids[RANDOM_IDS];
        for (int k = 0; k < RANDOM_IDS; k++) {
            random = (random * 1103515245u + 12345u) & 0x7FFFFFFF;
            ids[k] = (int32_t)((random >> 8) % (uint32_t)vt_tokenizer_vocab(t));
        }
        expect(name, "random ids", i, crc_of_decoded(t, ids, RANDOM_IDS, true), little32(at),
               &wrong);
    }
    vt_tokenizer_free(t);
    free(want);
    assert_int_equal(wrong, 0);
}

/* *state names a GGUF file that was made from a SentencePiece model. */
static void check_sentencepiece(void **state)
{
    const char *name = *state;
    char file[64];
    size_t len;
    int wrong = 0;
    char *want = read_file(name, ".want", &len);
    snprintf(file, sizeof file, "%s.gguf", name);
    vt_tokenizer *t = load(file);
    assert_int_equal(len, 4 * n_texts);
    for (uint32_t i = 0; i < n_texts; i++) {
        if (little32(want + 4 * i) == 0)
            continue; /* not UTF-8: sentencepiece and llama.cpp disagree there */
        vt_ids ids = encode(t, texts[i].bytes, texts[i].len, 0);
        expect(name, "text", i, crc_of_ids(&ids), little32(want + 4 * i), &wrong);
        vt_ids_release(&ids);
    }
    vt_tokenizer_free(t);
    free(want);
    assert_int_equal(wrong, 0);
}

#define GOLDEN(name)                                                                              \
    {                                                                                             \
        "test_tokenizer_" name "_equals_hugging_face", check, NULL, NULL, (void *)(uintptr_t)name \
    }

#define SENTENCEPIECE(name)                                                              \
    {                                                                                    \
        "test_tokenizer_" name "_equals_sentencepiece", check_sentencepiece, NULL, NULL, \
            (void *)(uintptr_t)name                                                      \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        GOLDEN("gpt2"),
        GOLDEN("gpt2_prefix"),
        GOLDEN("smollm"),
        GOLDEN("llama3"),
        GOLDEN("qwen2"),
        GOLDEN("cl100k"),
        GOLDEN("o200k"),
        GOLDEN("kimi"),
        GOLDEN("deepseek_v3"),
        GOLDEN("deepseek_coder"),
        GOLDEN("falcon"),
        GOLDEN("bloom"),
        GOLDEN("groups_of_three"),
        GOLDEN("superbpe"),
        GOLDEN("nfkc_lower"),
        GOLDEN("nfd_accents"),
        GOLDEN("nfkd_bytes"),
        GOLDEN("added"),
        GOLDEN("suffix"),
        GOLDEN("split_removed"),
        GOLDEN("split_isolated"),
        GOLDEN("split_merged_with_previous"),
        GOLDEN("split_merged_with_next"),
        GOLDEN("split_contiguous"),
        GOLDEN("llama2"),
        GOLDEN("gemma"),
        GOLDEN("mistral_first"),
        GOLDEN("metaspace"),
        GOLDEN("metaspace_never"),
        GOLDEN("words"),
        GOLDEN("bert_split"),
        GOLDEN("bert"),
        GOLDEN("bert_cased"),
        GOLDEN("bert.gguf"),
        GOLDEN("xlm_roberta"),
        GOLDEN("unigram"),
        GOLDEN("unigram_bytes"),
        GOLDEN("whitespace_split"),
        GOLDEN("gpt2.gguf"),
        GOLDEN("smollm.gguf"),
        GOLDEN("llama3.gguf"),
        GOLDEN("qwen2.gguf"),
        GOLDEN("o200k.gguf"),
        GOLDEN("deepseek_v3.gguf"),
        GOLDEN("deepseek_coder.gguf"),
        GOLDEN("falcon.gguf"),
        GOLDEN("bloom.gguf"),
        SENTENCEPIECE("spm"),
        SENTENCEPIECE("spm_unigram"),
    };
    return cmocka_run_group_tests(tests, read_texts, free_texts);
}
