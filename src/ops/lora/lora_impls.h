#ifndef VT_OPS_LORA_IMPLS_H
#define VT_OPS_LORA_IMPLS_H

#include "ops/cpu_rows.h"
#include "ops/lora/lora.h"

CPU_ROWS_DECLARE(lora);

/* The adapter of sequence s; 0: none. */
static inline int32_t lora_of_seq(const lora_args *a, const vt_batch *b, int32_t s)
{
    int32_t k = b->adapter ? b->adapter[s] : 0;
    return k > 0 && k <= a->n ? k : 0;
}

/* The rank of adapter k for this matrix; 0: it has no part for it, or k is 0. */
static inline int32_t lora_rank(const lora_args *a, int32_t k)
{
    return k > 0 ? a->first[k] - a->first[k - 1] : 0;
}

#endif
