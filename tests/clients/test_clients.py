#!/usr/bin/env python3
"""Others' programs against `vitrine serve`: litellm, lm-eval's loglikelihood, guidellm.

`make test-clients` runs this with a Python that has the packages of requirements.txt; a test whose package is missing is
skipped."""
import concurrent.futures, importlib.util, os, subprocess, sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../cli"))
from served import *
from tap import *

ONE = {}
os.environ.update({"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "OPENAI_API_KEY": "none",
                   "LITELLM_LOCAL_MODEL_COST_MAP": "True"})


def need(package):
    if importlib.util.find_spec(package) is None:
        skip(f"the Python package {package} is not installed")


def server():
    if "s" not in ONE:
        ONE["s"] = Server("--served-model-name", "tiny")
    return ONE["s"]


def test_litellm_completes_and_streams():
    need("litellm")
    import litellm
    common = dict(model="openai/tiny", api_base=server().url + "/v1", api_key="none", max_tokens=6, temperature=0,
                  messages=[{"role": "user", "content": "Hi"}], extra_body={"ignore_eos": True})
    whole = litellm.completion(**common)
    same((whole.choices[0].finish_reason, whole.usage.completion_tokens), ("length", 6))
    pieces = list(litellm.completion(**common, stream=True))
    same("".join(p.choices[0].delta.content or "" for p in pieces), whole.choices[0].message.content)
    text = litellm.text_completion(model="text-completion-openai/tiny", api_base=server().url + "/v1", api_key="none", prompt="abc", max_tokens=4)
    same(text.usage.completion_tokens <= 4, True)
    try:
        litellm.completion(**{**common, "n": 999})
        assert False, "no error"
    except litellm.BadRequestError as e:
        assert "n:" in str(e), e
    for prompt in ("a " * 3000, "a" * 100000):  # counted; and refused by its length
        try:
            litellm.completion(**{**common, "messages": [{"role": "user", "content": prompt}]})
            assert False, "no error"
        except litellm.ContextWindowExceededError as e:
            assert "this model's maximum context length is" in str(e), e


def reference(context, continuation):
    """(log-probability of the continuation, whether it is the greedy one) as `vitrine score` finds it."""
    ids = list(context.encode() + continuation.encode())
    r = ok("score", "--json", "--device", "cpu", "-m", server().model, "--tokens", ",".join(map(str, ids)), "--top", "1").json
    own = range(len(context.encode()), len(ids))
    return sum(r["logprobs"][i] for i in own), all(r["top"][i][0]["id"] == ids[i] for i in own)


def test_lm_eval_loglikelihood_through_echo():
    """lm-eval's local-completions model, with the tokenizer of the served folder, on the committed lines."""
    need("lm_eval")
    need("transformers")
    from lm_eval.api.instance import Instance
    from lm_eval.models.openai_completions import LocalCompletionsAPI
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "lines.txt")) as f:
        pairs = [(a, " " + b.strip()) for a, b in (line.split(" |", 1) for line in f)]
    lm = LocalCompletionsAPI(model="tiny", base_url=server().url + "/v1/completions", tokenizer=server().model,
                             tokenizer_backend="huggingface", max_retries=1, num_concurrent=1, batch_size=2)
    got = lm.loglikelihood([Instance("loglikelihood", {}, p, i) for i, p in enumerate(pairs)], disable_tqdm=True)
    for (logprob, greedy), pair in zip(got, pairs):
        want, is_greedy = reference(*pair)
        assert abs(logprob - want) < 1e-3 and bool(greedy) == is_greedy, (pair, logprob, want)


def test_guidellm_measures_streams():
    """Its own tokenizer, from the served folder, makes the prompts; it counts what came back. Not in requirements.txt: it brings
    PyTorch, 5 GB."""
    need("guidellm")
    report = os.path.join(folder(), "report.json")
    r = subprocess.run([sys.executable, "-m", "guidellm", "run", "--backend",
                        f"kind=openai_http,target={server().url}/v1,model=tiny,request_format=/v1/chat/completions", "--profile",
                        "kind=concurrent,streams=4", "--constraint", "kind=max_requests,count=24", "--tokenizer",
                        json.dumps({"kind": "hf_auto", "model": server().model}), "--data",
                        "kind=synthetic_text,prompt_tokens=64,output_tokens=16", "--output", json.dumps({"kind": "json", "path": report}),
                        "--disable-console"], env=clean_env(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                       timeout=LIMIT_S)
    assert r.returncode == 0, r.stdout[-3000:].decode()
    with open(report) as f:
        found = json.load(f)["benchmarks"][0]["requests"]
    same((len(found["successful"]), len(found["errored"]), len(found["incomplete"])), (24, 0, 0))
    same({q["output_metrics"]["total_tokens"] for q in found["successful"]}, {16})


def test_the_server_ends_as_it_should():
    server().stop()


main(globals())
