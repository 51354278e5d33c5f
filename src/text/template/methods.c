/* Methods of list, tuple, dict, loop and cycler that a template may call; those of str are in
 * template_str.c. */
#include "text/template/impl.h"

#define METHOD(name)                                                                              \
    static vt_status name(tpl_run *r, tpl_value self, const tpl_value *arg, const tpl_call *call, \
                          tpl_value *out)

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* ---- list, tuple, dict ---- */

/* Ranges are searched as the lists they stand for. */
static vt_status spread_range(tpl_run *r, tpl_value *self)
{
    if (self->type == TPL_RANGE)
        TRY(tpl_to_list(r, *self, &self->list));
    return VT_OK;
}

METHOD(list_count)
{
    int64_t n = 0;
    (void)call;
    TRY(spread_range(r, &self));
    for (size_t i = 0; i < self.list->n; i++) {
        bool equal;
        TRY(tpl_equal(r, self.list->at[i], arg[0], &equal));
        n += equal;
    }
    *out = tpl_int(n);
    return tpl_charge(r, self.list->n);
}

METHOD(list_index)
{
    int64_t n, from, to;
    (void)call;
    TRY(spread_range(r, &self));
    n = (int64_t)self.list->n;
    TRY(tpl_want_int(r, arg[1], "a start", 0, &from));
    TRY(tpl_want_int(r, arg[2], "an end", n, &to));
    from = from < 0 ? (from + n < 0 ? 0 : from + n) : from;
    to = to < 0 ? to + n : to > n ? n : to;
    TRY(tpl_charge(r, self.list->n));
    for (int64_t i = from; i < to; i++) {
        bool equal;
        TRY(tpl_equal(r, self.list->at[i], arg[0], &equal));
        if (equal) {
            *out = tpl_int(i);
            return VT_OK;
        }
    }
    return tpl_fail(r, "the value is not in the %s", tpl_type_name(self));
}

METHOD(list_copy)
{
    tpl_list *l;
    (void)arg, (void)call;
    TRY(tpl_to_list(r, self, &l));
    *out = tpl_of_list(TPL_LIST, l);
    return VT_OK;
}

METHOD(dict_get)
{
    tpl_value *found;
    (void)call;
    if (!tpl_hashable(arg[0]))
        return tpl_fail(r, "unhashable type: '%s'", tpl_type_name(arg[0]));
    TRY(tpl_dict_find(r, self.dict, arg[0], &found));
    *out = found ? *found : arg[1].type == TPL_MISSING ? tpl_none() : arg[1];
    return VT_OK;
}

static vt_status dict_view(tpl_run *r, tpl_value self, const char *kind, tpl_value *out)
{
    tpl_list *l;
    TRY(tpl_list_new(r, self.dict->n, &l));
    for (size_t i = 0; i < self.dict->n; i++) {
        const tpl_entry *e = &self.dict->entry[i];
        tpl_value v = kind[5] == 'k' ? e->key : e->value; /* dict_keys, dict_values, dict_items */
        if (kind[5] == 'i')
            TRY(tpl_pair(r, e->key, e->value, &v));
        TRY(tpl_list_add(r, l, v));
    }
    l->kind = kind;
    *out = tpl_of_list(TPL_VIEW, l);
    return VT_OK;
}

METHOD(dict_keys)
{
    (void)arg, (void)call;
    return dict_view(r, self, "dict_keys", out);
}

METHOD(dict_values)
{
    (void)arg, (void)call;
    return dict_view(r, self, "dict_values", out);
}

METHOD(dict_items)
{
    (void)arg, (void)call;
    return dict_view(r, self, "dict_items", out);
}

METHOD(dict_copy)
{
    (void)r, (void)arg, (void)call;
    *out = self; /* immutable: a copy is itself */
    return VT_OK;
}

/* ---- loop, cycler ---- */

METHOD(loop_cycle)
{
    (void)arg;
    *out = call->pos[self.loop->index0 % call->n_pos];
    return call->n_kw ? tpl_fail(r, "loop.cycle takes no keyword arguments") : VT_OK;
}

METHOD(loop_changed)
{
    tpl_list *l;
    tpl_value now;
    bool equal = false;
    (void)arg;
    TRY(tpl_list_new(r, (size_t)call->n_pos, &l));
    for (int32_t i = 0; i < call->n_pos; i++)
        l->at[l->n++] = call->pos[i];
    now = tpl_of_list(TPL_TUPLE, l);
    if (self.loop->changed.type != TPL_MISSING)
        TRY(tpl_equal(r, self.loop->changed, now, &equal));
    self.loop->changed = now;
    *out = tpl_bool(!equal);
    return VT_OK;
}

METHOD(cycler_next)
{
    tpl_cycler *c = self.cycler;
    (void)r, (void)arg, (void)call;
    *out = c->items.at[c->pos];
    c->pos = (c->pos + 1) % c->items.n;
    return VT_OK;
}

METHOD(cycler_reset)
{
    (void)r, (void)arg, (void)call;
    self.cycler->pos = 0;
    *out = tpl_none();
    return VT_OK;
}

/* ---- the tables ---- */

static const tpl_builtin list_methods[] = {
    /* of tuples and ranges the first two */
    {"count", list_count, 1, 1, {".value"}},
    {"index", list_index, 1, 3, {".value", ".start", ".stop"}},
    {"copy", list_copy, 0, 0, {0}},
};

static const tpl_builtin dict_methods[] = {
    {"copy", dict_copy, 0, 0, {0}},     {"get", dict_get, 1, 2, {".key", ".default"}},
    {"items", dict_items, 0, 0, {0}},   {"keys", dict_keys, 0, 0, {0}},
    {"values", dict_values, 0, 0, {0}},
};

static const tpl_builtin loop_methods[] = {
    {"changed", loop_changed, 0, -1, {0}},
    {"cycle", loop_cycle, 1, -1, {0}},
};

static const tpl_builtin cycler_methods[] = {
    {"next", cycler_next, 0, 0, {0}},
    {"reset", cycler_reset, 0, 0, {0}},
};

const tpl_builtin *tpl_method_of(tpl_value v, const char *name, size_t len)
{
    switch (v.type) {
    case TPL_STR:
        return tpl_str_method(name, len);
    case TPL_LIST:
        return tpl_find(list_methods, COUNT(list_methods), name, len);
    case TPL_TUPLE:
    case TPL_RANGE:
        return tpl_find(list_methods, 2, name, len);
    case TPL_DICT:
        return tpl_find(dict_methods, COUNT(dict_methods), name, len);
    case TPL_LOOP:
        return tpl_find(loop_methods, COUNT(loop_methods), name, len);
    case TPL_CYCLER:
        return tpl_find(cycler_methods, COUNT(cycler_methods), name, len);
    default:
        return NULL;
    }
}
