/* Errors: a function returns a status, and one sentence says what was found, where, and what was
 * expected. The sentence is built once, where the details are known, and passed up unchanged.
 * Library code never prints. */
#ifndef VT_BASE_ERR_H
#define VT_BASE_ERR_H

#include "vitrine.h"

/* Fills `err` (may be NULL) and returns `status`. The formatted text goes through
 * vt_text_clean_line, so a hostile file name cannot fake a second line or steer a terminal. */
vt_status vt_fail(vt_err *err, vt_status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Fails with VT_ERR_USAGE and "<what> is NULL" if p is NULL. For arguments of the public API. */
vt_status vt_check_pointer(const void *p, const char *what, vt_err *err);

/* Returns from the calling function if the expression fails: TRY(f(x, err)); */
#define TRY(expr)                       \
    do {                                \
        vt_status try_status_ = (expr); \
        if (try_status_ != VT_OK)       \
            return try_status_;         \
    } while (0)

/* Jumps to a clean-up label instead: TRY_GOTO(status, f(x, err), out); */
#define TRY_GOTO(status, expr, label) \
    do {                              \
        (status) = (expr);            \
        if ((status) != VT_OK)        \
            goto label;               \
    } while (0)

#endif
