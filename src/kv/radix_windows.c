/* Window pages of the radix tree (kv/radix.h): the KV of layers with a sliding window.
 *
 *   node          [p7]───[p3]───[p9]───[p2]     a token behind p2 that sees two pages and a bit
 *   window page    --     w4     w1     w8      needs w4, w1 and w8: a sequence can go on there.
 *                                               Behind p3 it could not, for it needs that of p7
 *
 * A running sequence holds the window pages that its next token sees, and drops those behind. What
 * it drops stays at its node until another sequence needs a page: the one whose last use was the
 * longest ago goes first. The node stays, and its page of the other layers.
 *
 * A sequence that shares its prompt with another one of its request may hold a window page whose
 * node it does not hold. So the node can go first; the window page is then the sequence's alone. */
#include "kv/radix_inside.h"

#include <assert.h>

#include "base/err.h"

vt_status vt_radix_add_windows(vt_radix *r, int32_t n_pages, int32_t window, vt_err *err)
{
    assert(r->windows.n_slots == 0 && window >= 1 &&
           n_pages >= vt_radix_window_span(window, r->page_size));
    r->window = window;
    return vt_slots_init(&r->windows, n_pages, err);
}

int32_t vt_radix_window_first(const vt_radix *r, int32_t position)
{
    return position < r->window ? 0 : (position - r->window + 1) / r->page_size;
}

int32_t vt_radix_window_span(int32_t window, int32_t page_size)
{
    return (window + page_size - 2) / page_size + 1;
}

/* Where one is gone, no end behind it will do, up to the end that was tried: they all need it. So
 * the search goes on at the page that has lost it. */
int32_t radix_end_in_windows(const vt_radix *r, int32_t n_pages, const int32_t *page)
{
    while (n_pages > 0) {
        int32_t first = vt_radix_window_first(r, n_pages * r->page_size), at = n_pages;
        while (at > first && r->node[page[at - 1]].window >= 0)
            at--;
        if (at == first)
            break;
        n_pages = at - 1;
    }
    return n_pages;
}

vt_radix_match radix_end_at_windows(const vt_radix *r, vt_radix_match m, const int32_t *page)
{
    int32_t n = radix_end_in_windows(r, m.n_pages, page);
    if (n < m.n_pages || (m.copy_from >= 0 && r->node[m.copy_from].window < 0)) {
        m.copy_from = -1;
        m.copy_tokens = 0;
    }
    m.n_pages = n;
    return m;
}

void radix_forget_window(vt_radix *r, int32_t page)
{
    int32_t window = r->node[page].window;
    if (window < 0)
        return;
    r->node[page].window = -1;
    vt_slots_leave(&r->windows, window);
}

vt_status vt_radix_take_windows(vt_radix *r, int32_t n, int32_t *ids)
{
    if (vt_radix_windows_available(r) < n)
        return VT_ERR_NO_PAGES;
    for (; r->windows.n_free < n; r->stats.evicted_windows++)
        radix_forget_window(r, r->windows.page[r->windows.oldest]);
    for (int32_t i = 0; i < n; i++)
        ids[i] = vt_slots_take(&r->windows);
    return VT_OK;
}

void vt_radix_hold_windows(vt_radix *r, const int32_t *window, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        vt_slots_ref(&r->windows, window[i]);
}

void vt_radix_drop_windows(vt_radix *r, const int32_t *window, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        vt_slots_unref(&r->windows, window[i]);
}

int32_t vt_radix_keep_window(vt_radix *r, int32_t page, int32_t window, uint64_t step)
{
    vt_radix_node *node = &r->node[page];
    assert(r->pool.in_tree[page] && r->pool.refs[page] > 0);
    if (node->window >= 0)
        return node->window;
    if (r->windows.page[window] >= 0)
        return window;
    vt_slots_enter(&r->windows, window, page);
    node->window = window;
    node->step = step > node->step ? step : node->step; /* it can be copied when both are there */
    return window;
}

vt_status radix_check_windows(const vt_radix *r, vt_err *err)
{
    int32_t n = 0, named = 0;
    TRY(vt_slots_check(&r->windows, err));
    for (int32_t i = 0; i < r->pool.n_pages; i++)
        n += r->pool.in_tree[i] && r->node[i].window >= 0;
    for (int32_t i = 0; i < r->windows.n_slots; i++) {
        int32_t page = r->windows.page[i];
        if (page < 0)
            continue;
        named++;
        if (!r->pool.in_tree[page] || r->node[page].window != i)
            return vt_fail(err, VT_ERR_FORMAT,
                           "window page %d belongs to page %d, which does not know it", i, page);
    }
    if (n != named)
        return vt_fail(err, VT_ERR_FORMAT, "%d pages name window pages, %d of which name a page", n,
                       named);
    return VT_OK;
}
