/* The prefix tree as runs of pages, cut to what fits on a page (radix_runs.h).
 *
 *   1. link     every page to its children
 *   2. mark     the pages of the path that was asked for
 *   3. runs     breadth first: a run goes on while a page has one child
 *   4. sizes    of subtrees, from the last run to the first. A run on the path counts as larger
 *               than the whole tree
 *   5. cut      the largest subtrees stay. A parent's subtree is larger than its child's, so what
 *               stays hangs together
 */
#include "kv/radix_runs.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

vt_status vt_radix_nodes_init(vt_radix_nodes *n, int32_t n_pages, vt_err *err)
{
    *n = (vt_radix_nodes){0};
    size_t count = (size_t)n_pages, words = count * sizeof(int32_t);
    size_t bytes = 10 * words + count * (sizeof(vt_radix_run) + sizeof(int64_t) + 2);
    char *at = n->block = vt_calloc(1, bytes + 1);
    if (!at)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a copy of the prefix tree");
    n->n_pages = n_pages;
    n->size = (int64_t *)(void *)at;
    at += count * sizeof *n->size;
    n->run = (vt_radix_run *)(void *)at;
    at += count * sizeof *n->run;
    int32_t **array[] = {&n->parent,  &n->fill,       &n->refs,   &n->child,
                         &n->sibling, &n->n_children, &n->run_of, &n->order};
    for (size_t i = 0; i < sizeof array / sizeof *array; i++, at += words)
        *array[i] = (int32_t *)(void *)at;
    n->hits = (uint32_t *)(void *)at;
    n->step = (uint32_t *)(void *)(at + words);
    n->in_tree = (uint8_t *)at + 2 * words;
    n->marked = n->in_tree + count;
    return VT_OK;
}

void vt_radix_nodes_release(vt_radix_nodes *n)
{
    free(n->block);
    *n = (vt_radix_nodes){0};
}

void vt_radix_nodes_copy(vt_radix_nodes *n, const vt_radix *from)
{
    const vt_pool *pool = &from->pool;
    size_t pages = (size_t)(pool->n_pages < n->n_pages ? pool->n_pages : n->n_pages);
    memcpy(n->refs, pool->refs, pages * sizeof *pool->refs);
    memcpy(n->in_tree, pool->in_tree, pages);
    for (size_t p = 0; p < pages; p++) {
        if (!pool->in_tree[p])
            continue;
        n->parent[p] = from->node[p].parent;
        n->fill[p] = from->node[p].fill;
        n->hits[p] = from->node[p].hits;
        n->step[p] = (uint32_t)from->node[p].step;
    }
}

static void mark_path(vt_radix_nodes *n, int32_t leaf)
{
    memset(n->marked, 0, (size_t)n->n_pages);
    for (int32_t p = leaf; p >= 0 && p < n->n_pages && n->in_tree[p]; p = n->parent[p])
        n->marked[p] = 1;
}

static void link_children(vt_radix_nodes *n)
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
static int32_t make_run(const vt_radix_nodes *n, int32_t p, vt_radix_run *r, int32_t parent)
{
    *r = (vt_radix_run){.parent = parent, .page = p, .users = n->refs[p], .hits = n->hits[p]};
    for (;; p = n->child[p]) {
        r->n_pages++;
        r->n_tokens += n->fill[p];
        r->marked += n->marked[p];
        if (n->n_children[p] != 1)
            return p;
    }
}

/* Returns how many runs there are: n->run[0 .. this), parents first. */
static int32_t make_runs(vt_radix_nodes *n)
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

/* A run's size, by which it stays: those on the path come first. */
static int64_t rank_of(const vt_radix_nodes *n, int32_t i)
{
    return n->run[i].subtree + (n->run[i].marked ? (int64_t)n->n_pages + 1 : 0);
}

/* Moves the runs that stay to out[0 .. max); returns how many. Runs of the smallest size that stays
 * are taken in order, as far as there is room. */
static int32_t cut(vt_radix_nodes *n, int32_t n_runs, vt_radix_run *out, int32_t max)
{
    int64_t *size = n->size;
    int32_t kept = 0;
    int64_t least = 0;
    int32_t larger = 0, equal = 0;
    for (int32_t i = 0; i < n_runs; i++)
        size[i] = rank_of(n, i);
    qsort(size, (size_t)n_runs, sizeof *size, by_size);
    if (n_runs > max)
        least = size[max - 1];
    for (int32_t i = 0; i < n_runs; i++)
        larger += rank_of(n, i) > least;
    for (int32_t i = 0; i < n_runs; i++) {
        vt_radix_run *r = &n->run[i];
        int32_t parent = r->parent >= 0 ? n->run_of[r->parent] : -1;
        int64_t rank = rank_of(n, i);
        bool stays = rank > least || (rank == least && larger + equal < max);
        n->run_of[i] = -1;
        if (!stays) {
            if (parent >= 0)
                out[parent].hidden++;
            continue;
        }
        equal += rank == least;
        n->run_of[i] = kept;
        out[kept] = *r;
        out[kept++].parent = parent;
    }
    return kept;
}

int32_t vt_radix_runs(vt_radix_nodes *n, int32_t leaf, vt_radix_run *out, int32_t max, int32_t *all,
                      int32_t *pages)
{
    link_children(n);
    mark_path(n, leaf);
    *all = make_runs(n);
    *pages = 0;
    for (int32_t i = 0; i < *all; i++)
        *pages += n->run[i].n_pages;
    return cut(n, *all, out, max);
}
