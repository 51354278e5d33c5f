/* One walk of the vocabulary from a lexer state: see machine.h. */
#include <stdlib.h>
#include <string.h>

#include "grammar/machine.h"

enum { FEW = 600, MAX_TAIL_NODES = 64, MAX_TAILS = 8192, MAX_GROUPS = 32 };

typedef struct walk {
    machine *m;
    split *s;
    int32_t *id, n, cap;     /* tokens that stay */
    struct split_exit *exit; /* places where they may leave */
    int32_t n_exits, cap_exits;
    bool failed;
} walk;

static void push_id(walk *w, int32_t id)
{
    if (w->n == w->cap) {
        int32_t cap = w->cap ? 2 * w->cap : 256;
        int32_t *more = realloc(w->id, (size_t)cap * sizeof *more);
        if (!more) {
            w->failed = true;
            return;
        }
        w->id = more;
        w->cap = cap;
    }
    w->id[w->n++] = id;
}

static void push_exit(walk *w, int32_t state, int32_t node)
{
    if (w->n_exits == w->cap_exits) {
        int32_t cap = w->cap_exits ? 2 * w->cap_exits : 64;
        struct split_exit *more = realloc(w->exit, (size_t)cap * sizeof *more);
        if (!more) {
            w->failed = true;
            return;
        }
        w->exit = more;
        w->cap_exits = cap;
    }
    w->exit[w->n_exits++] = (struct split_exit){state, node};
}

static void follow(walk *w, int32_t start)
{
    const trie *t = &w->m->vocab->all;
    int32_t state[TRIE_MAX_DEPTH + 1];
    state[0] = start;
    for (int32_t i = 0; i < t->n && !w->failed && !w->m->failed;) {
        trie_node n = t->node[i];
        int32_t to = machine_lexer_step(w->m, state[n.depth - 1], n.byte);
        if (to == 0) {
            i += (int32_t)n.size;
            continue;
        }
        const lexer_state *s = w->m->lexer[to];
        state[n.depth] = to;
        if (n.entry != TRIE_NONE) {
            for (int32_t k = t->id_from[n.entry]; k < t->id_from[n.entry + 1]; k++)
                push_id(w, t->id[k]);
            w->s->far = s->far > w->s->far ? s->far : w->s->far;
        }
        if (s->n_accept > 0 && n.size > 1)
            push_exit(w, to, i);
        i += s->leaf ? (int32_t)n.size : 1;
    }
}

static int by_state(const void *a, const void *b)
{
    const struct split_exit *x = a, *y = b;
    return x->state != y->state ? (x->state < y->state ? -1 : 1)
                                : (x->node > y->node) - (x->node < y->node);
}

/* Makes a trie of what follows exit[from .. to), which are of one state. */
static bool make_tail(walk *w, int32_t from, int32_t to, trie *out)
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
    bool made = trie_make(out, s, n);
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
    for (int32_t i = 0; i < w->n_exits; i++) { /* the large ones go to the front */
        int32_t size = (int32_t)node[w->exit[i].node].size;
        tails += size;
        if (size <= MAX_TAIL_NODES && tails <= MAX_TAILS)
            continue;
        struct split_exit swap = w->exit[kept];
        w->exit[kept++] = w->exit[i];
        w->exit[i] = swap;
    }
    int32_t n = w->n_exits - kept;
    if (n > 1)
        qsort(w->exit + kept, (size_t)n, sizeof *w->exit, by_state);
    s->tail = vt_calloc(MAX_GROUPS, sizeof *s->tail);
    if (!s->tail)
        return false;
    for (int32_t i = kept, j; i < w->n_exits; i = j) {
        for (j = i; j < w->n_exits && w->exit[j].state == w->exit[i].state; j++)
            ;
        if (s->n_tails == MAX_GROUPS || j - i < 3) {
            for (int32_t k = i; k < j; k++)
                w->exit[kept++] = w->exit[k];
            continue;
        }
        s->tail[s->n_tails].state = w->exit[i].state;
        if (!make_tail(w, i, j, &s->tail[s->n_tails].tail))
            return false;
        s->n_tails++;
    }
    s->exit = w->exit;
    s->n_exits = kept;
    w->exit = NULL;
    return true;
}

static bool keep_ids(walk *w)
{
    split *s = w->s;
    if (w->n <= FEW) {
        s->id = w->id;
        s->n = w->n;
        w->id = NULL;
        return true;
    }
    s->bits = vt_calloc((size_t)w->m->vocab->n_words, sizeof *s->bits);
    for (int32_t i = 0; s->bits && i < w->n; i++)
        s->bits[w->id[i] / 32] |= 1u << w->id[i] % 32;
    return s->bits != NULL;
}

static size_t split_bytes(const split *s, const vt_grammar_vocab *v)
{
    size_t n = sizeof *s + (s->bits ? (size_t)v->n_words * 4 : 0) + (size_t)s->n * 4 +
               (size_t)s->n_exits * sizeof *s->exit;
    for (int32_t i = 0; i < s->n_tails; i++)
        n += trie_bytes(&s->tail[i].tail);
    return n;
}

void split_free(split *s, const vt_grammar_vocab *v)
{
    (void)v;
    free(s->bits);
    free(s->id);
    for (int32_t i = 0; i < s->n_tails; i++)
        trie_release(&s->tail[i].tail);
    free(s->tail);
    free(s->exit);
    free(s);
}

split *machine_split(machine *m, int32_t lexer)
{
    if (m->lexer[lexer]->split)
        return m->lexer[lexer]->split;
    walk w = {.m = m, .s = vt_calloc(1, sizeof *w.s)};
    bool made = w.s != NULL;
    if (made) {
        follow(&w, lexer);
        made = !w.failed && keep_ids(&w) && group_exits(&w);
    }
    free(w.id);
    free(w.exit);
    if (!made || m->failed) {
        if (w.s)
            split_free(w.s, m->vocab);
        m->failed = m->failed ? m->failed : "out of memory";
        return NULL;
    }
    w.s->next = m->splits;
    m->splits = w.s;
    m->split_bytes += split_bytes(w.s, m->vocab);
    if (m->split_bytes > VT_GRAMMAR_MAX_BYTES) {
        m->failed = "the grammar's states take more than 64 MiB";
        return NULL;
    }
    return m->lexer[lexer]->split = w.s;
}
