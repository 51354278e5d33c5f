/* Any bytes as a GGUF file: opening either fails with a message or gives views that may all be
 * read; building a model of them fails with a message or gives a model. */
#include <stdlib.h>
#include <string.h>

#include "files/gguf.h"
#include "model/load.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile double sink; /* keeps the reads below */

static void read_everything(const gguf_file *f)
{
    for (uint64_t i = 0; i < f->n_values; i++) {
        const gguf_value *v = &f->value[i];
        for (uint64_t k = 0; k < v->n; k++) {
            if (v->type == GGUF_STRING)
                sink += v->strings[k].len ? v->strings[k].data[v->strings[k].len - 1] : 0;
            else
                sink += gguf_array_f64(v, k) + (double)gguf_array_i64(v, k);
        }
    }
    for (uint64_t i = 0; i < f->n_tensors; i++) {
        const vt_tensor *t = &f->tensor[i];
        const uint8_t *p = t->data;
        sink += p[0] + p[vt_tensor_bytes(t) - 1];
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gguf_file *f;
    vt_model *m;
    vt_err err = {0};
    if (gguf_open_bytes("fuzz", data, size, &f, &err) != VT_OK) {
        if (!err.message[0])
            abort();
        return 0;
    }
    read_everything(f);
    if (vt_model_from_gguf(f, true, &m, &err) == VT_OK)
        vt_model_free(m);
    else if (!err.message[0])
        abort();
    return 0;
}
