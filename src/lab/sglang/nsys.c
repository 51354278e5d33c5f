/* Lab sglang 04 --nsys: `nsys profile` around a bench of the lab's model, then `nsys stats` for a
 * table of its kernels. nsys belongs to CUDA's tools; where it is not installed, the lab says so
 * and goes on. */
#include <stdio.h>
#include <sys/stat.h>

#include "base/err.h"
#include "lab/sglang/inside.h"
#include "lab/sglang/timeline.h"

enum { LIMIT_S = 240 };

static vt_status profile(lab *l, const char *report, vt_err *err)
{
    char device[16] = "cpu", log[1100], file[1200], self[SGLANG_PATH];
    int status = 0;
    if (l->ordinal >= 0)
        snprintf(device, sizeof device, "cuda:%d", l->ordinal);
    snprintf(log, sizeof log, "%s/nsys.log", l->results);
    const char *const argv[] = {"nsys",
                                "profile",
                                "--force-overwrite=true",
                                "--trace=cuda,nvtx,osrt",
                                "--cuda-graph-trace=node",
                                "--output",
                                report,
                                sglang_self(self),
                                "bench",
                                "latency",
                                "--model",
                                l->model,
                                "--device",
                                device,
                                "--prompt",
                                "128",
                                "--gen",
                                l->quick ? "8" : "64",
                                "-r",
                                "1",
                                "--quiet",
                                "--json",
                                NULL};
    static const char *const suffix[] = {"nsys-rep", "sqlite"};
    for (int i = 0; i < 2; i++) {
        snprintf(file, sizeof file, "%s.%s", report, suffix[i]);
        TRY(lab_tool_writes(file, err));
    }
    TRY(lab_tool_run(l, argv, log, LIMIT_S, &status, err));
    lab_file(l, "nsys.log", "what nsys printed");
    if (status != 0)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "nsys profile ended with status %d (see %s)",
                       status, log);
    return VT_OK;
}

/* The first lines of a text file, for a drawing. */
static void put_head(vt_buf *b, const char *path, int lines)
{
    char line[256];
    FILE *f = fopen(path, "r");
    for (int i = 0; f && i < lines && fgets(line, sizeof line, f); i++) {
        vt_text_clean_line(line);
        vt_buf_printf(b, "%.*s\n", VT_TERM_WIDTH, line);
    }
    if (f)
        fclose(f);
}

static vt_status summarise(lab *l, const char *report, vt_err *err)
{
    char path[1100], with_suffix[1200];
    int status = 0;
    snprintf(with_suffix, sizeof with_suffix, "%s.nsys-rep", report);
    snprintf(path, sizeof path, "%s/nsys_kernels.txt", l->results);
    struct stat there;
    if (stat(with_suffix, &there) != 0)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "nsys left no report %s", with_suffix);
    lab_file(l, "timeline.nsys-rep", "for nsys-ui");
    const char *const argv[] = {"nsys",     "stats", "--report",  "cuda_gpu_kern_sum",
                                "--format", "table", with_suffix, NULL};
    TRY(lab_tool_run(l, argv, path, LIMIT_S, &status, err));
    lab_file(l, "nsys_kernels.txt", "kernels by their share of the GPU's time");
    vt_buf b = {0};
    vt_buf_printf(&b, "timeline.nsys-rep: %lld bytes; nsys-ui opens it. nsys stats says:\n",
                  (long long)there.st_size);
    put_head(&b, path, 24);
    lab_drawing(l, "nsys", "A bench of the same model under nsys", &b);
    vt_buf_release(&b);
    return VT_OK;
}

vt_status sglang_nsys(lab *l, vt_err *err)
{
    char found[1024], report[1100];
    vt_err why;
    if (!lab_flag(l, "nsys")) {
        lab_missing(l, "nsys",
                    "it runs with --nsys, where nsys is installed; the trace above "
                    "needs no other program");
        return VT_OK;
    }
    if (!lab_tool_find("nsys", found, sizeof found)) {
        lab_missing(l, "nsys", "no program nsys is on PATH; it comes with CUDA's tools");
        return VT_OK;
    }
    snprintf(report, sizeof report, "%s/timeline", l->results);
    vt_status status = profile(l, report, &why);
    if (status == VT_OK)
        status = summarise(l, report, &why);
    if (status == VT_ERR_UNSUPPORTED) {
        lab_missing(l, "nsys", "%s", why.message);
        return VT_OK;
    }
    return status == VT_OK ? VT_OK : vt_fail(err, status, "%s", why.message);
}
