/* Which loader, and which file a name means.
 *
 *   "/x", "./x", "x/y", "x.gguf"   a path; one with a slash may also be a name in the cache
 *   "smollm2-135m"                 a known name: that model's file in the cache, and nothing else
 *   "x"                            any other name: in the cache, else a file or folder here
 *
 * Names are looked up in the cache first because a folder that was downloaded or cloned may hold a
 * file of any name: `vitrine run` in that folder, with the default model, must not load it. */
#include "model/load.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cache_dir.h"
#include "base/err.h"
#include "fetch/fetch_url.h"

enum { MAX_NAME = 255 };

/* Short names of files in the cache. */
static const struct {
    const char *name, *file;
} known_name[] = {
    {"smollm2-135m", "SmolLM2-135M-Instruct.Q4_1.gguf"},
};

vt_status vt_cache_dir(char *out, size_t size, vt_err *err)
{
    return vt_cache_path("models", out, size, err);
}

static bool ends_with(const char *s, const char *end)
{
    size_t len = strlen(s), n = strlen(end);
    return len >= n && strcmp(s + len - n, end) == 0;
}

static bool exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

/* The file of a known name, or NULL. */
static const char *known_file(const char *name)
{
    for (size_t i = 0; i < sizeof known_name / sizeof *known_name; i++)
        if (strcmp(name, known_name[i].name) == 0)
            return known_name[i].file;
    return NULL;
}

const char *vt_model_known_name(const char *file)
{
    for (size_t i = 0; i < sizeof known_name / sizeof *known_name; i++)
        if (strcmp(file, known_name[i].file) == 0)
            return known_name[i].name;
    return NULL;
}

/* Returns true if `name` has the form of a hub's models: ORG/NAME. */
static bool is_hub_name(const char *name)
{
    const char *slash = strchr(name, '/');
    return slash && slash > name && slash[1] && !strpbrk(slash + 1, "/ ") &&
           !ends_with(name, ".gguf") && *name != '.' && *name != '~';
}

/* A name that is no model's here: says how to get that model. */
static vt_status no_model(const char *name, const char *dir, vt_err *err)
{
    const size_t n = sizeof FETCH_HF - 1;
    const char *repo = strncmp(name, FETCH_HF, n) == 0 && name[n] == '/' ? name + n + 1 : name;
    if (known_file(name))
        return vt_fail(err, VT_ERR_IO,
                       "no model %.200s in %.200s; 'vitrine pull %.200s' fetches it", name, dir,
                       name);
    if (is_hub_name(repo))
        return vt_fail(err, VT_ERR_IO,
                       "no model %.100s: neither a path nor in %.150s; if it is one of a hub, "
                       "'vitrine pull --hub " FETCH_HF " %.100s' fetches it",
                       name, dir, repo);
    return vt_fail(err, VT_ERR_IO,
                   "no model %.200s: neither a path nor in %.200s; 'vitrine list' names what is "
                   "there, 'vitrine pull' what can be fetched",
                   name, dir);
}

vt_status vt_model_find(const char *name, char *path, size_t size, vt_err *err)
{
    char dir[3072], full[4096];
    TRY(vt_cache_dir(dir, sizeof dir, err));
    const char *file = known_file(name);
    bool found = false;
    if (file) {
        snprintf(full, sizeof full, "%s/%.255s", dir, file);
        found = exists(full);
    } else if (*name && *name != '.' && strlen(name) <= MAX_NAME && !strstr(name, "..")) {
        snprintf(full, sizeof full, "%s/%.255s", dir, name);
        found = exists(full);
        if (!found) {
            snprintf(full, sizeof full, "%s/%.255s.gguf", dir, name);
            found = exists(full);
        }
    }
    if (!found)
        return no_model(name, dir, err);
    if (strlen(full) >= size)
        return vt_fail(err, VT_ERR_IO, "the path of model %.200s is longer than %zu bytes", name,
                       size - 1);
    memcpy(path, full, strlen(full) + 1);
    return VT_OK;
}

bool vt_model_is_name(const char *name)
{
    return *name && *name != '.' && !strchr(name, '/') && !ends_with(name, ".gguf");
}

vt_status vt_model_resolve(const char *name, char *path, size_t size, bool *in_cache, vt_err *err)
{
    *in_cache = vt_model_is_name(name) && vt_model_find(name, path, size, NULL) == VT_OK;
    if (*in_cache)
        return VT_OK;
    if (exists(name) && !known_file(name)) {
        if (strlen(name) >= size)
            return vt_fail(err, VT_ERR_IO, "the path %.200s... is longer than %zu bytes", name,
                           size - 1);
        memcpy(path, name, strlen(name) + 1);
        return VT_OK;
    }
    if (*name == '/' || *name == '.')
        return vt_fail(err, VT_ERR_IO, "%s: %s", name, strerror(errno));
    TRY(vt_model_find(name, path, size, err));
    *in_cache = true;
    return VT_OK;
}

/* Refuses a folder without config.json that holds a GGUF file, and names that file: of several the
 * first by name. */
static vt_status check_folder(const char *folder, vt_err *err)
{
    char path[4096], first[256] = "";
    snprintf(path, sizeof path, "%.4000s/config.json", folder);
    if (exists(path))
        return VT_OK;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));)
        if (ends_with(e->d_name, ".gguf") && (!*first || strcmp(e->d_name, first) < 0))
            snprintf(first, sizeof first, "%s", e->d_name);
    if (d)
        closedir(d);
    return *first ? vt_fail(err, VT_ERR_IO,
                            "%.200s: the folder holds no config.json; its file %.200s is a model",
                            folder, first)
                  : VT_OK;
}

/* A file that belongs to a Hugging Face folder: names the folder in place of the file. */
static vt_status load_file(const char *path, bool weights, vt_model **out, vt_err *err)
{
    vt_status status = vt_model_load_gguf(path, weights, out, err);
    bool part = ends_with(path, ".json") || ends_with(path, ".safetensors");
    const char *slash = strrchr(path, '/');
    return status == VT_ERR_FORMAT && part
               ? vt_fail(err, status,
                         "%s: not a GGUF file; the folder that holds it is the model: %.*s", path,
                         slash ? (int)(slash - path) : 1, slash ? path : ".")
               : status;
}

static vt_status load(const char *name_or_path, bool weights, vt_model **out, vt_err *err)
{
    char path[4096];
    struct stat st;
    bool in_cache;
    if (strncmp(name_or_path, "dummy:", 6) == 0)
        return vt_model_load_dummy(name_or_path + 6, out, err);
    TRY(vt_model_resolve(name_or_path, path, sizeof path, &in_cache, err));
    if (stat(path, &st) != 0)
        return vt_fail(err, VT_ERR_IO, "%s: %s", path, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return load_file(path, weights, out, err);
    if (weights)
        TRY(check_folder(path, err));
    return vt_model_load_folder(path, weights, out, err);
}

vt_status vt_model_load(const char *name_or_path, vt_model **out, vt_err *err)
{
    vt_model *m;
    TRY(load(name_or_path, true, &m, err));
    if (vt_model_is_head(m)) {
        vt_status status = vt_fail(err, VT_ERR_UNSUPPORTED,
                                   "%s is an EAGLE-3 head, which drafts for another model (draft) "
                                   "and is none by itself",
                                   m->path);
        vt_model_free(m);
        return status;
    }
    *out = m;
    return VT_OK;
}

vt_status vt_model_load_drafter(const char *name_or_path, vt_model **out, vt_err *err)
{
    return load(name_or_path, true, out, err);
}

vt_status vt_model_load_words(const char *name_or_path, vt_model **out, vt_err *err)
{
    return load(name_or_path, false, out, err);
}

vt_status vt_model_load_mtp(const vt_model *of, vt_model **out, vt_err *err)
{
    struct stat st;
    if (strncmp(of->path, "dummy:", 6) == 0)
        return vt_model_load_dummy_mtp(of->path + 6, out, err);
    if (stat(of->path, &st) != 0)
        return vt_fail(err, VT_ERR_IO, "%s: %s", of->path, strerror(errno));
    return S_ISDIR(st.st_mode) ? vt_model_load_folder_mtp(of->path, out, err)
                               : vt_model_load_gguf_mtp(of->path, out, err);
}

vt_status vt_model_host_weights(const vt_model *m, vt_err *err)
{
    return m->make_weights ? m->make_weights(m, err) : VT_OK;
}

void vt_model_host_weights_done(const vt_model *m, bool keep)
{
    if (m->drop_weights)
        m->drop_weights(m, keep);
}

void vt_model_free(vt_model *m)
{
    if (m)
        m->close(m);
}

void model_untie(vt_model *m, const vt_tensor *head, const vt_tensor *embed)
{
    if (m->arch.tied_head && head && embed)
        m->arch.tied_head = head->dtype == embed->dtype &&
                            vt_tensor_bytes(head) == vt_tensor_bytes(embed) &&
                            memcmp(head->data, embed->data, (size_t)vt_tensor_bytes(head)) == 0;
}
