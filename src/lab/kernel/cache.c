/* A cache folder of the lab's own (kernel/cache.h). */
#include "lab/kernel/cache.h"

#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/err.h"

vt_status own_cache_make(own_cache *o, vt_err *err)
{
    const char *tmp = getenv("TMPDIR"), *user = getenv("VITRINE_CACHE");
    snprintf(o->before, sizeof o->before, "%s", user ? user : "");
    snprintf(o->folder, sizeof o->folder, "%.400s/vitrine-lab-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(o->folder))
        return vt_fail(err, VT_ERR_IO, "%s: no empty cache folder could be made there", o->folder);
    setenv("VITRINE_CACHE", o->folder, 1);
    return VT_OK;
}

typedef void (*file_visit)(const char *path, void *user);

static void each_file(const own_cache *o, file_visit visit, void *user)
{
    char path[1200];
    snprintf(path, sizeof path, "%s/cubin", o->folder);
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));)
        if (e->d_name[0] != '.') {
            snprintf(path, sizeof path, "%s/cubin/%.255s", o->folder, e->d_name);
            visit(path, user);
        }
    if (d)
        closedir(d);
}

static void remove_file(const char *path, void *user)
{
    (void)user;
    unlink(path);
}

void own_cache_drop(own_cache *o)
{
    char path[600];
    if (o->before[0])
        setenv("VITRINE_CACHE", o->before, 1);
    else
        unsetenv("VITRINE_CACHE");
    each_file(o, remove_file, NULL);
    snprintf(path, sizeof path, "%s/cubin", o->folder);
    rmdir(path);
    rmdir(o->folder);
}

static void make_old(const char *path, void *user)
{
    (void)user;
    utimes(path, (struct timeval[2]){{.tv_sec = 1000}, {.tv_sec = 1000}});
}

void own_cache_make_old(const own_cache *o) { each_file(o, make_old, NULL); }

/* The file whose name is first (or last) in the alphabet, so that two calls take two files. */
typedef struct pick {
    bool last;
    char path[1200];
} pick;

static void pick_file(const char *path, void *user)
{
    pick *p = user;
    int order = strcmp(path, p->path);
    if (!p->path[0] || (p->last ? order > 0 : order < 0))
        snprintf(p->path, sizeof p->path, "%s", path);
}

void own_cache_damage_one(const own_cache *o)
{
    pick p = {.last = false};
    each_file(o, pick_file, &p);
    FILE *f = p.path[0] ? fopen(p.path, "r+b") : NULL;
    if (!f)
        return;
    fseek(f, -8, SEEK_END);
    int c = fgetc(f);
    fseek(f, -1, SEEK_CUR);
    fputc(c ^ 1, f);
    fclose(f);
}

void own_cache_rename_one(const own_cache *o)
{
    pick p = {.last = true};
    char to[1300];
    each_file(o, pick_file, &p);
    const char *dash = strrchr(p.path, '-');
    if (!dash)
        return;
    snprintf(to, sizeof to, "%.*s-99.0.cubin", (int)(dash - p.path), p.path);
    rename(p.path, to);
}
