/* Building an error's message (base/err.h). */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/term/term.h"

vt_status vt_fail(vt_err *err, vt_status status, const char *fmt, ...)
{
    if (!err)
        return status;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->message, sizeof err->message, fmt, ap);
    va_end(ap);
    vt_text_clean_line(err->message);
    err->status = status;
    return status;
}

vt_status vt_check_pointer(const void *p, const char *what, vt_err *err)
{
    return p ? VT_OK : vt_fail(err, VT_ERR_USAGE, "%s is NULL", what);
}
