/* Compiled kernels, kept by what was compiled: the text after the preprocessor and g++'s arguments.
 *
 *   text + arguments ──sum──> EMU_STORE/sum.so ──there──> its bytes
 *                                              └─not──> g++, and the file for the next program
 *
 * vitrine's own cache of cubins has a file for each kernel, level and set of parameters, in a folder
 * that a test may choose. Here two kernels are one where the preprocessor leaves the same text of
 * them: the same kernel at levels 80 and 90, or for two programs with caches of their own. */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sys/stat.h>
#include <unistd.h>

#include "nvrtc_text.h"

using std::string;

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

/* Two 64-bit sums (FNV-1a, and a second one that multiplies first and shifts), in hex. */
static string sum(const std::vector<string> &parts)
{
    uint64_t a = 0xcbf29ce484222325u, b = 0x9e3779b97f4a7c15u;
    for (const string &part : parts) {
        for (size_t i = 0; i <= part.size(); i++) { /* with the byte that ends a part */
            uint64_t c = (unsigned char)part.c_str()[i];
            a = (a ^ c) * 0x100000001b3u;
            b = (b * 0xff51afd7ed558ccdu) ^ (b >> 29) ^ c;
        }
    }
    char text[40];
    snprintf(text, sizeof text, "%016llx%016llx", (unsigned long long)a, (unsigned long long)b);
    return text;
}

string stored_path(const std::vector<string> &parts) { return EMU_STORE "/" + sum(parts) + ".so"; }

/* Under another name first: a program that reads sees the whole file or none. Where the folder cannot
 * be written nothing is kept. */
void store(const string &path, const string &object)
{
    mkdir(EMU_STORE, 0777);
    string temporary = path + ".XXXXXX";
    int fd = mkstemp(&temporary[0]);
    if (fd < 0)
        return;
    close(fd);
    if (!write_file(temporary, object) || rename(temporary.c_str(), path.c_str()) != 0)
        unlink(temporary.c_str());
}
