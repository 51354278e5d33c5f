/* quantization_config of the 4-bit methods (int4.h). */
#include <string.h>
#include <strings.h>

#include "files/json.h"
#include "model/int4/int4.h"

typedef struct config_reader {
    const char *path;
    const json_t *object;
    const char *where; /* the object, for messages */
    vt_err *err;
} config_reader;

const char *int4_name(int4_kind kind)
{
    static const char *const name[] = {"", "AWQ", "GPTQ", "compressed-tensors"};
    return name[kind];
}

/* Reads a number that has to be `want`. */
static vt_status expect_number(const config_reader *c, const char *key, int32_t want)
{
    int32_t got = want;
    TRY(vt_read_i32(c->path, c->object, key, true, &got, c->err));
    return got == want ? VT_OK
                       : vt_fail(c->err, VT_ERR_UNSUPPORTED,
                                 "%s: \"%s\" of %s is %d; %d, the only one supported, was expected",
                                 c->path, key, c->where, got, want);
}

/* Reads a text that has to be `want`, or `other` if that is not NULL, in letters of any case;
 * absent stands for `want`. *is_other: it is the latter. */
static vt_status expect_text(const config_reader *c, const char *key, const char *want,
                             const char *other, bool *is_other)
{
    const char *got = want;
    TRY(vt_read_str(c->path, c->object, key, false, &got, c->err));
    bool second = other && strcasecmp(got, other) == 0;
    if (is_other)
        *is_other = second;
    return second || strcasecmp(got, want) == 0
               ? VT_OK
               : vt_fail(c->err, VT_ERR_UNSUPPORTED,
                         "%s: \"%s\" of %s is \"%.40s\"; \"%s\"%s%s%s was expected", c->path, key,
                         c->where, got, want, other ? " or \"" : "", other ? other : "",
                         other ? "\"" : "");
}

/* Reads a truth that has to be `want`; absent stands for `want`. */
static vt_status expect_bool(const config_reader *c, const char *key, bool want)
{
    bool got = want;
    TRY(vt_read_bool(c->path, c->object, key, false, &got, c->err));
    return got == want
               ? VT_OK
               : vt_fail(c->err, VT_ERR_UNSUPPORTED, "%s: \"%s\" of %s is %s; %s was expected",
                         c->path, key, c->where, got ? "true" : "false", want ? "true" : "false");
}

/* Refuses a member that says of more than weights in 4 bits: null and {} and [] say nothing. */
static vt_status expect_nothing(const config_reader *c, const char *key)
{
    const json_t *v = vt_read_member(c->object, key);
    bool nothing = !v || (json_is_object(v) && json_object_size(v) == 0) ||
                   (json_is_array(v) && json_array_size(v) == 0);
    return nothing ? VT_OK
                   : vt_fail(c->err, VT_ERR_UNSUPPORTED,
                             "%s: \"%s\" of %s is set; null, the only one supported, was expected",
                             c->path, key, c->where);
}

/* "sparsity_config" may say that nothing is sparse. */
static vt_status expect_dense(const config_reader *c)
{
    const json_t *v = vt_read_member(c->object, "sparsity_config");
    const char *format = json_string_value(json_object_get(v, "format"));
    return format && strcmp(format, "dense") == 0 ? VT_OK : expect_nothing(c, "sparsity_config");
}

/* Reads the columns that share a scale: a multiple of 32, or -1 for a row's all. */
static vt_status read_group(const config_reader *c, int32_t *group)
{
    int32_t got = 128;
    TRY(vt_read_i32(c->path, c->object, "group_size", false, &got, c->err));
    if (got != -1 && (got < 32 || got > 1 << 20 || got % 32 != 0))
        return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                       "%s: \"group_size\" of %s is %d; a multiple of 32, or -1 for whole rows, "
                       "was expected",
                       c->path, c->where, got);
    *group = got == -1 ? 0 : got;
    return VT_OK;
}

/* modules_to_not_convert names modules without packed matrices: the files say the same. */
static vt_status read_awq(const config_reader *c, int4_form *f)
{
    TRY(expect_number(c, "bits", 4));
    TRY(expect_text(c, "version", "gemm", NULL, NULL));
    TRY(expect_text(c, "format", "gemm", NULL, NULL));
    TRY(expect_bool(c, "zero_point", true));
    return read_group(c, &f->group);
}

/* GPTQModel's "dynamic" has settings of single modules. Those it leaves out ("-:...") have no
 * packed matrices; others would have other bits or groups. */
static vt_status check_dynamic(const config_reader *c)
{
    const json_t *dynamic = vt_read_member(c->object, "dynamic");
    const char *key;
    json_t *value;
    if (dynamic && !json_is_boolean(dynamic))
        TRY(vt_check_object(c->path, "dynamic", dynamic, c->err));
    json_object_foreach((json_t *)dynamic, key, value)
    {
        if (strncmp(key, "-:", 2) != 0)
            return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                           "%s: \"dynamic\" of %s has settings of its own for \"%.60s\"; only "
                           "modules left out (\"-:...\") are supported",
                           c->path, c->where, key);
    }
    return VT_OK;
}

static vt_status read_gptq(const config_reader *c, int4_form *f)
{
    f->symmetric = true;
    TRY(expect_number(c, "bits", 4));
    TRY(expect_text(c, "checkpoint_format", "gptq", "gptq_v2", &f->plain_zeros));
    if (!vt_read_member(c->object, "checkpoint_format"))
        TRY(expect_text(c, "format", "gptq", "gptq_v2", &f->plain_zeros));
    TRY(expect_text(c, "pack_dtype", "int32", NULL, NULL));
    TRY(expect_bool(c, "is_marlin_format", false));
    TRY(expect_nothing(c, "rotation"));
    TRY(expect_nothing(c, "adapter"));
    TRY(vt_read_bool(c->path, c->object, "sym", false, &f->symmetric, c->err));
    TRY(check_dynamic(c));
    return read_group(c, &f->group);
}

/* Reads the weights of the one group of modules. */
static vt_status read_scheme(const config_reader *c, int4_form *f)
{
    bool channel = false;
    const json_t *order;
    f->symmetric = true;
    TRY(expect_number(c, "num_bits", 4));
    TRY(expect_text(c, "type", "int", NULL, NULL));
    TRY(expect_bool(c, "dynamic", false));
    TRY(vt_read_bool(c->path, c->object, "symmetric", false, &f->symmetric, c->err));
    TRY(expect_text(c, "strategy", "group", "channel", &channel));
    order = vt_read_member(c->object, "actorder");
    if (order && !json_is_false(order))
        TRY(expect_text(c, "actorder", "weight", "static", NULL));
    return channel ? VT_OK : read_group(c, &f->group);
}

static vt_status read_packed(const config_reader *c, int4_form *f)
{
    const json_t *groups = vt_read_member(c->object, "config_groups");
    TRY(expect_text(c, "format", "pack-quantized", NULL, NULL));
    TRY(expect_nothing(c, "kv_cache_scheme"));
    TRY(expect_dense(c));
    TRY(expect_nothing(c, "transform_config"));
    TRY(vt_check_object(c->path, "config_groups", groups, c->err));
    if (json_object_size(groups) != 1)
        return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                       "%s: \"config_groups\" of %s has %zu groups; 1 was expected", c->path,
                       c->where, json_object_size(groups));
    config_reader group = *c, scheme = *c;
    group.object = json_object_iter_value(json_object_iter((json_t *)groups));
    group.where = "config_groups";
    TRY(vt_check_object(c->path, json_object_iter_key(json_object_iter((json_t *)groups)),
                        group.object, c->err));
    TRY(expect_text(&group, "format", "pack-quantized", NULL, NULL));
    TRY(expect_nothing(&group, "input_activations"));
    TRY(expect_nothing(&group, "output_activations"));
    scheme.object = vt_read_member(group.object, "weights");
    scheme.where = "config_groups' weights";
    TRY(vt_check_object(c->path, "weights", scheme.object, c->err));
    return read_scheme(&scheme, f);
}

vt_status int4_read_config(const char *path, const json_t *q, const char *method, int4_form *out,
                           vt_err *err)
{
    static const struct {
        const char *method;
        int4_kind kind;
        vt_status (*read)(const config_reader *c, int4_form *f);
    } all[] = {{"awq", INT4_AWQ, read_awq},
               {"gptq", INT4_GPTQ, read_gptq},
               {"compressed-tensors", INT4_PACKED, read_packed}};
    config_reader c = {.path = path, .object = q, .where = "quantization_config", .err = err};
    *out = (int4_form){0};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(method, all[i].method) == 0) {
            int4_form f = {.kind = all[i].kind};
            TRY(all[i].read(&c, &f));
            *out = f;
        }
    return VT_OK;
}
