/* The bodies of tool calls as names and JSON arguments (answer.h). JSON arguments pass through as
 * the model wrote them: jansson only says that they are an object. */
#include <stdlib.h>
#include <string.h>

#include "text/answer/answer.h"

bool vt_calls_add(vt_buf *out, const char *name, size_t n_name, const char *arguments, size_t n)
{
    const size_t lengths[2] = {n_name, n};
    json_t *object = json_loadb(arguments, n, JSON_ALLOW_NUL, NULL);
    bool is = json_is_object(object); /* not where a key holds U+0000, which few readers take */
    json_decref(object);
    if (!is || n_name == 0 || n_name > VT_CALL_MAX_NAME)
        return false;
    vt_buf_add(out, lengths, sizeof lengths);
    vt_buf_add(out, name, n_name);
    return vt_buf_add(out, arguments, n);
}

bool vt_calls_quote(vt_buf *out, const char *s, size_t n)
{
    json_t *text = json_stringn(s, n);
    char *quoted = text ? json_dumps(text, JSON_ENCODE_ANY) : NULL;
    bool ok = quoted && vt_buf_puts(out, quoted);
    free(quoted);
    json_decref(text);
    return ok;
}

/* ---- JSON ---- */

static size_t skip_blank(const char *s, size_t at, size_t n)
{
    while (at < n && (s[at] == ' ' || s[at] == '\n' || s[at] == '\t' || s[at] == '\r'))
        at++;
    return at;
}

/* The end of the JSON value that begins at `at`, in a text that is known to be JSON. */
static size_t value_end(const char *s, size_t at, size_t n)
{
    int depth = 0;
    bool in = false;
    for (; at < n; at++) {
        char c = s[at];
        if (in) {
            at += c == '\\';
            in = c != '"';
        } else if (c == '"') {
            in = true;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if (c == '}' || c == ']') {
            if (--depth < 0)
                return at;
        } else if (c == ',' || c == ':') {
            if (depth == 0)
                return at;
            continue;
        } else {
            continue;
        }
        if (depth == 0 && !in && (c == '}' || c == ']' || c == '"'))
            return at + 1;
    }
    return n;
}

/* The text of a member of an object whose text is s. */
static bool find_member(const char *s, size_t n, const char *name, const char **value, size_t *len)
{
    size_t n_name = strlen(name);
    size_t at = skip_blank(s, skip_blank(s, 0, n) + 1, n); /* behind the brace */
    while (at < n && s[at] == '"') {
        size_t key = at, key_end = value_end(s, at, n);
        at = skip_blank(s, skip_blank(s, key_end, n) + 1, n);
        size_t end = value_end(s, at, n);
        if (key_end - key == n_name + 2 && memcmp(s + key + 1, name, n_name) == 0) {
            *value = s + at;
            *len = end - at;
            return true;
        }
        at = skip_blank(s, skip_blank(s, end, n) + 1, n);
    }
    return false;
}

static bool is_tool(const json_t *tools, const char *name, size_t n)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *f = json_object_get(json_array_get(tools, i), "function");
        const json_t *known = json_object_get(f, "name");
        if (json_string_length(known) == n && memcmp(json_string_value(known), name, n) == 0)
            return true;
    }
    return false;
}

/* One call that is a JSON object, already parsed as `call`. */
static bool add_json(const vt_answer_reader *r, const json_t *call, const char *s, size_t n,
                     vt_buf *out)
{
    const json_t *name = json_object_get(call, "name");
    const json_t *a = json_object_get(call, "arguments");
    const char *value;
    size_t len;
    const char *member = a ? "arguments" : "parameters";
    a = a ? a : json_object_get(call, member);
    if (!json_is_string(name) || (a && !json_is_object(a)))
        return false;
    const char *text = json_string_value(name);
    /* without a marker in front only the name tells a call from other JSON */
    if (r->form != VT_CALLS_HERMES && (!a || !is_tool(r->tools, text, json_string_length(name))))
        return false;
    if (!a)
        return vt_calls_add(out, text, json_string_length(name), "{}", 2);
    return find_member(s, n, member, &value, &len) &&
           vt_calls_add(out, text, json_string_length(name), value, len);
}

static json_t *load(const char *s, size_t n)
{
    return json_loadb(s, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
}

static bool read_object(const vt_answer_reader *r, const char *s, size_t n, vt_buf *out)
{
    json_t *call = load(s, n);
    bool is = json_is_object(call) && add_json(r, call, s, n, out);
    json_decref(call);
    return is;
}

/* Objects one after another, with `between` and white space between them. */
static bool read_objects(const vt_answer_reader *r, const char *s, size_t n, char between,
                         vt_buf *out)
{
    size_t at = skip_blank(s, 0, n);
    while (at < n) {
        size_t end = value_end(s, at, n);
        if (s[at] != '{' || !read_object(r, s + at, end - at, out))
            return false;
        at = skip_blank(s, end, n);
        if (at == n)
            return true;
        if (s[at] != between)
            return false;
        at = skip_blank(s, at + 1, n);
    }
    return false;
}

static bool read_list(const vt_answer_reader *r, const char *s, size_t n, vt_buf *out)
{
    static const char marker[] = "[TOOL_CALLS]";
    if (n >= sizeof marker - 1 && memcmp(s, marker, sizeof marker - 1) == 0) {
        s += sizeof marker - 1;
        n -= sizeof marker - 1;
    }
    size_t at = skip_blank(s, 0, n);
    while (n > at && skip_blank(s, n - 1, n) == n)
        n--;
    return n > at + 1 && s[at] == '[' && s[n - 1] == ']' &&
           read_objects(r, s + at + 1, n - at - 2, ',', out);
}

/* ---- XML ---- */

/* The schema's type of a tool's parameter: whether it allows a string; -1: not known. */
static int allows_string(const json_t *tools, const char *tool, size_t n_tool, const char *key,
                         size_t n_key)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *f = json_object_get(json_array_get(tools, i), "function");
        const json_t *name = json_object_get(f, "name");
        if (json_string_length(name) != n_tool ||
            memcmp(json_string_value(name), tool, n_tool) != 0)
            continue;
        const json_t *all = json_object_get(json_object_get(f, "parameters"), "properties");
        const json_t *type = json_object_get(json_object_getn(all, key, n_key), "type");
        if (json_is_string(type))
            return strcmp(json_string_value(type), "string") == 0;
    }
    return -1;
}

static bool add_value(const vt_answer_reader *r, const char *tool, size_t n_tool, const char *key,
                      size_t n_key, const char *v, size_t n, vt_buf *out)
{
    static const char *const python[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    int string = allows_string(r->tools, tool, n_tool, key, n_key);
    if (string == 1)
        return vt_calls_quote(out, v, n);
    for (int i = 0; i < 3; i++)
        if (strlen(python[i][0]) == n && memcmp(v, python[i][0], n) == 0)
            return vt_buf_puts(out, python[i][1]);
    json_t *value = json_loadb(v, n, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
    bool as_it_is = value && !(string < 0 && json_is_string(value));
    json_decref(value);
    return as_it_is ? vt_buf_add(out, v, n) : vt_calls_quote(out, v, n);
}

typedef struct cursor {
    const char *s;
    size_t at, n;
} cursor;

static bool eat(cursor *c, const char *word)
{
    size_t n = strlen(word);
    c->at = skip_blank(c->s, c->at, c->n);
    if (c->n - c->at < n || memcmp(c->s + c->at, word, n) != 0)
        return false;
    c->at += n;
    return true;
}

/* The name up to the next '>'. */
static bool eat_name(cursor *c, const char **name, size_t *n)
{
    const char *end = memchr(c->s + c->at, '>', c->n - c->at);
    if (!end || end == c->s + c->at)
        return false;
    *name = c->s + c->at;
    *n = (size_t)(end - *name);
    c->at += *n + 1;
    return true;
}

/* The raw text of an argument, up to a closing tag that another argument or the end follows. */
static bool eat_value(cursor *c, const char **v, size_t *n)
{
    static const char close[] = "</parameter>";
    const char *begin = c->s + c->at, *end = c->s + c->n, *at = begin;
    while ((at = memmem(at, (size_t)(end - at), close, sizeof close - 1))) {
        cursor next = {c->s, (size_t)(at - c->s) + sizeof close - 1, c->n};
        cursor same = next;
        if (eat(&next, "<parameter=") || eat(&next, "</function>")) {
            *v = begin + (begin < at && *begin == '\n');
            *n = (size_t)(at - *v);
            *n -= *n > 0 && (*v)[*n - 1] == '\n';
            *c = same;
            return true;
        }
        at++;
    }
    return false;
}

static bool read_xml(const vt_answer_reader *r, const char *s, size_t n, vt_buf *out)
{
    cursor c = {s, 0, n};
    const char *name, *key, *v;
    size_t n_name, n_key, n_v;
    vt_buf arguments;
    if (!eat(&c, "<function=") || !eat_name(&c, &name, &n_name))
        return false;
    vt_buf_init(&arguments, 0);
    vt_buf_putc(&arguments, '{');
    bool ok = true;
    while (ok && eat(&c, "<parameter=")) {
        ok = eat_name(&c, &key, &n_key) && eat_value(&c, &v, &n_v);
        if (!ok)
            break;
        if (arguments.len > 1)
            vt_buf_puts(&arguments, ", ");
        ok = vt_calls_quote(&arguments, key, n_key) && vt_buf_puts(&arguments, ": ") &&
             add_value(r, name, n_name, key, n_key, v, n_v, &arguments);
    }
    ok = ok && eat(&c, "</function>") && skip_blank(s, c.at, n) == n &&
         vt_buf_putc(&arguments, '}') &&
         vt_calls_add(out, name, n_name, arguments.data, arguments.len);
    vt_buf_release(&arguments);
    return ok;
}

/* ---- any form ---- */

/* Only calls of the request's tools are calls, where no marker tells them from text. */
static bool all_are_tools(const vt_answer_reader *r, const vt_buf *calls)
{
    for (size_t at = 0; at < calls->len;) {
        size_t n[2];
        memcpy(n, calls->data + at, sizeof n);
        if (!is_tool(r->tools, calls->data + at + sizeof n, n[0]))
            return false;
        at += sizeof n + n[0] + n[1];
    }
    return true;
}

bool vt_calls_read(const vt_answer_reader *r, const char *text, size_t n, vt_buf *out)
{
    switch (r->form) {
    case VT_CALLS_HERMES: {
        size_t at = skip_blank(text, 0, n);
        return read_object(r, text + at, n - at, out);
    }
    case VT_CALLS_XML:
        return read_xml(r, text, n, out);
    case VT_CALLS_LLAMA:
        return read_objects(r, text, n, ';', out);
    case VT_CALLS_PYTHONIC:
        return vt_calls_read_pythonic(text, n, out) && all_are_tools(r, out);
    case VT_CALLS_MISTRAL:
        return read_list(r, text, n, out);
    default:
        return false;
    }
}
