/* Finding groups of decodes with common first pages (ops/shared_kv.h).
 *
 * Sequences are chained by their first page in a hash table; most steps end there, with every chain
 * one long. A comparison is one memcmp of as many pages as the last pair had in common, then a walk
 * page by page. The number of comparisons is bounded (COMPARISONS for each sequence), so that a
 * step of many small families costs no more than a step of few large ones. Sequences that are not
 * compared within the bound read their pages alone. */
#include "ops/shared_kv.h"

#include <string.h>

#include "base/mem.h"

enum { TABLE = 2 * SHARED_MOST_SEQS, COMPARISONS = 8, LENGTHS = 16 };

/* Sequences with the same first page, in rising order. */
typedef struct chain {
    int32_t seq[SHARED_MOST_SEQS], n;
} chain;

/* How many of the other sequences have exactly `pages` first pages in common with the first. */
typedef struct length_count {
    int32_t pages, n;
} length_count;

/* A sequence whose window has passed its first page shares none: the list has no page there. */
static int32_t whole_pages(const vt_batch *b, int32_t s)
{
    bool passed = b->window > 0 && b->kv_len[s] - b->window >= b->page_size;
    return passed ? 0 : (b->kv_len[s] - 1) / b->page_size;
}

static const int32_t *pages_of(const vt_batch *b, int32_t s)
{
    return b->page_ids + b->page_start[s];
}

/* Returns how many leading pages s and t have in common; `hope` is a likely answer. */
static int32_t common_pages(const vt_batch *b, int32_t s, int32_t t, int32_t hope)
{
    int32_t n = whole_pages(b, s), m = whole_pages(b, t), i = 0;
    const int32_t *a = pages_of(b, s), *c = pages_of(b, t);
    n = n < m ? n : m;
    if (hope <= n && memcmp(a, c, (size_t)hope * sizeof *a) == 0)
        i = hope;
    while (i < n && a[i] == c[i])
        i++;
    return i;
}

/* Counts a length. If the table is full, it counts as the longest of the shorter lengths there. */
static void count_length(length_count *count, int32_t *n, int32_t pages)
{
    int32_t nearest = -1;
    for (int32_t i = 0; i < *n; i++) {
        if (count[i].pages == pages) {
            count[i].n++;
            return;
        }
        if (count[i].pages < pages && (nearest < 0 || count[i].pages > count[nearest].pages))
            nearest = i;
    }
    if (*n < LENGTHS)
        count[(*n)++] = (length_count){pages, 1};
    else if (nearest >= 0)
        count[nearest].n++;
}

/* The number of pages whose group saves the most; 0: no group meets the rule. */
static int32_t best_length(const vt_batch *b, const shared_rule *rule, const length_count *count,
                           int32_t n)
{
    int64_t most = 0;
    int32_t best = 0;
    for (int32_t i = 0; i < n; i++) {
        int64_t members = 1, tokens = (int64_t)count[i].pages * b->page_size;
        for (int32_t k = 0; k < n; k++)
            members += count[k].pages >= count[i].pages ? count[k].n : 0;
        int64_t saved = (members - vt_ceil_div(members, rule->tile)) * tokens;
        if (tokens >= rule->least_tokens && saved >= rule->least_saved && saved > most) {
            most = saved;
            best = count[i].pages;
        }
    }
    return best;
}

/* Takes the best group with the chain's first sequence out of the chain, or that sequence alone. */
static void take_group(const vt_batch *b, const shared_rule *rule, chain *c, shared_groups *out)
{
    int32_t pages[SHARED_MOST_SEQS], first = c->seq[0], n_counts = 0, left = 0, hope = 1;
    length_count count[LENGTHS];
    for (int32_t i = 1; i < c->n; i++) {
        pages[i] = hope = common_pages(b, first, c->seq[i], hope);
        count_length(count, &n_counts, hope);
    }
    int32_t best = best_length(b, rule, count, n_counts);
    shared_group *g = &out->group[out->n];
    *g = (shared_group){out->n_seqs, 0, best * b->page_size};
    if (best > 0) {
        out->seq[out->n_seqs + g->n++] = first;
        out->n++;
    }
    for (int32_t i = 1; i < c->n; i++)
        if (best > 0 && pages[i] >= best)
            out->seq[out->n_seqs + g->n++] = c->seq[i];
        else
            c->seq[left++] = c->seq[i];
    out->n_seqs += best > 0 ? g->n : 0;
    c->n = left;
}

void shared_groups_find(const vt_batch *b, const shared_rule *rule, shared_groups *out)
{
    int16_t head[TABLE], next[SHARED_MOST_SEQS];
    int32_t n = b->n_decode < SHARED_MOST_SEQS ? b->n_decode : SHARED_MOST_SEQS;
    int64_t budget = (int64_t)n * COMPARISONS;
    bool shared = false;
    out->n = out->n_seqs = 0;
    memset(head, -1, sizeof head);
    /* From the last sequence to the first, so that chains rise. Two pages with one hash are in one
     * chain; their sequences then turn out to have no page in common. */
    for (int32_t s = n - 1; s >= 0; s--) {
        if (whole_pages(b, s) < 1)
            continue;
        uint32_t h = (uint32_t)pages_of(b, s)[0] * 2654435769u >> 21;
        next[s] = head[h];
        shared = shared || head[h] >= 0;
        head[h] = (int16_t)s;
    }
    _Static_assert(TABLE == 1 << 11, "the hash's 11 bits");
    for (uint32_t h = 0; shared && h < TABLE; h++) {
        chain c;
        if (head[h] < 0 || next[head[h]] < 0)
            continue;
        c.n = 0;
        for (int32_t s = head[h]; s >= 0; s = next[s])
            c.seq[c.n++] = s;
        while (c.n > 1 && budget > 0) {
            budget -= c.n - 1;
            take_group(b, rule, &c, out);
        }
    }
}

const shared_rule shared_rule_any = {.least_tokens = 1, .least_saved = 1, .tile = INT32_MAX};

void shared_kv_find(const vt_batch *b, int32_t *tokens)
{
    shared_groups groups;
    memset(tokens, 0, (size_t)b->n_decode * sizeof *tokens);
    shared_groups_find(b, &shared_rule_any, &groups);
    for (int32_t i = 0; i < groups.n; i++) {
        const shared_group *g = &groups.group[i];
        int32_t least = groups.seq[g->first];
        for (int32_t k = 0; k < g->n; k++) {
            int32_t s = groups.seq[g->first + k];
            tokens[s] = g->len;
            least = b->kv_len[s] < b->kv_len[least] ? s : least;
        }
        tokens[least] = 0;
    }
}
