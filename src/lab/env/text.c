/* Compiler, kernels, libraries, profiling, attempts and advice as text (lab/env/env.h). */
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "lab/env/env.h"
#include "model/load.h"

const char lab_env_jit_trigger[] =
    "A kernel is compiled when a call needs an instance (its source, its template parameters, the "
    "GPU's architecture) whose file is not in the cache: at the first start of a model, or at "
    "env --try.";
const char lab_env_jit_invalid[] =
    "A file's name is a 128-bit hash of the source with all headers, the kernel's name and the "
    "flags, followed by NVRTC's version: a change of one of these makes a new file, and time "
    "stamps "
    "are never compared.";

/* ---- the compiler ---- */

static void put_tool(vt_buf *b, const vt_term *term, const vt_tool *t, const char *more)
{
    vt_buf text = {0};
    if (t->runs)
        vt_buf_printf(&text, "%s at %s%s", t->version, t->path, more);
    else
        vt_buf_printf(&text, "no: %s%s", t->why, t->found ? "" : more);
    lab_env_line_of(b, term, t->name, &text);
}

void lab_env_put_compiler(vt_buf *b, const vt_term *term, const lab_env *e)
{
    vt_buf text = {0};
    if (e->nvrtc)
        vt_buf_printf(&text, "%d.%d at %s", e->nvrtc_major, e->nvrtc_minor, e->nvrtc_path);
    else
        vt_buf_printf(&text, "no: %s", e->nvrtc_err.message);
    lab_env_line_of(b, term, "NVRTC", &text);
    put_tool(b, term, &e->tool[LAB_ENV_NVCC], "; it is not needed, NVRTC compiles");
    vt_jit_flags(e->arch[0] ? e->arch : "sm_XX", &text, NULL);
    vt_buf_puts(&text, " and -DNAME=VALUE for each template parameter");
    lab_env_line_of(b, term, "flags", &text);
    lab_env_line(b, term, "compiles", lab_env_jit_trigger);
    lab_env_line(b, term, "compiles anew", lab_env_jit_invalid);
}

/* ---- what each op needs ---- */

typedef struct needs {
    int32_t cpu, own, by_library; /* rows: of this CPU, with kernels of our own, with a library */
    const char *library;
} needs;

static needs needs_of(const vt_op *op, const lab_env *e)
{
    needs n = {0};
    for (const vt_impl *const *i = op->impls; *i; i++) {
        if ((*i)->device == VT_DEVICE_CPU) {
            n.cpu += vt_isa_has(vt_cpu_get()->level, (*i)->isa);
        } else if (e->level == 0 || (*i)->level <= e->level) {
            n.own += !(*i)->library;
            n.by_library += (*i)->library != NULL;
            n.library = (*i)->library ? (*i)->library : n.library;
        }
    }
    return n;
}

static void put_here(vt_buf *text, const needs *n, const lab_env *e)
{
    vt_buf_puts(text, n->cpu ? "CPU" : "");
    if (e->gpu && n->own && (e->nvrtc || e->n_cached))
        vt_buf_printf(text, "%sGPU", text->len ? ", " : "");
    if (e->gpu && n->own && !e->nvrtc)
        vt_buf_puts(text, e->n_cached ? " from the cache" : ", GPU not: no NVRTC");
    if (e->gpu && n->library && !lab_env_has(e, n->library))
        vt_buf_printf(text, ", without %s", n->library);
}

void lab_env_put_needs(vt_buf *b, const vt_term *term, const lab_env *e)
{
    vt_table t;
    vt_table_init(&t, "op|>rows on this CPU|>GPU rows by NVRTC|>GPU rows by a library|runs here");
    for (const vt_op *const *op = vt_ops; *op; op++) {
        needs n = needs_of(*op, e);
        vt_buf here = {0};
        put_here(&here, &n, e);
        vt_table_cell(&t, "%s", (*op)->name);
        vt_table_cell(&t, "%d", n.cpu);
        vt_table_cell(&t, "%d", n.own);
        if (n.by_library)
            vt_table_cell(&t, "%d (%s)", n.by_library, n.library);
        else
            vt_table_cell(&t, "0");
        vt_table_cell(&t, "%s", here.data ? here.data : "no");
        vt_buf_release(&here);
    }
    vt_table_finish(&t, b, term, 2);
}

/* ---- libraries and profiling ---- */

void lab_env_put_libraries(vt_buf *b, const vt_term *term, const lab_env *e)
{
    vt_buf text = {0};
    for (int32_t i = 0; i < e->n_libraries; i++) {
        const lab_env_library *l = &e->library[i];
        vt_buf_printf(&text, "%s%s (%s)", l->there ? "" : "no: ", l->found, l->library->purpose);
        lab_env_line_of(b, term, l->library->name, &text);
    }
}

void lab_env_put_profiling(vt_buf *b, const vt_term *term, const lab_env *e)
{
    const vt_tool *ncu = &e->tool[LAB_ENV_NCU];
    lab_env_put_tiers(b, term, e);
    if (e->gpu && !e->emulated)
        lab_env_line(b, term, "ncu, nsys", e->counters_why);
    put_tool(b, term, &e->tool[LAB_ENV_NSYS], "");
    put_tool(b, term, ncu, "");
}

/* ---- attempts ---- */

static void cell_number(vt_table *t, double v)
{
    if (isfinite(v))
        vt_table_cell(t, "%.2g", v);
    else
        vt_table_cell(t, "n/a");
}

static void put_attempt(vt_table *t, const vt_try *a)
{
    vt_buf text = {0};
    vt_table_cell(t, "%s", a->op->name);
    vt_table_cell(t, "%s", a->device == VT_DEVICE_CUDA ? "GPU" : "CPU");
    vt_table_cell(t, "%s", a->impl ? a->impl->name : "none");
    if (a->device == VT_DEVICE_CPU)
        vt_table_cell(t, "built in");
    else if (a->n_kernels == 0 || a->compile_ms <= 0)
        vt_table_cell(t, "n/a");
    else {
        vt_text_time(&text, a->compile_ms * 1e-3);
        vt_table_cell(t, "%s%s", text.data ? text.data : "", a->cached ? " (cached)" : "");
    }
    vt_buf_release(&text);
    cell_number(t, a->error);
    cell_number(t, a->allowed);
    vt_table_cell(t, "%s", a->good ? "OK" : "FAILED");
}

void lab_env_put_tries(vt_buf *b, const vt_term *term, const lab_env *e)
{
    vt_table t;
    vt_table_init(&t, "op|on|row|>compiled in|>error|>allowed|result");
    for (int32_t i = 0; i < e->n_attempts; i++)
        put_attempt(&t, &e->attempt[i]);
    vt_table_finish(&t, b, term, 2);
    for (int32_t i = 0; i < e->n_attempts; i++)
        if (!e->attempt[i].good)
            lab_env_line(b, term, e->attempt[i].op->name, e->attempt[i].why);
}

/* ---- advice ---- */

void lab_env_put_advice(vt_buf *b, const vt_term *term, const lab_env *e)
{
    vt_buf text = {0};
    if (e->n_advice == 0)
        lab_env_line(b, term, "nothing", "all that vitrine can use is here");
    for (int32_t i = 0; i < e->n_advice; i++) {
        vt_buf_printf(&text, "%s -> %s", e->advice[i].seen, e->advice[i].action);
        vt_buf_puts(b, "  ");
        vt_text_wrap(b, text.data ? text.data : "", 6, term->width);
        vt_buf_putc(b, '\n');
        vt_buf_clear(&text);
    }
    vt_buf_release(&text);
}

void lab_env_put_ready(vt_buf *b, const vt_term *term, const lab_env *e)
{
    vt_buf text = {0};
    int32_t n = 0;
    if (lab_env_ready(e)) {
        vt_buf_puts(&text, "environment is READY for CPU");
        if (e->gpu)
            vt_buf_printf(&text, " and GPU %d (%s%s)", e->ordinal, e->gpu_name,
                          e->emulated ? ": results, no times" : "");
        if (!e->has_lab_model)
            vt_buf_printf(&text, ", but the labs' model on a CPU is not %s%s",
                          vt_model_is_name(e->lab_model) ? "in the cache: vitrine pull "
                                                         : "there: ",
                          e->lab_model);
    } else {
        vt_buf_puts(&text, "environment is not ready: ");
        for (int32_t i = 0; i < e->n_advice; i++)
            if (e->advice[i].blocks)
                vt_buf_printf(&text, "%s%s", n++ ? "; " : "", e->advice[i].seen);
    }
    vt_text_wrap(b, text.data ? text.data : "", 2, term->width);
    vt_buf_putc(b, '\n');
    b->failed |= text.failed;
    vt_buf_release(&text);
}
