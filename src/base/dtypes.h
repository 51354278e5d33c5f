/* The list of element types: one row a type, from which the enumeration, the table of sizes, the
 * numbers in GGUF files and the forms that kernels read are made. There is no include guard: a file
 * that includes the list defines VT_DTYPE before, VT_QUANT, or both. Without a VT_QUANT of its own
 * a quantised type's row is a VT_DTYPE too.
 *
 *   VT_DTYPE(name, elements and bytes of a block, its number in GGUF files or -1, ...)
 *   VT_QUANT(name, elements and bytes of a block, its number in GGUF files, bits, offset, flags)
 *
 * A quantised value is scale * (quant - offset), or scale * quant + minimum. `bits` are those of a
 * quant as kernels read it: where a file has places in a table (IQ4_NL, IQ4_XS, MXFP4), the values
 * themselves; Q3_K is read in the form of Q6_K, which holds it exactly. Flags:
 *
 *   VT_FORM_MIN     each scale has a minimum beside it
 *   VT_FORM_HALVES  a scale covers 16 columns
 *   VT_FORM_SUPER   scales are integers, multiplied by one scale for all 256 columns
 *   VT_FORM_POWER   a scale is a power of two, which kernels read as BF16 (others are F16) */
#ifndef VT_DTYPE
#define VT_DTYPE(...)
#endif
#ifndef VT_QUANT
#define VT_QUANT(...) VT_DTYPE(__VA_ARGS__)
#endif
VT_DTYPE(F32, 1, 4, 0, 0, 0, 0)
VT_DTYPE(F16, 1, 2, 1, 0, 0, 0)
VT_DTYPE(BF16, 1, 2, 30, 0, 0, 0)
VT_DTYPE(FP8_E4M3, 1, 1, -1, 0, 0, 0)
VT_QUANT(Q8_0, 32, 34, 8, 8, 128, 0)
VT_QUANT(Q4_0, 32, 18, 2, 4, 8, 0)
VT_QUANT(Q4_1, 32, 20, 3, 4, 0, VT_FORM_MIN)
VT_QUANT(Q5_0, 32, 22, 6, 5, 16, 0)
VT_QUANT(Q5_1, 32, 24, 7, 5, 0, VT_FORM_MIN)
VT_QUANT(Q4_K, 256, 144, 12, 4, 0, VT_FORM_MIN | VT_FORM_SUPER)
VT_QUANT(Q5_K, 256, 176, 13, 5, 0, VT_FORM_MIN | VT_FORM_SUPER)
VT_QUANT(Q6_K, 256, 210, 14, 6, 32, VT_FORM_HALVES | VT_FORM_SUPER)
VT_QUANT(Q3_K, 256, 110, 11, 6, 32, VT_FORM_HALVES | VT_FORM_SUPER)
VT_QUANT(Q2_K, 256, 84, 10, 2, 0, VT_FORM_MIN | VT_FORM_HALVES | VT_FORM_SUPER)
VT_QUANT(IQ4_NL, 32, 18, 20, 8, 128, 0)
VT_QUANT(IQ4_XS, 256, 136, 23, 8, 128, VT_FORM_SUPER)
VT_QUANT(MXFP4, 32, 17, 39, 8, 128, VT_FORM_POWER)
VT_DTYPE(I8, 1, 1, 24, 0, 0, 0)
VT_DTYPE(U8, 1, 1, -1, 0, 0, 0)
VT_DTYPE(I32, 1, 4, 26, 0, 0, 0)
VT_DTYPE(I64, 1, 8, 27, 0, 0, 0)
#undef VT_DTYPE
#undef VT_QUANT
