/* Dividing the memory for KV (kv/divide.h).
 *
 * A sequence of x tokens has x / page_size pages, and holds window pages for its window alone. As
 * many again serve cached prefixes: each is of use only with the window at its end. Each step's
 * chunks of prompts need theirs once more. So memory for s sequences of x tokens is
 *
 *   s (pages(x) page_bytes + windows(x) window_bytes) + pages(budget) window_bytes
 *
 * x is the longest context where there is memory for max_running of these, or where it is no longer
 * than LONG windows. Else x is LONG windows: what is divided for longer ones would hold few short
 * sequences, whose window pages are as many as their pages. */
#include "kv/divide.h"

#include "base/mem.h"

enum { LONG = 16 };

static int64_t pages_of(const vt_windows_need *n, int64_t tokens)
{
    return vt_ceil_div(tokens, n->page_size);
}

/* Window pages of a sequence of this many pages, and for the cache. */
static int64_t windows_of(const vt_windows_need *n, int64_t pages)
{
    int64_t windows = 2 * (int64_t)n->least;
    return windows < pages ? windows : pages;
}

int64_t vt_windows_wanted(const vt_windows_need *n)
{
    int64_t pages = pages_of(n, n->max_context),
            windows = n->max_running * windows_of(n, pages) + pages_of(n, n->budget);
    return n->max_running * pages * (int64_t)n->page_bytes + windows * (int64_t)n->window_bytes;
}

bool vt_windows_divide(const vt_windows_need *n, int64_t bytes, int32_t *n_pages,
                       int32_t *n_windows)
{
    /* numbers of slots are int32_t */
    int64_t slots = INT32_MAX / n->page_size - 1, least = n->least;
    int64_t page = (int64_t)n->page_bytes, window = (int64_t)n->window_bytes,
            most = bytes / window < slots ? bytes / window : slots, x = (int64_t)LONG * n->window,
            chunk = pages_of(n, n->budget);
    if (x > n->max_context || bytes >= vt_windows_wanted(n))
        x = n->max_context;
    int64_t each = pages_of(n, x), windows = windows_of(n, each);
    chunk = chunk * window < bytes / 8 ? chunk : bytes / 8 / window;
    int64_t sequence = each * page + windows * window, rest = bytes - chunk * window;
    windows = (int64_t)((double)rest / (double)sequence * (double)windows) + chunk;
    windows = windows > least ? windows : least;
    windows = windows < most ? windows : most;
    /* without layers that read all keys, pages are but numbers: as many as the lists shall have */
    int64_t pages = page > 0 ? (bytes - windows * window) / page
                             : 2 * n->max_running * pages_of(n, n->max_context);
    pages = pages < slots ? pages : slots;
    if (windows < least || pages <= bytes / (page + window))
        return false;
    *n_pages = (int32_t)pages;
    *n_windows = (int32_t)windows;
    return true;
}
