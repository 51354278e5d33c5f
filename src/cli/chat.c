/* vitrine chat: a conversation in the terminal.
 *
 * The whole conversation goes through the chat template at each turn; the engine's prefix cache
 * finds what it has seen before, so only the new turn is computed. Lines are read as the
 * terminal gives them (its own line editing), which also makes a conversation scriptable through
 * a pipe. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "cli/cli.h"
#include "cli/prompt.h"
#include "cli/telling.h"

typedef struct conversation {
    json_t *messages;
    vt_request_id last; /* the last answer's request; 0: none yet */
} conversation;

static vt_status begin(const cli *c, conversation *v, vt_err *err)
{
    const char *system = vt_options_get(c->options, "system");
    json_decref(v->messages);
    v->messages = json_array();
    v->last = 0;
    return system ? cli_add_message(v->messages, "system", system, strlen(system), err) : VT_OK;
}

static void note_turn(const cli *c, const cli_reply *r)
{
    double decode_s = (double)(r->last_ns - r->first_ns) * 1e-9;
    if (!c->log.tty)
        return;
    cli_note(c, "[%d tokens, %d of %d prompt tokens cached, %.1f tokens/s%s]", r->completion_tokens,
             r->cached_tokens, r->prompt_tokens,
             r->n_tokens > 1 && decode_s > 0 ? (r->n_tokens - 1) / decode_s : 0.0,
             r->finish == VT_FINISH_ABORT    ? ", stopped"
             : r->finish == VT_FINISH_LENGTH ? ", cut at --max-tokens"
                                             : "");
}

/* One turn. What the model said before Ctrl-C stays in the conversation; a turn that could not
 * be computed leaves it as it was. */
static vt_status answer(const cli *c, cli_session *s, conversation *v, const char *line,
                        vt_err *err)
{
    cli_ids ids = {0};
    cli_reply reply = {.stream = stdout};
    vt_request_params p;
    size_t before = json_array_size(v->messages);
    vt_status status = cli_add_message(v->messages, "user", line, strlen(line), err);
    if (status == VT_OK)
        status = cli_encode_messages(c, s->model, v->messages, &ids, err);
    vt_request_init(&p);
    cli_sampling(c, &p);
    p.prompt = ids.id;
    p.n_prompt = ids.n;
    if (status == VT_OK)
        status = cli_generate(s, &p, &reply, err);
    if (status == VT_OK) {
        putchar('\n');
        fflush(stdout);
        v->last = reply.id;
        note_turn(c, &reply);
        status = cli_add_message(v->messages, "assistant", reply.text.data ? reply.text.data : "",
                                 reply.text.len, err);
    }
    while (status != VT_OK && json_array_size(v->messages) > before)
        json_array_remove(v->messages, json_array_size(v->messages) - 1);
    cli_clear_interrupt();
    cli_reply_release(&reply);
    vt_free(ids.id);
    return status;
}

/* True where the line was a command. */
static bool command(const cli *c, cli_session *s, conversation *v, const char *line, bool *leave)
{
    vt_err err = {0};
    if (line[0] != '/')
        return false;
    if (strcmp(line, "/exit") == 0) {
        *leave = true;
    } else if (strcmp(line, "/reset") == 0) {
        if (begin(c, v, &err) != VT_OK)
            cli_fail(&err);
        cli_note(c, "[forgotten]");
    } else if (strcmp(line, "/story") == 0) {
        if (v->last == 0)
            fputs("vitrine: there is no answer yet to tell the story of\n", stderr);
        else if (cli_tell_story(c, s, &(cli_reply){.id = v->last}, NULL, &err) != VT_OK)
            cli_fail(&err);
    } else
        fprintf(stderr, "vitrine: '%.40s' is no command; there are /reset, /story and /exit\n",
                line);
    return true;
}

static int talk(const cli *c, cli_session *s, conversation *v)
{
    char *line = NULL;
    size_t cap = 0;
    bool leave = false;
    int code = CLI_DONE;
    while (!leave) {
        vt_err err = {0};
        if (isatty(0))
            fputs("> ", stderr);
        errno = 0;
        ssize_t n = getline(&line, &cap, stdin);
        if (n < 0) {
            code = cli_interrupted() ? CLI_INTERRUPTED : ferror(stdin) ? CLI_FAILED : CLI_DONE;
            break;
        }
        while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r'))
            line[--n] = '\0';
        if (n == 0 || command(c, s, v, line, &leave))
            continue;
        vt_status status = answer(c, s, v, line, &err);
        if (status != VT_OK)
            code = cli_fail(&err);
        if (status != VT_OK && !isatty(0))
            break; /* nobody is there to react */
        code = CLI_DONE;
    }
    if (isatty(0) && !leave)
        fputc('\n', stderr);
    free(line);
    return code;
}

int cli_chat(cli *c)
{
    vt_err err = {0};
    cli_session s = {0};
    conversation v = {0};
    cli_catch_interrupt();
    vt_status status = vt_options_set(c->options, "record", "true", &err); /* for /story */
    if (status == VT_OK)
        status = cli_open(c, &s, &err);
    if (status == VT_OK)
        status = begin(c, &v, &err);
    if (status == VT_OK && c->log.tty)
        cli_note(c, "%s. /reset forgets, /story tells, /exit ends.", vt_model_name(s.model));
    int code = status == VT_OK ? talk(c, &s, &v) : cli_fail(&err);
    json_decref(v.messages);
    cli_close(&s);
    return code;
}
