/* A model's weights as its program uses them: matrices stacked (q, k, v; gate, up) where their
 * types agree, packed for the implementation that will run them, norms and biases as they are.
 * Shared read-only by every program of an engine. */
#ifndef VT_EXEC_WEIGHTS_H
#define VT_EXEC_WEIGHTS_H

#include "base/progress.h"
#include "model/model.h"
#include "ops/op.h"

typedef struct vt_layer_weights {
    vt_weight qkv[3]; /* 1 stacked weight, or 3 where the types differ */
    int32_t n_qkv;
    vt_weight o, down;
    vt_weight gate_up[2]; /* 1 paired weight, or 2 */
    int32_t n_gate_up;
    vt_weight *expert_gate_up, *expert_down; /* [n_experts] or NULL */
    const vt_tensor *qkv_bias;               /* [sum of rows], concatenated at load; or NULL */
    const vt_tensor *gate_up_bias;
} vt_layer_weights;

typedef struct vt_weights {
    const vt_model *model;
    vt_layer_weights *layer; /* [n_layers] */
    vt_weight head;
    const vt_tensor *rope_table, *rope_local_table; /* [max_context, dims] fp32 */
    void *memory; /* packed_bytes: all packed weights, in the order in which a step reads them */
    int64_t packed_bytes;
    vt_arena arena;
} vt_weights;

/* CPU: packs with `team`. `level` chooses the implementations. `progress` may be NULL. */
vt_status vt_weights_load_cpu(const vt_model *m, vt_team *team, vt_isa level, int32_t max_context,
                              const vt_progress_hook *progress, vt_weights **out, vt_err *err);
void vt_weights_free(vt_weights *w);

#endif
