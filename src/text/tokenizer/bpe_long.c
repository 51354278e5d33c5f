/* Merging a long word (bpe.c has the rule and the path for short ones).
 *
 * Every pair of neighbours that merges is a candidate, keyed by its rank and then by its position.
 * A heap over all candidates touches the whole memory for each of them: in a megabyte of one letter
 * nearly all have the same rank, and the heap sorts by position what came in order of position.
 * So the heap holds runs: lists of candidates of one rank whose positions ascend.
 *
 *   heap, by (rank, position of the first candidate)      runs
 *   [ 5, at 0 ] ─────────────────────────────────────────> 0, 1, 2, 3, 4 ...    rank 5
 *   [ 9, at 7 ] ─────────────────────────────────────────> 7, 31                rank 9
 *   [ 9, at 3 ] ─────────────────────────────────────────> 3                    rank 9
 *
 *   1. Take the first candidate of the run on top. What is left of the run keeps its place if it
 *      is still the least: merging one letter's run walks through memory from left to right.
 *   2. If the two neighbours still merge into what they merged into then, merge them.
 *   3. The pairs that the new symbol makes with its neighbours are new candidates. A candidate
 *      joins the newest run of its rank if it lies behind that run's end; else it begins a run.
 *
 * Candidates leave in exactly the order of a heap over all of them, for any merges. `open_run`,
 * the newest run of a rank, is a table in which ranks may overwrite each other: that makes runs
 * shorter and changes nothing else.
 */
#include <stdlib.h>

#include "text/tokenizer/internal.h"

static bool before(const bpe_heap_entry *a, const bpe_heap_entry *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->pos < b->pos;
}

/* Puts `e` where the top of the heap was and restores the heap. */
static void heap_replace_top(bpe_heap_entry *heap, size_t n, bpe_heap_entry e)
{
    size_t i = 0, child;
    while ((child = 2 * i + 1) < n) {
        if (child + 1 < n && before(&heap[child + 1], &heap[child]))
            child++;
        if (!before(&heap[child], &e))
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = e;
}

static bool heap_add(bpe_long *l, bpe_heap_entry e)
{
    if (!tok_grow((void **)&l->heap, &l->cap_heap, l->n_heap + 1, sizeof *l->heap))
        return false;
    size_t i = l->n_heap++;
    for (; i > 0 && before(&e, &l->heap[(i - 1) / 2]); i = (i - 1) / 2)
        l->heap[i] = l->heap[(i - 1) / 2];
    l->heap[i] = e;
    return true;
}

/* A place for a candidate; -1: no memory. */
static int32_t new_candidate(bpe_long *l)
{
    int32_t c = l->free_candidate;
    if (c >= 0) {
        l->free_candidate = l->candidate[c].next;
        return c;
    }
    if (l->n_candidates >= INT32_MAX || !tok_grow((void **)&l->candidate, &l->cap_candidate,
                                                  l->n_candidates + 1, sizeof *l->candidate))
        return -1;
    return (int32_t)l->n_candidates++;
}

static int32_t new_run(bpe_long *l)
{
    int32_t r = l->free_run;
    if (r >= 0) {
        l->free_run = l->run[r].tail;
        return r;
    }
    if (!tok_grow((void **)&l->run, &l->cap_run, l->n_runs + 1, sizeof *l->run))
        return -1;
    return (int32_t)l->n_runs++;
}

/* Adds the pair that begins at `pos`, if it merges. */
static bool add_pair(bpe_long *l, const vocab *v, const bpe_symbol *s, int32_t pos)
{
    if (pos < 0 || s[pos].next < 0)
        return true;
    const vocab_merge *m = vocab_find_merge(v, (uint32_t)s[pos].id, (uint32_t)s[s[pos].next].id);
    if (!m)
        return true;
    int32_t c = new_candidate(l), *open = &l->open_run[m->rank % BPE_OPEN_RUNS], r = *open;
    if (c < 0)
        return false;
    l->candidate[c] = (bpe_candidate){.pos = pos, .id = m->id, .next = -1};
    bool joins = (size_t)r < l->n_runs && l->run[r].head >= 0 && l->run[r].rank == m->rank &&
                 l->run[r].last_pos <= pos;
    if (joins) {
        l->candidate[l->run[r].tail].next = c;
        l->run[r].tail = c;
        l->run[r].last_pos = pos;
        return true;
    }
    r = new_run(l);
    if (r < 0)
        return false;
    l->run[r] = (bpe_run){.rank = m->rank, .head = c, .tail = c, .last_pos = pos};
    *open = r;
    return heap_add(l, (bpe_heap_entry){m->rank, pos, r});
}

/* Removes and returns the least candidate. */
static bpe_candidate take(bpe_long *l)
{
    bpe_heap_entry top = l->heap[0];
    bpe_run *r = &l->run[top.run];
    int32_t c = r->head;
    bpe_candidate taken = l->candidate[c];
    l->candidate[c].next = l->free_candidate;
    l->free_candidate = c;
    r->head = taken.next;
    if (r->head >= 0) {
        top.pos = l->candidate[r->head].pos;
    } else {
        r->tail = l->free_run;
        l->free_run = top.run;
        top = l->heap[--l->n_heap];
    }
    if (l->n_heap > 0)
        heap_replace_top(l->heap, l->n_heap, top);
    return taken;
}

bool bpe_merge_long(bpe_long *l, const vocab *v, bpe_symbol *s, size_t *count)
{
    int32_t n = (int32_t)*count;
    l->n_heap = l->n_runs = l->n_candidates = 0;
    l->free_run = l->free_candidate = -1;
    for (int32_t i = 0; i < n; i++) {
        s[i].prev = i - 1;
        s[i].next = i + 1 < n ? i + 1 : -1;
    }
    for (int32_t i = 0; i + 1 < n; i++)
        if (!add_pair(l, v, s, i))
            return false;
    while (l->n_heap > 0) {
        bpe_candidate c = take(l);
        int32_t right = s[c.pos].next;
        if (s[c.pos].id < 0 || right < 0)
            continue;
        const vocab_merge *m = vocab_find_merge(v, (uint32_t)s[c.pos].id, (uint32_t)s[right].id);
        if (!m || m->id != c.id)
            continue; /* one of the two has merged elsewhere since */
        s[c.pos].id = (int32_t)c.id;
        s[c.pos].next = s[right].next;
        if (s[right].next >= 0)
            s[s[right].next].prev = c.pos;
        s[right].id = -1;
        if (!add_pair(l, v, s, s[c.pos].prev) || !add_pair(l, v, s, c.pos))
            return false;
    }
    size_t out = 0;
    for (int32_t i = 0; i < n; i++)
        if (s[i].id >= 0)
            s[out++].id = s[i].id;
    *count = out;
    return true;
}

void bpe_long_release(bpe_long *l)
{
    free(l->candidate);
    free(l->run);
    free(l->heap);
}
