/* JSON on both sides of a template: variables in (jansson reads them), tojson out.
 *
 * tojson is Hugging Face's: json.dumps(x, ensure_ascii=False, indent=None, separators=None,
 * sort_keys=False), without jinja2's HTML escaping. Key order is kept. Integers beyond 64 bits are
 * refused on the way in.
 */
#include "text/template/template.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>

#include "base/err.h"
#include "files/json.h"
#include "text/template/builtins.h"

/* ---- in ---- */

static vt_status from_json(tpl_run *r, json_t *j, int depth, tpl_value *out);

static vt_status from_array(tpl_run *r, json_t *j, int depth, tpl_value *out)
{
    tpl_list *l;
    TRY(tpl_list_new(r, json_array_size(j), &l));
    for (size_t i = 0; i < json_array_size(j); i++)
        TRY(from_json(r, json_array_get(j, i), depth + 1, &l->at[l->n++]));
    *out = tpl_of_list(TPL_LIST, l);
    return tpl_charge(r, l->n);
}

static vt_status from_object(tpl_run *r, json_t *j, int depth, tpl_value *out)
{
    tpl_dict *d;
    const char *key;
    size_t len;
    json_t *member;
    TRY(tpl_dict_new(r, &d));
    json_object_keylen_foreach(j, key, len, member)
    {
        tpl_value k, v;
        TRY(tpl_str_copy(r, key, len, &k));
        TRY(from_json(r, member, depth + 1, &v));
        TRY(tpl_dict_set(r, d, k, v));
    }
    *out = tpl_of_dict(d);
    return VT_OK;
}

static vt_status from_json(tpl_run *r, json_t *j, int depth, tpl_value *out)
{
    enum { MAX_DEPTH = 200 };
    if (depth > MAX_DEPTH)
        return vt_fail(r->err, VT_ERR_USAGE, "%s: the variables are nested deeper than %d", r->name,
                       MAX_DEPTH);
    switch (json_typeof(j)) {
    case JSON_OBJECT:
        return from_object(r, j, depth, out);
    case JSON_ARRAY:
        return from_array(r, j, depth, out);
    case JSON_STRING:
        return tpl_str_copy(r, json_string_value(j), json_string_length(j), out);
    case JSON_INTEGER:
        *out = tpl_int(json_integer_value(j));
        return VT_OK;
    case JSON_REAL:
        *out = tpl_float(json_real_value(j));
        return VT_OK;
    case JSON_NULL:
        *out = tpl_none();
        return VT_OK;
    default:
        *out = tpl_bool(json_is_true(j));
        return VT_OK;
    }
}

vt_status vt_template_parse_variables(const char *name, const char *json, size_t len, json_t **out,
                                      vt_err *err)
{
    char what[256];
    vt_err why;
    json_t *parsed;
    snprintf(what, sizeof what, "%.200s: the variables", name);
    if (vt_json_load(what, json, len, JSON_ALLOW_NUL, VT_JSON_MAX_TREE, &parsed, &why) != VT_OK)
        return vt_fail(err, VT_ERR_USAGE, "%s", why.message);
    if (!json_is_object(parsed)) {
        json_decref(parsed);
        return vt_fail(err, VT_ERR_USAGE, "%s: the variables are not a JSON object", name);
    }
    *out = parsed;
    return VT_OK;
}

vt_status tpl_read_variables(tpl_run *r, json_t *variables, tpl_dict **out)
{
    tpl_value v = {0};
    vt_status status = from_json(r, variables, 0, &v);
    *out = v.dict;
    return status;
}

/* ---- out ---- */

typedef struct dumper {
    tpl_run *r;
    tpl_text out;
    const tpl_str *indent; /* NULL: all on one line */
    const char *item_separator, *key_separator;
    size_t n_item, n_key;
    bool ascii, sort;
} dumper;

static vt_status dump(dumper *d, tpl_value v, int level);

static vt_status dump_unicode(dumper *d, uint32_t c)
{
    char escape[16];
    if (c < 0x10000)
        snprintf(escape, sizeof escape, "\\u%04x", (unsigned)c);
    else
        snprintf(escape, sizeof escape, "\\u%04x\\u%04x",
                 (unsigned)(0xd800 + ((c - 0x10000) >> 10)),
                 (unsigned)(0xdc00 + ((c - 0x10000) & 0x3ff)));
    return tpl_text_puts(d->r, &d->out, escape);
}

static vt_status dump_string(dumper *d, const tpl_str *s)
{
    static const char from[] = "\"\\\n\r\t\b\f";
    static const char *const to[] = {"\\\"", "\\\\", "\\n", "\\r", "\\t", "\\b", "\\f"};
    TRY(tpl_charge(d->r, s->len / 16));
    TRY(tpl_text_puts(d->r, &d->out, "\""));
    size_t plain = 0; /* bytes before it are written */
    for (size_t i = 0; i < s->len;) {
        uint32_t c;
        size_t n = tpl_next(s->data + i, &c);
        const char *known = c && c < 0x80 ? strchr(from, (int)c) : NULL;
        bool escape = c < 0x20 || (d->ascii && c > 0x7e);
        if (known || escape) {
            TRY(tpl_text_add(d->r, &d->out, s->data + plain, i - plain));
            TRY(known ? tpl_text_puts(d->r, &d->out, to[known - from]) : dump_unicode(d, c));
            plain = i + n;
        }
        i += n;
    }
    TRY(tpl_text_add(d->r, &d->out, s->data + plain, s->len - plain));
    return tpl_text_puts(d->r, &d->out, "\"");
}

static vt_status dump_scalar(dumper *d, tpl_value v)
{
    if (v.type == TPL_NONE)
        return tpl_text_puts(d->r, &d->out, "null");
    if (v.type == TPL_BOOL)
        return tpl_text_puts(d->r, &d->out, v.boolean ? "true" : "false");
    if (v.type == TPL_FLOAT && !isfinite(v.real))
        return tpl_text_puts(d->r, &d->out,
                             isnan(v.real) ? "NaN"
                             : v.real > 0  ? "Infinity"
                                           : "-Infinity");
    return tpl_put_repr(d->r, &d->out, v);
}

static vt_status dump_newline(dumper *d, int level)
{
    if (!d->indent)
        return VT_OK;
    TRY(tpl_text_puts(d->r, &d->out, "\n"));
    return tpl_text_fill(d->r, &d->out, d->indent->data, d->indent->len, level);
}

static vt_status dump_list(dumper *d, const tpl_list *l, int level)
{
    if (l->n == 0)
        return tpl_text_puts(d->r, &d->out, "[]");
    TRY(tpl_text_puts(d->r, &d->out, "["));
    for (size_t i = 0; i < l->n; i++) {
        if (i > 0)
            TRY(tpl_text_add(d->r, &d->out, d->item_separator, d->n_item));
        TRY(dump_newline(d, level + 1));
        TRY(dump(d, l->at[i], level + 1));
    }
    TRY(dump_newline(d, level));
    return tpl_text_puts(d->r, &d->out, "]");
}

/* Keys that are no strings become the text of their JSON value. */
static vt_status dump_key(dumper *d, tpl_value key)
{
    if (key.type == TPL_STR)
        return dump_string(d, key.str);
    if (!tpl_is_number(key) && key.type != TPL_NONE)
        return tpl_fail(d->r, "keys must be str, int, float, bool or None, not %s",
                        tpl_type_name(key));
    TRY(tpl_text_puts(d->r, &d->out, "\""));
    TRY(dump_scalar(d, key));
    return tpl_text_puts(d->r, &d->out, "\"");
}

/* The entries as pairs, in the order of their keys. */
static vt_status sorted_entries(tpl_run *r, const tpl_dict *dict, tpl_list **out)
{
    tpl_list *pairs;
    tpl_value pair;
    TRY(tpl_list_new(r, dict->n, &pairs));
    for (size_t i = 0; i < dict->n; i++) {
        TRY(tpl_pair(r, dict->entry[i].key, dict->entry[i].value, &pair));
        TRY(tpl_list_add(r, pairs, pair));
    }
    *out = pairs;
    return tpl_sort(r, pairs, pairs, true, false);
}

static vt_status dump_member(dumper *d, tpl_value key, tpl_value value, bool first, int level)
{
    if (!first)
        TRY(tpl_text_add(d->r, &d->out, d->item_separator, d->n_item));
    TRY(dump_newline(d, level + 1));
    TRY(dump_key(d, key));
    TRY(tpl_text_add(d->r, &d->out, d->key_separator, d->n_key));
    return dump(d, value, level + 1);
}

static vt_status dump_dict(dumper *d, const tpl_dict *dict, int level)
{
    tpl_list *sorted = NULL;
    if (dict->n == 0)
        return tpl_text_puts(d->r, &d->out, "{}");
    if (d->sort)
        TRY(sorted_entries(d->r, dict, &sorted));
    TRY(tpl_text_puts(d->r, &d->out, "{"));
    for (size_t i = 0; i < dict->n; i++) {
        const tpl_value *pair = sorted ? sorted->at[i].list->at : NULL;
        TRY(dump_member(d, pair ? pair[0] : dict->entry[i].key,
                        pair ? pair[1] : dict->entry[i].value, i == 0, level));
    }
    TRY(dump_newline(d, level));
    return tpl_text_puts(d->r, &d->out, "}");
}

static vt_status dump(dumper *d, tpl_value v, int level)
{
    TRY(tpl_charge(d->r, 1));
    if (v.type == TPL_STR)
        return dump_string(d, v.str);
    if (v.type == TPL_NONE || tpl_is_number(v))
        return dump_scalar(d, v);
    if (v.type != TPL_DICT && v.type != TPL_LIST && v.type != TPL_TUPLE)
        return tpl_fail(d->r, "Object of type %s is not JSON serializable", tpl_type_name(v));
    TRY(tpl_enter(d->r));
    TRY(v.type == TPL_DICT ? dump_dict(d, v.dict, level) : dump_list(d, v.list, level));
    tpl_leave(d->r);
    return VT_OK;
}

static vt_status read_indent(dumper *d, tpl_value v)
{
    enum { MAX_INDENT = 1000 };
    tpl_text t = {0};
    tpl_value s = v;
    if (tpl_absent(v))
        return VT_OK;
    if (tpl_is_int(v)) {
        if (tpl_as_int(v) > MAX_INDENT)
            return tpl_limit(d->r, "tojson: an indent of %lld is beyond %d",
                             (long long)tpl_as_int(v), MAX_INDENT);
        TRY(tpl_text_fill(d->r, &t, " ", 1, tpl_as_int(v)));
        TRY(tpl_text_value(d->r, &t, &s));
    }
    if (s.type != TPL_STR)
        return tpl_fail(d->r, "tojson: indent must be an integer or a string, not '%s'",
                        tpl_type_name(v));
    d->indent = s.str;
    d->n_item = 1; /* "," alone at a line's end */
    return VT_OK;
}

static vt_status read_separators(dumper *d, tpl_value v)
{
    tpl_list *parts;
    if (tpl_absent(v))
        return VT_OK;
    TRY(tpl_to_list(d->r, v, &parts));
    if (parts->n != 2 || parts->at[0].type != TPL_STR || parts->at[1].type != TPL_STR)
        return tpl_fail(d->r, "tojson: separators must be two strings");
    d->item_separator = parts->at[0].str->data;
    d->n_item = parts->at[0].str->len;
    d->key_separator = parts->at[1].str->data;
    d->n_key = parts->at[1].str->len;
    return VT_OK;
}

/* tojson(ensure_ascii=false, indent=none, separators=none, sort_keys=false) */
static vt_status filter_tojson(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    dumper d = {.r = r,
                .item_separator = ", ",
                .n_item = 2,
                .key_separator = ": ",
                .n_key = 2,
                .ascii = tpl_truth(a->arg[0]),
                .sort = tpl_truth(a->arg[3])};
    TRY(read_indent(&d, a->arg[1]));
    TRY(read_separators(&d, a->arg[2]));
    TRY(dump(&d, a->self, 0));
    return tpl_text_value(r, &d.out, out);
}

static const tpl_builtin filters[] = {
    {"tojson", filter_tojson, 0, 4, {"ensure_ascii", "indent", "separators", "sort_keys"}, 0},
};

const tpl_table tpl_json_filters = {filters, sizeof filters / sizeof *filters};
