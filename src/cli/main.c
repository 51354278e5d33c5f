/* vitrine: the program. Picks a verb, reads its options, runs it.
 *
 *   vitrine [--help | --version]
 *   vitrine VERB [WHAT] [options] [arguments]
 *
 * The verbs, their sentences and their texts for --help stand in the table below; their options
 * come from the option table (engine/options.c), which says for each option which verbs take it. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/term/nearest.h"
#include "cli/cli.h"
#include "device/cpu.h"
#include "device/cuda/cuda.h"
#include "fetch/fetch_url.h"
#include "files/map.h"
#include "model/catalogue.h"
#include "ops/knobs.h"

/* One verb a paragraph. */
/* clang-format off */
static const cli_verb verbs[] = {
    {"run", "[PROMPT]", "one completion; the text on stdout as it comes",
     "Answers one prompt. The prompt is the argument, the file of -f, or all of stdin where there "
     "is neither or the argument is '-'. Text goes to stdout as it is made; everything else goes "
     "to stderr. --samples N gives N answers, one below the other when all have ended (-n is the "
     "number of tokens). With --batch it answers a file of OpenAI batch requests. The same command "
     "continues a batch that was interrupted, and does lines again whose result has a status of "
     "500 or more. Options such as --temperature hold for lines that do not set the field; --json "
     "prints a summary. The exit status is 1 if a line failed.",
     "vitrine run \"Why is the sky blue?\"\n"
     "vitrine run -n 200 --temperature 0.8 --seed 7 \"Tell me a story\"\n"
     "vitrine run --raw \"The capital of France is\" -n 8 --story\n"
     "vitrine run --json < prompt.txt\n"
     "vitrine run --batch in.jsonl -o out.jsonl",
     VT_FOR_RUN, 1, cli_run},
    {"chat", "", "a conversation in the terminal",
     "Talks with the model and remembers what was said. Tokens are chosen as the model's "
     "generation_config.json says, where it says something and no option overrides it. A line "
     "that begins with a slash is a command: /help lists them, /reset forgets the "
     "conversation, /regenerate answers again, /system TEXT sets the system message, /save "
     "FILE and /load FILE keep a conversation, /sampling says how tokens are chosen, /story "
     "tells how the last answer came about, /exit ends (so does Ctrl-D). Ctrl-C stops an "
     "answer or clears the line. Lines may be of any length, and a pasted text of several "
     "lines is one message; cursor keys and history need libedit.",
     "vitrine chat --system \"Answer in one sentence.\"\n"
     "vitrine chat --temperature 0.7 --seed random",
     VT_FOR_CHAT, 0, cli_chat},
    {"score", "", "log-probabilities and perplexity of a text or of token ids",
     "Tells how likely the model finds each token of a text, given those before it. With "
     "--window the perplexity is counted as llama-perplexity counts it: independent chunks of W "
     "tokens, of which the second half is scored, the rest of the text dropped.",
     "vitrine score --text book.txt --window 512\n"
     "vitrine score --tokens 504,3575,282,4649 --top 3 --json",
     VT_FOR_SCORE, 0, cli_score},
    {"embed", "", "the vector of a text or of token ids",
     "Prints the embedding of a text: the pooled hidden states of the model behind its last norm, "
     "scaled to length 1, one number a line. --pooling says which states: that of the last token, "
     "the mean of all, or that of the first; without it the model's files do "
     "(sentence-transformers' modules.json, a GGUF's pooling_type), else it is the last. A text "
     "gets in front and behind what the model's tokenizer puts there; token ids are taken as they "
     "are.",
     "vitrine embed -m qwen3-embedding --text page.txt --json\n"
     "vitrine embed -m qwen3-embedding --text question.txt --prompt-name query\n"
     "vitrine embed -m DIR --pooling mean --tokens 504,3575,282 --dimensions 256",
     VT_FOR_EMBED, 0, cli_embed},
    {"tokenize", "", "token ids of a text (stdin), or the text of ids",
     "Reads a text from stdin, exactly as given, and prints its token ids; --decode goes the "
     "other way. Needs the vocabulary only: a GGUF without weights or a tokenizer.json will do.",
     "printf 'Hello there' | vitrine tokenize\n"
     "vitrine tokenize --decode 19556,665",
     VT_FOR_TOKENIZE, 0, cli_tokenize},
    {"template", "", "a chat template applied to messages (JSON)",
     "Renders messages with the model's chat template, or with --template without any model.",
     "echo '[{\"role\":\"user\",\"content\":\"Hi\"}]' | vitrine template --messages -",
     VT_FOR_TEMPLATE, 0, cli_template},
    {"explain", "", "the program for a batch: ops, bytes, FLOPs, predicted time; runs no model",
     "Lists the op calls of one forward pass with the bytes each has to move and the FLOPs it "
     "has to do, its least time by the roofs of the hardware, and the time that it is expected to "
     "take. The program is the one for the device that the model would run on, or for the hardware "
     "that --hardware names. Nothing is run but the measuring of this machine's roofs and of each "
     "op alone, where they are not known yet: a few seconds once, longer on a GPU.",
     "vitrine explain --batch 8 --context 1024\n"
     "vitrine explain --prompt 512 -m dummy:qwen3-8b --hardware h200\n"
     "vitrine explain --hardware ./other-machine.json",
     VT_FOR_EXPLAIN, 0, cli_explain},
    {"bench latency", "", "prefill and decode speed of one batch",
     "Runs a batch of equal random prompts several times: tokens per second of prefill and of "
     "decode (of the whole batch), mean and spread.",
     "vitrine bench latency --prompt 512 --gen 64\n"
     "vitrine bench latency --batch 8 --json",
     VT_FOR_LATENCY, 0, cli_bench_latency},
    {"bench startup", "", "time from nothing to the first token",
     "Starts the program again and again for one token and takes the time from before the "
     "process exists to after it has ended.",
     NULL, VT_FOR_STARTUP, 0, cli_bench_startup},
    {"bench kernels", "[OP]", "every kernel: time, GB/s, GFLOP/s, share of the roof, error",
     "Runs every implementation that this machine has of every op, or of one, on shapes of real "
     "models, and holds its answer against the reference. Fails if one is further off than its "
     "op allows.",
     "vitrine bench kernels attention_decode --cold\n"
     "vitrine bench kernels linear --device cuda --shape 'tokens=1|64,type=q4_k' --method graph\n"
     "vitrine bench kernels --threads 1 --json",
     VT_FOR_KERNELS, 1, cli_bench_kernels},
    {"bench comm", "", "communication between ranks: time and GB/s by size",
     "Runs the communication ops on ranks of the CPU, one thread each, or on GPUs, with buffers "
     "that peers read where the data is made (registered), and with a copy into them (copied). On "
     "GPUs NCCL runs beside them where libnccl.so.2 is, without NVLink multicast, also on buffers "
     "that it was not told of (plain). Fails if ranks get different bits, or a result is further "
     "from the reference than its op allows.",
     "vitrine bench comm --tp 2\n"
     "vitrine bench comm --device cuda --tp 4 --json",
     VT_FOR_COMM, 0, cli_bench_comm},
    {"bench offline", "", "many sequences of mixed lengths, all at once",
     "Runs random sequences as fast as they go: the engine batches them as it batches requests. "
     "The lengths come from the seed, or from a file with a pair of numbers a line. With a model "
     "that makes embeddings (its files or --pooling say so) each sequence becomes a vector.",
     "vitrine bench offline --num 64 --input 100:1024 --output 100:1024 --seed 0\n"
     "vitrine bench offline --lengths offline_256.lengths --max-running 256 --json",
     VT_FOR_OFFLINE, 0, cli_bench_offline},
    {"bench serve", "", "load for any OpenAI-compatible server: TTFT, gaps, throughput",
     "Sends requests to a server and measures its answers: time to the first token (TTFT), gaps "
     "between pieces of a stream (ITL), time per output token (TPOT), whole requests (E2E), rates, "
     "errors by kind. A closed loop (--concurrency) begins a chat when one ends; an open one "
     "(--rate, --trace) does not wait. Prompts are random words of about the asked length, token "
     "ids (--ids), a dataset's messages or a trace's blocks. Tokens are those of the server's "
     "usage, where it tells it. Ctrl-C prints what there is. The exit status is 1 if a request "
     "failed.",
     "vitrine bench serve --concurrency 64 --num 640 --input 512 --output 128 --ignore-eos\n"
     "vitrine bench serve --url http://localhost:8080 --rate 8 --slo ttft=200,itl=50 --json\n"
     "vitrine bench serve --turns 4 --concurrency 32 --num 32 --shared-prefix 1000",
     VT_FOR_LOAD, 0, cli_bench_serve},
    {"bench simulate", "", "plans capacity: a trace of requests on hardware that need not be here",
     "Replays a trace through the real scheduler and prefix cache, with a clock that the cost "
     "model of explain moves: TTFT and ITL at rising rates, and where it saturates. Nothing is "
     "run.",
     "vitrine bench simulate --trace trace.jsonl --hardware h200 --gpus 2 -m dummy:qwen3-8b",
     VT_FOR_SIMULATE, 0, cli_bench_simulate},
    {"story show", "FILE.json", "a recorded story in the terminal",
     "Renders a story.json (written by run --story=FILE.json) as run --story would have, or one "
     "level of it: a token, a step, a layer, an op.",
     "vitrine story show s.json --layer 7\nvitrine story show s.json --token 41",
     VT_FOR_STORY, 1, cli_story_show},
    {"story diff", "A.json B.json", "where the time between two stories went, op by op",
     "Sets two stories side by side: the parts of the two requests, and the mean prefill and "
     "decode step of each as a sum over ops that adds up to their difference. The noise of each "
     "row is taken from the repeats inside the stories; a row is called slower or faster only "
     "beyond it.",
     "vitrine story diff before.json after.json --fail-over 3%\n"
     "vitrine story diff s.json s.json --step 12:40",
     VT_FOR_STORY_DIFF, 2, cli_story_diff},
    {"story whatif", "FILE.json", "a story's steps with another batch, KV type, prefix or GPU",
     "Costs the recorded steps again as asked, and puts them beside the recorded ones. Bytes and "
     "FLOPs are exact; each op keeps the share of its roof that was measured, so times are "
     "modelled. Opens the model that the story names; runs nothing.",
     "vitrine story whatif s.json --kv-dtype fp8 --batch 16\n"
     "vitrine story whatif s.json --hardware a100-80gb-sxm --prefix 1024",
     VT_FOR_STORY_WHATIF, 1, cli_story_whatif},
    {"story dump", "PID", "ask a running batch, bench or server for the story of its last steps",
     "Sends SIGUSR2 to a vitrine that runs a batch (run --batch), bench offline or latency, or a "
     "server. That writes a story.json of all steps that its recorder holds, which only its owner "
     "may read, into the folder of its --story-dir (or stories in the cache), says so on its "
     "stderr, and goes on.",
     "vitrine story dump $(pidof vitrine)", VT_FOR_STORY_DUMP, 1, cli_story_dump},
    {"story export", "FILE.json", "a story as a page of HTML, or as a trace for other tools",
     "Prints the steps and calls of a story, with its timeline, pages and lanes, in the form of "
     "another tool: a trace for Perfetto's page (chrome, pftrace) or speedscope, stacks for a "
     "flame graph (folded, in nanoseconds); or all of the story as one page of HTML, which needs "
     "no other file and no network.",
     "vitrine story export s.json --to html -o story.html\n"
     "vitrine story export s.json --to pftrace -o story.pftrace", VT_FOR_STORY_EXPORT, 1,
     cli_story_export},
    {"lab kernel", "FILE.cu|FILE.so", "a kernel of your own, checked and timed beside ours",
     "Compiles a CUDA kernel (.cu) or loads one for the CPU (.so), runs it in the place of ours on "
     "all cases of an op against the reference, times it beside our rows, and prints its card: "
     "share of the roof, registers, occupancy, place on the roofline, what to look at next. It "
     "runs in a process of its own, so a hang, a fault or a write out of bounds fails it with one "
     "line. An emulated GPU shows results and data races, and no time. docs/lab-kernel.md says "
     "what a file must contain; examples/kernels has ten to begin with.",
     "vitrine lab kernel examples/kernels/rmsnorm_step1_naive.cu --op rmsnorm\n"
     "vitrine lab kernel ./rmsnorm.so --op rmsnorm --shape 'tokens=1|512,hidden=4096'",
     VT_FOR_LAB_KERNEL, 1, cli_lab_kernel},
    {"lab", "[TRACK|report|status|physics|knobs] [NN|all|report]",
     "hands-on labs: predict, run, check, profile, explain, change",
     "Lessons that measure this machine and explain what it did. Without arguments it lists the "
     "tracks (sglang, mini-sglang, flashinfer, experiments) and what is done; 'lab TRACK NN' runs "
     "one, 'lab TRACK all' those of a track that are open, 'lab all' all tracks. Each lab checks "
     "its results and exits with 1 where one is wrong. Its result is a JSON file in the folder of "
     "this machine's results. 'lab TRACK report' writes the track's reports from those results, "
     "'lab report' those of every track, "
     "'lab status [TRACK]' says which of the tracks' 14 criteria are done, 'lab physics' "
     "recomputes published numbers that cannot be, and writes them to physics.md, 'lab knobs' "
     "writes to knobs.md what every knob brought on each machine that has results. labs/PLAN.md "
     "has the learning paths: for beginners, from 'lab sglang 00 --quick' on; intermediate; "
     "advanced.",
     "vitrine lab mini-sglang 02 --quick\n"
     "vitrine lab sglang 01 --predict 60ms\n"
     "vitrine lab flashinfer all --results /tmp/labs",
     VT_FOR_LAB, 2, cli_lab},
    {"env", "", "what this machine offers and lacks: CPU, GPUs, links, libraries, tools, roofs",
     "Describes the hardware, and which parts of it can be used and observed: sockets and NUMA "
     "nodes, GPUs with their links, free memory and users, compiler and kernel cache, what each "
     "op needs, profiling tiers and tools; then what to do about what is missing. The last "
     "paragraph says for what the environment is READY, or why it is not. Roofs are "
     "measured, which takes one to six seconds; the best figures ever seen on this machine are "
     "kept. A figure tagged disturbed was measured while other programs used the machine: it is "
     "kept for a minute. With --json the output describes this machine to explain --hardware "
     "elsewhere. With --try the exit status is 1 if an op fails.",
     "vitrine env --try\n"
     "vitrine env --json > machine.json", VT_FOR_ENV, 0, cli_env},
    {"pull", "NAME", "fetch a model into the cache",
     "Fetches a preset (smollm2-135m, gemma3-270m), or ORG/NAME from a Hugging Face style hub: "
     "its safetensors with their JSON files, or its GGUF file (ORG/NAME/FILE where there are "
     "several). A download that broke off is taken up where it stopped; sizes and hashes are "
     "checked. A hub's token is read from VITRINE_HUB_TOKEN; HF_TOKEN is sent to " FETCH_HF
     " alone. Presets need python3 with pip, hubs libcurl.",
     "vitrine pull smollm2-135m\n"
     "vitrine pull --hub https://hub.example.org org/name",
     VT_FOR_PULL, 1, cli_pull},
    {"list", "", "the models in the cache",
     "Lists the models in the cache with their size, the type of most of their weights, and where "
     "they are. Their names are what -m takes.",
     NULL, VT_FOR_LIST, 0, cli_list},
    {"show", "[NAME]", "what a model is: architecture, shape, weights, context, tokenizer",
     "Describes a model without running it: a .gguf file, a Hugging Face folder, a name in the "
     "cache, or dummy:NAME; the default model where no name is given.",
     "vitrine show smollm2-135m\n"
     "vitrine show dummy:qwen3-8b --json",
     VT_FOR_SHOW, 1, cli_show},
    {"rm", "NAME", "remove a model from the cache",
     "Removes a model that 'vitrine list' names from the cache. It asks first on a terminal, and "
     "needs --yes elsewhere.",
     NULL, VT_FOR_RM, 1, cli_rm},
    {"serve", "", "an OpenAI-compatible server",
     "Answers /v1/chat/completions, /v1/completions, with --pooling /v1/embeddings, and more over "
     "HTTP until SIGTERM or Ctrl-C, "
     "then finishes what is under way. Without --api-key-file everybody who reaches the address "
     "may use it; by default that is this machine alone.",
     "vitrine serve -m model.gguf --port 8000\n"
     "curl localhost:8000/v1/chat/completions -d '{\"messages\":[{\"role\":\"user\","
     "\"content\":\"Hi\"}]}'",
     VT_FOR_SERVE, 0, cli_serve},
    {"top", "", "what a server's engine does, live in the terminal",
     "Shows the engine behind a running 'vitrine serve': tokens per second, latencies, the batch "
     "step by step, KV pages, the prefix cache, and every request with its progress or the reason "
     "why it waits. It needs an administrator's key where the server has keys: the first of "
     "--admin-key-file or of VITRINE_ADMIN_KEY. q ends it.",
     "vitrine top --url http://127.0.0.1:8000\n"
     "vitrine top --url unix:/run/vitrine.sock --once",
     VT_FOR_TOP, 0, cli_top},
    {"completion", "[SHELL]", "a completion script for bash, zsh or fish",
     "Prints a script that completes verbs, options and their values: choices, files, models in "
     "the cache. SHELL is bash, zsh or fish; bash where it is left out. 'make install' puts the "
     "scripts where the shells look for them.",
     "source <(vitrine completion bash)\n"
     "vitrine completion fish > ~/.config/fish/completions/vitrine.fish",
     VT_FOR_COMPLETION, 1, cli_completion},
    {0},
};
/* clang-format on */

static bool names(const char *verb, const char *first, const char *second, int *n_words)
{
    size_t n = strlen(first);
    if (strncmp(verb, first, n) != 0 || (verb[n] != '\0' && verb[n] != ' '))
        return false;
    *n_words = verb[n] == ' ' ? 2 : 1;
    return verb[n] == '\0' || (second && strcmp(verb + n + 1, second) == 0);
}

static const cli_verb *find_verb(const char *first, const char *second, int *n_words)
{
    for (const cli_verb *v = verbs; v->name; v++)
        if (names(v->name, first, second, n_words))
            return v;
    return NULL;
}

static bool is_help(const char *arg)
{
    return arg &&
           (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0 || strcmp(arg, "help") == 0);
}

static int print(vt_buf *b, FILE *to)
{
    if (b->data)
        fwrite(b->data, 1, b->len, to);
    bool failed = b->failed;
    vt_buf_release(b);
    return failed ? CLI_FAILED : CLI_DONE;
}

/* Names the verb that is spelt most like what was typed. A verb of two words is compared with both
 * where two were typed, else with its first. */
static void say_no_verb(const char *first, const char *second)
{
    char two[128];
    vt_nearest n = vt_nearest_begin(first);
    for (const cli_verb *v = verbs; v->name; v++)
        vt_nearest_try(&n, v->name);
    if (!n.best && second) {
        snprintf(two, sizeof two, "%.60s %.60s", first, second);
        n = vt_nearest_begin(two);
        for (const cli_verb *v = verbs; v->name; v++)
            vt_nearest_try(&n, v->name);
    }
    if (n.best)
        cli_say("no verb '%.60s', did you mean 'vitrine %s'?", first, n.best);
    else
        cli_say("no verb '%.60s'; see 'vitrine --help'", first);
}

/* No such verb: say which ones begin like it. */
static int unknown_verb(const char *first, const char *second)
{
    vt_buf forms = {0};
    for (const cli_verb *v = verbs; v->name; v++)
        if (strncmp(v->name, first, strlen(first)) == 0 && v->name[strlen(first)] == ' ')
            vt_buf_printf(&forms, "%s%s", forms.len ? ", " : "", v->name + strlen(first) + 1);
    if (forms.len)
        cli_say("'%s' needs one of: %s; see 'vitrine %s --help'", first, forms.data, first);
    else
        say_no_verb(first, second);
    vt_buf_release(&forms);
    return CLI_USAGE;
}

/* `vitrine bench --help`: the help of every verb of the group. */
static int group_help(const char *group, const vt_term *term)
{
    vt_buf b = {0};
    for (const cli_verb *v = verbs; v->name; v++)
        if (strncmp(v->name, group, strlen(group)) == 0 && v->name[strlen(group)] == ' ') {
            if (b.len)
                vt_buf_putc(&b, '\n');
            cli_help_verb(&b, term, v);
        }
    if (b.len == 0)
        return unknown_verb(group, NULL);
    return print(&b, stdout);
}

static int run_verb(const cli_verb *verb, int n, char **argv)
{
    vt_err err = {0};
    bool help = false;
    cli c = {.verbs = verbs, .verb = verb, .out = vt_term_of(1), .log = vt_term_of(2)};
    int status = CLI_DONE;
    c.arg = calloc((size_t)n + 1, sizeof *c.arg);
    if (!c.arg) {
        cli_say("out of memory");
        return CLI_FAILED;
    }
    if (cli_parse(&c, n, argv, &help, &err) != VT_OK) {
        cli_say("%s; see 'vitrine %s --help'", err.message, verb->name);
        status = CLI_USAGE;
    } else if (help) {
        vt_buf b = {0};
        cli_help_verb(&b, &c.out, verb);
        status = print(&b, stdout);
    } else if (vt_knob_check_all(&err) != VT_OK || vt_cpu_init(&err) != VT_OK) {
        status = cli_fail(&err);
    } else {
        c.json = vt_options_flag(c.options, "json");
        c.quiet = vt_options_flag(c.options, "quiet");
        status = verb->run(&c);
    }
    vt_options_free(c.options);
    free(c.arg);
    return status;
}

/* True if the cache has a model, or the environment names one. */
static bool any_model(void)
{
    vt_catalogue models;
    vt_err ignored;
    bool named = getenv("VITRINE_MODEL") != NULL;
    if (vt_catalogue_read(&models, &ignored) != VT_OK)
        return named;
    named = named || models.n > 0;
    vt_catalogue_release(&models);
    return named;
}

static int dispatch(int argc, char **argv)
{
    vt_term term = vt_term_of(1);
    const char *first = argc > 1 ? argv[1] : NULL, *second = argc > 2 ? argv[2] : NULL;
    vt_buf b = {0};
    if (!first) {
        vt_term log = vt_term_of(2);
        cli_first_steps(&b, &log, any_model());
        print(&b, stderr);
        return CLI_USAGE;
    }
    if (strcmp(first, "--version") == 0) {
        printf("vitrine %s\n", vt_version());
        return CLI_DONE;
    }
    if (is_help(first) && !second) {
        cli_help_program(&b, &term, verbs);
        return print(&b, stdout);
    }
    bool help_of = is_help(first); /* vitrine help run */
    if (help_of) {
        first = second;
        second = argc > 3 ? argv[3] : NULL;
    }
    int n_words = 1;
    const cli_verb *verb = find_verb(first, second, &n_words);
    if (verb && help_of) {
        cli_help_verb(&b, &term, verb);
        return print(&b, stdout);
    }
    if (verb)
        return run_verb(verb, argc - 1 - n_words, argv + 1 + n_words);
    return help_of || is_help(second) ? group_help(first, &term) : unknown_verb(first, second);
}

/* A program may be started with closed standard descriptors. The next file opened would get such a
 * number, and messages would be written into it. */
static void open_standard_files(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd)
            _exit(CLI_FAILED);
}

int main(int argc, char **argv)
{
    open_standard_files();
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error of write, not the end of us */
    file_explain_sigbus();
    int status = dispatch(argc, argv);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        cli_say("stdout could not be written");
        status = status == CLI_DONE ? CLI_FAILED : status;
    }
    if (vt_cuda_any_hung())
        _exit(status == CLI_DONE ? CLI_FAILED : status);
    return status;
}
