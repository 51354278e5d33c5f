/* Calls in Python's spelling, [f(a=1, b="x"), g()], as names and JSON arguments (inside.h). Also
 * Llama's own tools, f.call(a="x"), OLMo's calls without a list, one a line, and a list of JSON
 * calls, which LFM2 writes if asked to. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "files/json.h"
#include "text/answer/inside.h"

enum { MAX_DEPTH = 64 };

typedef struct python {
    const char *at, *end;
    int depth;
} python;

static char peek(python *p)
{
    while (p->at < p->end && isspace((unsigned char)*p->at))
        p->at++;
    return p->at < p->end ? *p->at : 0;
}

static bool eat(python *p, char c)
{
    bool is = peek(p) == c && p->at < p->end;
    p->at += is;
    return is;
}

static bool name_of(python *p, const char **name, size_t *n)
{
    peek(p);
    *name = p->at;
    while (p->at < p->end &&
           (isalnum((unsigned char)*p->at) || *p->at == '_' || *p->at == '.' || *p->at == '-'))
        p->at++;
    *n = (size_t)(p->at - *name);
    return *n > 0 && !isdigit((unsigned char)**name);
}

static bool read_hex(python *p, int digits, vt_buf *text)
{
    char hex[9] = {0}, out[4], *stop;
    if (p->end - p->at < digits)
        return false;
    memcpy(hex, p->at, (size_t)digits);
    unsigned long code = strtoul(hex, &stop, 16);
    if (stop != hex + digits || !isxdigit((unsigned char)hex[0]) || code > 0x10FFFF ||
        (code >= 0xD800 && code < 0xE000))
        return false;
    p->at += digits;
    return vt_buf_add(text, out, (size_t)vt_utf8_put((uint32_t)code, out));
}

static bool read_escape(python *p, vt_buf *text)
{
    static const char from[] = "nrtbf\\'\"", to[] = "\n\r\t\b\f\\'\"";
    if (p->at >= p->end)
        return false;
    char c = *p->at++;
    const char *known = c ? strchr(from, c) : NULL;
    if (known)
        return vt_buf_putc(text, to[known - from]);
    if (c == 'x' || c == 'u' || c == 'U')
        return read_hex(p, c == 'x' ? 2 : c == 'u' ? 4 : 8, text);
    return vt_buf_putc(text, '\\') && vt_buf_putc(text, c); /* as Python does */
}

static bool read_string(python *p, vt_buf *out)
{
    char quote = *p->at++;
    vt_buf text;
    vt_buf_init(&text, 0);
    bool ok = true;
    while (ok && p->at < p->end && *p->at != quote) {
        char c = *p->at++;
        ok = c == '\\' ? read_escape(p, &text) : vt_buf_putc(&text, c);
    }
    ok = ok && p->at < p->end;
    p->at += ok;
    ok = ok && calls_quote(out, text.data ? text.data : "", text.len);
    vt_buf_release(&text);
    return ok;
}

static bool read_word(python *p, vt_buf *out)
{
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"},
                                           {"true", "true"}, {"false", "false"}, {"null", "null"}};
    const char *begin = p->at;
    while (p->at < p->end && (isalnum((unsigned char)*p->at) || strchr("+-._", *p->at)))
        p->at++;
    size_t n = (size_t)(p->at - begin);
    for (int i = 0; i < 6; i++)
        if (strlen(words[i][0]) == n && memcmp(begin, words[i][0], n) == 0)
            return vt_buf_puts(out, words[i][1]);
    json_t *number = n > 0 ? json_loadb(begin, n, CALLS_JSON, NULL) : NULL;
    bool is = json_is_number(number);
    json_decref(number);
    return is && vt_buf_add(out, begin, n);
}

static bool read_value(python *p, vt_buf *out);

/* Values up to a closing bracket; in a dict each has a string and a colon in front. */
static bool read_items(python *p, char close, vt_buf *out)
{
    bool dict = close == '}';
    p->at++;
    vt_buf_putc(out, dict ? '{' : '[');
    for (int i = 0; !eat(p, close); i++) {
        if (i > 0 && !eat(p, ','))
            return false;
        if (i > 0 && eat(p, close))
            break;
        if (i > 0)
            vt_buf_puts(out, ", ");
        if (dict) {
            if ((peek(p) != '"' && peek(p) != '\'') || !read_string(p, out) || !eat(p, ':'))
                return false;
            vt_buf_puts(out, ": ");
        }
        if (!read_value(p, out))
            return false;
    }
    return vt_buf_putc(out, dict ? '}' : ']');
}

static bool read_value(python *p, vt_buf *out)
{
    if (p->depth >= MAX_DEPTH)
        return false;
    p->depth++;
    char c = peek(p);
    bool ok = c == '"' || c == '\'' ? read_string(p, out)
              : c == '['            ? read_items(p, ']', out)
              : c == '('            ? read_items(p, ')', out)
              : c == '{'            ? read_items(p, '}', out)
                                    : read_word(p, out);
    p->depth--;
    return ok;
}

static bool read_call(python *p, vt_buf *arguments, const char **name, size_t *n)
{
    const char *key;
    size_t n_key;
    if (!name_of(p, name, n) || !eat(p, '('))
        return false;
    vt_buf_putc(arguments, '{');
    for (int i = 0; !eat(p, ')'); i++) {
        if (i > 0 && !eat(p, ','))
            return false;
        if (i > 0 && eat(p, ')'))
            break;
        if (i > 0)
            vt_buf_puts(arguments, ", ");
        if (!name_of(p, &key, &n_key) || !eat(p, '=') || !calls_quote(arguments, key, n_key))
            return false;
        vt_buf_puts(arguments, ": ");
        if (!read_value(p, arguments))
            return false;
    }
    return vt_buf_putc(arguments, '}');
}

/* Calls stand in a list, or without one between semicolons, or one a line where `lines`. */
static bool read_calls(python *p, bool lines, vt_buf *calls)
{
    bool list = eat(p, '['), ok = peek(p) != ']';
    for (bool more = true; ok && more;) {
        static const char call[] = ".call";
        const char *name;
        size_t n, n_call = sizeof call - 1;
        vt_buf arguments;
        vt_buf_init(&arguments, 0);
        ok = read_call(p, &arguments, &name, &n);
        if (ok && !list && n > n_call && memcmp(name + n - n_call, call, n_call) == 0)
            n -= n_call;
        ok = ok && calls_add(calls, name, n, arguments.data, arguments.len);
        vt_buf_release(&arguments);
        more = ok && (eat(p, list ? ',' : ';') || (lines && !list && peek(p)));
    }
    ok = ok && (!list || eat(p, ']'));
    peek(p);
    return ok && p->at == p->end;
}

/* A list of JSON objects, each with a name and arguments. */
static bool read_json(const char *text, size_t n, vt_buf *calls)
{
    json_t *list = vt_json_parse(text, n, JSON_REJECT_DUPLICATES, NULL);
    bool ok = json_array_size(list) > 0;
    for (size_t i = 0; ok && i < json_array_size(list); i++) {
        const json_t *call = json_array_get(list, i), *name = json_object_get(call, "name");
        const json_t *a = json_object_get(call, "arguments");
        char *arguments = a ? json_dumps(a, JSON_ENCODE_ANY) : strdup("{}");
        ok = json_is_string(name) && arguments &&
             calls_add(calls, json_string_value(name), json_string_length(name), arguments,
                       strlen(arguments));
        free(arguments);
    }
    json_decref(list);
    return ok;
}

bool pythonic_read(vt_answer_reader *r, const char *text, size_t n)
{
    python p = {text, text + n, 0};
    vt_buf calls;
    vt_buf_init(&calls, 0);
    bool ok = read_calls(&p, r->form == VT_CALLS_OLMO, &calls);
    if (!ok) {
        vt_buf_clear(&calls);
        ok = read_json(text, n, &calls);
    }
    ok = ok && calls_tell(r, &calls);
    vt_buf_release(&calls);
    return ok;
}
