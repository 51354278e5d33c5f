#!/usr/bin/env python3
"""Models as files: which file a name means, hostile files, list, show and rm."""
import json, os, re, resource, shutil, struct, subprocess, sys, tempfile

from tap import *

TINY = os.path.abspath("tests/fuzz/corpus/model/llama.gguf")
OTHER = os.path.abspath("tests/fuzz/corpus/model/qwen2.gguf")
FOLDER = os.path.abspath("tests/golden/models/llama-mha-llama3")
SPLIT = os.path.abspath("tests/golden/split")
ASK = ["--tokens", "0,1,2", "-n", "2", "--json"]
LIMIT_BYTES = 512 << 20


class Place:
    """An empty current folder and an empty cache."""

    def __enter__(self):
        self.top = tempfile.mkdtemp()
        self.here, self.models = os.path.join(self.top, "here"), os.path.join(self.top, "cache", "models")
        os.makedirs(self.here)
        os.makedirs(self.models)
        self.env = {"VITRINE_CACHE": os.path.join(self.top, "cache")}
        return self

    def __exit__(self, *args):
        shutil.rmtree(self.top)

    def put(self, source, *path):
        to = os.path.join(*path)
        os.makedirs(os.path.dirname(to), exist_ok=True)
        (shutil.copytree if os.path.isdir(source) else shutil.copyfile)(source, to)
        return to

    def run(self, *args, limit=False, stdin=b""):
        """The program in `here`; with `limit`, in no more than LIMIT_BYTES of address space."""
        def in_child():
            resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
        p = subprocess.run([BIN, *args], cwd=self.here, env=clean_env(self.env), input=stdin, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, timeout=LIMIT_S, preexec_fn=in_child if limit and not SANITIZED else None)
        assert p.returncode >= 0, f"died of signal {-p.returncode}: {p.stderr.decode('utf-8', 'replace')[-2000:]}"
        assert b"Sanitizer" not in p.stderr and b"runtime error:" not in p.stderr, p.stderr.decode("utf-8", "replace")
        return Result(p.returncode, p.stdout, p.stderr)

    def ok(self, *args, **kw):
        r = self.run(*args, **kw)
        same(r.code, 0, f"exit of {args}: {r.log}")
        return r

    def fails(self, code, needles, *args, **kw):
        r = self.run(*args, **kw)
        same(r.code, code, f"exit of {args}: {r.log}")
        assert r.log.startswith("vitrine: ") and r.log.count("\n") == 1, r.log
        for n in [needles] if isinstance(needles, str) else needles:
            assert n in r.log, f"{r.log!r} lacks {n!r}"


# ---- names ----

def test_names_mean_the_cache_before_the_current_folder():
    with Place() as p:
        p.put(TINY, p.models, "mine.gguf")
        p.put(OTHER, p.here, "mine")
        r = p.ok("show", "mine", "--json")
        same(r.json["architecture"], "llama")
        r = p.ok("run", "-m", "mine", *ASK)
        assert os.path.join(p.models, "mine.gguf") in r.log and "./mine" in r.log, r.log
        same(p.ok("run", "-m", "mine", "--quiet", *ASK).log, "")
        for path in ("./mine", os.path.join(p.here, "mine")):
            same(p.ok("show", path, "--json").json["architecture"], "qwen2")


def test_names_that_are_not_in_the_cache_may_be_files_here():
    with Place() as p:
        p.put(OTHER, p.here, "mine")
        p.put(OTHER, p.here, "x.gguf")
        p.put(TINY, p.models, "x.gguf")
        for name in ("mine", "x.gguf"):
            same(p.ok("show", name, "--json").json["architecture"], "qwen2")


def test_names_that_are_known_are_never_files_of_the_current_folder():
    """The default model's name must not load a file from a downloaded folder."""
    with Place() as p:
        p.put(TINY, p.here, "smollm2-135m")
        p.fails(1, ["no model smollm2-135m"], "run", *ASK)
        p.fails(1, ["no model smollm2-135m"], "tokenize", stdin=b"x")


# ---- hostile files ----

def test_fifos_are_refused_at_once():
    with Place() as p:
        os.mkfifo(os.path.join(p.here, "f.gguf"))
        p.fails(1, ["f.gguf", "not a regular file"], "run", "-m", "f.gguf", *ASK)
        for name in ("config.json", "model.safetensors", "tokenizer_config.json", "generation_config.json"):
            folder = p.put(FOLDER, p.here, "m-" + name)
            if os.path.exists(os.path.join(folder, name)):
                os.unlink(os.path.join(folder, name))
            os.mkfifo(os.path.join(folder, name))
            p.fails(1, [name, "not a regular file"], "run", "-m", folder, *ASK)


def test_a_model_that_is_cut_short_while_it_is_used_ends_with_a_line():
    with Place() as p:
        path = p.put(TINY, p.here, "cut.gguf")
        with open(path, "ab") as f:
            f.truncate(os.path.getsize(path) + (1 << 20))  # so that whole pages go
        q = subprocess.Popen([BIN, "chat", "-m", path], cwd=p.here, env=clean_env(p.env), stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        q.stdin.write(b"abc\n")
        q.stdin.flush()
        q.stdout.read(1)  # it has answered: the model is loaded
        os.truncate(path, 0)
        q.stdin.write(b"abcabc\n/reset\nabc\n")
        _, log = q.communicate(timeout=LIMIT_S)
        log = log.decode()
        same(q.returncode, 1, log)
        assert "cut.gguf: the file was cut short while it was in use" in log, log


def many(count, what=b"{},"):
    return what * count


def test_json_of_strangers_is_refused_in_little_memory():
    """Files of 9 MB with nothing but small values give an error within LIMIT_BYTES."""
    junk = many(3 << 20)[:-1]
    listed = b"[" + junk + b"]"
    with Place() as p:
        for name, data, says in (("model.safetensors", struct.pack("<Q", len(listed)) + listed, "the header is an array; an object was expected"),
                                 ("model.safetensors.index.json", b'{"weight_map":' + listed + b"}", "weight_map"),
                                 ("config.json", b'{"x":' + listed + b"}", "at most 1048576"),
                                 ("generation_config.json", b'{"x":' + listed + b"}", "at most 1048576")):
            folder = p.put(FOLDER, p.here, "m-" + name)
            open(os.path.join(folder, name), "wb").write(data)
            p.fails(1, [name, says], "run", "-m", folder, *ASK, limit=True)
        folder = p.put(FOLDER, p.here, "m-words")
        open(os.path.join(folder, "tokenizer_config.json"), "wb").write(b'{"x":' + listed + b"}")
        p.ok("run", "-m", folder, *ASK, limit=True)


def test_json_that_a_person_names_is_refused_in_little_memory():
    """Files of 12 MB, of which jansson would make more than LIMIT_BYTES."""
    lists = b"[" + many(4 << 20)[:-1] + b"]"
    with Place() as p:
        for name, data, *verb in (
                ("s.json", b'{"schema":"vitrine.story","version":0,"phases":' + lists + b"}", "story", "show"),
                ("t.jsonl", b'{"timestamp":1,"input_length":5,"hash_ids":' + lists + b"}", "bench", "simulate", "-m",
                 "dummy:qwen3-0.6b", "--hardware", "h200", "--trace"),
                ("m.json", lists, "template", "--messages")):
            path = os.path.join(p.here, name)
            open(path, "wb").write(data)
            p.fails(1, [name, "so many values"], *verb, path, limit=True)


def with_context(source, to, context):
    data = bytearray(open(source, "rb").read())
    key = b"llama.context_length"
    at = data.index(key) + len(key) + 4
    data[at:at + 4] = struct.pack("<I", context)
    open(to, "wb").write(data)


def test_a_context_of_64_million_tokens_is_not_taken_without_being_asked_for():
    """Rope tables are filled for the whole context. (tests/unit/test_load.c has the context that is used.)"""
    with Place() as p:
        path = os.path.join(p.here, "long.gguf")
        with_context(TINY, path, 1 << 26)
        p.ok("run", "-m", path, *ASK, "--kv-memory", "64M", "--threads", "1", limit=True)
        p.fails(2, ["max-context is 16777216 tokens", "kv-memory"], "run", "-m", path, *ASK, "--max-context", str(1 << 24),
                "--kv-memory", "1M")


def test_parts_of_a_split_model_are_one_model():
    with Place() as p:
        whole = p.ok("run", "-m", os.path.join(SPLIT, "good.gguf"), *ASK).json
        parts = p.ok("run", "-m", os.path.join(SPLIT, "good-00001-of-00003.gguf"), *ASK).json
        same(parts["tokens"], whole["tokens"])
        p.fails(2, ["name the first one"], "run", "-m", os.path.join(SPLIT, "good-00002-of-00003.gguf"), *ASK)


# ---- list, show, rm ----

def stocked(p):
    p.put(TINY, p.models, "mine.gguf")
    p.put(OTHER, p.models, "SmolLM2-135M-Instruct.Q4_1.gguf")
    p.put(FOLDER, p.models, "org", "folder")
    for i in (1, 2, 3):
        name = f"good-{i:05}-of-00003.gguf"
        p.put(os.path.join(SPLIT, name), p.models, "org", "parts", name)
    open(os.path.join(p.models, "broken.gguf"), "wb").write(b"GGUF")
    open(os.path.join(p.models, ".hidden.gguf"), "wb").write(b"GGUF")
    open(os.path.join(p.models, "half.gguf.part"), "wb").write(b"GGUF")
    os.symlink(p.top, os.path.join(p.models, "link"))
    return {"broken": None, "mine": "Q8_0", "org/folder": "BF16", "org/parts/good-00001-of-00003": "Q8_0",
            "smollm2-135m": "Q8_0"}


def test_list_names_the_models_of_the_cache():
    with Place() as p:
        r = p.ok("list")
        same(r.out, b"")
        assert "no models in " + p.models in r.log
        types = stocked(p)
        models = p.ok("list", "--json").json["models"]
        same({m["name"]: m["type"] for m in models}, types)
        by_name = {m["name"]: m for m in models}
        parts = os.path.join(p.models, "org", "parts")
        same(by_name["org/parts/good-00001-of-00003"]["bytes"], sum(os.path.getsize(os.path.join(parts, n)) for n in os.listdir(parts)))
        same(by_name["org/folder"]["bytes"], sum(os.path.getsize(os.path.join(FOLDER, n)) for n in os.listdir(FOLDER)))
        for m in models:
            if m["type"]:  # every name is one that -m takes, and means that file
                same(os.path.realpath(p.ok("show", m["name"], "--json").json["path"]), os.path.realpath(m["path"]))
        text = p.ok("list").text
        same(sum(line[:1] != " " for line in text.splitlines()), 1 + len(types))  # a long path goes on below its row
        assert "unreadable" in text


def test_show_describes_a_model():
    with Place() as p:
        d = p.ok("show", TINY, "--json").json
        want = {"name": "llama", "path": TINY, "architecture": "llama", "tensors": 11, "type": "Q8_0", "context": 64, "layers": 1,
                "hidden": 32, "heads": 4, "kv_heads": 2, "head_dim": 8, "ffn": 64, "vocabulary": 24, "experts": 0, "tokens": 24,
                "chat_template": True, "tied_head": True, "rope_scaling": "none",
                "parameters": 24 * 32 + 2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 64 + 3 * 32}
        same({k: d[k] for k in want}, want)
        same(p.ok("show", os.path.join(SPLIT, "good-00001-of-00003.gguf"), "--json").json["tensors"], 11)
        moe = p.ok("show", os.path.abspath("tests/golden/models/qwen3moe-raw")).text
        assert "qwen3_moe" in moe and "experts" in moe, moe
        outer = os.path.abspath("tests/golden/models/qwen35moe-outer")  # with a vision encoder and an MTP head
        assert "MTP" in p.ok("show", outer).text and "vision" in p.ok("show", outer).text
        same(p.ok("show", outer, "--json").json["skipped_bytes"], 4 * (12 + 8 + 2))
        nested = p.ok("show", os.path.abspath("tests/golden/models/mistral3-nested"), "--json").json  # with a vision encoder
        assert "beside the text model" in nested["skipped"] and nested["skipped_bytes"] > 0, nested
        dummy = p.ok("show", "dummy:qwen3-0.6b", "--json").json
        same((dummy["layers"], dummy["context"]), (28, 40960))
        p.fails(1, ["no model nothing"], "show", "nothing")


def test_show_tells_which_layers_attend_and_what_the_others_keep():
    with Place() as p:
        rows = lambda name: dict(re.split(r"  +", line, maxsplit=1) for line in p.ok("show", name).text.splitlines())
        kimi = rows("dummy:kimi-linear-48b-a3b")
        same(kimi["parameters"], "49.12 billion in 610 tensors")
        same(kimi["attention"], "in 7 of 27 layers: 32 heads of 192 to latents of 512, without rope")
        same(kimi["state"], "in 20 of 27 layers: delta rule with a decay for each channel, 44.9 MB a sequence")
        same(rows("dummy:deepseek-v3")["attention"], "128 heads of 192 to latents of 512, 64 of the 192 rotated")
        same(rows("dummy:smollm3-3b")["attention"], "16 heads of 128, 4 KV heads, without rope in 9")
        d = p.ok("show", "dummy:kimi-linear-48b-a3b", "--json").json
        same((d["attention_layers"], d["state_layers"]), (7, 20))
        same(d["state_bytes"], p.ok("explain", "-m", "dummy:kimi-linear-48b-a3b", "--hardware", "h200", "--json").json["state"]["slot_bytes"])
        longrope = os.path.abspath("tests/golden/models/phi3-longrope")
        assert rows(longrope)["context"].endswith("rope scaling longrope"), rows(longrope)


def tree(folder):
    return sorted(os.path.relpath(os.path.join(d, f), folder) for d, _, names in os.walk(folder) for f in names)


def test_rm_removes_what_it_names_and_nothing_else():
    with Place() as p:
        stocked(p)
        before = tree(p.models)
        for args, says in (([], "rm what?"), (["mine"], "--yes"), (["nothing", "--yes"], "no model nothing"),
                           (["../cache", "--yes"], "no model"), (["org", "--yes"], "no model org"), ([".", "--yes"], "no model"),
                           (["link", "--yes"], "no model")):
            p.fails(2, [says], "rm", *args)
        same(tree(p.models), before)
        p.ok("rm", "--yes", "org/parts/good-00001-of-00003")
        same(os.path.exists(os.path.join(p.models, "org", "parts")), False, "the empty folder")
        p.ok("rm", "--yes", "mine.gguf")
        p.ok("rm", "-y", "smollm2-135m", "--quiet")
        p.ok("rm", "--yes", "org/folder")
        same(tree(p.models), [".hidden.gguf", "broken.gguf", "half.gguf.part"])
        assert os.path.isdir(p.here)

main(globals())
