/* mmap of model files: private and read-only, so that a page is shared with every other process
 * that maps the file and costs nothing until it is touched. A file that is truncated while mapped
 * raises SIGBUS, as for every program that maps files; replace model files by rename, not in
 * place. */
#include "files/map.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

vt_status file_map(const char *path, const void **out, size_t *size, vt_err *err)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return vt_fail(err, VT_ERR_IO, "%s: cannot be opened: %s", path, strerror(errno));
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return vt_fail(err, VT_ERR_IO, "%s: not a regular file", path);
    }
    if (st.st_size == 0) {
        close(fd);
        return vt_fail(err, VT_ERR_FORMAT, "%s: the file is empty", path);
    }
    void *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    int failure = errno;
    close(fd);
    if (map == MAP_FAILED)
        return vt_fail(err, VT_ERR_IO, "%s: cannot be mapped: %s", path, strerror(failure));
    *out = map;
    *size = (size_t)st.st_size;
    return VT_OK;
}

void file_unmap(const void *map, size_t size)
{
    if (map)
        munmap((void *)(uintptr_t)map, size);
}
