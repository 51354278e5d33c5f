/* How many threads share a row in the kernels that include row.cuh, and how wide their loads are.
 * A thread holds at most 32 elements of rows of 16-byte vectors up to 16,384 elements. */
#ifndef VT_OPS_LAYERNORM_ROW_CUDA_H
#define VT_OPS_LAYERNORM_ROW_CUDA_H

#include "ops/cuda_impls.h"

enum { CUDA_ROW_THREADS = 128, CUDA_ROW_MOST_THREADS = 512, CUDA_ROW_MOST = 32768 };

typedef struct cuda_row_form {
    int32_t vec;            /* elements of a load */
    int32_t lanes, threads; /* of a row, of a CTA */
} cuda_row_form;

/* The form for rows of n elements, at most CUDA_ROW_MOST; `vectors`: they are 16-byte vectors. */
static inline cuda_row_form cuda_row_form_of(int64_t n, bool vectors)
{
    cuda_row_form f = {.vec = vectors ? 8 : 1, .lanes = 1, .threads = CUDA_ROW_THREADS};
    int64_t loads = n / f.vec;
    while (f.lanes < loads && f.lanes < 32)
        f.lanes *= 2;
    if (loads > 128) { /* more than four loads a lane: as few threads as keep the fewest loads */
        int64_t each = vt_ceil_div(loads, CUDA_ROW_MOST_THREADS);
        f.lanes = f.threads = (int32_t)vt_round_up((size_t)vt_ceil_div(loads, each), 32);
    }
    return f;
}

/* The number of CTAs for this many rows. */
static inline uint32_t cuda_row_ctas(const cuda_row_form *f, int64_t rows)
{
    return cuda_blocks(rows, f->threads / f->lanes);
}

#endif
