# vitrine: the build.
#
#   make            build/vitrine, libvitrine.a, libvitrine.so
#   make run        install what is missing, build, fetch the default model, answer a prompt, print its story in short
#   make run V=1    the same with a line for each file that is compiled
#   make test       install what is missing, build, run the tests that prove the most a second, also under sanitizers
#   make test-all   the same with every test, all sanitizers, and the labs' kernels on an emulated GPU
#   make test-arm   install what is missing, cross-compile for arm64, run tests of ops and of whole models under qemu-user
#   make test-labs  install what is missing, build, run the labs' kernels on an emulated GPU
#   make check      the part of `make test` that needs no sanitizer, installing nothing
#   make unit T=x   build and run tests/unit/test_x.c alone; ONLY='*word*' chooses tests of it
#   make test-page  the server's page in headless Chromium
#   make CONFIG=asan|tsan|debug|coverage ...   other builds, each in build/CONFIG
#   make wheel      build/wheel/vitrine-....whl: program, library and Python API, for pip
#   make deb        build/deb/*.deb: the program with a systemd service, the library, its development files
#   make dist       build/dist: the files of a release (source, program, wheel; packages after `make deb`) and their SHA-256
#   make install DESTDIR= PREFIX=/usr/local    and make uninstall with the same two
#
# Sources are found, not listed. A file named *_avx2.c, *_avxvnni.c, *_avx512.c, *_amx.c or *_neon.c is compiled for that
# instruction set alone and only called behind run-time dispatch. *.cu files are embedded as text.

MAKEFLAGS += --no-builtin-rules
CONFIG ?= release
CC := $(if $(filter default undefined,$(origin CC)),gcc,$(CC))
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
# The binutils of a cross compiler: aarch64-linux-gnu-gcc has aarch64-linux-gnu-ld beside it.
CROSS := $(patsubst %-gcc,%-,$(filter %-gcc,$(CC)))
LD := $(if $(filter default undefined,$(origin LD)),$(CROSS)ld,$(LD))
AR := $(if $(filter default undefined,$(origin AR)),$(CROSS)ar,$(AR))
OBJCOPY ?= $(CROSS)objcopy
# Where there is no home to write to (a service's user, a container's), the model stays in the tree.
ifeq ($(VITRINE_CACHE)$(shell [ -n "$$HOME" ] && mkdir -p "$$HOME/.cache" 2>/dev/null && [ -w "$$HOME/.cache" ] && echo home),)
export VITRINE_CACHE := $(CURDIR)/build/cache
endif
B := build/$(CONFIG)

# The tail of a table's row that is left out is zero, which clang warns of.
WARN := -Wall -Wextra -Wno-missing-field-initializers -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wvla -Werror=implicit-function-declaration
BASE := -std=gnu17 -pthread -Iinclude -Isrc -I$(B)/gen -D_GNU_SOURCE -MMD -MP -fno-math-errno -ffp-contract=off -fvisibility=hidden -fPIC
# Hardened: canaries in functions with arrays, checked string functions, and (below) addresses of functions bound and made
# read-only before main. Measured on decode and prefill of SmolLM2-135M: no difference beyond the noise.
OPT_release := -O3 -g1 -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
OPT_debug := -O0 -g
OPT_asan := -O1 -g1 -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -DVT_SANITIZE=1
# Of clang, whose UBSan finds what that of GCC (asan) does not look for.
OPT_tsan := -O1 -g1 -fsanitize=thread,undefined -fno-sanitize-recover=undefined -DVT_SANITIZE=1
OPT_coverage := -O0 -g --coverage
# For make test-arm: the libraries of another architecture come from ARM_ROOT.
ARM_ROOT := $(CURDIR)/build/arm-root
OPT_arm64 := $(OPT_release) -isystem $(ARM_ROOT)/usr/include -isystem $(ARM_ROOT)/usr/include/aarch64-linux-gnu
OPT_fuzz := -O1 -g -fsanitize=address,undefined,fuzzer-no-link -fno-sanitize-recover=undefined -DVT_SANITIZE=1
CFLAGS_ALL := $(BASE) $(WARN) $(OPT_$(CONFIG)) $(CFLAGS)
LDFLAGS_ALL := -pthread -Wl,-z,relro,-z,now $(filter -fsanitize=% --coverage,$(subst fuzzer-no-link,fuzzer,$(OPT_$(CONFIG)))) $(LDFLAGS)
ifeq ($(CONFIG),arm64)
LDFLAGS_ALL += -L$(ARM_ROOT)/usr/lib/aarch64-linux-gnu -Wl,-rpath,$(ARM_ROOT)/usr/lib/aarch64-linux-gnu
endif
# Debian libraries statically, libc and libm dynamically.
STATIC_LIBS := -l:libjansson.a
# Of the server alone, which the program and the tests link, and libvitrine does not.
SERVER_LIBS := -l:libevent_openssl.a -l:libevent_core.a -l:libssl.a -l:libcrypto.a
SHARED_LIBS := -ljansson
SYS_LIBS := -lm -ldl -lpthread

ARCH := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine)))
ISA_avx2 := -mavx2 -mfma -mf16c -mbmi2
ISA_avxvnni := $(ISA_avx2) -mavxvnni
ISA_avx512 := $(ISA_avx2) -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mprefer-vector-width=512
ISA_amx := $(ISA_avx512) -mavx512bf16 -mamx-tile -mamx-int8 -mamx-bf16
ISA_neon := -march=armv8.2-a+dotprod

# Of files for one instruction set, those of this architecture.
NOT_HERE := $(if $(filter x86_64,$(ARCH)),,%_avx2.c %_avxvnni.c %_avx512.c %_amx.c) $(if $(filter aarch64,$(ARCH)),,%_neon.c)
SRC := $(filter-out $(NOT_HERE),$(sort $(shell find src -name '*.c' -not -name '.*')))
LIB_SRC := $(filter-out src/cli/% src/server/% src/load/% src/lab/%,$(SRC))
CLI_SRC := $(filter src/cli/%,$(SRC))
SERVER_SRC := $(filter src/server/% src/load/% src/lab/%,$(SRC))
CU := $(sort $(shell find src -name '*.cu' -o -name '*.cuh' -o -name '*_params.h'))
obj = $(patsubst %.c,$(B)/%.o,$(1))
plain = $(filter-out -fsanitize% -fno-sanitize%,$1)
LIB_OBJ := $(call obj,$(LIB_SRC)) $(if $(CU),$(B)/gen/kernels.o) $(B)/gen/story_page.o
CLI_OBJ := $(call obj,$(CLI_SRC))
SERVER_OBJ := $(call obj,$(SERVER_SRC))
# The sanitized program, and with QUICK=1 (make test) the sanitized unit programs, link the kernels of CPUs and the loops that measure
# roofs as the release build has them: sanitized, they take long to compile and are seven times as slow, and most tests run a
# model. Without QUICK, the unit programs, which try kernels over odd shapes, link the instrumented ones.
PLAIN_SRC := $(if $(filter asan,$(CONFIG)),$(filter-out %/roofs_table.c,$(filter src/ops/linear/% src/ops/attention/attention.c src/device/roofs/%,$(SRC)) \
  $(filter %_avx2.c %_avxvnni.c %_avx512.c %_amx.c %_neon.c,$(filter src/ops/%,$(SRC)))))
PLAIN_B := $(if $(filter asan,$(CONFIG)),build/release,$(B))
PLAIN := $(patsubst %.c,$(PLAIN_B)/%.o,$(sort $(PLAIN_SRC)))
PLAIN_LIB := $(B)/libvitrine_$(if $(PLAIN),plain,internal).a

UNIT_SRC := $(sort $(wildcard tests/unit/test_*.c))
UNIT := $(patsubst tests/unit/%.c,$(B)/tests/%,$(UNIT_SRC))
TEST_COMMON := $(call obj,$(filter-out $(NOT_HERE),$(sort $(wildcard tests/unit/common/*.c))))
FUZZ_SRC := $(sort $(wildcard tests/fuzz/fuzz_*.c))
REPLAY := $(patsubst tests/fuzz/fuzz_%.c,$(B)/tests/replay_%,$(FUZZ_SRC))
FUZZ := $(patsubst tests/fuzz/fuzz_%.c,$(B)/fuzz/%,$(FUZZ_SRC))
EXAMPLES := $(patsubst examples/%.c,$(B)/examples/%,$(sort $(wildcard examples/*.c)))

.PHONY: always all portable wheel deb dist run test test-all test-labs check unit sanitize install uninstall clean loc units fuzz examples lib
all: build/vitrine $(B)/libvitrine.so

build/vitrine: $(B)/vitrine
	@cp -f $< $@.tmp && mv -f $@.tmp $@

# The program and the tests link every object. What is installed is one object whose hidden symbols are local, so that a
# program that links it statically sees vt_ names only.
lib: $(B)/libvitrine.a $(B)/libvitrine.so
$(B)/libvitrine_internal.a: $(LIB_OBJ)
	@rm -f $@ && $(AR) rcs $@ $^
$(B)/libvitrine_plain.a: $(filter-out $(call obj,$(PLAIN_SRC)),$(LIB_OBJ)) $(PLAIN)
	@rm -f $@ && $(AR) rcs $@ $^
$(B)/libserver.a: $(SERVER_OBJ) $(B)/gen/page.o $(B)/gen/report_pages.o
	@rm -f $@ && $(AR) rcs $@ $^
$(B)/libvitrine.a: $(LIB_OBJ)
	@$(LD) -r -o $(B)/libvitrine.o $^ && $(OBJCOPY) --localize-hidden $(B)/libvitrine.o
	@rm -f $@ && $(AR) rcs $@ $(B)/libvitrine.o && rm $(B)/libvitrine.o
$(B)/libvitrine.so: $(LIB_OBJ)
	@$(CC) -shared -Wl,-soname,libvitrine.so.0 $(LDFLAGS_ALL) -o $@ $^ $(SHARED_LIBS) $(SYS_LIBS)
	@ln -sf libvitrine.so $(B)/libvitrine.so.0 # programs of the examples look for the soname
$(B)/vitrine: $(CLI_OBJ) $(B)/libserver.a $(PLAIN_LIB)
	@echo "  link   $@"
	@$(CC) $(LDFLAGS_ALL) -o $@ $^ $(STATIC_LIBS) $(SERVER_LIBS) $(CLI_LIBS) $(SYS_LIBS)

# GCC 12 for arm64 dies in a loop of this file (vect_transform_reduction).
ifeq ($(ARCH),aarch64)
$(B)/tests/unit/common/lora_run.o: CFLAGS_ALL += -fno-tree-loop-vectorize
endif

# What is never shipped and what no test waits for is compiled with less effort: for arm64 what is no op, for sanitizers what neither
# computes nor reads every byte of a text, and unit programs but those in BUSY, whose own loops take long. The last -O counts.
BUSY := $(patsubst %,tests/unit/test_%.c,op_parity linear linear_quant op_simd)
effort = $(if $(filter-out $(BUSY),$(filter tests/unit/test_% tests/fuzz/%,$1)),-O0 -U_FORTIFY_SOURCE)
ifeq ($(CONFIG),arm64)
effort = $(if $(filter src/ops/% tests/%,$1),,-O0)
endif
ifneq ($(filter asan tsan,$(CONFIG)),)
effort = $(if $(filter-out $(BUSY),$(filter-out src/base/% src/kv/% src/exec/% src/text/% src/grammar/% src/ops/% tests/unit/common/%,$1)),-O0)
endif
isa = $(if $(filter %_avx2.c,$1),$(ISA_avx2))$(if $(filter %_avxvnni.c,$1),$(ISA_avxvnni))$(if $(filter %_avx512.c,$1),$(ISA_avx512))$(if $(filter %_amx.c,$1),$(ISA_amx))$(if $(filter %linear_neon.c,$1),$(ISA_neon))
$(B)/%.o: %.c Makefile | $(B)/gen/version.h
	@mkdir -p $(@D)
	@echo "  cc     $<"
	@$(CC) $(CFLAGS_ALL) $(call effort,$<) $(call isa,$<) -c -o $@ $<
ifeq ($(CONFIG),asan)
$(PLAIN_B)/%.o: %.c Makefile | $(B)/gen/version.h
	@mkdir -p $(@D)
	@echo "  cc     $< (release)"
	@$(CC) $(BASE) $(WARN) $(OPT_release) $(CFLAGS) $(call isa,$<) -c -o $@ $<
endif

# The commit, for benchmarks' JSON. In a worktree .git is a file, so git tells where HEAD and its log are.
$(B)/gen/version.h: $(wildcard $(shell git rev-parse --git-path HEAD --git-path logs/HEAD 2>/dev/null))
	@mkdir -p $(@D)
	@printf '#define VT_COMMIT "%s"\n' "$$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)" > $@

$(B)/gen/kernels.S: $(CU) tools/embed-kernels
	@mkdir -p $(@D)
	@tools/embed-kernels $(CU) > $@
$(B)/gen/kernels.o: $(B)/gen/kernels.S
	@$(CC) -c -o $@ $<

# The live page, from its sources.
PAGE := $(sort $(wildcard src/server/page/*))
$(B)/gen/page.S: $(PAGE) tools/embed-kernels
	@mkdir -p $(@D)
	@tools/embed-kernels --table vt_page_files $(PAGE) > $@
# The script and the style of a story's page of HTML.
STORY_PAGE := $(sort $(wildcard src/story/page/html/*))
$(B)/gen/story_page.S: $(STORY_PAGE) tools/embed-kernels
	@mkdir -p $(@D)
	@tools/embed-kernels --table vt_story_files $(STORY_PAGE) > $@
# Templates of the labs' reports.
REPORT_PAGES := $(sort $(wildcard src/lab/report/pages/*.jinja))
$(B)/gen/report_pages.S: $(REPORT_PAGES) tools/embed-kernels
	@mkdir -p $(@D)
	@tools/embed-kernels --table vt_report_files $(REPORT_PAGES) > $@
$(B)/gen/page.o $(B)/gen/story_page.o $(B)/gen/report_pages.o: %.o: %.S
	@$(CC) -c -o $@ $<

.SECONDARY: $(TEST_COMMON)
# The tests for arm64 are of ops and models: they need no server, no load generator and no labs.
TEST_LIBS := $(if $(filter arm64,$(CONFIG)),,$(B)/libserver.a) $(if $(QUICK),$(PLAIN_LIB),$(B)/libvitrine_internal.a)
TEST_SYS := $(STATIC_LIBS) $(if $(filter arm64,$(CONFIG)),,$(SERVER_LIBS)) $(SYS_LIBS)
# Unit programs and corpus replays. `make units` links those of UNITS together, as one program that has a name (a hard link) for
# each: to link each alone takes as long as to compile them all. `make unit T=x` links one alone, from the same object.
UNITS ?= $(UNIT) $(REPLAY)
# It replaces malloc, where no sanitizer does.
ALONE := $(if $(findstring -fsanitize,$(OPT_$(CONFIG))),,$(B)/tests/test_engine_alloc)
TOGETHER := $(filter-out $(ALONE),$(UNITS))
TEST_OBJ := $(patsubst $(B)/tests/%,$(B)/tests/obj/%.o,$(UNIT) $(REPLAY))
link_tests = $(CC) $(CFLAGS_ALL) -I. $(LDFLAGS_ALL) -o $@ $1 $(B)/tests/obj/replay.o $(TEST_COMMON) $(TEST_LIBS) -lcmocka $(TEST_SYS)
.SECONDARY: $(TEST_OBJ) $(B)/tests/obj/replay.o
$(B)/tests/obj/%.o: tests/unit/%.c Makefile | $(B)/gen/version.h
	@mkdir -p $(@D)
	@echo "  test   $<"
	@$(CC) $(CFLAGS_ALL) $(call effort,$<) -MF $(@:.o=.d) -MT $@ -Itests/unit -c -o $@.tmp $<
	@$(OBJCOPY) --redefine-sym main=$*_main $@.tmp $@ && rm $@.tmp
$(B)/tests/obj/replay_%.o: tests/fuzz/fuzz_%.c Makefile | $(B)/gen/version.h
	@mkdir -p $(@D)
	@echo "  test   $<"
	@$(CC) $(CFLAGS_ALL) $(call effort,$<) -MF $(@:.o=.d) -MT $@ -c -o $@.tmp $<
	@$(OBJCOPY) --redefine-sym LLVMFuzzerTestOneInput=replay_$*_target $@.tmp $@ && rm $@.tmp
$(B)/tests/obj/replay.o: tests/fuzz/replay.c Makefile
	@mkdir -p $(@D)
	@$(CC) $(CFLAGS_ALL) -c -o $@ $<
$(B)/tests/%: $(B)/tests/obj/%.o $(B)/tests/obj/replay.o tools/unit-main $(TEST_COMMON) $(TEST_LIBS)
	@echo "  link   $@"
	@tools/unit-main $* >$(B)/tests/obj/$*_main.c && rm -f $@
	@$(call link_tests,$(B)/tests/obj/$*_main.c $<)
# Written anew where another set is asked for.
$(B)/tests/obj/units.c: tools/unit-main always
	@mkdir -p $(@D)
	@(echo "/* with $(notdir $(TEST_LIBS)) */" && tools/unit-main $(notdir $(TOGETHER))) >$@.tmp
	@cmp -s $@.tmp $@ || mv $@.tmp $@
$(B)/tests/units: $(B)/tests/obj/units.c $(B)/tests/obj/replay.o $(patsubst $(B)/tests/%,$(B)/tests/obj/%.o,$(TOGETHER)) $(TEST_COMMON) $(TEST_LIBS)
	@echo "  link   $@"
	@$(call link_tests,$(filter %units.c $(B)/tests/obj/test_%.o $(B)/tests/obj/replay_%.o,$^))
units: $(B)/tests/units $(filter $(ALONE),$(UNITS))
	@for t in $(TOGETHER); do ln -f $< $$t || exit 1; done
# Coverage-guided fuzzing: make CONFIG=fuzz CC=clang fuzz; then build/fuzz/fuzz/gguf tests/fuzz/corpus/gguf
$(B)/fuzz/%: tests/fuzz/fuzz_%.c $(B)/libserver.a $(B)/libvitrine_internal.a
	@mkdir -p $(@D)
	@$(CC) $(CFLAGS_ALL) -MF $@.d $(LDFLAGS_ALL) -fsanitize=fuzzer -o $@ $< $(B)/libserver.a $(B)/libvitrine_internal.a \
	  $(STATIC_LIBS) $(SERVER_LIBS) $(SYS_LIBS)
fuzz: $(FUZZ)
$(B)/examples/%: examples/%.c $(B)/libvitrine.so
	@mkdir -p $(@D)
	@$(CC) -std=c17 -Wall -Wextra -Iinclude -o $@ $< -L$(B) -Wl,-rpath,'$$ORIGIN/..' -l:libvitrine.so
examples: $(EXAMPLES)

# A GPU emulated behind NVIDIA's entry points (tests/emulator/emulator.h), for tests without one. TSan does not know its
# fibers. Kernels that it compiles are kept in build/emulator-store (nvrtc_store.cc), by all builds.
CXX := $(if $(filter default undefined,$(origin CXX)),g++,$(CXX))
# Older CUPTIs, by CUDA's version, and the version that each says of itself.
CUPTI_12 := 12.1 12.5 12.6
CUPTI_VERSION_12.1 := 18
CUPTI_VERSION_12.5 := 23
CUPTI_VERSION_12.6 := 24
EMULATOR := $(PLAIN_B)/emulator/libcuda.so.1 $(PLAIN_B)/emulator/libnvrtc.so.13 $(PLAIN_B)/emulator/libnvidia-ml.so.1 \
  $(PLAIN_B)/emulator/libcublasLt.so.13 $(PLAIN_B)/emulator/libnccl.so.2 $(PLAIN_B)/emulator/libcupti.so.13 \
  $(CUPTI_12:%=$(PLAIN_B)/emulator/cupti-%/libcupti.so.12)
# The emulator has no sanitizer, which would make its fibers several times as slow; the program that loads it keeps its own, so that
# build/asan/emulator is the release build's. One with ASan is in build/asan/checked, for kernels whose own loads and stores are checked
# (EMULATOR_ASAN=1).
# initial-exec: GCC's LeakSanitizer takes some addresses of a library's own thread-local block for glibc 2.19's, and dies.
CXX_BASE := -std=c++17 -pthread -Iinclude -Isrc -Wall -Wextra -MMD -MP -D_GNU_SOURCE -fPIC -fvisibility=hidden \
  -ftls-model=initial-exec -DEMU_DIR='"$(CURDIR)/tests/emulator"' -DEMU_STORE='"$(CURDIR)/build/emulator-store"' $(CXXFLAGS)
cxx_opt = $(patsubst -O1,-O2,$(OPT_$(notdir $1)))
checked = $(patsubst $(PLAIN_B)/%,$(B)/checked/%,$1)
EMULATOR_OBJ := $(patsubst %.cc,$(PLAIN_B)/%.o,$(filter-out tests/emulator/nvrtc%,$(sort $(wildcard tests/emulator/*.cc))))
ifeq ($(CONFIG),asan)
.PHONY: $(B)/emulator
$(B)/emulator:
	@[ -L $@ ] || rm -rf $@
	@mkdir -p $(@D) && ln -sfn ../release/emulator $@
EMULATED := $(EMULATOR) $(B)/emulator
else
EMULATED := $(EMULATOR)
endif
.PHONY: emulator checked-emulator
emulator: $(EMULATED)
checked-emulator: $(call checked,$(EMULATOR))
# What runs for each access of a kernel is optimised, the entry points are not.
cxx_effort = $(if $(filter %/cuda.cc %/cuda_stream.cc %/cuda_launch.cc %/module.cc %/nvrtc%.cc,$1),-O1)
$(PLAIN_B)/%.o: %.cc Makefile
	@mkdir -p $(@D)
	@echo "  c++    $<"
	@$(CXX) $(CXX_BASE) $(call plain,$(call cxx_opt,$(PLAIN_B))) $(call cxx_effort,$<) -c -o $@ $<
$(B)/checked/%.o: %.cc Makefile
	@mkdir -p $(@D)
	@echo "  c++    $< (checked)"
	@$(CXX) $(CXX_BASE) $(call cxx_opt,$(B)) -c -o $@ $<
# Cubins in a cache are of one emulator: the sum is in NVRTC's version, and so in their files' names.
NVRTC_SRC := $(sort $(wildcard tests/emulator/nvrtc*.cc))
NVRTC_OBJ := $(patsubst %.cc,$(PLAIN_B)/%.o,$(NVRTC_SRC))
EMULATOR_TEXT := tests/emulator/abi.h tests/emulator/device.h $(NVRTC_SRC)
$(PLAIN_B)/tests/emulator/nvrtc.o $(B)/checked/tests/emulator/nvrtc.o: CXX_BASE += -DEMU_SUM=$(firstword $(shell cat $(EMULATOR_TEXT) | cksum))u
$(PLAIN_B)/tests/emulator/nvrtc.o $(B)/checked/tests/emulator/nvrtc.o: $(EMULATOR_TEXT)
$(PLAIN_B)/emulator/libcuda.so.1: $(EMULATOR_OBJ)
$(PLAIN_B)/emulator/libnvrtc.so.13: $(NVRTC_OBJ)
$(B)/checked/emulator/libcuda.so.1: $(call checked,$(EMULATOR_OBJ))
$(B)/checked/emulator/libnvrtc.so.13: $(call checked,$(NVRTC_OBJ))
$(PLAIN_B)/emulator/libcuda.so.1 $(PLAIN_B)/emulator/libnvrtc.so.13:
	@mkdir -p $(@D)
	@$(CXX) -shared -Wl,-soname,$(@F) $(call plain,$(LDFLAGS_ALL)) -o $@ $^ -ldl
$(B)/checked/emulator/libcuda.so.1 $(B)/checked/emulator/libnvrtc.so.13:
	@mkdir -p $(@D)
	@$(CXX) -shared -Wl,-soname,$(@F) $(LDFLAGS_ALL) -o $@ $^ -ldl
$(B)/checked/emulator/%: $(PLAIN_B)/emulator/%
	@mkdir -p $(@D) && cp -f $< $@

$(PLAIN_B)/emulator/libcublasLt.so.13: tests/emulator/cublaslt.c src/device/cuda/cublaslt_api.h $(PLAIN_B)/emulator/libcuda.so.1
	@mkdir -p $(@D)
	@$(CC) -std=gnu17 -O3 -Wno-psabi -shared -fPIC -fvisibility=hidden -Wall -Wextra -Isrc -Itests/emulator -Wl,-soname,libcublasLt.so.13 \
	  -o $@ $< -L$(@D) -l:libcuda.so.1
$(PLAIN_B)/emulator/libnccl.so.2: tests/emulator/nccl.c src/device/cuda/nccl_api.h $(PLAIN_B)/emulator/libcuda.so.1
	@mkdir -p $(@D)
	@$(CC) -std=c17 -O2 -shared -fPIC -fvisibility=hidden -Wall -Wextra -Isrc -Itests/emulator -Wl,-soname,libnccl.so.2 \
	  -o $@ $< -L$(@D) -l:libcuda.so.1
$(PLAIN_B)/emulator/libcupti.so.13 $(CUPTI_12:%=$(PLAIN_B)/emulator/cupti-%/libcupti.so.12): tests/emulator/cupti.c tests/emulator/cupti_pm.c tests/emulator/cupti_pc.c \
  tests/emulator/cupti_activity.c tests/emulator/activity.h tests/emulator/cupti.h \
  src/device/cupti/cupti_api.h
	@mkdir -p $(@D)
	@$(CC) -std=gnu17 -O2 -shared -fPIC -fvisibility=hidden -Wall -Wextra -Isrc -Wl,-soname,$(@F) \
	  -DEMULATED_VERSION=$(or $(CUPTI_VERSION_$(@D:$(PLAIN_B)/emulator/cupti-%=%)),130001) \
	  $(filter-out $(if $(filter 12.1 12.5,$(@D:$(PLAIN_B)/emulator/cupti-%=%)),%_pm.c),$(filter %.c,$^)) -o $@
$(PLAIN_B)/emulator/libnvidia-ml.so.1: tests/emulator/nvml.c
	@mkdir -p $(@D)
	@$(CC) -shared -fPIC -Wall -Wextra -Wl,-soname,libnvidia-ml.so.1 -o $@ $<

$(B)/tests/obj/test_cupti_abi.o: CFLAGS_ALL += -isystem tests/unit/shim -isystem /usr/local/cuda/include
ON_EMULATOR := $(addprefix $(B)/tests/test_,emulator emulator_race emulator_peers emulator_driver emulator_faults cublaslt cupti cupti_activity cupti_pc cupti_pm auto_device cuda_attention cuda_engine cuda_refused cuda_graphs cuda_kv cuda_launch cuda_logits cuda_lora cuda_moe cuda_mtp cuda_ranks cuda_recover cuda_rmsnorm cuda_weights on_cuda story_emulated topology try)
$(ON_EMULATOR): | $(EMULATED)
$(if $(filter $(ON_EMULATOR),$(UNITS)),units: | $(EMULATED))
# A sanitized one that `make test` linked with plain kernels is linked anew.
unit:
	@$(if $(PLAIN),if [ $(B)/tests/test_$(T) -ef $(B)/tests/units ]; then rm $(B)/tests/test_$(T); fi)
	@$(MAKE) --no-print-directory $(B)/tests/test_$(T)
	@VITRINE_DEVICE=cpu CMOCKA_MESSAGE_OUTPUT=STDOUT $(if $(ONLY),VITRINE_UNIT_ONLY='$(ONLY)') $(B)/tests/test_$(T)

run:
	@tools/setup build
	@$(if $(V),,tools/count-compiled )$(MAKE) --no-print-directory -j$$(nproc) all
	@tools/get-model
	@build/vitrine run "Why is the sky blue? Answer in two sentences." -n 64 --story=build/story.json
	@build/vitrine story show build/story.json --short
	@cat tools/after-run.txt

check: all units examples gpu-programs
	@tools/run-tests --quick $(B)

test:
	@tools/setup test
	@$(MAKE) --no-print-directory -j$$(nproc) all units examples gpu-programs
	@$(MAKE) --no-print-directory -j$$(nproc) CONFIG=asan QUICK=1 build/asan/vitrine units UNITS="$$(tools/run-tests --quick --targets build/asan)"
	@tools/get-model || echo "make test: without the model: the tests that need it are skipped" >&2
	@tools/run-tests --quick build/release build/asan

# Every test. AFTER=test leaves out what `make test` runs, for those who have just run it (.ci/run).
test-all:
	@tools/setup sanitize
	@tools/setup arm
	@$(MAKE) --no-print-directory -j$$(nproc) all units examples gpu-programs emulator
	@$(MAKE) --no-print-directory -j$$(nproc) CONFIG=asan build/asan/vitrine units build/asan/gpu/gpu_parity checked-emulator
	@$(MAKE) --no-print-directory -j$$(nproc) CONFIG=tsan CC=clang build/tsan/vitrine units UNITS="$$(tools/run-tests --all --targets build/tsan)"
	@$(MAKE) --no-print-directory arm-programs ARM_TESTS="$$(tools/run-tests --all --targets build/arm64 | xargs -n 1 basename | xargs)"
	@tools/get-model || echo "make test-all: without the model: the tests that need it are skipped" >&2
	@$(MAKE) --no-print-directory fleet-python || echo "make test-all: without the router: the tests of a fleet that need it are skipped" >&2
	@tools/run-tests $(if $(filter test,$(AFTER)),--rest,--all) build/release build/asan build/tsan build/arm64

# The rows of NEON, cross-compiled and run under qemu-user: results, no times.
ARM_TESTS := test_op_simd test_linear test_op_parity test_golden_logits
# Of what those do not link, the files that ask for the architecture.
ARM_ALSO = $(patsubst %.c,build/arm64/%.o,$(shell grep -rlE '__(x86_64|aarch64)__' --include=*.c src/cli src/server src/load src/lab))
.PHONY: test-arm arm-programs
arm-programs:
	@tools/arm-root $(ARM_ROOT)
	@$(MAKE) --no-print-directory -j$$(nproc) CONFIG=arm64 CC="$(if $(findstring ccache,$(CC)),ccache )aarch64-linux-gnu-gcc" \
	  units UNITS="$(addprefix build/arm64/tests/,$(ARM_TESTS))" $(ARM_ALSO)
test-arm:
	@tools/setup arm
	@$(MAKE) --no-print-directory arm-programs ARM_TESTS="$(ARM_TESTS)"
	@for t in $(ARM_TESTS); do VITRINE_DEVICE=cpu qemu-aarch64 -L /usr/aarch64-linux-gnu build/arm64/tests/$$t || exit 1; done

# The labs that run kernels, on an emulated GPU: results, no times.
test-labs:
	@tools/setup test
	@$(MAKE) --no-print-directory -j$$(nproc) all emulator
	@tools/run-tests --labs build/release

# The live page in a browser; needs Python's playwright and a Chromium, else its tests are skipped.
.PHONY: test-page
test-page: all
	@python3 tests/clients/test_page.py

# Mixed load on the server, with clients that leave and requests that are wrong; not part of the tests.
MINUTES ?= 10
.PHONY: soak
soak:
	@$(MAKE) --no-print-directory CONFIG=asan build/asan/vitrine
	@$(MAKE) --no-print-directory build/vitrine
	@tests/soak/soak.py --minutes $(MINUTES) --vitrine build/asan/vitrine --generator build/vitrine

sanitize:
	@tools/setup sanitize
	@$(MAKE) --no-print-directory -j$$(nproc) CONFIG=tsan CC=clang build/tsan/vitrine units
	@tools/run-tests build/tsan

loc:
	@tools/loc

# The labs' pages, scripts, and the results and reports of named machines; not those of this one.
LABS := $(sort $(shell cd labs && find . \( -type f -o -type l \) -not -path '*/results/local/*' -not -path '*/__pycache__/*'))

install: all lib
	install -Dm755 build/vitrine "$(DESTDIR)$(PREFIX)/bin/vitrine"
	install -Dm644 include/vitrine.h "$(DESTDIR)$(PREFIX)/include/vitrine.h"
	install -Dm644 include/vitrine_kernel.h "$(DESTDIR)$(PREFIX)/include/vitrine_kernel.h"
	install -Dm644 $(B)/libvitrine.a "$(DESTDIR)$(LIBDIR)/libvitrine.a"
	install -Dm755 $(B)/libvitrine.so "$(DESTDIR)$(LIBDIR)/libvitrine.so.0"
	ln -sf libvitrine.so.0 "$(DESTDIR)$(LIBDIR)/libvitrine.so"
	install -Dm644 docs/vitrine.1 "$(DESTDIR)$(PREFIX)/share/man/man1/vitrine.1"
	build/vitrine completion bash > $(B)/completion.bash
	build/vitrine completion zsh > $(B)/completion.zsh
	build/vitrine completion fish > $(B)/completion.fish
	install -Dm644 $(B)/completion.bash "$(DESTDIR)$(PREFIX)/share/bash-completion/completions/vitrine"
	install -Dm644 $(B)/completion.zsh "$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_vitrine"
	install -Dm644 $(B)/completion.fish "$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/vitrine.fish"
	mkdir -p "$(DESTDIR)$(LIBDIR)/pkgconfig"
	sed 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(patsubst $(PREFIX)/%,$${prefix}/%,$(LIBDIR))|' tools/vitrine.pc.in > "$(DESTDIR)$(LIBDIR)/pkgconfig/vitrine.pc"
	mkdir -p "$(DESTDIR)$(PREFIX)/share/vitrine/labs"
	@tar -C labs --mode=u=rwX,go=rX -cf - $(LABS) | tar -C "$(DESTDIR)$(PREFIX)/share/vitrine/labs" --no-same-owner -xf -

# A copy of the tracked files is built, so that the packages hold nothing else and debhelper leaves nothing here.
deb:
	@tools/setup deb
	@rm -rf build/deb && mkdir -p build/deb/source
	@git ls-files -z | tar --null -T - -cf - | tar -C build/deb/source -xf -
	@cd build/deb/source && CC="$(CC)" dpkg-buildpackage -b -us -uc -j$$(nproc) > ../log 2>&1 || { tail -n 30 ../log >&2; exit 1; }
	@rm -r build/deb/source
	@if command -v lintian >/dev/null; then lintian --allow-root --fail-on error build/deb/*.deb; fi
	@ls -l build/deb/*.deb | awk '{printf "%s: %.1f MB\n", $$NF, $$5 / 1e6}'

# The program and the library for C libraries of 2018 and later: what the wheel and `make dist` bring.
portable: $(B)/portable/vitrine
$(B)/portable/vitrine: $(B)/vitrine $(wildcard tools/portable/*)
	@CC="$(CC)" OBJECTS="$(CLI_OBJ) $(B)/libserver.a $(B)/libvitrine_internal.a" STATIC="$(STATIC_LIBS) $(SERVER_LIBS)" \
	  LIB_OBJECTS="$(LIB_OBJ)" tools/portable/link $(@D)

wheel: all portable
	@CC="$(CC)" python/build-wheel $(B) build/wheel

dist: wheel
	@tools/dist $(B) build/dist

# Every file that `install` puts there, and nothing else: folders may be others' too. The folders of the labs are ours.
uninstall:
	rm -f "$(DESTDIR)$(PREFIX)/bin/vitrine" "$(DESTDIR)$(PREFIX)/include/vitrine.h" \
	  "$(DESTDIR)$(PREFIX)/include/vitrine_kernel.h" \
	  "$(DESTDIR)$(LIBDIR)/libvitrine.a" "$(DESTDIR)$(LIBDIR)/libvitrine.so.0" \
	  "$(DESTDIR)$(LIBDIR)/libvitrine.so" "$(DESTDIR)$(PREFIX)/share/man/man1/vitrine.1" \
	  "$(DESTDIR)$(LIBDIR)/pkgconfig/vitrine.pc" \
	  "$(DESTDIR)$(PREFIX)/share/bash-completion/completions/vitrine" \
	  "$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_vitrine" \
	  "$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/vitrine.fish"
	if cd "$(DESTDIR)$(PREFIX)/share/vitrine/labs" 2>/dev/null; then rm -f $(LABS); find . -depth -type d -empty -delete; fi
	rmdir "$(DESTDIR)$(PREFIX)/share/vitrine/labs" "$(DESTDIR)$(PREFIX)/share/vitrine" 2>/dev/null || true

clean:
	rm -rf build

-include $(EMULATOR_OBJ:.o=.d) $(PLAIN:.o=.d) $(NVRTC_OBJ:.o=.d) $(LIB_OBJ:.o=.d) $(CLI_OBJ:.o=.d) $(SERVER_OBJ:.o=.d) $(TEST_COMMON:.o=.d) $(TEST_OBJ:.o=.d) $(B)/tests/obj/replay.d

# Programs that need a GPU (or the emulated one). ONLY=a,b chooses sections; each script's --list names them.
#   make test-gpu    parity, whole models against other implementations, the sanitizer's tools (tests/gpu/README.md)
#   make bench-gpu   the figures of docs/performance.md beside the peers': build/bench-gpu.jsonl and .md
GPU_MAIN := gpu_parity gpu_order gpu_ranks
#   make gpu-pack    what a machine with a GPU and no network needs, in two parts (docs/cuda.md, "Running on a device")
.PHONY: test-clients test-fleet fleet-python gpu-programs test-gpu bench-gpu gpu-pack
gpu-programs: $(addprefix $(B)/gpu/,$(GPU_MAIN)) $(B)/gpu/gpu_kernels
$(B)/gpu/gpu_order $(B)/gpu/gpu_ranks: $(B)/gpu/%: tests/gpu/%.c $(B)/libvitrine_internal.a
	@mkdir -p $(@D)
	@$(CC) $(CFLAGS_ALL) -MF $@.d $(LDFLAGS_ALL) -o $@ $< $(B)/libvitrine_internal.a $(STATIC_LIBS) $(SYS_LIBS)
$(B)/gpu/%: tests/gpu/%.c tests/gpu/gpu_cases.c tests/gpu/gpu_options.c \
  tests/gpu/gpu_cases.h tests/gpu/gpu_options.h $(B)/libvitrine_internal.a
	@mkdir -p $(@D)
	@$(CC) $(CFLAGS_ALL) -MF $@.d -Itests/gpu $(LDFLAGS_ALL) -o $@ $(filter %.c,$^) $(B)/libvitrine_internal.a $(STATIC_LIBS) $(SYS_LIBS)
$(B)/gpu/gpu_kernels: bench/gpu_kernels.c $(B)/libvitrine_internal.a
	@mkdir -p $(@D)
	@$(CC) $(CFLAGS_ALL) -MF $@.d $(LDFLAGS_ALL) -o $@ $(filter %.c,$^) $(B)/libvitrine_internal.a $(STATIC_LIBS) $(SYS_LIBS)
# Others' programs against the server; pip installs their packages, 1.5 GB, into build/clients and build/older.
test-clients: build/vitrine
	@test -x build/clients/bin/python || python3 -m venv build/clients
	@test -x build/older/bin/python || python3 -m venv build/older
	@build/clients/bin/python -m pip install -q -r tests/clients/requirements.txt
	@build/older/bin/python -m pip install -q -r tests/clients/requirements-older.txt
	@build/clients/bin/python tests/clients/test_clients.py
	@build/clients/bin/python tests/clients/test_sdks.py
	@build/older/bin/python tests/clients/test_sdks.py
	@build/clients/bin/python tests/cli/test_server.py openai
# Workers behind a router, and the files of docs/deploy.
test-fleet: build/vitrine fleet-python
	@build/fleet/bin/python tests/clients/test_fleet.py
fleet-python:
	@test -x build/fleet/bin/python || python3 -m venv build/fleet
	@build/fleet/bin/python -m pip install -q --disable-pip-version-check --timeout 20 --retries 2 -r tests/clients/requirements-fleet.txt
test-gpu: all gpu-programs
	@tests/gpu/run --build $(B) $(if $(ONLY),--only $(ONLY))
bench-gpu: all gpu-programs
	@bench/gpu --build $(B) $(if $(ONLY),--only $(ONLY))
gpu-pack: build/vitrine gpu-programs
	@tools/get-model
	@rm -rf build/pack && mkdir -p build/pack/a/gpu build/pack/b
	@cp build/vitrine build/pack/a/ && cp $(addprefix $(B)/gpu/,$(GPU_MAIN) gpu_kernels) build/pack/a/gpu/
	@split -n 2 $${VITRINE_CACHE:-$$HOME/.cache/vitrine}/models/SmolLM2-135M-Instruct.Q4_1.gguf build/pack/model.
	@mv build/pack/model.aa build/pack/a/ && mv build/pack/model.ab build/pack/b/ && du -sh build/pack/a build/pack/b
