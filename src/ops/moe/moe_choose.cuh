// How a warp chooses a token's experts from its logits: what moe_route.cu and moe_route_any.cu share.
//
// Logits are compared as keys: unsigned integers in the order of the logits. NaN counts as -infinity, and key 0 marks
// an expert that is taken. So whatever the logits are, a token's experts are different ones within [0, EXPERTS); the
// sum of the exponentials, and with it every weight, is NaN if a logit was. Needs EXPERTS.

INLINE u32 moe_key(float logit)
{
    u32 bits = __float_as_uint(logit != logit ? -kInfinity : logit);
    if (bits == 0x80000000u) // -0 equals 0
        bits = 0;
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
INLINE float moe_logit(u32 key) { return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key); }

struct MoeBest {
    u32 key;
    i32 expert;
};
// The warp's largest key; of equal ones the lowest expert. Each lane brings the best of its own experts.
INLINE MoeBest moe_best(const MoeBest &mine)
{
    u32 key = __reduce_max_sync(~0u, mine.key);
    i32 expert = __reduce_min_sync(~0u, mine.key == key ? mine.expert : EXPERTS);
    return {key, min(expert, EXPERTS - 1)};
}
