/* A trie over byte strings, as one array of nodes in the order of a depth-first walk.
 *
 *   strings   a  ab  ac  b
 *   nodes     a(1) b(2) c(2) b(1)         in brackets the depth
 *   size      3    1    1    1            nodes of the subtree, the node itself included
 *
 * A walk reads the nodes from left to right. Where a node is refused it skips node.size of them, so
 * it needs no stack but one state for each depth. */
#ifndef VT_GRAMMAR_TRIE_H
#define VT_GRAMMAR_TRIE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TRIE_MAX_DEPTH = 255, TRIE_MAX_STRINGS = (1 << 24) - 2, TRIE_SLACK = 8 };

/* Two words keep a node at 8 bytes: 330,000 nodes of a vocabulary are 2.7 MB. */
typedef struct trie_node {
    uint32_t entry : 24, byte : 8; /* entry: which string ends here; TRIE_NONE: none */
    uint32_t size : 24, depth : 8;
} trie_node;

#define TRIE_NONE ((1u << 24) - 1)

typedef struct trie_string {
    const char *bytes; /* borrowed while the trie is made; TRIE_SLACK of them can be read */
    int32_t len;       /* 0 .. TRIE_MAX_DEPTH */
    int32_t id;
} trie_string;

typedef struct trie {
    trie_node *node; /* [n] */
    int32_t n;
    int32_t *id;      /* ids of all entries, one entry's side by side */
    int32_t *id_from; /* [n_entries + 1] where an entry's begin */
    int32_t n_entries;
    int32_t empty; /* the entry of the empty string; -1: none */
} trie;

/* Makes a trie of s[0 .. n). False: out of memory. */
bool trie_make(trie *t, const trie_string *s, int32_t n);
void trie_release(trie *t);
size_t trie_bytes(const trie *t);

#endif
