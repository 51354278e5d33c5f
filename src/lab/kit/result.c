/* A lab's result on disk (result.h). */
#include "lab/kit/result.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cache_dir.h"
#include "base/err.h"
#include "base/plain_file.h"
#include "files/json.h"

/* The labs/ folder at or above the working directory: the one that has a PLAN.md. One that cannot
 * be written to, such as an installed copy, is for reading. */
static bool find_labs(char *out, size_t size)
{
    char at[PATH_MAX];
    if (!getcwd(at, sizeof at))
        return false;
    for (;;) {
        char plan[PATH_MAX + 32];
        snprintf(plan, sizeof plan, "%s/labs/PLAN.md", at);
        if (access(plan, R_OK) == 0)
            return snprintf(out, size, "%s/labs", at) < (int)size && access(out, W_OK) == 0;
        char *slash = strrchr(at, '/');
        if (!slash || slash == at)
            return false;
        *slash = '\0';
    }
}

vt_status lab_root(const vt_options *o, char *out, size_t size, vt_err *err)
{
    const char *given = vt_options_given(o, "results") ? vt_options_get(o, "results") : NULL;
    if (given && *given) {
        if (snprintf(out, size, "%s", given) >= (int)size)
            return vt_fail(err, VT_ERR_USAGE, "--results: the path is too long");
        return VT_OK;
    }
    if (find_labs(out, size))
        return VT_OK;
    return vt_cache_path("labs", out, size, err);
}

bool lab_machine_name_ok(const char *name)
{
    return *name && strlen(name) <= 64 && name[0] != '.' &&
           !name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.")];
}

vt_status lab_machine_name_refused(const char *name, vt_err *err)
{
    return vt_fail(err, VT_ERR_USAGE,
                   "--machine: '%.40s' found, expected a name of small letters, digits and '-'",
                   name);
}

vt_status lab_results_folder(const vt_options *o, lab_track track, char *out, size_t size,
                             vt_err *err)
{
    char root[PATH_MAX];
    const char *machine = vt_options_given(o, "machine") ? vt_options_get(o, "machine") : "local";
    if (!lab_machine_name_ok(machine))
        return lab_machine_name_refused(machine, err);
    TRY(lab_root(o, root, sizeof root, err));
    if (snprintf(out, size, "%s/%s/results/%s", root, lab_track_name[track], machine) >= (int)size)
        return vt_fail(err, VT_ERR_USAGE, "--results: the path is too long");
    return VT_OK;
}

enum { MAX_FILE_BYTES = 16 << 20 };

static void path_of(const char *folder, const lab_def *d, char *out, size_t size)
{
    snprintf(out, size, "%s/%s_%s.json", folder, d->number, d->name);
}

vt_status lab_result_write(const json_t *result, const lab_def *def, const char *folder,
                           vt_err *err)
{
    char path[PATH_MAX];
    vt_new_file f;
    path_of(folder, def, path, sizeof path);
    TRY(vt_new_file_begin(&f, path, err));
    bool written = json_dumpf(result, f.file, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) == 0 &&
                   fputc('\n', f.file) == '\n';
    TRY(vt_new_file_end(&f, path, written, err));
    return written ? VT_OK : vt_fail(err, VT_ERR_IO, "%s: cannot be written", path);
}

vt_status lab_result_read(const char *folder, const lab_def *def, json_t **out, vt_err *err)
{
    char path[PATH_MAX];
    vt_buf text;
    *out = NULL;
    path_of(folder, def, path, sizeof path);
    if (access(path, F_OK) != 0 && errno == ENOENT)
        return VT_OK;
    TRY(vt_read_whole(path, MAX_FILE_BYTES, &text, err));
    vt_status status = vt_json_load(path, text.data ? text.data : "", text.len,
                                    JSON_REJECT_DUPLICATES, VT_JSON_MAX_TREE, out, err);
    const char *schema = status == VT_OK ? json_string_value(json_object_get(*out, "schema"))
                                         : NULL;
    if (status == VT_OK && (!schema || strcmp(schema, "vitrine.lab") != 0)) {
        json_decref(*out);
        *out = NULL;
        status = vt_fail(err, VT_ERR_FORMAT, "%s: not a result of schema vitrine.lab", path);
    }
    vt_buf_release(&text);
    return status;
}
