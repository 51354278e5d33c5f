/* How the split decode kernel's work is cut (attention_cuda.h describes the form of a plan).
 *
 * Decodes are cut so that about two CTAs per SM have equal work. The aim for the length of a range
 * is the number of all KV tokens divided by that number of CTAs. A sequence gets round(kv_len /
 * aim) ranges of equal length, in multiples of 64 tokens. A batch that has as many sequences as
 * there is room for CTAs is not cut at all.
 *
 * For up to ATTENTION_FEW decodes latency matters and not bandwidth. A CTA then has more warps,
 * each with a ring of its own, which it fills while earlier kernels end. A range as long as the
 * rings costs less than merging two ranges. So the aim is one CTA per SM, and a range fills the
 * rings. Only a sequence that needs several ranges anyway is cut finer, down to one block per warp,
 * as long as half of the SMs are left to the weights that the next kernel fetches ahead.
 *
 * Decodes of several tokens are cut in the same way. Each item is computed by a CTA for every 16
 * rows (token, head of the group) that a decode has, so there is room for fewer items.
 *
 * Where decodes share their first pages (ops/shared_kv.h) those are cut in the same way, each
 * tile of 64 rows counting as a sequence of that length: a token of such a tile costs about what a
 * token of a sequence of its own does. Shared items come first: they are the longest, and the many
 * own ones behind them are then the last to arrive, which merge. A batch whose plan has no such
 * items (attention_shares) runs an instance of the kernel without code for them, less than half as
 * large. Decodes of several tokens share nothing. */
#include "ops/attention/attention_cuda.h"

#include <assert.h>

#include "ops/shared_kv.h"

enum { RANGE_GRAIN = 64 };

int32_t attention_decode_rows(const attention_plan_config *c)
{
    return (c->decode_tokens > 1 ? c->decode_tokens : 1) * (c->heads / c->kv_heads);
}

/* Returns how many KV ranges to aim for: two CTAs per SM, or one per SM when there are at most
 * ATTENTION_FEW decodes. The heads of one token take one CTA, whatever their number. */
static int32_t decode_target(const attention_plan_config *c, int32_t n_decode)
{
    int32_t tiles = c->decode_tokens > 1 ? (int32_t)vt_ceil_div(attention_decode_rows(c), 16) : 1,
            n = (n_decode <= ATTENTION_FEW ? 1 : 2) * c->sm_count / (c->kv_heads * tiles);
    return n > 1 ? n : 1;
}

int64_t attention_decode_ring_bytes(attention_decode_shape s, int32_t head_dim,
                                    int32_t element_bytes)
{
    return (int64_t)s.warps * s.stages * 2 * DECODE_BLOCK * head_dim * element_bytes;
}

/* Shared memory of the kernel besides the rings: the arrays of the merge. */
enum { MERGE_BYTES = 2048 };

/* Tries the shapes from the one that suits the size on, and returns the first that fits. A GPU that
 * gives a CTA 99 KB has no room for four warps with two blocks of 256 BF16 dimensions each: two
 * warps with three blocks keep as many on the way. A shape of fewer than four warps runs no shared
 * items. */
attention_decode_shape attention_decode_shape_of(const vt_target *t, int32_t head_dim,
                                                 int32_t element_bytes, int32_t n_decode)
{
    static const attention_decode_shape shape[] = {{8, 3}, {4, 3}, {4, 2}, {2, 3}, {2, 2}};
    enum { LAST = sizeof shape / sizeof *shape - 1 };
    bool wide = head_dim > 128;
    bool few = n_decode <= ATTENTION_FEW && !wide && t->level >= 90;
    int i = few ? 0 : wide ? 2 : 1;
    while (i < LAST && t->max_shared_bytes > 0 &&
           attention_decode_ring_bytes(shape[i], head_dim, element_bytes) + MERGE_BYTES >
               t->max_shared_bytes)
        i++;
    return shape[i];
}

/* The most slots that a plan of `items` items can need. A range of one sequence takes one slot. A
 * shared range takes one for each member: a tile has at most ATTENTION_SHARED_ROWS * kv_heads /
 * heads members, and all tiles together have at most 1.5 decode_target() ranges and one for each
 * sequence. */
int32_t attention_decode_slots(const attention_plan_config *c, int32_t items)
{
    if (c->decode_tokens > 1)
        return items;
    return 2 * items + 3 * c->sm_count * ATTENTION_SHARED_ROWS / c->heads + 8;
}

int32_t attention_decode_capacity(const attention_plan_config *c, int32_t n_decode,
                                  int32_t max_context)
{
    /* For few decodes, a sequence gets its share of the target, rounded up. The sum of these is
     * less than target + n. */
    int64_t grains = n_decode * vt_ceil_div(max_context, RANGE_GRAIN);
    int32_t aimed = decode_target(c, n_decode) + n_decode +
                    (n_decode <= ATTENTION_FEW ? -1 : n_decode / 2);
    return grains < aimed ? (int32_t)grains : aimed;
}

static int32_t ranges_of(int32_t kv_len, int32_t aim)
{
    int32_t most = (kv_len + RANGE_GRAIN - 1) / RANGE_GRAIN;
    if (kv_len < aim + aim / 2)
        return 1;
    int32_t n = (int32_t)(((int64_t)kv_len + aim / 2) / aim);
    return n < most ? n : most;
}

int32_t attention_decode_single(const attention_plan_config *c, int32_t seq, void *plan, int32_t at)
{
    (void)c;
    attention_decode_item *item = (attention_decode_item *)plan + at;
    *item = (attention_decode_item){.seq = seq, .end = 1, .first_slot = at, .n_slots = 1};
    return 1;
}

/* A decode plan while it is being made. */
typedef struct plan_work {
    attention_decode_item lost; /* one that the plan has no room for */
    attention_decode_item *item;
    int32_t capacity, n_items, n_slots;
    int32_t aim, most; /* tokens that a range should have; the most items */
    shared_groups groups;
    struct {
        int32_t begin;    /* where the KV begins that it does not share */
        int32_t n_shared; /* slots for the shared KV before that */
        int32_t first_slot, n_slots;
    } seq[SHARED_MOST_SEQS];
} plan_work;

/* Returns how many members of a group of n one item computes. With larger tiles KV is read less
 * often; more tiles use more SMs, also for the merge after them. */
static int32_t members_a_tile(const attention_plan_config *c, int32_t n)
{
    int32_t heads = c->heads / c->kv_heads, most = ATTENTION_SHARED_ROWS / heads,
            rows = n * heads <= 64    ? 16
                   : n * heads <= 128 ? 32
                                      : ATTENTION_SHARED_ROWS;
    int32_t members = rows / heads > 4 ? rows / heads : 4;
    return members < most ? members : most;
}

bool attention_may_share(const attention_plan_config *c, int32_t n_decode)
{
    /* the kernel has one tile for the heads of a token that use the same KV head */
    bool one_tile = c->heads / c->kv_heads <= 16;
    return c->shared_rows > 0 && one_tile && !c->narrow && n_decode > ATTENTION_FEW &&
           c->decode_tokens <= 1;
}

static void find_groups(const attention_plan_config *c, const vt_batch *b, shared_groups *out)
{
    out->n = out->n_seqs = 0;
    if (!attention_may_share(c, b->n_decode))
        return;
    shared_rule rule = {.least_tokens = RANGE_GRAIN,
                        .least_saved = vt_ceil_div(c->shared_rows, c->kv_heads),
                        .tile = ATTENTION_SHARED_ROWS / (c->heads / c->kv_heads)};
    shared_groups_find(b, &rule, out);
}

bool attention_shares(const attention_plan_config *c, const vt_batch *b)
{
    shared_groups groups;
    find_groups(c, b, &groups);
    return groups.n > 0;
}

/* Ranges of `len` tokens: their number, and the length of all but the last. */
static int32_t cut(int32_t len, int32_t parts, int32_t *step)
{
    *step = len;
    if (parts == 1)
        return 1;
    *step = ((len + parts - 1) / parts + RANGE_GRAIN - 1) / RANGE_GRAIN * RANGE_GRAIN;
    return (len + *step - 1) / *step;
}

/* Items beyond the plan's capacity are counted and not kept. */
static attention_decode_item *add_item(plan_work *p, int32_t seq, int32_t begin, int32_t end)
{
    attention_decode_item *item = p->n_items < p->capacity ? p->item + p->n_items : &p->lost;
    p->n_items++;
    *item = (attention_decode_item){.seq = seq, .begin = begin, .end = end};
    return item;
}

/* Adds the items for the shared part of a group: every range for every tile of members. */
static void plan_group(const attention_plan_config *c, plan_work *p, const shared_group *g)
{
    int32_t tile = members_a_tile(c, g->n), step,
            parts = cut(g->len, ranges_of(g->len, p->aim), &step);
    for (int32_t i = 0; i < g->n; i++) {
        int32_t s = p->groups.seq[g->first + i];
        p->seq[s].begin = g->len;
        p->seq[s].n_shared = parts;
    }
    for (int32_t k = 0; k < parts; k++)
        for (int32_t i = 0; i < g->n; i += tile) {
            int32_t end = (k + 1) * step;
            attention_decode_item *item = add_item(p, g->first + i, k * step,
                                                   end < g->len ? end : g->len);
            item->slot = k;
            item->n_members = g->n - i < tile ? g->n - i : tile;
        }
}

/* KV ranges for one decode of a small batch: enough to cover its length. If that is more than one,
 * cut finer. */
static int32_t ranges_of_few(const attention_plan_config *c, const vt_batch *b, int32_t len,
                             int32_t aim)
{
    int32_t n = (int32_t)vt_ceil_div(len, aim),
            fine = (int32_t)vt_ceil_div(len, c->few.warps * DECODE_BLOCK),
            most = decode_target(c, b->n_decode) / (2 * b->n_decode);
    fine = fine < most ? fine : most;
    return n > 1 && fine > n ? fine : n;
}

/* Items for the KV that a sequence shares with no other, at least one. Each later sequence keeps
 * room for one item. */
static void plan_own(const attention_plan_config *c, const vt_batch *b, plan_work *p, int32_t s)
{
    bool known = s < SHARED_MOST_SEQS;
    int32_t begin = known ? p->seq[s].begin : 0, n_shared = known ? p->seq[s].n_shared : 0,
            len = b->kv_len[s] - begin, left = p->most - p->n_items - (b->n_decode - s - 1), step,
            first = p->n_slots,
            parts = b->n_decode <= ATTENTION_FEW ? ranges_of_few(c, b, len, p->aim)
                                                 : ranges_of(len, p->aim);
    left = left > 1 ? left : 1; /* less only if the capacity is too small */
    parts = cut(len, parts < left ? parts : left, &step);
    for (int32_t k = 0; k < parts; k++) {
        int32_t end = (k + 1) * step < len ? (k + 1) * step : len;
        attention_decode_item *item = add_item(p, s, begin + k * step, begin + end);
        item->first_slot = first;
        item->n_slots = n_shared + parts;
        item->slot = first + n_shared + k;
    }
    p->n_slots += n_shared + parts;
    if (known) {
        p->seq[s].first_slot = first;
        p->seq[s].n_slots = n_shared + parts;
    }
}

/* Returns how many KV tokens a range should have. */
static int32_t aim_of(const attention_plan_config *c, const vt_batch *b,
                      const shared_groups *groups)
{
    int64_t total = 0;
    for (int32_t s = 0; s < b->n_decode; s++)
        total += b->kv_len[s];
    for (int32_t i = 0; i < groups->n; i++) {
        const shared_group *g = &groups->group[i];
        total -= (g->n - vt_ceil_div(g->n, members_a_tile(c, g->n))) * g->len;
    }
    int64_t aim = vt_ceil_div(total, decode_target(c, b->n_decode));
    int32_t least = RANGE_GRAIN;
    if (b->n_decode <= ATTENTION_FEW)
        least = c->few.warps * (c->few.stages - 1) * DECODE_BLOCK;
    return aim < least ? least : aim < INT32_MAX / 2 ? (int32_t)aim : INT32_MAX / 2;
}

int32_t attention_decode_fill(const attention_plan_config *c, const vt_batch *b, void *plan,
                              int32_t capacity)
{
    plan_work p;
    p.item = plan;
    p.capacity = capacity;
    p.n_items = p.n_slots = 0;
    /* In a small batch the rest of the capacity is left for the bucket's padding. */
    p.most = b->n_decode <= ATTENTION_FEW
                 ? attention_decode_capacity(c, b->n_decode, INT32_MAX - RANGE_GRAIN)
                 : capacity;
    find_groups(c, b, &p.groups);
    p.aim = aim_of(c, b, &p.groups);
    for (int32_t s = 0; s < b->n_decode && s < SHARED_MOST_SEQS; s++)
        p.seq[s].begin = p.seq[s].n_shared = 0;
    for (int32_t i = 0; i < p.groups.n; i++)
        plan_group(c, &p, &p.groups.group[i]);
    for (int32_t s = 0; s < b->n_decode; s++)
        plan_own(c, b, &p, s);
    if (p.n_items > capacity)
        return p.n_items;
    attention_decode_member *member = (attention_decode_member *)(p.item + capacity);
    for (int32_t i = 0; i < p.groups.n_seqs; i++) {
        int32_t s = p.groups.seq[i];
        member[i] = (attention_decode_member){
            .seq = s, .first_slot = p.seq[s].first_slot, .n_slots = p.seq[s].n_slots};
    }
    assert(p.n_slots <= attention_decode_slots(c, capacity));
    for (int32_t i = p.n_items; i < capacity; i++)
        p.item[i].seq = -1;
    return p.n_items;
}

/* Padding has one range a sequence, as attention_decode_single makes it. */
int32_t attention_decode_fill_splits(const vt_batch *b, int32_t pad_seqs, int32_t splits,
                                     void *plan, int32_t capacity)
{
    attention_decode_item *item = plan;
    int32_t n = 0;
    for (int32_t s = 0; s < b->n_decode; s++) {
        int32_t len = b->kv_len[s], most = (int32_t)vt_ceil_div(len, RANGE_GRAIN), step,
                parts = cut(len, splits < most ? splits : most, &step), first = n;
        for (int32_t k = 0; k < parts && n < capacity; k++, n++)
            item[n] = (attention_decode_item){.seq = s,
                                              .begin = k * step,
                                              .end = k + 1 < parts ? (k + 1) * step : len,
                                              .first_slot = first,
                                              .n_slots = parts,
                                              .slot = n};
    }
    for (int32_t i = 0; i < pad_seqs && n < capacity; i++, n++)
        item[n] = (attention_decode_item){
            .seq = b->n_seqs + i, .end = 1, .first_slot = n, .n_slots = 1};
    for (int32_t i = n; i < capacity; i++)
        item[i].seq = -1;
    return n;
}

int32_t attention_shared_items(const void *plan, int32_t n_items)
{
    const attention_decode_item *item = plan;
    int32_t n = 0;
    while (n < n_items && item[n].n_members > 0)
        n++; /* shared items come first */
    return n;
}

size_t attention_decode_plan_ints(int32_t items, int32_t n_decode)
{
    return (size_t)items * DECODE_ITEM_INTS + (size_t)n_decode * DECODE_MEMBER_INTS;
}

size_t attention_decode_workspace(const attention_plan_config *c, int32_t items, int32_t head_dim)
{
    size_t rows = (size_t)attention_decode_slots(c, items) * (size_t)c->kv_heads *
                  (size_t)attention_decode_rows(c);
    return rows * ((size_t)head_dim + 2) * sizeof(float) + 256;
}
