#include "grammar/store.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/random.h"

enum {
    MAX_ENTRIES = 1024,
    MAX_REFUSALS = 128, /* kept apart, so that they put out no grammar */
    REFUSAL_BYTES = 4 << 20
};

/* Newest first. A grammar that is in use besides stays alive through its own reference. */
typedef struct entry {
    struct entry *next;
    vt_grammar *g;   /* NULL: the text was refused */
    vt_err *refusal; /* for this; else NULL */
    uint64_t hash;
    size_t len, bytes;
    vt_grammar_kind kind;
    char text[]; /* [len] */
} entry;

struct vt_grammar_store {
    const vt_tokenizer *tokenizer;
    int32_t n_ids;
    vt_grammar_vocab *vocab; /* NULL: not made yet */
    pthread_mutex_t lock;    /* of the list and the counts */
    pthread_mutex_t making;  /* of the vocabulary */
    entry *first;
    vt_grammar_store_stats stats;
};

vt_grammar_store *vt_grammar_store_new(const vt_tokenizer *t, int32_t n_ids)
{
    vt_grammar_store *s = vt_calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->tokenizer = t;
    s->n_ids = n_ids;
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->making, NULL);
    return s;
}

static void drop(entry *e)
{
    vt_grammar_unref(e->g);
    free(e->refusal);
    free(e);
}

void vt_grammar_store_free(vt_grammar_store *s)
{
    if (!s)
        return;
    while (s->first) {
        entry *e = s->first;
        s->first = e->next;
        drop(e);
    }
    vt_grammar_vocab_free(s->vocab);
    pthread_mutex_destroy(&s->lock);
    pthread_mutex_destroy(&s->making);
    free(s);
}

static vt_status get_vocab(vt_grammar_store *s, vt_grammar_vocab **out, vt_err *err)
{
    vt_status status = VT_OK;
    pthread_mutex_lock(&s->making);
    if (!s->vocab)
        status = vt_grammar_vocab_new(s->tokenizer, s->n_ids, &s->vocab, err);
    pthread_mutex_unlock(&s->making);
    *out = s->vocab;
    return status;
}

/* Finds an entry and puts it to the front. One that has grown too large, or has met a limit, goes:
 * who uses it keeps it, and the next request gets a fresh one. */
static entry *find(vt_grammar_store *s, vt_grammar_kind kind, uint64_t hash, const char *text,
                   size_t len)
{
    for (entry **p = &s->first; *p; p = &(*p)->next) {
        entry *e = *p;
        if (e->hash != hash || e->kind != kind || e->len != len || memcmp(e->text, text, len) != 0)
            continue;
        *p = e->next;
        if (e->g && vt_grammar_is_worn(e->g)) {
            drop(e);
            return NULL;
        }
        e->next = s->first;
        return s->first = e;
    }
    return NULL;
}

/* Drops the oldest beyond the limits. */
static void trim(vt_grammar_store *s)
{
    static const size_t most_bytes[2] = {VT_GRAMMAR_STORE_BYTES, REFUSAL_BYTES};
    static const int32_t most[2] = {MAX_ENTRIES, MAX_REFUSALS};
    size_t bytes[2] = {0};
    int32_t n[2] = {0};
    for (entry **p = &s->first; *p;) {
        entry *e = *p;
        int k = e->g ? 0 : 1;
        e->bytes = e->g ? vt_grammar_bytes(e->g) : sizeof *e + sizeof *e->refusal + e->len;
        if (n[k] > 0 && (bytes[k] + e->bytes > most_bytes[k] || n[k] == most[k])) {
            *p = e->next;
            drop(e);
            continue;
        }
        bytes[k] += e->bytes;
        n[k]++;
        p = &e->next;
    }
    s->stats.bytes = bytes[0];
    s->stats.n = n[0];
}

/* A grammar, or why there is none. */
static void keep(vt_grammar_store *s, vt_grammar_kind kind, uint64_t hash, const char *text,
                 size_t len, vt_grammar *g, const vt_err *refusal)
{
    entry *e = vt_calloc(1, sizeof *e + len);
    vt_err *why = refusal ? vt_calloc(1, sizeof *why) : NULL;
    if (!e || (refusal && !why)) {
        free(e);
        free(why);
        return; /* it is compiled again next time */
    }
    if (refusal)
        *why = *refusal;
    *e = (entry){
        .g = g ? vt_grammar_ref(g) : NULL, .refusal = why, .hash = hash, .len = len, .kind = kind};
    if (len > 0)
        memcpy(e->text, text, len);
    pthread_mutex_lock(&s->lock);
    e->next = s->first;
    s->first = e;
    trim(s);
    pthread_mutex_unlock(&s->lock);
}

static uint64_t hash_of(vt_grammar_kind kind, const char *text, size_t len)
{
    return vt_mix64(vt_fnv1a(VT_FNV_OFFSET ^ vt_hash_seed(), text, len) + kind);
}

bool vt_grammar_store_has(vt_grammar_store *s, vt_grammar_kind kind, const char *text, size_t len)
{
    uint64_t hash = hash_of(kind, text, len);
    pthread_mutex_lock(&s->lock);
    bool has = find(s, kind, hash, text, len) != NULL;
    pthread_mutex_unlock(&s->lock);
    return has;
}

/* Returns true for a mistake of the text, which the next request with it has too. */
static bool is_refusal(const vt_err *why) { return why->status == VT_ERR_USAGE; }

vt_status vt_grammar_store_get(vt_grammar_store *s, vt_grammar_kind kind, const char *text,
                               size_t len, vt_grammar **out, vt_err *err)
{
    uint64_t hash = hash_of(kind, text, len);
    vt_grammar_vocab *vocab;
    vt_err why = {0};
    pthread_mutex_lock(&s->lock);
    entry *e = find(s, kind, hash, text, len);
    if (e && e->g)
        *out = vt_grammar_ref(e->g);
    else if (e)
        why = *e->refusal;
    s->stats.n_found += e != NULL;
    pthread_mutex_unlock(&s->lock);
    if (e)
        return why.status == VT_OK ? VT_OK : vt_fail(err, why.status, "%s", why.message);
    TRY(get_vocab(s, &vocab, err));
    int64_t begin = vt_now_ns();
    vt_status status = vt_grammar_compile(vocab, kind, text, len, out, &why);
    int64_t took = vt_now_ns() - begin;
    if (status == VT_OK || is_refusal(&why))
        keep(s, kind, hash, text, len, status == VT_OK ? *out : NULL,
             status == VT_OK ? NULL : &why);
    pthread_mutex_lock(&s->lock);
    s->stats.n_compiled += status == VT_OK;
    s->stats.n_refused += status != VT_OK;
    s->stats.compile_ns += took;
    pthread_mutex_unlock(&s->lock);
    return status == VT_OK ? VT_OK : vt_fail(err, status, "%s", why.message);
}

void vt_grammar_store_refuse(vt_grammar_store *s, vt_grammar_kind kind, const char *text,
                             size_t len, const vt_err *why)
{
    if (is_refusal(why))
        keep(s, kind, hash_of(kind, text, len), text, len, NULL, why);
}

vt_grammar_store_stats vt_grammar_store_look(vt_grammar_store *s)
{
    pthread_mutex_lock(&s->lock);
    vt_grammar_store_stats stats = s->stats;
    pthread_mutex_unlock(&s->lock);
    return stats;
}
