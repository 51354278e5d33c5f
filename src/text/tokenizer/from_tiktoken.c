/* Tokenizers from tiktoken files, whose lines are "BASE64 RANK". The rank is both the id and the
 * order of merging.
 *
 * The file does not name its pre-tokenizer or its special tokens. The number of ranks tells which
 * published encoding it is, and so its pattern; any other number is refused. Special tokens come
 * from tokenizer_config.json ("added_tokens_decoder"), if it is given.
 */
#include <stdlib.h>
#include <string.h>

#include "files/json_flat.h"
#include "text/tokenizer/internal.h"

static const struct {
    int32_t ranks;
    const char *pre; /* the tokenizer.ggml.pre name with the same pattern */
    const char *encoding;
} encodings[] = {
    {50256, "gpt-2", "r50k_base"},
    {50280, "gpt-2", "p50k_base"},
    {100256, "llama-bpe", "cl100k_base"},
    {128000, "llama-bpe", "Llama 3"},
    {151643, "qwen2", "Qwen"},
    {163584, "kimi-k2", "Kimi K2"},
    {199998, "gpt-4o", "o200k_base"},
    {200000, "gpt-4o", "Llama 4"},
};

/* Reads one line; *len becomes its length, newline included. */
static vt_status read_line(vt_tokenizer *t, const char *name, const char *s, size_t n, size_t line,
                           size_t *len, vt_buf *bytes, vt_err *err)
{
    const char *newline = memchr(s, '\n', n);
    size_t end = newline ? (size_t)(newline - s) : n;
    *len = end + (newline != NULL);
    if (end > 0 && s[end - 1] == '\r')
        end--;
    if (end == 0)
        return VT_OK;
    const char *space = memchr(s, ' ', end);
    int64_t rank = -1;
    for (const char *p = space ? space + 1 : s + end; p < s + end; p++) {
        rank = *p >= '0' && *p <= '9' && rank < VOCAB_MAX ? (rank < 0 ? 0 : rank) * 10 + (*p - '0')
                                                          : VOCAB_MAX;
    }
    vt_buf_clear(bytes);
    if (rank < 0 || rank >= VOCAB_MAX || !tok_base64(s, (size_t)(space - s), bytes) ||
        bytes->len == 0)
        return vt_fail(err, VT_ERR_FORMAT, "%s: line %zu is not a base64 token, a space and a rank",
                       name, line);
    if (rank < t->vocab.n && (t->vocab.piece[rank].flags & PIECE_PRESENT))
        return vt_fail(err, VT_ERR_FORMAT, "%s: line %zu: rank %lld is given twice", name, line,
                       (long long)rank);
    return vocab_set(&t->vocab, (int32_t)rank, bytes->data, bytes->len, PIECE_MODEL, err);
}

static vt_status read_ranks(vt_tokenizer *t, const char *name, const char *data, size_t len,
                            vt_err *err)
{
    vt_buf bytes;
    vt_buf_init(&bytes, 0);
    vt_status status = vocab_reserve(&t->vocab, len / 16, len / 2, 0, err);
    size_t used = 0;
    for (size_t line = 1; status == VT_OK && len > 0; line++, data += used, len -= used)
        status = read_line(t, name, data, len, line, &used, &bytes, err);
    vt_buf_release(&bytes);
    return status;
}

static vt_status apply_encoding(vt_tokenizer *t, const char *name, vt_err *err)
{
    bool add_bos;
    for (size_t i = 0; i < sizeof encodings / sizeof *encodings; i++)
        if (encodings[i].ranks == t->vocab.n) {
            TRY(tok_apply_pre_name(t, name, encodings[i].pre, strlen(encodings[i].pre), &add_bos,
                                   err));
            t->ignore_merges = true; /* tiktoken looks the whole word up first */
            return VT_OK;
        }
    return vt_fail(err, VT_ERR_UNSUPPORTED,
                   "%s: a tiktoken file of %d ranks is none of the encodings whose pattern is "
                   "known (r50k, p50k, "
                   "cl100k, o200k, Llama 3 and 4, Qwen, Kimi K2)",
                   name, t->vocab.n);
}

/* "added_tokens_decoder": {"128000": {"content": "<|begin_of_text|>", "special": true, ...},
 * ...} */
static vt_status add_special(vt_tokenizer *t, const vt_flat_doc *config, vt_err *err)
{
    const vt_flat_node *list = vt_flat_get(config, config->node, "added_tokens_decoder");
    for (const vt_flat_node *k = vt_flat_first(list), *v; k; k = vt_flat_after(config, list, v)) {
        const vt_flat_node *content = vt_flat_get(config, v = config->node + k->next, "content");
        int64_t id = 0;
        for (uint32_t i = 0; i < k->len && id < VOCAB_MAX; i++)
            id = k->s[i] >= '0' && k->s[i] <= '9' ? id * 10 + (k->s[i] - '0') : VOCAB_MAX;
        if (k->len == 0 || id >= VOCAB_MAX || !content || content->type != VT_FLAT_STRING)
            return vt_fail(err, VT_ERR_FORMAT,
                           "tokenizer_config.json: added_tokens_decoder['%.*s'] is not an id with "
                           "a content",
                           (int)(k->len > 40 ? 40 : k->len), k->s);
        if (id < t->vocab.n && (t->vocab.piece[id].flags & PIECE_PRESENT))
            return vt_fail(err, VT_ERR_FORMAT,
                           "tokenizer_config.json: added token %lld has the id of a rank",
                           (long long)id);
        added_token a = {.id = (int32_t)id, .content = content->s, .len = content->len};
        a.special = vt_flat_bool(vt_flat_get(config, v, "special"), false);
        a.lstrip = vt_flat_bool(vt_flat_get(config, v, "lstrip"), false);
        a.rstrip = vt_flat_bool(vt_flat_get(config, v, "rstrip"), false);
        TRY(tok_set_piece(t, a.id, a.content, a.len, 0, err));
        TRY(tok_add_added(t, &a, err));
    }
    return VT_OK;
}

static vt_status load(vt_tokenizer *t, const char *name, const char *data, size_t len,
                      const vt_flat_doc *config, vt_err *err)
{
    TRY(read_ranks(t, name, data, len, err));
    TRY(apply_encoding(t, name, err));
    TRY(tok_merges_by_id(t, err));
    t->dec[t->n_dec++] = (dec_step){.kind = DEC_BYTES};
    if (config) {
        static const char *const keys[2] = {"bos_token", "eos_token"};
        TRY(add_special(t, config, err));
        for (int i = 0; i < 2; i++) {
            const vt_flat_node *v = vt_flat_get(config, config->node, keys[i]);
            if (v && v->type == VT_FLAT_OBJECT)
                v = vt_flat_get(config, v, "content");
            if (v && v->type == VT_FLAT_STRING)
                *(i ? &t->eos : &t->bos) = vt_tokenizer_find(t, v->s, v->len);
        }
        bool llama3 = t->vocab.n > 128000 && vt_tokenizer_find(t, "<|begin_of_text|>", 17) >= 0;
        t->add_bos = t->bos >= 0 &&
                     vt_flat_bool(vt_flat_get(config, config->node, "add_bos_token"), llama3);
        if (t->add_bos)
            t->affix[t->n_affix++] = t->bos;
    }
    return tok_finish(t, err);
}

vt_status vt_tokenizer_from_tiktoken(const char *name, const char *data, size_t len,
                                     const char *config, size_t config_len, vt_tokenizer **out,
                                     vt_err *err)
{
    vt_flat_doc doc = {0};
    vt_tokenizer *t;
    TRY(tok_new(&t, err));
    vt_status status = config
                           ? vt_flat_parse("tokenizer_config.json", config, config_len, &doc, err)
                           : VT_OK;
    if (status == VT_OK)
        status = load(t, name, data, len, config ? &doc : NULL, err);
    vt_flat_release(&doc);
    if (status != VT_OK) {
        vt_tokenizer_free(t);
        return status;
    }
    *out = t;
    return VT_OK;
}
