/* Measured roofs on disk (device/roofs_cache.h). */
#include "device/roofs_cache.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_VERSION = 1 };

/* ~/.cache/vitrine/roofs-<key>.json; false where there is no place for it. */
static bool cache_path(const char *key, char *out, size_t size, bool make)
{
    const char *cache = getenv("VITRINE_CACHE"), *home = getenv("HOME");
    char folder[512], name[256];
    int n;
    if (cache && *cache)
        n = snprintf(folder, sizeof folder, "%s", cache);
    else if (home && *home)
        n = snprintf(folder, sizeof folder, "%s/.cache/vitrine", home);
    else
        return false;
    if (n < 0 || (size_t)n >= sizeof folder)
        return false;
    for (char *p = folder + 1; make && *p; p++) /* mkdir -p; what is there already is fine */
        if (*p == '/') {
            *p = '\0';
            mkdir(folder, 0777);
            *p = '/';
        }
    if (make)
        mkdir(folder, 0777);
    size_t at = 0;
    for (const char *p = key; *p && at + 1 < sizeof name; p++)
        name[at++] = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
                             (*p >= '0' && *p <= '9')
                         ? *p
                         : '-';
    name[at] = '\0';
    n = snprintf(out, size, "%s/roofs-%s.json", folder, name);
    return n > 0 && (size_t)n < size;
}

void roofs_cache_read(const char *key, vt_roofs *r, int64_t working_set)
{
    char path[1024], set[32];
    if (!cache_path(key, path, sizeof path, false))
        return;
    json_t *j = json_load_file(path, 0, NULL), *near = json_object_get(j, "near");
    if (json_integer_value(json_object_get(j, "version")) == FILE_VERSION) {
        r->far_bytes = json_integer_value(json_object_get(j, "far_bytes"));
        r->memory_bytes_per_s = json_number_value(json_object_get(j, "memory_bytes_per_s"));
        r->fp32_per_s = json_number_value(json_object_get(j, "fp32_per_s"));
        r->bf16_per_s = json_number_value(json_object_get(j, "bf16_per_s"));
        r->int8_per_s = json_number_value(json_object_get(j, "int8_per_s"));
        snprintf(set, sizeof set, "%lld", (long long)working_set);
        r->near_bytes_per_s = json_number_value(json_object_get(near, set));
        r->l2_bytes = json_integer_value(json_object_get(j, "l2_bytes"));
        r->l2_bytes_per_s = json_number_value(json_object_get(j, "l2_bytes_per_s"));
        r->kernel_s = json_number_value(json_object_get(j, "kernel_s"));
    }
    json_decref(j);
}

/* Written beside and renamed, so that two processes cannot mix their halves. */
void roofs_cache_write(const char *key, const vt_roofs *r)
{
    char path[1024], temporary[1056], set[32];
    if (!cache_path(key, path, sizeof path, true))
        return;
    json_t *old = json_load_file(path, 0, NULL);
    json_t *near = json_deep_copy(json_object_get(old, "near"));
    if (!json_is_object(near)) {
        json_decref(near);
        near = json_object();
    }
    json_decref(old);
    snprintf(set, sizeof set, "%lld", (long long)r->near_bytes);
    if (r->near_bytes > 0)
        json_object_set_new(near, set, json_real(r->near_bytes_per_s));
    json_t *j = json_pack("{s:i, s:s, s:s, s:i, s:I, s:f, s:f, s:f, s:f, s:o, s:I, s:f, s:f}",
                          "version", FILE_VERSION, "device", r->name, "level", r->level, "threads",
                          r->threads, "far_bytes", (json_int_t)r->far_bytes, "memory_bytes_per_s",
                          r->memory_bytes_per_s, "fp32_per_s", r->fp32_per_s, "bf16_per_s",
                          r->bf16_per_s, "int8_per_s", r->int8_per_s, "near", near, "l2_bytes",
                          (json_int_t)r->l2_bytes, "l2_bytes_per_s", r->l2_bytes_per_s, "kernel_s",
                          r->kernel_s);
    snprintf(temporary, sizeof temporary, "%s.%ld", path, (long)getpid());
    if (j && json_dump_file(j, temporary, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) == 0) {
        if (rename(temporary, path) != 0)
            unlink(temporary);
    } else
        unlink(temporary);
    json_decref(j);
}
