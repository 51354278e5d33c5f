/* Tells what a server of the experiments holds in memory, and what a step of it must read. */
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "base/err.h"
#include "lab/experiments/experiments.h"

double lab_resident_bytes(int pid)
{
    char path[64];
    long long size = 0, resident = 0;
    snprintf(path, sizeof path, "/proc/%d/statm", pid);
    FILE *f = fopen(path, "r");
    int n = f ? fscanf(f, "%lld %lld", &size, &resident) : 0;
    if (f)
        fclose(f);
    return n == 2 ? (double)resident * (double)sysconf(_SC_PAGESIZE) : NAN;
}

static double number_of(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

void lab_server_memory_read(const json_t *info, lab_server_memory *out)
{
    *out = (lab_server_memory){.weights = number_of(info, "weights_bytes"),
                               .kv = number_of(info, "kv_bytes"),
                               .kv_token = number_of(info, "kv_page_bytes") /
                                           number_of(info, "page_size")};
}

vt_status lab_server_memory_of(const lab_server *s, lab_server_memory *out, vt_err *err)
{
    json_t *info = NULL;
    TRY(lab_server_json(s, "/server_info", &info, err));
    lab_server_memory_read(info, out);
    json_decref(info);
    return VT_OK;
}

double lab_step_bytes(const lab_server_memory *m, double n, double tokens)
{
    return m->weights + n * tokens * m->kv_token;
}

double lab_batch_gain(const lab_server_memory *m, double n, double tokens)
{
    return n * lab_step_bytes(m, 1, tokens) / lab_step_bytes(m, n, tokens);
}

vt_status lab_write_memory(lab *l, const lab_server *s, const lab_server_memory *m, vt_err *err)
{
    vt_buf text = {0};
    vt_buf_printf(&text, "        bytes  what\n");
    vt_buf_printf(&text, "%13.0f  resident memory of the server (process %d)\n",
                  lab_resident_bytes(s->pid), s->pid);
    vt_buf_printf(&text, "%13.0f  weights\n", m->weights);
    vt_buf_printf(&text, "%13.0f  KV pages that it may use\n", m->kv);
    vt_buf_printf(&text, "%13.0f  KV of one token, in all layers\n", m->kv_token);
    vt_status status = lab_write_text(l, "memory_summary.txt", &text, "memory of the server", err);
    vt_buf_release(&text);
    return status;
}
