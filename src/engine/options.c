/* Checks values of options, and stores them (engine/options.h). The table is in options_table.c.
 *
 *   options.row[i]    the texts that were given for row i; if there are none, its default holds
 *
 * A value is checked once, when it is set, so what is stored always parses. */
#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/err.h"
#include "base/mem.h"
#include "device/choose.h"
#include "engine/options_inside.h"
#include "kv/cache.h"

enum { MAX_VALUE_BYTES = 1 << 20, MAX_REPEATS = 64 };

typedef struct values {
    char **text; /* [n], malloc'ed */
    int32_t n;
    bool by_environment;
} values;

struct vt_options {
    const vt_option *table; /* [n_rows] */
    int32_t n_rows;
    values row[OPTIONS_MAX_ROWS];
    uint32_t readable; /* VT_FOR_... whose keys vt_options_get knows */
    vt_progress_hook progress;
    vt_notice_hook notice;
    vt_device_auto *device; /* apart, because asking a const vt_options fills it in */
};

/* True if `text` is so many numbers of up to three digits with commas between them, or fewer. */
static bool are_numbers(const char *text, int most)
{
    for (int i = 0; i < most; i++) {
        size_t digits = strspn(text, "0123456789");
        if (digits == 0 || digits > 3 || (text[digits] != ',' && text[digits] != '\0'))
            return false;
        text += digits;
        if (*text++ == '\0')
            return true;
    }
    return false;
}

/* True if `value` is one of the words of "a|b|c:N|d:N,N". N stands for a number of up to three
 * digits, N,N for a list of up to eight. */
static bool in_list(const char *list, const char *value)
{
    enum { MOST = 8 };
    size_t n = strlen(value);
    for (const char *p = list; p && *p;) {
        size_t len = strcspn(p, "|"), fixed = strcspn(p, "N|");
        if (fixed == len ? len == n && memcmp(p, value, n) == 0
                         : n > fixed && memcmp(p, value, fixed) == 0 &&
                               are_numbers(value + fixed, fixed + 1 == len ? 1 : MOST))
            return true;
        p += len + (p[len] == '|');
    }
    return false;
}

static bool is_auto(const vt_option *opt, const char *value)
{
    return (opt->flags & VT_OPTION_AUTO) && strcmp(value, "auto") == 0;
}

static bool parse_int(const char *text, int64_t *out)
{
    char *end;
    errno = 0;
    if (!isdigit((unsigned char)text[0]) && text[0] != '-')
        return false;
    long long v = strtoll(text, &end, 10);
    *out = v;
    return errno == 0 && end != text && *end == '\0';
}

/* "512", "512M", "18.5G", "2GiB": bytes. A fraction needs a unit. */
static bool parse_size(const char *text, int64_t *out)
{
    static const char units[] = "KMGT";
    char *end;
    errno = 0;
    if (!isdigit((unsigned char)text[0]))
        return false;
    long long v = strtoll(text, &end, 10), scale = 1;
    if (errno != 0)
        return false;
    double fraction = 0, digit = 0.1;
    bool whole = *end != '.';
    for (end += !whole; !whole && isdigit((unsigned char)*end); end++, digit /= 10)
        fraction += (*end - '0') * digit;
    const char *unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
    for (const char *u = units; unit && u <= unit; u++)
        scale *= 1024;
    if ((!whole && (!unit || digit == 0.1)) || __builtin_mul_overflow(v, scale, &v) ||
        __builtin_add_overflow(v, (long long)(fraction * (double)scale), &v))
        return false;
    if (unit)
        end++;
    *out = v;
    return *end == '\0' || strcmp(end, "B") == 0 || (unit && strcmp(end, "iB") == 0);
}

/* Decimal numbers only: strtod would read hexadecimal ones too. */
static bool parse_float(const char *text, double *out)
{
    char *end;
    errno = 0;
    if (text[0] == '+' || text[0] == '\0' || text[strspn(text, "0123456789.eE+-")] != '\0')
        return false;
    *out = strtod(text, &end);
    return errno == 0 && end != text && *end == '\0' && isfinite(*out);
}

/* "true" and "false" as the store spells them; NULL if it is neither. */
static const char *parse_flag(const char *text)
{
    static const char *const word[] = {"false", "true", "0", "1", "no", "yes", "off", "on"};
    for (size_t i = 0; i < sizeof word / sizeof word[0]; i++)
        if (strcasecmp(text, word[i]) == 0)
            return word[i % 2];
    return NULL;
}

vt_status vt_parse_ids(const char *text, const char *origin, int32_t **ids, int32_t *n, vt_err *err)
{
    enum { MAX_IDS = 1 << 24 };
    size_t count = 1;
    for (const char *p = text; *p; p++)
        count += *p == ',';
    if (count > MAX_IDS)
        return vt_fail(err, VT_ERR_USAGE, "%s: %zu token ids, expected at most %d", origin, count,
                       MAX_IDS);
    int32_t *out = vt_calloc(count, sizeof *out);
    if (!out)
        return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory for %zu token ids", origin, count);
    const char *p = text;
    for (size_t i = 0; i < count; i++) {
        char *end;
        errno = 0;
        p += strspn(p, " ");
        long v = isdigit((unsigned char)*p) ? strtol(p, &end, 10) : -1;
        if (v < 0 || v > INT32_MAX || errno != 0 ||
            (end += strspn(end, " "), *end != ',' && *end != '\0')) {
            free(out);
            return vt_fail(err, VT_ERR_USAGE,
                           "%s: '%.40s' found at number %zu, expected token ids such as 1,2,3",
                           origin, p, i + 1);
        }
        out[i] = (int32_t)v;
        p = end + (*end == ',');
    }
    *ids = out;
    *n = (int32_t)count;
    return VT_OK;
}

static vt_status check_size(const vt_option *opt, const char *value, const char *origin,
                            vt_err *err)
{
    const char *or_auto = opt->flags & VT_OPTION_AUTO ? ", or auto" : "";
    int64_t v = 0;
    if (!parse_size(value, &v))
        return vt_fail(err, VT_ERR_USAGE,
                       "%s: '%.60s' found, expected a number of bytes such as 512M or 4.5G%s",
                       origin, value, or_auto);
    if (v < (int64_t)opt->min)
        return vt_fail(err, VT_ERR_USAGE, "%s: '%.60s' found, expected at least %.0f bytes%s",
                       origin, value, opt->min, or_auto);
    if (v > (int64_t)opt->max)
        return vt_fail(err, VT_ERR_USAGE, "%s: '%.60s' found, expected at most %.0f bytes%s",
                       origin, value, opt->max, or_auto);
    return VT_OK;
}

static vt_status check_int(const vt_option *opt, const char *value, const char *origin, vt_err *err)
{
    int64_t v = 0;
    if (parse_int(value, &v) && v >= (int64_t)opt->min && v <= (int64_t)opt->max)
        return VT_OK;
    return vt_fail(err, VT_ERR_USAGE,
                   "%s: '%.60s' found, expected a whole number from %.0f to %.0f%s%s", origin,
                   value, opt->min, opt->max, opt->flags & VT_OPTION_AUTO ? ", or auto" : "",
                   opt->flags & VT_OPTION_RANDOM ? ", or random" : "");
}

static vt_status check(const vt_option *opt, const char *value, const char *origin, vt_err *err)
{
    double f;
    int32_t *ids, n;
    if (strlen(value) > MAX_VALUE_BYTES)
        return vt_fail(err, VT_ERR_USAGE, "%s: a value of %zu bytes, expected at most %d", origin,
                       strlen(value), MAX_VALUE_BYTES);
    switch ((vt_option_type)opt->type) {
    case VT_OPTION_FLAG:
        if (!parse_flag(value))
            return vt_fail(err, VT_ERR_USAGE, "%s: '%.60s' found, expected true or false", origin,
                           value);
        break;
    case VT_OPTION_INT:
        if (!is_auto(opt, value))
            TRY(check_int(opt, value, origin, err));
        break;
    case VT_OPTION_SIZE:
        if (!is_auto(opt, value))
            TRY(check_size(opt, value, origin, err));
        break;
    case VT_OPTION_FLOAT:
        if (!is_auto(opt, value) && (!parse_float(value, &f) || f < opt->min || f > opt->max))
            return vt_fail(err, VT_ERR_USAGE,
                           "%s: '%.60s' found, expected a number from %g to %g%s", origin, value,
                           opt->min, opt->max, opt->flags & VT_OPTION_AUTO ? ", or auto" : "");
        break;
    case VT_OPTION_CHOICE:
        if (!in_list(opt->choices, value))
            return vt_fail(err, VT_ERR_USAGE, "%s: '%.60s' found, expected one of %s", origin,
                           value, opt->choices);
        break;
    case VT_OPTION_IDS:
        TRY(vt_parse_ids(value, origin, &ids, &n, err));
        free(ids);
        break;
    case VT_OPTION_TEXT:
        break;
    }
    bool refused = opt->later && (strcmp(opt->later, "*") == 0 ? strcmp(value, opt->fallback) != 0
                                                               : in_list(opt->later, value));
    if (refused)
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "%s: '%.60s' is not there yet in this version, expected %s", origin, value,
                       opt->fallback);
    return VT_OK;
}

/* ---- the store ---- */

static void values_clear(values *v)
{
    for (int32_t i = 0; i < v->n; i++)
        free(v->text[i]);
    free(v->text);
    *v = (values){0};
}

/* A number of the option's range, as text; "random" where the system has none to give. */
static const char *draw(const vt_option *opt, char *out, size_t size)
{
    uint64_t bits;
    if (getrandom(&bits, sizeof bits, 0) != sizeof bits)
        return "random"; /* which is refused as no number */
    snprintf(out, size, "%llu", (unsigned long long)(bits % (uint64_t)opt->max));
    return out;
}

vt_status vt_options_assign(vt_options *o, const vt_option *opt, const char *value,
                            const char *origin, vt_err *err)
{
    char drawn[24];
    if ((opt->flags & VT_OPTION_RANDOM) && strcmp(value, "random") == 0)
        value = draw(opt, drawn, sizeof drawn);
    if (opt->type == VT_OPTION_FLAG && parse_flag(value))
        value = parse_flag(value);
    TRY(check(opt, value, origin, err));
    values *v = &o->row[opt - o->table];
    bool repeat = opt->flags & VT_OPTION_REPEAT;
    if (repeat && v->n == MAX_REPEATS)
        return vt_fail(err, VT_ERR_USAGE, "%s: given more than %d times", origin, MAX_REPEATS);
    char *copy = strdup(value);
    char **grown = copy ? realloc(repeat ? v->text : NULL,
                                  (size_t)(repeat ? v->n + 1 : 1) * sizeof *grown)
                        : NULL;
    if (!grown) {
        free(copy);
        return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory", origin);
    }
    if (!repeat)
        values_clear(v);
    v->text = grown;
    v->text[v->n++] = copy;
    v->by_environment = false;
    return VT_OK;
}

vt_status vt_options_new(vt_options **out, vt_err *err)
{
    TRY(vt_check_pointer(out, "vt_options_new: out", err));
    vt_options *o = vt_calloc(1, sizeof *o);
    if (!o)
        return vt_fail(err, VT_ERR_MEMORY, "options: out of memory");
    o->table = vt_option_table(&o->n_rows);
    o->readable = VT_FOR_ENGINE;
    o->device = vt_calloc(1, sizeof *o->device);
    if (!o->device) {
        vt_options_free(o);
        return vt_fail(err, VT_ERR_MEMORY, "options: out of memory");
    }
    for (int32_t i = 0; i < o->n_rows; i++) {
        char name[64];
        vt_option_env_name(&o->table[i], name, sizeof name);
        const char *value = o->table[i].verbs & VT_FOR_ENGINE ? getenv(name) : NULL;
        vt_status status = value && *value ? vt_options_assign(o, &o->table[i], value, name, err)
                                           : VT_OK;
        if (status != VT_OK) {
            vt_options_free(o);
            return status;
        }
        o->row[i].by_environment = value && *value;
    }
    *out = o;
    return VT_OK;
}

void vt_options_free(vt_options *o)
{
    if (!o)
        return;
    for (int32_t i = 0; i < o->n_rows; i++)
        values_clear(&o->row[i]);
    free(o->device);
    free(o);
}

vt_status vt_options_set(vt_options *o, const char *key, const char *value, vt_err *err)
{
    char origin[80];
    TRY(vt_check_pointer(o, "vt_options_set: the options", err));
    TRY(vt_check_pointer(key, "vt_options_set: the key", err));
    if (!value)
        return vt_fail(err, VT_ERR_USAGE, "option %.60s: the value is NULL", key);
    const vt_option *opt = vt_option_find(key, VT_FOR_ENGINE);
    if (!opt && vt_option_find(key, ~0u))
        return vt_fail(err, VT_ERR_USAGE,
                       "option %s: belongs to a request or a command, not to the engine", key);
    if (!opt) {
        const char *near = vt_option_nearest(key, VT_FOR_ENGINE);
        return vt_fail(err, VT_ERR_USAGE, "option %.60s: unknown%s%s%s", key,
                       near ? ", did you mean " : "", near ? near : "", near ? "?" : "");
    }
    snprintf(origin, sizeof origin, "option %s", key);
    return vt_options_assign(o, opt, value, origin, err);
}

static int32_t row_of(const vt_options *o, const char *id)
{
    for (int32_t i = 0; i < o->n_rows; i++)
        if (strcmp(o->table[i].id ? o->table[i].id : o->table[i].key, id) == 0)
            return i;
    return -1;
}

static const char *text_of_row(const vt_options *o, int32_t i)
{
    return o->row[i].n > 0 ? o->row[i].text[o->row[i].n - 1] : o->table[i].fallback;
}

const char *vt_options_get(const vt_options *o, const char *key)
{
    int32_t i = o && key ? row_of(o, key) : -1;
    return i >= 0 && (o->table[i].verbs & o->readable) ? text_of_row(o, i) : NULL;
}

void vt_options_open_to(vt_options *o, uint32_t verbs) { o->readable |= verbs; }

static const char *get_known(const vt_options *o, const char *key)
{
    assert(row_of(o, key) >= 0);
    const char *value = text_of_row(o, row_of(o, key));
    return value && strcmp(value, "auto") == 0 ? NULL : value;
}

int64_t vt_options_int(const vt_options *o, const char *key)
{
    const char *value = get_known(o, key);
    int64_t v = 0;
    if (value && !parse_int(value, &v) && !parse_size(value, &v))
        assert(!"checked when it was set");
    return v;
}

double vt_options_float(const vt_options *o, const char *key)
{
    const char *value = get_known(o, key);
    return value ? strtod(value, NULL) : 0;
}

bool vt_options_flag(const vt_options *o, const char *key)
{
    const char *value = get_known(o, key);
    return value && strcmp(value, "true") == 0;
}

int32_t vt_options_cuda(const vt_options *o)
{
    return vt_device_choose(vt_options_get(o, "device"), o->device);
}

vt_status vt_options_gpus(const vt_options *o, int32_t n, int32_t *gpu, vt_err *err)
{
    return vt_device_gpus(vt_options_get(o, "device"), n, gpu, err);
}

void vt_options_device(const vt_options *o, char *out, size_t size)
{
    vt_device_name(vt_options_cuda(o), out, size);
}

vt_status vt_options_device_failed(const vt_options *o, vt_status status, vt_err *err)
{
    bool by_auto = strcmp(vt_options_get(o, "device"), "auto") == 0;
    return by_auto && vt_options_cuda(o) >= 0 ? vt_device_auto_failed(status, err) : status;
}

vt_status vt_options_backends(const vt_options *o, vt_device_kind device,
                              vt_backend out[VT_MAX_BACKENDS], int32_t *n, vt_err *err)
{
    *n = 0;
    const char *backend = NULL;
    while ((backend = vt_backend_next(backend))) {
        char key[64];
        snprintf(key, sizeof key, "%s-backend", backend);
        TRY(vt_backend_parse(backend, vt_options_get(o, key), device, out, n, err));
    }
    return VT_OK;
}

vt_dtype vt_options_kv_dtype(const vt_options *o, vt_dtype weights)
{
    return vt_kv_choose_dtype(vt_options_get(o, "kv-dtype"), vt_options_cuda(o) >= 0, weights);
}

bool vt_options_given(const vt_options *o, const char *key)
{
    assert(row_of(o, key) >= 0);
    return o->row[row_of(o, key)].n > 0;
}

bool vt_options_typed(const vt_options *o, const char *key)
{
    return vt_options_given(o, key) && !o->row[row_of(o, key)].by_environment;
}

const char *const *vt_options_list(const vt_options *o, const char *key, int32_t *n)
{
    int32_t i = row_of(o, key);
    assert(i >= 0);
    *n = o->row[i].n;
    return (const char *const *)o->row[i].text;
}

vt_status vt_options_set_progress(vt_options *o, vt_progress progress, void *user, vt_err *err)
{
    TRY(vt_check_pointer(o, "vt_options_set_progress: the options", err));
    o->progress = (vt_progress_hook){progress, user};
    return VT_OK;
}

const vt_progress_hook *vt_options_progress(const vt_options *o) { return &o->progress; }

vt_status vt_options_set_notice(vt_options *o, vt_notice notice, void *user, vt_err *err)
{
    TRY(vt_check_pointer(o, "vt_options_set_notice: the options", err));
    o->notice = (vt_notice_hook){notice, user};
    return VT_OK;
}

const vt_notice_hook *vt_options_notice(const vt_options *o) { return &o->notice; }
