/* Any bytes as config.json: reading them gives an architecture whose numbers are in range, or fails
 * with a message. */
#include <stdlib.h>

#include "files/json.h"
#include "model/assemble.h"
#include "model/hf_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *root;
    vt_model *m;
    hf_extra extra;
    vt_err err = {0};
    if (model_new("fuzz", &m, &err) != VT_OK)
        return 0;
    if (vt_read_json_text("fuzz", (const char *)data, size, &root, &err) == VT_OK) {
        vt_status status = hf_config_read("fuzz", root, m, &extra, &err);
        if (status == VT_OK)
            status = arch_check(m, &err);
        if (status != VT_OK && !err.message[0])
            abort();
        json_decref(root);
    }
    vt_model_free(m);
    return 0;
}
