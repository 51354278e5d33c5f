/* The tools that a program is built with: program.c and the blocks (exec/blocks) write calls
 * through it. */
#ifndef VT_EXEC_BLOCKS_BUILDER_H
#define VT_EXEC_BLOCKS_BUILDER_H

#include "exec/program.h"
#include "ops/linear/linear.h"

/* After the first failure `status` says which, and nothing is built any more. */
typedef struct builder {
    vt_program *p;
    const vt_program_config *config;
    const vt_model *m;
    const vt_weights *w;
    const vt_kv_cache *kv;
    vt_err *err;
    int32_t room_calls, room_symbolic; /* of the program's arrays, which grow */
    vt_status status;
    vt_comm_slot slot; /* that the last block's sum over ranks had */
    bool windowed;     /* plans of the calls that are emitted now are made from window pages */
    /* Activations, in the order of a layer (program.c). A block makes its own. */
    vt_tensor *x, *h, *t, *qkv, *o, *f, *g, *expert, *expert_weight, *bcu, *cv, *q, *shared, *delta,
        *mamba, *ba, *u, *d, *per_layer, *per_layer_in, *per_layer_gate, *e, *q_rank, *q_latent,
        *latent, *wide, *s, *pair, *aux, *kda, *decay, *z;
    const vt_tensor *stream; /* of an EAGLE-3 head: what attention adds its output to; or NULL */
    int32_t n_aux;           /* layers whose input is in `aux` by now */
} builder;

/* Makes an activation of its own: a new buffer of `cols` columns, with one row for each token or
 * row of logits. */
vt_tensor *build_activation(builder *b, const char *name, vt_follows follows, int64_t cols,
                            vt_dtype dtype);
/* Makes a tensor with a row for each token, whose memory the batch brings. */
vt_tensor *build_input(builder *b, const char *name, int64_t cols);
/* Makes a view of columns [at, at + cols) of a wider activation. */
vt_tensor *build_slice(builder *b, const char *name, const vt_tensor *of, int64_t at, int64_t cols);

/* Makes a view of an activation's memory with fewer columns and no gaps between its rows. Returns
 * the activation itself if it has as many columns. */
vt_tensor *build_narrow(builder *b, vt_tensor *of, int64_t cols);

/* Appends a call with a copy of its args. */
void build_emit(builder *b, const vt_op *op, const void *args, size_t size, int32_t layer,
                const char *what, vt_when when);
#define EMIT(b, op, layer, what, when, ...) \
    build_emit(b, &op##_op, &(op##_args)__VA_ARGS__, sizeof(op##_args), layer, what, when)
/* The batch with the pages of a KV group's layers. */
const vt_batch *build_pages(const builder *b, int32_t kv_group);
/* Returns true if these layers have window pages of their own. */
bool build_window_pages(const builder *b, int32_t kv_group);
/* The bias of a product that ranks sum, which one of them adds: NULL on the others. */
const vt_tensor *build_joined_bias(const builder *b, const vt_tensor *bias);
/* Where a block writes its part of a sum over ranks: the buffer of this slot; y itself where the
 * program runs alone. */
vt_tensor *build_part(const builder *b, vt_comm_slot slot, vt_tensor *y);
/* y = residual + the sum of the ranks' parts of this slot. Nothing where the program runs alone. */
void build_all_reduce(builder *b, int32_t layer, const char *what, vt_comm_slot slot,
                      const vt_tensor *residual, vt_tensor *y);
/* Makes the buffer of VT_SLOT_NORM, unless a block before this one has made it. */
void build_norm_buffer(builder *b);
/* y[i] += what adapters make of x, the input of the layer's matrices of the n roles from `role` on,
 * times scale (0 counts as 1). One call for all of them; none where no adapter has a part for
 * any. */
void build_lora(builder *b, int32_t layer, const char *what, vt_role role, const vt_tensor *x,
                vt_tensor *const *y, int32_t n, float scale);
/* Lets the linear calls right behind the norm at `at`, the last calls, make it themselves. */
void build_offer_norm(builder *b, int32_t at);
/* Lets a decode's attention, the last call, do the work of rope_store in front of it: rotate q and
 * k, and store K and V. */
void build_offer_turn(builder *b);
/* A linear call; a scale of 0 counts as 1. */
void build_linear(builder *b, int32_t layer, const char *what, linear_args args, vt_when when);

#endif
