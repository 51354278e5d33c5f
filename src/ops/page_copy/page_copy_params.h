/* Parameters of page_copy.cu. The host's code and the kernels include this file. */
#ifndef VT_OPS_PAGE_COPY_PAGE_COPY_PARAMS_H
#define VT_OPS_PAGE_COPY_PAGE_COPY_PARAMS_H

#ifndef VT_KERNEL
#include "ops/params_host.h"
#endif

/* The first n_tokens slots of page `from` go to page `to`: vt_page_copy of ops/batch.h. */
typedef struct page_copy_item {
    int32_t from, to, n_tokens;
} page_copy_item;

typedef struct page_copy_params {
    uint8_t *pools;
    const page_copy_item *copies;
    uint64_t pool_stride; /* bytes */
} page_copy_params;

#endif
