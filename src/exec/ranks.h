/* Sharding: which part of a model each rank of a tensor-parallel group has (docs/ranks.md).
 *
 * A shard is a narrowed layout (exec/layout.h) and a KV cache with some of the heads. Nothing is
 * copied here; loaders pack the ranges as they pack whole tensors. */
#ifndef VT_EXEC_RANKS_H
#define VT_EXEC_RANKS_H

#include "exec/layout.h"
#include "kv/shape.h"

typedef struct vt_rank {
    int32_t index, n;   /* this rank, of n */
    bool whole_experts; /* ranks divide the experts; else each has a part of every expert */
} vt_rank;

/* A range of something that ranks divide. */
typedef struct vt_range {
    int64_t begin, n;
} vt_range;

/* The part of n items that a rank gets, in whole units; the last unit may be shorter. Of units that
 * do not divide evenly the first ranks have one more. Empty if there are too few units. */
vt_range vt_rank_part(int64_t n, int64_t unit, const vt_rank *r);

/* Fails if the model cannot run over n ranks, with the name of what cannot be divided. */
vt_status vt_ranks_check(const vt_model *m, int32_t n, bool whole_experts, vt_err *err);
/* Returns true if the rank is the first that has its KV heads of an attention layer: of copies one
 * counts in a sum over ranks. */
bool vt_ranks_counts_kv(const vt_model *m, int32_t layer, const vt_rank *r);
/* Narrows a layout to a rank's shard. The model has passed vt_ranks_check. */
void vt_ranks_narrow(vt_layout *l, const vt_rank *r);
/* The shape of a rank's KV cache. */
void vt_ranks_kv_shape(const vt_model *m, vt_dtype dtype, const vt_rank *r, vt_kv_shape *out);
/* The bytes of a page on all ranks together: more than on one, where KV heads are replicated. */
size_t vt_ranks_kv_page_bytes(const vt_model *m, vt_dtype dtype, int32_t n, int32_t page_size);
/* The same of a state slot. */
size_t vt_ranks_kv_slot_bytes(const vt_model *m, int32_t n);
size_t vt_ranks_kv_window_page_bytes(const vt_model *m, vt_dtype dtype, int32_t n,
                                     int32_t page_size);

#endif
