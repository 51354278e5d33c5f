/* vitrine completion: scripts for bash, zsh and fish, written from the same two tables as --help.
 *
 * All three know the same things:
 *
 *   first word            a verb, or the first word of verbs of two words (bench latency)
 *   an option             those of the verb
 *   an option's value     by its row: its choices, a file, a folder, a model in the cache
 *   anything else         a file
 *
 * Choices that stand for a number (cuda:N) are left out: there is nothing to complete. */
#include <string.h>

#include "base/err.h"
#include "cli/cli.h"

typedef enum value_kind { OPEN, CHOICES, FILES, FOLDERS, MODELS } value_kind;

static value_kind kind_of(const vt_option *opt)
{
    const char *name = opt->value_name;
    if (opt->choices)
        return CHOICES;
    if (!name)
        return OPEN;
    if (strcmp(name, "MODEL") == 0)
        return MODELS;
    if (strcmp(name, "DIR") == 0)
        return FOLDERS;
    return strncmp(name, "FILE", 4) == 0 || strchr(name, '.') ? FILES : OPEN;
}

static bool takes_value(const vt_option *opt)
{
    return opt->type != VT_OPTION_FLAG && !(opt->flags & VT_OPTION_OPTIONAL);
}

/* The first row of each key: two rows may share one. */
static bool first_of_key(const vt_option *table, const vt_option *opt)
{
    for (const vt_option *o = table; o < opt; o++)
        if (strcmp(o->key, opt->key) == 0 && kind_of(o) != OPEN)
            return false;
    return true;
}

/* "auto|cpu|cuda:N" -> "auto cpu" */
static void put_choices(vt_buf *b, const char *choices)
{
    for (const char *p = choices; *p;) {
        size_t n = strcspn(p, "|");
        if (p[n - 1] != 'N')
            vt_buf_printf(b, "%s%.*s", p == choices ? "" : " ", (int)n, p);
        p += n + (p[n] == '|');
    }
}

/* True for the first verb whose first word is this one. */
static bool opens_group(const cli_verb *verbs, const cli_verb *v)
{
    size_t n = strcspn(v->name, " ");
    for (const cli_verb *w = verbs; w < v; w++)
        if (strncmp(w->name, v->name, n) == 0 && (w->name[n] == ' ' || w->name[n] == '\0'))
            return false;
    return true;
}

static void put_first_words(vt_buf *b, const cli_verb *verbs)
{
    for (const cli_verb *v = verbs; v->name; v++)
        if (opens_group(verbs, v))
            vt_buf_printf(b, "%.*s ", (int)strcspn(v->name, " "), v->name);
    vt_buf_puts(b, "--help --version");
}

/* The second words of the verbs that begin like `v`. */
static void put_second_words(vt_buf *b, const cli_verb *v)
{
    size_t n = strcspn(v->name, " ");
    for (const cli_verb *w = v; w->name; w++)
        if (strncmp(w->name, v->name, n + 1) == 0)
            vt_buf_printf(b, "%s ", w->name + n + 1);
    vt_buf_puts(b, "--help");
}

static void put_options(vt_buf *b, uint32_t verbs)
{
    int32_t n;
    const vt_option *opt = vt_option_table(&n);
    for (int32_t i = 0; i < n; i++)
        if (opt[i].verbs & verbs)
            vt_buf_printf(b, "--%s ", opt[i].key);
    vt_buf_puts(b, "--help");
}

/* ---- bash and zsh ---- */

/* Writes what both shells need: functions that print the words for a verb, and the kind of an
 * option's value with its choices. */
static void put_functions(vt_buf *b, const cli_verb *verbs)
{
    int32_t n;
    const vt_option *opt = vt_option_table(&n);
    vt_buf_puts(b, "_vitrine_words()\n{\n    case \"$1 $2\" in\n");
    for (const cli_verb *v = verbs; v->name; v++) {
        vt_buf_printf(b, strchr(v->name, ' ') ? "    \"%s\") echo \"" : "    \"%s \"*) echo \"",
                      v->name);
        put_options(b, v->options);
        if (strcmp(v->name, "completion") == 0)
            vt_buf_puts(b, " bash zsh fish");
        vt_buf_puts(b, "\" ;;\n");
    }
    for (const cli_verb *v = verbs; v->name; v++) {
        size_t len = strcspn(v->name, " ");
        if (v->name[len] == '\0' || !opens_group(verbs, v))
            continue;
        vt_buf_printf(b, "    \"%.*s \"*) echo \"", (int)len, v->name);
        put_second_words(b, v);
        vt_buf_puts(b, "\" ;;\n");
    }
    vt_buf_puts(b, "    esac\n}\n_vitrine_value()\n{\n    case \"$1\" in\n");
    for (int32_t i = 0; i < n; i++) {
        if (!first_of_key(opt, &opt[i]) || opt[i].type == VT_OPTION_FLAG)
            continue;
        vt_buf_printf(b, "    --%s", opt[i].key);
        if (opt[i].letter)
            vt_buf_printf(b, "|-%c", opt[i].letter);
        vt_buf_puts(b, ") echo \"");
        switch (kind_of(&opt[i])) {
        case CHOICES:
            vt_buf_puts(b, "words ");
            put_choices(b, opt[i].choices);
            break;
        case FILES:
            vt_buf_puts(b, takes_value(&opt[i]) ? "files" : "optional files");
            break;
        case FOLDERS:
            vt_buf_puts(b, "folders");
            break;
        case MODELS:
            vt_buf_puts(b, "models");
            break;
        case OPEN:
            vt_buf_puts(b, takes_value(&opt[i]) ? "open" : "optional");
        }
        vt_buf_puts(b, "\" ;;\n");
    }
    vt_buf_puts(b, "    esac\n}\n"
                   "_vitrine_models()\n{\n"
                   "    local f d=${VITRINE_CACHE:-$HOME/.cache/vitrine}/models\n"
                   "    ls -1 \"$d\" 2>/dev/null | while IFS= read -r f; do\n"
                   "        case $f in *.part|*.lock) ;; *) printf '%s\\n' \"${f%.gguf}\" ;; esac\n"
                   "    done\n}\n");
}

static void put_bash(vt_buf *b, const cli_verb *verbs)
{
    vt_buf_puts(b, "# bash completion of vitrine: source <(vitrine completion bash)\n");
    put_functions(b, verbs);
    vt_buf_puts(
        b, "_vitrine()\n{\n"
           "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} kind= joined= "
           "IFS=$' \\n'\n"
           "    COMPREPLY=()\n"
           "    if [ \"$cur\" = = ]; then cur= joined=1\n" /* --key=VALUE is three words to bash */
           "    elif [ \"$prev\" = = ]; then prev=${COMP_WORDS[COMP_CWORD-2]} joined=1; fi\n"
           "    [ \"$COMP_CWORD\" -gt 1 ] && kind=$(_vitrine_value \"$prev\")\n"
           "    case $kind in optional*) [ -n \"$joined\" ] && kind=${kind#optional } || kind= ;; "
           "esac\n"
           "    case $kind in\n"
           "    words*) COMPREPLY=($(compgen -W \"${kind#words}\" -- \"$cur\")); return ;;\n"
           "    open|optional) return ;;\n"
           "    esac\n"
           "    if [ -z \"$kind\" ]; then\n"
           "        local words\n"
           "        words=$(_vitrine_words \"${COMP_WORDS[1]}\" \"${COMP_WORDS[2]}\")\n"
           "        [ \"$COMP_CWORD\" = 1 ] && words=\"");
    put_first_words(b, verbs);
    vt_buf_puts(b, "\"\n"
                   "        COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
                   "        [ \"$COMP_CWORD\" = 1 ] || [ \"${cur#-}\" != \"$cur\" ] && return\n"
                   "    fi\n"
                   "    cur=${cur//\\\\/}\n"       /* the word is as it was typed: a\ name */
                   "    local IFS=$'\\n' how=-f\n" /* file names may hold spaces */
                   "    [ \"$kind\" = folders ] && how=-d\n"
                   "    [ \"$kind\" = models ] && COMPREPLY+=($(compgen -W \"$(_vitrine_models)\" "
                   "-- \"$cur\"))\n"
                   "    COMPREPLY+=($(compgen $how -- \"$cur\"))\n"
                   "    compopt -o filenames 2>/dev/null\n}\n"
                   "complete -F _vitrine vitrine\n");
}

static void put_zsh(vt_buf *b, const cli_verb *verbs)
{
    vt_buf_puts(
        b, "#compdef vitrine\n"
           "# zsh completion of vitrine: source <(vitrine completion zsh), or as a file _vitrine\n"
           "# in a folder of $fpath\n");
    put_functions(b, verbs);
    vt_buf_puts(
        b,
        "_vitrine()\n{\n"
        "    local prev=${words[CURRENT-1]} kind=\n"
        "    if [[ $PREFIX == --*=* ]]; then\n"
        "        prev=${PREFIX%%=*}; compset -P '*='; kind=${$(_vitrine_value $prev)#optional }\n"
        "    elif (( CURRENT > 2 )); then\n"
        "        kind=$(_vitrine_value $prev); [[ $kind == optional* ]] && kind=\n"
        "    fi\n"
        "    case $kind in\n"
        "    words*) compadd -- ${=kind#words}; return ;;\n"
        "    open|optional) return 1 ;;\n"
        "    files) _files; return ;;\n"
        "    folders) _files -/; return ;;\n"
        "    models) compadd -- ${(f)\"$(_vitrine_models)\"}; _files; return ;;\n"
        "    esac\n"
        "    if (( CURRENT == 2 )); then compadd -- ");
    put_first_words(b, verbs);
    vt_buf_puts(b, "; return; fi\n"
                   "    compadd -- ${=$(_vitrine_words \"${words[2]}\" \"${words[3]}\")}\n"
                   "    [[ $PREFIX == -* ]] || _files\n}\n"
                   "if [ \"$funcstack[1]\" = _vitrine ]; then _vitrine \"$@\"; else compdef "
                   "_vitrine vitrine; fi\n");
}

/* ---- fish ---- */

/* Text between single quotes. */
static void put_quoted(vt_buf *b, const char *text)
{
    for (vt_buf_putc(b, '\''); *text; text++) {
        if (*text == '\'' || *text == '\\')
            vt_buf_putc(b, '\\');
        vt_buf_putc(b, *text);
    }
    vt_buf_putc(b, '\'');
}

static void put_fish_option(vt_buf *b, const char *condition, const vt_option *opt)
{
    vt_buf_printf(b, "complete -c vitrine -n '%s' -l %s", condition, opt->key);
    if (opt->letter)
        vt_buf_printf(b, " -s %c", opt->letter);
    if (takes_value(opt)) {
        value_kind kind = kind_of(opt);
        vt_buf_puts(b, kind == FILES || kind == MODELS ? " -r" : " -x");
        if (kind == CHOICES) {
            vt_buf_puts(b, " -a '");
            put_choices(b, opt->choices);
            vt_buf_puts(b, "'");
        } else if (kind == MODELS)
            vt_buf_puts(b, " -a '(__vitrine_models)'");
        else if (kind == FOLDERS)
            vt_buf_puts(b, " -a '(__fish_complete_directories)'");
    }
    vt_buf_puts(b, " -d ");
    put_quoted(b, opt->help);
    vt_buf_putc(b, '\n');
}

static void put_fish(vt_buf *b, const cli_verb *verbs)
{
    int32_t n;
    const vt_option *opt = vt_option_table(&n);
    vt_buf_puts(b, "# fish completion of vitrine: vitrine completion fish | source\n"
                   "function __vitrine_models\n"
                   "    set -l d $VITRINE_CACHE\n"
                   "    test -n \"$d\"; or set d ~/.cache/vitrine\n"
                   "    command ls -1 $d/models 2>/dev/null | string match -rv '\\.(part|lock)$' | "
                   "string replace -r '\\.gguf$' ''\n"
                   "end\n"
                   "complete -c vitrine -n __fish_use_subcommand -f -a '");
    put_first_words(b, verbs);
    vt_buf_puts(b, "'\n");
    for (const cli_verb *v = verbs; v->name; v++) {
        char condition[256];
        int len = (int)strcspn(v->name, " ");
        snprintf(condition, sizeof condition, "__fish_seen_subcommand_from %.*s%s%s", len, v->name,
                 v->name[len] ? "; and __fish_seen_subcommand_from" : "",
                 v->name[len] ? v->name + len : "");
        if (v->name[len] && opens_group(verbs, v)) {
            vt_buf_printf(b, "complete -c vitrine -n '__fish_seen_subcommand_from %.*s' -f -a '",
                          len, v->name);
            put_second_words(b, v);
            vt_buf_puts(b, "'\n");
        }
        if (strcmp(v->name, "completion") == 0)
            vt_buf_printf(b, "complete -c vitrine -n '%s' -f -a 'bash zsh fish'\n", condition);
        for (int32_t i = 0; i < n; i++)
            if (opt[i].verbs & v->options)
                put_fish_option(b, condition, &opt[i]);
    }
}

int cli_completion(cli *c)
{
    const char *shell = c->n_args ? c->arg[0] : "bash";
    vt_buf b = {0};
    vt_err err = {0};
    if (strcmp(shell, "bash") == 0)
        put_bash(&b, c->verbs);
    else if (strcmp(shell, "zsh") == 0)
        put_zsh(&b, c->verbs);
    else if (strcmp(shell, "fish") == 0)
        put_fish(&b, c->verbs);
    else {
        vt_fail(&err, VT_ERR_USAGE, "'%.60s' found, expected bash, zsh or fish", shell);
        return cli_fail(&err);
    }
    return cli_text_print(&b);
}
