/* The list of cards. An op is in the program when its folder is there and its card, NAME_op, has a
 * line here; nothing else names every op. The order is that of a forward pass, so that listings
 * read like one. No include guard: whoever includes the list says what VT_CARD makes of a line. */
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
VT_CARD(silu_mul)
VT_CARD(moe_route)
VT_CARD(moe_linear)
VT_CARD(sample)
VT_CARD(prefix_match)
