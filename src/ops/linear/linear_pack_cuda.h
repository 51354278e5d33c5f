/* The forms that weights have on a CUDA device: vt_impl.pack_bytes, pack_unit, pack_type and pack
 * of linear, moe_linear and embed.
 *
 *   cuda    quantised and FP8 matrices whose rows are multiples of 8 columns: tiles with the bits
 *           of the file (linear_quant.h); a unit is a tile of 8 rows. All others: dense.
 *   dense   BF16, row after row and part after part, FP8 scales applied; a unit is a row
 *
 * A paired weight in tiles has all tiles of gate, then all tiles of up. */
#ifndef VT_OPS_LINEAR_PACK_CUDA_H
#define VT_OPS_LINEAR_PACK_CUDA_H

#include "ops/op.h"

/* 0 unless columns are a multiple of 8: kernels read rows 16 bytes at a time. */
size_t linear_cuda_pack_bytes(const vt_weight *w);
/* Any number of columns: for embed, which needs no such alignment. */
size_t linear_table_pack_bytes(const vt_weight *w);
size_t linear_cuda_pack_unit(const vt_weight *w);
vt_dtype linear_cuda_pack_type(const vt_weight *w);
void linear_cuda_pack(const vt_weight *w, int64_t first, int64_t n, void *dst);

size_t linear_dense_pack_bytes(const vt_weight *w);
size_t linear_dense_pack_unit(const vt_weight *w);
vt_dtype linear_dense_pack_type(const vt_weight *w);
void linear_dense_pack(const vt_weight *w, int64_t first, int64_t n, void *dst);

#endif
