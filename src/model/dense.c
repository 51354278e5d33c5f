#include "model/dense.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/quant.h"
#include "files/json.h"
#include "files/safetensors.h"

enum { MAX_CONFIG = 1 << 16, MAX_FEATURES = 1 << 17 };

/* ---- reading ---- */

static vt_status read_activation(const char *path, const json_t *root, bool *out, vt_err *err)
{
    const char *name = "torch.nn.modules.activation.Tanh"; /* what the module's class takes */
    TRY(vt_read_str(path, root, "activation_function", false, &name, err));
    *out = strcmp(name, "torch.nn.modules.activation.Tanh") == 0;
    if (*out || strcmp(name, "torch.nn.modules.linear.Identity") == 0)
        return VT_OK;
    return vt_fail(err, VT_ERR_UNSUPPORTED,
                   "%s: \"activation_function\" is %.80s; Tanh and Identity of torch.nn.modules "
                   "are supported",
                   path, name);
}

/* Refuses a layer that reads or writes anything but the text's vector. */
static vt_status check_names(const char *path, const json_t *root, vt_err *err)
{
    static const char usual[] = "sentence_embedding";
    static const char *const key[] = {"module_input_name", "module_output_name"};
    for (int i = 0; i < 2; i++) {
        const json_t *v = vt_read_member(root, key[i]);
        const char *name = json_string_value(v);
        if (v && !json_is_null(v) && (!name || strcmp(name, usual) != 0))
            return vt_fail(err, VT_ERR_UNSUPPORTED, "%s: \"%s\" is %.60s; %s is supported", path,
                           key[i], name ? name : vt_json_kind(v), usual);
    }
    return VT_OK;
}

vt_status vt_dense_config(const char *path, const json_t *root, vt_dense_said *out, vt_err *err)
{
    vt_dense_said said = {.bias = true};
    TRY(vt_read_i32(path, root, "in_features", true, &said.in, err));
    TRY(vt_read_i32(path, root, "out_features", true, &said.out, err));
    TRY(vt_read_bool(path, root, "bias", false, &said.bias, err));
    TRY(read_activation(path, root, &said.tanh, err));
    TRY(check_names(path, root, err));
    if (said.in < 1 || said.in > MAX_FEATURES || said.out < 1 || said.out > MAX_FEATURES)
        return vt_fail(err, VT_ERR_MODEL,
                       "%s: \"in_features\" is %d and \"out_features\" %d (1 to %d allowed)", path,
                       said.in, said.out, MAX_FEATURES);
    *out = said;
    return VT_OK;
}

vt_status vt_dense_add(vt_model *m, const char *path, const vt_tensor *weight,
                       const vt_tensor *bias, bool tanh, vt_err *err)
{
    vt_pooled *p = &m->pooled;
    int32_t in = vt_dense_out(p, m->arch.hidden);
    if (p->n_dense == VT_DENSE_MOST)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "%s: more than %d Dense layers are not supported",
                       path, VT_DENSE_MOST);
    if (weight->rank != 2 || weight->dim[1] != in || weight->dim[0] < 1 ||
        weight->dim[0] > MAX_FEATURES)
        return vt_fail(err, VT_ERR_MODEL,
                       "%s: tensor %s has shape [%lld, %lld]; [up to %d, %d] was expected", path,
                       weight->name, (long long)weight->dim[0], (long long)weight->dim[1],
                       MAX_FEATURES, in);
    const vt_tensor *each[] = {weight, bias};
    for (int i = 0; i < 2; i++)
        if (each[i] && each[i]->dtype != VT_F32 && each[i]->dtype != VT_F16 &&
            each[i]->dtype != VT_BF16 && (i || !vt_dtype_quantised(each[i]->dtype)))
            return vt_fail(err, VT_ERR_MODEL, "%s: tensor %s has type %s; %s was expected", path,
                           each[i]->name, vt_dtype_get(each[i]->dtype)->name,
                           i ? "F32, F16 or BF16" : "a float or quantised type");
    if (bias && (bias->rank != 1 || bias->dim[0] != weight->dim[0]))
        return vt_fail(err, VT_ERR_MODEL, "%s: tensor %s does not have the %lld numbers of %s",
                       path, bias->name, (long long)weight->dim[0], weight->name);
    p->dense[p->n_dense++] = (vt_dense){weight, bias, tanh};
    return VT_OK;
}

/* Returns a copy of a tensor in the model's memory; NULL: there is none left. */
static const vt_tensor *copy_of(vt_model *m, const vt_tensor *t)
{
    vt_tensor *own = vt_arena_alloc(&m->arena, 1, sizeof *own);
    size_t bytes = (size_t)vt_tensor_bytes(t);
    if (!own)
        return NULL;
    *own = *t;
    own->name = vt_arena_strdup(&m->arena, t->name, strlen(t->name));
    own->data = vt_arena_alloc(&m->arena, bytes, 1);
    if (!own->name || !own->data)
        return NULL;
    memcpy(own->data, t->data, bytes);
    return own;
}

static vt_status take(vt_model *m, const char *path, const st_file *f, const vt_dense_said *said,
                      vt_err *err)
{
    const vt_tensor *weight = NULL, *bias = NULL;
    for (int64_t i = 0; i < f->n_tensors; i++) {
        const vt_tensor *t = &f->tensor[i];
        if (strcmp(t->name, "linear.weight") == 0)
            weight = t;
        else if (strcmp(t->name, "linear.bias") == 0 && said->bias)
            bias = t;
        else
            return vt_fail(err, VT_ERR_MODEL, "%s: tensor %s has no place in a Dense layer%s", path,
                           t->name, said->bias ? "" : " without a bias");
    }
    if (!weight || (said->bias && !bias))
        return vt_fail(err, VT_ERR_MODEL, "%s: tensor %s is missing", path,
                       weight ? "linear.bias" : "linear.weight");
    if (weight->rank != 2 || weight->dim[0] != said->out || weight->dim[1] != said->in)
        return vt_fail(err, VT_ERR_MODEL,
                       "%s: tensor linear.weight has shape [%lld, %lld]; [%d, %d] was expected",
                       path, (long long)weight->dim[0], (long long)weight->dim[1], said->out,
                       said->in);
    weight = copy_of(m, weight);
    bias = bias ? copy_of(m, bias) : NULL;
    if (!weight || (said->bias && !bias))
        return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory", path);
    return vt_dense_add(m, path, weight, bias, said->tanh, err);
}

vt_status vt_dense_read(vt_model *m, const char *folder, vt_err *err)
{
    char path[4096];
    json_t *root;
    st_file *f;
    vt_dense_said said;
    if ((size_t)snprintf(path, sizeof path, "%s/model.safetensors", folder) >= sizeof path)
        return vt_fail(err, VT_ERR_IO, "%.200s...: the path is too long", folder);
    snprintf(path, sizeof path, "%s/config.json", folder);
    TRY(vt_read_json(path, MAX_CONFIG, &root, err));
    vt_status status = vt_dense_config(path, root, &said, err);
    json_decref(root);
    TRY(status);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    TRY(st_open(path, &f, err));
    status = take(m, path, f, &said, err);
    st_close(f);
    return status;
}

/* ---- computing ---- */

int32_t vt_dense_out(const vt_pooled *p, int32_t hidden)
{
    return p && p->n_dense ? (int32_t)p->dense[p->n_dense - 1].weight->dim[0] : hidden;
}

int32_t vt_dense_most(const vt_pooled *p, int32_t hidden)
{
    int32_t most = hidden;
    for (int32_t i = 0; p && i < p->n_dense; i++)
        most = p->dense[i].weight->dim[0] > most ? (int32_t)p->dense[i].weight->dim[0] : most;
    return most;
}

/* Returns the product of a row, widened in `work`, and x. Eight sums side by side let a compiler
 * use vectors; their order is fixed. */
static double row_dot(const float *work, const double *x, int64_t n)
{
    enum { LANES = 8 };
    double sum[LANES] = {0}, all = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            sum[k] += (double)work[i + k] * x[i + k];
    for (; i < n; i++)
        sum[0] += (double)work[i] * x[i];
    for (int k = 0; k < LANES; k++)
        all += sum[k];
    return all;
}

void vt_dense_apply(const vt_pooled *p, double *x, double *y, float *work)
{
    for (int32_t l = 0; p && l < p->n_dense; l++) {
        const vt_dense *d = &p->dense[l];
        int64_t in = d->weight->dim[1], out = d->weight->dim[0];
        int64_t row = vt_dtype_row_bytes(d->weight->dtype, in);
        for (int64_t i = 0; i < out; i++) {
            vt_dequant_row(d->weight->dtype, (const char *)d->weight->data + i * row, work, in);
            y[i] = row_dot(work, x, in);
        }
        if (d->bias)
            vt_dequant_row(d->bias->dtype, d->bias->data, work, out);
        for (int64_t i = 0; i < out; i++) {
            double v = y[i] + (d->bias ? (double)work[i] : 0);
            x[i] = d->tanh ? tanh(v) : v;
        }
    }
}
