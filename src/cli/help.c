/* --help, written from the table of verbs and the table of options. */
#include <string.h>

#include "cli/cli.h"
#include "ops/knobs.h"

enum { TEXT_COLUMN = 27 };

static void heading(vt_buf *b, const vt_term *term, const char *text)
{
    vt_buf_putc(b, '\n');
    vt_text_ink(b, term, VT_INK_BOLD, text);
    vt_buf_putc(b, '\n');
}

/* "  -n, --max-tokens N     stop after N tokens (128)" */
static void help_option(vt_buf *b, const vt_term *term, const vt_option *opt)
{
    vt_buf text = {0};
    size_t start = b->len;
    if (opt->letter)
        vt_buf_printf(b, "  -%c, --%s", opt->letter, opt->key);
    else
        vt_buf_printf(b, "      --%s", opt->key);
    if (opt->flags & VT_OPTION_OPTIONAL)
        vt_buf_printf(b, "[=%s]", opt->value_name);
    else if (opt->value_name)
        vt_buf_printf(b, " %s", opt->value_name);
    if (vt_text_width(b->data + start, b->len - start) > TEXT_COLUMN - 2) {
        vt_buf_putc(b, '\n');
        start = b->len;
    }
    vt_text_pad(b, start, TEXT_COLUMN);
    vt_buf_puts(&text, opt->help);
    if (opt->choices)
        vt_buf_printf(&text, ": %s", opt->choices);
    if (opt->later && strcmp(opt->later, "*") == 0)
        vt_buf_puts(&text, " (not there yet)");
    else if (opt->later)
        vt_buf_printf(&text, " (%s is not there yet)", opt->later);
    if (opt->type != VT_OPTION_FLAG && opt->fallback && *opt->fallback)
        vt_buf_printf(&text, " [%s]", opt->fallback);
    vt_text_wrap(b, text.data ? text.data : "", TEXT_COLUMN, term->width);
    vt_buf_putc(b, '\n');
    vt_buf_release(&text);
}

/* The options of a verb that have a twin in the environment (engine: true), or those that have
 * none. */
static void help_options(vt_buf *b, const vt_term *term, uint32_t verbs, bool engine,
                         const char *title)
{
    int32_t n, shown = 0;
    const vt_option *opt = vt_option_table(&n);
    for (int32_t i = 0; i < n; i++) {
        if (!(opt[i].verbs & verbs) || ((opt[i].verbs & VT_FOR_ENGINE) != 0) != engine)
            continue;
        if (shown++ == 0)
            heading(b, term, title);
        help_option(b, term, &opt[i]);
    }
}

void cli_help_verb(vt_buf *b, const vt_term *term, const cli_verb *verb)
{
    vt_buf_printf(b, "vitrine %s", verb->name);
    if (verb->args[0])
        vt_buf_printf(b, " %s", verb->args);
    vt_buf_puts(b, " [options]\n\n");
    vt_text_wrap(b, verb->about, 0, term->width);
    vt_buf_putc(b, '\n');
    help_options(b, term, verb->options, false, "Options");
    help_options(b, term, verb->options, true,
                 "Common options (VITRINE_MODEL=... sets --model, and so on)");
    vt_buf_puts(b, "  -h, --help               this text\n");
    if (!verb->examples)
        return;
    heading(b, term, "Examples");
    for (const char *p = verb->examples; *p; p += strcspn(p, "\n"), p += *p == '\n')
        vt_buf_printf(b, "  %.*s\n", (int)strcspn(p, "\n"), p);
}

/* "  left      right", the right side wrapped in its column. */
static void two_columns(vt_buf *b, const vt_term *term, const char *left, const char *right)
{
    enum { COLUMN = 27 };
    size_t start = b->len;
    vt_buf_printf(b, "  %s", left);
    vt_text_pad(b, start, COLUMN);
    vt_text_wrap(b, right, COLUMN, term->width);
    vt_buf_putc(b, '\n');
}

/* Says what to type first to whoever typed `vitrine` alone. */
void cli_first_steps(vt_buf *b, const vt_term *term, bool any_model)
{
    vt_buf_puts(b, "vitrine: an LLM inference engine that shows its work\n");
    heading(b, term, "What to type next");
    if (!any_model)
        vt_buf_puts(b, "  vitrine pull smollm2-135m                     a first model, 98 MB\n");
    vt_buf_puts(
        b,
        "  vitrine run \"Why is the sky blue?\" --story    an answer, and how it was made\n"
        "  vitrine chat                                  a conversation\n"
        "  vitrine serve                                 OpenAI's API, and a page that shows it\n"
        "  vitrine lab                                   lessons on this machine\n"
        "  vitrine --help                                everything else\n");
}

void cli_help_program(vt_buf *b, const vt_term *term, const cli_verb *verbs)
{
    vt_buf_puts(b, "vitrine: an LLM inference engine that shows its work\n");
    heading(b, term, "Usage");
    vt_buf_puts(b, "  vitrine VERB [options]\n  vitrine VERB --help    everything a verb can do\n");
    heading(b, term, "Verbs");
    for (const cli_verb *v = verbs; v->name; v++)
        two_columns(b, term, v->name, v->what);
    heading(b, term, "First steps");
    vt_buf_puts(
        b, "  vitrine run \"Why is the sky blue?\" --story\n  vitrine explain\n  vitrine env\n");
    heading(b, term, "Environment");
    two_columns(b, term, "VITRINE_CACHE", "folder of models and measurements [~/.cache/vitrine]");
    two_columns(b, term, "VITRINE_MODEL, ...", "every common option has such a twin");
    two_columns(b, term, "NO_COLOR", "no colours on a terminal either");
    two_columns(b, term, "COLUMNS", "how wide to be where output is no terminal: 40 or more");
    heading(b, term, "To measure, and for odd machines");
    const vt_knob_row *k;
    for (int32_t i = 0; (k = vt_knob_at(i)); i++)
        two_columns(b, term, k->env, k->help);
    heading(b, term, "Exit status");
    vt_buf_puts(b, "  0 done, 1 failed, 2 wrong usage, 130 stopped by Ctrl-C\n");
}
