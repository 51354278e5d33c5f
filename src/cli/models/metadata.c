/* Models of which only the words are wanted (cli/models/metadata.h). */
#include "cli/models/metadata.h"

#include "cli/models/model_name.h"
#include "model/load.h"

vt_status cli_open_metadata(const cli *c, vt_model **out, vt_err *err)
{
    cli_tell_model(c);
    return vt_model_load_words(vt_options_get(c->options, "model"), out, err);
}
