/* Tokenizers from tokenizer.json, the file of Hugging Face's `tokenizers`.
 *
 * The file lists the stages by type name; each is translated into our step of the same meaning,
 * and a name we do not know is refused with its place. What the file says about truncation and
 * padding is left to the caller, like in transformers. tokenizer_config.json is read only for
 * bos_token, eos_token and add_bos_token.
 *
 * The model, its vocabulary and the added tokens are read here, the other stages in
 * from_json_steps.c.
 */
#include <math.h>
#include <string.h>

#include "text/tokenizer/from_json.h"

static vt_status add_vocab(tok_json *l, const vt_flat_node *vocabulary)
{
    vt_tokenizer *t = l->t;
    if (!vocabulary || vocabulary->type != VT_FLAT_OBJECT)
        return vt_fail(l->err, VT_ERR_FORMAT, "%s: model.vocab is missing or no object", l->name);
    TRY(vocab_reserve(&t->vocab, vocabulary->len, (size_t)vocabulary->len * 8, 0, l->err));
    for (const vt_flat_node *k = vt_flat_first(vocabulary), *v; k;
         k = vt_flat_after(l->doc, vocabulary, v)) {
        v = l->doc->node + k->next;
        if (v->type != VT_FLAT_NUMBER || !(v->number >= 0) || v->number >= VOCAB_MAX ||
            v->number != (int32_t)v->number)
            return vt_fail(l->err, VT_ERR_FORMAT,
                           "%s: model.vocab: token '%.*s' has no id in 0..%d", l->name,
                           tok_json_show(k), k->s, VOCAB_MAX - 1);
        int32_t id = (int32_t)v->number;
        if (id < t->vocab.n && (t->vocab.piece[id].flags & PIECE_PRESENT))
            return vt_fail(l->err, VT_ERR_FORMAT,
                           "%s: model.vocab: id %d is given twice, the second time to '%.*s'",
                           l->name, id, tok_json_show(k), k->s);
        TRY(tok_set_piece(t, id, k->s, k->len, PIECE_MODEL, l->err));
    }
    l->n_model = (int32_t)vocabulary->len;
    return VT_OK;
}

/* The id of a piece by its spelling in the file; -1 if there is none. */
static int32_t model_id(tok_json *l, const char *s, size_t n)
{
    if (!l->t->byte_level)
        return vocab_find(&l->t->vocab, s, n);
    vt_buf_clear(&l->raw);
    if (tok_unmap(s, n, &l->raw))
        return vocab_find(&l->t->vocab, l->raw.data ? l->raw.data : "", l->raw.len);
    return vt_tokenizer_find(l->t, s, n);
}

static vt_status add_merge(tok_json *l, const char *a, size_t a_len, const char *b, size_t b_len,
                           uint32_t rank)
{
    vt_tokenizer *t = l->t;
    int32_t left = model_id(l, a, a_len), right = model_id(l, b, b_len);
    size_t skip = t->prefix_len <= b_len ? t->prefix_len : b_len;
    vt_buf_clear(&l->joined);
    if (!vt_buf_add(&l->joined, a, a_len) || !vt_buf_add(&l->joined, b + skip, b_len - skip))
        return tok_no_memory(l->err);
    int32_t made = left < 0 || right < 0 ? -1 : model_id(l, l->joined.data, l->joined.len);
    if (made < 0)
        return vt_fail(l->err, VT_ERR_FORMAT,
                       "%s: model.merges[%u] '%.*s' '%.*s': %s is not in the vocabulary", l->name,
                       rank, (int)(a_len > 60 ? 60 : a_len), a, (int)(b_len > 60 ? 60 : b_len), b,
                       left < 0    ? "the first"
                       : right < 0 ? "the second"
                                   : "their union");
    return vocab_add_merge(&t->vocab, left, right, rank, made, l->err);
}

static vt_status add_merges(tok_json *l, const vt_flat_node *merges)
{
    uint32_t rank = 0;
    if (!merges || merges->type != VT_FLAT_ARRAY)
        return vt_fail(l->err, VT_ERR_FORMAT, "%s: model.merges is missing or no array", l->name);
    TRY(vocab_reserve(&l->t->vocab, 0, 0, merges->len, l->err));
    for (const vt_flat_node *m = vt_flat_first(merges); m;
         m = vt_flat_after(l->doc, merges, m), rank++) {
        const vt_flat_node *a = vt_flat_first(m), *b = a ? l->doc->node + a->next : NULL;
        if (m->type == VT_FLAT_ARRAY && m->len == 2 && a->type == VT_FLAT_STRING &&
            b->type == VT_FLAT_STRING) {
            TRY(add_merge(l, a->s, a->len, b->s, b->len, rank));
            continue;
        }
        const char *space = m->type == VT_FLAT_STRING ? memchr(m->s, ' ', m->len) : NULL;
        size_t left = space ? (size_t)(space - m->s) : 0;
        if (!space || memchr(space + 1, ' ', m->len - left - 1))
            return vt_fail(l->err, VT_ERR_FORMAT, "%s: model.merges[%u] is not a pair of tokens",
                           l->name, rank);
        TRY(add_merge(l, m->s, left, space + 1, m->len - left - 1, rank));
    }
    return VT_OK;
}

/* A string member copied into the tokenizer; "" if absent. */
static vt_status copy_string(tok_json *l, const vt_flat_node *v, const char **s, size_t *len)
{
    *s = "";
    *len = 0;
    if (!v || v->type != VT_FLAT_STRING)
        return VT_OK;
    *s = vt_arena_strdup(&l->t->arena, v->s, v->len);
    *len = v->len;
    return *s ? VT_OK : tok_no_memory(l->err);
}

static vt_status load_unknown(tok_json *l, const vt_flat_node *model)
{
    const vt_flat_node *unk = vt_flat_get(l->doc, model, "unk_token");
    if (!unk || unk->type != VT_FLAT_STRING)
        return VT_OK;
    l->t->unk = model_id(l, unk->s, unk->len);
    if (l->t->unk < 0)
        return vt_fail(l->err, VT_ERR_FORMAT, "%s: model.unk_token '%.*s' is not in the vocabulary",
                       l->name, tok_json_show(unk), unk->s);
    return VT_OK;
}

static vt_status load_prefix(tok_json *l, const vt_flat_node *model, const char *key,
                             const char **s, size_t *len)
{
    TRY(copy_string(l, vt_flat_get(l->doc, model, key), s, len));
    if (*len > TOK_MAX_SUBWORD)
        return vt_fail(l->err, VT_ERR_UNSUPPORTED, "%s: model.%s has %zu bytes, more than %d",
                       l->name, key, *len, TOK_MAX_SUBWORD);
    return VT_OK;
}

/* A model of type WordPiece; the members that are absent have the defaults of `tokenizers`. */
static vt_status load_wordpiece(tok_json *l, const vt_flat_node *model)
{
    vt_tokenizer *t = l->t;
    const vt_flat_node *most = vt_flat_get(l->doc, model, "max_input_chars_per_word");
    t->wordpiece = true;
    t->most_chars = TOK_WORD_CHARS;
    if (most && !(most->type == VT_FLAT_NUMBER && most->number >= 1 && most->number <= 1000))
        return vt_fail(l->err, VT_ERR_UNSUPPORTED,
                       "%s: model.max_input_chars_per_word is no number from 1 to 1000", l->name);
    if (most)
        t->most_chars = (int32_t)most->number;
    TRY(load_prefix(l, model, "continuing_subword_prefix", &t->prefix, &t->prefix_len));
    TRY(add_vocab(l, vt_flat_get(l->doc, model, "vocab")));
    TRY(load_unknown(l, model));
    return t->unk >= 0 ? VT_OK
                       : vt_fail(l->err, VT_ERR_FORMAT, "%s: model.unk_token is missing", l->name);
}

/* One entry of a Unigram vocabulary, [piece, score]; its number is its id. */
static vt_status add_scored(tok_json *l, const vt_flat_node *pair, int32_t id)
{
    const vt_flat_node *piece = vt_flat_first(pair), *score = NULL;
    if (pair->type == VT_FLAT_ARRAY && pair->len == 2)
        score = l->doc->node + piece->next;
    if (!score || piece->type != VT_FLAT_STRING || score->type != VT_FLAT_NUMBER ||
        !isfinite(score->number))
        return vt_fail(l->err, VT_ERR_FORMAT, "%s: model.vocab[%d] is no piece and its score",
                       l->name, id);
    l->t->score[id] = score->number;
    return tok_set_piece(l->t, id, piece->s, piece->len, PIECE_MODEL, l->err);
}

/* A model of type Unigram. */
static vt_status load_unigram(tok_json *l, const vt_flat_node *model)
{
    vt_tokenizer *t = l->t;
    const vt_flat_node *list = vt_flat_get(l->doc, model, "vocab"),
                       *unk = vt_flat_get(l->doc, model, "unk_id");
    if (!list || list->type != VT_FLAT_ARRAY || list->len > VOCAB_MAX)
        return vt_fail(l->err, VT_ERR_FORMAT,
                       "%s: model.vocab is no array of at most %d pieces and scores", l->name,
                       VOCAB_MAX);
    if (!unk || unk->type != VT_FLAT_NUMBER || !(unk->number >= 0 && unk->number < list->len) ||
        unk->number != (uint32_t)unk->number)
        return vt_fail(l->err, VT_ERR_UNSUPPORTED,
                       "%s: model.unk_id is no number of one of the %u pieces", l->name, list->len);
    if (t->byte_level)
        return vt_fail(l->err, VT_ERR_UNSUPPORTED,
                       "%s: ByteLevel with a Unigram model is not supported", l->name);
    t->unigram = true;
    t->unk = (int32_t)unk->number;
    t->byte_fallback = vt_flat_bool(vt_flat_get(l->doc, model, "byte_fallback"), false);
    t->score = vt_arena_alloc(&t->arena, list->len, sizeof *t->score);
    if (!t->score)
        return tok_no_memory(l->err);
    TRY(vocab_reserve(&t->vocab, list->len, (size_t)list->len * 8, 0, l->err));
    for (const vt_flat_node *v = vt_flat_first(list); v; v = vt_flat_after(l->doc, list, v))
        TRY(add_scored(l, v, l->n_model++));
    return VT_OK;
}

static vt_status load_model(tok_json *l, const vt_flat_node *model)
{
    vt_tokenizer *t = l->t;
    const vt_flat_node *type = vt_flat_get(l->doc, model, "type"),
                       *dropout = vt_flat_get(l->doc, model, "dropout");
    if (!model || model->type != VT_FLAT_OBJECT)
        return vt_fail(l->err, VT_ERR_FORMAT, "%s: model is missing or no object", l->name);
    if (vt_flat_is(type, "WordPiece"))
        return load_wordpiece(l, model);
    if (vt_flat_is(type, "Unigram"))
        return load_unigram(l, model);
    if (type ? !vt_flat_is(type, "BPE") : !vt_flat_get(l->doc, model, "merges"))
        return tok_json_refuse(l, "model", type);
    if (dropout && !(dropout->type == VT_FLAT_NUMBER && dropout->number == 0))
        return vt_fail(l->err, VT_ERR_UNSUPPORTED,
                       "%s: model.dropout makes encoding random; null was expected", l->name);
    TRY(load_prefix(l, model, "continuing_subword_prefix", &t->prefix, &t->prefix_len));
    TRY(load_prefix(l, model, "end_of_word_suffix", &t->suffix, &t->suffix_len));
    t->fuse_unk = vt_flat_bool(vt_flat_get(l->doc, model, "fuse_unk"), false);
    t->byte_fallback = vt_flat_bool(vt_flat_get(l->doc, model, "byte_fallback"), false);
    t->ignore_merges = vt_flat_bool(vt_flat_get(l->doc, model, "ignore_merges"), false);
    TRY(add_vocab(l, vt_flat_get(l->doc, model, "vocab")));
    TRY(add_merges(l, vt_flat_get(l->doc, model, "merges")));
    return load_unknown(l, model);
}

/* One entry of added_tokens. Its id is that of the model's piece with this spelling, else the next
 * free one, as Hugging Face counts; the id in the file is not looked at. */
static vt_status add_added(tok_json *l, const vt_flat_node *v, uint32_t index)
{
    vt_tokenizer *t = l->t;
    const vt_flat_node *content = vt_flat_get(l->doc, v, "content");
    if (!content || content->type != VT_FLAT_STRING)
        return vt_fail(l->err, VT_ERR_FORMAT, "%s: added_tokens[%u] has no content", l->name,
                       index);
    if (content->len == 0)
        return VT_OK;
    added_token a = {.content = content->s, .len = content->len};
    a.special = vt_flat_bool(vt_flat_get(l->doc, v, "special"), false);
    a.single_word = vt_flat_bool(vt_flat_get(l->doc, v, "single_word"), false);
    a.lstrip = vt_flat_bool(vt_flat_get(l->doc, v, "lstrip"), false);
    a.rstrip = vt_flat_bool(vt_flat_get(l->doc, v, "rstrip"), false);
    a.normalized = vt_flat_bool(vt_flat_get(l->doc, v, "normalized"), !a.special);
    a.id = vt_tokenizer_find(t, a.content, a.len);
    if (a.id < 0) {
        a.id = l->max_added >= l->n_model ? l->max_added + 1 : l->n_model;
        if (a.id < t->vocab.n && (t->vocab.piece[a.id].flags & PIECE_PRESENT))
            return vt_fail(l->err, VT_ERR_FORMAT,
                           "%s: added_tokens[%u] '%.*s' would get id %d, which is taken", l->name,
                           index, tok_json_show(content), content->s, a.id);
        TRY(tok_set_piece(t, a.id, a.content, a.len, 0, l->err));
    }
    if (a.id > l->max_added)
        l->max_added = a.id;
    return tok_add_added(t, &a, l->err);
}

static vt_status load_added(tok_json *l, const vt_flat_node *list)
{
    uint32_t i = 0;
    l->max_added = -1;
    for (const vt_flat_node *v = vt_flat_first(list); v; v = vt_flat_after(l->doc, list, v), i++)
        TRY(add_added(l, v, i));
    return VT_OK;
}

/* The id of a token that tokenizer_config.json names as text or as {"content": text}; -1. */
static int32_t config_token(const vt_flat_doc *config, const vt_tokenizer *t, const char *key)
{
    const vt_flat_node *v = vt_flat_get(config, config->node, key);
    if (v && v->type == VT_FLAT_OBJECT)
        v = vt_flat_get(config, v, "content");
    return v && v->type == VT_FLAT_STRING ? vt_tokenizer_find(t, v->s, v->len) : -1;
}

static vt_status load_config(tok_json *l, const char *config, size_t len)
{
    vt_tokenizer *t = l->t;
    t->bos = t->n_affix ? t->affix[t->n_affix - 1] : -1;
    if (config) {
        vt_flat_doc doc;
        TRY(vt_flat_parse("tokenizer_config.json", config, len, &doc, l->err));
        int32_t bos = config_token(&doc, t, "bos_token");
        t->eos = config_token(&doc, t, "eos_token");
        if (bos >= 0)
            t->bos = bos;
        if (t->n_affix == 0 && bos >= 0 &&
            vt_flat_bool(vt_flat_get(&doc, doc.node, "add_bos_token"), false))
            t->affix[t->n_affix++] = bos;
        if (t->n_tail == 0 && t->eos >= 0 &&
            vt_flat_bool(vt_flat_get(&doc, doc.node, "add_eos_token"), false))
            t->tail[t->n_tail++] = t->eos;
        vt_flat_release(&doc);
    }
    t->add_bos = t->n_affix > 0;
    return VT_OK;
}

static vt_status load(tok_json *l, const char *config, size_t config_len)
{
    const vt_flat_node *root = l->doc->node;
    if (root->type != VT_FLAT_OBJECT)
        return vt_fail(l->err, VT_ERR_FORMAT, "%s: an object was expected", l->name);
    TRY(tok_json_normalizer(l, vt_flat_get(l->doc, root, "normalizer"), 0));
    TRY(tok_json_pre_tokenizer(l, vt_flat_get(l->doc, root, "pre_tokenizer"), 0));
    TRY(tok_json_decoder(l, vt_flat_get(l->doc, root, "decoder"), 0));
    if (l->t->n_dec == 0)
        l->t->dec[l->t->n_dec++] = (dec_step){.kind = DEC_SPACES};
    TRY(load_model(l, vt_flat_get(l->doc, root, "model")));
    TRY(load_added(l, vt_flat_get(l->doc, root, "added_tokens")));
    TRY(tok_json_post_processor(l, vt_flat_get(l->doc, root, "post_processor"), 0));
    TRY(load_config(l, config, config_len));
    TRY(tok_finish(l->t, l->err));
    if (l->t->eos < 0 && l->t->n_eos_ids)
        l->t->eos = l->t->eos_ids[0];
    return VT_OK;
}

vt_status vt_tokenizer_from_json(const char *name, const char *json, size_t len, const char *config,
                                 size_t config_len, vt_tokenizer **out, vt_err *err)
{
    vt_flat_doc doc;
    tok_json l = {.name = name, .doc = &doc, .err = err};
    TRY(vt_flat_parse(name, json, len, &doc, err));
    vt_status status = tok_new(&l.t, err);
    if (status == VT_OK) {
        vt_buf_init(&l.raw, 0);
        vt_buf_init(&l.joined, 0);
        status = load(&l, config, config_len);
        vt_buf_release(&l.raw);
        vt_buf_release(&l.joined);
    }
    vt_flat_release(&doc);
    if (status != VT_OK) {
        vt_tokenizer_free(l.t);
        return status;
    }
    *out = l.t;
    return VT_OK;
}
