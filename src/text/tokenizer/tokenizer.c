/* The tokenizer: facts about its tokens, and how a text goes through the stages.
 *
 *   bytes -> valid UTF-8 -> cut at added tokens -> normalise -> cut at normalised added tokens ->
 *   words -> ids
 */
#include "text/tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "text/tokenizer/internal.h"

/* ---- questions ---- */

int32_t vt_tokenizer_vocab(const vt_tokenizer *t) { return t->vocab.n; }
int32_t vt_tokenizer_bos(const vt_tokenizer *t) { return t->bos; }
int32_t vt_tokenizer_eos(const vt_tokenizer *t) { return t->eos; }
bool vt_tokenizer_add_bos(const vt_tokenizer *t) { return t->add_bos; }

int32_t vt_tokenizer_find(const vt_tokenizer *t, const char *piece, size_t len)
{
    int32_t at = vocab_find(&t->spelled, piece, len), id = -1;
    if (at >= 0)
        return t->spelled_id[at];
    if (!t->byte_level) {
        id = vocab_find(&t->vocab, piece, len);
    } else {
        vt_buf raw;
        vt_buf_init(&raw, 0);
        if (tok_unmap(piece, len, &raw))
            id = vocab_find(&t->vocab, raw.data ? raw.data : "", raw.len);
        vt_buf_release(&raw);
    }
    return id < t->vocab.n ? id : -1;
}

bool vt_tokenizer_is_special(const vt_tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->vocab.n && (t->vocab.piece[id].flags & PIECE_SPECIAL);
}

int32_t vt_tokenizer_eos_ids(const vt_tokenizer *t, int32_t *ids, int32_t max)
{
    for (int32_t i = 0; i < t->n_eos_ids && i < max; i++)
        ids[i] = t->eos_ids[i];
    return t->n_eos_ids;
}

/* ---- encoding ---- */

bool tok_grow(void **p, size_t *cap, size_t want, size_t size)
{
    if (want <= *cap)
        return true;
    size_t n = want < 64 ? 64 : want + want / 2, bytes;
    void *grown = vt_mul_size(n, size, &bytes) ? realloc(*p, bytes) : NULL;
    if (!grown)
        return false;
    *p = grown;
    *cap = n;
    return true;
}

static void work_release(tok_work *w)
{
    vt_regex_scratch_release(&w->regex);
    free(w->part);
    free(w->symbol);
    free(w->ends);
    if (w->merging)
        bpe_long_release(w->merging);
    free(w->merging);
    free(w->cache);
    for (int i = 0; i < TOK_MAX_STEPS; i++)
        vt_buf_release(&w->step[i]);
    norm_work_release(&w->norm);
    vt_buf_release(&w->unmapped);
    vt_buf_release(&w->join);
}

static void work_init(tok_work *w, const vt_tokenizer *t, size_t n, unsigned flags, vt_ids *out,
                      vt_err *err)
{
    *w = (tok_work){.t = t, .out = out, .err = err, .flags = flags};
    vt_regex_scratch_begin(&w->regex, n);
    w->added_steps = 10000000 + 64 * (uint64_t)n; /* 64 a byte: far above any honest vocabulary */
    w->unigram_steps = 10000000 + 256 * (uint64_t)n;
    norm_work_init(&w->norm, &w->regex, n);
    for (int i = 0; i < TOK_MAX_STEPS; i++) {
        vt_buf_init(&w->step[i], 0);
        w->left[i] = tok_growth(n);
    }
    vt_buf_init(&w->unmapped, 0);
    vt_buf_init(&w->join, 0);
    if (n < 512)
        return;
    size_t entries = 64; /* a word is about 5 bytes; 16384 lines are 1 MiB, half an L2 cache */
    while (entries < 16384 && entries * 16 < n)
        entries *= 2;
    w->cache = vt_calloc(entries, sizeof *w->cache);
    w->cache_mask = (uint32_t)(entries - 1);
}

/* Makes w->part the parts of `literal` that lie in text[start..end), counted from start. */
static vt_status take_part(tok_work *w, const vt_text_range *literal, size_t n_literal,
                           size_t start, size_t end)
{
    w->n_part = 0;
    for (size_t i = 0; i < n_literal && literal[i].begin < end; i++) {
        vt_text_range r = literal[i];
        r.begin = r.begin > start ? r.begin - start : 0;
        r.end = (r.end < end ? r.end : end) - start;
        if (w->n_part == w->cap_part) {
            size_t cap = w->cap_part ? w->cap_part * 2 : 16;
            vt_text_range *grown = realloc(w->part, cap * sizeof *grown);
            if (!grown)
                return tok_no_memory(w->err);
            w->part = grown;
            w->cap_part = cap;
        }
        w->part[w->n_part++] = r;
    }
    return VT_OK;
}

static vt_status too_many_steps(tok_work *w)
{
    return vt_fail(w->err, VT_ERR_UNSUPPORTED,
                   "tokenizer: looking for added tokens in this text takes too many steps");
}

/* Text between added tokens of the first kind: normalise, cut at those of the second,
 * pre-tokenise. w->part are its literal ranges. */
static vt_status encode_between(tok_work *w, const char *text, size_t n, bool first)
{
    const vt_tokenizer *t = w->t;
    TRY(norm_apply(t, &w->norm, w->part, &w->n_part, &text, &n, w->err));
    added_search s = {.trie = &t->normalized,
                      .tokens = t->added,
                      .text = text,
                      .n = n,
                      .special = w->flags & VT_TOKENIZE_SPECIAL,
                      .literal = w->part,
                      .n_literal = w->n_part,
                      .steps = &w->added_steps};
    size_t from = 0;
    added_match m;
    int found;
    while ((found = added_next(&s, &m)) > 0) {
        if (from < m.start)
            TRY(pre_tokenize(w, 0, text + from, m.start - from, first && from == 0));
        if (!tok_push(w->out, m.token->id))
            return tok_no_memory(w->err);
        from = m.end;
    }
    if (found < 0)
        return too_many_steps(w);
    return from < n ? pre_tokenize(w, 0, text + from, n - from, first && from == 0) : VT_OK;
}

static vt_status encode(tok_work *w, const char *text, size_t n, const vt_text_range *literal,
                        size_t n_literal)
{
    const vt_tokenizer *t = w->t;
    added_search s = {.trie = &t->raw,
                      .tokens = t->added,
                      .text = text,
                      .n = n,
                      .special = w->flags & VT_TOKENIZE_SPECIAL,
                      .literal = literal,
                      .n_literal = n_literal,
                      .steps = &w->added_steps};
    size_t from = 0;
    added_match m = {0};
    for (int found = 1; found > 0; from = m.end) {
        found = added_next(&s, &m);
        if (found < 0)
            return too_many_steps(w);
        size_t end = found ? m.start : n;
        if (from < end) {
            for (; n_literal && literal->end <= from; n_literal--)
                literal++;
            TRY(take_part(w, literal, n_literal, from, end));
            TRY(encode_between(w, text + from, end - from, from == 0));
        }
        if (found && !tok_push(w->out, m.token->id))
            return tok_no_memory(w->err);
    }
    return VT_OK;
}

/* Moves the borders of a range outwards to where characters begin. */
static vt_text_range whole_characters(const char *text, size_t len, vt_text_range r)
{
    while (r.begin > 0 && ((unsigned char)text[r.begin] & 0xC0) == 0x80)
        r.begin--;
    while (r.end < len && ((unsigned char)text[r.end] & 0xC0) == 0x80)
        r.end++;
    return r;
}

/* The text as valid UTF-8, in *out if anything had to change, and the literal ranges of that text,
 * in `ranges` [n_literal]: *n_ranges of them, none empty and none touching another. Cut in front
 * of a byte that begins a character, stretches become valid one by one as they do together. */
static vt_status valid_text(const vt_tokenizer *t, const char **text, size_t *len,
                            const vt_text_range *literal, size_t n_literal, vt_buf *out,
                            vt_text_range *ranges, size_t *n_ranges, vt_err *err)
{
    size_t from = 0, n = 0;
    bool valid = t->keep_invalid || vt_utf8_valid(*text, *len) == *len;
    for (size_t i = 0; i < n_literal; i++) {
        vt_text_range r = literal[i];
        if (r.begin > r.end || r.end > *len || (i && r.begin < literal[i - 1].end))
            return vt_fail(err, VT_ERR_USAGE,
                           "tokenizer: literal range %zu is [%zu, %zu) of a text of %zu bytes; "
                           "ranges must be sorted and may not overlap",
                           i, r.begin, r.end, *len);
        if (r.begin == r.end)
            continue;
        r = whole_characters(*text, *len, r);
        size_t begin = r.begin > from ? r.begin : from, end = r.end;
        r = (vt_text_range){begin, end};
        if (!valid) {
            vt_utf8_add_lossy(out, *text + from, begin - from);
            r.begin = out->len;
            vt_utf8_add_lossy(out, *text + begin, end - begin);
            r.end = out->len;
        }
        from = end;
        if (n && ranges[n - 1].end == r.begin)
            ranges[n - 1].end = r.end;
        else if (r.begin < r.end)
            ranges[n++] = r;
    }
    *n_ranges = n;
    if (valid)
        return VT_OK;
    if (!vt_utf8_add_lossy(out, *text + from, *len - from) || out->failed)
        return tok_no_memory(err);
    *text = out->data ? out->data : "";
    *len = out->len;
    return VT_OK;
}

vt_status vt_tokenizer_encode_literal(const vt_tokenizer *t, const char *text, size_t len,
                                      unsigned flags, const vt_text_range *literal,
                                      size_t n_literal, vt_ids *out, vt_err *err)
{
    if (len > INT32_MAX / 2)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "tokenizer: a text of %zu bytes, more than %d", len,
                       INT32_MAX / 2);
    size_t had = out->n, n_ranges = 0;
    vt_text_range *ranges = n_literal ? vt_calloc(n_literal, sizeof *ranges) : NULL;
    if (n_literal && !ranges)
        return tok_no_memory(err);
    vt_buf fixed;
    vt_buf_init(&fixed, 0);
    vt_status status = valid_text(t, &text, &len, literal, n_literal, &fixed, ranges, &n_ranges,
                                  err);
    for (int32_t i = 0; (flags & VT_TOKENIZE_ADD_BOS) && t->add_bos && i < t->n_affix; i++)
        if (status == VT_OK && !tok_push(out, t->affix[i]))
            status = tok_no_memory(err);
    if (status == VT_OK) {
        tok_work w;
        work_init(&w, t, len, flags, out, err);
        status = encode(&w, text, len, ranges, n_ranges);
        work_release(&w);
    }
    for (int32_t i = 0; (flags & VT_TOKENIZE_ADD_EOS) && i < t->n_tail; i++)
        if (status == VT_OK && !tok_push(out, t->tail[i]))
            status = tok_no_memory(err);
    vt_buf_release(&fixed);
    free(ranges);
    if (status != VT_OK)
        out->n = had;
    return status;
}

vt_status vt_tokenizer_encode(const vt_tokenizer *t, const char *text, size_t len, unsigned flags,
                              vt_ids *out, vt_err *err)
{
    return vt_tokenizer_encode_literal(t, text, len, flags, NULL, 0, out, err);
}

static vt_status push_all(vt_ids *out, const int32_t *ids, int32_t n, vt_err *err)
{
    for (int32_t i = 0; i < n; i++)
        if (!tok_push(out, ids[i]))
            return tok_no_memory(err);
    return VT_OK;
}

vt_status vt_tokenizer_encode_pair(const vt_tokenizer *t, const char *first, size_t first_len,
                                   const char *second, size_t second_len, int32_t most_second,
                                   int32_t most, vt_ids *out, int32_t *second_at, vt_err *err)
{
    if (!t->pairs)
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "tokenizer: the post-processor does not say how a pair of texts looks");
    size_t had = out->n;
    TRY(push_all(out, t->affix, t->n_affix, err));
    TRY(vt_tokenizer_encode(t, first, first_len, 0, out, err));
    TRY(push_all(out, t->middle, t->n_middle, err));
    size_t begin = out->n, around = begin - had + (size_t)t->n_tail;
    TRY(vt_tokenizer_encode(t, second, second_len, 0, out, err));
    size_t room = most > 0 && (size_t)most > around ? (size_t)most - around : SIZE_MAX;
    room = most_second > 0 && (size_t)most_second < room ? (size_t)most_second : room;
    if (out->n - begin > room)
        out->n = begin + room;
    *second_at = t->pair_types ? (int32_t)(begin - had) : 0;
    return push_all(out, t->tail, t->n_tail, err);
}
