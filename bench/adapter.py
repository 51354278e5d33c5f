#!/usr/bin/env python3
"""Writes a random LoRA adapter, as a PEFT folder in BF16, for all projections of a published shape (dummy:NAME): for speed alone.

    bench/adapter.py qwen3-8b FOLDER [--rank 16]
    build/vitrine bench latency -m dummy:qwen3-8b --lora a=FOLDER --batch 64
"""
import argparse, json, os, random

# layers, hidden, rows of q, rows of k and v, feed-forward
SHAPES = {
    "qwen3-0.6b": (28, 1024, 2048, 1024, 3072),
    "qwen3-8b": (36, 4096, 4096, 1024, 12288),
}
SIGNS = bytes(0x3b | b & 0x80 for b in range(256))  # the upper byte of a BF16 number of 2^-8 .. 2^-7, of either sign


def numbers(n):
    b = bytearray(2 * n)
    b[0::2] = random.randbytes(n)
    b[1::2] = random.randbytes(n).translate(SIGNS)
    return b


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", choices=SHAPES)
    p.add_argument("folder")
    p.add_argument("--rank", type=int, default=16)
    o = p.parse_args()
    layers, hidden, q, kv, ffn = SHAPES[o.model]
    modules = {"self_attn.q_proj": (q, hidden), "self_attn.k_proj": (kv, hidden), "self_attn.v_proj": (kv, hidden), "self_attn.o_proj": (hidden, q),
               "mlp.gate_proj": (ffn, hidden), "mlp.up_proj": (ffn, hidden), "mlp.down_proj": (hidden, ffn)}
    header, at = {}, 0
    for i in range(layers):
        for name, (rows, cols) in modules.items():
            for letter, shape in (("A", [o.rank, cols]), ("B", [rows, o.rank])):
                n = 2 * shape[0] * shape[1]
                header[f"base_model.model.model.layers.{i}.{name}.lora_{letter}.weight"] = {
                    "dtype": "BF16", "shape": shape, "data_offsets": [at, at + n]}
                at += n
    os.makedirs(o.folder, exist_ok=True)
    with open(os.path.join(o.folder, "adapter_config.json"), "w") as f:
        json.dump({"peft_type": "LORA", "r": o.rank, "lora_alpha": o.rank, "bias": "none",
                   "target_modules": [m.split(".")[1] for m in modules]}, f)
    random.seed(1)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(o.folder, "adapter_model.safetensors"), "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for t in header.values():
            f.write(numbers((t["data_offsets"][1] - t["data_offsets"][0]) // 2))


if __name__ == "__main__":
    main()
