/* Decodes of a step that have their first pages in common, as the radix cache gives them to
 * requests with the same beginning: attention reads such pages once for a group of sequences.
 *
 *   pages     7 3 9 4 1 | 7 3 9 4 2 | 5 6 | 7 8      of four sequences
 *   groups    {0, 1} with 7 3 9 4                    {0, 1, 3} with 7 would save less
 *
 * Groups are disjoint and not nested. Among sequences with the same first page, one is compared
 * with all others. For every number of pages there is a group around it: all sequences that share
 * at least that many pages with it. The group that saves the most is taken out; then the same is
 * done with the sequences that are left. */
#ifndef VT_OPS_SHARED_KV_H
#define VT_OPS_SHARED_KV_H

#include "ops/batch.h"

enum { SHARED_MOST_SEQS = 1024 }; /* later decodes of a step are never in a group */

typedef struct shared_group {
    int32_t first, n; /* members: seq[first .. first + n) */
    int32_t len;      /* KV tokens that all members share: whole pages, less than each one's KV */
} shared_group;

typedef struct shared_groups {
    int32_t n, n_seqs;
    shared_group group[SHARED_MOST_SEQS / 2];
    int32_t seq[SHARED_MOST_SEQS];
} shared_groups;

/* Sequences are a group by these. */
typedef struct shared_rule {
    int32_t least_tokens; /* in the shared part, at least 1 */
    int64_t least_saved;  /* tokens that need not be read: (n - ceil(n / tile)) * len */
    int32_t tile;         /* members that share one reading of the pages */
} shared_rule;

/* Of any length and saving, and with all members of a group reading the pages at once. */
extern const shared_rule shared_rule_any;

/* Finds the groups among the decodes of a batch with host arrays. */
void shared_groups_find(const vt_batch *b, const shared_rule *rule, shared_groups *out);

/* Fills tokens[n_decode] with the number of KV tokens of each decode that another decode, which
 * has no more context, has in the same first pages: a step that reads the KV of every sequence
 * reads these again. In a group of any size, the member with the least context has 0 and the others
 * have the length of the shared part. Decodes outside of groups have 0. */
void shared_kv_find(const vt_batch *b, int32_t *tokens);

#endif
