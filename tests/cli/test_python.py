#!/usr/bin/env python3
"""The wheel, installed by pip into an empty environment, and the Python API that it brings."""
import glob, os, subprocess, sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BUILD = os.environ.get("VITRINE_BUILD", "build/release")


def wheel():
    """Made anew by `make wheel`."""
    made = subprocess.run(["make", "-s", "wheel"], cwd=ROOT, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    (found,) = glob.glob(os.path.join(ROOT, "build", "wheel", "vitrine-*.whl"))
    return found


def environment():
    """The Python of an environment that holds the wheel and nothing else of ours."""
    folder = os.path.join(ROOT, BUILD, "python-env")
    python = os.path.join(folder, "bin", "python")
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--clear", folder], check=True, capture_output=True)
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-index", "--disable-pip-version-check", wheel()], check=True,
                   capture_output=True)
    return python


if os.path.basename(BUILD) != "release":
    print("1..0 # skip the wheel is made of the release build")
    sys.exit(0)
if "VITRINE_WHEEL" not in os.environ:
    python = environment()
    (path,) = glob.glob(os.path.join(ROOT, "build", "wheel", "vitrine-*.whl"))
    os.execve(python, [python, os.path.abspath(__file__)], {**os.environ, "VITRINE_WHEEL": path})

# ---- from here on in the environment ----
import asyncio, json, numbers, re, tempfile, threading, urllib.request, zipfile  # noqa: E402

import vitrine  # noqa: E402

sys.path.insert(0, HERE)
import tap  # noqa: E402

MODEL = tap.MODEL if tap.have_model() else tap.DUMMY
FAST = {"device": "cpu", "max_context": 512, "kv_memory": "64M"}
shared = []


def llm():
    """One for most tests."""
    if not shared:
        shared.append(vitrine.LLM(MODEL, **FAST))
    return shared[0]


def raises(kind, *needles):
    """A block that must raise exactly this kind of error, whose text has the needles."""
    class Block:
        def __enter__(self):
            return self

        def __exit__(self, found, value, _):
            assert found is not None, f"nothing was raised, expected {kind.__name__}"
            assert issubclass(found, kind), f"{found.__name__}: {value}"
            for n in needles:
                assert n in str(value), f"{value!s} lacks {n!r}"
            self.error = value
            return True
    return Block()


def python(code, **kw):
    """A further process of the environment."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=tap.LIMIT_S,
                          env=tap.clean_env(), **kw)


def test_the_wheel_is_small_and_needs_only_the_c_library():
    path = os.environ["VITRINE_WHEEL"]
    assert os.path.getsize(path) < 15e6
    assert re.search(r"-py3-none-manylinux_2_28_x86_64\.whl$", path), path
    with zipfile.ZipFile(path) as z, tempfile.TemporaryDirectory() as d:
        (meta,) = [n for n in z.namelist() if n.endswith("METADATA")]
        assert b"Requires-Dist" not in z.read(meta)
        assert "vitrine/py.typed" in z.namelist()
        (program,) = [n for n in z.namelist() if n.endswith("data/bin/vitrine")]
        for name in ("vitrine/libvitrine.so.0", program):
            path = z.extract(name, d)
            out = subprocess.run(["readelf", "-d", path], capture_output=True, text=True).stdout
            needed = set(re.findall(r"NEEDED.*\[(.*)\]", out))
            assert needed <= {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "ld-linux-x86-64.so.2"}, out
            assert "TEXTREL" not in out, out
            out = subprocess.run(["objdump", "-T", path], capture_output=True, text=True).stdout
            versions = {int(v) for v in re.findall(r"\(?GLIBC_2\.(\d+)", out)}
            assert versions and max(versions) <= 28, f"{name} wants glibc 2.{max(versions)}"
        names = subprocess.run(["nm", "-D", "--defined-only", os.path.join(d, "vitrine/libvitrine.so.0")], capture_output=True,
                               text=True).stdout.split("\n")
        others = [n for n in names if n and not n.split()[-1].startswith("vt_")]
        assert not others, others


def test_the_program_is_there_and_is_the_same_version():
    beside = os.path.join(os.path.dirname(sys.executable), "vitrine")
    for command in ([beside], [sys.executable, "-m", "vitrine"]):
        out = subprocess.run([*command, "--version"], capture_output=True, text=True)
        assert (out.stdout, out.stderr) == (f"vitrine {vitrine.__version__}\n", ""), out
    assert subprocess.run([sys.executable, "-m", "vitrine", "frob"], capture_output=True).returncode == 2


def test_a_result_is_what_the_program_says():
    text = "The capital of France is"
    r = llm().generate(text, max_tokens=12)
    said = tap.ok("run", "--json", *tap.FAST, "-m", MODEL, "--raw", "-n", "12", "--temperature", "0", text).json
    assert r.text == said["text"], (r.text, said)
    assert (r.prompt_tokens, r.completion_tokens) == (said["usage"]["prompt_tokens"], said["usage"]["completion_tokens"])
    assert len(r.tokens) == r.completion_tokens and llm().detokenize(r.tokens) == r.text
    assert r.finish_reason == "length"
    assert r.story["request"]["completion_tokens"] == 12 and r.story is r.story
    with raises(AttributeError, "tekst"):
        r.tekst


def test_a_list_gives_a_list_in_its_order():
    prompts = [f"{n} bottles of beer" for n in range(1, 20)]
    together = llm().generate(prompts, max_tokens=4)
    assert [r.prompt_tokens for r in together] == [len(llm().tokenize(p)) for p in prompts]
    assert [len(r.tokens) for r in together] == [4] * 19
    ids = llm().generate([llm().tokenize(p) for p in prompts[:3]], max_tokens=4)
    assert [r.prompt_tokens for r in ids] == [r.prompt_tokens for r in together[:3]]
    assert llm().generate([]) == []
    assert llm().generate(llm().tokenize(prompts[0]), max_tokens=4).tokens == llm().generate(prompts[0], max_tokens=4).tokens


def test_sampling_parameters_reach_the_engine():
    r = llm().generate("Once", n=3, temperature=1.0, seed=5, max_tokens=6, logprobs=2, ignore_eos=True)
    assert len(r.completions) == 3 and r.text == r.completions[0].text
    for c in r.completions:
        assert len(c.tokens) == len(c.logprobs) == len(c.top_logprobs) == 6
        assert all(len(t) == 2 and all(p <= 0 for p in t.values()) for t in c.top_logprobs)
    again = llm().generate("Once", n=3, temperature=1.0, seed=5, max_tokens=6, ignore_eos=True)
    assert [c.tokens for c in again.completions] == [c.tokens for c in r.completions]
    a, b = llm().tokenize(" yes")[0], llm().tokenize(" no")[0]
    assert set(llm().generate("Is it", allowed=[a, b], max_tokens=5, ignore_eos=True).tokens) <= {a, b}
    assert llm().generate("Is it", logit_bias={b: 100.0}, max_tokens=3, ignore_eos=True).tokens == [b] * 3
    whole = llm().generate("Count: 1 2 3", max_tokens=20, ignore_eos=True).text
    stop = whole[3:5]
    cut = llm().generate("Count: 1 2 3", max_tokens=20, ignore_eos=True, stop=["never comes", stop])
    assert cut.text == whole[: whole.index(stop)] and (cut.finish_reason, cut.stop) == ("stop", stop)


def test_streams_bring_the_same_text_in_pieces():
    whole = llm().generate("Once upon a time", max_tokens=24, ignore_eos=True)
    s = llm().stream("Once upon a time", max_tokens=24, ignore_eos=True)
    pieces = list(s)
    assert "".join(pieces) == whole.text == s.result.text and all(pieces) and s.result.tokens == whole.tokens
    messages = [{"role": "user", "content": "Say hello."}]
    if tap.have_model():
        assert "".join(llm().chat(messages, stream=True, max_tokens=9)) == llm().chat(messages, max_tokens=9).text
        assert "Say hello." in llm().render(messages)
    with raises(ValueError, "n is 2"):
        llm().stream("x", n=2)
    with raises(ValueError, "messages"):
        llm().chat("hello")


def test_a_stream_left_early_frees_its_pages():
    before = llm().stats()["finished_abort"]
    with llm().stream("Once", max_tokens=400, ignore_eos=True) as s:
        assert next(s)
    t = llm().stream("Twice", max_tokens=400, ignore_eos=True)
    next(t)
    del t
    tap.wait_until(lambda: llm().stats()["running"] == 0 and llm().stats()["pages_used"] == 0, "no page is used")
    assert llm().stats()["finished_abort"] == before + 2


def test_asyncio_twins_run_side_by_side():
    async def words(prompt):
        return "".join([piece async for piece in llm().astream(prompt, max_tokens=10, ignore_eos=True)])

    async def main():
        got = await asyncio.gather(*(words(p) for p in ("One", "Two", "Three")))
        assert got == [llm().generate(p, max_tokens=10, ignore_eos=True).text for p in ("One", "Two", "Three")]
        assert [len(r.tokens) for r in await llm().agenerate(["A", "B"], max_tokens=3, ignore_eos=True)] == [3, 3]
        if tap.have_model():
            assert (await llm().achat([{"role": "user", "content": "Hi"}], max_tokens=5)).completion_tokens <= 5
        task = asyncio.create_task(llm().agenerate("long", max_tokens=450, ignore_eos=True))
        while llm().stats()["running"] == 0:
            await asyncio.sleep(0.001)
        task.cancel()
        with raises(asyncio.CancelledError):
            await task
    asyncio.run(main())
    tap.wait_until(lambda: llm().stats()["pages_used"] == 0, "a cancelled task's pages are free")


def test_threads_share_one_batch():
    results = {}

    def ask(i):
        results[i] = llm().generate(f"Number {i} is", max_tokens=30, ignore_eos=True).tokens
    steps = llm().stats()["steps"]
    threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all(len(results[i]) == 30 for i in range(8))
    assert llm().stats()["steps"] - steps < 8 * 31, "some steps computed several of them"


def test_text_and_scores():
    for text in ("", "plain", "Hé l\u0000lo \U0001f600", "two\nlines"):
        assert llm().detokenize(llm().tokenize(text)) == text, text
    ids = llm().tokenize("The sky is blue today")
    score = llm().score(ids)
    assert score.tokens == ids and score.logprobs[0] is None and len(score.logprobs) == len(ids)
    for i in range(1, len(ids)):
        p = llm().generate(ids[:i], max_tokens=1, logprobs=0, allowed=[ids[i]], ignore_eos=True)
        assert p.tokens == [ids[i]]
    assert score.total < 0 and score.perplexity > 1
    with raises(ValueError, "token 0 is -1"):
        llm().detokenize([-1])


def test_wrong_values_are_named():
    for kw, needle in (({"temperature": -1}, "temperature is -1"), ({"max_tokens": "9"}, "max_tokens is '9'"), ({"n": 0}, "n is 0"),
                       ({"max_tokens": 2**40}, "max_tokens is 1099511627776"), ({"top_p": 2}, "top_p"), ({"stop": 5}, "stop is 5"),
                       ({"stop": ["a", ""]}, "stop string 1"), ({"stop": "a\0b"}, "stop"), ({"seed": -1}, "seed is -1"),
                       ({"logit_bias": [1]}, "logit_bias"), ({"ignore_eos": 1}, "ignore_eos is 1"), ({"allowed": []}, "allowed"),
                       ({"temperature": float("nan")}, "temperature is nan"), ({"max_tokens": True}, "max_tokens is True")):
        with raises(ValueError, needle):
            llm().generate("x", **kw)
    with raises(TypeError, "'temprature'", "did you mean 'temperature'"):
        llm().generate("x", temprature=1)
    for prompt, needle in ((5, "prompt"), ([1, "a"], "prompt[1] is 'a'"), ("\ud800", "surrogates"), ([10**6], "1000000"), ("", "prompt")):
        with raises(ValueError, needle):
            llm().generate(prompt, max_tokens=1)
    for kw, needle in (({"json": True}, "json"), ({"quiet": True}, "quiet"), ({"temperature": 1}, "temperature")):
        with raises(ValueError, f"option {needle}"):
            vitrine.LLM(MODEL, **kw)
    for name in ("", 5, b"x"):
        with raises(ValueError, "model is"):
            vitrine.LLM(name)
    with raises(ValueError, "messages are None"):
        llm().chat(None)
    with raises(ValueError, "stream is 'yes'"):
        llm().chat([{"role": "user", "content": "x"}], stream="yes")
    for seconds in (-1, float("inf")):
        with raises(ValueError, "timeout is"):
            llm().generate("x", timeout=seconds)
    with raises(ValueError, "devcie", "did you mean device"):
        vitrine.LLM(MODEL, devcie="cpu")
    with raises(ValueError, "threads"):
        vitrine.LLM(MODEL, threads=-1)
    with raises(OSError, "/nowhere"):
        vitrine.LLM("/nowhere/model.gguf", device="cpu")
    with tempfile.NamedTemporaryFile(suffix=".gguf") as f:
        f.write(b"GGUF\x03\0\0\0" + b"\xff" * 100)
        f.flush()
        with raises(vitrine.ModelError, f.name):
            vitrine.LLM(f.name, device="cpu")
    with raises(ValueError, "option pooling"):
        llm().embed("x")


def test_embeddings():
    folder = os.path.join(ROOT, "tests", "golden", "embedding", "qwen3")
    with open(os.path.join(folder, "vectors.json"), encoding="utf-8") as f:
        wanted = json.load(f)
    with vitrine.LLM(folder, pooling="mean", max_context=128, kv_memory="4M", kv_dtype="f32", device="cpu") as m:
        far = lambda a, b: max(abs(x - y) for x, y in zip(a, b, strict=True))  # noqa: E731
        for want, got in zip(wanted, m.embed([w["ids"] for w in wanted]), strict=True):
            assert far(got, want["mean"]) < 2e-5
            assert got == m.embed(want["ids"])  # alone as in a batch
        text = next(w for w in wanted if w["text"])
        assert far(m.embed(text["text"]), text["mean"]) < 2e-5
        assert far(m.embed(text["ids"], unscaled=True, dimensions=3), text["raw"][:3]) < 1e-3
        with raises(ValueError, "dimensions is 41"):
            m.embed("x", dimensions=41)
        with raises(ValueError, "pooling"):
            m.generate("x")
        with raises(ValueError, "no prompt 'query'"):
            m.embed("x", prompt_name="query")


def test_a_request_that_takes_too_long_is_a_timeout():
    with raises(TimeoutError):
        llm().generate("x", max_tokens=490, ignore_eos=True, timeout=1e-6)


def test_why_a_completion_ended():
    limited, full = llm().generate("x", max_tokens=3, ignore_eos=True), llm().generate("x", max_tokens=100000, ignore_eos=True)
    assert [(r.finish_reason, r.end_reason) for r in (limited, full)] == [("length", "max_tokens"), ("length", "context")]
    assert limited.story["request"]["end_reason"] == "max_tokens"
    with raises(ValueError, "context"):
        llm().generate([1] * 100000)


def test_closed_is_closed_and_two_models_live_side_by_side():
    with vitrine.LLM(tap.DUMMY, **FAST) as other:
        assert len(other.generate("a", max_tokens=2, ignore_eos=True).tokens) == 2
        assert len(llm().generate("a", max_tokens=2, ignore_eos=True).tokens) == 2
        s = other.stream("a", max_tokens=400, ignore_eos=True)
        next(s)
        r = s.result
    rest = list(s)
    assert r.finish_reason == "abort" and len(rest) < 400
    for call in (lambda: other.generate("a"), lambda: other.tokenize("a"), lambda: other.stats(), lambda: r.story,
                 lambda: other.stream("a")):
        with raises(RuntimeError, "closed"):
            call()
    other.close()
    assert "closed" in repr(other)


def test_a_fork_is_refused_and_may_open_its_own():
    out = python(f"""
import os, vitrine
llm = vitrine.LLM({MODEL!r}, **{FAST!r})
llm.generate("a", max_tokens=2)
pid = os.fork()
if pid == 0:
    try:
        llm.generate("a")
        os._exit(3)
    except RuntimeError as e:
        assert "fork" in str(e), e
    llm.close()
    own = vitrine.LLM({MODEL!r}, **{FAST!r})
    os._exit(0 if len(own.generate("a", max_tokens=2, ignore_eos=True).tokens) == 2 else 4)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
print(len(llm.generate("a", max_tokens=2, ignore_eos=True).tokens))
""")
    assert (out.returncode, out.stdout, out.stderr) == (0, "2\n", ""), out


def test_nothing_is_printed_and_an_llm_need_not_be_closed():
    out = python(f"""
import vitrine
llm = vitrine.LLM({MODEL!r}, **{FAST!r})
llm.generate("a", max_tokens=2)
s = llm.stream("b", max_tokens=300, ignore_eos=True)
next(s)
""")
    assert (out.returncode, out.stdout, out.stderr) == (0, "", ""), out


def test_ctrl_c_ends_the_request():
    out = python(f"""
import os, signal, threading, time, vitrine
llm = vitrine.LLM({MODEL!r}, **{{**{FAST!r}, "max_context": 8192, "kv_memory": "512M"}})
def press():
    while llm.stats()["running"] + llm.stats()["queued"] < 16:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=press).start()
try:
    llm.generate(["long"] * 16, max_tokens=8000, ignore_eos=True)
except KeyboardInterrupt:
    print(llm.generate("a", max_tokens=2, ignore_eos=True).completion_tokens, llm.stats()["finished_abort"])
""")
    assert (out.returncode, out.stdout, out.stderr) == (0, "2 16\n", ""), out


def test_loading_reports_progress_and_can_be_stopped():
    seen = []
    vitrine.LLM(tap.DUMMY, progress=lambda stage, share: seen.append((stage, share)), **FAST).close()
    assert seen and all(0 <= share <= 1 for _, share in seen) and len({stage for stage, _ in seen}) > 1, seen

    def refuse(stage, share):
        raise ZeroDivisionError(stage)
    with raises(ZeroDivisionError):
        vitrine.LLM(tap.DUMMY, progress=refuse, **FAST)


def test_serve_in_the_background():
    with vitrine.serve(MODEL, device="cpu", max_context=512, kv_memory="64M") as s:
        with urllib.request.urlopen(s.url + "/v1/models") as r:
            assert r.status == 200
    assert s.process.returncode == 0, s.log
    with raises(ValueError, "no-such-option"):
        vitrine.serve(MODEL, no_such_option=1)
    with raises(OSError, "no model nonesuch"):
        vitrine.serve("nonesuch")


def test_a_story_is_a_dict_that_notebooks_show_as_a_page():
    story = llm().generate("a", max_tokens=4, ignore_eos=True).story
    assert isinstance(story, dict) and json.loads(json.dumps(story)) == story
    assert story.html().lower().startswith("<!doctype html>") and "http://" not in story._repr_html_().replace("http://www.w3.org", "")
    frame = story._repr_html_()
    assert frame.startswith('<iframe srcdoc="') and frame.count('"') == 6, frame[:200]
    assert vitrine.Story({"no": "story"})._repr_html_() is None
    with raises(RuntimeError, "story"):
        vitrine.Story({"no": "story"}).html()


def test_numbers_and_arrays_of_numpy_are_taken_without_numpy():
    class Integral:
        """As numpy's: registered with numbers.Integral, no int itself."""
        def __init__(self, value):
            self.value = value

        def __int__(self):
            return self.value
    numbers.Integral.register(Integral)

    class Array:
        """Neither list nor tuple; its rows are arrays too."""
        def __init__(self, rows):
            self.rows = [Array(r) if isinstance(r, list) else Integral(r) for r in rows]
            self.ndim = 2 if isinstance(rows[0], list) else 1

        def __iter__(self):
            return iter(self.rows)

    class Bool:
        ndim, dtype = 0, bool

        def __bool__(self):
            return True
    kw = {"max_tokens": Integral(2), "ignore_eos": Bool()}
    alone = llm().generate([5, 6], max_tokens=2, ignore_eos=True).tokens
    assert len(alone) == 2 and llm().generate(Array([5, 6]), **kw).tokens == alone
    for several in (Array([[5, 6], [7, 8]]), [Array([5, 6]), Array([7, 8])]):
        assert [r.tokens for r in llm().generate(several, **kw)][0] == alone
    assert llm().detokenize(Array([5, 6])) == llm().detokenize([5, 6]) and llm().score(Array([5, 6])).tokens == [5, 6]
    assert "numpy" not in sys.modules


def test_ctrl_c_while_a_stream_is_read_ends_it():
    out = python(f"""
import os, signal, vitrine
llm = vitrine.LLM({MODEL!r}, **{FAST!r})
try:
    for i, piece in enumerate(llm.stream("long", max_tokens=450, ignore_eos=True)):
        if i == 3:
            os.kill(os.getpid(), signal.SIGINT)
except KeyboardInterrupt:
    while llm.stats()["running"] + llm.stats()["pages_used"] > 0:
        pass
    print(llm.stats()["finished_abort"], llm.stats()["pages_used"])
""")
    assert (out.returncode, out.stdout, out.stderr) == (0, "1 0\n", ""), out


def test_other_threads_run_while_it_computes():
    """The lock of Python is not held: a thread counts while generate waits."""
    seen = []
    done = threading.Event()

    def count():
        while not done.is_set():
            seen.append(llm().stats()["running"])
    t = threading.Thread(target=count)
    t.start()
    llm().generate("x", max_tokens=200, ignore_eos=True)
    done.set()
    t.join()
    assert 1 in seen, len(seen)


def test_the_pages_examples_run():
    for page in ("python.md", "install.md"):
        with open(os.path.join(ROOT, "docs", page), encoding="utf-8") as f:
            code = re.search(r"```python\n(.*?)```", f.read(), re.S)[1]
        with tempfile.TemporaryDirectory() as d:
            out = python(code.replace('"smollm2-135m"', repr(MODEL)), cwd=d)
            assert out.returncode == 0 and out.stderr == "" and len(out.stdout) > 20, out
            assert ("story.html" in code) == os.path.exists(os.path.join(d, "story.html"))


def test_the_pages_name_the_wheel_that_is_made():
    path = os.environ["VITRINE_WHEEL"]
    for page in ("README.md", os.path.join("docs", "python.md"), os.path.join("docs", "install.md")):
        with open(os.path.join(ROOT, page), encoding="utf-8") as f:
            (named,) = set(re.findall(r"pip install (?:build/wheel/)?(\S+\.whl)", f.read()))
        assert glob.glob(os.path.join(os.path.dirname(path), named)) == [path], (page, named)


tap.main(globals())
