/* Traces of requests (sim/trace_file.h): whatever the bytes, a file of sane lines or one
 * sentence. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "sim/trace_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    vt_trace_file t;
    vt_err err;
    char *text = malloc(size + 1); /* files are read with a NUL after them */
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = 0;
    if (vt_trace_parse("trace", text, size, 1000, &t, &err) == VT_OK) {
        for (int32_t i = 0; i < t.n; i++)
            if (t.line[i].input < 1 || t.line[i].output < 1 || t.line[i].arrive_ns < 0 ||
                (i > 0 && t.line[i].arrive_ns < t.line[i - 1].arrive_ns))
                abort();
        vt_trace_file_release(&t);
    }
    free(text);
    return 0;
}
