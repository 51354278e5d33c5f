/* The table of named GPUs (device/hardware.h).
 *
 * The H200's figures were measured with libraries at large sizes: the device's read bandwidth, and
 * cuBLAS in bf16 at M = 2048 (the scripts are in bench/peers). Its fp32 and fp8 are left out until
 * they are measured. The other GPUs' figures are those of NVIDIA's data sheets, without sparsity.
 * No program reaches all of a data sheet's figure: of the H200's 4.8 TB/s reads get 4.25. */
#include "device/hardware.h"

#include <strings.h>

#include "base/buf.h"
#include "base/err.h"

#define DATA_SHEET "NVIDIA's data sheet"

static const vt_hardware table[] = {
    {.roofs = {.name = "h200",
               .memory_bytes_per_s = 4.25e12,
               .bf16_per_s = 730e12,
               .bf16_how = "cuBLAS, 4096 x 12288"},
     .source = "measured on one, with libraries",
     .memory_bytes = INT64_C(141000000000),
     .kernel_level = 90,
     .sm_count = 132,
     .max_shared_bytes = 227 << 10},
    {.roofs = {.name = "h100",
               .memory_bytes_per_s = 3.35e12,
               .fp32_per_s = 67e12,
               .bf16_per_s = 989e12,
               .fp8_per_s = 1979e12},
     .source = DATA_SHEET " of the SXM one with 80 GB",
     .memory_bytes = INT64_C(80000000000),
     .kernel_level = 90,
     .sm_count = 132,
     .max_shared_bytes = 227 << 10},
    {.roofs = {.name = "a100-80gb-sxm",
               .memory_bytes_per_s = 2.039e12,
               .fp32_per_s = 19.5e12,
               .bf16_per_s = 312e12},
     .source = DATA_SHEET,
     .memory_bytes = INT64_C(80000000000),
     .kernel_level = 80,
     .sm_count = 108,
     .max_shared_bytes = 163 << 10},
    {.roofs = {.name = "a100-80gb-pcie",
               .memory_bytes_per_s = 1.935e12,
               .fp32_per_s = 19.5e12,
               .bf16_per_s = 312e12},
     .source = DATA_SHEET,
     .memory_bytes = INT64_C(80000000000),
     .kernel_level = 80,
     .sm_count = 108,
     .max_shared_bytes = 163 << 10},
};

enum { N = sizeof table / sizeof table[0] };

const vt_hardware *vt_hardware_find(const char *name, vt_err *err)
{
    vt_buf names = {0};
    for (int32_t i = 0; i < N; i++) {
        if (strcasecmp(name, table[i].roofs.name) == 0) {
            vt_buf_release(&names);
            return &table[i];
        }
        vt_buf_printf(&names, "%s%s", i == N - 1 ? " or " : ", ", table[i].roofs.name);
    }
    vt_fail(err, VT_ERR_USAGE, "hardware '%.60s' is not in the table, expected this%s", name,
            names.data ? names.data : "");
    vt_buf_release(&names);
    return NULL;
}
