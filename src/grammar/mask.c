/* The tokens that may come in a config: see machine.h. */
#include <stdlib.h>
#include <string.h>

#include "grammar/machine.h"

enum { NOT_BITS = 4096 };

typedef struct gather {
    machine *m;
    mask_part *part;
    int32_t n_parts, cap_parts;
    int32_t *id, n, cap;
    int32_t far; /* bytes that end the answer behind any of these tokens, at most */
    bool failed;
    /* tokens that a string with exceptions does not allow, and a bit for the end of each one's id,
     * which tells of nearly all others that they are none of them */
    int32_t * not, n_not, cap_not;
    uint64_t maybe_not[NOT_BITS / 64];
} gather;

static bool grow(void *array, int32_t n, int32_t *cap, size_t size)
{
    void **at = array;
    if (n < *cap)
        return true;
    int32_t more = *cap ? 2 * *cap : 16;
    void *p = realloc(*at, (size_t)more * size);
    if (!p)
        return false;
    *at = p;
    *cap = more;
    return true;
}

static void note_far(gather *g, int32_t far) { g->far = far > g->far ? far : g->far; }

static void add_part(gather *g, const mask_part *p)
{
    if (!p->bits && p->n == 0)
        return;
    note_far(g, p->far);
    if (!grow(&g->part, g->n_parts, &g->cap_parts, sizeof *g->part))
        g->failed = true;
    else
        g->part[g->n_parts++] = *p;
}

static bool is_excepted(const gather *g, int32_t id)
{
    int32_t end = id % NOT_BITS;
    if (g->n_not == 0 || !(g->maybe_not[end / 64] >> end % 64 & 1))
        return false;
    for (int32_t i = 0; i < g->n_not; i++)
        if (g->not [i] == id)
            return true;
    return false;
}

/* Adds the tokens of an entry, which lead to a config. */
static void add_ids(gather *g, const trie *t, int32_t entry, int32_t to)
{
    note_far(g, machine_least(g->m, to));
    for (int32_t k = t->id_from[entry]; k < t->id_from[entry + 1]; k++) {
        if (is_excepted(g, t->id[k]))
            continue;
        if (!grow(&g->id, g->n, &g->cap, sizeof *g->id))
            g->failed = true;
        else
            g->id[g->n++] = t->id[k];
    }
}

/* Adds the tokens at nodes [from, to) of a trie whose bytes the grammar can follow from a config.
 * `above`: the depth of the nodes' parent. */
static void walk(gather *g, const trie *t, int32_t from, int32_t to, int32_t above, int32_t start)
{
    int32_t state[TRIE_MAX_DEPTH + 1], walked = 0;
    state[above] = start;
    for (int32_t i = from; i < to && !g->m->failed && !g->failed; walked++) {
        trie_node n = t->node[i];
        int32_t next = machine_step(g->m, state[n.depth - 1], n.byte);
        if (next == 0) {
            i += (int32_t)n.size;
            continue;
        }
        state[n.depth] = next;
        if (n.entry != TRIE_NONE)
            add_ids(g, t, (int32_t)n.entry, next);
        i++;
    }
    (void)machine_spend_nodes(g->m, walked);
}

/* The same for the nodes below one, whose children are known by their bytes. */
static void walk_children(gather *g, const trie *t, const int32_t *child, int32_t start)
{
    uint64_t live[4];
    machine_live(g->m, start, live);
    for (int i = 0; i < 4; i++)
        for (uint64_t left = live[i]; left && !g->m->failed; left &= left - 1) {
            int32_t at = child[64 * i + __builtin_ctzll(left)];
            if (at >= 0)
                walk(g, t, at, at + (int32_t)t->node[at].size, 1, start);
        }
}

static void walk_tail(gather *g, const trie *t, int32_t start)
{
    if (start == 0)
        return;
    if (t->empty >= 0)
        add_ids(g, t, t->empty, start);
    walk(g, t, 0, t->n, 0, start);
}

/* ---- strings ---- */

static void note_not(gather *g, int32_t id)
{
    if (!grow(&g->not, g->n_not, &g->cap_not, sizeof *g->not )) {
        g->failed = true;
        return;
    }
    g->not [g->n_not++] = id;
    g->maybe_not[id % NOT_BITS / 64] |= UINT64_C(1) << id % 64;
}

/* Notes the tokens that begin with a text. */
static void note_except(gather *g, const rx_node *text)
{
    const vt_grammar_vocab *v = g->m->vocab;
    int32_t at = grammar_vocab_find(v, text->data, text->n);
    for (int32_t i = at; at >= 0 && i < at + (int32_t)v->all.node[at].size; i++) {
        uint32_t entry = v->all.node[i].entry;
        for (int32_t k = entry == TRIE_NONE ? 0 : v->all.id_from[entry];
             entry != TRIE_NONE && k < v->all.id_from[entry + 1]; k++)
            note_not(g, v->all.id[k]);
    }
}

static void add_string(gather *g, const pair *p, const lexer_slot *slot, seed_use *use)
{
    machine *m = g->m;
    const rx_node *except = use->except;
    const rx *kid = except && except->kind == RX_KIND_ALT ? except->data : NULL;
    int32_t behind = machine_way(m, p->frontier, slot->lexeme)->least;
    int32_t start = machine_behind(m, p->frontier, &slot->lexeme, 1);
    use->part.far += behind;
    use->part.whole_far += behind;
    add_part(g, &use->part);
    if (except && !kid)
        note_except(g, except);
    for (int32_t i = 0; kid && i < except->n; i++)
        note_except(g, rx_at(&m->g.rx, kid[i]));
    for (int32_t i = use->from; i < use->to; i++)
        walk_tail(g, &use->seed->tail[i], start);
    if (g->n_not > 0)
        memset(g->maybe_not, 0, sizeof g->maybe_not);
    g->n_not = 0;
}

/* ---- everything else ---- */

static int32_t most_behind(const machine *m, const pair *p, const lexer_state *s)
{
    int32_t most = 0;
    for (int32_t i = 0; i < s->n; i++) {
        int32_t least = machine_way(m, p->frontier, s->slot[i].lexeme)->least;
        most = least > most ? least : most;
    }
    return most;
}

static void add_split(gather *g, const pair *p, int32_t lexer)
{
    machine *m = g->m;
    const trie *t = &m->vocab->all;
    const split_use *use = machine_split(m, lexer);
    if (!use)
        return;
    const split *s = use->s;
    mask_part part = {.bits = s->bits,
                      .id = s->id,
                      .n = s->n,
                      .far = s->far + m->lexer[lexer]->farther +
                             most_behind(m, p, m->lexer[lexer])};
    add_part(g, &part);
    for (int32_t i = 0; i < s->n_tails && !m->failed; i++) {
        const lexer_state *from = m->lexer[use->state[i]];
        walk_tail(g, &s->tail[i].tail,
                  machine_behind(m, p->frontier, from->accept, from->n_accept));
    }
    for (int32_t i = 0; i < s->n_exits && !m->failed; i++) {
        const lexer_state *from = m->lexer[use->state[s->n_tails + i]];
        int32_t at = s->exit[i];
        int32_t start = machine_behind(m, p->frontier, from->accept, from->n_accept);
        const int32_t *child = t->node[at].depth == 1 ? m->vocab->below_child[t->node[at].byte]
                                                      : NULL;
        if (start && child)
            walk_children(g, t, child, start);
        else if (start)
            walk(g, t, at + 1, at + (int32_t)t->node[at].size, t->node[at].depth, start);
    }
}

/* Divides the slots of a state that are no plain strings into states of their own: texts that are
 * fixed, as names, together, and everything else for itself, because whitespace, numbers and
 * patterns come again beside other names. */
static bool divide(machine *m, lexer_state *s, const lexer_slot *other, int32_t n)
{
    enum { MANY = 4 };
    int32_t fixed = 0, state[MANY + 1], n_states = 0;
    lexer_slot few[16], *text = n <= 16 ? few : vt_calloc((size_t)n, sizeof *text);
    if (!text)
        return false;
    for (int32_t i = 0; i < n; i++)
        if (rx_at(&m->g.rx, other[i].rest)->kind == RX_KIND_STRING)
            text[fixed++] = other[i];
    bool apart = n > 1 && n - fixed <= MANY;
    for (int32_t i = 0; apart && i < n; i++)
        if (rx_at(&m->g.rx, other[i].rest)->kind != RX_KIND_STRING)
            state[n_states++] = machine_lexer(m, &other[i], 1);
    if (!apart && n > 0)
        state[n_states++] = machine_lexer(m, other, n);
    else if (apart && fixed > 0)
        state[n_states++] = machine_lexer(m, text, fixed);
    if (text != few)
        free(text);
    int32_t *parts = vt_arena_alloc(&m->arena, (size_t)n_states + 1, sizeof *parts);
    for (int32_t i = 0; parts && i < n_states; i++)
        parts[i] = state[i];
    if (!parts || !machine_is_well(m))
        return false;
    s->apart = parts;
    s->n_apart = n_states;
    return true;
}

/* Strings of any characters share their walk. */
static void add_pair(gather *g, const pair *p)
{
    machine *m = g->m;
    lexer_state *s = m->lexer[p->lexer];
    lexer_slot few[16], *other = s->n <= 16 ? few : vt_calloc((size_t)s->n, sizeof *other);
    int32_t n = 0;
    if (!other) {
        g->failed = true;
        return;
    }
    for (int32_t i = 0; i < s->n; i++) {
        seed_use use;
        lexer_slot slot = s->slot[i];
        if (seed_find(m, slot.lexeme, slot.rest, &use))
            add_string(g, p, &slot, &use);
        else
            other[n++] = slot;
    }
    if (s->n_apart < 0 && (!machine_is_well(m) || !divide(m, s, other, n)))
        g->failed = true;
    if (other != few)
        free(other);
    for (int32_t i = 0; i < s->n_apart && !m->failed; i++)
        add_split(g, p, s->apart[i]);
}

const config_mask *machine_mask(machine *m, int32_t id)
{
    config *c = m->config[id];
    if (c->mask)
        return c->mask;
    gather g = {.m = m};
    for (int32_t i = 0; i < c->n && !m->failed && !g.failed; i++)
        add_pair(&g, &c->pair[i]);
    config_mask *mask = vt_arena_alloc(&m->arena, 1, sizeof *mask);
    mask_part *part = vt_arena_alloc(&m->arena, (size_t)g.n_parts + 1, sizeof *part);
    int32_t *ids = vt_arena_alloc(&m->arena, (size_t)g.n + 1, sizeof *ids);
    bool ok = machine_is_well(m) && mask && part && ids && !g.failed;
    if (ok) {
        if (g.n_parts > 0)
            memcpy(part, g.part, (size_t)g.n_parts * sizeof *part);
        if (g.n > 0)
            memcpy(ids, g.id, (size_t)g.n * sizeof *ids);
        *mask = (config_mask){
            .part = part, .id = ids, .n_parts = g.n_parts, .n = g.n, .far = g.far};
        c->mask = mask;
    } else if (!m->failed) {
        m->failed = "the grammar's states take more than 64 MiB";
    }
    free(g.part);
    free(g.id);
    free(g.not );
    return ok ? mask : NULL;
}

/* ---- near the end ---- */

static bool ends_within(machine *m, int32_t id, int32_t token, int32_t most)
{
    const vt_grammar_vocab *v = m->vocab;
    int32_t to = machine_run(m, id, v->bytes + v->from[token], grammar_piece_len(v, token));
    return to && machine_least(m, to) <= most;
}

static void set(uint32_t *words, int32_t id) { words[id / 32] |= 1u << id % 32; }

/* Sets the bits of those of some tokens behind which the answer can be ended. */
static void set_within(machine *m, int32_t id, int32_t most, const uint32_t *some, uint32_t *words,
                       int32_t n_words)
{
    int32_t n = 0;
    for (int32_t w = 0; w < n_words; w++)
        for (uint32_t left = some[w] & ~words[w]; left && !m->failed; left &= left - 1, n++)
            if (ends_within(m, id, 32 * w + __builtin_ctz(left), most))
                set(words, 32 * w + __builtin_ctz(left));
    (void)machine_spend_nodes(m, n);
}

/* Each token is looked at once, however many parts of the mask have it. */
void machine_mask_within(machine *m, int32_t id, int32_t most, uint32_t *words, int32_t n_words)
{
    const config_mask *mask = machine_mask(m, id);
    uint32_t *some = vt_calloc((size_t)n_words + 1, sizeof *some);
    if (!some && !m->failed)
        m->failed = rx_no_memory;
    for (int32_t p = 0; mask && some && p < mask->n_parts; p++) {
        const mask_part *part = &mask->part[p];
        bool all = part->far <= most;
        if (!all && part->whole && part->whole_far <= most) {
            for (int32_t w = 0; w < n_words; w++)
                words[w] |= part->bits[w] & part->whole[w];
            continue;
        }
        if (!all && part->whole) /* a string: its shortest end is too long behind any of them */
            continue;
        uint32_t *to = all ? words : some;
        for (int32_t w = 0; part->bits && w < n_words; w++)
            to[w] |= part->bits[w];
        for (int32_t i = 0; i < part->n; i++)
            set(to, part->id[i]);
    }
    for (int32_t i = 0; mask && some && i < mask->n; i++)
        set(some, mask->id[i]);
    if (mask && some)
        set_within(m, id, most, some, words, n_words);
    free(some);
}
