/* Radix prefix cache (kv/radix.h).
 *
 *   children of a node: a treap ordered by their tokens (its heap order scrambles page numbers)
 *
 *               [4 4 9 1]            A search for 4 4 7 2 walks 4 4 9 1 -> 2 8 8 8 -> 4 4 7 (a
 *              /         \           tail). It passes both neighbours of the place where 4 4 7 2
 *      [2 8 8 8]        [5 0 0 3]    would stand, and so also the sibling that shares the longest
 *             \                      beginning: the one to copy from
 *            [4 4 7 -]
 *
 * Three rules hold after every call (vt_radix_check):
 *   1. a held page's parent is held: sequences hold their whole path;
 *   2. the heap holds exactly the unreferenced leaves;
 *   3. only leaves may be partly filled.
 * So all cached pages can be evicted, leaf by leaf, and an admission can count on n_free + n_cached
 * pages.
 *
 * Rejected: path-compressed edges of many pages. They need an allocator for token runs of any
 * length and a split whenever two prompts part, to save pointer hops that cost 20 ns a page
 * (bench/micro/radix.c) in a lookup that saves milliseconds of prefill. Rejected: a hash of each
 * page's prefix as its key. It is one probe a page, but it matches by hash alone or compares
 * tokens anyway, and cannot find the sibling to copy from. Everything is indexed by page number,
 * so the cache never allocates after vt_radix_init. */
#include "kv/radix.h"

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
    (void)vt_prefix_match(t.token, t.token, 1); /* reads the CPU's description now, not in a step */
    *r = t;
    return VT_OK;
}

void vt_radix_release(vt_radix *r)
{
    vt_pool_release(&r->pool);
    free(r->token);
    free(r->node);
    free(r->heap);
    free(r->tenant);
    *r = (vt_radix){0};
}

static int32_t *tokens_of(const vt_radix *r, int32_t page)
{
    return r->token + (int64_t)page * r->page_size;
}

/* ---- tenants ---- */

/* Only to tell most salts apart quickly: the salts themselves are compared too. */
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

static bool older(const vt_radix *r, int32_t a, int32_t b)
{
    const vt_radix_node *x = &r->node[a], *y = &r->node[b];
    return x->used != y->used ? x->used < y->used : a < b;
}

/* A binary heap in an array: the children of place i are 2 i + 1 and 2 i + 2. Every page knows its
 * place, so that one in the middle can be taken out. */
static void heap_put(vt_radix *r, int32_t at, int32_t page)
{
    r->heap[at] = page;
    r->node[page].heap_at = at;
}

/* Puts `page` at place `at` or above it: younger ancestors come down a place each. */
static void heap_up(vt_radix *r, int32_t at, int32_t page)
{
    for (; at > 0 && older(r, page, r->heap[(at - 1) / 2]); at = (at - 1) / 2)
        heap_put(r, at, r->heap[(at - 1) / 2]);
    heap_put(r, at, page);
}

/* Puts `page` at place `at` or below it: at each level the older child goes up a place. */
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

/* Takes a page out of the heap; does nothing if it is not there. Numbers are times of last use:
 *
 *   before:      1            remove 4            after:       1
 *             4     2                                       5     2
 *            8 9   3 5                                     8 9   3
 *
 *   1. the array's last entry, 5 here, must move: it is put into the gap
 *   2. it came from another branch, so it may be older than the gap's parent: then it moves up;
 *      else it moves down, as long as a child is older
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

/* Restores rule 2 (the heap holds exactly the unreferenced leaves) for one page, after its
 * references or its children changed:
 *
 *                       in the heap      not in the heap
 *   evictable now       stays            enters
 *   not evictable now   leaves           stays out
 *
 * Its time of last use must not have changed while it was in the heap: a page is used only while a
 * sequence holds it, and then it is not there. */
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
 * highest on top (Seidel and Aragon, 1996). Priorities are as good as random, so the tree is as
 * deep as one of random insertions: about 2 ln n. */

/* A fixed scrambling of the page's number: the same tree in every run. */
static uint32_t priority(int32_t page)
{
    uint32_t x = (uint32_t)page * 0x9e3779b1u;
    x = (x ^ (x >> 15)) * 0x85ebca77u;
    return x ^ (x >> 13);
}

/* Order of token[0..n) against a node's tokens: negative, 0 or positive, a prefix comes first.
 * *common gets the length of what they share. */
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

/* Splits a treap into what comes before and what comes after token[0..n); no node is equal to it.
 *
 *   root:  4            split at 5:   before:  4        after:  7
 *        2   7                               2   *             6   9
 *           6 9                                               *
 *
 *   1. go down as a search for the tokens would: 4, 7, 6
 *   2. a node that comes after them goes with its right subtree to the open place of `after`; its
 *      left child is the next open place there, and the search goes on in its old left subtree
 *   3. a node that comes before them goes to the open place of `before`, mirrored
 *   4. where the search ends both open places (*) become empty
 *
 * Nodes keep their ancestors' order, so both results are treaps. */
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

/* Enters a page whose tokens and fill are set.
 *
 *   1. go down as a search would, as long as the nodes have the higher priority
 *   2. the page stands where the first node with a lower one stood; that node's whole subtree is
 *      split at the page's tokens into its left and its right child
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

/* Takes a page out: its two subtrees are joined in its place.
 *
 *   before:      x            after:       a           priority of a > of b > of 2
 *             a     b                    1   b
 *            1 2   3 4                      *  4         * : 2 and 3, joined by the same rule
 *
 *   1. find the pointer that names the page: `root`
 *   2. of the two subtrees' tops, a (all before x) and b (all after x), the one with the higher
 *      priority takes the place. If it is a, it keeps its left side, and the place to fill next is
 *      its right child: a's old right side and b are the two subtrees still to join. If it is b,
 *      the same mirrored
 *   3. when one of the two is empty, the other fills the place
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

/* The pointer to the root of the children's treap: of a page, or of a tenant's first pages. */
static int32_t *children(vt_radix *r, int32_t tenant, int32_t parent)
{
    return parent >= 0 ? &r->node[parent].child : &r->tenant[tenant].child;
}

/* The sibling that shares the longest beginning with token[0..n), -1 if none shares any. It is a
 * neighbour of the place where token[0..n) would stand in token order, and a search passes both. */
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

vt_radix_match vt_radix_find(const vt_radix *r, int32_t tenant, const int32_t *token, int32_t n,
                             uint64_t step, int32_t *page)
{
    vt_radix_match m = {.copy_from = -1};
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
        if (at >= 0 && r->node[at].step < step) {
            m.copy_from = at;
            m.copy_tokens = common;
        }
        return m;
    }
}

void vt_radix_hold(vt_radix *r, const int32_t *page, int32_t n)
{
    r->tick++;
    for (int32_t i = 0; i < n; i++) {
        vt_pool_ref(&r->pool, page[i]);
        r->node[page[i]].used = r->tick;
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

/* Takes an unreferenced leaf out of the tree; its page becomes free. Its parent may be a leaf now,
 * and thereby evictable. */
static void forget(vt_radix *r, int32_t page, vt_evict cause)
{
    vt_radix_node *node = &r->node[page];
    assert(r->pool.refs[page] == 0 && node->child < 0);
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
    /* While a page is cached the heap is not empty: by rule 1 nothing below it is held, so some
     * leaf below it is unreferenced, and by rule 2 that leaf is in the heap. */
    while (r->pool.n_free < n)
        forget(r, r->heap[0], cause);
    return vt_pool_take(&r->pool, n, ids);
}

/* The four things that may stand at the place already, for pages of 4 tokens:
 *
 *   tokens        closest sibling   outcome
 *   [4 4 7 2]     [4 4 9 1]         a new sibling
 *   [4 4 7 2]     [4 4 7 2]         the sibling stands for both; `page` stays the caller's
 *   [4 4 7 -]     [4 4 7 2]         the same: a longer page covers this tail
 *   [4 4 7 2]     [4 4 7 -]         the new page covers that tail, which is forgotten; if a
 *                                   sequence holds it, it stays until it is evicted
 *
 *   1. look for the closest sibling; return it if it has all `fill` tokens
 *   2. write the node and enter it into the treap; from here on find() offers it
 *   3. only now forget the covered tail: it hangs in the same treap
 *   4. the parent has a child: if it was evictable it no longer is
 */
int32_t vt_radix_insert(vt_radix *r, int32_t tenant, int32_t parent, const int32_t *token,
                        int32_t fill, int32_t page, uint64_t step)
{
    assert(fill >= 1 && fill <= r->page_size && r->pool.refs[page] > 0);
    assert(parent < 0 || (r->pool.in_tree[parent] && r->node[parent].fill == r->page_size));
    int32_t *root = children(r, tenant, parent), common;
    int32_t near = closest(r, *root, token, fill, &common);
    if (near >= 0 && common == fill) { /* the same tokens, or a page that covers this tail */
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
                                    .step = step};
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
    for (; r->n_heap > 0; n++)
        forget(r, r->heap[0], VT_EVICT_FLUSH);
    return n;
}

/* ---- as text, and checks ---- */

/* One line for a page and for the only children below it that have as many references. */
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
            vt_buf_puts(out, "tenant with a salt\n"); /* which salt is the tenant's secret */
        else
            vt_buf_puts(out, "tenant without a salt\n");
        dump_siblings(r, t->child, 0, out);
    }
}

/* Checks every node of a treap of siblings, and of the treaps below them; counts them in *n. */
static vt_status check_siblings(const vt_radix *r, int32_t root, int32_t tenant, int32_t parent,
                                int32_t *n, vt_err *err)
{
    for (; root >= 0; root = r->node[root].right) {
        const vt_radix_node *node = &r->node[root];
        int32_t common;
        if (++*n > r->pool.n_pages)
            return vt_fail(err, VT_ERR_FORMAT, "the tree has a cycle");
        if (!r->pool.in_tree[root] || node->parent != parent || node->tenant != tenant)
            return vt_fail(err, VT_ERR_FORMAT, "page %d hangs below page %d and does not know it",
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

vt_status vt_radix_check(const vt_radix *r, vt_err *err)
{
    TRY(vt_pool_check(&r->pool, err));
    int32_t seen = 0, in_tree = 0;
    for (int32_t i = 0; i < r->n_tenants; i++)
        if (r->tenant[i].live)
            TRY(check_siblings(r, r->tenant[i].child, i, -1, &seen, err));
    for (int32_t i = 0; i < r->pool.n_pages; i++)
        in_tree += r->pool.in_tree[i];
    if (seen != in_tree)
        return vt_fail(err, VT_ERR_FORMAT, "%d pages hang in the tree, %d think they do", seen,
                       in_tree);
    for (int32_t i = 1; i < r->n_heap; i++)
        if (older(r, r->heap[i], r->heap[(i - 1) / 2]))
            return vt_fail(err, VT_ERR_FORMAT, "the eviction heap is out of order at %d", i);
    return VT_OK;
}
