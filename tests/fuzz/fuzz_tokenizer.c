/* Any bytes as a tokenizer and a text. Loading fails with a message or gives a tokenizer that
 * encodes any text, finds its own ids in range, and decodes them the same streamed and whole.
 *
 *   first byte 'j': u16 length, a tokenizer.json of that length, then the text
 *   first byte 't': u16 length, a tiktoken file of that length, then the text
 *   first byte 'g': a GGUF file; the text is its last 200 bytes
 *   first byte 'b': choices from which a tokenizer.json is built field by field, then the text
 *   first byte 'v': u16 length, a vocab.txt of that length, then the text
 *   else:           a text for the synthetic tokenizer */
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer/tokenizer.h"
#include "text/unicode/unicode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok)
{
    if (!ok)
        abort();
}

static void decode_both_ways(const vt_tokenizer *t, const vt_ids *ids)
{
    vt_buf whole, stream;
    vt_detok d;
    vt_buf_init(&whole, 0);
    vt_buf_init(&stream, 0);
    vt_detok_init(&d, t);
    require(vt_tokenizer_decode(t, ids->id, ids->n, true, &whole, NULL) == VT_OK);
    for (size_t i = 0; i <= ids->n; i++) {
        size_t from = stream.len;
        require(i < ids->n ? vt_detok_feed(&d, ids->id[i], &stream) : vt_detok_finish(&d, &stream));
        require(stream.len == from ||
                vt_utf8_valid(stream.data + from, stream.len - from) == stream.len - from);
    }
    require(whole.len == stream.len &&
            (!whole.len || memcmp(whole.data, stream.data, whole.len) == 0));
    vt_buf_release(&whole);
    vt_buf_release(&stream);
}

/* ---- a tokenizer.json from choices ---- */

typedef struct choices {
    const uint8_t *data;
    size_t n;
} choices;

static unsigned choose(choices *c, unsigned n)
{
    if (c->n == 0)
        return 0;
    c->n--;
    return *c->data++ % n;
}

static const char *const strings[] = {
    "a",      "b",        "ab", " ",  "\xE2\x96\x81", "<s>", "</s>", "\xC3\xA9", "e\xCC\x81",
    "<0x41>", "\xC4\xA0", "1",  "  ", "a<s>",         "\\n", "<s",   ""};
static const char *const regexes[] = {
    "\\\\s+", "a*",     "(?:a|ab)*b", "\\\\p{L}+",
    "[^a]",   "(?=b)",  "^",          "\\\\d{1,3}(?=(?:\\\\d{3})*\\\\b)",
    "(){9}",  " ?[^ ]+"};
static const char *const bools[] = {"false", "true"};

static const char *string(choices *c)
{
    return strings[choose(c, sizeof strings / sizeof *strings)];
}
static const char *truth(choices *c) { return bools[choose(c, 2)]; }

static void put_pattern(choices *c, vt_buf *b)
{
    if (choose(c, 2))
        vt_buf_printf(b, "\"pattern\":{\"Regex\":\"%s\"}",
                      regexes[choose(c, sizeof regexes / sizeof *regexes)]);
    else
        vt_buf_printf(b, "\"pattern\":{\"String\":\"%s\"}", string(c));
}

static void put_normalizer(choices *c, vt_buf *b)
{
    static const char *const types[] = {"NFD",       "NFC",          "NFKD",      "NFKC",
                                        "Lowercase", "StripAccents", "Strip",     "Prepend",
                                        "Replace",   "Replace",      "ByteLevel", "BertNormalizer"};
    vt_buf_printf(b, "{\"type\":\"%s\",\"strip_left\":%s,\"prepend\":\"%s\",\"content\":\"%s\",",
                  types[choose(c, 12)], truth(c), string(c), string(c));
    put_pattern(c, b);
    vt_buf_putc(b, '}');
}

static void put_pre_tokenizer(choices *c, vt_buf *b)
{
    static const char *const types[] = {
        "Split",       "Split",      "ByteLevel",       "Metaspace",        "Digits",
        "Punctuation", "Whitespace", "WhitespaceSplit", "BertPreTokenizer", "CharDelimiterSplit",
        "FixedLength"};
    static const char *const behaviours[] = {"Removed", "Isolated", "MergedWithPrevious",
                                             "MergedWithNext", "Contiguous"};
    static const char *const schemes[] = {"always", "first", "never"};
    vt_buf_printf(b,
                  "{\"type\":\"%s\",\"behavior\":\"%s\",\"invert\":%s,\"replacement\":\"%s\","
                  "\"prepend_scheme\":\"%s\",\"individual_digits\":%s,\"delimiter\":\"%s\","
                  "\"length\":%u,\"add_prefix_space\":%s,\"use_regex\":%s,",
                  types[choose(c, 11)], behaviours[choose(c, 5)], truth(c), string(c),
                  schemes[choose(c, 3)], truth(c), string(c), 1 + choose(c, 4), truth(c), truth(c));
    put_pattern(c, b);
    vt_buf_putc(b, '}');
}

static void put_decoder(choices *c, vt_buf *b)
{
    static const char *const types[] = {"ByteLevel", "Metaspace", "ByteFallback",
                                        "Fuse",      "Strip",     "Replace"};
    vt_buf_printf(b,
                  "{\"type\":\"%s\",\"replacement\":\"%s\",\"content\":\"%s\",\"start\":%u,"
                  "\"stop\":%u,\"pattern\":{\"String\":\"%s\"}}",
                  types[choose(c, 6)], string(c), string(c), choose(c, 3), choose(c, 3), string(c));
}

static void put_sequence(choices *c, vt_buf *b, const char *name, const char *members,
                         void (*put)(choices *, vt_buf *))
{
    vt_buf_printf(b, ",\"%s\":{\"type\":\"Sequence\",\"%s\":[", name, members);
    unsigned n = choose(c, 5);
    for (unsigned i = 0; i < n; i++) {
        if (i)
            vt_buf_putc(b, ',');
        put(c, b);
    }
    vt_buf_puts(b, "]}");
}

static void put_added(choices *c, vt_buf *b)
{
    vt_buf_puts(b, ",\"added_tokens\":[");
    unsigned n = choose(c, 6);
    for (unsigned i = 0; i < n; i++)
        vt_buf_printf(b,
                      "%s{\"content\":\"%s%s\",\"special\":%s,\"lstrip\":%s,\"rstrip\":%s,"
                      "\"single_word\":%s,\"normalized\":%s}",
                      i ? "," : "", string(c), string(c), truth(c), truth(c), truth(c), truth(c),
                      truth(c));
    vt_buf_putc(b, ']');
}

static void build(choices *c, vt_buf *b)
{
    vt_buf_printf(b,
                  "{\"model\":{\"type\":\"BPE\",\"fuse_unk\":%s,\"byte_fallback\":%s,"
                  "\"ignore_merges\":%s",
                  truth(c), truth(c), truth(c));
    vt_buf_printf(b, ",\"continuing_subword_prefix\":\"%s\"", choose(c, 8) ? "" : "##");
    vt_buf_printf(b, ",\"end_of_word_suffix\":\"%s\"", choose(c, 8) ? "" : "</w>");
    vt_buf_puts(b, ",\"unk_token\":\"?\",\"vocab\":{\"?\":0");
    static const char *const pieces[] = {"a",
                                         "b",
                                         "c",
                                         "ab",
                                         "abc",
                                         "1",
                                         "\xC4\xA0",
                                         "\xC4\xA0"
                                         "a",
                                         "\xE2\x96\x81",
                                         "\xE2\x96\x81"
                                         "a",
                                         "\xC3\xA9",
                                         "<0x41>",
                                         "<0xC3>",
                                         "<0xA9>",
                                         " ",
                                         "\\n",
                                         "e",
                                         "\xCC\x81",
                                         "##a",
                                         "a</w>"};
    for (unsigned i = 0, id = 1; i < 20; i++)
        if (choose(c, 4))
            vt_buf_printf(b, ",\"%s\":%u", pieces[i], id++);
    vt_buf_printf(b, "},\"merges\":[%s]}", choose(c, 2) ? "[\"a\",\"b\"]" : "");
    put_sequence(c, b, "normalizer", "normalizers", put_normalizer);
    put_sequence(c, b, "pre_tokenizer", "pretokenizers", put_pre_tokenizer);
    put_sequence(c, b, "decoder", "decoders", put_decoder);
    put_added(c, b);
    if (choose(c, 3) == 0)
        vt_buf_puts(b, ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":["
                       "{\"SpecialToken\":{\"id\":\"x\"}},{\"Sequence\":{\"id\":\"A\"}}],"
                       "\"special_tokens\":{\"x\":{\"ids\":[0]}}}");
    vt_buf_putc(b, '}');
}

/* Loads what the choices say; the rest of them is the text, some of it in fragments. */
static vt_status load_built(const uint8_t *data, size_t size, vt_tokenizer **t, vt_buf *text,
                            vt_err *err)
{
    choices c = {data, size};
    vt_buf json;
    vt_buf_init(&json, 0);
    build(&c, &json);
    for (size_t i = 0; i < c.n; i++)
        if (c.data[i] < 128)
            vt_buf_putc(text, (char)c.data[i]);
        else
            vt_buf_puts(text, c.data[i] == 255 ? "\xFF" : strings[c.data[i] % 16]);
    vt_status status = vt_tokenizer_from_json("fuzz", json.data, json.len, NULL, 0, t, err);
    require(status != VT_ERR_FORMAT || !strstr(err->message, "not JSON"));
    vt_buf_release(&json);
    return status;
}

/* ---- what every tokenizer must do ---- */

static void exercise(const vt_tokenizer *t, const char *text, size_t n)
{
    for (unsigned flags = 0; flags < 4; flags++) {
        vt_ids ids = {0};
        vt_err err = {0};
        vt_status status = vt_tokenizer_encode(t, text, n, flags, &ids, &err);
        require(status == VT_OK || err.message[0]);
        for (size_t i = 0; i < ids.n; i++)
            require(ids.id[i] >= 0 && ids.id[i] < vt_tokenizer_vocab(t));
        decode_both_ways(t, &ids);
        size_t plain = ids.n;
        vt_text_range part[2] = {{n / 4, n / 3}, {n / 2, n}};
        status = vt_tokenizer_encode_literal(t, text, n, flags, part, 2, &ids, &err);
        require(status == VT_OK ? ids.n >= plain : ids.n == plain && err.message[0]);
        for (size_t i = 0; i < ids.n; i++)
            require(ids.id[i] >= 0 && ids.id[i] < vt_tokenizer_vocab(t));
        vt_ids_release(&ids);
    }
    vt_ids every = {0};
    vt_buf piece;
    vt_buf_init(&piece, 0);
    every.n = (size_t)vt_tokenizer_vocab(t) < 2000 ? (size_t)vt_tokenizer_vocab(t) : 2000;
    every.id = malloc((every.n + 1) * sizeof *every.id);
    for (size_t i = 0; every.id && i < every.n; i++) {
        every.id[i] = (int32_t)i;
        require(vt_tokenizer_piece(t, (int32_t)i, &piece));
    }
    if (every.id)
        decode_both_ways(t, &every);
    vt_buf_release(&piece);
    vt_ids_release(&every);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    vt_tokenizer *t = NULL;
    vt_err err = {0};
    const char *text = (const char *)data;
    size_t n = size;
    vt_status status;
    vt_buf made;
    vt_buf_init(&made, 0);
    if (size >= 3 && (data[0] == 'j' || data[0] == 't' || data[0] == 'v')) {
        size_t len = data[1] | (size_t)data[2] << 8;
        len = len < size - 3 ? len : size - 3;
        const char *file = text + 3;
        text = file + len;
        n = size - 3 - len;
        status = data[0] == 'j' ? vt_tokenizer_from_json("fuzz", file, len, file, len, &t, &err)
                 : data[0] == 'v'
                     ? vt_tokenizer_from_vocab("fuzz", file, len, NULL, 0, &t, &err)
                     : vt_tokenizer_from_tiktoken("fuzz", file, len, file, len, &t, &err);
    } else if (size >= 1 && data[0] == 'g') {
        gguf_file *f;
        if (gguf_open_bytes("fuzz", data + 1, size - 1, &f, &err) != VT_OK)
            return 0;
        status = vt_tokenizer_from_gguf(f, &t, &err);
        gguf_close(f);
        n = size < 200 ? size : 200;
        text += size - n;
    } else if (size >= 1 && data[0] == 'b') {
        status = load_built(data + 1, size - 1, &t, &made, &err);
        text = made.data ? made.data : "";
        n = made.len;
    } else {
        status = vt_tokenizer_synthetic(500, &t, &err);
    }
    require(status == VT_OK ? t != NULL : err.message[0] != 0);
    if (t)
        exercise(t, text, n);
    vt_tokenizer_free(t);
    vt_buf_release(&made);
    return 0;
}
