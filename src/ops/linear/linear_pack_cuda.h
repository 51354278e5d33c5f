/* The forms that weights have on a CUDA device.
 *
 *   tiles   quantised and FP8 matrices whose rows are multiples of 8 columns: the bits of the file
 *           (linear_quant.h); a unit is a tile of 8 rows. Others are dense.
 *   dense   BF16, row after row and part after part, FP8 scales applied; a unit is a row
 *
 * A paired weight in tiles has all tiles of gate, then all tiles of up. */
#ifndef VT_OPS_LINEAR_PACK_CUDA_H
#define VT_OPS_LINEAR_PACK_CUDA_H

#include "ops/op.h"

/* The packing of linear's weights: tiles if the type and width have them, else dense. It does not
 * take rows that are no multiple of 16 bytes, because the kernels read 16 bytes at a time. */
extern const vt_packing linear_cuda_packing;
/* The packing of embed's table: the same for rows of any length. */
extern const vt_packing linear_table_packing;
extern const vt_packing linear_dense_packing;

/* The functions of linear_cuda_packing, for packings that take fewer weights. */
size_t linear_cuda_pack_bytes(const vt_weight *w);
size_t linear_cuda_pack_unit(const vt_weight *w);
vt_dtype linear_cuda_pack_type(const vt_weight *w);
void linear_cuda_pack(const vt_weight *w, int64_t first, int64_t n, void *dst);

#endif
