#!/usr/bin/env python3
"""What rounding activations to E4M3 costs in perplexity, computed in numpy, apart from the engine:

    python3 tools/fixtures/smollm2_fp8.py SmolLM2-135M-Instruct.Q4_1.gguf OUT bf16 fp8-block
    vitrine tokenize -m OUT/bf16 < tests/golden/text/kjv_ruth_ecclesiastes.txt > IDS
    python3 bench/fp8_activations.py OUT IDS [WINDOWS]

Windows of 512 tokens, of which the second half is scored, as `vitrine score --window 512` does. Three rows: BF16 weights; E4M3
weights with a scale for each block of 128 x 128; those with the input of every layer's matrices rounded to E4M3, too, with a
scale for each token and 128 columns, as the engine does on Hopper (src/ops/linear/quant/fp8_rows.cu). The first two are beside
the engine's own figures in docs/performance.md. Needs numpy."""
import json, os, re, struct, sys

import numpy as np

WINDOW, UNIT, LARGEST = 512, 128, np.float32(448)


def tensors(folder):
    with open(os.path.join(folder, "model.safetensors"), "rb") as f:
        n, = struct.unpack("<Q", f.read(8))
        head, data = json.loads(f.read(n)), f.read()
    code = np.arange(256)
    size = np.where(code & 0x78, (8 + (code & 7)) * 2.0 ** ((code >> 3 & 15) - 10), (code & 7) * 2.0 ** -9)
    values = np.where(code & 0x80, -size, size).astype(np.float32)
    out = {}
    for name, t in head.items():
        if name == "__metadata__":
            continue
        raw = data[slice(*t["data_offsets"])]
        if t["dtype"] == "BF16":
            x = (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)
        elif t["dtype"] == "F32":
            x = np.frombuffer(raw, np.float32)
        else:
            x = values[np.frombuffer(raw, np.uint8)]
        out[name] = x.reshape(t["shape"])
    for name in [n for n in out if n.endswith("weight_scale_inv")]:
        scale, of = out.pop(name), name[:-len("_scale_inv")]
        rows, cols = out[of].shape
        out[of] = out[of] * np.repeat(np.repeat(scale, 128, 0), 128, 1)[:rows, :cols]
    return out


def e4m3(x):
    """The nearest values of E4M3, ties to even, |x| <= 448."""
    exponent = np.maximum(np.frexp(x)[1], -5)  # below 2^-6 steps stay 2^-9
    step = np.ldexp(np.float32(1), exponent - 4)
    return np.rint(x / step) * step


def rounded(x):
    out = np.empty_like(x)
    for k in range(0, x.shape[1], UNIT):
        unit = x[:, k:k + UNIT]
        most = np.abs(unit).max(1, keepdims=True)
        by = np.where(most > 0, LARGEST / np.maximum(most, 1e-30), 0).astype(np.float32)
        out[:, k:k + UNIT] = e4m3(unit * by) * (most / LARGEST)
    return out


class Model:
    def __init__(self, folder):
        self.w, c = tensors(folder), json.load(open(os.path.join(folder, "config.json")))
        self.layers, self.heads, self.kv = c["num_hidden_layers"], c["num_attention_heads"], c["num_key_value_heads"]
        self.dim, self.eps = c["hidden_size"] // self.heads, c["rms_norm_eps"]
        angle = np.arange(WINDOW)[:, None] * c["rope_theta"] ** (-np.arange(0, self.dim, 2) / self.dim)
        self.cos, self.sin = (f(angle).astype(np.float32)[:, None] for f in (np.cos, np.sin))

    def norm(self, x, name):
        return x / np.sqrt((x * x).mean(1, keepdims=True) + self.eps) * self.w[name]

    def turn(self, x):
        x = x.reshape(WINDOW, -1, self.dim)
        a, b = x[..., :self.dim // 2], x[..., self.dim // 2:]
        return np.concatenate([a * self.cos - b * self.sin, b * self.cos + a * self.sin], 2)

    def logits(self, ids, take):
        """take(x): what a layer's matrices get of their input."""
        x, w = self.w["model.embed_tokens.weight"][ids], self.w
        mask = np.triu(np.full((WINDOW, WINDOW), -np.inf, np.float32), 1)
        for i in range(self.layers):
            at = f"model.layers.{i}."
            h = take(self.norm(x, at + "input_layernorm.weight"))
            q, k, v = (h @ w[f"{at}self_attn.{n}_proj.weight"].T for n in "qkv")
            q, k, v = self.turn(q), self.turn(k), v.reshape(WINDOW, self.kv, self.dim)
            o = np.empty_like(q)
            for j in range(self.heads):
                s = q[:, j] @ k[:, j * self.kv // self.heads].T / np.sqrt(self.dim) + mask
                s = np.exp(s - s.max(1, keepdims=True))
                o[:, j] = s / s.sum(1, keepdims=True) @ v[:, j * self.kv // self.heads]
            x = x + take(o.reshape(WINDOW, -1)) @ w[at + "self_attn.o_proj.weight"].T
            h = take(self.norm(x, at + "post_attention_layernorm.weight"))
            gate, up = (h @ w[f"{at}mlp.{n}_proj.weight"].T for n in ("gate", "up"))
            x = x + take(gate / (1 + np.exp(-gate)) * up) @ w[at + "mlp.down_proj.weight"].T
        return self.norm(x, "model.norm.weight") @ w["model.embed_tokens.weight"].T

    def perplexity(self, ids, windows, take):
        total = n = 0
        for at in range(0, windows * WINDOW, WINDOW):
            z = self.logits(ids[at:at + WINDOW], take)[WINDOW // 2 - 1:-1]
            z = z - z.max(1, keepdims=True)
            next_ones = ids[at + WINDOW // 2:at + WINDOW]
            total += (np.log(np.exp(z).sum(1)) - z[np.arange(len(z)), next_ones]).sum()
            n += len(z)
        return float(np.exp(total / n))


def main():
    folder, path = sys.argv[1:3]
    ids = np.array([int(i) for i in re.findall(r"\d+", open(path).read())])
    windows = int(sys.argv[3]) if len(sys.argv) > 3 else len(ids) // WINDOW
    print(f"{len(ids)} tokens, {windows} windows of {WINDOW}")
    for name, kind, take in (("BF16", "bf16", lambda x: x), ("E4M3 weights", "fp8-block", lambda x: x),
                             ("E4M3 weights and activations", "fp8-block", rounded)):
        print(f"{name}: {Model(os.path.join(folder, kind)).perplexity(ids, windows, take):.4f}", flush=True)


if __name__ == "__main__":
    main()
