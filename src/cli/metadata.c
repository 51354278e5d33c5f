/* Models of which only the words are wanted (cli/metadata.h). */
#include "cli/metadata.h"

#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "model/load.h"

vt_status cli_open_metadata(const cli *c, vt_model **out, vt_err *err)
{
    const char *path = vt_options_get(c->options, "model");
    char found[4096];
    struct stat st;
    if (strncmp(path, "dummy:", 6) == 0)
        return vt_model_load(path, out, err);
    if (stat(path, &st) != 0) {
        TRY(vt_model_find(path, found, sizeof found, err));
        path = found;
        if (stat(path, &st) != 0)
            return vt_fail(err, VT_ERR_IO, "%s cannot be read", path);
    }
    return S_ISDIR(st.st_mode) ? vt_model_load_folder(path, false, out, err)
                               : vt_model_load_gguf(path, false, out, err);
}
