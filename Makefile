# make             builds the library from src/, one object for each of its files, and the examples
# make demo        trains, folds and draws
# make test        most tests once, in a few minutes: with gcc, what reads files or manages memory also under sanitizers
# make test-all    the longer suite: also clang, C++, most tests under sanitizers, the CUDA file under the race checker and by nvcc for sm_90a
# make check       above it: more compilers, word sizes, processors and SIMD levels (sh tools/setup.sh --check installs them)
# make mutants     plants faults in the library, one after the other, and counts how many the tests find
# make fuzz        FUZZ_SECONDS=600 of changed files for each reader of files, with clang's libFuzzer
# make install     PREFIX=/usr/local DESTDIR=: the sources for pkg-config and CMake; tn, its manual page and completions; the
#                  shared library; the documents. make install-library: the sources alone. make uninstall removes what was installed
# make lib         the shared library, build/lib/libtensornet.so with its version; pip install tools/python makes the Python
#                  package of it
# make tn          the command build/tn: tokenizer, train, generate, info, clean
# make tn-cuda     the same with --backend cuda: build/tn-cuda (make tn CUDA=1, too). NVCC and CUDA_HOME can be given;
#                  CUDA_ARCH=-arch=native compiles for this machine's GPU alone, in half the time, as test-gpu,
#                  sanitize-gpu and bench-gpu do
# make tn-mpi      the same with --comm mpi: build/tn-mpi, for mpirun -n 4 build/tn-mpi train ... (sh tools/setup.sh --mpi)
# make pages       a folder for any web host, build/pages: lessons in which XOR and digits are learnt in the browser, and the pages
#                  of three models (sh tools/setup.sh --look installs clang for WebAssembly, which this needs)
# make pictures    the pictures of docs/images: PICTURES="eigenvectors lesson", say, or all (python3 tools/pictures.py lists them)
# make bench       speed beside OpenBLAS's and PyTorch's (sh tools/setup.sh --bench installs them; PYTHON is another python
#                  that has them); BENCH=gemm, pieces, step, lm, decode, operator, scan, chains, einsum, attention, predict,
#                  threads: one of them alone; BENCH=profile: where the time of a step goes, by kernel and thread;
#                  SIMD=avx2: ours and the peers' without AVX-512
# make cuda        tensornet_cuda.cu by nvcc, for sm_80 and sm_90a, within tests/cuda_host/budget.txt: build/cuda/tensornet_cuda.o
# make test-gpu, sanitize-gpu, bench-gpu
#                  on a machine with a GPU: the backend against the reference, under compute-sanitizer's four tools, and its
#                  speed beside PyTorch's (GPU_BENCH=ceilings, attention, linear, gpt, small, rows: one of them alone)
# make header      makes tensornet.h and tensornet_cuda.cu from src/, in the order of src/ORDER and src/cuda/ORDER
# make docs        writes docs/api.md from tensornet.h
# make map         every block of tensornet.h with its tag, its first line and its length
# make clean       removes build/
#
# CC, CXX, CFLAGS, LDFLAGS, STB (the folder of stb_image_write.h) and JOBS can be given; V=1 shows the commands.

# One more than there are processors, because some tests wait.
JOBS  := $(shell expr `getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2` + 1)

.PHONY: all header map docs examples tn tn-cuda tn-mpi weights demo pages pictures test test-all check mutants cuda bench fuzz clean
all: examples

# ---- the library: the files of src/, each compiled by itself, and the one header that is made from them. A compiler that
#      writes the dependencies of what it compiles (-MMD) saves listing them here.

# Units are compiled side by side, unless make is told how many jobs to run, is called by another make, or has a goal whose parts
# must not run at once.
ifeq ($(MAKELEVEL)$(filter clean header docs uninstall bench %-gpu sanitize-%,$(MAKECMDGOALS)),0)
MAKEFLAGS += -j$(JOBS)
endif

include tools/library.mk
PNG_OBJECT = $(if $(PNG_FLAGS),build/lib/stb_image_write.o)
LIBRARY  = $(ARCHIVE) $(PNG_OBJECT)
CXX_COMPILE = $(CXX) -std=c++17 $(CFLAGS) $(THREADS) $(WARN) -Isrc -MMD -MP

build/lib/stb_image_write.o: $(STB)/stb_image_write.h build/lib/flags
	$(Q) $(CC) $(CFLAGS) -w $(PIC) $(call linked_by_cc,-fvisibility=hidden) -DSTB_IMAGE_WRITE_IMPLEMENTATION -x c -c $< -o $@
-include $(wildcard $(foreach d,tn.d examples bench gpu cuda/unit,$(patsubst %,build/$d/%.d,* */*)))

# Branches need not carry the generated files: run this once after a merge.
header:
	@mkdir -p build
	awk -f tools/header.awk src/ORDER > build/header.new && mv build/header.new tensornet.h
	awk -v cuda=1 -f tools/header.awk src/cuda/ORDER > build/cuda.new && mv build/cuda.new tensornet_cuda.cu

# ---- examples: each can be compiled alone, by the line at its top, because it defines TENSORNET_IMPLEMENTATION before it
#      includes the one header. Here it finds src/tensornet.h, which has declarations only.

examples: $(patsubst examples/%.c,build/examples/%,$(wildcard examples/*.c examples/studies/*.c)) \
          build/examples/cpp build/examples/embed/predict build/examples/embed/predict_cpp

build/examples/%: examples/%.c $(LIBRARY)
	@mkdir -p $(@D)
	$(Q) $(COMPILE) -MF $@.d $< $(LIBRARY) $(LDFLAGS) -o $@ -lm
build/examples/%: examples/%.cpp $(LIBRARY)
	@mkdir -p $(@D)
	$(Q) $(CXX_COMPILE) -MF $@.d $< $(LIBRARY) $(LDFLAGS) -o $@

# A model inside the program: see examples/embed/train.c.
build/examples/embed/predict build/examples/embed/train: examples/embed/digits.h
build/examples/embed/predict: examples/embed/weights.h
build/examples/embed/predict_cpp: examples/embed/predict.cpp examples/embed/digits.h examples/embed/weights.h $(LIBRARY)
	@mkdir -p $(@D)
	$(Q) $(CXX_COMPILE) -MF $@.d $< $(LIBRARY) $(LDFLAGS) -o $@

weights: build/examples/embed/train build/examples/embed/bytes
	build/examples/embed/train build/examples/embed/digits.safetensors
	build/examples/embed/bytes build/examples/embed/digits.safetensors weights > build/examples/embed/weights.h
	cp build/examples/embed/weights.h examples/embed/weights.h

# ---- the command tn

TN_SOURCES = $(wildcard tools/tn/*.c)
TN_OBJECTS = $(TN_SOURCES:tools/tn/%.c=build/tn.d/%.o) build/tn.d/comm/socket.o
tn: build/tn$(if $(CUDA),-cuda)
tn-cuda: build/tn-cuda
TN_COMPILE = $(COMPILE) -D_XOPEN_SOURCE=700
build/tn: $(TN_OBJECTS) $(LIBRARY)
	$(Q) $(CC) $(CFLAGS) $(THREADS) $^ $(LDFLAGS) -o $@ -lm

build/tn.d/comm/%.o: examples/comm/%.c build/lib/flags
	@mkdir -p $(@D)
	$(Q) $(COMPILE) -c $< -o $@
# What the pages of `tn look` and `tn demo` are made of, as arrays of C.
include tools/tn/look/assets.mk
build/tn.d/look_page.o: build/look_assets.h
build/tn.d/demo.o: build/demo_assets.h
build/tn.d/%.o: tools/tn/%.c build/lib/flags
	@mkdir -p $(@D)
	$(Q) $(TN_COMPILE) -c $< -o $@

# With a GPU: two objects know of it, and what nvcc compiles is linked with CUDA's static runtime, so that neither cuBLAS nor a
# driver has to be there before a context opens.
ifndef NVCC
NVCC := $(or $(if $(CUDA_HOME),$(wildcard $(CUDA_HOME)/bin/nvcc)),$(shell command -v nvcc 2>/dev/null),/usr/local/cuda/bin/nvcc)
endif
# The compiler may be a link, such as /usr/bin/nvcc: what it needs lies beside the file that the link leads to.
ifndef CUDA_HOME
NVCC_FILE := $(realpath $(shell command -v $(firstword $(NVCC)) 2>/dev/null))
CUDA_HOME := $(patsubst %/bin/,%,$(dir $(or $(NVCC_FILE),/usr/local/cuda/bin/nvcc)))
endif
# For newer GPUs the driver compiles the intermediate code of compute_80.
CUDA_BOTH   = -gencode arch=compute_80,code=sm_80 -gencode arch=compute_80,code=compute_80 -gencode arch=compute_90a,code=sm_90a
CUDA_ARCH   = $(CUDA_BOTH)
# On a machine with a GPU: its own architecture is enough, and takes half the time. `native` would be sm_90 where sm_90a runs, too.
CUDA_CAPABILITY = $(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -1)
test-gpu sanitize-gpu bench-gpu build/gpu/bench build/gpu/test_%: CUDA_ARCH = -arch=$(if $(filter 9.0,$(CUDA_CAPABILITY)),sm_90a,native)
CUDA_FLAGS  = -std=c++17 -O3 -lineinfo --threads 2
CUDA_LINK   = $(addprefix -L$(CUDA_HOME)/,lib64 lib targets/x86_64-linux/lib) -lcudart_static -lstdc++ -lpthread -ldl -lrt -lm
CUDA_UNITS  = $(patsubst src/cuda/%.cu,build/cuda/unit/%.o,$(wildcard src/cuda/*.cu))
CUDA_KNOWS  = run processes
build/tn-cuda: $(filter-out $(CUDA_KNOWS:%=build/tn.d/%.o),$(TN_OBJECTS)) $(CUDA_KNOWS:%=build/tn.d/%-cuda.o) \
               build/tn.d/comm/nccl.o $(LIBRARY) $(CUDA_UNITS)
	$(Q) $(CC) $(CFLAGS) $(THREADS) $^ $(LDFLAGS) -o $@ $(CUDA_LINK)

build/tn.d/%-cuda.o: tools/tn/%.c build/lib/flags
	@mkdir -p $(@D)
	$(Q) $(TN_COMPILE) -DTN_TOOL_CUDA -c $< -o $@

# Those of examples/studies/runs.h have --backend cuda, too.
build/examples/studies/%-cuda: examples/studies/%.c $(LIBRARY) $(CUDA_UNITS)
	@mkdir -p $(@D)
	$(Q) $(COMPILE) -DSTUDY_CUDA -MF $@.d $< $(LIBRARY) $(CUDA_UNITS) $(LDFLAGS) -o $@ $(CUDA_LINK)

build/cuda/unit/%.o: src/cuda/%.cu build/cuda/arch
	@mkdir -p $(@D)
	$(Q) $(NVCC) $(CUDA_FLAGS) $(CUDA_ARCH) -Isrc -MMD -MP -MF $@.d -c $< -o $@

# For other GPUs it is another object: this says for which ones the last one is, and is new when they are.
build/cuda/arch: FORCE
	@mkdir -p $(@D); echo "$(CUDA_ARCH)" | cmp -s - $@ || echo "$(CUDA_ARCH)" > $@
.PHONY: FORCE

# Over MPI: one object knows of it, and MPI's compiler links.
MPICC = mpicc
tn-mpi: build/tn-mpi
build/tn-mpi: $(TN_OBJECTS:build/tn.d/processes.o=build/tn.d/processes-mpi.o) build/tn.d/comm/mpi.o $(LIBRARY)
	$(Q) $(MPICC) $(CFLAGS) $(THREADS) $^ $(LDFLAGS) -o $@ -lm
build/tn.d/processes-mpi.o: tools/tn/processes.c build/lib/flags
	@mkdir -p $(@D)
	$(Q) $(TN_COMPILE) -DTN_TOOL_MPI -c $< -o $@
build/tn.d/comm/mpi.o: CC = $(MPICC)

docs:
	@mkdir -p build
	awk -f tools/api.awk tensornet.h > build/api.md
	mv build/api.md docs/api.md

demo: build/examples/fashion
	$<

pages: build/tn build/examples/06_eigenvectors
	sh tools/pages/pages.sh $^ build/pages

PICTURES = all
pictures: build/tn
	python3 tools/pictures.py $(PICTURES)

# ---- tests, by tests/Makefile. What does not build is a failed test, so a run does not stop at an error; the sum is last.

export WARN STB PNG_FLAGS CUDA_FLAGS CUDA_BOTH
suite = $(MAKE) --no-print-directory -f tests/Makefile -k $(if $(filter output-sync,$(.FEATURES)),-O) \
        $(if $(findstring --jobserver,$(MAKEFLAGS)),,-j$(JOBS)) SUITE=$1
test test-all check: $(PNG_OBJECT)
	@rm -rf build/*/*.log build/*/*/*.log build/*/*/*/*.log
	+@$(call suite,$@) begin
	+@$(call suite,$@) simd || true
	+@$(call suite,$@) run || true
	+@$(call suite,$@) sum

map:
	@awk -f tests/map.awk tensornet.h

# Small deliberate bugs in src/ and tensornet_cuda.cu, one at a time, which the tests must find: two reports in
# build/mutants. 23 minutes of processor time.
mutants:
	@status=0; for what in header cuda; do JOBS=$(JOBS) sh tests/heavy/mutants/run.sh $$what || status=1; done; exit $$status

# What a program links that runs on GPUs; NVCC can be given. MODE=--budget prints the lines that budget.txt would need.
cuda:
	@sh tests/cuda_host/nvcc.sh tensornet_cuda.cu tests/cuda_host/budget.txt build/cuda $(MODE)

# ---- on a machine with a GPU: nvcc, gcc and make; make bench-gpu needs cuBLAS, and PyTorch for its peers, too. Each line may
#      take ten minutes. Warnings are not errors here, because nobody has tried every compiler of every such machine.
#      tools/bench/gpu/first_hour.sh does the most important of all this in three calls of nine minutes.

SANITIZE = $(or $(shell command -v compute-sanitizer 2>/dev/null),$(CUDA_HOME)/bin/compute-sanitizer)

build/gpu/test_%: tests/test_%.c $(LIBRARY) $(CUDA_UNITS)
	@mkdir -p $(@D)
	$(Q) $(COMPILE) -MF $@.d -Itests $< $(LIBRARY) $(CUDA_UNITS) -o $@ $(CUDA_LINK)

# Every case, the large shapes; attention again with wgmma, by TMA and without, where the GPU takes it; our own products instead of cuBLAS's; then a
# program that loses its GPU, and one that sees none.
GPU_TESTS = build/gpu/test_cuda $(patsubst %,build/gpu/test_cuda_%,attention linear states rows)
test-gpu: $(GPU_TESTS)
	TN_CUDA_LARGE=1 $<
	TN_CUDA_LARGE=1 build/gpu/test_cuda_attention
	TN_CUDA_LARGE=1 build/gpu/test_cuda_linear
	build/gpu/test_cuda_states
	TN_CUDA_LARGE=1 build/gpu/test_cuda_rows
	@if TN_REQUIRE=wgmma build/gpu/test_cuda_attention wgmma_launches > build/gpu/wgmma.txt 2>&1; then \
	    set -ex; export TN_WGMMA=1; TN_CUDA_LARGE=1 build/gpu/test_cuda_attention; $< cases; \
	    export TN_TMA=0; TN_CUDA_LARGE=1 build/gpu/test_cuda_attention; $< cases; \
	else echo "SKIP wgmma_attention wgmma_cases: $$(grep -m 1 'desc.wgmma\|FAIL' build/gpu/wgmma.txt)"; fi
	TN_CUBLASLT=0 $< gemm
	TN_CUBLAS=0 $< gemm
	TN_CUBLAS=0 TN_CUDA_RAW=1 TN_CUDA_ROUND=7 $< cases
	TN_CUDA_BREAK=1 $< kernel_fault
	CUDA_VISIBLE_DEVICES= $< without_a_gpu

# One round of each case, all that is below it in memcheck. Without our sentinels, which would hide what is not initialised,
# and without cuBLAS, so that every kernel is ours: checking cuBLAS's would take most of the time, and it keeps memory that
# counts as leaked.
sanitize-gpu: $(patsubst %,sanitize-%,memcheck racecheck initcheck synccheck)
sanitize-%: $(GPU_TESTS)
	@[ -x "$(SANITIZE)" ] || { echo "SKIP sanitize-$*: needs compute-sanitizer"; exit 0; }; set -e; \
	export TN_CUBLAS=0; \
	for t in cases_f32 cases_bf16 $(if $(filter memcheck initcheck,$*),gemm_of copies faults trains_alike_bf16); do \
	    echo "$* $$t"; case $$t in cases*) round=$(if $(filter racecheck,$*),1,5);; *) round=;; esac; \
	    TN_CUDA_RAW=1 $${round:+env TN_CUDA_ROUND=$$round} \
	        "$(SANITIZE)" --tool $* --error-exitcode 9 $(if $(filter memcheck,$*),--leak-check full) $< $$t; \
	done; \
	for t in attention linear states rows; do \
	    echo "$* $$t"; TN_TEST_SMALL=yes "$(SANITIZE)" --tool $* --error-exitcode 9 build/gpu/test_cuda_$$t; \
	done

# Peers: a python3 with PyTorch, GPU_PYTHON; without it their columns are skipped by name.
GPU_BENCH  = ceilings attention linear gpt small rows
GPU_PYTHON = python3
build/gpu/bench: tools/bench/gpu/bench_gpu.c tools/bench/clock.h $(LIBRARY) $(CUDA_UNITS)
	@mkdir -p $(@D)
	$(Q) $(CC) -std=gnu11 $(CFLAGS) $(THREADS) -Wall -Wextra -Isrc -I. $< $(LIBRARY) $(CUDA_UNITS) -o $@ $(CUDA_LINK)
bench-gpu: build/gpu/bench
	@BENCH_TORCH="exec $(GPU_PYTHON) tools/bench/gpu/torch_peer.py" $< $(GPU_BENCH)

.PHONY: test-gpu sanitize-gpu bench-gpu

# ---- fuzzing. Its programs take some minutes to compile.

fuzz:
	@rm -f build/fuzz/*.log
	+@$(call suite,fuzz) begin
	+@$(call suite,fuzz) run || true
	+@$(call suite,fuzz) sum

# ---- speed, beside others'. `sh tools/setup.sh --bench` makes the Python environment and installs OpenBLAS on OpenMP; without
#      them rows say what they skip. BENCH_ROWS="LM step, softmax|adamw" measures only rows that contain one of these texts.
#      SIMD=avx2 measures what a processor without AVX-512 would run, on one that has it: the peers are limited to AVX2, too.

BENCH     = gemm pieces step lm decode operator scan chains einsum attention predict threads
PYTHON    = $(firstword $(wildcard data/bench/python/bin/python) /usr/bin/python3)
BLAS      = $(dir $(firstword $(wildcard /usr/lib/*/openblas-openmp/libopenblas.so.0)))
# PyTorch makes new tensors in each run: malloc is told to keep their memory, as our arena does. What it compiled is kept
# between runs, for each SIMD apart: its files do not say for which they were made.
TORCH_ENV = MALLOC_MMAP_THRESHOLD_=4294967296 MALLOC_TRIM_THRESHOLD_=4294967296 MALLOC_TOP_PAD_=268435456 \
            TORCHINDUCTOR_CACHE_DIR="$(CURDIR)/build/bench/cache$(SIMD)"
SIMD      =
SIMD_ENV  = $(if $(filter avx2,$(SIMD)),TN_SIMD=avx2 OPENBLAS_CORETYPE=Haswell ATEN_CPU_CAPABILITY=avx2 \
            MKL_ENABLE_INSTRUCTIONS=AVX2 ONEDNN_MAX_CPU_ISA=AVX2,$(if $(SIMD),$(error SIMD is $(SIMD): it can be avx2, or empty)))
BENCH_ENV = $(if $(BLAS),LD_LIBRARY_PATH="$(BLAS)") $(SIMD_ENV) \
            BENCH_TORCH='exec env $(TORCH_ENV) $(PYTHON) tools/bench/torch_peer.py'

bench: build/bench/bench
	@$(BENCH_ENV) $< $(BENCH)

build/bench/bench: $(patsubst tools/bench/%.c,build/bench/%.o,$(wildcard tools/bench/*.c)) $(LIBRARY)
	$(Q) $(CC) -std=gnu11 $(CFLAGS) $(THREADS) $(call linked_by_cc,-fopenmp) $^ $(LDFLAGS) -o $@ -ldl -lm
build/bench/%.o: tools/bench/%.c build/lib/flags
	@mkdir -p $(@D)
	$(Q) $(CC) -std=gnu11 $(CFLAGS) $(THREADS) $(call linked_by_cc,-fopenmp) -Wall -Wextra -Isrc -Itools/bench -MMD -MP -c $< -o $@

# ---- for other projects: the sources, what pkg-config and CMake need to know of them, the documents; and tn, which alone is
#      compiled. tools/install/install.sh lists what goes where. A `tn` that runs on this machine can be given as TN.

PREFIX  = /usr/local
DESTDIR =
TN      = build/tn
VERSION := $(shell awk '/^.define TN_VERSION_(MAJOR|MINOR|PATCH) / { printf "%s%s", dot, $$3; dot = "." }' tensornet.h)
SHARED  = build/lib/libtensornet.so.$(VERSION)

.PHONY: lib install install-library uninstall
install: $(TN) $(SHARED)
install install-library uninstall:
	@DESTDIR="$(DESTDIR)" PREFIX="$(PREFIX)" VERSION="$(VERSION)" TN="$(TN)" SHARED="$(SHARED)" \
	    sh tools/install/install.sh $@

# The shared library, for Python and other languages. Before version 1 a new minor version may change structs, so the soname
# has both numbers.
SONAME = libtensornet.so.$(basename $(VERSION))
lib: $(SHARED)
build/lib/libtensornet.so.$(VERSION): $(LIBRARY_UNITS) $(PNG_OBJECT)
	$(Q) $(CC) $(CFLAGS) $(THREADS) -shared $(call linked_by_cc,-Wl$(,)-Bsymbolic-functions) -Wl,-soname,$(SONAME) $^ $(LDFLAGS) -o $@ -lm
	@ln -sf $(@F) $(@D)/$(SONAME)
	@ln -sf $(SONAME) $(@D)/libtensornet.so

clean:
	rm -rf build
