/* vitrine rm: removes a model from the cache. */
#include <unistd.h>

#include "base/err.h"
#include "cli/cli.h"
#include "model/catalogue.h"

/* Asks on a terminal. */
static bool confirmed(const vt_cached_model *m)
{
    char answer[8] = "";
    vt_buf size;
    vt_buf_init(&size, 64);
    vt_text_bytes(&size, (double)m->bytes);
    fprintf(stderr, "remove %s (%s, %s)? [y/N] ", m->name, size.data ? size.data : "", m->path);
    fflush(stderr);
    vt_buf_release(&size);
    return fgets(answer, sizeof answer, stdin) && (answer[0] == 'y' || answer[0] == 'Y');
}

static vt_status remove_named(const cli *c, const vt_catalogue *models, const char *name,
                              vt_err *err)
{
    const vt_cached_model *m = vt_catalogue_find(models, name);
    if (!m)
        return vt_fail(err, VT_ERR_USAGE, "no model %.200s in %s; 'vitrine list' names them", name,
                       models->folder);
    if (!vt_options_flag(c->options, "yes")) {
        if (!isatty(0) || !isatty(2))
            return vt_fail(err, VT_ERR_USAGE,
                           "rm %.200s: it would ask on a terminal; give --yes to remove it unasked",
                           name);
        if (!confirmed(m))
            return vt_fail(err, VT_ERR_CANCELLED, "%s stays", m->name);
    }
    TRY(vt_catalogue_remove(models, m, err));
    cli_note(c, "removed %s", m->path);
    return VT_OK;
}

int cli_rm(cli *c)
{
    vt_err err = {0};
    vt_catalogue models;
    if (c->n_args == 0) {
        vt_fail(&err, VT_ERR_USAGE, "rm what? 'vitrine list' names the models in the cache");
        return cli_fail(&err);
    }
    vt_status status = vt_catalogue_read(&models, &err);
    if (status == VT_OK) {
        status = remove_named(c, &models, c->arg[0], &err);
        vt_catalogue_release(&models);
    }
    return status == VT_OK ? CLI_DONE : cli_fail(&err);
}
