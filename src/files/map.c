/* mmap of model files: private and read-only, so that a page is shared with every other process
 * that maps the file and costs nothing until it is touched.
 *
 * A file that is cut short while it is mapped raises SIGBUS, as for every program that maps files;
 * model files should be replaced by rename, not in place. A program may ask for a message in that
 * case (file_explain_sigbus). The signal handler has to find the file by the address that failed,
 * and it may neither lock nor allocate:
 *
 *   newest -> [begin, size, path] -> [..] -> NULL      every mapping, live or free
 *
 *   1. file_map puts a record in front of the list, or takes one whose size is 0.
 *   2. file_unmap sets the record's size to 0; records stay in the list until the process ends.
 *   3. The handler walks the list. It only reads, and a record never leaves the list.
 */
#include "files/map.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- which file is mapped where ---- */

enum { PATH_SHOWN = 256 };

typedef struct mapping {
    _Atomic(uintptr_t) begin;
    atomic_size_t size; /* 0: the record is free */
    char path[PATH_SHOWN];
    struct mapping *next; /* set before the record is in the list */
} mapping;

static _Atomic(mapping *) newest;
static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER; /* for writers of the list */

/* Out of memory costs the message only. */
static void note_mapping(const void *map, size_t size, const char *path)
{
    pthread_mutex_lock(&changing);
    mapping *m = atomic_load(&newest);
    while (m && atomic_load(&m->size) != 0)
        m = m->next;
    bool fresh = !m;
    if (fresh)
        m = vt_calloc(1, sizeof *m);
    if (m) {
        size_t len = strlen(path), from = len < PATH_SHOWN ? 0 : len - (PATH_SHOWN - 1);
        memcpy(m->path, path + from, len - from + 1);
        for (char *p = m->path; *p; p++) /* a terminal will show it */
            if ((unsigned char)*p < 0x20 || *p == 0x7f)
                *p = ' ';
        atomic_store(&m->begin, (uintptr_t)map);
        atomic_store(&m->size, size);
    }
    if (m && fresh) {
        m->next = atomic_load(&newest);
        atomic_store(&newest, m);
    }
    pthread_mutex_unlock(&changing);
}

static mapping *find_mapping(uintptr_t address)
{
    for (mapping *m = atomic_load(&newest); m; m = m->next)
        if (address - atomic_load(&m->begin) < atomic_load(&m->size))
            return m;
    return NULL;
}

bool file_is_mapped(const void *at) { return find_mapping((uintptr_t)at) != NULL; }

static void write_text(const char *text)
{
    if (write(2, text, strlen(text)) < 0)
        return; /* nothing reads it */
}

static struct sigaction before; /* what SIGBUS did before file_explain_sigbus */

static void on_sigbus(int signal, siginfo_t *info, void *context)
{
    (void)context;
    const mapping *m = find_mapping((uintptr_t)info->si_addr);
    if (!m) { /* not ours: the instruction fails again, with the old action */
        sigaction(signal, &before, NULL);
        return;
    }
    write_text("vitrine: ");
    write_text(m->path);
    write_text(": the file was cut short while it was in use, or cannot be read; replace model "
               "files by rename, not in place\n");
    _exit(1);
}

void file_explain_sigbus(void)
{
    struct sigaction action = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO};
    sigaction(SIGBUS, &action, &before);
}

/* ---- mapping ---- */

vt_status file_map(const char *path, const void **out, size_t *size, vt_err *err)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO would wait for its writer */
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
    note_mapping(map, (size_t)st.st_size, path);
    *out = map;
    *size = (size_t)st.st_size;
    return VT_OK;
}

void file_unmap(const void *map, size_t size)
{
    if (!map)
        return;
    pthread_mutex_lock(&changing);
    mapping *m = find_mapping((uintptr_t)map);
    if (m)
        atomic_store(&m->size, 0);
    pthread_mutex_unlock(&changing);
    munmap((void *)(uintptr_t)map, size);
}

/* ---- views ---- */

vt_status file_view_open(file_view *v, const char *path, const void *bytes, size_t size,
                         vt_err *err)
{
    const void *map = bytes;
    *v = (file_view){.map = bytes, .size = size};
    vt_arena_init(&v->arena, 0);
    v->path = vt_arena_strdup(&v->arena, path, strlen(path));
    if (!v->path)
        return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory", path);
    if (bytes)
        return VT_OK;
    TRY(file_map(path, &map, &v->size, err));
    v->map = map;
    v->mapped = true;
    return VT_OK;
}

void file_view_close(file_view *v)
{
    if (v->mapped)
        file_unmap(v->map, v->size);
    vt_arena_release(&v->arena);
    *v = (file_view){0};
}
