#include "cli/term/lines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK_BYTES = 1 << 16 };

vt_status cli_lines_open(cli_lines *l, int fd, const char *name, size_t max_line, vt_err *err)
{
    *l = (cli_lines){.name = name, .fd = fd, .chunk = malloc(CHUNK_BYTES)};
    vt_buf_init(&l->line, max_line);
    return l->chunk ? VT_OK : vt_fail(err, VT_ERR_MEMORY, "out of memory");
}

void cli_lines_close(cli_lines *l)
{
    free(l->chunk);
    l->chunk = NULL;
    vt_buf_release(&l->line);
}

static vt_status read_chunk(cli_lines *l, vt_err *err)
{
    ssize_t n;
    do
        n = pread(l->fd, l->chunk, CHUNK_BYTES, l->next);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return vt_fail(err, VT_ERR_IO, "%s: %s", l->name, strerror(errno));
    l->at = 0;
    l->n = (size_t)n;
    l->next += n;
    return VT_OK;
}

vt_status cli_lines_next(cli_lines *l, bool *got, vt_err *err)
{
    vt_buf_clear(&l->line);
    l->whole = false;
    l->begin = l->end;
    while (!l->whole) {
        if (l->at == l->n)
            TRY(read_chunk(l, err));
        if (l->n == 0)
            break;
        const char *from = l->chunk + l->at, *newline = memchr(from, '\n', l->n - l->at);
        size_t len = newline ? (size_t)(newline - from) : l->n - l->at;
        if (!vt_buf_add(&l->line, from, len))
            return vt_fail(err, VT_ERR_FORMAT, "%s: line %lld: more than %zu bytes", l->name,
                           (long long)l->number + 1, l->line.max);
        l->whole = newline != NULL;
        l->at += len + l->whole;
        l->end += (off_t)(len + l->whole);
    }
    *got = l->end > l->begin;
    l->number += *got;
    return VT_OK;
}
