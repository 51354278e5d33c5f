/* Calls as Gemma 4 writes them, call:N{k:<|"|>text<|"|>,n:42,l:[..],o:{k:..}}, as names and JSON
 * arguments (inside.h). Strings stand between two quotes of their own, without escapes; keys have
 * none, or such quotes. */
#include <ctype.h>
#include <string.h>

#include "text/answer/inside.h"

enum { MAX_DEPTH = 64 };

static const char quote[] = "<|\"|>";

typedef struct gemma {
    const char *at, *end;
    int depth;
} gemma;

static char peek(gemma *g)
{
    while (g->at < g->end && isspace((unsigned char)*g->at))
        g->at++;
    return g->at < g->end ? *g->at : 0;
}

static bool eat(gemma *g, const char *word)
{
    size_t n = strlen(word);
    peek(g);
    if ((size_t)(g->end - g->at) < n || memcmp(g->at, word, n) != 0)
        return false;
    g->at += n;
    return true;
}

/* The text up to one of these characters, without white space behind it. */
static bool word(gemma *g, const char *stops, const char **s, size_t *n)
{
    peek(g);
    *s = g->at;
    while (g->at < g->end && !(*g->at && strchr(stops, *g->at)))
        g->at++;
    *n = (size_t)(g->at - *s);
    while (*n > 0 && isspace((unsigned char)(*s)[*n - 1]))
        --*n;
    return *n > 0;
}

/* The text up to the closing quote; the opening one was eaten. */
static bool string(gemma *g, vt_buf *out)
{
    const char *end = memmem(g->at, (size_t)(g->end - g->at), quote, sizeof quote - 1);
    if (!end || !calls_quote(out, g->at, (size_t)(end - g->at)))
        return false;
    g->at = end + sizeof quote - 1;
    return true;
}

static bool value(gemma *g, vt_buf *out);

/* Items up to a closing bracket; those of an object have keys. */
static bool items(gemma *g, bool object, vt_buf *out)
{
    const char *close = object ? "}" : "]", *s;
    size_t n;
    vt_buf_putc(out, object ? '{' : '[');
    for (int i = 0; !eat(g, close); i++) {
        if (i > 0 && !eat(g, ","))
            return false;
        if (i > 0)
            vt_buf_puts(out, ", ");
        if (object && eat(g, quote) ? !string(g, out)
                                    : object && !(word(g, ":", &s, &n) && calls_quote(out, s, n)))
            return false;
        if (object && (!eat(g, ":") || !vt_buf_puts(out, ": ")))
            return false;
        if (!value(g, out))
            return false;
    }
    return vt_buf_puts(out, close);
}

static bool value(gemma *g, vt_buf *out)
{
    const char *s;
    size_t n;
    if (eat(g, quote))
        return string(g, out);
    if (g->depth == MAX_DEPTH)
        return false;
    if (peek(g) == '{' || peek(g) == '[') {
        bool object = *g->at++ == '{';
        g->depth++;
        bool ok = items(g, object, out);
        g->depth--;
        return ok;
    }
    return word(g, ",}]", &s, &n) && calls_value(out, 0, s, n);
}

bool gemma_read(vt_answer_reader *r, const char *text, size_t n)
{
    gemma g = {text, text + n, 0};
    vt_buf calls, arguments;
    const char *name;
    size_t n_name;
    vt_buf_init(&calls, 0);
    vt_buf_init(&arguments, 0);
    bool ok = eat(&g, "call:") && word(&g, "{", &name, &n_name) && eat(&g, "{") &&
              items(&g, true, &arguments) && peek(&g) == 0 && g.at == g.end &&
              calls_add(&calls, name, n_name, arguments.data, arguments.len) &&
              calls_tell(r, &calls);
    vt_buf_release(&arguments);
    vt_buf_release(&calls);
    return ok;
}
