/* Radix prefix cache: a tree of the token prefixes whose KV is already in pages.
 *
 *   tenant ""  ────[p7: <s> You are ...]──[p3: helpful ...]──┬─[p9: What is ...]
 *                                                            └─[p2: Why do ...]──[p5: a tail]
 *   tenant "b" ────[p1: <s> You are ...]
 *
 * An edge is one page of tokens, so a node is a page, and the node's number is the page's number.
 * Matching compares tokens one by one. A sequence holds (vt_radix_hold) every page of its path
 * while it runs. Therefore a page is never evicted before its children. A prefix can be shared even
 * while the sequence that computed it still runs.
 *
 * Models with sequence state (kv/slots.h) can use a prefix only up to a page at whose end the state
 * is known. There a node has a snapshot: a state slot. A snapshot may be evicted before its page,
 * and goes with it at the latest.
 *
 * Layers with a sliding window of w tokens may have pages of their own, window pages, of which a
 * sequence holds those that its next token or later ones see. A node has the window page of its
 * tokens until that is evicted, for another sequence's window: long before the node's page, as a
 * rule. A prefix can be used only if the window pages of the last w - 1 tokens before its end are
 * there.
 *
 * The scheduler calls only these functions and never the page pool or the slots themselves. All
 * calls must come from one thread. */
#ifndef VT_KV_RADIX_H
#define VT_KV_RADIX_H

#include "base/buf.h"
#include "kv/pool.h"
#include "kv/slots.h"

enum {
    VT_SALT_MAX = 144, /* bytes: 128 of a client's, and what a server puts in front of them */
    VT_NO_TENANT = -1
};

/* Why cached pages were evicted. */
typedef enum vt_evict {
    VT_EVICT_ADMIT = 0, /* room for a new prompt */
    VT_EVICT_GROW,      /* room for a running sequence's next page */
    VT_EVICT_COVERED,   /* the page was a tail, and a longer page now begins with its tokens */
    VT_EVICT_FLUSH,     /* vt_radix_flush */
    VT_EVICT_CAUSES
} vt_evict;

typedef struct vt_radix_stats {
    uint64_t lookups, lookup_tokens; /* admissions, and the tokens of their sequences */
    uint64_t hit_tokens;             /* how many of these were found in whole pages and shared */
    uint64_t copied_tokens;          /* how many were found in a part of a page and copied */
    uint64_t inserted_pages, duplicate_pages;
    uint64_t evicted_pages[VT_EVICT_CAUSES];
    uint64_t kept_states, evicted_states; /* snapshots entered, and those evicted for a slot */
    uint64_t evicted_windows;             /* window pages evicted for another */
} vt_radix_stats;

typedef struct vt_radix_node {
    int32_t parent; /* a page; -1 for the first page of a prompt */
    int32_t tenant;
    int32_t child;       /* root of the children's treap; -1: a leaf */
    int32_t left, right; /* in the siblings' treap */
    int32_t fill;        /* tokens in the page; fewer than page_size only in a tail */
    int32_t heap_at;     /* its place in the eviction heap; -1: not evictable now */
    uint32_t hits;       /* how often a sequence found it here, since it was entered */
    uint64_t used;       /* the tick of its last use */
    uint64_t step;       /* the engine step that writes its last token */
    uint64_t state_step; /* the engine step that writes its snapshot */
    int32_t state;       /* the slot of the sequence state at the page's end; -1: no snapshot */
    int32_t window;      /* the window page of its tokens; -1: none, or no more */
} vt_radix_node;

typedef struct vt_tenant {
    uint64_t hash;
    char salt[VT_SALT_MAX];
    int32_t salt_len;
    int32_t adapter; /* its requests have it (vt_batch.adapter); 0: none */
    int32_t child;   /* root of the treap of first pages */
    int32_t users;   /* joins without a leave yet */
    bool live;
} vt_tenant;

typedef struct vt_radix {
    vt_pool pool;
    int32_t page_size, n_tenants;
    int32_t *token;        /* [n_pages, page_size] the tokens of the pages in the tree */
    vt_radix_node *node;   /* [n_pages], valid where pool.in_tree */
    int32_t *heap, n_heap; /* unreferenced leaves, least recently used first */
    vt_tenant *tenant;     /* [n_tenants] */
    vt_slots states;       /* n_slots 0: the model has no sequence state */
    vt_slots windows;      /* window pages. n_slots 0: all layers use the same pages */
    int32_t window;        /* tokens that layers with a window see, counting the token itself */
    uint64_t tick;
    vt_radix_stats stats;
} vt_radix;

/* How much of a prompt is cached: `n_pages` whole pages and, following them, the first
 * `copy_tokens` tokens of page `copy_from` (-1: none). With sequence state the pages end at
 * the last snapshot, which is in slot `state` (-1: none was found), and nothing is copied;
 * `n_known` counts the whole pages without regard to snapshots. With window pages, those are there
 * that a sequence needs which goes on behind the whole pages, and that of `copy_from`. */
typedef struct vt_radix_match {
    int32_t n_pages, copy_from, copy_tokens;
    int32_t state, n_known;
} vt_radix_match;

vt_status vt_radix_init(vt_radix *r, int32_t n_pages, int32_t page_size, int32_t n_tenants,
                        vt_err *err);
/* Gives the tree n_slots state slots: the model has sequence state. Called once, before any other
 * call. */
vt_status vt_radix_add_states(vt_radix *r, int32_t n_slots, vt_err *err);
/* Gives the tree n_pages window pages, for layers that see `window` tokens. Called likewise. */
vt_status vt_radix_add_windows(vt_radix *r, int32_t n_pages, int32_t window, vt_err *err);
void vt_radix_release(vt_radix *r);

/* Requests share prefixes only with requests of the same tenant. Returns the tenant of a salt and
 * an adapter, or VT_NO_TENANT if the table is full: a request without a tenant neither finds nor
 * enters pages. Call vt_radix_leave when the request is over. */
int32_t vt_radix_join(vt_radix *r, const char *salt, int32_t salt_len, int32_t adapter);
void vt_radix_leave(vt_radix *r, int32_t tenant);

/* Finds the longest cached prefix of token[0..n) and writes its whole pages to page[], which has
 * room for n / page_size. A part of a page, and a snapshot, is offered only if a step before `step`
 * writes it. The pages and the snapshot found are not held yet. */
vt_radix_match vt_radix_find(const vt_radix *r, int32_t tenant, const int32_t *token, int32_t n,
                             uint64_t step, int32_t *page);
/* A sequence begins to use the pages. */
void vt_radix_hold(vt_radix *r, const int32_t *page, int32_t n);
/* A sequence no longer uses the pages. */
void vt_radix_drop(vt_radix *r, const int32_t *page, int32_t n);

/* Takes n pages into ids[0..n), evicting the least recently used leaves if too few are free. All or
 * nothing: on VT_ERR_NO_PAGES ids is untouched. */
vt_status vt_radix_take(vt_radix *r, int32_t n, int32_t *ids, vt_evict cause);
/* Returns how many pages vt_radix_take can provide. */
static inline int32_t vt_radix_available(const vt_radix *r)
{
    return r->pool.n_free + r->pool.n_cached;
}

/* Enters a held page with the KV of token[0..fill) below page `parent` (-1: it is the first page of
 * a prompt). Returns the page that the tree has for these tokens now. That is `page`, or another
 * page that the tree already had for them; then `page` is not entered, and the caller should hold
 * the other one instead. If `page` is a tail (fill < page_size) and a longer page begins with its
 * tokens, that longer page is returned in the same way. */
int32_t vt_radix_insert(vt_radix *r, int32_t tenant, int32_t parent, const int32_t *token,
                        int32_t fill, int32_t page, uint64_t step);

/* Takes a state slot: a free one, or that of the snapshot that was used least recently. -1 if
 * sequences use all slots. */
int32_t vt_radix_take_state(vt_radix *r);
/* A sequence begins to use a snapshot; it holds the snapshot's page already, or does so next. */
void vt_radix_hold_state(vt_radix *r, int32_t slot);
/* A sequence no longer uses a slot that it took or held. */
void vt_radix_drop_state(vt_radix *r, int32_t slot);
/* Makes a held slot the snapshot of a whole page in the tree that has none; `step` writes it. */
void vt_radix_keep_state(vt_radix *r, int32_t page, int32_t slot, uint64_t step);
/* A snapshot that was just kept goes before all others until a sequence begins to use it. */
void vt_radix_spare_state(vt_radix *r, int32_t slot);
/* Returns true if vt_radix_take_state would evict no snapshot but a spare one. */
bool vt_radix_has_spare_state(const vt_radix *r);
/* Takes the page's snapshot away, if it has one that no sequence uses. */
void vt_radix_forget_state(vt_radix *r, int32_t page);

/* Returns the first page of a sequence that a token at `position`, or behind it, still sees through
 * the window. */
int32_t vt_radix_window_first(const vt_radix *r, int32_t position);
/* Returns how many window pages a token may see: a sequence that has these can go on. */
int32_t vt_radix_window_span(int32_t window, int32_t page_size);
/* The same as vt_radix_take, _available, _hold and _drop for window pages; what is evicted are
 * those that were used least recently. */
vt_status vt_radix_take_windows(vt_radix *r, int32_t n, int32_t *ids);
static inline int32_t vt_radix_windows_available(const vt_radix *r)
{
    return r->windows.n_free + r->windows.n_cached;
}
void vt_radix_hold_windows(vt_radix *r, const int32_t *window, int32_t n);
void vt_radix_drop_windows(vt_radix *r, const int32_t *window, int32_t n);
/* Enters a held window page at a held page in the tree, for the same tokens; `step` writes the last
 * of them. Returns the window page that the node has now: that one, or one that it already had. */
int32_t vt_radix_keep_window(vt_radix *r, int32_t page, int32_t window, uint64_t step);

/* Forgets all unreferenced pages, window pages and snapshots; returns how many pages. */
int32_t vt_radix_flush(vt_radix *r);

/* Writes the tree as text for people: one line for each run of pages without a branch. */
void vt_radix_dump(const vt_radix *r, vt_buf *out);
/* Checks the pool, the slots, the rules of radix.c and the order of siblings, computing everything
 * again. For tests. */
vt_status vt_radix_check(const vt_radix *r, vt_err *err);

#endif
