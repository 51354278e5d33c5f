/* The list of families, in the order in which messages name them. A family is in the program if its
 * file in model/families defines vt_family_NAME and it has a line here. There is no include guard:
 * a file that includes the list defines VT_FAMILY before. */
VT_FAMILY(llama)
VT_FAMILY(mistral)
VT_FAMILY(qwen2)
VT_FAMILY(qwen3)
VT_FAMILY(qwen3_moe)
VT_FAMILY(qwen3_5)
VT_FAMILY(qwen3_5_moe)
VT_FAMILY(gemma3)
VT_FAMILY(granite)
VT_FAMILY(smollm3)
VT_FAMILY(olmo2)
VT_FAMILY(olmo3)
VT_FAMILY(phi3)
VT_FAMILY(glm4)
VT_FAMILY(exaone4)
VT_FAMILY(ministral3)
VT_FAMILY(gpt_oss)
VT_FAMILY(hybrid)
VT_FAMILY(bert)
#undef VT_FAMILY
