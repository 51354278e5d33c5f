#include "openai/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "files/json.h"
#include "model/model.h"

static vt_status fill(vt_openai_error *e, int http, const char *param, const char *message)
{
    vt_err clean; /* vt_fail turns control characters into spaces */
    vt_fail(&clean, VT_ERR_USAGE, "%s", message);
    *e = (vt_openai_error){.http = http};
    snprintf(e->param, sizeof e->param, "%s", param ? param : "");
    memcpy(e->message, clean.message, sizeof e->message);
    return VT_ERR_USAGE;
}

vt_status vt_openai_refuse(vt_openai_error *e, int http, const char *param, const char *fmt, ...)
{
    char text[sizeof e->message];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return fill(e, http, param, text);
}

static vt_status refuse_shown(vt_openai_error *e, const char *param, const json_t *v, bool word,
                              const char *want, const char *place, va_list args)
{
    char shown[64], where[160];
    vsnprintf(where, sizeof where, place, args);
    if (json_is_number(v))
        snprintf(shown, sizeof shown, "%.10g", json_number_value(v));
    else if (json_is_array(v))
        snprintf(shown, sizeof shown, "an array of %zu", json_array_size(v));
    else if (word && json_is_string(v))
        snprintf(shown, sizeof shown, "'%.40s'", json_string_value(v));
    else
        snprintf(shown, sizeof shown, "%s", vt_json_kind(v));
    return vt_openai_refuse(e, 400, param, "%s: %s%s, expected %s", where, shown, v ? " found" : "",
                            want);
}

vt_status vt_openai_refuse_value(vt_openai_error *e, const char *param, const json_t *v,
                                 const char *want, const char *place, ...)
{
    va_list args;
    va_start(args, place);
    vt_status status = refuse_shown(e, param, v, false, want, place, args);
    va_end(args);
    return status;
}

vt_status vt_openai_refuse_word(vt_openai_error *e, const char *param, const json_t *v,
                                const char *want, const char *place, ...)
{
    va_list args;
    va_start(args, place);
    vt_status status = refuse_shown(e, param, v, true, want, place, args);
    va_end(args);
    return status;
}

vt_status vt_openai_refuse_unknown(vt_openai_error *e, const char *param, const char *in,
                                   const vt_nearest *near)
{
    const char *best = near->best;
    return vt_openai_refuse(e, 400, param, "%s%.60s: not supported%s%s%s", in, near->asked,
                            best ? ", did you mean " : "", best ? best : "", best ? "?" : "");
}

/* `text` with every `from` replaced by `to`, cut where it does not fit. */
static void replace(char *out, size_t size, const char *text, const char *from, const char *to)
{
    size_t n = 0, len = strlen(from);
    while (*text && n + 1 < size) {
        if (len > 0 && strncmp(text, from, len) == 0) {
            vt_append(out, size, &n, "%s", to);
            text += len;
        } else {
            out[n++] = *text++;
        }
    }
    out[n] = '\0';
}

vt_status vt_openai_refuse_as(vt_openai_error *e, const vt_err *why, const vt_model *m,
                              const char *param)
{
    char text[sizeof e->message];
    const char *path = m->path && strchr(m->path, '/') ? m->path : ""; /* else it tells nothing */
    replace(text, sizeof text, why->message, path, m->name ? m->name : "");
    switch (why->status) {
    case VT_ERR_BUSY:
        return fill(e, 503, param, text);
    case VT_ERR_DEVICE:
    case VT_ERR_IO:
    case VT_ERR_MEMORY:
    case VT_ERR_NO_PAGES:
    case VT_ERR_CANCELLED:
        return fill(e, 500, param, text);
    default:
        fill(e, 400, param, text);
        e->code = why->status == VT_ERR_CONTEXT ? "context_length_exceeded" : NULL;
        return VT_ERR_USAGE;
    }
}

void vt_openai_error_write(const vt_openai_error *e, vt_json *w, const char *key)
{
    vt_json_open(w, key, '{');
    vt_json_string(w, "message", e->message);
    vt_json_string(w, "type", e->http < 500 ? "invalid_request_error" : "server_error");
    vt_json_string(w, "param", e->param[0] ? e->param : NULL);
    vt_json_string(w, "code", e->code);
    vt_json_close(w);
}
