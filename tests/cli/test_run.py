#!/usr/bin/env python3
"""vitrine run and vitrine chat."""
import fcntl, json, math, os, re, shutil, signal, tempfile, time

from tap import *


def test_run_json_has_the_documented_form():
    r = run_json("-n", "5", "--ignore-eos", COUNT)
    same(sorted(r), ["finish_reason", "text", "timings", "tokens", "usage"])
    same(sorted(r["usage"]), ["cached_tokens", "completion_tokens", "prompt_tokens"])
    same(sorted(r["timings"]), ["decode_ms", "decode_tokens_per_s", "load_ms", "prefill_ms", "ttft_ms"])
    same((r["finish_reason"], len(r["tokens"]), r["usage"]["completion_tokens"]), ("length", 5, 5))
    assert r["usage"]["prompt_tokens"] > 5 and r["usage"]["cached_tokens"] == 0
    t = r["timings"]
    assert 0 < t["prefill_ms"] <= t["ttft_ms"] and t["load_ms"] > 0 and t["decode_ms"] > 0


def test_run_few_tokens_have_no_decode_speed():
    for n in (1, 3):
        r = run_json("-n", str(n), "--ignore-eos", COUNT)
        same((len(r["tokens"]), r["timings"]["decode_tokens_per_s"]), (n, None))
    assert "tokens/s" not in ok("run", "-n", "3", "--ignore-eos", *FAST, *model(), COUNT).log


def test_run_text_on_stdout_is_the_json_text():
    want = run_json("-n", "12", COUNT)
    r = ok("run", "-n", "12", *FAST, *model(), COUNT)
    same(r.text, want["text"])
    assert "prompt tokens" in r.log and "tokens/s" in r.log
    one = ok("run", "-n", "2", "--ignore-eos", "--tokens", "5", *FAST, *model())
    assert "1 prompt token (0 cached), 2 generated" in one.log and "tokens/s" not in one.log, one.log
    q = ok("run", "-n", "12", "--quiet", *FAST, *model(), COUNT)
    same((q.out, q.err), (r.out, b""))


def test_run_greedy_is_the_same_for_any_threads_chunks_and_overlap():
    want = run_json("-n", "16", COUNT)["tokens"]
    for args in (["--threads", "1"], ["--token-budget", "7", "--max-running", "4"], ["--no-overlap"],
                 ["--page-size", "5"], ["--no-prefix-cache"], ["--deterministic"], ["--draft", "lookup"]):
        same(run_json("-n", "16", *args, COUNT)["tokens"], want, f"tokens with {args}")


def test_run_draft_says_how_many_guesses_held():
    plain = run_json("-n", "40", "--ignore-eos", COUNT)
    assert "draft_tokens" not in plain["timings"], plain["timings"]
    r = run_json("-n", "40", "--ignore-eos", "--draft", "lookup", "--raw", " one two three four five six" * 6)
    t = r["timings"]
    assert 0 < t["draft_accepted"] <= t["draft_tokens"], t


def test_run_draft_by_a_model_keeps_the_text():
    for how in (), ("--temperature", "0.9", "--seed", "4"):
        plain = run_json("-n", "30", "--ignore-eos", *how, COUNT)
        r = run_json("-n", "30", "--ignore-eos", *how, "--draft", *model()[1:], COUNT)
        same(r["text"], plain["text"])
        same(r["timings"]["draft_accepted"], r["timings"]["draft_tokens"])  # it agrees with itself, also when it samples
        assert r["timings"]["draft_tokens"] > 0, r["timings"]  # how many depends on what steps took
    state = ("--tokens", ",".join(str(i % 7) for i in range(40)), "--ignore-eos", "-n", "40", "-m", "dummy:qwen3.5-tiny")
    plain = ok("run", "--json", *FAST, *state).json["tokens"]
    for draft in "lookup", "mtp", "dummy:qwen3.5-tiny":  # the model has sequence state
        same(ok("run", "--json", *FAST, *state, "--draft", draft).json["tokens"], plain, f"tokens with {draft}")
    fails(1, "draft: no model magic", "run", "--draft", "magic", *FAST, *model(), COUNT)
    fails(2, "same vocabulary", "run", "--draft", "dummy:qwen3-0.6b", *FAST, *model(), COUNT)


def test_run_prompt_comes_from_argument_or_stdin():
    want = run_json("-n", "4", COUNT)["tokens"]
    same(run_json("-n", "4", stdin=COUNT)["tokens"], want)
    same(run_json("-n", "4", "-", stdin=COUNT)["tokens"], want)
    same(run_json("-n", "4", "--", COUNT)["tokens"], want)
    fails(2, "the prompt is empty; a text was expected", "run", *FAST, *model(), stdin=b"")


def test_run_raw_tokens_and_system_change_the_prompt():
    need_model()
    ids = ok("tokenize", "--json", stdin="Once upon a time").json["ids"]
    raw = run_json("--raw", "-n", "6", "Once upon a time")
    same(raw["usage"]["prompt_tokens"], len(ids))
    same(run_json("-n", "6", "--tokens", ",".join(map(str, ids)))["tokens"], raw["tokens"])
    chat = run_json("-n", "6", "Once upon a time")
    assert chat["usage"]["prompt_tokens"] > len(ids)
    other = run_json("-n", "6", "--system", "Answer in French.", "Once upon a time")
    assert other["usage"]["prompt_tokens"] != chat["usage"]["prompt_tokens"]
    fails(2, "--system", "run", "--raw", "--system", "x", "y")
    fails(2, "--tokens", "run", "--tokens", "1,2", "and a prompt")


def test_run_stop_ends_before_the_text_and_eos_can_be_ignored():
    need_model()
    whole = run_json("-n", "24", "--raw", "One two three four five six")["text"]
    word = whole.split()[3]
    r = run_json("-n", "24", "--raw", "--stop", "never there", "--stop", word, "One two three four five six")
    same((r["text"], r["finish_reason"]), (whole[:whole.index(word)], "stop"))
    for question in ("What is the capital of France?", "Hi", "What is 2 + 2?", "Why is the sky blue? Be brief."):
        short = run_json("-n", "64", question)
        if short["finish_reason"] == "stop":
            break
    same(short["finish_reason"], "stop", "no answer of four ends within 64 tokens")
    long = run_json("-n", "64", "--ignore-eos", question)
    same((long["finish_reason"], len(long["tokens"])), ("length", 64))
    same(long["tokens"][:len(short["tokens"]) - 1], short["tokens"][:-1], "tokens before the end")


def test_run_sampling_is_a_function_of_the_seed():
    args = ["-n", "12", "--temperature", "1.5", "--ignore-eos", "--raw", "Once"]
    a = run_json("--seed", "1", *args)["tokens"]
    same(run_json("--seed", "1", *args)["tokens"], a)
    assert any(run_json("--seed", str(s), *args)["tokens"] != a for s in (2, 3))
    greedy = run_json("-n", "12", "--ignore-eos", "--raw", "Once")["tokens"]
    same(run_json("--seed", "1", "--top-k", "1", *args)["tokens"], greedy, "top-k 1 and greedy")
    same(run_json("--seed", "1", "--top-p", "0", *args)["tokens"], greedy, "top-p 0 and greedy")
    same(run_json("--seed", "1", "--min-p", "1", *args)["tokens"], greedy, "min-p 1 and greedy")


def test_run_refuses_what_cannot_be():
    fails(2, "token", "run", *FAST, *model(), "--tokens", "999999999")
    r = run("run", *FAST, *model(), "--raw", "-n", "4", stdin="word " * 3000)
    assert r.code in (1, 2) and "512" in r.log and r.log.count("\n") == 1, r.log
    r = run("run", *FAST, *model(), stdin=b"\xff\xfe not text")
    assert r.code == 2 and "UTF-8" in r.log, r.log
    r = ok("run", "--json", "--raw", "-n", "2", "--ignore-eos", *FAST, *model(), stdin=b"\xff\x00 bytes")
    same(len(r.json["tokens"]), 2)
    for device in ("tpu", "cuda:", "cuda:x", "cuda:N", "cuda:-1", "cuda:0x", "cuda:0,", "cuda:1234", "CPU"):
        fails(2, ["--device", device, "auto|cpu|cuda|cuda:N"], "run", "--device", device, "x")


F_SETPIPE_SZ = 1031  # fcntl's, which Python knows from 3.10 on
LONG = ["-n", "2000", "--ignore-eos", "--raw", "--max-context", "2048", "--kv-memory", "64M"]


def ended(p):
    out, err = p.communicate(timeout=LIMIT_S)
    return p.returncode, out, err.decode()


def test_run_ctrl_c_keeps_what_is_there_and_says_130():
    p = start("run", *LONG, *model(), "Once upon a time")
    fcntl.fcntl(p.stdout, F_SETPIPE_SZ, 4096)  # the test does not read more than that, so the program cannot end before the signal
    first = p.stdout.read(1)
    p.send_signal(signal.SIGINT)
    code, out, err = ended(p)
    same(code, 130)
    assert first and "interrupted" in err, err
    n = int(re.search(r"(\d+) generated", err).group(1))
    assert 0 < n < 2000, err
    whole = ok("run", "-n", str(n), *LONG[2:], *model(), "Once upon a time").out
    same(whole, first + out, "the same answer, ended by its length: bytes")


def catches_interrupts(p):
    """Whether the program has installed its handler."""
    with open(f"/proc/{p.pid}/status") as f:
        caught = int(re.search(r"^SigCgt:\s*([0-9a-f]+)", f.read(), re.M).group(1), 16)
    return caught >> (signal.SIGINT - 1) & 1


def test_run_ctrl_c_with_json_prints_an_object():
    delay = 0.1  # grows until the signal comes after loading, whose time depends on the machine
    while True:
        p = start("run", "--json", *LONG, *model(), "Once")
        wait_until(lambda: catches_interrupts(p), "a handler of SIGINT")
        time.sleep(delay)
        p.send_signal(signal.SIGINT)
        code, out, err = ended(p)
        same(code, 130, f"exit status {delay} s after the start")
        if out:
            break
        assert "interrupted" in err, err
        delay *= 1.5
        assert delay < LIMIT_S
    r = json.loads(out)
    same(r["finish_reason"], "abort")
    assert len(r["tokens"]) < 2000


def told_tokens(log, request):
    """(prompt, cached) tokens as the story of a request tells them."""
    m = re.search(rf"REQUEST {request}  .*?(\d+) prompt tokens \((\d+) cached\)", log, re.S)
    return int(m.group(1)), int(m.group(2))


def test_chat_remembers_resets_and_tells():
    need_model()
    lines = "My name is Ada.\n/story\nWhat is my name?\n/story\n/reset\n/nonsense\nMy name is Ada.\n/story\n/exit\nnever\n"
    r = run("chat", "-n", "12", *FAST, *model(), stdin=lines)
    same(r.code, 1, "exit status: there was a line that failed")
    answers = r.text.split("\n")
    (one, _), (two, cached), (three, _) = (told_tokens(r.log, i) for i in (1, 2, 3))
    assert two > one + 12 and cached >= one, (one, two, cached)
    same((three, answers[2]), (one, answers[0]), "the first turn and the first turn after /reset")
    assert "'/nonsense' is no command" in r.log and "forgotten" in r.log
    same(len(answers), 4)  # three answers; nothing after /exit


def test_chat_ends_at_the_end_of_input():
    same(ok("chat", *FAST, *model(), stdin=b"").out, b"")
    r = run("chat", *FAST, *model(), stdin="/story\n")
    assert r.code == 1 and "no answer yet" in r.log


def chat(lines, *args, code=0):
    where = [] if "-m" in args else [*FAST, *model()]
    r = run("chat", "-n", "6", *where, *args, stdin="\n".join(lines) + "\n")
    same(r.code, code, f"exit status ({r.log})")
    return r


def test_chat_goes_on_behind_a_line_that_fails():
    r = run("chat", "-n", "4", *FAST, *model(), stdin=b"Hi\n\xff\xfe\n" + b"word " * 3000 + b"\nHi\n")
    same(r.code, 1)  # a failure, and no wrong usage
    same(r.log.count("vitrine: "), 2, r.log)
    assert "UTF-8" in r.log and "/reset forgets the conversation" in r.log and "--max-context" in r.log, r.log
    assert len(r.text.rstrip("\n").split("\n")) >= 2, "answers to the first line and the last"


def test_chat_keeps_and_loads_conversations():
    need_model()
    with tempfile.TemporaryDirectory() as d:
        path, other = os.path.join(d, "c.json"), os.path.join(d, "other.json")
        r = chat(["My name is Ada.", f"/save {path}", "What is my name?", f"/load {path}", "What is my name?", f"/save {path}",
                  "/system Be brief.", f"/save {other}", "/system", "/exit"], "--system", "Answer.")
        saved = json.load(open(path))["messages"]
        same([m["role"] for m in saved], ["system", "user", "assistant", "user", "assistant"])
        assert saved[4]["content"] in r.text
        again = json.load(open(other))["messages"]
        same((again[0]["content"], again[1:]), ("Be brief.", saved[1:]))
        r = chat(["/regenerate", f"/save {other}"], code=1)
        assert "nothing was said yet" in r.log
        chat([f"/load {path}", "/regenerate", f"/save {other}"])
        same(json.load(open(other))["messages"], saved, "greedy: the same answer again")
        same(ok("template", "--messages", other).code, 0)


def test_chat_refuses_files_that_are_no_conversations():
    with tempfile.TemporaryDirectory() as d:
        bad = os.path.join(d, "bad.json")
        for text, needle in [("{", "line 1"), ("{}", "list of messages"), ("[3]", "message 1"), ('[{"role":"user"}]', "no content"),
                             ('[{"role":"user","content":"a"},{"role":"system","content":"b"}]', "message 2 has a role"),
                             ('{"messages":[{"role":"user","content":"\\ud800"}]}', "line 1")]:
            open(bad, "w").write(text)
            r = chat([f"/load {bad}", f"/save {bad}"], code=1)
            assert needle in r.log and "no saved conversation" in r.log, (text, r.log)
            same(open(bad).read(), text, "a file that is no conversation")
        r = chat(["/load", "/load /no/such", "/exit now", f"/save {d}/no/c.json"], code=1)
        for needle in ("/load needs the name", "/no/such: No such file", "/exit takes nothing", "No such file"):
            assert needle in r.log, r.log


def test_chat_ends_by_the_names_of_other_programs_too():
    for word in ("/quit", "/bye", "/exit"):
        r = run("chat", *FAST, *model(), "-q", stdin=f"{word}\n/nonsense\n")
        same((r.code, r.log), (0, ""), word)
    r = run("chat", *FAST, *model(), "-q", stdin="/stroy\n")
    assert "'/stroy' is no command, did you mean /story?" in r.log, r.log


def test_chat_regenerates_with_another_seed():
    need_model()
    args = ["--temperature", "1.5", "--seed", "7"]
    a = chat(["Tell me a story.", "/regenerate", "/regenerate"], *args).text.split("\n")
    assert len(set(a)) > 1, a
    same(chat(["Tell me a story.", "/regenerate", "/regenerate"], *args).text.split("\n"), a, "the same seed, the same answers")


def small_folder(d, generation):
    folder = shutil.copytree("tests/golden/models/qwen3-gqa2", os.path.join(d, "m"))
    json.dump(generation, open(os.path.join(folder, "generation_config.json"), "w"))
    return folder


def test_chat_takes_the_models_sampling_defaults_and_options_override_them():
    own = {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "repetition_penalty": 1.1, "do_sample": True}
    with tempfile.TemporaryDirectory() as d:
        cases = [(own, [], "temperature 0.6, top-k 20, top-p 0.95, repeat-penalty 1.1, seed 0"),
                 (own, ["--temperature", "1", "--top-k", "0"], "temperature 1, top-p 0.95, repeat-penalty 1.1, seed 0"),
                 ({**own, "do_sample": False}, [], "temperature 0, top-k 20, top-p 0.95, repeat-penalty 1.1"), ({}, [], "temperature 0")]
        for i, (generation, args, wanted) in enumerate(cases):
            folder = small_folder(os.path.join(d, str(i)), generation)
            r = chat(["/sampling"], "-m", folder, *args)
            same(r.log.strip(), f"[{wanted}]", f"{generation} {args}")


def test_run_repeats_less_with_a_penalty_and_obeys_biases():
    need_model()
    args = ["-n", "24", "--ignore-eos", "--raw", "one one one one one one"]
    plain = run_json(*args)["tokens"]
    for option in (["--repeat-penalty", "1.8"], ["--presence-penalty", "20"], ["--frequency-penalty", "20"]):
        tokens = run_json(*option, *args)["tokens"]
        assert len(set(tokens)) > len(set(plain)), (option, tokens)
    first = plain[0]
    assert first not in run_json("--logit-bias", f"{first}=-inf", *args)["tokens"]
    same(run_json("--logit-bias", "5=1e3,6=-1.5", "--logit-bias", "7=-inf", *args)["tokens"], [5] * 24)
    same(run_json("--logit-bias", f"5+1e3,{first}-inf,6-1.5", *args)["tokens"], [5] * 24, "as llama.cpp has it")
    for wrong in ("", "5", "5=", "5=x", "=1", "5=1,", "-5=1", "5=inf", "5=nan", "5=1;6=2", "5=0x1"):
        fails(2, ["--logit-bias", "ID=X"], "run", "--logit-bias", wrong, "x")
    fails(2, "logit_bias", "run", "--logit-bias", "99999999=1", *FAST, *model(), "x")


def test_run_gives_several_samples():
    need_model()
    args = ["-n", "8", "--temperature", "1.5", "--ignore-eos", "--raw", "Once"]
    one = run_json("--seed", "3", *args)
    same(one["seed"], 3)
    assert "samples" not in one
    many = run_json("--seed", "3", "--samples", "3", "--logprobs", *args)
    same(len(many["samples"]), 3)
    same(many["samples"][0]["tokens"], one["tokens"], "the first sample and the only one")
    assert len({tuple(s["tokens"]) for s in many["samples"]}) > 1
    same(many["usage"]["completion_tokens"], 24)
    for s in many["samples"]:
        same([p["id"] for p in s["logprobs"]], s["tokens"])
    text = ok("run", "--seed", "3", "--samples", "3", *args, *FAST, *model())
    same(text.text, "".join(("\n" if i else "") + f"--- answer {i + 1} of 3\n" + s["text"] for i, s in enumerate(many["samples"])) + "\n")
    assert "24 generated" in text.log, text.log
    fails(2, ["--samples", "--temperature"], "run", "--samples", "2", "x")
    fails(2, "story", "run", "--samples", "2", "--temperature", "1", "--story", "x")


def test_run_logprobs_are_those_of_score():
    ids = [40, 41, 42, 43]
    r = run_json("--tokens", ",".join(map(str, ids)), "-n", "4", "--ignore-eos", "--logprobs=2")
    s = ok("score", "--tokens", ",".join(map(str, ids + r["tokens"])), "--top", "2", "--json", *FAST, *model()).json
    for i, p in enumerate(r["logprobs"]):
        assert math.isclose(p["logprob"], s["logprobs"][4 + i], abs_tol=1e-4), (i, p)
        same([t["id"] for t in p["top"]], [t["id"] for t in s["top"][4 + i]])
    fails(2, ["--logprobs", "--json"], "run", "--logprobs", "x")
    fails(2, ["--logprobs takes its value after '='", "--logprobs=2"], "run", "--json", "--logprobs", "2", "x")


def test_run_prompt_comes_from_a_file():
    want = run_json("-n", "4", COUNT)["tokens"]
    with tempfile.NamedTemporaryFile("w") as f:
        f.write(COUNT)
        f.flush()
        same(run_json("-n", "4", "-f", f.name)["tokens"], want)
        fails(2, "-f: takes the place of the prompt", "run", "-f", f.name, "x")
    same(run_json("-n", "4", "-f", "-", stdin=COUNT)["tokens"], want)
    fails(1, "/no/file", "run", "-f", "/no/file")
    fails(2, "--file: does not go with --batch", "run", "--batch", "a", "-o", "b", "-f", "c")


def test_run_seed_random_is_said_and_can_be_given_again():
    args = ["-n", "6", "--temperature", "1.5", "--ignore-eos", "--raw", "Once"]
    a, b = run_json("--seed", "random", *args), run_json("--seed", "random", *args)
    assert a["seed"] != b["seed"]
    same(run_json("--seed", str(a["seed"]), *args)["tokens"], a["tokens"])
    r = ok("run", "--seed", "random", *args, *FAST, *model())
    said = re.search(r"; seed (\d+)\n", r.log)
    assert said, r.log
    same(ok("run", "--seed", said.group(1), *args, *FAST, *model()).text, r.text, "with the seed that was said")
    assert "seed" not in run_json("-n", "2", "Once")


def test_run_without_a_tokenizer_points_to_json():
    r = ok("run", "--tokens", "1,2", "-n", "2", "-m", "tests/golden/models/qwen3-gqa2")
    same(r.out, b"")
    assert "--json prints token ids" in r.log, r.log


def test_story_is_written_whole_and_its_folder_is_looked_at_first():
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "s.json")
        open(path, "w").write("the old one")
        os.chmod(path, 0o640)
        args = ["-n", "2", "--ignore-eos", "--tokens", "5,6", *FAST, *model()]
        ok("run", f"--story={path}", *args)
        assert open(path).read().endswith("}\n")
        same((os.listdir(d), os.stat(path).st_mode & 0o777), (["s.json"], 0o640))
        link = os.path.join(d, "link.json")
        os.symlink(path, link)
        ok("run", f"--story={link}", *args)
        assert os.path.islink(link)
        r = fails(1, "No such file", "run", f"--story={d}/no/s.json", "-n", "2000", "-m", "/no/such/model.gguf", "x")
        assert "model" not in r.log, "the folder is looked at before the model"
        os.mkdir(os.path.join(d, "f.json"))
        fails(1, "Is a directory", "run", f"--story={d}/f.json", "-m", "/no/such/model.gguf", "x")
    fails(2, ["--story takes its value after '='", "--story=x.json"], "run", "--story", "x.json")


def test_run_warns_of_more_threads_than_cpus():
    cpus = len(os.sched_getaffinity(0))
    r = ok("run", "--threads", str(cpus + 1), "-n", "1", "--tokens", "5", *FAST, *model())
    same(r.log.count(f"{cpus + 1} threads share {cpus} CPU"), 1, r.log)
    assert "share" not in ok("run", "--threads", str(cpus), "-n", "1", "--tokens", "5", *FAST, *model()).log


def test_ctrl_c_while_loading_ends_at_once():
    p = start("run", "-n", "1", "--tokens", "5", "--kv-memory", "64M", "-m", "dummy:qwen3-0.6b")
    wait_until(lambda: catches_interrupts(p), "a handler of SIGINT")
    p.send_signal(signal.SIGINT)
    same(ended(p), (130, b"", "vitrine: interrupted\n"))


main(globals())
