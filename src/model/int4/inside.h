/* Shared by the files of this folder. */
#ifndef VT_MODEL_INT4_INSIDE_H
#define VT_MODEL_INT4_INSIDE_H

#include "model/int4/int4.h"

enum { INT4_BLOCK = 32, INT4_ROWS = 8 }; /* columns of a block; rows whose codes share words */

/* A matrix [rows, cols] as the folder holds it. */
typedef struct int4_matrix {
    int4_form form;
    int64_t rows, cols, group;               /* group: columns, a divisor of cols */
    const vt_tensor *codes, *scales, *zeros; /* zeros NULL: all are 8 */
    vt_tensor *out;
} int4_matrix;

/* Makes rows [first, first + n) of m->out. Returns false if a scale or a zero is refused. */
bool int4_repack(const int4_matrix *m, int64_t first, int64_t n);
/* Fails with the first scale or zero of m that is refused. */
vt_status int4_say_refused(const int4_matrix *m, const char *path, vt_err *err);

#endif
