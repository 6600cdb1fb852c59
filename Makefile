# pg_train: build, install, demo, check, bench
#
# The engine and the kernels know no PostgreSQL, so their rules stand apart (engine/engine.mk, kernels/kernels.mk)
# and never see its flags; the module is built by PGXS in a make of its own (extension/module.mk).  That also lets
# "make deps", "make demo" and "make check" start on a machine that has no PostgreSQL yet.
#
#   PG_CONFIG=...   the pg_config of the PostgreSQL to build for
#   DESTDIR=...     stage "make install" below a folder

EXTENSION = pg_train
EXTVERSION = 0.1.0
PG_CONFIG ?= pg_config
export PG_CONFIG

BUILD = build
WARNINGS = -Wall -Wextra -Werror
SANITIZE = -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer

.PHONY: all install uninstall clean deps demo demo-stop check bench module
.DELETE_ON_ERROR:

all: module

include kernels/kernels.mk engine/engine.mk regress/unit/ops/ops.mk

ENGINE = $(BUILD)/pg_train_engine
# The part of the engine that scores inside a backend; in link order.
SCORING_ARCHIVES = $(BUILD)/libpgt_model_scoring.a $(BUILD)/libpgt_cpu_scoring.a

# The CUDA library is built where nvcc is; the engine opens it with dlopen and lives without it.
NVCC ?= $(firstword $(wildcard /usr/local/cuda/bin/nvcc) $(shell command -v nvcc 2>/dev/null))
ifneq ($(and $(NVCC),$(wildcard kernels/cuda/*.cu)),)
include kernels/cuda/cuda.mk
CUDA_LIBRARY = $(BUILD)/pg_train_cuda.so
endif

# CUDA on the CPU, for tests; it needs NVIDIA's headers only.
include regress/cudasim/cudasim.mk

MODULE_MAKE = $(MAKE) --no-print-directory -f extension/module.mk EXTVERSION=$(EXTVERSION) \
	SCORING_ARCHIVES="$(SCORING_ARCHIVES)"

module: $(SCORING_ARCHIVES) $(ENGINE) $(CUDA_LIBRARY)
	@$(MODULE_MAKE) all

# The extension starts the engine by its absolute path below pkglibdir.
install: module
	@$(MODULE_MAKE) install PROGRAMS="$(ENGINE) $(CUDA_LIBRARY)"

uninstall:
	@$(MODULE_MAKE) uninstall PROGRAMS="$(ENGINE) $(CUDA_LIBRARY)"

clean:
	rm -rf $(BUILD) $(EXTENSION).so $(EXTENSION)--$(EXTVERSION).sql
	rm -f extension/*.[od] extension/*.bc loader/*.[od] loader/*.bc

# Install what the build and the tests need, or say what is missing.
deps:
	@scripts/deps.sh

# Train and score Fashion-MNIST in a private server.  KEEP=1 leaves it running, demo-stop ends it.
demo:
	@scripts/demo.sh

demo-stop:
	@scripts/demo.sh stop

check:
	@scripts/check.sh

bench:
	@bench/bench.sh

# What a variable holds, for the scripts.
print-%:
	@echo $($*)
