/* The tokenizer: what every format's loader builds on, and the way of a text through the stages.
 *
 *   bytes -> valid UTF-8 -> cut at added tokens -> normalise -> cut at normalised added tokens ->
 *   words -> ids
 *
 * Byte-level vocabularies spell bytes as printable characters (GPT-2's table: 0x20 is U+0120). We
 * map spellings back to bytes once, at load, so that encoding and decoding work on plain bytes;
 * only the few steps that look at mapped text (Falcon's digits behind its ByteLevel) see the
 * alphabet.
 */
#include "text/tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "text/tokenizer/tokenizer_internal.h"

vt_status tok_no_memory(vt_err *err)
{
    return vt_fail(err, VT_ERR_MEMORY, "tokenizer: out of memory");
}

bool tok_push(vt_ids *ids, int32_t id)
{
    if (ids->n == ids->cap) {
        size_t cap = ids->cap ? ids->cap * 2 : 64, bytes;
        int32_t *grown = vt_mul_size(cap, sizeof *grown, &bytes) ? realloc(ids->id, bytes) : NULL;
        if (!grown)
            return false;
        ids->id = grown;
        ids->cap = cap;
    }
    ids->id[ids->n++] = id;
    return true;
}

void vt_ids_release(vt_ids *ids)
{
    free(ids->id);
    *ids = (vt_ids){0};
}

/* ---- the alphabet of bytes ---- */

static bool byte_prints(unsigned b)
{
    return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
}

uint32_t tok_byte_char(unsigned char byte)
{
    if (byte_prints(byte))
        return byte;
    /* The others, in order, from U+0100: 0x00..0x20, 0x7F..0xA0, 0xAD. */
    return 0x100u + (byte <= 0x20 ? byte : byte <= 0xA0 ? byte - 0x7Fu + 33 : 67);
}

int32_t tok_char_byte(uint32_t c)
{
    if (c < 0x100)
        return byte_prints(c) ? (int32_t)c : -1;
    c -= 0x100;
    return c <= 0x20 ? (int32_t)c : c < 67 ? (int32_t)(c - 33 + 0x7F) : c == 67 ? 0xAD : -1;
}

bool tok_unmap(const char *s, size_t n, vt_buf *out)
{
    size_t start = out->len, made = 0;
    char bytes[128];
    for (size_t i = 0; i < n;) {
        uint32_t c;
        int step = vt_utf8_step(s + i, n - i);
        if (step > 0)
            vt_utf8_next(s + i, &c);
        int32_t byte = step > 0 ? tok_char_byte(c) : -1;
        if (byte < 0) {
            out->len = start;
            return false;
        }
        if (made == sizeof bytes) {
            if (!vt_buf_add(out, bytes, made))
                return false;
            made = 0;
        }
        bytes[made++] = (char)byte;
        i += (size_t)step;
    }
    return vt_buf_add(out, bytes, made);
}

/* ---- building ---- */

vt_status tok_new(vt_tokenizer **out, vt_err *err)
{
    vt_tokenizer *t = vt_calloc(1, sizeof *t);
    if (!t)
        return tok_no_memory(err);
    vt_arena_init(&t->arena, 1u << 30);
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
    vocab_release(&t->vocab);
    vocab_release(&t->spelled);
    free(t->spelled_id);
    free(t->added);
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

vt_status tok_add_added(vt_tokenizer *t, const added_token *a, vt_err *err)
{
    if (a->len == 0)
        return VT_OK;
    if (t->n_added == t->cap_added) {
        int32_t cap = t->cap_added ? t->cap_added * 2 : 64;
        added_token *grown = realloc(t->added, (size_t)cap * sizeof *grown);
        if (!grown)
            return tok_no_memory(err);
        t->added = grown;
        t->cap_added = cap;
    }
    added_token copy = *a;
    copy.content = vt_arena_strdup(&t->arena, a->content, a->len);
    if (!copy.content)
        return tok_no_memory(err);
    t->added[t->n_added++] = copy;
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
                                        "<\xEF\xBD\x9C"
                                        "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
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
    t->cut_marks = !t->byte_level && t->prefix_len + t->suffix_len == 0 &&
                   vocab_find(&t->vocab, mark, 3) >= 0;
    for (int32_t id = 0; t->cut_marks && id < t->vocab.n_all; id++) {
        size_t len;
        const char *s = vocab_bytes(&t->vocab, id, &len);
        for (const char *at = s; len && (at = memmem(at, (size_t)(s + len - at), mark, 3)); at++)
            if (at > s)
                t->before_mark[(unsigned char)at[-1]] = true;
    }
}

vt_status tok_finish(vt_tokenizer *t, vt_err *err)
{
    if (t->vocab.n == 0)
        return vt_fail(err, VT_ERR_FORMAT, "tokenizer: the vocabulary is empty");
    for (int32_t i = 0; i < t->n_pre; i++)
        if (t->pre[i].kind == PRE_BYTES && i + 1 < t->n_pre && t->pre[i + 1].kind != PRE_MAP) {
            if (t->n_pre == TOK_MAX_STEPS)
                return vt_fail(err, VT_ERR_UNSUPPORTED,
                               "tokenizer: more than %d pre-tokenizer steps", TOK_MAX_STEPS);
            memmove(t->pre + i + 2, t->pre + i + 1, (size_t)(t->n_pre - i - 1) * sizeof *t->pre);
            t->pre[i + 1] = (pre_step){.kind = PRE_MAP};
            t->n_pre++;
            t->mapped = true;
        }
    for (int32_t i = 0; i < t->n_dec; i++)
        for (int32_t k = 0; k < i; k++) {
            t->dec[i].fused |= t->dec[k].kind == DEC_FUSE || t->dec[k].kind == DEC_BYTES;
            if ((t->dec[i].kind == DEC_BYTES || t->dec[i].kind == DEC_FALLBACK) &&
                (t->dec[k].kind == DEC_BYTES || t->dec[k].kind == DEC_FALLBACK || t->dec[i].fused))
                return vt_fail(err, VT_ERR_UNSUPPORTED,
                               "tokenizer: a decoder with ByteLevel or ByteFallback behind "
                               "ByteLevel, ByteFallback "
                               "or Fuse is not supported");
        }
    for (int32_t i = 0; i < t->n_dec; i++)
        if (t->dec[i].fused && ((t->dec[i].kind == DEC_STRIP && t->dec[i].stop > 0) ||
                                (t->dec[i].kind == DEC_REPLACE && t->dec[i].pattern_len > 1 &&
                                 vt_utf8_step(t->dec[i].pattern, t->dec[i].pattern_len) !=
                                     (int)t->dec[i].pattern_len)))
            return vt_fail(err, VT_ERR_UNSUPPORTED,
                           "tokenizer: a decoder that strips the end, or replaces several "
                           "characters, behind Fuse is "
                           "not supported");
    fill_byte_ids(t);
    find_cuts(t);
    for (int32_t i = 0; i < t->n_added; i++) {
        added_token *a = &t->added[i];
        t->vocab.piece[a->id].flags |= PIECE_ADDED | (a->special ? PIECE_SPECIAL : 0);
        if (!a->normalized) {
            TRY(added_trie_add(&t->raw, a->content, a->len, i, err));
            continue;
        }
        vt_buf b;
        vt_buf_init(&b, 0);
        vt_status status = norm_content(t, a->content, a->len, &b, err);
        if (status == VT_OK && (b.len != a->len || memcmp(b.data, a->content, b.len) != 0))
            t->vocab.piece[a->id].flags |= PIECE_REWRITTEN;
        if (status == VT_OK) {
            a->len = b.len;
            a->content = vt_arena_strdup(&t->arena, b.data ? b.data : "", b.len);
            status = !a->content ? tok_no_memory(err)
                     : a->len    ? added_trie_add(&t->normalized, a->content, a->len, i, err)
                                 : VT_OK;
        }
        vt_buf_release(&b);
        TRY(status);
    }
    tok_add_eos(t, t->eos);
    add_known_eos(t);
    return VT_OK;
}

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

static void work_release(tok_work *w)
{
    vt_regex_scratch_release(&w->regex);
    free(w->part);
    free(w->symbol);
    free(w->heap);
    free(w->cache);
    for (int i = 0; i < TOK_MAX_STEPS; i++)
        vt_buf_release(&w->step[i]);
    vt_buf_release(&w->norm[0]);
    vt_buf_release(&w->norm[1]);
    vt_buf_release(&w->unmapped);
    vt_buf_release(&w->join);
}

static void work_init(tok_work *w, const vt_tokenizer *t, size_t n, unsigned flags, vt_ids *out,
                      vt_err *err)
{
    *w = (tok_work){.t = t, .out = out, .err = err, .flags = flags};
    vt_regex_scratch_begin(&w->regex, n);
    w->added_steps = 10000000 + 64 * (uint64_t)n; /* 64 a byte: far above any honest vocabulary */
    for (int i = 0; i < TOK_MAX_STEPS; i++)
        vt_buf_init(&w->step[i], 0);
    vt_buf_init(&w->norm[0], 0);
    vt_buf_init(&w->norm[1], 0);
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
    TRY(norm_apply(w, &text, &n));
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
