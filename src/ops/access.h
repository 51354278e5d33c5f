/* Access to single elements of float tensors of any type. The scalar references use it. */
#ifndef VT_OPS_ACCESS_H
#define VT_OPS_ACCESS_H

#include <stdbool.h>

#include "base/tensor.h"

static inline bool dtype_is_float(vt_dtype t) { return t == VT_F32 || t == VT_F16 || t == VT_BF16; }
/* Returns true if a KV pool may have elements of this type. */
static inline bool dtype_is_kv(vt_dtype t) { return dtype_is_float(t) || t == VT_FP8_E4M3; }

static inline float tensor_get(const vt_tensor *t, int64_t row, int64_t col)
{
    int64_t at = row * t->row_stride + col;
    switch (t->dtype) {
    case VT_F16:
        return vt_f16_to_f32(((const uint16_t *)t->data)[at]);
    case VT_BF16:
        return vt_bf16_to_f32(((const uint16_t *)t->data)[at]);
    case VT_FP8_E4M3:
        return vt_fp8_e4m3_to_f32(((const uint8_t *)t->data)[at]);
    default:
        return ((const float *)t->data)[at];
    }
}

static inline void tensor_set(vt_tensor *t, int64_t row, int64_t col, float x)
{
    int64_t at = row * t->row_stride + col;
    if (t->dtype == VT_F16)
        ((uint16_t *)t->data)[at] = vt_f32_to_f16(x);
    else if (t->dtype == VT_BF16)
        ((uint16_t *)t->data)[at] = vt_f32_to_bf16(x);
    else if (t->dtype == VT_FP8_E4M3)
        ((uint8_t *)t->data)[at] = vt_f32_to_fp8_e4m3(x);
    else
        ((float *)t->data)[at] = x;
}

/* Row i of an fp32 tensor. */
static inline float *row_f32(const vt_tensor *t, int64_t i)
{
    return (float *)t->data + i * t->row_stride;
}

#endif
