/* Low-rank adapters of a model: PEFT folders (adapter_config.json, adapter_model.safetensors), and
 * GGUF files of llama.cpp's convert_lora_to_gguf.
 *
 *   PEFT: layers.3.self_attn.q_proj.lora_A [r, in], .lora_B [out, r]
 *   GGUF: blk.3.attn_q.weight.lora_a [r, in], .lora_b [out, r]; scale: adapter.lora.alpha / r
 *   here: by layer and role, the matrices of all adapters one below the other, as the op reads them
 *         (ops/lora/lora.h), in fp32
 *
 * A request names one adapter or none. Adapters are numbered from 1, so that 0 stands for none.
 * Adapted can be the projections of attention (q, k, v, o) and of a dense feed-forward (gate, up,
 * down), also where a family's files hold several as one. Whatever else a folder asks for is
 * refused by its name. */
#ifndef VT_MODEL_LORA_H
#define VT_MODEL_LORA_H

#include "base/err.h"
#include "files/json.h"
#include "model/model.h"

enum {
    VT_LORA_MOST = 32,       /* adapters of a model */
    VT_LORA_MOST_RANK = 512, /* of one */
    VT_LORA_MOST_NAME = 128  /* bytes */
};

/* The parts of all adapters for one matrix. */
typedef struct vt_lora_matrix {
    vt_tensor a, b; /* [ranks, cols] and, turned, [ranks, rows], fp32 */
    int32_t *first; /* [n + 1] rows of adapter k: first[k - 1] .. first[k] */
    float *scale;   /* [n] */
    int32_t n, most_rank;
} vt_lora_matrix;

typedef struct vt_lora {
    int32_t n;
    const char **name;             /* [n] */
    const char **path;             /* [n] */
    const vt_lora_matrix **matrix; /* [n_layers * VT_ROLES]; NULL: no adapter has a part for it */
} vt_lora;

/* Loads adapters for a model, whose arena holds them: each text is NAME=PATH. */
vt_status vt_lora_load(vt_model *m, const char *const *texts, int32_t n, vt_err *err);
/* The number of the adapter of this name; 0: there is none. */
int32_t vt_lora_find(const vt_model *m, const char *name);
/* The adapters' parts for a matrix; NULL: no adapter has one. */
const vt_lora_matrix *vt_lora_of(const vt_model *m, int32_t layer, vt_role role);

/* ---- between the files of this folder ---- */

typedef struct vt_lora_pattern {
    const char *key; /* the end of a module's name, or with '^' in front all of it */
    double value;
} vt_lora_pattern;

/* adapter_config.json. */
typedef struct vt_lora_config {
    int32_t r;
    double alpha;
    bool rslora;                    /* the scale is alpha / sqrt(r), not alpha / r */
    vt_lora_pattern *rank, *alphas; /* [n_rank], [n_alphas] of single modules */
    int32_t n_rank, n_alphas;
} vt_lora_config;

/* Reads the file; patterns lie in `arena`. */
vt_status vt_lora_config_read(const char *path, vt_arena *arena, vt_lora_config *out, vt_err *err);
/* The same of a file's value; `path` is used in messages. */
vt_status vt_lora_config_of(const char *path, const json_t *root, vt_arena *arena,
                            vt_lora_config *out, vt_err *err);
/* The rank and the scale of a module, such as "model.layers.0.self_attn.q_proj". */
int32_t vt_lora_config_rank(const vt_lora_config *c, const char *module);
float vt_lora_config_scale(const vt_lora_config *c, const char *module);

#endif
