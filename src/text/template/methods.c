/* Methods of list, tuple, range and dict; those of str are in str.c. */
#include "text/template/builtins.h"

/* ---- list, tuple, range ---- */

/* The items; a range is searched as the list it stands for. */
static vt_status items_of(tpl_run *r, tpl_value self, tpl_list **items)
{
    *items = self.list;
    return self.type == TPL_RANGE ? tpl_to_list(r, self, items) : VT_OK;
}

static vt_status list_count(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    tpl_list *l;
    int64_t n = 0;
    TRY(items_of(r, a->self, &l));
    TRY(tpl_charge(r, l->n));
    for (size_t i = 0; i < l->n; i++) {
        bool equal;
        TRY(tpl_equal(r, l->at[i], a->arg[0], &equal));
        n += equal;
    }
    *out = tpl_int(n);
    return VT_OK;
}

static vt_status list_index(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    tpl_list *l;
    int64_t n, from, to;
    TRY(items_of(r, a->self, &l));
    n = (int64_t)l->n;
    TRY(tpl_want_int(r, a->arg[1], "a start", 0, &from));
    TRY(tpl_want_int(r, a->arg[2], "an end", n, &to));
    from = from < 0 ? (from + n < 0 ? 0 : from + n) : from;
    to = to < 0 ? to + n : to > n ? n : to;
    TRY(tpl_charge(r, l->n));
    for (int64_t i = from; i < to; i++) {
        bool equal;
        TRY(tpl_equal(r, l->at[i], a->arg[0], &equal));
        if (equal) {
            *out = tpl_int(i);
            return VT_OK;
        }
    }
    return tpl_fail(r, "the value is not in the %s", tpl_type_name(a->self));
}

static vt_status list_copy(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    tpl_list *l;
    TRY(tpl_to_list(r, a->self, &l));
    *out = tpl_of_list(TPL_LIST, l);
    return VT_OK;
}

/* ---- dict ---- */

static vt_status dict_get(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    tpl_value *found;
    TRY(tpl_dict_find(r, a->self.dict, a->arg[0], &found));
    *out = found ? *found : a->arg[1].type == TPL_MISSING ? tpl_none() : a->arg[1];
    return VT_OK;
}

enum { KEYS = 0, VALUES, ITEMS };

/* dict.keys(), .values(), .items(), told apart by a->which */
static vt_status dict_view(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    static const char *const kinds[] = {"dict_keys", "dict_values", "dict_items"};
    const tpl_dict *d = a->self.dict;
    tpl_list *l;
    TRY(tpl_list_new(r, d->n, &l));
    for (size_t i = 0; i < d->n; i++) {
        tpl_value v = a->which == KEYS ? d->entry[i].key : d->entry[i].value;
        if (a->which == ITEMS)
            TRY(tpl_pair(r, d->entry[i].key, d->entry[i].value, &v));
        TRY(tpl_list_add(r, l, v));
    }
    l->kind = kinds[a->which];
    *out = tpl_of_list(TPL_VIEW, l);
    return VT_OK;
}

static vt_status dict_copy(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    (void)r;
    *out = a->self; /* dicts are immutable, so a copy needs no new one */
    return VT_OK;
}

/* ---- the tables ---- */

static const tpl_builtin list_methods[] = {
    {"count", list_count, 1, 1, {".value"}, 0},
    {"index", list_index, 1, 3, {".value", ".start", ".stop"}, 0},
    {"copy", list_copy, 0, 0, {0}, 0},
};

static const tpl_builtin dict_methods[] = {
    {"copy", dict_copy, 0, 0, {0}, 0},        {"get", dict_get, 1, 2, {".key", ".default"}, 0},
    {"items", dict_view, 0, 0, {0}, ITEMS},   {"keys", dict_view, 0, 0, {0}, KEYS},
    {"values", dict_view, 0, 0, {0}, VALUES},
};

const tpl_table tpl_list_methods = {list_methods, 3};
const tpl_table tpl_tuple_methods = {list_methods, 2}; /* of ranges too */
const tpl_table tpl_dict_methods = {dict_methods, sizeof dict_methods / sizeof *dict_methods};
