/* The user's wish for the rows that run an op: --attention-backend, --linear-backend. */
#ifndef VT_EXEC_BACKEND_H
#define VT_EXEC_BACKEND_H

#include "ops/op.h"

/* `text` is "auto", one name, or as many as `ops` with commas between them, each a row's name or
 * family on that device ("auto": the card's own choice). One name stands for all of `ops` that have
 * such a row. Appends to out[*n], at most VT_MAX_BACKENDS in all. An error names `option` and what
 * may stand there. `ops` is NULL-terminated. */
vt_status vt_backend_parse(const char *option, const char *text, const char *const *ops,
                           vt_device_kind device, vt_backend out[VT_MAX_BACKENDS], int32_t *n,
                           vt_err *err);

#endif
