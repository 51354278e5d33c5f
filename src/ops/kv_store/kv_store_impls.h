#ifndef VT_OPS_KV_STORE_IMPLS_H
#define VT_OPS_KV_STORE_IMPLS_H

#include "ops/cpu_rows.h"

CPU_ROWS_DECLARE(kv_store);

/* Never chosen by an engine. */
extern const vt_impl kv_store_k_then_v, kv_store_async, kv_store_by_slot;

#endif
