#ifndef VT_OPS_LORA_IMPLS_H
#define VT_OPS_LORA_IMPLS_H

#include "ops/cpu_rows.h"
#include "ops/lora/lora.h"

CPU_ROWS_DECLARE(lora);
extern const vt_impl lora_cuda_cluster, lora_cuda_alone;

/* The adapter of sequence s; 0: none. */
static inline int32_t lora_of_seq(const lora_args *a, const vt_batch *b, int32_t s)
{
    int32_t k = b->adapter ? b->adapter[s] : 0;
    return k > 0 && k <= a->n ? k : 0;
}

/* The rank of adapter k in this part; 0: it has none there, or k is 0. */
static inline int32_t lora_rank(const lora_part *p, int32_t k)
{
    return k > 0 ? p->first[k] - p->first[k - 1] : 0;
}

/* The sum of the parts' largest ranks. */
static inline int64_t lora_most_ranks(const lora_args *a)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < a->n_parts; i++)
        sum += a->part[i].most_rank;
    return sum;
}

#endif
