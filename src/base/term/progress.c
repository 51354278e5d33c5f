/* Passing progress reports and notices on to the caller's callbacks (base/term/progress.h). */
#include "base/term/progress.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/err.h"

vt_status vt_progress_report(const vt_progress_hook *hook, const char *stage, int64_t done,
                             int64_t total, vt_err *err)
{
    if (!hook || !hook->call)
        return VT_OK;
    vt_progress_info info = {.stage = stage, .done = done, .total = total > 0 ? total : 1};
    if (hook->call(hook->user, &info))
        return VT_OK;
    return vt_fail(err, VT_ERR_CANCELLED, "cancelled while %s", stage);
}

void vt_notice_tell(const vt_notice_hook *hook, const char *fmt, ...)
{
    char sentence[1000];
    va_list args;
    if (!hook || !hook->call)
        return;
    va_start(args, fmt);
    vsnprintf(sentence, sizeof sentence, fmt, args);
    va_end(args);
    hook->call(hook->user, sentence);
}
