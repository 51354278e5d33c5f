#!/usr/bin/env python3
"""vitrine tokenize, template and score."""
import math, os, shutil, tempfile

from tap import *


def test_tokenize_goes_both_ways():
    need_model()
    text = "Hello, wörld! 日本 \U0001f600\n\n  tabs\tand   spaces "
    ids = ok("tokenize", "--json", stdin=text).json["ids"]
    same(ok("tokenize", stdin=text).text, ",".join(map(str, ids)) + "\n")
    same(ok("tokenize", "--decode", ",".join(map(str, ids))).text, text)
    same(ok("tokenize", "--json", "--decode", ",".join(map(str, ids))).json["text"], text)
    same(ok("tokenize", "--json", stdin=b"").json["ids"], [])
    special = ok("tokenize", "--json", "--special", stdin="<|im_end|>").json["ids"]
    same(len(special), 1)
    assert len(ok("tokenize", "--json", stdin="<|im_end|>").json["ids"]) > 1
    fails(2, "--decode: token 99999999", "tokenize", "--decode", "99999999")
    last = 49151  # the default model's last id
    ok("tokenize", "--decode", str(last))
    fails(2, f"--decode: token {last + 1} found, expected ids below {last + 1}", "tokenize", "--decode", str(last + 1))
    fails(2, "other direction", "tokenize", "--special", "--decode", "1")


def test_tokenize_refuses_a_tokenizer_model_that_is_not_tiktokens():
    with tempfile.TemporaryDirectory() as d:
        folder = shutil.copytree("tests/golden/models/qwen3-gqa2", os.path.join(d, "m"))
        path = os.path.join(folder, "tokenizer.model")
        open(path, "wb").write(b"\n\x0e\n\x05<unk>\x15\0\0\0\0\x18\x02")  # SentencePiece
        fails(1, "tokenizer.model: line", "tokenize", "-m", folder, stdin="x")
        open(path, "w").write("YQ== 0\nYg== 1\n")
        fails(1, "2 ranks", "tokenize", "-m", folder, stdin="x")
        os.rename(path, os.path.join(folder, "tiktoken.model"))  # as Kimi's folders call it
        fails(1, "tiktoken.model", "tokenize", "-m", folder, stdin="x")


def test_template_needs_no_model_with_a_template():
    with tempfile.TemporaryDirectory() as d:
        t, m = os.path.join(d, "t.jinja"), os.path.join(d, "m.json")
        open(t, "w").write("{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
                           "{% if add_generation_prompt %}<go>{% endif %}{{ extra }}")
        open(m, "w").write('{"messages": [{"role": "user", "content": "h\\u00e9"}], "extra": 3}')
        args = ["template", "-m", "/nowhere", "--template", t, "--messages"]
        same(ok(*args, m).text, "[user]hé<go>3")
        same(ok(*args, m, "--no-generation-prompt").text, "[user]hé3")
        same(ok(*args, "-", stdin='[{"role": "a", "content": "b"}]').text, "[a]b<go>")
        fails(1, "standard input: not valid JSON: line 1", *args, "-", stdin="{")
        fails(1, "expected an object", *args, "-", stdin="3")
        fails(1, "/no/file", "template", "--template", t, "--messages", "/no/file")
        fails(2, "--messages is needed", "template", "--template", t)
        open(t, "w").write("{% for %}")
        fails(1, "t.jinja", *args, m)
        for wrong in ("{{ 1 // 0 }}", "{{ messages.__class__ }}", "{{ ''.join(3) }}"):  # a failure, no wrong usage
            open(t, "w").write(wrong)
            r = run(*args, m)
            assert r.code in (0, 1), (wrong, r.code, r.log)
        open(t, "w").write("{{ 1 // 0 }}")
        fails(1, "zero", *args, m)


def test_template_of_the_model():
    need_model()
    r = ok("template", "--messages", "-", stdin='[{"role": "user", "content": "Hi"}]')
    assert r.text.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"), r.text


def perplexity(logprobs):
    v = [x for x in logprobs if x is not None]
    return math.exp(-sum(v) / len(v))


def test_score_has_the_documented_form():
    r = ok("score", "--tokens", "10,11,12,13,14", "--top", "3", "--json", *FAST, *model()).json
    same(sorted(r), ["logprobs", "perplexity", "tokens", "top"])
    same(r["tokens"], [10, 11, 12, 13, 14])
    same((len(r["logprobs"]), len(r["top"])), (5, 5))
    same((r["logprobs"][0], r["top"][0]), (None, []))
    for i in range(1, 5):
        top = r["top"][i]
        same(len(top), 3)
        assert top[0]["logprob"] >= top[1]["logprob"] >= top[2]["logprob"]
        assert r["logprobs"][i] <= top[0]["logprob"] + 1e-6 and r["logprobs"][i] <= 0
        for t in top:
            if t["id"] == r["tokens"][i]:
                assert math.isclose(t["logprob"], r["logprobs"][i], abs_tol=1e-6)
    assert math.isclose(r["perplexity"], perplexity(r["logprobs"]), rel_tol=1e-5)


def test_score_agrees_with_what_run_chooses():
    """Greedy tokens are the likeliest at their position, so they lead the list of the scored text."""
    prompt = [40, 41, 42, 43]
    ids = ",".join(map(str, prompt))
    answer = run_json("--tokens", ids, "-n", "6", "--ignore-eos")["tokens"]
    r = ok("score", "--tokens", ",".join(map(str, prompt + answer)), "--top", "1", "--json", *FAST, *model()).json
    same([t[0]["id"] for t in r["top"][len(prompt):]], answer)


def test_score_windows_are_independent_and_half_scored():
    ids = [(7 * i * i + 3) % 1000 for i in range(27)]
    args = ["--json", *FAST, *model()]
    r = ok("score", "--tokens", ",".join(map(str, ids)), "--window", "8", *args).json
    scored = [i for i, x in enumerate(r["logprobs"]) if x is not None]
    same(scored, [c + i for c in (0, 8, 16) for i in (5, 6, 7)])
    chunk = ok("score", "--tokens", ",".join(map(str, ids[8:16])), *args).json
    for i in (5, 6, 7):
        same(r["logprobs"][8 + i], chunk["logprobs"][i], "the second window and the same tokens alone")
    assert math.isclose(r["perplexity"], perplexity(r["logprobs"]), rel_tol=1e-5)


def test_score_reads_a_text_and_drops_one_newline():
    need_model()
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as f:
        f.write("The cat sat on the mat.\n")
        f.flush()
        r = ok("score", "--text", f.name, "--json", *FAST, *model()).json
        same(r["tokens"], ok("tokenize", "--json", stdin="The cat sat on the mat.").json["ids"])
        text = ok("score", "--text", f.name, *FAST, *model()).text
        assert f"perplexity {r['perplexity']:.4f}" in text, text
        same(ok("score", "--text", "-", "--json", *FAST, *model(), stdin="The cat sat on the mat.").json, r)


def test_score_refuses_what_it_cannot_score():
    fails(2, "one of --text and --tokens", "score", *FAST, *model())
    fails(2, "give one of the two", "score", "--text", "a", "--tokens", "1,2", "-m", "/no/such/model.gguf")
    fails(2, "--top: goes with --json", "score", "--tokens", "1,2", "--top", "2", *FAST, *model())
    fails(2, "at least 2", "score", "--tokens", "5", *FAST, *model())
    fails(2, "only 3 tokens", "score", "--tokens", "5,6,7", "--window", "4", *FAST, *model())
    fails(2, "--window", "score", "--tokens", ",".join(["5"] * 600), *FAST, *model())
    fails(1, "/no/file", "score", "--text", "/no/file", *FAST, *model())
    fails(2, "--tokens: 99999999", "score", "--tokens", "99999999,1", *FAST, *model())


main(globals())
