/* tokenizer.json: normalizers, pre-tokenizers, decoders and post-processors by their type names. */
#include <string.h>

#include "text/tokenizer/from_json.h"

enum { MAX_NESTING = 8 };

vt_status tok_json_refuse(tok_json *l, const char *where, const vt_flat_node *type)
{
    if (!type || type->type != VT_FLAT_STRING)
        return vt_fail(l->err, VT_ERR_FORMAT, "%s: %s has no type", l->name, where);
    return vt_fail(l->err, VT_ERR_UNSUPPORTED, "%s: %s of type '%.*s' is not supported", l->name,
                   where, tok_json_show(type), type->s);
}

static const vt_flat_node *get(tok_json *l, const vt_flat_node *v, const char *key)
{
    return vt_flat_get(l->doc, v, key);
}

static vt_status wrong(tok_json *l, const char *where, const char *key)
{
    return vt_fail(l->err, VT_ERR_FORMAT, "%s: %s.%s is missing or not what was expected", l->name,
                   where, key);
}

static vt_status too_many(tok_json *l, const char *where)
{
    return vt_fail(l->err, VT_ERR_UNSUPPORTED, "%s: more than %d steps of a %s", l->name,
                   TOK_MAX_STEPS, where);
}

/* Copies a string member into the tokenizer; refuses another type. */
static vt_status need_string(tok_json *l, const vt_flat_node *v, const char *where, const char *key,
                             const char **s, size_t *len)
{
    const vt_flat_node *m = get(l, v, key);
    if (!m || m->type != VT_FLAT_STRING)
        return wrong(l, where, key);
    *s = vt_arena_strdup(&l->t->arena, m->s, m->len);
    *len = m->len;
    return *s ? VT_OK : tok_no_memory(l->err);
}

/* Reads "pattern": {"String": s} into *s, or {"Regex": s} into *regex. */
static vt_status need_pattern(tok_json *l, const vt_flat_node *v, const char *where, const char **s,
                              size_t *len, vt_regex **regex)
{
    const vt_flat_node *pattern = get(l, v, "pattern"), *r = get(l, pattern, "Regex");
    *regex = NULL;
    if (r && r->type == VT_FLAT_STRING) {
        vt_err inner = {0};
        vt_status status = vt_regex_compile(r->s, r->len, regex, &inner);
        return status == VT_OK ? VT_OK
                               : vt_fail(l->err, status, "%s: %s.pattern '%.*s': %s", l->name,
                                         where, tok_json_show(r), r->s, inner.message);
    }
    TRY(need_string(l, pattern, where, "String", s, len));
    return *len ? VT_OK : wrong(l, where, "pattern");
}

/* Calls `load` on the members of a Sequence. */
static vt_status each(tok_json *l, const vt_flat_node *v, const char *where, const char *key,
                      int depth, vt_status (*load)(tok_json *, const vt_flat_node *, int))
{
    const vt_flat_node *list = get(l, v, key);
    if (!list || list->type != VT_FLAT_ARRAY)
        return wrong(l, where, key);
    if (depth >= MAX_NESTING)
        return vt_fail(l->err, VT_ERR_UNSUPPORTED, "%s: %s nested deeper than %d", l->name, where,
                       MAX_NESTING);
    for (const vt_flat_node *c = vt_flat_first(list); c; c = vt_flat_after(l->doc, list, c))
        TRY(load(l, c, depth + 1));
    return VT_OK;
}

/* ---- normalizers ---- */

static vt_status precompiled(tok_json *l, const vt_flat_node *v, norm_step *s)
{
    const vt_flat_node *map = get(l, v, "precompiled_charsmap");
    vt_buf bytes = {0};
    if (!map || map->type != VT_FLAT_STRING || !tok_base64(map->s, map->len, &bytes)) {
        vt_buf_release(&bytes);
        return wrong(l, "normalizer", "precompiled_charsmap");
    }
    vt_status status = charsmap_read(l->t, l->name, bytes.data ? bytes.data : "", bytes.len, false,
                                     &s->map, l->err);
    vt_buf_release(&bytes);
    return status;
}

vt_status tok_json_normalizer(tok_json *l, const vt_flat_node *v, int depth)
{
    static const struct {
        const char *type;
        norm_step step;
    } plain[] = {{"NFD", {.kind = NORM_FORM, .form = VT_NFD}},
                 {"NFC", {.kind = NORM_FORM, .form = VT_NFC}},
                 {"NFKD", {.kind = NORM_FORM, .form = VT_NFKD}},
                 {"NFKC", {.kind = NORM_FORM, .form = VT_NFKC}},
                 {"Lowercase", {.kind = NORM_LOWER}},
                 {"StripAccents", {.kind = NORM_ACCENTS}},
                 {"ByteLevel", {.kind = NORM_BYTES}},
                 {"Strip", {.kind = NORM_STRIP}},
                 {"Prepend", {.kind = NORM_PREPEND}},
                 {"Replace", {.kind = NORM_REPLACE}},
                 {"Precompiled", {.kind = NORM_CHARSMAP}}};
    const char *where = "normalizer";
    if (!v)
        return VT_OK;
    const vt_flat_node *type = get(l, v, "type");
    if (vt_flat_is(type, "Sequence"))
        return each(l, v, where, "normalizers", depth, tok_json_normalizer);
    if (vt_flat_is(type, "BertNormalizer")) {
        bool lower = vt_flat_bool(get(l, v, "lowercase"), true);
        return tok_add_bert_norm(l->t, vt_flat_bool(get(l, v, "clean_text"), true),
                                 vt_flat_bool(get(l, v, "handle_chinese_chars"), true),
                                 vt_flat_bool(get(l, v, "strip_accents"), lower), lower, l->err);
    }
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        if (!vt_flat_is(type, plain[i].type))
            continue;
        if (l->t->n_norm == TOK_MAX_STEPS)
            return too_many(l, where);
        norm_step *s = &l->t->norm[l->t->n_norm++];
        *s = plain[i].step;
        if (s->kind == NORM_BYTES)
            l->t->byte_level = l->t->mapped = true;
        s->left = vt_flat_bool(get(l, v, "strip_left"), true);
        s->right = vt_flat_bool(get(l, v, "strip_right"), true);
        if (s->kind == NORM_CHARSMAP)
            return precompiled(l, v, s);
        if (s->kind == NORM_PREPEND)
            return need_string(l, v, where, "prepend", &s->content, &s->content_len);
        if (s->kind == NORM_REPLACE) {
            TRY(need_string(l, v, where, "content", &s->content, &s->content_len));
            return need_pattern(l, v, where, &s->pattern, &s->pattern_len, &s->regex);
        }
        return VT_OK;
    }
    return tok_json_refuse(l, where, type);
}

/* ---- pre-tokenizers ---- */

static vt_status behaviour(tok_json *l, const vt_flat_node *v, split_behaviour *out)
{
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous"};
    const vt_flat_node *b = get(l, v, "behavior");
    for (int i = 0; i < 5; i++)
        if (vt_flat_is(b, names[i])) {
            *out = (split_behaviour)i;
            return VT_OK;
        }
    return b ? wrong(l, "pre_tokenizer", "behavior") : VT_OK;
}

static vt_status metaspace(tok_json *l, const vt_flat_node *v, pre_step *s)
{
    const vt_flat_node *scheme = get(l, v, "prepend_scheme");
    TRY(need_string(l, v, "pre_tokenizer", "replacement", &s->string, &s->string_len));
    if (s->string_len == 0)
        return wrong(l, "pre_tokenizer", "replacement");
    s->behaviour = SPLIT_WITH_NEXT;
    s->split = vt_flat_bool(get(l, v, "split"), true);
    if (vt_flat_is(scheme, "first"))
        s->scheme = PREPEND_FIRST;
    else if (vt_flat_is(scheme, "never") || !vt_flat_bool(get(l, v, "add_prefix_space"), true))
        s->scheme = PREPEND_NEVER;
    else if (scheme && !vt_flat_is(scheme, "always"))
        return wrong(l, "pre_tokenizer", "prepend_scheme");
    return VT_OK;
}

/* Reads a step of one of the types that have fields; *known is false for other types. */
static vt_status pre_with_fields(tok_json *l, const vt_flat_node *v, const vt_flat_node *type,
                                 pre_step *s, bool *known)
{
    *known = true;
    if (vt_flat_is(type, "Split")) {
        s->invert = vt_flat_bool(get(l, v, "invert"), false);
        if (!get(l, v, "behavior"))
            return wrong(l, "pre_tokenizer", "behavior");
        TRY(behaviour(l, v, &s->behaviour));
        TRY(need_pattern(l, v, "pre_tokenizer", &s->string, &s->string_len, &s->regex));
        s->kind = s->regex ? PRE_REGEX : PRE_STRING;
        return VT_OK;
    }
    if (vt_flat_is(type, "Digits")) {
        bool individual = vt_flat_bool(get(l, v, "individual_digits"), false);
        s->kind = individual ? PRE_DIGITS : PRE_DIGIT_RUNS;
        s->behaviour = individual ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS;
        return VT_OK;
    }
    if (vt_flat_is(type, "Metaspace")) {
        s->kind = PRE_METASPACE;
        return metaspace(l, v, s);
    }
    if (vt_flat_is(type, "Punctuation")) {
        s->kind = PRE_PUNCTUATION;
        s->behaviour = SPLIT_ISOLATED;
        return behaviour(l, v, &s->behaviour);
    }
    if (vt_flat_is(type, "CharDelimiterSplit")) {
        s->kind = PRE_STRING;
        s->behaviour = SPLIT_REMOVED;
        TRY(need_string(l, v, "pre_tokenizer", "delimiter", &s->string, &s->string_len));
        return s->string_len ? VT_OK : wrong(l, "pre_tokenizer", "delimiter");
    }
    if (vt_flat_is(type, "FixedLength")) {
        const vt_flat_node *length = get(l, v, "length");
        if (!length || length->type != VT_FLAT_NUMBER ||
            !(length->number >= 1 && length->number <= 1 << 20))
            return wrong(l, "pre_tokenizer", "length");
        s->kind = PRE_CHAR_GROUPS;
        s->behaviour = SPLIT_ISOLATED;
        s->group = (int32_t)length->number;
        return VT_OK;
    }
    *known = false;
    return VT_OK;
}

vt_status tok_json_pre_tokenizer(tok_json *l, const vt_flat_node *v, int depth)
{
    const char *where = "pre_tokenizer";
    vt_tokenizer *t = l->t;
    if (!v)
        return VT_OK;
    const vt_flat_node *type = get(l, v, "type");
    if (vt_flat_is(type, "Sequence"))
        return each(l, v, where, "pretokenizers", depth, tok_json_pre_tokenizer);
    if (vt_flat_is(type, "ByteLevel")) {
        if (t->byte_level)
            return vt_fail(l->err, VT_ERR_UNSUPPORTED, "%s: ByteLevel twice is not supported",
                           l->name);
        return tok_add_bytes(t, vt_flat_bool(get(l, v, "add_prefix_space"), true),
                             vt_flat_bool(get(l, v, "use_regex"), true), l->err);
    }
    if (t->n_pre + 1 >= TOK_MAX_STEPS)
        return too_many(l, where);
    pre_step *s = &t->pre[t->n_pre++];
    bool known;
    *s = (pre_step){.kind = PRE_STRING};
    TRY(pre_with_fields(l, v, type, s, &known));
    if (known)
        return VT_OK;
    if (vt_flat_is(type, "Whitespace")) {
        *s = (pre_step){.kind = PRE_WORDS, .behaviour = SPLIT_REMOVED, .invert = true};
    } else if (vt_flat_is(type, "WhitespaceSplit")) {
        *s = (pre_step){.kind = PRE_SPACE, .behaviour = SPLIT_REMOVED};
    } else if (vt_flat_is(type, "BertPreTokenizer")) {
        *s = (pre_step){.kind = PRE_SPACE, .behaviour = SPLIT_REMOVED};
        t->pre[t->n_pre++] = (pre_step){.kind = PRE_PUNCTUATION, .behaviour = SPLIT_ISOLATED};
    } else {
        t->n_pre--;
        return tok_json_refuse(l, where, type);
    }
    return VT_OK;
}

/* ---- decoders ---- */

static vt_status dec_fields(tok_json *l, const vt_flat_node *v, dec_step *s)
{
    const char *where = "decoder";
    vt_regex *regex = NULL;
    const vt_flat_node *scheme, *start, *stop;
    switch (s->kind) {
    case DEC_METASPACE:
        TRY(need_string(l, v, where, "replacement", &s->pattern, &s->pattern_len));
        scheme = get(l, v, "prepend_scheme");
        s->drop_first = scheme ? !vt_flat_is(scheme, "never")
                               : vt_flat_bool(get(l, v, "add_prefix_space"), true);
        s->content = " ";
        s->content_len = 1;
        return VT_OK;
    case DEC_WORDPIECE:
        TRY(need_string(l, v, where, "prefix", &s->pattern, &s->pattern_len));
        s->cleanup = vt_flat_bool(get(l, v, "cleanup"), true);
        return VT_OK;
    case DEC_REPLACE:
        TRY(need_string(l, v, where, "content", &s->content, &s->content_len));
        TRY(need_pattern(l, v, where, &s->pattern, &s->pattern_len, &regex));
        if (!regex)
            return VT_OK;
        vt_regex_free(regex);
        return vt_fail(l->err, VT_ERR_UNSUPPORTED,
                       "%s: decoder Replace with a Regex is not supported", l->name);
    case DEC_STRIP:
        TRY(need_string(l, v, where, "content", &s->content, &s->content_len));
        start = get(l, v, "start");
        stop = get(l, v, "stop");
        if (!start || !stop || start->type != VT_FLAT_NUMBER || stop->type != VT_FLAT_NUMBER ||
            s->content_len == 0 ||
            !(start->number >= 0 && start->number < 1000 && stop->number >= 0 &&
              stop->number < 1000))
            return wrong(l, where, "content, start or stop");
        s->start = (int32_t)start->number;
        s->stop = (int32_t)stop->number;
        return VT_OK;
    default:
        return VT_OK;
    }
}

vt_status tok_json_decoder(tok_json *l, const vt_flat_node *v, int depth)
{
    static const struct {
        const char *type;
        dec_kind kind;
    } kinds[] = {{"ByteLevel", DEC_BYTES},       {"Metaspace", DEC_METASPACE},
                 {"ByteFallback", DEC_FALLBACK}, {"Fuse", DEC_FUSE},
                 {"Strip", DEC_STRIP},           {"Replace", DEC_REPLACE},
                 {"WordPiece", DEC_WORDPIECE}};
    const char *where = "decoder";
    if (!v)
        return VT_OK;
    const vt_flat_node *type = get(l, v, "type");
    if (vt_flat_is(type, "Sequence"))
        return each(l, v, where, "decoders", depth, tok_json_decoder);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (vt_flat_is(type, kinds[i].type)) {
            if (l->t->n_dec == TOK_MAX_STEPS)
                return too_many(l, where);
            dec_step *s = &l->t->dec[l->t->n_dec++];
            *s = (dec_step){.kind = kinds[i].kind};
            return dec_fields(l, v, s);
        }
    return tok_json_refuse(l, where, type);
}

/* ---- post-processors ---- */

/* A post-processor puts these around a sequence. */
typedef struct around {
    int32_t front[TOK_MAX_AFFIX], tail[TOK_MAX_AFFIX], n_front, n_tail;
} around;

static vt_status too_many_around(const tok_json *l, bool tail)
{
    return vt_fail(l->err, VT_ERR_UNSUPPORTED, "%s: post_processor puts more than %d tokens %s",
                   l->name, TOK_MAX_AFFIX, tail ? "behind a text" : "in front");
}

static vt_status add_around(tok_json *l, around *a, bool tail, const vt_flat_node *id,
                            const char *field)
{
    if (!id || id->type != VT_FLAT_NUMBER || !(id->number >= 0 && id->number < l->t->vocab.n))
        return wrong(l, "post_processor", field);
    int32_t *n = tail ? &a->n_tail : &a->n_front;
    if (*n == TOK_MAX_AFFIX)
        return too_many_around(l, tail);
    (tail ? a->tail : a->front)[(*n)++] = (int32_t)id->number;
    return VT_OK;
}

/* The value of the member of `known` that is called `name`; NULL: none. */
static const vt_flat_node *known_token(const tok_json *l, const vt_flat_node *known,
                                       const vt_flat_node *name)
{
    const vt_flat_node *entry = NULL, *value;
    for (const vt_flat_node *k = vt_flat_first(known); k && name;
         k = vt_flat_after(l->doc, known, value)) {
        value = l->doc->node + k->next;
        if (name->type == VT_FLAT_STRING && k->len == name->len &&
            memcmp(k->s, name->s, k->len) == 0)
            entry = value;
    }
    return entry;
}

/* The ids that a TemplateProcessing puts around a single sequence. */
static vt_status template_around(tok_json *l, const vt_flat_node *v, around *a)
{
    bool tail = false;
    int32_t n_special = 0; /* each is looked up among all of special_tokens */
    const vt_flat_node *single = get(l, v, "single"), *known = get(l, v, "special_tokens");
    for (const vt_flat_node *c = vt_flat_first(single); c; c = vt_flat_after(l->doc, single, c)) {
        const vt_flat_node *special = get(l, c, "SpecialToken");
        if (!special) { /* the sequence itself */
            tail = true;
            n_special = 0;
            continue;
        }
        if (++n_special > TOK_MAX_AFFIX)
            return too_many_around(l, tail);
        const vt_flat_node *list = get(l, known_token(l, known, get(l, special, "id")), "ids");
        for (const vt_flat_node *id = vt_flat_first(list); id; id = vt_flat_after(l->doc, list, id))
            TRY(add_around(l, a, tail, id, "special_tokens"));
    }
    return VT_OK;
}

/* Adds the ids of the special token that an entry of a template names to what stands between two
 * texts. */
static vt_status add_middle(tok_json *l, const vt_flat_node *v, const vt_flat_node *special)
{
    vt_tokenizer *t = l->t;
    const vt_flat_node *known = get(l, v, "special_tokens"),
                       *list = get(l, known_token(l, known, get(l, special, "id")), "ids");
    for (const vt_flat_node *id = vt_flat_first(list); id; id = vt_flat_after(l->doc, list, id)) {
        if (id->type != VT_FLAT_NUMBER || !(id->number >= 0 && id->number < t->vocab.n))
            return wrong(l, "post_processor", "special_tokens");
        if (t->n_middle == TOK_MAX_AFFIX)
            return vt_fail(l->err, VT_ERR_UNSUPPORTED,
                           "%s: post_processor puts more than %d tokens between two texts", l->name,
                           TOK_MAX_AFFIX);
        t->middle[t->n_middle++] = (int32_t)id->number;
    }
    return VT_OK;
}

/* Reads what a TemplateProcessing puts between two texts. In front of the first and behind the
 * second, templates have what they put around a single one. */
static vt_status template_pair(tok_json *l, const vt_flat_node *v)
{
    const vt_flat_node *pair = get(l, v, "pair");
    int32_t n_texts = 0;
    l->t->n_middle = 0;
    for (const vt_flat_node *c = vt_flat_first(pair); c; c = vt_flat_after(l->doc, pair, c)) {
        const vt_flat_node *special = get(l, c, "SpecialToken"), *text = get(l, c, "Sequence"),
                           *type = get(l, text, "type_id");
        n_texts += text != NULL;
        if (special && n_texts == 1)
            TRY(add_middle(l, v, special));
        if (text && n_texts == 2)
            l->t->pair_types = type && type->type == VT_FLAT_NUMBER && type->number == 1;
    }
    l->t->pairs = n_texts == 2;
    return VT_OK;
}

/* "cls" and "sep" of BertProcessing and its like: ["[CLS]", 101]. */
static vt_status pair_around(tok_json *l, const vt_flat_node *v, const char *field, around *a)
{
    const vt_flat_node *pair = get(l, v, field), *text = vt_flat_first(pair);
    bool two = text && pair->len == 2;
    return add_around(l, a, strcmp(field, "sep") == 0, two ? l->doc->node + text->next : NULL,
                      field);
}

vt_status tok_json_post_processor(tok_json *l, const vt_flat_node *v, int depth)
{
    const char *where = "post_processor";
    vt_tokenizer *t = l->t;
    around a = {0};
    if (!v)
        return VT_OK;
    const vt_flat_node *type = get(l, v, "type");
    if (vt_flat_is(type, "Sequence"))
        return each(l, v, where, "processors", depth, tok_json_post_processor);
    if (vt_flat_is(type, "ByteLevel")) /* only moves offsets */
        return VT_OK;
    if (vt_flat_is(type, "TemplateProcessing")) {
        TRY(template_around(l, v, &a));
        TRY(template_pair(l, v));
    } else if (vt_flat_is(type, "RobertaProcessing") || vt_flat_is(type, "BertProcessing")) {
        TRY(pair_around(l, v, "cls", &a));
        TRY(pair_around(l, v, "sep", &a));
        bool roberta = vt_flat_is(type, "RobertaProcessing");
        tok_set_pair(t, a.tail[0], roberta ? 2 : 1, !roberta);
    } else {
        return tok_json_refuse(l, where, type);
    }
    /* A later processor wraps what the earlier ones made. */
    if (a.n_front + t->n_affix > TOK_MAX_AFFIX || a.n_tail + t->n_tail > TOK_MAX_AFFIX)
        return too_many_around(l, a.n_front + t->n_affix <= TOK_MAX_AFFIX);
    memmove(t->affix + a.n_front, t->affix, (size_t)t->n_affix * sizeof *t->affix);
    memcpy(t->affix, a.front, (size_t)a.n_front * sizeof *a.front);
    t->n_affix += a.n_front;
    memcpy(t->tail + t->n_tail, a.tail, (size_t)a.n_tail * sizeof *a.tail);
    t->n_tail += a.n_tail;
    return VT_OK;
}
