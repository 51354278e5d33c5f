/* The kinds of blocks that layers are made of: all that is known of a kind is in its file. */
#ifndef VT_EXEC_BLOCKS_BLOCK_H
#define VT_EXEC_BLOCKS_BLOCK_H

#include "exec/blocks/builder.h"
#include "exec/layout.h"

typedef struct vt_block {
    /* Adds the layer's weights of this block to the list: what is stacked and paired. */
    vt_status (*weights)(vt_layout *l, int32_t layer, vt_err *err);
    /* Makes the activations that blocks of this kind share. Called once, if any layer has one. */
    void (*tensors)(builder *b);
    /* Writes calls for y = block(x), or y += block(x) where y is the residual stream. */
    void (*emit)(builder *b, int32_t layer, const vt_tensor *x, vt_tensor *y);
    /* Returns true if the layer's block sums the parts of ranks itself, since it has norms between
     * them and its result: y then is the result. NULL: it is a part of the sum. */
    bool (*joins)(const builder *b, int32_t layer);
    const char *norm, *post_norm; /* labels of the norms before and after it */
    vt_role norm_role, post_norm_role, post_norm_bias_role;
} vt_block;

/* A block's norms by the names of their labels and roles: VT_BLOCK_NORMS("ffn", FFN). */
#define VT_BLOCK_NORMS(label, role)                                                \
    .norm = label, .post_norm = "post_" label, .norm_role = VT_ROLE_##role##_NORM, \
    .post_norm_role = VT_ROLE_POST_##role##_NORM,                                  \
    .post_norm_bias_role = VT_ROLE_POST_##role##_NORM_BIAS

/* Refuses a layer whose block adds to the residual stream by a factor and has this bias: products
 * are scaled before a bias is added. */
vt_status vt_block_check_scale(const vt_layout *l, int32_t layer, vt_role bias, vt_err *err);

extern const vt_block vt_block_attention, vt_block_ffn, vt_block_experts, vt_block_conv,
    vt_block_delta, vt_block_kda, vt_block_mamba, vt_block_mlp, vt_block_mla;
/* By kind; the first is NULL: no block. */
extern const vt_block *const vt_blocks[VT_BLOCKS];

/* ---- the input of an MTP head (mtp.c) ---- */

void vt_mtp_tensors(builder *b);
/* Writes calls that make of embeddings, in x, and the hidden states before them the input of the
 * layers. Nothing in other programs. */
void vt_mtp_input(builder *b);

/* ---- what a layer has after its blocks (layer_end.c) ---- */

void vt_layer_end_tensors(builder *b);
/* Writes calls that make a token's embeddings for each layer, if the model has them. */
void vt_layer_embeddings(builder *b);
/* Writes the end of a layer that has more than its blocks: adds the result of its last block, in t,
 * to x. `after` is that block's norm. Returns false, having written nothing, for other layers. */
bool vt_layer_end(builder *b, int32_t layer, const vt_tensor *after);

#endif
