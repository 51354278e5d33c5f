/* A vocabulary: two open-addressing tables over one pool of bytes.
 *
 *   pool   |the| quick|...          piece[id] = {at, len, flags}
 *   slot   hash << 32 | id + 1      linear probing, at most half full
 *   merge  {a, b, rank, id}         linear probing, at most two thirds full, four to a cache line
 *
 * Both tables hash with a secret of the process: a file cannot be written so that its keys collide.
 *
 * Ids at and above n ("between") exist only while merging: a file may list a merge whose result is
 * no token, or an SPM vocabulary may hold "xy" and not "x". They never leave the tokenizer.
 */
#include "text/tokenizer/vocab.h"

#include <stdlib.h>
#include <string.h>

#include "base/random.h"

void vocab_init(vocab *v)
{
    uint64_t state = vt_hash_seed();
    *v = (vocab){0};
    v->secret[0] = vt_random_next(&state);
    v->secret[1] = vt_random_next(&state) | 1;
}

void vocab_release(vocab *v)
{
    free(v->piece);
    free(v->pool);
    free(v->slot);
    free(v->merge);
    *v = (vocab){0};
}

static vt_status out_of_memory(vt_err *err)
{
    return vt_fail(err, VT_ERR_MEMORY, "tokenizer: out of memory");
}

static void slot_put(vocab *v, int32_t id)
{
    const vocab_piece *p = &v->piece[id];
    uint32_t hash = (uint32_t)(vocab_hash(v, v->pool + p->at, p->len) >> 32);
    for (uint32_t i = hash & v->mask;; i = (i + 1) & v->mask) {
        uint64_t s = v->slot[i];
        if (s != 0) {
            const vocab_piece *q = &v->piece[(uint32_t)s - 1];
            if (s >> 32 != hash || q->len != p->len ||
                memcmp(v->pool + q->at, v->pool + p->at, p->len) != 0)
                continue;
            v->used--;
        }
        v->slot[i] = (uint64_t)hash << 32 | (uint32_t)(id + 1);
        v->used++;
        return;
    }
}

static vt_status slot_grow(vocab *v, size_t want, vt_err *err)
{
    size_t size = 64;
    if (v->slot && want * 2 <= (size_t)v->mask + 1)
        return VT_OK;
    while (size < want * 2)
        size *= 2;
    uint64_t *old = v->slot, *grown = vt_calloc(size, sizeof *grown);
    size_t n_old = old ? (size_t)v->mask + 1 : 0;
    if (!grown)
        return out_of_memory(err);
    v->slot = grown;
    v->mask = (uint32_t)(size - 1);
    for (size_t i = 0; i < n_old; i++)
        if (old[i]) {
            uint32_t at = (uint32_t)(old[i] >> 32) & v->mask;
            while (v->slot[at])
                at = (at + 1) & v->mask;
            v->slot[at] = old[i];
        }
    free(old);
    return VT_OK;
}

static vt_status merge_grow(vocab *v, size_t want, vt_err *err)
{
    int bits = 6;
    while ((size_t)2 << bits < want * 3)
        bits++;
    if (v->merge && bits <= v->merge_bits)
        return VT_OK;
    size_t n_old = v->merge ? (size_t)1 << v->merge_bits : 0;
    vocab_merge *old = v->merge, *grown = vt_calloc((size_t)1 << bits, sizeof *grown);
    if (!grown)
        return out_of_memory(err);
    for (size_t i = 0; i < (size_t)1 << bits; i++)
        grown[i].a = UINT32_MAX;
    v->merge = grown;
    v->merge_bits = bits;
    uint32_t mask = (1u << bits) - 1;
    for (size_t i = 0; i < n_old; i++)
        if (old[i].a != UINT32_MAX) {
            uint32_t at = vocab_merge_slot(v, old[i].a, old[i].b);
            while (v->merge[at].a != UINT32_MAX)
                at = (at + 1) & mask;
            v->merge[at] = old[i];
        }
    free(old);
    return VT_OK;
}

static vt_status piece_grow(vocab *v, int32_t want, vt_err *err)
{
    if (want <= v->cap)
        return VT_OK;
    if (want > VOCAB_MAX)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "tokenizer: more than %d tokens", VOCAB_MAX);
    int32_t cap = v->cap ? v->cap : 512;
    while (cap < want)
        cap *= 2;
    vocab_piece *grown = realloc(v->piece, (size_t)cap * sizeof *grown);
    if (!grown)
        return out_of_memory(err);
    memset(grown + v->cap, 0, (size_t)(cap - v->cap) * sizeof *grown);
    v->piece = grown;
    v->cap = cap;
    return VT_OK;
}

static vt_status pool_add(vocab *v, const char *bytes, size_t len, uint32_t *at, vt_err *err)
{
    if (len > VOCAB_MAX_PIECE || v->pool_len + len > VOCAB_MAX_BYTES)
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "tokenizer: a token of %zu bytes, or more than %d bytes of tokens", len,
                       VOCAB_MAX_BYTES);
    if (v->pool_len + len > v->pool_cap) {
        size_t cap = (v->pool_len + len) * 2;
        char *grown = realloc(v->pool, cap);
        if (!grown)
            return out_of_memory(err);
        v->pool = grown;
        v->pool_cap = cap;
    }
    if (len)
        memcpy(v->pool + v->pool_len, bytes, len);
    *at = (uint32_t)v->pool_len;
    v->pool_len += len;
    return VT_OK;
}

vt_status vocab_reserve(vocab *v, size_t pieces, size_t bytes, size_t merges, vt_err *err)
{
    if (pieces > VOCAB_MAX || merges > VOCAB_MAX || bytes > VOCAB_MAX_BYTES)
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "tokenizer: %zu tokens and %zu merges are more than %d", pieces, merges,
                       VOCAB_MAX);
    TRY(piece_grow(v, (int32_t)pieces, err));
    TRY(slot_grow(v, pieces, err));
    TRY(merge_grow(v, merges, err));
    if (bytes > v->pool_cap) {
        char *grown = realloc(v->pool, bytes);
        if (!grown)
            return out_of_memory(err);
        v->pool = grown;
        v->pool_cap = bytes;
    }
    return VT_OK;
}

vt_status vocab_set(vocab *v, int32_t id, const char *bytes, size_t len, uint32_t flags,
                    vt_err *err)
{
    if (id < 0 || id >= VOCAB_MAX)
        return vt_fail(err, VT_ERR_FORMAT, "tokenizer: token id %d is not in 0..%d", id,
                       VOCAB_MAX - 1);
    TRY(piece_grow(v, id + 1, err));
    uint32_t at = 0;
    TRY(pool_add(v, bytes, len, &at, err));
    v->piece[id] = (vocab_piece){at, (uint32_t)len, flags | PIECE_PRESENT};
    if (id >= v->n_all)
        v->n_all = id + 1;
    v->n = v->n_all;
    if (flags & PIECE_MODEL) {
        TRY(slot_grow(v, (size_t)v->used + 1, err));
        slot_put(v, id);
    }
    return VT_OK;
}

vt_status vocab_add_between(vocab *v, const char *bytes, size_t len, int32_t *id, vt_err *err)
{
    int32_t at = v->n_all, n = v->n;
    TRY(vocab_set(v, at, bytes, len, PIECE_MODEL, err));
    v->n = n;
    *id = at;
    return VT_OK;
}

int32_t vocab_find(const vocab *v, const char *bytes, size_t len)
{
    if (!v->slot)
        return -1;
    uint32_t hash = (uint32_t)(vocab_hash(v, bytes, len) >> 32);
    for (uint32_t i = hash & v->mask; v->slot[i]; i = (i + 1) & v->mask) {
        if (v->slot[i] >> 32 != hash)
            continue;
        const vocab_piece *p = &v->piece[(uint32_t)v->slot[i] - 1];
        if (p->len == len && memcmp(v->pool + p->at, bytes, len) == 0)
            return (int32_t)(uint32_t)v->slot[i] - 1;
    }
    return -1;
}

vt_status vocab_add_merge(vocab *v, int32_t a, int32_t b, uint32_t rank, int32_t id, vt_err *err)
{
    TRY(merge_grow(v, (size_t)v->merge_used + 1, err));
    uint32_t mask = (1u << v->merge_bits) - 1, i = vocab_merge_slot(v, (uint32_t)a, (uint32_t)b);
    for (; v->merge[i].a != UINT32_MAX; i = (i + 1) & mask)
        if (v->merge[i].a == (uint32_t)a && v->merge[i].b == (uint32_t)b)
            break;
    if (v->merge[i].a == UINT32_MAX)
        v->merge_used++;
    v->merge[i] = (vocab_merge){(uint32_t)a, (uint32_t)b, rank, (uint32_t)id};
    return VT_OK;
}
