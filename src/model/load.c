/* Which loader, and where models are found: a path wins over a name, a name is looked up in the
 * cache. */
#include "model/load.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"

/* Names that are not their file's name. */
static const struct {
    const char *name, *file;
} known_name[] = {
    {"smollm2-135m", "SmolLM2-135M-Instruct.Q4_1.gguf"},
};

vt_status vt_cache_dir(char *out, size_t size, vt_err *err)
{
    const char *cache = getenv("VITRINE_CACHE"), *home = getenv("HOME");
    int n;
    if (cache && *cache)
        n = snprintf(out, size, "%s/models", cache);
    else if (home && *home)
        n = snprintf(out, size, "%s/.cache/vitrine/models", home);
    else
        return vt_fail(err, VT_ERR_IO,
                       "neither VITRINE_CACHE nor HOME is set, so there is no place for models");
    if (n < 0 || (size_t)n >= size)
        return vt_fail(err, VT_ERR_IO, "the cache's path is longer than %zu bytes", size - 1);
    return VT_OK;
}

static bool exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

vt_status vt_model_find(const char *name, char *path, size_t size, vt_err *err)
{
    char dir[3072], full[4096];
    TRY(vt_cache_dir(dir, sizeof dir, err));
    const char *file = NULL;
    for (size_t i = 0; i < sizeof known_name / sizeof *known_name; i++)
        if (strcmp(name, known_name[i].name) == 0)
            file = known_name[i].file;
    bool found = false;
    if (file) {
        snprintf(full, sizeof full, "%s/%.255s", dir, file);
        found = exists(full);
    } else if (*name && strlen(name) < 256 && !strstr(name, "..")) {
        snprintf(full, sizeof full, "%s/%.255s", dir, name);
        found = exists(full);
        if (!found) {
            snprintf(full, sizeof full, "%s/%.255s.gguf", dir, name);
            found = exists(full);
        }
    }
    if (!found)
        return vt_fail(err, VT_ERR_IO,
                       "no model %.200s: neither a path nor in %.200s; vitrine pull fetches models",
                       name, dir);
    if (strlen(full) >= size)
        return vt_fail(err, VT_ERR_IO, "the path of model %.200s is longer than %zu bytes", name,
                       size - 1);
    memcpy(path, full, strlen(full) + 1);
    return VT_OK;
}

vt_status vt_model_load(const char *name_or_path, vt_model **out, vt_err *err)
{
    char found[4096];
    struct stat st;
    const char *path = name_or_path;
    if (strncmp(path, "dummy:", 6) == 0)
        return vt_model_load_dummy(path + 6, out, err);
    if (stat(path, &st) != 0) {
        if (strchr(path, '/') == path || strncmp(path, "./", 2) == 0)
            return vt_fail(err, VT_ERR_IO, "%s: %s", path, strerror(errno));
        TRY(vt_model_find(path, found, sizeof found, err));
        path = found;
        if (stat(path, &st) != 0)
            return vt_fail(err, VT_ERR_IO, "%s: %s", path, strerror(errno));
    }
    if (S_ISDIR(st.st_mode))
        return vt_model_load_folder(path, true, out, err);
    return vt_model_load_gguf(path, true, out, err);
}

void vt_model_free(vt_model *m)
{
    if (m)
        m->close(m);
}
