#!/usr/bin/env python3
"""Log-probabilities of vitrine beside llama.cpp's, of every family of decoders that llama.cpp's converter knows.

    python3 bench/peers/llama_parity.py [NAME ...]       bench/peers/llama.cpp.sh build has to run before

A tiny random model of tools/fixtures/make_models.py, in a shape that llama.cpp takes, goes through llama.cpp's own converter in F32;
both programs read the file: llama.cpp with KV in fp32 and no flash attention, vitrine with its portable rows. So the names, the
metadata and the order of rows are those of published files, not our own. Of 40 random tokens it prints the largest and the mean
difference of the log-probabilities of the token itself and of the 20 likeliest, and fails beyond a bound: 2e-4, and 3e-2 where
llama.cpp takes GELU from a table of half precision. Needs torch, transformers and the converter's Python packages."""
import json, os, random, shutil, subprocess, sys, tempfile, traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PEER = Path(os.environ.get("PEERS_DIR", Path.home() / ".cache/vitrine/peers")) / "llama.cpp"
sys.path[:0] = [str(PEER), str(PEER / "gguf-py"), str(ROOT / "tools/fixtures")]
import gguf
import make_models as tiny
import numpy as np
import torch
from conversion import get_model_class
from conversion.base import ModelBase, ModelType, get_model_architecture

VITRINE = os.environ.get("VITRINE", str(ROOT / "build/vitrine"))
SIGMOID = {"scoring_func": "sigmoid"}
MAMBAS = {"layer_types": ["mamba", "attention", "mamba"]}
NO_WINDOW = {"sliding_window": None}
FULL = "full_attention"


def longrope(original):
    p = tiny.MODELS["phi3-longrope"][2]["rope_parameters"]
    return {**NO_WINDOW, "original_max_position_embeddings": original, "max_position_embeddings": 4096,
            "rope_parameters": {**p, "original_max_position_embeddings": original}}


# name: (the tiny model, what its config has otherwise, what the written config.json has otherwise). llama.cpp wants heads that
# divide the hidden size in some families, and published files have keys that transformers leaves out.
MODELS = {
    "llama": ("llama-mha-llama3", {}, {}),
    "llama-yarn": ("llama-gqa2-yarn", {}, {}),
    "llama-linear-bias": ("llama-gqa3-linear-bias", {}, {}),
    "mistral-window": ("mistral-gqa4-window", {}, {}),
    "mistral3": ("mistral3-nested", {}, {}),
    "ministral3": ("ministral3-temper", {}, {}),
    "qwen2": ("qwen2-gqa7", {"hidden_size": 84}, {}),
    "qwen3-yarn": ("qwen3-gqa5-yarn", {}, {}),
    "qwen3moe": ("qwen3moe-norm-mixed", {"mlp_only_layers": []}, {}),
    "qwen35": ("qwen35-delta", {"linear_value_head_dim": 8}, {}),
    "qwen35moe": ("qwen35moe-outer", {"linear_value_head_dim": 12}, {}),
    "qwen3next": ("qwen3next-key-heads", {"linear_value_head_dim": 12}, {}),
    "gemma2": ("gemma2-caps", {}, {}),
    "gemma3": ("gemma3-six-linear", {}, {}),
    "gemma4": ("gemma4-per-layer", {"head_dim": 16, "global_head_dim": 32}, {}),
    "gemma4-experts": ("gemma4-experts", {"head_dim": 16, "global_head_dim": 32}, {}),
    "granite": ("granite-four-scales", {}, {}),
    "granite4-dense": ("granite4-mamba", {"layer_types": [FULL] * 3, "position_embedding_type": "rope", "rope_parameters": tiny.rope()},
                       {"layer_types": ["attention"] * 3, "num_experts_per_tok": 0}),
    "granite4-h": ("granite4-mamba", {}, {**MAMBAS, "num_experts_per_tok": 0}),
    "granite4-h-experts": ("granite4moe-mamba", {"position_embedding_type": "nope"}, MAMBAS),
    "nemotron-h": ("nemotronh-mamba", {"mamba_head_dim": 64}, {}),
    "nemotron-h-experts": ("nemotronh-experts", {"mamba_head_dim": 64, "n_group": 1},
                           {"hybrid_override_pattern": "ME*E", "num_hidden_layers": 4, "norm_eps": 1e-5}),
    "smollm3": ("smollm3-nope", {}, {}),
    "olmo2": ("olmo2-whole-norms", {"hidden_size": 40}, {}),
    "olmo3": ("olmo3-windows-yarn", {"hidden_size": 32}, {}),
    "phi3-short": ("phi3-longrope", longrope(2048), {}),  # factors are chosen by the context that a program was given
    "phi3-long": ("phi3-longrope", longrope(4), {}),
    "glm4": ("glm4-interleaved", {}, {}),
    "glm4moe": ("glm4moe-groups", {"n_group": 1, "topk_group": 1}, {"num_nextn_predict_layers": 0}),
    "glm4moelite": ("glm4moelite-latents", {"rms_norm_eps": 1e-6}, {**SIGMOID, "first_k_dense_replace": 1}),  # its latents' epsilon
    "deepseek2-lite": ("deepseekv2-latents", {"num_hidden_layers": 27}, {}),  # so many layers mean no latent of q
    "deepseek3": ("deepseekv3-groups", {}, {**SIGMOID, "num_nextn_predict_layers": 0}),
    "kimi-linear": ("kimi-linear-channels", {"n_group": 1, "topk_group": 1}, {
        "linear_attn_config": {"full_attn_layers": [2], "kda_layers": [1, 3, 4], "num_heads": 4, "head_dim": 12,
                               "short_conv_kernel_size": 4},
        "moe_router_activation_func": "sigmoid", "first_k_dense_replace": 1, "moe_layer_freq": 1, "num_nextn_predict_layers": 0,
        "mla_use_nope": True}),
    "minimax-m2": ("minimaxm2-whole-norms", {}, {**SIGMOID, "rotary_dim": 6}),
    "exaone4": ("exaone4-windows-nope", {"hidden_size": 32, **NO_WINDOW, "layer_types": [FULL] * 4}, {}),
    "exaone4-windows": ("exaone4-windows-nope", {  # so many layers mean windows
        "hidden_size": 32, "num_hidden_layers": 64, "layer_types": (["sliding_attention"] * 3 + [FULL]) * 16}, {}),
    "hunyuan": ("hunyuan-rotated-norms", {"max_position_embeddings": 32768}, {}),
    "hunyuan-moe": ("hunyuanmoe-shared", {
        "max_position_embeddings": 32768, "hidden_size": 256, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 128,
        "rope_parameters": tiny.rope(1e4, "dynamic", alpha=1000.0, factor=1.0)}, {}),
    "gpt-oss": ("gpt-oss-mxfp4", {"rope_parameters": tiny.rope(1e4)}, {}),  # llama.cpp rounds the bounds of its YaRN, which the model does not
    "lfm2": ("lfm2-conv", {}, {}),
    "lfm2moe": ("lfm2moe-conv", {"hidden_size": 32}, {}),
}


def convert(name, folder, out):
    """Writes the model and its file; returns the number of tokens."""
    source, changes, written = MODELS[name]
    config_class, model_class, kw = tiny.MODELS[source]
    model, seed = tiny.make(name, config_class, model_class, {**kw, **changes})
    tiny.randomise(model, seed, torch.float32)
    tiny.save(model, str(folder), torch.float32)
    if name == "kimi-linear":
        tiny.to_published_kimi(str(folder))
    path = folder / "config.json"
    config = json.loads(path.read_text()) | written
    path.write_text(json.dumps(config))
    vocab = model.config.get_text_config().vocab_size
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {str(i): i for i in range(vocab)}}, "added_tokens": []}))
    with torch.inference_mode():
        hparams = ModelBase.load_hparams(folder, False)
        writer = get_model_class(get_model_architecture(hparams, ModelType.TEXT))
        writer.set_vocab = lambda self: None
        writer.no_mtp = name.startswith(("qwen35", "qwen3next"))
        more = {}
        if name == "nemotron-h":  # transformers adds keys of experts, by which the converter tells the two
            experts = ("num_experts_per_tok", "layers_block_type", "n_group", "topk_group", "n_routed_experts", "num_local_experts",
                       "num_experts")
            more["hparams"] = {k: v for k, v in hparams.items() if k not in experts} | {
                "hybrid_override_pattern": "M-M*-M", "num_hidden_layers": 6}
        writer(folder, gguf.LlamaFileType.ALL_F32, out, eager=True, **more).write()
    return vocab


def compare(name, folder):
    """(largest, mean) difference, and the positions at which both have the same likeliest token"""
    path = folder / "model.gguf"
    vocab = convert(name, folder / "hf", path)
    arch = str(bytes(gguf.GGUFReader(path).fields["general.architecture"].parts[-1]), "utf-8")
    r = random.Random(5)
    ids = [r.randrange(vocab) for _ in range(40)]
    text = ",".join(map(str, ids))
    env = {**os.environ, "OVERRIDE": f"tokenizer.ggml.model=none,{arch}.vocab_size={vocab}"}
    subprocess.run([PEER / "llama_steps", "logits", path, "1", text, folder / "logits", "exact"], env=env, check=True)
    theirs = np.fromfile(folder / "logits", np.float32).reshape(len(ids), -1).astype(np.float64)
    theirs -= theirs.max(1, keepdims=True)
    theirs -= np.log(np.exp(theirs).sum(1, keepdims=True))
    ours = json.loads(subprocess.run(
        [VITRINE, "score", "-m", path, "--device", "cpu", "--kv-dtype", "f32", "--max-context", "256", "--tokens", text, "--json", "--top",
         "20", "-q"], env={**os.environ, "VITRINE_ISA": "portable"}, check=True, stdout=subprocess.PIPE, text=True).stdout)
    apart = [abs(ours["logprobs"][i] - theirs[i - 1][ids[i]]) for i in range(1, len(ids))]
    apart += [abs(t["logprob"] - theirs[i - 1][t["id"]]) for i in range(1, len(ids)) for t in ours["top"][i]]
    same = sum(ours["top"][i][0]["id"] == int(theirs[i - 1].argmax()) for i in range(1, len(ids)))
    return max(apart), float(np.mean(apart)), same


def main():
    unknown = [n for n in sys.argv[1:] if n not in MODELS]
    if unknown or not (PEER / "llama_steps").exists():
        print(f"no model {unknown[0]}" if unknown else "run bench/peers/llama.cpp.sh build first", file=sys.stderr)
        return 2
    failed = 0
    for name in sys.argv[1:] or MODELS:
        folder = Path(tempfile.mkdtemp())
        try:
            largest, mean, same = compare(name, folder)
            bound = 3e-2 if name.startswith("gemma") else 2e-4
            failed += largest > bound
            print(f"{name}: largest {largest:.1e}, mean {mean:.1e}, the likeliest token the same at {same} of 39"
                  f"{'' if largest <= bound else f': beyond {bound}'}", flush=True)
        except Exception:
            failed += 1
            print(f"{name}: failed\n{traceback.format_exc()}", flush=True)
        finally:
            shutil.rmtree(folder)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
