/* The results file of run --batch. */
#ifndef VT_CLI_BATCH_OUT_H
#define VT_CLI_BATCH_OUT_H

#include <sys/stat.h>

#include "cli/cli.h"
#include "cli/id_set.h"

typedef struct batch_out {
    const char *path;
    int fd;       /* -1: not open */
    id_set there; /* custom_ids of the results that stay, with their status codes */
} batch_out;

/* Opens or creates the file, locks it, and reads which results it has. A torn last line, as a crash
 * leaves it, is cut off. Results that are not final are taken out, so that their requests are done
 * again: status 429 and 500 up, and with `retry_failed` all but 200.
 *
 * Refused, and left as it was: a file that is `in`, no regular file, or anything that is not a
 * file of batch results; a file that another run has locked. */
vt_status batch_out_open(batch_out *o, const cli *c, const char *path, const struct stat *in,
                         bool retry_failed, vt_err *err);
/* Appends whole lines and waits until they are on the disk. */
vt_status batch_out_append(const batch_out *o, const vt_buf *lines, vt_err *err);
void batch_out_close(batch_out *o);

#endif
