/* Which implementations the user wants for an op: --attention-backend, --linear-backend. An op's
 * card says which option names its rows (vt_op.backend). */
#ifndef VT_EXEC_BACKEND_H
#define VT_EXEC_BACKEND_H

#include "ops/op.h"

/* The backend that follows this one among those that cards name; NULL: the first one. NULL after
 * the last. */
const char *vt_backend_next(const char *backend);

/* Parses the value of the option BACKEND-backend. `text` holds either one name, which applies to
 * every op of this backend that has an implementation so called, or one name for each of its ops,
 * separated by commas, that of prefills first. A name is the name or the family of an
 * implementation for that device; "auto" leaves the choice to the op card. Appends to out[*n]; the
 * array holds at most VT_MAX_BACKENDS in all. An error names the option and lists the values that
 * it accepts. */
vt_status vt_backend_parse(const char *backend, const char *text, vt_device_kind device,
                           vt_backend out[VT_MAX_BACKENDS], int32_t *n, vt_err *err);

#endif
