/* Quoted strings of counted characters.
 *
 * Nearly every token may stand inside a string, so a walk of the vocabulary takes 1 ms. All strings
 * "R{m,n}" over the same characters R share one walk, which notes for each token how many
 * characters it begins. Where n characters are left, tokens of at most n stay inside; those with a
 * closing quote behind i characters leave, if m <= i <= n. */
#include <stdlib.h>
#include <string.h>

#include "grammar/machine.h"

typedef struct seeding {
    machine *m;
    seed *s;
    int32_t start; /* the state at a border of characters */
    char_bits
        plain; /* ASCII, and all beyond it together, that are one character of R as they are */
    /* [vocab->n] other tokens that stay, and how many characters they begin */
    int32_t *id, *need, n;
    bool *whole;
    trie_string *tail; /* [vocab->n] what follows the closing quote */
    int32_t *tail_need, n_tail;
    int32_t most_tail;
} seeding;

static void note_tails(seeding *g, int32_t node, int32_t count)
{
    const vt_grammar_vocab *v = g->m->vocab;
    int32_t depth = v->all.node[node].depth, end = node + (int32_t)v->all.node[node].size;
    for (int32_t i = node; i < end; i++) {
        uint32_t entry = v->all.node[i].entry;
        if (entry == TRIE_NONE)
            continue;
        for (int32_t k = v->all.id_from[entry]; k < v->all.id_from[entry + 1]; k++) {
            int32_t id = v->all.id[k];
            g->tail[g->n_tail] = (trie_string){v->bytes + v->from[id] + depth,
                                               grammar_piece_len(v, id) - depth, id};
            g->tail_need[g->n_tail++] = count;
        }
    }
    g->most_tail = count > g->most_tail ? count : g->most_tail;
}

static bool has(const uint32_t *bits, int32_t id) { return bits[id / 32] >> id % 32 & 1; }

/* Finds the characters that lead from the start back to it. Those beyond ASCII count if their bytes
 * are told from whole characters. */
static char_bits plain_of(machine *m, int32_t start)
{
    char_bits plain = {{0}};
    bool apart = true;
    for (int b = CHARS_WIDE + 1; b < 128; b++)
        if (machine_lexer_step(m, start, b) == start)
            plain.bit[b / 64] |= UINT64_C(1) << b % 64;
    for (int b = 0x80; b < 0xC0; b++)
        apart &= machine_lexer_step(m, start, b) == 0;
    if (apart && split_wide_lead(m, start, start))
        plain.bit[0] |= UINT64_C(1) << CHARS_WIDE;
    return plain;
}

/* Adds the tokens of plain characters. */
static bool set_plain(seeding *g)
{
    const vt_grammar_vocab *v = g->m->vocab;
    seed *s = g->s;
    g->plain = plain_of(g->m, g->start);
    s->all = vt_calloc((size_t)v->n_words + 1, sizeof *s->all);
    s->whole = vt_calloc((size_t)v->n_words + 1, sizeof *s->whole);
    if (!s->all || !s->whole || g->m->failed)
        return false;
    grammar_vocab_of(v, g->plain, s->all);
    memcpy(s->whole, s->all, (size_t)v->n_words * sizeof *s->all);
    for (int32_t w = 0; w < v->n_words && s->far == 0; w++)
        s->far = s->all[w] ? g->m->lexer[g->start]->far : 0;
    return true;
}

/* Walks to the tokens that hold anything else than plain characters, and to the closing quotes. */
static void follow(seeding *g)
{
    const trie *t = &g->m->vocab->all;
    const char_bits *below = g->m->vocab->below;
    int32_t state[TRIE_MAX_DEPTH + 1], count[TRIE_MAX_DEPTH + 1];
    state[0] = g->start;
    count[0] = 0;
    for (int32_t i = 0; i < t->n && !g->m->failed;) {
        trie_node n = t->node[i];
        int32_t from = state[n.depth - 1];
        int32_t to = chars_within(below[i], g->plain) ? 0 : machine_lexer_step(g->m, from, n.byte);
        if (to == 0) {
            i += (int32_t)n.size;
            continue;
        }
        if (g->m->lexer[to]->leaf) { /* the closing quote */
            note_tails(g, i, count[n.depth - 1]);
            i += (int32_t)n.size;
            continue;
        }
        state[n.depth] = to;
        count[n.depth] = count[n.depth - 1] + (from == g->start);
        for (int32_t k = n.entry == TRIE_NONE ? 0 : t->id_from[n.entry];
             n.entry != TRIE_NONE && k < t->id_from[n.entry + 1]; k++) {
            if (has(g->s->all, t->id[k]))
                continue;
            g->need[g->n] = count[n.depth];
            g->whole[g->n] = to == g->start;
            g->id[g->n++] = t->id[k];
            int32_t far = g->m->lexer[to]->far;
            g->s->far = far > g->s->far ? far : g->s->far;
        }
        i++;
    }
}

static void keep_id(seed *s, int32_t id, int32_t need)
{
    s->id[s->upto[need]++] = id; /* upto[need] is where the next one of them goes */
    s->all[id / 32] |= 1u << id % 32;
}

/* Sorts the tokens by the characters that they begin. */
static bool keep_ids(seeding *g)
{
    const vt_grammar_vocab *v = g->m->vocab;
    seed *s = g->s;
    int32_t count[TRIE_MAX_DEPTH + 2] = {0};
    s->n = g->n;
    for (int32_t i = 0; i < g->n; i++)
        count[g->need[i]]++;
    for (int32_t w = 0; w < v->n_words; w++)
        for (uint32_t left = s->whole[w]; left; left &= left - 1, s->n++)
            count[v->chars[32 * w + __builtin_ctz(left)]]++;
    for (int32_t i = 0; i <= TRIE_MAX_DEPTH; i++)
        s->most = count[i] > 0 ? i : s->most;
    s->upto = vt_calloc((size_t)s->most + 2, sizeof *s->upto);
    s->id = vt_calloc((size_t)s->n + 1, sizeof *s->id);
    if (!s->upto || !s->id)
        return false;
    for (int32_t i = 1; i <= s->most + 1; i++)
        s->upto[i] = s->upto[i - 1] + count[i - 1];
    for (int32_t w = 0; w < v->n_words; w++)
        for (uint32_t left = s->whole[w]; left; left &= left - 1) {
            int32_t id = 32 * w + __builtin_ctz(left);
            keep_id(s, id, v->chars[id]);
        }
    for (int32_t i = 0; i < g->n; i++) {
        keep_id(s, g->id[i], g->need[i]);
        if (g->whole[i])
            s->whole[g->id[i] / 32] |= 1u << g->id[i] % 32;
    }
    return true;
}

static bool keep_tails(seeding *g)
{
    seed *s = g->s;
    s->n_tails = g->n_tail > 0 ? g->most_tail + 1 : 0;
    s->tail = vt_calloc((size_t)s->n_tails + 1, sizeof *s->tail);
    trie_string *part = vt_calloc((size_t)g->n_tail + 1, sizeof *part);
    bool ok = s->tail && part;
    for (int32_t c = 0; ok && c < s->n_tails; c++) {
        int32_t n = 0;
        for (int32_t i = 0; i < g->n_tail; i++)
            if (g->tail_need[i] == c)
                part[n++] = g->tail[i];
        ok = trie_make(&s->tail[c], part, n);
    }
    free(part);
    return ok;
}

/* Memory that is written before it is read: zeros for a whole vocabulary take longer than the walk
 * of a small set of characters. */
static void *scratch(size_t n, size_t size)
{
    size_t bytes;
    return vt_mul_size(n, size, &bytes) ? malloc(bytes) : NULL;
}

static seed *make_seed(machine *m, int32_t lexeme, rx character)
{
    size_t n = (size_t)m->vocab->n + 1;
    lexer_slot slot = {lexeme, rx_close(&m->g.rx, rx_repeat(&m->g.rx, character, 0, RX_NO_MOST))};
    seeding g = {.m = m,
                 .s = vt_calloc(1, sizeof *g.s),
                 .start = machine_lexer(m, &slot, 1),
                 .id = scratch(n, sizeof *g.id),
                 .need = scratch(n, sizeof *g.need),
                 .whole = scratch(n, sizeof *g.whole),
                 .tail = scratch(n, sizeof *g.tail),
                 .tail_need = scratch(n, sizeof *g.tail_need)};
    bool ok = g.s && g.id && g.need && g.whole && g.tail && g.tail_need && g.start && set_plain(&g);
    if (ok) {
        follow(&g);
        g.s->hash = rx_at(&m->g.rx, character)->hash;
        ok = machine_is_well(m) && keep_ids(&g) && keep_tails(&g);
    }
    free(g.id);
    free(g.need);
    free(g.whole);
    free(g.tail);
    free(g.tail_need);
    if (!ok) {
        seed_free(g.s);
        m->failed = m->failed ? m->failed : rx_no_memory;
        return NULL;
    }
    return g.s;
}

/* The tokens of at most n characters; n below SEED_MASKS. */
static const uint32_t *mask_of(const vt_grammar_vocab *v, seed *s, int32_t n)
{
    if (n >= s->most)
        return s->all;
    if (!s->mask[n]) {
        uint32_t *bits = vt_calloc((size_t)v->n_words + 1, sizeof *bits);
        for (int32_t i = 0; bits && i < s->upto[n]; i++)
            bits[s->id[i] / 32] |= 1u << s->id[i] % 32;
        s->mask[n] = bits;
    }
    return s->mask[n];
}

/* Looks through the vocabulary's seeds; under its lock. */
static seed *find(machine *m, int32_t lexeme, rx character)
{
    vt_grammar_vocab *v = m->vocab;
    uint64_t hash = rx_at(&m->g.rx, character)->hash;
    for (int32_t i = 0; i < v->n_seeds; i++)
        if (v->seed[i]->hash == hash)
            return v->seed[i];
    if (v->n_seeds == VOCAB_MAX_SEEDS)
        return NULL;
    seed *s = make_seed(m, lexeme, character);
    if (s)
        v->seed[v->n_seeds++] = s;
    return s;
}

/* Fills in the tokens that stay where n characters are left; RX_NO_MOST: any number. */
static bool fill(const vt_grammar_vocab *v, seed *s, int32_t n, mask_part *p)
{
    *p = (mask_part){0};
    if (n == RX_NO_MOST || n >= s->most) {
        p->bits = s->all;
        p->whole = s->whole;
        return true;
    }
    int32_t at = n < SEED_MASKS ? n : SEED_MASKS - 1;
    p->bits = mask_of(v, s, at);
    p->id = s->id + s->upto[at];
    p->n = s->upto[n] - s->upto[at];
    return p->bits != NULL;
}

static bool is_literals(const rx_store *s, rx a)
{
    const rx_node *x = rx_at(s, a);
    const rx *kid = x->data;
    if (x->kind != RX_KIND_ALT)
        return x->kind == RX_KIND_STRING;
    for (int32_t i = 0; i < x->n; i++)
        if (rx_at(s, kid[i])->kind != RX_KIND_STRING)
            return false;
    return true;
}

/* The string that is counted: of "R{m,n}" itself, or of one that may not be some texts. */
static const rx_node *counted(const rx_store *s, rx rest, const rx_node **except)
{
    const rx_node *x = rx_at(s, rest), *string = x->kind == RX_KIND_CLOSE ? x : NULL;
    *except = NULL;
    if (x->kind == RX_KIND_AND && x->n == 2) {
        const rx *kid = x->data;
        const rx_node *a = rx_at(s, kid[0]), *b = rx_at(s, kid[1]);
        const rx_node *close = a->kind == RX_KIND_CLOSE ? a : b, *not = close == a ? b : a;
        if (close->kind != RX_KIND_CLOSE || not ->kind != RX_KIND_NOT || !is_literals(s, not ->a))
            return NULL;
        string = close;
        *except = rx_at(s, not ->a);
    }
    const rx_node *repeat = string ? rx_at(s, string->a) : NULL;
    if (!repeat || repeat->kind != RX_KIND_REPEAT || !rx_at(s, repeat->a)->character ||
        (*except && (repeat->min != 0 || repeat->max != RX_NO_MOST)))
        return NULL;
    return repeat;
}

bool seed_find(machine *m, int32_t lexeme, rx rest, seed_use *out)
{
    const rx_node *except, *found = counted(&m->g.rx, rest, &except);
    if (!found)
        return false;
    rx_node repeat = *found;
    rx character = repeat.a;
    rx_node except_copy = except ? *except : (rx_node){0};
    if (!machine_lock(m, &m->vocab->lock))
        return false;
    seed *s = find(m, lexeme, character);
    *out = (seed_use){.seed = s};
    bool ok = s && fill(m->vocab, s, repeat.max, &out->part);
    pthread_mutex_unlock(&m->vocab->lock);
    if (!ok)
        return false;
    int32_t min = repeat.least > 0 ? repeat.least : 0;
    out->part.far = min + s->far;
    out->part.whole_far = (min > 0 ? min - 1 : 0) + 1; /* a token has one character at least */
    out->from = repeat.min < s->n_tails ? repeat.min : s->n_tails;
    out->to = repeat.max != RX_NO_MOST && repeat.max + 1 < s->n_tails ? repeat.max + 1 : s->n_tails;
    if (except) {
        rx_node *copy = vt_arena_alloc(&m->arena, 1, sizeof *copy);
        if (!copy)
            return false;
        *copy = except_copy;
        out->except = copy;
    }
    return true;
}
