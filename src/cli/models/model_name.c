#include "cli/models/model_name.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/load.h"

void cli_tell_model(const cli *c)
{
    const char *name = vt_options_get(c->options, "model");
    char path[4096];
    struct stat st;
    bool in_cache;
    if (strncmp(name, "dummy:", 6) == 0 || !vt_model_is_name(name) ||
        vt_model_resolve(name, path, sizeof path, &in_cache, NULL) != VT_OK || !in_cache)
        return;
    if (stat(name, &st) == 0)
        cli_note(c, "model %s is %s; what has that name in this folder is -m ./%s", name, path,
                 name);
    else if (isatty(2))
        cli_note(c, "model %s is %s", name, path);
}
