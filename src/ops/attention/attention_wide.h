/* Between the plan (attention_wide_plan.c) and the launch (attention_wide.c) of
 * attention_wide.cu. */
#ifndef VT_OPS_ATTENTION_WIDE_H
#define VT_OPS_ATTENTION_WIDE_H

#include "ops/attention/attention_cuda.h"

/* A CTA of the kernel: tiles of 16 rows, the keys of a block, the blocks of its ring. ordered: the
 * order of sums does not depend on tiles. */
typedef struct attention_wide_shape {
    int32_t tiles, keys, stages;
    bool ordered;
} attention_wide_shape;

/* The plan depends on these besides the batch. */
typedef struct attention_wide_config {
    attention_wide_shape shape;
    int32_t group, kv_heads;
    int32_t at_once; /* CTAs that the GPU runs beside each other, for each KV head */
    bool decode;
    int32_t tokens; /* decode: the most that a sequence brings; prefill: not set */
} attention_wide_config;

/* CUT, FINE: there are ranges to join. FINE: blocks have ATTENTION_WIDE_FINE keys. */
enum { WIDE_WHOLE, WIDE_CUT, WIDE_FINE, WIDE_VARIANTS };
enum { ATTENTION_WIDE_FINE = 32 };

/* The CTA for tiles of up to `rows` rows that fits into max_shared_bytes; tiles 0: none does. In
 * deterministic programs keys and stages do not depend on the rows. */
attention_wide_shape attention_wide_shape_of(const attention_args *a, const vt_target *t,
                                             int64_t rows);
/* The CTA of a plan of variant WIDE_FINE. */
attention_wide_shape attention_wide_fine(attention_wide_shape s);
uint32_t attention_wide_shared_bytes(const attention_args *a, attention_wide_shape s);
attention_wide_config attention_wide_config_of(const attention_args *a, const vt_target *t,
                                               const vt_size *size, bool decode);
/* The most slots of partial states that a plan has, and tiles that are cut, for each KV head. */
int32_t attention_wide_slots(const attention_wide_config *c);
int32_t attention_wide_merges(const attention_wide_config *c, const vt_size *size);

extern const vt_host_plan attention_wide_decode_plan, attention_wide_prefill_plan;

#endif
