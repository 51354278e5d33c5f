/* The list of cards. An op is in the program if it has a folder and its card, NAME_op, has a line
 * here; no other file names every op. The order is that of a forward pass, so that listings read
 * like one. There is no include guard: each file that includes the list defines VT_CARD before. */
VT_CARD(page_copy)
VT_CARD(embed)
VT_CARD(rmsnorm)
VT_CARD(add_rmsnorm)
VT_CARD(linear)
VT_CARD(rope_store)
VT_CARD(rope)
VT_CARD(kv_store)
VT_CARD(attention_decode)
VT_CARD(attention_prefill)
VT_CARD(short_conv)
VT_CARD(silu_mul)
VT_CARD(moe_route)
VT_CARD(moe_linear)
VT_CARD(sample)
VT_CARD(prefix_match)
