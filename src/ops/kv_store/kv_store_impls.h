#ifndef VT_OPS_KV_STORE_IMPLS_H
#define VT_OPS_KV_STORE_IMPLS_H

#include "ops/op.h"

extern const vt_impl kv_store_avx2, kv_store_avx512;
extern const vt_impl kv_store_neon;

/* Never chosen by an engine. */
extern const vt_impl kv_store_k_then_v, kv_store_async, kv_store_by_slot;

#endif
