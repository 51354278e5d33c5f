"""A model that says what a test wants: a tiny Llama (tiny_model.py) whose embeddings and head are a chain. The pieces of the answer are
added tokens of its vocabulary, each predicts the next one, and the last predicts the end token. Greedy answers say the script."""
import json, math, os

import tiny_model
from tensors_file import f32, write_tensors

FIRST = 259
TEMPLATE = ("{% if tools %}<|im_start|>system\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}<tool_call>{\"name\"...<|im_end|>\n{% endif %}"
            "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}"
            "{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.name }} {{ c.function.arguments.items() | list }}"
            "</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% if enable_thinking is defined and not enable_thinking %}"
            "<think>\n\n</think>\n{% endif %}{% endif %}")


def write_weights(path, vocab, n_pieces):
    h, d = tiny_model.HIDDEN, tiny_model.HIDDEN // tiny_model.HEADS
    assert n_pieces < h, "a script has at most 31 pieces"
    order = [10] + list(range(FIRST, FIRST + n_pieces)) + [258]  # a newline ends the prompt
    embed, head = [0.0] * (vocab * h), [0.0] * (vocab * h)
    for i, (token, then) in enumerate(zip(order, order[1:])):
        embed[token * h + i] = 1.0
        head[then * h + i] = 30.0
    kv = tiny_model.KV_HEADS * d
    shapes = {"model.embed_tokens.weight": [vocab, h], "model.norm.weight": [h], "lm_head.weight": [vocab, h]}
    shapes.update({"model.layers.0." + k: v for k, v in {
        "input_layernorm.weight": [h], "post_attention_layernorm.weight": [h], "self_attn.q_proj.weight": [h, h],
        "self_attn.k_proj.weight": [kv, h], "self_attn.v_proj.weight": [kv, h], "self_attn.o_proj.weight": [h, h],
        "mlp.gate_proj.weight": [tiny_model.FF, h], "mlp.up_proj.weight": [tiny_model.FF, h],
        "mlp.down_proj.weight": [h, tiny_model.FF]}.items()})
    value = lambda name, n: embed if "embed" in name else head if "lm_head" in name else [1.0 if "norm" in name else 0.0] * n
    write_tensors(path, {name: f32(shape, value(name, math.prod(shape))) for name, shape in shapes.items()})


def make(folder, pieces, template=TEMPLATE, special=()):
    """Writes the folder of a model that answers "".join(pieces), a token a piece, and returns its path. `special`: pieces that are special
    tokens."""
    assert len(set(pieces)) == len(pieces), "each piece of a script is a token of its own"
    tiny_model.make(folder, template)
    size = FIRST + len(pieces)
    for name in "config.json", "tokenizer.json":
        with open(os.path.join(folder, name)) as f:
            value = json.load(f)
        if name == "config.json":
            value["vocab_size"] = size
        else:
            value["added_tokens"] += [{"id": FIRST + i, "content": s, "single_word": False, "lstrip": False, "rstrip": False,
                                       "normalized": False, "special": s in special} for i, s in enumerate(pieces)]
        with open(os.path.join(folder, name), "w") as f:
            json.dump(value, f)
    write_weights(os.path.join(folder, "model.safetensors"), size, len(pieces))
    return folder
