/* The scalar parts of sampling, the same for every instruction set: Philox, mask, bias and
 * penalties, and the exact selection of a top-k or top-p set. */
#include <math.h>

#include "ops/access.h"
#include "ops/sample/sample_impls.h"

float sample_uniform(uint64_t seed, uint64_t counter)
{
    uint32_t c[4] = {(uint32_t)counter, (uint32_t)(counter >> 32), 0, 0};
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c[0], p1 = (uint64_t)0xCD9E8D57u * c[2];
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c[1] ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c[3] ^ k1;
        c[0] = n0, c[1] = (uint32_t)p1, c[2] = n2, c[3] = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return (float)(c[0] >> 8) * 0x1p-24f;
}

/* ---- mask, bias and penalties ---- */

static void keep_allowed(float *logits, int32_t vocab, const uint32_t *mask)
{
    for (int32_t first = 0; first < vocab; first += 32) {
        uint32_t allowed = mask[first / 32];
        int32_t n = vocab - first < 32 ? vocab - first : 32;
        float *l = logits + first;
        if (allowed == UINT32_MAX)
            continue;
        for (int32_t i = 0; i < n; i++)
            l[i] = allowed >> i & 1 ? l[i] : -INFINITY;
    }
}

/* The tokens that penalties count: the known context, then the pending token if there is one. */
typedef struct history {
    const int32_t *id;
    int32_t known, n, pending;
} history;

static history history_of(const vt_sample_row *row, const int32_t *token_pool)
{
    history h = {.id = row->context, .known = row->context ? row->n_context : 0};
    h.n = h.known;
    if (row->pending_slot >= 0 && token_pool) {
        h.pending = token_pool[row->pending_slot];
        h.n++;
    }
    return h;
}

/* Entry i of the history; -1 if its id is not in this vocabulary. */
static int32_t history_at(const history *h, int32_t i, int32_t vocab)
{
    int32_t id = i < h->known ? h->id[i] : h->pending;
    return id >= 0 && id < vocab ? id : -1;
}

void sample_adjust(float *logits, int32_t vocab, const vt_sample_row *row,
                   const int32_t *token_pool, int32_t *seen)
{
    if (row->mask)
        keep_allowed(logits, vocab, row->mask);
    for (int32_t i = 0; i < row->n_bias; i++)
        if (row->bias[i].id >= 0 && row->bias[i].id < vocab)
            logits[row->bias[i].id] += row->bias[i].bias;
    bool repetition = row->repetition_penalty != 1 && row->repetition_penalty > 0;
    if (!repetition && row->presence_penalty == 0 && row->frequency_penalty == 0)
        return;
    history h = history_of(row, token_pool);
    /* seen[id]: how often the output holds id; -1 once its penalties are applied */
    for (int32_t i = 0, id; i < h.n; i++)
        if ((id = history_at(&h, i, vocab)) >= 0)
            seen[id] = 0;
    for (int32_t i = row->n_prompt, id; i < h.n; i++)
        if ((id = history_at(&h, i, vocab)) >= 0)
            seen[id]++;
    for (int32_t i = 0; i < h.n; i++) {
        int32_t id = history_at(&h, i, vocab);
        if (id < 0 || seen[id] < 0)
            continue;
        float l = logits[id];
        if (repetition)
            l = l > 0 ? l / row->repetition_penalty : l * row->repetition_penalty;
        if (seen[id] > 0)
            l -= row->presence_penalty + row->frequency_penalty * (float)seen[id];
        logits[id] = l;
        seen[id] = -1;
    }
}

/* ---- selection ---- */

static bool better(const sample_candidates *c, int32_t a, int32_t b)
{
    return c->x[a] > c->x[b] || (c->x[a] == c->x[b] && a < b);
}

static int32_t median(const sample_candidates *c, int32_t i, int32_t j, int32_t k)
{
    if (better(c, i, j))
        return better(c, j, k) ? j : better(c, i, k) ? k : i;
    return better(c, i, k) ? i : better(c, j, k) ? k : j;
}

static void swap(int32_t *a, int32_t *b)
{
    int32_t t = *a;
    *a = *b;
    *b = t;
}

int32_t sample_cut(sample_candidates *c, int32_t count, double mass)
{
    int32_t lo = 0, hi = c->n, *id = c->id; /* the answer lies in id[lo, hi) */
    while (hi - lo > 1) {
        int32_t pivot = median(c, id[lo], id[lo + (hi - lo) / 2], id[hi - 1]);
        int32_t left = lo; /* id[lo, left) are better than the pivot */
        double left_mass = 0;
        for (int32_t i = lo; i < hi; i++) {
            if (!better(c, id[i], pivot))
                continue;
            left_mass += (double)c->weight[id[i]];
            swap(&id[i], &id[left++]);
        }
        for (int32_t i = left; i < hi; i++)
            if (id[i] == pivot) {
                swap(&id[i], &id[left]);
                break;
            }
        bool in_left = count > 0 ? left - lo >= count : left_mass >= mass && left > lo;
        if (in_left) {
            hi = left;
            continue;
        }
        left_mass += (double)c->weight[pivot];
        bool at_pivot = count > 0 ? left + 1 - lo >= count : left_mass >= mass;
        if (at_pivot || left + 1 == hi)
            return pivot;
        count -= count > 0 ? left + 1 - lo : 0;
        mass -= left_mass;
        lo = left + 1;
    }
    return id[lo];
}

void sample_put_top(const sample_args *a, int64_t r, int32_t rank, int32_t id, float logprob)
{
    ((int32_t *)a->top_id->data)[r * a->top_id->row_stride + rank] = id;
    row_f32(a->top_logprob, r)[rank] = logprob;
}
