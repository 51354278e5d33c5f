/* Measured roofs on disk (device/roofs_cache.h). */
#include "device/roofs_cache.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cache_dir.h"
#include "base/json_write.h"

enum { FILE_VERSION = 1 };

/* The path $VITRINE_CACHE/roofs-<key>.json. Every character of the key but letters and digits
 * becomes '-'. */
static vt_status cache_path(const char *key, char *out, size_t size)
{
    char name[256];
    size_t at = (size_t)snprintf(name, sizeof name, "roofs-");
    for (const char *p = key; *p && at + 6 < sizeof name; p++)
        name[at++] = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
                             (*p >= '0' && *p <= '9')
                         ? *p
                         : '-';
    memcpy(name + at, ".json", 6);
    return vt_cache_path(name, out, size, NULL);
}

/* The file's JSON, or NULL. It does not matter who owns the file, because its figures only appear
 * in reports. Opening it must not block if it is a FIFO. */
static json_t *load(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    FILE *f = fd >= 0 ? fdopen(fd, "rb") : NULL;
    if (!f && fd >= 0)
        close(fd);
    json_t *j = f ? json_loadf(f, 0, NULL) : NULL;
    if (f)
        fclose(f);
    return j;
}

void roofs_cache_read(const char *key, vt_roofs *r, int64_t working_set)
{
    char path[1024], set[32];
    if (cache_path(key, path, sizeof path) != VT_OK)
        return;
    json_t *j = load(path), *near = json_object_get(j, "near");
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

/* The working sets that are in the file already, and that of `r`. */
static void put_near(vt_json *w, const json_t *near, const vt_roofs *r)
{
    char set[32];
    const char *key;
    json_t *value;
    snprintf(set, sizeof set, "%lld", (long long)r->near_bytes);
    vt_json_open(w, "near", '{');
    json_object_foreach((json_t *)(uintptr_t)near, key, value)
    {
        if (strcmp(key, set) != 0 && json_is_number(value))
            vt_json_real(w, key, json_number_value(value));
    }
    if (r->near_bytes > 0)
        vt_json_real(w, set, r->near_bytes_per_s);
    vt_json_close(w);
}

/* The file is written under another name and then renamed, so that two processes cannot mix their
 * output. */
void roofs_cache_write(const char *key, const vt_roofs *r)
{
    char path[1024];
    vt_new_file f;
    vt_buf text;
    vt_json w;
    if (cache_path(key, path, sizeof path) != VT_OK || vt_make_folders_above(path, NULL) != VT_OK)
        return;
    json_t *old = load(path);
    vt_buf_init(&text, 1 << 20);
    vt_json_begin(&w, &text, 2);
    vt_json_open(&w, NULL, '{');
    vt_json_int(&w, "version", FILE_VERSION);
    vt_json_string(&w, "device", r->name);
    vt_json_string(&w, "level", r->level);
    vt_json_int(&w, "threads", r->threads);
    vt_json_int(&w, "far_bytes", r->far_bytes);
    vt_json_real(&w, "memory_bytes_per_s", r->memory_bytes_per_s);
    vt_json_real(&w, "fp32_per_s", r->fp32_per_s);
    vt_json_real(&w, "bf16_per_s", r->bf16_per_s);
    vt_json_real(&w, "int8_per_s", r->int8_per_s);
    put_near(&w, json_object_get(old, "near"), r);
    vt_json_int(&w, "l2_bytes", (int64_t)r->l2_bytes);
    vt_json_real(&w, "l2_bytes_per_s", r->l2_bytes_per_s);
    vt_json_real(&w, "kernel_s", r->kernel_s);
    vt_json_close(&w);
    json_decref(old);
    if (vt_json_end(&w) && vt_new_file_begin(&f, path, NULL) == VT_OK) {
        fwrite(text.data, 1, text.len, f.file);
        vt_new_file_end(&f, path, true, NULL);
    }
    vt_buf_release(&text);
}
