/* A story as one page of HTML: the sections of page.h, a timeline drawn by a script, and the
 * roofline of its ops. The file needs nothing else; its policy lets no other script run and nothing
 * be loaded. Every text of a story is escaped, also in the JSON that the script reads. */
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "base/json_write.h"
#include "fetch/hash.h"
#include "story/forms.h"
#include "story/forms/trace.h"
#include "story/page/html.h"

typedef struct page_file {
    const char *name, *text;
    uint64_t size;
} page_file;

/* Made by tools/embed-kernels --table from page/html/; ended by a NULL name. */
extern const page_file vt_story_files[] __attribute__((visibility("hidden")));

static const page_file *file_named(const char *name)
{
    const page_file *f = vt_story_files;
    while (f->name && strcmp(f->name, name) != 0)
        f++;
    return f;
}

void html_text(vt_buf *b, const char *text)
{
    for (; *text; text++) {
        const char *entity = *text == '&'    ? "&amp;"
                             : *text == '<'  ? "&lt;"
                             : *text == '>'  ? "&gt;"
                             : *text == '"'  ? "&quot;"
                             : *text == '\'' ? "&#39;"
                                             : NULL;
        if (entity)
            vt_buf_puts(b, entity);
        else
            vt_buf_putc(b, *text);
    }
}

/* ---- what the script reads ---- */

static void put_spans(vt_json *w, const trace *t)
{
    vt_json_open(w, "spans", '[');
    for (size_t i = 0; i < t->n_spans; i++) {
        const trace_span *s = &t->span[i];
        vt_json_open(w, NULL, '[');
        vt_json_int(w, NULL, (int64_t)s->track);
        vt_json_string(w, NULL, s->name);
        vt_json_fixed(w, NULL, s->begin_us, 3);
        vt_json_fixed(w, NULL, s->us, 3); /* null: a moment */
        vt_json_int(w, NULL, s->step);
        vt_json_string(w, NULL, s->text);
        if (s->track == TRACE_STEPS)
            for (int32_t k = 1; k < s->n_facts; k++) /* tokens, seqs, decodes, new, kv */
                vt_json_real(w, NULL, s->fact[k]);
        vt_json_close(w);
    }
    vt_json_close(w);
}

static void put_counts(vt_json *w, const trace *t)
{
    vt_json_open(w, "counts", '[');
    for (size_t i = 0; i < t->n_counts; i++) {
        const trace_count *c = &t->count[i];
        vt_json_open(w, NULL, '[');
        vt_json_string(w, NULL, c->name);
        vt_json_fixed(w, NULL, c->at_us, 3);
        for (int32_t k = 0; k < c->n_values; k++)
            vt_json_real(w, NULL, c->value[k]);
        vt_json_close(w);
    }
    vt_json_close(w);
}

/* JSON inside of HTML: "</script>" and "<!--" must not occur, so no '<' does. */
static void put_data(vt_buf *out, const trace *t)
{
    vt_json w;
    vt_json_object(&w);
    put_spans(&w, t);
    put_counts(&w, t);
    out->failed |= !vt_json_end(&w);
    vt_buf_puts(out, "<script type=\"application/json\" id=\"trace\">");
    for (size_t i = 0; i < w.own.len; i++)
        if (w.own.data[i] == '<')
            vt_buf_puts(out, "\\u003c");
        else
            vt_buf_putc(out, w.own.data[i]);
    vt_buf_puts(out, "</script>\n");
    vt_json_release(&w);
}

/* ---- the page ---- */

/* The bytes of 64 hexadecimal digits in base64, as a policy wants a hash. */
static void put_base64(vt_buf *b, const char hex[HASH_HEX])
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t bits = 0, n = 0; /* those not written yet, and how many they are */
    for (const char *c = hex; *c; c++) {
        bits = bits << 4 | (uint32_t)(*c <= '9' ? *c - '0' : *c - 'a' + 10);
        n += 4;
        if (n >= 6)
            vt_buf_putc(b, digit[bits >> (n -= 6) & 63]);
    }
    vt_buf_putc(b, digit[bits << (6 - n) & 63]); /* 256 bits are 42 digits and 4 bits */
    vt_buf_putc(b, '=');
}

/* Lets one script run, the one whose hash stands here. */
static void put_script_policy(vt_buf *out)
{
    const page_file *script = file_named("page.js");
    hash_state hash;
    char hex[HASH_HEX];
    hash_init(&hash, HASH_SHA256);
    hash_add(&hash, script->text, script->size);
    hash_finish(&hash, hex);
    vt_buf_puts(out, "; script-src 'sha256-");
    put_base64(out, hex);
    vt_buf_putc(out, '\'');
}

void html_head(vt_buf *out, const char *title, const char *style, bool scripted)
{
    const page_file *all = file_named("page.css");
    vt_buf_puts(out, "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                     "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                     "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                     "style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'");
    if (scripted)
        put_script_policy(out);
    vt_buf_puts(out, "\">\n<title>");
    html_text(out, title);
    vt_buf_puts(out, "</title>\n<style>\n");
    vt_buf_add(out, all->text, all->size);
    vt_buf_puts(out, style);
    vt_buf_puts(out, "</style>\n</head>\n<body>\n");
}

static void put_timeline(vt_buf *out)
{
    vt_buf_puts(
        out,
        "<section id=\"timeline\"><h2>TIMELINE <small>the request, its steps, the calls of those "
        "that were timed, kernels where they were recorded; under them what was counted</small>"
        "</h2>\n"
        "<p class=\"keys\"><button data-do=\"in\">zoom in</button> "
        "<button data-do=\"out\">zoom out</button> <button data-do=\"all\">all</button> "
        "<span>wheel or + and - zoom, 0 shows all, drag or left and right move, n and p go from "
        "span to span, up and down from track to track, Escape lets go; the address keeps the "
        "place</span></p>\n"
        "<canvas id=\"spans\" tabindex=\"0\" role=\"application\" aria-describedby=\"told\" "
        "aria-label=\"The request, the steps and their calls over time. The sections below tell "
        "the same in words.\"></canvas>\n"
        "<p id=\"told\" aria-live=\"polite\"></p>\n"
        "<noscript><p>The timeline is drawn by a script. All else is here without.</p></noscript>"
        "</section>\n");
}

/* Links to the sections that have a heading. */
static void put_contents(vt_buf *out, const page *p)
{
    vt_buf_puts(out, "<nav aria-label=\"Sections\"><a href=\"#timeline\">TIMELINE</a>");
    for (int32_t i = 0; i < p->n_sections; i++) {
        const page_section *s = &p->section[i];
        if (!*s->title)
            continue;
        vt_buf_printf(out, " <a href=\"#%s\">", s->key);
        html_text(out, s->title);
        vt_buf_puts(out, "</a>");
    }
    vt_buf_puts(out, "</nav>\n");
}

static void put_page(vt_buf *out, const page *p, const trace *t)
{
    char model[STORY_TEXT];
    vt_buf title = {0};
    int32_t i = 0;
    vt_buf_printf(&title, "%s: a story of vitrine",
                  story_text(story_get(p->story, "model"), "name", model));
    html_head(out, title.data ? title.data : "a story of vitrine", "", true);
    out->failed |= title.failed;
    vt_buf_release(&title);
    /* what comes before the first heading is about the whole */
    vt_buf_puts(out, "<header>\n");
    for (; i < p->n_sections && !*p->section[i].title; i++)
        html_section(out, p, &p->section[i]);
    put_contents(out, p);
    vt_buf_puts(out, "</header>\n<main>\n");
    html_ribbon(out, p->story);
    put_timeline(out);
    html_roofline(out, p->story);
    for (; i < p->n_sections; i++)
        html_section(out, p, &p->section[i]);
    vt_buf_puts(out, "</main>\n");
    put_data(out, t);
    const page_file *script = file_named("page.js");
    vt_buf_puts(out, "<script>");
    vt_buf_add(out, script->text, script->size);
    vt_buf_puts(out, "</script>\n</body>\n</html>\n");
}

vt_status story_html(const story_file *f, vt_buf *out, vt_err *err)
{
    json_t *story = NULL;
    page p;
    trace t;
    TRY(story_load(f->name, f->json, f->len, &story, err));
    vt_status status = page_of_story(story, false, &p, err);
    if (status == VT_OK) {
        status = trace_of_story(story, &t, err);
        if (status == VT_OK) {
            put_page(out, &p, &t);
            trace_release(&t);
        }
        page_release(&p);
    }
    json_decref(story);
    if (status == VT_OK && out->failed)
        status = vt_fail(err, VT_ERR_MEMORY, "out of memory for a story");
    return status;
}
