#!/usr/bin/env python3
"""tools/capture-labs, with a small program in vitrine's place that does what a plan says, and once with vitrine itself."""
import os, shutil, signal, stat, subprocess, sys, tempfile, time

from tap import *

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
SCRATCH = tempfile.mkdtemp(prefix="vitrine-capture-")
LABS = [("sglang", "00", "check_env"), ("sglang", "01", "baseline_perf"), ("mini-sglang", "00", "check_env"),
        ("mini-sglang", "radix", "profile_radix"), ("experiments", "1", "start_server"), ("experiments", "2", "baseline")]

# A lab does what PLAN.json says for its next run: good, disturbed, exit1 (no result), badcheck, nothing (exit 0, no
# result), cut (half a file), sleep. Every call is a line of calls.txt.
STAND_IN = '''#!/usr/bin/env python3
import json, os, sys, time
here = os.path.dirname(os.path.abspath(__file__))
args, opt = [], {}
it = iter(sys.argv[1:])
for a in it:
    if a in ("--machine", "--results", "--device"):
        opt[a] = next(it)
    elif a.startswith("--"):
        opt[a] = True
    else:
        args.append(a)
with open(os.path.join(here, "calls.txt"), "a") as f:
    f.write(" ".join(args + sorted(a for a in opt if a not in ("--machine", "--results"))) + "\\n")
labs = json.load(open(os.path.join(here, "labs.json")))
root, name = opt.get("--results", os.path.join(here, "labs")), opt.get("--machine", "local")
path = {(t, n): os.path.join(root, t, "results", name, f"{n}_{x}.json") for t, n, x in labs}
if args == ["lab"]:
    print(json.dumps([{"track": t, "lab": n, "name": x, "result": path[t, n]} for t, n, x in labs]))
    sys.exit(0)
if args[1:] in (["report"], ["physics"], ["knobs"]):
    open(os.path.join(root, args[1] + ".written"), "w").close()
    sys.exit(0)
where = path[args[1], args[2]]
os.makedirs(os.path.dirname(where), exist_ok=True)
server = os.path.join(os.path.dirname(where), "server.json")
result = {"schema": "vitrine.lab", "version": 1, "track": args[1], "lab": args[2], "quick": "--quick" in opt,
          "state": "quiet", "commit": "abc", "machine": {}, "roofs": {}, "items": {}, "predictions": [],
          "checks": [{"ok": True, "text": os.path.expanduser("~/kernels")}], "knobs": [], "findings": [], "files": []}
if "--stop" in opt:
    result["items"] = {"stopped": {}}
    json.dump(result, open(where, "w"))
    os.unlink(server)
    sys.exit(0)
plan_path = os.path.join(here, "PLAN.json")
plan = json.load(open(plan_path)) if os.path.exists(plan_path) else {}
steps = plan.get(f"{args[1]} {args[2]}") or ["good"]
do = steps[0]
if steps[1:]:
    plan[f"{args[1]} {args[2]}"] = steps[1:]
    json.dump(plan, open(plan_path, "w"))
print("doing", do)
if do == "sleep":
    open(os.path.join(here, "asleep"), "w").write(str(os.getpid()))
    time.sleep(3600)
if do == "cut":
    open(where, "w").write('{"schema": "vitrine.lab", "quick"')
    sys.exit(0)
if do in ("exit1", "nothing"):
    sys.exit(do == "exit1")
if args[1:] == ["experiments", "1"]:
    json.dump({"pid": 1}, open(server, "w"))
    result["files"] = [{"name": "server.json"}, {"name": "server.log"}]
    open(os.path.join(os.path.dirname(where), "server.log"), "w").close()
result["state"] = "disturbed" if do == "disturbed" else "quiet"
result["checks"][0]["ok"] = do != "badcheck"
json.dump(result, open(where, "w"))
sys.exit(do == "badcheck")
'''


class Place:
    """A plain folder with the program and the tool: no git, no make."""

    def __init__(self, name, plan=None):
        self.path = os.path.join(SCRATCH, name)
        os.makedirs(self.path)
        self.tool = os.path.join(self.path, "capture-labs")
        shutil.copy(os.path.join(ROOT, "tools", "capture-labs"), self.tool)
        self.program = self.at("program")
        with open(self.program, "w") as f:
            f.write(STAND_IN)
        os.chmod(self.program, os.stat(self.program).st_mode | stat.S_IXUSR)
        self.put("labs.json", LABS)
        if plan:
            self.put("PLAN.json", plan)
        self.results = self.at("results")

    def at(self, *parts):
        return os.path.join(self.path, *parts)

    def put(self, name, value):
        os.makedirs(os.path.dirname(self.at(name)), exist_ok=True)
        with open(self.at(name), "w") as f:
            json.dump(value, f)

    def command(self, *args):
        return [sys.executable, self.tool, "pc", "--results", self.results, *args]

    def env(self):
        return clean_env({"VITRINE": self.program})

    def call(self, *args, program=None):
        env = self.env()
        env["VITRINE"] = program or self.program
        p = subprocess.run(self.command(*args), cwd=self.path, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           timeout=LIMIT_S)
        return p.returncode, p.stdout.decode()

    def calls(self):
        """The labs that were begun since the last time, in order."""
        with open(self.at("calls.txt")) as f:
            lines = [x[4:].strip() for x in f.read().splitlines()]
        os.unlink(self.at("calls.txt"))
        return [" ".join(x.split()[:2]) for x in lines if "--stop" not in x and len(x.split()) > 1
                and not x.split()[1].startswith("--")]

    def result(self, track, number, name):
        with open(os.path.join(self.results, track, "results", "pc", f"{number}_{name}.json")) as f:
            return json.load(f)

    def state(self):
        with open(os.path.join(self.results, ".capture-pc.json")) as f:
            return json.load(f)


ORDER = ["sglang 00", "mini-sglang 00", "sglang 01", "mini-sglang radix", "experiments 1", "experiments 2"]


def test_all_labs_run_once_environments_first():
    p = Place("once")
    code, text = p.call()
    same(code, 0, text)
    same(p.calls(), ORDER)
    assert "6 of 6 results are there\nall results are there\n" in text, text
    for page in ("report", "physics", "knobs"):
        assert os.path.exists(os.path.join(p.results, page + ".written")), page
    code, text = p.call()
    same((code, p.calls()), (0, []), text)


def test_results_do_not_name_the_home_folder():
    p = Place("home")
    same(p.call()[0], 0)
    same(p.result("sglang", "00", "check_env")["checks"][0]["text"], "~/kernels")
    folder = os.path.join(p.results, "sglang", "results", "pc")
    same([n for n in os.listdir(folder) if n.endswith(".new")], [])


def test_the_end_of_the_server_leaves_its_result():
    p = Place("server")
    same(p.call()[0], 0)
    same(p.result("experiments", "1", "start_server")["items"], {})
    assert not os.path.exists(os.path.join(p.results, "experiments", "results", "pc", "server.json"))


def test_a_disturbed_lab_is_run_once_more_after_the_others():
    p = Place("disturbed", {"sglang 00": ["disturbed", "good"], "mini-sglang 00": ["disturbed", "disturbed", "good"]})
    code, text = p.call()
    same(p.calls(), ORDER + ["sglang 00", "mini-sglang 00"])
    same(code, 0, text)
    assert "disturbed: mini-sglang 00 check_env (exit status 0), a second time too" in text, text
    assert "disturbed: sglang 00" not in text.split("results are there")[1], text
    same((p.call()[0], p.calls()), (0, []))


def test_a_disturbed_result_made_by_hand_is_run_once():
    p = Place("by-hand", {"sglang 01": ["disturbed"]})
    env = p.env()
    subprocess.run([p.program, "lab", "sglang", "01", "--machine", "pc", "--results", p.results], env=env, check=True,
                   stdout=subprocess.DEVNULL)
    p.calls()
    same(p.call()[0], 0)
    same(p.calls().count("sglang 01"), 1)


def test_a_lab_that_fails_is_named_with_its_status():
    p = Place("fails", {"sglang 01": ["exit1"], "mini-sglang radix": ["badcheck"], "experiments 2": ["nothing"],
                        "sglang 00": ["cut", "good"]})
    code, text = p.call()
    same(code, 1, text)
    calls = p.calls()
    same([calls.count(x) for x in ("sglang 01", "mini-sglang radix", "experiments 2", "sglang 00")], [2, 2, 2, 2])
    for line in ("failed: sglang 01 baseline_perf (exit status 1)", "failed: mini-sglang radix profile_radix (exit status 1)",
                 "failed: experiments 2 baseline (exit status 0)", "doing exit1"):
        assert line in text, text
    assert "failed: sglang 00" not in text and "all results are there" not in text, text
    same((p.call()[0], p.calls()), (1, []))


def test_results_that_are_not_whole_are_made_anew():
    p = Place("whole")
    same(p.call()[0], 0)
    folder = os.path.join(p.results, "sglang", "results", "pc")
    j = p.result("sglang", "01", "baseline_perf")
    p.calls()
    for edit in ({"files": [{"name": "gone.txt"}]}, {"items": []}, {"lab": "02"}, {"schema": "other"}):
        with open(os.path.join(folder, "01_baseline_perf.json"), "w") as f:
            json.dump({**j, **edit}, f)
        same(p.call()[0], 0, str(edit))
        same(p.calls(), ["sglang 01"], str(edit))


def test_quick_results_do_not_pass_for_full_ones_but_full_ones_for_quick():
    p = Place("forms")
    same(p.call("--quick", "--only", "sglang")[0], 0)
    same(p.calls(), ["sglang 00", "sglang 01"])
    same(p.call("--only", "sglang/01")[0], 0)
    same(p.calls(), ["sglang 01"])
    assert p.result("sglang", "01", "baseline_perf")["quick"] is False
    same(p.call("--quick", "--only", "sglang")[0], 0)
    same(p.calls(), [])
    same(p.call("--only", "sglang/1")[0], 0)
    same(p.calls(), [])


def test_it_stops_before_the_limit():
    """By the times of the last runs: 1,000 s does not fit, and the labs that do are run."""
    p = Place("limit")
    slow = {"runs": 0, "disturbed": 0, "failed": 0, "seconds": 1000}
    p.put("results/.capture-pc.json", {"sglang 01 full": slow, "experiments 1 full": slow})
    code, text = p.call("--limit", "520")
    same((code, p.calls()), (75, ["sglang 00", "mini-sglang 00", "mini-sglang radix", "experiments 2"]), text)
    assert "2 labs are open: call again" in text and "4 of 6 results are there" in text, text
    assert os.path.exists(os.path.join(p.results, "report.written")), "pages of what is there"
    # the first lab of a call is begun whatever it takes
    for code, lab in ((75, "sglang 01"), (0, "experiments 1")):
        same((p.call("--limit", "520")[0], p.calls()), (code, [lab]))


def test_nothing_fits_but_the_first():
    p = Place("tiny")
    seen = []
    for n in range(6):
        code, text = p.call("--limit", "1")
        same(code, 75 if n < 5 else 0, text)
        seen += p.calls()
    same(seen, ORDER)


def test_a_lab_that_was_cut_off_is_begun_first_in_a_call():
    p = Place("cut", {"sglang 01": ["sleep", "good"]})
    tool = subprocess.Popen(p.command("--only", "sglang"), cwd=p.path, env=p.env(), stdout=subprocess.DEVNULL)
    while not os.path.exists(p.at("asleep")) or not os.path.getsize(p.at("asleep")):
        assert tool.poll() is None, "the tool ended"
        time.sleep(0.02)
    with open(p.at("asleep")) as f:
        child = int(f.read())
    tool.send_signal(signal.SIGTERM)
    same(tool.wait(timeout=LIMIT_S), 143)
    assert not os.path.exists(f"/proc/{child}"), "the lab runs on"
    same(p.state()["sglang 01 full"]["under_way"], True)
    p.calls()
    code, text = p.call("--only", "sglang")
    same((code, p.calls()), (0, ["sglang 01"]), text)
    p.put("results/.capture-pc.json", {"sglang 01 full": {"runs": 0, "disturbed": 0, "failed": 0, "under_way": True}})
    os.unlink(os.path.join(p.results, "sglang", "results", "pc", "01_baseline_perf.json"))
    code, text = p.call()
    same((code, p.calls()), (75, ["mini-sglang 00", "mini-sglang radix", "experiments 1", "experiments 2"]), text)


def test_wrong_words_are_refused():
    p = Place("wrong")
    for args, needle in (([], None), (["--only", "sglang/77"], "no such lab"), (["--device", "tpu"], "invalid choice"),
                         (["--limit", "soon"], "invalid float")):
        if needle:
            code, text = p.call(*args)
            assert code == 2 and needle in text, (code, text)
    code, text = p.call(program=p.at("nothing"))
    assert code == 2 and "set VITRINE" in text, (code, text)
    code, text = p.call(program="/bin/false")
    assert code == 2 and "no list of labs (exit status 1)" in text, (code, text)


def test_options_reach_the_labs():
    p = Place("options")
    same(p.call("--quick", "--device", "cpu", "--only", "mini-sglang/radix")[0], 0)
    with open(p.at("calls.txt")) as f:
        assert "lab mini-sglang radix --device --no-predict --quick\n" in f.read()


def test_a_real_lab_is_captured():
    p = Place("real")
    code, text = p.call("--quick", "--device", "cpu", "--only", "mini-sglang/radix", program=BIN)
    same(code, 0, text)
    same(p.result("mini-sglang", "radix", "profile_radix")["quick"], True)
    for track in ("sglang", "mini-sglang", "flashinfer", "experiments"):
        with open(os.path.join(p.results, track, "reports", "pc", "INDEX.md")) as f:
            assert f.read().startswith(f"# {track}: index")
    for page in ("physics.md", "knobs.md"):
        assert os.path.getsize(os.path.join(p.results, page)) > 500, page


def test_words_of_a_page_that_are_printed_no_more_are_told():
    """tools/compare-captures, with a program that prints what the page shows: with other figures, then with another word."""
    page = os.path.join("labs", "sglang", "00_check_env.md")
    with open(page) as f:
        shown = f.read().split("$ vitrine lab sglang 00 --quick\n")[1].split("```")[0]
    stub = os.path.join(SCRATCH, "shown")

    def check(text):
        with open(stub, "w") as f:
            f.write(f"#!{sys.executable}\nprint({text!r})\n")
        os.chmod(stub, 0o755)
        p = subprocess.run([sys.executable, os.path.join("tools", "compare-captures"), page], env={**os.environ, "VITRINE": stub},
                           stdout=subprocess.PIPE, text=True)
        return p.returncode, p.stdout
    told = "labs/sglang/00_check_env.md: vitrine lab sglang 00 --quick, exit status 0\n"
    same(check(shown), (0, "equal   " + told))
    same(check(shown.replace("235 GB/s", "18.1 GB/s")), (0, "equal   " + told))
    assert "have a measured roof" in shown
    code, out = check(shown.replace("have a measured roof", "have a roof of their own"))
    assert code == 1 and out.startswith("differs " + told) and "arithmetic have a [ measured" in out, out


try:
    main(globals())
finally:
    shutil.rmtree(SCRATCH)
