/* Tokenizers from GGUF metadata: tokenizer.ggml.model "gpt2" (byte-level BPE by merges), "gemma4"
 * (BPE by merges over characters with byte fallback), "llama" (SentencePiece BPE by scores), "t5"
 * (SentencePiece Unigram) and "bert" (WordPiece).
 * Everything else is refused by name.
 *
 * "llama" files list no merges: two neighbours merge if together they spell a token, the highest
 * score first. merges.c turns that into a merge table, so that both kinds run the same code.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer/internal.h"

enum { TYPE_NORMAL = 1, TYPE_UNKNOWN, TYPE_CONTROL, TYPE_USER, TYPE_UNUSED, TYPE_BYTE };

static vt_status want_strings(const gguf_file *f, const char *key, const gguf_value **out,
                              vt_err *err)
{
    const gguf_value *v = gguf_find(f, key);
    if (!v)
        return vt_fail(err, VT_ERR_FORMAT, "%s: %s is missing", f->path, key);
    if (!v->is_array || v->type != GGUF_STRING || !v->strings)
        return vt_fail(err, VT_ERR_FORMAT, "%s: %s is not an array of strings", f->path, key);
    if (v->n > VOCAB_MAX)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "%s: %s has %llu entries, more than %d", f->path,
                       key, (unsigned long long)v->n, VOCAB_MAX);
    *out = v;
    return VT_OK;
}

/* An optional array of numbers, one per token. */
static vt_status want_numbers(const gguf_file *f, const char *key, uint64_t n,
                              const gguf_value **out, vt_err *err)
{
    const gguf_value *v = gguf_find(f, key);
    *out = v;
    if (!v)
        return VT_OK;
    if (!v->is_array || v->type == GGUF_STRING || v->type == GGUF_ARRAY || v->type == GGUF_BOOL)
        return vt_fail(err, VT_ERR_FORMAT, "%s: %s is not an array of numbers", f->path, key);
    if (v->n < n)
        return vt_fail(err, VT_ERR_FORMAT, "%s: %s has %llu entries for %llu tokens", f->path, key,
                       (unsigned long long)v->n, (unsigned long long)n);
    return VT_OK;
}

/* Phi-3's special tokens swallow the spaces after them; its converted files do not say so. */
static bool swallows_spaces(const gguf_file *f, gguf_str token)
{
    gguf_str name = {0};
    char lower[64];
    if (gguf_get_str(f, "general.name", false, &name, NULL) != VT_OK || !name.data)
        return false;
    size_t n = name.len < sizeof lower ? name.len : sizeof lower - 1;
    for (size_t i = 0; i < n; i++)
        lower[i] = (char)vt_unicode_lower_of((unsigned char)name.data[i]);
    lower[n] = 0;
    if (!strstr(lower, "phi-3") && !strstr(lower, "phi3"))
        return false;
    static const char *const not [] = {"<unk>", "<s>", "<|endoftext|>"};
    for (int i = 0; i < 3; i++)
        if (token.len == strlen(not [i]) && memcmp(token.data, not [i], token.len) == 0)
            return false;
    return true;
}

static vt_status add_tokens(vt_tokenizer *t, const gguf_file *f, const gguf_value *tokens,
                            vt_err *err)
{
    const gguf_value *types;
    TRY(want_numbers(f, "tokenizer.ggml.token_type", tokens->n, &types, err));
    for (uint64_t i = 0; i < tokens->n; i++) {
        gguf_str s = tokens->strings[i];
        int64_t type = types ? gguf_array_i64(types, i) : TYPE_NORMAL;
        bool special = type == TYPE_CONTROL || type == TYPE_UNKNOWN;
        bool model = !special && type != TYPE_BYTE && s.len > 0;
        TRY(tok_set_piece(t, (int32_t)i, s.data, s.len,
                          (model ? PIECE_MODEL : 0) | (special ? PIECE_SPECIAL : 0) |
                              (type == TYPE_BYTE ? PIECE_BYTE : 0),
                          err));
        if (!special && type != TYPE_USER)
            continue;
        added_token a = {.id = (int32_t)i,
                         .special = special,
                         .rstrip = swallows_spaces(f, s),
                         .content = s.data,
                         .len = s.len};
        TRY(tok_add_added(t, &a, err));
    }
    return VT_OK;
}

/* The id of a spelling. If no token has it, a piece that exists only between merges is added. */
static vt_status piece_id(vt_tokenizer *t, const char *s, size_t n, int32_t *id, vt_err *err)
{
    vt_buf raw;
    vt_buf_init(&raw, 0);
    vt_status status = VT_OK;
    if (t->byte_level && tok_unmap(s, n, &raw)) {
        s = raw.data ? raw.data : "";
        n = raw.len;
    }
    *id = vocab_find(&t->vocab, s, n);
    if (*id < 0)
        status = vocab_add_between(&t->vocab, s, n, id, err);
    vt_buf_release(&raw);
    return status;
}

/* "left right": the first space that is not the first character parts them. */
static vt_status add_merge(vt_tokenizer *t, gguf_str s, uint32_t rank, vt_buf *joined, vt_err *err)
{
    const char *space = memchr(s.data + 1, ' ', s.len - 1);
    size_t left = (size_t)(space - s.data), right = s.len - left - 1;
    int32_t a, b, made;
    vt_buf_clear(joined);
    if (!vt_buf_add(joined, s.data, left) || !vt_buf_add(joined, space + 1, right))
        return tok_no_memory(err);
    TRY(piece_id(t, s.data, left, &a, err));
    TRY(piece_id(t, space + 1, right, &b, err));
    TRY(piece_id(t, joined->data, joined->len, &made, err));
    if (vocab_find_merge(&t->vocab, (uint32_t)a, (uint32_t)b))
        return VT_OK;
    return vocab_add_merge(&t->vocab, a, b, rank, made, err);
}

static vt_status add_merges(vt_tokenizer *t, const gguf_file *f, vt_err *err)
{
    const gguf_value *merges;
    TRY(want_strings(f, "tokenizer.ggml.merges", &merges, err));
    TRY(vocab_reserve(&t->vocab, 0, 0, merges->n, err));
    vt_status status = VT_OK;
    vt_buf joined;
    vt_buf_init(&joined, 0);
    for (uint64_t i = 0; status == VT_OK && i < merges->n; i++) {
        gguf_str s = merges->strings[i];
        if (s.len < 3 || !memchr(s.data + 1, ' ', s.len - 1))
            status = vt_fail(
                err, VT_ERR_FORMAT,
                "%s: tokenizer.ggml.merges[%llu] is not two tokens with a space between", f->path,
                (unsigned long long)i);
        else
            status = add_merge(t, s, (uint32_t)i, &joined, err);
    }
    vt_buf_release(&joined);
    return status;
}

/* Reads an id from the metadata; *id stays as it is if the key is absent. */
static vt_status get_id(const vt_tokenizer *t, const gguf_file *f, const char *key, int32_t *id,
                        vt_err *err)
{
    int64_t value = -1;
    if (!gguf_find(f, key))
        return VT_OK;
    TRY(gguf_get_i64(f, key, true, &value, err));
    if (value == 0xFFFFFFFF) /* written by converters for "none" */
        value = -1;
    if (value < -1 || value >= t->vocab.n)
        return vt_fail(err, VT_ERR_FORMAT, "%s: %s is %lld, and the vocabulary has %d tokens",
                       f->path, key, (long long)value, t->vocab.n);
    *id = (int32_t)value;
    return VT_OK;
}

static vt_status special_ids(vt_tokenizer *t, const gguf_file *f, bool add_bos, vt_err *err)
{
    static const char *const ends[] = {"tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    TRY(get_id(t, f, "tokenizer.ggml.bos_token_id", &t->bos, err));
    TRY(get_id(t, f, "tokenizer.ggml.eos_token_id", &t->eos, err));
    for (int i = 0; i < 2; i++) {
        int32_t id = -1;
        TRY(get_id(t, f, ends[i], &id, err));
        tok_add_eos(t, id);
    }
    TRY(gguf_get_bool(f, "tokenizer.ggml.add_bos_token", false, &add_bos, err));
    t->add_bos = add_bos && t->bos >= 0;
    if (t->add_bos)
        t->affix[t->n_affix++] = t->bos;
    bool add_eos = false;
    TRY(gguf_get_bool(f, "tokenizer.ggml.add_eos_token", false, &add_eos, err));
    if (add_eos && t->eos >= 0)
        t->tail[t->n_tail++] = t->eos;
    return VT_OK;
}

static int by_score(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* Turns scores into ranks without gaps, the highest score first. Equal scores get equal ranks, so
 * that among equals the leftmost pair merges first. */
static vt_status rank_scores(const gguf_value *scores, uint64_t n, uint32_t *rank, vt_err *err)
{
    float *sorted = vt_calloc(n ? n : 1, sizeof *sorted);
    size_t distinct = 0;
    if (!sorted)
        return tok_no_memory(err);
    for (uint64_t i = 0; i < n; i++) {
        float score = scores ? (float)gguf_array_f64(scores, i) : 0;
        sorted[i] = score == score ? score : -INFINITY;
    }
    qsort(sorted, n, sizeof *sorted, by_score);
    for (uint64_t i = 0; i < n; i++)
        if (i == 0 || sorted[i] != sorted[distinct - 1])
            sorted[distinct++] = sorted[i];
    for (uint64_t i = 0; i < n; i++) {
        float score = scores ? (float)gguf_array_f64(scores, i) : 0;
        size_t low = 0, high = distinct;
        while (low + 1 < high) {
            size_t mid = (low + high) / 2;
            if (sorted[mid] >= score)
                low = mid;
            else
                high = mid;
        }
        rank[i] = (uint32_t)low;
    }
    free(sorted);
    return VT_OK;
}

static void add_metaspace_decoder(vt_tokenizer *t, bool strip)
{
    t->dec[t->n_dec++] = (dec_step){.kind = DEC_REPLACE,
                                    .pattern = "\xE2\x96\x81",
                                    .pattern_len = 3,
                                    .content = " ",
                                    .content_len = 1};
    t->dec[t->n_dec++] = (dec_step){.kind = DEC_FALLBACK};
    t->dec[t->n_dec++] = (dec_step){.kind = DEC_FUSE};
    if (strip)
        t->dec[t->n_dec++] = (dec_step){
            .kind = DEC_STRIP, .content = " ", .content_len = 1, .start = 1};
}

static vt_status load_spm(vt_tokenizer *t, const gguf_file *f, const gguf_value *tokens,
                          vt_err *err)
{
    const gguf_value *scores;
    bool space = true;
    TRY(gguf_get_bool(f, "tokenizer.ggml.add_space_prefix", false, &space, err));
    TRY(want_numbers(f, "tokenizer.ggml.scores", tokens->n, &scores, err));
    if (space)
        t->norm[t->n_norm++] = (norm_step){
            .kind = NORM_PREPEND, .content = "\xE2\x96\x81", .content_len = 3};
    t->norm[t->n_norm++] = (norm_step){.kind = NORM_REPLACE,
                                       .pattern = " ",
                                       .pattern_len = 1,
                                       .content = "\xE2\x96\x81",
                                       .content_len = 3};
    t->byte_fallback = t->fuse_unk = t->keep_invalid = true;
    TRY(add_tokens(t, f, tokens, err));
    uint32_t *rank = vt_calloc(tokens->n ? tokens->n : 1, sizeof *rank);
    if (!rank)
        return tok_no_memory(err);
    vt_status status = rank_scores(scores, tokens->n, rank, err);
    if (status == VT_OK)
        status = tok_merges_from_pieces(t, rank, err);
    free(rank);
    TRY(status);
    add_metaspace_decoder(t, space);
    t->bos = t->vocab.n > 1 ? 1 : -1;
    t->eos = t->vocab.n > 2 ? 2 : -1;
    t->unk = 0;
    TRY(get_id(t, f, "tokenizer.ggml.unknown_token_id", &t->unk, err));
    return special_ids(t, f, true, err);
}

/* Adds a step that replaces what matches: a text, or a pattern if `regex`. */
static vt_status add_replace(vt_tokenizer *t, bool regex, const char *pattern, const char *content,
                             vt_err *err)
{
    norm_step *s = &t->norm[t->n_norm];
    *s = (norm_step){.kind = NORM_REPLACE,
                     .pattern = regex ? NULL : pattern,
                     .pattern_len = strlen(pattern),
                     .content = content,
                     .content_len = strlen(content)};
    if (regex)
        TRY(vt_regex_compile(pattern, strlen(pattern), &s->regex, err));
    t->n_norm++;
    return VT_OK;
}

/* The steps that SentencePiece takes before it looks for pieces. Of white space, it knows spaces;
 * its map makes those of all the rest. */
static vt_status add_spm_form(vt_tokenizer *t, const gguf_file *f, vt_err *err)
{
    const gguf_value *map = gguf_find(f, "tokenizer.ggml.precompiled_charsmap");
    bool prefix = true, remove = false;
    TRY(gguf_get_bool(f, "tokenizer.ggml.add_space_prefix", false, &prefix, err));
    TRY(gguf_get_bool(f, "tokenizer.ggml.remove_extra_whitespaces", false, &remove, err));
    if (map && (!map->is_array || (map->type != GGUF_U8 && map->type != GGUF_I8)))
        return vt_fail(err, VT_ERR_FORMAT,
                       "%s: tokenizer.ggml.precompiled_charsmap is not an array of bytes", f->path);
    if (map && map->n > 0) {
        norm_step *s = &t->norm[t->n_norm++];
        *s = (norm_step){.kind = NORM_CHARSMAP};
        TRY(charsmap_read(t, f->path, map->bytes, map->n, true, &s->map, err));
    }
    if (remove) {
        TRY(add_replace(t, true, " {2,}", " ", err));
        TRY(add_replace(t, true, "(?<![\\s\\S]) | (?![\\s\\S])", "", err));
    }
    if (prefix)
        t->norm[t->n_norm++] = (norm_step){
            .kind = NORM_PREPEND, .content = "\xE2\x96\x81", .content_len = 3};
    return add_replace(t, false, " ", "\xE2\x96\x81", err);
}

static vt_status load_unigram(vt_tokenizer *t, const gguf_file *f, const gguf_value *tokens,
                              vt_err *err)
{
    const gguf_value *scores;
    TRY(want_numbers(f, "tokenizer.ggml.scores", tokens->n, &scores, err));
    if (!scores)
        return vt_fail(err, VT_ERR_FORMAT, "%s: tokenizer.ggml.scores is missing", f->path);
    TRY(add_spm_form(t, f, err));
    t->unigram = true;
    t->score = vt_arena_alloc(&t->arena, tokens->n, sizeof *t->score);
    if (!t->score)
        return tok_no_memory(err);
    for (uint64_t i = 0; i < tokens->n; i++) {
        t->score[i] = gguf_array_f64(scores, i);
        if (!isfinite(t->score[i]))
            return vt_fail(err, VT_ERR_FORMAT, "%s: tokenizer.ggml.scores[%llu] is %g", f->path,
                           (unsigned long long)i, t->score[i]);
    }
    TRY(add_tokens(t, f, tokens, err));
    add_metaspace_decoder(t, true);
    t->unk = tokens->n > 2 ? 2 : 0; /* T5's */
    TRY(get_id(t, f, "tokenizer.ggml.unknown_token_id", &t->unk, err));
    if (t->unk < 0 || t->vocab.n == 0)
        return vt_fail(err, VT_ERR_FORMAT, "%s: a t5 vocabulary without an unknown token", f->path);
    TRY(special_ids(t, f, false, err));
    if (t->n_tail == 1) /* as XLM-RoBERTa has it */
        tok_set_pair(t, t->tail[0], 2, false);
    return VT_OK;
}

static vt_status load_bpe(vt_tokenizer *t, const gguf_file *f, const gguf_value *tokens,
                          bool gemma4, vt_err *err)
{
    gguf_str pre = {0};
    bool add_bos = false;
    TRY(gguf_get_str(f, "tokenizer.ggml.pre", false, &pre, err));
    if (gemma4)
        pre = (gguf_str){"gemma4", 6};
    else if (!pre.data)
        pre = (gguf_str){"default", 7};
    TRY(tok_apply_pre_name(t, f->path, pre.data, pre.len, &add_bos, err));
    TRY(add_tokens(t, f, tokens, err));
    if (pre.len == 7 && memcmp(pre.data, "kimi-k2", 7) == 0 &&
        !gguf_find(f, "tokenizer.ggml.merges"))
        TRY(tok_merges_by_id(t, err));
    else
        TRY(add_merges(t, f, err));
    if (t->byte_level)
        t->dec[t->n_dec++] = (dec_step){.kind = DEC_BYTES};
    else if (t->byte_fallback)
        add_metaspace_decoder(t, false);
    if (!t->byte_level)
        TRY(get_id(t, f, "tokenizer.ggml.unknown_token_id", &t->unk, err));
    return special_ids(t, f, add_bos, err);
}

/* "bert" files spell a piece that begins a word with U+2581 in front, and one inside a word without
 * its "##". Special tokens stay as they are. */
static vt_status add_wordpieces(vt_tokenizer *t, const gguf_file *f, const gguf_value *tokens,
                                vt_err *err)
{
    const gguf_value *types;
    vt_buf piece;
    vt_status status = VT_OK;
    TRY(want_numbers(f, "tokenizer.ggml.token_type", tokens->n, &types, err));
    vt_buf_init(&piece, 0);
    for (uint64_t i = 0; status == VT_OK && i < tokens->n; i++) {
        gguf_str s = tokens->strings[i];
        int64_t type = types ? gguf_array_i64(types, i) : TYPE_NORMAL;
        bool special = type == TYPE_CONTROL || type == TYPE_UNKNOWN,
             begins = s.len > 3 && memcmp(s.data, "\xE2\x96\x81", 3) == 0;
        vt_buf_clear(&piece);
        if (!special && !begins)
            vt_buf_add(&piece, t->prefix, t->prefix_len);
        if (!vt_buf_add(&piece, s.data + (begins ? 3 : 0), s.len - (begins ? 3 : 0)))
            status = tok_no_memory(err);
        if (status == VT_OK) /* a special token's spelling is a piece too, as in tokenizer.json */
            status = tok_set_piece(t, (int32_t)i, piece.data, piece.len,
                                   PIECE_MODEL | (special ? PIECE_SPECIAL : 0), err);
        added_token a = {
            .id = (int32_t)i, .special = true, .content = piece.data, .len = piece.len};
        if (status == VT_OK && special)
            status = tok_add_added(t, &a, err);
    }
    vt_buf_release(&piece);
    return status;
}

/* An id by the token's usual name, unless one of the keys gives it. */
static vt_status named_id(vt_tokenizer *t, const gguf_file *f, const char *name,
                          const char *const *keys, int32_t *id, vt_err *err)
{
    *id = vt_tokenizer_find(t, name, strlen(name));
    for (; *keys; keys++)
        TRY(get_id(t, f, *keys, id, err));
    return VT_OK;
}

/* These files do not say whether the text is to be in lower case; all readers make it so. */
static vt_status load_wordpiece(vt_tokenizer *t, const gguf_file *f, const gguf_value *tokens,
                                vt_err *err)
{
    static const char *const cls[] = {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.cls_token_id",
                                      NULL},
                             *const sep[] = {"tokenizer.ggml.seperator_token_id", /* so spelled */
                                             "tokenizer.ggml.separator_token_id", NULL},
                             *const unk[] = {"tokenizer.ggml.unknown_token_id", NULL};
    int32_t end;
    t->wordpiece = true;
    t->most_chars = TOK_WORD_CHARS;
    t->prefix = "##";
    t->prefix_len = 2;
    TRY(tok_add_bert_norm(t, true, true, true, true, err));
    t->pre[t->n_pre++] = (pre_step){.kind = PRE_SPACE, .behaviour = SPLIT_REMOVED};
    t->pre[t->n_pre++] = (pre_step){.kind = PRE_PUNCTUATION, .behaviour = SPLIT_ISOLATED};
    t->dec[t->n_dec++] = (dec_step){
        .kind = DEC_WORDPIECE, .pattern = "##", .pattern_len = 2, .cleanup = true};
    TRY(add_wordpieces(t, f, tokens, err));
    TRY(named_id(t, f, "[CLS]", cls, &t->bos, err));
    TRY(named_id(t, f, "[SEP]", sep, &end, err));
    TRY(named_id(t, f, "[UNK]", unk, &t->unk, err));
    if (t->bos < 0 || end < 0 || t->unk < 0)
        return vt_fail(err, VT_ERR_FORMAT,
                       "%s: a bert vocabulary without [CLS], [SEP] or [UNK], and no key names one",
                       f->path);
    t->add_bos = true;
    t->affix[t->n_affix++] = t->bos;
    t->tail[t->n_tail++] = end;
    tok_set_pair(t, end, 1, true);
    return VT_OK;
}

static bool is(gguf_str s, const char *name)
{
    return s.len == strlen(name) && memcmp(s.data, name, s.len) == 0;
}

vt_status vt_tokenizer_from_gguf(const gguf_file *f, vt_tokenizer **out, vt_err *err)
{
    gguf_str model = {0};
    const gguf_value *tokens;
    vt_tokenizer *t;
    TRY(gguf_get_str(f, "tokenizer.ggml.model", true, &model, err));
    TRY(want_strings(f, "tokenizer.ggml.tokens", &tokens, err));
    TRY(tok_new(&t, err));
    vt_status status = vocab_reserve(&t->vocab, tokens->n, tokens->n * 8, 0, err);
    if (status == VT_OK) {
        if (is(model, "gpt2") || is(model, "gemma4"))
            status = load_bpe(t, f, tokens, is(model, "gemma4"), err);
        else if (is(model, "llama"))
            status = load_spm(t, f, tokens, err);
        else if (is(model, "t5"))
            status = load_unigram(t, f, tokens, err);
        else if (is(model, "bert"))
            status = load_wordpiece(t, f, tokens, err);
        else
            status = vt_fail(
                err, VT_ERR_UNSUPPORTED,
                "%s: tokenizer.ggml.model is '%.*s'; gpt2, llama, gemma4, t5 and bert are "
                "supported",
                f->path, (int)(model.len > 64 ? 64 : model.len), model.data);
    }
    if (status == VT_OK)
        status = tok_finish(t, err);
    if (status != VT_OK) {
        vt_tokenizer_free(t);
        return status;
    }
    *out = t;
    return VT_OK;
}
