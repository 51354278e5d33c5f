/* The part of lab sglang 02 about memory pressure. */
#ifndef VT_LAB_SGLANG_RADIX_H
#define VT_LAB_SGLANG_RADIX_H

#include "lab/kit/lab.h"

/* Sends more prompts than an engine with a small KV memory can keep, and tells the items eviction,
 * tree_before, tree_after and pressure. page_bytes: of a KV page over all layers. */
vt_status sglang_pressure(lab *l, double page_bytes, int32_t page_size, vt_err *err);

#endif
