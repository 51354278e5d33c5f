/* The library's version and the sizes of its structs. It has a file of its own because code below
 * the API names it too. */
#include <string.h>

#include "vitrine.h"

const char *vt_version(void) { return "0.1.0"; }

size_t vt_struct_size(const char *name)
{
    static const struct {
        const char *name;
        size_t size;
    } structs[] = {
        {"vt_err", sizeof(vt_err)},
        {"vt_progress_info", sizeof(vt_progress_info)},
        {"vt_token_logprob", sizeof(vt_token_logprob)},
        {"vt_event", sizeof(vt_event)},
        {"vt_logit_bias", sizeof(vt_logit_bias)},
        {"vt_request_params", sizeof(vt_request_params)},
        {"vt_stats", sizeof(vt_stats)},
    };
    for (size_t i = 0; name && i < sizeof structs / sizeof *structs; i++)
        if (strcmp(structs[i].name, name) == 0)
            return structs[i].size;
    return 0;
}
