/* A model's weights as a list, the same for every device.
 *
 *   model ──> layout: embed | L00.attn_norm | L00.qkv | L00.o | ... | head | rope
 *                 │
 *                 ├─ weights_cpu.c    packs each entry into host memory
 *                 └─ weights_cuda.c   packs each entry and copies it to the device
 *
 * An entry is one weight as the program uses it: up to three tensors of the file stacked one below
 * the other, each reduced to a range of its rows and columns. The list is in the order in which a
 * step reads the weights, so that memory allocated in list order is read in address order.
 *
 * Tensors are stacked by the same rules on every device:
 *   - q, k and v are one matrix where their types in the file are equal. A missing bias of one of
 *     them counts as zeros if another has one.
 *   - gate and up are one paired matrix where their types are equal and neither has a bias: the
 *     linear op then applies the activation where both values of a pair meet. With adapters they
 *     are one matrix, and not paired.
 *   - the experts' gate and up are always paired; files in which their types differ are refused.
 * These rules compare the types in the file, not those on the device. A GPU, which turns both F16
 * and BF16 into BF16, could stack more, but then one file would have two programs; a file with both
 * types costs a GPU two more launches per layer.
 *
 * vt_layout_make returns ranges that cover whole tensors. A rank of a tensor-parallel group narrows
 * them without copying anything: the rows of q, k, v, gate and up (whole heads; the same rows of
 * gate and of up) with their biases, and the columns of o and down. Ranges must begin and end
 * between two blocks of the type and, where FP8 scales are given per block of 128 rows and 128
 * columns, between two of these. The program takes its sizes from the weights, and the number of KV
 * heads from the cache: a rank needs no other description. What ranks add to the residual stream
 * must be summed (tests/unit/test_ranks.c). */
#ifndef VT_EXEC_LAYOUT_H
#define VT_EXEC_LAYOUT_H

#include "model/model.h"
#include "ops/op.h"

/* A range of a tensor of the file. Experts: the same range of each of the tensor's matrices.
 * Vectors: rows are elements, and there is 1 column. */
typedef struct vt_layout_part {
    const vt_tensor *tensor; /* NULL: `rows` zeros (a bias that the file does not have) */
    const vt_tensor *scale;  /* FP8: the scales of the whole tensor; NULL for other types */
    int64_t row, rows, col, cols;
} vt_layout_part;

enum { VT_LAYOUT_PARTS = VT_WEIGHT_PARTS };

typedef struct vt_layout_entry {
    char label[32]; /* "L07.qkv", "head" */
    vt_weight_kind kind;
    vt_role role;
    int32_t layer; /* -1: outside the layers */
    int32_t n_parts;
    vt_layout_part part[VT_LAYOUT_PARTS];
    int64_t matrix, matrices;   /* EXPERTS: a range of each tensor's matrices; else 0 */
    bool paired;                /* row i of gate and row i of up are used together */
    const vt_rope_params *rope; /* VT_KIND_ROPE */
} vt_layout_entry;

typedef struct vt_layout {
    const vt_model *model;
    vt_layout_entry *entry;
    int32_t n;
} vt_layout;

/* Makes the list. It reads the tensors' shapes and types but no data. The model must outlive the
 * list. */
vt_status vt_layout_make(const vt_model *m, vt_layout **out, vt_err *err);
void vt_layout_free(vt_layout *l);

/* ---- for blocks, which add their weights to the list ---- */

vt_layout_entry *vt_layout_add(vt_layout *l, vt_role role, int32_t layer);
/* Adds a whole tensor as the entry's next part; parts are stacked, the first on top. */
void vt_layout_stack(vt_layout_entry *e, const vt_tensor *t, const vt_tensor *scale);
/* Adds the layer's weight of this role, if it has one. */
void vt_layout_add_role(vt_layout *l, vt_role role, int32_t layer);
/* Adds gate and up as one paired entry. */
void vt_layout_add_pair(vt_layout *l, vt_role pair, vt_role gate, vt_role up, int32_t layer);
/* Adds the adapters' A and B for the layer's weight of this role, if there are any. */
void vt_layout_add_adapters(vt_layout *l, vt_role role, int32_t layer);

/* ---- entries ---- */

/* The number of rows of all parts together. */
int64_t vt_layout_rows(const vt_layout_entry *e);
/* Returns how many matrices an entry has: its part of the experts, or heads, or 1. */
int64_t vt_layout_matrices(const vt_layout_entry *e);
/* Fills *out with matrix i of an entry of kind MATRIX, EXPERTS or EMBED. The parts of the weight
 * are views of the file's tensors; the views are allocated in `arena`. VT_ERR_USAGE if a range does
 * not fit its tensor. */
vt_status vt_layout_weight(const vt_layout_entry *e, int64_t i, vt_arena *arena, vt_weight *out,
                           vt_err *err);
/* A view of the only part of an entry of kind EMBED, ROUTER or VECTOR. */
vt_status vt_layout_tensor(const vt_layout_entry *e, vt_tensor *out, vt_err *err);
/* Converts all parts of an entry of kind ROUTER or VECTOR to fp32, one after the other. */
void vt_layout_floats(const vt_layout_entry *e, float *out);

#endif
