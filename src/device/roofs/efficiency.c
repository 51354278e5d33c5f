/* Efficiencies, in memory and on disk (device/roofs/efficiency.h). */
#include "device/roofs/efficiency.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cache_dir.h"
#include "base/mem.h"
#include "device/roofs/roofs_cache.h"

enum { FILE_VERSION = 2, MAX_FILE = 2 << 20 };

static const double most = 1e18; /* of a number from a file */

void vt_efficiencies_release(vt_efficiencies *e)
{
    for (int32_t i = 0; i < e->n; i++)
        free(e->item[i].key);
    free(e->item);
    *e = (vt_efficiencies){0};
}

/* The place of the first key that is not before this one. */
static int32_t place_of(const vt_efficiencies *e, const char *key)
{
    int32_t from = 0, to = e->n;
    while (from < to) {
        int32_t middle = from + (to - from) / 2;
        if (strcmp(e->item[middle].key, key) < 0)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

const vt_efficiency *vt_efficiency_find(const vt_efficiencies *e, const char *key)
{
    int32_t i = place_of(e, key);
    return i < e->n && strcmp(e->item[i].key, key) == 0 ? &e->item[i] : NULL;
}

static bool make_room(vt_efficiencies *e)
{
    if (e->n < e->capacity)
        return true;
    int32_t capacity = e->capacity ? 2 * e->capacity : 64;
    vt_efficiency *item = capacity <= VT_MAX_EFFICIENCIES
                              ? realloc(e->item, (size_t)capacity * sizeof *item)
                              : NULL;
    if (!item)
        return false;
    e->item = item;
    e->capacity = capacity;
    return true;
}

bool vt_efficiency_add(vt_efficiencies *e, const char *key, const vt_efficiency *item)
{
    int32_t i = place_of(e, key);
    if (i == e->n || strcmp(e->item[i].key, key) != 0) {
        char *copy = make_room(e) ? strdup(key) : NULL;
        if (!copy)
            return false;
        memmove(&e->item[i + 1], &e->item[i], (size_t)(e->n - i) * sizeof *e->item);
        e->n++;
        e->item[i].key = copy;
    }
    char *own = e->item[i].key;
    e->item[i] = *item;
    e->item[i].key = own;
    return true;
}

/* ---- JSON ---- */

void vt_efficiencies_put(vt_json *w, const char *key, const vt_efficiencies *e)
{
    vt_json_open(w, key, '{');
    for (int32_t i = 0; i < e->n; i++) {
        const vt_efficiency *x = &e->item[i];
        if (!x->steady && !roofs_moment_ago(x->when))
            continue;
        vt_json_open(w, x->key, '{');
        vt_json_fixed(w, "us", x->seconds * 1e6, 4);
        vt_json_fixed(w, "bytes", x->bytes, 0);
        vt_json_fixed(w, "activation_bytes", x->activations, 0);
        vt_json_fixed(w, "fp32", x->fp32, 0);
        vt_json_fixed(w, "bf16", x->bf16, 0);
        vt_json_fixed(w, "int8", x->int8, 0);
        roofs_put_date(w, "date", x->when);
        if (!x->steady)
            vt_json_bool(w, "steady", false);
        vt_json_close(w);
    }
    vt_json_close(w);
}

/* A number from 0 on; -1: the member is missing or makes no sense. */
static double amount(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    double x = json_number_value(v);
    return json_is_number(v) && x >= 0 && x <= most ? x : -1;
}

void vt_efficiencies_get(vt_efficiencies *e, const json_t *object)
{
    const char *key;
    json_t *o;
    json_object_foreach((json_t *)(uintptr_t)object, key, o)
    {
        vt_efficiency x = {.seconds = amount(o, "us") * 1e-6,
                           .bytes = amount(o, "bytes"),
                           .activations = amount(o, "activation_bytes"),
                           .fp32 = amount(o, "fp32"),
                           .bf16 = amount(o, "bf16"),
                           .int8 = amount(o, "int8"),
                           .steady = !json_is_false(json_object_get(o, "steady")),
                           .when = roofs_get_date(o, "date")};
        bool sane = x.seconds > 0 && (x.steady || roofs_moment_ago(x.when)) && x.bytes >= 0 &&
                    x.activations >= 0 && x.fp32 >= 0 && x.bf16 >= 0 && x.int8 >= 0 &&
                    strlen(key) < VT_EFFICIENCY_KEY;
        if (sane && !vt_efficiency_add(e, key, &x))
            return;
    }
}

/* ---- the file ---- */

void vt_efficiencies_read(vt_efficiencies *e, const char *machine)
{
    json_t *j = roofs_cache_load("efficiency", machine);
    if (json_integer_value(json_object_get(j, "version")) == FILE_VERSION)
        vt_efficiencies_get(e, json_object_get(j, "efficiencies"));
    json_decref(j);
}

void vt_efficiencies_write(const vt_efficiencies *e, const char *machine)
{
    vt_buf text;
    vt_json w;
    vt_buf_init(&text, MAX_FILE);
    vt_json_begin(&w, &text, 1);
    vt_json_open(&w, NULL, '{');
    vt_json_int(&w, "version", FILE_VERSION);
    vt_efficiencies_put(&w, "efficiencies", e);
    vt_json_close(&w);
    if (vt_json_end(&w))
        roofs_cache_save("efficiency", machine, &text);
    vt_buf_release(&text);
}
