/* Filters of sequences and dicts.
 *
 * What is a generator in jinja2 (map, select, unique, items ...) is computed at once here and
 * handed out as a one-shot iterator; an error inside shows when the template reaches it, as it
 * would there.
 */
#include "text/template/builtins.h"

/* ---- attribute paths: "a.b.0" ---- */

typedef struct path {
    bool given;
    tpl_value *part;
    size_t n;
} path;

static vt_status path_read(tpl_run *r, tpl_value attribute, path *p)
{
    *p = (path){0};
    if (tpl_absent(attribute))
        return VT_OK;
    p->given = true;
    if (attribute.type != TPL_STR) {
        p->part = tpl_alloc(r, 1, sizeof *p->part);
        if (!p->part)
            return VT_ERR_MEMORY;
        p->part[p->n++] = attribute;
        return VT_OK;
    }
    const tpl_str *s = attribute.str;
    TRY(tpl_charge(r, s->len / 16));
    p->part = tpl_alloc(r, s->len + 1, sizeof *p->part);
    if (!p->part)
        return VT_ERR_MEMORY;
    for (size_t begin = 0; begin <= s->len;) {
        const char *dot = memchr(s->data + begin, '.', s->len - begin);
        size_t end = dot ? (size_t)(dot - s->data) : s->len,
               digits = strspn(s->data + begin, "0123456789");
        int64_t number = 0;
        bool ok = false;
        TRY(tpl_str_copy(r, s->data + begin, end - begin, &p->part[p->n]));
        if (digits == end - begin && digits > 0)
            TRY(tpl_parse_int(r, p->part[p->n].str, 10, &number, &ok));
        if (ok)
            p->part[p->n] = tpl_int(number);
        p->n++;
        begin = end + 1;
    }
    return VT_OK;
}

/* The value at the path in `item`; `absent`, if given, replaces what is undefined on the way. */
static vt_status path_get(tpl_run *r, const path *p, tpl_value item, tpl_value absent,
                          tpl_value *out)
{
    *out = item;
    for (size_t i = 0; i < p->n; i++) {
        TRY(tpl_getitem(r, *out, p->part[i], out));
        if (out->type == TPL_UNDEFINED && !tpl_absent(absent))
            *out = absent;
    }
    return VT_OK;
}

/* A string in lower case, unless case counts; anything else unchanged. */
static vt_status fold_case(tpl_run *r, tpl_value v, bool case_sensitive, tpl_value *out)
{
    *out = v;
    return case_sensitive || v.type != TPL_STR ? VT_OK : tpl_change_case(r, v.str, TPL_LOWER, out);
}

static vt_status path_key(tpl_run *r, const path *p, tpl_value item, bool case_sensitive,
                          tpl_value *out)
{
    TRY(path_get(r, p, item, (tpl_value){0}, out));
    return fold_case(r, *out, case_sensitive, out);
}

/* ---- sorting ---- */

/* The attributes of sort: "a,b" sorts by both. */
static vt_status sort_paths(tpl_run *r, tpl_value attribute, path *paths, size_t max, size_t *n)
{
    *n = 1;
    if (attribute.type != TPL_STR)
        return path_read(r, attribute, &paths[0]);
    const tpl_str *s = attribute.str;
    *n = 0;
    for (size_t begin = 0; begin <= s->len;) {
        const char *comma = memchr(s->data + begin, ',', s->len - begin);
        size_t end = comma ? (size_t)(comma - s->data) : s->len;
        tpl_value name;
        if (*n == max)
            return tpl_limit(r, "sort: more than %zu attributes", max);
        TRY(tpl_str_copy(r, s->data + begin, end - begin, &name));
        TRY(path_read(r, name, &paths[(*n)++]));
        begin = end + 1;
    }
    return VT_OK;
}

/* sort(reverse=false, case_sensitive=false, attribute=none) */
static vt_status filter_sort(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    tpl_list *items, *keys, *parts;
    path paths[16];
    size_t n_paths;
    bool sensitive = tpl_truth(a->arg[1]);
    TRY(tpl_to_list(r, a->self, &items));
    TRY(sort_paths(r, a->arg[2], paths, sizeof paths / sizeof *paths, &n_paths));
    TRY(tpl_list_new(r, items->n, &keys));
    for (size_t i = 0; i < items->n; i++) {
        TRY(tpl_list_new(r, n_paths, &parts));
        for (size_t k = 0; k < n_paths; k++)
            TRY(path_key(r, &paths[k], items->at[i], sensitive, &parts->at[parts->n++]));
        TRY(tpl_list_add(r, keys, tpl_of_list(TPL_LIST, parts)));
    }
    TRY(tpl_sort(r, items, keys, false, tpl_truth(a->arg[0])));
    *out = tpl_of_list(TPL_LIST, items);
    return VT_OK;
}

/* dictsort(case_sensitive=false, by="key", reverse=false) */
static vt_status filter_dictsort(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    tpl_list *pairs, *keys;
    bool by_value = a->arg[1].type == TPL_STR && tpl_str_is(a->arg[1].str, "value");
    if (!by_value && a->arg[1].type != TPL_MISSING &&
        !(a->arg[1].type == TPL_STR && tpl_str_is(a->arg[1].str, "key")))
        return tpl_fail(r, "dictsort: you can only sort by either \"key\" or \"value\"");
    if (a->self.type == TPL_UNDEFINED)
        return tpl_fail_undefined(r, a->self);
    if (a->self.type != TPL_DICT)
        return tpl_fail(r, "dictsort: '%s' object has no attribute 'items'",
                        tpl_type_name(a->self));
    TRY(tpl_list_new(r, a->self.dict->n, &pairs));
    TRY(tpl_list_new(r, a->self.dict->n, &keys));
    for (size_t i = 0; i < a->self.dict->n; i++) {
        const tpl_entry *e = &a->self.dict->entry[i];
        tpl_value pair, key;
        TRY(tpl_pair(r, e->key, e->value, &pair));
        TRY(tpl_list_add(r, pairs, pair));
        TRY(fold_case(r, by_value ? e->value : e->key, tpl_truth(a->arg[0]), &key));
        TRY(tpl_list_add(r, keys, key));
    }
    TRY(tpl_sort(r, pairs, keys, false, tpl_truth(a->arg[2])));
    *out = tpl_of_list(TPL_LIST, pairs);
    return VT_OK;
}

/* groupby(attribute, default=none, case_sensitive=false): tuples (grouper, list) */
static vt_status filter_groupby(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    tpl_list *items, *pairs, *groups, *group = NULL;
    bool sensitive = tpl_truth(a->arg[2]), same = false;
    path p;
    TRY(path_read(r, a->arg[0], &p));
    TRY(tpl_to_list(r, a->self, &items));
    TRY(tpl_list_new(r, items->n, &pairs));
    TRY(tpl_list_new(r, 0, &groups));
    for (size_t i = 0; i < items->n; i++) {
        tpl_value key, pair;
        TRY(path_get(r, &p, items->at[i], a->arg[1], &key));
        TRY(fold_case(r, key, sensitive, &key));
        TRY(tpl_pair(r, key, items->at[i], &pair));
        TRY(tpl_list_add(r, pairs, pair));
    }
    TRY(tpl_sort(r, pairs, pairs, true, false));
    for (size_t i = 0; i < pairs->n; i++) {
        const tpl_value *pair = pairs->at[i].list->at;
        if (i > 0)
            TRY(tpl_equal(r, pairs->at[i - 1].list->at[0], pair[0], &same));
        if (i == 0 || !same) {
            tpl_value grouper, tuple; /* the grouper is spelled as in the group's first item */
            TRY(tpl_list_new(r, 0, &group));
            TRY(path_get(r, &p, pair[1], a->arg[1], &grouper));
            TRY(tpl_pair(r, grouper, tpl_of_list(TPL_LIST, group), &tuple));
            tuple.list->kind = "group";
            TRY(tpl_list_add(r, groups, tuple));
        }
        TRY(tpl_list_add(r, group, pair[1]));
    }
    *out = tpl_of_list(TPL_LIST, groups);
    return VT_OK;
}

/* ---- first, last, min, max, sum, join ---- */

static vt_status filter_first(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    tpl_cursor c;
    bool end;
    TRY(tpl_cursor_init(r, a->self, &c));
    TRY(tpl_cursor_next(r, &c, out, &end));
    return end ? tpl_undefined_hint(r, "No first item, sequence was empty.", out) : VT_OK;
}

static vt_status filter_last(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    tpl_list *items = a->self.list;
    if (a->self.type == TPL_ITER || !tpl_iterable(a->self))
        return tpl_fail(r, "'%s' object is not reversible", tpl_type_name(a->self));
    if (a->self.type != TPL_LIST && a->self.type != TPL_TUPLE)
        TRY(tpl_to_list(r, a->self, &items));
    if (items->n == 0)
        return tpl_undefined_hint(r, "No last item, sequence was empty.", out);
    *out = items->at[items->n - 1];
    out->markup |= a->self.markup; /* Python takes the last character by its index */
    return VT_OK;
}

/* min(case_sensitive=false, attribute=none), and max (which 1) */
static vt_status filter_extreme(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    bool max = a->which;
    tpl_list *items;
    tpl_value best, key;
    path p;
    bool sensitive = tpl_truth(a->arg[0]);
    TRY(path_read(r, a->arg[1], &p));
    TRY(tpl_to_list(r, a->self, &items));
    if (items->n == 0)
        return tpl_undefined_hint(r, "No aggregated item, sequence was empty.", out);
    *out = items->at[0];
    TRY(path_key(r, &p, items->at[0], sensitive, &best));
    for (size_t i = 1; i < items->n; i++) {
        int order;
        TRY(path_key(r, &p, items->at[i], sensitive, &key));
        TRY(tpl_order(r, key, best, max ? ">" : "<", &order));
        if (order != 2 && (max ? order > 0 : order < 0)) {
            best = key;
            *out = items->at[i];
        }
    }
    return VT_OK;
}

/* sum(attribute=none, start=0) */
static vt_status filter_sum(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    tpl_list *items;
    path p;
    TRY(path_read(r, a->arg[0], &p));
    TRY(tpl_to_list(r, a->self, &items));
    *out = a->arg[1].type == TPL_MISSING ? tpl_int(0) : a->arg[1];
    if (out->type == TPL_STR)
        return tpl_fail(r, "sum() can't sum strings [use ''.join(seq) instead]");
    for (size_t i = 0; i < items->n; i++) {
        tpl_value v;
        TRY(path_get(r, &p, items->at[i], (tpl_value){0}, &v));
        TRY(tpl_binary(r, TPL_OP_ADD, *out, v, out));
    }
    return VT_OK;
}

/* join(d="", attribute=none) */
static vt_status filter_join(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    tpl_text t = {0};
    tpl_value separator = a->arg[0], v, item;
    tpl_cursor c;
    path p;
    bool end, first = true;
    if (separator.type == TPL_MISSING)
        TRY(tpl_str_wrap(r, "", 0, &separator));
    TRY(tpl_to_str(r, separator, &separator));
    TRY(path_read(r, a->arg[1], &p));
    TRY(tpl_cursor_init(r, a->self, &c));
    for (;; first = false) {
        TRY(tpl_cursor_next(r, &c, &item, &end));
        if (end)
            return tpl_text_value(r, &t, out);
        if (!first)
            TRY(tpl_text_add(r, &t, separator.str->data, separator.str->len));
        TRY(path_get(r, &p, item, (tpl_value){0}, &v));
        TRY(tpl_put_str(r, &t, v));
    }
}

/* ---- lists ---- */

static vt_status filter_list(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    tpl_list *l;
    TRY(tpl_to_list(r, a->self, &l));
    *out = tpl_of_list(TPL_LIST, l);
    return VT_OK;
}

static vt_status filter_reverse(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    tpl_list *l;
    if (a->self.type == TPL_STR)
        return tpl_slice(r, a->self, (tpl_value){0}, (tpl_value){0}, tpl_int(-1), out);
    if (!tpl_iterable(a->self))
        return tpl_fail(r, "reverse: argument must be iterable");
    TRY(tpl_to_list(r, a->self, &l));
    tpl_list_reverse(l);
    if (a->self.type == TPL_ITER) { /* Python cannot reverse a generator: jinja2 gives a list */
        *out = tpl_of_list(TPL_LIST, l);
        return VT_OK;
    }
    TRY(tpl_iter_new(r, l, VT_OK, out));
    out->iter->kind = "list_reverseiterator";
    return VT_OK;
}

static vt_status filter_items(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    tpl_list *pairs;
    TRY(tpl_list_new(r, 0, &pairs));
    if (a->self.type != TPL_UNDEFINED && a->self.type != TPL_DICT)
        return tpl_iter_new(r, pairs, tpl_fail(r, "Can only get item pairs from a mapping."), out);
    for (size_t i = 0; a->self.type == TPL_DICT && i < a->self.dict->n; i++) {
        tpl_value pair;
        TRY(tpl_pair(r, a->self.dict->entry[i].key, a->self.dict->entry[i].value, &pair));
        TRY(tpl_list_add(r, pairs, pair));
    }
    return tpl_iter_new(r, pairs, VT_OK, out);
}

/* unique(case_sensitive=false, attribute=none) */
static vt_status unique(tpl_run *r, const tpl_args *a, tpl_list *kept)
{
    tpl_list *items;
    tpl_dict *seen;
    path p;
    TRY(path_read(r, a->arg[1], &p));
    TRY(tpl_dict_new(r, &seen));
    TRY(tpl_to_list(r, a->self, &items));
    for (size_t i = 0; i < items->n; i++) {
        tpl_value key, *found;
        TRY(path_key(r, &p, items->at[i], tpl_truth(a->arg[0]), &key));
        TRY(tpl_dict_find(r, seen, key, &found));
        if (!found)
            TRY(tpl_list_add(r, kept, items->at[i]));
        TRY(tpl_dict_set(r, seen, key, tpl_none()));
    }
    return VT_OK;
}

static vt_status filter_unique(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    tpl_list *kept;
    int32_t depth = r->depth;
    TRY(tpl_list_new(r, 0, &kept));
    vt_status status = unique(r, a, kept);
    r->depth = depth;
    return tpl_iter_new(r, kept, status, out);
}

/* ---- map, select, reject ---- */

static tpl_value *keyword(const tpl_call *call, const char *name)
{
    for (int32_t i = 0; i < call->n_kw; i++)
        if (tpl_str_is(call->kw[i].key.str, name))
            return &call->kw[i].value;
    return NULL;
}

static vt_status map_attribute(tpl_run *r, const tpl_args *a, tpl_list *items)
{
    const tpl_call *call = a->call;
    tpl_value *absent = keyword(call, "default"), item, v;
    tpl_cursor c;
    path p;
    bool end;
    if (call->n_kw > 1 + (absent != NULL))
        return tpl_fail(r, "map: unexpected keyword argument");
    TRY(path_read(r, *keyword(call, "attribute"), &p));
    TRY(tpl_cursor_init(r, a->self, &c));
    for (;;) {
        TRY(tpl_cursor_next(r, &c, &item, &end));
        if (end)
            return VT_OK;
        TRY(path_get(r, &p, item, absent ? *absent : (tpl_value){0}, &v));
        TRY(tpl_list_add(r, items, v));
    }
}

static vt_status map(tpl_run *r, const tpl_args *a, tpl_list *items)
{
    const tpl_call *call = a->call;
    tpl_cursor c;
    bool end;
    if (call->n_pos == 0 && keyword(call, "attribute"))
        return map_attribute(r, a, items);
    if (call->n_pos == 0 || call->pos[0].type != TPL_STR)
        return tpl_fail(r, "map requires a filter argument");
    const tpl_str *name = call->pos[0].str;
    const tpl_builtin *filter = tpl_find_filter(&r->t->tables, name->data, name->len);
    if (!filter)
        return tpl_unsupported(r, "there is no filter named '%.60s'", name->data);
    tpl_call rest = {
        .pos = call->pos + 1, .n_pos = call->n_pos - 1, .kw = call->kw, .n_kw = call->n_kw};
    TRY(tpl_cursor_init(r, a->self, &c));
    for (;;) {
        tpl_value item, v;
        TRY(tpl_cursor_next(r, &c, &item, &end));
        if (end)
            return VT_OK;
        TRY(tpl_enter(r));
        TRY(tpl_apply(r, filter, "filter", item, &rest, &v));
        tpl_leave(r);
        TRY(tpl_list_add(r, items, v));
    }
}

static vt_status filter_map(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    tpl_list *items;
    int32_t depth = r->depth;
    TRY(tpl_list_new(r, 0, &items));
    vt_status status = tpl_truth(a->self) ? map(r, a, items) : VT_OK;
    r->depth = depth; /* as it was, if it failed */
    return tpl_iter_new(r, items, status, out);
}

/* Does the work of select, reject and their forms with an attribute. */
enum { KEEP = 1, BY_ATTRIBUTE = 2 };

/* [attribute,] [test, arguments ...] */
static vt_status choose(tpl_run *r, const tpl_args *a, tpl_list *kept)
{
    tpl_call rest = *a->call;
    const tpl_builtin *test = NULL;
    tpl_cursor c;
    path p = {0};
    if (a->which & BY_ATTRIBUTE) {
        if (rest.n_pos == 0)
            return tpl_fail(r, "Missing parameter for attribute name");
        TRY(path_read(r, rest.pos[0], &p));
        rest.pos++;
        rest.n_pos--;
    }
    if (rest.n_pos > 0) {
        tpl_value name = *rest.pos++;
        rest.n_pos--;
        if (name.type == TPL_STR)
            test = tpl_find_test(&r->t->tables, name.str->data, name.str->len);
        if (!test)
            return tpl_unsupported(r, "there is no test named '%.60s'",
                                   name.type == TPL_STR ? name.str->data : tpl_type_name(name));
    }
    TRY(tpl_cursor_init(r, a->self, &c));
    for (;;) {
        tpl_value item, v;
        bool end;
        TRY(tpl_cursor_next(r, &c, &item, &end));
        if (end)
            return VT_OK;
        TRY(path_get(r, &p, item, (tpl_value){0}, &v));
        if (test)
            TRY(tpl_apply(r, test, "test", v, &rest, &v));
        if (tpl_truth(v) == ((a->which & KEEP) != 0))
            TRY(tpl_list_add(r, kept, item));
    }
}

static vt_status filter_select(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    tpl_list *kept;
    int32_t depth = r->depth;
    TRY(tpl_list_new(r, 0, &kept));
    vt_status status = tpl_truth(a->self) ? choose(r, a, kept) : VT_OK;
    r->depth = depth;
    return tpl_iter_new(r, kept, status, out);
}

/* ---- the table ---- */

static const tpl_builtin filters[] = {
    {"dictsort", filter_dictsort, 0, 3, {"case_sensitive", "by", "reverse"}, 0},
    {"first", filter_first, 0, 0, {0}, 0},
    {"groupby", filter_groupby, 1, 3, {"attribute", "default", "case_sensitive"}, 0},
    {"items", filter_items, 0, 0, {0}, 0},
    {"join", filter_join, 0, 2, {"d", "attribute"}, 0},
    {"last", filter_last, 0, 0, {0}, 0},
    {"list", filter_list, 0, 0, {0}, 0},
    {"map", filter_map, 0, -1, {0}, 0},
    {"max", filter_extreme, 0, 2, {"case_sensitive", "attribute"}, 1},
    {"min", filter_extreme, 0, 2, {"case_sensitive", "attribute"}, 0},
    {"reject", filter_select, 0, -1, {0}, 0},
    {"rejectattr", filter_select, 0, -1, {0}, BY_ATTRIBUTE},
    {"reverse", filter_reverse, 0, 0, {0}, 0},
    {"select", filter_select, 0, -1, {0}, KEEP},
    {"selectattr", filter_select, 0, -1, {0}, KEEP | BY_ATTRIBUTE},
    {"sort", filter_sort, 0, 3, {"reverse", "case_sensitive", "attribute"}, 0},
    {"sum", filter_sum, 0, 2, {"attribute", "start"}, 0},
    {"unique", filter_unique, 0, 2, {"case_sensitive", "attribute"}, 0},
};

const tpl_table tpl_sequence_filters = {filters, sizeof filters / sizeof *filters};
