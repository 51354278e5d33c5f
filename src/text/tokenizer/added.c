/* Added tokens: cutting "<|im_start|>" and its like out of a text.
 *
 * A byte trie, searched from every position: the leftmost match first, the longest at that place,
 * as the Aho-Corasick automaton of Hugging Face is set up.
 *
 *   first['<'] -> 1 -'|'-> 2 -'s'-> 3 ...      edges: hash table of (node, byte) -> node
 *
 * The table for the first byte makes ordinary text cost one look-up a byte. The other edges are
 * kept in one hash table with a secret seed: with a list of children per node, a file could make
 * each step cost 255 visits.
 *
 * A hostile file can still make every position walk deep (a token of 4,000 a's and a b, a text of
 * a's). Edges followed are therefore counted against a budget in proportion to the text, and a text
 * that exceeds it is refused. An Aho-Corasick automaton would be linear; it was not taken since the
 * rules for matches that are passed over (below) depend on the text around them.
 */
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "text/tokenizer/internal.h"

enum { TRIE_MAX_NODES = 1 << 24 }; /* a node and a byte fit into an edge's 32-bit key */

static uint32_t edge_slot(const added_trie *t, uint32_t key)
{
    return (uint32_t)vt_mix64(vt_mix64(key ^ t->seed) + t->seed) & t->edge_mask;
}

/* The node after `node` for byte b; 0: none. */
static uint32_t edge_find(const added_trie *t, uint32_t node, unsigned char b)
{
    uint32_t key = node << 8 | b;
    for (uint32_t i = edge_slot(t, key); t->edge[i].to; i = (i + 1) & t->edge_mask)
        if (t->edge[i].key == key)
            return t->edge[i].to;
    return 0;
}

uint32_t added_trie_next(const added_trie *t, uint32_t node, unsigned char b)
{
    return node ? edge_find(t, node, b) : t->first[b];
}

static void edge_put(added_trie *t, added_edge e)
{
    uint32_t i = edge_slot(t, e.key);
    while (t->edge[i].to)
        i = (i + 1) & t->edge_mask;
    t->edge[i] = e;
}

/* Makes room for one more edge: the table stays at most half full. */
static bool edges_grow(added_trie *t)
{
    size_t size = t->edge ? (size_t)t->edge_mask + 1 : 0;
    if ((size_t)t->n_edge * 2 < size)
        return true;
    size_t want = size ? size * 2 : 256;
    added_edge *old = t->edge, *grown = vt_calloc(want, sizeof *grown);
    if (!grown)
        return false;
    t->edge = grown;
    t->edge_mask = (uint32_t)(want - 1);
    for (size_t i = 0; i < size; i++)
        if (old[i].to)
            edge_put(t, old[i]);
    free(old);
    return true;
}

/* A new node, and room for the edge to it. */
static vt_status node_new(added_trie *t, uint32_t *node, vt_err *err)
{
    if (t->n + 1 >= t->cap) {
        int32_t cap = t->cap ? t->cap * 2 : 256;
        if (cap > TRIE_MAX_NODES)
            return vt_fail(err, VT_ERR_UNSUPPORTED, "tokenizer: pieces of more than %d bytes",
                           TRIE_MAX_NODES);
        int32_t *grown = realloc(t->token, (size_t)cap * sizeof *grown);
        if (!grown)
            return tok_no_memory(err);
        t->token = grown;
        t->cap = cap;
    }
    if (t->n == 0) { /* node 0 means none */
        t->n = 1;
        t->seed = vt_hash_seed();
    }
    if (!edges_grow(t))
        return tok_no_memory(err);
    t->token[t->n] = 0;
    *node = (uint32_t)t->n++;
    return VT_OK;
}

vt_status added_trie_add(added_trie *t, const char *content, size_t len, int32_t token, vt_err *err)
{
    uint32_t node = t->first[(unsigned char)content[0]];
    if (!node) {
        TRY(node_new(t, &node, err));
        t->first[(unsigned char)content[0]] = node;
    }
    for (size_t i = 1; i < len; i++) {
        uint32_t next = edge_find(t, node, (unsigned char)content[i]);
        if (!next) {
            TRY(node_new(t, &next, err));
            edge_put(t, (added_edge){node << 8 | (unsigned char)content[i], next});
            t->n_edge++;
        }
        node = next;
    }
    if (!t->token[node])
        t->token[node] = token + 1;
    return VT_OK;
}

void added_trie_release(added_trie *t)
{
    free(t->token);
    free(t->edge);
    *t = (added_trie){0};
}

/* ---- searching ---- */

/* False at the end and on what is no character (a model may take ill-formed text as it is). */
static bool char_at(const char *text, size_t n, size_t at, uint32_t *c)
{
    if (at >= n || vt_utf8_step(text + at, n - at) <= 0)
        return false;
    vt_utf8_next(text + at, c);
    return true;
}

static bool char_before(const char *text, size_t end, uint32_t *c)
{
    size_t at = end;
    if (at == 0)
        return false;
    do
        at--;
    while (at > 0 && ((unsigned char)text[at] & 0xC0) == 0x80);
    return char_at(text, end, at, c);
}

static bool is_space(uint32_t c) { return vt_uprop_of(c).flags & VT_U_SPACE; }
static bool is_word(uint32_t c) { return vt_uprop_of(c).flags & VT_U_WORD; }

/* The treatment of a token that is spelled at some place. */
typedef enum verdict { TAKE, PASS_OVER, NOT_HERE } verdict;

/* A special token is passed over, all of its spelling, where special tokens are not asked for, and
 * inside a literal range. One that crosses the border of a literal range counts as not there, so
 * that a shorter match in front of the border is still found, and text after it is still looked
 * at: a literal text cannot hide the special token beside it by completing a longer spelling. */
static verdict judge(const added_search *s, const added_token *token, size_t start, size_t stop)
{
    if (!token->special)
        return TAKE;
    if (!s->special)
        return PASS_OVER;
    if (s->n_literal == 0 || s->literal->begin >= stop) /* the first range that ends after start */
        return TAKE;
    return s->literal->begin <= start && stop <= s->literal->end ? PASS_OVER : NOT_HERE;
}

/* The longest token that is spelled at s->at, not counting those that are NOT_HERE; NULL: none. */
static const added_token *longest_at(added_search *s, size_t *stop, verdict *v)
{
    const added_trie *t = s->trie;
    const added_token *found = NULL;
    uint32_t node = t->first[(unsigned char)s->text[s->at]];
    for (size_t i = s->at + 1; node; i++) {
        if (t->token[node]) {
            const added_token *token = &s->tokens[t->token[node] - 1];
            verdict here = judge(s, token, s->at, i);
            if (here != NOT_HERE) {
                found = token;
                *stop = i;
                *v = here;
            }
        }
        if (i == s->n || *s->steps == 0)
            break;
        --*s->steps;
        node = edge_find(t, node, (unsigned char)s->text[i]);
    }
    return found;
}

/* Widens a match over the spaces beside it. False if nothing is left of it: the match before has
 * taken that text with its rstrip. */
static bool strip(const added_search *s, const added_token *token, size_t *start, size_t *stop)
{
    uint32_t c;
    if (token->rstrip)
        while (char_at(s->text, s->n, *stop, &c) && is_space(c))
            *stop += (size_t)vt_utf8_put(c, (char[4]){0});
    if (!token->lstrip)
        return true;
    while (*start > s->from && char_before(s->text, *start, &c) && is_space(c))
        *start -= (size_t)vt_utf8_put(c, (char[4]){0});
    if (*start < s->from)
        *start = s->from;
    return *start < *stop;
}

/* single_word: a match beside a word character does not count. */
static bool inside_word(const added_search *s, size_t start, size_t stop)
{
    uint32_t c;
    return (char_before(s->text, start, &c) && is_word(c)) ||
           (char_at(s->text, s->n, stop, &c) && is_word(c));
}

int added_next(added_search *s, added_match *m)
{
    if (!s->trie->n)
        return 0;
    while (s->at < s->n) {
        if (!s->trie->first[(unsigned char)s->text[s->at]]) {
            s->at++;
            continue;
        }
        while (s->n_literal && s->literal->end <= s->at) {
            s->literal++;
            s->n_literal--;
        }
        size_t start = s->at, stop = start + 1;
        verdict v = PASS_OVER;
        const added_token *token = longest_at(s, &stop, &v);
        if (*s->steps == 0)
            return -1;
        s->at = stop; /* spaces that rstrip takes are looked at again, as Hugging Face does */
        if (v == PASS_OVER || (token->single_word && inside_word(s, start, stop)) ||
            !strip(s, token, &start, &stop))
            continue;
        *m = (added_match){start, stop, token};
        s->from = stop;
        return 1;
    }
    return 0;
}
