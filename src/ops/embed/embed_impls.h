/* Rows of embed: for instruction sets of the CPU, and those for a GPU that an engine never chooses
 * (embed_rows_cuda.c). */
#ifndef VT_OPS_EMBED_IMPLS_H
#define VT_OPS_EMBED_IMPLS_H

#include "ops/cpu_rows.h"

CPU_ROWS_DECLARE(embed);

extern const vt_impl embed_rows_1, embed_rows_2, embed_rows_4, embed_rows_adaptive, embed_rows_full,
    embed_rows_32_bytes, embed_rows_keep_y, embed_rows_keep_table, embed_rows_staged,
    embed_rows_shuffle;

#endif
