/* Added tokens: cutting "<|im_start|>" and its like out of a text.
 *
 * A byte trie, searched from every position: leftmost match first, longest at that place, as the
 * Aho-Corasick automaton of Hugging Face is set up. The table for the first byte makes ordinary
 * text cost one look-up a byte.
 */
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer/tokenizer_internal.h"

vt_status added_trie_add(added_trie *t, const char *content, size_t len, int32_t token, vt_err *err)
{
    int32_t *link = &t->root[(unsigned char)content[0]];
    for (size_t i = 0;; i++) {
        unsigned char b = (unsigned char)content[i];
        while (*link && t->node[*link].byte != b)
            link = &t->node[*link].sibling;
        if (!*link) {
            if (t->n + 1 >= t->cap) {
                int32_t cap = t->cap ? t->cap * 2 : 256;
                ptrdiff_t at = t->node && (char *)link >= (char *)t->node &&
                                       (char *)link < (char *)(t->node + t->cap)
                                   ? (char *)link - (char *)t->node
                                   : -1;
                added_node *grown = cap > 1 << 26 ? NULL
                                                  : realloc(t->node, (size_t)cap * sizeof *grown);
                if (!grown)
                    return tok_no_memory(err);
                t->node = grown;
                t->cap = cap;
                if (at >= 0)
                    link = (int32_t *)(void *)((char *)grown + at);
            }
            if (t->n == 0)
                t->n = 1; /* node 0 means none */
            t->node[t->n] = (added_node){.byte = b};
            *link = t->n++;
        }
        if (i + 1 == len) {
            if (!t->node[*link].token)
                t->node[*link].token = token + 1;
            return VT_OK;
        }
        link = &t->node[*link].child;
    }
}

void added_trie_release(added_trie *t)
{
    free(t->node);
    *t = (added_trie){0};
}

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

bool added_find(const added_trie *t, const added_token *tokens, const char *text, size_t n,
                size_t from, size_t *search, bool special, added_match *m)
{
    if (!t->n)
        return false;
    for (size_t at = *search; at < n; at++) {
        int32_t node = t->root[(unsigned char)text[at]], found = 0;
        size_t stop = at;
        for (size_t i = at; node;) {
            if (t->node[node].token) {
                found = t->node[node].token;
                stop = i + 1;
            }
            if (++i == n)
                break;
            for (node = t->node[node].child; node && t->node[node].byte != (unsigned char)text[i];)
                node = t->node[node].sibling;
        }
        if (!found)
            continue;
        const added_token *token = &tokens[found - 1];
        *search = stop;
        size_t start = at;
        at = stop - 1;
        if (token->special && !special)
            continue;
        uint32_t c;
        if (token->single_word) {
            bool left = char_before(text, start, &c) && (vt_uprop_of(c).flags & VT_U_WORD);
            bool right = char_at(text, n, stop, &c) && (vt_uprop_of(c).flags & VT_U_WORD);
            if (left || right)
                continue;
        }
        if (token->lstrip)
            while (start > from && char_before(text, start, &c) && is_space(c))
                start -= (size_t)vt_utf8_put(c, (char[4]){0});
        if (token->rstrip)
            while (char_at(text, n, stop, &c) && is_space(c))
                stop += (size_t)vt_utf8_put(c, (char[4]){0});
        *m = (added_match){start, stop, token};
        return true;
    }
    return false;
}
