/* The inner process of `vitrine lab kernel`: reads the file, and leaves the checks and the timing
 * to kernel/cuda.c or kernel/cpu.c. The parent calls own_kernel_open too, to refuse what
 * can be refused without a process. */
#include "lab/kernel/inside.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "device/choose.h"

/* ---- opening ---- */

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n > m && strcmp(name + n - m, end) == 0;
}

bool own_kernel_is_cuda(const own_kernel_ask *ask) { return ends_with(ask->file, ".cu"); }

static vt_status read_text(int fd, const char *path, int64_t size, char **out, vt_err *err)
{
    char *text = vt_calloc((size_t)size + 1, 1);
    int64_t n = 0;
    if (!text)
        return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory", path);
    for (ssize_t got = 1; got > 0 && n<size; n += got> 0 ? got : 0)
        got = read(fd, text + n, (size_t)(size - n));
    vt_status status = VT_OK;
    if (n != size)
        status = vt_fail(err, VT_ERR_IO, "%s: it could not be read to its end", path);
    else if (memchr(text, '\0', (size_t)n))
        status = vt_fail(err, VT_ERR_FORMAT, "%s: it has zero bytes, expected the text of a kernel",
                         path);
    else if (!strstr(text, "LAB_KERNEL"))
        status = vt_fail(err, VT_ERR_FORMAT,
                         "%s: LAB_KERNEL(...) { ... } is not there; docs/lab-kernel.md "
                         "has the contract",
                         path);
    else if (!strstr(text, "LAB_LAUNCH"))
        status = vt_fail(err, VT_ERR_FORMAT,
                         "%s: LAB_LAUNCH(...) { ... } is not there; docs/lab-kernel.md "
                         "has the contract",
                         path);
    if (status != VT_OK)
        free(text);
    else
        *out = text;
    return status;
}

static vt_status read_file(own_kernel *k, vt_err *err)
{
    const char *path = k->ask->file;
    struct stat st;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return vt_fail(err, VT_ERR_IO, "%s: %s", path, strerror(errno));
    vt_status status = VT_OK;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        status = vt_fail(err, VT_ERR_IO, "%s: no ordinary file", path);
    else if (st.st_size == 0)
        status = vt_fail(err, VT_ERR_FORMAT, "%s: the file is empty", path);
    else if (own_kernel_is_cuda(k->ask) && st.st_size > OWN_KERNEL_FILE_BYTES)
        status = vt_fail(err, VT_ERR_FORMAT, "%s: %lld bytes, expected at most %d", path,
                         (long long)st.st_size, OWN_KERNEL_FILE_BYTES);
    else if (own_kernel_is_cuda(k->ask))
        status = read_text(fd, path, st.st_size, &k->text, err);
    close(fd);
    return status;
}

static vt_status check_kind(const own_kernel_ask *ask, vt_err *err)
{
    bool cuda = own_kernel_is_cuda(ask), other = strcmp(ask->device, "auto") != 0;
    if (!cuda && !ends_with(ask->file, ".so"))
        return vt_fail(err, VT_ERR_USAGE, "%s: expected FILE.cu for a GPU or FILE.so for the CPU%s",
                       ask->file,
                       ends_with(ask->file, ".c") ? ", which gcc -shared -fPIC makes of it" : "");
    if (other && cuda == (strcmp(ask->device, "cpu") == 0))
        return vt_fail(err, VT_ERR_USAGE, "--device %s: %s is a kernel for %s", ask->device,
                       ask->file, cuda ? "a GPU" : "the CPU");
    return VT_OK;
}

vt_status own_kernel_open(own_kernel *k, const own_kernel_ask *ask, vt_err *err)
{
    const char *slash = strrchr(ask->file, '/');
    k->ask = ask;
    snprintf(k->name, sizeof k->name, "%s", slash ? slash + 1 : ask->file);
    vt_text_clean_line(k->name);
    TRY(check_kind(ask, err));
    k->contract = own_kernel_find(ask->op, err);
    if (!k->contract)
        return VT_ERR_USAGE;
    k->op = vt_op_find(k->contract->name);
    if (!own_kernel_is_cuda(ask) && !k->contract->call)
        return vt_fail(
            err, VT_ERR_USAGE,
            "--op %s: there is no contract for the CPU yet; rmsnorm, add_rmsnorm and embed "
            "have one",
            ask->op);
    const char *shape = ask->shape                ? ask->shape
                        : own_kernel_is_cuda(ask) ? k->contract->shape
                                                  : k->contract->shape_cpu;
    k->shape = vt_calloc(OWN_KERNEL_SHAPES, sizeof *k->shape);
    if (!k->shape)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for %d shapes", OWN_KERNEL_SHAPES);
    TRY(vt_cases_from_text(k->op, shape, k->shape, OWN_KERNEL_SHAPES, &k->n_shapes, err));
    return read_file(k, err);
}

void own_kernel_release(own_kernel *k)
{
    free(k->shape);
    free(k->text);
}

/* ---- the report ---- */

void own_kernel_step(own_kernel *k, int32_t limit_s, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(k->report->step, sizeof k->report->step, fmt, ap);
    va_end(ap);
    atomic_store(&k->report->limit_s, limit_s);
    atomic_fetch_add(&k->report->beat, 1);
}

own_kernel_case *own_kernel_add_case(own_kernel *k, const vt_case *what, bool needed)
{
    own_kernel_report *r = k->report;
    if (r->n_cases == OWN_KERNEL_CASES)
        return NULL;
    own_kernel_case *c = &r->cases[r->n_cases++];
    *c = (own_kernel_case){.error = NAN, .allowed = NAN};
    snprintf(c->name, sizeof c->name, "%s", what->name);
    if (!needed && vt_case_of_rank(k->op, what)) {
        c->verdict = OWN_KERNEL_SKIPPED;
        snprintf(c->why, sizeof c->why, "a part of a matrix, which ranks have");
    }
    return c;
}

own_kernel_row *own_kernel_add_row(own_kernel *k, const char *shape, const char *name)
{
    own_kernel_report *r = k->report;
    if (r->n_rows == OWN_KERNEL_ROWS)
        return NULL;
    own_kernel_row *row = &r->rows[r->n_rows++];
    *row = (own_kernel_row){.us = {NAN, NAN}, .share = {NAN, NAN}};
    row->launch.waves = NAN;
    snprintf(row->shape, sizeof row->shape, "%s", shape);
    snprintf(row->name, sizeof row->name, "%s", name);
    return row;
}

double own_kernel_share(const own_kernel_report *r, int64_t bytes, int64_t flops, bool far,
                        double us, char roof[16])
{
    double memory = far && r->memory_bytes_per_s > 0 ? (double)bytes / r->memory_bytes_per_s : 0,
           fp32 = r->fp32_per_s > 0 ? (double)flops / r->fp32_per_s : 0,
           least = memory > fp32 ? memory : fp32;
    snprintf(roof, 16, "%s", memory >= fp32 ? "memory" : "fp32");
    return least > 0 && us > 0 ? least * 1e6 / us : NAN;
}

/* ---- the process ---- */

static vt_status run(own_kernel *k, const own_kernel_ask *ask, vt_err *err)
{
    own_kernel_report *r = k->report;
    TRY(own_kernel_open(k, ask, err));
    snprintf(r->file, sizeof r->file, "%s", k->name);
    snprintf(r->op, sizeof r->op, "%s", k->op->name);
    snprintf(r->what, sizeof r->what, "%s", k->op->what);
    snprintf(r->tolerance_reason, sizeof r->tolerance_reason, "%s", k->op->tolerance_reason);
    if (!own_kernel_is_cuda(ask))
        return own_kernel_on_cpu(k, err);
    int32_t ordinal = strcmp(ask->device, "auto") == 0 ? 0 : vt_device_choose(ask->device, NULL);
    return own_kernel_on_cuda(k, ordinal, err);
}

bool own_kernel_is_inner(void) { return getenv(OWN_KERNEL_FD) != NULL; }

/* Maps the report that the parent has made. */
static own_kernel_report *inherited(void)
{
    struct stat st;
    const char *text = getenv(OWN_KERNEL_FD);
    char *end = NULL;
    long fd = text ? strtol(text, &end, 10) : -1;
    if (fd <= 2 || fd > 1 << 20 || *end || fstat((int)fd, &st) != 0 || !S_ISREG(st.st_mode) ||
        st.st_size != (off_t)sizeof(own_kernel_report))
        return NULL;
    void *map = mmap(NULL, sizeof(own_kernel_report), PROT_READ | PROT_WRITE, MAP_SHARED, (int)fd,
                     0);
    return map == MAP_FAILED ? NULL : map;
}

vt_status own_kernel_inside(const own_kernel_ask *ask, vt_err *err)
{
    own_kernel k = {.ask = ask, .report = inherited()};
    vt_err failure = {0};
    if (!k.report)
        return vt_fail(err, VT_ERR_USAGE,
                       OWN_KERNEL_FD
                       " is no report: vitrine sets it itself, for the process of a kernel");
    if (run(&k, ask, &failure) != VT_OK)
        snprintf(k.report->failure, sizeof k.report->failure, "%s", failure.message);
    k.report->finished = true;
    own_kernel_release(&k);
    return VT_OK;
}
