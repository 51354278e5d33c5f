/* Why completions end: for each vt_end_reason its name, the coarser vt_finish, and a sentence for
 * people. Code decides by the reason; nothing reads a sentence. */
#ifndef VT_ENGINE_END_REASON_H
#define VT_ENGINE_END_REASON_H

#include "vitrine.h"

vt_finish vt_end_finish(vt_end_reason reason);
/* "stop", "length", "abort", "error"; "none" while it goes on; NULL: there is no such finish. */
const char *vt_finish_name(vt_finish finish);
/* Static text of a reason that is an error; NULL: it is none. */
const char *vt_end_sentence(vt_end_reason reason);

#endif
