/* Values: strings, lists, ordered dicts, truth, equality, order, iteration.
 *
 * Python's rules throughout: 1 == 1.0 == True and all three are one dict key; strings are counted
 * in code points; a generator is consumed once and is always true. Integers have 64 bits; what
 * would pass them is an error (Python's grow without bound).
 *
 * Dicts keep insertion order: entries in an array, found by scanning up to 8 of them and by a hash
 * index beyond. Every probe costs a step, so colliding keys end in the step limit rather than in
 * hours.
 */
#include "text/template/impl.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

/* ---- failures and limits ---- */

static vt_status fail_at(tpl_run *r, vt_status status, const char *fmt, va_list args)
{
    char what[480];
    vsnprintf(what, sizeof what, fmt, args);
    vt_fail(r->err, status, "%s:%d: %s", r->t->name, r->line, what);
    return status;
}

#define FAIL_WITH(function, status)                      \
    vt_status function(tpl_run *r, const char *fmt, ...) \
    {                                                    \
        va_list args;                                    \
        va_start(args, fmt);                             \
        vt_status s = fail_at(r, status, fmt, args);     \
        va_end(args);                                    \
        return s;                                        \
    }
FAIL_WITH(tpl_fail, VT_ERR_USAGE)
FAIL_WITH(tpl_unsupported, VT_ERR_UNSUPPORTED)
FAIL_WITH(tpl_limit, VT_ERR_MEMORY)

vt_status tpl_no_memory(tpl_run *r)
{
    tpl_limit(r, "the rendering needs more than %d MiB for its values, or memory ran out",
              TPL_MEMORY >> 20);
    return VT_ERR_MEMORY;
}

vt_status tpl_charge(tpl_run *r, size_t steps)
{
    if (steps > (size_t)r->steps_left)
        return tpl_limit(r, "the rendering takes more than %lld steps", (long long)r->max_steps);
    r->steps_left -= (int64_t)steps;
    return VT_OK;
}

vt_status tpl_enter(tpl_run *r)
{
    if (r->depth >= r->max_depth)
        return tpl_limit(r, "calls and values are nested deeper than %d", (int)r->max_depth);
    r->depth++;
    return VT_OK;
}

/* ---- strings ---- */

const char *tpl_type_name(tpl_value v)
{
    static const char *const names[] = {
        [TPL_MISSING] = "missing",
        [TPL_UNDEFINED] = "Undefined",
        [TPL_NONE] = "NoneType",
        [TPL_BOOL] = "bool",
        [TPL_INT] = "int",
        [TPL_FLOAT] = "float",
        [TPL_STR] = "str",
        [TPL_LIST] = "list",
        [TPL_TUPLE] = "tuple",
        [TPL_DICT] = "dict",
        [TPL_RANGE] = "range",
        [TPL_NAMESPACE] = "Namespace",
        [TPL_MACRO] = "Macro",
        [TPL_FUNCTION] = "function",
        [TPL_METHOD] = "builtin_function_or_method",
        [TPL_LOOP] = "LoopContext",
        [TPL_CYCLER] = "Cycler",
        [TPL_JOINER] = "Joiner",
    };
    if (v.type == TPL_VIEW)
        return v.list->kind;
    if (v.type == TPL_ITER)
        return v.iter->kind;
    return names[v.type];
}

size_t tpl_count_chars(const char *s, size_t len)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++)
        n += ((unsigned char)s[i] & 0xc0) != 0x80;
    return n;
}

vt_status tpl_str_wrap(tpl_run *r, const char *s, size_t len, tpl_value *out)
{
    tpl_str *str;
    TPL_NEW(r, str, 1);
    *str = (tpl_str){.data = s, .len = len, .n_chars = tpl_count_chars(s, len)};
    *out = tpl_of_str(str);
    return VT_OK;
}

vt_status tpl_str_copy(tpl_run *r, const char *s, size_t len, tpl_value *out)
{
    char *copy = vt_arena_strdup(&r->arena, s, len);
    TRY(tpl_charge(r, len / 64));
    return copy ? tpl_str_wrap(r, copy, len, out) : tpl_no_memory(r);
}

vt_status tpl_str_printf(tpl_run *r, tpl_value *out, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    size_t len = n < 0 ? 0 : (size_t)n < sizeof text ? (size_t)n : sizeof text - 1;
    return tpl_str_copy(r, text, len, out);
}

vt_status tpl_str_markup(tpl_run *r, tpl_value s, bool markup, tpl_value *out)
{
    tpl_str *str;
    if (s.str->markup == markup) {
        *out = s;
        return VT_OK;
    }
    TPL_NEW(r, str, 1);
    *str = *s.str;
    str->markup = markup;
    *out = tpl_of_str(str);
    return VT_OK;
}

size_t tpl_str_offset(const tpl_str *s, size_t n)
{
    if (s->n_chars == s->len)
        return n;
    size_t i = 0;
    for (; i < s->len; i++)
        if (((unsigned char)s->data[i] & 0xc0) != 0x80 && n-- == 0)
            break;
    return i;
}

/* ---- text being built ---- */

vt_status tpl_text_add(tpl_run *r, tpl_text *t, const void *bytes, size_t n)
{
    size_t need;
    if (!vt_add_size(t->len, n, &need) || !vt_add_size(need, 1, &need))
        return tpl_no_memory(r);
    if (need > t->cap) {
        size_t cap = t->cap ? 2 * t->cap : 64;
        while (cap < need)
            cap *= 2;
        char *data;
        TPL_NEW(r, data, cap);
        if (t->len > 0)
            memcpy(data, t->data, t->len);
        t->data = data;
        t->cap = cap;
    }
    if (n > 0)
        memcpy(t->data + t->len, bytes, n);
    t->len += n;
    t->data[t->len] = '\0';
    return n < 64 ? VT_OK : tpl_charge(r, n / 64);
}

vt_status tpl_text_puts(tpl_run *r, tpl_text *t, const char *s)
{
    return tpl_text_add(r, t, s, strlen(s));
}

vt_status tpl_text_fill(tpl_run *r, tpl_text *t, const char *bytes, size_t n, int64_t times)
{
    for (int64_t i = 0; i < times; i++) {
        TRY(tpl_charge(r, i % 16 == 0));
        TRY(tpl_text_add(r, t, bytes, n));
    }
    return VT_OK;
}

vt_status tpl_text_value(tpl_run *r, const tpl_text *t, tpl_value *out)
{
    return tpl_str_wrap(r, t->data ? t->data : "", t->len, out);
}

/* ---- lists and dicts ---- */

vt_status tpl_list_new(tpl_run *r, size_t cap, tpl_list **out)
{
    tpl_list *l;
    TPL_NEW(r, l, 1);
    if (cap > 0)
        TPL_NEW(r, l->at, cap);
    l->cap = cap;
    *out = l;
    return VT_OK;
}

vt_status tpl_list_add(tpl_run *r, tpl_list *l, tpl_value v)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 4;
        tpl_value *at;
        TPL_NEW(r, at, cap);
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

vt_status tpl_dict_new(tpl_run *r, tpl_dict **out)
{
    TPL_NEW(r, *out, 1);
    return VT_OK;
}

static uint64_t mix(uint64_t h, uint64_t x)
{
    h = (h ^ x) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

/* Equal values hash alike, whatever their types. False: unhashable. Depth: tuples of tuples. */
static bool hash_value(tpl_value v, int depth, uint64_t *out)
{
    uint64_t h = 0x243f6a8885a308d3u;
    if (depth > 50)
        return false;
    if (tpl_is_number(v)) {
        double d = tpl_as_float(v);
        uint64_t bits;
        bool whole = d == floor(d) && fabs(d) < 9.2e18;
        if (v.type == TPL_FLOAT && !whole)
            memcpy(&bits, &d, sizeof bits);
        else
            bits = (uint64_t)(v.type == TPL_FLOAT ? (int64_t)d : tpl_as_int(v));
        *out = mix(h, bits);
        return true;
    }
    switch (v.type) {
    case TPL_STR:
        for (size_t i = 0; i < v.str->len; i++)
            h = (h ^ (unsigned char)v.str->data[i]) * 1099511628211u;
        *out = mix(h, v.str->len);
        return true;
    case TPL_TUPLE:
        for (size_t i = 0; i < v.list->n; i++) {
            uint64_t item;
            if (!hash_value(v.list->at[i], depth + 1, &item))
                return false;
            h = mix(h, item);
        }
        *out = h;
        return true;
    case TPL_LIST:
    case TPL_DICT:
    case TPL_VIEW:
        return false;
    case TPL_NONE:
    case TPL_UNDEFINED:
        *out = mix(h, v.type);
        return true;
    default:
        *out = mix(h, (uintptr_t)v.dict); /* by identity */
        return true;
    }
}

bool tpl_hashable(tpl_value v)
{
    uint64_t h;
    return hash_value(v, 0, &h);
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
        return tpl_no_memory(r);
    TPL_NEW(r, entry, cap);
    if (d->n > 0)
        memcpy(entry, d->entry, d->n * sizeof *entry);
    d->entry = entry;
    d->cap = cap;
    if (cap > 8) {
        TPL_NEW(r, d->index, 2 * cap);
        d->n_index = 2 * cap;
        for (size_t i = 0; i < d->n; i++)
            index_add(d, i);
    }
    return VT_OK;
}

vt_status tpl_dict_set(tpl_run *r, tpl_dict *d, tpl_value key, tpl_value value)
{
    uint64_t hash;
    tpl_entry *e;
    if (!hash_value(key, 0, &hash))
        return tpl_fail(r, "unhashable type: '%s'", tpl_type_name(key));
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
    uint64_t hash;
    tpl_entry *e = NULL;
    if (hash_value(key, 0, &hash))
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
    for (size_t i = 0; i < a->n && *equal; i++)
        TRY(tpl_equal(r, a->at[i], b->at[i], equal));
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

/* Items and keys compare as sets. */
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

/* Exact even where a double cannot hold the integer. */
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
        *equal = a.str->len == b.str->len && memcmp(a.str->data, b.str->data, a.str->len) == 0;
        return tpl_charge(r, a.str->len / 64);
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
        *equal = a.dict == b.dict;
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
        int c = memcmp(a.str->data, b.str->data, n);
        *order = c ? (c > 0) - (c < 0) : (a.str->len > b.str->len) - (a.str->len < b.str->len);
        return tpl_charge(r, n / 64);
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

vt_status tpl_cursor_init(tpl_run *r, tpl_value of, tpl_cursor *c)
{
    if (!tpl_iterable(of)) {
        tpl_fail(r, "'%s' object is not iterable", tpl_type_name(of));
        return VT_ERR_USAGE;
    }
    *c = (tpl_cursor){.of = of};
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
    tpl_value of = c->of;
    TRY(tpl_charge(r, 1));
    *end = false;
    switch (of.type) {
    case TPL_STR:
        *end = pos >= of.str->len;
        if (!*end) {
            uint32_t code;
            size_t n = tpl_decode(of.str->data + pos, of.str->len - pos, &code);
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
    tpl_cursor c;
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
    tpl_cursor c;
    tpl_value other, *value;
    bool end;
    *found = false;
    if (in.type == TPL_STR) {
        if (item.type != TPL_STR)
            return tpl_fail(r, "'in <string>' requires string as left operand, not %s",
                            tpl_type_name(item));
        *found = memmem(in.str->data, in.str->len, item.str->data, item.str->len) != NULL;
        return tpl_charge(r, in.str->len / 64);
    }
    if (in.type == TPL_DICT) {
        if (!tpl_hashable(item))
            return tpl_fail(r, "unhashable type: '%s'", tpl_type_name(item));
        TRY(tpl_dict_find(r, in.dict, item, &value));
        *found = value != NULL;
        return VT_OK;
    }
    if (in.type == TPL_VIEW && strcmp(in.list->kind, "dict_keys") == 0 && !tpl_hashable(item))
        return tpl_fail(r, "unhashable type: '%s'", tpl_type_name(item));
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
    if (status == VT_ERR_MEMORY) /* a limit, not a Python error: it holds now */
        return status;
    TPL_NEW(r, it, 1);
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
    TPL_NEW(r, copy, 1);
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

vt_status tpl_undefined_of(tpl_run *r, tpl_value of, tpl_value key, tpl_value *out)
{
    return undefined(
        r, (tpl_undef){.of = of.type == TPL_NONE ? "None" : tpl_type_name(of), .key = key}, out);
}

vt_status tpl_fail_undefined(tpl_run *r, tpl_value v)
{
    const tpl_undef *u = v.undef;
    tpl_text key = {0};
    if (u->hint)
        return tpl_fail(r, "%s", u->hint);
    TRY(tpl_put_repr(r, &key, u->key));
    if (!u->of)
        return tpl_fail(r, "%s is undefined", key.data);
    const char *object = strcmp(u->of, "None") == 0 ? "" : " object";
    if (u->key.type == TPL_STR)
        return tpl_fail(r, "'%s%s' has no attribute %s", u->of, object, key.data);
    return tpl_fail(r, "%s%s has no element %s", u->of, object, key.data);
}
