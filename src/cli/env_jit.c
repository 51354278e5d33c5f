/* vitrine env --jit: the cache of compiled kernels as a tree (lab/env/cache.c), or as JSON. */
#include <stdlib.h>

#include "base/cache_dir.h"
#include "base/err.h"
#include "cli/cli.h"
#include "lab/env/env.h"

int cli_put_kernels(const cli *c)
{
    char folder[1200] = "";
    vt_err err = {0};
    jit_cached *kernel;
    int32_t n;
    vt_buf b = {0};
    if (vt_cache_path("cubin", folder, sizeof folder, &err) != VT_OK ||
        vt_jit_cached(&kernel, &n, &err) != VT_OK)
        return cli_fail(&err);
    if (c->json) {
        vt_json w;
        vt_json_object(&w);
        vt_json_string(&w, "folder", folder);
        lab_env_write_cache(&w, kernel, n);
        free(kernel);
        return cli_object_print(&w);
    }
    if (n == 0)
        cli_note(c, "there are no compiled GPU kernels in %s yet", folder);
    else
        lab_env_put_kernels(&b, &c->out, folder, kernel, n, true);
    free(kernel);
    bool ok = !b.failed && cli_put_all(stdout, b.data ? b.data : "", b.len);
    vt_buf_release(&b);
    return ok ? CLI_DONE : CLI_FAILED;
}
