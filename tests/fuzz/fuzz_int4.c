/* Any bytes as a safetensors file of packed 4-bit matrices, read in each of the three forms:
 * finding them fails with a message, or they become blocks that may be read, or a message says
 * which scale is refused. */
#include <stdlib.h>
#include <string.h>

#include "model/assemble.h"
#include "model/int4/int4.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile unsigned sink; /* keeps the reads below */

static void read_blocks(const int4_set *s)
{
    for (int64_t i = 0; i < int4_count(s); i++) {
        const uint8_t *p = int4_at(s, i)->data;
        sink += p[0] + p[vt_tensor_bytes(int4_at(s, i)) - 1];
    }
}

static void try_form(const st_set *files, const int4_form *form)
{
    vt_model *m;
    int4_set *s = NULL;
    vt_err err = {0};
    if (model_new("fuzz", &m, &err) != VT_OK)
        return;
    vt_status status = int4_find(m, files, form, &s, &err);
    if (status == VT_OK)
        status = int4_make(s, "fuzz", &err);
    if (status == VT_OK)
        read_blocks(s);
    else if (!err.message[0])
        abort();
    int4_release(s);
    vt_model_free(m);
}

static void try_forms(st_set *files)
{
    static const int32_t groups[] = {0, 32, 64};
    for (int kind = INT4_AWQ; kind <= INT4_PACKED; kind++)
        for (int k = 0; k < 6; k++) {
            int4_form form = {.kind = (int4_kind)kind, .symmetric = k % 2, .group = groups[k / 2]};
            try_form(files, &form);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    st_file *f;
    vt_err err = {0};
    if (st_open_bytes("fuzz", data, size, &f, &err) != VT_OK)
        return 0;
    st_set files = {.n_tensors = f->n_tensors};
    size_t n = (size_t)f->n_tensors;
    files.tensor = calloc(n + 1, sizeof *files.tensor);
    files.index = calloc(n + 1, sizeof *files.index);
    for (size_t i = 0; i < n && files.tensor && files.index; i++) {
        files.tensor[i] = &f->tensor[i];
        files.index[i] = (name_entry){f->tensor[i].name, strlen(f->tensor[i].name), (uint32_t)i};
    }
    if (files.tensor && files.index && !name_index_sort(files.index, n))
        try_forms(&files);
    free(files.tensor);
    free(files.index);
    st_close(f);
    return 0;
}
