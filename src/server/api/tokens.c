/* /tokenize and /detokenize, in vLLM's form, and Anthropic's /v1/messages/count_tokens. The work is
 * done on a helper thread, because a text or a chat template may take long.
 *
 *   {"prompt"} or {"messages"}  ->  {"count", "max_model_len", "tokens", "token_strs"}
 *   {"tokens"}                  ->  {"prompt"}
 *   {"messages"} of Anthropic's ->  {"input_tokens"} */
#include <stdlib.h>

#include "base/mem.h"
#include "openai/anthropic.h"
#include "server/inside.h"
#include "text/template/template.h"
#include "text/tokenizer/tokenizer.h"

typedef struct conversion {
    vt_server *server;
    vt_exchange *x; /* NULL: the client has gone; of the loop's thread */
    bool gone;      /* the same, also read by the helper thread */
    vt_openai_form form;
    bool counts; /* a body of Anthropic's, of which only the number of tokens is told */
    vt_buf body, answer;
    vt_openai_error error;
} conversion;

static void on_gone(void *user, vt_exchange *x)
{
    conversion *c = user;
    (void)x;
    c->x = NULL;
    __atomic_store_n(&c->gone, true, __ATOMIC_RELAXED);
}

static bool is_gone(void *c) { return __atomic_load_n(&((conversion *)c)->gone, __ATOMIC_RELAXED); }

static void write_ids(conversion *c, const vt_openai_request *q, vt_json *w)
{
    const vt_openai_prompt *p = &q->prompt[0];
    vt_buf piece = {0};
    vt_json_int(w, "count", p->n);
    vt_json_int(w, "max_model_len", vt_engine_max_context(c->server->engine));
    vt_json_ints(w, "tokens", p->ids, p->n);
    if (!q->token_strings) {
        vt_json_null(w, "token_strs");
        return;
    }
    vt_json_open(w, "token_strs", '[');
    for (int32_t i = 0; i < p->n; i++) {
        vt_buf_clear(&piece);
        bool known = vt_tokenizer_piece(c->server->model->tokenizer, p->ids[i], &piece);
        vt_json_string_n(w, NULL, known && piece.data ? piece.data : "", piece.len);
    }
    vt_json_close(w);
    vt_buf_release(&piece);
}

static void write_text(conversion *c, const vt_openai_request *q, vt_json *w)
{
    char *text = NULL;
    size_t len = 0;
    vt_err err;
    if (vt_detokenize(c->server->model, q->prompt[0].ids, (size_t)q->prompt[0].n, &text, &len,
                      &err) != VT_OK)
        vt_openai_refuse_as(&c->error, &err, c->server->model, "tokens");
    vt_json_string_n(w, "prompt", text ? text : "", len);
    vt_free(text);
}

static void convert(void *arg)
{
    conversion *c = arg;
    json_t *body = NULL;
    vt_openai_request q = {0};
    const vt_template_limits limits = {.stop = is_gone, .stop_context = c};
    vt_openai_defaults d = c->server->defaults;
    vt_json w;
    d.limits = &limits;
    if (is_gone(c) || vt_openai_json_load(c->body.data, c->body.len, &body, &c->error) != VT_OK)
        return;
    if (c->counts) {
        json_t *chat = vt_anthropic_count(body, &c->error);
        json_decref(body);
        body = chat;
    }
    if (body &&
        vt_openai_request_read_as(body, c->form, c->server->model, &d, &q, &c->error) == VT_OK) {
        vt_json_begin(&w, &c->answer, -1);
        vt_json_open(&w, NULL, '{');
        if (c->counts)
            vt_json_int(&w, "input_tokens", q.prompt[0].n);
        else if (c->form == VT_OPENAI_TOKENIZE)
            write_ids(c, &q, &w);
        else
            write_text(c, &q, &w);
        vt_json_close(&w);
        if (!vt_json_end(&w) && !c->error.http)
            vt_openai_refuse(&c->error, 500, NULL, "out of memory for the answer");
    }
    json_decref(body);
    vt_openai_request_release(&q);
}

static void answer(void *arg)
{
    conversion *c = arg;
    if (c->x && c->error.http)
        server_reply_error(c->x, &c->error);
    else if (c->x)
        vt_web_reply(c->x, 200, "application/json", c->answer.data, c->answer.len);
    vt_buf_release(&c->body);
    vt_buf_release(&c->answer);
    free(c);
}

static void start(vt_server *s, vt_exchange *x, vt_openai_form form, bool counts)
{
    conversion *c = vt_calloc(1, sizeof *c);
    if (!c || !vt_web_take_body(x, &c->body)) {
        free(c);
        server_refuse(x, 500, NULL, "out of memory for the request");
        return;
    }
    c->server = s;
    c->x = x;
    c->form = form;
    c->counts = counts;
    vt_web_set_user(x, c);
    vt_web_on_gone(x, on_gone);
    if (!server_read_body(s, x, &c->body, convert, answer, c)) {
        vt_openai_refuse(&c->error, 503, NULL,
                         "too many requests wait to be read: try again later");
        answer(c);
    }
}

void server_tokenize(vt_server *s, vt_exchange *x) { start(s, x, VT_OPENAI_TOKENIZE, false); }

void server_detokenize(vt_server *s, vt_exchange *x) { start(s, x, VT_OPENAI_DETOKENIZE, false); }

void server_count_tokens(vt_server *s, vt_exchange *x) { start(s, x, VT_OPENAI_TOKENIZE, true); }
