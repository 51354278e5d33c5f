/* EAGLE-3 heads (model/eagle.h): one layer of Llama for whose q, k and v a token has two vectors.
 * Their config.json says llama, or another family, and names the class of the head. */
#include <math.h>
#include <string.h>

#include "files/json.h"
#include "model/family.h"

#define PAIR(role, rows)                                               \
    {                                                                  \
        VT_ROLE_##role, VT_NEED_ALWAYS, .dim = { rows, VT_DIM_MTP_IN } \
    }
static const vt_family_role roles[] = {
    {VT_ROLE_EMBED, VT_NEED_NOT},
    PAIR(Q, VT_DIM_Q),
    PAIR(K, VT_DIM_KV),
    PAIR(V, VT_DIM_KV),
};

/* The maps between both vocabularies: the loader reads one, which has all. */
static bool is_map(const vt_model *m, const char *tensor)
{
    size_t n = strlen(tensor);
    (void)m;
    return n >= 3 && (strcmp(tensor + n - 3, "d2t") == 0 || strcmp(tensor + n - 3, "t2d") == 0);
}

/* That of Llama 3.1 8B, and one for tests. */
static const vt_family_shape shapes[] = {
    {.name = "eagle3-llama-3.1-8b",
     .n_layers = 1,
     .hidden = 4096,
     .n_heads = 32,
     .n_kv_heads = 8,
     .head_dim = 128,
     .ffn = 14336,
     .vocab = 32000,
     .words = 128256,
     .max_context = 131072,
     .rope_base = 5e5,
     .eps = 1e-5f,
     .llama3_factor = 8},
    {.name = NULL},
};

static vt_status from_shape(vt_model *m, const vt_family_shape *s, vt_err *err)
{
    int32_t *word = vt_arena_alloc(&m->arena, (size_t)s->vocab, sizeof *word);
    if (!word)
        return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory", m->path);
    for (int32_t i = 0; i < s->vocab; i++)
        word[i] = (int32_t)((int64_t)i * s->words / s->vocab);
    m->eagle = (vt_eagle){.is = true, .words = s->words, .word = word, .aux_hidden = s->hidden};
    return VT_OK;
}

/* Reads which layers of the model the head reads. Inside "eagle_config" (SpecForge, ModelOpt) they
 * are named by the layers whose output that is, outside of it (vLLM) by those whose input it is. */
static vt_status read_aux(hf_reader *c)
{
    static const char key[] = "eagle_aux_hidden_state_layer_ids";
    vt_eagle *e = &c->m->eagle;
    const json_t *own = vt_read_member(c->root, "eagle_config");
    if (own)
        TRY(vt_check_object(c->path, "eagle_config", own, c->err));
    const json_t *inner = vt_read_member(own, key),
                 *list = inner ? inner : vt_read_member(c->root, key);
    if (!list)
        return VT_OK;
    TRY(vt_check_array(c->path, key, list, VT_AUX_LAYERS, c->err));
    for (size_t i = 0; i < VT_AUX_LAYERS; i++) {
        TRY(vt_read_nth(c->path, key, list, i, 0, 1024, &e->aux[i], c->err));
        e->aux[i] += inner != NULL;
    }
    e->n_aux = VT_AUX_LAYERS;
    return VT_OK;
}

static vt_status from_config(hf_reader *c)
{
    vt_arch *a = &c->m->arch;
    vt_eagle *e = &c->m->eagle;
    bool aux = true;
    if (a->n_layers != 1)
        return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                       "%s: \"num_hidden_layers\" is %d; an EAGLE-3 head of 1 layer was expected",
                       c->path, a->n_layers);
    *e = (vt_eagle){.is = true, .aux_hidden = a->hidden};
    TRY(hf_read_i32(c, "vocab_size", true, &e->words));
    TRY(hf_read_i32(c, "target_hidden_size", false, &e->aux_hidden));
    TRY(hf_read_bool(c, "norm_before_residual", &e->normed_stream));
    TRY(vt_read_bool(c->path, vt_read_member(c->root, "eagle_config"), "use_aux_hidden_state",
                     false, &aux, c->err));
    if (!aux || e->aux_hidden < 1)
        return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                       "%s: the head reads no hidden states of several layers (EAGLE-1 and 2); one "
                       "of EAGLE-3 was expected",
                       c->path);
    a->tied_head = false; /* the output matrix has a vocabulary of its own */
    a->n_ropes = 1;
    return read_aux(c);
}

const vt_family vt_family_eagle3 = {.name = "eagle3",
                                    .hf = "eagle3",
                                    .hf_class = "LlamaForCausalLMEagle3",
                                    .roles = roles,
                                    .n_roles = sizeof roles / sizeof *roles,
                                    .shapes = shapes,
                                    .kv_heads_optional = true,
                                    .first_unnormed = true,
                                    .skips = is_map,
                                    .skipped = "maps between vocabularies",
                                    .from_config = from_config,
                                    .from_shape = from_shape};
