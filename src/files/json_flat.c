/* JSON into a flat array of nodes, by recursive descent, RFC 8259 without extensions.
 *
 *   {"a":[1,"x"]}  ->  [object next=5] [string a] [array next=5] [1] [string x]
 *
 * A tokenizer.json is a vocabulary and its merges: half a million short strings. A general DOM has
 * a hash table per object and an allocation per string: jansson takes 170 ms for Qwen2's (11 MB,
 * 0.76 million values). This reader allocates only the array, and copies of strings with escapes:
 * 27 ms.
 */
#include "files/json_flat.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

enum { VT_FLAT_MAX_DEPTH = 64 };
static const uint32_t VT_FLAT_MAX_NODES = 1u << 24; /* 384 MiB of nodes; Gemma 3 has 2.3 million */

typedef struct flat_reader {
    const char *name, *text, *at, *end;
    vt_flat_doc *doc;
    vt_err *err;
} flat_reader;

static vt_status bad(flat_reader *r, const char *what)
{
    size_t line = 1;
    for (const char *p = r->text; p < r->at && p < r->end; p++)
        line += *p == '\n';
    return vt_fail(r->err, VT_ERR_FORMAT, "%s: line %zu, byte %zu: not JSON: %s", r->name, line,
                   (size_t)(r->at - r->text), what);
}

static vt_status new_node(flat_reader *r, vt_flat_type type, uint32_t *index)
{
    vt_flat_doc *d = r->doc;
    if (d->n == d->cap) {
        uint32_t cap = d->cap ? d->cap * 2 : 1024;
        vt_flat_node *grown = cap > VT_FLAT_MAX_NODES
                                  ? NULL
                                  : realloc(d->node, (size_t)cap * sizeof *grown);
        if (!grown)
            return vt_fail(r->err, VT_ERR_MEMORY, "%s: more than %u JSON values, or out of memory",
                           r->name, d->n);
        d->node = grown;
        d->cap = cap;
    }
    *index = d->n++;
    d->node[*index] = (vt_flat_node){.type = type, .next = d->n};
    return VT_OK;
}

static void skip_space(flat_reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\t' || *r->at == '\r'))
        r->at++;
}

static bool four_hex(flat_reader *r, uint32_t *value)
{
    *value = 0;
    if (r->end - r->at < 4)
        return false;
    for (int i = 0; i < 4; i++) {
        char c = *r->at++;
        uint32_t digit = c >= '0' && c <= '9' ? (uint32_t)(c - '0') : ((uint32_t)c | 32) - 'a' + 10;
        if (digit > 15)
            return false;
        *value = *value * 16 + digit;
    }
    return true;
}

/* After a backslash: writes the character to out. */
static vt_status read_escape(flat_reader *r, char **out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (r->at == r->end)
        return bad(r, "the text ends in a string");
    char c = *r->at++;
    const char *known = c ? strchr(from, c) : NULL;
    if (known) {
        *(*out)++ = to[known - from];
        return VT_OK;
    }
    uint32_t code, low;
    if (c != 'u' || !four_hex(r, &code))
        return bad(r, "a wrong escape in a string");
    if (code >= 0xD800 && code < 0xDC00) {
        if (r->end - r->at < 6 || r->at[0] != '\\' || r->at[1] != 'u')
            return bad(r, "half a surrogate pair in a string");
        r->at += 2;
        if (!four_hex(r, &low) || low < 0xDC00 || low > 0xDFFF)
            return bad(r, "half a surrogate pair in a string");
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else if (code >= 0xDC00 && code < 0xE000) {
        return bad(r, "half a surrogate pair in a string");
    }
    *out += vt_utf8_put(code, *out);
    return VT_OK;
}

/* After the opening quote. */
static vt_status read_string(flat_reader *r, uint32_t index)
{
    const char *start = r->at;
    while (r->at < r->end && *r->at != '"' && *r->at != '\\' && (unsigned char)*r->at >= 0x20)
        r->at++;
    if (r->at == r->end)
        return bad(r, "the text ends in a string");
    if (*r->at == '"') {
        r->doc->node[index].s = start;
        r->doc->node[index].len = (uint32_t)(r->at++ - start);
        return VT_OK;
    }
    /* With escapes: never longer than what it is written as. */
    const char *quote = r->at;
    while (quote < r->end && *quote != '"')
        quote += *quote == '\\' && quote + 1 < r->end ? 2 : 1;
    if (quote >= r->end)
        return bad(r, "the text ends in a string");
    char *made = vt_arena_alloc(&r->doc->strings, (size_t)(quote - start) + 1, 1), *out = made;
    if (!made)
        return vt_fail(r->err, VT_ERR_MEMORY, "%s: out of memory", r->name);
    r->at = start;
    while (*r->at != '"') {
        char c = *r->at++;
        if ((unsigned char)c < 0x20)
            return bad(r, "a control character in a string");
        if (c != '\\')
            *out++ = c;
        else
            TRY(read_escape(r, &out));
        if (r->at == r->end)
            return bad(r, "the text ends in a string");
    }
    r->at++;
    r->doc->node[index].s = made;
    r->doc->node[index].len = (uint32_t)(out - made);
    return VT_OK;
}

static vt_status read_number(flat_reader *r, uint32_t index)
{
    const char *start = r->at;
    bool negative = *r->at == '-', whole = true;
    r->at += negative;
    const char *digits = r->at;
    uint64_t value = 0;
    while (r->at < r->end && *r->at >= '0' && *r->at <= '9')
        value = value * 10 + (uint64_t)(*r->at++ - '0');
    if (r->at == digits || (*digits == '0' && r->at - digits > 1))
        return bad(r, "a value was expected");
    while (r->at < r->end && *r->at && strchr("0123456789.eE+-", *r->at)) {
        whole = false;
        r->at++;
    }
    double number = (double)value;
    if (!whole || r->at - digits > 18) {
        char copy[64], *stop;
        size_t n = (size_t)(r->at - start);
        if (n >= sizeof copy)
            return bad(r, "a number is too long");
        memcpy(copy, start, n);
        copy[n] = 0;
        number = strtod(copy, &stop);
        if (stop != copy + n)
            return bad(r, "a wrong number");
        negative = false;
    }
    r->doc->node[index].number = negative ? -number : number;
    return VT_OK;
}

static bool word(flat_reader *r, const char *w)
{
    size_t n = strlen(w);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, w, n) != 0)
        return false;
    r->at += n;
    return true;
}

static vt_status read_value(flat_reader *r, int depth);

static vt_status read_members(flat_reader *r, uint32_t index, bool object, int depth)
{
    char close = object ? '}' : ']';
    uint32_t count = 0, key;
    r->at++;
    skip_space(r);
    if (r->at < r->end && *r->at == close) {
        r->at++;
        return VT_OK;
    }
    for (;;) {
        if (object) {
            skip_space(r);
            if (r->at == r->end || *r->at != '"')
                return bad(r, "a key in quotes was expected");
            r->at++;
            TRY(new_node(r, VT_FLAT_STRING, &key));
            TRY(read_string(r, key));
            skip_space(r);
            if (r->at == r->end || *r->at != ':')
                return bad(r, "a colon was expected");
            r->at++;
        }
        TRY(read_value(r, depth + 1));
        count++;
        skip_space(r);
        if (r->at < r->end && *r->at == ',') {
            r->at++;
            continue;
        }
        if (r->at == r->end || *r->at != close)
            return bad(r, object ? "a comma or } was expected" : "a comma or ] was expected");
        r->at++;
        r->doc->node[index].len = count;
        r->doc->node[index].next = r->doc->n;
        return VT_OK;
    }
}

static vt_status read_value(flat_reader *r, int depth)
{
    uint32_t index;
    skip_space(r);
    if (r->at == r->end)
        return bad(r, "the text ends where a value was expected");
    if (depth > VT_FLAT_MAX_DEPTH)
        return bad(r, "nested too deep");
    switch (*r->at) {
    case '{':
    case '[': {
        bool object = *r->at == '{';
        TRY(new_node(r, object ? VT_FLAT_OBJECT : VT_FLAT_ARRAY, &index));
        return read_members(r, index, object, depth);
    }
    case '"':
        r->at++;
        TRY(new_node(r, VT_FLAT_STRING, &index));
        return read_string(r, index);
    case 't':
        return word(r, "true") ? new_node(r, VT_FLAT_TRUE, &index) : bad(r, "a value was expected");
    case 'f':
        return word(r, "false") ? new_node(r, VT_FLAT_FALSE, &index)
                                : bad(r, "a value was expected");
    case 'n':
        return word(r, "null") ? new_node(r, VT_FLAT_NULL, &index) : bad(r, "a value was expected");
    default:
        TRY(new_node(r, VT_FLAT_NUMBER, &index));
        return read_number(r, index);
    }
}

vt_status vt_flat_parse(const char *name, const char *text, size_t len, vt_flat_doc *doc,
                        vt_err *err)
{
    *doc = (vt_flat_doc){0};
    if (len > INT32_MAX)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "%s: %zu bytes of JSON are more than 2 GiB", name,
                       len);
    vt_arena_init(&doc->strings, 0);
    flat_reader r = {
        .name = name, .text = text, .at = text, .end = text + len, .doc = doc, .err = err};
    size_t good = vt_utf8_valid(text, len);
    vt_status status;
    if (good != len) {
        r.at = text + good;
        status = bad(&r, "the text is not UTF-8");
    } else {
        status = read_value(&r, 0);
        skip_space(&r);
        if (status == VT_OK && r.at != r.end)
            status = bad(&r, "text follows the value");
    }
    if (status != VT_OK)
        vt_flat_release(doc);
    return status;
}

void vt_flat_release(vt_flat_doc *doc)
{
    free(doc->node);
    vt_arena_release(&doc->strings);
    *doc = (vt_flat_doc){0};
}

const char *vt_flat_kind(const vt_flat_node *v)
{
    static const char *const kind[] = {
        [VT_FLAT_NULL] = "null",       [VT_FLAT_FALSE] = "a bool",    [VT_FLAT_TRUE] = "a bool",
        [VT_FLAT_NUMBER] = "a number", [VT_FLAT_STRING] = "a string", [VT_FLAT_ARRAY] = "an array",
        [VT_FLAT_OBJECT] = "an object"};
    return v ? kind[v->type] : "missing";
}

bool vt_flat_is(const vt_flat_node *v, const char *s)
{
    return v && v->type == VT_FLAT_STRING && v->len == strlen(s) && memcmp(v->s, s, v->len) == 0;
}

bool vt_flat_bool(const vt_flat_node *v, bool otherwise)
{
    return v && v->type == VT_FLAT_TRUE ? true : v && v->type == VT_FLAT_FALSE ? false : otherwise;
}

const vt_flat_node *vt_flat_first(const vt_flat_node *v)
{
    return v && (v->type == VT_FLAT_ARRAY || v->type == VT_FLAT_OBJECT) && v->len ? v + 1 : NULL;
}

const vt_flat_node *vt_flat_after(const vt_flat_doc *doc, const vt_flat_node *v,
                                  const vt_flat_node *c)
{
    return c->next < v->next ? doc->node + c->next : NULL;
}

const vt_flat_node *vt_flat_get(const vt_flat_doc *doc, const vt_flat_node *v, const char *key)
{
    const vt_flat_node *found = NULL;
    if (!v || v->type != VT_FLAT_OBJECT)
        return NULL;
    for (const vt_flat_node *k = vt_flat_first(v); k;) {
        const vt_flat_node *value = doc->node + k->next;
        if (vt_flat_is(k, key))
            found = value;
        k = vt_flat_after(doc, v, value);
    }
    return found && found->type != VT_FLAT_NULL ? found : NULL;
}
