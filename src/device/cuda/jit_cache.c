/* The cubin cache on disk.
 *
 *   $VITRINE_CACHE/cubin/<key>-<major>.<minor>.cubin     header | cubin
 *
 * Written whole under a temporary name in the same folder, then renamed: a reader sees all of a
 * file or none. Two processes that compile the same kernel both write it; the second rename wins,
 * with equal bytes.
 *
 * A cubin is code that runs on the user's GPU. Its checksum guards against damage only, because
 * anyone can compute it. The folder and its files are therefore used only if they belong to the
 * user (or root) and no other user may write to them; links are not followed. Where VITRINE_CACHE
 * lies in a folder that others share, kernels are compiled again rather than taken from them. */
#include "device/cuda/jit_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cache_dir.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/random.h"

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

uint64_t jit_hash_text(uint64_t h, const char *text) { return vt_fnv1a(h, text, strlen(text) + 1); }

static uint64_t checksum(const void *bytes, size_t n) { return vt_fnv1a(VT_FNV_OFFSET, bytes, n); }

/* ---- the folder ---- */

/* A folder of cubins, open. */
typedef struct folder {
    char path[PATH_SIZE];
    int fd;
    bool checked; /* files in it must be private too; not in one that the user named */
} folder;

static vt_status open_folder(folder *f, const char *path, bool checked, vt_err *err)
{
    f->checked = checked;
    if (strlen(path) > PATH_SIZE - 300) /* room for file names */
        return vt_fail(err, VT_ERR_USAGE, "the path %.200s... is too long", path);
    memcpy(f->path, path, strlen(path) + 1);
    f->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->fd < 0)
        return vt_fail(err, VT_ERR_IO, "%s is not a folder with compiled kernels: %s", path,
                       strerror(errno));
    vt_status status = checked ? vt_check_private(f->fd, path, err) : VT_OK;
    if (status != VT_OK)
        close(f->fd);
    return status;
}

/* Opens the cache's folder; if `make`, makes it first. */
static vt_status open_cache(folder *f, bool make, vt_err *err)
{
    char path[PATH_SIZE - 300];
    TRY(vt_cache_path("cubin", path, sizeof path, err));
    if (make)
        TRY(vt_make_folders(path, err));
    return open_folder(f, path, true, err);
}

/* ---- one file ---- */

/* The header's texts are not covered by the checksum, and a terminal shows them: unprintable bytes
 * become '?'. */
static void make_printable(char *text, size_t size)
{
    text[size - 1] = 0;
    for (; *text; text++)
        if (*text < 0x20 || *text > 0x7e)
            *text = '?';
}

/* Reads the cubin after the header of open file `f`; NULL if it is not complete. */
static uint8_t *read_cubin(FILE *f, file_header *h)
{
    if (fread(h, sizeof *h, 1, f) != 1 || memcmp(h->magic, CUBIN_MAGIC, 8) != 0 ||
        h->cubin_bytes == 0 || h->cubin_bytes > CUBIN_MAX_BYTES)
        return NULL;
    uint8_t *bytes = malloc(h->cubin_bytes);
    bool whole = bytes && fread(bytes, 1, h->cubin_bytes, f) == h->cubin_bytes && fgetc(f) == EOF;
    if (whole && checksum(bytes, h->cubin_bytes) == h->checksum)
        return bytes;
    free(bytes);
    return NULL;
}

/* Reads and checks a whole file; NULL if it is not a cubin file of ours, or cannot be trusted. */
static uint8_t *read_file(const folder *d, const char *name, file_header *h)
{
    int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | (d->checked ? O_NOFOLLOW : 0);
    int fd = openat(d->fd, name, flags);
    struct stat st;
    bool good = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
                (!d->checked || vt_check_private(fd, name, NULL) == VT_OK);
    FILE *f = good ? fdopen(fd, "rb") : NULL;
    if (!f) {
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    uint8_t *bytes = read_cubin(f, h);
    fclose(f);
    make_printable(h->name, sizeof h->name);
    make_printable(h->arch, sizeof h->arch);
    return bytes;
}

static vt_status write_file(const folder *d, const char *name, const file_header *h,
                            const void *cubin, vt_err *err)
{
    char path[PATH_SIZE + 128];
    vt_new_file f;
    snprintf(path, sizeof path, "%s/%s", d->path, name);
    TRY(vt_new_file_begin(&f, path, err));
    fwrite(h, sizeof *h, 1, f.file);
    fwrite(cubin, 1, h->cubin_bytes, f.file);
    return vt_new_file_end(&f, path, true, err);
}

static bool is_cubin_name(const char *name)
{
    size_t len = strlen(name);
    return len > 38 && len < 64 && name[0] != '.' && strcmp(name + len - 6, ".cubin") == 0;
}

/* ---- what the JIT calls ---- */

static void *read_as(const folder *d, const char *name, jit_cubin *out)
{
    file_header h;
    uint8_t *bytes = read_file(d, name, &h);
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

/* Opens the folder for reading its names; NULL where that fails. */
static DIR *names_of(const folder *d)
{
    int fd = fcntl(d->fd, F_DUPFD_CLOEXEC, 0); /* closedir closes it */
    DIR *names = fd >= 0 ? fdopendir(fd) : NULL;
    if (!names && fd >= 0)
        close(fd);
    return names;
}

void *jit_cache_read(const char *key, int major, int minor, jit_cubin *out)
{
    folder d;
    void *found = NULL;
    if (open_cache(&d, false, NULL) != VT_OK)
        return NULL;
    if (major > 0) {
        char name[96];
        snprintf(name, sizeof name, "%.32s-%d.%d.cubin", key, major, minor);
        found = read_as(&d, name, out);
        close(d.fd);
        return found;
    }
    DIR *names = names_of(&d);
    for (struct dirent *e; names && !found && (e = readdir(names));)
        if (is_cubin_name(e->d_name) && strncmp(e->d_name, key, 32) == 0)
            found = read_as(&d, e->d_name, out);
    if (names)
        closedir(names);
    close(d.fd);
    return found;
}

void jit_cache_write(const char *key, int major, int minor, const char *arch, const char *name,
                     const jit_cubin *c)
{
    char file[96];
    folder d;
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
    snprintf(file, sizeof file, "%.32s-%d.%d.cubin", key, major, minor);
    if (open_cache(&d, true, NULL) != VT_OK)
        return;
    write_file(&d, file, &h, c->bytes, NULL);
    close(d.fd);
}

/* ---- what people call ---- */

typedef vt_status (*cubin_visit)(void *user, const char *file, const file_header *h,
                                 const void *cubin, vt_err *err);

static vt_status each_cubin(const folder *d, cubin_visit visit, void *user, vt_err *err)
{
    DIR *names = names_of(d);
    vt_status status = VT_OK;
    for (struct dirent *e; names && status == VT_OK && (e = readdir(names));) {
        file_header h;
        uint8_t *bytes = is_cubin_name(e->d_name) ? read_file(d, e->d_name, &h) : NULL;
        if (bytes)
            status = visit(user, e->d_name, &h, bytes, err);
        free(bytes);
    }
    if (names)
        closedir(names);
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

/* Returns true if the cache's folder exists. */
static bool cache_exists(void)
{
    char path[PATH_SIZE - 300];
    struct stat st;
    return vt_cache_path("cubin", path, sizeof path, NULL) == VT_OK &&
           (stat(path, &st) == 0 || errno != ENOENT);
}

vt_status vt_jit_check_cache(vt_err *err)
{
    folder d;
    if (!cache_exists())
        return VT_OK; /* it will be made */
    TRY(open_cache(&d, false, err));
    close(d.fd);
    return VT_OK;
}

vt_status vt_jit_list(vt_buf *out, vt_err *err)
{
    folder d;
    if (!cache_exists())
        return VT_OK; /* no kernels */
    TRY(open_cache(&d, false, err));
    vt_status status = each_cubin(&d, list_one, out, err);
    close(d.fd);
    return status;
}

typedef struct cached_list {
    jit_cached *at;
    int32_t n, cap;
} cached_list;

static vt_status keep_one(void *user, const char *file, const file_header *h, const void *cubin,
                          vt_err *err)
{
    (void)cubin;
    cached_list *l = user;
    if (l->n == l->cap) {
        int32_t cap = l->cap ? 2 * l->cap : 64;
        jit_cached *at = realloc(l->at, (size_t)cap * sizeof *at);
        if (!at)
            return vt_fail(err, VT_ERR_MEMORY, "out of memory listing the kernel cache");
        l->at = at;
        l->cap = cap;
    }
    jit_cached *c = &l->at[l->n++];
    *c = (jit_cached){.nvrtc_major = h->nvrtc_major,
                      .nvrtc_minor = h->nvrtc_minor,
                      .registers = h->registers,
                      .spill_bytes = h->spill_bytes,
                      .compile_ms = h->compile_ms,
                      .bytes = h->cubin_bytes};
    snprintf(c->name, sizeof c->name, "%s", h->name);
    snprintf(c->arch, sizeof c->arch, "%s", h->arch);
    snprintf(c->key, sizeof c->key, "%.32s", file);
    return VT_OK;
}

static int by_name(const void *pa, const void *pb)
{
    const jit_cached *a = pa, *b = pb;
    int order = strcmp(a->name, b->name);
    return order ? order : strcmp(a->key, b->key);
}

vt_status vt_jit_cached(jit_cached **out, int32_t *n, vt_err *err)
{
    folder d;
    cached_list l = {0};
    *out = NULL;
    *n = 0;
    if (!cache_exists())
        return VT_OK;
    TRY(open_cache(&d, false, err));
    vt_status status = each_cubin(&d, keep_one, &l, err);
    close(d.fd);
    if (status != VT_OK) {
        free(l.at);
        return status;
    }
    if (l.n)
        qsort(l.at, (size_t)l.n, sizeof *l.at, by_name);
    *out = l.at;
    *n = l.n;
    return VT_OK;
}

typedef struct copy_job {
    const folder *to;
    int32_t n;
} copy_job;

static vt_status copy_one(void *user, const char *file, const file_header *h, const void *cubin,
                          vt_err *err)
{
    copy_job *job = user;
    TRY(write_file(job->to, file, h, cubin, err));
    job->n++;
    return VT_OK;
}

static vt_status copy_all(const folder *from, const folder *to, int32_t *n, vt_err *err)
{
    copy_job job = {.to = to};
    TRY(each_cubin(from, copy_one, &job, err));
    *n = job.n;
    return VT_OK;
}

vt_status vt_jit_export(const char *dir, int32_t *n, vt_err *err)
{
    folder cache, to;
    TRY(vt_make_folders(dir, err));
    TRY(open_folder(&to, dir, false, err));
    vt_status status = open_cache(&cache, true, err);
    if (status == VT_OK) {
        status = copy_all(&cache, &to, n, err);
        close(cache.fd);
    }
    close(to.fd);
    return status;
}

vt_status vt_jit_import(const char *dir, int32_t *n, vt_err *err)
{
    folder cache, from;
    TRY(open_folder(&from, dir, false, err));
    vt_status status = open_cache(&cache, true, err);
    if (status == VT_OK) {
        status = copy_all(&from, &cache, n, err);
        close(cache.fd);
    }
    close(from.fd);
    return status;
}
