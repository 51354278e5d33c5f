/* A request under nsys (nsys_run.h).
 *
 *   nsys profile     traces CUDA and NVTX from the arrival of request 1 to its end: neither the
 *                    loading of the model nor the capture of graphs. No stacks, no context
 *                    switches, no calls of the C library: with those a trace had 475 MB.
 *   QdstrmImporter   makes the report of the trace. nsys calls its own; the nsys that comes with
 *                    Nsight Compute does not find the one in the folder beside it, so it is called
 *                    here.
 *   nsys stats       one table of kernels, one of NVTX ranges, each as CSV */
#include "lab/profilers/nsys_run.h"

#include <ctype.h>
#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/plain_file.h"
#include "device/choose.h"
#include "lab/profilers/ncu_csv.h"

enum { LIMIT_S = 120, PROMPT = 128, ROWS = 14, NAME_AT = 44, PATH_SIZE = 1200 };

/* ---- running it ---- */

static void file_name(const lab *l, const char *name, const char *suffix, char out[PATH_SIZE])
{
    snprintf(out, PATH_SIZE, "%s/%s%s", l->results, name, suffix);
}

static off_t bytes_of(const char *path)
{
    struct stat there;
    return stat(path, &there) == 0 ? there.st_size : -1;
}

static vt_status profile(lab *l, const char *name, vt_err *err)
{
    static const char *const suffix[] = {".nsys-rep", ".qdstrm", ".sqlite"};
    char report[PATH_SIZE], log[PATH_SIZE], file[PATH_SIZE], device[16], self[1024];
    int status = 0;
    vt_buf tokens = {0};
    ssize_t n = readlink(lab_self(), self, sizeof self - 1);
    self[n > 0 ? n : 0] = '\0'; /* nsys would take its own name for /proc/self/exe */
    for (int i = 1; i <= PROMPT; i++)
        vt_buf_printf(&tokens, "%s%d", i > 1 ? "," : "", i);
    vt_device_name(l->ordinal, device, sizeof device);
    file_name(l, name, "", report);
    file_name(l, "nsys", ".log", log);
    /* the fixed names of ranges in NVTX's sense ("registered") are not used here: see --env-var */
    const char *const argv[] = {"nsys",
                                "profile",
                                "--force-overwrite=true",
                                l->ordinal >= 0 ? "--trace=cuda,nvtx" : "--trace=nvtx",
                                "--cuda-graph-trace=node",
                                "--sample=none",
                                "--cpuctxsw=none",
                                "--capture-range=nvtx",
                                "--nvtx-capture=request 1",
                                "--capture-range-end=stop",
                                "--env-var=NSYS_NVTX_PROFILER_REGISTER_ONLY=0",
                                "--output",
                                report,
                                self,
                                "run",
                                "--model",
                                l->model,
                                "--device",
                                device,
                                "--tokens",
                                tokens.data,
                                "-n",
                                l->quick ? "8" : "32",
                                "--ignore-eos",
                                "--quiet",
                                NULL};
    vt_status made = tokens.failed
                         ? vt_fail(err, VT_ERR_MEMORY, "out of memory for nsys's arguments")
                         : VT_OK;
    for (size_t i = 0; i < sizeof suffix / sizeof *suffix && made == VT_OK; i++) {
        file_name(l, name, suffix[i], file);
        made = lab_tool_writes(file, err);
    }
    if (made == VT_OK)
        made = lab_tool_run(l, argv, log, LIMIT_S, &status, err);
    vt_buf_release(&tokens);
    if (made != VT_OK)
        return made;
    lab_file(l, "nsys.log", "what nsys printed");
    if (status != 0)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "nsys profile ended with status %d (see %s)",
                       status, log);
    return VT_OK;
}

/* Has the importer in a folder beside nsys's make the report, if nsys has made none. */
static vt_status import(lab *l, const char *name, vt_err *err)
{
    char report[PATH_SIZE], stream[PATH_SIZE], log[PATH_SIZE], nsys[1024], pattern[1100];
    glob_t g = {0};
    int status = 0;
    vt_status made = VT_OK;
    file_name(l, name, ".nsys-rep", report);
    file_name(l, name, ".qdstrm", stream);
    file_name(l, "nsys_import", ".log", log);
    TRY(lab_tool_writes(log, err));
    if (bytes_of(report) >= 0 || bytes_of(stream) < 0 ||
        !lab_tool_find("nsys", nsys, sizeof nsys) || !strrchr(nsys, '/'))
        return VT_OK;
    *strrchr(nsys, '/') = '\0';
    snprintf(pattern, sizeof pattern, "%s/../*/QdstrmImporter", nsys);
    if (glob(pattern, 0, NULL, &g) == 0) {
        const char *const argv[] = {g.gl_pathv[0], "-i", stream, "-o", report, NULL};
        made = lab_tool_run(l, argv, log, LIMIT_S, &status, err);
        if (made == VT_OK && bytes_of(report) >= 0)
            unlink(stream);
    }
    globfree(&g);
    return made;
}

/* Why there is no report: the first line of the importer that was called, without its folder. */
static void importer_said(const lab *l, char *out, size_t size)
{
    char path[PATH_SIZE], line[600] = "";
    file_name(l, "nsys_import", ".log", path);
    FILE *f = fopen(path, "r");
    if (!f || !fgets(line, sizeof line, f)) {
        snprintf(out, size, "it has no importer, as nsys.log says");
    } else {
        const char *name = strstr(line, "QdstrmImporter");
        line[strcspn(line, "\r\n")] = '\0';
        vt_text_clean_line(line);
        snprintf(out, size, "%.250s", name ? name : line);
    }
    if (f)
        fclose(f);
}

/* Has nsys make a table of its report; ncu_report_release(out) afterwards. */
static vt_status stats(lab *l, const char *name, const char *table, const char *csv,
                       ncu_report *out, vt_err *err)
{
    char report[PATH_SIZE], path[PATH_SIZE];
    int status = 0;
    vt_buf text;
    file_name(l, name, ".nsys-rep", report);
    file_name(l, csv, "", path);
    const char *const argv[] = {"nsys", "stats",    "--quiet", "--report",
                                table,  "--format", "csv",     "--force-export=true",
                                report, NULL};
    TRY(lab_tool_writes(path, err));
    TRY(lab_tool_run(l, argv, path, LIMIT_S, &status, err));
    TRY(vt_read_whole(path, NCU_MAX_BYTES, &text, err));
    vt_status read = nsys_stats_read(path, text.data ? text.data : "", text.len, out, err);
    vt_buf_release(&text);
    if (read == VT_OK)
        lab_file(l, csv, "a table of nsys stats");
    return read;
}

/* ---- telling ---- */

static void put_line(vt_buf *b, const char *name, double share, double n, double total_s)
{
    size_t line = b->len;
    char clean[NAME_AT - 3];
    snprintf(clean, sizeof clean, "%.*s", NAME_AT - 4, name);
    vt_text_clean_line(clean);
    vt_buf_printf(b, "  %s", clean);
    vt_text_pad(b, line, NAME_AT);
    if (isfinite(share))
        vt_buf_printf(b, "%5.1f %%", share);
    else
        vt_buf_puts(b, "       ");
    vt_buf_printf(b, " %7.0f  ", n);
    vt_text_printf(b, "%f s, %f s each\n", total_s, n > 0 ? total_s / n : NAN);
}

static void put_kernels(vt_buf *b, const ncu_report *r)
{
    double rest = 0, launches = 0, ns = 0;
    vt_buf_puts(b, "kernels of the GPU                             share  launches  time\n");
    for (int32_t i = 0; i < r->n_launches; i++) {
        double share = ncu_report_number(r, i, "Time (%)"),
               total = ncu_report_number(r, i, "Total Time (ns)"),
               n = ncu_report_number(r, i, "Instances");
        const char *name = ncu_report_text(r, i, "Name");
        if (!name || !isfinite(total) || !isfinite(n))
            continue;
        if (i < ROWS) {
            put_line(b, name, share, n, total * 1e-9);
            continue;
        }
        rest += isfinite(share) ? share : 0;
        launches += n;
        ns += total;
    }
    if (launches > 0)
        put_line(b, "others", rest, launches, ns * 1e-9);
}

/* "step" of "step 12", "linear.qkv" of "L07.linear.qkv". nsys puts a colon before the name of a
 * range that belongs to no domain. */
static const char *kind_of(const char *name, char out[64])
{
    name += name[0] == ':';
    const char *dot = strchr(name, '.');
    if (name[0] == 'L' && isdigit((unsigned char)name[1]) && dot)
        name = dot + 1;
    size_t n = strlen(name);
    while (n > 0 && isdigit((unsigned char)name[n - 1]))
        n--;
    if (n > 0 && name[n - 1] == ' ')
        n--;
    else
        n = strlen(name);
    snprintf(out, 64, "%.*s", (int)n, name);
    return out;
}

/* A line for the ranges of each kind. */
static void put_ranges(vt_buf *b, const ncu_report *r)
{
    char told[ROWS][64], kind[64], other[64];
    int n = 0;
    vt_buf_puts(b, "ranges of the host (NVTX)                             number  time\n");
    for (int32_t i = 0; i < r->n_launches && n < ROWS; i++) {
        const char *name = ncu_report_text(r, i, "Range");
        double count = 0, ns = 0;
        bool again = !name;
        for (int k = 0; k < n && !again; k++)
            again = strcmp(told[k], kind_of(name, kind)) == 0;
        if (again)
            continue;
        snprintf(told[n++], sizeof told[0], "%s", kind_of(name, kind));
        for (int32_t k = i; k < r->n_launches; k++) {
            const char *is = ncu_report_text(r, k, "Range");
            if (strcmp(kind_of(is, other), kind) != 0)
                continue;
            count += ncu_report_number(r, k, "Instances");
            ns += ncu_report_number(r, k, "Total Time (ns)");
        }
        put_line(b, kind, NAN, count, ns * 1e-9);
    }
}

/* One table of the report; a table that nsys does not have is told in one line. */
static void tell_table(lab *l, const char *name, const char *table, const char *csv, vt_buf *b,
                       void (*put)(vt_buf *, const ncu_report *))
{
    ncu_report r = {0};
    vt_err err = {0};
    if (stats(l, name, table, csv, &r, &err) == VT_OK)
        put(b, &r);
    else
        vt_text_wrap(b, err.message, 0, VT_TERM_WIDTH - 4);
    if (b->len > 0 && b->data[b->len - 1] != '\n')
        vt_buf_putc(b, '\n');
    ncu_report_release(&r);
}

static void tell_report(lab *l, const char *name, const char *file, off_t bytes)
{
    char sqlite[PATH_SIZE];
    vt_buf b = {0};
    lab_file(l, file, "for nsys-ui");
    vt_text_printf(&b, "%s: %f B; nsys-ui opens it. nsys stats says of it:\n", file, (double)bytes);
    if (l->ordinal >= 0)
        tell_table(l, name, "cuda_gpu_kern_sum", "nsys_kernels.csv", &b, put_kernels);
    tell_table(l, name, "nvtx_sum", "nsys_ranges.csv", &b, put_ranges);
    file_name(l, name, ".sqlite", sqlite);
    unlink(
        sqlite); /* what nsys stats made its tables from; it makes it anew when it is asked again */
    lab_drawing(l, "nsys", "A request of 128 tokens, seen by Nsight Systems", &b);
    vt_buf_release(&b);
}

static void tell(lab *l, const char *name)
{
    char report[PATH_SIZE], stream[PATH_SIZE], file[128], said[300];
    file_name(l, name, ".nsys-rep", report);
    file_name(l, name, ".qdstrm", stream);
    off_t bytes = bytes_of(report), raw = bytes_of(stream);
    snprintf(file, sizeof file, "%.100s.nsys-rep", name);
    if (bytes >= 0) {
        tell_report(l, name, file, bytes);
        return;
    }
    if (raw < 0) {
        lab_missing(l, "nsys", "nsys left neither %s nor %s", report, stream);
        return;
    }
    snprintf(file, sizeof file, "%.100s.qdstrm", name);
    lab_file(l, file, "a trace that nsys could not make a report of; nsys-ui imports it");
    importer_said(l, said, sizeof said);
    lab_item(l, "nsys",
             "%s, %.1f MB: nsys traced the request, but made no report of it: %s. nsys-ui of "
             "Nsight Systems opens the file (File, Import), and its QdstrmImporter -i %s makes "
             "%.100s.nsys-rep",
             file, (double)raw * 1e-6, said, file, name);
}

vt_status lab_nsys(lab *l, const char *name, vt_err *err)
{
    char found[1024];
    vt_err why = {0};
    if (!lab_flag(l, "nsys")) {
        lab_missing(l, "nsys",
                    "--nsys was not given: it runs a request under NVIDIA Nsight Systems");
        return VT_OK;
    }
    if (!lab_tool_find("nsys", found, sizeof found)) {
        lab_missing(l, "nsys",
                    "no program nsys is on PATH or where NVIDIA's packages put it; it comes with "
                    "Nsight Systems");
        return VT_OK;
    }
    vt_status status = profile(l, name, &why);
    if (status == VT_OK)
        status = import(l, name, &why);
    if (status == VT_ERR_MEMORY)
        return vt_fail(err, status, "%s", why.message);
    if (status != VT_OK)
        lab_missing(l, "nsys", "%s", why.message);
    else
        tell(l, name);
    return VT_OK;
}
