/* Which implementations the user wants for an op: --attention-backend, --linear-backend. */
#ifndef VT_EXEC_BACKEND_H
#define VT_EXEC_BACKEND_H

#include "ops/op.h"

/* Parses the value of a backend option. `text` holds either one name, which applies to every op of
 * `ops` that has an implementation so called, or one name for each op of `ops`, separated by
 * commas. A name is the name or the family of an implementation for that device; "auto" leaves the
 * choice to the op card. Appends to out[*n]; the array holds at most VT_MAX_BACKENDS in all. An
 * error names `option` and lists the values that it accepts. `ops` is NULL-terminated. */
vt_status vt_backend_parse(const char *option, const char *text, const char *const *ops,
                           vt_device_kind device, vt_backend out[VT_MAX_BACKENDS], int32_t *n,
                           vt_err *err);

#endif
