/* libnvrtc.so.13 of the emulated GPU: NVRTC's entry points over g++.
 *
 *   text ──g++ -E──> no macros ──rewrite──> C++ after abi.h and device.h ──g++ -shared──> "cubin"
 *
 * nvrtc_rewrite.cc replaces what is not C++ (asm, __shared__, __global__). The result is in an
 * anonymous namespace, so that functions which a kernel does not use cost nothing. */
#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <set>
#include <spawn.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "nvrtc_text.h"

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
    std::set<string> written; /* headers that lie in the folder */
};

/* Returns true if VITRINE_EMULATOR has `race`: then code is instrumented for the race detector
 * (race.h). */
bool races()
{
    const char *set = getenv("VITRINE_EMULATOR");
    return set && (string(",") + set + ",").find(",race,") != string::npos;
}

/* ---- running g++ ---- */

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

/* -arch=sm_90a -> 900, and the -D and -I among the options. `hopper`: the level has Hopper's
 * instructions. */
std::vector<string> preprocessor_options(int n, const char *const *options, bool *hopper)
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
    *hopper = atoi(arch.c_str()) >= 900;
    list.push_back("-D__CUDA_ARCH__=" + arch);
    if (feature)
        list.push_back("-D__CUDA_ARCH_FEAT_SM" + arch.substr(0, arch.size() - 1) + "_ALL");
    return list;
}

/* If g++'s log says that a ptx_ function was not declared, puts a line in front that names the PTX
 * instruction. */
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

/* Returns true if an emulator that is built with ASan compiles kernels with it too. It does so only
 * with EMULATOR_ASAN=1, because compiling then takes three times as long. Without it all builds
 * share the cached kernels. */
bool instrumented()
{
#if defined __SANITIZE_ADDRESS__
    const char *wish = getenv("EMULATOR_ASAN");
    return wish && strcmp(wish, "1") == 0;
#else
    return false;
#endif
}

/* Returns true if EMULATOR_ONCE=1 says that this program runs each kernel once or twice: then they
 * are not optimised, which saves a third of the time to compile them. In parity they then take a
 * tenth longer to run, in whole engines 1.7 times as long. For the race detector they are always
 * optimised: each access to a variable without a register is a call of it. */
bool run_once()
{
    const char *wish = getenv("EMULATOR_ONCE");
    return !races() && wish && strcmp(wish, "1") == 0;
}

/* Writes the program's headers that the text includes, and those that these include. A program
 * comes with the headers of all kernels, of which each reads a few; to make and remove a hundred
 * files took as long as to preprocess them. */
void write_included(const Program *p, const string &text, const string &dir,
                    std::set<string> *written)
{
    static const char include[] = "#include \"";
    for (size_t at = 0; (at = text.find(include, at)) != string::npos;) {
        at += sizeof include - 1;
        string name = text.substr(at, text.find('"', at) - at);
        for (size_t i = 0; i < p->headers.size(); i++)
            if (p->header_names[i] == name && written->insert(name).second) {
                write_file(dir + "/" + name, p->headers[i]);
                write_included(p, p->headers[i], dir, written);
            }
    }
}

/* Makes in.ii of in.cu and returns it: the text without macros and includes. Empty if g++
 * failed. */
string preprocess(Program *p, const string &dir, const std::vector<string> &defines,
                  const string &errors)
{
    write_file(dir + "/in.cu", p->text);
    write_included(p, p->text, dir, &p->written);
    std::vector<string> command = {"g++", "-E", "-x", "c++", "-std=gnu++17", "-nostdinc", "-w"};
    command.insert(command.end(), {"-I", dir, "-D__CUDACC__", "-D__CUDACC_RTC__", "-D__NVCC__",
                                   "-D__EMULATED_GPU__"});
    command.insert(command.end(), defines.begin(), defines.end());
    command.insert(command.end(), {dir + "/in.cu", "-o", dir + "/in.ii"});
    if (!run(command, errors))
        return "";
    string text = read_file(dir + "/in.ii"), folder = dir + "/";
    for (size_t at;
         (at = text.find(folder)) != string::npos;) /* messages name ptx_sm90.cuh alone */
        text.erase(at, folder.size());
    return text;
}

/* kernel.cc -> out.so. The text has no macros any more, so all that a level means to g++ is whether
 * Hopper's instructions exist. */
std::vector<string> compile_command(const string &dir, bool hopper)
{
    std::vector<string> command = {"g++", "-x", "c++", "-std=gnu++17"};
    command.insert(command.end(), {run_once() ? "-O0" : "-O1", "-fPIC", "-shared"});
    command.insert(command.end(),
                   {"-w", "-nostdinc", "-fno-strict-aliasing", "-fno-math-errno",
                    "-ffp-contract=off", "-fno-exceptions", "-fno-rtti", "-fvisibility=hidden",
                    hopper ? "-DEMU_HOPPER=1" : "-DEMU_HOPPER=0"});
    command.insert(command.end(), {dir + "/kernel.cc", "-o", dir + "/out.so", "-lm"});
    std::vector<string> last = {"-nostdlib",
                                "-lgcc"}; /* saves a quarter of a small kernel's compile time */
    if (races()) /* no libtsan: device.h has the functions that instrumented code calls */
        last.insert(last.end(), {"-fsanitize=thread", "-g1", "-DEMU_RACE", "-Wl,-Bsymbolic",
                                 "--param=tsan-instrument-func-entry-exit=0",
                                 "--param=tsan-distinguish-volatile=1"});
    else if (instrumented())
        last = {"-fsanitize=address", "-g1"};
    command.insert(command.end(), last.begin(), last.end());
    return command;
}

/* Makes p->cubin of kernel.cc's text, or takes it from the store. */
bool compile(Program *p, const string &dir, const string &text, bool hopper, const string &errors)
{
    std::vector<string> key = compile_command("", hopper);
    key.push_back(text);
    string path = stored_path(key);
    p->cubin = read_file(path);
    if (!p->cubin.empty())
        return true;
    if (!write_file(dir + "/kernel.cc", text) || !run(compile_command(dir, hopper), errors))
        return false;
    p->cubin = read_file(dir + "/out.so");
    store(path, p->cubin);
    return !p->cubin.empty();
}

/* Returns true if device.h declares one of the text's instructions for Hopper alone. */
bool has_hopper(const Rewritten &r)
{
    static const char *const section = strstr(emu_device_text, "#if !EMU_HOPPER");
    for (const auto &i : r.instructions)
        if (i.second.compare(0, 5, "wgmma") == 0 || strstr(section, (i.first + "(").c_str()))
            return true;
    return false;
}

/* The four steps in the folder `dir`. On failure p->log or the file `log` says why. */
bool compile_in(Program *p, const string &dir, int n, const char *const *options)
{
    bool hopper;
    std::vector<string> defines = preprocessor_options(n, options, &hopper);
    string errors = dir + "/log", text = preprocess(p, dir, defines, errors);
    if (text.empty())
        return false;
    Rewritten r = rewrite_kernels(text, races());
    if (!r.error.empty()) {
        write_file(errors, p->name + ": error: " + r.error + "\n");
        return false;
    }
    text = string("# 1 \"device.h\"\n") + emu_device_text + "\nnamespace {\n" + r.text + r.exports;
    /* Without Hopper's instructions if there seem to be none: then the result serves all levels. */
    bool fine = compile(p, dir, text, hopper && has_hopper(r), errors);
    if (!fine && hopper && !has_hopper(r)) {
        unlink(errors.c_str());
        fine = compile(p, dir, text, true, errors);
    }
    p->log = read_file(errors);
    if (!fine)
        name_instructions(p, r.instructions);
    return fine;
}

} // namespace

/* ---- the entry points ---- */

enum { SUCCESS = 0, INVALID_INPUT = 3, COMPILATION = 6, INTERNAL = 11 };

/* The version is part of the names of cached cubins. No real NVRTC has it, and it differs between
 * emulators, their kinds of instrumentation and levels of optimisation. */
EXPORT int nvrtcVersion(int *major, int *minor)
{
    *major = 13;
    int kind = races() ? 3 : (instrumented() ? 2 : 1) + (run_once() ? 3 : 0);
    *minor = 100000 * kind + EMU_SUM % 100000;
    return SUCCESS;
}

/* The capabilities that this NVRTC compiles for, up to nvrtc=N of VITRINE_EMULATOR. */
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
    for (const string &h : p->written)
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
