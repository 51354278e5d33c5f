/* vitrine completion: a script for bash, written from the same two tables as --help.
 *
 * The script matches the first two words: "run "* for a verb of one word, "bench latency" for one
 * of two, and "bench "* where the second word is still to come. */
#include <string.h>

#include "cli/cli.h"

static void options_of(vt_buf *b, uint32_t verbs)
{
    int32_t n;
    const vt_option *opt = vt_option_table(&n);
    for (int32_t i = 0; i < n; i++)
        if (opt[i].verbs & verbs)
            vt_buf_printf(b, "--%s ", opt[i].key);
    vt_buf_puts(b, "--help");
}

/* True for the first verb whose first word is this one. */
static bool opens_group(const cli_verb *v)
{
    size_t n = strcspn(v->name, " ");
    for (const cli_verb *w = cli_verbs; w < v; w++)
        if (strncmp(w->name, v->name, n) == 0 && (w->name[n] == ' ' || w->name[n] == '\0'))
            return false;
    return true;
}

int cli_completion(cli *c)
{
    (void)c;
    vt_buf b = {0};
    vt_buf_puts(&b, "# bash completion of vitrine: source <(vitrine completion)\n"
                    "_vitrine()\n{\n"
                    "    local cur=${COMP_WORDS[COMP_CWORD]} words=\n"
                    "    case \"${COMP_WORDS[1]} ${COMP_WORDS[2]}\" in\n");
    for (const cli_verb *v = cli_verbs; v->name; v++) {
        vt_buf_printf(&b, strchr(v->name, ' ') ? "    \"%s\") words=\"" : "    \"%s \"*) words=\"",
                      v->name);
        options_of(&b, v->options);
        vt_buf_puts(&b, "\" ;;\n");
    }
    for (const cli_verb *v = cli_verbs; v->name; v++) {
        size_t n = strcspn(v->name, " ");
        if (v->name[n] == '\0' || !opens_group(v))
            continue;
        vt_buf_printf(&b, "    \"%.*s \"*) words=\"", (int)n, v->name);
        for (const cli_verb *w = v; w->name; w++)
            if (strncmp(w->name, v->name, n + 1) == 0)
                vt_buf_printf(&b, "%s ", w->name + n + 1);
        vt_buf_puts(&b, "--help\" ;;\n");
    }
    vt_buf_puts(&b, "    esac\n    [ \"$COMP_CWORD\" = 1 ] && words=\"");
    for (const cli_verb *v = cli_verbs; v->name; v++)
        if (opens_group(v))
            vt_buf_printf(&b, "%.*s ", (int)strcspn(v->name, " "), v->name);
    vt_buf_puts(&b, "--help --version\"\n"
                    "    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
                    "    [ \"${cur#-}\" = \"$cur\" ] && COMPREPLY+=($(compgen -f -- \"$cur\"))\n}\n"
                    "complete -F _vitrine vitrine\n");
    bool ok = !b.failed && fwrite(b.data, 1, b.len, stdout) == b.len;
    vt_buf_release(&b);
    return ok ? CLI_DONE : CLI_FAILED;
}
