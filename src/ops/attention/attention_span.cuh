// The last key that the token at `position` of a sequence sees. AFTER 0: causal attention. Else the token also sees up
// to `after` keys behind its own, as far as the sequence goes.
INLINE i32 last_key(i32 position, i32 after, i32 kv_len)
{
    return AFTER ? min(position + min(after, kv_len), kv_len - 1) : position;
}
