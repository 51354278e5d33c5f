/* vitrine serve. */
#include "server/serve.h"

#include <signal.h>
#include <string.h>

#include "base/err.h"
#include "cli/cli.h"
#include "load/measure.h"
#include "server/watch/otlp.h"

static void say(void *user, const char *line)
{
    const cli *c = user;
    cli_note(c, "%s", line);
}

static vt_status check_usage(const cli *c, vt_err *err)
{
    const vt_options *o = c->options;
    if (vt_options_given(o, "tls-cert") != vt_options_given(o, "tls-key"))
        return vt_fail(err, VT_ERR_USAGE, "--tls-cert and --tls-key: give both, or neither");
    if (vt_options_given(o, "uds") && (vt_options_given(o, "host") || vt_options_given(o, "port")))
        return vt_fail(err, VT_ERR_USAGE, "--uds: takes the place of --host and --port");
    const char *to = vt_options_get(o, "otlp-endpoint"), *limits = vt_options_get(o, "slo");
    vt_load_slo slo;
    if (limits)
        TRY(vt_load_slo_parse(limits, &slo, err));
    server_endpoint endpoint;
    if (to)
        TRY(server_endpoint_read(to, &endpoint, err));
    bool no_log = strcmp(vt_options_get(o, "log-requests"), "off") == 0 ||
                  (vt_options_flag(o, "quiet") && !vt_options_given(o, "log-requests"));
    if (vt_options_flag(o, "log-text") && no_log)
        return vt_fail(err, VT_ERR_USAGE,
                       "--log-text: no requests are logged; expected --log-requests text or json");
    return VT_OK;
}

int cli_serve(cli *c)
{
    vt_err err = {0};
    cli_session s = {0};
    server_key_sets keys = {0};
    signal(SIGUSR2, SIG_IGN); /* asks for a dump, and while the model loads there is none */
    vt_status status = check_usage(c, &err);
    if (status == VT_OK) /* before the model, which may take long to load */
        status = server_key_sets_load(&keys, c->options, &err);
    if (status == VT_OK)
        status = cli_open(c, &s, &err);
    if (status == VT_OK) {
        vt_serve_words words = {.say = say, .user = c, .load_s = s.load_ms * 1e-3};
        status = vt_serve(s.model, s.engine, c->options, &keys, &words, &err);
    }
    cli_close(&s);
    server_key_sets_release(&keys);
    return status == VT_OK ? CLI_DONE : cli_fail(&err);
}
