/* Radix prefix cache (kv/radix.h).
 *
 * The children of a node form a treap: a binary search tree by their tokens which is also a heap by
 * a priority computed from the page number.
 *
 *               [4 4 9 1]            A search for 4 4 7 2 visits 4 4 9 1, 2 8 8 8 and 4 4 7 (a
 *              /         \           tail). It visits both neighbours of the place where 4 4 7 2
 *      [2 8 8 8]        [5 0 0 3]    belongs. One of them is the sibling that begins with the most
 *             \                      tokens of 4 4 7 2: the one to copy from
 *            [4 4 7 -]
 *
 * These rules hold after every call (vt_radix_check):
 *   1. a held page's parent is held: sequences hold their whole path;
 *   2. the heap holds exactly the unreferenced leaves;
 *   3. only leaves may be partly filled;
 *   4. a snapshot is a whole page's, and each is named by its node and names it;
 *   5. a window page names at most one node, which names it.
 * It follows that all cached pages can be evicted, leaf by leaf, so an admission can count on
 * n_free + n_cached pages.
 *
 * All arrays are indexed by page number, so the cache never allocates after vt_radix_init.
 *
 * Rejected: path-compressed edges of many pages. They need an allocator for token runs of any
 * length and a split whenever two prompts diverge. All they save is pointer hops that cost 20 ns
 * per page (bench/micro/radix.c), in a lookup that saves milliseconds of prefill.
 * Rejected: a hash of each page's prefix as its key. A lookup would be one probe per page, but it
 * would either trust the hash or compare tokens anyway, and it could not find the sibling to copy
 * from. */
#include "kv/radix_inside.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/random.h"
#include "ops/prefix_match/prefix_match.h"

vt_status vt_radix_init(vt_radix *r, int32_t n_pages, int32_t page_size, int32_t n_tenants,
                        vt_err *err)
{
    assert(page_size >= 1 && n_tenants >= 1);
    vt_radix t = {.page_size = page_size, .n_tenants = n_tenants};
    TRY(vt_pool_init(&t.pool, n_pages, err));
    size_t n = (size_t)n_pages, tokens;
    if (vt_mul_size(n, (size_t)page_size, &tokens))
        t.token = vt_calloc(tokens, sizeof *t.token);
    t.node = vt_calloc(n, sizeof *t.node);
    t.heap = vt_calloc(n, sizeof *t.heap);
    t.tenant = vt_calloc((size_t)n_tenants, sizeof *t.tenant);
    if (!t.token || !t.node || !t.heap || !t.tenant) {
        vt_radix_release(&t);
        return vt_fail(err, VT_ERR_MEMORY,
                       "out of memory for the prefix cache of %d pages of %d tokens", n_pages,
                       page_size);
    }
    (void)vt_prefix_match(t.token, t.token, 1); /* detects the CPU now rather than in a step */
    *r = t;
    return VT_OK;
}

vt_status vt_radix_add_states(vt_radix *r, int32_t n_slots, vt_err *err)
{
    assert(r->states.n_slots == 0);
    return vt_slots_init(&r->states, n_slots, err);
}

void vt_radix_release(vt_radix *r)
{
    vt_pool_release(&r->pool);
    vt_slots_release(&r->states);
    vt_slots_release(&r->windows);
    free(r->token);
    free(r->node);
    free(r->heap);
    free(r->tenant);
    *r = (vt_radix){0};
}

/* The tokens of a page, [page_size]. */
static int32_t *tokens_of(const vt_radix *r, int32_t page)
{
    return r->token + (int64_t)page * r->page_size;
}

/* ---- tenants ---- */

/* The hash only tells most salts apart quickly: if hashes are equal the salts are compared too. */
static uint64_t salt_hash(const char *salt, int32_t len, int32_t adapter)
{
    return vt_fnv1a(VT_FNV_OFFSET ^ (uint64_t)(uint32_t)adapter, salt, (size_t)len);
}

int32_t vt_radix_join(vt_radix *r, const char *salt, int32_t salt_len, int32_t adapter)
{
    assert(salt_len >= 0 && salt_len <= VT_SALT_MAX);
    uint64_t hash = salt_hash(salt, salt_len, adapter);
    int32_t vacant = VT_NO_TENANT;
    for (int32_t i = 0; i < r->n_tenants; i++) {
        vt_tenant *t = &r->tenant[i];
        if (!t->live) {
            vacant = vacant < 0 ? i : vacant;
        } else if (t->hash == hash && t->adapter == adapter && t->salt_len == salt_len &&
                   memcmp(t->salt, salt, (size_t)salt_len) == 0) {
            t->users++;
            return i;
        }
    }
    if (vacant >= 0) {
        vt_tenant *t = &r->tenant[vacant];
        *t = (vt_tenant){.hash = hash,
                         .salt_len = salt_len,
                         .adapter = adapter,
                         .child = -1,
                         .users = 1,
                         .live = true};
        memcpy(t->salt, salt, (size_t)salt_len);
    }
    return vacant;
}

/* Frees the tenant's entry in the table if no request names it and the tree has no page of it. */
static void tenant_retire(vt_tenant *t) { t->live = t->users > 0 || t->child >= 0; }

void vt_radix_leave(vt_radix *r, int32_t tenant)
{
    if (tenant == VT_NO_TENANT)
        return;
    assert(r->tenant[tenant].users > 0);
    r->tenant[tenant].users--;
    tenant_retire(&r->tenant[tenant]);
}

/* ---- the eviction heap: least recently used first, positions kept in the nodes ---- */

/* Returns true if page a is to be evicted before page b. */
static bool older(const vt_radix *r, int32_t a, int32_t b)
{
    const vt_radix_node *x = &r->node[a], *y = &r->node[b];
    return x->used != y->used ? x->used < y->used : a < b;
}

/* Writes a page to place `at` of the heap, a binary heap in an array: the children of place i are
 * 2 i + 1 and 2 i + 2. Every page knows its place, so that one in the middle can be removed. */
static void heap_put(vt_radix *r, int32_t at, int32_t page)
{
    r->heap[at] = page;
    r->node[page].heap_at = at;
}

/* Puts `page` at place `at` or above it: ancestors that are younger move down one place each. */
static void heap_up(vt_radix *r, int32_t at, int32_t page)
{
    for (; at > 0 && older(r, page, r->heap[(at - 1) / 2]); at = (at - 1) / 2)
        heap_put(r, at, r->heap[(at - 1) / 2]);
    heap_put(r, at, page);
}

/* Puts `page` at place `at` or below it: at each level, the older child moves up if it is older
 * than `page`. */
static void heap_down(vt_radix *r, int32_t at, int32_t page)
{
    for (;;) {
        int32_t next = 2 * at + 1;
        if (next >= r->n_heap)
            break;
        if (next + 1 < r->n_heap && older(r, r->heap[next + 1], r->heap[next]))
            next++;
        if (!older(r, r->heap[next], page))
            break;
        heap_put(r, at, r->heap[next]);
        at = next;
    }
    heap_put(r, at, page);
}

/* Removes a page from the heap; does nothing if it is not there. The numbers are times of last use:
 *
 *   before:      1            remove 4            after:       1
 *             4     2                                       5     2
 *            8 9   3 5                                     8 9   3
 *
 *   1. the array's last entry, here 5, is taken off the end and put into the gap
 *   2. it may come from another branch, so it may be older than the gap's parent: then it moves up.
 *      Otherwise it moves down, as long as a child is older
 */
static void heap_remove(vt_radix *r, int32_t page)
{
    int32_t at = r->node[page].heap_at;
    if (at < 0)
        return;
    r->node[page].heap_at = -1;
    int32_t last = r->heap[--r->n_heap];
    if (last == page)
        return;
    if (at > 0 && older(r, last, r->heap[(at - 1) / 2]))
        heap_up(r, at, last);
    else
        heap_down(r, at, last);
}

/* Restores rule 2 (the heap holds exactly the unreferenced leaves) for one page, after its number
 * of references or of children changed:
 *
 *                       in the heap      not in the heap
 *   evictable now       stays            enters
 *   not evictable now   leaves           stays out
 *
 * A page's time of last use never changes while it is in the heap: a page is used only while a
 * sequence holds it, and a held page is not in the heap. */
static void settle_heap(vt_radix *r, int32_t page)
{
    bool evictable = r->pool.in_tree[page] && r->pool.refs[page] == 0 && r->node[page].child < 0;
    if (!evictable)
        heap_remove(r, page);
    else if (r->node[page].heap_at < 0)
        heap_up(r, r->n_heap++, page);
}

/* ---- the treap of siblings ----
 *
 * A binary search tree by the nodes' tokens that is at the same time a heap by a priority, the
 * highest on top (Seidel and Aragon, 1996). Priorities are as good as random, so the tree is about
 * 2 ln n deep, like a search tree whose keys were inserted in random order. */

/* A page's priority is a fixed scrambling of its number, so that every run builds the same tree. */
static uint32_t priority(int32_t page)
{
    uint32_t x = (uint32_t)page * 0x9e3779b1u;
    x = (x ^ (x >> 15)) * 0x85ebca77u;
    return x ^ (x >> 13);
}

/* Compares token[0..n) with a node's tokens: negative if they come before the node's, 0 if they are
 * equal, positive if they come after. A prefix comes before what it begins. *common is set to the
 * number of tokens at the beginning that are equal. */
static int compare(const vt_radix *r, const int32_t *token, int32_t n, int32_t page,
                   int32_t *common)
{
    const int32_t *other = tokens_of(r, page);
    int32_t fill = r->node[page].fill, limit = n < fill ? n : fill;
    int32_t k = (int32_t)vt_prefix_match(token, other, limit);
    *common = k;
    if (k < limit)
        return token[k] < other[k] ? -1 : 1;
    return (n > fill) - (n < fill);
}

/* Splits a treap into the nodes that come before token[0..n) and those that come after; no node is
 * equal to it.
 *
 *   root:  4            split at 5:   before:  4        after:  7
 *        2   7                               2   *             6   9
 *           6 9                                               *
 *
 *   1. go down as a search for the tokens would: 4, 7, 6
 *   2. a node that comes after them moves, with its right subtree, to the open place of `after`.
 *      Its left child is the next open place of `after`, and the search continues in what was its
 *      left subtree
 *   3. a node that comes before them moves to the open place of `before`, with left and right
 *      exchanged
 *   4. where the search ends, both open places (*) become empty
 *
 * No node moves above one that was its ancestor, so both results are heaps and thus treaps. */
static void treap_split(vt_radix *r, int32_t root, const int32_t *token, int32_t n, int32_t *before,
                        int32_t *after)
{
    while (root >= 0) {
        int32_t common;
        vt_radix_node *node = &r->node[root];
        if (compare(r, token, n, root, &common) < 0) {
            *after = root;
            after = &node->left;
            root = node->left;
        } else {
            *before = root;
            before = &node->right;
            root = node->right;
        }
    }
    *before = *after = -1;
}

/* Inserts page x, whose tokens and fill are set.
 *
 *   before:     4            insert 8, whose priority      after:     4
 *             /   \          is lower than 4's and                  /   \
 *            2     7         higher than 7's                       2     8
 *                 / \                                                   / \
 *                6   9                                                 7   9
 *                                                                     /
 *                                                                    6
 *
 *   1. go down as a search for x would, as long as the nodes' priorities are higher than x's
 *   2. x takes the place of the first node whose priority is lower (or an empty place). The subtree
 *      that stood there is split at x's tokens: what comes before x becomes its left child, what
 *      comes after x its right child
 */
static void treap_insert(vt_radix *r, int32_t *root, int32_t page)
{
    const int32_t *token = tokens_of(r, page);
    int32_t n = r->node[page].fill, common;
    while (*root >= 0 && priority(*root) >= priority(page)) {
        vt_radix_node *at = &r->node[*root];
        root = compare(r, token, n, *root, &common) < 0 ? &at->left : &at->right;
    }
    treap_split(r, *root, token, n, &r->node[page].left, &r->node[page].right);
    *root = page;
}

/* Removes page x: its two subtrees are joined in its place.
 *
 *   before:      x            after:       a           priority of a > of b > of 2
 *             a     b                    1   b
 *            1 2   3 4                      *  4         * : 2 and 3, joined by the same rule
 *
 *   1. find the pointer that names x: the place to fill, `root`
 *   2. a and b are the roots of x's left and right subtrees. Every node below a comes before every
 *      node below b. Whichever of the two has the higher priority takes the place:
 *        a   keeps its left subtree. The next place to fill is its right child, and the subtrees
 *            still to join are a's old right subtree and b
 *        b   keeps its right subtree. The next place to fill is its left child, and the subtrees
 *            still to join are a and b's old left subtree
 *   3. when one of the two is empty, the other takes the place
 */
static void treap_remove(vt_radix *r, int32_t *root, int32_t page)
{
    int32_t common;
    while (*root != page) {
        assert(*root >= 0);
        vt_radix_node *at = &r->node[*root];
        root = compare(r, tokens_of(r, page), r->node[page].fill, *root, &common) < 0 ? &at->left
                                                                                      : &at->right;
    }
    int32_t a = r->node[page].left, b = r->node[page].right;
    while (a >= 0 && b >= 0) {
        if (priority(a) >= priority(b)) {
            *root = a;
            root = &r->node[a].right;
            a = *root;
        } else {
            *root = b;
            root = &r->node[b].left;
            b = *root;
        }
    }
    *root = a >= 0 ? a : b;
}

/* Where the root of the children's treap is stored: in node `parent`, or in the tenant for the
 * first pages of prompts (parent -1). */
static int32_t *children(vt_radix *r, int32_t tenant, int32_t parent)
{
    return parent >= 0 ? &r->node[parent].child : &r->tenant[tenant].child;
}

/* The sibling with the most tokens in common with the beginning of token[0..n), and in *common how
 * many; -1 if none has any. In token order it stands directly before or after the place where
 * token[0..n) belongs, and a search visits both of these neighbours. */
static int32_t closest(const vt_radix *r, int32_t root, const int32_t *token, int32_t n,
                       int32_t *common)
{
    int32_t best = -1;
    *common = 0;
    while (root >= 0) {
        int32_t k;
        int order = compare(r, token, n, root, &k);
        if (k > *common) {
            *common = k;
            best = root;
        }
        if (order == 0)
            break;
        root = order < 0 ? r->node[root].left : r->node[root].right;
    }
    return best;
}

/* ---- the functions that the scheduler calls ---- */

/* Shortens a match to the last of its pages whose snapshot an earlier step writes. */
static vt_radix_match end_at_snapshot(const vt_radix *r, vt_radix_match m, uint64_t step,
                                      const int32_t *page)
{
    m.n_known = m.n_pages;
    for (; m.n_pages > 0; m.n_pages--) {
        const vt_radix_node *node = &r->node[page[m.n_pages - 1]];
        m.state = node->state;
        if (node->state >= 0 && node->state_step < step &&
            (r->windows.n_slots == 0 || radix_end_in_windows(r, m.n_pages, page) == m.n_pages))
            return m;
    }
    m.state = -1;
    return m;
}

/* At each level:
 *
 *   1. look for the child that is closest to the next page_size tokens
 *   2. if it has all of them, take the page and go on below it
 *   3. otherwise stop; if it has some of them and an earlier step writes it, it is the page to copy
 *      these tokens from
 *
 * With sequence state only the pages up to the last snapshot count, with window pages only an end
 * whose window is there. */
vt_radix_match vt_radix_find(const vt_radix *r, int32_t tenant, const int32_t *token, int32_t n,
                             uint64_t step, int32_t *page)
{
    vt_radix_match m = {.copy_from = -1, .state = -1};
    if (tenant == VT_NO_TENANT)
        return m;
    int32_t root = r->tenant[tenant].child, size = r->page_size;
    for (;;) {
        int32_t left = n - m.n_pages * size, common;
        int32_t at = closest(r, root, token + (int64_t)m.n_pages * size, left < size ? left : size,
                             &common);
        if (at >= 0 && common == size) {
            page[m.n_pages++] = at;
            root = r->node[at].child;
            continue;
        }
        if (r->states.n_slots > 0)
            return end_at_snapshot(r, m, step, page);
        if (at >= 0 && r->node[at].step < step) {
            m.copy_from = at;
            m.copy_tokens = common;
        }
        return r->windows.n_slots > 0 ? radix_end_at_windows(r, m, page) : m;
    }
}

void vt_radix_hold(vt_radix *r, const int32_t *page, int32_t n)
{
    r->tick++;
    for (int32_t i = 0; i < n; i++) {
        vt_pool_ref(&r->pool, page[i]);
        r->node[page[i]].used = r->tick;
        r->node[page[i]].hits++;
        if (r->pool.refs[page[i]] == 1 && r->pool.in_tree[page[i]])
            settle_heap(r, page[i]);
    }
}

void vt_radix_drop(vt_radix *r, const int32_t *page, int32_t n)
{
    r->tick++;
    for (int32_t i = 0; i < n; i++) {
        bool in_tree = r->pool.in_tree[page[i]];
        vt_pool_unref(&r->pool, page[i]);
        if (!in_tree)
            continue;
        r->node[page[i]].used = r->tick;
        if (r->pool.refs[page[i]] == 0)
            settle_heap(r, page[i]);
    }
}

void vt_radix_forget_state(vt_radix *r, int32_t page)
{
    int32_t slot = r->node[page].state;
    if (slot < 0 || r->states.refs[slot] > 0)
        return;
    r->node[page].state = -1;
    vt_slots_leave(&r->states, slot);
}

int32_t vt_radix_take_state(vt_radix *r)
{
    if (r->states.n_free == 0 && r->states.n_cached > 0) {
        vt_radix_forget_state(r, r->states.page[r->states.oldest]);
        r->stats.evicted_states++;
    }
    return vt_slots_take(&r->states);
}

void vt_radix_hold_state(vt_radix *r, int32_t slot) { vt_slots_ref(&r->states, slot); }

void vt_radix_drop_state(vt_radix *r, int32_t slot) { vt_slots_unref(&r->states, slot); }

void vt_radix_spare_state(vt_radix *r, int32_t slot) { vt_slots_spare(&r->states, slot); }

bool vt_radix_has_spare_state(const vt_radix *r) { return vt_slots_have_spare(&r->states); }

void vt_radix_keep_state(vt_radix *r, int32_t page, int32_t slot, uint64_t step)
{
    vt_radix_node *node = &r->node[page];
    assert(r->pool.in_tree[page] && node->fill == r->page_size && node->state < 0);
    vt_slots_enter(&r->states, slot, page);
    node->state = slot;
    node->state_step = step;
    r->stats.kept_states++;
}

/* Removes an unreferenced leaf from the tree; its page becomes free. Its parent may have become a
 * leaf, and so evictable. */
static void forget(vt_radix *r, int32_t page, vt_evict cause)
{
    vt_radix_node *node = &r->node[page];
    assert(r->pool.refs[page] == 0 && node->child < 0);
    vt_radix_forget_state(r, page);
    radix_forget_window(r, page);
    heap_remove(r, page);
    treap_remove(r, children(r, node->tenant, node->parent), page);
    vt_pool_leave_tree(&r->pool, page);
    r->stats.evicted_pages[cause]++;
    if (node->parent >= 0)
        settle_heap(r, node->parent);
    else
        tenant_retire(&r->tenant[node->tenant]);
}

vt_status vt_radix_take(vt_radix *r, int32_t n, int32_t *ids, vt_evict cause)
{
    if (vt_radix_available(r) < n)
        return VT_ERR_NO_PAGES;
    /* While any page is cached the heap is not empty: by rule 1 nothing below that page is held, so
     * it or some leaf below it is an unreferenced leaf, and by rule 2 that leaf is in the heap. */
    while (r->pool.n_free < n)
        forget(r, r->heap[0], cause);
    return vt_pool_take(&r->pool, n, ids);
}

/* There are four cases, here for pages of 4 tokens ("-" is an empty place in a tail):
 *
 *   new page      closest sibling   outcome
 *   [4 4 7 2]     [4 4 9 1]         the page becomes a new sibling
 *   [4 4 7 2]     [4 4 7 2]         duplicate: the sibling is returned, `page` is not entered
 *   [4 4 7 -]     [4 4 7 2]         the same: the sibling begins with all tokens of the new tail
 *   [4 4 7 2]     [4 4 7 -]         the new page covers that tail. The tail is forgotten, unless a
 *                                   sequence holds it: then it stays until it is evicted
 *
 *   before:   parent                    after [4 4 7 2]:   parent
 *             |                                            |
 *             [2 8 8 8] [4 4 7 -] [5 0 0 3]                [2 8 8 8] [4 4 7 2] [5 0 0 3]
 *
 *   1. look for the closest sibling; return it if it has all `fill` tokens
 *   2. write the node and insert it into the siblings' treap; from now on vt_radix_find offers it
 *   3. only then forget the covered tail, which is in the same treap
 *   4. the parent has a child now, so it is no longer evictable
 */
int32_t vt_radix_insert(vt_radix *r, int32_t tenant, int32_t parent, const int32_t *token,
                        int32_t fill, int32_t page, uint64_t step)
{
    assert(fill >= 1 && fill <= r->page_size && r->pool.refs[page] > 0);
    assert(parent < 0 || (r->pool.in_tree[parent] && r->node[parent].fill == r->page_size));
    int32_t *root = children(r, tenant, parent), common;
    int32_t near = closest(r, *root, token, fill, &common);
    if (near >= 0 && common == fill) { /* a duplicate, or a page that covers this tail */
        r->stats.duplicate_pages++;
        return near;
    }
    bool covers = near >= 0 && common == r->node[near].fill && r->pool.refs[near] == 0;
    memcpy(tokens_of(r, page), token, (size_t)fill * sizeof *token);
    r->node[page] = (vt_radix_node){.parent = parent,
                                    .tenant = tenant,
                                    .child = -1,
                                    .left = -1,
                                    .right = -1,
                                    .fill = fill,
                                    .heap_at = -1,
                                    .used = ++r->tick,
                                    .step = step,
                                    .state = -1,
                                    .window = -1};
    vt_pool_enter_tree(&r->pool, page);
    treap_insert(r, root, page);
    r->stats.inserted_pages++;
    if (covers)
        forget(r, near, VT_EVICT_COVERED);
    if (parent >= 0)
        settle_heap(r, parent);
    return page;
}

int32_t vt_radix_flush(vt_radix *r)
{
    int32_t n = 0;
    while (r->states.n_cached > 0) /* also those of pages that sequences use */
        vt_radix_forget_state(r, r->states.page[r->states.oldest]);
    while (r->windows.n_cached > 0)
        radix_forget_window(r, r->windows.page[r->windows.oldest]);
    for (; r->n_heap > 0; n++)
        forget(r, r->heap[0], VT_EVICT_FLUSH);
    return n;
}

/* ---- as text, and checks ---- */

/* Writes one line for a page together with the pages below it, as long as each is an only child and
 * has as many references; then the children of the last of them. */
static void dump_node(const vt_radix *r, int32_t page, int32_t depth, vt_buf *out);

static void dump_siblings(const vt_radix *r, int32_t root, int32_t depth, vt_buf *out)
{
    while (root >= 0) { /* in token order: left subtree, node, right subtree */
        dump_siblings(r, r->node[root].left, depth, out);
        dump_node(r, root, depth, out);
        root = r->node[root].right;
    }
}

static bool only_child(const vt_radix *r, int32_t page)
{
    int32_t child = r->node[page].child;
    return child >= 0 && r->node[child].left < 0 && r->node[child].right < 0;
}

static void dump_node(const vt_radix *r, int32_t page, int32_t depth, vt_buf *out)
{
    int32_t first = page, n_pages = 1, refs = r->pool.refs[page], tokens = r->node[page].fill;
    while (only_child(r, page) && r->pool.refs[r->node[page].child] == refs) {
        page = r->node[page].child;
        tokens += r->node[page].fill;
        n_pages++;
    }
    const int32_t *t = tokens_of(r, first);
    vt_buf_printf(out, "%*s%d page%s, %d token%s, %d user%s: ids", 2 * depth + 2, "", n_pages,
                  n_pages == 1 ? "" : "s", tokens, tokens == 1 ? "" : "s", refs,
                  refs == 1 ? "" : "s");
    int32_t shown = r->node[first].fill < 8 ? r->node[first].fill : 8;
    for (int32_t i = 0; i < shown; i++)
        vt_buf_printf(out, " %d", t[i]);
    vt_buf_puts(out, tokens > shown ? " ...\n" : "\n");
    dump_siblings(r, r->node[page].child, depth + 1, out);
}

void vt_radix_dump(const vt_radix *r, vt_buf *out)
{
    vt_buf_printf(out, "%d pages of %d tokens: %d free, %d held, %d cached\n", r->pool.n_pages,
                  r->page_size, r->pool.n_free, r->pool.n_held, r->pool.n_cached);
    for (int32_t i = 0; i < r->n_tenants; i++) {
        const vt_tenant *t = &r->tenant[i];
        if (!t->live || t->child < 0)
            continue;
        if (t->salt_len > 0)
            vt_buf_puts(out, "tenant with a salt\n"); /* the salt itself is a secret */
        else
            vt_buf_puts(out, "tenant without a salt\n");
        dump_siblings(r, t->child, 0, out);
    }
}

/* Checks every node of a treap of siblings and of the treaps below it, and adds their number to *n.
 */
static vt_status check_siblings(const vt_radix *r, int32_t root, int32_t tenant, int32_t parent,
                                int32_t *n, vt_err *err)
{
    for (; root >= 0; root = r->node[root].right) {
        const vt_radix_node *node = &r->node[root];
        int32_t common;
        if (++*n > r->pool.n_pages)
            return vt_fail(err, VT_ERR_FORMAT, "the tree has a cycle");
        if (!r->pool.in_tree[root] || node->parent != parent || node->tenant != tenant)
            return vt_fail(err, VT_ERR_FORMAT,
                           "page %d is below page %d, but its node names another parent or tenant",
                           root, parent);
        if (r->pool.refs[root] > 0 && parent >= 0 && r->pool.refs[parent] == 0)
            return vt_fail(err, VT_ERR_FORMAT, "page %d is held and its parent %d is not", root,
                           parent);
        if (node->fill < r->page_size && node->child >= 0)
            return vt_fail(err, VT_ERR_FORMAT, "page %d is partly filled and has children", root);
        bool evictable = r->pool.refs[root] == 0 && node->child < 0;
        if (evictable != (node->heap_at >= 0) || (evictable && r->heap[node->heap_at] != root))
            return vt_fail(err, VT_ERR_FORMAT, "page %d: evictable %d, place in the heap %d", root,
                           evictable, node->heap_at);
        if ((node->left >= 0 &&
             compare(r, tokens_of(r, node->left), r->node[node->left].fill, root, &common) >= 0) ||
            (node->right >= 0 &&
             compare(r, tokens_of(r, node->right), r->node[node->right].fill, root, &common) <= 0))
            return vt_fail(err, VT_ERR_FORMAT, "the siblings of page %d are out of order", root);
        TRY(check_siblings(r, node->child, tenant, root, n, err));
        TRY(check_siblings(r, node->left, tenant, parent, n, err));
    }
    return VT_OK;
}

/* Checks rule 4, and that the page of a snapshot in use is in use. */
static vt_status check_states(const vt_radix *r, vt_err *err)
{
    int32_t n = 0, named = 0;
    TRY(vt_slots_check(&r->states, err));
    for (int32_t i = 0; i < r->pool.n_pages; i++)
        n += r->pool.in_tree[i] && r->node[i].state >= 0;
    for (int32_t i = 0; i < r->states.n_slots; i++) {
        int32_t page = r->states.page[i];
        if (page < 0)
            continue;
        named++;
        if (!r->pool.in_tree[page] || r->node[page].state != i ||
            r->node[page].fill != r->page_size)
            return vt_fail(err, VT_ERR_FORMAT,
                           "state slot %d is the snapshot of page %d, which does not know it", i,
                           page);
        if (r->states.refs[i] > 0 && r->pool.refs[page] == 0)
            return vt_fail(err, VT_ERR_FORMAT,
                           "state slot %d is held and page %d, whose snapshot it is, is not", i,
                           page);
    }
    if (n != named)
        return vt_fail(err, VT_ERR_FORMAT, "%d pages name snapshots, %d slots are snapshots", n,
                       named);
    return VT_OK;
}

vt_status vt_radix_check(const vt_radix *r, vt_err *err)
{
    TRY(vt_pool_check(&r->pool, err));
    if (r->windows.n_slots > 0)
        TRY(radix_check_windows(r, err));
    if (r->states.n_slots > 0)
        TRY(check_states(r, err));
    int32_t seen = 0, in_tree = 0;
    for (int32_t i = 0; i < r->n_tenants; i++)
        if (r->tenant[i].live)
            TRY(check_siblings(r, r->tenant[i].child, i, -1, &seen, err));
    for (int32_t i = 0; i < r->pool.n_pages; i++)
        in_tree += r->pool.in_tree[i];
    if (seen != in_tree)
        return vt_fail(err, VT_ERR_FORMAT,
                       "%d pages were found in the tree, %d are marked as being in it", seen,
                       in_tree);
    for (int32_t i = 1; i < r->n_heap; i++)
        if (older(r, r->heap[i], r->heap[(i - 1) / 2]))
            return vt_fail(err, VT_ERR_FORMAT, "the eviction heap is out of order at %d", i);
    return VT_OK;
}
