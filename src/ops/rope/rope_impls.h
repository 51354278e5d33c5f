#ifndef VT_OPS_ROPE_IMPLS_H
#define VT_OPS_ROPE_IMPLS_H

#include "ops/cases.h"
#include "ops/cpu_rows.h"
#include "ops/rope/rope.h"

CPU_ROWS_DECLARE(rope);

/* The sizes of a case, of rope and of rope_store. dims 0 means head_dim. */
typedef struct rope_case {
    vt_batch *batch;
    vt_tensor *qkv; /* [tokens, q | k | v], fused as in a program */
    int64_t heads, kv_heads, head_dim, dims;
    int32_t context;
    bool interleaved, own; /* own: q has a table of its own */
    int norm;              /* 1: before the rotation, 2: after it */
    vt_dtype norm_type;
} rope_case;
/* Returns why head_dim and dims do not go together; NULL: they do. */
const char *rope_dims_refuse(int64_t head_dim, int64_t dims);
/* Makes arguments over slices of qkv. False: out of memory. */
bool rope_case_args(const rope_case *c, vt_arena *arena, uint64_t *seed, rope_args *out);

/* Never chosen by an engine. */
extern const vt_impl rope_cuda_pairs;

#endif
