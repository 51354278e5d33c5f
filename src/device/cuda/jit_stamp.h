/* The text of a stamped kernel (stamp.cuh); private to the JIT.
 *
 * The kernel's entry becomes a function, and a new entry of the same name calls it between stamps.
 * Its returns, also early ones, so end the function and not the kernel. pdl_wait(), which may be
 * called anywhere in it, finds the address of the stamps in the entry's parameter:
 *
 *   KERNEL __launch_bounds__(256) add(const __grid_constant__ add_params p)
 *   { ...
 *
 *   INLINE void add_body(const add_params &p);
 *   struct alignas(64) add_stamped { add_params p; u64 *at, *ctas; };
 *   INLINE void stamp_waited()
 *   { u64 *at; asm("ld.param.u64 %0, [add_param_0 + offset];"); stamp_once(at + STAMP_WAITED); }
 *   STAMPED_KERNEL __launch_bounds__(256) add(const __grid_constant__ add_stamped s)
 *   { if (STAMPED & STAMP_CTAS && s.ctas) stamp_cta_begin(s.ctas);
 *     stamp_begin(s.at); add_body(s.p); if (STAMPED & STAMP_ENDS) stamp_end(s.at);
 *     if (STAMPED & STAMP_CTAS && s.ctas) stamp_cta_end(s.ctas); }
 *   INLINE void add_body(const add_params &p)
 *   { ...
 *
 * all but the last line in one, so that the compiler's messages name the right ones. */
#ifndef VT_DEVICE_CUDA_JIT_STAMP_H
#define VT_DEVICE_CUDA_JIT_STAMP_H

#include "base/buf.h"

/* Appends the text of a kernel with its entry `kernel` stamped. False: the text has no such entry
 * of the form above, and nothing was appended. */
bool jit_stamp_text(vt_buf *out, const char *text, const char *kernel);

#endif
