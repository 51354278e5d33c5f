/* Reading the command line against the option table.
 *
 *   --key VALUE  --key=VALUE  --flag  --flag=false  -n VALUE  -nVALUE  --  (no options after it)
 *
 * Options and arguments may come in any order. An option with an optional value (--story) takes it
 * only behind '='; what would be taken for that value if it stood apart is refused. A lone '-' is
 * an argument. */
#include <string.h>

#include "base/err.h"
#include "cli/cli.h"

/* How long a name on the command line may be; longer ones are unknown anyway. */
enum { MAX_KEY = 64 };

/* Returns the option of this verb by which other programs, or other verbs of this one, call what
 * ours calls otherwise; NULL if there is none. */
static const char *by_other_name(const cli *c, const char *key)
{
    static const char *const names[][2] = {{"requests", "num"},
                                           {"num-requests", "num"},
                                           {"num-prompts", "num"},
                                           {"request-rate", "rate"},
                                           {"max-concurrency", "concurrency"},
                                           {"input-len", "input"},
                                           {"random-input-len", "input"},
                                           {"prompt", "input"},
                                           {"output-len", "output"},
                                           {"random-output-len", "output"},
                                           {"input", "prompt"},
                                           {"input-len", "prompt"},
                                           {"output", "gen"},
                                           {"output-len", "gen"},
                                           {"batch-size", "batch"},
                                           {"base-url", "url"},
                                           {"endpoint", "url"},
                                           {"max-new-tokens", "max-tokens"},
                                           {"n-predict", "max-tokens"},
                                           {"ctx-size", "max-context"},
                                           {"max-model-len", "max-context"},
                                           {"context-length", "max-context"},
                                           {"api-key", "api-key-file"},
                                           {"served-model-name", "alias"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(key, names[i][0]) == 0 && vt_option_find(names[i][1], c->verb->options))
            return names[i][1];
    return NULL;
}

static vt_status unknown_option(const cli *c, const char *key, vt_err *err)
{
    const char *near = by_other_name(c, key);
    if (!near)
        near = vt_option_nearest(key, c->verb->options);
    if (vt_option_find(key, ~0u))
        return vt_fail(err, VT_ERR_USAGE, "--%s is not an option of 'vitrine %s'%s%s%s", key,
                       c->verb->name, near ? ", did you mean --" : "", near ? near : "",
                       near ? "?" : "");
    if (near)
        return vt_fail(err, VT_ERR_USAGE, "unknown option --%.60s, did you mean --%s?", key, near);
    return vt_fail(err, VT_ERR_USAGE, "unknown option --%.60s", key);
}

/* Returns true if the argument after an option with an optional value was meant as that value:
 * digits where a number is wanted, a name that ends as the option's files do. */
static bool meant_as_value(const vt_option *opt, const char *next)
{
    const char *suffix = strrchr(opt->value_name, '.');
    size_t n = strlen(next), m = suffix ? strlen(suffix) : 0;
    if (opt->type == VT_OPTION_INT)
        return n > 0 && next[strspn(next, "0123456789")] == '\0';
    return suffix && n > m && strcmp(next + n - m, suffix) == 0;
}

/* --key[=value], with `next` the argument after it. *used is 1 where that was the value. */
static vt_status long_option(cli *c, const char *arg, const char *next, int *used, vt_err *err)
{
    char key[MAX_KEY] = "", origin[MAX_KEY + 2];
    size_t n = strcspn(arg, "=");
    const char *value = arg[n] == '=' ? arg + n + 1 : NULL;
    if (n >= sizeof key)
        return vt_fail(err, VT_ERR_USAGE, "unknown option --%.60s", arg);
    memcpy(key, arg, n);
    const vt_option *opt = vt_option_find(key, c->verb->options);
    if (!opt)
        return unknown_option(c, key, err);
    snprintf(origin, sizeof origin, "--%s", key);
    if (!value && opt->type == VT_OPTION_FLAG)
        value = "true";
    else if (!value && (opt->flags & VT_OPTION_OPTIONAL)) {
        if (next && meant_as_value(opt, next))
            return vt_fail(err, VT_ERR_USAGE, "--%s takes its value after '=': --%s=%s", key, key,
                           next);
        value = opt->type == VT_OPTION_INT ? "0" : "";
    } else if (!value && next) {
        value = next;
        *used = 1;
    } else if (!value)
        return vt_fail(err, VT_ERR_USAGE, "--%s needs a value (%s)", key, opt->value_name);
    return vt_options_assign(c->options, opt, value, origin, err);
}

/* -n VALUE, -nVALUE, -q */
static vt_status short_option(cli *c, const char *arg, const char *next, int *used, vt_err *err)
{
    char origin[3] = {'-', arg[0], '\0'};
    const vt_option *opt = vt_option_find_letter(arg[0], c->verb->options);
    if (!opt || (opt->type == VT_OPTION_FLAG && arg[1]))
        return vt_fail(err, VT_ERR_USAGE, "unknown option -%.60s", arg);
    if (opt->type == VT_OPTION_FLAG)
        return vt_options_assign(c->options, opt, "true", origin, err);
    if (arg[1])
        return vt_options_assign(c->options, opt, arg + 1 + (arg[1] == '='), origin, err);
    if (!next)
        return vt_fail(err, VT_ERR_USAGE, "%s needs a value (%s)", origin, opt->value_name);
    *used = 1;
    return vt_options_assign(c->options, opt, next, origin, err);
}

vt_status cli_parse(cli *c, int n, char **argv, bool *help, vt_err *err)
{
    bool only_args = false;
    for (int i = 0; i < n; i++) /* help works whatever else is wrong */
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            *help = true;
            return VT_OK;
        } else if (strcmp(argv[i], "--") == 0)
            break;
    TRY(vt_options_new(&c->options, err));
    vt_options_open_to(c->options, ~0u);
    for (int i = 0; i < n; i++) {
        const char *arg = argv[i], *next = i + 1 < n ? argv[i + 1] : NULL;
        int used = 0;
        if (!only_args && strcmp(arg, "--") == 0)
            only_args = true;
        else if (!only_args && strncmp(arg, "--", 2) == 0)
            TRY(long_option(c, arg + 2, next, &used, err));
        else if (!only_args && arg[0] == '-' && arg[1])
            TRY(short_option(c, arg + 1, next, &used, err));
        else if (c->n_args < c->verb->max_args)
            c->arg[c->n_args++] = arg;
        else if (c->verb->max_args == 0)
            return vt_fail(err, VT_ERR_USAGE,
                           "'%.60s' was not expected: this verb takes no arguments", arg);
        else if (strcmp(c->verb->args, "[PROMPT]") == 0)
            return vt_fail(err, VT_ERR_USAGE,
                           "'%.60s' was not expected: put a text of several words in quotes", arg);
        else
            return vt_fail(err, VT_ERR_USAGE, "'%.60s' was not expected after %s", arg,
                           c->verb->args);
        i += used;
    }
    return VT_OK;
}
