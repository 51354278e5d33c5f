/* The instructions of AMX that linear uses, as macros over the number of a tile register.
 *
 * tests/unit/common/amx_in_c.h has the same names in plain C, so that the code over them is tested
 * on machines without AMX. GCC 12's _tile_loadconfig tells the compiler that it reads 8 of the 64
 * bytes, so there are wrappers here. */
#ifndef VT_OPS_LINEAR_AMX_TILE_H
#define VT_OPS_LINEAR_AMX_TILE_H

#include "ops/linear/cpu/linear_vec.h"

typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

INLINE void tile_configure(const tile_config *c) { __asm__ volatile("ldtilecfg %0" : : "m"(*c)); }
INLINE void tile_release(void) { __asm__ volatile("tilerelease" : : : "memory"); }

#define TILE_ZERO(t) __asm__ volatile("tilezero %%tmm" #t : :)
#define TILE_LOAD(t, p, stride)                       \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t  \
                     :                                \
                     : "r"(p), "r"((int64_t)(stride)) \
                     : "memor"                        \
                       "y")
#define TILE_STORE(t, p, stride)                         \
    __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" \
                     :                                   \
                     : "r"(p), "r"((int64_t)(stride))    \
                     : "memory")
/* c += a b: a signed, b unsigned or signed. */
#define TILE_DOT_SU(c, a, b) __asm__ volatile("tdpbsud %%tmm" #b ", %%tmm" #a ", %%tmm" #c : :)
#define TILE_DOT_SS(c, a, b) __asm__ volatile("tdpbssd %%tmm" #b ", %%tmm" #a ", %%tmm" #c : :)
#define TILE_DOT_BF16(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c : :)

#endif
