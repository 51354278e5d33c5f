/* RoBERTa and XLM-RoBERTa (multilingual-e5, bge-m3): BERT with one type of text, whose positions
 * begin behind that of the padding token: a table of 514 rows serves 512 tokens. Their GGUF files
 * are of architecture bert, with the table cut to begin at 0. */
#include "model/families/bert.h"

/* Tensors that heads and training leave in the files. */
static const char *const ignored[] = {"pooler.dense.", "embeddings.position_ids", "lm_head.", NULL};

static vt_status from_config(hf_reader *c)
{
    vt_arch *a = &c->m->arch;
    int32_t padding = 1;
    TRY(vt_bert_read_config(c));
    TRY(hf_read_i32(c, "pad_token_id", false, &padding));
    if (padding < 0 || padding >= a->n_positions - 1)
        return vt_fail(c->err, VT_ERR_MODEL,
                       "%s: \"pad_token_id\" is %d, and positions begin behind it in a table of "
                       "%d rows",
                       c->path, padding, a->n_positions);
    a->first_position = padding + 1;
    a->max_context = a->n_positions - a->first_position;
    return VT_OK;
}

/* From the models' published config.json. */
#define XLM .vocab = 250002, .eps = 1e-5f, .head_dim = 64
static const vt_family_shape shapes[] = {
    {XLM, .name = "multilingual-e5-base", .n_layers = 12, .hidden = 768, .n_heads = 12,
     .n_kv_heads = 12, .ffn = 3072, .max_context = 512},
    {XLM, .name = "bge-m3", .n_layers = 24, .hidden = 1024, .n_heads = 16, .n_kv_heads = 16,
     .ffn = 4096, .max_context = 8192},
    {.name = NULL},
};

#define LIKE_BERT                                                                      \
    .roles = vt_bert_roles, .n_roles = VT_BERT_ENCODER_ROLES, .norms = VT_NORM_JOINED, \
    .mlp = true, .layer_norm = true, .no_rope = true, .encoder = true,                 \
    .hf_layer = "encoder.layer.", .hf_prefix = "roberta.", .hf_ignored = ignored,      \
    .kv_heads_optional = true, .activation = "gelu", .from_config = from_config

const vt_family vt_family_roberta = {.name = "roberta", .hf = "roberta", LIKE_BERT};
const vt_family vt_family_xlm_roberta = {
    .name = "xlm_roberta", .hf = "xlm-roberta", .shapes = shapes, LIKE_BERT};
