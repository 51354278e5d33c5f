/* Choices of chats whose reasoning and tool calls are taken out of the text (reply.h). */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/mem.h"
#include "openai/reply.h"

/* A new id for a call. Mistral's templates demand nine letters and digits. */
static char *new_id(vt_call_form form)
{
    static const char digits[] = "abcdefghijklmnopqrstuvwxyz012345";
    bool mistral = form == VT_CALLS_MISTRAL;
    unsigned char random[24] = {0};
    char text[24 + sizeof "call_"];
    size_t n = mistral ? 9 : sizeof random, at = 0;
    (void)!getrandom(random, sizeof random, 0);
    vt_append(text, sizeof text, &at, "%s", mistral ? "" : "call_");
    for (size_t i = 0; i < n; i++)
        vt_append(text, sizeof text, &at, "%c", digits[random[i] % 32]);
    return strdup(text);
}

static bool is_taken(const vt_openai_choice *c, const char *id)
{
    bool taken = json_object_get(c->call_ids, id) != NULL;
    for (int32_t i = 0; i < c->n_calls && !taken; i++)
        taken = strcmp(c->call[i].id, id) == 0;
    return taken;
}

/* The id that the model gave a call, if no other call of the conversation has it. Kimi's are
 * functions.N:INDEX, where models count wrongly: then it is the next free index. */
static char *id_of(const vt_openai_choice *c)
{
    enum { MOST = VT_CALL_MAX_NAME + 16 };
    const char *given = c->reader->call_id, *colon = given ? strrchr(given, ':') : NULL;
    char text[MOST];
    if (!given || (is_taken(c, given) && !colon) || strlen(given) > VT_CALL_MAX_NAME)
        return new_id(c->reader->form);
    for (int32_t i = 0; is_taken(c, given); i++) {
        size_t n = 0;
        vt_append(text, sizeof text, &n, "%.*s:%d", (int)(colon - c->reader->call_id),
                  c->reader->call_id, (int)i);
        given = text;
    }
    return strdup(given);
}

static int32_t n_of(const vt_buf *deltas)
{
    return (int32_t)(deltas->len / sizeof(vt_openai_delta));
}

static vt_openai_delta delta_at(const vt_buf *deltas, int32_t i)
{
    vt_openai_delta p;
    memcpy(&p, deltas->data + (size_t)i * sizeof p, sizeof p);
    return p;
}

int32_t vt_openai_n_pieces(const vt_openai_choice *c) { return n_of(&c->pieces); }
vt_openai_delta vt_openai_piece_at(const vt_openai_choice *c, int32_t i)
{
    return delta_at(&c->pieces, i);
}
int32_t vt_openai_n_parts(const vt_openai_choice *c) { return n_of(&c->parts); }
vt_openai_delta vt_openai_part_at(const vt_openai_choice *c, int32_t i)
{
    return delta_at(&c->parts, i);
}

const char *vt_openai_part_text(const vt_openai_choice *c, const vt_openai_delta *part)
{
    const vt_buf *of = part->kind == VT_PIECE_TEXT ? &c->content : &c->reasoning;
    return of->data ? of->data + part->at : "";
}

/* Adds bytes that stand in `content` or `reasoning` already, or a call, to the whole. */
static bool add_part(vt_openai_choice *c, vt_piece_kind kind, size_t at, size_t n)
{
    int32_t last = vt_openai_n_parts(c) - 1;
    vt_openai_delta p = {kind, c->n_calls - 1, at, n};
    if (last >= 0 && kind != VT_PIECE_CALL && delta_at(&c->parts, last).kind == kind) {
        p = delta_at(&c->parts, last);
        p.n += n;
        memcpy(c->parts.data + (size_t)last * sizeof p, &p, sizeof p);
        return true;
    }
    return vt_buf_add(&c->parts, &p, sizeof p);
}

static bool add_piece(vt_openai_choice *c, vt_piece_kind kind, const char *bytes, size_t n)
{
    vt_openai_delta p = {kind, c->n_calls - 1, c->fresh.len, n};
    return vt_buf_add(&c->fresh, bytes, n) && vt_buf_add(&c->pieces, &p, sizeof p);
}

static bool add_call(vt_openai_choice *c, const char *name, size_t n)
{
    vt_openai_tool_call *more = realloc(c->call, (size_t)(c->n_calls + 1) * sizeof *more);
    if (!more)
        return false;
    c->call = more;
    more[c->n_calls] = (vt_openai_tool_call){.name = strndup(name, n), .id = id_of(c)};
    bool ok = more[c->n_calls].name && more[c->n_calls].id;
    c->n_calls++;
    return ok && add_piece(c, VT_PIECE_CALL, "", 0) && add_part(c, VT_PIECE_CALL, 0, 0);
}

/* Takes a piece from the reader. */
static void take(void *user, vt_piece_kind kind, const char *bytes, size_t n)
{
    vt_openai_choice *c = user;
    vt_openai_tool_call *call = c->n_calls > 0 ? &c->call[c->n_calls - 1] : NULL;
    bool ok = true;
    if (c->single && call && call->ended)
        return;
    if (kind == VT_PIECE_CALL) {
        ok = add_call(c, bytes, n);
    } else if (kind == VT_PIECE_ARGUMENTS) {
        ok = call && vt_buf_add(&call->arguments, bytes, n) && add_piece(c, kind, bytes, n);
    } else if (kind == VT_PIECE_CALL_END || kind == VT_PIECE_CALL_BROKEN) {
        ok = call && vt_buf_add(&call->arguments, "", 0) && add_piece(c, kind, "", 0);
        if (call) {
            call->ended = true;
            call->whole = kind == VT_PIECE_CALL_END;
        }
    } else {
        vt_buf *of = kind == VT_PIECE_TEXT ? &c->content : &c->reasoning;
        size_t at = of->len;
        ok = vt_buf_add(of, bytes, n) && add_piece(c, kind, bytes, n) && add_part(c, kind, at, n);
    }
    c->lost |= !ok;
}

bool vt_openai_split_init(vt_openai_reply *reply, const vt_openai_request *request)
{
    reply->splits = request->chat && (request->pieces || request->calls || request->thoughts ||
                                      vt_call_form_is_special(request->call_form, false));
    reply->tools = json_incref(request->tools);
    reply->call_ids = json_incref(request->call_ids);
    for (int32_t i = 0; reply->splits && i < reply->n; i++) {
        vt_openai_choice *c = &reply->choice[i];
        c->reader = vt_calloc(1, sizeof *c->reader);
        if (!c->reader)
            return false;
        *c->reader = (vt_answer_reader){.form = request->call_form,
                                        .calls = request->calls,
                                        .thoughts = request->thoughts,
                                        .began_inside = request->began_inside,
                                        .tools = reply->tools,
                                        .take = take,
                                        .user = c};
        c->single = request->single_call;
        c->reasoning_names = request->reasoning_names;
        c->call_ids = reply->call_ids;
        vt_answer_begin(c->reader);
    }
    return true;
}

void vt_openai_split_release(vt_openai_choice *c)
{
    if (c->reader)
        vt_answer_release(c->reader);
    free(c->reader);
    for (int32_t i = 0; i < c->n_calls; i++) {
        free(c->call[i].id);
        free(c->call[i].name);
        vt_buf_release(&c->call[i].arguments);
    }
    free(c->call);
    vt_buf_release(&c->content);
    vt_buf_release(&c->reasoning);
    vt_buf_release(&c->fresh);
    vt_buf_release(&c->pieces);
    vt_buf_release(&c->parts);
}

bool vt_openai_split_event(vt_openai_reply *reply, vt_openai_choice *c, const vt_event *e)
{
    bool thought = vt_answer_is_thinking(c->reader);
    size_t said = c->reasoning.len;
    vt_buf_clear(&c->fresh);
    vt_buf_clear(&c->pieces);
    if (e->text_len > 0)
        vt_answer_feed(c->reader, e->text, e->text_len);
    if (thought || vt_answer_is_thinking(c->reader) || c->reasoning.len > said) {
        /* reasoning comes first: all tokens up to here belong to it */
        int32_t n = c->n_tokens + e->n_tokens;
        reply->reasoning_tokens += n - c->reasoning_tokens;
        c->reasoning_tokens = n;
    }
    if (e->finish != VT_FINISH_NONE)
        vt_answer_end(c->reader);
    return !c->lost && !c->reader->failed;
}

void vt_openai_write_reasoning(const vt_openai_choice *c, const char *bytes, size_t n, vt_json *w)
{
    if (c->reasoning_names & VT_REASONING_CONTENT)
        vt_json_string_n(w, "reasoning_content", bytes, n);
    if (c->reasoning_names & VT_REASONING_BARE)
        vt_json_string_n(w, "reasoning", bytes, n);
}

void vt_openai_split_write(const vt_openai_choice *c, vt_json *w)
{
    bool other = c->n_calls > 0 || c->reasoning.len > 0;
    if (c->content.len == 0 && other)
        vt_json_null(w, "content");
    else
        vt_json_string_n(w, "content", c->content.data ? c->content.data : "", c->content.len);
    if (c->reasoning.len > 0)
        vt_openai_write_reasoning(c, c->reasoning.data, c->reasoning.len, w);
    if (c->n_calls == 0)
        return;
    vt_json_open(w, "tool_calls", '[');
    for (int32_t i = 0; i < c->n_calls; i++) {
        vt_json_open(w, NULL, '{');
        vt_json_string(w, "id", c->call[i].id);
        vt_json_string(w, "type", "function");
        vt_json_open(w, "function", '{');
        vt_json_string(w, "name", c->call[i].name);
        vt_json_string_n(w, "arguments", c->call[i].arguments.data ? c->call[i].arguments.data : "",
                         c->call[i].arguments.len);
        vt_json_close(w);
        vt_json_close(w);
    }
    vt_json_close(w);
}

void vt_openai_write_arguments(const vt_openai_tool_call *call, vt_json *w, const char *key)
{
    const char *text = call->arguments.data ? call->arguments.data : "";
    if (call->whole) {
        vt_json_raw(w, key, text, call->arguments.len);
        return;
    }
    vt_json_open(w, key, '{');
    vt_json_string_n(w, "INVALID_JSON", text, call->arguments.len);
    vt_json_close(w);
}
