/* What kernels need, in lab 00 of the track mini-sglang: the compiler, the cache of compiled kernels,
 * libraries of each row. The facts are members of what `vitrine env --json` answered. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/mini_sglang.h"
#include "story/read.h"

enum { MAX_KINDS = 64 };

void mini_tell_compiler(lab *l, const json_t *env)
{
    const json_t *compiler = story_get(env, "compiler"), *libraries = story_get(env, "libraries");
    char path[STORY_TEXT], version[STORY_TEXT], flags[STORY_TEXT], level[STORY_TEXT];
    bool nvrtc = *story_text(libraries, "nvrtc", path) != '\0';
    story_text(story_get(env, "cpu"), "level", level);
    lab_item(l, "compiler",
             "CPU rows are compiled into this program, for each instruction set; %s is used. GPU "
             "kernels are compiled when first needed by NVRTC: %s%s%s",
             level, nvrtc ? path : "it is not here",
             *story_text(compiler, "nvrtc", version) ? ", version " : "", version);
    lab_item(l, "jit_ready",
             nvrtc ? l->ordinal >= 0 ? "yes: kernels can be compiled and run"
                                     : "kernels can be compiled here; there is no "
                                       "GPU to run them on"
                   : "no: NVRTC is missing, so only kernels that are in the cache "
                     "can run");
    if (*story_text(compiler, "flags", flags))
        lab_item(l, "compile_flags", "%s", flags);
    else
        lab_missing(l, "compile_flags", "vitrine env of this program does not tell them");
}

/* "head_dim=128, page=64": names and values of an object's members. */
static void put_parameters(vt_buf *b, const json_t *o)
{
    const char *key;
    json_t *v;
    bool first = true;
    json_object_foreach((json_t *)(uintptr_t)o, key, v)
    {
        char text[STORY_TEXT];
        vt_buf_printf(b, "%s%s=%s", first ? "" : ", ", key, story_clean(v, text));
        first = false;
    }
}

/* How many instances of each kernel the cache holds. */
static void tell_instances(lab *l, const json_t *kernels)
{
    struct {
        char name[STORY_TEXT];
        int32_t n;
        double bytes, compile_s;
    } *kind = calloc(MAX_KINDS, sizeof *kind);
    const json_t *k;
    size_t i, n = 0;
    json_array_foreach(kernels, i, k)
    {
        char name[STORY_TEXT];
        size_t at = 0;
        story_text(k, "kernel", name);
        while (kind && at < n && strcmp(kind[at].name, name) != 0)
            at++;
        if (!kind || at == MAX_KINDS)
            break;
        n += at == n;
        snprintf(kind[at].name, sizeof kind[at].name, "%s", name);
        kind[at].n++;
        kind[at].bytes += story_num(k, "bytes");
        kind[at].compile_s += story_num(k, "compile_ms") * 1e-3;
    }
    lab_table(l, "cache", "kernels of the cache, by name", "kernel|>instances|>bytes|>compiled in");
    for (i = 0; i < n; i++) {
        lab_cell(l, "%s", kind[i].name);
        lab_cell(l, "%d", kind[i].n);
        lab_cell_number(l, kind[i].bytes, LAB_BYTES);
        lab_cell_number(l, kind[i].compile_s, LAB_SECONDS);
    }
    if (n == 0) {
        lab_cell(l, "none yet");
        for (i = 0; i < 3; i++)
            lab_cell(l, "-");
    }
    lab_table_end(l);
    free(kind);
}

void mini_tell_cache(lab *l, const json_t *env)
{
    const json_t *cache = story_get(env, "cache"), *kernels = story_get(cache, "kernels");
    char name[STORY_TEXT];
    size_t n = json_array_size(kernels);
    if (!json_is_object(cache)) {
        lab_missing(l, "cache_place",
                    "vitrine env --jit lists the cache; this program's --json does "
                    "not tell its place");
        lab_missing(l, "cache", "vitrine env --jit lists it");
        lab_missing(l, "template_parameters", "vitrine env --jit lists them");
        return;
    }
    lab_item(l, "cache_place", "%s holds %zu compiled kernel%s%s",
             story_text(cache, "folder", name), n, n == 1 ? "" : "s",
             n ? "" : ": none was needed yet, or the cache was cleared");
    tell_instances(l, kernels);
    vt_buf b = {0};
    put_parameters(&b, story_get(json_array_get(kernels, 0), "parameters"));
    lab_item(l, "template_parameters",
             n ? "a kernel is compiled for each set of its parameters, such as %s<%s>"
               : "a kernel is compiled for each set of its parameters; none is in the cache%s%s",
             n ? story_text(json_array_get(kernels, 0), "kernel", name) : "", b.data ? b.data : "");
    vt_buf_release(&b);
}

void mini_tell_dependencies(lab *l, const json_t *env)
{
    const json_t *ops = story_get(env, "ops"), *rows, *r;
    const char *op;
    char row[STORY_TEXT], device[STORY_TEXT], needs[STORY_TEXT];
    size_t i;
    if (!json_is_object(ops)) {
        lab_item(l, "dependencies",
                 "CPU rows need nothing; GPU rows need the driver and NVRTC, and "
                 "row cublaslt of linear needs cuBLASLt");
        return;
    }
    lab_table(l, "dependencies", "what each kernel needs",
              "op|CPU rows|GPU rows|GPU rows need|here");
    json_object_foreach((json_t *)(uintptr_t)ops, op, rows)
    {
        vt_buf cpu = {0}, gpu = {0}, need = {0};
        bool here = false;
        json_array_foreach(rows, i, r)
        {
            bool cuda = strcmp(story_text(r, "device", device), "cuda") == 0;
            vt_buf *b = cuda ? &gpu : &cpu;
            vt_buf_printf(b, "%s%s", b->len ? " " : "", story_text(r, "row", row));
            here |= cuda == (l->ordinal >= 0) && json_is_true(story_get(r, "here"));
            if (*story_text(r, "needs", needs) && (!need.data || !strstr(need.data, needs)))
                vt_buf_printf(&need, "%s%s", need.len ? " " : "", needs);
        }
        lab_cell(l, "%s", op);
        lab_cell(l, "%.30s", cpu.len ? cpu.data : "none");
        lab_cell(l, "%.22s", gpu.len ? gpu.data : "none");
        lab_cell(l, "%s", need.len ? need.data : "nothing");
        lab_cell(l, here ? "yes" : "no");
        vt_buf_release(&cpu);
        vt_buf_release(&gpu);
        vt_buf_release(&need);
    }
    lab_table_end(l);
}
