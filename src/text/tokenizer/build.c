/* Building a tokenizer: what the loaders of every format call, from an empty one to the tables that
 * are made when all pieces, merges and added tokens are known.
 *
 * Spellings of a byte-level vocabulary are mapped back to bytes once, here, so that encoding and
 * decoding work on plain bytes; only the few steps that look at mapped text (Falcon's digits after
 * its ByteLevel) see the alphabet.
 */
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer/internal.h"

vt_status tok_new(vt_tokenizer **out, vt_err *err)
{
    vt_tokenizer *t = vt_calloc(1, sizeof *t);
    if (!t)
        return tok_no_memory(err);
    vt_arena_init(&t->arena, 1u << 30);
    vocab_init(&t->vocab);
    vocab_init(&t->spelled);
    t->unk = t->bos = t->eos = -1;
    t->prefix = t->suffix = "";
    *out = t;
    return VT_OK;
}

void vt_tokenizer_free(vt_tokenizer *t)
{
    if (!t)
        return;
    for (int32_t i = 0; i < t->n_norm; i++)
        vt_regex_free(t->norm[i].regex);
    for (int32_t i = 0; i < t->n_pre; i++)
        vt_regex_free(t->pre[i].regex);
    added_trie_release(&t->raw);
    added_trie_release(&t->normalized);
    added_trie_release(&t->pieces);
    vocab_release(&t->vocab);
    vocab_release(&t->spelled);
    free(t->spelled_id);
    free(t->added);
    free(t->added_at);
    vt_arena_release(&t->arena);
    free(t);
}

/* Remembers a spelling that vt_tokenizer_find could not find in the vocabulary. */
static vt_status add_spelled(vt_tokenizer *t, int32_t id, const char *s, size_t n, vt_err *err)
{
    int32_t at = t->spelled.n;
    if (at == t->n_spelled_cap) {
        int32_t cap = at ? at * 2 : 64;
        int32_t *grown = realloc(t->spelled_id, (size_t)cap * sizeof *grown);
        if (!grown)
            return tok_no_memory(err);
        t->spelled_id = grown;
        t->n_spelled_cap = cap;
    }
    TRY(vocab_set(&t->spelled, at, s, n, PIECE_MODEL, err));
    t->spelled_id[at] = id;
    return VT_OK;
}

vt_status tok_set_piece(vt_tokenizer *t, int32_t id, const char *s, size_t n, uint32_t flags,
                        vt_err *err)
{
    vt_status status = VT_OK;
    vt_buf made;
    vt_buf_init(&made, 0);
    if (t->byte_level) {
        if (tok_unmap(s, n, &made)) {
            if (!(flags & PIECE_MODEL))
                status = add_spelled(t, id, s, n, err);
            s = made.data ? made.data : "";
            n = made.len;
        } else {
            flags = (flags & ~(uint32_t)PIECE_MODEL) | PIECE_LITERAL;
            status = add_spelled(t, id, s, n, err);
        }
    } else {
        if (vt_utf8_valid(s, n) != n) {
            vt_utf8_add_lossy(&made, s, n);
            s = made.data;
            n = made.len;
        }
        if (!(flags & PIECE_MODEL))
            status = add_spelled(t, id, s, n, err);
    }
    if (status == VT_OK)
        status = made.failed ? tok_no_memory(err) : vocab_set(&t->vocab, id, s, n, flags, err);
    vt_buf_release(&made);
    return status;
}

/* Makes room for an entry of added_at for this id. */
static bool reach_id(vt_tokenizer *t, int32_t id)
{
    if (id < t->cap_added_at)
        return true;
    int32_t cap = id < 256 ? 512 : id * 2; /* ids are below VOCAB_MAX */
    int32_t *grown = realloc(t->added_at, (size_t)cap * sizeof *grown);
    if (!grown)
        return false;
    memset(grown + t->cap_added_at, 0, (size_t)(cap - t->cap_added_at) * sizeof *grown);
    t->added_at = grown;
    t->cap_added_at = cap;
    return true;
}

vt_status tok_add_added(vt_tokenizer *t, const added_token *a, vt_err *err)
{
    if (a->len == 0)
        return VT_OK;
    if (a->len > TOK_MAX_ADDED)
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "tokenizer: added token %d has %zu bytes, more than %d", a->id, a->len,
                       TOK_MAX_ADDED);
    if (t->n_added == t->cap_added) {
        int32_t cap = t->cap_added ? t->cap_added * 2 : 64;
        added_token *grown = realloc(t->added, (size_t)cap * sizeof *grown);
        if (!grown)
            return tok_no_memory(err);
        t->added = grown;
        t->cap_added = cap;
    }
    if (!reach_id(t, a->id))
        return tok_no_memory(err);
    added_token copy = *a;
    if (t->added_at[a->id]) {
        added_token *first = &t->added[t->added_at[a->id] - 1];
        copy.content = first->content;
        copy.len = first->len;
        *first = copy;
        return VT_OK;
    }
    copy.content = vt_arena_strdup(&t->arena, a->content, a->len);
    if (!copy.content)
        return tok_no_memory(err);
    t->added[t->n_added++] = copy;
    t->added_at[a->id] = t->n_added;
    return VT_OK;
}

static pre_step *new_pre(vt_tokenizer *t)
{
    return t->n_pre < TOK_MAX_STEPS ? &t->pre[t->n_pre++] : NULL;
}

vt_status tok_add_split(vt_tokenizer *t, const char *pattern, split_behaviour behaviour,
                        bool invert, vt_err *err)
{
    pre_step *s = new_pre(t);
    if (!s)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "tokenizer: more than %d pre-tokenizer steps",
                       TOK_MAX_STEPS);
    *s = (pre_step){.kind = PRE_REGEX, .behaviour = behaviour, .invert = invert};
    return vt_regex_compile(pattern, strlen(pattern), &s->regex, err);
}

vt_status tok_add_bytes(vt_tokenizer *t, bool prefix_space, bool use_regex, vt_err *err)
{
    pre_step *s = new_pre(t);
    if (!s)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "tokenizer: more than %d pre-tokenizer steps",
                       TOK_MAX_STEPS);
    *s = (pre_step){.kind = PRE_BYTES, .behaviour = SPLIT_ISOLATED, .prefix_space = prefix_space};
    t->byte_level = true;
    return use_regex ? vt_regex_compile(tok_gpt2_pattern, strlen(tok_gpt2_pattern), &s->regex, err)
                     : VT_OK;
}

void tok_add_eos(vt_tokenizer *t, int32_t id)
{
    for (int32_t i = 0; i < t->n_eos_ids; i++)
        if (t->eos_ids[i] == id)
            return;
    if (id >= 0 && id < t->vocab.n && t->n_eos_ids < TOK_MAX_EOS)
        t->eos_ids[t->n_eos_ids++] = id;
}

/* Tokens that end a turn wherever they occur as special tokens, whatever the file says its eos is:
 * the names that chat models of the known families use (the list is llama.cpp's, which learned it
 * from their files). */
static void add_known_eos(vt_tokenizer *t)
{
    static const char *const names[] = {"<|eot_id|>",
                                        "<|im_end|>",
                                        "<|end|>",
                                        "<|return|>",
                                        "<|call|>",
                                        "<|flush|>",
                                        "<|calls|>",
                                        "<end_of_turn>",
                                        "<|endoftext|>",
                                        "</s>",
                                        "<|eom_id|>",
                                        "<EOT>",
                                        "_<EOT>",
                                        "[EOT]",
                                        "[EOS]",
                                        "<|end_of_text|>",
                                        "<end_of_utterance>",
                                        "<eos>",
                                        "<turn|>",
                                        "<|tool_response>",
                                        ("<\xEF\xBD\x9C"
                                         "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>"),
                                        "[e~["};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int32_t id = vt_tokenizer_find(t, names[i], strlen(names[i]));
        if (id >= 0 && (t->vocab.piece[id].flags & (PIECE_SPECIAL | PIECE_ADDED)))
            tok_add_eos(t, id);
    }
}

static void fill_byte_ids(vt_tokenizer *t)
{
    for (int b = 0; b < 256; b++) {
        char byte = (char)b,
             name[6] = {'<', '0', 'x', "0123456789ABCDEF"[b >> 4], "0123456789ABCDEF"[b & 15], '>'};
        t->byte_id[b] = vocab_find(&t->vocab, &byte, 1);
        t->fallback_id[b] = vt_tokenizer_find(t, name, sizeof name);
    }
}

/* Models that see a whole text as one word (spaces as U+2581) would merge it with a heap over all
 * of it. But where no piece contains "x U+2581", nothing ever merges across such a place, and the
 * word can be cut there: then words are short again, and the cache knows them. */
static void find_cuts(vt_tokenizer *t)
{
    static const char mark[] = "\xE2\x96\x81";
    t->cut_marks = !t->byte_level && !t->unigram && t->prefix_len + t->suffix_len == 0 &&
                   vocab_find(&t->vocab, mark, 3) >= 0;
    for (int32_t id = 0; t->cut_marks && id < t->vocab.n_all; id++) {
        size_t len;
        const char *s = vocab_bytes(&t->vocab, id, &len);
        for (const char *at = s; len && (at = memmem(at, (size_t)(s + len - at), mark, 3)); at++)
            if (at > s)
                t->before_mark[(unsigned char)at[-1]] = true;
    }
}

/* A ByteLevel step with others after it hands mapped text on: a step that maps is put between. */
static vt_status add_maps(vt_tokenizer *t, vt_err *err)
{
    for (int32_t i = 0; i < t->n_pre; i++) {
        if (t->pre[i].kind != PRE_BYTES || i + 1 == t->n_pre || t->pre[i + 1].kind == PRE_MAP)
            continue;
        if (t->n_pre == TOK_MAX_STEPS)
            return vt_fail(err, VT_ERR_UNSUPPORTED, "tokenizer: more than %d pre-tokenizer steps",
                           TOK_MAX_STEPS);
        memmove(t->pre + i + 2, t->pre + i + 1, (size_t)(t->n_pre - i - 1) * sizeof *t->pre);
        t->pre[i + 1] = (pre_step){.kind = PRE_MAP};
        t->n_pre++;
        t->mapped = true;
    }
    return VT_OK;
}

void tok_set_pair(vt_tokenizer *t, int32_t token, int32_t n, bool types)
{
    t->pairs = true;
    t->pair_types = types;
    t->n_middle = n;
    for (int32_t i = 0; i < n; i++)
        t->middle[i] = token;
}

static bool is_one_char(const char *s, size_t n) { return n <= 1 || vt_utf8_step(s, n) == (int)n; }

/* Marks the steps that see one string in parts, refuses chains whose order we cannot follow, and
 * bounds how long a token may become: a chain of Replaces could make gigabytes of one byte. */
static vt_status check_decoder(vt_tokenizer *t, vt_err *err)
{
    size_t growth = 1;
    for (int32_t i = 0; i < t->n_dec; i++) {
        dec_step *s = &t->dec[i];
        bool whole = s->kind == DEC_BYTES || s->kind == DEC_FALLBACK, whole_before = false;
        for (int32_t k = 0; k < i; k++) {
            s->fused |= t->dec[k].kind == DEC_FUSE || t->dec[k].kind == DEC_BYTES;
            whole_before |= t->dec[k].kind == DEC_BYTES || t->dec[k].kind == DEC_FALLBACK;
        }
        if (whole && (whole_before || s->fused))
            return vt_fail(err, VT_ERR_UNSUPPORTED,
                           "tokenizer: a decoder with ByteLevel or ByteFallback after ByteLevel, "
                           "ByteFallback or Fuse is not supported");
        if (s->fused && ((s->kind == DEC_STRIP && s->stop > 0) ||
                         (s->kind == DEC_REPLACE && !is_one_char(s->pattern, s->pattern_len))))
            return vt_fail(err, VT_ERR_UNSUPPORTED,
                           "tokenizer: a decoder that strips the end, or replaces several "
                           "characters, after Fuse is not supported");
        if (s->kind == DEC_REPLACE && s->content_len > s->pattern_len)
            growth *= (s->content_len + s->pattern_len - 1) / s->pattern_len;
        if (growth > TOK_MAX_DEC_GROWTH)
            return vt_fail(err, VT_ERR_UNSUPPORTED,
                           "tokenizer: decoder step %d (Replace) may make a token more than %d "
                           "times as long",
                           i + 1, TOK_MAX_DEC_GROWTH);
    }
    return VT_OK;
}

/* An added token into the trie that will find it; a normalised one by its normal form. */
static vt_status index_added(vt_tokenizer *t, int32_t index, norm_work *w, vt_err *err)
{
    added_token *a = &t->added[index];
    t->vocab.piece[a->id].flags |= PIECE_ADDED | (a->special ? PIECE_SPECIAL : 0);
    if (!a->normalized)
        return added_trie_add(&t->raw, a->content, a->len, index, err);
    const char *text = a->content;
    size_t n = a->len, n_part = 0;
    TRY(norm_apply(t, w, NULL, &n_part, &text, &n, err));
    if (n != a->len || memcmp(text, a->content, n) != 0) {
        t->vocab.piece[a->id].flags |= PIECE_REWRITTEN;
        a->content = vt_arena_strdup(&t->arena, text, n);
        a->len = n;
        if (!a->content)
            return tok_no_memory(err);
    }
    return n ? added_trie_add(&t->normalized, a->content, n, index, err) : VT_OK;
}

static vt_status index_all_added(vt_tokenizer *t, vt_err *err)
{
    vt_regex_scratch regex = {0};
    norm_work w;
    size_t bytes = 0;
    for (int32_t i = 0; i < t->n_added; i++)
        bytes += t->added[i].len;
    /* One budget of steps for all tokens of the file, an eighth of a text's: nothing here is
     * long. */
    vt_regex_scratch_begin(&regex, bytes / 8);
    norm_work_init(&w, &regex, bytes);
    vt_status status = VT_OK;
    for (int32_t i = 0; status == VT_OK && i < t->n_added; i++)
        status = index_added(t, i, &w, err);
    norm_work_release(&w);
    vt_regex_scratch_release(&regex);
    return status;
}

vt_status tok_finish(vt_tokenizer *t, vt_err *err)
{
    if (t->vocab.n == 0)
        return vt_fail(err, VT_ERR_FORMAT, "tokenizer: the vocabulary is empty");
    TRY(add_maps(t, err));
    TRY(check_decoder(t, err));
    fill_byte_ids(t);
    find_cuts(t);
    TRY(index_all_added(t, err));
    if (t->unigram)
        TRY(unigram_finish(t, err));
    tok_add_eos(t, t->eos);
    add_known_eos(t);
    tok_find_bound(t);
    return VT_OK;
}
