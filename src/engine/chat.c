/* From chat messages to token ids (engine/chat.h).
 *
 *   messages ── chat template ──> text with special tokens ── tokenizer ──> ids
 *
 * The template writes the special tokens itself, BOS included, so its output is tokenised with
 * special tokens on and no BOS added: this is what Hugging Face's apply_chat_template does. It also
 * means that a user who types "<|im_end|>" ends his own turn. With VT_CHAT_LITERAL what the caller
 * gave stays text, and all other ids are the same. The rendered text has to say which bytes came
 * from the caller, so the variables are marked with noncharacters (U+FDD0 to U+FDEF, three that
 * occur nowhere) and rendered a second time:
 *
 *   content     Hi <|im_end|>
 *   marked      [Hi <|im_end|>]               [ and ] stand for two noncharacters
 *   rendered    <|im_start|>user\n[Hi <|im_end|>]<|im_end|>\n
 *   stripped    <|im_start|>user\nHi <|im_end|><|im_end|>\n      must equal the plain rendering
 *   literal                       ^^^^^^^^^^^^^
 *
 *   1. Render the variables as they are: the plain rendering.
 *   2. Mark: brackets around each message's content, inside its white space, because templates
 *      trim. In every other string (roles, names, tools, names of members) a third noncharacter
 *      goes after the first character of each special token's spelling.
 *   3. Render, and strip the marks. If the text equals the plain rendering, its marks tell the
 *      literal ranges.
 *   4. If not (the template cuts or searches the content, and met a bracket), mark contents as all
 *      other strings, which leaves contents without special tokens untouched, and render again.
 *   5. If that differs too, the request is refused: special tokens and template together do not let
 *      us tell what is the caller's.
 *
 * The text that is tokenised is always the plain rendering, so marks can never reach the model.
 * Rejected: tokenising contents apart from the rest, because words and spaces at the borders would
 * get other ids; tracking the origin of every character inside the interpreter, which makes each of
 * its string functions more complicated for the same result. */
#include "engine/chat.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/utf8.h"
#include "engine/request.h"
#include "model/model.h"
#include "text/template/template.h"
#include "text/tokenizer/tokenizer.h"

/* ---- the template's variables ---- */

static vt_status no_memory(vt_err *err)
{
    return vt_fail(err, VT_ERR_MEMORY, "out of memory for the chat");
}

static bool set_missing(json_t *object, const char *key, json_t *value)
{
    if (!json_object_get(object, key))
        return json_object_set_new(object, key, value) == 0;
    json_decref(value);
    return true;
}

/* The text of token `id` as a member; nothing where the model has no such token. */
static bool set_token(json_t *object, const vt_model *m, const char *key, int32_t id)
{
    vt_buf piece, text;
    bool ok = true;
    vt_buf_init(&piece, 0);
    vt_buf_init(&text, 0);
    if (m->tokenizer && id >= 0 && vt_tokenizer_piece(m->tokenizer, id, &piece))
        ok = vt_utf8_add_lossy(&text, piece.data ? piece.data : "", piece.len) &&
             set_missing(object, key, json_stringn(text.data ? text.data : "", text.len));
    vt_buf_release(&piece);
    vt_buf_release(&text);
    return ok;
}

/* A copy of `variables` with the members that every template may use. */
static json_t *complete(const vt_model *m, json_t *variables, bool open_turn)
{
    json_t *all = json_copy(variables);
    if (all && set_missing(all, "add_generation_prompt", json_boolean(open_turn)) &&
        set_token(all, m, "bos_token", m->bos) &&
        set_token(all, m, "eos_token", m->n_eos > 0 ? m->eos[0] : -1))
        return all;
    json_decref(all);
    return NULL;
}

vt_status vt_chat_render(const vt_model *m, json_t *variables, bool open_turn,
                         const vt_template_limits *limits, vt_buf *out, vt_err *err)
{
    if (!m->chat_template)
        return vt_fail(err, VT_ERR_MODEL, "%s has no chat template", m->name);
    if (!json_is_object(variables))
        return vt_fail(err, VT_ERR_USAGE, "the template's variables: expected a JSON object");
    json_t *all = complete(m, variables, open_turn);
    if (!all)
        return no_memory(err);
    vt_status status = vt_template_render_object(m->chat_template, all, limits, out, err);
    json_decref(all);
    return status;
}

/* ---- marks ---- */

enum { FIRST_MARK = 0xFDD0, N_MARKS = 32 };
enum { BEGIN, END, POINT, N_KINDS };
enum { N_CLEAN = 8, CLEAN_BYTES = 24 };
#define MARK_BYTES 3

typedef struct marker {
    const vt_model *m;
    const vt_template_limits *limits;
    char mark[N_KINDS][MARK_BYTES]; /* three noncharacters as UTF-8 */
    bool brackets;                  /* contents get brackets; else points, as all strings */
    vt_err *err;
    /* Short strings that hold no special token: "role", "user" and their like come in every
     * message, and are tokenised once. The oldest is overwritten. */
    char clean[N_CLEAN][CLEAN_BYTES];
    size_t clean_len[N_CLEAN]; /* 0: free */
    int next_clean;
} marker;

/* Sets the bits of noncharacters that occur in the text. All of them are EF B7 90 .. EF B7 AF. */
static void note_marks(const char *s, size_t n, uint32_t *used)
{
    const char *at = n > 0 ? s : "", *end = at + n;
    while ((at = memmem(at, (size_t)(end - at), "\xEF\xB7", 2)) && end - at >= MARK_BYTES) {
        unsigned last = (unsigned char)at[2];
        if (last >= 0x90 && last < 0x90 + N_MARKS)
            *used |= 1u << (last - 0x90);
        at += 2;
    }
}

static void note_value(const json_t *v, uint32_t *used)
{
    const char *key;
    json_t *member;
    if (json_is_string(v))
        note_marks(json_string_value(v), json_string_length(v), used);
    for (size_t i = 0; i < json_array_size(v); i++)
        note_value(json_array_get(v, i), used);
    json_object_foreach((json_t *)(uintptr_t)v, key, member)
    {
        note_marks(key, strlen(key), used);
        note_value(member, used);
    }
}

static vt_status choose_marks(marker *k, const json_t *variables, const vt_buf *plain)
{
    uint32_t used = 0;
    int n = 0;
    note_value(variables, &used);
    note_marks(plain->data, plain->len, &used);
    for (uint32_t i = 0; i < N_MARKS && n < N_KINDS; i++)
        if (!(used & 1u << i))
            vt_utf8_put(FIRST_MARK + i, k->mark[n++]);
    return n == N_KINDS
               ? VT_OK
               : vt_fail(k->err, VT_ERR_USAGE,
                         "the messages hold more than %d different noncharacters (U+FDD0 to "
                         "U+FDEF)",
                         N_MARKS - N_KINDS);
}

/* The different special tokens that the tokenizer finds in a text: at most `max` of them. */
static vt_status find_special(const marker *k, const char *s, size_t n, int32_t *found, int *count,
                              int max)
{
    vt_ids ids = {0};
    const vt_tokenizer *t = k->m->tokenizer;
    vt_status status = vt_tokenizer_encode(t, s, n, VT_TOKENIZE_SPECIAL, &ids, k->err);
    *count = 0;
    for (size_t i = 0; status == VT_OK && i < ids.n && *count < max; i++) {
        bool known = !vt_tokenizer_is_special(t, ids.id[i]);
        for (int j = 0; j < *count && !known; j++)
            known = found[j] == ids.id[i];
        if (!known)
            found[(*count)++] = ids.id[i];
    }
    vt_ids_release(&ids);
    return status;
}

/* `text` with a point after the first character of every occurrence of a piece. */
static bool add_points(const marker *k, vt_buf *text, const vt_buf *piece)
{
    vt_buf out;
    const char *from = text->data, *end = from + text->len, *at;
    vt_buf_init(&out, 0);
    while (piece->len > 1 && (at = memmem(from, (size_t)(end - from), piece->data, piece->len))) {
        int first = vt_utf8_step(at, piece->len);
        at += first > 0 ? first : 1;
        vt_buf_add(&out, from, (size_t)(at - from));
        vt_buf_add(&out, k->mark[POINT], MARK_BYTES);
        from = at;
    }
    vt_buf_add(&out, from, (size_t)(end - from));
    bool ok = !out.failed;
    vt_buf_release(text);
    *text = out;
    return ok;
}

static bool is_clean(const marker *k, const char *s, size_t n)
{
    for (int i = 0; n > 0 && i < N_CLEAN; i++)
        if (k->clean_len[i] == n && memcmp(k->clean[i], s, n) == 0)
            return true;
    return n == 0;
}

static void note_clean(marker *k, const char *s, size_t n)
{
    if (n > CLEAN_BYTES)
        return;
    memcpy(k->clean[k->next_clean], s, n);
    k->clean_len[k->next_clean] = n;
    k->next_clean = (k->next_clean + 1) % N_CLEAN;
}

/* Appends s with points, after which the tokenizer finds no special token in it. */
static vt_status put_points(marker *k, const char *s, size_t n, vt_buf *out)
{
    enum { ROUNDS = 8, KINDS = 64 };
    int32_t found[KINDS];
    int count = 0;
    if (!vt_buf_add(out, s, n))
        return no_memory(k->err);
    if (is_clean(k, s, n))
        return VT_OK;
    for (int round = 0; round < ROUNDS; round++) {
        TRY(find_special(k, out->data, out->len, found, &count, KINDS));
        if (count == 0 && round == 0)
            note_clean(k, s, n);
        if (count == 0)
            return VT_OK;
        for (int i = 0; i < count; i++) {
            vt_buf piece;
            vt_buf_init(&piece, 0);
            bool ok = vt_tokenizer_piece(k->m->tokenizer, found[i], &piece) &&
                      add_points(k, out, &piece);
            vt_buf_release(&piece);
            if (!ok)
                return no_memory(k->err);
        }
    }
    return vt_fail(k->err, VT_ERR_USAGE,
                   "the messages hold special tokens that cannot be kept as text");
}

/* Appends s with brackets around it, but inside the white space at its ends. */
static vt_status put_brackets(const marker *k, const char *s, size_t n, vt_buf *out)
{
    static const char space[] = " \t\n\v\f\r";
    size_t begin = 0, end = n;
    while (begin < end && s[begin] && strchr(space, s[begin]))
        begin++;
    while (end > begin && s[end - 1] && strchr(space, s[end - 1]))
        end--;
    vt_buf_add(out, s, begin);
    if (begin < end) {
        vt_buf_add(out, k->mark[BEGIN], MARK_BYTES);
        vt_buf_add(out, s + begin, end - begin);
        vt_buf_add(out, k->mark[END], MARK_BYTES);
    }
    return vt_buf_add(out, s + end, n - end) ? VT_OK : no_memory(k->err);
}

/* Where in the variables a value stands. */
typedef enum place { VARIABLES, MESSAGES, MESSAGE, CONTENT, PART, ELSEWHERE } place;

static place place_of_member(place of, const char *key)
{
    if (of == VARIABLES && strcmp(key, "messages") == 0)
        return MESSAGES;
    if ((of == MESSAGE && strcmp(key, "content") == 0) || (of == PART && strcmp(key, "text") == 0))
        return CONTENT;
    return ELSEWHERE;
}

static vt_status mark_value(marker *k, json_t *v, place at, json_t **out);

static vt_status mark_string(marker *k, json_t *v, place at, json_t **out)
{
    vt_buf text;
    vt_buf_init(&text, 0);
    const char *s = json_string_value(v);
    size_t n = json_string_length(v);
    vt_status status = at == CONTENT && k->brackets ? put_brackets(k, s, n, &text)
                                                    : put_points(k, s, n, &text);
    json_t *marked = status == VT_OK ? json_stringn(text.data ? text.data : "", text.len) : NULL;
    vt_buf_release(&text);
    if (status == VT_OK && !marked)
        return no_memory(k->err);
    *out = marked;
    return status;
}

static vt_status mark_object(marker *k, json_t *v, place at, json_t *out)
{
    const char *key;
    json_t *member;
    json_object_foreach(v, key, member)
    {
        json_t *marked;
        vt_buf name;
        vt_buf_init(&name, 0);
        vt_status status = put_points(k, key, strlen(key), &name);
        if (status == VT_OK)
            status = mark_value(k, member, place_of_member(at, key), &marked);
        if (status == VT_OK && json_object_set_new(out, name.data ? name.data : "", marked) != 0)
            status = no_memory(k->err);
        vt_buf_release(&name);
        TRY(status);
    }
    return VT_OK;
}

static vt_status mark_array(marker *k, json_t *v, place at, json_t *out)
{
    place inside = at == MESSAGES ? MESSAGE : at == CONTENT ? PART : ELSEWHERE;
    for (size_t i = 0; i < json_array_size(v); i++) {
        json_t *marked;
        TRY(mark_value(k, json_array_get(v, i), inside, &marked));
        if (json_array_append_new(out, marked) != 0)
            return no_memory(k->err);
    }
    return VT_OK;
}

/* A marked copy of a value. (JSON that was parsed is nested at most 2048 deep.) */
static vt_status mark_value(marker *k, json_t *v, place at, json_t **out)
{
    if (json_is_string(v))
        return mark_string(k, v, at, out);
    if (!json_is_object(v) && !json_is_array(v)) {
        *out = json_incref(v);
        return VT_OK;
    }
    json_t *copy = json_is_object(v) ? json_object() : json_array();
    if (!copy)
        return no_memory(k->err);
    vt_status status = json_is_object(v) ? mark_object(k, v, at, copy) : mark_array(k, v, at, copy);
    if (status == VT_OK)
        *out = copy;
    else
        json_decref(copy);
    return status;
}

/* ---- literal ranges ---- */

/* Appends a range after the others; what overlaps the last one is cut off. */
static bool add_range(vt_buf *ranges, size_t begin, size_t end)
{
    vt_text_range r = {begin, end}, last = {0};
    if (ranges->len > 0)
        memcpy(&last, ranges->data + ranges->len - sizeof last, sizeof last);
    r.begin = r.begin < last.end ? last.end : r.begin;
    return r.begin >= r.end || vt_buf_add(ranges, &r, sizeof r);
}

/* Strips the marks from `marked`, compares with the plain rendering, and appends the literal ranges
 * of the latter, in order. False where the texts differ or brackets do not match. */
static bool read_marks(const marker *k, const vt_buf *marked, const vt_buf *plain, vt_buf *ranges)
{
    size_t at = 0, begin = 0; /* bytes of `plain` */
    bool open = false;
    for (size_t i = 0; i < marked->len;) {
        const char *s = marked->data + i;
        int kind = 0;
        while (kind < N_KINDS &&
               (marked->len - i < MARK_BYTES || memcmp(s, k->mark[kind], MARK_BYTES) != 0))
            kind++;
        if (kind == N_KINDS) {
            if (at == plain->len || plain->data[at++] != s[0])
                return false;
            i++;
            continue;
        }
        i += MARK_BYTES;
        if (kind == POINT) {
            /* a point stands between two characters of a special token that is to stay text */
            if (!open && at > 0 && at < plain->len && !add_range(ranges, at - 1, at + 1))
                return false;
        } else if (open != (kind == END)) {
            return false;
        } else {
            if (open && begin < at && !add_range(ranges, begin, at))
                return false;
            open = !open;
            begin = at;
        }
    }
    return at == plain->len && !open && !ranges->failed;
}

/* One attempt: steps 2 and 3, or with points only, step 4. *equal is false where the template did
 * something else for the marked variables. */
static vt_status try_marks(marker *k, json_t *variables, bool open_turn, bool brackets,
                           const vt_buf *plain, vt_buf *ranges, bool *equal)
{
    json_t *marked = NULL;
    vt_buf text;
    vt_err why;
    vt_buf_init(&text, 0);
    vt_buf_clear(ranges);
    k->brackets = brackets;
    TRY(mark_value(k, variables, VARIABLES, &marked));
    vt_status status = vt_chat_render(k->m, marked, open_turn, k->limits, &text, &why);
    *equal = status == VT_OK && read_marks(k, &text, plain, ranges);
    json_decref(marked);
    vt_buf_release(&text);
    if (status != VT_ERR_CANCELLED && status != VT_ERR_MEMORY)
        return VT_OK; /* the template itself refused the marked variables: they are not equal */
    return vt_fail(k->err, status, "%s", why.message);
}

static vt_status literal_ranges(const vt_model *m, json_t *variables, bool open_turn,
                                const vt_template_limits *limits, const vt_buf *plain,
                                vt_buf *ranges, vt_err *err)
{
    marker k = {.m = m, .limits = limits, .err = err};
    bool equal = false;
    TRY(choose_marks(&k, variables, plain));
    TRY(try_marks(&k, variables, open_turn, true, plain, ranges, &equal));
    if (!equal)
        TRY(try_marks(&k, variables, open_turn, false, plain, ranges, &equal));
    return equal ? VT_OK
                 : vt_fail(err, VT_ERR_USAGE,
                           "the messages hold special tokens, and the chat template changes its "
                           "output so that they cannot be kept as text");
}

/* ---- the public functions ---- */

vt_status vt_chat_encode(const vt_model *m, json_t *variables, unsigned flags,
                         const vt_template_limits *limits, const vt_prompt_limit *most,
                         int32_t **ids, size_t *n_ids, int64_t *rendered_ns, vt_err *err)
{
    bool open_turn = flags & VT_CHAT_OPEN_TURN;
    vt_buf plain, ranges;
    vt_ids list = {0};
    if (!m->tokenizer)
        return vt_fail(err, VT_ERR_MODEL, "%s has no tokenizer", m->name);
    vt_buf_init(&plain, 0);
    vt_buf_init(&ranges, 0);
    vt_status status = vt_chat_render(m, variables, open_turn, limits, &plain, err);
    const char *text = plain.data ? plain.data : "";
    if (status == VT_OK)
        status = vt_check_text_length(m->tokenizer, text, plain.len, most, err);
    if (status == VT_OK && (flags & VT_CHAT_LITERAL))
        status = literal_ranges(m, variables, open_turn, limits, &plain, &ranges, err);
    if (rendered_ns)
        *rendered_ns = vt_now_ns();
    if (status == VT_OK)
        status = vt_tokenizer_encode_literal(m->tokenizer, text, plain.len, VT_TOKENIZE_SPECIAL,
                                             (const vt_text_range *)(const void *)ranges.data,
                                             ranges.len / sizeof(vt_text_range), &list, err);
    vt_buf_release(&plain);
    vt_buf_release(&ranges);
    if (status != VT_OK) {
        vt_ids_release(&list);
        return status;
    }
    *ids = list.id;
    *n_ids = list.n;
    return VT_OK;
}

vt_status vt_encode_chat(const vt_model *m, const char *json, size_t json_len, unsigned flags,
                         int32_t **ids, size_t *n_ids, vt_err *err)
{
    json_t *variables;
    TRY(vt_check_pointer(m, "vt_encode_chat: the model", err));
    TRY(vt_check_pointer(json, "vt_encode_chat: json", err));
    TRY(vt_check_pointer(ids, "vt_encode_chat: ids", err));
    TRY(vt_check_pointer(n_ids, "vt_encode_chat: n_ids", err));
    if (flags & ~(unsigned)(VT_CHAT_OPEN_TURN | VT_CHAT_LITERAL))
        return vt_fail(err, VT_ERR_USAGE, "vt_encode_chat: flags are 0x%x, expected 0 to 3", flags);
    TRY(vt_template_parse_variables(m->name, json, json_len, &variables, err));
    vt_status status = vt_chat_encode(m, variables, flags, NULL, NULL, ids, n_ids, NULL, err);
    json_decref(variables);
    return status;
}

vt_status vt_render_chat(const vt_model *m, const char *json, size_t json_len,
                         bool add_generation_prompt, char **text, size_t *len, vt_err *err)
{
    return vt_render_chat_until(m, json, json_len, add_generation_prompt, NULL, NULL, text, len,
                                err);
}

vt_status vt_render_chat_until(const vt_model *m, const char *json, size_t json_len,
                               bool add_generation_prompt, bool (*stop)(void *context),
                               void *context, char **text, size_t *len, vt_err *err)
{
    const vt_template_limits limits = {.stop = stop, .stop_context = context};
    json_t *variables;
    vt_buf out;
    TRY(vt_check_pointer(m, "vt_render_chat: the model", err));
    TRY(vt_check_pointer(json, "vt_render_chat: json", err));
    TRY(vt_check_pointer(text, "vt_render_chat: text", err));
    TRY(vt_check_pointer(len, "vt_render_chat: len", err));
    TRY(vt_template_parse_variables(m->name, json, json_len, &variables, err));
    vt_buf_init(&out, 0);
    vt_status status = vt_chat_render(m, variables, add_generation_prompt, &limits, &out, err);
    json_decref(variables);
    if (status == VT_OK && !vt_buf_add(&out, "", 0)) /* an empty text is a text too */
        status = no_memory(err);
    if (status == VT_OK)
        *text = vt_buf_detach(&out, len);
    vt_buf_release(&out);
    return status;
}
