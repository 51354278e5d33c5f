/* How the memory for KV is divided between the pages of layers that read all keys and the window
 * pages (kv/radix.h) of layers that read the last ones. */
#ifndef VT_KV_DIVIDE_H
#define VT_KV_DIVIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct vt_windows_need {
    int32_t page_size, window; /* tokens */
    size_t page_bytes;         /* of a page in layers without a window; 0: there are none */
    size_t window_bytes;       /* of a page in layers with one */
    int32_t least;             /* window pages that a sequence alone needs to go on */
    int32_t max_context, max_running, budget;
} vt_windows_need;

/* Returns the bytes of pages for max_running sequences of full context. */
int64_t vt_windows_wanted(const vt_windows_need *n);
/* Divides `bytes`. Returns false, and sets neither, if one kind of page for all layers holds as
 * many tokens. */
bool vt_windows_divide(const vt_windows_need *n, int64_t bytes, int32_t *n_pages,
                       int32_t *n_windows);

#endif
