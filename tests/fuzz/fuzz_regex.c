/* Patterns and texts made of fragments: compiling answers or refuses, and with the steps that
 * tokenising grants, matching ends; matches are spans of whole characters, in order.
 *
 *   first byte n: the next n bytes are the pattern, the rest is the text
 *   below 128 a byte stands for itself, above it for a fragment of the tables below */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/regex/regex.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const syntax[] = {
    "(?:",     ")",       "|",   "*",    "+",    "?",      "{2,5}",   "{1000}",   "{,3}",
    "[",       "]",       "[^",  "&&",   "-",    "\\p{L}", "\\p{N}",  "\\P{L}",   "\\p{Han}",
    "\\p{^M}", "\\s",     "\\S", "\\d",  "\\w",  "\\b",    "\\B",     "(?=",      "(?!",
    "(?<=",    "(?<!",    "(?>", "(?i:", "(?i)", "++",     "*?",      "??",       "^",
    "$",       "\\A",     "\\Z", "\\z",  ".",    "a",      "b",       "\xC3\xA9", "\xE6\xBC\xA2",
    "\\x{41}", "\\u00e9", "\\h", "(",    "{3}",  "[a-c]",  "\\p{Lu}", "\\r",      "\\n"};
static const char *const letters[] = {
    "a", "b",        " ",        "1",        "\n",      "\xC3\xA9", "\xE6\xBC\xA2",
    "A", "\xCC\x81", "aaaaaaaa", "11111111", "        "};

static void add(vt_buf *b, const uint8_t *data, size_t n, const char *const *part, size_t n_part)
{
    for (size_t i = 0; i < n; i++)
        if (data[i] < 128)
            vt_buf_putc(b, (char)data[i]);
        else
            vt_buf_puts(b, part[data[i] % n_part]);
}

static void require(bool ok)
{
    if (!ok)
        abort();
}

static bool is_border(const vt_buf *text, size_t at)
{
    return at == text->len || ((unsigned char)text->data[at] & 0xC0) != 0x80;
}

/* A block of exactly the pattern's size: a read beyond it is seen. */
static vt_regex *compile(const vt_buf *pattern)
{
    vt_regex *re = NULL;
    vt_err err = {0};
    char *copy = malloc(pattern->len ? pattern->len : 1);
    if (!copy)
        return NULL;
    if (pattern->len)
        memcpy(copy, pattern->data, pattern->len);
    vt_status status = vt_regex_compile(copy, pattern->len, &re, &err);
    require(status == VT_OK ? re != NULL : re == NULL && err.message[0]);
    free(copy);
    return re;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    vt_buf pattern, text;
    vt_regex_scratch scratch = {0};
    size_t n = size ? data[0] : 0, from = 0, start, end;
    n = n < size ? n : size ? size - 1 : 0;
    vt_buf_init(&pattern, 0);
    vt_buf_init(&text, 0);
    add(&pattern, data + 1, n, syntax, sizeof syntax / sizeof *syntax);
    if (size > n + 1)
        add(&text, data + 1 + n, size - 1 - n, letters, sizeof letters / sizeof *letters);
    vt_buf_puts(&text, "");
    vt_regex *re = compile(&pattern);
    vt_regex_scratch_begin(&scratch, text.len);
    while (re && from <= text.len &&
           vt_regex_find(re, &scratch, text.data, text.len, from, &start, &end) == 1) {
        require(start >= from && end >= start && end <= text.len);
        require(is_border(&text, start) && is_border(&text, end));
        from = end > start ? end : end + 1;
        while (from < text.len && !is_border(&text, from))
            from++;
    }
    vt_regex_scratch_release(&scratch);
    vt_regex_free(re);
    vt_buf_release(&pattern);
    vt_buf_release(&text);
    return 0;
}
