/* The prefix tree as runs of pages, cut to what fits on a page (live_look.h).
 *
 *   pages   1 ── 2 ── 3 ──┬── 4 ── 5             runs   [1 2 3] ──┬── [4 5]
 *                         └── 6                                   └── [6]
 *
 *   1. link     every page to its children
 *   2. runs     breadth first: a run goes on while a page has one child
 *   3. sizes    of subtrees, from the last run to the first
 *   4. cut      the largest subtrees stay. A parent's subtree is larger than its child's, so what
 *               stays hangs together
 */
#include <stdlib.h>
#include <string.h>

#include "server/watch/live_look.h"

static void link_children(live_nodes *n)
{
    for (int32_t p = 0; p < n->n_pages; p++) {
        n->child[p] = -1;
        n->n_children[p] = 0;
    }
    for (int32_t p = n->n_pages - 1; p >= 0; p--) {
        int32_t parent = n->parent[p];
        if (!n->in_tree[p] || parent < 0)
            continue;
        n->sibling[p] = n->child[parent];
        n->child[parent] = p;
        n->n_children[parent]++;
    }
}

/* Makes the run that begins at page p, and returns its last page. */
static int32_t make_run(const live_nodes *n, int32_t p, live_run *r, int32_t parent)
{
    *r = (live_run){.parent = parent, .page = p, .users = n->refs[p], .hits = n->hits[p]};
    for (;; p = n->child[p]) {
        r->n_pages++;
        r->n_tokens += n->fill[p];
        if (n->n_children[p] != 1)
            return p;
    }
}

/* Returns how many runs there are: n->run[0 .. this), parents first. */
static int32_t make_runs(live_nodes *n)
{
    int32_t n_runs = 0;
    for (int32_t p = 0; p < n->n_pages; p++)
        if (n->in_tree[p] && n->parent[p] < 0) {
            n->order[n_runs] = make_run(n, p, &n->run[n_runs], -1);
            n_runs++;
        }
    for (int32_t i = 0; i < n_runs; i++) /* order[i] is the last page of run i */
        for (int32_t c = n->child[n->order[i]]; c >= 0; c = n->sibling[c]) {
            n->order[n_runs] = make_run(n, c, &n->run[n_runs], i);
            n_runs++;
        }
    for (int32_t i = 0; i < n_runs; i++)
        n->run[i].subtree = n->run[i].n_pages;
    for (int32_t i = n_runs - 1; i >= 0; i--)
        if (n->run[i].parent >= 0)
            n->run[n->run[i].parent].subtree += n->run[i].subtree;
    return n_runs;
}

/* Larger sizes first. */
static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

/* Moves the runs that stay into `out`. Runs of the smallest size that stays are taken in order, as
 * far as there is room. */
static void cut(live_nodes *n, int32_t n_runs, live_look *out, int64_t *size)
{
    int64_t least = 0;
    int32_t larger = 0, equal = 0;
    for (int32_t i = 0; i < n_runs; i++)
        size[i] = n->run[i].subtree;
    qsort(size, (size_t)n_runs, sizeof *size, by_size);
    if (n_runs > LIVE_RUNS)
        least = size[LIVE_RUNS - 1];
    for (int32_t i = 0; i < n_runs; i++)
        larger += n->run[i].subtree > least;
    for (int32_t i = 0; i < n_runs; i++) {
        live_run *r = &n->run[i];
        int32_t parent = r->parent >= 0 ? n->run_of[r->parent] : -1;
        bool stays = r->subtree > least || (r->subtree == least && larger + equal < LIVE_RUNS);
        n->run_of[i] = -1;
        if (!stays) {
            if (parent >= 0)
                out->run[parent].hidden++;
            continue;
        }
        equal += r->subtree == least;
        n->run_of[i] = out->n_runs;
        out->run[out->n_runs] = *r;
        out->run[out->n_runs++].parent = parent;
    }
}

void live_tree_build(live_nodes *n, live_look *out)
{
    out->n_runs = out->tree_pages = 0;
    link_children(n);
    int32_t n_runs = make_runs(n);
    out->all_runs = n_runs;
    for (int32_t i = 0; i < n_runs; i++)
        out->tree_pages += n->run[i].n_pages;
    cut(n, n_runs, out, n->size);
}
