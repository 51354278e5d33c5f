/* EAGLE-3 heads as models of one layer (model/eagle.h). */
#include "model/eagle.h"

#include <stdio.h>
#include <string.h>

#include "model/dummy.h"

const vt_eagle_names model_eagle_names[] = {
    {"", "midlayer."}, {"", "layers.0."}, {"model.", "midlayer."}, {"model.", "layers.0."}, {0}};

const char *model_eagle_name(const vt_eagle_names *n, const char *name, char out[MODEL_EAGLE_NAME])
{
    static const struct {
        const char *begins, *to;
        bool of_layer;
    } names[] = {{"model.layers.0.", "", true},
                 {"mtp.pre_fc_norm_embedding.", "input_layernorm.", true},
                 {"mtp.pre_fc_norm_hidden.", "hidden_norm.", true},
                 {"model.", "", false},
                 {"fc.", "fc.", false}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t len = strlen(names[i].begins);
        if (strncmp(name, names[i].begins, len) != 0)
            continue;
        snprintf(out, MODEL_EAGLE_NAME, "%s%s%s%s", n->front, names[i].of_layer ? n->layer : "",
                 names[i].to, name + len);
        return out;
    }
    return name;
}

static int64_t difference(const vt_tensor *t, int64_t i)
{
    return t->dtype == VT_I64 ? ((const int64_t *)t->data)[i] : ((const int32_t *)t->data)[i];
}

vt_status model_eagle_words(vt_model *head, const vt_tensor *t, vt_err *err)
{
    int32_t n = head->arch.vocab;
    if (!t && n == head->eagle.words)
        return VT_OK;
    if (!t)
        return vt_fail(err, VT_ERR_MODEL,
                       "%s: lm_head.weight has %d rows for a model of %d tokens, and tensor d2t, "
                       "which says whose they are, is missing",
                       head->path, n, head->eagle.words);
    int32_t *word = vt_arena_alloc(&head->arena, (size_t)n, sizeof *word);
    if (!word)
        return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory", head->path);
    if ((t->dtype != VT_I64 && t->dtype != VT_I32) || t->rank != 1 || t->dim[0] != n)
        return vt_fail(err, VT_ERR_MODEL,
                       "%s: tensor %s has type %s and %lld elements; I64 or I32 and %d, a row of "
                       "lm_head.weight each, were expected",
                       head->path, t->name, vt_dtype_get(t->dtype)->name,
                       (long long)vt_tensor_elems(t), n);
    for (int32_t i = 0; i < n; i++) {
        int64_t by = difference(t, i);
        if (by < -i || by >= (int64_t)head->eagle.words - i)
            return vt_fail(err, VT_ERR_MODEL,
                           "%s: tensor %s is %lld in place %d; the id of one of %d tokens less %d "
                           "was expected",
                           head->path, t->name, (long long)by, i, head->eagle.words, i);
        word[i] = (int32_t)(i + by);
    }
    head->eagle.word = word;
    return VT_OK;
}

/* Returns true if each layer that the head reads is one of the model's, or the place behind the
 * last. */
static bool layers_fit(const int32_t *layer, int32_t n_layers)
{
    bool fit = true;
    for (int32_t k = 0; k < VT_AUX_LAYERS; k++)
        fit = fit && layer[k] >= 0 && layer[k] <= n_layers;
    return fit;
}

static vt_status check_sizes(const vt_model *head, const vt_model *target, vt_err *err)
{
    const vt_arch *a = &target->arch;
    if (head->eagle.words != a->vocab)
        return vt_fail(err, VT_ERR_USAGE,
                       "draft: %s drafts for a model of %d tokens, and %s has %d", head->name,
                       head->eagle.words, target->name, a->vocab);
    if (head->eagle.aux_hidden != a->hidden)
        return vt_fail(err, VT_ERR_USAGE,
                       "draft: %s reads hidden states of %d numbers, and those of %s have %d",
                       head->name, head->eagle.aux_hidden, target->name, a->hidden);
    if (!head->embed && (head->arch.hidden != a->hidden || !target->embed))
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "draft: %s has no embedding (embed_tokens.weight), and its hidden size is "
                       "%d where that of %s is %d: it cannot have the model's",
                       head->name, head->arch.hidden, target->name, a->hidden);
    return VT_OK;
}

vt_status model_eagle_fit(vt_model *head, const vt_model *target, vt_aux *with, vt_err *err)
{
    const vt_arch *a = &target->arch;
    TRY(check_sizes(head, target, err));
    int32_t n = a->n_layers, usual[VT_AUX_LAYERS] = {2, n / 2, n - 3};
    const int32_t *layer = head->eagle.n_aux > 0 ? head->eagle.aux : usual;
    if (!layers_fit(layer, n))
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "draft: %s reads what enters layers %d, %d and %d, and %s has %d layers",
                       head->name, layer[0], layer[1], layer[2], target->name, n);
    if (vt_model_is_dummy(head) != vt_model_is_dummy(target))
        return vt_fail(err, VT_ERR_USAGE,
                       "draft: of %s and %s one is made up; expected both or neither", head->name,
                       target->name);
    if (!head->embed)
        head->embed = target->embed;
    memcpy(with->layer, layer, sizeof with->layer);
    with->in = head->aux.in;
    return VT_OK;
}
