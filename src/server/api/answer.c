/* Whole answers: JSON and errors. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "openai/anthropic.h"
#include "server/watch/observe.h"

static const char content_type[] = "application/json";

void server_reply_json(vt_exchange *x, int status, vt_json *w)
{
    static const char short_of_memory[] =
        "{\"error\":{\"message\":\"out of memory for the answer\",\"type\":\"server_error\","
        "\"param\":null,\"code\":null}}";
    if (vt_json_end(w))
        vt_web_reply(x, status, content_type, w->out->data, w->out->len);
    else
        vt_web_reply(x, 500, content_type, short_of_memory, sizeof short_of_memory - 1);
    vt_json_release(w);
}

/* Writes an error in the form of the API to which a path belongs. */
static void write_error(const vt_exchange *x, const vt_openai_error *e, vt_json *w)
{
    const char *path = vt_web_request(x)->path;
    const server_note *note = vt_web_note(x);
    if (strncmp(path, "/v1/messages", 12) == 0 && (path[12] == '/' || !path[12])) {
        vt_anthropic_error_write(e, note ? note->id : "", w);
        return;
    }
    vt_json_open(w, NULL, '{');
    if (strncmp(path, "/api/", 5) == 0)
        vt_json_string(w, "error", e->message);
    else
        vt_openai_error_write(e, w, "error");
    vt_json_close(w);
}

void server_reply_error(vt_exchange *x, const vt_openai_error *e)
{
    vt_json w;
    if (e->http == 503 || e->http == 429)
        vt_web_header(x, "Retry-After", "1");
    vt_json_line(&w);
    write_error(x, e, &w);
    server_reply_json(x, e->http, &w);
}

void server_refuse(vt_exchange *x, int status, const char *param, const char *fmt, ...)
{
    char text[512];
    vt_openai_error e = {0};
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    vt_openai_refuse(&e, status, param, "%s", text);
    server_reply_error(x, &e);
}

void server_error_body(int status, const char *message, vt_buf *out)
{
    vt_json w;
    vt_openai_error e = {0};
    vt_openai_refuse(&e, status, NULL, "%s", message);
    vt_json_begin(&w, out, -1);
    vt_json_open(&w, NULL, '{');
    vt_openai_error_write(&e, &w, "error");
    vt_json_close(&w);
    (void)vt_json_end(&w);
}

bool server_read_object(vt_exchange *x, json_t **out)
{
    const vt_http_request *r = vt_web_request(x);
    vt_openai_error e = {0};
    json_t *body = NULL;
    if (vt_openai_json_load(r->body, r->body_len, &body, &e) == VT_OK && !json_is_object(body)) {
        vt_openai_refuse(&e, 400, NULL, "the body: expected a JSON object");
        json_decref(body);
    }
    if (e.http) {
        server_reply_error(x, &e);
        return false;
    }
    *out = body;
    return true;
}
