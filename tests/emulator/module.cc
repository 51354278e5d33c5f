/* "Cubins": shared objects made by nvrtc.cc, loaded from memory. The loader lays out static shared
 * memory: each __shared__ declaration of the module gets its offset here. */
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <mutex>
#include <set>
#include <string>
#include <unistd.h>

#include "runtime.h"

struct emu_module {
    void *library;
    std::string
        code; /* the file's bytes, kept for addr2line if the module is for the race detector */
    const char *base;
    const emu_exports *exports;
    uint32_t static_bytes, dynamic_offset;
};

static std::mutex instrumented_lock;
static std::set<const emu_module *> &instrumented = *new std::set<const emu_module *>;

static uint32_t align_up(uint32_t at, uint32_t align) { return (at + align - 1) / align * align; }

static void lay_out(emu_module *m)
{
    uint32_t at = 0, gap = EMU_ASAN ? 32 : 0, gaps = 0, dynamic_align = 16;
    for (emu_slot **slot = m->exports->slots; slot < m->exports->slots_end; slot++) {
        emu_slot *s = *slot;
        if (!s->size) {
            dynamic_align = s->align > dynamic_align ? s->align : dynamic_align;
        } else if (s->offset == EMU_NOT_LAID_OUT) {
            s->offset = at = align_up(at, s->align);
            at += s->size + gap;
            gaps += gap;
        }
    }
    m->static_bytes = at - gaps;
    m->dynamic_offset = align_up(at, dynamic_align);
    for (emu_slot **slot = m->exports->slots; slot < m->exports->slots_end; slot++)
        if (!(*slot)->size)
            (*slot)->offset = m->dynamic_offset;
}

static size_t elf_size(const void *bytes)
{
    Elf64_Ehdr h;
    memcpy(&h, bytes, sizeof h);
    return h.e_shoff + (size_t)h.e_shentsize * h.e_shnum;
}

emu_module *emu_module_load(const void *bytes, size_t size, char *message, size_t message_size)
{
    if ((size && size < sizeof(Elf64_Ehdr)) || memcmp(bytes, ELFMAG, SELFMAG) != 0) {
        snprintf(message, message_size,
                 "not a cubin of the emulator (its NVRTC makes shared objects)");
        return nullptr;
    }
    size = size ? size : elf_size(bytes);
    const char *tmp = getenv("TMPDIR");
    char path[512]; /* a unique name: the loader would take an equal name for the same library */
    snprintf(path, sizeof path, "%s/emulator-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    int fd = mkstemp(path);
    for (size_t done = 0; fd >= 0 && done < size;) {
        ssize_t n = write(fd, (const char *)bytes + done, size - done);
        if (n <= 0)
            break;
        done += (size_t)n;
    }
    if (fd >= 0)
        close(fd);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const char *error = library ? nullptr : dlerror();
    const emu_exports *exports = library ? (const emu_exports *)dlsym(library, "emu_module_exports")
                                         : nullptr;
    unlink(path);
    if (!exports) {
        snprintf(message, message_size, "not a cubin of the emulator: %s",
                 error ? error : "it exports no kernels");
        if (library)
            dlclose(library);
        return nullptr;
    }
    emu_module *m = new emu_module();
    m->library = library;
    m->exports = exports;
    lay_out(m);
    Dl_info info;
    if (exports->races && dladdr(exports, &info)) {
        m->code.assign((const char *)bytes, size);
        m->base = (const char *)info.dli_fbase;
        std::lock_guard<std::mutex> hold(instrumented_lock);
        instrumented.insert(m);
    }
    return m;
}

void emu_module_unload(emu_module *m)
{
    if (!m)
        return;
    if (m->exports->races) {
        std::lock_guard<std::mutex> hold(instrumented_lock);
        instrumented.erase(m);
    }
    dlclose(m->library);
    delete m;
}

const emu_kernel *find_kernel(emu_module *m, const char *name)
{
    for (uint32_t i = 0; i < m->exports->n_kernels; i++)
        if (strcmp(m->exports->kernels[i].name, name) == 0)
            return &m->exports->kernels[i];
    return nullptr;
}

bool looks_for_races(emu_module *m) { return m->exports->races; }

/* "ptx.cuh:80, gemm.cu:120": the innermost line and what it was inlined into. */
static std::string lines_of(const emu_module *m, size_t offset)
{
    char path[] = "/tmp/emulator-XXXXXX", command[128], line[512];
    int fd = mkstemp(path);
    if (fd < 0)
        return "";
    bool fine = write(fd, m->code.data(), m->code.size()) == (ssize_t)m->code.size();
    close(fd);
    snprintf(command, sizeof command, "addr2line -i -e %s 0x%zx 2>/dev/null", path, offset);
    FILE *f = fine ? popen(command, "r") : nullptr;
    std::string all;
    while (f && fgets(line, sizeof line, f)) {
        const char *name = strrchr(line, '/') ? strrchr(line, '/') + 1 : line;
        if (strncmp(name, "device.h:", 9) == 0 || strncmp(name, "exports:", 8) == 0 || *name == '?')
            continue;
        all += (all.empty() ? "" : ", in ") + std::string(name, strcspn(name, " \n"));
    }
    if (f)
        pclose(f);
    unlink(path);
    return all;
}

std::string describe_code(const void *pc)
{
    Dl_info info;
    char text[64];
    std::lock_guard<std::mutex> hold(instrumented_lock);
    if (!dladdr(pc, &info))
        return "code that was unloaded";
    size_t offset = (size_t)((const char *)pc - (const char *)info.dli_fbase);
    for (const emu_module *m : instrumented)
        if (m->base == info.dli_fbase) {
            std::string lines = lines_of(m, offset - 1); /* pc is the address after the call */
            if (!lines.empty())
                return lines;
        }
    snprintf(text, sizeof text, "code at 0x%zx", offset);
    return text;
}

uint32_t dynamic_offset(emu_module *m) { return m->dynamic_offset; }
int emu_kernel_static_shared(emu_module *m, const char *name)
{
    return find_kernel(m, name) ? (int)m->static_bytes : -1;
}
int emu_kernel_max_threads(emu_module *m, const char *name)
{
    const emu_kernel *k = find_kernel(m, name);
    return k ? (int)k->max_threads : -1;
}
int emu_kernel_params_bytes(emu_module *m, const char *name)
{
    const emu_kernel *k = find_kernel(m, name);
    return k ? (int)k->params_bytes : -1;
}
