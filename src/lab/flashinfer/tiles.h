/* Drawings of the tiles of prefill attention, for lab flashinfer 02. */
#ifndef VT_LAB_FLASHINFER_TILES_H
#define VT_LAB_FLASHINFER_TILES_H

#include "lab/flashinfer/flashinfer.h"
#include "ops/op.h"

/* Online softmax in steps, with the rows and keys of this cut; the bytes of the scores beside those
 * that the call moves. */
void lab_put_softmax(vt_buf *b, const lab_heads *h, const vt_cut *cut, int32_t tokens,
                     double moved);
/* The tiles of Q (down) against blocks of K (across): computed, cut by the mask, skipped. */
void lab_put_tiles(vt_buf *b, const lab_heads *h, const vt_cut *cut, int32_t tokens);

#endif
