/* NVRTC's entry points over g++.
 *
 *   text ──g++ -E──> no macros ──rewrite──> C++ behind abi.h and device.h ──g++ -shared──> "cubin"
 *
 * Rewritten are asm statements (each PTX instruction becomes the call of a function of device.h
 * named after it), __shared__ declarations (references into the CTA's shared memory, laid out by
 * the loader) and kernels' heads (noted, so that the module can export them). The rest is C++ as it
 * stands, in an anonymous namespace, so that what a kernel does not use costs nothing. */
#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <spawn.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

using std::string;

#define EXPORT extern "C" __attribute__((visibility("default")))

extern "C" const char emu_device_text[];
asm("    .section .rodata\n"
    "    .globl emu_device_text\n"
    "    .hidden emu_device_text\n"
    "emu_device_text:\n"
    "    .incbin \"" EMU_DIR "/abi.h\"\n"
    "    .incbin \"" EMU_DIR "/device.h\"\n"
    "    .byte 0\n"
    "    .text\n");

namespace
{

struct Program {
    string text, name, log, cubin;
    std::vector<string> headers, header_names;
};

/* VITRINE_EMULATOR has `race`: code is instrumented for the race detector (race.h). */
bool races()
{
    const char *set = getenv("VITRINE_EMULATOR");
    return set && (string(",") + set + ",").find(",race,") != string::npos;
}

/* ---- scanning C ---- */

bool word_char(char c) { return isalnum((unsigned char)c) || c == '_'; }

size_t skip_space(const string &s, size_t at)
{
    while (at < s.size() && isspace((unsigned char)s[at]))
        at++;
    return at;
}

string word_at(const string &s, size_t at)
{
    size_t end = at;
    while (end < s.size() && word_char(s[end]))
        end++;
    return s.substr(at, end - at);
}

/* Behind the string or character that begins at `at`. */
size_t skip_quoted(const string &s, size_t at)
{
    char quote = s[at++];
    while (at < s.size() && s[at] != quote)
        at += s[at] == '\\' ? 2 : 1;
    return at + 1;
}

/* Behind the bracket that closes the one at `at`. */
size_t skip_brackets(const string &s, size_t at)
{
    int depth = 0;
    while (at < s.size()) {
        char c = s[at];
        if (c == '"' || c == '\'') {
            at = skip_quoted(s, at);
            continue;
        }
        depth += c == '(' || c == '[' || c == '{';
        depth -= c == ')' || c == ']' || c == '}';
        at++;
        if (depth == 0)
            return at;
    }
    return at;
}

string trim(const string &s)
{
    size_t a = 0, b = s.size();
    while (a < b && isspace((unsigned char)s[a]))
        a++;
    while (b > a && isspace((unsigned char)s[b - 1]))
        b--;
    return s.substr(a, b - a);
}

/* Parts between top-level separators. */
std::vector<string> split(const string &s, char separator)
{
    std::vector<string> parts(1);
    for (size_t at = 0; at < s.size();) {
        char c = s[at];
        size_t next = c == '"' || c == '\''              ? skip_quoted(s, at)
                      : c == '(' || c == '[' || c == '{' ? skip_brackets(s, at)
                                                         : at + 1;
        if (c == separator)
            parts.emplace_back();
        else
            parts.back() += s.substr(at, next - at);
        at = next;
    }
    return parts;
}

/* ---- PTX ---- */

struct Operand {
    string constraint, expression;
    bool output() const { return constraint[0] == '=' || constraint[0] == '+'; }
    string type() const
    {
        switch (constraint.back()) {
        case 'r':
            return "unsigned";
        case 'l':
            return "emu_u64";
        case 'f':
            return "float";
        case 'd':
            return "double";
        case 'h':
            return "unsigned short";
        default:
            return "";
        }
    }
    string code() const
    {
        string t = type();
        return t.empty() ? "(" + expression + ")"
                         : (output() ? "ptx_out<" : "ptx_in<") + t + ">(" + expression + ")";
    }
};

/* One asm statement's template as C++. */
class Ptx
{
  public:
    Ptx(const string &text, const std::vector<Operand> &operands, std::map<string, string> &names)
        : s(text), operand(operands), names(names)
    {
    }
    string error;

    string translate()
    {
        string body;
        int statements = 0;
        bool plain = true;
        while ((at = skip_space(s, at)) < s.size() && error.empty()) {
            if (s[at] == '{' || s[at] == '}' || s[at] == ';') {
                at++;
                continue;
            }
            string w = word_at(s, at);
            if (!w.empty() && s[skip_space(s, at + w.size())] == ':') { /* a label */
                at = skip_space(s, at + w.size()) + 1;
                body += w + ": ; ";
                plain = false;
                continue;
            }
            body += statement(plain) + "; ";
            statements++;
        }
        if (!plain || statements > 1)
            return "[&]() __attribute__((always_inline)) { " + body + "}()";
        return statements == 0 ? "(void)0" : "(" + body.substr(0, body.size() - 2) + ")";
    }

  private:
    const string &s;
    const std::vector<Operand> &operand;
    std::map<string, string> &names;
    size_t at = 0;

    string statement(bool &plain)
    {
        if (s.compare(at, 4, ".reg") == 0) {
            plain = false;
            return registers();
        }
        string guard;
        if (s[at] == '@') {
            plain = false;
            bool negated = s[at + 1] == '!';
            at += negated ? 2 : 1;
            string w = s[at] == '%' ? argument_operand() : word_at(s, at);
            at += s[at] == '%' ? 0 : w.size();
            guard = string("if (") + (negated ? "!" : "") + w + ") ";
            at = skip_space(s, at);
        }
        string name;
        while (at < s.size() && !isspace((unsigned char)s[at]) && s[at] != ';')
            name += s[at++];
        if (name == "bra" || name == "bra.uni") {
            at = skip_space(s, at);
            string label = word_at(s, at);
            at += label.size();
            return guard + "goto " + label;
        }
        string mangled = "ptx_";
        for (size_t i = 0; i < name.size(); i++)
            mangled += name[i] == '.' || name[i] == ':' ? '_' : name[i];
        names[mangled] = name;
        return guard + "EMU_SITE, " + mangled + "(" + arguments() + ")";
    }

    string registers()
    {
        static const std::map<string, string> types = {
            {".pred", "bool"},    {".b16", "unsigned short"}, {".u16", "unsigned short"},
            {".b32", "unsigned"}, {".u32", "unsigned"},       {".s32", "int"},
            {".f32", "float"},    {".b64", "emu_u64"},        {".u64", "emu_u64"}};
        at = skip_space(s, at + 4);
        string type;
        while (at < s.size() && !isspace((unsigned char)s[at]))
            type += s[at++];
        size_t end = s.find(';', at);
        string list = trim(s.substr(at, end - at));
        at = end;
        auto found = types.find(type);
        if (found == types.end())
            error = "PTX register type " + type + " is not emulated";
        return found == types.end() ? "" : found->second + " " + list;
    }

    /* %3 or %%name, at s[at] == '%' */
    string argument_operand()
    {
        at++;
        if (s[at] == '%') {
            string name;
            for (at++; at < s.size() && (word_char(s[at]) || s[at] == '.'); at++)
                name += s[at] == '.' ? '_' : s[at];
            return "ptx_sreg_" + name + "()";
        }
        size_t number = 0;
        while (at < s.size() && isdigit((unsigned char)s[at]))
            number = number * 10 + (size_t)(s[at++] - '0');
        if (number >= operand.size()) {
            error = "asm names operand %" + std::to_string(number) + " of " +
                    std::to_string(operand.size());
            return "0";
        }
        return operand[number].code();
    }

    /* %a .. %z in braces, being x[0] .. x[n - 1]: an array of n. */
    string span(size_t end)
    {
        string base;
        size_t n = 0;
        for (; at < end && error.empty(); n++) {
            size_t digits = s.find('%', at);
            if (digits == string::npos || digits >= end)
                break;
            size_t number = strtoul(s.c_str() + digits + 1, nullptr, 10);
            at = digits + 1;
            while (isdigit((unsigned char)s[at]))
                at++;
            string e = number < operand.size() ? operand[number].expression : "";
            size_t bracket = e.rfind('[');
            string index = "[" + std::to_string(n) + "]";
            base = n == 0 && bracket != string::npos ? e.substr(0, bracket) : base;
            if (base.empty() || e != base + index || !operand[number].output())
                error = "more than 8 operands in braces must be x[0], x[1] .. in order; found " + e;
        }
        at = end;
        return "*(float (*)[" + std::to_string(n) + "])&(" + base + "[0])";
    }

    string arguments()
    {
        string out, item;
        auto flush = [&] {
            if (!item.empty())
                out += (out.empty() ? "" : ", ") + item;
            item.clear();
        };
        while (at < s.size() && s[at] != ';' && error.empty()) {
            char c = s[at];
            if (c == '{') {
                size_t end = s.find('}', at);
                if (std::count(s.begin() + (long)at, s.begin() + (long)end, '%') > 8)
                    item += span(end);
                at++;
            } else if (c == ',' || c == '}' || c == '[' || c == ']' || c == '|') {
                if (c != '[')
                    flush();
                at++;
            } else if (c == '%') {
                item += argument_operand();
            } else if (isspace((unsigned char)c)) {
                at++;
            } else if (word_char(c)) {
                string w = word_at(s, at);
                at += w.size();
                item += w == "_" ? "ptx_sink()"
                        : w.compare(0, 2, "0f") == 0 && w.size() == 10
                            ? "__uint_as_float(0x" + w.substr(2) + "u)"
                            : w;
            } else {
                item += c;
                at++;
            }
        }
        flush();
        return out;
    }
};

/* ---- the kernel's text ---- */

class Rewriter
{
  public:
    Rewriter(const string &text) : s(text) {}
    string error;
    std::map<string, string> instructions; /* function of device.h -> instruction */

    string rewrite()
    {
        while (at < s.size() && error.empty()) {
            char c = s[at];
            if (c == '\n' && at + 1 < s.size() && s[at + 1] == '#')
                copy(s.find('\n', at + 1)); /* line markers and pragmas */
            else if (c == '"' || c == '\'')
                copy(skip_quoted(s, at));
            else if (word_char(c))
                word();
            else
                copy(at + 1);
        }
        return out;
    }

    string exports() const
    {
        string x =
            "\n} /* namespace */\n# 1 \"exports\"\n"
            "extern \"C\" { extern emu_slot *__start_emu_slots[] __attribute__((weak, "
            "visibility(\"hidden\")));\n"
            "extern emu_slot *__stop_emu_slots[] __attribute__((weak, visibility(\"hidden\"))); }\n"
            "template <class P> P emu_param(void (*)(P)); template <class P> P emu_param(void "
            "(*)(const P &));\n"
            "static const emu_kernel emu_kernels[] = {\n";
        for (const Kernel &k : kernels)
            x += "{\"" + k.name + "\", [](const void *p) { " + k.name +
                 "(*(const decltype(emu_param(&" + k.name +
                 ")) *)p); }, sizeof(decltype(emu_param(&" + k.name + "))), " + k.threads + "},\n";
        return x +
               "{0, 0, 0, 0}};\nextern \"C\" __attribute__((visibility(\"default\"))) const "
               "emu_exports "
               "emu_module_exports = {emu_kernels, " +
               std::to_string(kernels.size()) + (races() ? ", 1" : ", 0") +
               ", __start_emu_slots, __stop_emu_slots};\n";
    }

  private:
    struct Kernel {
        string name, threads;
    };
    const string &s;
    string out;
    size_t at = 0;
    int n_shared = 0, depth = 0;
    std::vector<Kernel> kernels;

    void copy(size_t to)
    {
        to = to > s.size() ? s.size() : to;
        out += s.substr(at, to - at);
        at = to;
    }

    /* Instead of s[at, to): as many lines, so that messages name the right ones. */
    void replace(size_t to, const string &text)
    {
        out += text;
        for (; at < to; at++)
            if (s[at] == '\n')
                out += '\n';
    }

    void word()
    {
        string w = word_at(s, at);
        size_t next = skip_space(s, at + w.size());
        if (w == "asm" || w == "__asm__")
            rewrite_asm();
        else if (w == "__shared__")
            rewrite_shared(next, false);
        else if ((w == "extern" || w == "static") && word_at(s, next) == "__shared__")
            rewrite_shared(skip_space(s, next + 10), w == "extern");
        else if (w == "__global__")
            rewrite_kernel();
        else
            copy(at + w.size());
    }

    void rewrite_asm()
    {
        size_t open = s.find('(', at), end = skip_brackets(s, open);
        std::vector<string> part = split(s.substr(open + 1, end - open - 2), ':');
        string text;
        for (size_t i = 0; i < part[0].size(); i++)
            if (part[0][i] == '"')
                for (i++; part[0][i] != '"'; i++)
                    text += part[0][i] != '\\'
                                ? part[0][i]
                                : (i++, isalpha((unsigned char)part[0][i]) ? ' ' : part[0][i]);
        std::vector<Operand> operands;
        for (size_t p = 1; p < part.size() && p < 3; p++)
            for (const string &o : split(part[p], ',')) {
                size_t quote = o.find('"'), paren = o.find('(');
                if (quote == string::npos || paren == string::npos)
                    continue;
                operands.push_back(
                    {word_chars(o, quote), trim(o.substr(paren + 1, o.rfind(')') - paren - 1))});
            }
        Ptx ptx(text, operands, instructions);
        string call = ptx.translate();
        if (!ptx.error.empty())
            error = ptx.error + " in asm(\"" + text + "\")";
        replace(end, call);
    }

    static string word_chars(const string &o, size_t quote)
    {
        return o.substr(quote + 1, o.find('"', quote + 1) - quote - 1);
    }

    /* `T a[3], b;` behind __shared__: the members of a struct in shared memory, and references to them. */
    void rewrite_shared(size_t from, bool dynamic)
    {
        size_t end = from;
        while (end < s.size() && s[end] != ';')
            end = s[end] == '(' || s[end] == '[' || s[end] == '{' ? skip_brackets(s, end) : end + 1;
        string declaration = s.substr(from, end - from), id = std::to_string(n_shared++);
        string slot = "static emu_slot emu_slot" + id + " = {";
        string names;
        for (const string &part : split(declaration, ',')) {
            size_t stop = 0; /* behind the name: the first bracket, unless it is of an attribute */
            for (size_t i = 0; i < part.size(); i++)
                if (part[i] == '(')
                    i = skip_brackets(part, i) - 1;
                else if (part[i] == '[') {
                    stop = i;
                    break;
                }
            string head = trim(stop ? part.substr(0, stop) : part);
            size_t begin = head.size();
            while (begin > 0 && word_char(head[begin - 1]))
                begin--;
            string name = head.substr(begin);
            names += dynamic ? " auto *" + name + " = &emu_shared" + id + "." + name + "[0];"
                             : " auto &" + name + " = emu_shared" + id + "." + name + ";";
        }
        if (dynamic) {
            size_t empty = declaration.find("[]");
            if (empty == string::npos)
                error = "extern __shared__ without []: " + declaration;
            else
                declaration.replace(empty, 2, "[1]");
        }
        string type = "emu_shared" + id + "_t";
        replace(end, "struct " + type + " { " + declaration + "; }; " + slot +
                         (dynamic ? "0" : "sizeof(" + type + ")") + ", alignof(" + type +
                         "), EMU_NOT_LAID_OUT}; EMU_USE_SLOT(emu_slot" + id + "); " + type +
                         " &emu_shared" + id + " = *(" + type + " *)(emu->shared + emu_slot" + id +
                         ".offset);" + names.substr(0, names.size() - 1));
    }

    /* __global__ void __launch_bounds__(128) name(const __grid_constant__ T p): by reference, and noted. */
    void rewrite_kernel()
    {
        size_t i = at + 10;
        Kernel k = {"", "1024"};
        size_t open = 0;
        while (i < s.size() && s[i] != '{' && s[i] != ';') {
            if (s[i] == '(') {
                size_t close = skip_brackets(s, i);
                if (k.name == "__launch_bounds__")
                    k.threads = "(unsigned)(" + split(s.substr(i + 1, close - i - 2), ',')[0] + ")";
                else if (k.name != "__cluster_dims__" && k.name != "__align__") {
                    open = i;
                    break;
                }
                i = close;
            } else if (word_char(s[i])) {
                k.name = word_at(s, i);
                i += k.name.size();
            } else {
                i++;
            }
        }
        if (!open) {
            error = "a __global__ without parameters: " + s.substr(at, 60);
            return;
        }
        size_t end = skip_brackets(s, open);
        string parameters = s.substr(open, end - open);
        if (parameters.find("__grid_constant__") != string::npos) {
            size_t name = parameters.size() - 1;
            while (name > 0 && !word_char(parameters[name - 1]))
                name--;
            while (name > 0 && word_char(parameters[name - 1]))
                name--;
            parameters.insert(name, "&");
        }
        copy(open);
        replace(end, parameters);
        if (s[skip_space(s, end)] != ';')
            kernels.push_back(k);
    }
};

/* ---- running g++ ---- */

string read_file(const string &path)
{
    string text;
    char block[65536];
    FILE *f = fopen(path.c_str(), "rb");
    for (size_t n; f && (n = fread(block, 1, sizeof block, f)) > 0;)
        text.append(block, n);
    if (f)
        fclose(f);
    return text;
}

bool write_file(const string &path, const string &text)
{
    FILE *f = fopen(path.c_str(), "wb");
    bool fine = f && fwrite(text.data(), 1, text.size(), f) == text.size();
    return f ? fclose(f) == 0 && fine : false;
}

bool run(const std::vector<string> &arguments, const string &errors)
{
    std::vector<char *> argv;
    for (const string &a : arguments)
        argv.push_back((char *)a.c_str());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 2, errors.c_str(), O_WRONLY | O_CREAT | O_APPEND,
                                     0600);
    pid_t pid;
    int status = -1, r = posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (r != 0) {
        write_file(errors, "error: " + arguments[0] + " cannot be run: " + strerror(r) + "\n");
        return false;
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* -arch=sm_90a -> 900, and the -D and -I among the options. */
std::vector<string> preprocessor_options(int n, const char *const *options)
{
    std::vector<string> list;
    string arch = "520";
    bool feature = false;
    for (int i = 0; i < n; i++) {
        string o = options[i];
        size_t sm = o.find("sm_"), compute = o.find("compute_");
        if (o.compare(0, 2, "-D") == 0 || o.compare(0, 2, "-I") == 0 || o.compare(0, 2, "-U") == 0)
            list.push_back(o);
        else if (o.compare(0, 5, "-arch") == 0 || o.compare(0, 18, "--gpu-architecture") == 0) {
            arch.clear();
            for (size_t at = sm != string::npos ? sm + 3 : compute + 8;
                 at < o.size() && isdigit((unsigned char)o[at]); at++)
                arch += o[at];
            arch += "0";
            feature = o.back() == 'a';
        }
    }
    list.push_back("-D__CUDA_ARCH__=" + arch);
    if (feature)
        list.push_back("-D__CUDA_ARCH_FEAT_SM" + arch.substr(0, arch.size() - 1) + "_ALL");
    return list;
}

/* "'ptx_foo_bar' was not declared": says so in words. */
void name_instructions(Program *p, const std::map<string, string> &instructions)
{
    for (const auto &i : instructions) {
        size_t found = p->log.find(i.first + "’ was not declared");
        found = found == string::npos ? p->log.find(i.first + "' was not declared") : found;
        if (found != string::npos)
            p->log = "error: PTX instruction " + i.second +
                     " is not emulated (tests/emulator/device.h)\n" + p->log;
    }
}

/* Whether kernels are instrumented too, in an emulator with ASan: only where that is asked for. It
 * takes three times as long to compile, and without it a kernel is that of any other build. */
bool instrumented()
{
#if defined __SANITIZE_ADDRESS__
    const char *wish = getenv("EMULATOR_ASAN");
    return wish && strcmp(wish, "1") == 0;
#else
    return false;
#endif
}

bool compile_in(Program *p, const string &dir, int n, const char *const *options)
{
    std::vector<string> defines = preprocessor_options(n, options);
    string errors = dir + "/log";
    write_file(dir + "/in.cu", p->text);
    for (size_t i = 0; i < p->headers.size(); i++)
        write_file(dir + "/" + p->header_names[i], p->headers[i]);
    std::vector<string> first = {"g++",
                                 "-E",
                                 "-x",
                                 "c++",
                                 "-std=gnu++17",
                                 "-nostdinc",
                                 "-w",
                                 "-I",
                                 dir,
                                 "-D__CUDACC__",
                                 "-D__CUDACC_RTC__",
                                 "-D__NVCC__",
                                 "-D__EMULATED_GPU__"};
    first.insert(first.end(), defines.begin(), defines.end());
    first.insert(first.end(), {dir + "/in.cu", "-o", dir + "/in.ii"});
    if (!run(first, errors))
        return false;
    string text = read_file(dir + "/in.ii");
    for (size_t at; (at = text.find(dir + "/")) != string::npos;)
        text.erase(at,
                   dir.size() + 1); /* so that messages name ptx_sm90.cuh and not where it lay */
    Rewriter r(text);
    string body = r.rewrite();
    if (!r.error.empty()) {
        write_file(errors, p->name + ": error: " + r.error + "\n");
        return false;
    }
    string device = "# 1 \"device.h\"\n";
    write_file(dir + "/kernel.cc",
               device + emu_device_text + "\nnamespace {\n" + body + r.exports());
    std::vector<string> second = {
        "g++",
        "-x",
        "c++",
        "-std=gnu++17",
        "-O1",
        "-fPIC",
        "-shared",
        "-w",
        "-nostdinc",
        "-fno-strict-aliasing",
        "-fno-math-errno",
        "-ffp-contract=off",
        "-fno-exceptions",
        "-fno-rtti",
        "-fvisibility=hidden",
        dir + "/kernel.cc",
        "-o",
        dir + "/out.so",
        "-lm",
    };
    second.insert(second.end() - 4, defines.begin(), defines.end());
    std::vector<string> last = {"-nostdlib", "-lgcc"}; /* a quarter of a small kernel's time less */
    if (races()) /* and no libtsan: device.h has what the instrumented code calls */
        last.insert(last.end(), {"-fsanitize=thread", "-g1", "-DEMU_RACE", "-Wl,-Bsymbolic",
                                 "--param=tsan-instrument-func-entry-exit=0",
                                 "--param=tsan-distinguish-volatile=1"});
    else if (instrumented())
        last = {"-fsanitize=address", "-g1"};
    second.insert(second.end(), last.begin(), last.end());
    bool fine = run(second, errors);
    p->log = read_file(errors);
    if (!fine)
        name_instructions(p, r.instructions);
    else
        p->cubin = read_file(dir + "/out.so");
    return fine && !p->cubin.empty();
}

} // namespace

/* ---- the entry points ---- */

enum { SUCCESS = 0, INVALID_INPUT = 3, COMPILATION = 6, INTERNAL = 11 };

/* Part of the names of cached cubins: never those of a real one, nor of another emulator. */
EXPORT int nvrtcVersion(int *major, int *minor)
{
    *major = 13;
    *minor = (races() ? 300000 : instrumented() ? 200000 : 100000) + EMU_SUM % 100000;
    return SUCCESS;
}

/* VITRINE_EMULATOR: nvrtc=N leaves out what is newer. */
static std::vector<int> supported()
{
    const char *set = getenv("VITRINE_EMULATOR"), *at = set ? strstr(set, "nvrtc=") : nullptr;
    int newest = at ? atoi(at + strlen("nvrtc=")) : 120;
    std::vector<int> out;
    for (int arch : {75, 80, 86, 89, 90, 120})
        if (arch <= newest)
            out.push_back(arch);
    return out;
}

EXPORT int nvrtcGetNumSupportedArchs(int *n)
{
    *n = (int)supported().size();
    return SUCCESS;
}

EXPORT int nvrtcGetSupportedArchs(int *arch)
{
    std::vector<int> all = supported();
    std::copy(all.begin(), all.end(), arch);
    return SUCCESS;
}

EXPORT const char *nvrtcGetErrorString(int r)
{
    return r == SUCCESS       ? "NVRTC_SUCCESS"
           : r == COMPILATION ? "NVRTC_ERROR_COMPILATION"
                              : "NVRTC_ERROR";
}

EXPORT int nvrtcCreateProgram(Program **out, const char *text, const char *name, int n,
                              const char *const *headers, const char *const *names)
{
    Program *p = new Program();
    p->text = text;
    p->name = name ? name : "default_program";
    for (int i = 0; i < n; i++) {
        p->headers.push_back(headers[i]);
        p->header_names.push_back(names[i]);
    }
    *out = p;
    return SUCCESS;
}

EXPORT int nvrtcDestroyProgram(Program **p)
{
    delete *p;
    *p = nullptr;
    return SUCCESS;
}

EXPORT int nvrtcCompileProgram(Program *p, int n, const char *const *options)
{
    const char *tmp = getenv("TMPDIR"), *keep = getenv("EMULATOR_KEEP");
    string dir = string(tmp && *tmp ? tmp : "/tmp") + "/emulator-nvrtc-XXXXXX";
    if (!mkdtemp(&dir[0])) {
        p->log = "error: no folder can be made in " + dir + "\n";
        return INTERNAL;
    }
    bool fine = compile_in(p, dir, n, options);
    if (!fine && p->log.empty())
        p->log = read_file(dir + "/log");
    if (!fine && p->log.empty())
        p->log = "error: g++ failed without a word\n";
    if (keep)
        return fprintf(stderr, "emulator: %s is in %s\n", p->name.c_str(), dir.c_str()),
               fine ? SUCCESS : COMPILATION;
    for (const char *file : {"in.cu", "in.ii", "kernel.cc", "kernel.o", "out.so", "log"})
        unlink((dir + "/" + file).c_str());
    for (const string &h : p->header_names)
        unlink((dir + "/" + h).c_str());
    rmdir(dir.c_str());
    return fine ? SUCCESS : COMPILATION;
}

static int give(const string &from, char *to)
{
    memcpy(to, from.data(), from.size());
    return SUCCESS;
}

EXPORT int nvrtcGetProgramLogSize(Program *p, size_t *bytes)
{
    return *bytes = p->log.size() + 1, SUCCESS;
}
EXPORT int nvrtcGetProgramLog(Program *p, char *text)
{
    text[p->log.size()] = 0;
    return give(p->log, text);
}
EXPORT int nvrtcGetCUBINSize(Program *p, size_t *bytes)
{
    return *bytes = p->cubin.size(), p->cubin.empty() ? INVALID_INPUT : SUCCESS;
}
EXPORT int nvrtcGetCUBIN(Program *p, char *bytes)
{
    return p->cubin.empty() ? INVALID_INPUT : give(p->cubin, bytes);
}
