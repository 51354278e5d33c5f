/* One sequence's place in its grammar. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "grammar/internal.h"

struct vt_matcher {
    vt_grammar *g;
    int32_t most;                      /* tokens; 0: any number */
    int32_t taken;                     /* tokens so far */
    bool ended;                        /* by an end token */
    bool hurried;                      /* calls that would take long are broken off */
    bool late;                         /* as the last one was */
    bool too_large;                    /* its grammar had met a limit when it was last called */
    int32_t back[VT_MATCHER_BACK + 1]; /* the last configs, a ring; the newest at taken */
    vt_matcher_cost cost;
};

enum { RING = VT_MATCHER_BACK + 1, NOT_NEAR = INT32_MIN };

static int32_t at(const vt_matcher *m) { return m->back[m->taken % RING]; }

vt_matcher *vt_matcher_new(vt_grammar *g, int32_t most)
{
    vt_matcher *m = vt_calloc(1, sizeof *m);
    if (!m)
        return NULL;
    m->g = vt_grammar_ref(g);
    m->most = most;
    m->back[0] = g->m.start;
    return m;
}

void vt_matcher_free(vt_matcher *m)
{
    if (!m)
        return;
    vt_grammar_unref(m->g);
    free(m);
}

void vt_matcher_hurry(vt_matcher *m, bool on) { m->hurried = on; }

bool vt_matcher_is_late(const vt_matcher *m) { return m->late; }

bool vt_matcher_is_too_large(const vt_matcher *m) { return m->too_large; }

/* Begins a call of the grammar's machine. False: it is broken off at once. */
static bool enter(vt_matcher *m)
{
    m->late = !grammar_enter(m->g, m->hurried);
    return !m->late;
}

static void leave(vt_matcher *m)
{
    m->late = grammar_leave(m->g);
    m->too_large = __atomic_load_n(&m->g->failed, __ATOMIC_RELAXED);
}

vt_status vt_grammar_begin(vt_grammar *g, int32_t most, vt_err *err)
{
    int32_t n_words = g->m.vocab->n_words;
    vt_matcher *m = vt_matcher_new(g, most);
    uint32_t *words = vt_calloc((size_t)n_words, sizeof *words);
    vt_status status = m && words ? VT_OK
                                  : vt_fail(err, VT_ERR_MEMORY, "out of memory for a grammar");
    if (status == VT_OK && !vt_matcher_mask(m, words, n_words) && vt_matcher_is_too_large(m))
        status = vt_fail(err, rx_failure(g->m.failed),
                         "the grammar is too large to be followed: %s", g->m.failed);
    free(words);
    vt_matcher_free(m);
    return status;
}

/* Returns the bytes that the end may be away behind the next token; NOT_NEAR: behind any token of
 * the mask there is time. */
static int32_t room_behind(const vt_matcher *m, machine *k, const config_mask *mask)
{
    int32_t left = m->most - m->taken, least = machine_least(k, at(m));
    if (m->most <= 0 || least > left)
        return NOT_NEAR;
    /* one token for the next, and one for the end token where there is room for it */
    int32_t room = least + 1 <= left - 1 || least == 0 ? left - 2 : left - 1;
    return mask->far <= room ? NOT_NEAR : room;
}

/* Returns true if the end has more bytes than tokens are left: then only counting its tokens tells
 * whether there is time. */
static bool counts_tokens(const vt_matcher *m, machine *k)
{
    return m->most > 0 && machine_least(k, at(m)) > m->most - m->taken;
}

static void set_all(const config_mask *mask, uint32_t *words, int32_t n_words)
{
    bool first = true;
    for (int32_t p = 0; p < mask->n_parts; p++) {
        const mask_part *part = &mask->part[p];
        if (part->bits && first)
            memcpy(words, part->bits, (size_t)n_words * sizeof *words);
        for (int32_t w = 0; part->bits && !first && w < n_words; w++)
            words[w] |= part->bits[w];
        first = first && !part->bits;
    }
    for (int32_t p = 0; p < mask->n_parts; p++)
        for (int32_t i = 0; i < mask->part[p].n; i++)
            words[mask->part[p].id[i] / 32] |= 1u << mask->part[p].id[i] % 32;
    for (int32_t i = 0; i < mask->n; i++)
        words[mask->id[i] / 32] |= 1u << mask->id[i] % 32;
}

static bool any_bit(const uint32_t *words, int32_t n)
{
    for (int32_t w = 0; w < n; w++)
        if (words[w])
            return true;
    return false;
}

/* Returns true if the state had been seen before. */
static bool make_mask(vt_matcher *m, uint32_t *words, int32_t n)
{
    machine *k = &m->g->m;
    bool cached = k->config[at(m)]->mask != NULL;
    const config_mask *mask = machine_mask(k, at(m));
    int32_t room = mask ? room_behind(m, k, mask) : NOT_NEAR;
    bool near = mask && room != NOT_NEAR;
    bool tokens = mask && !near && counts_tokens(m, k) &&
                  machine_mask_in_time(k, at(m), m->most - m->taken, words, n);
    if (near)
        machine_mask_within(k, at(m), room, words, n);
    else if (mask && !tokens)
        set_all(mask, words, n);
    m->cost.n_closing += (near || tokens) && machine_is_well(k);
    if (k->config[at(m)]->can_end)
        for (int32_t i = 0; i < k->vocab->n_eos; i++)
            if (k->vocab->eos[i] < 32 * n)
                words[k->vocab->eos[i] / 32] |= 1u << k->vocab->eos[i] % 32;
    /* a vocabulary without the one token that would be in time: any that the grammar allows */
    if ((near || tokens) && !k->failed && !any_bit(words, n))
        set_all(mask, words, n);
    return cached;
}

bool vt_matcher_mask(vt_matcher *m, uint32_t *words, int32_t n_words)
{
    machine *k = &m->g->m;
    int64_t begin = vt_now_ns();
    m->late = false;
    if (m->ended || n_words < k->vocab->n_words || !enter(m))
        return false;
    bool cached = !k->failed && make_mask(m, words, k->vocab->n_words);
    leave(m);
    int64_t took = vt_now_ns() - begin;
    m->cost.n += !m->late;
    m->cost.n_cached += !m->late && cached;
    m->cost.ns += took;
    m->cost.worst_ns = took > m->cost.worst_ns ? took : m->cost.worst_ns;
    return !m->late && !m->too_large && any_bit(words, n_words);
}

static bool is_end(const vt_grammar_vocab *v, int32_t token)
{
    for (int32_t i = 0; i < v->n_eos; i++)
        if (v->eos[i] == token)
            return true;
    return false;
}

bool vt_matcher_take(vt_matcher *m, int32_t token)
{
    machine *k = &m->g->m;
    const vt_grammar_vocab *v = k->vocab;
    m->late = false;
    if (m->ended || token < 0 || token >= v->n || !enter(m))
        return false;
    int32_t here = at(m), to = 0;
    bool end = is_end(v, token) && k->config[here]->can_end;
    if (!k->failed && !end && grammar_piece_len(v, token) > 0)
        to = machine_run(k, here, v->bytes + v->from[token], grammar_piece_len(v, token));
    leave(m);
    if (!end && (m->late || to == 0))
        return false;
    m->taken++;
    m->back[m->taken % RING] = end ? here : to;
    m->ended = end;
    return true;
}

bool vt_matcher_begin(vt_matcher *m, const char *bytes, int32_t n)
{
    machine *k = &m->g->m;
    if (!enter(m))
        return false;
    int32_t to = k->failed ? 0 : machine_run(k, at(m), bytes, n);
    leave(m);
    if (m->late || to == 0)
        return false;
    m->back[m->taken % RING] = to;
    return true;
}

/* Clears the bits of the tokens at a node whose last n bytes may not come. */
static int32_t forbid_at(machine *k, int32_t node, int32_t above, uint32_t *words, int32_t n_words)
{
    const vt_grammar_vocab *v = k->vocab;
    uint32_t entry = v->all.node[node].entry;
    int32_t cleared = 0;
    for (int32_t i = entry == TRIE_NONE ? 0 : v->all.id_from[entry];
         entry != TRIE_NONE && i < v->all.id_from[entry + 1]; i++) {
        int32_t id = v->all.id[i], n = grammar_piece_len(v, id) - above;
        if (id / 32 >= n_words || machine_run(k, k->start, v->bytes + v->from[id] + above, n))
            continue;
        words[id / 32] &= ~(1u << id % 32);
        cleared++;
    }
    return cleared;
}

int32_t vt_grammar_forbid(vt_grammar *g, bool hurried, const char *bytes, int32_t n,
                          uint32_t *words, int32_t n_words)
{
    const vt_grammar_vocab *v = g->m.vocab;
    int32_t from = grammar_vocab_find(v, bytes, n), cleared = 0;
    if (from < 0)
        return 0;
    if (!grammar_enter(g, hurried))
        return VT_GRAMMAR_LATE;
    for (int32_t i = from + 1; i < from + (int32_t)v->all.node[from].size; i++)
        cleared += forbid_at(&g->m, i, n, words, n_words);
    return grammar_leave(g) ? VT_GRAMMAR_LATE : cleared;
}

void vt_matcher_undo(vt_matcher *m, int32_t n)
{
    if (n <= 0 || n > VT_MATCHER_BACK || n > m->taken)
        return;
    m->taken -= n;
    m->ended = false;
}

bool vt_matcher_accepts(vt_matcher *m)
{
    pthread_mutex_lock(&m->g->lock);
    bool can = m->g->m.config[at(m)]->can_end;
    pthread_mutex_unlock(&m->g->lock);
    return can;
}

int32_t vt_matcher_least(vt_matcher *m)
{
    pthread_mutex_lock(&m->g->lock);
    int32_t least = machine_least(&m->g->m, at(m));
    pthread_mutex_unlock(&m->g->lock);
    return least;
}

vt_matcher_cost vt_matcher_spent(const vt_matcher *m) { return m->cost; }
