/* The cubin cache on disk.
 *
 *   $VITRINE_CACHE/cubin/<key>-<major>.<minor>.cubin     header | cubin
 *
 * Written whole under a temporary name in the same folder, then renamed: a reader sees all of a
 * file or none. Two processes that compile the same kernel both write it; the second rename wins,
 * with equal bytes. */
#include "device/jit_cache.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/mem.h"

#define CUBIN_MAGIC "VTCUBIN1"
enum { CUBIN_MAX_BYTES = 64 << 20, PATH_SIZE = 1024 };

typedef struct file_header {
    char magic[8];
    uint64_t cubin_bytes, checksum;
    double compile_ms;
    int32_t registers, spill_bytes, shared_bytes, nvrtc_major, nvrtc_minor;
    char arch[16];
    char name[JIT_NAME_MAX];
} file_header;

jit_hash jit_hash_begin(void)
{
    return (jit_hash){((unsigned __int128)0x6c62272e07bb0142u << 64) | 0x62b821756295c58du};
}

void jit_hash_add(jit_hash *h, const void *bytes, size_t n)
{
    const unsigned __int128 prime = ((unsigned __int128)1 << 88) + 0x13b;
    const uint8_t *p = bytes;
    for (size_t i = 0; i < n; i++)
        h->state = (h->state ^ p[i]) * prime;
}

void jit_hash_hex(const jit_hash *h, char out[33])
{
    snprintf(out, 33, "%016llx%016llx", (unsigned long long)(h->state >> 64),
             (unsigned long long)h->state);
}

uint64_t jit_hash_text(uint64_t h, const char *text)
{
    do
        h = (h ^ (uint8_t)*text) * 1099511628211u;
    while (*text++);
    return h;
}

static uint64_t checksum(const void *bytes, size_t n)
{
    const uint8_t *p = bytes;
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 1099511628211u;
    return h;
}

/* ---- where ---- */

static bool make_dirs(const char *path)
{
    char part[PATH_SIZE];
    snprintf(part, sizeof part, "%s", path);
    for (char *p = part + 1; *p; p++) {
        if (*p != '/')
            continue;
        *p = 0;
        if (mkdir(part, 0777) != 0 && errno != EEXIST)
            return false;
        *p = '/';
    }
    return mkdir(part, 0777) == 0 || errno == EEXIST;
}

static bool cache_dir(char *out, size_t size)
{
    const char *cache = getenv("VITRINE_CACHE"), *home = getenv("HOME");
    int n;
    if (cache && *cache)
        n = snprintf(out, size, "%s/cubin", cache);
    else if (home && *home)
        n = snprintf(out, size, "%s/.cache/vitrine/cubin", home);
    else
        return false;
    return n > 0 && (size_t)n < size - 300; /* room for file names */
}

/* ---- one file ---- */

/* The checksum is not of the header, and a terminal shows these. */
static void make_printable(char *text, size_t size)
{
    text[size - 1] = 0;
    for (; *text; text++)
        if (*text < 0x20 || *text > 0x7e)
            *text = '?';
}

/* The whole file, checked; NULL if it is not a cubin file of ours. */
static uint8_t *read_file(const char *path, file_header *h)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return NULL;
    uint8_t *bytes = NULL;
    if (fread(h, sizeof *h, 1, f) == 1 && memcmp(h->magic, CUBIN_MAGIC, 8) == 0 &&
        h->cubin_bytes > 0 && h->cubin_bytes <= CUBIN_MAX_BYTES &&
        (bytes = malloc(h->cubin_bytes)) != NULL) {
        bool whole = fread(bytes, 1, h->cubin_bytes, f) == h->cubin_bytes && fgetc(f) == EOF;
        if (!whole || checksum(bytes, h->cubin_bytes) != h->checksum) {
            free(bytes);
            bytes = NULL;
        }
    }
    fclose(f);
    make_printable(h->name, sizeof h->name);
    make_printable(h->arch, sizeof h->arch);
    return bytes;
}

static bool write_file(const char *dir, const char *file, const file_header *h, const void *cubin)
{
    char temporary[PATH_SIZE + 64], path[PATH_SIZE + 64];
    snprintf(temporary, sizeof temporary, "%s/.tmp-XXXXXX", dir);
    snprintf(path, sizeof path, "%s/%s", dir, file);
    int fd = mkstemp(temporary);
    if (fd < 0)
        return false;
    FILE *f = fdopen(fd, "wb");
    if (!f)
        close(fd);
    bool good = f && fwrite(h, sizeof *h, 1, f) == 1 &&
                fwrite(cubin, 1, h->cubin_bytes, f) == h->cubin_bytes;
    good = f && fclose(f) == 0 && good;
    good = good && chmod(temporary, 0644) == 0 && rename(temporary, path) == 0;
    if (!good)
        unlink(temporary);
    return good;
}

static bool is_cubin_name(const char *name)
{
    size_t len = strlen(name);
    return len > 38 && len < 64 && name[0] != '.' && strcmp(name + len - 6, ".cubin") == 0;
}

/* ---- what the JIT calls ---- */

static void *read_as(const char *path, jit_cubin *out)
{
    file_header h;
    uint8_t *bytes = read_file(path, &h);
    if (bytes)
        *out = (jit_cubin){.bytes = bytes,
                           .size = h.cubin_bytes,
                           .registers = h.registers,
                           .cached = true,
                           .spill_bytes = h.spill_bytes,
                           .shared_bytes = h.shared_bytes,
                           .compile_ms = h.compile_ms};
    return bytes;
}

void *jit_cache_read(const char *key, int major, int minor, jit_cubin *out)
{
    char dir[PATH_SIZE], path[PATH_SIZE + 300];
    if (!cache_dir(dir, sizeof dir))
        return NULL;
    if (major > 0) {
        snprintf(path, sizeof path, "%s/%s-%d.%d.cubin", dir, key, major, minor);
        return read_as(path, out);
    }
    DIR *d = opendir(dir);
    void *found = NULL;
    for (struct dirent *e; d && !found && (e = readdir(d));) {
        if (!is_cubin_name(e->d_name) || strncmp(e->d_name, key, 32) != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        found = read_as(path, out);
    }
    if (d)
        closedir(d);
    return found;
}

void jit_cache_write(const char *key, int major, int minor, const char *arch, const char *name,
                     const jit_cubin *c)
{
    char dir[PATH_SIZE], file[64];
    file_header h;
    memset(&h, 0, sizeof h); /* the padding is written too */
    memcpy(h.magic, CUBIN_MAGIC, 8);
    h.cubin_bytes = c->size;
    h.checksum = checksum(c->bytes, c->size);
    h.compile_ms = c->compile_ms;
    h.registers = c->registers;
    h.spill_bytes = c->spill_bytes;
    h.shared_bytes = c->shared_bytes;
    h.nvrtc_major = major;
    h.nvrtc_minor = minor;
    snprintf(h.arch, sizeof h.arch, "%s", arch);
    snprintf(h.name, sizeof h.name, "%s", name);
    snprintf(file, sizeof file, "%s-%d.%d.cubin", key, major, minor);
    if (cache_dir(dir, sizeof dir) && make_dirs(dir))
        write_file(dir, file, &h, c->bytes);
}

/* ---- what people call ---- */

typedef vt_status (*cubin_visit)(void *user, const char *file, const file_header *h,
                                 const void *cubin, vt_err *err);

static vt_status each_cubin(const char *dir, cubin_visit visit, void *user, vt_err *err)
{
    DIR *d = opendir(dir);
    vt_status status = VT_OK;
    for (struct dirent *e; d && status == VT_OK && (e = readdir(d));) {
        char path[PATH_SIZE + 300];
        file_header h;
        if (!is_cubin_name(e->d_name))
            continue;
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        uint8_t *bytes = read_file(path, &h);
        if (bytes)
            status = visit(user, e->d_name, &h, bytes, err);
        free(bytes);
    }
    if (d)
        closedir(d);
    return status;
}

static vt_status list_one(void *user, const char *file, const file_header *h, const void *cubin,
                          vt_err *err)
{
    (void)cubin;
    vt_buf *out = user;
    if (!vt_buf_printf(
            out, "%-72s %-7s nvrtc %d.%d  %3d regs  %3d B spilled  %6.0f ms  %7llu B  %.12s\n",
            h->name, h->arch, h->nvrtc_major, h->nvrtc_minor, h->registers, h->spill_bytes,
            h->compile_ms, (unsigned long long)h->cubin_bytes, file))
        return vt_fail(err, VT_ERR_MEMORY, "out of memory listing the kernel cache");
    return VT_OK;
}

static vt_status my_cache_dir(char *out, size_t size, vt_err *err)
{
    if (!cache_dir(out, size))
        return vt_fail(err, VT_ERR_IO,
                       "no kernel cache: neither VITRINE_CACHE nor HOME is set to a usable path");
    return VT_OK;
}

vt_status vt_jit_list(vt_buf *out, vt_err *err)
{
    char dir[PATH_SIZE];
    TRY(my_cache_dir(dir, sizeof dir, err));
    return each_cubin(dir, list_one, out, err);
}

typedef struct copy_job {
    const char *to;
    int32_t n;
} copy_job;

static vt_status copy_one(void *user, const char *file, const file_header *h, const void *cubin,
                          vt_err *err)
{
    copy_job *job = user;
    if (!write_file(job->to, file, h, cubin))
        return vt_fail(err, VT_ERR_IO, "%s/%s cannot be written: %s", job->to, file,
                       strerror(errno));
    job->n++;
    return VT_OK;
}

static vt_status copy_all(const char *from, const char *to, int32_t *n, vt_err *err)
{
    struct stat st;
    if (strlen(from) > PATH_SIZE - 300 || strlen(to) > PATH_SIZE - 300)
        return vt_fail(err, VT_ERR_USAGE, "the folder's path is too long");
    if (stat(from, &st) != 0 || !S_ISDIR(st.st_mode))
        return vt_fail(err, VT_ERR_IO, "%s is not a folder with compiled kernels", from);
    if (!make_dirs(to))
        return vt_fail(err, VT_ERR_IO, "%s cannot be made: %s", to, strerror(errno));
    copy_job job = {.to = to};
    TRY(each_cubin(from, copy_one, &job, err));
    *n = job.n;
    return VT_OK;
}

vt_status vt_jit_export(const char *dir, int32_t *n, vt_err *err)
{
    char cache[PATH_SIZE];
    TRY(my_cache_dir(cache, sizeof cache, err));
    return copy_all(cache, dir, n, err);
}

vt_status vt_jit_import(const char *dir, int32_t *n, vt_err *err)
{
    char cache[PATH_SIZE];
    TRY(my_cache_dir(cache, sizeof cache, err));
    return copy_all(dir, cache, n, err);
}
