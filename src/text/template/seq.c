/* Filters of sequences.
 *
 * What is a generator in jinja2 (map, select, unique, batch, slice, items ...) is computed at once
 * here and handed out as a one-shot iterator; an error inside shows when the template reaches it,
 * as it would there.
 */
#include "text/template/impl.h"

#define FILTER(name)                                                                              \
    static vt_status name(tpl_run *r, tpl_value self, const tpl_value *arg, const tpl_call *call, \
                          tpl_value *out)

/* ---- attribute paths: "a.b.0" ---- */

typedef struct path {
    bool given;
    tpl_value *part;
    size_t n;
} path;

static vt_status path_read(tpl_run *r, tpl_value attribute, path *p)
{
    *p = (path){0};
    if (attribute.type == TPL_MISSING || attribute.type == TPL_NONE)
        return VT_OK;
    p->given = true;
    if (attribute.type != TPL_STR) {
        TPL_NEW(r, p->part, 1);
        p->part[p->n++] = attribute;
        return VT_OK;
    }
    const tpl_str *s = attribute.str;
    TPL_NEW(r, p->part, s->len + 1);
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

/* default MISSING or none: what is not there stays undefined. */
static vt_status path_get(tpl_run *r, const path *p, tpl_value item, tpl_value absent,
                          tpl_value *out)
{
    *out = item;
    for (size_t i = 0; i < p->n; i++) {
        TRY(tpl_getitem(r, *out, p->part[i], out));
        if (out->type == TPL_UNDEFINED && absent.type != TPL_MISSING && absent.type != TPL_NONE)
            *out = absent;
    }
    return VT_OK;
}

static vt_status fold_case(tpl_run *r, tpl_value v, bool case_sensitive, tpl_value *out)
{
    tpl_text t = {0};
    *out = v;
    if (case_sensitive || v.type != TPL_STR)
        return VT_OK;
    TRY(tpl_put_case(r, &t, v.str->data, 0, v.str->len, TPL_LOWER));
    return tpl_text_value(r, &t, out);
}

static vt_status path_key(tpl_run *r, const path *p, tpl_value item, tpl_value absent,
                          bool case_sensitive, tpl_value *out)
{
    TRY(path_get(r, p, item, absent, out));
    return fold_case(r, *out, case_sensitive, out);
}

/* ---- sorting ---- */

typedef struct sorter {
    tpl_run *r;
    const tpl_value *key;
    bool first_part, reverse;
} sorter;

static vt_status sort_before(sorter *s, size_t a, size_t b, bool *strictly)
{
    tpl_value x = s->key[a], y = s->key[b];
    int order;
    TRY(tpl_charge(s->r, 1));
    TRY(tpl_order(s->r, s->first_part ? x.list->at[0] : x, s->first_part ? y.list->at[0] : y, "<",
                  &order));
    *strictly = order != 2 && (s->reverse ? order > 0 : order < 0);
    return VT_OK;
}

/* Bottom-up merging of index[0..n) through `spare`: stable, n log n comparisons. */
static vt_status merge_sort(sorter *s, size_t *index, size_t *spare, size_t n)
{
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t low = 0; low < n; low += 2 * width) {
            size_t mid = low + width < n ? low + width : n,
                   high = low + 2 * width < n ? low + 2 * width : n;
            size_t a = low, b = mid, k = low;
            while (a < mid && b < high) {
                bool right;
                TRY(sort_before(s, index[b], index[a], &right));
                spare[k++] = right ? index[b++] : index[a++];
            }
            while (a < mid)
                spare[k++] = index[a++];
            while (b < high)
                spare[k++] = index[b++];
        }
        memcpy(index, spare, n * sizeof *index);
    }
    return VT_OK;
}

vt_status tpl_sort(tpl_run *r, tpl_list *items, tpl_list *keys, bool first_part, bool reverse)
{
    sorter s = {.r = r, .key = keys->at, .first_part = first_part, .reverse = reverse};
    size_t n = items->n, *index, *spare;
    tpl_value *sorted;
    TPL_NEW(r, index, n + 1);
    TPL_NEW(r, spare, n + 1);
    TPL_NEW(r, sorted, n + 1);
    for (size_t i = 0; i < n; i++)
        index[i] = i;
    TRY(merge_sort(&s, index, spare, n));
    for (size_t i = 0; i < n; i++)
        sorted[i] = items->at[index[i]];
    items->at = sorted;
    items->cap = n + 1;
    return VT_OK;
}

/* sort(reverse=false, case_sensitive=false, attribute=none); "a,b" sorts by both */
FILTER(filter_sort)
{
    tpl_list *items, *keys, *parts = NULL;
    tpl_value names[16] = {arg[2]};
    size_t n_names = 1;
    (void)call;
    TRY(tpl_to_list(r, self, &items));
    if (arg[2].type == TPL_STR) {
        const tpl_str *s = arg[2].str;
        n_names = 0;
        for (size_t begin = 0; begin <= s->len;) {
            const char *comma = memchr(s->data + begin, ',', s->len - begin);
            size_t end = comma ? (size_t)(comma - s->data) : s->len;
            if (n_names == sizeof names / sizeof *names)
                return tpl_limit(r, "sort: more than 16 attributes");
            TRY(tpl_str_copy(r, s->data + begin, end - begin, &names[n_names++]));
            begin = end + 1;
        }
    }
    TRY(tpl_list_new(r, items->n, &keys));
    for (size_t i = 0; i < items->n; i++) {
        TRY(tpl_list_new(r, n_names, &parts));
        for (size_t k = 0; k < n_names; k++) {
            path p;
            TRY(path_read(r, names[k], &p));
            TRY(path_key(r, &p, items->at[i], (tpl_value){0}, tpl_truth(arg[1]),
                         &parts->at[parts->n++]));
        }
        TRY(tpl_list_add(r, keys, tpl_of_list(TPL_LIST, parts)));
    }
    TRY(tpl_sort(r, items, keys, false, tpl_truth(arg[0])));
    *out = tpl_of_list(TPL_LIST, items);
    return VT_OK;
}

/* dictsort(case_sensitive=false, by="key", reverse=false) */
FILTER(filter_dictsort)
{
    tpl_list *pairs, *keys;
    bool by_value = arg[1].type == TPL_STR && tpl_str_is(arg[1].str, "value");
    (void)call;
    if (!by_value && arg[1].type != TPL_MISSING &&
        !(arg[1].type == TPL_STR && tpl_str_is(arg[1].str, "key")))
        return tpl_fail(r, "dictsort: you can only sort by either \"key\" or \"value\"");
    if (self.type == TPL_UNDEFINED)
        return tpl_fail_undefined(r, self);
    if (self.type != TPL_DICT)
        return tpl_fail(r, "dictsort: '%s' object has no attribute 'items'", tpl_type_name(self));
    TRY(tpl_list_new(r, self.dict->n, &pairs));
    TRY(tpl_list_new(r, self.dict->n, &keys));
    for (size_t i = 0; i < self.dict->n; i++) {
        const tpl_entry *e = &self.dict->entry[i];
        tpl_value pair, key;
        TRY(tpl_pair(r, e->key, e->value, &pair));
        TRY(tpl_list_add(r, pairs, pair));
        TRY(fold_case(r, by_value ? e->value : e->key, tpl_truth(arg[0]), &key));
        TRY(tpl_list_add(r, keys, key));
    }
    TRY(tpl_sort(r, pairs, keys, false, tpl_truth(arg[2])));
    *out = tpl_of_list(TPL_LIST, pairs);
    return VT_OK;
}

/* groupby(attribute, default=none, case_sensitive=false): tuples (grouper, list) */
FILTER(filter_groupby)
{
    tpl_list *items, *pairs, *groups, *group = NULL;
    bool sensitive = tpl_truth(arg[2]), same = false;
    path p;
    (void)call;
    TRY(path_read(r, arg[0], &p));
    TRY(tpl_to_list(r, self, &items));
    TRY(tpl_list_new(r, items->n, &pairs));
    TRY(tpl_list_new(r, 0, &groups));
    for (size_t i = 0; i < items->n; i++) {
        tpl_value key, pair;
        TRY(path_key(r, &p, items->at[i], arg[1], sensitive, &key));
        TRY(tpl_pair(r, key, items->at[i], &pair));
        TRY(tpl_list_add(r, pairs, pair));
    }
    TRY(tpl_sort(r, pairs, pairs, true, false));
    for (size_t i = 0; i < pairs->n; i++) {
        const tpl_value *pair = pairs->at[i].list->at;
        if (i > 0)
            TRY(tpl_equal(r, pairs->at[i - 1].list->at[0], pair[0], &same));
        if (i == 0 || !same) {
            tpl_value grouper, tuple;
            TRY(tpl_list_new(r, 0, &group));
            TRY(path_get(r, &p, pair[1], arg[1],
                         &grouper)); /* spelled as in the group's first item */
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

FILTER(filter_first)
{
    tpl_cursor c;
    bool end;
    (void)arg, (void)call;
    TRY(tpl_cursor_init(r, self, &c));
    TRY(tpl_cursor_next(r, &c, out, &end));
    return end ? tpl_undefined_hint(r, "No first item, sequence was empty.", out) : VT_OK;
}

FILTER(filter_last)
{
    tpl_list *items;
    (void)arg, (void)call;
    if (self.type == TPL_ITER || !tpl_iterable(self))
        return tpl_fail(r, "'%s' object is not reversible", tpl_type_name(self));
    TRY(tpl_to_list(r, self, &items));
    if (items->n == 0)
        return tpl_undefined_hint(r, "No last item, sequence was empty.", out);
    *out = items->at[items->n - 1];
    return VT_OK;
}

static vt_status extreme(tpl_run *r, tpl_value self, const tpl_value *arg, bool max, tpl_value *out)
{
    tpl_list *items;
    tpl_value best, key;
    path p;
    bool sensitive = tpl_truth(arg[0]);
    TRY(path_read(r, arg[1], &p));
    TRY(tpl_to_list(r, self, &items));
    if (items->n == 0)
        return tpl_undefined_hint(r, "No aggregated item, sequence was empty.", out);
    *out = items->at[0];
    TRY(path_key(r, &p, items->at[0], (tpl_value){0}, sensitive, &best));
    for (size_t i = 1; i < items->n; i++) {
        int order;
        TRY(path_key(r, &p, items->at[i], (tpl_value){0}, sensitive, &key));
        TRY(tpl_order(r, key, best, max ? ">" : "<", &order));
        if (order != 2 && (max ? order > 0 : order < 0)) {
            best = key;
            *out = items->at[i];
        }
    }
    return VT_OK;
}

FILTER(filter_min)
{
    (void)call;
    return extreme(r, self, arg, false, out);
}

FILTER(filter_max)
{
    (void)call;
    return extreme(r, self, arg, true, out);
}

/* sum(attribute=none, start=0) */
FILTER(filter_sum)
{
    tpl_list *items;
    path p;
    (void)call;
    TRY(path_read(r, arg[0], &p));
    TRY(tpl_to_list(r, self, &items));
    *out = arg[1].type == TPL_MISSING ? tpl_int(0) : arg[1];
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
FILTER(filter_join)
{
    tpl_text t = {0};
    tpl_value separator = arg[0], v, item;
    tpl_cursor c;
    path p;
    bool end, first = true;
    (void)call;
    if (separator.type == TPL_MISSING)
        TRY(tpl_str_wrap(r, "", 0, &separator));
    TRY(tpl_to_str(r, separator, &separator));
    TRY(path_read(r, arg[1], &p));
    TRY(tpl_cursor_init(r, self, &c));
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

FILTER(filter_list)
{
    tpl_list *l;
    (void)arg, (void)call;
    TRY(tpl_to_list(r, self, &l));
    *out = tpl_of_list(TPL_LIST, l);
    return VT_OK;
}

FILTER(filter_reverse)
{
    tpl_list *l;
    (void)arg, (void)call;
    if (self.type == TPL_STR)
        return tpl_slice(r, self, (tpl_value){0}, (tpl_value){0}, tpl_int(-1), out);
    if (!tpl_iterable(self))
        return tpl_fail(r, "reverse: argument must be iterable");
    TRY(tpl_to_list(r, self, &l));
    tpl_list_reverse(l);
    if (self.type == TPL_ITER) { /* what cannot be reversed becomes a list */
        *out = tpl_of_list(TPL_LIST, l);
        return VT_OK;
    }
    TRY(tpl_iter_new(r, l, VT_OK, out));
    out->iter->kind = "list_reverseiterator";
    return VT_OK;
}

FILTER(filter_items)
{
    tpl_list *pairs;
    (void)arg, (void)call;
    TRY(tpl_list_new(r, 0, &pairs));
    if (self.type != TPL_UNDEFINED && self.type != TPL_DICT)
        return tpl_iter_new(r, pairs, tpl_fail(r, "Can only get item pairs from a mapping."), out);
    for (size_t i = 0; self.type == TPL_DICT && i < self.dict->n; i++) {
        tpl_value pair;
        TRY(tpl_pair(r, self.dict->entry[i].key, self.dict->entry[i].value, &pair));
        TRY(tpl_list_add(r, pairs, pair));
    }
    return tpl_iter_new(r, pairs, VT_OK, out);
}

/* unique(case_sensitive=false, attribute=none) */
static vt_status unique(tpl_run *r, tpl_value self, const tpl_value *arg, tpl_list *kept)
{
    tpl_list *items;
    tpl_dict *seen;
    path p;
    TRY(path_read(r, arg[1], &p));
    TRY(tpl_dict_new(r, &seen));
    TRY(tpl_to_list(r, self, &items));
    for (size_t i = 0; i < items->n; i++) {
        tpl_value key, *found;
        TRY(path_key(r, &p, items->at[i], (tpl_value){0}, tpl_truth(arg[0]), &key));
        TRY(tpl_dict_find(r, seen, key, &found));
        if (!found)
            TRY(tpl_list_add(r, kept, items->at[i]));
        TRY(tpl_dict_set(r, seen, key, tpl_none()));
    }
    return VT_OK;
}

FILTER(filter_unique)
{
    tpl_list *kept;
    int32_t depth = r->depth;
    (void)call;
    TRY(tpl_list_new(r, 0, &kept));
    vt_status status = unique(r, self, arg, kept);
    r->depth = depth;
    return tpl_iter_new(r, kept, status, out);
}

static vt_status fresh_row(tpl_run *r, tpl_list *rows, tpl_list **row)
{
    TRY(tpl_list_new(r, 0, row));
    return tpl_list_add(r, rows, tpl_of_list(TPL_LIST, *row));
}

/* batch(linecount, fill_with=none) */
static vt_status batch(tpl_run *r, tpl_value self, const tpl_value *arg, tpl_list *rows)
{
    tpl_list *items, *row = NULL;
    int64_t count;
    TRY(tpl_want_int(r, arg[0], "batch's line count", 0, &count));
    TRY(tpl_to_list(r, self, &items));
    for (size_t i = 0; i < items->n; i++) {
        if (!row || (int64_t)row->n == count) {
            if (!row && count == 0) /* Python yields an empty first line then, and never again */
                TRY(fresh_row(r, rows, &row));
            TRY(fresh_row(r, rows, &row));
        }
        TRY(tpl_list_add(r, row, items->at[i]));
    }
    bool fill = arg[1].type != TPL_MISSING && arg[1].type != TPL_NONE;
    while (fill && row && (int64_t)row->n < count)
        TRY(tpl_list_add(r, row, arg[1]));
    return VT_OK;
}

FILTER(filter_batch)
{
    tpl_list *rows;
    (void)call;
    TRY(tpl_list_new(r, 0, &rows));
    return tpl_iter_new(r, rows, batch(r, self, arg, rows), out);
}

/* slice(slices, fill_with=none): columns of nearly equal length */
static vt_status columns(tpl_run *r, tpl_value self, const tpl_value *arg, tpl_list *rows)
{
    tpl_list *items, *row;
    int64_t slices;
    TRY(tpl_want_int(r, arg[0], "slice's number of slices", 0, &slices));
    TRY(tpl_to_list(r, self, &items));
    if (slices == 0)
        return tpl_fail(r, "integer division or modulo by zero");
    bool fill = arg[1].type != TPL_MISSING && arg[1].type != TPL_NONE;
    int64_t n = (int64_t)items->n, at = 0;
    for (int64_t i = 0; i < slices; i++) {
        int64_t end = at + n / slices + (i < n % slices);
        TRY(fresh_row(r, rows, &row));
        while (at < end)
            TRY(tpl_list_add(r, row, items->at[at++]));
        if (fill && i >= n % slices)
            TRY(tpl_list_add(r, row, arg[1]));
    }
    return VT_OK;
}

FILTER(filter_slice)
{
    tpl_list *rows;
    (void)call;
    TRY(tpl_list_new(r, 0, &rows));
    return tpl_iter_new(r, rows, columns(r, self, arg, rows), out);
}

/* ---- map, select, reject ---- */

static tpl_value *keyword(const tpl_call *call, const char *name)
{
    for (int32_t i = 0; i < call->n_kw; i++)
        if (tpl_str_is(call->kw[i].key.str, name))
            return &call->kw[i].value;
    return NULL;
}

static vt_status map_attribute(tpl_run *r, tpl_value self, const tpl_call *call, tpl_list *items)
{
    tpl_value *absent = keyword(call, "default"), item, v;
    tpl_cursor c;
    path p;
    bool end;
    if (call->n_kw > 1 + (absent != NULL))
        return tpl_fail(r, "map: unexpected keyword argument");
    TRY(path_read(r, *keyword(call, "attribute"), &p));
    TRY(tpl_cursor_init(r, self, &c));
    for (;;) {
        TRY(tpl_cursor_next(r, &c, &item, &end));
        if (end)
            return VT_OK;
        TRY(path_get(r, &p, item, absent ? *absent : (tpl_value){0}, &v));
        TRY(tpl_list_add(r, items, v));
    }
}

static vt_status map(tpl_run *r, tpl_value self, const tpl_call *call, tpl_list *items)
{
    tpl_cursor c;
    bool end;
    if (call->n_pos == 0 && keyword(call, "attribute"))
        return map_attribute(r, self, call, items);
    if (call->n_pos == 0 || call->pos[0].type != TPL_STR)
        return tpl_fail(r, "map requires a filter argument");
    const tpl_str *name = call->pos[0].str;
    const tpl_builtin *filter = tpl_filter(name->data, name->len);
    if (!filter)
        return tpl_unsupported(r, "there is no filter named '%.60s'", name->data);
    tpl_call rest = {
        .pos = call->pos + 1, .n_pos = call->n_pos - 1, .kw = call->kw, .n_kw = call->n_kw};
    TRY(tpl_cursor_init(r, self, &c));
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

FILTER(filter_map)
{
    tpl_list *items;
    int32_t depth = r->depth;
    (void)arg;
    TRY(tpl_list_new(r, 0, &items));
    vt_status status = tpl_truth(self) ? map(r, self, call, items) : VT_OK;
    r->depth = depth; /* as it was, if it failed */
    return tpl_iter_new(r, items, status, out);
}

typedef struct selector {
    bool by_attribute, keep; /* keep: what passes; else what does not */
} selector;

/* [attribute,] [test, arguments ...] */
static vt_status choose(tpl_run *r, tpl_value self, const tpl_call *call, selector s,
                        tpl_list *kept)
{
    tpl_call rest = {.pos = call->pos, .n_pos = call->n_pos, .kw = call->kw, .n_kw = call->n_kw};
    const tpl_builtin *test = NULL;
    tpl_cursor c;
    path p = {0};
    if (s.by_attribute) {
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
            test = tpl_test(name.str->data, name.str->len);
        if (!test)
            return tpl_unsupported(r, "there is no test named '%.60s'",
                                   name.type == TPL_STR ? name.str->data : tpl_type_name(name));
    }
    TRY(tpl_cursor_init(r, self, &c));
    for (;;) {
        tpl_value item, v;
        bool end;
        TRY(tpl_cursor_next(r, &c, &item, &end));
        if (end)
            return VT_OK;
        TRY(path_get(r, &p, item, (tpl_value){0}, &v));
        if (test)
            TRY(tpl_apply(r, test, "test", v, &rest, &v));
        if (tpl_truth(v) == s.keep)
            TRY(tpl_list_add(r, kept, item));
    }
}

static vt_status chosen(tpl_run *r, tpl_value self, const tpl_call *call, selector s,
                        tpl_value *out)
{
    tpl_list *kept;
    int32_t depth = r->depth;
    TRY(tpl_list_new(r, 0, &kept));
    vt_status status = tpl_truth(self) ? choose(r, self, call, s, kept) : VT_OK;
    r->depth = depth;
    return tpl_iter_new(r, kept, status, out);
}

FILTER(filter_select)
{
    (void)arg;
    return chosen(r, self, call, (selector){false, true}, out);
}

FILTER(filter_reject)
{
    (void)arg;
    return chosen(r, self, call, (selector){false, false}, out);
}

FILTER(filter_selectattr)
{
    (void)arg;
    return chosen(r, self, call, (selector){true, true}, out);
}

FILTER(filter_rejectattr)
{
    (void)arg;
    return chosen(r, self, call, (selector){true, false}, out);
}

const tpl_builtin *tpl_seq_filter(const char *name, size_t len)
{
    static const tpl_builtin filters[] = {
        {"batch", filter_batch, 1, 2, {"linecount", "fill_with"}},
        {"dictsort", filter_dictsort, 0, 3, {"case_sensitive", "by", "reverse"}},
        {"first", filter_first, 0, 0, {0}},
        {"groupby", filter_groupby, 1, 3, {"attribute", "default", "case_sensitive"}},
        {"items", filter_items, 0, 0, {0}},
        {"join", filter_join, 0, 2, {"d", "attribute"}},
        {"last", filter_last, 0, 0, {0}},
        {"list", filter_list, 0, 0, {0}},
        {"map", filter_map, 0, -1, {0}},
        {"max", filter_max, 0, 2, {"case_sensitive", "attribute"}},
        {"min", filter_min, 0, 2, {"case_sensitive", "attribute"}},
        {"reject", filter_reject, 0, -1, {0}},
        {"rejectattr", filter_rejectattr, 0, -1, {0}},
        {"reverse", filter_reverse, 0, 0, {0}},
        {"select", filter_select, 0, -1, {0}},
        {"selectattr", filter_selectattr, 0, -1, {0}},
        {"slice", filter_slice, 1, 2, {"slices", "fill_with"}},
        {"sort", filter_sort, 0, 3, {"reverse", "case_sensitive", "attribute"}},
        {"sum", filter_sum, 0, 2, {"attribute", "start"}},
        {"unique", filter_unique, 0, 2, {"case_sensitive", "attribute"}},
    };
    return tpl_find(filters, sizeof filters / sizeof *filters, name, len);
}
