/* How a kernel's text becomes C++: what the files of the emulated NVRTC share.
 *
 *   nvrtc_scan.cc      words, strings and brackets of C text
 *   nvrtc_ptx.cc       the template of one asm statement -> a C++ expression
 *   nvrtc_rewrite.cc   the whole text: asm, __shared__ and __global__ are replaced
 *   nvrtc_store.cc     compiled kernels on disk
 *   nvrtc.cc           the entry points, and g++ */
#ifndef EMULATOR_NVRTC_TEXT_H
#define EMULATOR_NVRTC_TEXT_H

#include <map>
#include <string>
#include <vector>

/* ---- scanning (nvrtc_scan.cc); positions are offsets into the text ---- */

bool word_char(char c);
size_t skip_space(const std::string &s, size_t at);
/* The identifier or number that begins at `at`; empty: there is none. */
std::string word_at(const std::string &s, size_t at);
/* The position after the string or character literal that begins at `at`. */
size_t skip_quoted(const std::string &s, size_t at);
/* The position after the bracket that closes the one at `at`. */
size_t skip_brackets(const std::string &s, size_t at);
std::string trim(const std::string &s);
/* The parts between separators that stand outside brackets and literals. */
std::vector<std::string> split(const std::string &s, char separator);

/* ---- PTX (nvrtc_ptx.cc) ---- */

struct AsmOperand {
    std::string constraint, expression;
    bool output() const { return constraint[0] == '=' || constraint[0] == '+'; }
};

/* The template of an asm statement as a C++ expression. Every instruction becomes the call of a
 * function of device.h that is named after it; `instructions` notes function -> instruction. */
std::string translate_ptx(const std::string &text, const std::vector<AsmOperand> &operands,
                          std::map<std::string, std::string> &instructions, std::string &error);

/* ---- the kernel's text (nvrtc_rewrite.cc) ---- */

struct Rewritten {
    std::string text;    /* stands in a namespace behind device.h */
    std::string exports; /* closes that namespace: the table of kernels (emu_exports in abi.h) */
    std::string error;   /* empty: the text could be rewritten */
    std::map<std::string, std::string> instructions; /* function of device.h -> instruction */
};

/* `text` is preprocessed; `races`: the module is for the race detector. */
Rewritten rewrite_kernels(const std::string &text, bool races);

/* ---- files (nvrtc_store.cc) ---- */

std::string read_file(const std::string &path);
bool write_file(const std::string &path, const std::string &text);
/* The file that holds, or will hold, what g++ makes of a text and arguments. */
std::string stored_path(const std::vector<std::string> &parts);
void store(const std::string &path, const std::string &object);

#endif
