/* A model's weights as its program uses them, on the device that runs it: each entry of the layout
 * (exec/layout.h) has a place here, by its role. The program takes all its weights from here; it
 * reads nothing from the model itself but its description. All programs of an engine share one
 * vt_weights, read-only. */
#ifndef VT_EXEC_WEIGHTS_H
#define VT_EXEC_WEIGHTS_H

#include "base/term/progress.h"
#include "exec/layout.h"
#include "model/model.h"
#include "ops/op.h"

/* By role; NULL: there is none. */
typedef struct vt_layer_weights {
    vt_weight *weight[VT_ROLES];       /* entries of kind MATRIX, and of EXPERTS: [n_experts] */
    const vt_tensor *tensor[VT_ROLES]; /* all others; routers: [n_experts, hidden] float type */
    /* adapters' parts for a weight: fp32, on a GPU bf16 */
    const vt_tensor *lora_a[VT_ROLES], *lora_b[VT_ROLES];
    float kv_k_scale, kv_v_scale; /* what a 1 stored in an FP8 cache stands for; 1 by default */
} vt_layer_weights;

typedef struct vt_weights {
    const vt_model *model;
    vt_layer_weights *layer; /* [n_layers] */
    vt_layer_weights ends; /* embedding, final norm, head; rope tables, [max_context, dims] fp32 */
    int32_t first_token;   /* the id of the embedding's first row; not 0 in a rank's shard */
    int32_t first_expert, n_experts; /* of every layer; a rank's shard may have some of them */
    void *memory; /* CPU: all packed weights in the order of the layout, packed_bytes long */
    int64_t packed_bytes;
    vt_arena arena;
} vt_weights;

/* ---- for the loaders ---- */

/* Makes an empty vt_weights for the entries of `l`; vt_weights_release frees what it holds. */
vt_status vt_weights_init(vt_weights *w, const vt_layout *l, vt_err *err);
void vt_weights_release(vt_weights *w);
/* The place of an entry: _matrix for entries of kind MATRIX and EXPERTS, _tensor for all others.
 * _matrix makes the entry's weight, or its array of experts, when it is first called for it; NULL:
 * out of memory. */
vt_weight *vt_weights_matrix(vt_weights *w, const vt_layout_entry *e);
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
