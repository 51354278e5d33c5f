#include "grammar_vocab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

static const char *const more[] = {"ab",
                                   "abc",
                                   "name",
                                   "na",
                                   "me\"",
                                   "\"name",
                                   "\"name\"",
                                   "\": ",
                                   "\":",
                                   "\", \"",
                                   "\",",
                                   "\"}",
                                   "\"]",
                                   "\"]}",
                                   "}}",
                                   "]}",
                                   "]]",
                                   "}]",
                                   "{\"",
                                   "[\"",
                                   "[[",
                                   "[{",
                                   "{}",
                                   "[]",
                                   ", ",
                                   ", \"",
                                   ",\"",
                                   " \"",
                                   " {",
                                   " [",
                                   "12",
                                   "123",
                                   "00",
                                   "0.",
                                   ".5",
                                   "-1",
                                   "1,",
                                   "1}",
                                   "1]",
                                   "true",
                                   "false",
                                   "null",
                                   "tru",
                                   "e,",
                                   "\n  ",
                                   "\n",
                                   "\\n",
                                   "\\\"",
                                   "\\u",
                                   "\\u00",
                                   "00e9",
                                   "  ",
                                   "    ",
                                   " the",
                                   "the",
                                   " cat",
                                   "aaaa",
                                   "aaaaaaaa",
                                   "a\"",
                                   "aa\"",
                                   "aaa\", \"",
                                   "é",
                                   "éé",
                                   "漢字",
                                   "漢",
                                   "é\"",
                                   "x\"y",
                                   "\"\"",
                                   "{\"a\"",
                                   "\"a\":",
                                   "\"b\"",
                                   "2024-",
                                   "-02-",
                                   "@",
                                   ".com",
                                   "http",
                                   "://",
                                   "\xC3",
                                   "\xA9\"",
                                   "\xE6\xBC",
                                   "l>\n",
                                   ">\n{",
                                   "l>\n\n",
                                   "<tool_call>",
                                   "<tool_call>x",
                                   "aaaaaaaaaaaaaaaaaaaa",
                                   "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaax",
                                   "                  x"};

/* GPT-2's characters for bytes. */
static uint32_t byte_char(int b)
{
    uint32_t extra = 256;
    for (int i = 0; i <= b; i++) {
        bool plain = (i >= 33 && i <= 126) || (i >= 161 && i <= 172) || i >= 174;
        if (i == b)
            return plain ? (uint32_t)i : extra;
        extra += !plain;
    }
    return 0;
}

static void add_token(vt_buf *b, const char *bytes, size_t n, int id)
{
    vt_buf_puts(b, id > 0 ? ",\"" : "\"");
    for (size_t i = 0; i < n; i++) {
        uint32_t c = byte_char((unsigned char)bytes[i]);
        if (c == '"' || c == '\\')
            vt_buf_putc(b, '\\');
        vt_utf8_add(b, c);
    }
    vt_buf_printf(b, "\":%d", id);
}

vt_tokenizer *grammar_test_tokenizer(void)
{
    enum { N = sizeof more / sizeof *more };
    vt_buf b = {0};
    vt_tokenizer *t = NULL;
    vt_err err;
    int n = 256;
    vt_buf_printf(&b,
                  "{\"added_tokens\":[{\"id\":%d,\"content\":\"<|end|>\",\"special\":true}],"
                  "\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\","
                  "\"add_prefix_space\":false,\"use_regex\":true},"
                  "\"decoder\":{\"type\":\"ByteLevel\"},"
                  "\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{",
                  256 + N);
    for (int i = 0; i < 256; i++)
        add_token(&b, (char[]){(char)i}, 1, i);
    for (int i = 0; i < N; i++)
        add_token(&b, more[i], strlen(more[i]), n++);
    vt_buf_printf(&b, ",\"<|end|>\":%d}}}", n);
    static const char config[] = "{\"eos_token\":\"<|end|>\"}";
    vt_status status = vt_tokenizer_from_json("test", b.data, b.len, config, sizeof config - 1, &t,
                                              &err);
    if (status != VT_OK)
        fprintf(stderr, "%s\n", err.message);
    vt_buf_release(&b);
    return status == VT_OK ? t : NULL;
}
