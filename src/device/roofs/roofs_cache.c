/* Measured roofs on disk (device/roofs/roofs_cache.h). */
#include "device/roofs/roofs_cache.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cache_dir.h"
#include "base/json_write.h"
#include "base/knob.h"

enum { FILE_VERSION = 4 }; /* 4: the far passes go over eight times the caches */

/* The path $VITRINE_CACHE/<kind>-<key>.json. Every character of the key but letters and digits
 * becomes '-'. */
static vt_status cache_path(const char *kind, const char *key, char *out, size_t size)
{
    char name[256];
    size_t at = (size_t)snprintf(name, sizeof name, "%s-", kind);
    for (const char *p = key; *p && at + 6 < sizeof name; p++)
        name[at++] = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
                             (*p >= '0' && *p <= '9')
                         ? *p
                         : '-';
    memcpy(name + at, ".json", 6);
    return vt_cache_path(name, out, size, NULL);
}

/* It does not matter who owns the file, because its figures only appear in reports. Opening it must
 * not block if it is a FIFO. */
json_t *roofs_cache_load(const char *kind, const char *key)
{
    char path[1024];
    if (cache_path(kind, key, path, sizeof path) != VT_OK)
        return NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    FILE *f = fd >= 0 ? fdopen(fd, "rb") : NULL;
    if (!f && fd >= 0)
        close(fd);
    json_t *j = f ? json_loadf(f, 0, NULL) : NULL;
    if (f)
        fclose(f);
    return j;
}

/* ---- figures ---- */

/* "2026-11-22T14:05:00Z" */
void roofs_put_date(vt_json *w, const char *key, int64_t when)
{
    char text[32] = "";
    struct tm utc;
    time_t t = (time_t)when;
    if (when > 0 && gmtime_r(&t, &utc))
        strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
    vt_json_string(w, key, *text ? text : NULL);
}

int64_t roofs_get_date(const json_t *o, const char *key)
{
    struct tm utc = {0};
    const char *text = json_string_value(json_object_get(o, key));
    const char *end = text ? strptime(text, "%Y-%m-%dT%H:%M:%SZ", &utc) : NULL;
    time_t t = end && !*end ? timegm(&utc) : 0;
    return t > 0 ? (int64_t)t : 0;
}

void roofs_put_figures(vt_json *w, const char *key, const vt_roofs *r)
{
    vt_json_open(w, key, '{');
    for (int i = 0; i < VT_ROOFS; i++) {
        vt_roof_kind kind = (vt_roof_kind)i;
        bool time = !vt_roof_rows[i].unit;
        double v = vt_roof_get(r, kind);
        const int64_t *set = vt_roof_working_set((vt_roofs *)(uintptr_t)r, kind);
        if (v <= 0)
            continue;
        vt_json_open(w, vt_roof_rows[i].key, '{');
        vt_json_real(w, "value", time ? v * 1e6 : v);
        if (set)
            vt_json_int(w, "working_set_bytes", *set);
        else
            vt_json_null(w, "working_set_bytes");
        roofs_put_date(w, "date", r->mark[i].when);
        vt_json_string(w, "tag", vt_roof_tag_name[r->mark[i].tag]);
        vt_json_string(w, "how", vt_roof_how(r, kind));
        vt_json_close(w);
    }
    vt_json_close(w);
}

/* A figure from a file is a finite number above 0, with a working set that is not negative. */
static bool read_figure(const json_t *o, bool time, double *value, int64_t *set, vt_roof_mark *mark)
{
    static const double most = 1e18, most_bytes = 1e15;
    const char *tag = json_string_value(json_object_get(o, "tag"));
    double v = json_number_value(json_object_get(o, "value")) * (time ? 1e-6 : 1);
    double bytes = json_number_value(json_object_get(o, "working_set_bytes"));
    if (!(v > 0) || v > most || !(bytes >= 0) || bytes > most_bytes || !tag)
        return false;
    for (int i = VT_ROOF_MEASURED; i < VT_ROOF_TAGS; i++)
        if (strcmp(tag, vt_roof_tag_name[i]) == 0) {
            *value = v;
            *set = (int64_t)bytes;
            *mark = (vt_roof_mark){(vt_roof_tag)i, roofs_get_date(o, "date")};
            return true;
        }
    return false;
}

int32_t roofs_get_figures(const json_t *figures, vt_roofs *r)
{
    int32_t n = 0;
    for (int i = 0; i < VT_ROOFS; i++) {
        double value;
        int64_t bytes, *set = vt_roof_working_set(r, (vt_roof_kind)i);
        vt_roof_mark mark;
        const json_t *o = json_object_get(figures, vt_roof_rows[i].key);
        if (!read_figure(o, !vt_roof_rows[i].unit, &value, &bytes, &mark))
            continue;
        vt_roof_set(r, (vt_roof_kind)i, value, mark.tag, mark.when);
        if (set)
            *set = bytes;
        n++;
    }
    return n;
}

/* ---- the file ---- */

bool roofs_moment_ago(int64_t when)
{
    int64_t age = (int64_t)time(NULL) - when;
    return age >= 0 && age < vt_knob_int(&vt_knobs[VT_KNOB_DISTURBED_LIMIT]);
}

static bool is_over(vt_roof_mark mark)
{
    return mark.tag == VT_ROOF_DISTURBED && !roofs_moment_ago(mark.when);
}

/* Returns true if the figure was measured by other instructions than r names for it. */
static bool measured_otherwise(const json_t *figures, const vt_roofs *r, vt_roof_kind kind)
{
    const json_t *o = json_object_get(figures, vt_roof_rows[kind].key);
    const char *was = json_string_value(json_object_get(o, "how")), *is = vt_roof_how(r, kind);
    return was && is && strcmp(was, is) != 0;
}

void roofs_cache_read(const char *key, vt_roofs *r, int64_t working_set)
{
    char set[32];
    json_t *j = roofs_cache_load("roofs", key);
    if (json_integer_value(json_object_get(j, "version")) == FILE_VERSION) {
        const json_t *near = json_object_get(j, "weights");
        vt_roof_mark mark;
        double value;
        int64_t bytes;
        roofs_get_figures(json_object_get(j, "figures"), r);
        vt_roof_set(r, VT_ROOF_WEIGHTS, 0, VT_ROOF_ABSENT, 0);
        snprintf(set, sizeof set, "%lld", (long long)working_set);
        if (working_set > 0 &&
            read_figure(json_object_get(near, set), false, &value, &bytes, &mark))
            vt_roof_set(r, VT_ROOF_WEIGHTS, value, mark.tag, mark.when);
        for (int i = 0; i < VT_ROOFS; i++)
            if (is_over(r->mark[i]) ||
                measured_otherwise(json_object_get(j, "figures"), r, (vt_roof_kind)i))
                vt_roof_set(r, (vt_roof_kind)i, 0, VT_ROOF_ABSENT, 0);
    }
    r->near_bytes = working_set;
    json_decref(j);
}

bool roofs_lacks(vt_roofs *r, int kind, bool again)
{
    if (again && r->mark[kind].tag == VT_ROOF_DISTURBED)
        vt_roof_set(r, (vt_roof_kind)kind, 0, VT_ROOF_ABSENT, 0);
    return again || vt_roof_get(r, (vt_roof_kind)kind) <= 0;
}

int32_t roofs_cache_weights(const vt_roofs *r, vt_roofs *out, int32_t most)
{
    json_t *j = roofs_cache_load("roofs", r->key), *o;
    const char *set;
    int32_t n = 0;
    if (json_integer_value(json_object_get(j, "version")) == FILE_VERSION)
        json_object_foreach(json_object_get(j, "weights"), set, o)
        {
            vt_roof_mark mark;
            double value;
            int64_t bytes;
            if (n == most || !read_figure(o, false, &value, &bytes, &mark) || is_over(mark))
                continue;
            out[n] = (vt_roofs){.near_bytes = strtoll(set, NULL, 10)};
            vt_roof_set(&out[n++], VT_ROOF_WEIGHTS, value, mark.tag, mark.when);
        }
    json_decref(j);
    return n;
}

static void put_near(vt_json *w, const char *set, double value, vt_roof_mark mark)
{
    vt_json_open(w, set, '{');
    vt_json_real(w, "value", value);
    roofs_put_date(w, "date", mark.when);
    vt_json_string(w, "tag", vt_roof_tag_name[mark.tag]);
    vt_json_close(w);
}

/* The rates of weights' working sets: those that are in the file already, and that of `r`. */
static void put_all_near(vt_json *w, const json_t *near, const vt_roofs *r)
{
    char set[32];
    const char *key;
    json_t *o;
    snprintf(set, sizeof set, "%lld", (long long)r->near_bytes);
    vt_json_open(w, "weights", '{');
    json_object_foreach((json_t *)(uintptr_t)near, key, o)
    {
        vt_roof_mark mark;
        double value;
        int64_t bytes;
        if (strcmp(key, set) != 0 && read_figure(o, false, &value, &bytes, &mark) && !is_over(mark))
            put_near(w, key, value, mark);
    }
    if (r->near_bytes > 0 && r->near_bytes_per_s > 0)
        put_near(w, set, r->near_bytes_per_s, r->mark[VT_ROOF_WEIGHTS]);
    vt_json_close(w);
}

/* The file is written under another name and then renamed, so that two processes cannot mix their
 * output. */
void roofs_cache_save(const char *kind, const char *key, const vt_buf *text)
{
    char path[1024];
    vt_new_file f;
    if (cache_path(kind, key, path, sizeof path) != VT_OK ||
        vt_make_folders_above(path, NULL) != VT_OK || vt_new_file_begin(&f, path, NULL) != VT_OK)
        return;
    fwrite(text->data, 1, text->len, f.file);
    vt_new_file_end(&f, path, true, NULL);
}

void roofs_cache_write(const char *key, const vt_roofs *r)
{
    vt_buf text;
    vt_json w;
    json_t *old = roofs_cache_load("roofs", key);
    bool same = json_integer_value(json_object_get(old, "version")) == FILE_VERSION;
    vt_roofs kept = *r;
    kept.near_bytes_per_s = 0;
    vt_buf_init(&text, 1 << 20);
    vt_json_begin(&w, &text, 2);
    vt_json_open(&w, NULL, '{');
    vt_json_int(&w, "version", FILE_VERSION);
    vt_json_string(&w, "device", r->name);
    vt_json_string(&w, "level", r->level);
    vt_json_int(&w, "threads", r->threads);
    roofs_put_figures(&w, "figures", &kept);
    put_all_near(&w, same ? json_object_get(old, "weights") : NULL, r);
    vt_json_close(&w);
    json_decref(old);
    if (vt_json_end(&w))
        roofs_cache_save("roofs", key, &text);
    vt_buf_release(&text);
}
