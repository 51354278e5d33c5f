/* adapter_config.json of a PEFT folder. A field that changes what is computed is read or refused by
 * its name. So is an unknown one, unless its value is null, false or empty: PEFT writes all of its
 * fields, and those that are not used look like that. */
#include <math.h>
#include <string.h>

#include "files/json.h"
#include "model/lora/lora.h"

enum { MAX_CONFIG = 1 << 20, MAX_PATTERNS = 4096, MAX_KEY = 256 };

/* Fields that say how the adapter was trained, or what its files already show. */
static const char *const kInert[] = {
    "auto_mapping", "base_model_name_or_path", "corda_config", "eva_config", "exclude_modules",
    "inference_mode", "layers_pattern", "layers_to_transform", "loftq_config", "lora_dropout",
    "megatron_config", "megatron_core", "parent_library", "peft_version", "qalora_group_size",
    "revision", "runtime_config", "target_modules", "task_type",
    /* read below */
    "alpha_pattern", "bias", "init_lora_weights", "lora_alpha", "peft_type", "r", "rank_pattern",
    "use_rslora"};

static bool is_inert(const char *key)
{
    for (size_t i = 0; i < sizeof kInert / sizeof *kInert; i++)
        if (strcmp(key, kInert[i]) == 0)
            return true;
    return false;
}

/* Returns true for values that ask for nothing. */
static bool is_neutral(const json_t *v)
{
    return json_is_null(v) || json_is_false(v) || (json_is_array(v) && json_array_size(v) == 0) ||
           (json_is_object(v) && json_object_size(v) == 0);
}

static vt_status refuse_others(const char *path, const json_t *root, vt_err *err)
{
    const char *key;
    char shown[VT_JSON_SHOWN];
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)root, key, v)
    {
        if (!is_inert(key) && !is_neutral(v))
            return vt_fail(err, VT_ERR_UNSUPPORTED,
                           "%s: \"%.80s\" is %s, and adapters with it are not supported; null, "
                           "false or an empty value was expected",
                           path, key, vt_json_show(v, shown));
    }
    return VT_OK;
}

/* Refuses ways to begin training that change the model's own weights when an adapter is loaded. */
static vt_status check_init(const char *path, const json_t *v, vt_err *err)
{
    static const char *const plain[] = {"gaussian", "eva", "orthogonal"};
    char shown[VT_JSON_SHOWN];
    if (!v || json_is_boolean(v))
        return VT_OK;
    for (size_t i = 0; json_is_string(v) && i < sizeof plain / sizeof *plain; i++)
        if (strcmp(json_string_value(v), plain[i]) == 0)
            return VT_OK;
    return vt_fail(err, VT_ERR_UNSUPPORTED,
                   "%s: \"init_lora_weights\" is %s; true, false, \"gaussian\", \"eva\" or "
                   "\"orthogonal\", which leave the model's weights as they are, was expected",
                   path, vt_json_show(v, shown));
}

/* PEFT takes keys for regular expressions. Names, whose dots match dots, are read; others are
 * refused. */
static bool is_name(const char *key)
{
    size_t n = strlen(key);
    if (n == 0 || n >= MAX_KEY)
        return false;
    key += *key == '^';
    return *key &&
           key[strspn(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.")] ==
               '\0';
}

static vt_status read_pattern(const char *path, const json_t *root, const char *field,
                              vt_arena *arena, vt_lora_pattern **out, int32_t *n, vt_err *err)
{
    const json_t *map = vt_read_member(root, field);
    const char *key;
    char shown[VT_JSON_SHOWN];
    json_t *v;
    if (!map)
        return VT_OK;
    TRY(vt_check_object(path, field, map, err));
    if (json_object_size(map) > MAX_PATTERNS)
        return vt_fail(err, VT_ERR_FORMAT, "%s: \"%s\" holds %zu numbers (at most %d allowed)",
                       path, field, json_object_size(map), MAX_PATTERNS);
    *out = vt_arena_alloc(arena, json_object_size(map) + 1, sizeof **out);
    if (!*out)
        return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory", path);
    json_object_foreach((json_t *)(uintptr_t)map, key, v)
    {
        if (!is_name(key))
            return vt_fail(
                err, VT_ERR_UNSUPPORTED,
                "%s: \"%s\" has the key \"%.80s\"; the plain name of a module was expected, and "
                "regular expressions are not supported",
                path, field, key);
        if (!json_is_number(v) || !(fabs(json_number_value(v)) <= 1e6))
            return vt_fail(err, VT_ERR_FORMAT,
                           "%s: \"%.80s\" of \"%s\" is %s; a number of at most 1e6 was expected",
                           path, key, field, vt_json_show(v, shown));
        const char *kept = vt_arena_strdup(arena, key, strlen(key));
        if (!kept)
            return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory", path);
        (*out)[(*n)++] = (vt_lora_pattern){kept, json_number_value(v)};
    }
    return VT_OK;
}

static vt_status check_rank(const char *path, const char *field, double r, vt_err *err)
{
    if (r >= 1 && r <= VT_LORA_MOST_RANK && r == floor(r))
        return VT_OK;
    return vt_fail(err, VT_ERR_UNSUPPORTED,
                   "%s: \"%s\" is %g; a whole rank of 1 to %d was expected", path, field, r,
                   VT_LORA_MOST_RANK);
}

vt_status vt_lora_config_of(const char *path, const json_t *root, vt_arena *arena,
                            vt_lora_config *c, vt_err *err)
{
    const char *type, *bias = "none";
    *c = (vt_lora_config){0};
    TRY(vt_read_str(path, root, "peft_type", true, &type, err));
    if (strcmp(type, "LORA") != 0)
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "%s: \"peft_type\" is \"%.40s\"; \"LORA\" was expected", path, type);
    TRY(vt_read_str(path, root, "bias", false, &bias, err));
    if (strcmp(bias, "none") != 0)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "%s: \"bias\" is \"%.40s\"; \"none\" was expected",
                       path, bias);
    TRY(check_init(path, vt_read_member(root, "init_lora_weights"), err));
    TRY(refuse_others(path, root, err));
    TRY(vt_read_i32(path, root, "r", true, &c->r, err));
    TRY(check_rank(path, "r", c->r, err));
    TRY(vt_read_f64(path, root, "lora_alpha", true, &c->alpha, err));
    if (!(fabs(c->alpha) <= 1e6))
        return vt_fail(err, VT_ERR_FORMAT, "%s: \"lora_alpha\" is %g; at most 1e6 was expected",
                       path, c->alpha);
    TRY(vt_read_bool(path, root, "use_rslora", false, &c->rslora, err));
    TRY(read_pattern(path, root, "rank_pattern", arena, &c->rank, &c->n_rank, err));
    for (int32_t i = 0; i < c->n_rank; i++)
        TRY(check_rank(path, "rank_pattern", c->rank[i].value, err));
    return read_pattern(path, root, "alpha_pattern", arena, &c->alphas, &c->n_alphas, err);
}

vt_status vt_lora_config_read(const char *path, vt_arena *arena, vt_lora_config *out, vt_err *err)
{
    json_t *root = NULL;
    TRY(vt_read_json(path, MAX_CONFIG, &root, err));
    vt_status status = vt_lora_config_of(path, root, arena, out, err);
    json_decref(root);
    return status;
}

/* Returns true if the key is the module's name or, behind a dot, its end. */
static bool matches(const char *key, const char *module)
{
    if (*key == '^')
        return strcmp(key + 1, module) == 0;
    size_t n = strlen(key), all = strlen(module);
    return n <= all && strcmp(module + all - n, key) == 0 &&
           (n == all || module[all - n - 1] == '.');
}

/* The value of the first key that matches, as in PEFT. */
static double value_of(const vt_lora_pattern *p, int32_t n, const char *module, double otherwise)
{
    for (int32_t i = 0; i < n; i++)
        if (matches(p[i].key, module))
            return p[i].value;
    return otherwise;
}

int32_t vt_lora_config_rank(const vt_lora_config *c, const char *module)
{
    return (int32_t)value_of(c->rank, c->n_rank, module, c->r);
}

float vt_lora_config_scale(const vt_lora_config *c, const char *module)
{
    double r = vt_lora_config_rank(c, module),
           alpha = value_of(c->alphas, c->n_alphas, module, c->alpha);
    return (float)(alpha / (c->rslora ? sqrt(r) : r));
}
