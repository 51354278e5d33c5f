/* Decodes of a step that have their first pages in common, as the radix cache gives them to
 * requests with the same beginning: attention reads such pages once for a group of sequences.
 *
 *   pages     7 3 9 4 1 | 7 3 9 4 2 | 5 6 | 7 8      of four sequences
 *   groups    {0, 1} with 7 3 9 4                    {0, 1, 3} with 7 would save less
 *
 * Groups are disjoint and not nested. Among sequences with the same first page, one is compared
 * with all others, and of the groups around it (all that share at least so many pages with it) the
 * one that saves the most is taken; then the next one that is left. */
#ifndef VT_OPS_ATTENTION_SHARED_H
#define VT_OPS_ATTENTION_SHARED_H

#include "ops/batch.h"

enum { SHARED_MOST_SEQS = 1024 }; /* later decodes of a step are never in a group */

typedef struct shared_group {
    int32_t first, n; /* members: seq[first .. first + n) */
    int32_t len;      /* KV tokens that all of them have, whole pages, less than any of them has */
} shared_group;

typedef struct shared_groups {
    int32_t n, n_seqs;
    shared_group group[SHARED_MOST_SEQS / 2];
    int32_t seq[SHARED_MOST_SEQS];
} shared_groups;

/* What a group must have to be one. `tile`: so many members share one reading of its pages. */
typedef struct shared_rule {
    int32_t least_tokens; /* of the shared part, at least 1 */
    int64_t least_saved;  /* tokens that need not be read: (n - ceil(n / tile)) * len */
    int32_t tile;
} shared_rule;

/* The groups among the decodes of a batch with host arrays. */
void shared_groups_find(const vt_batch *b, const shared_rule *rule, shared_groups *out);

/* For each decode the leading KV tokens that another one with no more context has in the same
 * pages: what a step reads twice if it reads every sequence's KV. Of a group, however small, all
 * but the one with the least context have its length, others 0. tokens [n_decode]. */
void shared_kv_find(const vt_batch *b, int32_t *tokens);

#endif
