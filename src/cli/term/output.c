/* Writes all that the program says: answers on stdout, messages on stderr, JSON.
 *
 * Tokens, file names and messages may hold any bytes. Into a pipe or a file they go as they are; a
 * terminal gets them through vt_text_show, because it would obey the control sequences in them. */
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "base/utf8.h"
#include "cli/cli.h"

bool cli_put(FILE *to, vt_shown *s, const char *text, size_t len)
{
    if (!isatty(fileno(to)))
        return fwrite(text, 1, len, to) == len;
    vt_buf b = {0};
    vt_text_show(&b, s, text, len);
    bool ok = !b.failed && fwrite(b.data ? b.data : "", 1, b.len, to) == b.len;
    vt_buf_release(&b);
    return ok;
}

bool cli_put_end(FILE *to, vt_shown *s)
{
    vt_buf b = {0};
    vt_text_show_end(&b, s); /* holds something on a terminal only */
    bool ok = !b.failed && fwrite(b.data ? b.data : "", 1, b.len, to) == b.len;
    vt_buf_release(&b);
    return ok;
}

bool cli_put_all(FILE *to, const char *text, size_t len)
{
    vt_shown s = {0};
    bool ok = cli_put(to, &s, text, len);
    return cli_put_end(to, &s) && ok;
}

void cli_say(const char *fmt, ...)
{
    vt_buf b = {0};
    va_list args;
    va_start(args, fmt);
    char *text = NULL;
    if (vasprintf(&text, fmt, args) >= 0) {
        fflush(stdout);
        vt_buf_printf(&b, "vitrine: %s\n", text);
        cli_put_all(stderr, b.data ? b.data : "", b.len);
    }
    va_end(args);
    free(text);
    vt_buf_release(&b);
}

int cli_fail(const vt_err *err)
{
    cli_say("%s", err->message);
    switch (err->status) {
    case VT_ERR_USAGE:
    case VT_ERR_CONTEXT:
    case VT_ERR_GRAMMAR:
        return CLI_USAGE;
    case VT_ERR_CANCELLED:
        return CLI_INTERRUPTED;
    default:
        return CLI_FAILED;
    }
}

void cli_note(const cli *c, const char *fmt, ...)
{
    va_list args;
    char *text = NULL;
    if (c->quiet)
        return;
    va_start(args, fmt);
    if (vasprintf(&text, fmt, args) >= 0) {
        cli_put_all(stderr, text, strlen(text));
        fputc('\n', stderr);
    }
    va_end(args);
    free(text);
}

/* ---- JSON ---- */

/* JSON text with \u escapes for what a terminal must not be sent: the same value. */
static void escape_controls(vt_buf *b, const char *json)
{
    for (const char *p = json; *p;) {
        uint32_t c;
        int used = vt_utf8_next(p, &c); /* jansson writes UTF-8 */
        if (vt_text_is_control(c))
            vt_buf_printf(b, "\\u%04x", c);
        else
            vt_buf_add(b, p, (size_t)used);
        p += used;
    }
}

/* NULL: the text could not be built. */
static int print_line(const char *json)
{
    vt_buf b = {0};
    if (json && isatty(1))
        escape_controls(&b, json);
    else if (json)
        vt_buf_puts(&b, json);
    vt_buf_putc(&b, '\n');
    bool ok = json && !b.failed && fwrite(b.data, 1, b.len, stdout) == b.len;
    vt_buf_release(&b);
    if (!ok)
        cli_say("the JSON result could not be written");
    return ok ? CLI_DONE : CLI_FAILED;
}

int cli_text_print(vt_buf *b)
{
    bool ok = !b->failed && (b->len == 0 || fwrite(b->data, 1, b->len, stdout) == b->len);
    vt_buf_release(b);
    return ok ? CLI_DONE : CLI_FAILED;
}

int cli_print_json(json_t *object)
{
    char *text = object ? json_dumps(object, JSON_REAL_PRECISION(9) | JSON_COMPACT) : NULL;
    int code = print_line(text);
    json_decref(object);
    free(text);
    return code;
}

int cli_object_print(vt_json *w)
{
    int code = print_line(vt_json_end(w) ? w->out->data : NULL);
    vt_json_release(w);
    return code;
}

json_t *cli_json_number(double v, int digits)
{
    double scale = pow(10, digits);
    return isfinite(v) ? json_real(round(v * scale) / scale) : json_null();
}

json_t *cli_json_text(const char *text, size_t len)
{
    json_t *j = json_stringn(text, len);
    if (j)
        return j;
    vt_buf b = {0};
    vt_utf8_add_lossy(&b, text, len);
    j = json_stringn(b.data ? b.data : "", b.len);
    vt_buf_release(&b);
    return j;
}
