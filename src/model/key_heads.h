/* Projections of delta rules that files hold by key heads (Qwen3-Next): a matrix has, for each key
 * head, its q, its k, and the v and z of the value heads that read it; another one their b and a.
 *
 *   in the file   q0 k0 v0 v1 z0 z1 | q1 k1 v2 v3 z2 z3     b0 b1 a0 a1 | b2 b3 a2 a3
 *   here          q0 q1 k0 k1 v0 v1 v2 v3 , z0 z1 z2 z3     b0 b1 b2 b3 , a0 a1 a2 a3 */
#ifndef VT_MODEL_KEY_HEADS_H
#define VT_MODEL_KEY_HEADS_H

#include "base/err.h"
#include "model/model.h"

/* Makes two weights of a layer from matrix t: those with the roles `first` (VT_ROLE_DELTA_QKV or
 * VT_ROLE_DELTA_B) and the next. The rows are copied, into m->arena. `scale` has the checked scales
 * of an FP8 matrix; NULL for other types: one number stays, blocks of 128 rows are copied too, and
 * refused if they hold rows of two kinds. The caller has checked the shapes. */
vt_status model_take_key_heads(vt_model *m, int32_t layer, vt_role first, const vt_tensor *t,
                               const vt_tensor *scale, vt_err *err);

#endif
