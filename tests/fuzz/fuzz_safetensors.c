/* Any bytes as a safetensors file: opening either fails with a message or gives views that may be
 * read. */
#include <stdlib.h>

#include "files/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile unsigned sink; /* keeps the reads below */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    st_file *f;
    vt_err err = {0};
    if (st_open_bytes("fuzz", data, size, &f, &err) != VT_OK) {
        if (!err.message[0])
            abort();
        return 0;
    }
    for (int64_t i = 0; i < f->n_tensors; i++) {
        const uint8_t *p = f->tensor[i].data;
        sink += p[0] + p[vt_tensor_bytes(&f->tensor[i]) - 1];
    }
    st_close(f);
    return 0;
}
