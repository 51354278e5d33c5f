/* The option table (engine/options.h): key, type, range, default, help; and the look-ups in it.
 *
 * A key has one row, however many verbs take it, unless two verbs mean two things by it (--batch):
 * such rows have ids, and no verb takes both.
 *
 * An option that does not work yet stands in the table where people will look for it. Its field
 * `later` names the values that are refused, so no value is accepted and ignored. */
#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/term/nearest.h"
#include "engine/options_inside.h"

enum {
    GENERATE = VT_FOR_RUN | VT_FOR_CHAT,
    MODEL = VT_FOR_RUN | VT_FOR_CHAT | VT_FOR_SCORE | VT_FOR_EXPLAIN | VT_FOR_LATENCY |
            VT_FOR_STARTUP | VT_FOR_SERVE | VT_FOR_OFFLINE | VT_FOR_SIMULATE | VT_FOR_EMBED,
    ENGINE = VT_FOR_ENGINE | VT_FOR_RUN | VT_FOR_CHAT | VT_FOR_SCORE | VT_FOR_LATENCY |
             VT_FOR_STARTUP | VT_FOR_SERVE | VT_FOR_OFFLINE | VT_FOR_EMBED,
    PLANNED = ENGINE | VT_FOR_SIMULATE /* options that hold for a simulated engine too */
};

#define INT(lo, hi) VT_OPTION_INT, .min = (lo), .max = (hi)
#define FLOAT(lo, hi) VT_OPTION_FLOAT, .min = (lo), .max = (hi)
#define CHOICE(list) VT_OPTION_CHOICE, .choices = (list)

static const char tool_parsers[] =
    "auto|hermes|qwen-xml|llama3-json|pythonic|mistral|granite|phi4|cohere|hunyuan|"
    "nemotron|lfm2|"
    "deepseek-v3|deepseek-v31|deepseek-dsml|kimi-k2|kimi-k3|glm|gemma4|minimax-m2|harmony|olmo3";

#define ROW(name, ...)                   \
    {                                    \
        .key = name, .type = __VA_ARGS__ \
    }

/* One row an option. */
/* clang-format off */
static const vt_option table[] = {
    /* common */
    ROW("model", VT_OPTION_TEXT, .letter = 'm', .value_name = "MODEL", .fallback = "smollm2-135m",
        .verbs = VT_FOR_ENGINE | MODEL | VT_FOR_TOKENIZE | VT_FOR_TEMPLATE | VT_FOR_LAB,
        .help = "a .gguf file, a Hugging Face folder, a name in the cache, or dummy:NAME"),
    ROW("device", CHOICE("auto|cpu|cuda|cuda:N|cuda:N,N"), .value_name = "DEVICE",
        .fallback = "auto", .verbs = ENGINE | VT_FOR_EXPLAIN | VT_FOR_LAB,
        .help = "where the model runs; cuda:N: on GPU N; cuda:N,N: a GPU for each rank; auto: on "
                "GPU 0 if usable (see env), else the CPU"),
    ROW("lora", VT_OPTION_TEXT, .flags = VT_OPTION_REPEAT, .value_name = "NAME=PATH",
        .verbs = VT_FOR_ENGINE | VT_FOR_RUN | VT_FOR_CHAT | VT_FOR_SCORE | VT_FOR_SERVE |
                 VT_FOR_EXPLAIN | VT_FOR_LATENCY,
        .help = "an adapter: a PEFT folder or a GGUF file; may be given several times. Requests "
                "name theirs as the model; run, chat, score and bench latency take the only one"),
    ROW("threads", INT(1, 1024), .flags = VT_OPTION_AUTO, .value_name = "N", .fallback = "auto",
        .verbs = PLANNED | VT_FOR_EXPLAIN | VT_FOR_ENV | VT_FOR_KERNELS | VT_FOR_LAB |
                 VT_FOR_LAB_KERNEL,
        .help = "CPU threads that compute; auto: as many as there are cores"),
    ROW("tp", INT(1, 64), .value_name = "N", .fallback = "1",
        .verbs = PLANNED | VT_FOR_EXPLAIN,
        .help = "tensor parallelism over N ranks: N GPUs, or parts of the CPU's threads"),
    ROW("tp-link", CHOICE("auto|p2p|host"), .value_name = "LINK", .fallback = "auto",
        .verbs = PLANNED | VT_FOR_COMM | VT_FOR_EXPLAIN,
        .help = "how GPUs of a --tp meet; p2p: in each other's memory; host: through the host's; "
                "auto: p2p where all can"),
    ROW("enable-expert-parallel", VT_OPTION_FLAG, .fallback = "false",
        .verbs = PLANNED | VT_FOR_EXPLAIN,
        .help = "give each rank of a --tp whole experts of the model, in place of a part of each"),
    ROW("tp", INT(2, 64), .id = "comm-tp", .value_name = "N", .fallback = "2",
        .verbs = VT_FOR_COMM, .help = "ranks that communicate, of one thread or GPU each"),
    ROW("device", CHOICE("cpu|cuda|cuda:N|cuda:N,N"), .id = "comm-device", .value_name = "DEVICE",
        .fallback = "cpu", .verbs = VT_FOR_COMM,
        .help = "where the ranks are; cuda: on the first GPUs; cuda:N,N: on these"),
    ROW("seed", INT(0, 9007199254740992.0), .flags = VT_OPTION_RANDOM, .value_name = "N",
        .fallback = "0", .verbs = ENGINE | VT_FOR_LOAD,
        .help = "seed of every random choice: the same seed, the same text; random: a new one"),
    ROW("json", VT_OPTION_FLAG, .fallback = "false",
        .verbs = VT_FOR_ENGINE | VT_FOR_RUN | VT_FOR_SCORE | VT_FOR_EMBED | VT_FOR_TOKENIZE |
                 VT_FOR_EXPLAIN | VT_FOR_ENV | VT_FOR_LATENCY | VT_FOR_KERNELS |
                 VT_FOR_STARTUP | VT_FOR_OFFLINE | VT_FOR_SIMULATE | VT_FOR_LIST | VT_FOR_SHOW |
                 VT_FOR_LOAD | VT_FOR_LAB | VT_FOR_LAB_KERNEL | VT_FOR_COMM,
        .help = "print one JSON object instead of text"),
    ROW("quiet", VT_OPTION_FLAG, .letter = 'q', .fallback = "false",
        .verbs = VT_FOR_ENGINE | MODEL | VT_FOR_ENV | VT_FOR_KERNELS | VT_FOR_PULL |
                 VT_FOR_LIST | VT_FOR_RM | VT_FOR_LOAD | VT_FOR_LAB | VT_FOR_COMM,
        .help = "nothing on stderr but errors"),
    ROW("jit", VT_OPTION_FLAG, .fallback = "false", .verbs = VT_FOR_ENV,
        .help = "list the compiled GPU kernels in the cache, with their template parameters"),
    ROW("try", VT_OPTION_FLAG, .fallback = "false", .verbs = VT_FOR_ENV,
        .help = "run one small case of every op, on the CPU and on a GPU that models can use, and "
                "compare it with its reference"),
    ROW("export", VT_OPTION_TEXT, .value_name = "DIR", .fallback = "", .verbs = VT_FOR_ENV,
        .help = "copy the compiled kernels to a folder, for a machine that has only a driver"),
    ROW("import", VT_OPTION_TEXT, .value_name = "DIR", .fallback = "", .verbs = VT_FOR_ENV,
        .help = "take compiled kernels from such a folder"),

    /* engine */
    ROW("page-size", INT(1, 1024), .flags = VT_OPTION_AUTO, .value_name = "N", .fallback = "auto",
        .verbs = PLANNED, .help = "tokens in a KV page; auto: 16 on a CPU, 64 on a GPU"),
    ROW("kv-memory", VT_OPTION_SIZE, .min = 1 << 16, .max = 1e15, .flags = VT_OPTION_AUTO,
        .value_name = "BYTES", .fallback = "auto", .verbs = ENGINE,
        .help = "memory of the KV cache, such as 512M or 4G"),
    ROW("kv-dtype", CHOICE("auto|f32|f16|bf16|fp8"), .value_name = "TYPE",
        .fallback = "auto", .verbs = PLANNED | VT_FOR_EXPLAIN | VT_FOR_STORY_WHATIF,
        .help = "element type of the KV cache; auto: bf16 on a GPU, f32 for F32 weights, else f16"),
    ROW("max-context", INT(1, 1 << 24), .flags = VT_OPTION_AUTO, .value_name = "N",
        .fallback = "auto", .verbs = PLANNED,
        .help = "longest sequence in tokens; auto: what model and memory allow, at most 256 Ki"),
    ROW("max-running", INT(1, 4096), .flags = VT_OPTION_AUTO, .value_name = "N", .fallback = "auto",
        .verbs = PLANNED,
        .help = "requests that run together; auto: 64 on a CPU, 256 on a GPU, encoders there 1024; "
                "run and chat on a GPU: as many as they send"),
    ROW("max-queued", INT(1, 1 << 20), .value_name = "N", .fallback = "1024", .verbs = ENGINE,
        .help = "requests that may wait; beyond that they are turned away"),
    ROW("token-budget", INT(1, 1 << 20), .flags = VT_OPTION_AUTO, .value_name = "N",
        .fallback = "auto", .verbs = PLANNED,
        .help = "most tokens in one step: longer prompts are cut into chunks"),
    ROW("state-interval", INT(0, 1 << 24), .value_name = "N", .fallback = "4096", .verbs = PLANNED,
        .help = "models with sequence state: keep a prompt's state for the prefix cache every N "
                "tokens, where memory for it is free; 0: at its end alone"),
    ROW("target-gap", INT(0, 100000), .value_name = "MS", .fallback = "0", .verbs = ENGINE,
        .help = "longest time between two tokens that chunks of other prompts may cause; 0: any"),
    ROW("policy", CHOICE("fcfs|lpm|priority"), .value_name = "NAME", .fallback = "fcfs",
        .verbs = PLANNED, .help = "who runs next: first come, longest prefix match, or priority"),
    ROW("attention-backend", VT_OPTION_TEXT, .value_name = "NAME", .fallback = "auto",
        .verbs = ENGINE | VT_FOR_EXPLAIN,
        .help = "attention kernels, such as fa2 or avx2, or two names: PREFILL,DECODE; auto: see "
                "explain"),
    ROW("linear-backend", VT_OPTION_TEXT, .value_name = "NAME", .fallback = "auto",
        .verbs = ENGINE | VT_FOR_EXPLAIN,
        .help = "matrix kernels, such as cublaslt or avx2, wherever they can run; auto: see "
                "explain"),
    ROW("deterministic", VT_OPTION_FLAG, .fallback = "false", .verbs = ENGINE,
        .help = "the same tokens whatever else is in the batch; on a CPU that always holds"),
    ROW("no-overlap", VT_OPTION_FLAG, .fallback = "false", .verbs = PLANNED,
        .help = "prepare a step only when the one before it has ended"),
    ROW("draft", VT_OPTION_TEXT, .value_name = "HOW", .fallback = "off", .verbs = ENGINE,
        .help = "guess tokens and verify several in one step; lookup: what followed the last three "
                "tokens before; mtp: what the model's own MTP head says; a name, file or "
                "folder: what that smaller model or EAGLE-3 head says. The tokens stay the same"),
    ROW("pooling", CHOICE("auto|none|last|mean|cls|rank"), .value_name = "HOW",
        .fallback = "auto",
        .verbs = VT_FOR_ENGINE | VT_FOR_SERVE | VT_FOR_EMBED | VT_FOR_RUN | VT_FOR_OFFLINE,
        .help = "make embeddings and no text: the hidden state of the last token, the mean of all, "
                "or that of the first; rank: scores of pairs of texts; none: text; auto: what the "
                "model's files say"),
    ROW("no-graphs", VT_OPTION_FLAG, .fallback = "false", .verbs = ENGINE,
        .help = "launch kernels one by one (CUDA)"),
    ROW("no-prefix-cache", VT_OPTION_FLAG, .fallback = "false", .verbs = PLANNED,
        .help = "keep no KV of finished requests"),
    ROW("keep-window-kv", VT_OPTION_FLAG, .fallback = "false", .verbs = ENGINE,
        .help = "keep the KV of layers with a sliding window that lies behind it"),

    /* run and chat */
    ROW("max-tokens", INT(1, 1 << 24), .letter = 'n', .value_name = "N", .fallback = "128",
        .verbs = GENERATE, .help = "stop after N tokens"),
    ROW("temperature", FLOAT(0, 100), .value_name = "T", .fallback = "0",
        .verbs = GENERATE | VT_FOR_OFFLINE,
        .help = "0 always takes the likeliest token; higher is more random"),
    ROW("top-p", FLOAT(0, 1), .value_name = "P", .fallback = "1", .verbs = GENERATE,
        .help = "choose among the likeliest tokens that sum to P"),
    ROW("top-k", INT(0, 1 << 24), .value_name = "K", .fallback = "0", .verbs = GENERATE,
        .help = "choose among the K likeliest tokens; 0: all"),
    ROW("min-p", FLOAT(0, 1), .value_name = "P", .fallback = "0", .verbs = GENERATE,
        .help = "drop tokens less likely than P times the likeliest"),
    ROW("repeat-penalty", FLOAT(0.01, 100), .value_name = "R", .fallback = "1", .verbs = GENERATE,
        .help = "weaken tokens that the prompt or the answer holds already; above 1 is weaker"),
    ROW("presence-penalty", FLOAT(-100, 100), .value_name = "X", .fallback = "0",
        .verbs = GENERATE, .help = "take X from the logit of every token that the answer holds"),
    ROW("frequency-penalty", FLOAT(-100, 100), .value_name = "X", .fallback = "0",
        .verbs = GENERATE, .help = "the same for each time that the answer holds it"),
    ROW("logit-bias", VT_OPTION_TEXT, .flags = VT_OPTION_REPEAT, .value_name = "ID=X,...",
        .verbs = GENERATE,
        .help = "add X to the logit of token ID; -inf: never; may be given several times"),
    ROW("stop", VT_OPTION_TEXT, .flags = VT_OPTION_REPEAT, .value_name = "TEXT", .verbs = GENERATE,
        .help = "end before this text appears; may be given several times"),
    ROW("samples", INT(1, 128), .value_name = "N", .fallback = "1", .verbs = VT_FOR_RUN,
        .help = "N answers to the prompt, which is computed once"),
    ROW("logprobs", INT(0, 20), .flags = VT_OPTION_OPTIONAL, .value_name = "K",
        .verbs = VT_FOR_RUN,
        .help = "with --json: each token's log-probability, and the K likeliest tokens beside it"),
    ROW("file", VT_OPTION_TEXT, .letter = 'f', .value_name = "FILE", .verbs = VT_FOR_RUN,
        .help = "read the prompt from a file; -: stdin"),
    ROW("ignore-eos", VT_OPTION_FLAG, .fallback = "false", .verbs = VT_FOR_RUN | VT_FOR_LOAD,
        .help = "go on after the model's end token"),
    ROW("raw", VT_OPTION_FLAG, .fallback = "false", .verbs = VT_FOR_RUN,
        .help = "continue the prompt as it is, without the chat template"),
    ROW("tokens", VT_OPTION_IDS, .value_name = "IDS",
        .verbs = VT_FOR_RUN | VT_FOR_SCORE | VT_FOR_EMBED,
        .help = "token ids in place of a text: 1,2,3"),
    ROW("system", VT_OPTION_TEXT, .value_name = "TEXT", .verbs = GENERATE,
        .help = "the system message"),
    ROW("literal-content", VT_OPTION_FLAG, .fallback = "false", .verbs = GENERATE,
        .help = "special tokens in messages are text; with --batch unless =false is given"),
    ROW("story", VT_OPTION_TEXT, .flags = VT_OPTION_OPTIONAL, .value_name = "FILE.json",
        .verbs = VT_FOR_RUN | VT_FOR_SCORE | VT_FOR_LATENCY | VT_FOR_OFFLINE,
        .help = "tell what happened: in the terminal, or into a file whose name ends in .json, "
                ".html (a page) or .pftrace (a trace)"),
    ROW("story-counters", VT_OPTION_FLAG, .fallback = "false",
        .verbs = VT_FOR_RUN | VT_FOR_LATENCY | VT_FOR_OFFLINE,
        .help = "with --story on a GPU: read its hardware counters in some steps, which run apart "
                "and are left out of all times"),
    ROW("story-activity", VT_OPTION_FLAG, .fallback = "false",
        .verbs = VT_FOR_RUN | VT_FOR_LATENCY | VT_FOR_OFFLINE,
        .help = "with --story on a GPU: have CUPTI record when the kernels and copies of some "
                "steps ran, libraries' too; these steps are left out of all other times"),
    ROW("story-lines", VT_OPTION_FLAG, .fallback = "false",
        .verbs = VT_FOR_RUN | VT_FOR_LATENCY | VT_FOR_OFFLINE,
        .help = "with --story on a GPU: sample in 32 decode steps at which lines of the kernels' "
                "sources warps are, and what they wait for; these steps are left out of all times"),
    ROW("story-ctas", VT_OPTION_FLAG, .fallback = "false",
        .verbs = VT_FOR_RUN | VT_FOR_LATENCY | VT_FOR_OFFLINE,
        .help = "with --story on a GPU: tell when every CTA of a prompt's step and of a decode "
                "step ran, and on which SM; the decode step is left out of all times"),
    ROW("story-lanes", VT_OPTION_FLAG, .fallback = "false",
        .verbs = VT_FOR_RUN | VT_FOR_LATENCY | VT_FOR_OFFLINE | VT_FOR_SERVE,
        .help = "with --story or --story-dir on a GPU: sample its counters over time (SMs, tensor "
                "cores, memory, L2 cache, PCIe); no step runs differently for it"),
    ROW("story-dir", VT_OPTION_TEXT, .value_name = "DIR", .fallback = "",
        .verbs = VT_FOR_RUN | VT_FOR_OFFLINE | VT_FOR_LATENCY | VT_FOR_SERVE,
        .help = "where a batch, bench or server writes the story of its last steps when it gets "
                "SIGUSR2 (vitrine story dump PID); without it: stories in the cache"),

    /* story show */
    ROW("short", VT_OPTION_FLAG, .fallback = "false", .verbs = VT_FOR_STORY,
        .help = "the timeline and the findings alone"),
    ROW("flame", VT_OPTION_FLAG, .fallback = "false", .verbs = VT_FOR_STORY,
        .help = "a flame graph of the steps, their ops and layers"),
    ROW("token", INT(0, 1 << 30), .value_name = "N", .verbs = VT_FOR_STORY,
        .help = "the step that made token N of the output, from 0"),
    ROW("step", INT(1, INT64_C(1) << 53), .value_name = "N", .verbs = VT_FOR_STORY,
        .help = "one step: its host work, its batch, its calls"),
    ROW("layer", INT(0, 1 << 20), .value_name = "N", .verbs = VT_FOR_STORY,
        .help = "one layer of a typical step, op by op"),
    ROW("op", VT_OPTION_TEXT, .value_name = "KIND", .verbs = VT_FOR_STORY,
        .help = "one kind of op, such as linear.qkv, layer by layer"),

    /* story diff, export and whatif */
    ROW("markdown", VT_OPTION_FLAG, .fallback = "false", .verbs = VT_FOR_STORY_DIFF,
        .help = "tables of Markdown, for a review or a log"),
    ROW("fail-over", VT_OPTION_TEXT, .value_name = "P%", .fallback = "",
        .verbs = VT_FOR_STORY_DIFF,
        .help = "exit with 1 where the decode step (without one: the prefill step) of B takes more "
                "than P % longer than A's, and that is beyond the noise"),
    ROW("step", VT_OPTION_TEXT, .id = "diff-steps", .value_name = "N[:M]", .fallback = "",
        .verbs = VT_FOR_STORY_DIFF,
        .help = "compare step N of A with step M (or N) of B, not the mean steps"),
    ROW("weights", VT_OPTION_TEXT, .value_name = "TYPE", .fallback = "",
        .verbs = VT_FOR_STORY_WHATIF,
        .help = "the layers' matrices in another type, such as q4_k or bf16"),
    ROW("prefix", INT(0, 1 << 24), .value_name = "N", .fallback = "0",
        .verbs = VT_FOR_STORY_WHATIF, .help = "prompt tokens found in the prefix cache"),
    ROW("to", CHOICE("chrome|pftrace|speedscope|folded|html"), .value_name = "FORM",
        .fallback = "chrome", .verbs = VT_FOR_STORY_EXPORT,
        .help = "the form: chrome and pftrace, traces that https://ui.perfetto.dev opens (JSON and "
                "binary); speedscope; folded, stacks for flamegraph.pl; html, a page"),

    /* score */
    ROW("output", VT_OPTION_TEXT, .id = "trace-file", .letter = 'o', .value_name = "FILE",
        .verbs = VT_FOR_STORY_EXPORT, .help = "write it there, not to standard output"),
    ROW("text", VT_OPTION_TEXT, .value_name = "FILE", .verbs = VT_FOR_SCORE,
        .help = "the text to score, without its last newline; -: stdin"),
    ROW("text", VT_OPTION_TEXT, .id = "embed-text", .value_name = "FILE", .verbs = VT_FOR_EMBED,
        .help = "the text to embed, without its last newline; -: stdin"),
    ROW("dimensions", INT(0, 1 << 20), .value_name = "N", .fallback = "0", .verbs = VT_FOR_EMBED,
        .help = "only the first N numbers of the vector; 0: all"),
    ROW("unscaled", VT_OPTION_FLAG, .fallback = "false", .verbs = VT_FOR_EMBED,
        .help = "leave the vector as it is; without this its length is 1, unless the model's files "
                "say otherwise"),
    ROW("prompt-name", VT_OPTION_TEXT, .value_name = "NAME", .verbs = VT_FOR_EMBED,
        .help = "put this prompt of the model's files in front of the text, such as query"),
    ROW("top", INT(0, 20), .value_name = "K", .fallback = "0", .verbs = VT_FOR_SCORE,
        .help = "with --json: the K likeliest tokens at each position"),
    ROW("window", INT(4, 1 << 24), .value_name = "W", .verbs = VT_FOR_SCORE,
        .help = "score independent chunks of W tokens, as llama-perplexity does"),

    /* tokenize and template */
    ROW("decode", VT_OPTION_IDS, .value_name = "IDS", .verbs = VT_FOR_TOKENIZE,
        .help = "print the bytes of these ids instead"),
    ROW("special", VT_OPTION_FLAG, .fallback = "false", .verbs = VT_FOR_TOKENIZE,
        .help = "special tokens in the text are tokens, not text"),
    ROW("add-bos", VT_OPTION_FLAG, .fallback = "false", .verbs = VT_FOR_TOKENIZE,
        .help = "begin with the BOS token where the model wants one"),
    ROW("messages", VT_OPTION_TEXT, .value_name = "FILE", .verbs = VT_FOR_TEMPLATE,
        .help = "JSON: an object with messages, tools and other variables, or a list of messages; "
                "-: stdin"),
    ROW("template", VT_OPTION_TEXT, .value_name = "FILE", .verbs = VT_FOR_TEMPLATE,
        .help = "a Jinja template in place of the model's; no model is needed then"),
    ROW("no-generation-prompt", VT_OPTION_FLAG, .fallback = "false", .verbs = VT_FOR_TEMPLATE,
        .help = "do not open the assistant's turn"),

    /* pull */
    ROW("hub", VT_OPTION_TEXT, .value_name = "URL", .verbs = VT_FOR_PULL,
        .help = "a Hugging Face style hub, for ORG/NAME; VITRINE_HUB sets it too"),
    ROW("connections", INT(1, 32), .value_name = "N", .fallback = "4", .verbs = VT_FOR_PULL,
        .help = "files fetched at once"),
    ROW("require-hash", VT_OPTION_FLAG, .verbs = VT_FOR_PULL,
        .help = "refuse files for which the hub's listing gives no hash"),
    ROW("max-size", VT_OPTION_SIZE, .min = 1, .max = 4398046511104.0, .value_name = "BYTES",
        .fallback = "64G", .verbs = VT_FOR_PULL,
        .help = "most that is taken of a file whose size the hub does not tell"),

    /* rm */
    ROW("yes", VT_OPTION_FLAG, .letter = 'y', .verbs = VT_FOR_RM,
        .help = "remove without asking"),

    /* explain and bench */
    ROW("prompt", INT(0, 1 << 20), .flags = VT_OPTION_AUTO, .value_name = "N", .fallback = "auto",
        .verbs = VT_FOR_LATENCY | VT_FOR_EXPLAIN,
        .help = "new prompt tokens of each sequence; auto: 512 in a bench; in explain 0 (a "
                "decode step), or 256 of an encoder"),
    ROW("context", INT(0, 1 << 24), .flags = VT_OPTION_AUTO, .value_name = "N", .fallback = "auto",
        .verbs = VT_FOR_EXPLAIN,
        .help = "tokens already in the KV cache; auto: 512 for a decode step, 0 with --prompt"),
    ROW("gen", INT(1, 1 << 20), .value_name = "N", .fallback = "64", .verbs = VT_FOR_LATENCY,
        .help = "tokens generated for each sequence"),
    ROW("batch", INT(1, 4096), .value_name = "B", .fallback = "1",
        .verbs = VT_FOR_LATENCY | VT_FOR_EXPLAIN | VT_FOR_STORY_WHATIF,
        .help = "sequences at once"),
    ROW("reps", INT(1, 1000), .letter = 'r', .value_name = "N", .fallback = "5",
        .verbs = VT_FOR_LATENCY | VT_FOR_STARTUP | VT_FOR_KERNELS | VT_FOR_COMM,
        .help = "repetitions, after one that is not counted"),
    ROW("cold", VT_OPTION_FLAG, .fallback = "false", .verbs = VT_FOR_KERNELS,
        .help = "data from memory: every call gets its own copy of the arguments"),
    ROW("device", CHOICE("cpu|cuda|cuda:N"), .id = "kernels-device", .value_name = "DEVICE",
        .fallback = "cpu", .verbs = VT_FOR_KERNELS, .help = "whose implementations are run"),
    ROW("shape", VT_OPTION_TEXT, .value_name = "K=V,...",
        .verbs = VT_FOR_KERNELS | VT_FOR_LAB_KERNEL,
        .help = "run OP on this shape in place of its own, such as 'tokens=1|8|64,type=q4_k'; "
                "unknown fields are answered with the list"),
    ROW("op", VT_OPTION_TEXT, .id = "kernel-op", .value_name = "OP", .verbs = VT_FOR_LAB_KERNEL,
        .help = "the op that the kernel implements; an unknown one is answered with the list"),
    ROW("device", CHOICE("auto|cpu|cuda|cuda:N"), .id = "kernel-device", .value_name = "DEVICE",
        .fallback = "auto", .verbs = VT_FOR_LAB_KERNEL,
        .help = "where it runs; auto: GPU 0 for a .cu, the CPU for a .so"),
    ROW("limit", INT(1, 600), .value_name = "SECONDS", .fallback = "30",
        .verbs = VT_FOR_LAB_KERNEL,
        .help = "a case or a measurement that takes longer is a hang"),
    ROW("impl", VT_OPTION_TEXT, .value_name = "NAME", .verbs = VT_FOR_KERNELS,
        .help = "only implementations of this name or family"),
    ROW("method", CHOICE("auto|warm|cold|graph|pdl"), .value_name = "NAME", .fallback = "auto",
        .verbs = VT_FOR_KERNELS,
        .help = "how a call is timed; graph, pdl: many in a CUDA graph, without and with overlap; "
                "auto: cold on a GPU, warm on a CPU"),
    ROW("counters", VT_OPTION_FLAG, .fallback = "false", .verbs = VT_FOR_KERNELS,
        .help = "on a GPU: also run each call under CUPTI and show its hardware counters and what "
                "its warps waited for"),
    ROW("lines", VT_OPTION_FLAG, .fallback = "false", .verbs = VT_FOR_KERNELS,
        .help = "on a GPU: also sample where each call's warps are, and show the lines of our "
                "kernels with the most samples and what warps waited for there"),
    ROW("variants", VT_OPTION_FLAG, .fallback = "false", .verbs = VT_FOR_KERNELS,
        .help = "implementations that an engine never chooses, too"),
    ROW("hardware", VT_OPTION_TEXT, .value_name = "NAME|FILE", .fallback = "this",
        .verbs = VT_FOR_EXPLAIN | VT_FOR_SIMULATE | VT_FOR_STORY_WHATIF,
        .help = "predict for this machine (measured), for a GPU that need not be here (h200, h100, "
                "a100-80gb-sxm, a100-80gb-pcie), or for the machine whose vitrine env --json is in "
                "a file (a name with a '/' or a '.')"),
    ROW("all", VT_OPTION_FLAG, .fallback = "false", .verbs = VT_FOR_EXPLAIN,
        .help = "every call of every layer, not one line a kind; and how each row cuts its work"),

    /* bench offline and run --batch */
    ROW("num", INT(1, 1 << 20), .value_name = "N", .fallback = "256",
        .verbs = VT_FOR_OFFLINE | VT_FOR_LOAD, .help = "how many sequences or chats"),
    ROW("input", VT_OPTION_TEXT, .value_name = "LO:HI", .fallback = "100:1024",
        .verbs = VT_FOR_OFFLINE | VT_FOR_LOAD,
        .help = "prompt tokens of each, drawn evenly from this range"),
    ROW("output", VT_OPTION_TEXT, .id = "output-range", .value_name = "LO:HI",
        .fallback = "100:1024", .verbs = VT_FOR_OFFLINE | VT_FOR_LOAD,
        .help = "generated tokens of each, likewise"),
    ROW("shared-prefix", INT(0, 1 << 20), .value_name = "N", .fallback = "0",
        .verbs = VT_FOR_OFFLINE, .help = "the first N tokens of all prompts are the same"),
    ROW("lengths", VT_OPTION_TEXT, .value_name = "FILE", .verbs = VT_FOR_OFFLINE | VT_FOR_LOAD,
        .help = "pairs of lengths, one sequence a line, in place of random ones"),
    ROW("batch", VT_OPTION_TEXT, .id = "batch-file", .value_name = "IN.jsonl", .verbs = VT_FOR_RUN,
        .help = "answer every line of a file of OpenAI batch requests; with -o"),
    ROW("output", VT_OPTION_TEXT, .id = "output-file", .letter = 'o', .value_name = "OUT.jsonl",
        .verbs = VT_FOR_RUN,
        .help = "where --batch appends its results; what is there already is not done again"),
    ROW("retry-failed", VT_OPTION_FLAG, .fallback = "false", .verbs = VT_FOR_RUN,
        .help = "with --batch: do lines whose result is an error again"),

    /* serve */
    ROW("host", VT_OPTION_TEXT, .value_name = "ADDRESS", .fallback = "127.0.0.1",
        .verbs = VT_FOR_SERVE,
        .help = "address or name to listen on; 0.0.0.0 or :: for every network of this machine, "
                "and then with --api-key-file"),
    ROW("port", INT(0, 65535), .value_name = "N", .fallback = "8000", .verbs = VT_FOR_SERVE,
        .help = "port to listen on; 0: any free one"),
    ROW("uds", VT_OPTION_TEXT, .value_name = "PATH", .verbs = VT_FOR_SERVE,
        .help = "listen on a Unix socket in place of host and port"),
    ROW("tls-cert", VT_OPTION_TEXT, .value_name = "FILE", .verbs = VT_FOR_SERVE,
        .help = "certificate chain (PEM): serve https; with --tls-key"),
    ROW("tls-key", VT_OPTION_TEXT, .value_name = "FILE", .verbs = VT_FOR_SERVE,
        .help = "private key of --tls-cert (PEM)"),
    ROW("cors-origin", VT_OPTION_TEXT, .value_name = "ORIGIN", .verbs = VT_FOR_SERVE,
        .help = "web pages of this origin may call the server; *: all pages"),
    ROW("allowed-host", VT_OPTION_TEXT, .flags = VT_OPTION_REPEAT, .value_name = "NAME",
        .verbs = VT_FOR_SERVE,
        .help = "a further name by which browsers reach the server, such as its proxy's; may be "
                "given several times"),
    ROW("api-key-file", VT_OPTION_TEXT, .value_name = "FILE", .verbs = VT_FOR_SERVE,
        .help = "keys that clients must send, one a line; VITRINE_API_KEY may hold some too"),
    ROW("admin-key-file", VT_OPTION_TEXT, .value_name = "FILE", .verbs = VT_FOR_SERVE | VT_FOR_TOP,
        .help = "keys for stories, the live view, flush and abort; VITRINE_ADMIN_KEY may hold "
                "some too"),
    ROW("share-prefixes", VT_OPTION_FLAG, .fallback = "false", .verbs = VT_FOR_SERVE,
        .help = "requests of different keys may use each other's cached prefixes, which tells by "
                "its speed what others have asked"),
    ROW("served-model-name", VT_OPTION_TEXT, .value_name = "NAME", .verbs = VT_FOR_SERVE,
        .help = "the model's name in requests and answers"),
    ROW("tool-parser", CHOICE(tool_parsers),
        .value_name = "FORM", .fallback = "auto", .verbs = VT_FOR_SERVE,
        .help = "how the model writes tool calls; auto: as its chat template says"),
    ROW("reasoning-field", CHOICE("reasoning_content|reasoning|both"),
        .value_name = "NAME", .fallback = "reasoning_content", .verbs = VT_FOR_SERVE,
        .help = "member of chats' messages that has the reasoning"),
    ROW("owned-by", VT_OPTION_TEXT, .value_name = "NAME", .fallback = "vitrine",
        .verbs = VT_FOR_SERVE,
        .help = "owner that /v1/models names; gateways recognise engines by it"),
    ROW("sampling-defaults", CHOICE("model|openai"), .value_name = "WHOSE", .fallback = "model",
        .verbs = VT_FOR_SERVE,
        .help = "what holds where a request does not say: the model's generation_config.json, or "
                "OpenAI's"),
    ROW("request-timeout", FLOAT(0, 86400), .value_name = "SECONDS", .fallback = "0",
        .verbs = VT_FOR_SERVE, .help = "end requests after this time; 0: never"),
    ROW("drain-timeout", FLOAT(0, 86400), .value_name = "SECONDS", .fallback = "30",
        .verbs = VT_FOR_SERVE,
        .help = "after SIGTERM: how long requests under way may go on"),
    ROW("max-connections", INT(1, 1 << 20), .value_name = "N", .fallback = "4096",
        .verbs = VT_FOR_SERVE, .help = "clients that may be connected"),
    ROW("max-body", VT_OPTION_SIZE, .min = 1024, .max = 16 << 20, .value_name = "BYTES",
        .fallback = "16M", .verbs = VT_FOR_SERVE, .help = "largest request body"),
    ROW("health-timeout", FLOAT(0.001, 86400), .value_name = "SECONDS", .fallback = "60",
        .verbs = VT_FOR_SERVE,
        .help = "/health answers 503 when a request is open and no step has ended in this time"),
    ROW("metrics-compat", VT_OPTION_FLAG, .fallback = "false", .verbs = VT_FOR_SERVE,
        .help = "/metrics has vLLM's and SGLang's names too"),
    ROW("log-requests", CHOICE("text|json|off"), .value_name = "FORM", .fallback = "text",
        .verbs = VT_FOR_SERVE,
        .help = "one line on stderr for each request; off is the default with --quiet"),
    ROW("log-text", VT_OPTION_FLAG, .fallback = "false", .verbs = VT_FOR_SERVE,
        .help = "these lines have the beginnings of prompts and answers too"),
    ROW("log-steps", VT_OPTION_TEXT, .value_name = "FILE", .verbs = VT_FOR_SERVE,
        .help = "append a line of JSON for each step: its batch, its times, the KV pages"),
    ROW("record-text", VT_OPTION_FLAG, .fallback = "false", .later = "true",
        .verbs = VT_FOR_SERVE, .help = "stories have prompts and answers"),
    ROW("slo", VT_OPTION_TEXT, .value_name = "NAME=MS,...", .verbs = VT_FOR_SERVE,
        .help = "write the story of a request beyond one of these limits of ttft, itl (longest "
                "gap), tpot and e2e into --story-dir: the newest 32, one in 10 s"),
    ROW("otlp-endpoint", VT_OPTION_TEXT, .value_name = "URL", .verbs = VT_FOR_SERVE,
        .help = "send a span for each request to this OpenTelemetry collector: http://HOST:PORT"),

    /* top and bench serve */
    ROW("url", VT_OPTION_TEXT, .value_name = "URL", .fallback = "http://127.0.0.1:8000",
        .verbs = VT_FOR_TOP | VT_FOR_LOAD, .help = "the server: http://HOST:PORT or unix:PATH"),
    ROW("once", VT_OPTION_FLAG, .fallback = "false", .verbs = VT_FOR_TOP,
        .help = "print one frame and end; so where stdout is not a terminal"),
    ROW("width", INT(60, 100), .value_name = "N", .fallback = "100", .verbs = VT_FOR_TOP,
        .help = "columns of the frame that --once prints"),

    /* bench serve */
    ROW("api-key-env", VT_OPTION_TEXT, .value_name = "NAME", .verbs = VT_FOR_LOAD,
        .help = "send the API key that this environment variable holds"),
    ROW("model", VT_OPTION_TEXT, .id = "asked-model", .letter = 'm', .value_name = "NAME",
        .verbs = VT_FOR_LOAD,
        .help = "the model to ask for; without it, the first that /v1/models lists"),
    ROW("api", CHOICE("chat|completions"), .value_name = "NAME", .fallback = "chat",
        .verbs = VT_FOR_LOAD, .help = "ask /v1/chat/completions or /v1/completions"),
    ROW("concurrency", INT(1, 65536), .flags = VT_OPTION_AUTO, .value_name = "N",
        .fallback = "auto", .verbs = VT_FOR_LOAD,
        .help = "requests at once; with --rate or --trace the most; auto: 16, or 4096 there"),
    ROW("rate", FLOAT(0.0001, 1e6), .value_name = "R", .verbs = VT_FOR_LOAD,
        .help = "begin R chats a second, at random times, however many are open"),
    ROW("speed", FLOAT(0.0001, 1e6), .value_name = "F", .fallback = "1", .verbs = VT_FOR_LOAD,
        .help = "with --trace: replay it F times as fast"),
    ROW("turns", INT(1, 1024), .value_name = "K", .fallback = "1", .verbs = VT_FOR_LOAD,
        .help = "messages of each chat; each sends all before it again"),
    ROW("shared-prefix", INT(0, 1 << 20), .id = "shared-front", .value_name = "N",
        .fallback = "0", .verbs = VT_FOR_LOAD,
        .help = "N tokens in front of every prompt that are the same; of a chat, its system "
                "message"),
    ROW("groups", INT(1, 1 << 20), .value_name = "N", .fallback = "1", .verbs = VT_FOR_LOAD,
        .help = "with --shared-prefix: N different ones, in turn"),
    ROW("ids", VT_OPTION_FLAG, .fallback = "false", .verbs = VT_FOR_LOAD,
        .help = "prompts are random token ids, not words; with --api completions"),
    ROW("vocab", INT(1, 1 << 24), .value_name = "N", .fallback = "10000", .verbs = VT_FOR_LOAD,
        .help = "with --ids: ids are below N"),
    ROW("dataset", VT_OPTION_TEXT, .value_name = "FILE", .verbs = VT_FOR_LOAD,
        .help = "conversations to replay: JSON or JSON lines, in ShareGPT's or OpenAI's form"),
    ROW("temperature", FLOAT(0, 100), .id = "asked-temperature", .value_name = "T",
        .verbs = VT_FOR_LOAD, .help = "field temperature of the requests; without it, none"),
    ROW("no-stream", VT_OPTION_FLAG, .fallback = "false", .verbs = VT_FOR_LOAD,
        .help = "ask for whole answers"),
    ROW("timeout", FLOAT(0.1, 86400), .value_name = "SECONDS", .fallback = "600",
        .verbs = VT_FOR_LOAD, .help = "give a request up after this time"),
    ROW("slo", VT_OPTION_TEXT, .id = "asked-slo", .value_name = "NAME=MS,...",
        .verbs = VT_FOR_LOAD,
        .help = "count requests within these limits of ttft, itl (longest gap), tpot and e2e"),
    ROW("jsonl", VT_OPTION_TEXT, .value_name = "FILE", .verbs = VT_FOR_LOAD,
        .help = "write a line of JSON for each request"),
    ROW("report", VT_OPTION_TEXT, .letter = 'o', .value_name = "FILE", .verbs = VT_FOR_LOAD,
        .help = "write the JSON object to a file, too"),

    /* bench simulate */
    ROW("trace", VT_OPTION_TEXT, .value_name = "FILE", .verbs = VT_FOR_SIMULATE | VT_FOR_LOAD,
        .help = "requests to replay, as JSON lines: timestamp, input_length, output_length, "
                "hash_ids"),
    ROW("gpus", INT(1, 1024), .value_name = "N", .fallback = "1", .verbs = VT_FOR_SIMULATE,
        .help = "replicas of the model, each of --tp ranks; a request goes to the one with the "
                "least to do"),
    ROW("memory", VT_OPTION_SIZE, .min = 1 << 20, .max = 1e15, .flags = VT_OPTION_AUTO,
        .value_name = "BYTES", .fallback = "auto", .verbs = VT_FOR_SIMULATE,
        .help = "memory of one replica's device; auto: what the hardware is known to have"),
    ROW("requests", INT(1, 1 << 24), .value_name = "N", .fallback = "1000",
        .verbs = VT_FOR_SIMULATE, .help = "replay the first N of the trace"),
    ROW("efficiency", FLOAT(0.01, 1), .flags = VT_OPTION_AUTO, .value_name = "F", .fallback = "1",
        .verbs = VT_FOR_SIMULATE,
        .help = "share of each roof that the hardware reaches; 1: all of it; auto: of each op, as "
                "it was measured there"),

    /* lab */
    ROW("quick", VT_OPTION_FLAG, .fallback = "false", .verbs = VT_FOR_LAB,
        .help = "the smaller form of a lab"),
    ROW("predict", VT_OPTION_TEXT, .value_name = "X", .verbs = VT_FOR_LAB,
        .help = "what you expect of the lab's main quantity, such as 120us or 40GB/s"),
    ROW("no-predict", VT_OPTION_FLAG, .fallback = "false", .verbs = VT_FOR_LAB,
        .help = "do not ask for a prediction on a terminal"),
    ROW("results", VT_OPTION_TEXT, .value_name = "DIR", .verbs = VT_FOR_LAB,
        .help = "where results go and reports come from; without it: the labs folder above the "
                "working directory, else labs in the cache"),
    ROW("machine", VT_OPTION_TEXT, .value_name = "NAME", .fallback = "local", .verbs = VT_FOR_LAB,
        .help = "the folder of this machine's results"),
    ROW("again", VT_OPTION_FLAG, .fallback = "false", .verbs = VT_FOR_LAB,
        .help = "with all: run labs anew whose results of this program are there"),
    ROW("requests", INT(1, 100000), .id = "lab-requests", .value_name = "N", .verbs = VT_FOR_LAB,
        .help = "requests of labs that send some"),
    ROW("concurrency", INT(1, 4096), .id = "lab-concurrency", .value_name = "N",
        .verbs = VT_FOR_LAB, .help = "requests at once"),
    ROW("prompt", INT(1, 1 << 20), .id = "lab-prompt", .value_name = "N", .verbs = VT_FOR_LAB,
        .help = "prompt tokens of each"),
    ROW("gen", INT(1, 1 << 20), .id = "lab-gen", .value_name = "N", .verbs = VT_FOR_LAB,
        .help = "generated tokens of each"),
    ROW("port", INT(1, 65535), .id = "lab-port", .value_name = "N", .verbs = VT_FOR_LAB,
        .help = "experiments 1: where the server that it leaves listens; without it any free port"),
    ROW("pressure", VT_OPTION_FLAG, .fallback = "false", .verbs = VT_FOR_LAB,
        .help = "sglang 02: so little KV memory that pages are evicted"),
    ROW("backends", VT_OPTION_TEXT, .value_name = "A,B", .verbs = VT_FOR_LAB,
        .help = "sglang 03: attention implementations to compare"),
    ROW("out", VT_OPTION_TEXT, .value_name = "FILE", .verbs = VT_FOR_LAB,
        .help = "sglang 04: where the timeline is written"),
    ROW("kernel", VT_OPTION_TEXT, .value_name = "NAME", .verbs = VT_FOR_LAB,
        .help = "labs 01 and sglang 05: this kernel only"),
    ROW("ranks", VT_OPTION_TEXT, .value_name = "1,2,4", .verbs = VT_FOR_LAB,
        .help = "labs of tensor parallelism: numbers of ranks"),
    ROW("devices", VT_OPTION_TEXT, .value_name = "0,1", .verbs = VT_FOR_LAB,
        .help = "labs of tensor parallelism: which GPUs"),
    ROW("link", VT_OPTION_TEXT, .value_name = "p2p,host", .verbs = VT_FOR_LAB,
        .help = "labs of tensor parallelism: how bytes travel"),
    ROW("sweep", VT_OPTION_FLAG, .fallback = "false", .verbs = VT_FOR_LAB,
        .help = "labs of kernels: many shapes"),
    ROW("compare-patterns", VT_OPTION_FLAG, .fallback = "false", .verbs = VT_FOR_LAB,
        .help = "mini-sglang 03: sequential, random and sorted slots"),
    ROW("compare", VT_OPTION_FLAG, .fallback = "false", .verbs = VT_FOR_LAB,
        .help = "mini-sglang 04: prefill beside decode"),
    ROW("analyze", VT_OPTION_FLAG, .fallback = "false", .verbs = VT_FOR_LAB,
        .help = "mini-sglang 05: over all sizes"),
    ROW("all", VT_OPTION_FLAG, .id = "lab-all", .fallback = "false", .verbs = VT_FOR_LAB,
        .help = "mini-sglang 06: every lab of the track in full"),
    ROW("timeline", VT_OPTION_FLAG, .fallback = "false", .verbs = VT_FOR_LAB,
        .help = "mini-sglang 06: with the timeline of a forward pass"),
    ROW("nsys", VT_OPTION_FLAG, .fallback = "false", .verbs = VT_FOR_LAB,
        .help = "wrap nsys around the run where it is installed"),
    ROW("ncu", VT_OPTION_FLAG, .fallback = "false", .verbs = VT_FOR_LAB,
        .help = "wrap ncu around the kernels where it is installed and allowed"),
    ROW("cold", VT_OPTION_FLAG, .id = "lab-cold", .fallback = "false", .verbs = VT_FOR_LAB,
        .help = "flashinfer 06: start with an empty cache of kernels"),
    ROW("stop", VT_OPTION_FLAG, .id = "lab-stop", .fallback = "false", .verbs = VT_FOR_LAB,
        .help = "experiments 1: end the server that it left running"),
};

/* clang-format on */

enum { N_ROWS = sizeof table / sizeof table[0] };
static_assert((int)N_ROWS <= (int)OPTIONS_MAX_ROWS, "a larger OPTIONS_MAX_ROWS is needed");

const vt_option *vt_option_table(int32_t *n)
{
    *n = N_ROWS;
    return table;
}

const vt_option *vt_option_find(const char *key, uint32_t verbs)
{
    for (int32_t i = 0; i < N_ROWS; i++)
        if ((table[i].verbs & verbs) && strcmp(table[i].key, key) == 0)
            return &table[i];
    return NULL;
}

const vt_option *vt_option_find_letter(char letter, uint32_t verbs)
{
    for (int32_t i = 0; i < N_ROWS; i++)
        if ((table[i].verbs & verbs) && table[i].letter && table[i].letter == letter)
            return &table[i];
    return NULL;
}

void vt_option_env_name(const vt_option *opt, char *out, size_t size)
{
    static const char prefix[] = "VITRINE_";
    assert(size > sizeof prefix + strlen(opt->key));
    memcpy(out, prefix, sizeof prefix);
    char *p = out + sizeof prefix - 1;
    for (const char *k = opt->key; *k; k++)
        *p++ = *k == '-' ? '_' : (char)toupper((unsigned char)*k);
    *p = '\0';
}

const char *vt_option_nearest(const char *key, uint32_t verbs)
{
    vt_nearest n = vt_nearest_begin(key);
    for (int32_t i = 0; i < N_ROWS; i++)
        if (table[i].verbs & verbs)
            vt_nearest_try(&n, table[i].key);
    return n.best;
}

/* ---- checking ---- */
