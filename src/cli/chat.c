/* vitrine chat: a conversation in the terminal.
 *
 * The whole conversation goes through the chat template at each turn; the engine's prefix cache
 * finds what it has seen before, so only the new turn is computed. On a terminal lines are edited
 * (cli/term/typed.h); from a pipe they are read as they are, which makes a conversation scriptable.
 *
 *   talk: read a line -> a command, or a turn: encode -> generate -> keep the answer
 *
 * An error concerns its line alone: it is said, and the conversation goes on as it was before. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/term/nearest.h"
#include "cli/cli.h"
#include "cli/conversation.h"
#include "cli/prompt.h"
#include "cli/term/telling.h"
#include "cli/term/typed.h"

typedef struct chat {
    const cli *c;
    cli_session s;
    conversation v;
    vt_request_params p; /* how answers are chosen; p.seed grows with each of them */
    vt_request_id last;  /* the last answer's request; 0: none yet */
    bool leave;
    bool terminal; /* lines are typed; else they come from a pipe or a file */
} chat;

/* ---- a turn ---- */

static void note_turn(const chat *h, const cli_reply *r)
{
    vt_buf speed = {0};
    double per_s = cli_tokens_per_s(r);
    if (!h->c->log.tty)
        return;
    if (per_s > 0)
        vt_buf_printf(&speed, ", %.1f tokens/s", per_s);
    cli_note(h->c, "[%d token%s, %d of %d prompt tokens cached%s%s]", r->completion_tokens,
             r->completion_tokens == 1 ? "" : "s", r->cached_tokens, r->prompt_tokens,
             speed.data ? speed.data : "",
             r->end_reason == VT_END_ABORT        ? ", stopped"
             : r->end_reason == VT_END_CONTEXT    ? ", cut: the context is full"
             : r->end_reason == VT_END_KV_CACHE   ? ", cut: the KV cache is full"
             : r->end_reason == VT_END_MAX_TOKENS ? ", cut at --max-tokens"
                                                  : "");
    if (r->end_reason == VT_END_CONTEXT || r->end_reason == VT_END_KV_CACHE)
        cli_note(h->c, "[/reset forgets the conversation; %s sets how much fits]",
                 r->end_reason == VT_END_CONTEXT ? "--max-context" : "--kv-memory");
    vt_buf_release(&speed);
}

/* A prompt that does not fit: the engine's message, and what to do about it. */
static void say_way_out(vt_err *err)
{
    static const char way_out[] =
        "; /reset forgets the conversation, --max-context sets how much fits";
    size_t len = strlen(err->message);
    if (err->status == VT_ERR_CONTEXT && len + sizeof way_out < sizeof err->message)
        memcpy(err->message + len, way_out, sizeof way_out);
}

/* Answers the last message, which is the user's. What the model said before Ctrl-C stays in the
 * conversation. */
static vt_status answer(chat *h, vt_err *err)
{
    cli_ids ids = {0};
    cli_reply reply = {.stream = stdout};
    vt_status status = cli_encode_messages(h->c, h->s.model, h->v.messages, &ids, err);
    vt_request_params p = h->p;
    p.prompt = ids.id;
    p.n_prompt = ids.n;
    if (status == VT_OK) {
        cli_set_at_prompt(false);
        status = cli_generate(&h->s, &p, &reply, err);
        cli_set_at_prompt(h->terminal);
    }
    if (status == VT_OK) {
        putchar('\n');
        fflush(stdout);
        h->last = reply.id;
        h->p.seed++; /* another answer to the same question is another one */
        note_turn(h, &reply);
        status = cli_add_message(h->v.messages, "assistant", reply.text.data ? reply.text.data : "",
                                 reply.text.len, err);
    } else
        say_way_out(err);
    if (status != VT_OK || reply.finish == VT_FINISH_ABORT)
        cli_clear_interrupt(); /* it was for this answer; a later one is for the prompt */
    cli_reply_release(&reply);
    vt_free(ids.id);
    return status;
}

static vt_status say(chat *h, const char *text, size_t len, vt_err *err)
{
    size_t before = conversation_length(&h->v);
    vt_status status = cli_add_message(h->v.messages, "user", text, len, err);
    if (status == VT_OK)
        status = answer(h, err);
    if (status != VT_OK)
        conversation_cut(&h->v, before);
    return status;
}

/* ---- commands ---- */

static vt_status do_help(chat *h, const char *rest, vt_err *err);

static vt_status do_reset(chat *h, const char *rest, vt_err *err)
{
    (void)rest;
    (void)err;
    conversation_cut(&h->v, 0);
    h->last = 0;
    cli_note(h->c, "[forgotten]");
    return VT_OK;
}

static vt_status do_regenerate(chat *h, const char *rest, vt_err *err)
{
    const char *role = conversation_last_role(&h->v);
    (void)rest;
    if (!role)
        return vt_fail(err, VT_ERR_USAGE, "nothing was said yet");
    if (h->p.temperature == 0 && h->c->log.tty)
        cli_note(h->c, "[at temperature 0 the answer will be the same]");
    json_t *old = json_incref(json_array_get(h->v.messages, json_array_size(h->v.messages) - 1));
    bool answered = strcmp(role, "assistant") == 0;
    if (answered)
        conversation_cut(&h->v, conversation_length(&h->v) - 1);
    vt_status status = answer(h, err);
    if (status != VT_OK && answered)
        json_array_append(h->v.messages, old);
    json_decref(old);
    return status;
}

static vt_status do_system(chat *h, const char *rest, vt_err *err)
{
    TRY(conversation_set_system(&h->v, *rest ? rest : NULL, err));
    cli_note(h->c, *rest ? "[the system message is set]" : "[there is no system message now]");
    return VT_OK;
}

static void note_messages(const chat *h, const char *what, const char *path)
{
    size_t n = json_array_size(h->v.messages);
    cli_note(h->c, "[%zu message%s %s %s]", n, n == 1 ? "" : "s", what, path);
}

static vt_status do_save(chat *h, const char *rest, vt_err *err)
{
    TRY(conversation_save(&h->v, rest, err));
    note_messages(h, "saved to", rest);
    return VT_OK;
}

static vt_status do_load(chat *h, const char *rest, vt_err *err)
{
    TRY(conversation_load(&h->v, rest, err));
    h->last = 0;
    note_messages(h, "loaded from", rest);
    return VT_OK;
}

static vt_status do_story(chat *h, const char *rest, vt_err *err)
{
    (void)rest;
    if (h->last == 0)
        return vt_fail(err, VT_ERR_USAGE, "there is no answer yet to tell the story of");
    return cli_tell_story(h->c, &h->s, h->last, err);
}

static vt_status do_sampling(chat *h, const char *rest, vt_err *err)
{
    vt_buf how = {0};
    (void)rest;
    (void)err;
    cli_describe_sampling(&h->p, &how);
    cli_note(h->c, "[%s]", how.data ? how.data : "");
    vt_buf_release(&how);
    return VT_OK;
}

static vt_status do_exit(chat *h, const char *rest, vt_err *err)
{
    (void)rest;
    (void)err;
    h->leave = true;
    return VT_OK;
}

typedef enum wants { NOTHING, MAYBE_TEXT, A_FILE } wants;

static const struct command {
    const char *name, *value, *what;
    wants wants;
    vt_status (*run)(chat *h, const char *rest, vt_err *err);
} commands[] = {
    {"/help", "", "this list", NOTHING, do_help},
    {"/reset", "", "forget what was said; the system message stays", NOTHING, do_reset},
    {"/regenerate", "", "another answer to the last message", NOTHING, do_regenerate},
    {"/system", " [TEXT]", "set the system message; without TEXT: take it away", MAYBE_TEXT,
     do_system},
    {"/save", " FILE", "write the conversation to a file (JSON)", A_FILE, do_save},
    {"/load", " FILE", "go on with a saved conversation", A_FILE, do_load},
    {"/sampling", "", "how tokens are chosen", NOTHING, do_sampling},
    {"/story", "", "how the last answer came about", NOTHING, do_story},
    {"/exit", "", "end, as /quit, /bye and Ctrl-D do", NOTHING, do_exit},
};

/* Names that other programs have for the same; /help shows none of them. */
static const char *const other_names[][2] = {{"/quit", "/exit"}, {"/bye", "/exit"},
                                             {"/q", "/exit"},    {"/clear", "/reset"},
                                             {"/?", "/help"},    {"/retry", "/regenerate"}};

enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static vt_status do_help(chat *h, const char *rest, vt_err *err)
{
    (void)h;
    (void)rest;
    (void)err;
    for (int i = 0; i < N_COMMANDS; i++) {
        int n = fprintf(stderr, "  %s%s", commands[i].name, commands[i].value);
        fprintf(stderr, "%*s%s\n", n < 18 ? 18 - n : 1, "", commands[i].what);
    }
    fputs("  Ctrl-C stops an answer, or clears the line\n", stderr);
    return VT_OK;
}

/* Returns the command of this name; NULL if there is none. */
static const struct command *find_command(const char *name)
{
    for (size_t i = 0; i < sizeof other_names / sizeof *other_names; i++)
        if (strcmp(other_names[i][0], name) == 0)
            name = other_names[i][1];
    for (int i = 0; i < N_COMMANDS; i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

static vt_status no_command(const char *name, vt_err *err)
{
    vt_nearest n = vt_nearest_begin(name);
    for (int i = 0; i < N_COMMANDS; i++)
        vt_nearest_try(&n, commands[i].name);
    return vt_fail(err, VT_ERR_USAGE, "'%.40s' is no command%s%s%s /help lists them", name,
                   n.best ? ", did you mean " : "", n.best ? n.best : "", n.best ? "?" : ";");
}

static vt_status run_command(chat *h, char *line, vt_err *err)
{
    size_t len = strcspn(line, " \t"), end = strlen(line);
    char name[41];
    const char *rest = line + len + strspn(line + len, " \t");
    while (end > len && (line[end - 1] == ' ' || line[end - 1] == '\t'))
        line[--end] = '\0';
    snprintf(name, sizeof name, "%.*s", len < 40 ? (int)len : 40, line);
    const struct command *k = find_command(name);
    if (k) {
        if (k->wants == NOTHING && *rest)
            return vt_fail(err, VT_ERR_USAGE, "%s takes nothing after it", k->name);
        if (k->wants == A_FILE && !*rest)
            return vt_fail(err, VT_ERR_USAGE, "%s needs the name of a file", k->name);
        return k->run(h, rest, err);
    }
    return no_command(name, err);
}

/* ---- lines ---- */

/* A line of a pipe, however long, without its newline. */
static typed_status read_piped(vt_buf *line)
{
    char *text = NULL;
    size_t cap = 0;
    errno = 0;
    ssize_t n = getline(&text, &cap, stdin);
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r'))
        n--;
    vt_buf_clear(line);
    bool kept = n < 0 || vt_buf_add(line, text, (size_t)n);
    free(text);
    return cli_interrupted() ? TYPED_INTERRUPTED
           : n >= 0          ? (kept ? TYPED_DONE : TYPED_FAILED)
           : ferror(stdin)   ? TYPED_FAILED
                             : TYPED_END;
}

/* True where the line holds more than white space. */
static bool says_something(const vt_buf *line)
{
    for (size_t i = 0; i < line->len; i++)
        if (!strchr(" \t\r\n", line->data[i]) || !line->data[i])
            return true;
    return false;
}

/* One line's work; its exit status. */
static int take(chat *h, vt_buf *line)
{
    vt_err err = {0};
    bool command = line->data[0] == '/' && !memchr(line->data, '\n', line->len);
    cli_set_at_prompt(h->terminal && !command); /* a long command ends at a second Ctrl-C */
    vt_status status = command ? run_command(h, line->data, &err)
                               : say(h, line->data, line->len, &err);
    cli_set_at_prompt(h->terminal);
    if (status == VT_OK)
        return CLI_DONE;
    cli_fail(&err);
    return CLI_FAILED;
}

/* Until the input ends. On a terminal errors were seen and answered; of a pipe's lines, one that
 * failed makes the whole a failure. */
static int talk(chat *h, typed *t)
{
    vt_buf line = {0};
    int code = CLI_DONE;
    bool told = false;
    while (!h->leave) {
        typed_status got = t ? typed_line(t, "> ", &line) : read_piped(&line);
        if (got == TYPED_INTERRUPTED && t) { /* the line is gone, the conversation stays */
            cli_clear_interrupt();
            if (!told)
                cli_note(h->c, "[Ctrl-D or /exit ends the conversation]");
            told = true;
        } else if (got != TYPED_DONE) {
            if (got == TYPED_FAILED)
                cli_say("standard input: %s", errno ? strerror(errno) : "out of memory");
            code = got == TYPED_END ? code : got == TYPED_FAILED ? CLI_FAILED : CLI_INTERRUPTED;
            break;
        } else if (says_something(&line)) {
            int one = take(h, &line);
            code = t || one == CLI_DONE ? code : one;
        }
    }
    vt_buf_release(&line);
    return code;
}

static void greet(const chat *h)
{
    vt_buf how = {0};
    if (!h->c->log.tty)
        return;
    cli_describe_sampling(&h->p, &how);
    cli_note(h->c, "%s, %s. /help lists the commands.", vt_model_name(h->s.model),
             how.data ? how.data : "");
    vt_buf_release(&how);
}

static vt_status settle(const cli *c, const vt_model *m, vt_err *err)
{
    (void)m;
    return cli_fit_running(c, 1, err);
}

int cli_chat(cli *c)
{
    vt_err err = {0};
    chat h = {.c = c};
    typed t;
    h.terminal = isatty(0);
    cli_catch_interrupt();
    vt_request_init(&h.p);
    vt_status status = conversation_begin(&h.v, vt_options_get(c->options, "system"), &err);
    if (status == VT_OK)
        status = cli_open_as(c, &h.s, settle, &err);
    if (status == VT_OK)
        status = cli_sampling(c, h.s.model, &h.p, &err);
    if (status == VT_OK)
        status = cli_use_adapter(&h.s, &h.p, &err);
    int code;
    if (status == VT_OK) {
        greet(&h);
        cli_set_at_prompt(h.terminal);
        if (h.terminal)
            typed_open(&t, true);
        code = talk(&h, h.terminal ? &t : NULL);
        if (h.terminal)
            typed_close(&t);
        cli_set_at_prompt(false);
    } else
        code = cli_fail(&err);
    free((void *)h.p.logit_bias);
    conversation_release(&h.v);
    cli_close(&h.s);
    return code;
}
