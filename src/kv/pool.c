/* Page pool (kv/pool.h): a stack of free pages and a reference count for each page.
 *
 * Pages are taken from the top of the stack, so that the page that was freed last, which may still
 * be in a CPU cache, is used first. Rejected: a free list threaded through the pages' own memory.
 * It would touch memory that is in no cache, and on a GPU the host cannot touch it at all. */
#include "kv/pool.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

vt_status vt_pool_init(vt_pool *p, int32_t n_pages, vt_err *err)
{
    assert(n_pages >= 1);
    size_t n = (size_t)n_pages;
    vt_pool pool = {.n_pages = n_pages, .n_free = n_pages};
    pool.free_stack = vt_calloc(n, sizeof *pool.free_stack);
    pool.refs = vt_calloc(n, sizeof *pool.refs);
    pool.in_tree = vt_calloc(n, sizeof *pool.in_tree);
    if (!pool.free_stack || !pool.refs || !pool.in_tree) {
        vt_pool_release(&pool);
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for the lists of %d KV pages", n_pages);
    }
    for (int32_t i = 0; i < n_pages; i++)
        pool.free_stack[i] = n_pages - 1 - i; /* page 0 goes first */
    *p = pool;
    return VT_OK;
}

/* The new pages go below the free ones, so that they are taken last:
 *
 *   4 pages, 1 and 0 free:   [1 0]        grown to 6:   [5 4 1 0]
 *                                ^ top                          ^ top
 */
void vt_pool_resize(vt_pool *p, int32_t n)
{
    int32_t more = n - p->n_pages;
    assert(more >= 0 || p->n_free == p->n_pages);
    if (more < 0) { /* fewer pages, and all are free: write the whole stack again */
        more = n;
        p->n_free = 0;
    }
    memmove(p->free_stack + more, p->free_stack, (size_t)p->n_free * sizeof *p->free_stack);
    for (int32_t i = 0; i < more; i++)
        p->free_stack[i] = n - 1 - i;
    p->n_free += more;
    p->n_pages = n;
}

void vt_pool_release(vt_pool *p)
{
    free(p->free_stack);
    free(p->refs);
    free(p->in_tree);
    *p = (vt_pool){0};
}

vt_status vt_pool_take(vt_pool *p, int32_t n, int32_t *ids)
{
    assert(n >= 0);
    if (p->n_free < n)
        return VT_ERR_NO_PAGES;
    for (int32_t i = 0; i < n; i++) {
        ids[i] = p->free_stack[p->n_free - 1 - i];
        p->refs[ids[i]] = 1;
    }
    p->n_free -= n;
    p->n_held += n;
    return VT_OK;
}

static void push_free(vt_pool *p, int32_t page) { p->free_stack[p->n_free++] = page; }

void vt_pool_ref(vt_pool *p, int32_t page)
{
    assert(p->refs[page] > 0 || p->in_tree[page]);
    if (p->refs[page]++ == 0) {
        p->n_cached--;
        p->n_held++;
    }
}

void vt_pool_unref(vt_pool *p, int32_t page)
{
    assert(p->refs[page] > 0);
    if (--p->refs[page] > 0)
        return;
    p->n_held--;
    if (p->in_tree[page])
        p->n_cached++;
    else
        push_free(p, page);
}

void vt_pool_enter_tree(vt_pool *p, int32_t page)
{
    assert(p->refs[page] > 0 && !p->in_tree[page]);
    p->in_tree[page] = 1;
}

void vt_pool_leave_tree(vt_pool *p, int32_t page)
{
    assert(p->in_tree[page]);
    p->in_tree[page] = 0;
    if (p->refs[page] == 0) {
        p->n_cached--;
        push_free(p, page);
    }
}

vt_status vt_pool_check(const vt_pool *p, vt_err *err)
{
    int32_t held = 0, cached = 0, idle = 0;
    /* Sums of the squares of page numbers: they differ if a page is on the stack twice. */
    uint64_t idle_sum = 0, stack_sum = 0;
    for (int32_t i = 0; i < p->n_pages; i++) {
        held += p->refs[i] > 0;
        cached += p->refs[i] == 0 && p->in_tree[i];
        if (p->refs[i] == 0 && !p->in_tree[i]) {
            idle++;
            idle_sum += (uint64_t)i * (uint64_t)i;
        }
        if (p->refs[i] < 0)
            return vt_fail(err, VT_ERR_FORMAT, "page %d has %d references", i, p->refs[i]);
    }
    if (held != p->n_held || cached != p->n_cached || idle != p->n_free)
        return vt_fail(err, VT_ERR_FORMAT,
                       "pages counted: %d free, %d held, %d cached; the pool says %d, %d, %d", idle,
                       held, cached, p->n_free, p->n_held, p->n_cached);
    for (int32_t i = 0; i < p->n_free; i++) {
        int32_t page = p->free_stack[i];
        if (page < 0 || page >= p->n_pages || p->refs[page] > 0 || p->in_tree[page])
            return vt_fail(err, VT_ERR_FORMAT, "page %d is on the free stack and in use", page);
        stack_sum += (uint64_t)page * (uint64_t)page;
    }
    if (idle_sum != stack_sum)
        return vt_fail(err, VT_ERR_FORMAT, "the free stack holds a page twice");
    return VT_OK;
}
