/* Dumps of a running engine (story/dump.h). */
#include "story/dump.h"

#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "base/cache_dir.h"
#include "base/err.h"
#include "story/story.h"

static vt_status write_file(const char *path, const char *json, size_t len, vt_err *err)
{
    vt_new_file f;
    TRY(vt_new_file_begin(&f, path, err));
    f.owner_only = true;
    bool ok = fwrite(json, 1, len, f.file) == len && fputc('\n', f.file) != EOF;
    return vt_new_file_end(&f, path, ok, err);
}

vt_status vt_story_dump(vt_engine *e, vt_request_id id, const char *path, vt_err *err)
{
    char *json = NULL;
    size_t len = 0;
    TRY(story_of_engine(e, id, STORY_MEASURES_NOTHING, &json, &len, err));
    vt_status status = write_file(path, json, len, err);
    vt_free(json);
    return status;
}

vt_status vt_story_dump_since(vt_engine *e, int64_t since_ns, const char *path, vt_err *err)
{
    char *json = NULL;
    size_t len = 0;
    TRY(story_of_engine_since(e, since_ns, &json, &len, err));
    vt_status status = write_file(path, json, len, err);
    vt_free(json);
    return status;
}

vt_status vt_story_dump_folder(const char *folder, char *out, size_t size, vt_err *err)
{
    if (!folder || !*folder)
        TRY(vt_cache_path("stories", out, size, err));
    else if (snprintf(out, size, "%s", folder) >= (int)size)
        return vt_fail(err, VT_ERR_IO, "%.60s...: too long a name for a folder of stories", folder);
    return vt_make_folders(out, err);
}

vt_status vt_story_dump_name(const char *folder, char *out, size_t size, vt_err *err)
{
    static atomic_int dumps;
    char in[1024];
    TRY(vt_story_dump_folder(folder, in, sizeof in, err));
    int n = snprintf(out, size, "%s/story-%ld-%d.json", in, (long)getpid(),
                     atomic_fetch_add(&dumps, 1) + 1);
    if (n < 0 || (size_t)n >= size)
        return vt_fail(err, VT_ERR_IO, "%.60s...: too long a name for a folder of stories", in);
    return VT_OK;
}
