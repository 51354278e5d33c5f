/* Compiling kernels: the list of instances, the disk cache, NVRTC in parallel.
 *
 *   want ──> entry[i] {spec, key} ──compile──> cache file? ──yes──> cubin
 *                                                 └──no──> NVRTC ──> cubin ──> cache file
 *
 * A header-free kernel compiles in 25 to 900 ms. -split-compile, PCH and NVRTC's own cache bring
 * nothing beside a cubin cache (measured), so none of them is used. */
#include "device/cuda/jit.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/random.h"
#include "device/cuda/cuda_api.h"
#include "device/cuda/jit_cache.h"
#include "device/cuda/jit_stamp.h"

typedef struct jit_entry {
    const char *source, *kernel;
    char name[JIT_NAME_MAX];
    char key[33];  /* 32 hex digits */
    uint64_t hash; /* the name's hash, for the table */
    jit_param param[JIT_MAX_PARAMS];
    jit_cubin cubin;
    void *owned; /* the allocation that holds cubin.bytes */
    char *log;
    bool ready;
} jit_entry;

enum { MAX_HEADERS = 128, RECENT = 256 };

struct vt_jit {
    char arch[16];
    bool use_cache, lines;
    jit_entry *entry;
    int32_t n, capacity;
    int32_t *table; /* open addressing, index + 1; table_size a power of two */
    uint32_t table_size;
    int32_t recent[RECENT]; /* index + 1 of the instance last wanted with such addresses; 0: none */
    jit_hash headers;       /* the beginning of every key */
    const char *header_text[MAX_HEADERS], *header_name[MAX_HEADERS];
    int32_t n_headers;
    jit_text added[JIT_MAX_TEXTS]; /* beside the embedded ones */
    int32_t n_added;
    cuda_nvrtc nvrtc;
    bool nvrtc_tried, nvrtc_there;
    vt_err nvrtc_err;
};

const jit_text *jit_find_text(const char *name)
{
    for (const jit_text *t = vt_kernel_texts; t->name; t++)
        if (strcmp(t->name, name) == 0)
            return t;
    return NULL;
}

const char *jit_find_line(const char *file, int32_t line, int32_t *bytes)
{
    const jit_text *t = jit_find_text(file);
    const char *at = t && line > 0 ? t->text : NULL;
    for (int32_t i = 1; at && i < line; i++) {
        at = strchr(at, '\n');
        at += at != NULL;
    }
    if (!at)
        return NULL;
    at += strspn(at, " \t");
    *bytes = (int32_t)strcspn(at, "\n");
    return at;
}

vt_status vt_jit_add_text(vt_jit *j, const char *name, const char *text, vt_err *err)
{
    if (jit_find_text(name))
        return vt_fail(err, VT_ERR_DEVICE, "kernel text %s: this name is an embedded one's", name);
    if (j->n_added == JIT_MAX_TEXTS)
        return vt_fail(err, VT_ERR_DEVICE, "kernel text %s is beyond the limit of %d texts", name,
                       JIT_MAX_TEXTS);
    j->added[j->n_added++] = (jit_text){name, text, strlen(text)};
    return VT_OK;
}

static const jit_text *find_text(const vt_jit *j, const char *name)
{
    for (int32_t i = 0; i < j->n_added; i++)
        if (strcmp(j->added[i].name, name) == 0)
            return &j->added[i];
    return jit_find_text(name);
}

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n > m && strcmp(name + n - m, end) == 0;
}

/* Device code that kernels share, and parameter structs that they share with host code. */
static bool is_header(const char *name)
{
    return ends_with(name, ".cuh") || ends_with(name, "_params.h");
}

vt_status vt_jit_new(const char *arch, vt_jit **out, vt_err *err)
{
    vt_jit *j = vt_calloc(1, sizeof *j);
    if (!j)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for the kernel list");
    snprintf(j->arch, sizeof j->arch, "%s", arch);
    j->use_cache = true;
    for (const jit_text *t = vt_kernel_texts; t->name; t++) {
        if (is_header(t->name)) {
            if (j->n_headers == MAX_HEADERS) {
                free(j);
                return vt_fail(err, VT_ERR_DEVICE,
                               "kernel header %s is beyond the limit of %d headers", t->name,
                               MAX_HEADERS);
            }
            j->header_name[j->n_headers] = t->name;
            j->header_text[j->n_headers++] = t->text;
        }
    }
    j->headers = jit_hash_begin();
    for (int32_t i = 0; i < j->n_headers; i++)
        jit_hash_add(&j->headers, j->header_text[i], strlen(j->header_text[i]) + 1);
    *out = j;
    return VT_OK;
}

void vt_jit_free(vt_jit *j)
{
    if (!j)
        return;
    for (int32_t i = 0; i < j->n; i++) {
        free(j->entry[i].owned);
        free(j->entry[i].log);
    }
    free(j->entry);
    free(j->table);
    free(j);
}

void vt_jit_set_cache(vt_jit *j, bool on) { j->use_cache = on; }
void vt_jit_set_lines(vt_jit *j, bool on) { j->lines = on; }
int32_t vt_jit_count(const vt_jit *j) { return j->n; }
const char *vt_jit_name(const vt_jit *j, int32_t index) { return j->entry[index].name; }
const char *vt_jit_kernel(const vt_jit *j, int32_t index) { return j->entry[index].kernel; }
const jit_cubin *vt_jit_get(const vt_jit *j, int32_t index)
{
    return j->entry[index].ready ? &j->entry[index].cubin : NULL;
}

/* ---- the list of instances ---- */

/* Names are string literals. Their text is hashed rather than their addresses, because two literals
 * with equal text may have two addresses. */
static uint64_t spec_hash(const jit_spec *s)
{
    uint64_t h = jit_hash_text(VT_FNV_OFFSET, s->source);
    h = jit_hash_text(h, s->kernel);
    for (int32_t i = 0; i < JIT_MAX_PARAMS && s->param[i].name; i++) {
        h = jit_hash_text(h, s->param[i].name);
        h = (h ^ (uint32_t)s->param[i].value) * VT_FNV_PRIME;
    }
    return h ^ h >> 29;
}

static bool spec_equal(const jit_entry *e, const jit_spec *s)
{
    if (strcmp(e->kernel, s->kernel) != 0 || strcmp(e->source, s->source) != 0)
        return false;
    for (int32_t i = 0; i < JIT_MAX_PARAMS; i++) {
        if (!e->param[i].name || !s->param[i].name)
            return e->param[i].name == s->param[i].name;
        if (e->param[i].value != s->param[i].value ||
            strcmp(e->param[i].name, s->param[i].name) != 0)
            return false;
    }
    return true;
}

static bool grow(vt_jit *j)
{
    int32_t capacity = j->capacity ? 2 * j->capacity : 64;
    uint32_t table_size = 4 * (uint32_t)capacity;
    jit_entry *entry = realloc(j->entry, (size_t)capacity * sizeof *entry);
    if (!entry)
        return false;
    j->entry = entry;
    int32_t *table = vt_calloc(table_size, sizeof *table);
    if (!table)
        return false;
    free(j->table);
    j->table = table;
    j->table_size = table_size;
    j->capacity = capacity;
    for (int32_t i = 0; i < j->n; i++) {
        uint32_t at = (uint32_t)j->entry[i].hash & (table_size - 1);
        while (table[at])
            at = (at + 1) & (table_size - 1);
        table[at] = i + 1;
    }
    return true;
}

static void spec_name(const jit_spec *s, char *out, size_t size)
{
    size_t used = 0;
    vt_append(out, size, &used, "%s", s->kernel);
    for (int32_t i = 0; i < JIT_MAX_PARAMS && s->param[i].name; i++)
        vt_append(out, size, &used, "%c%s=%d", i ? ',' : '<', s->param[i].name, s->param[i].value);
    if (s->param[0].name)
        vt_append(out, size, &used, ">");
}

/* A hash of a spec's addresses and values, which takes a tenth of spec_hash's time. */
static uint32_t address_hash(const jit_spec *s)
{
    uint64_t h = ((uint64_t)(uintptr_t)s->source ^ VT_FNV_OFFSET) * VT_FNV_PRIME;
    h = (h ^ (uint64_t)(uintptr_t)s->kernel) * VT_FNV_PRIME;
    for (int32_t i = 0; i < JIT_MAX_PARAMS && s->param[i].name; i++)
        h = (h ^ (uint64_t)(uintptr_t)s->param[i].name ^
             (uint64_t)(uint32_t)s->param[i].value << 40) *
            VT_FNV_PRIME;
    return (uint32_t)(h ^ h >> 29 ^ h >> 47) % RECENT;
}

/* Returns true if entry and spec have the same values and their names the same addresses. */
static bool same_addresses(const jit_entry *e, const jit_spec *s)
{
    if (e->kernel != s->kernel || e->source != s->source)
        return false;
    for (int32_t i = 0; i < JIT_MAX_PARAMS; i++) {
        if (e->param[i].name != s->param[i].name)
            return false;
        if (!e->param[i].name)
            return true;
        if (e->param[i].value != s->param[i].value)
            return false;
    }
    return true;
}

/* Returns the index of an instance that is noted already, or notes a new one. */
static int32_t want(vt_jit *j, const jit_spec *spec)
{
    if (j->n == j->capacity && !grow(j))
        return -1;
    uint64_t hash = spec_hash(spec);
    uint32_t at = (uint32_t)hash & (j->table_size - 1);
    for (; j->table[at]; at = (at + 1) & (j->table_size - 1)) {
        const jit_entry *e = &j->entry[j->table[at] - 1];
        if (e->hash == hash && spec_equal(e, spec))
            return j->table[at] - 1;
    }
    jit_entry *e = &j->entry[j->n];
    *e = (jit_entry){
        .source = spec->source, .kernel = spec->kernel, .hash = hash, .ready = !spec->source[0]};
    memcpy(e->param, spec->param, sizeof e->param);
    spec_name(spec, e->name, sizeof e->name);
    j->table[at] = ++j->n;
    return j->n - 1;
}

/* Each layer of a model wants the same instances, for each size of a step: 65,000 calls that find
 * 43 at the start of a Qwen3-0.6B. Almost all are found by their addresses. */
int32_t vt_jit_want(vt_jit *j, const jit_spec *spec)
{
    int32_t *recent = &j->recent[address_hash(spec)];
    if (*recent && same_addresses(&j->entry[*recent - 1], spec))
        return *recent - 1;
    int32_t index = want(j, spec);
    *recent = index + 1; /* 0 where there was no memory */
    return index;
}

/* ---- one instance ---- */

enum { MAX_OPTIONS = JIT_MAX_PARAMS + 12, OPTION_SIZE = 48 };

typedef struct option_list {
    char text[MAX_OPTIONS][OPTION_SIZE];
    const char *at[MAX_OPTIONS];
    int n;
} option_list;

static void option_add(option_list *o, const char *text)
{
    snprintf(o->text[o->n], OPTION_SIZE, "%s", text);
    o->at[o->n] = o->text[o->n];
    o->n++;
}

/* The options of every compile. */
static void common_options(const char *arch, option_list *o)
{
    char text[OPTION_SIZE];
    o->n = 0;
    snprintf(text, sizeof text, "-arch=%s", arch);
    option_add(o, text);
    option_add(o, "-std=c++17");
    option_add(o, "-default-device");
    option_add(o, "--diag-suppress=177");
    option_add(o, "--ptxas-options=-v");
    option_add(o, "--fmad=true");
}

vt_status vt_jit_flags(const char *arch, vt_buf *out, vt_err *err)
{
    option_list o;
    common_options(arch, &o);
    for (int i = 0; i < o.n; i++)
        if (!vt_buf_printf(out, "%s%s", i ? " " : "", o.at[i]))
            return vt_fail(err, VT_ERR_MEMORY, "out of memory for the compiler's flags");
    return VT_OK;
}

static void options_of(const vt_jit *j, const jit_entry *e, option_list *o)
{
    char text[OPTION_SIZE];
    common_options(j->arch, o);
    if (j->lines)
        option_add(o, "-lineinfo");
    for (int32_t i = 0; i < JIT_MAX_PARAMS && e->param[i].name; i++) {
        int n = snprintf(text, sizeof text, "-D%s=%d", e->param[i].name, e->param[i].value);
        for (int k = 2; k < n && text[k] != '='; k++)
            text[k] = (char)toupper((unsigned char)text[k]);
        option_add(o, text);
    }
}

static vt_status entry_key(const vt_jit *j, jit_entry *e, vt_err *err)
{
    const jit_text *t = find_text(j, e->source);
    if (!t)
        return vt_fail(err, VT_ERR_DEVICE, "kernel text %s is not in this binary", e->source);
    option_list o;
    options_of(j, e, &o);
    jit_hash h = j->headers;
    jit_hash_add(&h, t->text, t->size);
    jit_hash_add(&h, e->kernel, strlen(e->kernel) + 1);
    for (int i = 0; i < o.n; i++)
        jit_hash_add(&h, o.at[i], strlen(o.at[i]) + 1);
    jit_hash_hex(&h, e->key);
    return VT_OK;
}

/* The largest number before `words` in the output of ptxas -v, such as "Used 40 registers", "8
 * bytes spill stores, 8 bytes spill loads", "1024 bytes smem". */
static int32_t number_before(const char *log, const char *words)
{
    int64_t most = 0;
    for (const char *p = log; (p = strstr(p, words)); p++) {
        const char *q = p;
        while (q > log && q[-1] == ' ')
            q--;
        while (q > log && isdigit((unsigned char)q[-1]))
            q--;
        int64_t v = strtoll(q, NULL, 10);
        most = v > most ? v : most;
    }
    return (int32_t)most;
}

static vt_status compile_failed(vt_jit *j, const jit_entry *e, nvrtc_program p, char *log, int code,
                                vt_err *err)
{
    const char *at = log ? strstr(log, "error") : NULL;
    const char *line = at ? at : log ? log : "no log";
    while (at && line > log && line[-1] != '\n')
        line--;
    size_t n = strcspn(line, "\n");
    vt_fail(err, VT_ERR_DEVICE, "compiling %s for %s failed (NVRTC error %d): %.*s", e->name,
            j->arch, code, (int)(n < 300 ? n : 300), line);
    j->nvrtc.destroy(&p);
    free(log);
    return VT_ERR_DEVICE;
}

static bool is_stamped(const jit_entry *e)
{
    for (int32_t i = 0; i < JIT_MAX_PARAMS && e->param[i].name; i++)
        if (strcmp(e->param[i].name, JIT_STAMPED) == 0)
            return e->param[i].value != 0;
    return false;
}

static void put_header(vt_buf *b, const char *name)
{
    const jit_text *t = jit_find_text(name);
    if (t)
        vt_buf_printf(b, "#line 1 \"%s\"\n%s\n", name, t->text);
}

/* ptx.cuh goes in front of every kernel, and stamp.cuh in front of those with stamps; other .cuh
 * files and *_params.h are headers in memory. */
static vt_status full_text(const vt_jit *j, const jit_entry *e, char **out, vt_err *err)
{
    const jit_text *kernel = find_text(j, e->source);
    bool stamped = is_stamped(e), found = true;
    vt_buf b;
    vt_buf_init(&b, 4u << 20);
    put_header(&b, "ptx.cuh");
    if (stamped)
        put_header(&b, "stamp.cuh");
    vt_buf_printf(&b, "#line 1 \"%s\"\n", kernel->name);
    if (stamped)
        found = jit_stamp_text(&b, kernel->text, e->kernel);
    else
        vt_buf_puts(&b, kernel->text);
    vt_buf_puts(&b, "\n");
    *out = found ? vt_buf_detach(&b, NULL) : NULL;
    vt_buf_release(&b);
    if (!found)
        return vt_fail(err, VT_ERR_DEVICE,
                       "%s: %s cannot be stamped, because it is not declared as KERNEL "
                       "__launch_bounds__(...) %s(const __grid_constant__ TYPE NAME)",
                       kernel->name, e->kernel, e->kernel);
    return *out ? VT_OK : vt_fail(err, VT_ERR_MEMORY, "out of memory compiling %s", e->name);
}

static vt_status compile_entry(vt_jit *j, jit_entry *e, vt_err *err)
{
    int64_t begin = vt_now_ns();
    char *text;
    TRY(full_text(j, e, &text, err));
    nvrtc_program p = NULL;
    int r = j->nvrtc.create(&p, text, e->source, j->n_headers, j->header_text, j->header_name);
    free(text);
    if (r != 0)
        return vt_fail(err, VT_ERR_DEVICE, "nvrtcCreateProgram failed with %d for %s", r, e->name);
    option_list o;
    options_of(j, e, &o);
    r = j->nvrtc.compile(p, o.n, o.at);
    size_t size = 0;
    char *log = NULL;
    if (j->nvrtc.log_size(p, &size) == 0 && size > 0 && (log = vt_calloc(size + 1, 1)))
        j->nvrtc.log(p, log);
    if (r != 0)
        return compile_failed(j, e, p, log, r, err);
    size = 0;
    void *cubin = NULL;
    if (j->nvrtc.cubin_size(p, &size) != 0 || size == 0 || !(cubin = malloc(size)) ||
        j->nvrtc.cubin(p, cubin) != 0) {
        free(cubin);
        return compile_failed(j, e, p, log, -1, err);
    }
    j->nvrtc.destroy(&p);
    e->owned = cubin;
    e->log = log;
    e->cubin = (jit_cubin){.bytes = cubin,
                           .size = size,
                           .log = log,
                           .registers = number_before(log ? log : "", " registers"),
                           .spill_bytes = number_before(log ? log : "", " bytes spill stores"),
                           .shared_bytes = number_before(log ? log : "", " bytes smem"),
                           .compile_ms = (double)(vt_now_ns() - begin) * 1e-6};
    e->ready = true;
    return VT_OK;
}

/* ---- all of them ---- */

/* An instance still to compile, and how long its text is. */
typedef struct compile_task {
    int32_t entry;
    uint64_t text_bytes;
} compile_task;

typedef struct compile_job {
    vt_jit *jit;
    compile_task *todo; /* [n] */
    int32_t n;
    atomic_int next;
    pthread_mutex_t lock; /* guards the fields below */
    int32_t done, total;
    jit_progress progress;
    void *user;
    vt_err err; /* the first failure */
} compile_job;

static vt_status report(compile_job *job, const jit_entry *e, vt_err *err)
{
    job->done++;
    if (!job->progress || job->progress(job->user, job->done, job->total, e->name,
                                        e->cubin.compile_ms, e->cubin.cached))
        return VT_OK;
    return vt_fail(err, VT_ERR_CANCELLED, "cancelled while compiling kernels");
}

static void *compile_thread(void *arg)
{
    compile_job *job = arg;
    for (int32_t i; (i = atomic_fetch_add(&job->next, 1)) < job->n;) {
        jit_entry *e = &job->jit->entry[job->todo[i].entry];
        vt_err err = {0};
        vt_status status = compile_entry(job->jit, e, &err);
        if (status == VT_OK && job->jit->use_cache)
            jit_cache_write(e->key, job->jit->nvrtc.major, job->jit->nvrtc.minor, job->jit->arch,
                            e->name, &e->cubin);
        pthread_mutex_lock(&job->lock);
        if (status == VT_OK && job->err.status == VT_OK)
            status = report(job, e, &err);
        if (status != VT_OK && job->err.status == VT_OK)
            job->err = err;
        status = job->err.status; /* one failure ends all threads */
        pthread_mutex_unlock(&job->lock);
        if (status != VT_OK)
            break;
    }
    return NULL;
}

/* The longest text first. It takes the longest to compile, as a rule (sample.cu 1.0 to 1.4 s, small
 * kernels 0.1 s), and if it came last the other threads would wait for it. */
static int by_text(const void *pa, const void *pb)
{
    const compile_task *a = pa, *b = pb;
    if (a->text_bytes != b->text_bytes)
        return a->text_bytes < b->text_bytes ? 1 : -1;
    return (a->entry > b->entry) - (a->entry < b->entry);
}

static void compile_parallel(compile_job *job, int32_t n_threads)
{
    enum { MOST = 16 };
    qsort(job->todo, (size_t)job->n, sizeof *job->todo, by_text);
    pthread_t thread[MOST];
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    int32_t want = n_threads > 0 ? n_threads : cpus > 0 ? (int32_t)cpus : 1;
    want = want < job->n ? want : job->n;
    want = want < MOST ? want : MOST;
    int32_t started = 0;
    while (started < want - 1 && pthread_create(&thread[started], NULL, compile_thread, job) == 0)
        started++;
    compile_thread(job);
    for (int32_t i = 0; i < started; i++)
        pthread_join(thread[i], NULL);
}

/* NVRTC's version is part of a cache file's name; without NVRTC any version's file will do. */
static void open_nvrtc(vt_jit *j)
{
    if (j->nvrtc_tried)
        return;
    j->nvrtc_tried = true;
    j->nvrtc_there = cuda_nvrtc_open(&j->nvrtc, &j->nvrtc_err) == VT_OK;
}

static bool from_cache(vt_jit *j, jit_entry *e)
{
    if (!j->use_cache)
        return false;
    e->owned = jit_cache_read(e->key, j->nvrtc_there ? j->nvrtc.major : 0, j->nvrtc.minor,
                              &e->cubin);
    e->ready = e->owned != NULL;
    return e->ready;
}

vt_status vt_jit_read_cache(vt_jit *j, int32_t *n_ready, vt_err *err)
{
    *n_ready = 0;
    open_nvrtc(j);
    for (int32_t i = 0; i < j->n; i++) {
        jit_entry *e = &j->entry[i];
        if (!e->ready) {
            TRY(entry_key(j, e, err));
            from_cache(j, e);
        }
        *n_ready += e->ready;
    }
    return VT_OK;
}

const char *vt_jit_key(vt_jit *j, int32_t index)
{
    jit_entry *e = &j->entry[index];
    if (!e->key[0] && e->source[0])
        entry_key(j, e, NULL); /* fails only for a text that is not in the binary */
    return e->key;
}

vt_status vt_jit_compile(vt_jit *j, int32_t n_threads, jit_progress progress, void *user,
                         vt_err *err)
{
    int32_t missing = 0;
    for (int32_t i = 0; i < j->n; i++)
        missing += !j->entry[i].ready;
    if (missing == 0)
        return VT_OK;
    open_nvrtc(j);
    compile_job job = {.jit = j, .total = missing, .progress = progress, .user = user};
    job.todo = vt_calloc((size_t)missing, sizeof *job.todo);
    if (!job.todo)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a list of %d kernels", missing);
    vt_status status = VT_OK;
    for (int32_t i = 0; i < j->n && status == VT_OK; i++) {
        jit_entry *e = &j->entry[i];
        if (e->ready)
            continue;
        status = entry_key(j, e, err);
        if (status == VT_OK && from_cache(j, e))
            status = report(&job, e, err);
        else if (status == VT_OK)
            job.todo[job.n++] = (compile_task){i, find_text(j, e->source)->size};
    }
    if (status == VT_OK && job.n > 0 && !j->nvrtc_there) {
        if (err)
            *err = j->nvrtc_err;
        status = j->nvrtc_err.status;
    }
    if (status == VT_OK && job.n > 0) {
        pthread_mutex_init(&job.lock, NULL);
        compile_parallel(&job, n_threads);
        pthread_mutex_destroy(&job.lock);
        status = job.err.status;
        if (status != VT_OK && err)
            *err = job.err;
    }
    free(job.todo);
    return status;
}
