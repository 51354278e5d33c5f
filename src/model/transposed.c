/* Experts as folders hold them transposed (model/transposed.h). */
#include "model/transposed.h"

#include <string.h>

enum { BLOCK = 32, HALF = BLOCK / 2, STORED = 1 + HALF, SIDE = 16 };

static unsigned element(const uint8_t *block, int i) { return block[i / 2] >> (i % 2 * 4) & 15; }

void model_mxfp4_rows(const uint8_t *blocks, const uint8_t *scales, int64_t n_blocks, int64_t first,
                      int64_t step, int64_t rows, uint8_t *out)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t b = 0; b < n_blocks; b++, out += STORED) {
            int64_t at = (first + r * step) * n_blocks + b;
            out[0] = scales[at];
            for (int i = 0; i < HALF; i++)
                out[1 + i] = (uint8_t)(element(blocks + at * HALF, i) |
                                       element(blocks + at * HALF, i + HALF) << 4);
        }
}

/* A square of elements at a time, whose columns and rows both stay in the first cache: without it
 * every element of a column lies in another line. */
void model_columns_to_rows(const void *from, int64_t in, int64_t columns, int64_t first,
                           int64_t step, int64_t rows, int64_t bytes, void *out)
{
    for (int64_t r0 = 0; r0 < rows; r0 += SIDE)
        for (int64_t i0 = 0; i0 < in; i0 += SIDE)
            for (int64_t r = r0; r < rows && r < r0 + SIDE; r++)
                for (int64_t i = i0; i < in && i < i0 + SIDE; i++) {
                    char *to = (char *)out + (r * in + i) * bytes;
                    const char *x = (const char *)from + (i * columns + first + r * step) * bytes;
                    if (bytes == 2) /* known sizes need no call */
                        memcpy(to, x, 2);
                    else
                        memcpy(to, x, (size_t)bytes);
                }
}
