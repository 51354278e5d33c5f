/* Element types, and tensors: typed views of memory that something else owns.
 *
 * A quantised type stores each block of `block` elements along the last dimension in `bytes` bytes;
 * the layouts are GGUF's. Sizes are exact: vt_dtype_row_bytes(t, n) for n elements of one row. */
#ifndef VT_BASE_TENSOR_H
#define VT_BASE_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum vt_dtype {
#define VT_DTYPE(name, ...) VT_##name,
#include "base/dtypes.h"
    VT_DTYPE_COUNT
} vt_dtype;

/* base/dtypes.h */
enum { VT_FORM_MIN = 1, VT_FORM_HALVES = 2, VT_FORM_SUPER = 4, VT_FORM_POWER = 8 };

typedef struct vt_dtype_info {
    const char *name; /* "Q4_1" */
    int32_t block,
        bytes;    /* elements and bytes of one block; 1 and the element size if not quantised */
    int32_t gguf; /* its number in GGUF files; -1: none has it */
    int32_t bits; /* of a stored quant; 0: it is not quantised */
} vt_dtype_info;

const vt_dtype_info *vt_dtype_get(vt_dtype t);
static inline bool vt_dtype_quantised(vt_dtype t) { return vt_dtype_get(t)->bits > 0; }
/* Returns true for the types that a weight matrix may have: floats and quantised ones. */
static inline bool vt_dtype_weight(vt_dtype t) { return t <= VT_FP8_E4M3 || vt_dtype_quantised(t); }
/* The bytes of a row of n elements; n must be a multiple of the block. */
int64_t vt_dtype_row_bytes(vt_dtype t, int64_t n);

#define VT_MAX_RANK 4

typedef enum vt_follows { VT_FIXED, VT_FOLLOWS_TOKENS, VT_FOLLOWS_ROWS } vt_follows;

/* dim[0] is the outermost dimension; a row is a run along the last one. Rows lie `row_stride`
 * elements apart. That is dim[rank-1] unless the tensor is a slice of a wider one; only rank-2
 * activations are ever slices. */
typedef struct vt_tensor {
    void *data;
    vt_dtype dtype;
    int32_t rank;
    int64_t dim[VT_MAX_RANK];
    int64_t row_stride;
    vt_follows follows;  /* what a step sets dim[0] to: its tokens, its rows of logits, nothing */
    const char *name;    /* for people; may be NULL */
    void *const *matrix; /* rank 3: the address of each matrix; NULL: one after the other */
} vt_tensor;

int64_t vt_tensor_elems(const vt_tensor *t);
int64_t vt_tensor_bytes(const vt_tensor *t); /* bytes of its elements without gaps between rows */
/* Rank-2 view of dense memory, [rows, cols]. */
vt_tensor vt_tensor_2d(void *data, vt_dtype dtype, int64_t rows, int64_t cols);
/* Matrix i of a tensor of rank 3. Its data is NULL if the tensor's is. */
vt_tensor vt_tensor_matrix(const vt_tensor *t, int64_t i);

/* Scalar conversions, exact, round to nearest even. */
float vt_f16_to_f32(uint16_t h);
uint16_t vt_f32_to_f16(float f);
static inline float vt_bf16_to_f32(uint16_t h)
{
    union {
        uint32_t u;
        float f;
    } v = {.u = (uint32_t)h << 16};
    return v.f;
}
uint16_t vt_f32_to_bf16(float f);
float vt_fp8_e4m3_to_f32(uint8_t v);
uint8_t vt_f32_to_fp8_e4m3(float f); /* saturating */

#endif
