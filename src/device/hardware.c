/* Hardware by name (the table) and from files (device/hardware.h).
 *
 * The H200's memory and bf16 figures are those that `vitrine env` measured on one; the labs'
 * results of it (labs/sglang/results/h200) are held against them. A library's GEMM gets 730
 * TFLOP/s of the 966 that the matrix unit does. All other figures are those of NVIDIA's data
 * sheets, without sparsity, and are tagged so. No program reaches all of a data sheet's figure:
 * of the H200's 4.8 TB/s reads get 4.62. */
#include "device/hardware.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/err.h"
#include "device/roofs/roofs_cache.h"
#include "files/json.h"

#define DATA_SHEET "NVIDIA's data sheet"
#define SHEET                \
    {                        \
        VT_ROOF_DATASHEET, 0 \
    }
#define MEASURED            \
    {                       \
        VT_ROOF_MEASURED, 0 \
    }

/* Links are told in both directions together: NVLink of Hopper has 900 GB/s, of Ampere 600, PCIe 5
 * x16 128 GB/s and PCIe 4 x16 64. The PCIe A100 is taken without the bridge that pairs two. */
static const vt_hardware table[] = {
#define HOPPER(memory_and_bf16)                                                       \
    .is_gpu = true, .fp32_per_s = 67e12, .fp8_per_s = 1979e12, .int8_per_s = 1979e12, \
    .l2_size = 50 << 20,                                                              \
    .mark = {[VT_ROOF_MEMORY] = memory_and_bf16,                                      \
             [VT_ROOF_BF16] = memory_and_bf16,                                        \
             [VT_ROOF_FP32] = SHEET,                                                  \
             [VT_ROOF_FP8] = SHEET,                                                   \
             [VT_ROOF_INT8] = SHEET,                                                  \
             [VT_ROOF_TO_DEVICE] = SHEET,                                             \
             [VT_ROOF_FROM_DEVICE] = SHEET},                                          \
    .to_device_bytes_per_s = 64e9, .from_device_bytes_per_s = 64e9
    {.roofs = {.name = "h200",
               .memory_bytes_per_s = 4.62e12,
               .bf16_per_s = 966e12,
               .bf16_how = "wgmma from shared memory",
               HOPPER(MEASURED)},
     .source = "memory and bf16 measured on one by vitrine env; the rest is of " DATA_SHEET,
     .memory_bytes = INT64_C(141000000000),
     .peer_bytes_per_s = 450e9,
     .kernel_level = 90,
     .sm_count = 132,
     .max_shared_bytes = 227 << 10},
    {.roofs = {.name = "h100", .memory_bytes_per_s = 3.35e12, .bf16_per_s = 989e12, HOPPER(SHEET)},
     .source = DATA_SHEET " of the SXM one with 80 GB",
     .memory_bytes = INT64_C(80000000000),
     .peer_bytes_per_s = 450e9,
     .kernel_level = 90,
     .sm_count = 132,
     .max_shared_bytes = 227 << 10},
#define A100                                                                           \
    .is_gpu = true, .fp32_per_s = 19.5e12, .bf16_per_s = 312e12, .int8_per_s = 624e12, \
    .l2_size = 40 << 20,                                                               \
    .mark = {[VT_ROOF_MEMORY] = SHEET,                                                 \
             [VT_ROOF_BF16] = SHEET,                                                   \
             [VT_ROOF_FP32] = SHEET,                                                   \
             [VT_ROOF_INT8] = SHEET}
    {.roofs = {.name = "a100-80gb-sxm", .memory_bytes_per_s = 2.039e12, A100},
     .source = DATA_SHEET,
     .memory_bytes = INT64_C(80000000000),
     .peer_bytes_per_s = 300e9,
     .kernel_level = 80,
     .sm_count = 108,
     .max_shared_bytes = 163 << 10},
    {.roofs = {.name = "a100-80gb-pcie", .memory_bytes_per_s = 1.935e12, A100},
     .source = DATA_SHEET,
     .memory_bytes = INT64_C(80000000000),
     .peer_bytes_per_s = 32e9,
     .kernel_level = 80,
     .sm_count = 108,
     .max_shared_bytes = 163 << 10},
};

enum { N = sizeof table / sizeof table[0], MAX_FILE = 1 << 20 };

const vt_hardware *vt_hardware_find(const char *name, vt_err *err)
{
    vt_buf names = {0};
    for (int32_t i = 0; i < N; i++) {
        if (strcasecmp(name, table[i].roofs.name) == 0) {
            vt_buf_release(&names);
            return &table[i];
        }
        vt_buf_printf(&names, ", %s", table[i].roofs.name);
    }
    vt_fail(err, VT_ERR_USAGE,
            "hardware '%.60s' is not in the table, expected this%s, or a file of vitrine env "
            "--json (a name with a '/' or a '.')",
            name, names.data ? names.data : "");
    vt_buf_release(&names);
    return NULL;
}

/* Memory bandwidth and bf16 rate from NVIDIA's data sheets, where the table has measured figures
 * instead. */
static const vt_hardware h200_sheet = {
    .peer_bytes_per_s = 450e9,
    .roofs = {.name = "h200",
              .memory_bytes_per_s = 4.8e12,
              .bf16_per_s = 989e12,
              .fp32_per_s = 67e12,
              .fp8_per_s = 1979e12,
              .int8_per_s = 1979e12},
};

const vt_hardware *vt_hardware_sheet(const char *device_name)
{
    if (strstr(device_name, "H200"))
        return &h200_sheet;
    if (strstr(device_name, "H100 80GB HBM3")) /* the SXM one */
        return &table[1];
    if (strstr(device_name, "A100-SXM4-80GB"))
        return &table[2];
    if (strstr(device_name, "A100 80GB PCIe"))
        return &table[3];
    return NULL;
}

/* ---- files ---- */

/* Reads an integer in a range that no machine leaves. */
static vt_status read_count(const char *path, const json_t *o, const char *key, double least,
                            double most, int64_t *out, vt_err *err)
{
    double v = 0;
    TRY(vt_read_f64(path, o, key, true, &v, err));
    if (!(v >= least && v <= most))
        return vt_fail(err, VT_ERR_FORMAT, "%s: %s is %g, expected a number from %g to %g", path,
                       key, v, least, most);
    *out = (int64_t)v;
    return VT_OK;
}

static vt_status read_roofs(const char *path, const json_t *device, const json_t *roofs,
                            const char *name_key, vt_hardware *h, vt_err *err)
{
    const char *name = NULL;
    TRY(vt_read_str(path, device, name_key, true, &name, err));
    snprintf(h->roofs.name, sizeof h->roofs.name, "%s", name);
    for (char *c = h->roofs.name; *c; c++) /* the name goes to a terminal */
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = '?';
    roofs_get_figures(json_object_get(roofs, "figures"), &h->roofs);
    if (!(h->roofs.memory_bytes_per_s > 0))
        return vt_fail(err, VT_ERR_FORMAT,
                       "%s: roofs.figures.memory_bytes_per_s is missing or no rate, expected what "
                       "vitrine env --json prints",
                       path);
    if (!(h->roofs.fp32_per_s > 0 || h->roofs.bf16_per_s > 0))
        return vt_fail(err, VT_ERR_FORMAT,
                       "%s: roofs.figures has neither fp32_per_s nor bf16_per_s, expected one",
                       path);
    vt_efficiencies_get(&h->efficiencies, json_object_get(roofs, "efficiencies"));
    return VT_OK;
}

static vt_status read_gpu(const char *path, const json_t *gpu, vt_hardware *h, vt_err *err)
{
    int64_t level = 0, sms = 0, shared = 0;
    TRY(read_roofs(path, gpu, json_object_get(gpu, "roofs"), "name", h, err));
    TRY(read_count(path, gpu, "memory_bytes", 1 << 20, 1e15, &h->memory_bytes, err));
    TRY(read_count(path, gpu, "level", 80, 90, &level, err));
    TRY(read_count(path, gpu, "multiprocessors", 1, 4096, &sms, err));
    TRY(read_count(path, gpu, "max_shared_bytes", 48 << 10, 1 << 24, &shared, err));
    TRY(read_count(path, gpu, "l2_bytes", 0, 1e12, &h->roofs.l2_size, err));
    if (level != 80 && level != 90)
        return vt_fail(err, VT_ERR_FORMAT, "%s: level is %lld, expected 80 or 90", path,
                       (long long)level);
    h->roofs.is_gpu = true;
    h->kernel_level = (int32_t)level;
    h->sm_count = (int32_t)sms;
    h->max_shared_bytes = (int32_t)shared;
    return VT_OK;
}

static vt_status read_cpu(const char *path, const json_t *root, vt_hardware *h, vt_err *err)
{
    const json_t *cpu = vt_read_member(root, "cpu"), *roofs = vt_read_member(root, "roofs");
    int64_t threads = 0, cores = 0, l2 = 0;
    const char *level = NULL;
    if (!json_is_object(cpu) || !json_is_object(roofs))
        return vt_fail(err, VT_ERR_FORMAT,
                       "%s: no members cpu and roofs, expected what vitrine env --json prints",
                       path);
    TRY(read_roofs(path, cpu, roofs, "model", h, err));
    TRY(read_count(path, cpu, "memory_bytes", 1 << 20, 1e15, &h->memory_bytes, err));
    TRY(read_count(path, cpu, "cores", 1, 65536, &cores, err));
    TRY(read_count(path, cpu, "l2_bytes", 0, 1e12, &l2, err));
    TRY(read_count(path, cpu, "l3_bytes", 0, 1e12, &h->roofs.l3_size, err));
    TRY(read_count(path, roofs, "threads", 1, 65536, &threads, err));
    TRY(vt_read_str(path, cpu, "level", true, &level, err));
    h->is_cpu = true;
    h->roofs.threads = (int32_t)threads;
    h->roofs.l2_size = l2 * (threads < cores ? threads : cores);
    snprintf(h->roofs.level, sizeof h->roofs.level, "%.15s", level);
    for (int i = 0; i < VT_ISA_COUNT; i++)
        if (strcmp(level, vt_isa_name((vt_isa)i)) == 0) {
            h->isa = (vt_isa)i;
            return VT_OK;
        }
    return vt_fail(err, VT_ERR_FORMAT, "%s: cpu.level is '%.20s', expected one such as avx2", path,
                   h->roofs.level);
}

static vt_status read_machine(const char *path, const json_t *root, bool cpu, vt_hardware *out,
                              vt_err *err)
{
    const json_t *gpu = vt_read_member(root, "gpu");
    bool has_gpu = json_is_object(gpu) && json_is_object(json_object_get(gpu, "roofs"));
    *out = (vt_hardware){.source = "measured there, from a file"};
    vt_status status = has_gpu && !cpu ? read_gpu(path, gpu, out, err)
                                       : read_cpu(path, root, out, err);
    if (status != VT_OK)
        vt_hardware_release(out);
    return status;
}

vt_status vt_hardware_parse(const char *path, const char *text, size_t len, bool cpu,
                            vt_hardware *out, vt_err *err)
{
    json_t *root = NULL;
    TRY(vt_read_json_text(path, text, len, &root, err));
    vt_status status = read_machine(path, root, cpu, out, err);
    json_decref(root);
    return status;
}

vt_status vt_hardware_load(const char *path, bool cpu, vt_hardware *out, vt_err *err)
{
    json_t *root = NULL;
    TRY(vt_read_json(path, MAX_FILE, &root, err));
    vt_status status = read_machine(path, root, cpu, out, err);
    json_decref(root);
    return status;
}

void vt_hardware_release(vt_hardware *h)
{
    if (!h)
        return;
    vt_efficiencies_release(&h->efficiencies);
    *h = (vt_hardware){0};
}

vt_status vt_hardware_open(const char *text, bool cpu, vt_hardware *out, vt_err *err)
{
    if (strchr(text, '/') || strchr(text, '.'))
        return vt_hardware_load(text, cpu, out, err);
    const vt_hardware *named = vt_hardware_find(text, err);
    if (!named)
        return VT_ERR_USAGE;
    *out = *named;
    return VT_OK;
}
