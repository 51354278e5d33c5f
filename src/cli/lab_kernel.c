/* vitrine lab kernel FILE.cu|FILE.so --op OP: a kernel of the user's own, checked, timed and carded
 * beside ours (kernel/own_kernel.h). The same verb is the inner process that runs the kernel. */
#include <stdlib.h>

#include "base/err.h"
#include "cli/cli.h"
#include "lab/kernel/own_kernel.h"

static int put_report(const cli *c, const own_kernel_report *r, const vt_err *failure)
{
    vt_buf b = {0};
    if (c->json) {
        vt_json w;
        vt_json_object(&w);
        own_kernel_json(r, &w);
        vt_json_string(&w, "failure", failure->status == VT_OK ? NULL : failure->message);
        return cli_object_print(&w);
    }
    own_kernel_card(r, &c->out, &b);
    return cli_text_print(&b);
}

static vt_status read_ask(const cli *c, own_kernel_ask *ask, vt_err *err)
{
    const char *op = vt_options_get(c->options, "kernel-op");
    if (c->n_args == 0)
        return vt_fail(err, VT_ERR_USAGE,
                       "which kernel? 'vitrine lab kernel FILE.cu --op rmsnorm'");
    if (!op || !*op)
        return vt_fail(err, VT_ERR_USAGE,
                       "--op: expected the op that the kernel implements, such as "
                       "rmsnorm");
    *ask = (own_kernel_ask){
        .file = c->arg[0],
        .op = op,
        .shape = vt_options_given(c->options, "shape") ? vt_options_get(c->options, "shape") : NULL,
        .device = vt_options_get(c->options, "kernel-device"),
        .threads = (int32_t)vt_options_int(c->options, "threads"),
        .limit_s = (int32_t)vt_options_int(c->options, "limit")};
    return VT_OK;
}

int cli_lab_kernel(cli *c)
{
    vt_err err = {0};
    own_kernel_ask ask;
    if (read_ask(c, &ask, &err) != VT_OK)
        return cli_fail(&err);
    if (own_kernel_is_inner())
        return own_kernel_inside(&ask, &err) == VT_OK ? CLI_DONE : cli_fail(&err);
    own_kernel_report *r = calloc(1, sizeof *r);
    if (!r) {
        vt_fail(&err, VT_ERR_MEMORY, "out of memory for a report");
        return cli_fail(&err);
    }
    vt_status status = own_kernel_run(&ask, r, &err);
    int code = CLI_DONE;
    if (c->json ? r->n_cases > 0 : own_kernel_any_ran(r))
        code = put_report(c, r, &err);
    free(r);
    return status == VT_OK ? code : cli_fail(&err);
}
