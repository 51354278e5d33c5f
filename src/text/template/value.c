/* Lists, ordered dicts, truth, equality, order, iteration, and what is undefined.
 *
 * Python's rules throughout: 1 == 1.0 == True, and all three are one dict key; a generator is
 * consumed once and is always true. Integers have 64 bits; a result that needs more is an error
 * (Python's grow without bound).
 *
 * Dicts keep insertion order: entries in an array, found by scanning up to 8 of them and by a hash
 * index beyond. Every probe costs a step, so colliding keys end in the step limit rather than in
 * hours.
 */
#include "text/template/values.h"

#include <math.h>

#include "base/random.h"

/* ---- lists ---- */

vt_status tpl_list_new(tpl_run *r, size_t cap, tpl_list **out)
{
    tpl_list *l;
    l = tpl_alloc(r, 1, sizeof *l);
    if (!l)
        return VT_ERR_MEMORY;
    if (cap > 0) {
        l->at = tpl_alloc(r, cap, sizeof *l->at);
        if (!l->at)
            return VT_ERR_MEMORY;
    }
    l->cap = cap;
    *out = l;
    return VT_OK;
}

vt_status tpl_list_add(tpl_run *r, tpl_list *l, tpl_value v)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 4;
        tpl_value *at;
        at = tpl_alloc(r, cap, sizeof *at);
        if (!at)
            return VT_ERR_MEMORY;
        if (l->n > 0)
            memcpy(at, l->at, l->n * sizeof *at);
        l->at = at;
        l->cap = cap;
    }
    l->at[l->n++] = v;
    return tpl_charge(r, 1);
}

void tpl_list_reverse(tpl_list *l)
{
    for (size_t i = 0; i < l->n / 2; i++) {
        tpl_value v = l->at[i];
        l->at[i] = l->at[l->n - 1 - i];
        l->at[l->n - 1 - i] = v;
    }
}

vt_status tpl_pair(tpl_run *r, tpl_value a, tpl_value b, tpl_value *out)
{
    tpl_list *l;
    TRY(tpl_list_new(r, 2, &l));
    l->at[0] = a;
    l->at[1] = b;
    l->n = 2;
    *out = tpl_of_list(TPL_TUPLE, l);
    return VT_OK;
}

/* ---- hashing ---- */

static uint64_t mix(uint64_t h, uint64_t x) { return vt_mix64(h ^ x) + 0x9e3779b97f4a7c15u; }

static uint64_t hash_number(uint64_t h, tpl_value v)
{
    double d = tpl_as_float(v);
    uint64_t bits;
    bool whole = d == floor(d) && fabs(d) < 9.2e18;
    if (v.type == TPL_FLOAT && !whole)
        memcpy(&bits, &d, sizeof bits);
    else
        bits = (uint64_t)(v.type == TPL_FLOAT ? (int64_t)d : tpl_as_int(v));
    return mix(h, bits);
}

/* Equal values hash alike, whatever their types. Every value that is visited costs a step: a tuple
 * that holds another one twice, and so on for 40 levels, has 2^40 of them. */
static vt_status hash_value(tpl_run *r, tpl_value v, uint64_t *out, bool *hashable)
{
    uint64_t h = r->seed;
    TRY(tpl_charge(r, 1));
    *hashable = v.type != TPL_LIST && v.type != TPL_DICT && v.type != TPL_VIEW;
    if (!*hashable)
        return VT_OK;
    if (tpl_is_number(v)) {
        *out = hash_number(h, v);
    } else if (v.type == TPL_STR) {
        TRY(tpl_charge(r, v.str->len / 64));
        *out = mix(vt_fnv1a(h, v.str->data, v.str->len), v.str->len);
    } else if (v.type == TPL_TUPLE) {
        TRY(tpl_enter(r));
        for (size_t i = 0; i < v.list->n && *hashable; i++) {
            uint64_t item = 0;
            TRY(hash_value(r, v.list->at[i], &item, hashable));
            h = mix(h, item);
        }
        tpl_leave(r);
        *out = h;
    } else if (v.type == TPL_NONE || v.type == TPL_UNDEFINED) {
        *out = mix(h, v.type);
    } else {
        *out = mix(h, (uintptr_t)v.object); /* by identity */
    }
    return VT_OK;
}

vt_status tpl_hashable(tpl_run *r, tpl_value v, bool *hashable)
{
    uint64_t h;
    return hash_value(r, v, &h, hashable);
}

/* Fails for a value that cannot be hashed. */
static vt_status hash_key(tpl_run *r, tpl_value key, uint64_t *hash)
{
    bool hashable;
    TRY(hash_value(r, key, hash, &hashable));
    return hashable ? VT_OK : tpl_fail(r, "unhashable type: '%s'", tpl_type_name(key));
}

/* ---- dicts ---- */

vt_status tpl_dict_new(tpl_run *r, tpl_dict **out)
{
    *out = tpl_alloc(r, 1, sizeof **out);
    return *out ? VT_OK : VT_ERR_MEMORY;
}

static vt_status entry_is(tpl_run *r, const tpl_entry *e, tpl_value key, uint64_t hash, bool *is)
{
    *is = false;
    return e->hash == hash ? tpl_equal(r, e->key, key, is) : VT_OK;
}

/* The entry with this key, or NULL. */
static vt_status dict_entry(tpl_run *r, const tpl_dict *d, tpl_value key, uint64_t hash,
                            tpl_entry **out)
{
    bool is;
    *out = NULL;
    if (!d->index) {
        for (size_t i = 0; i < d->n; i++) {
            TRY(entry_is(r, &d->entry[i], key, hash, &is));
            if (is) {
                *out = &d->entry[i];
                return VT_OK;
            }
        }
        return VT_OK;
    }
    for (size_t i = hash & (d->n_index - 1); d->index[i]; i = (i + 1) & (d->n_index - 1)) {
        tpl_entry *e = &d->entry[d->index[i] - 1];
        TRY(tpl_charge(r, 1));
        TRY(entry_is(r, e, key, hash, &is));
        if (is) {
            *out = e;
            return VT_OK;
        }
    }
    return VT_OK;
}

static void index_add(tpl_dict *d, size_t number)
{
    size_t i = d->entry[number].hash & (d->n_index - 1);
    while (d->index[i])
        i = (i + 1) & (d->n_index - 1);
    d->index[i] = (uint32_t)number + 1;
}

static vt_status dict_grow(tpl_run *r, tpl_dict *d)
{
    size_t cap = d->cap ? 2 * d->cap : 8;
    tpl_entry *entry;
    if (cap > UINT32_MAX / 2)
        return tpl_limit(r, "a dict has too many entries");
    entry = tpl_alloc(r, cap, sizeof *entry);
    if (!entry)
        return VT_ERR_MEMORY;
    if (d->n > 0)
        memcpy(entry, d->entry, d->n * sizeof *entry);
    d->entry = entry;
    d->cap = cap;
    if (cap > 8) {
        d->index = tpl_alloc(r, 2 * cap, sizeof *d->index);
        if (!d->index)
            return VT_ERR_MEMORY;
        d->n_index = 2 * cap;
        for (size_t i = 0; i < d->n; i++)
            index_add(d, i);
    }
    return VT_OK;
}

vt_status tpl_dict_set(tpl_run *r, tpl_dict *d, tpl_value key, tpl_value value)
{
    uint64_t hash = 0;
    tpl_entry *e;
    TRY(hash_key(r, key, &hash));
    TRY(dict_entry(r, d, key, hash, &e));
    if (e) {
        e->value = value;
        return VT_OK;
    }
    if (d->n == d->cap)
        TRY(dict_grow(r, d));
    d->entry[d->n++] = (tpl_entry){.key = key, .value = value, .hash = hash};
    if (d->index)
        index_add(d, d->n - 1);
    return tpl_charge(r, 1);
}

vt_status tpl_dict_find(tpl_run *r, const tpl_dict *d, tpl_value key, tpl_value **out)
{
    uint64_t hash = 0;
    tpl_entry *e;
    TRY(hash_key(r, key, &hash));
    TRY(dict_entry(r, d, key, hash, &e));
    *out = e ? &e->value : NULL;
    return VT_OK;
}

/* ---- truth, equality, order ---- */

bool tpl_length(tpl_value v, int64_t *n)
{
    switch (v.type) {
    case TPL_STR:
        *n = (int64_t)v.str->n_chars;
        return true;
    case TPL_LIST:
    case TPL_TUPLE:
    case TPL_VIEW:
        *n = (int64_t)v.list->n;
        return true;
    case TPL_DICT:
        *n = (int64_t)v.dict->n;
        return true;
    case TPL_RANGE:
        *n = v.range->n;
        return true;
    case TPL_UNDEFINED:
        *n = 0;
        return true;
    default:
        return false;
    }
}

bool tpl_truth(tpl_value v)
{
    int64_t n;
    switch (v.type) {
    case TPL_MISSING:
    case TPL_UNDEFINED:
    case TPL_NONE:
        return false;
    case TPL_BOOL:
        return v.boolean;
    case TPL_INT:
        return v.integer != 0;
    case TPL_FLOAT:
        return v.real != 0;
    default:
        return tpl_length(v, &n) ? n != 0 : true;
    }
}

static vt_status equal_lists(tpl_run *r, const tpl_list *a, const tpl_list *b, bool *equal)
{
    *equal = a->n == b->n;
    for (size_t i = 0; i < a->n && *equal; i++) {
        TRY(tpl_charge(r, 1));
        TRY(tpl_equal(r, a->at[i], b->at[i], equal));
    }
    return VT_OK;
}

static vt_status equal_dicts(tpl_run *r, const tpl_dict *a, const tpl_dict *b, bool *equal)
{
    *equal = a->n == b->n;
    for (size_t i = 0; i < a->n && *equal; i++) {
        tpl_value *other;
        TRY(tpl_dict_find(r, b, a->entry[i].key, &other));
        *equal = other != NULL;
        if (other)
            TRY(tpl_equal(r, a->entry[i].value, *other, equal));
    }
    return VT_OK;
}

/* Views of keys and items compare as sets do. */
static vt_status equal_views(tpl_run *r, const tpl_list *a, tpl_list *b, bool *equal)
{
    *equal = a == b || (a->n == b->n && strcmp(a->kind, "dict_values") != 0 &&
                        strcmp(b->kind, "dict_values") != 0);
    for (size_t i = 0; a != b && i < a->n && *equal; i++)
        TRY(tpl_contains(r, a->at[i], tpl_of_list(TPL_VIEW, b), equal));
    return VT_OK;
}

static vt_status equal_containers(tpl_run *r, tpl_value a, tpl_value b, bool *equal)
{
    TRY(tpl_charge(r, 1));
    TRY(tpl_enter(r));
    if (a.type == TPL_DICT)
        TRY(equal_dicts(r, a.dict, b.dict, equal));
    else if (a.type == TPL_VIEW)
        TRY(equal_views(r, a.list, b.list, equal));
    else
        TRY(equal_lists(r, a.list, b.list, equal));
    tpl_leave(r);
    return VT_OK;
}

/* Exact, even for integers that a double cannot hold. */
static int order_numbers(tpl_value a, tpl_value b)
{
    if (tpl_is_int(a) && tpl_is_int(b)) {
        int64_t x = tpl_as_int(a), y = tpl_as_int(b);
        return (x > y) - (x < y);
    }
    long double x = a.type == TPL_FLOAT ? (long double)a.real : (long double)tpl_as_int(a);
    long double y = b.type == TPL_FLOAT ? (long double)b.real : (long double)tpl_as_int(b);
    return (x > y) - (x < y);
}

static bool is_nan(tpl_value v) { return v.type == TPL_FLOAT && v.real != v.real; }

vt_status tpl_equal(tpl_run *r, tpl_value a, tpl_value b, bool *equal)
{
    if (tpl_is_number(a) && tpl_is_number(b)) {
        *equal = !is_nan(a) && !is_nan(b) && order_numbers(a, b) == 0;
        return VT_OK;
    }
    if (a.type != b.type) {
        *equal = false;
        return VT_OK;
    }
    switch (a.type) {
    case TPL_NONE:
    case TPL_UNDEFINED:
        *equal = true;
        return VT_OK;
    case TPL_STR:
        *equal = a.str->len == b.str->len;
        if (!*equal)
            return VT_OK;
        TRY(tpl_charge(r, a.str->len / 64));
        *equal = memcmp(a.str->data, b.str->data, a.str->len) == 0;
        return VT_OK;
    case TPL_RANGE:
        *equal = a.range->n == b.range->n &&
                 (a.range->n == 0 || (a.range->start == b.range->start &&
                                      (a.range->n == 1 || a.range->step == b.range->step)));
        return VT_OK;
    case TPL_LIST:
    case TPL_TUPLE:
    case TPL_VIEW:
    case TPL_DICT:
        return equal_containers(r, a, b, equal);
    case TPL_METHOD:
        *equal = a.method->builtin == b.method->builtin;
        return *equal ? tpl_equal(r, a.method->self, b.method->self, equal) : VT_OK;
    default:
        *equal = a.object == b.object;
        return VT_OK;
    }
}

static vt_status order_lists(tpl_run *r, const tpl_list *a, const tpl_list *b, const char *op,
                             int *order)
{
    TRY(tpl_enter(r));
    for (size_t i = 0; i < a->n && i < b->n; i++) {
        bool equal;
        TRY(tpl_charge(r, 1));
        TRY(tpl_equal(r, a->at[i], b->at[i], &equal));
        if (!equal) {
            TRY(tpl_order(r, a->at[i], b->at[i], op, order));
            tpl_leave(r);
            return VT_OK;
        }
    }
    tpl_leave(r);
    *order = (a->n > b->n) - (a->n < b->n);
    return VT_OK;
}

vt_status tpl_order(tpl_run *r, tpl_value a, tpl_value b, const char *op, int *order)
{
    if (a.type == TPL_UNDEFINED || b.type == TPL_UNDEFINED)
        return tpl_fail_undefined(r, a.type == TPL_UNDEFINED ? a : b);
    if (tpl_is_number(a) && tpl_is_number(b)) {
        /* a NaN is neither less nor greater nor equal: 2 makes every comparison false */
        *order = is_nan(a) || is_nan(b) ? 2 : order_numbers(a, b);
        return VT_OK;
    }
    if (a.type == TPL_STR && b.type == TPL_STR) { /* UTF-8 bytes order as code points do */
        size_t n = a.str->len < b.str->len ? a.str->len : b.str->len;
        TRY(tpl_charge(r, n / 64));
        int c = memcmp(a.str->data, b.str->data, n);
        *order = c ? (c > 0) - (c < 0) : (a.str->len > b.str->len) - (a.str->len < b.str->len);
        return VT_OK;
    }
    if ((a.type == TPL_LIST || a.type == TPL_TUPLE) && a.type == b.type)
        return order_lists(r, a.list, b.list, op, order);
    return tpl_fail(r, "'%s' not supported between instances of '%s' and '%s'", op,
                    tpl_type_name(a), tpl_type_name(b));
}

/* ---- iteration ---- */

bool tpl_iterable(tpl_value v)
{
    switch (v.type) {
    case TPL_UNDEFINED:
    case TPL_STR:
    case TPL_LIST:
    case TPL_TUPLE:
    case TPL_VIEW:
    case TPL_DICT:
    case TPL_RANGE:
    case TPL_ITER:
        return true;
    default:
        return false;
    }
}

vt_status tpl_cursor_init(tpl_run *r, tpl_value over, tpl_cursor *c)
{
    if (!tpl_iterable(over))
        return tpl_fail(r, "'%s' object is not iterable", tpl_type_name(over));
    *c = (tpl_cursor){.over = over};
    return VT_OK;
}

static vt_status iter_next(tpl_run *r, tpl_iter *it, tpl_value *item, bool *end)
{
    *end = it->next >= it->items.n;
    if (!*end) {
        *item = it->items.at[it->next++];
        return VT_OK;
    }
    if (!it->failed)
        return VT_OK;
    if (r->err)
        *r->err = it->failure;
    return it->failure.status;
}

vt_status tpl_cursor_next(tpl_run *r, tpl_cursor *c, tpl_value *item, bool *end)
{
    size_t pos = c->pos;
    tpl_value of = c->over;
    TRY(tpl_charge(r, 1));
    *end = false;
    switch (of.type) {
    case TPL_STR:
        *end = pos >= of.str->len;
        if (!*end) {
            uint32_t code;
            size_t n = tpl_next(of.str->data + pos, &code);
            c->pos += n;
            return tpl_str_copy(r, of.str->data + pos, n, item);
        }
        return VT_OK;
    case TPL_LIST:
    case TPL_TUPLE:
    case TPL_VIEW:
        *end = pos >= of.list->n;
        if (!*end)
            *item = of.list->at[pos];
        break;
    case TPL_DICT:
        *end = pos >= of.dict->n;
        if (!*end)
            *item = of.dict->entry[pos].key;
        break;
    case TPL_RANGE:
        *end = pos >= (size_t)of.range->n;
        if (!*end)
            *item = tpl_int(of.range->start + (int64_t)pos * of.range->step);
        break;
    case TPL_ITER:
        return iter_next(r, of.iter, item, end);
    default:
        *end = true;
        break;
    }
    c->pos++;
    return VT_OK;
}

vt_status tpl_to_list(tpl_run *r, tpl_value v, tpl_list **out)
{
    tpl_cursor c = {0};
    tpl_value item;
    bool end;
    TRY(tpl_cursor_init(r, v, &c));
    TRY(tpl_list_new(r, 0, out));
    for (;;) {
        TRY(tpl_cursor_next(r, &c, &item, &end));
        if (end)
            return VT_OK;
        TRY(tpl_list_add(r, *out, item));
    }
}

vt_status tpl_contains(tpl_run *r, tpl_value item, tpl_value in, bool *found)
{
    tpl_cursor c = {0};
    tpl_value other, *value;
    bool end, keys = in.type == TPL_VIEW && strcmp(in.list->kind, "dict_keys") == 0;
    *found = false;
    if (in.type == TPL_STR) {
        const char *at;
        if (item.type != TPL_STR)
            return tpl_fail(r, "'in <string>' requires string as left operand, not %s",
                            tpl_type_name(item));
        TRY(tpl_search(r, in.str->data, in.str->len, item.str, false, &at));
        *found = at != NULL;
        return VT_OK;
    }
    if (in.type == TPL_DICT) {
        TRY(tpl_dict_find(r, in.dict, item, &value));
        *found = value != NULL;
        return VT_OK;
    }
    if (keys) {
        uint64_t hash = 0;
        TRY(hash_key(r, item, &hash));
    }
    if (!tpl_iterable(in))
        return tpl_fail(r, "argument of type '%s' is not iterable", tpl_type_name(in));
    TRY(tpl_cursor_init(r, in, &c));
    while (!*found) {
        TRY(tpl_cursor_next(r, &c, &other, &end));
        if (end)
            break;
        TRY(tpl_equal(r, item, other, found));
    }
    return VT_OK;
}

vt_status tpl_iter_new(tpl_run *r, tpl_list *items, vt_status status, tpl_value *out)
{
    tpl_iter *it;
    if (status == VT_ERR_MEMORY || status == VT_ERR_CANCELLED)
        return status; /* a limit of ours: it holds at once, a generator cannot delay it */
    TRY(tpl_charge(r, status == VT_OK ? 1 : 32)); /* a message was made */
    it = tpl_alloc(r, 1, sizeof *it);
    if (!it)
        return VT_ERR_MEMORY;
    it->items = *items;
    it->kind = "generator";
    it->failed = status != VT_OK;
    if (it->failed)
        it->failure = r->err ? *r->err : (vt_err){.status = status};
    *out = (tpl_value){.type = TPL_ITER, .iter = it};
    return VT_OK;
}

/* ---- undefined ---- */

static vt_status undefined(tpl_run *r, tpl_undef u, tpl_value *out)
{
    tpl_undef *copy;
    copy = tpl_alloc(r, 1, sizeof *copy);
    if (!copy)
        return VT_ERR_MEMORY;
    *copy = u;
    *out = (tpl_value){.type = TPL_UNDEFINED, .undef = copy};
    return VT_OK;
}

vt_status tpl_undefined_name(tpl_run *r, const char *name, tpl_value *out)
{
    tpl_value key;
    TRY(tpl_str_wrap(r, name, strlen(name), &key));
    return undefined(r, (tpl_undef){.key = key}, out);
}

vt_status tpl_undefined_hint(tpl_run *r, const char *hint, tpl_value *out)
{
    return undefined(r, (tpl_undef){.hint = hint}, out);
}

vt_status tpl_undefined_in(tpl_run *r, tpl_value owner, tpl_value key, tpl_value *out)
{
    return undefined(
        r, (tpl_undef){.owner = owner.type == TPL_NONE ? "None" : tpl_type_name(owner), .key = key},
        out);
}

vt_status tpl_fail_undefined(tpl_run *r, tpl_value v)
{
    const tpl_undef *u = v.undef;
    tpl_text key = {0};
    if (u->hint)
        return tpl_fail(r, "%s", u->hint);
    TRY(tpl_put_repr(r, &key, u->key));
    if (!u->owner)
        return tpl_fail(r, "%s is undefined", key.data);
    const char *object = strcmp(u->owner, "None") == 0 ? "" : " object";
    if (u->key.type == TPL_STR)
        return tpl_fail(r, "'%s%s' has no attribute %s", u->owner, object, key.data);
    return tpl_fail(r, "%s%s has no element %s", u->owner, object, key.data);
}
