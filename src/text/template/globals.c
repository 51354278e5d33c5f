/* Functions that every template finds: jinja2's range, dict, namespace and joiner, and Hugging
 * Face's raise_exception and strftime_now. */
#include <time.h>

#include "text/template/builtins.h"

static vt_status bound(tpl_run *r, tpl_value v, int64_t absent, int64_t *out)
{
    if (v.type == TPL_NONE)
        return tpl_fail(r, "'NoneType' object cannot be interpreted as an integer");
    return tpl_want_int(r, v, "range's argument", absent, out);
}

static vt_status global_range(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    int64_t start = 0, stop, step, span;
    bool one = a->arg[1].type == TPL_MISSING;
    TRY(bound(r, a->arg[one ? 0 : 1], 0, &stop));
    if (!one)
        TRY(bound(r, a->arg[0], 0, &start));
    TRY(bound(r, a->arg[2], 1, &step));
    if (step == 0)
        return tpl_fail(r, "range() a->arg 3 must not be zero");
    bool empty = step > 0 ? start >= stop : start <= stop;
    uint64_t stride = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    if (__builtin_sub_overflow(step > 0 ? stop : start, step > 0 ? start : stop, &span))
        span = INT64_MAX;
    uint64_t n = empty ? 0 : ((uint64_t)span - 1) / stride + 1;
    if (n > TPL_MAX_RANGE)
        return tpl_limit(r, "range of more than %d items", TPL_MAX_RANGE);
    tpl_range *range = tpl_alloc(r, 1, sizeof *range);
    if (!range)
        return VT_ERR_MEMORY;
    *range = (tpl_range){.start = start, .stop = stop, .step = step, .n = (int64_t)n};
    *out = (tpl_value){.type = TPL_RANGE, .range = range};
    return VT_OK;
}

/* dict(mapping or pairs, **more) */
static vt_status fill_dict(tpl_run *r, const tpl_call *call, tpl_dict *d)
{
    if (call->n_pos > 1)
        return tpl_fail(r, "dict expected at most 1 argument, got %d", call->n_pos);
    if (call->n_pos == 1 && call->pos[0].type == TPL_DICT) {
        const tpl_dict *from = call->pos[0].dict;
        for (size_t i = 0; i < from->n; i++)
            TRY(tpl_dict_set(r, d, from->entry[i].key, from->entry[i].value));
    } else if (call->n_pos == 1) {
        tpl_list *pairs, *pair;
        TRY(tpl_to_list(r, call->pos[0], &pairs));
        for (size_t i = 0; i < pairs->n; i++) {
            TRY(tpl_to_list(r, pairs->at[i], &pair));
            if (pair->n != 2)
                return tpl_fail(
                    r, "dictionary update sequence element #%zu has length %zu; 2 is required", i,
                    pair->n);
            TRY(tpl_dict_set(r, d, pair->at[0], pair->at[1]));
        }
    }
    for (int32_t i = 0; i < call->n_kw; i++)
        TRY(tpl_dict_set(r, d, call->kw[i].key, call->kw[i].value));
    return VT_OK;
}

static vt_status global_dict(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    tpl_dict *d;
    TRY(tpl_dict_new(r, &d));
    TRY(fill_dict(r, a->call, d));
    *out = tpl_of_dict(d);
    return VT_OK;
}

static vt_status global_namespace(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    tpl_dict *d;
    TRY(tpl_dict_new(r, &d));
    TRY(fill_dict(r, a->call, d));
    for (size_t i = 0; i < d->n; i++)
        if (d->entry[i].key.type == TPL_STR && d->entry[i].key.str->data[0] == '_')
            return tpl_fail(
                r, "a namespace cannot have an attribute '%.60s' that begins with an underscore",
                d->entry[i].key.str->data);
    *out = (tpl_value){.type = TPL_NAMESPACE, .dict = d};
    return VT_OK;
}

/* ---- joiner ---- */

typedef struct joiner {
    tpl_object object;
    tpl_value separator;
    bool used;
} joiner;

/* Nothing at the first call, the separator from then on. */
static vt_status joiner_call(tpl_run *r, tpl_object *self, const tpl_call *call, tpl_value *out)
{
    joiner *j = (joiner *)self;
    if (call->n_pos + call->n_kw > 0)
        return tpl_fail(r, "a joiner takes no arguments");
    *out = j->separator;
    if (j->used)
        return VT_OK;
    j->used = true;
    return tpl_str_wrap(r, "", 0, out);
}

static vt_status global_joiner(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    static const tpl_class joiner_class = {"Joiner", joiner_call, NULL, NULL};
    joiner *j = tpl_alloc(r, 1, sizeof *j);
    if (!j)
        return VT_ERR_MEMORY;
    *j = (joiner){.object = {&joiner_class}, .separator = a->arg[0]};
    if (a->arg[0].type == TPL_MISSING)
        TRY(tpl_str_wrap(r, ", ", 2, &j->separator));
    *out = tpl_of_object(&j->object);
    return VT_OK;
}

/* ---- Hugging Face's ---- */

static vt_status global_raise_exception(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    tpl_text t = {0};
    (void)out;
    TRY(tpl_put_str(r, &t, a->arg[0]));
    return tpl_fail(r, "%s", t.data ? t.data : "");
}

/* datetime.now().strftime(): a naive time, so %z and %Z are empty; %f is microseconds, 0 here. */
static vt_status global_strftime_now(tpl_run *r, const tpl_args *a, tpl_value *out)
{
    const tpl_str *format;
    tpl_text t = {0};
    struct tm tm;
    time_t now = (time_t)r->now;
    TRY(tpl_want_str(r, a->arg[0], "strftime_now's format", &format));
    TRY(tpl_charge(r, 16 + format->len / 16));
    if (!localtime_r(&now, &tm))
        return tpl_fail(r, "strftime_now: the clock's time cannot be told");
    for (size_t i = 0; i < format->len; i++) {
        char piece[256], spec[4] = {'%', format->data[i + 1], 0};
        if (format->data[i] != '%' || i + 1 >= format->len) {
            TRY(tpl_text_add(r, &t, format->data + i, 1));
            continue;
        }
        TRY(tpl_charge(r, 16));
        i++;
        if (spec[1] == '-' && i + 1 < format->len) { /* %-d: without a leading zero */
            spec[2] = format->data[++i];
        }
        if (spec[1] == 'f')
            TRY(tpl_text_puts(r, &t, "000000"));
        else if (spec[1] != 'z' && spec[1] != 'Z' && strftime(piece, sizeof piece, spec, &tm) > 0)
            TRY(tpl_text_puts(r, &t, piece));
    }
    return tpl_text_value(r, &t, out);
}

static const tpl_builtin globals[] = {
    {"dict", global_dict, 0, -1, {0}, 0},
    {"joiner", global_joiner, 0, 1, {"sep"}, 0},
    {"namespace", global_namespace, 0, -1, {0}, 0},
    {"raise_exception", global_raise_exception, 1, 1, {"message"}, 0},
    {"range", global_range, 1, 3, {".start", ".stop", ".step"}, 0},
    {"strftime_now", global_strftime_now, 1, 1, {"format"}, 0},
};

const tpl_table tpl_globals = {globals, sizeof globals / sizeof *globals};
