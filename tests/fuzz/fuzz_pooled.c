/* Any bytes as a file of a sentence-transformers folder, which the first byte chooses: reading it
 * fails with a message, or gives a pooling, or a folder's name without a slash. */
#include <stdlib.h>
#include <string.h>

#include "files/json.h"
#include "model/assemble.h"
#include "model/dense.h"
#include "model/pooled.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static vt_status read_modules(vt_model *m, const char *text, size_t len, vt_err *err)
{
    json_t *root;
    vt_pooled_folders of;
    TRY(vt_json_load("fuzz", text, len, JSON_REJECT_DUPLICATES, VT_JSON_MAX_TREE, &root, err));
    vt_status status = vt_pooled_modules(m, "fuzz", root, &of, err);
    json_decref(root);
    for (int32_t i = -1; status == VT_OK && i < of.n_dense; i++) {
        const char *folder = i < 0 ? of.pooling : of.dense[i];
        if (!*folder || strchr(folder, '/') || *folder == '.')
            abort();
    }
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *root;
    vt_model *m;
    vt_err err = {0};
    if (size < 1 || model_new("fuzz", &m, &err) != VT_OK)
        return 0;
    const char *text = (const char *)data + 1;
    vt_status status;
    if (data[0] == 'm') {
        status = read_modules(m, text, size - 1, &err);
    } else {
        status = vt_read_json_text("fuzz", text, size - 1, &root, &err);
        if (status == VT_OK) {
            vt_dense_said said;
            status = data[0] == 'c'   ? vt_pooled_config(m, "fuzz", root, &err)
                     : data[0] == 'd' ? vt_dense_config("fuzz", root, &said, &err)
                                      : vt_pooled_prompts(m, "fuzz", root, &err);
            json_decref(root);
        }
        if (status == VT_OK && data[0] == 'c' && m->pooled.how == VT_POOLING_NONE)
            abort();
    }
    if (status != VT_OK && !err.message[0])
        abort();
    vt_model_free(m);
    return 0;
}
