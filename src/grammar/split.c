/* One walk of the vocabulary from a lexer state, which grammars share: see machine.h.
 *
 * The whitespace, numbers and many patterns of one schema are those of the next. What tokens do
 * from such a state does not depend on the grammar, so the walk is done once for all of them and
 * its split kept on the vocabulary's shelf, under the hash of what may follow in the state, which
 * is the same in every grammar.
 *
 *   grammar 1   use -> states 4, 9 -.
 *                                    +-> split <- shelf[hash]
 *   grammar 2   use -> states 7, 3 -'
 *
 * Only the numbers of the lexer states behind its exits are a grammar's own; the bytes of a token
 * lead to each. The shelf is emptied as a clock runs: a place that nobody has asked for since the
 * hand came by is freed. */
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "grammar/machine.h"

enum { FEW = 600, MAX_TAIL_NODES = 64, MAX_TAILS = 8192, MAX_GROUPS = 32 };

/* More tokens than these take longer by themselves than a walk of the trie, which reads their
 * beginnings once, but subtrees of others as well. */
enum { MANY = 30000, MANY_ASCII = 3000 };

/* A place where tokens may leave. */
typedef struct place {
    int32_t state, node;
} place;

/* A token that may leave, where it was followed by itself. */
typedef struct leaving {
    int32_t state;
    trie_string rest; /* of the token */
} leaving;

typedef struct walk {
    machine *m;
    split *s;
    int32_t *id, n, cap; /* tokens that stay */
    place *exit;         /* where they may leave */
    leaving *leaving;
    int32_t *tail_state; /* of the split's tails */
    int32_t n_exits, cap_exits, n_leaving, cap_leaving;
    bool failed;
} walk;

/* Room for one more in an array. */
static bool room(walk *w, void *array, int32_t n, int32_t *cap, size_t size)
{
    void **at = array;
    if (n < *cap)
        return true;
    int32_t to = *cap ? 2 * *cap : 128;
    void *more = realloc(*at, (size_t)to * size);
    if (!more) {
        w->failed = true;
        return false;
    }
    *at = more;
    *cap = to;
    return true;
}

static void push_id(walk *w, int32_t id)
{
    if (room(w, &w->id, w->n, &w->cap, sizeof *w->id))
        w->id[w->n++] = id;
}

static void push_exit(walk *w, int32_t state, int32_t node)
{
    if (room(w, &w->exit, w->n_exits, &w->cap_exits, sizeof *w->exit))
        w->exit[w->n_exits++] = (place){state, node};
}

static void push_leaving(walk *w, int32_t state, const char *rest, int32_t n, int32_t id)
{
    if (room(w, &w->leaving, w->n_leaving, &w->cap_leaving, sizeof *w->leaving))
        w->leaving[w->n_leaving++] = (leaving){state, {rest, n, id}};
}

/* ---- states that nearly all characters lead to ----
 *
 * Inside most strings nearly every character leads to one state, and from there back to it: in
 * ".*[0-9]{5}.*" all but digits do. Tokens of such characters only end there, and are found by what
 * characters tokens hold; the walk leaves out the subtrees that have no others. */

typedef struct home {
    int32_t state;   /* 0: none */
    int32_t via;     /* where the first character may lead, the second then to `state` */
    char_bits chars; /* they lead from the start to `via` or to it, and from both of these to it */
} home;

/* True if these bytes all lead from a state to another. */
static bool all_lead(machine *m, int32_t from, int first, int last, int32_t to)
{
    for (int b = first; b <= last; b++)
        if (!from || machine_lexer_step(m, from, b) != to)
            return false;
    return true;
}

bool split_wide_lead(machine *m, int32_t s, int32_t to)
{
    int32_t one = machine_lexer_step(m, s, 0xC2), two = machine_lexer_step(m, s, 0xE1);
    int32_t three = machine_lexer_step(m, s, 0xF1), lines = machine_lexer_step(m, s, 0xE2);
    int32_t line = lines ? machine_lexer_step(m, lines, 0x80) : 0;
    return all_lead(m, s, 0xC2, 0xDF, one) && all_lead(m, one, 0x80, 0xBF, to) &&
           two == machine_lexer_step(m, s, 0xE3) && all_lead(m, s, 0xE4, 0xEC, two) &&
           all_lead(m, s, 0xEE, 0xEF, two) && all_lead(m, two, 0x80, 0xBF, one) &&
           all_lead(m, lines, 0x81, 0xBF, one) && all_lead(m, line, 0x80, 0xA7, to) &&
           all_lead(m, line, 0xAA, 0xBF, to) &&
           all_lead(m, machine_lexer_step(m, s, 0xE0), 0xA0, 0xBF, one) &&
           all_lead(m, machine_lexer_step(m, s, 0xED), 0x80, 0x9F, one) &&
           all_lead(m, s, 0xF1, 0xF3, three) && all_lead(m, three, 0x80, 0xBF, two) &&
           all_lead(m, machine_lexer_step(m, s, 0xF0), 0x90, 0xBF, two) &&
           all_lead(m, machine_lexer_step(m, s, 0xF4), 0x80, 0x8F, two);
}

static bool leads_home(machine *m, int32_t start, const home *h, int b)
{
    int32_t to = machine_lexer_step(m, start, b);
    return (to == h->state || to == h->via) && machine_lexer_step(m, h->via, b) == h->state &&
           machine_lexer_step(m, h->state, b) == h->state;
}

static bool wide_leads_home(machine *m, int32_t start, const home *h)
{
    return (split_wide_lead(m, start, h->state) || split_wide_lead(m, start, h->via)) &&
           split_wide_lead(m, h->via, h->state) && split_wide_lead(m, h->state, h->state);
}

/* The state that two blanks lead to, or two "e", or two "0": one of them is in most sets. None if
 * few characters lead to it, or if a lexeme may end there. */
static home home_of(machine *m, int32_t s)
{
    enum { FEW_CHARACTERS = 24 };
    static const char often[] = " e0";
    const lexer_state *from = machine_lexer_made(m, s);
    int count = 0;
    for (int i = 0; from && i < 4; i++)
        count += __builtin_popcountll(from->live[i]);
    for (int i = 0; count >= FEW_CHARACTERS && i < 3; i++) {
        home h = {.via = machine_lexer_step(m, s, often[i])};
        h.state = h.via ? machine_lexer_step(m, h.via, often[i]) : 0;
        int n = 0;
        if (!h.state || m->lexer[h.state]->n_accept > 0 || m->lexer[h.via]->n_accept > 0)
            continue;
        for (int b = CHARS_WIDE + 1; b < 128; b++) {
            if (!leads_home(m, s, &h, b))
                continue;
            h.chars.bit[b / 64] |= UINT64_C(1) << b % 64;
            n++;
        }
        if (n < FEW_CHARACTERS)
            continue;
        if (wide_leads_home(m, s, &h))
            h.chars.bit[0] |= UINT64_C(1) << CHARS_WIDE;
        return h;
    }
    return (home){0};
}

static bool set_home(walk *w, const home *h)
{
    const vt_grammar_vocab *v = w->m->vocab;
    const lexer_state *at = w->m->lexer[h->state], *via = w->m->lexer[h->via];
    w->s->bits = vt_calloc((size_t)v->n_words + 1, sizeof *w->s->bits);
    if (!w->s->bits)
        return false;
    grammar_vocab_of(v, h->chars, w->s->bits);
    w->s->far = at->far > via->far ? at->far : via->far;
    return true;
}

/* ---- the walk ---- */

/* Notes a token or a place where it may leave, at a node that leads to a state. */
static void note(walk *w, trie_node n, int32_t at, int32_t to)
{
    const trie *t = &w->m->vocab->all;
    const lexer_state *s = w->m->lexer[to];
    w->s->deepest = (int32_t)n.depth > w->s->deepest ? (int32_t)n.depth : w->s->deepest;
    if (n.entry != TRIE_NONE) {
        for (int32_t k = t->id_from[n.entry]; k < t->id_from[n.entry + 1]; k++)
            push_id(w, t->id[k]);
        w->s->far = s->far > w->s->far ? s->far : w->s->far;
    }
    if (s->n_accept > 0 && n.size > 1)
        push_exit(w, to, at);
}

static void follow_children(walk *w, const home *h, int32_t *state, int depth,
                            const int32_t *child);

/* Follows the nodes [from, to); state[] has the states of the nodes above. */
static void follow_nodes(walk *w, const home *h, int32_t *state, int32_t from, int32_t to)
{
    const trie_node *node = w->m->vocab->all.node;
    const char_bits *below = w->m->vocab->below;
    for (int32_t i = from; i < to && !w->failed && !w->m->failed;) {
        trie_node n = node[i];
        w->s->nodes++;
        int32_t before = state[n.depth - 1];
        int32_t next = machine_lexer_step(w->m, before, n.byte);
        bool from_home = h->state && (before == h->state || before == h->via || n.depth == 1);
        if (next == 0 || (from_home && chars_within(below[i], h->chars))) {
            i += (int32_t)n.size;
            continue;
        }
        state[n.depth] = next;
        note(w, n, i, next);
        if (n.depth == 1 && w->m->vocab->below_child[n.byte] && !w->m->lexer[next]->leaf)
            follow_children(w, h, state, 1, w->m->vocab->below_child[n.byte]);
        else if (!w->m->lexer[next]->leaf) {
            i++;
            continue;
        }
        i += (int32_t)n.size;
    }
}

/* Follows the children, by their bytes, of a node at a depth, for the bytes that lead on. */
static void follow_children(walk *w, const home *h, int32_t *state, int depth, const int32_t *child)
{
    const trie_node *node = w->m->vocab->all.node;
    const lexer_state *s = machine_lexer_made(w->m, state[depth]);
    for (int i = 0; s && i < 4; i++)
        for (uint64_t left = s->live[i]; left; left &= left - 1) {
            int32_t at = child[64 * i + __builtin_ctzll(left)];
            if (at >= 0)
                follow_nodes(w, h, state, at, at + (int32_t)node[at].size);
        }
}

/* ---- tokens by themselves, where all but few are known ---- */

static void run_token(walk *w, int32_t id, int32_t state)
{
    const vt_grammar_vocab *v = w->m->vocab;
    const char *bytes = v->bytes + v->from[id];
    int32_t n = grammar_piece_len(v, id);
    w->s->nodes += n;
    for (int32_t i = 0; i < n; i++) {
        state = machine_lexer_step(w->m, state, (unsigned char)bytes[i]);
        if (state == 0)
            return;
        const lexer_state *s = w->m->lexer[state];
        w->s->deepest = i + 1 > w->s->deepest ? i + 1 : w->s->deepest;
        if (i + 1 == n) {
            push_id(w, id);
            w->s->far = s->far > w->s->far ? s->far : w->s->far;
        } else if (s->n_accept > 0) {
            push_leaving(w, state, bytes + i + 1, n - i - 1, id);
        }
        if (s->leaf)
            return;
    }
}

/* Runs those of some tokens that do not lead home. False: they are more than `most`. */
static bool run_tokens(walk *w, int32_t start, const uint32_t *some, int32_t most)
{
    enum { AHEAD = 8 };
    const vt_grammar_vocab *v = w->m->vocab;
    const uint32_t *sure = w->s->bits;
    int32_t n = 0;
    for (int32_t i = 0; i < v->n_words; i++)
        n += __builtin_popcount(some[i] & ~sure[i]);
    if (n > most)
        return false;
    int32_t ahead[AHEAD] = {0}, k = 0; /* their bytes are on the way */
    for (int32_t i = 0; i < v->n_words && !w->failed && !w->m->failed; i++)
        for (uint32_t left = some[i] & ~sure[i]; left; left &= left - 1, k++) {
            int32_t id = 32 * i + __builtin_ctz(left);
            if (k >= AHEAD)
                run_token(w, ahead[k % AHEAD], start);
            __builtin_prefetch(v->bytes + v->from[id]);
            ahead[k % AHEAD] = id;
        }
    for (int32_t i = k > AHEAD ? k - AHEAD : 0; i < k; i++)
        run_token(w, ahead[i % AHEAD], start);
    return true;
}

/* Finds the ASCII characters that the strings of a state hold, but for the quote that ends them.
 * False: a string has others, or does not end with a quote. */
static bool ascii_of(const machine *m, const lexer_state *s, char_bits *chars)
{
    uint64_t bytes[4] = {0};
    *chars = (char_bits){{0}};
    for (int32_t i = 0; i < s->n; i++)
        if (rx_at(&m->g.rx, s->slot[i].rest)->kind != RX_KIND_CLOSE ||
            !rx_bytes(&m->g.rx, s->slot[i].rest, bytes))
            return false;
    for (int b = 0; b < 128; b++)
        if (b != '"' && byte_in(bytes, b))
            grammar_vocab_char(chars, b);
    return !bytes[2] && !bytes[3] && !(chars->bit[0] >> CHARS_ODD & 1);
}

/* Sets the bits of the tokens that hold a character of a set that does not lead home. False: these
 * characters are many. */
static bool set_away(const vt_grammar_vocab *v, const home *h, const char_bits *chars,
                     uint32_t *bits)
{
    enum { MANY_CHARACTERS = 5 };
    const uint64_t away[2] = {chars->bit[0] & ~h->chars.bit[0], chars->bit[1] & ~h->chars.bit[1]};
    if (__builtin_popcountll(away[0]) + __builtin_popcountll(away[1]) >= MANY_CHARACTERS)
        return false;
    for (int i = 0; i < 2; i++)
        for (uint64_t left = away[i]; left; left &= left - 1)
            grammar_vocab_add(v, 0, 64 * i + __builtin_ctzll(left), bits);
    return true;
}

/* In strings of ASCII characters of which nearly all lead home: tokens with one of the others are
 * run by themselves; those with a quote have a small trie. False: the state has other strings. */
static bool follow_ascii(walk *w, const home *h, int32_t start)
{
    const vt_grammar_vocab *v = w->m->vocab;
    int32_t state[TRIE_MAX_DEPTH + 1];
    char_bits chars;
    if (!ascii_of(w->m, w->m->lexer[start], &chars))
        return false;
    uint32_t *away = vt_calloc((size_t)v->n_words + 1, sizeof *away);
    w->failed |= !away;
    bool run = away && set_away(v, h, &chars, away) && run_tokens(w, start, away, MANY_ASCII);
    free(away);
    state[0] = start;
    for (int32_t i = 0; run && i < v->n_quoted && !w->failed && !w->m->failed;) {
        trie_node n = v->quoted[i];
        int32_t next = machine_lexer_step(w->m, state[n.depth - 1], n.byte);
        w->s->nodes++;
        if (next) {
            state[n.depth] = next;
            note(w, n, v->quoted_at[i], next);
        }
        i += next && !w->m->lexer[next]->leaf ? 1 : (int32_t)n.size;
    }
    return run;
}

static int by_leaving(const void *a, const void *b)
{
    const leaving *x = a, *y = b;
    return (x->state > y->state) - (x->state < y->state);
}

static bool make_tails(walk *w, int32_t most)
{
    w->s->tail = vt_calloc((size_t)most, sizeof *w->s->tail);
    w->tail_state = vt_calloc((size_t)most, sizeof *w->tail_state);
    return w->s->tail && w->tail_state;
}

/* Makes a trie of what follows each state where tokens may leave. */
static bool group_leaving(walk *w)
{
    split *s = w->s;
    int32_t n = w->n_leaving, groups = 0;
    if (n == 0)
        return true;
    qsort(w->leaving, (size_t)n, sizeof *w->leaving, by_leaving);
    for (int32_t i = 0; i < n; i++)
        groups += i == 0 || w->leaving[i].state != w->leaving[i - 1].state;
    trie_string *rest = vt_calloc((size_t)n, sizeof *rest);
    bool ok = rest && make_tails(w, groups);
    for (int32_t i = 0, j; ok && i < n; i = j) {
        for (j = i; j < n && w->leaving[j].state == w->leaving[i].state; j++)
            rest[j - i] = w->leaving[j].rest;
        int32_t token = rest[0].id, depth = grammar_piece_len(w->m->vocab, token) - rest[0].len;
        w->tail_state[s->n_tails] = w->leaving[i].state;
        s->tail[s->n_tails] = (struct split_tail){.token = token, .depth = depth};
        ok = trie_make(&s->tail[s->n_tails].tail, rest, j - i);
        s->n_tails += ok;
    }
    free(rest);
    return ok;
}

static void follow(walk *w, int32_t start)
{
    int32_t state[TRIE_MAX_DEPTH + 1];
    home h = home_of(w->m, start);
    if (h.state && !set_home(w, &h)) {
        w->failed = true;
        return;
    }
    if (h.state && (follow_ascii(w, &h, start) || run_tokens(w, start, w->m->vocab->text, MANY)))
        return;
    state[0] = start;
    follow_children(w, &h, state, 0, w->m->vocab->child);
}

static int by_state(const void *a, const void *b)
{
    const place *x = a, *y = b;
    return x->state != y->state ? (x->state < y->state ? -1 : 1)
                                : (x->node > y->node) - (x->node < y->node);
}

/* Makes a trie of what follows exit[from .. to), which are of one state. */
static bool make_tail(walk *w, int32_t from, int32_t to, struct split_tail *out)
{
    const vt_grammar_vocab *v = w->m->vocab;
    trie_string *s = NULL;
    int32_t n = 0, cap = 0;
    for (int32_t e = from; e < to; e++) {
        int32_t at = w->exit[e].node, end = at + (int32_t)v->all.node[at].size;
        int32_t depth = v->all.node[at].depth;
        for (int32_t i = at + 1; i < end; i++) {
            uint32_t entry = v->all.node[i].entry;
            if (entry == TRIE_NONE)
                continue;
            for (int32_t k = v->all.id_from[entry]; k < v->all.id_from[entry + 1]; k++) {
                int32_t id = v->all.id[k];
                if (n == cap) {
                    cap = cap ? 2 * cap : 256;
                    trie_string *more = realloc(s, (size_t)cap * sizeof *more);
                    if (!more) {
                        free(s);
                        return false;
                    }
                    s = more;
                }
                s[n++] = (trie_string){v->bytes + v->from[id] + depth,
                                       grammar_piece_len(v, id) - depth, id};
            }
        }
    }
    out->token = s[0].id; /* a subtree has a token at its end */
    out->depth = grammar_piece_len(v, s[0].id) - s[0].len;
    bool made = trie_make(&out->tail, s, n);
    free(s);
    return made;
}

/* Small subtrees behind one state share much: they become one trie. Large ones stay where they
 * are, and are walked there. */
static bool group_exits(walk *w)
{
    const trie_node *node = w->m->vocab->all.node;
    split *s = w->s;
    int32_t kept = 0, tails = 0;
    if (w->n_exits == 0)
        return group_leaving(w);
    for (int32_t i = 0; i < w->n_exits; i++) { /* the large ones go to the front */
        int32_t size = (int32_t)node[w->exit[i].node].size;
        tails += size;
        if (size <= MAX_TAIL_NODES && tails <= MAX_TAILS)
            continue;
        place swap = w->exit[kept];
        w->exit[kept++] = w->exit[i];
        w->exit[i] = swap;
    }
    int32_t n = w->n_exits - kept;
    if (n > 1)
        qsort(w->exit + kept, (size_t)n, sizeof *w->exit, by_state);
    if (!make_tails(w, MAX_GROUPS))
        return false;
    for (int32_t i = kept, j; i < w->n_exits; i = j) {
        for (j = i; j < w->n_exits && w->exit[j].state == w->exit[i].state; j++)
            ;
        if (s->n_tails == MAX_GROUPS || j - i < 3) {
            for (int32_t k = i; k < j; k++)
                w->exit[kept++] = w->exit[k];
            continue;
        }
        w->tail_state[s->n_tails] = w->exit[i].state;
        if (!make_tail(w, i, j, &s->tail[s->n_tails]))
            return false;
        s->n_tails++;
    }
    s->exit = vt_calloc((size_t)kept + 1, sizeof *s->exit);
    for (int32_t i = 0; s->exit && i < kept; i++)
        s->exit[i] = w->exit[i].node;
    s->n_exits = s->exit ? kept : 0;
    return s->exit != NULL;
}

static bool keep_ids(walk *w)
{
    split *s = w->s;
    if (!s->bits && w->n <= FEW) {
        s->id = w->id;
        s->n = w->n;
        w->id = NULL;
        return true;
    }
    if (!s->bits)
        s->bits = vt_calloc((size_t)w->m->vocab->n_words, sizeof *s->bits);
    for (int32_t i = 0; s->bits && i < w->n; i++)
        s->bits[w->id[i] / 32] |= 1u << w->id[i] % 32;
    return s->bits != NULL;
}

/* ---- what all grammars share, and what is one's own ---- */

static uint64_t hash_of(const machine *m, int32_t lexer)
{
    const lexer_state *s = m->lexer[lexer];
    uint64_t hash = 0; /* a sum: the order of lexemes is a grammar's own */
    for (int32_t i = 0; i < s->n; i++)
        hash += vt_mix64(rx_at(&m->g.rx, s->slot[i].rest)->hash);
    return vt_mix64(hash);
}

size_t split_bytes(const split *s, const vt_grammar_vocab *v)
{
    size_t n = sizeof *s + (s->bits ? (size_t)v->n_words * 4 : 0) + (size_t)s->n * 4 +
               (size_t)s->n_exits * sizeof *s->exit;
    for (int32_t i = 0; i < s->n_tails; i++)
        n += trie_bytes(&s->tail[i].tail);
    return n;
}

static split *split_ref(split *s)
{
    __atomic_add_fetch(&s->refs, 1, __ATOMIC_RELAXED);
    return s;
}

void split_unref(split *s)
{
    if (!s || __atomic_sub_fetch(&s->refs, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    free(s->bits);
    free(s->id);
    for (int32_t i = 0; i < s->n_tails; i++)
        trie_release(&s->tail[i].tail);
    free(s->tail);
    free(s->exit);
    free(s);
}

/* Keeps a split for a grammar, which takes over the caller's reference. NULL: m->failed. */
static split_use *keep(machine *m, split *s)
{
    size_t n = (size_t)s->n_tails + (size_t)s->n_exits;
    split_use *u = vt_calloc(1, sizeof *u + n * sizeof *u->state);
    if (!u) {
        split_unref(s);
        m->failed = m->failed ? m->failed : rx_no_memory;
        return NULL;
    }
    u->s = s;
    u->next = m->splits;
    m->splits = u;
    m->split_bytes += sizeof *u + n * sizeof *u->state;
    uint64_t hash = vt_mix64((uint64_t)(uintptr_t)s); /* a bijection: no other has this hash */
    int64_t at = -1;
    if (!idmap_next(&m->kept, hash, &at)) { /* many states may have it; it counts once */
        m->split_bytes += split_bytes(s, m->vocab);
        if (!idmap_put(&m->kept, hash, 1)) {
            m->failed = m->failed ? m->failed : rx_no_memory;
            return NULL;
        }
    }
    if (m->split_bytes > VT_GRAMMAR_MAX_BYTES) {
        m->failed = "the grammar's states take more than 64 MiB";
        return NULL;
    }
    return u;
}

static int32_t behind(machine *m, int32_t state, int32_t token, int32_t depth)
{
    const vt_grammar_vocab *v = m->vocab;
    const char *bytes = v->bytes + v->from[token];
    for (int32_t i = 0; i < depth && state; i++)
        state = machine_lexer_step(m, state, (unsigned char)bytes[i]);
    return state;
}

/* A token that begins with the bytes of a node. */
static int32_t token_below(const trie *t, int32_t node)
{
    while (t->node[node].entry == TRIE_NONE) /* a leaf has an entry */
        node++;
    return t->id[t->id_from[t->node[node].entry]];
}

/* Finds the states of this grammar behind the exits of a split. */
static bool find_states(machine *m, int32_t lexer, split_use *u)
{
    const split *s = u->s;
    const trie *t = &m->vocab->all;
    bool found = true;
    for (int32_t i = 0; found && i < s->n_tails; i++) {
        u->state[i] = behind(m, lexer, s->tail[i].token, s->tail[i].depth);
        found = u->state[i] != 0;
    }
    for (int32_t i = 0; found && i < s->n_exits; i++) {
        int32_t node = s->exit[i];
        int32_t *to = &u->state[s->n_tails + i];
        *to = behind(m, lexer, token_below(t, node), (int32_t)t->node[node].depth);
        found = *to != 0;
    }
    return found;
}

/* ---- the shelf ---- */

static struct shelf_place *places(shelf *f, uint64_t hash)
{
    return &f->place[hash % (SHELF_PLACES / SHELF_SIDE) * SHELF_SIDE];
}

static void clear(shelf *f, struct shelf_place *p, const vt_grammar_vocab *v)
{
    if (p->split && --p->split->shelved == 0)
        f->bytes -= split_bytes(p->split, v);
    split_unref(p->split);
    *p = (struct shelf_place){0};
}

void shelf_release(shelf *f)
{
    for (int32_t i = 0; i < SHELF_PLACES; i++)
        split_unref(f->place[i].split);
    pthread_mutex_destroy(&f->lock);
}

/* The split of an equal state that is on the shelf, in this grammar; NULL: there is none, or
 * m->failed. Sets the state's `farther`. */
static split_use *find_shared(machine *m, int32_t lexer)
{
    shelf *f = &m->vocab->shelf;
    uint64_t hash = hash_of(m, lexer);
    struct shelf_place *p = places(f, hash);
    split *s = NULL;
    pthread_mutex_lock(&f->lock);
    for (int i = 0; i < SHELF_SIDE && !s; i++)
        if (p[i].split && p[i].hash == hash) {
            p[i].used = true;
            s = split_ref(p[i].split);
            m->lexer[lexer]->farther = p[i].farther;
        }
    pthread_mutex_unlock(&f->lock);
    split_use *u = s ? keep(m, s) : NULL;
    return u && find_states(m, lexer, u) ? u : NULL;
}

/* Puts a state's split on the shelf. */
static void put_shared(machine *m, int32_t lexer, split *s)
{
    shelf *f = &m->vocab->shelf;
    uint64_t hash = hash_of(m, lexer);
    struct shelf_place *p = places(f, hash), *to = NULL;
    size_t bytes = split_bytes(s, m->vocab);
    if (bytes > SHELF_BYTES / 16)
        return;
    pthread_mutex_lock(&f->lock);
    for (int i = 0; i < SHELF_SIDE && !to; i++)
        to = !p[i].split || p[i].hash == hash ? &p[i] : NULL;
    for (int i = 0; i < SHELF_SIDE && !to; i++)
        to = p[i].used ? NULL : &p[i];
    to = to ? to : p;
    for (int i = 0; i < SHELF_SIDE; i++)
        p[i].used = false;
    clear(f, to, m->vocab);
    *to = (struct shelf_place){hash, split_ref(s), m->lexer[lexer]->farther, true};
    f->bytes += s->shelved++ == 0 ? bytes : 0;
    while (f->bytes > SHELF_BYTES) {
        struct shelf_place *old = &f->place[f->hand];
        f->hand = (f->hand + 1) % SHELF_PLACES;
        if (old->used)
            old->used = false;
        else
            clear(f, old, m->vocab);
    }
    pthread_mutex_unlock(&f->lock);
}

/* The walk from a state, kept for the grammar. */
static split_use *walked(machine *m, int32_t lexer)
{
    walk w = {.m = m, .s = vt_calloc(1, sizeof *w.s)};
    split_use *u = NULL;
    bool made = w.s != NULL;
    if (made) {
        w.s->refs = 1;
        w.s->longest = -1;
        follow(&w, lexer);
        (void)machine_spend_nodes(m, w.s->nodes);
        made = !w.failed && keep_ids(&w) && group_exits(&w);
    }
    if (!machine_is_well(m) || !made) {
        split_unref(w.s);
        m->failed = m->failed ? m->failed : rx_no_memory;
    } else {
        u = keep(m, w.s);
    }
    for (int32_t i = 0; u && i < w.s->n_tails; i++)
        u->state[i] = w.tail_state[i];
    for (int32_t i = 0; u && i < w.s->n_exits; i++)
        u->state[w.s->n_tails + i] = w.exit[i].state;
    free(w.id);
    free(w.exit);
    free(w.leaving);
    free(w.tail_state);
    return u;
}

const split_use *machine_split(machine *m, int32_t lexer)
{
    enum { WORTH_NODES = 32 };
    lexer_state *s = m->lexer[lexer];
    split_use *u = s->split ? s->split : find_shared(m, lexer);
    if (u || m->failed)
        return s->split = u;
    u = split_uncounted(m, lexer);
    bool counted = u != NULL;
    if (!u && !m->failed)
        u = walked(m, lexer);
    if (!machine_is_well(m))
        return NULL;
    if (u && (counted || u->s->nodes >= WORTH_NODES))
        put_shared(m, lexer, u->s);
    return s->split = u;
}
