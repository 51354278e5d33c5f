#include "model/pooled.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "files/json.h"
#include "files/map.h"
#include "model/dense.h"

enum { MAX_FILE = 1 << 20, MAX_MODULES = 16, MAX_PROMPTS = 256 };

vt_pooling vt_pooling_of(const char *name)
{
    return strcmp(name, "last") == 0   ? VT_POOLING_LAST
           : strcmp(name, "mean") == 0 ? VT_POOLING_MEAN
           : strcmp(name, "cls") == 0  ? VT_POOLING_CLS
           : strcmp(name, "rank") == 0 ? VT_POOLING_RANK
                                       : VT_POOLING_NONE;
}

/* ---- modules.json ---- */

/* Returns the class of a module: what stands behind the last dot of its type. */
static const char *class_of(const json_t *module)
{
    const char *type = json_string_value(json_object_get(module, "type"));
    const char *dot = type ? strrchr(type, '.') : NULL;
    return dot ? dot + 1 : type;
}

/* Copies a module's path, which must be the name of a folder beside modules.json. */
static vt_status take_path(const char *path, const json_t *module, const char *name,
                           char out[VT_POOLED_FOLDER], vt_err *err)
{
    char shown[VT_JSON_SHOWN];
    const json_t *v = json_object_get(module, "path");
    const char *folder = json_string_value(v);
    if (!folder || !*folder || *folder == '.' || strchr(folder, '/') ||
        strlen(folder) >= VT_POOLED_FOLDER)
        return vt_fail(err, VT_ERR_FORMAT,
                       "%s: \"path\" of the %s module is %s; the name of a folder of less than %d "
                       "bytes was expected",
                       path, name, vt_json_show(v, shown), VT_POOLED_FOLDER);
    memcpy(out, folder, strlen(folder) + 1);
    return VT_OK;
}

/* Takes the folder of a Dense module. */
static vt_status take_dense(const char *path, const json_t *module, vt_pooled_folders *out,
                            vt_err *err)
{
    if (out->n_dense == VT_DENSE_MOST)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "%s: more than %d Dense modules are not supported",
                       path, VT_DENSE_MOST);
    return take_path(path, module, "Dense", out->dense[out->n_dense++], err);
}

static vt_status check_count(const char *path, const json_t *root, vt_err *err)
{
    size_t n = json_array_size(root);
    if (json_is_array(root) && n >= 1 && n <= MAX_MODULES)
        return VT_OK;
    if (json_is_array(root))
        return vt_fail(err, VT_ERR_FORMAT,
                       "%s: the file holds an array of %zu; one of 1 to %d modules was expected",
                       path, n, MAX_MODULES);
    return vt_fail(err, VT_ERR_FORMAT,
                   "%s: the file holds %s; an array of 1 to %d modules was expected", path,
                   vt_json_kind(root), MAX_MODULES);
}

/* Finds the class and the folder of module i. *folder is NULL where it is missing. */
static vt_status read_module(const char *path, const json_t *module, size_t i, const char **name,
                             const char **folder, vt_err *err)
{
    const json_t *at = vt_read_member(module, "path");
    *name = class_of(module);
    *folder = json_string_value(at);
    if (!json_is_object(module))
        return vt_fail(err, VT_ERR_FORMAT, "%s: module %zu is %s; an object was expected", path, i,
                       vt_json_kind(module));
    if (!*name)
        return vt_fail(err, VT_ERR_FORMAT,
                       "%s: \"type\" of module %zu is %s; a string was expected", path, i,
                       vt_json_kind(json_object_get(module, "type")));
    if (at && !*folder)
        return vt_fail(err, VT_ERR_FORMAT,
                       "%s: \"path\" of module %zu is %s; a string was expected", path, i,
                       vt_json_kind(at));
    return VT_OK;
}

vt_status vt_pooled_modules(vt_model *m, const char *path, const json_t *root,
                            vt_pooled_folders *out, vt_err *err)
{
    size_t n = json_array_size(root);
    *out = (vt_pooled_folders){0};
    bool pooled = false, scaled = false;
    TRY(check_count(path, root, err));
    for (size_t i = 0; i < n; i++) {
        const json_t *module = json_array_get(root, i);
        const char *name, *folder;
        TRY(read_module(path, module, i, &name, &folder, err));
        bool first = i == 0 && strcmp(name, "Transformer") == 0;
        if (first && folder && *folder)
            return vt_fail(err, VT_ERR_UNSUPPORTED,
                           "%s: the Transformer lies in %.60s; only one beside modules.json is "
                           "supported",
                           path, folder);
        if (i == 1 && strcmp(name, "Pooling") == 0) {
            TRY(take_path(path, module, "Pooling", out->pooling, err));
            pooled = true;
        } else if (pooled && !scaled && strcmp(name, "Dense") == 0) {
            TRY(take_dense(path, module, out, err));
        } else if (pooled && !scaled && strcmp(name, "Normalize") == 0) {
            scaled = true;
        } else if (!first) {
            return vt_fail(err, VT_ERR_UNSUPPORTED,
                           "%s: module %zu is %.60s; Transformer, Pooling, Dense and Normalize in "
                           "this order are supported",
                           path, i, name);
        }
    }
    if (!pooled)
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "%s: the file holds the Transformer alone; a Pooling module behind it was "
                       "expected",
                       path);
    m->pooled.unscaled = !scaled;
    return VT_OK;
}

/* ---- 1_Pooling/config.json ---- */

vt_status vt_pooled_config(vt_model *m, const char *path, const json_t *root, vt_err *err)
{
    static const struct {
        const char *flag, *mode;
        vt_pooling how;
    } known[] = {{"pooling_mode_cls_token", "cls", VT_POOLING_CLS},
                 {"pooling_mode_mean_tokens", "mean", VT_POOLING_MEAN},
                 {"pooling_mode_lasttoken", "lasttoken", VT_POOLING_LAST},
                 {"pooling_mode_max_tokens", "max", VT_POOLING_NONE},
                 {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", VT_POOLING_NONE},
                 {"pooling_mode_weightedmean_tokens", "weightedmean", VT_POOLING_NONE}};
    const char *mode = NULL;
    bool prompt_counts = true;
    int chosen = -1, n = 0;
    TRY(vt_read_str(path, root, "pooling_mode", false, &mode, err));
    TRY(vt_read_bool(path, root, "include_prompt", false, &prompt_counts, err));
    for (int i = 0; i < (int)(sizeof known / sizeof *known); i++) {
        bool set = false;
        TRY(vt_read_bool(path, root, known[i].flag, false, &set, err));
        if (mode ? strcmp(mode, known[i].mode) == 0 : set) {
            chosen = i;
            n++;
        }
    }
    if (n == 0 && mode)
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "%s: \"pooling_mode\" is %.60s; cls, mean and lasttoken are supported", path,
                       mode);
    if (n != 1)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "%s: %d pooling modes are set; 1 was expected",
                       path, n);
    if (known[chosen].how == VT_POOLING_NONE)
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "%s: \"%s\" is not supported (cls, mean and lasttoken are)", path,
                       mode ? mode : known[chosen].flag);
    if (!prompt_counts && known[chosen].how != VT_POOLING_LAST)
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "%s: \"include_prompt\" is false; pooling without the prompt's tokens is "
                       "not supported",
                       path);
    m->pooled.how = known[chosen].how;
    return VT_OK;
}

/* ---- config_sentence_transformers.json ---- */

static vt_status add_prompt(vt_model *m, const char *path, const char *name, const json_t *text,
                            vt_err *err)
{
    vt_pooled *p = &m->pooled;
    if (!json_is_string(text))
        return vt_fail(err, VT_ERR_FORMAT,
                       "%s: \"%.60s\" of \"prompts\" is %s; a string was expected", path, name,
                       vt_json_kind(text));
    vt_named_prompt *at = &p->prompt[p->n_prompts++];
    *at = (vt_named_prompt){
        vt_arena_strdup(&m->arena, name, strlen(name)),
        vt_arena_strdup(&m->arena, json_string_value(text), json_string_length(text))};
    return at->name && at->text ? VT_OK : vt_fail(err, VT_ERR_MEMORY, "%s: out of memory", path);
}

vt_status vt_pooled_prompts(vt_model *m, const char *path, const json_t *root, vt_err *err)
{
    const json_t *prompts = vt_read_member(root, "prompts"), *text;
    const char *chosen = NULL, *name;
    size_t n = json_object_size(prompts);
    TRY(vt_read_str(path, root, "default_prompt_name", false, &chosen, err));
    if (prompts)
        TRY(vt_check_object(path, "prompts", prompts, err));
    if (n > MAX_PROMPTS)
        return vt_fail(err, VT_ERR_FORMAT, "%s: \"prompts\" holds %zu texts (at most %d allowed)",
                       path, n, MAX_PROMPTS);
    m->pooled.prompt = vt_arena_alloc(&m->arena, n, sizeof *m->pooled.prompt);
    if (!m->pooled.prompt)
        return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory", path);
    json_object_foreach((json_t *)(uintptr_t)prompts, name, text)
        TRY(add_prompt(m, path, name, text, err));
    if (!chosen)
        return VT_OK;
    m->pooled.usual = vt_model_prompt(m, chosen);
    return m->pooled.usual
               ? VT_OK
               : vt_fail(err, VT_ERR_FORMAT,
                         "%s: \"default_prompt_name\" is %.60s, which is none of \"prompts\"", path,
                         chosen);
}

const char *vt_model_prompt(const vt_model *m, const char *name)
{
    if (m && !name)
        return m->pooled.usual ? m->pooled.usual : "";
    for (int32_t i = 0; m && i < m->pooled.n_prompts; i++)
        if (strcmp(m->pooled.prompt[i].name, name) == 0)
            return m->pooled.prompt[i].text;
    return NULL;
}

/* ---- the files ---- */

static vt_status read_modules(vt_model *m, const char *path, vt_pooled_folders *out, vt_err *err)
{
    const void *text;
    size_t len;
    json_t *root;
    TRY(file_map(path, &text, &len, err));
    vt_status status = len > MAX_FILE
                           ? vt_fail(err, VT_ERR_FORMAT, "%s: %zu bytes (at most %d allowed)", path,
                                     len, MAX_FILE)
                           : vt_json_load(path, text, len, JSON_REJECT_DUPLICATES, VT_JSON_MAX_TREE,
                                          &root, err);
    file_unmap(text, len);
    TRY(status);
    status = vt_pooled_modules(m, path, root, out, err);
    json_decref(root);
    return status;
}

static vt_status read_object(vt_model *m, const char *path,
                             vt_status (*read)(vt_model *, const char *, const json_t *, vt_err *),
                             vt_err *err)
{
    json_t *root;
    TRY(vt_read_json(path, MAX_FILE, &root, err));
    vt_status status = read(m, path, root, err);
    json_decref(root);
    return status;
}

vt_status vt_pooled_read_folder(vt_model *m, const char *folder, vt_err *err)
{
    char path[4096];
    vt_pooled_folders of;
    struct stat st;
    if ((size_t)snprintf(path, sizeof path, "%s/modules.json", folder) >= sizeof path ||
        stat(path, &st) != 0)
        return VT_OK;
    TRY(read_modules(m, path, &of, err));
    snprintf(path, sizeof path, "%s/%s/config.json", folder, of.pooling);
    TRY(read_object(m, path, vt_pooled_config, err));
    for (int32_t i = 0; i < of.n_dense; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, of.dense[i]);
        TRY(vt_dense_read(m, path, err));
    }
    snprintf(path, sizeof path, "%s/config_sentence_transformers.json", folder);
    return stat(path, &st) == 0 ? read_object(m, path, vt_pooled_prompts, err) : VT_OK;
}

vt_status vt_pooled_read_gguf(vt_model *m, const gguf_file *f, const char *architecture,
                              vt_err *err)
{
    static const vt_pooling how[] = {VT_POOLING_NONE, VT_POOLING_MEAN, VT_POOLING_CLS,
                                     VT_POOLING_LAST, VT_POOLING_RANK};
    char key[80];
    int64_t type = 0;
    snprintf(key, sizeof key, "%s.pooling_type", architecture);
    if (!gguf_find(f, key))
        return VT_OK;
    TRY(gguf_get_i64(f, key, true, &type, err));
    if (type < 0 || type >= (int64_t)(sizeof how / sizeof *how))
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "%s: %s is %lld; 0 (none), 1 (mean), 2 (cls), 3 (last) and 4 (rank) are "
                       "supported",
                       f->path, key, (long long)type);
    m->pooled.how = how[type];
    return VT_OK;
}
