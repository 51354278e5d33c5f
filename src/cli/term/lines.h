/* A file read line by line, with a limit on the length of a line and none on the file's. */
#ifndef VT_CLI_TERM_LINES_H
#define VT_CLI_TERM_LINES_H

#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"

typedef struct cli_lines {
    const char *name; /* for messages */
    int fd;           /* borrowed; its own position is neither used nor moved */
    char *chunk;
    size_t at, n;     /* unread bytes of the chunk: [at, n) */
    off_t next;       /* where in the file the next chunk begins */
    vt_buf line;      /* the current line, without its newline */
    int64_t number;   /* its number, from 1 */
    off_t begin, end; /* its bytes in the file, the newline included */
    bool whole;       /* it ended with a newline */
} cli_lines;

/* Begins at the front of the file, which has to be seekable. */
vt_status cli_lines_open(cli_lines *l, int fd, const char *name, size_t max_line, vt_err *err);
void cli_lines_close(cli_lines *l);
/* *got is false at the end of the file. */
vt_status cli_lines_next(cli_lines *l, bool *got, vt_err *err);

#endif
