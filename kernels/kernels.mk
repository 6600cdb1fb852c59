# kernels.mk - the CPU backend as two static archives, for the top Makefile to include.
#
#   $(PGT_CPU_ENGINE_LIB)   with OpenMP, and oneDNN where its header is: for pg_train_engine.  Link with
#                           $(PGT_CPU_ENGINE_LIBS)
#   $(PGT_CPU_SCORING_LIB)  without threads or libraries: for pg_train.so.  Link with -lm
#
# The files of CPU_ISA_SRCS are compiled once for each instruction set of CPU_ISAS; the best one is picked when
# the program runs.  HAVE_ONEDNN=no leaves oneDNN out, WERROR= lets warnings pass.

BUILD ?= build
KERNELS_CC ?= $(CC)
KERNELS_OPT ?= -O3
WERROR ?= -Werror

CPU_SRCS = kernels/error.c kernels/cpu/backend.c kernels/cpu/processors.c
CPU_ISA_SRCS = kernels/cpu/ops.c kernels/cpu/tile.c kernels/cpu/gemm.c kernels/cpu/linear.c \
	kernels/cpu/conv.c kernels/cpu/winograd.c kernels/cpu/pool.c kernels/cpu/norm.c kernels/cpu/elementwise.c \
	kernels/cpu/optimizer.c kernels/cpu/loss.c kernels/cpu/gather.c
KERNELS_HEADERS = $(wildcard kernels/*.h kernels/cpu/*.h)

# No -ffast-math: NaN and infinity must pass through.  What is given up is errno and floating-point traps.
KERNELS_CFLAGS = -std=gnu11 $(KERNELS_OPT) -g -Wall -Wextra $(WERROR) -I. \
	-fno-math-errno -fno-trapping-math $(KERNELS_EXTRA_CFLAGS)

ifneq ($(filter x86_64 amd64,$(shell uname -m)),)
CPU_ISAS = sse2 avx2 avx512
KERNELS_CFLAGS += -DPGT_HAVE_X86
else
CPU_ISAS = sse2
endif
CPU_ISA_FLAGS_sse2 =
CPU_ISA_FLAGS_avx2 = -mavx2 -mfma -mprefer-vector-width=256
CPU_ISA_FLAGS_avx512 = -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma -mprefer-vector-width=512

ifndef HAVE_ONEDNN
HAVE_ONEDNN := $(if $(wildcard /usr/include/dnnl.h /usr/local/include/dnnl.h),yes,no)
endif

CPU_ENGINE_CFLAGS = $(KERNELS_CFLAGS) -fopenmp -DPGT_ENGINE
ifeq ($(HAVE_ONEDNN),yes)
CPU_ENGINE_SRCS = kernels/cpu/onednn.c
CPU_ENGINE_CFLAGS += -DHAVE_ONEDNN
ONEDNN_LIBS = -ldnnl
endif
CPU_SCORING_CFLAGS = $(KERNELS_CFLAGS) -fPIC -fvisibility=hidden -Wno-unknown-pragmas

PGT_CPU_ENGINE_LIB = $(BUILD)/libpgt_cpu_engine.a
PGT_CPU_ENGINE_LIBS = $(ONEDNN_LIBS) -fopenmp -lm
PGT_CPU_SCORING_LIB = $(BUILD)/libpgt_cpu_scoring.a

cpu_objects = $(patsubst kernels/%.c,$(BUILD)/kernels/$(1)/%.o,$(CPU_SRCS) $(if $(filter scoring,$(1)),,$(CPU_ENGINE_SRCS))) \
	$(foreach isa,$(CPU_ISAS),$(patsubst kernels/%.c,$(BUILD)/kernels/$(1)/%.$(isa).o,$(CPU_ISA_SRCS)))

$(PGT_CPU_ENGINE_LIB): $(call cpu_objects,engine)
	@rm -f $@
	$(AR) rcs $@ $^

$(PGT_CPU_SCORING_LIB): $(call cpu_objects,scoring)
	@rm -f $@
	$(AR) rcs $@ $^

# $(1) build, $(2) its flags, $(3) instruction set
define CPU_ISA_RULE
$(BUILD)/kernels/$(1)/%.$(3).o: kernels/%.c $(KERNELS_HEADERS) kernels/kernels.mk
	@mkdir -p $$(@D)
	$(KERNELS_CC) $$($(2)) $(CPU_ISA_FLAGS_$(3)) -DPGT_ISA=$(3) -c -o $$@ $$<
endef

define CPU_RULES
$(foreach isa,$(CPU_ISAS),$(eval $(call CPU_ISA_RULE,$(1),$(2),$(isa))))
$(BUILD)/kernels/$(1)/%.o: kernels/%.c $(KERNELS_HEADERS) kernels/kernels.mk
	@mkdir -p $$(@D)
	$(KERNELS_CC) $$($(2)) -c -o $$@ $$<
endef

$(eval $(call CPU_RULES,engine,CPU_ENGINE_CFLAGS))
$(eval $(call CPU_RULES,scoring,CPU_SCORING_CFLAGS))

.PHONY: kernels-clean
kernels-clean:
	rm -rf $(BUILD)/kernels $(PGT_CPU_ENGINE_LIB) $(PGT_CPU_SCORING_LIB)
