/* What a kernel sees besides its own text. A PTX instruction is a function ptx_*. Its name is that
 * of the instruction with dots as underscores (:: as two); its arguments are the operands in the
 * order of the PTX text, without braces and brackets. nvrtc.cc turns asm statements into calls of
 * these functions. A new instruction needs one more function here and nothing else. */

#if defined __x86_64__
register emu_thread *emu asm("r15");
#else
register emu_thread *emu asm("x28");
#endif

typedef __SIZE_TYPE__ size_t;
typedef __PTRDIFF_TYPE__ ptrdiff_t;

#define EMU_TEXT_(x) #x
#define EMU_TEXT(x) EMU_TEXT_(x)
#define EMU_SITE (emu->site = __FILE__ ":" EMU_TEXT(__LINE__))

/* ---- the language ---- */

#define __global__
#define __device__
#define __host__
#define __constant__ static const
/* Where g++ may choose, a kernel of 98 KB compiles in 0.37 s in place of 1.6, and runs as fast. The
 * race detector's messages name the line of an access in the kernel, not in what it calls. */
#ifdef EMU_RACE
#define __forceinline__ inline __attribute__((always_inline))
#else
#define __forceinline__ inline
#endif
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __grid_constant__
#define __restrict__ __restrict
#define threadIdx (emu->thread)
#define blockIdx (emu->block)
#define blockDim (emu->block_dim)
#define gridDim (emu->grid_dim)
#define warpSize 32

#define EMU_VECTOR(T, name, size)                                                         \
    struct __attribute__((aligned(2 * size))) name##2 { T x, y; };                        \
    struct name##3 { T x, y, z; };                                                        \
    struct __attribute__((aligned(size == 8 ? 16 : 4 * size))) name##4 { T x, y, z, w; }; \
    inline name##2 make_##name##2(T x, T y) { return {x, y}; }                            \
    inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                    \
    inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
EMU_VECTOR(signed char, char, 1)
EMU_VECTOR(unsigned char, uchar, 1)
EMU_VECTOR(short, short, 2)
EMU_VECTOR(unsigned short, ushort, 2)
EMU_VECTOR(int, int, 4)
EMU_VECTOR(unsigned, uint, 4)
EMU_VECTOR(float, float, 4)
EMU_VECTOR(long long, longlong, 8)
EMU_VECTOR(unsigned long long, ulonglong, 8)
EMU_VECTOR(double, double, 8)
typedef uint3 dim3;

/* ---- warps ---- */

template <class T> inline T emu_shuffle_of(unsigned mask, int kind, T v, int param, int width)
{
    static_assert(sizeof(T) <= 8, "a shuffle moves 4 or 8 bytes");
    emu_u64 bits = 0;
    __builtin_memcpy(&bits, &v, sizeof v);
    bits = emu->api->shuffle(emu, mask, kind, bits, param, width);
    __builtin_memcpy(&v, &bits, sizeof v);
    return v;
}
template <class T> inline T emu_shfl(unsigned m, T v, int lane, int width = 32)
{
    return emu_shuffle_of(m, EMU_IDX, v, lane, width);
}
template <class T> inline T emu_shfl_up(unsigned m, T v, int d, int width = 32)
{
    return emu_shuffle_of(m, EMU_UP, v, d, width);
}
template <class T> inline T emu_shfl_down(unsigned m, T v, int d, int width = 32)
{
    return emu_shuffle_of(m, EMU_DOWN, v, d, width);
}
template <class T> inline T emu_shfl_xor(unsigned m, T v, int d, int width = 32)
{
    return emu_shuffle_of(m, EMU_XOR, v, d, width);
}
inline unsigned emu_ballot(unsigned m, int p)
{
    unsigned members;
    return emu->api->vote(emu, m, p, &members);
}
inline int emu_any(unsigned m, int p) { return emu_ballot(m, p) != 0; }
inline int emu_all(unsigned m, int p)
{
    unsigned members;
    return emu->api->vote(emu, m, p, &members) == members;
}
#define __shfl_sync(...) (EMU_SITE, emu_shfl(__VA_ARGS__))
#define __shfl_up_sync(...) (EMU_SITE, emu_shfl_up(__VA_ARGS__))
#define __shfl_down_sync(...) (EMU_SITE, emu_shfl_down(__VA_ARGS__))
#define __shfl_xor_sync(...) (EMU_SITE, emu_shfl_xor(__VA_ARGS__))
#define __ballot_sync(...) (EMU_SITE, emu_ballot(__VA_ARGS__))
#define __any_sync(...) (EMU_SITE, emu_any(__VA_ARGS__))
#define __all_sync(...) (EMU_SITE, emu_all(__VA_ARGS__))
inline void emu_syncwarp(unsigned mask = ~0u) { emu->api->sync_warp(emu, mask); }
#define __syncwarp(...) (EMU_SITE, emu_syncwarp(__VA_ARGS__))
#define __reduce_add_sync(m, v) (EMU_SITE, (decltype(v))emu->api->reduce(emu, m, 0, (emu_u64)(v)))
#define __reduce_max_sync(m, v)                                                                \
    (EMU_SITE, (decltype(v))emu->api->reduce(emu, m, sizeof(v) && (decltype(v))-1 < 0 ? 3 : 1, \
                                             (emu_u64)(v)))
#define __reduce_min_sync(m, v)                                                                \
    (EMU_SITE, (decltype(v))emu->api->reduce(emu, m, sizeof(v) && (decltype(v))-1 < 0 ? 4 : 2, \
                                             (emu_u64)(v)))

/* ---- CTAs ---- */

#define __syncthreads() (EMU_SITE, (void)emu->api->barrier(emu, 0, 0, 1, -1))
#define __syncthreads_count(p) (EMU_SITE, emu->api->barrier(emu, 0, 0, 1, (p) != 0))
#define __syncthreads_or(p) (EMU_SITE, emu->api->barrier(emu, 0, 0, 1, (p) != 0) != 0)
#define __syncthreads_and(p) (EMU_SITE, emu->api->barrier(emu, 0, 0, 1, !(p)) == 0)
inline void __threadfence() { emu->api->fence(emu, 0); }
inline void __threadfence_block() { emu->api->fence(emu, 0); }
inline void __threadfence_system() { emu->api->fence(emu, 0); }
#define __nanosleep(n) (EMU_SITE, emu->api->yield(emu))
#define __trap() (EMU_SITE, emu->api->fail(emu, "__trap()"))
#define assert(x) ((x) ? (void)0 : (EMU_SITE, emu->api->fail(emu, "assertion failed: " #x)))
inline size_t __cvta_generic_to_shared(const void *p)
{
    size_t offset = (const char *)p - emu->shared;
    if (offset > emu->shared_bytes)
        emu->api->fail(
            emu, "__cvta_generic_to_shared of an address that is not in the CTA's shared memory");
    return emu->shared_base + offset;
}
inline void *__cvta_shared_to_generic(size_t a) { return emu->api->shared(emu, (unsigned)a, 0); }

/* ---- atomics and loads ---- */

/* Kernels call these to declare harmless races (src/ops/ptx.cuh). */
inline void emu_loads_are_discarded(bool yes) { emu->discards = yes; }
inline void emu_stores_are_equal(bool yes) { emu->equals = yes; }

/* For the race detector (race.h) every access calls one of these functions, in place of the thread
 * sanitizer's own. Atomics report themselves, in functions that are not instrumented. */
#ifdef EMU_RACE
#define EMU_QUIET __attribute__((noinline, no_sanitize("thread")))
#define EMU_TAKE_FLAG(p) emu->api->take_flag(emu, p, __builtin_return_address(0))
#define EMU_GIVE_FLAG(p, v) emu->api->give_flag(emu, p, v, __builtin_return_address(0))
#define EMU_IS_ATOMIC(p, kind) \
    emu->api->atomic(emu, p, sizeof *(p), kind, __builtin_return_address(0))
#define EMU_HOOK(name, bytes, kind, call)                                     \
    __attribute__((no_sanitize("thread"))) void __tsan_##name(void *p)        \
    {                                                                         \
        if ((size_t)p - (size_t)emu->stack >= emu->stack_bytes &&             \
            (size_t)p - (size_t)emu >= sizeof(emu_thread))                    \
            emu->api->call(emu, p, bytes, kind, __builtin_return_address(0)); \
    }
#define EMU_HOOKS(n)                                          \
    EMU_HOOK(read##n, n, 0, access)                           \
    EMU_HOOK(write##n, n, EMU_WRITE, access)                  \
    EMU_HOOK(unaligned_read##n, n, 0, access)                 \
    EMU_HOOK(unaligned_write##n, n, EMU_WRITE, access)        \
    EMU_HOOK(volatile_read##n, n, EMU_READ, atomic)           \
    EMU_HOOK(volatile_write##n, n, EMU_WRITE, atomic)         \
    EMU_HOOK(unaligned_volatile_read##n, n, EMU_READ, atomic) \
    EMU_HOOK(unaligned_volatile_write##n, n, EMU_WRITE, atomic)
extern "C" {
EMU_HOOKS(1)
EMU_HOOKS(2)
EMU_HOOKS(4)
EMU_HOOKS(8)
EMU_HOOKS(16)
__attribute__((no_sanitize("thread"))) void __tsan_read_range(void *p, ptrdiff_t bytes)
{
    if ((size_t)p - (size_t)emu->stack >= emu->stack_bytes)
        emu->api->access(emu, p, (unsigned)bytes, 0, __builtin_return_address(0));
}
__attribute__((no_sanitize("thread"))) void __tsan_write_range(void *p, ptrdiff_t bytes)
{
    if ((size_t)p - (size_t)emu->stack >= emu->stack_bytes)
        emu->api->access(emu, p, (unsigned)bytes, EMU_WRITE, __builtin_return_address(0));
}
void __tsan_init() {}
}
#else
#define EMU_QUIET inline
#define EMU_TAKE_FLAG(p) __atomic_load_n(p, __ATOMIC_SEQ_CST)
#define EMU_GIVE_FLAG(p, v) __atomic_store_n(p, v, __ATOMIC_SEQ_CST)
#define EMU_IS_ATOMIC(p, kind) (void)0
#endif

template <class T> EMU_QUIET T emu_atomic(T *p, T (*join)(T, T), T v)
{
    EMU_IS_ATOMIC(p, EMU_READ | EMU_WRITE);
    T old = *(volatile T *)p, next;
    do
        next = join(old, v);
    while (!__atomic_compare_exchange(p, &old, &next, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    return old;
}
template <class T> struct emu_same {
    typedef T type;
};
#define EMU_ATOMIC(name, expression)                                     \
    template <class T> inline T name(T *p, typename emu_same<T>::type v) \
    {                                                                    \
        return emu_atomic<T>(                                            \
            p, [](T a, T b) -> T { return expression; }, v);             \
    }
EMU_ATOMIC(atomicAdd, a + b)
EMU_ATOMIC(atomicSub, a - b)
EMU_ATOMIC(atomicOr, a | b)
EMU_ATOMIC(atomicAnd, a &b)
EMU_ATOMIC(atomicXor, a ^ b)
EMU_ATOMIC(atomicMin, a < b ? a : b)
EMU_ATOMIC(atomicMax, a > b ? a : b)
EMU_ATOMIC(atomicExch, (void(a), b))
EMU_ATOMIC(atomicInc, a >= b ? 0 : a + 1)
template <class T>
EMU_QUIET T atomicCAS(T *p, typename emu_same<T>::type expected, typename emu_same<T>::type next)
{
    emu->api->yield(emu); /* another thread may be spinning */
    EMU_IS_ATOMIC(p, EMU_READ | EMU_WRITE);
    __atomic_compare_exchange(p, &expected, &next, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return expected;
}
template <class T> inline T __ldg(const T *p) { return *p; }
template <class T> inline T __ldcg(const T *p) { return *p; }
template <class T> inline T __ldca(const T *p) { return *p; }
template <class T> inline T __ldcs(const T *p) { return *p; }
template <class T> inline T __ldcv(const T *p) { return *p; }
template <class T> inline void __stcg(T *p, typename emu_same<T>::type v) { *p = v; }
template <class T> inline void __stcs(T *p, typename emu_same<T>::type v) { *p = v; }
template <class T> inline void __stwb(T *p, typename emu_same<T>::type v) { *p = v; }

/* ---- arithmetic ---- */

#define EMU_BITS(name, To, From)            \
    inline To name(From v)                  \
    {                                       \
        To r;                               \
        __builtin_memcpy(&r, &v, sizeof r); \
        return r;                           \
    }
EMU_BITS(__int_as_float, float, int)
EMU_BITS(__uint_as_float, float, unsigned)
EMU_BITS(__float_as_int, int, float)
EMU_BITS(__float_as_uint, unsigned, float)
EMU_BITS(__longlong_as_double, double, long long)
EMU_BITS(__double_as_longlong, long long, double)

#define EMU_MIN_MAX(A, B, T)                                     \
    inline T min(A a, B b) { return (T)a < (T)b ? (T)a : (T)b; } \
    inline T max(A a, B b) { return (T)a > (T)b ? (T)a : (T)b; }
EMU_MIN_MAX(int, int, int)
EMU_MIN_MAX(unsigned, unsigned, unsigned)
EMU_MIN_MAX(int, unsigned, unsigned)
EMU_MIN_MAX(unsigned, int, unsigned)
EMU_MIN_MAX(long, long, long)
EMU_MIN_MAX(unsigned long, unsigned long, unsigned long)
EMU_MIN_MAX(long long, long long, long long)
EMU_MIN_MAX(unsigned long long, unsigned long long, unsigned long long)
EMU_MIN_MAX(double, double, double)
extern "C" {
float fmaf(float, float, float), sqrtf(float), expf(float), exp2f(float), exp10f(float),
    logf(float), log2f(float), log10f(float), log1pf(float), expm1f(float), powf(float, float),
    sinf(float), cosf(float), tanhf(float), erff(float), floorf(float), ceilf(float), roundf(float),
    rintf(float), truncf(float), fmodf(float, float), ldexpf(float, int);
double exp(double), log(double), sqrt(double), pow(double, double), fmax(double, double),
    fmin(double, double), floor(double), ceil(double), sin(double), cos(double);
float fabsf(float);
double fabs(double);
int abs(int), printf(const char *, ...);
void *memcpy(void *, const void *, size_t), *memset(void *, int, size_t);
}
/* If one argument is NaN, the result is the other one; -0 is less than 0. */
inline float fminf(float a, float b)
{
    return a < b || b != b || (a == b && __builtin_signbit(a)) ? a : b;
}
inline float fmaxf(float a, float b)
{
    return a > b || b != b || (a == b && !__builtin_signbit(a)) ? a : b;
}
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline float rsqrtf(float x) { return 1.f / __builtin_sqrtf(x); }
inline float __frcp_rn(float x) { return 1.f / x; }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float __fsqrt_rn(float x) { return __builtin_sqrtf(x); }
inline float __expf(float x) { return expf(x); }
inline float __exp10f(float x) { return exp10f(x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __saturatef(float x) { return x > 0.f ? x < 1.f ? x : 1.f : 0.f; }
#define isnan __builtin_isnan
#define isinf __builtin_isinf
#define isfinite __builtin_isfinite
#define signbit __builtin_signbit
inline int emu_float_to_int(float x)
{
    return x != x              ? 0
           : x >= 2147483648.f ? 2147483647
           : x < -2147483648.f ? -2147483647 - 1
                               : (int)x;
}
inline unsigned emu_float_to_uint(float x)
{
    return !(x > 0.f) ? 0 : x >= 4294967296.f ? ~0u : (unsigned)x;
}
inline int __float2int_rn(float x) { return emu_float_to_int(__builtin_rintf(x)); }
inline int __float2int_rz(float x) { return emu_float_to_int(x); }
inline int __float2int_rd(float x) { return emu_float_to_int(__builtin_floorf(x)); }
inline int __float2int_ru(float x) { return emu_float_to_int(__builtin_ceilf(x)); }
inline unsigned __float2uint_rn(float x) { return emu_float_to_uint(__builtin_rintf(x)); }
inline unsigned __float2uint_rz(float x) { return emu_float_to_uint(x); }
inline float __int2float_rn(int x) { return (float)x; }
inline float __uint2float_rn(unsigned x) { return (float)x; }
inline int __clz(int v) { return v ? __builtin_clz(v) : 32; }
inline int __clzll(long long v) { return v ? __builtin_clzll(v) : 64; }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline int __ffsll(long long v) { return __builtin_ffsll(v); }
inline int __popc(unsigned v) { return __builtin_popcount(v); }
inline int __popcll(emu_u64 v) { return __builtin_popcountll(v); }
inline unsigned __brev(unsigned v)
{
    unsigned r = 0;
    for (int i = 0; i < 32; i++)
        r |= (v >> i & 1) << (31 - i);
    return r;
}
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((emu_u64)a * b >> 32); }
inline emu_u64 __umul64hi(emu_u64 a, emu_u64 b)
{
    return (emu_u64)((unsigned __int128)a * b >> 64);
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned s)
{
    emu_u64 v = (emu_u64)b << 32 | a;
    unsigned r = 0;
    for (int i = 0; i < 4; i++) {
        unsigned pick = s >> 4 * i & 15, byte = (unsigned)(v >> 8 * (pick & 7)) & 255;
        r |= (pick & 8 ? (byte & 128 ? 255u : 0u) : byte) << 8 * i;
    }
    return r;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned s)
{
    return (unsigned)((((emu_u64)high << 32 | low) << (s & 31)) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned s)
{
    return (unsigned)(((emu_u64)high << 32 | low) >> (s & 31));
}
inline int __dp4a(int a, int b, int c)
{
    for (int i = 0; i < 4; i++)
        c += (int)(signed char)(a >> 8 * i) * (int)(signed char)(b >> 8 * i);
    return c;
}

/* ---- PTX: registers, conversions, memory ---- */

struct ptx_sink {
};
template <class T, class E> inline T &ptx_out(E &e)
{
    static_assert(sizeof(T) == sizeof(E), "an asm operand of another size than its constraint");
    return (T &)e;
}
template <class T, class E> inline T ptx_in(E e)
{
    static_assert(sizeof(T) == sizeof(E), "an asm operand of another size than its constraint");
    return (T)e;
}
inline bool ptx_setp_ne_b32(bool &p, unsigned a, unsigned b) { return p = a != b; }
inline void ptx_mov_u32(unsigned &d, unsigned a) { d = a; }
inline void ptx_mov_b32(unsigned &d, unsigned a) { d = a; }
inline unsigned ptx_sreg_laneid() { return emu->lane; }
inline unsigned ptx_sreg_cluster_ctarank() { return emu->cluster_rank; }
inline unsigned ptx_sreg_cluster_nctarank() { return emu->cluster_size; }
inline unsigned ptx_sreg_smid() { return emu->api->sm(emu); }
inline unsigned
emu_bf16(float v) /* rounds to nearest, ties to even; every NaN becomes the canonical one */
{
    unsigned u = __float_as_uint(v);
    return v != v ? 0x7fff : (u + 0x7fff + (u >> 16 & 1)) >> 16;
}
inline void ptx_cvt_rn_bf16x2_f32(unsigned &d, float high, float low)
{
    d = emu_bf16(high) << 16 | emu_bf16(low);
}
inline void ptx_cvt_rn_bf16_f32(unsigned short &d, float a) { d = (unsigned short)emu_bf16(a); }
inline float emu_f16(unsigned short v)
{
    unsigned exponent = v >> 10 & 31, mantissa = v & 1023;
    float f = exponent == 0 ? mantissa * 5.9604644775390625e-8f /* 2^-24 */
                            : __uint_as_float((exponent == 31 ? 255u : exponent + 112) << 23 |
                                              mantissa << 13);
    return v >> 15 ? -f : f;
}
inline void ptx_cvt_f32_f16(float &d, unsigned short a) { d = emu_f16(a); }
inline unsigned emu_e4m3_f16(unsigned v) /* exact; the bits of an f16 */
{
    unsigned sign = (v & 0x80) << 8, exponent = v >> 3 & 15, mantissa = v & 7;
    if ((v & 0x7f) == 0x7f)
        return 0x7fff;
    if (exponent > 0)
        return sign | (exponent + 8) << 10 | mantissa << 7;
    unsigned top = mantissa > 3 ? 2 : mantissa > 1; /* of a subnormal: mantissa * 2^-9 */
    return mantissa ? sign | (top + 6) << 10 | (mantissa << (10 - top) & 1023) : sign;
}
inline void ptx_cvt_rn_f16x2_e4m3x2(unsigned &d, unsigned short a)
{
    d = emu_e4m3_f16(a >> 8) << 16 | emu_e4m3_f16(a & 0xff);
}
inline unsigned emu_f32_e4m3(float v) /* to nearest, ties to even; beyond +-448 to +-448 */
{
    unsigned sign = __float_as_uint(v) >> 24 & 0x80;
    float size = fabsf(v);
    if (size != size)
        return 0x7f;
    if (size >= 464)
        return sign | 0x7e;
    int exponent = (int)(__float_as_uint(size) >> 23) - 127;
    float step = __uint_as_float((unsigned)((exponent < -6 ? -6 : exponent) - 3 + 127) << 23);
    float rounded = rintf(size / step) * step; /* exact but for the rounding: by powers of two */
    if (rounded > 448)
        return sign | 0x7e;
    for (unsigned code = 0; code < 0x7f; code++)
        if (emu_f16((unsigned short)emu_e4m3_f16(code)) == rounded)
            return sign | code;
    return 0x7f;
}
inline void ptx_cvt_rn_satfinite_e4m3x2_f32(unsigned short &d, float high, float low)
{
    d = (unsigned short)(emu_f32_e4m3(high) << 8 | emu_f32_e4m3(low));
}
inline unsigned emu_fma_bf16(unsigned a, unsigned b, unsigned c) /* one rounding */
{
    double exact = (double)__uint_as_float(a << 16) * __uint_as_float(b << 16) +
                   __uint_as_float(c << 16);
    float odd = (float)exact; /* rounded to odd, so that a second rounding gives the right result */
    if (odd == odd && odd != exact)
        odd = __uint_as_float((__float_as_uint(odd) - (fabs((double)odd) > fabs(exact))) | 1);
    return emu_bf16(odd);
}
inline void ptx_fma_rn_bf16x2(unsigned &d, unsigned a, unsigned b, unsigned c)
{
    d = emu_fma_bf16(a >> 16, b >> 16, c >> 16) << 16 |
        emu_fma_bf16(a & 0xffff, b & 0xffff, c & 0xffff);
}
inline void ptx_ex2_approx_ftz_f32(float &d, float x)
{
    float y = exp2f(x);
    d = y < 1.17549435e-38f ? 0.f : y;
}
inline void ptx_max_NaN_f32(float &d, float a, float b)
{
    d = a != a ? a : b != b ? b : fmaxf(a, b);
}
inline void ptx_ex2_approx_f32(float &d, float x) { d = exp2f(x); }
inline void ptx_tanh_approx_f32(float &d, float x) { d = tanhf(x); }
inline void ptx_rcp_approx_ftz_f32(float &d, float x) { d = 1.f / x; }
inline void ptx_lg2_approx_f32(float &d, float x) { d = log2f(x); }
inline void ptx_lg2_approx_ftz_f32(float &d, float x) { d = log2f(x); }
#define EMU_LOAD4(name)                                                                          \
    inline void ptx_##name(unsigned &a, unsigned &b, unsigned &c, unsigned &d, emu_u64 p)        \
    {                                                                                            \
        if (p % 16)                                                                              \
            emu->api->fail(emu, "a load of 16 bytes from an address that is no multiple of 16"); \
        uint4 v = *(const uint4 *)p;                                                             \
        a = v.x, b = v.y, c = v.z, d = v.w;                                                      \
    }
EMU_LOAD4(ld_global_nc_L1__no_allocate_L2__128B_v4_u32)
EMU_LOAD4(ld_global_nc_L1__no_allocate_L2__256B_v4_u32)
EMU_LOAD4(ld_global_nc_L1__no_allocate_v4_u32)
EMU_LOAD4(ld_global_nc_v4_u32)
EMU_LOAD4(ld_global_v4_u32)
EMU_LOAD4(ld_global_cg_v4_u32)
inline void ptx_ld_global_cg_u32(unsigned &d, emu_u64 p) { d = *(const unsigned *)p; }
inline void ptx_ld_global_cg_v4_f32(float &a, float &b, float &c, float &d, emu_u64 p)
{
    if (p % 16)
        emu->api->fail(emu, "a load of 16 bytes from an address that is no multiple of 16");
    float4 v = *(const float4 *)p;
    a = v.x, b = v.y, c = v.z, d = v.w;
}
EMU_QUIET void ptx_ld_acquire_gpu_global_u32(unsigned &d, emu_u64 p)
{
    emu->api->yield(emu); /* another thread may be spinning */
    EMU_IS_ATOMIC((unsigned *)p, EMU_READ | EMU_ACQUIRE);
    d = __atomic_load_n((unsigned *)p, __ATOMIC_SEQ_CST);
}
inline void ptx_ld_acquire_gpu_u32(unsigned &d, emu_u64 p) { ptx_ld_acquire_gpu_global_u32(d, p); }
inline void ptx_st_release_gpu_global_u32(emu_u64 p, unsigned v)
{
    __atomic_store_n((unsigned *)p, v, __ATOMIC_SEQ_CST);
}
EMU_QUIET void ptx_ld_acquire_sys_global_u32(unsigned &d, emu_u64 p)
{
    emu->api->others(emu); /* a kernel of another device may change it */
    d = EMU_TAKE_FLAG((unsigned *)p);
}
EMU_QUIET void ptx_ld_relaxed_sys_global_u32(unsigned &d, emu_u64 p)
{
    emu->api->peer(emu, (const void *)p);
    EMU_IS_ATOMIC((unsigned *)p, EMU_READ);
    d = __atomic_load_n((unsigned *)p, __ATOMIC_SEQ_CST);
}
EMU_QUIET void ptx_st_release_sys_global_u32(emu_u64 p, unsigned v)
{
    emu->api->peer(emu, (const void *)p);
    EMU_GIVE_FLAG((unsigned *)p, v);
}
/* For the race detector these two are ordinary loads: what a peer wrote must be ordered before. */
inline void ptx_ld_relaxed_sys_global_v4_u32(unsigned &a, unsigned &b, unsigned &c, unsigned &d,
                                             emu_u64 p)
{
    emu->api->peer(emu, (const void *)p);
    if (p % 16)
        emu->api->fail(emu, "a load of 16 bytes from an address that is no multiple of 16");
    uint4 v = *(const uint4 *)p;
    a = v.x, b = v.y, c = v.z, d = v.w;
}
inline void ptx_ld_relaxed_sys_global_u16(unsigned short &d, emu_u64 p)
{
    emu->api->peer(emu, (const void *)p);
    d = *(const unsigned short *)p;
}
EMU_QUIET void ptx_st_volatile_global_v4_u32(emu_u64 p, unsigned a, unsigned b, unsigned c,
                                             unsigned d)
{
    emu->api->peer(emu, (const void *)p);
    EMU_IS_ATOMIC((uint4 *)p, EMU_WRITE | EMU_PACKET);
    *(uint4 *)p = uint4{a, b, c, d};
}
EMU_QUIET void ptx_ld_volatile_global_v4_u32(unsigned &a, unsigned &b, unsigned &c, unsigned &d,
                                             emu_u64 p)
{
    emu->api->others(emu); /* a kernel of another device may change it */
    EMU_IS_ATOMIC((uint4 *)p, EMU_READ | EMU_PACKET);
    uint4 v = *(const uint4 *)p;
    a = v.x, b = v.y, c = v.z, d = v.w;
}
inline void ptx_mov_u64(emu_u64 &d, emu_u64 v) { d = v; }
inline void ptx_st_global_u64(emu_u64 p, emu_u64 v) { *(emu_u64 *)p = v; }
inline void ptx_ld_param_u64(emu_u64 &d, emu_u64 p) { d = *(const emu_u64 *)p; }
inline emu_u64 ptx_sreg_globaltimer() { return emu->api->now_ns(emu); }
inline void ptx_red_release_gpu_global_add_u32(emu_u64 p, unsigned v)
{
    __atomic_fetch_add((unsigned *)p, v, __ATOMIC_SEQ_CST);
}
/* The race detector has what the thread knew before published, and takes what others published. */
inline void ptx_atom_add_acq_rel_gpu_global_u32(unsigned &d, emu_u64 p, unsigned v)
{
    emu->api->fence(emu, 0);
    d = atomicAdd((unsigned *)p, v);
    emu->api->fence(emu, 0);
}
inline void ptx_prefetch_global_L2(emu_u64) {}
/* L2 policies: loads and stores are the same with any of them. */
inline void ptx_createpolicy_fractional_L2__evict_first_b64(emu_u64 &policy) { policy = 1; }
inline void ptx_createpolicy_fractional_L2__evict_last_b64(emu_u64 &policy) { policy = 2; }
inline void ptx_ld_global_nc_L1__no_allocate_L2__cache_hint_v4_u32(unsigned &a, unsigned &b,
                                                                   unsigned &c, unsigned &d,
                                                                   emu_u64 p, emu_u64 policy)
{
    if (policy != 1 && policy != 2)
        emu->api->fail(emu, "a cache hint that no createpolicy has made");
    ptx_ld_global_nc_L1__no_allocate_L2__128B_v4_u32(a, b, c, d, p);
}
inline void ptx_st_global_L2__cache_hint_v4_u32(emu_u64 p, unsigned a, unsigned b, unsigned c,
                                                unsigned d, emu_u64 policy)
{
    if (policy != 1 && policy != 2)
        emu->api->fail(emu, "a cache hint that no createpolicy has made");
    if (p % 16)
        emu->api->fail(emu, "a store of 16 bytes to an address that is no multiple of 16");
    *(uint4 *)p = make_uint4(a, b, c, d);
}
inline void ptx_cvta_to_shared_u64(emu_u64 &d, emu_u64 p)
{
    d = __cvta_generic_to_shared((void *)p);
}

#define EMU_LOAD_SHARED(space)                                                              \
    inline void ptx_ld_##space##_u32(unsigned &d, unsigned p)                               \
    {                                                                                       \
        d = *(unsigned *)emu->api->shared(emu, p, 4);                                       \
    }                                                                                       \
    inline void ptx_ld_##space##_f32(float &d, unsigned p)                                  \
    {                                                                                       \
        d = *(float *)emu->api->shared(emu, p, 4);                                          \
    }                                                                                       \
    inline void ptx_ld_##space##_u64(emu_u64 &d, unsigned p)                                \
    {                                                                                       \
        d = *(emu_u64 *)emu->api->shared(emu, p, 8);                                        \
    }                                                                                       \
    inline void ptx_ld_##space##_v4_u32(unsigned &a, unsigned &b, unsigned &c, unsigned &d, \
                                        unsigned p)                                         \
    {                                                                                       \
        uint4 v = *(uint4 *)emu->api->shared(emu, p, 16);                                   \
        a = v.x, b = v.y, c = v.z, d = v.w;                                                 \
    }                                                                                       \
    inline void ptx_ld_##space##_v4_f32(float &a, float &b, float &c, float &d, unsigned p) \
    {                                                                                       \
        float4 v = *(float4 *)emu->api->shared(emu, p, 16);                                 \
        a = v.x, b = v.y, c = v.z, d = v.w;                                                 \
    }                                                                                       \
    inline void ptx_st_##space##_u32(unsigned p, unsigned v)                                \
    {                                                                                       \
        *(unsigned *)emu->api->shared(emu, p, 4) = v;                                       \
    }                                                                                       \
    inline void ptx_st_##space##_f32(unsigned p, float v)                                   \
    {                                                                                       \
        *(float *)emu->api->shared(emu, p, 4) = v;                                          \
    }                                                                                       \
    inline void ptx_st_##space##_v4_u32(unsigned p, unsigned a, unsigned b, unsigned c,     \
                                        unsigned d)                                         \
    {                                                                                       \
        *(uint4 *)emu->api->shared(emu, p, 16) = make_uint4(a, b, c, d);                    \
    }                                                                                       \
    inline void ptx_st_##space##_v4_f32(unsigned p, float a, float b, float c, float d)     \
    {                                                                                       \
        *(float4 *)emu->api->shared(emu, p, 16) = make_float4(a, b, c, d);                  \
    }
EMU_LOAD_SHARED(shared)

/* ---- PTX: sm_80 ---- */

#define EMU_CP_ASYNC(name, size)                                                             \
    inline void ptx_##name(unsigned to, emu_u64 from, unsigned bytes, unsigned read = ~0u)   \
    {                                                                                        \
        emu->api->cp_async(emu, to, (const void *)from, bytes, read < bytes ? read : bytes); \
    }
EMU_CP_ASYNC(cp_async_cg_shared_global, 16)
EMU_CP_ASYNC(cp_async_cg_shared_global_L2__128B, 16)
EMU_CP_ASYNC(cp_async_ca_shared_global, 16)
inline void ptx_cp_async_commit_group() { emu->api->cp_commit(emu); }
inline void ptx_cp_async_wait_group(unsigned n) { emu->api->cp_wait(emu, n); }
inline void ptx_cp_async_wait_all()
{
    emu->api->cp_commit(emu);
    emu->api->cp_wait(emu, 0);
}
#define EMU_LDMATRIX(suffix, transposed)                                                          \
    inline void ptx_ldmatrix_sync_aligned_m8n8_x1_##suffix(unsigned &a, unsigned p)               \
    {                                                                                             \
        emu->api->ldmatrix(emu, p, 1, transposed, &a);                                            \
    }                                                                                             \
    inline void ptx_ldmatrix_sync_aligned_m8n8_x2_##suffix(unsigned &a, unsigned &b, unsigned p)  \
    {                                                                                             \
        unsigned r[2];                                                                            \
        emu->api->ldmatrix(emu, p, 2, transposed, r);                                             \
        a = r[0], b = r[1];                                                                       \
    }                                                                                             \
    inline void ptx_ldmatrix_sync_aligned_m8n8_x4_##suffix(unsigned &a, unsigned &b, unsigned &c, \
                                                           unsigned &d, unsigned p)               \
    {                                                                                             \
        unsigned r[4];                                                                            \
        emu->api->ldmatrix(emu, p, 4, transposed, r);                                             \
        a = r[0], b = r[1], c = r[2], d = r[3];                                                   \
    }
EMU_LDMATRIX(shared_b16, 0)
EMU_LDMATRIX(trans_shared_b16, 1)
inline void ptx_mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(
    float &d0, float &d1, float &d2, float &d3, unsigned a0, unsigned a1, unsigned a2, unsigned a3,
    unsigned b0, unsigned b1, float c0, float c1, float c2, float c3)
{
    float c[4] = {c0, c1, c2, c3};
    unsigned ab[6] = {a0, a1, a2, a3, b0, b1};
    emu->api->mma_bf16(emu, c, ab);
    d0 = c[0], d1 = c[1], d2 = c[2], d3 = c[3];
}
inline void ptx_bar_sync(unsigned id, unsigned threads = 0)
{
    emu->api->barrier(emu, id, threads, 1, -1);
}
inline void ptx_bar_arrive(unsigned id, unsigned threads)
{
    emu->api->barrier(emu, id, threads, 0, -1);
}
inline void ptx_barrier_sync(unsigned id, unsigned threads = 0)
{
    emu->api->barrier(emu, id, threads, 1, -1);
}

/* ---- PTX: sm_90 ---- */

/* On older levels these exist only for code that is compiled and never runs, such as the other
 * branch of a template. */
#if !EMU_HOPPER
emu_thread *emu_sm90() __attribute__((error("this PTX instruction needs sm_90")));
#define emu emu_sm90()
#endif
inline void ptx_griddepcontrol_wait() { emu->api->pdl_wait(emu); }
inline void ptx_griddepcontrol_launch_dependents() { emu->api->pdl_go(emu); }
inline void ptx_mbarrier_init_shared__cta_b64(unsigned b, unsigned count)
{
    emu->api->mbar_init(emu, b, count);
}
inline void ptx_fence_mbarrier_init_release_cluster() { (void)emu->lane; }
inline void ptx_mbarrier_arrive_shared__cta_b64(ptx_sink, unsigned b, unsigned n = 1)
{
    emu->api->mbar_arrive(emu, b, n, 0);
}
inline void ptx_cp_async_mbarrier_arrive_noinc_shared_b64(unsigned b)
{
    ptx_cp_async_wait_all();
    emu->api->mbar_arrive(emu, b, 1, 0);
}
inline void ptx_mbarrier_arrive_release_cluster_shared__cluster_b64(ptx_sink, unsigned b,
                                                                    unsigned n = 1)
{
    emu->api->mbar_arrive(emu, b, n, 0);
}
inline void ptx_mbarrier_arrive_shared__cluster_b64(ptx_sink, unsigned b, unsigned n = 1)
{
    emu->api->mbar_arrive(emu, b, n, 0);
}
inline void ptx_mbarrier_arrive_expect_tx_shared__cta_b64(ptx_sink, unsigned b, unsigned bytes)
{
    emu->api->mbar_arrive(emu, b, 1, bytes);
}
inline void ptx_mbarrier_expect_tx_shared__cta_b64(unsigned b, unsigned bytes)
{
    emu->api->mbar_arrive(emu, b, 0, bytes);
}
inline void ptx_mbarrier_expect_tx_relaxed_cta_shared__cta_b64(unsigned b, unsigned bytes)
{
    emu->api->mbar_arrive(emu, b, 0, bytes);
}
inline void ptx_mbarrier_try_wait_parity_shared__cta_b64(bool &p, unsigned b, unsigned parity)
{
    emu->api->mbar_wait(emu, b, parity);
    p = true;
}
inline void ptx_mbarrier_test_wait_parity_shared__cta_b64(bool &p, unsigned b, unsigned parity)
{
    p = emu->api->mbar_test(emu, b, parity);
}
inline void ptx_prefetch_tensormap(emu_u64) { (void)emu->lane; }
inline void ptx_fence_proxy_async() { emu->api->fence(emu, 1); }
inline void ptx_fence_proxy_async_shared__cta() { emu->api->fence(emu, 1); }
inline void ptx_fence_proxy_async_global() { emu->api->fence(emu, 1); }
inline void ptx_cp_async_bulk_tensor_2d_shared__cluster_global_mbarrier__complete_tx__bytes(
    unsigned to, emu_u64 map, int x, int y, unsigned mbar)
{
    int at[2] = {x, y};
    emu->api->tma_load(emu, (const void *)map, to, mbar, 2, at);
}
inline void
ptx_cp_async_bulk_tensor_2d_shared__cluster_global_mbarrier__complete_tx__bytes_multicast__cluster(
    unsigned to, emu_u64 map, int x, int y, unsigned mbar, unsigned short ctas)
{
    int at[2] = {x, y};
    for (unsigned rank = 0; rank < 16; rank++)
        if (ctas >> rank & 1)
            emu->api->tma_load(emu, (const void *)map, (to & 0xffffff) | rank << 24,
                               (mbar & 0xffffff) | rank << 24, 2, at);
}
inline void ptx_cp_async_bulk_tensor_3d_shared__cluster_global_mbarrier__complete_tx__bytes(
    unsigned to, emu_u64 map, int x, int y, int z, unsigned mbar)
{
    int at[3] = {x, y, z};
    emu->api->tma_load(emu, (const void *)map, to, mbar, 3, at);
}
inline void ptx_cp_async_bulk_tensor_4d_shared__cluster_global_mbarrier__complete_tx__bytes(
    unsigned to, emu_u64 map, int x, int y, int z, int w, unsigned mbar)
{
    int at[4] = {x, y, z, w};
    emu->api->tma_load(emu, (const void *)map, to, mbar, 4, at);
}
inline void ptx_cp_async_bulk_tensor_5d_shared__cluster_global_mbarrier__complete_tx__bytes(
    unsigned to, emu_u64 map, int x, int y, int z, int v, int w, unsigned mbar)
{
    int at[5] = {x, y, z, v, w};
    emu->api->tma_load(emu, (const void *)map, to, mbar, 5, at);
}
inline void
ptx_cp_async_bulk_tensor_5d_shared__cluster_global_mbarrier__complete_tx__bytes_multicast__cluster(
    unsigned to, emu_u64 map, int x, int y, int z, int v, int w, unsigned mbar, unsigned short ctas)
{
    int at[5] = {x, y, z, v, w};
    for (unsigned rank = 0; rank < 16; rank++)
        if (ctas >> rank & 1)
            emu->api->tma_load(emu, (const void *)map, (to & 0xffffff) | rank << 24,
                               (mbar & 0xffffff) | rank << 24, 5, at);
}
inline void ptx_cp_async_bulk_tensor_2d_global_shared__cta_bulk_group(emu_u64 map, int x, int y,
                                                                      unsigned from)
{
    int at[2] = {x, y};
    emu->api->tma_store(emu, (const void *)map, from, 2, at);
}
inline void ptx_cp_async_bulk_tensor_3d_global_shared__cta_bulk_group(emu_u64 map, int x, int y,
                                                                      int z, unsigned from)
{
    int at[3] = {x, y, z};
    emu->api->tma_store(emu, (const void *)map, from, 3, at);
}
inline void ptx_cp_async_bulk_shared__cluster_global_mbarrier__complete_tx__bytes(unsigned to,
                                                                                  emu_u64 from,
                                                                                  unsigned bytes,
                                                                                  unsigned mbar)
{
    emu->api->bulk_load(emu, to, (const void *)from, bytes, mbar);
}
inline void ptx_cp_async_bulk_commit_group() { emu->api->bulk_commit(emu); }
inline void ptx_cp_async_bulk_wait_group(unsigned n) { emu->api->bulk_wait(emu, n); }
inline void ptx_cp_async_bulk_wait_group_read(unsigned n) { emu->api->bulk_wait_read(emu, n); }
inline void ptx_wgmma_fence_sync_aligned() { emu->api->wgmma_fence(emu); }
inline void ptx_wgmma_commit_group_sync_aligned() { emu->api->wgmma_commit(emu); }
inline void ptx_wgmma_wait_group_sync_aligned(unsigned n) { emu->api->wgmma_wait(emu, n); }
inline int emu_wgmma_flags(bool accumulate, int scale_a, int scale_b)
{
    return (accumulate ? EMU_ACCUMULATE : 0) | (scale_a < 0 ? EMU_NEGATE_A : 0) |
           (scale_b < 0 ? EMU_NEGATE_B : 0);
}
#define EMU_WGMMA(n)                                                                               \
    inline void ptx_wgmma_mma_async_sync_aligned_m64n##n##k16_f32_bf16_bf16(                       \
        float(&d)[n / 2], emu_u64 a, emu_u64 b, bool add, int scale_a, int scale_b, int trans_a,   \
        int trans_b)                                                                               \
    {                                                                                              \
        emu->api->wgmma(emu, d, a, 0, b, n,                                                        \
                        emu_wgmma_flags(add, scale_a, scale_b) | (trans_a ? EMU_TRANSPOSE_A : 0) | \
                            (trans_b ? EMU_TRANSPOSE_B : 0));                                      \
    }                                                                                              \
    inline void ptx_wgmma_mma_async_sync_aligned_m64n##n##k16_f32_bf16_bf16(                       \
        float(&d)[n / 2], unsigned a0, unsigned a1, unsigned a2, unsigned a3, emu_u64 b, bool add, \
        int scale_a, int scale_b, int trans_b)                                                     \
    {                                                                                              \
        unsigned a[4] = {a0, a1, a2, a3};                                                          \
        emu->api->wgmma(emu, d, 0, a, b, n,                                                        \
                        emu_wgmma_flags(add, scale_a, scale_b) | (trans_b ? EMU_TRANSPOSE_B : 0)); \
    }
// clang-format off
EMU_WGMMA(8) EMU_WGMMA(16) EMU_WGMMA(32) EMU_WGMMA(64) EMU_WGMMA(96) EMU_WGMMA(128) EMU_WGMMA(160)
EMU_WGMMA(192) EMU_WGMMA(224) EMU_WGMMA(256)
// clang-format on
#define EMU_WGMMA_E4M3(n)                                                                          \
    inline void ptx_wgmma_mma_async_sync_aligned_m64n##n##k32_f32_e4m3_e4m3(                       \
        float(&d)[n / 2], unsigned a0, unsigned a1, unsigned a2, unsigned a3, emu_u64 b, bool add, \
        int scale_a, int scale_b)                                                                  \
    {                                                                                              \
        unsigned a[4] = {a0, a1, a2, a3};                                                          \
        emu->api->wgmma(emu, d, 0, a, b, n, emu_wgmma_flags(add, scale_a, scale_b) | EMU_E4M3);    \
    }                                                                                              \
    inline void ptx_wgmma_mma_async_sync_aligned_m64n##n##k32_f32_e4m3_e4m3(                       \
        float(&d)[n / 2], emu_u64 a, emu_u64 b, bool add, int scale_a, int scale_b)                \
    {                                                                                              \
        emu->api->wgmma(emu, d, a, 0, b, n, emu_wgmma_flags(add, scale_a, scale_b) | EMU_E4M3);    \
    }
    // clang-format off
EMU_WGMMA_E4M3(32) EMU_WGMMA_E4M3(64) EMU_WGMMA_E4M3(128) EMU_WGMMA_E4M3(192)
    // clang-format on
    inline void ptx_setmaxnreg_inc_sync_aligned_u32(unsigned)
{
    (void)emu->lane;
}
inline void ptx_setmaxnreg_dec_sync_aligned_u32(unsigned) { (void)emu->lane; }
inline void ptx_stmatrix_sync_aligned_m8n8_x4_trans_shared_b16(unsigned p, unsigned a, unsigned b,
                                                               unsigned c, unsigned d)
{
    unsigned r[4] = {a, b, c, d};
    emu->api->stmatrix(emu, p, r, 1);
}
inline void ptx_stmatrix_sync_aligned_m8n8_x4_shared_b16(unsigned p, unsigned a, unsigned b,
                                                         unsigned c, unsigned d)
{
    unsigned r[4] = {a, b, c, d};
    emu->api->stmatrix(emu, p, r, 0);
}
inline void ptx_barrier_cluster_arrive_release_aligned() { emu->api->cluster_arrive(emu); }
inline void ptx_barrier_cluster_arrive_relaxed_aligned() { emu->api->cluster_arrive(emu); }
inline void ptx_barrier_cluster_arrive() { emu->api->cluster_arrive(emu); }
inline void ptx_barrier_cluster_wait_acquire_aligned() { emu->api->cluster_wait(emu); }
inline void ptx_barrier_cluster_wait() { emu->api->cluster_wait(emu); }
inline void ptx_mapa_shared__cluster_u32(unsigned &d, unsigned p, unsigned rank)
{
    if (rank >= emu->cluster_size)
        emu->api->fail(emu, "mapa names a CTA that the cluster does not have");
    d = (p & 0xffffff) | rank << 24;
}
EMU_LOAD_SHARED(shared__cluster)
#undef emu
