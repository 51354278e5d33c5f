#!/usr/bin/env python3
"""The command line itself: help, exit status, wrong usage, environment, completion, the man page."""
import json, os, pty, re, select, shutil, socket, subprocess, tempfile

from tap import *

VERBS = ["run", "chat", "score", "tokenize", "template", "explain", "bench latency", "bench kernels", "bench comm", "bench startup", "bench offline", "bench serve", "bench simulate", "story show", "env",
         "pull", "list", "show", "rm", "completion"]
# the options that each verb takes, stated independently of the program's own table
OPTIONS = {
    "run": "model device threads tp seed json quiet max-tokens temperature top-p top-k min-p stop ignore-eos raw tokens "
           "batch output retry-failed literal-content system story repeat-penalty presence-penalty frequency-penalty logit-bias samples logprobs file page-size kv-memory kv-dtype max-context max-running max-queued token-budget target-gap policy "
           "attention-backend linear-backend deterministic no-overlap draft no-graphs no-prefix-cache keep-window-kv",
    "chat": "model device threads seed quiet max-tokens temperature top-p top-k min-p stop system literal-content repeat-penalty "
            "presence-penalty frequency-penalty logit-bias",
    "score": "model threads json quiet text tokens top window",
    "tokenize": "model json decode special add-bos",
    "template": "model messages template no-generation-prompt",
    "explain": "model threads kv-dtype json prompt context batch hardware",
    "bench latency": "model threads json prompt gen batch reps",
    "bench kernels": "threads json",
    "bench comm": "tp reps json quiet",
    "bench offline": "model threads json num input output shared-prefix lengths seed max-running token-budget kv-memory policy",
    "bench serve": "url api-key-env model api json quiet concurrency rate num input output lengths dataset trace speed turns "
                   "shared-prefix groups ids vocab seed ignore-eos temperature no-stream timeout slo jsonl report",
    "bench simulate": "model threads json quiet trace hardware gpus memory requests efficiency page-size max-context "
                      "max-running token-budget policy no-overlap no-prefix-cache",
    "env": "threads json jit try export import",
    "pull": "hub connections quiet require-hash max-size",
    "list": "json quiet",
    "show": "json",
    "rm": "yes quiet",
}


def options_of(verb):
    return re.findall(r"^(?:  -\w, |      )--([a-z-]+)", ok(*verb.split(), "--help").text, re.M)


def test_help_names_every_verb_and_fits():
    r = ok("--help")
    for v in VERBS:
        assert re.search(rf"^  {v}\s", r.text, re.M), v
    assert max(map(len, r.text.split("\n"))) <= 100
    same(r.err, b"", "stderr")


def test_help_of_every_verb_names_its_options_and_fits():
    for v in VERBS:
        text = ok(*v.split(), "--help").text
        assert text.startswith(f"vitrine {v}"), v
        assert max(map(len, text.split("\n"))) <= 100, v
        shown = options_of(v)
        same(len(shown), len(set(shown)), v)
        for o in OPTIONS.get(v, "").split():
            assert o in shown, f"{v} --help lacks --{o}"


def test_help_has_three_spellings():
    same(ok("help", "run").out, ok("run", "--help").out)
    same(ok("run", "-h").out, ok("run", "--help").out)
    same(ok("help").out, ok("--help").out)
    assert "bench latency" in ok("bench", "--help").text


def test_no_verb_says_what_to_type_next_and_is_wrong_usage():
    with tempfile.TemporaryDirectory() as empty:
        r = run(env={"VITRINE_CACHE": empty})
        same((r.code, r.out), (2, b""))
        assert "What to type next" in r.log and "vitrine pull smollm2-135m" in r.log and r.log.count("\n") < 15, r.log
        assert "vitrine pull" not in run(env={"VITRINE_CACHE": empty, "VITRINE_MODEL": DUMMY}).log
    for line in re.findall(r"^  vitrine ([a-z]+)", r.log, re.M):
        ok(line, "--help")


def test_version_is_one_line():
    assert re.fullmatch(r"vitrine \d+\.\d+\.\d+\n", ok("--version").text)


def test_unknown_things_are_wrong_usage_and_named():
    fails(2, "no verb 'dance'", "dance")
    fails(2, ["unknown option --max-toknes", "did you mean --max-tokens?"], "run", "--max-toknes", "3", "x")
    fails(2, "unknown option -z", "run", "-z", "x")
    fails(2, "--window is not an option of 'vitrine run'", "run", "--window", "4", "x")
    fails(2, "--max-tokens needs a value", "run", "x", "--max-tokens")
    fails(2, "in quotes", "run", "two", "words")
    fails(2, "'b' was not expected after NAME", "pull", "a", "b")
    fails(2, "takes no arguments", "env", "please")
    fails(2, "needs one of: latency, startup, kernels", "bench")


def test_mistakes_of_a_first_day_are_told_with_what_to_do():
    with tempfile.TemporaryDirectory() as d:
        empty, path = {"VITRINE_CACHE": d}, lambda *names: os.path.join(d, *names)
        fails(1, "'vitrine pull smollm2-135m' fetches it", "run", "hi", "-m", "smollm2-135m", env=empty)
        fails(1, "'vitrine list' names", "run", "hi", "-m", "nobody", env=empty)
        for name in "Qwen/Qwen3-0.6B", "https://huggingface.co/Qwen/Qwen3-0.6B":
            fails(1, "'vitrine pull --hub https://huggingface.co Qwen/Qwen3-0.6B' fetches it", "run", "hi", "-m", name, env=empty)
        for folder, name, text in (("quantised", "b.gguf", "x"), ("quantised", "a.gguf", "x"), ("family", "config.json", '{"model_type": "no-such"}')):
            os.makedirs(path(folder), exist_ok=True)
            with open(path(folder, name), "w") as f:
                f.write(text)
        fails(1, "its file a.gguf is a model", "run", "hi", "-m", path("quantised"))
        fails(1, "the folder that holds it is the model: " + path("family"), "run", "hi", "-m", path("family", "config.json"))
        said = run("run", "hi", "-m", path("family")).log
        names = re.search(r"model type no-such is not supported \(llama, mistral, (.*) and \d+ more are\)", said)
        assert names and all(len(n) > 3 for n in names.group(1).split(", ")), said
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        port = str(other.getsockname()[1])
        fails(1, ["cannot connect", "no server listens there"], "bench", "serve", "--url", "http://127.0.0.1:" + port, "--num", "1")
        other.listen()
        fails(1, [f"cannot listen on 127.0.0.1 port {port}", "--port N takes another one"], "serve", "--port", port, "-m", DUMMY, *FAST)


def test_near_misses_are_answered_with_what_was_meant():
    fails(2, "did you mean 'vitrine run'?", "rn", "hello")
    fails(2, "did you mean 'vitrine story show'?", "stroy", "show", "x.json")
    fails(2, "did you mean --num?", "bench", "serve", "--url", "http://127.0.0.1:1", "--requests", "4")
    fails(2, "did you mean --num?", "bench", "serve", "--url", "http://127.0.0.1:1", "--nmu", "4")
    fails(2, "did you mean --prompt?", "bench", "latency", "--input", "4")
    fails(2, ["no track 'sglagn'", "did you mean sglang?"], "lab", "sglagn")
    fails(2, "did you mean smollm2-135m?", "pull", "smolm2-135m")
    fails(2, ["no preset", "--hub https://huggingface.co Qwen/Qwen3-0.6B", "1.5 GB"], "pull", "qwen3-0.6b")
    assert "did you mean" not in fails(2, "no verb 'dance'", "dance").log


def test_pull_without_a_name_lists_what_can_be_had_with_sizes_and_licences():
    r = run("pull")
    same(r.code, 2)
    for name, size, licence in (("smollm2-135m", "98 MB", "Apache-2.0"), ("gemma3-270m", "253 MB", "Gemma's terms"),
                                ("Qwen/Qwen3-0.6B", "1.5 GB", "Apache-2.0")):
        assert any(name in line and size in line and licence in line for line in r.log.split("\n")), r.log


def test_labs_are_found_by_the_spelling_of_their_folders():
    same(ok("lab", "list").out, ok("lab").out)
    same(ok("lab", "list", "sglang").out, ok("lab", "sglang").out)
    fails(2, "no lab '99' in sglang", "lab", "sglang/99")
    fails(2, "no track 'nothing'", "lab", "nothing/00")


def test_make_run_counts_what_it_compiles_in_one_line():
    count = os.path.join(os.path.dirname(__file__), "..", "..", "tools", "count-compiled")
    script = "echo '  cc     a.c'; echo '  cc     b.c'; echo '  link   b'; echo warning: look; exit 3"
    r = subprocess.run([count, "sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    same((r.returncode, r.stdout), (3, b"warning: look\n"))
    same(r.stderr.split(b" (")[0], b"compiled 2 files")


def test_wrong_values_name_option_value_and_expectation():
    fails(2, ["-n: 'many' found", "whole number from 1"], "run", "-n", "many", "x")
    fails(2, ["--temperature: 'hot' found", "from 0 to 100"], "run", "--temperature", "hot", "x")
    fails(2, ["--top-p: '1.5' found", "from 0 to 1"], "run", "--top-p=1.5", "x")
    fails(2, ["--policy: 'luck' found", "fcfs|lpm|priority"], "run", "--policy", "luck", "x")
    fails(2, ["--kv-memory: 'lots' found", "512M"], "run", "--kv-memory", "lots", "x")
    fails(2, ["--tokens: ", "token ids such as 1,2,3"], "run", "--tokens", "1;2")
    fails(2, ["--json: 'perhaps' found", "true or false"], "run", "--json=perhaps", "x")


def test_values_of_short_options_stand_apart_or_behind_the_letter():
    for given in (["-n", "many"], ["-nmany"], ["-n=many"]):
        fails(2, "-n: 'many' found", "run", *given, "x")


def test_two_dashes_end_the_options():
    with tempfile.TemporaryDirectory() as d:
        env = {"VITRINE_CACHE": d}
        fails(2, "no model --yes in", "rm", "--", "--yes", env=env)
        fails(2, "no model -y in", "rm", "--yes", "--", "-y", env=env)
        fails(2, "no model -- in", "rm", "--", "--", env=env)
        fails(2, "rm what?", "rm", "--", env=env)


def test_numbers_are_decimal_and_within_their_range():
    fails(2, ["--kv-memory: '1000T' found", "at most 1000000000000000 bytes"], "run", "--kv-memory", "1000T", "x")
    fails(2, ["--kv-memory: '60K' found", "at least 65536 bytes"], "run", "--kv-memory", "60K", "x")
    fails(2, ["--kv-memory: '1.5' found", "such as 512M or 4.5G"], "run", "--kv-memory", "1.5", "x")
    fails(2, ["--kv-memory: '1.G' found"], "run", "--kv-memory", "1.G", "x")
    ok("run", "-n", "1", "--tokens", "5", "--kv-memory", "0.0625G", "--max-context", "512", *model())
    fails(2, ["--temperature: '0x1p1' found"], "run", "--temperature", "0x1p1", "x")
    fails(2, ["--temperature: '' found"], "run", "--temperature", "", "x")
    fails(2, ["--seed: '9007199254740993' found", "9007199254740992, or random"], "run", "--seed", "9007199254740993", "x")
    ok("run", "-n", "1", "--tokens", "5", "--seed", "9007199254740992", *FAST, *model())
    fails(2, ["VITRINE_SEED: 'often' found"], "run", "x", env={"VITRINE_SEED": "often"})


def test_env_jit_says_so_where_there_are_no_kernels():
    with tempfile.TemporaryDirectory() as d:
        env = {"VITRINE_CACHE": d}
        same(ok("env", "--jit", "--json", env=env).json, {"folder": d + "/cubin", "kernels": []})
        r = ok("env", "--jit", env=env)
        same((r.out, r.log), (b"", f"there are no compiled GPU kernels in {d}/cubin yet\n"))


def test_closed_standard_streams_are_not_given_to_files():
    with tempfile.TemporaryDirectory() as d:
        story = os.path.join(d, "s.json")
        p = subprocess.run(["bash", "-c", '"$@" <&- >&- 2>&-', "bash", BIN, "run", "-n", "2", "--tokens", "5,6",
                            f"--story={story}", *FAST, *model()], env=clean_env(), timeout=LIMIT_S)
        same(p.returncode, 0)
        json.load(open(story))  # the file has nothing else in it


def test_what_is_not_there_yet_is_refused_by_name():
    fails(2, ["--record-text", "not there yet"], "serve", "--record-text")
    fails(2, ["--story: 'x.htm'", ".html"], "run", "--story=x.htm", "x")
    fails(2, ["--story: 'x.txt' found", ".json"], "run", "--story=x.txt", "x")


def test_environment_twins_set_defaults_and_are_checked():
    fails(2, ["VITRINE_THREADS: 'none' found"], "explain", "-m", DUMMY, env={"VITRINE_THREADS": "none"})
    r = ok("bench", "latency", "-r", "1", "--prompt", "4", "--gen", "2", env={
        "VITRINE_MODEL": DUMMY, "VITRINE_JSON": "1", "VITRINE_THREADS": "1"})
    same(r.json["settings"]["threads"], "1")
    same(r.json["model"], DUMMY)
    r = ok("bench", "latency", "-r", "1", "--prompt", "4", "--gen", "2", "--threads", "2", env={
        "VITRINE_MODEL": DUMMY, "VITRINE_JSON": "1", "VITRINE_THREADS": "1"})
    same(r.json["settings"]["threads"], "2", "the command line wins")
    fails(2, ["VITRINE_ISA"], "explain", "-m", DUMMY, env={"VITRINE_ISA": "sse9"})


def test_missing_model_names_the_path():
    fails(1, "/no/such/model.gguf", "run", "-m", "/no/such/model.gguf", "x")
    fails(1, "nosuchmodel", "run", "-m", "nosuchmodel", "x")
    fails(2, ["dummy", "nosuchshape"], "run", "-m", "dummy:nosuchshape", "x")


def test_broken_model_file_is_one_line():
    with tempfile.NamedTemporaryFile(suffix=".gguf") as f:
        f.write(b"GGUF\x03\0\0\0" + b"\xff" * 40)
        f.flush()
        fails(1, os.path.basename(f.name), "run", "-m", f.name, "x")


def test_full_disk_on_stdout_is_a_failure():
    with open("/dev/full", "wb") as full:
        r = run("--help", stdout=full)
    same(r.code, 1)
    assert "stdout" in r.log


def terminal(*args, env=None):
    """The output of a command whose stdin, stdout and stderr are a terminal of 80 columns."""
    import fcntl, struct, termios
    main, other = pty.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    p = subprocess.Popen([BIN, *args], stdin=other, stdout=other, stderr=other,
                         env=clean_env({"TERM": "xterm", **(env or {})}))
    os.close(other)
    out = b""
    while select.select([main], [], [], LIMIT_S)[0]:
        try:
            chunk = os.read(main, 65536)
        except OSError:
            break
        if not chunk:
            break
        out += chunk
    os.close(main)
    return p.wait(), out.decode("utf-8")


def test_colours_are_for_terminals_only():
    code, text = terminal("--help")
    same(code, 0)
    assert "\033[1mVerbs\033[0m" in text
    plain = re.sub(r"\033\[[0-9;]*m", "", text).replace("\r", "")
    assert max(map(len, plain.split("\n"))) <= 80
    assert "\033" not in terminal("--help", env={"NO_COLOR": "1"})[1]
    assert "\033" not in terminal("--help", env={"TERM": "dumb"})[1]
    assert "\033" not in ok("--help").text


def test_completion_completes_verbs_and_options():
    script = ok("completion").text
    def complete(line):
        words = line.split(" ")
        bash = script + f"""
COMP_WORDS=({' '.join(repr(w) if w else '""' for w in words)}); COMP_CWORD={len(words) - 1}
_vitrine; printf '%s\\n' "${{COMPREPLY[@]}}" """
        p = subprocess.run(["bash", "-c", bash], capture_output=True, text=True, cwd="/",
                           env={**os.environ, "LC_ALL": "C"})  # bash warns of locales that are not there
        same(p.stderr, "", "stderr")
        return p.stdout.split()
    assert "run" in complete("vitrine r")
    assert "bench" in complete("vitrine ben")
    assert "latency" in complete("vitrine bench lat")
    assert "--max-tokens" in complete("vitrine run --max-t")
    assert "--window" in complete("vitrine score --w")
    assert "--window" not in complete("vitrine run --w")
    assert "--gen" in complete("vitrine bench latency --g")


COMPLETED = [  # what is typed, what is offered, what is not
    ("vitrine r", "run", "env"), ("vitrine bench lat", "latency", "--gen"), ("vitrine run --max-t", "--max-tokens", "--window"),
    ("vitrine run --policy l", "lpm", "fcfs"), ("vitrine run --kv-dtype ", "bf16", "N"), ("vitrine chat -m smol", "smol model", "run"),
    ("vitrine run --story=a\\ f", "a file.json", "--json"), ("vitrine completion f", "fish", "zsh"), ("vitrine run -f a\\ f", "a file.json", "x"),
    ("vitrine env --export a", "a folder", "a file.json"), ("vitrine run --policy=pri", "priority", "fcfs"),
    ("vitrine run --max-tokens ", None, "a file.json"),
]


def completion_folder(d):
    """A working folder and a cache with names that have spaces."""
    os.makedirs(os.path.join(d, "cache/models"))
    os.makedirs(os.path.join(d, "work/a folder"))
    open(os.path.join(d, "work/a file.json"), "w").close()
    open(os.path.join(d, "cache/models/smol model.gguf"), "w").close()
    open(os.path.join(d, "cache/models/smol.gguf.part"), "w").close()
    return {**clean_env(), "VITRINE_CACHE": os.path.join(d, "cache"), "LC_ALL": "C", "HOME": d}


def check_completion(shell, offers):
    """`offers(line, environment, folder)`: what the shell offers for a line, as a list."""
    with tempfile.TemporaryDirectory() as d:
        env = completion_folder(d)
        for line, wanted, other in COMPLETED:
            found = offers(line, env, os.path.join(d, "work"))
            assert wanted is None or wanted in found, f"{shell}: {line!r}: {wanted!r} is not in {found}"
            assert other not in found, f"{shell}: {line!r}: {other!r} is in {found}"


def test_completion_of_bash_completes_values_and_names_with_spaces():
    script = ok("completion", "bash").text
    def offers(line, env, folder):
        words = [w.replace("\0", "\\ ") for w in line.replace("\\ ", "\0").split(" ")]
        words = [part for w in words for part in (re.split("(=)", w) if w.startswith("--") and "=" in w else [w])]
        quoted = " ".join("'" + w + "'" for w in words)
        p = subprocess.run(["bash", "-c", script + f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}\n_vitrine; "
                            "printf '%s\\n' \"${COMPREPLY[@]}\""], capture_output=True, text=True, cwd=folder, env=env)
        same(p.stderr, "", "stderr")
        return p.stdout.split("\n")
    check_completion("bash", offers)


def test_completion_of_fish():
    if not shutil.which("fish"):
        skip("fish is not installed")
    script = ok("completion", "fish").text
    def offers(line, env, folder):
        p = subprocess.run(["fish", "--no-config", "-c", script + "complete -C '" + line.replace("\\", "\\\\") + "'"],
                           capture_output=True, text=True, cwd=folder, env=env)
        same(p.stderr, "", "stderr")
        names = [o.split("\t")[0].rstrip("/") for o in p.stdout.split("\n")]
        return names + [n.split("=", 1)[1] for n in names if "=" in n]
    check_completion("fish", offers)


def test_completion_of_zsh():
    if not shutil.which("zsh"):
        skip("zsh is not installed")
    p = subprocess.run(["zsh", "-f", "-n"], input=ok("completion", "zsh").text, capture_output=True, text=True)
    same((p.returncode, p.stderr), (0, ""), "zsh's own check of the script")
    script = ok("completion", "zsh").text
    for verb in ("run", "chat"):
        p = subprocess.run(["zsh", "-f", "-c", "compdef() { :; }; source /dev/stdin; _vitrine_words " + verb + " ''"],
                           input=script, capture_output=True, text=True)
        same(sorted(w for w in p.stdout.split() if w != "--help"), sorted("--" + o for o in options_of(verb) if o != "help"))
    p = subprocess.run(["zsh", "-f", "-c", "compdef() { :; }; source /dev/stdin; _vitrine_value --policy; _vitrine_value -m"],
                       input=script, capture_output=True, text=True)
    same(p.stdout, "words fcfs lpm priority\nmodels\n")


def test_completion_refuses_other_shells():
    fails(2, ["'csh' found", "bash, zsh or fish"], "completion", "csh")


def test_man_page_names_every_verb_and_option():
    page = open("docs/vitrine.1", encoding="utf-8").read().replace("\\-", "-")
    for v in VERBS:
        assert f"vitrine {v}" in page or f"\n.SS {v}" in page, v
        for o in options_of(v):
            assert o == "help" or f"--{o}" in page, f"docs/vitrine.1 lacks --{o} of {v}"


def described_options(verb):
    """{option: what its help says}."""
    out, name = {}, None
    for line in ok(*verb.split(), "--help").text.split("\n"):
        m = re.match(r"^(?:  -\w, |      )--([a-z-]+)\S*(?: \S+)?(?:  +(.*))?$", line)
        if m:
            name = m.group(1)
            out[name] = m.group(2) or ""
        elif name and line.startswith(" " * 20):
            out[name] += " " + line.strip()
        else:
            name = None
    return {k: " ".join(v.split()) for k, v in out.items()}


def test_man_page_says_what_help_says_of_every_verb_and_option():
    page = open("docs/vitrine.1", encoding="utf-8").read()
    page = re.sub(r"\\f.|\\&", "", page).replace("\\-", "-")
    page = " ".join(page.split())
    for v in VERBS:
        about = ok(*v.split(), "--help").text.split("\n\n")[1].split("\n  -h, --help")[0]
        about = " ".join(about.split())
        assert about in page, f"docs/vitrine.1 has something else of {v} than '{about}'"
        found = described_options(v)
        same(sorted(found), sorted(options_of(v)), v)
        for o, text in found.items():
            assert text, f"{v} --{o} has no description"
            assert o == "help" or text in page, f"docs/vitrine.1 has something else than '--{o}: {text}'"


main(globals())
