#!/usr/bin/env python3
"""Every family of models, as docs/models.md lists them: its names, tiny models and shapes are those of the program, and each tiny
model computes the log-probabilities of transformers, is explained, and tells a story."""
import glob, json, math, os, random, re, shutil, struct, tempfile

from tap import *
from tensors_file import PACKED, matrix_of_codes, read_tensors, write_tensors

GOLDEN = "tests/golden"
BOUND = 1e-4  # of a log-probability, in fp32
PAGE = open("docs/models.md", encoding="utf-8").read()
ENOUGH = ["--max-context", "64", "--kv-memory", "16M", "--kv-dtype", "f32"]
QUANTISED = re.compile(r"int4|mxfp4|quantised")  # weights that fast rows multiply in 8 bits
AMX = "amx_tile" in open("/proc/cpuinfo", encoding="utf-8").read()  # multiplies activations in 16 bits
HEADS = {"hybrid", "eagle3"}  # made up for tests; a part of other models


def words(cell):
    return re.findall(r"`([^`]+)`", cell)


def table():
    """[(family, model_type, GGUF, tiny models, difference on a CPU, shapes, parsers)]"""
    rows = []
    for line in PAGE.split("\n## ")[1].splitlines():
        cells = [c.strip() for c in line.strip("|").split("|")]
        if len(cells) == 9 and cells[0].startswith("`"):
            rows.append((words(cells[0])[0], words(cells[2]), words(cells[3]), words(cells[4]), float(cells[5]) if cells[5] else None,
                         words(cells[7]), words(cells[8])))
    return rows


ROWS = table()


def path_of(tiny):
    return os.path.join(GOLDEN, tiny if "/" in tiny else "models/" + tiny)


def generators():
    """Each tiny model that makes text, once."""
    return sorted({t for row in ROWS for t in row[3] if "/" not in t})


def sources():
    """{family: (model_type, GGUF, shapes)} by the sources"""
    found = {}
    for path in glob.glob("src/model/families/*.c"):
        text = open(path, encoding="utf-8").read()
        lists = {name: re.findall(r'\.name = "([^"]+)"', body)
                 for name, body in re.findall(r"vt_family_shape (\w+)\[\] = \{(.*?)\n\};", text, re.S)}
        for name, body in re.findall(r"const vt_family vt_family_(\w+) = \{(.*?)\};", text, re.S):
            def one(key, pattern=r'"([^"]*)"'):
                return re.findall(rf"\.{key}\s*=\s*{pattern}", body)
            shapes = [s for n in one("shapes", r"(\w+)") for s in lists[n] if not s.endswith("-tiny")]
            found[name] = one("hf"), one("gguf"), shapes
    return found


def test_rows_are_the_families_of_the_program():
    """docs/models.md has a row for each family of the program, with its names and shapes"""
    listed = re.findall(r"VT_FAMILY\((\w+)\)", open("src/model/families.h", encoding="utf-8").read())
    same([r[0] for r in ROWS], [f for f in listed if f not in HEADS])
    known = sources()
    for family, hf, gguf, _, _, shapes, _ in ROWS:
        same((family, hf, gguf, shapes), (family, *known[family]))


def test_tiny_models_are_those_of_the_tests():
    """each tiny model of the page exists, each one of tests/golden/models is in a row, and each family has one"""
    for row in ROWS:
        assert row[3], row[0]
        for tiny in row[3]:
            assert os.path.exists(path_of(tiny)), f"{row[0]}: {tiny}"
    there = {n for n in os.listdir(os.path.join(GOLDEN, "models")) if not n.endswith(".bin")}
    same(sorted(there - set(generators())), [])


def test_both_forms_of_each_family_are_there():
    """a family that folders have has a tiny folder, and one that GGUF files have a tiny file"""
    for family, hf, gguf, tiny, *_ in ROWS:
        files = [t for t in tiny if t.endswith(".gguf")]
        assert not hf or len(files) < len(tiny), f"{family} has no folder"
        assert not gguf or files, f"{family} has no GGUF file"


def test_each_family_is_compared_with_itself_in_batches():
    """a tiny model of each family that makes text is in the list of tests/unit/test_determinism.c"""
    there = open("tests/unit/test_determinism.c", encoding="utf-8").read()
    for family, _, _, tiny, *_ in ROWS:
        texts = [t.replace("-BF16.gguf", "") for t in tiny if "/" not in t]
        assert not texts or any(f'"{t}' in there for t in texts), family


def read_golden(tiny):
    """[(ids, logits of each position)] as transformers computed them"""
    path = path_of(tiny)
    golden = os.path.join(path, "golden.bin")
    if tiny.endswith(".gguf"):
        golden = path[:-5] + ".bin"
        golden = golden if os.path.exists(golden) else os.path.join(path[:-5].rsplit("-", 1)[0], "golden.bin")
    with open(golden, "rb") as f:
        n, vocab = struct.unpack("<ii", f.read(8))
        for _ in range(n):
            length, = struct.unpack("<i", f.read(4))
            ids = struct.unpack(f"<{length}i", f.read(4 * length))
            yield ids, [struct.unpack(f"<{vocab}f", f.read(4 * vocab)) for _ in range(length)]


def log_softmax(row):
    most = max(row)
    total = most + math.log(sum(math.exp(x - most) for x in row))
    return [x - total for x in row]


def farthest(tiny, path=None):
    """The largest difference of a log-probability of the longest prompt: of its tokens, and of the 20 likeliest."""
    ids, rows = list(read_golden(tiny))[-1]
    isa = "portable" if QUANTISED.search(tiny) else "avx512" if AMX else None
    got = ok("score", "-q", "--json", "--top", "20", "--tokens", ",".join(map(str, ids)), "-m", path or path_of(tiny), *ENOUGH, env={"VITRINE_ISA": isa} if isa else None).json
    worst = 0
    for i in range(1, len(ids)):
        want = log_softmax(rows[i - 1])
        pairs = [(got["logprobs"][i], want[ids[i]])] + [(t["logprob"], want[t["id"]]) for t in got["top"][i]]
        worst = max([worst] + [abs(a - b) for a, b in pairs])
    return worst


def test_log_probabilities_are_those_of_transformers():
    """log-probabilities of every tiny model are within 1e-4 of transformers' in fp32, and about as far off as the page says"""
    told = {}
    for row in ROWS:
        for tiny in row[3]:
            if "/" not in tiny and not QUANTISED.search(tiny):
                told[tiny] = max(told.get(tiny, 0), row[4] or 0)
    for tiny in generators():
        far = farthest(tiny)
        assert far <= BOUND, f"{tiny}: {far}"
        assert tiny not in told or far <= 4 * told[tiny], f"{tiny}: {far}, and docs/models.md says {told[tiny]}"


def test_a_head_with_other_numbers_is_no_tied_one():
    """a folder that says that its head is tied, and holds another one, computes with that one"""
    for tiny in ("mistral-full-f16-sharded", "nemotronh-mamba"):
        with tempfile.TemporaryDirectory() as d:
            folder = shutil.copytree(path_of(tiny), os.path.join(d, "m"))
            config = json.load(open(os.path.join(folder, "config.json"), encoding="utf-8"))
            same(config["tie_word_embeddings"], False)
            config["tie_word_embeddings"] = True
            json.dump(config, open(os.path.join(folder, "config.json"), "w", encoding="utf-8"))
            assert farthest(tiny, folder) <= BOUND, tiny


def renamed(tiny, to, new_name, **changes):
    """A copy of a tiny model's folder with other names of tensors, without those whose new name is None, and with changes of its
    config.json."""
    folder = shutil.copytree(path_of(tiny), to)
    config, path = (os.path.join(folder, n) for n in ("config.json", "model.safetensors"))
    write_tensors(path, {new_name(n): t for n, t in read_tensors(path).items() if new_name(n)})
    said = json.load(open(config, encoding="utf-8"))
    json.dump(said | changes, open(config, "w", encoding="utf-8"))
    return folder


def test_kimi_linear_as_transformers_saves_it():
    """a folder whose dense layers stand under the experts' name, as transformers writes them, computes the same"""
    with tempfile.TemporaryDirectory() as d:
        folder = renamed("kimi-linear-channels", os.path.join(d, "m"), lambda n: n.replace(".mlp.", ".block_sparse_moe."))
        assert farthest("kimi-linear-channels", folder) <= BOUND


def transposed(tensor):
    """A BF16 tensor [n, rows, columns] as [n, columns, rows]."""
    kind, (n, rows, columns), data = tensor
    x = struct.unpack(f"<{n * rows * columns}H", data)
    return kind, [n, columns, rows], struct.pack(f"<{len(x)}H", *(
        x[(e * rows + r) * columns + c] for e in range(n) for c in range(columns) for r in range(rows)))


def experts_of(ffn, form):
    """A folder's tensors of experts of two layers: "transposed", as "saved" by transformers, each one "apart"."""
    out, draw = {}, random.Random(ffn)
    for layer in range(2):
        at = f"model.language_model.layers.{layer}.mlp.experts."
        both = {n: ("BF16", [5, rows, columns], struct.pack(f"<{5 * rows * columns}H", *(
            draw.choice((0x3c00, 0xbe00, 0x3d80, 0xbe4c, 0x3e9a)) for _ in range(5 * rows * columns))))
                for n, rows, columns in (("gate_up_proj", 2 * ffn, 40), ("down_proj", 40, ffn))}
        if form != "apart":
            out |= {at + n: transposed(t) if form == "transposed" else t for n, t in both.items()}
            continue
        half = ffn * 40 * 2
        for e in range(5):
            for i, n in enumerate(("gate_proj", "up_proj")):
                out[f"{at}{e}.{n}.weight"] = "BF16", [ffn, 40], both["gate_up_proj"][2][(2 * e + i) * half:][:half]
            out[f"{at}{e}.down_proj.weight"] = "BF16", [40, ffn], both["down_proj"][2][e * half:][:half]
    return out


def with_experts(to, ffn, tensors):
    """A copy of a tiny Qwen3-VL with these experts."""
    folder = renamed("qwen3vlmoe-transposed", to, lambda n: None if ".mlp.experts." in n else n)
    config, path = (os.path.join(folder, n) for n in ("config.json", "model.safetensors"))
    write_tensors(path, read_tensors(path) | tensors)
    said = json.load(open(config, encoding="utf-8"))
    said["text_config"]["moe_intermediate_size"] = ffn
    json.dump(said, open(config, "w", encoding="utf-8"))
    return folder


def test_qwen3_vl_has_its_experts_in_any_form():
    """experts [in, out] as published, [out, in] as transformers saves them, and each apart compute the same; in the second and third
    case gate and up, or down, are square, and the other tensor tells the form"""
    for ffn in (12, 20, 40):
        with tempfile.TemporaryDirectory() as d:
            got = [ok("score", "-q", "--json", "--tokens", "1,2,3,4,5,6,7,8", *ENOUGH, "-m",
                      with_experts(os.path.join(d, form), ffn, experts_of(ffn, form))).json["logprobs"][1:]
                   for form in ("transposed", "saved", "apart")]
        same(got[0], got[2])
        same(got[1], got[2])
        assert max(got[0]) - min(got[0]) > 0.5, got[0]


def test_qwen3_vl_whose_experts_have_another_shape_is_refused():
    """the folder, the tensor, its shape and those expected are told"""
    at = "model.language_model.layers.1.mlp.experts."
    for form, name, shape, says in (
            ("transposed", "gate_up_proj", [5, 20, 48], "has shape [5, 20, 48]; [5, 40, 24] or [5, 24, 40] was expected"),
            ("transposed", "gate_up_proj", [5, 24, 40], "down_proj has shape [5, 12, 40]; [5, 40, 12] was expected"),
            ("transposed", "down_proj", [5, 40, 12], "has shape [5, 40, 12]; [5, 12, 40] was expected"),
            ("saved", "down_proj", [5, 12, 40], "has shape [5, 12, 40]; [5, 40, 12] was expected"),
            ("transposed", "gate_up_proj", [4, 50, 24], "has rank 3 and first dimension 4; rank 3 and 5 were expected"),
            ("saved", "down_proj", [5, 480], "has rank 2 and first dimension 5; rank 3 and 5 were expected"),
            ("transposed", "down_proj", None, "is missing")):
        with tempfile.TemporaryDirectory() as d:
            tensors = experts_of(12, form)
            kind, _, data = tensors.pop(at + name)
            if shape:
                tensors[at + name] = kind, shape, data
            folder = with_experts(os.path.join(d, "m"), 12, tensors)
            tensor = "layers.1.mlp.experts." + ("down_proj" if "down_proj" in says else name)
            fails(1, [folder, tensor, says], "score", "--tokens", "1,2", "-m", folder)
    with tempfile.TemporaryDirectory() as d:
        eight = {n: ("F8_E4M3", s, b[::2]) for n, (_, s, b) in experts_of(12, "transposed").items()}
        fails(1, "has type FP8_E4M3; F32, F16 or BF16 were expected", "score", "--tokens", "1,2", "-m", with_experts(os.path.join(d, "m"), 12, eight))


def test_packed_matrices_that_are_read_while_a_model_is_loaded():
    """key heads are copied and latents' heads split when a folder is opened: 4-bit codes are unpacked before"""
    latents = random.Random(1).choices((0x3dcc, 0xbdcc, 0x3e4c, 0xbe4c), k=(32 + 6) * 28)  # 0.1 and 0.2 in BF16, of either sign
    for tiny, module, rows, layers, beside, changes in (
            ("qwen3next-fp8", "model.layers.{}.linear_attn.in_proj_qkvz", 1024, 1, {}, {}),
            ("deepseekv3-groups", "model.layers.{}.self_attn.kv_b_proj", 4 * (10 + 12), 3,
             {"self_attn.kv_a_proj_with_mqa.weight": ("BF16", [32 + 6, 28], struct.pack(f"<{len(latents)}H", *latents)),
              "self_attn.kv_a_layernorm.weight": ("BF16", [32], b"\x80\x3f" * 32)}, {"kv_lora_rank": 32})):
        with tempfile.TemporaryDirectory() as d:
            got = []
            for packed in (False, True):
                folder = renamed(tiny, os.path.join(d, str(packed)), lambda n: None if ".".join(module.split(".")[3:]) in n else n, **changes,
                                 **({"quantization_config": PACKED} if packed else {}))
                path = os.path.join(folder, "model.safetensors")
                tensors = read_tensors(path)
                for i in range(layers):
                    tensors |= matrix_of_codes(module.format(i), rows, 32, packed) | {f"model.layers.{i}.{n}": t for n, t in beside.items()}
                write_tensors(path, tensors)
                got.append(ok("score", "-q", "--json", "--tokens", "1,2,3,4,5,6,7,8", "-m", folder, *ENOUGH, env={"VITRINE_ISA": "portable"}).json["logprobs"][1:])
            far = max(abs(a - b) for a, b in zip(*got))
            assert far < BOUND and max(got[0]) - min(got[0]) > 0.5, (tiny, far, got)


def test_models_without_attention_make_text():
    """a model of layers with sequence state and feed-forwards alone keeps nothing in pages, and makes the same text in any way"""
    with tempfile.TemporaryDirectory() as d:
        folder = renamed("nemotronh-mamba", os.path.join(d, "m"), lambda n: None if re.search(r"layers\.[3-9]", n) else n,
                         layers_block_type=["linear_attention", "mlp", "linear_attention"], num_hidden_layers=3)
        texts = [ok("run", "-q", "--json", "--tokens", "1,2,3,4,5,6,7", "-n", "6", "--ignore-eos", "--max-context", "64", "-m", folder, *more)
                 .json["tokens"] for more in ([], ["--kv-memory", "8M"], ["--max-running", "1", "--token-budget", "2"], ["--tp", "2", "--threads", "2"])]
        same(len(texts[0]), 6)
        same([t for t in texts if t != texts[0]], [])


def test_each_family_is_explained_and_tells_a_story():
    """the first tiny model of each family is explained, makes text, and tells a story with its steps and ops"""
    with tempfile.TemporaryDirectory() as d:
        for family, _, _, tiny, *_ in ROWS:
            model, path = path_of(tiny[0]), os.path.join(d, "story.json")
            calls = ok("explain", "-q", "--json", "--hardware", "h200", "-m", model).json["calls"]
            assert len(calls) > 5, family
            if "/" in tiny[0]:
                ok("bench", "offline", "-q", "--num", "2", "--input", "3:3", "--max-context", "16", "--kv-memory", "8M", f"--story={path}", "-m",
                   model)
            else:
                ok("run", "-q", "--tokens", "1,2,3", "-n", "4", "--ignore-eos", f"--story={path}", "-m", model, *ENOUGH)
            story = json.load(open(path, encoding="utf-8"))
            assert story["requests"] and story["steps"], family
            assert len(story["calls"]["labels"]) > 3, family


def test_each_shape_is_explained():
    """each dummy shape of the page has a program for an H200"""
    for family, _, _, _, _, shapes, _ in ROWS:
        for shape in shapes:
            total = ok("explain", "-q", "--json", "--hardware", "h200", "-m", "dummy:" + shape).json["total"]
            assert total["least_us"] > 0, shape


def test_parsers_are_known():
    """each form of calls of the page is one that serve takes, and none that serve takes is known for no family here"""
    known = re.search(r"--tool-parser FORM.*?auto\|([^\[]+)\[", ok("serve", "--help").text, re.S)[1]
    known = set("".join(known.split()).split("|"))
    used = {p for row in ROWS for p in row[6]}
    same(sorted(used - known), [])


main(globals())
