#include "openai/batch.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

/* ---- IN ---- */

static vt_status no_custom_id(const json_t *line, vt_err *err)
{
    const json_t *id = json_object_get(line, "custom_id");
    return json_is_string(id) ? vt_fail(err, VT_ERR_FORMAT, "custom_id is empty or holds U+0000")
                              : vt_fail(err, VT_ERR_FORMAT, "custom_id is missing or not a string");
}

static bool find_form(const char *url, vt_openai_form *out)
{
    static const struct {
        const char *url;
        vt_openai_form form;
    } forms[] = {{"/v1/chat/completions", VT_OPENAI_CHAT},
                 {"/v1/completions", VT_OPENAI_COMPLETIONS},
                 {"/v1/embeddings", VT_OPENAI_EMBEDDINGS}};
    for (size_t i = 0; url && i < sizeof forms / sizeof *forms; i++)
        if (strcmp(url, forms[i].url) == 0) {
            *out = forms[i].form;
            return true;
        }
    return false;
}

vt_status vt_openai_line_read(const char *text, size_t len, vt_openai_line *out, vt_err *err)
{
    json_t *line;
    *out = (vt_openai_line){0};
    if (vt_openai_json_load(text, len, &line, &out->error) != VT_OK)
        return vt_fail(err, VT_ERR_FORMAT, "%s", out->error.message);
    const json_t *id = json_object_get(line, "custom_id");
    const char *s = json_string_value(id);
    if (!s || !*s || strlen(s) != json_string_length(id)) {
        vt_status status = no_custom_id(line, err);
        json_decref(line);
        return status;
    }
    out->custom_id = strdup(s);
    const char *url = json_string_value(json_object_get(line, "url"));
    const char *method = json_string_value(json_object_get(line, "method"));
    json_t *body = json_object_get(line, "body");
    if (!find_form(url, &out->form))
        vt_openai_refuse(&out->error, 400, "url",
                         "url is '%.80s', expected /v1/chat/completions, /v1/completions or "
                         "/v1/embeddings",
                         url ? url : "missing");
    else if (!method || strcmp(method, "POST") != 0)
        vt_openai_refuse(&out->error, 400, "method", "method is '%.20s', expected POST",
                         method ? method : "missing");
    else if (!json_is_object(body))
        vt_openai_refuse(&out->error, 400, "body", "body is missing or not an object");
    else
        out->body = json_incref(body);
    json_decref(line);
    return out->custom_id ? VT_OK : vt_fail(err, VT_ERR_MEMORY, "out of memory");
}

void vt_openai_line_release(vt_openai_line *l)
{
    free(l->custom_id);
    json_decref(l->body);
    *l = (vt_openai_line){0};
}

/* ---- OUT ---- */

static const char result_begin[] = "{\"id\":\"batch_req_";

vt_status vt_openai_result_write(const char *custom_id, const vt_openai_reply *reply,
                                 const vt_openai_request *request, const vt_openai_error *error,
                                 vt_buf *out, vt_err *err)
{
    vt_json w;
    size_t begin = out->len;
    vt_json_begin(&w, out, -1);
    vt_json_open(&w, NULL, '{');
    vt_json_printf(&w, "id", "batch_req_%s", custom_id);
    vt_json_string(&w, "custom_id", custom_id);
    vt_json_open(&w, "response", '{');
    vt_json_int(&w, "status_code", error->http ? error->http : 200);
    vt_json_string(&w, "request_id", custom_id);
    if (error->http) {
        vt_json_open(&w, "body", '{');
        vt_openai_error_write(error, &w, "error");
        vt_json_close(&w);
    } else if (request->p.embed) {
        vt_openai_embeddings_write(reply, request, &w, "body");
    } else {
        vt_openai_reply_write(reply, &w, "body");
    }
    vt_json_close(&w);
    vt_json_null(&w, "error");
    vt_json_close(&w);
    vt_buf_putc(out, '\n');
    if (vt_json_end(&w) && !out->failed)
        return VT_OK;
    out->len = begin < out->len ? begin : out->len; /* no half line */
    return vt_fail(err, VT_ERR_MEMORY, "out of memory for the result of %.80s", custom_id);
}

bool vt_openai_result_begins(const char *text, size_t len)
{
    size_t n = sizeof result_begin - 1;
    return len > 0 && memcmp(text, result_begin, len < n ? len : n) == 0;
}

/* ---- reading results ---- */

/* A position in JSON text that is skipped rather than parsed. */
typedef struct skim {
    const char *at, *end;
} skim;

static void skip_space(skim *s)
{
    while (s->at < s->end && memchr(" \t\r\n", *s->at, 4))
        s->at++;
}

/* Skips one byte, `c`, and the space around it. */
static bool skip_byte(skim *s, char c)
{
    skip_space(s);
    if (s->at == s->end || *s->at != c)
        return false;
    s->at++;
    skip_space(s);
    return true;
}

static bool skip_string(skim *s)
{
    if (s->at == s->end || *s->at != '"')
        return false;
    for (s->at++; s->at < s->end && *s->at != '"'; s->at++)
        if (*s->at == '\\' && s->at + 1 < s->end)
            s->at++;
    if (s->at == s->end)
        return false;
    s->at++;
    return true;
}

/* Skips a value of any kind. Brackets are counted, not matched by kind: the lines are our own. */
static bool skip_value(skim *s)
{
    int64_t depth = 0;
    do {
        skip_space(s);
        if (s->at == s->end)
            return false;
        char c = *s->at;
        if (c == '"') {
            if (!skip_string(s))
                return false;
        } else if (c == '{' || c == '[') {
            depth++;
            s->at++;
        } else if (c == '}' || c == ']') {
            depth--;
            s->at++;
        } else if (depth > 0 && (c == ',' || c == ':')) {
            s->at++;
        } else { /* a number, true, false, null */
            const char *begin = s->at;
            while (s->at < s->end && !memchr(" \t\r\n,:{}[]\"", *s->at, 11))
                s->at++;
            if (s->at == begin)
                return false;
        }
    } while (depth > 0);
    return depth == 0;
}

/* The member name at s, without its quotes, and the ':' after it. */
static bool read_name(skim *s, const char **name, size_t *len)
{
    skip_space(s);
    const char *begin = s->at;
    if (!skip_string(s))
        return false;
    *name = begin + 1;
    *len = (size_t)(s->at - begin) - 2;
    return skip_byte(s, ':');
}

static bool is_name(const char *name, size_t len, const char *want)
{
    return len == strlen(want) && memcmp(name, want, len) == 0;
}

/* A JSON string with its escapes, into a buffer. */
static bool read_id(const char *text, size_t len, vt_buf *out)
{
    json_t *j = json_loadb(text, len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    const char *s = json_string_value(j);
    bool ok = s && *s && strlen(s) == json_string_length(j);
    vt_buf_clear(out);
    ok = ok && vt_buf_puts(out, s);
    json_decref(j);
    return ok;
}

/* Calls `member` for each member of the object at s, with s at the value; it has to skip that. */
static bool each_member(skim *s, bool (*member)(void *to, const char *name, size_t len, skim *s),
                        void *to)
{
    if (!skip_byte(s, '{'))
        return false;
    if (skip_byte(s, '}'))
        return true;
    do {
        const char *name;
        size_t len;
        if (!read_name(s, &name, &len) || !member(to, name, len, s))
            return false;
    } while (skip_byte(s, ','));
    return skip_byte(s, '}');
}

typedef struct found {
    vt_openai_result *result;
    bool has_id, has_response, has_error;
} found;

static bool response_member(void *to, const char *name, size_t len, skim *s)
{
    found *f = to;
    const char *begin = s->at;
    if (!skip_value(s))
        return false;
    if (is_name(name, len, "status_code")) {
        f->result->http = 0;
        for (const char *p = begin; p < s->at && *p >= '0' && *p <= '9' && p < begin + 3; p++)
            f->result->http = 10 * f->result->http + (*p - '0');
    }
    return true;
}

static bool line_member(void *to, const char *name, size_t len, skim *s)
{
    found *f = to;
    const char *begin = s->at;
    if (is_name(name, len, "response") && s->at < s->end && *s->at == '{') {
        f->has_response = true;
        return each_member(s, response_member, f);
    }
    if (!skip_value(s))
        return false;
    if (is_name(name, len, "custom_id")) {
        f->has_id = read_id(begin, (size_t)(s->at - begin), &f->result->custom_id);
        return f->has_id;
    }
    if (is_name(name, len, "error") && *begin == '{')
        f->has_error = true;
    return true;
}

bool vt_openai_result_read(const char *text, size_t len, vt_openai_result *out)
{
    found f = {.result = out};
    skim s = {text, text + len};
    out->http = 0;
    if (!each_member(&s, line_member, &f) || s.at != s.end)
        return false;
    if (!f.has_response && f.has_error)
        out->http = 500;
    return f.has_id && (f.has_response || f.has_error);
}

void vt_openai_result_release(vt_openai_result *r) { vt_buf_release(&r->custom_id); }
