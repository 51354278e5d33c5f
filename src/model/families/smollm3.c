/* SmolLM3: Llama, in which every fourth layer does not rotate q and k. GGUF files do not say
 * which. */
#include "files/json.h"
#include "model/family.h"

/* Sets which layers rotate: all but every interval-th. */
static void set_layers(vt_model *m, int32_t interval)
{
    for (int32_t i = 0; i < m->arch.n_layers; i++)
        m->layer[i].head.rope = (i + 1) % interval != 0 ? 0 : -1;
}

static vt_status from_gguf(gguf_reader *r)
{
    set_layers(r->m, 4);
    return VT_OK;
}

/* "no_rope_layers" has a 1 for each layer that rotates; where it is missing, an interval holds. */
static vt_status from_config(hf_reader *c)
{
    int32_t interval = 4, n = c->m->arch.n_layers;
    const json_t *list = vt_read_member(c->root, "no_rope_layers");
    TRY(hf_read_i32(c, "no_rope_layer_interval", false, &interval));
    if (interval < 1)
        return vt_fail(c->err, VT_ERR_MODEL,
                       "%s: \"no_rope_layer_interval\" is %d (1 or more expected)", c->path,
                       interval);
    set_layers(c->m, interval);
    if (list)
        TRY(vt_check_array(c->path, "no_rope_layers", list, (size_t)n, c->err));
    for (int32_t i = 0; list && i < n; i++) {
        int32_t rotates;
        TRY(vt_read_nth(c->path, "no_rope_layers", list, (size_t)i, 0, 1, &rotates, c->err));
        c->m->layer[i].head.rope = rotates ? 0 : -1;
    }
    return VT_OK;
}

static vt_status from_shape(vt_model *m, const vt_family_shape *s, vt_err *err)
{
    (void)s, (void)err;
    set_layers(m, 4);
    return VT_OK;
}

/* From the model's published config.json. */
static const vt_family_shape shapes[] = {
    {.name = "smollm3-3b",
     .n_layers = 36,
     .hidden = 2048,
     .n_heads = 16,
     .n_kv_heads = 4,
     .head_dim = 128,
     .ffn = 11008,
     .vocab = 128256,
     .max_context = 65536,
     .rope_base = 5e6,
     .eps = 1e-6f,
     .tied = true},
    {.name = NULL},
};

const vt_family vt_family_smollm3 = {.name = "smollm3",
                                     .gguf = "smollm3",
                                     .hf = "smollm3",
                                     .shapes = shapes,
                                     .rope_interleaved = true,
                                     .tied = true,
                                     .rope_base = 2e6,
                                     .from_gguf = from_gguf,
                                     .from_config = from_config,
                                     .from_shape = from_shape};
