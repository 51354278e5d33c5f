/* A model's weights as its program uses them, on the device that runs it: each entry of the layout
 * (exec/layout.h) has a named place here. The program takes all its weights from here; it reads
 * nothing from the model itself but the architecture. All programs of an engine share one
 * vt_weights, read-only. */
#ifndef VT_EXEC_WEIGHTS_H
#define VT_EXEC_WEIGHTS_H

#include "base/progress.h"
#include "exec/layout.h"
#include "model/model.h"
#include "ops/op.h"

/* A tensor that the layer does not have is NULL; a vt_weight that it does not have has 0 rows. */
typedef struct vt_layer_weights {
    vt_weight qkv[3]; /* 1 stacked weight, or q, k and v */
    int32_t n_qkv;
    vt_weight o, down;
    vt_weight gate_up[2];                    /* 1 paired weight, or gate and up */
    int32_t n_gate_up;                       /* 0: the layer has experts */
    vt_weight *expert_gate_up, *expert_down; /* [n_experts] */
    const vt_tensor *router;                 /* [n_experts, hidden] float type */
    const vt_tensor *attn_norm, *q_norm, *k_norm, *post_attn_norm, *ffn_norm, *post_ffn_norm;
    const vt_tensor *qkv_bias;                 /* [rows of qkv[0]]; only if n_qkv is 1 */
    const vt_tensor *q_bias, *k_bias, *v_bias; /* only if n_qkv is 3 */
    const vt_tensor *gate_bias, *up_bias;      /* only if n_gate_up is 2 */
    const vt_tensor *o_bias, *down_bias;
    float kv_k_scale, kv_v_scale; /* what a 1 stored in an FP8 cache stands for; 1 by default */
} vt_layer_weights;

typedef struct vt_weights {
    const vt_model *model;
    vt_layer_weights *layer; /* [n_layers] */
    vt_weight head;
    const vt_tensor *embed, *final_norm;
    const vt_tensor *rope_table, *rope_local_table; /* [max_context, dims] fp32 */
    void *memory; /* CPU: all packed weights in the order of the layout, packed_bytes long */
    int64_t packed_bytes;
    vt_arena arena;
} vt_weights;

/* ---- for the loaders ---- */

/* Makes an empty vt_weights for the entries of `l`; vt_weights_release frees what it holds. */
vt_status vt_weights_init(vt_weights *w, const vt_layout *l, vt_err *err);
void vt_weights_release(vt_weights *w);
/* The place of an entry: _matrix for entries of kind MATRIX, _experts for EXPERTS, _tensor for all
 * others. _experts makes the array of experts when it is first called for an entry; NULL: out of
 * memory. */
vt_weight *vt_weights_matrix(vt_weights *w, const vt_layout_entry *e);
vt_weight *vt_weights_experts(vt_weights *w, const vt_layout_entry *e);
const vt_tensor **vt_weights_tensor(vt_weights *w, const vt_layout_entry *e);

/* ---- on the CPU ---- */

/* Packs the matrices of `l` with `team`, each for the implementation that the target will choose,
 * and computes rope tables for limits.max_context positions. Norms, routers and the embedding are
 * used where they lie in the file. Without a team no data is read: such weights have shapes and can
 * be costed but must not run. `progress` may be NULL. The list may be freed afterwards. */
vt_status vt_weights_realise_cpu(const vt_layout *l, vt_team *team, const vt_target *target,
                                 const vt_progress_hook *progress, vt_weights **out, vt_err *err);
/* The same for all weights of a model. */
vt_status vt_weights_load_cpu(const vt_model *m, vt_team *team, const vt_target *target,
                              const vt_progress_hook *progress, vt_weights **out, vt_err *err);
void vt_weights_free(vt_weights *w);

#endif
