# cuda.mk - the CUDA backend as a shared object, for the top Makefile to include where nvcc is.
#
#   $(CUDA_LIBRARY)   opened by the engine with dlopen; shows one symbol, pg_train_backend.  cudart is linked
#                     statically, cuBLASLt has to be installed, cuDNN is opened when it is needed
#
# CUDA_GENCODE says for which devices there is code; newer ones compile the PTX when they load it.

CUDA_HOME ?= $(patsubst %/bin/nvcc,%,$(realpath $(NVCC)))
CUDA_GENCODE ?= -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 \
	-gencode arch=compute_90,code=compute_90
CUDA_LIBRARY ?= $(BUILD)/pg_train_cuda.so

CUDA_HEADERS = $(wildcard kernels/*.h kernels/cuda/*.h)
CUDA_C_SRCS = kernels/error.c $(wildcard kernels/cuda/*.c)
CUDA_CU_SRCS = $(wildcard kernels/cuda/*.cu)
CUDA_OBJECTS = $(patsubst kernels/%,$(BUILD)/kernels/shared/%.o,$(CUDA_C_SRCS) $(CUDA_CU_SRCS))

CUDA_CFLAGS = -std=gnu11 -O2 -g -fPIC -fvisibility=hidden -Wall -Wextra $(WERROR) -I. -isystem $(CUDA_HOME)/include
# A kernel that spills or keeps arrays in memory is slow without saying so.
CUDA_NVCCFLAGS = -std=c++17 -O3 -lineinfo -I. $(CUDA_GENCODE) -Xcompiler -fPIC,-fvisibility=hidden,-Wall,-Wextra \
	$(if $(WERROR),-Werror all-warnings -Xcompiler -Werror -Xptxas -Werror) -Xptxas -warn-spills,-warn-lmem-usage

CUDA_LIBS = -L$(CUDA_HOME)/lib64 -Wl,-rpath,$(CUDA_HOME)/lib64 -l:libcudart_static.a -lcublasLt -ldl -lrt -lpthread -lm

$(BUILD)/kernels/shared/%.c.o: kernels/%.c $(CUDA_HEADERS) kernels/cuda/cuda.mk
	@mkdir -p $(@D)
	$(CC) $(CUDA_CFLAGS) -c -o $@ $<

$(BUILD)/kernels/shared/%.cu.o: kernels/%.cu $(CUDA_HEADERS) kernels/cuda/cuda.mk
	@mkdir -p $(@D)
	$(NVCC) $(CUDA_NVCCFLAGS) -c -o $@ $<

$(CUDA_LIBRARY): $(CUDA_OBJECTS) kernels/cuda/exports.map
	$(CXX) -shared -o $@ $(CUDA_OBJECTS) -Wl,--exclude-libs,ALL -Wl,--version-script=kernels/cuda/exports.map \
		-Wl,-z,defs -static-libstdc++ -static-libgcc $(CUDA_LIBS)
