// The softmax of a block of BLOCK_N keys, in the accumulators of wgmma: register 4 j + 2 h + e is row h of the thread's
// two, column 8 j + 2 (lane % 4) + e. attention_chunks_sm90.cu, whose rows lie otherwise, has its own with the same
// arithmetic, and takes from here the size of blocks and how maxima are scaled, so that a row has the bits of
// attention_prefill_sm90.cu. Needs HEAD_DIM, CHUNK and WINDOW.
#if HEAD_DIM == 256
#define BLOCK_N 64
#else
#define BLOCK_N 128
#endif
#define S_REGS (BLOCK_N / 2)

#if CHUNK
#define FIRST_OF_CHUNK(block) ((block) % (CHUNK / BLOCK_N) == 0)
#define SCALED(m, scale) __fmul_rn(m, scale) /* never contracted: a block that a row does not see changes nothing */
#define SUMS 4 /* a quarter of a block's keys is summed by itself: attention_chunks_sm90.cu has a warp for each */
#else
#define FIRST_OF_CHUNK(block) 0
#define SCALED(m, scale) ((m) * (scale))
#define SUMS 1
#endif

/* Hides keys behind the last one that a row sees (and before its window). position[2] and seen[2] of this thread's
 * rows. */
INLINE void mask(float *s, int block, int lane, const int *position, const int *seen, int window)
{
#pragma unroll
    for (int i = 0; i < S_REGS; i++) {
        int key = block * BLOCK_N + i / 4 * 8 + lane % 4 * 2 + i % 2, row = i / 2 % 2;
        bool hidden = key > seen[row];
#if WINDOW
        hidden |= key <= position[row] - window;
#endif
        s[i] = hidden ? -kInfinity : s[i];
    }
}

/* s becomes p = 2^(s * scale - m); rescale becomes the factor for the old sums and O. */
INLINE void softmax(float *s, float *m, float *l, float *rescale, float scale)
{
#pragma unroll
    for (int row = 0; row < 2; row++) {
        float top = m[row];
#pragma unroll
        for (int i = 0; i < S_REGS; i += 4)
            top = fmaxf(top, fmaxf(s[i + 2 * row], s[i + 2 * row + 1]));
        top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, 2));
        float base = top == -kInfinity ? 0.0f : SCALED(top, scale);
        rescale[row] = exp2_fast(SCALED(m[row], scale) - base);
        m[row] = top;
        float part[SUMS] = {}, sum;
#pragma unroll
        for (int i = 0; i < S_REGS; i += 4)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float x = exp2_fast(s[i + 2 * row + e] * scale - base);
                s[i + 2 * row + e] = x;
                part[i * SUMS / S_REGS] += x;
            }
        sum = part[0];
#pragma unroll
        for (int i = 1; i < SUMS; i++)
            sum += part[i];
        l[row] = l[row] * rescale[row] + sum;
    }
}

INLINE void pack_p(u32 *pr, const float *s)
{
#pragma unroll
    for (int i = 0; i < S_REGS / 2; i++)
        pr[i] = pack_bf16(s[2 * i], s[2 * i + 1]);
}

/* The lanes of a quad share a row. */
INLINE void sum_rows(float *l)
{
    for (int half = 0; half < 2; half++) {
        l[half] += __shfl_xor_sync(0xffffffff, l[half], 1);
        l[half] += __shfl_xor_sync(0xffffffff, l[half], 2);
    }
}
