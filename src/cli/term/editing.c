/* Line editing through libedit (cli/term/typed.h).
 *
 * libedit is loaded with dlopen, as the GPU's libraries are, and the plain editor stands in where
 * it is not installed. Linking libedit.a was the alternative: it needs libtinfo, libbsd and libmd,
 * makes the program larger, and building would then need libedit-dev.
 *
 * libedit gets its characters from typed_byte, so that Ctrl-C can be told from the end of input,
 * and a command of ours is bound to the mark that begins a pasted text: it takes the whole paste
 * into the line, newlines included. The wide interface is used, with conversions of our own: the
 * narrow one drops what the locale does not know. libedit still writes by the locale, so this
 * thread's is C.UTF-8 while libedit runs.
 *
 * History lives as long as the program: what is said to a model may be private, so nothing is
 * written to a file. ~/.editrc is read, as by every program that uses libedit. */
#include <dlfcn.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "base/utf8.h"
#include "cli/cli.h"
#include "cli/term/typed.h"

/* The part of <histedit.h> that is used here: the interface of libedit.so.2. */
enum {
    EL_PROMPT = 0,
    EL_EDITOR = 2,
    EL_SIGNAL = 3,
    EL_BIND = 4,
    EL_ADDFN = 9,
    EL_HIST = 10,
    EL_GETCFN = 13,
    H_SETSIZE = 1,
    H_ENTER = 10,
    H_SETUNIQUE = 20,
    CC_EOF = 2,
    CC_REFRESH = 4
};
typedef struct editline EditLine;
typedef struct historyW HistoryW;
typedef struct HistEventW {
    int num;
    const wchar_t *str;
} HistEventW;

enum { HISTORY_LINES = 1000 };

typedef struct library {
    EditLine *(*init)(const char *program, FILE *in, FILE *out, FILE *err);
    void (*end)(EditLine *el);
    int (*set)(EditLine *el, int op, ...);
    int (*source)(EditLine *el, const char *file);
    const wchar_t *(*read_line)(EditLine *el, int *n);
    int (*insert)(EditLine *el, const wchar_t *text);
    HistoryW *(*history_init)(void);
    void (*history_end)(HistoryW *h);
    int (*history)(HistoryW *h, HistEventW *event, int op, ...);
} library;

struct editing {
    library lib;
    EditLine *el;
    HistoryW *history;
    typed *typed;
    wchar_t *prompt;
    locale_t utf8;
    typed_status status; /* why characters ended */
};

/* libedit calls back with its EditLine alone. There is one terminal, so there is one of these. */
static struct editing *active;

static bool load(library *l)
{
    void *so = dlopen("libedit.so.2", RTLD_NOW | RTLD_LOCAL);
    struct {
        const char *name;
        void *slot;
    } wanted[] = {{"el_init", &l->init},
                  {"el_end", &l->end},
                  {"el_wset", &l->set},
                  {"el_source", &l->source},
                  {"el_wgets", &l->read_line},
                  {"el_winsertstr", &l->insert},
                  {"history_winit", &l->history_init},
                  {"history_wend", &l->history_end},
                  {"history_w", &l->history}};
    for (size_t i = 0; so && i < sizeof wanted / sizeof wanted[0]; i++) {
        void *symbol = dlsym(so, wanted[i].name);
        if (!symbol)
            return false;
        memcpy(wanted[i].slot, &symbol, sizeof symbol);
    }
    return so != NULL; /* never closed: it would be loaded again for the next conversation */
}

/* ---- text ---- */

/* UTF-8 as wide characters, NUL-terminated; what is ill-formed becomes U+FFFD. NULL: no memory. */
static wchar_t *widen(const char *text, size_t len)
{
    wchar_t *wide = malloc((len + 1) * sizeof *wide), *to = wide;
    while (wide && len > 0) {
        int step = vt_utf8_step(text, len);
        uint32_t c = 0xfffd;
        if (step > 0)
            vt_utf8_next(text, &c);
        size_t used = step > 0 ? (size_t)step : step < 0 ? (size_t)-step : len;
        *to++ = (wchar_t)c;
        text += used;
        len -= used;
    }
    if (wide)
        *to = L'\0';
    return wide;
}

/* Appends wide characters as UTF-8. */
static void narrow(vt_buf *b, const wchar_t *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        vt_utf8_add(b, (uint32_t)text[i]);
}

/* ---- what libedit calls ---- */

static wchar_t *on_prompt(EditLine *el)
{
    (void)el;
    return active->prompt;
}

/* One character; 0 ends the line. */
static int on_character(EditLine *el, wchar_t *out)
{
    char utf8[4];
    uint32_t c = 0xfffd;
    int n = 0, step = 0;
    (void)el;
    while (step == 0) {
        int byte = typed_byte(active->typed, &active->status);
        if (byte < 0)
            return 0;
        utf8[n++] = (char)byte;
        step = vt_utf8_step(utf8, (size_t)n);
    }
    if (step > 0)
        vt_utf8_next(utf8, &c);
    else if (n > 1) /* the last byte begins something else */
        active->typed->in.at--;
    *out = (wchar_t)c;
    return 1;
}

static unsigned char on_paste(EditLine *el, wint_t key)
{
    vt_buf text = {0};
    (void)key;
    active->status = typed_paste(active->typed, &text);
    wchar_t *wide = widen(text.data ? text.data : "", text.len);
    if (wide && *wide)
        active->lib.insert(el, wide);
    free(wide);
    vt_buf_release(&text);
    return active->status == TYPED_DONE ? CC_REFRESH : CC_EOF;
}

/* ---- a line ---- */

/* Everything but the library and the locale. */
static bool start(struct editing *e)
{
    HistEventW event;
    FILE *screen = e->typed->screen;
    e->el = e->lib.init("vitrine", stdin, screen, screen);
    e->history = e->lib.history_init();
    if (!e->el || !e->history)
        return false;
    e->lib.history(e->history, &event, H_SETSIZE, HISTORY_LINES);
    e->lib.history(e->history, &event, H_SETUNIQUE, 1);
    e->lib.set(e->el, EL_EDITOR, L"emacs");
    e->lib.set(e->el, EL_HIST, e->lib.history, e->history);
    e->lib.set(e->el, EL_PROMPT, on_prompt);
    e->lib.set(e->el, EL_SIGNAL, 1); /* gives the terminal back before a signal acts */
    e->lib.set(e->el, EL_GETCFN, on_character);
    e->lib.set(e->el, EL_ADDFN, L"vitrine-paste", L"Take a pasted text into the line", on_paste);
    e->lib.set(e->el, EL_BIND, L"\\e[200~", L"vitrine-paste", NULL);
    e->lib.set(e->el, EL_BIND, L"^R", L"em-inc-search-prev", NULL);
    e->lib.source(e->el, NULL);
    return true;
}

struct editing *editing_open(typed *t)
{
    struct editing *e = calloc(1, sizeof *e);
    if (!e)
        return NULL;
    e->typed = t;
    e->utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    bool ok = e->utf8 && load(&e->lib);
    locale_t before = uselocale(e->utf8);
    ok = ok && start(e);
    uselocale(before);
    if (!ok) {
        editing_close(e);
        return NULL;
    }
    active = e;
    return e;
}

void editing_close(struct editing *e)
{
    if (!e)
        return;
    if (e->el)
        e->lib.end(e->el);
    if (e->history)
        e->lib.history_end(e->history);
    if (e->utf8)
        freelocale(e->utf8);
    free(e->prompt);
    free(e);
    active = NULL;
}

/* Puts what was typed into *line and into the history, without the newline that ended it. */
static void take(struct editing *e, const wchar_t *text, int n, vt_buf *line)
{
    HistEventW event;
    wchar_t *entry = malloc(((size_t)n + 1) * sizeof *entry);
    while (n > 0 && text[n - 1] == L'\n')
        n--;
    narrow(line, text, (size_t)n);
    if (entry && n > 0) {
        wmemcpy(entry, text, (size_t)n);
        entry[n] = L'\0';
        e->lib.history(e->history, &event, H_ENTER, entry);
    }
    free(entry);
}

typed_status editing_line(struct editing *e, const char *prompt, vt_buf *line)
{
    FILE *screen = e->typed->screen;
    int n = 0;
    free(e->prompt);
    e->prompt = widen(prompt, strlen(prompt));
    if (!e->prompt)
        return TYPED_FAILED;
    e->status = TYPED_DONE;
    locale_t before = uselocale(e->utf8);
    fputs("\033[?2004h", screen);
    fflush(screen);
    const wchar_t *text = e->lib.read_line(e->el, &n);
    uselocale(before);
    fputs("\033[?2004l", screen);
    bool whole = text && n > 0 && e->status == TYPED_DONE;
    if (whole)
        take(e, text, n, line);
    else
        fputc('\n', screen); /* after the prompt, or what was dropped */
    fflush(screen);
    if (whole)
        return line->failed ? TYPED_FAILED : TYPED_DONE;
    return e->status != TYPED_DONE ? e->status : TYPED_END;
}
