/* BERT, an encoder: every token sees its whole text. Learned positions, a vector for each of a
 * sequence's two texts, LayerNorm of each sum, a feed-forward without a gate (GELU), biases
 * everywhere, no head. Where its files say nothing of pooling, vectors are the mean of all states,
 * as sentence-transformers does it. */
#include "model/families/bert.h"

#include <string.h>

#include "files/json.h"

#define APART(role, gguf, hf)                           \
    {                                                   \
        VT_ROLE_##role, VT_NEED_ALWAYS, gguf, hf, { 0 } \
    }

const vt_family_role vt_bert_roles[VT_BERT_ROLES] = {
    APART(EMBED, NULL, "embeddings.word_embeddings.weight"),
    APART(POSITIONS, NULL, NULL),
    APART(TYPES, NULL, NULL),
    APART(EMBED_NORM, NULL, NULL),
    APART(EMBED_NORM_BIAS, NULL, NULL),
    {VT_ROLE_FINAL_NORM, VT_NEED_BY_FAMILY, NULL, NULL, {0}},
    {VT_ROLE_HEAD, VT_NEED_BY_FAMILY, NULL, NULL, {0}},
    APART(Q, NULL, "attention.self.query.weight"),
    APART(K, NULL, "attention.self.key.weight"),
    APART(V, NULL, "attention.self.value.weight"),
    APART(O, NULL, "attention.output.dense.weight"),
    APART(Q_BIAS, NULL, "attention.self.query.bias"),
    APART(K_BIAS, NULL, "attention.self.key.bias"),
    APART(V_BIAS, NULL, "attention.self.value.bias"),
    APART(O_BIAS, NULL, "attention.output.dense.bias"),
    APART(POST_ATTN_NORM, "attn_output_norm.weight", "attention.output.LayerNorm.weight"),
    APART(POST_ATTN_NORM_BIAS, NULL, NULL),
    APART(UP, NULL, "intermediate.dense.weight"),
    APART(UP_BIAS, NULL, "intermediate.dense.bias"),
    APART(DOWN, NULL, "output.dense.weight"),
    APART(DOWN_BIAS, NULL, "output.dense.bias"),
    APART(POST_FFN_NORM, "layer_output_norm.weight", "output.LayerNorm.weight"),
    APART(POST_FFN_NORM_BIAS, NULL, NULL),
    APART(RANK_DENSE, NULL, "pooler.dense.weight"),
    APART(RANK_DENSE_BIAS, NULL, "pooler.dense.bias"),
    APART(RANK_OUT, NULL, "classifier.weight"),
    APART(RANK_OUT_BIAS, NULL, "classifier.bias"),
};

/* Tensors that heads and training leave in the files. */
static const char *const ignored[] = {"pooler.dense.", "embeddings.position_ids",
                                      "cls.predictions.", "cls.seq_relationship.", NULL};

static vt_status from_gguf(gguf_reader *r)
{
    vt_arch *a = &r->m->arch;
    const vt_tensor *types = gguf_tensor(r->file, "token_types.weight");
    bool causal = false;
    TRY(gguf_get_bool(r->file, gguf_reader_key(r, "attention.causal"), false, &causal, r->err));
    if (causal)
        return vt_fail(r->err, VT_ERR_UNSUPPORTED,
                       "%s: %s is true; a bert model with causal attention is not supported",
                       r->m->path, r->key);
    a->activation = VT_ACT_GELU_ERF;
    a->n_positions = a->max_context;
    a->n_types = types && types->dim[0] >= 1 && types->dim[0] <= 2 ? (int32_t)types->dim[0] : 2;
    r->m->pooled.how = VT_POOLING_MEAN;
    a->n_labels = gguf_tensor(r->file, "cls.output.weight") != NULL;
    return VT_OK;
}

/* Reads how the logit of a classifier becomes a score: as sentence-transformers says it, else by a
 * sigmoid. */
static vt_status read_activation(hf_reader *c)
{
    const json_t *section = vt_read_member(c->root, "sentence_transformers");
    const char *key = section ? "activation_fn" : "sbert_ce_default_activation_function";
    const char *name = "torch.nn.modules.activation.Sigmoid";
    if (section)
        TRY(vt_check_object(c->path, "sentence_transformers", section, c->err));
    TRY(vt_read_str(c->path, section ? section : c->root, key, false, &name, c->err));
    bool linear = strcmp(name, "torch.nn.modules.linear.Identity") == 0;
    c->m->ranker.linear = linear;
    if (linear || strcmp(name, "torch.nn.modules.activation.Sigmoid") == 0)
        return VT_OK;
    return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                   "%s: \"%s\" is %.80s; Sigmoid and Identity of torch.nn.modules are supported",
                   c->path, key, name);
}

/* Reads what a model "ForSequenceClassification" has: one label, or it does not rank. */
static vt_status read_classifier(hf_reader *c)
{
    static const char kind[] = "ForSequenceClassification";
    const char *name = json_string_value(
        json_array_get(vt_read_member(c->root, "architectures"), 0));
    size_t n = name ? strlen(name) : 0;
    int32_t labels = 2;
    if (n < sizeof kind - 1 || strcmp(name + n - (sizeof kind - 1), kind) != 0)
        return VT_OK;
    const json_t *names = vt_read_member(c->root, "id2label");
    if (names)
        TRY(vt_check_object(c->path, "id2label", names, c->err));
    if (names)
        labels = (int32_t)json_object_size(names);
    TRY(hf_read_i32(c, "num_labels", false, &labels));
    if (labels != 1)
        return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                       "%s: \"id2label\" has %d labels; a classifier of 1 is supported", c->path,
                       labels);
    c->m->arch.n_labels = 1;
    c->m->pooled.how = VT_POOLING_RANK;
    return read_activation(c);
}

vt_status vt_bert_read_config(hf_reader *c)
{
    vt_arch *a = &c->m->arch;
    const char *positions = "absolute";
    bool decoder = false;
    TRY(vt_read_str(c->path, c->root, "position_embedding_type", false, &positions, c->err));
    if (strcmp(positions, "absolute") != 0)
        return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                       "%s: \"position_embedding_type\" is %.40s; absolute is supported", c->path,
                       positions);
    TRY(hf_read_bool(c, "is_decoder", &decoder));
    if (decoder)
        return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                       "%s: \"is_decoder\" is true; false is supported for %s", c->path,
                       c->family->hf);
    a->n_types = 2;
    TRY(hf_read_i32(c, "type_vocab_size", false, &a->n_types));
    if (a->n_types < 1)
        return vt_fail(c->err, VT_ERR_MODEL, "%s: \"type_vocab_size\" is %d (1 or 2 expected)",
                       c->path, a->n_types);
    a->n_positions = a->max_context;
    c->m->pooled.how = VT_POOLING_MEAN;
    return read_classifier(c);
}

/* From the models' published config.json. */
#define BERT .vocab = 30522, .max_context = 512, .eps = 1e-12f
static const vt_family_shape shapes[] = {
    {BERT, .name = "minilm-l6", .n_layers = 6, .hidden = 384, .n_heads = 12, .n_kv_heads = 12,
     .head_dim = 32, .ffn = 1536},
    {BERT, .name = "bert-base", .n_layers = 12, .hidden = 768, .n_heads = 12, .n_kv_heads = 12,
     .head_dim = 64, .ffn = 3072},
    {.name = NULL},
};

const vt_family vt_family_bert = {.name = "bert",
                                  .gguf = "bert",
                                  .hf = "bert",
                                  .roles = vt_bert_roles,
                                  .n_roles = VT_BERT_ROLES,
                                  .shapes = shapes,
                                  .norms = VT_NORM_JOINED,
                                  .mlp = true,
                                  .layer_norm = true,
                                  .no_rope = true,
                                  .encoder = true,
                                  .hf_layer = "encoder.layer.",
                                  .hf_prefix = "bert.",
                                  .hf_ignored = ignored,
                                  .kv_heads_optional = true,
                                  .activation = "gelu",
                                  .from_gguf = from_gguf,
                                  .from_config = vt_bert_read_config};
