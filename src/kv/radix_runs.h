/* The prefix tree as runs of pages, for people: on the live page and in stories.
 *
 *   pages   1 ── 2 ── 3 ──┬── 4 ── 5             runs   [1 2 3] ──┬── [4 5]
 *                         └── 6                                   └── [6]
 *
 * A run goes on while a page has one child. The nodes are copied while the tree stands still; runs
 * are made of the copy later. */
#ifndef VT_KV_RADIX_RUNS_H
#define VT_KV_RADIX_RUNS_H

#include "kv/radix.h"

/* Pages of the tree that follow each other without a branch. */
typedef struct vt_radix_run {
    int32_t parent; /* index of the run that it continues; -1: prompts begin with it */
    int32_t n_pages, n_tokens;
    int32_t users;   /* sequences that have its first page now */
    uint32_t hits;   /* how often its first page was found */
    int64_t subtree; /* pages in it and below */
    int32_t hidden;  /* runs that continue it and were cut */
    int32_t page;    /* its first page */
    int32_t marked;  /* its pages on the path that was asked for: the first of them */
} vt_radix_run;

/* A copy of the nodes: arrays of n_pages, indexed by page. */
typedef struct vt_radix_nodes {
    int32_t n_pages;
    uint8_t *in_tree;
    int32_t *parent, *fill, *refs;
    uint32_t *hits, *step; /* step: the low half of vt_radix_node.step */
    /* scratch */
    uint8_t *marked;
    int32_t *child, *sibling, *n_children, *run_of, *order;
    int64_t *size;
    vt_radix_run *run;
    void *block; /* holds the arrays */
} vt_radix_nodes;

/* Makes room for the nodes of n_pages pages, none of which is in the tree. */
vt_status vt_radix_nodes_init(vt_radix_nodes *n, int32_t n_pages, vt_err *err);
void vt_radix_nodes_release(vt_radix_nodes *n);
/* Copies the nodes of a tree with n_pages pages. */
void vt_radix_nodes_copy(vt_radix_nodes *n, const vt_radix *from);

/* Makes runs and writes to out[0 .. max) those with the largest subtrees, parents first; the runs
 * of the path that ends with page `leaf` (-1: none) come before all others. Returns how many.
 * *all: runs of the whole tree; *pages: its pages. */
int32_t vt_radix_runs(vt_radix_nodes *n, int32_t leaf, vt_radix_run *out, int32_t max, int32_t *all,
                      int32_t *pages);

#endif
