/* Tokenizers from vocab.txt, BERT's older form: a piece on each line, its number is its id. What
 * tokenizer_config.json says of the text's form has BertTokenizer's defaults where it is silent. */
#include <string.h>

#include "files/json_flat.h"
#include "text/tokenizer/internal.h"

static vt_status add_lines(vt_tokenizer *t, const char *name, const char *data, size_t len,
                           vt_err *err)
{
    int32_t id = 0;
    for (size_t at = 0; at < len; id++) {
        const char *line = data + at, *end = memchr(line, '\n', len - at);
        size_t n = end ? (size_t)(end - line) : len - at;
        at += n + 1;
        if (id == VOCAB_MAX)
            return vt_fail(err, VT_ERR_UNSUPPORTED, "%s: more than %d lines", name, VOCAB_MAX);
        n -= n > 0 && line[n - 1] == '\r';
        if (n == 0)
            return vt_fail(err, VT_ERR_FORMAT, "%s: line %d is empty; a token was expected", name,
                           id + 1);
        TRY(tok_set_piece(t, id, line, n, PIECE_MODEL, err));
    }
    return VT_OK;
}

/* The special tokens, by the names that all published vocabularies have. */
static vt_status add_special(vt_tokenizer *t, const char *name, vt_err *err)
{
    static const char *const special[] = {"[CLS]", "[SEP]", "[UNK]", "[PAD]", "[MASK]"};
    int32_t id[5];
    for (int i = 0; i < 5; i++) {
        id[i] = vt_tokenizer_find(t, special[i], strlen(special[i]));
        if (id[i] < 0 && i < 3)
            return vt_fail(err, VT_ERR_FORMAT, "%s: there is no token %s", name, special[i]);
        added_token a = {
            .id = id[i], .special = true, .content = special[i], .len = strlen(special[i])};
        if (id[i] >= 0)
            TRY(tok_add_added(t, &a, err));
    }
    t->bos = id[0];
    t->unk = id[2];
    t->add_bos = true;
    t->affix[t->n_affix++] = id[0];
    t->tail[t->n_tail++] = id[1];
    tok_set_pair(t, id[1], 1, true);
    return VT_OK;
}

static vt_status read_form(vt_tokenizer *t, const char *config, size_t len, vt_err *err)
{
    bool lower = true, strip = true, chinese = true;
    if (config) {
        vt_flat_doc doc;
        TRY(vt_flat_parse("tokenizer_config.json", config, len, &doc, err));
        lower = vt_flat_bool(vt_flat_get(&doc, doc.node, "do_lower_case"), true);
        strip = vt_flat_bool(vt_flat_get(&doc, doc.node, "strip_accents"), lower);
        chinese = vt_flat_bool(vt_flat_get(&doc, doc.node, "tokenize_chinese_chars"), true);
        vt_flat_release(&doc);
    }
    return tok_add_bert_norm(t, true, chinese, strip, lower, err);
}

static vt_status load(vt_tokenizer *t, const char *name, const char *data, size_t len,
                      const char *config, size_t config_len, vt_err *err)
{
    t->wordpiece = true;
    t->most_chars = TOK_WORD_CHARS;
    t->prefix = "##";
    t->prefix_len = 2;
    TRY(read_form(t, config, config_len, err));
    t->pre[t->n_pre++] = (pre_step){.kind = PRE_SPACE, .behaviour = SPLIT_REMOVED};
    t->pre[t->n_pre++] = (pre_step){.kind = PRE_PUNCTUATION, .behaviour = SPLIT_ISOLATED};
    t->dec[t->n_dec++] = (dec_step){
        .kind = DEC_WORDPIECE, .pattern = "##", .pattern_len = 2, .cleanup = true};
    TRY(add_lines(t, name, data, len, err));
    TRY(add_special(t, name, err));
    return tok_finish(t, err);
}

vt_status vt_tokenizer_from_vocab(const char *name, const char *data, size_t len,
                                  const char *config, size_t config_len, vt_tokenizer **out,
                                  vt_err *err)
{
    vt_tokenizer *t;
    TRY(tok_new(&t, err));
    vt_status status = load(t, name, data, len, config, config_len, err);
    if (status != VT_OK) {
        vt_tokenizer_free(t);
        return status;
    }
    *out = t;
    return VT_OK;
}
