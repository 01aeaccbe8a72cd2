# gsel: a thin front on CMake that also installs the Debian packages that are missing.
#
#   make            build into build/                 make test     build, and run every test
#   make dev        build into build-dev/, each file by itself: what is changed is compiled and linked soonest
#   make run        build, and train a small GPT      make install  PREFIX=/usr/local, DESTDIR=
#   make bench      what is claimed about speed       make clean    remove what was built
#   make bench-comm gsel's communicator beside Open MPI, MPICH, Gloo and memcpy; writes bench/results/comm.{md,svg}
#   make bench-hosts  the same between two hosts, which are network namespaces (root), and gsel over an MPI beside that MPI
#                   itself, and gsel with ranks in other places; writes bench/results/hosts.md, direct.md and places.md
#   make bench-train  examples/gpt beside PyTorch and beside a loop by hand; writes bench/results/train.md
#   make bench-build  what a build costs in time and size; writes bench/results/build.md
#   make bench-fresh  make run, test, asan and tsan on a fresh Debian 12 (root, debootstrap); writes bench/results/fresh.md
#   make bench-pipeline  pipelines as they run beside their simulation; writes bench/results/pipeline.md
#   make bench-plan  the planner beside what this machine then does; writes bench/results/plan-host.md
#   make bench-rust  what a call from Rust costs over C; writes bench/results/rust.md
#   make bench-go   what a call from Go costs over C; writes bench/results/go.md
#   make bench-gpu  on a machine with a card: kernels beside a copy, calls beside NCCL's own, a step of examples/gpt beside
#                   a loop by hand and PyTorch; writes bench/results/gpu-NAME.md with the card's name, within 270 s
#   make bench-checkpoint  saves and loads beside the disk and PyTorch (python3-torch), the loss of a rank; writes
#                   bench/results/checkpoint.md
#   make bench-executor  host time of the executor for an instruction; writes bench/results/executor.md
#   make bench-device  kernels of the cuda device beside a copy, on the screen
#   make bench-tensor  a model that two ranks share: decoding, training; writes bench/results/tensor.md
#   make table      trains examples/gpt with every strategy; writes the table of its README
#   make deb        Debian packages, in build-deb/packages
#   make reproducible  builds everything twice, in other folders and surroundings, and compares the bytes
#   make install-debug  the debug information of what is installed, beside it
#   make picture    one step of examples/gpt as it ran; writes docs/pictures/step.svg, the picture of README.md
#   make matrix     every combination of strategies against one rank, as a table
#   make checkpoint-matrix  what each layout saves, loaded under each, as a table
#   make matrix-device  the same on device memory, on the doubles of the driver and of NCCL; with ONE_CARD=1 all ranks
#                   share one device. The program itself takes --cuda and --one-card where there are cards
#   make matrix-hosts  conformance and strategies on two hosts with two ranks each, over gloo and each MPI (root);
#                   writes bench/results/matrix-hosts.md
#   make soak       the nets of tests/nets for SOAK_MINUTES=60, with seeds of their own
#   make test-gpu   the tests that a machine with a card can run, on it, within 210 s
#   make gpu-bundle  what test-gpu and bench-gpu run, as a folder for a machine that cannot build: build/gpu-bundle
#   make asan       the tests under the address and undefined-behaviour sanitizers
#   make tsan       the tests under the thread sanitizer
#   make docs       the pages of docs/ and the interface as HTML, by Doxygen, into build/docs/html
#   make tidy       clang-tidy over lib/, plugins/ and bindings/, with the checks of .clang-tidy
#
# DOUBLE=1 lets test-gpu and bench-gpu run over a double of CUDA's driver, where there is no card.
# GSEL_NO_INSTALL=1 names missing packages and stops. DATA=file gives `make run` another text to train on.
# COMM=options goes to the driver of bench-comm, such as COMM=--short; build/bin/bench_comm --help lists them. The same
# of TRAIN and bench-train: TRAIN=--short; bench/train/run.py --help.
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
TEST_JOBS ?= $(shell expr $(JOBS) + 1) # many tests mostly wait
DATA ?= build/data/kjv.txt
export GSEL_NO_INSTALL
export NINJA_STATUS = gsel: step %f of %t: 

.PHONY: all build dev packages packages-run packages-test packages-peers packages-train packages-tidy packages-docs docs data run table picture matrix checkpoint-matrix matrix-device matrix-hosts test asan \
        tsan tidy bench bench-build bench-comm bench-hosts bench-train bench-pipeline bench-plan bench-tensor bench-rust bench-go bench-device bench-executor bench-checkpoint bench-gpu bench-fresh test-gpu gpu-bundle install install-debug deb reproducible packages-deb clean soak

all: build

packages:
	@.ci/packages build
packages-run:
	@.ci/packages build run
packages-test:
	@.ci/packages build test
packages-peers: packages
	@.ci/packages peers || echo "gsel: bench-comm goes on without them" >&2

packages-train:
	@.ci/packages build run train
packages-deb:
	@.ci/packages build deb
packages-docs:
	@.ci/packages docs
packages-tidy:
	@.ci/packages build tidy

# Before the build: a text that is not there would be noticed only after it.
data:
	@[ "$(DATA)" = build/data/kjv.txt ] || [ -f "$(DATA)" ] || { echo "gsel: DATA=$(DATA): no such file" >&2; exit 1; }

# $(call build,PRESET[,TARGET]): configures and builds build/ or build-PRESET/.
define build
	@output=$$(cmake --preset $(1) 2>&1) || { echo "$$output"; exit 1; }; \
	  printf '%s\n' "$$output" | sed -n 's/^-- \(.*left out.*\)/\1/p' > $(if $(filter default,$(1)),build,build-$(1))/left-out.txt
	@cmake --build --preset $(1) -j $(JOBS) $(if $(2),--target $(2))
endef

build: packages
	$(call build,default)

dev: packages
	$(call build,dev)

run: data packages-run
	@echo "gsel: building what the run needs"
	$(call build,default,run_parts)
	@$(MAKE) -s --no-print-directory $(DATA)
	@examples/gpt/demo.sh build/bin $(DATA)

# Every strategy in turn: about five minutes on two free cores.
table: data packages-run
	$(call build,default,run_parts)
	@$(MAKE) -s --no-print-directory $(DATA)
	@examples/gpt/strategies/run.sh build/bin $(DATA) examples/gpt/README.md

picture: data packages-run
	$(call build,default,run_parts)
	@$(MAKE) -s --no-print-directory $(DATA)
	@examples/gpt/picture.sh build/bin $(DATA) docs/pictures/step.svg

# All combinations of the three axes' strategies, up to eight ranks: about three minutes on two free cores.
matrix: data packages-run
	$(call build,default,run_parts)
	@$(MAKE) -s --no-print-directory $(DATA)
	@build/bin/gpt-matrix $(DATA)

checkpoint-matrix: data packages-run
	$(call build,default,run_parts)
	@$(MAKE) -s --no-print-directory $(DATA)
	@build/bin/gpt-checkpoints $(DATA)

matrix-device: data packages-run
	$(call build,default,matrix_device_parts)
	@$(MAKE) -s --no-print-directory $(DATA)
	@LD_LIBRARY_PATH=build/tests/fixtures/drivers GSEL_FAKE_CUDA_DEVICES=8 build/bin/gpt-matrix $(DATA) $(if $(ONE_CARD),--one-card,--cuda)

# MATRIX=programs tries these alone.
matrix-hosts: packages-test
	$(call build,default)
	@tests/hosts/matrix.sh build $(MATRIX) > build/matrix-hosts.md; status=$$?; cat build/matrix-hosts.md; \
	  [ $$status != 0 ] || cp build/matrix-hosts.md bench/results/matrix-hosts.md; exit $$status

# The King James Bible, in the public domain, as Debian packages it.
build/data/kjv.txt:
	@mkdir -p $(@D)
	@echo "gsel: printing the King James Bible to $@"
	@bible -f gen1:1-rev22:21 < /dev/null > $@.part && mv $@.part $@

test: packages-test
	$(call build,default)
	@.ci/tests.sh build $(TEST_JOBS)

# Each net has its share of the time; what it found stands in build/soak.log, with the seed to try it again.
SOAK_MINUTES ?= 60
soak: packages-test
	$(call build,default)
	@tests/nets/soak.sh build $(SOAK_MINUTES)

asan tsan: packages-test
	$(call build,$@)
	@.ci/tests.sh build-$@ $(TEST_JOBS)

# Clang compiles nothing here: it reads what it would compile, the files of a folder as one.
docs: packages-docs
	@docs/doxygen/run.sh build/docs && echo "gsel: wrote build/docs/html/index.html"

tidy: packages-tidy
	@output=$$(cmake --preset tidy 2>&1) || { echo "$$output"; exit 1; }
	@.ci/tidy build-tidy $(JOBS)

bench: data packages-run
	$(call build,default)
	@$(MAKE) -s --no-print-directory $(DATA)
	@bench/run.sh build/bin $(DATA)

bench-comm: packages-peers
	$(call build,default,bench_peers)
	@build/bin/bench_comm --bin build/bin --out build/bench-comm.txt $(COMM)
	@build/bin/bench_comm_report build/bench-comm.txt bench/results && echo "gsel: wrote bench/results/comm.md and comm.svg"

bench-hosts: packages-peers
	$(call build,default,bench_peers)
	@bench/hosts/run.sh build bench/results
	@bench/hosts/direct.sh build bench/results
	@bench/hosts/places.sh build bench/results

# Python and PyTorch are Debian's: another Python on the path may have other versions, or none.
bench-train: data packages-train
	$(call build,default,run_parts)
	@$(MAKE) -s --no-print-directory $(DATA)
	@/usr/bin/python3 bench/train/run.py --bin build/bin --data $(DATA) --out build/bench-train.jsonl $(TRAIN)
	@/usr/bin/python3 bench/train/report.py build/bench-train.jsonl bench/results/train.md && echo "gsel: wrote bench/results/train.md"

bench-build: packages-test
	@bench/build.sh bench/results/build.md && echo "gsel: wrote bench/results/build.md"

bench-device: packages
	$(call build,default,bench_device gsel_plugin_cuda)
	@build/bin/bench_device build/lib/gsel/plugins-1/cuda.so

bench-executor: packages
	$(call build,default,gpu_parts)
	@bench/executor.sh build bench/results/executor.md && echo "gsel: wrote bench/results/executor.md"

bench-checkpoint: packages
	$(call build,default,bench_checkpoint bench_elastic)
	@bench/checkpoint/run.sh build bench/results/checkpoint.md && echo "gsel: wrote bench/results/checkpoint.md"

# Nothing is installed for these two. A page of the double is no result, so it stays in build/.
bench-gpu:
	@GSEL_NO_INSTALL=1 .ci/packages build
	$(call build,default,gpu_parts)
	@bench/gpu/run.sh build $(if $(DOUBLE),build,bench/results) . $(if $(DOUBLE),double)

test-gpu:
	@GSEL_NO_INSTALL=1 .ci/packages build
	$(call build,default,gpu_parts)
	@tests/gpu/run.sh build . $(if $(DOUBLE),double)

gpu-bundle:
	@GSEL_NO_INSTALL=1 .ci/packages build
	$(call build,default,gpu_parts)
	@bench/gpu/bundle.sh build build/gpu-bundle

bench-fresh:
	@bench/fresh.sh bench/results/fresh.md && echo "gsel: wrote bench/results/fresh.md"

bench-pipeline: packages
	$(call build,default,pipeline_parts)
	@bench/pipeline/run.sh build/bin bench/results/pipeline.md && echo "gsel: wrote bench/results/pipeline.md"

bench-plan: packages-run
	$(call build,default,plan_parts)
	@bench/plan/run.sh build/bin bench/results/plan-host.md && echo "gsel: wrote bench/results/plan-host.md"

# Cargo, rustc and Go are among the packages of the tests.
bench-rust: packages-test
	$(call build,default)
	@bench/rust/run.sh build bench/results/rust.md && echo "gsel: wrote bench/results/rust.md"

bench-go: packages-test
	$(call build,default)
	@bench/go/run.sh build bench/results/go.md && echo "gsel: wrote bench/results/go.md"

bench-tensor: data packages-run
	$(call build,default,tensor_parts)
	@$(MAKE) -s --no-print-directory $(DATA)
	@bench/tensor/run.sh build/bin bench/results/tensor.md $(DATA) && echo "gsel: wrote bench/results/tensor.md"

install: build
	@cmake --install build --strip --prefix "$(PREFIX)" > build/install.log && echo "gsel: installed to $(DESTDIR)$(PREFIX)"
	@if [ -z "$(DESTDIR)" ] && [ "$$(id -u)" = 0 ]; then ldconfig; fi

# After `make install`; gdb and perf find it there.
install-debug:
	@cmake -D BUILD=build -D INSTALLED=build/install_manifest.txt -D OBJCOPY=objcopy -P lib/install_debug.cmake

# In a build tree of its own, with the folders of Debian: lib/x86_64-linux-gnu.
deb: packages-deb
	$(call build,deb)
	@rm -rf build-deb/packages
	@packaging/deb.sh build-deb build-deb/packages
	@if command -v lintian > /dev/null; then lintian --fail-on error build-deb/packages/*.deb; \
	  else echo "gsel: no lintian here, so nobody has looked at the packages"; fi

reproducible: packages-deb
	@packaging/reproducible.sh

clean:
	@rm -rf build build-deb build-dev build-asan build-tsan build-tidy
