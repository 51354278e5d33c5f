/* MTP heads as models of one layer (model/mtp.h). */
#include "model/mtp.h"

#include <stdio.h>
#include <string.h>

#include "files/json.h"
#include "model/family.h"

vt_status model_mtp_make(vt_model *m, vt_err *err)
{
    const vt_layer *last = NULL;
    for (int32_t i = 0; i < m->arch.n_layers; i++)
        if (vt_layer_attends(&m->layer[i]))
            last = &m->layer[i];
    if (!last || m->family->mtp == VT_MTP_NONE)
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "%s: no MTP heads of %s models are known here (those of Qwen3.5, "
                       "DeepSeek V3 and GLM-4.5 are)",
                       m->path, m->arch.family);
    m->mtp.behind = m->arch.n_layers;
    m->layer[0] = *last;
    m->layer[0].kv_of = 0;
    m->arch.n_layers = 1;
    return VT_OK;
}

vt_status model_mtp_check(const vt_model *m, const char *key, int32_t n, vt_err *err)
{
    if (n == 1)
        return VT_OK;
    return vt_fail(err, VT_ERR_UNSUPPORTED, "%s: %s is %d; an MTP head of 1 layer was expected",
                   m->path, key, n);
}

vt_status model_mtp_found(const vt_model *m, bool found, vt_err *err)
{
    if (m->mtp.behind == 0 || found)
        return VT_OK;
    return vt_fail(err, VT_ERR_UNSUPPORTED, "%s: holds no MTP head, only the model", m->path);
}

vt_status model_mtp_read_config(vt_model *m, const char *path, const json_t *config, vt_err *err)
{
    static const char *const keys[] = {"mtp_num_hidden_layers", "num_nextn_predict_layers"};
    const json_t *text = vt_read_member(config, "text_config"), *root = text ? text : config;
    bool own = false;
    TRY(vt_read_bool(path, root, "mtp_use_dedicated_embeddings", false, &own, err));
    if (own)
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "%s: \"mtp_use_dedicated_embeddings\" is true; an MTP head with the model's "
                       "embedding was expected",
                       path);
    TRY(model_mtp_make(m, err));
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        int32_t n = 1;
        TRY(vt_read_i32(path, root, keys[i], false, &n, err));
        TRY(model_mtp_check(m, keys[i], n, err));
    }
    return VT_OK;
}

/* One name of a model of one layer, and of the MTP head: "%d" stands for its layer. */
typedef struct renaming {
    const char *begins, *hf_beside, *hf_next, *gguf; /* NULL: it stays */
} renaming;

static const renaming kNames[] = {
    {"model.layers.0.", "mtp.layers.0.", "model.layers.%d.", NULL},
    {"model.norm.", "mtp.norm.", "model.layers.%d.shared_head.norm.", NULL},
    {"mtp.fc.", NULL, "model.layers.%d.eh_proj.", NULL},
    {"mtp.pre_fc_norm_embedding.", NULL, "model.layers.%d.enorm.", NULL},
    {"mtp.pre_fc_norm_hidden.", NULL, "model.layers.%d.hnorm.", NULL},
    {"blk.0.", NULL, NULL, "blk.%d."},
    {"output_norm.", NULL, NULL, "blk.%d.nextn.shared_head_norm."},
    {"nextn.", NULL, NULL, "blk.%d.nextn."},
};

const char *model_mtp_name(const vt_model *m, bool hf, const char *name, char out[MODEL_MTP_NAME])
{
    for (size_t i = 0; m->mtp.behind > 0 && i < sizeof kNames / sizeof *kNames; i++) {
        const renaming *r = &kNames[i];
        const char *to = !hf                               ? r->gguf
                         : m->family->mtp == VT_MTP_BESIDE ? r->hf_beside
                                                           : r->hf_next;
        size_t n = strlen(r->begins);
        if (!to || strncmp(name, r->begins, n) != 0)
            continue;
        const char *layer = strstr(to, "%d");
        if (layer)
            snprintf(out, MODEL_MTP_NAME, "%.*s%d%s%s", (int)(layer - to), to, m->mtp.behind,
                     layer + 2, name + n);
        else
            snprintf(out, MODEL_MTP_NAME, "%s%s", to, name + n);
        return out;
    }
    return name;
}

bool model_mtp_owns(const vt_model *m, const char *name)
{
    static const char *const copies[] = {"embed_tokens.weight", "shared_head.head.weight",
                                         "shared_head_head.weight"};
    char folder[32], gguf[32];
    if (m->mtp.behind == 0)
        return true;
    for (size_t i = 0; i < sizeof copies / sizeof *copies; i++)
        if (strstr(name, copies[i])) /* of the model's own */
            return false;
    snprintf(folder, sizeof folder, "layers.%d.", m->mtp.behind);
    snprintf(gguf, sizeof gguf, "blk.%d.", m->mtp.behind);
    return m->family->mtp == VT_MTP_BESIDE
               ? strncmp(name, "mtp.", 4) == 0 || strncmp(name, gguf, strlen(gguf)) == 0
               : strstr(name, folder) || strncmp(name, gguf, strlen(gguf)) == 0;
}
