#!/usr/bin/env python3
"""Others' clients, unmodified, against `vitrine serve` with a model that answers a script: tools, reasoning and streams of each API.

`make test-clients` runs this with a Python that has the packages of requirements.txt, and with one that has those of
requirements-older.txt, because instructor wants an older openai; a test whose package is missing is skipped. What a test shows
stands in front of it, and is its row of the table in docs/server.md (table.py)."""
import importlib.metadata, importlib.util, os, subprocess, sys, typing

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../cli"))
import scripted_model
from served import *
from table import PINNED, SHOWN, shows
from tap import *

ONE = {}
PIECES = ["<think>", "Hm.", "</think>\n\n", "I add", " it.", "\n<tool_call>", "{\"name\": \"add\", \"arguments\": {\"a\": 1}}", "</tool_call>"]
SCHEMA = {"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]}
FUNCTION = {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": SCHEMA}}
HI = [{"role": "user", "content": "Hi"}]
os.environ.update({"OPENAI_API_KEY": "none", "LITELLM_LOCAL_MODEL_COST_MAP": "True"})


def need(package):
    if importlib.util.find_spec(package) is None:
        skip(f"the Python package {package} is not installed")
    return importlib.import_module(package)


def server(pieces=PIECES):
    key = "".join(pieces)
    if key not in ONE:
        ONE[key] = Server("--served-model-name", "tiny", model=scripted_model.make(os.path.join(folder(), "m"), pieces))
    return ONE[key]


def vectors():
    """A server that makes vectors."""
    if "vectors" not in ONE:
        ONE["vectors"] = Server("--served-model-name", "tiny", "--pooling", "mean", model=scripted_model.make(os.path.join(folder(), "m"), PIECES))
    return ONE["vectors"]


def ranks():
    """A server that ranks, two documents, and which of them comes first."""
    if "ranks" not in ONE:
        ONE["ranks"] = Server("--served-model-name", "tiny", "--kv-dtype", "f32", model="tests/golden/rank/bert")
    documents = ["a river", "the sky is blue"]
    scores = ONE["ranks"].good("/v1/score", {"text_1": "q", "text_2": documents}).json["data"]
    return ONE["ranks"], documents, max(range(2), key=lambda i: scores[i]["score"])


LETTER = ["<think>", "Hm.", "</think>\n\n", "{\"letter\": \"a\"}"]
CALL = ["<tool_call>\n", "{\"name\": \"Letter\", \"arguments\": ", "{\"letter\": \"a\"}", "}\n</tool_call>"]


def letter():
    import pydantic

    class Letter(pydantic.BaseModel):
        letter: typing.Literal["a", "b"]
    return Letter


# ---- openai ----

def openai_client(pieces=PIECES):
    return need("openai").OpenAI(base_url=server(pieces).url + "/v1", api_key="none")


@shows("openai", "chat", "answer stream tools turn thought error")
def test_openai_gets_calls_and_streams_them():
    client = openai_client()
    common = dict(model="tiny", messages=HI, tools=[FUNCTION], temperature=0, max_tokens=40)
    m = client.chat.completions.create(**common).choices[0].message
    same((m.content, m.reasoning_content, m.tool_calls[0].function.name, m.tool_calls[0].function.arguments),
         ("I add it.", "Hm.", "add", "{\"a\": 1}"))
    with client.chat.completions.stream(**common) as s:
        kinds = {e.type for e in s}
        last = s.get_final_completion().choices[0]
    assert "tool_calls.function.arguments.done" in kinds, kinds
    same((last.message.content, last.message.tool_calls[0].function.arguments, last.finish_reason), ("I add it.", "{\"a\": 1}", "tool_calls"))
    said = HI + [m.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": m.tool_calls[0].id, "content": "2"}]
    same(client.chat.completions.create(**{**common, "messages": said}).choices[0].finish_reason, "tool_calls")
    try:
        client.chat.completions.create(**{**common, "n": 999})
        assert False, "no error"
    except need("openai").BadRequestError as e:
        same(e.param, "n")


@shows("openai", "chat", "forced schema")
def test_openai_forces_and_parses():
    need("openai")
    Letter = letter()
    with openai_client(LETTER).chat.completions.stream(model="tiny", messages=HI, max_tokens=60, temperature=0, response_format=Letter) as s:
        same(s.get_final_completion().choices[0].message.parsed.letter, "a")
    m = openai_client(LETTER).chat.completions.parse(model="tiny", messages=HI, max_tokens=60, temperature=0, response_format=Letter).choices[0].message
    same((m.reasoning_content, m.parsed.letter), ("Hm.", "a"))
    tool = need("openai").pydantic_function_tool(Letter)
    m = openai_client(CALL).chat.completions.parse(model="tiny", messages=HI, max_tokens=60, temperature=0, tools=[tool],
                                                   tool_choice={"type": "function", "function": {"name": "Letter"}}).choices[0].message
    same(m.tool_calls[0].function.parsed_arguments.letter, "a")
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "Letter"}}]}}
    m = openai_client(CALL).chat.completions.create(model="tiny", messages=HI, max_tokens=60, temperature=0, tools=[FUNCTION, tool],
                                                    tool_choice=allowed).choices[0].message
    same([c.function.name for c in m.tool_calls], ["Letter"])


@shows("openai", "responses", "answer stream tools turn thought forced schema error")
def test_openai_gets_responses_and_streams_them():
    client = openai_client()
    common = dict(model="tiny", input="Hi", temperature=0, max_output_tokens=40,
                  tools=[{"type": "function", "name": "add", "description": "Adds.", "parameters": SCHEMA, "strict": False}])
    r = client.responses.create(**common)
    same((r.output_text, [i.type for i in r.output], r.output[2].arguments), ("I add it.", ["reasoning", "message", "function_call"], "{\"a\": 1}"))
    with client.responses.stream(**common) as s:  # its accumulator raises where the order of events is wrong
        text = "".join(e.delta for e in s if e.type == "response.output_text.delta")
        last = s.get_final_response()
    same((text, last.status, [i.type for i in last.output]), ("I add it.", "completed", [i.type for i in r.output]))
    said = HI + [i.model_dump(exclude_none=True) for i in r.output]
    said.append({"type": "function_call_output", "call_id": r.output[2].call_id, "output": "2"})
    same(client.responses.create(**{**common, "input": said}).status, "completed")
    common = dict(model="tiny", input="Hi", temperature=0, max_output_tokens=60)
    same(openai_client(LETTER).responses.parse(**common, text_format=letter()).output_parsed.letter, "a")
    tool = {"type": "function", "name": "Letter", "parameters": letter().model_json_schema(), "strict": False}
    r = openai_client(CALL).responses.create(**common, tools=[tool], tool_choice={"type": "function", "name": "Letter"})
    same([(i.type, i.arguments) for i in r.output], [("function_call", "{\"letter\": \"a\"}")])
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "Letter"}]}
    r = openai_client(CALL).responses.create(**common, tools=[tool, {"type": "function", "name": "add", "parameters": SCHEMA, "strict": False}],
                                             tool_choice=allowed)
    same([i.name for i in r.output], ["Letter"])
    try:
        client.responses.create(**common, previous_response_id="resp_1")
        assert False, "no error"
    except need("openai").BadRequestError as e:
        same(e.param, "previous_response_id")


@shows("openai", "embeddings", "vectors")
def test_openai_gets_vectors():
    """The client asks for base64 by itself."""
    client = need("openai").OpenAI(base_url=vectors().url + "/v1", api_key="none")
    a, b = client.embeddings.create(model="tiny", input=["one", "two"]).data, client.embeddings.create(model="tiny", input="two", encoding_format="float").data
    same((len(a), len(a[0].embedding)), (2, len(b[0].embedding)))
    assert max(abs(x - y) for x, y in zip(a[1].embedding, b[0].embedding)) < 1e-6


# ---- anthropic ----

@shows("anthropic", "messages", "answer stream tools turn thought forced schema error")
def test_anthropic_gets_messages_and_streams_them():
    client = need("anthropic").Anthropic(base_url=server().url, api_key="none")
    common = dict(model="claude-x", max_tokens=40, messages=HI,
                  tools=[{"name": "add", "description": "Adds.", "input_schema": SCHEMA}])
    m = client.messages.create(**common)
    same([b.type for b in m.content], ["thinking", "text", "tool_use"])
    same((m.content[0].thinking, m.content[1].text, m.content[2].input, m.stop_reason), ("Hm.", "I add it.", {"a": 1}, "tool_use"))
    with client.messages.stream(**common) as s:
        text = "".join(s.text_stream)
        last = s.get_final_message()
    same((text, last.content[2].input, last.stop_reason, last.usage.output_tokens), ("I add it.", {"a": 1}, "tool_use", m.usage.output_tokens))
    said = HI + [{"role": "assistant", "content": m.content},
                 {"role": "user", "content": [{"type": "tool_result", "tool_use_id": m.content[2].id, "content": "2"}]}]
    assert client.messages.count_tokens(model="claude-x", messages=said).input_tokens > client.messages.count_tokens(
        model="claude-x", messages=HI).input_tokens
    try:
        client.messages.create(**{**common, "messages": [{"role": "user", "content": "a" * 9000}]})
        assert False, "no error"
    except need("anthropic").BadRequestError as e:
        assert "prompt is too long" in str(e), e
    common = dict(model="claude-x", max_tokens=60, messages=HI)
    forms = need("anthropic").Anthropic(base_url=server(LETTER).url, api_key="none")
    same(forms.messages.parse(**common, output_format=letter()).parsed_output.letter, "a")
    calls = need("anthropic").Anthropic(base_url=server(CALL).url, api_key="none")
    m = calls.messages.create(**common, tools=[{"name": "Letter", "input_schema": letter().model_json_schema()}],
                              tool_choice={"type": "tool", "name": "Letter"})
    same([(b.type, b.input) for b in m.content], [("tool_use", {"letter": "a"})])


@shows("ollama", "Ollama's", "answer stream tools turn thought schema error")
def test_ollama_chats_and_streams():
    client = need("ollama").Client(host=server().url)
    common = dict(model="tiny", messages=HI, tools=[FUNCTION], options={"temperature": 0})
    m = client.chat(**common).message
    same((m.content, m.thinking, m.tool_calls[0].function.arguments), ("I add it.", "Hm.", {"a": 1}))
    pieces = [p.message for p in client.chat(**common, stream=True)]
    same(("".join(p.content for p in pieces), [c.function.name for p in pieces for c in p.tool_calls or []]), ("I add it.", ["add"]))
    said = HI + [m, {"role": "tool", "tool_name": "add", "content": "2"}]
    assert client.chat(**{**common, "messages": said}).prompt_eval_count > 20
    assert client.generate("tiny", "Hi", options={"temperature": 0}).response.startswith("I add it.")
    got = need("ollama").Client(host=server(LETTER).url).chat("tiny", HI, format=letter().model_json_schema(), options={"temperature": 0})
    same(letter().model_validate_json(got.message.content).letter, "a")
    try:
        client.chat("other", HI)
        assert False, "no error"
    except need("ollama").ResponseError as e:
        same(e.status_code, 404)
    same((client.list().models[0].model, client.show("tiny").capabilities, len(client.ps().models)), ("tiny", ["completion", "tools", "thinking"], 1))


# ---- what stands in front of them ----

@shows("ollama", "Ollama's", "vectors")
def test_ollama_embeds():
    a = need("ollama").Client(host=vectors().url).embed("tiny", ["one", "two"], dimensions=4)
    same(([len(v) for v in a.embeddings], a.model), ([4, 4], "tiny"))


@shows("litellm", "chat", "answer stream tools thought schema")
@shows("litellm", "messages", "answer tools")
def test_litellm_gets_calls():
    litellm = need("litellm")
    common = dict(model="openai/tiny", api_base=server().url + "/v1", api_key="none", messages=HI, tools=[FUNCTION], temperature=0,
                  max_tokens=40)
    m = litellm.completion(**common).choices[0].message
    same((m.content, m.reasoning_content, m.tool_calls[0].function.arguments), ("I add it.", "Hm.", "{\"a\": 1}"))
    whole = litellm.stream_chunk_builder(list(litellm.completion(**common, stream=True))).choices[0].message
    same((whole.content, whole.tool_calls[0].function.name, whole.tool_calls[0].function.arguments), ("I add it.", "add", "{\"a\": 1}"))
    m = litellm.completion(**{**common, "model": "anthropic/claude-x", "api_base": server().url}).choices[0].message
    same((m.content, m.tool_calls[0].function.name), ("I add it.", "add"))
    m = litellm.completion(**{**common, "api_base": server(LETTER).url + "/v1", "tools": None, "max_tokens": 60}, response_format=letter())
    same(letter().model_validate_json(m.choices[0].message.content).letter, "a")


@shows("litellm", "embeddings", "vectors")
@shows("litellm", "rerank", "ranks")
def test_litellm_gets_vectors_and_ranks():
    """Its provider jina_ai sends Jina's form."""
    litellm = need("litellm")
    v = litellm.embedding(model="openai/tiny", api_base=vectors().url + "/v1", api_key="none", input=["one", "two"]).data
    same([len(x["embedding"]) for x in v], [32, 32])
    s, documents, first = ranks()
    r = litellm.rerank(model="jina_ai/tiny", api_base=s.url, api_key="none", query="q", documents=documents, top_n=1).results
    same([(x["index"], x["document"]["text"]) for x in r], [(first, documents[first])])


@shows("cohere", "rerank", "ranks")
def test_cohere_gets_ranks():
    s, documents, first = ranks()
    client = need("cohere").ClientV2(base_url=s.url, api_key="none")
    same([x.index for x in client.rerank(model="tiny", query="q", documents=documents).results], [first, 1 - first])
    same([x.index for x in client.rerank(model="tiny", query="q", documents=documents, top_n=1).results], [first])


@shows("langchain-openai", "chat", "answer stream tools forced schema")
def test_langchain_gets_calls():
    chat = need("langchain_openai").ChatOpenAI(base_url=server().url + "/v1", api_key="none", model="tiny", temperature=0, max_tokens=40)
    m = chat.bind_tools([FUNCTION]).invoke("Hi")
    same((m.content, m.tool_calls[0]["name"], m.tool_calls[0]["args"]), ("I add it.", "add", {"a": 1}))
    whole = None
    for piece in chat.bind_tools([FUNCTION]).stream("Hi"):
        whole = piece if whole is None else whole + piece
    same((whole.content, whole.tool_calls[0]["args"]), ("I add it.", {"a": 1}))
    for method, pieces in ("json_schema", LETTER), ("function_calling", CALL):
        chat.root_client.base_url = server(pieces).url + "/v1"
        same(chat.with_structured_output(letter(), method=method).invoke("Hi").letter, "a")


@shows("openai-agents", "responses", "tools turn")
@shows("openai-agents", "chat", "tools turn")
def test_openai_agents_run():
    """Its model class over /v1/responses and over chats; a tool is called, and the run ends where the turns end."""
    agents = need("agents")
    agents.set_tracing_disabled(True)
    client = need("openai").AsyncOpenAI(base_url=server().url + "/v1", api_key="none")
    seen = []
    add = agents.FunctionTool(name="add", description="Adds.", params_json_schema=SCHEMA, strict_json_schema=False,
                              on_invoke_tool=lambda context, arguments: note(seen, arguments))
    for kind in agents.OpenAIResponsesModel, agents.OpenAIChatCompletionsModel:
        agent = agents.Agent(name="a", instructions="Be brief.", model=kind("tiny", client), tools=[add])
        try:
            agents.Runner.run_sync(agent, "Hi", max_turns=2)
            assert False, "this model always calls"
        except agents.MaxTurnsExceeded:
            pass
    same(set(seen), {"{\"a\": 1}"})
    assert len(seen) >= 4, seen


async def note(seen, arguments):
    seen.append(arguments)
    return "2"


@shows("pydantic-ai-slim", "chat", "forced schema")
def test_pydantic_ai_gets_a_model():
    pydantic_ai = need("pydantic_ai")
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider
    for output, pieces in (pydantic_ai.NativeOutput(letter()), LETTER), (pydantic_ai.ToolOutput(letter(), name="Letter", strict=False), CALL):
        provider = OpenAIProvider(base_url=server(pieces).url + "/v1", api_key="none")
        agent = pydantic_ai.Agent(OpenAIChatModel("tiny", provider=provider), output_type=output, retries=0)
        same(agent.run_sync("Hi").output.letter, "a")


@shows("instructor", "chat", "forced schema")
def test_instructor_gets_models():
    instructor = need("instructor")
    for mode, pieces in (instructor.Mode.TOOLS, CALL), (instructor.Mode.JSON_SCHEMA, LETTER):
        client = instructor.from_openai(openai_client(pieces), mode=mode)
        got = client.chat.completions.create(model="tiny", messages=HI, max_tokens=60, temperature=0, max_retries=0, response_model=letter())
        same(got.letter, "a")


@shows("llm", "chat", "answer stream")
def test_llm_prompts():
    need("llm")
    path = folder()
    with open(os.path.join(path, "extra-openai-models.yaml"), "w") as f:
        f.write(f"- model_id: tiny\n  model_name: tiny\n  api_base: {server().url}/v1\n  supports_tools: true\n")
    env = {**os.environ, "LLM_USER_PATH": path, "OPENAI_API_KEY": "none"}
    for more in [], ["--no-stream"]:
        out = subprocess.run([sys.executable, "-m", "llm", "-m", "tiny", "-o", "temperature", "0", *more, "Hi"], env=env, capture_output=True,
                             text=True, timeout=60)
        assert out.returncode == 0 and out.stdout.strip().startswith("I add it."), out


def test_versions_are_those_of_the_table():
    """Packages that are here are of a version that a file of requirements names."""
    for name in {row.client for row in SHOWN}:
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        assert version in PINNED[name], f"{name} {version} is here, expected {PINNED[name]}"


def test_the_servers_end_as_they_should():
    for s in ONE.values():
        s.stop()


if __name__ == "__main__":
    main(globals())
