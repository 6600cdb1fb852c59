# cudasim.mk - the CPU stand-in for CUDA, and its tests.  Included by the Makefile, which sets BUILD, WARNINGS and, where
# there is nvcc, CUDA_HOME, after regress/unit/ops/ops.mk, whose tests it runs on the stand-in.
#
# $(BUILD)/libcudasim.a takes the place of NVIDIA's libraries.  It is compiled against NVIDIA's headers, so that every call
# has the signature it says; where they are not found, CUDASIM_SKIPPED says so and nothing of this is built.

CUDASIM_HOME = $(firstword $(CUDA_HOME) $(wildcard /usr/local/cuda) /usr)
CUDASIM_HEADERS = cuda_runtime.h cublasLt.h cudnn.h nccl.h
CUDASIM_MISSING = $(strip $(foreach header,$(CUDASIM_HEADERS),\
	$(if $(wildcard $(CUDASIM_HOME)/include/$(header) /usr/include/$(header)),,$(header))))

ifneq ($(CUDASIM_MISSING),)
CUDASIM_SKIPPED = CUDA is not simulated: there is no $(CUDASIM_MISSING) below $(CUDASIM_HOME)/include
else

CUDASIM_CXXFLAGS = -std=gnu++17 -O3 -g $(WARNINGS) -Wno-unused-parameter -I. -isystem $(CUDASIM_HOME)/include -MMD -MP
CUDASIM_LIB = $(BUILD)/libcudasim.a
CUDASIM_LIBS = -lstdc++ -lm -pthread
CUDASIM_OBJECTS = $(patsubst regress/cudasim/%.cpp,$(BUILD)/cudasim/%.o,$(wildcard regress/cudasim/*.cpp))
CUDASIM_TEST_OBJECTS = $(patsubst regress/unit/cudasim/%,$(BUILD)/cudasim-test/%.o,\
	$(wildcard regress/unit/cudasim/*.c regress/unit/cudasim/*.cu))

UNIT_TESTS += $(BUILD)/test_cudasim

$(BUILD)/cudasim/%.o: regress/cudasim/%.cpp
	@mkdir -p $(@D)
	$(CXX) $(CUDASIM_CXXFLAGS) -c $< -o $@

$(CUDASIM_LIB): $(CUDASIM_OBJECTS)
	@rm -f $@
	$(AR) rcs $@ $^

$(BUILD)/cudasim-test/%.c.o: regress/unit/cudasim/%.c
	@mkdir -p $(@D)
	$(CC) -std=gnu11 -O2 -g $(WARNINGS) -I. -isystem $(CUDASIM_HOME)/include -MMD -MP -c $< -o $@

$(BUILD)/cudasim-test/%.cu.o: regress/unit/cudasim/%.cu
	@mkdir -p $(@D)
	$(CXX) $(CUDASIM_CXXFLAGS) -DPGT_CUDASIM -x c++ -c $< -o $@

$(BUILD)/test_cudasim: $(CUDASIM_TEST_OBJECTS) $(CUDASIM_LIB)
	$(CC) -o $@ $^ $(CUDASIM_LIBS)

# The CUDA backend's kernels compiled by g++, on the stand-in: all tests of the operations, and of failures.
CUDASIM_BACKEND_OBJECTS = $(patsubst %,$(BUILD)/cudasim-backend/%.o,kernels/error.c $(wildcard kernels/cuda/*.c kernels/cuda/*.cu))
OPS_CUDA_TEST_SOURCES = $(OPS_TEST_SOURCES) devices_cuda.c test_cuda.c
OPS_CUDA_TEST_OBJECTS = $(OPS_CUDA_TEST_SOURCES:%.c=$(BUILD)/ops-cuda-test/%.o)

UNIT_TESTS += $(BUILD)/test_ops_cuda

$(BUILD)/cudasim-backend/%.c.o: %.c
	@mkdir -p $(@D)
	$(CC) -std=gnu11 -O2 -g $(WARNINGS) -DPGT_CUDASIM -I. -isystem $(CUDASIM_HOME)/include -MMD -MP -c $< -o $@

$(BUILD)/cudasim-backend/%.cu.o: %.cu
	@mkdir -p $(@D)
	$(CXX) $(CUDASIM_CXXFLAGS) -Wno-unknown-pragmas -DPGT_CUDASIM -x c++ -c $< -o $@

$(BUILD)/ops-cuda-test/%.o: regress/unit/ops/%.c
	@mkdir -p $(@D)
	$(CC) $(OPS_TEST_CFLAGS) -isystem $(CUDASIM_HOME)/include -c $< -o $@

$(BUILD)/test_ops_cuda: $(OPS_CUDA_TEST_OBJECTS) $(CUDASIM_BACKEND_OBJECTS) $(CUDASIM_LIB)
	$(CC) -o $@ $^ $(CUDASIM_LIBS)

# The engine's own tests once more, over that backend: whole trainings against PyTorch's figures among them.
ENGINE_CUDA_TEST_OBJECTS = $(filter-out %/test_session.o %/client.o,$(ENGINE_TEST_OBJECTS))

UNIT_TESTS += $(BUILD)/test_engine_cuda

$(BUILD)/test_engine_cuda: $(ENGINE_CUDA_TEST_OBJECTS) $(ENGINE_OBJECTS) $(PGT_CPU_ENGINE_LIB) \
		$(filter-out %/error.c.o,$(CUDASIM_BACKEND_OBJECTS)) $(CUDASIM_LIB)
	$(CC) -o $@ $^ $(PGT_CPU_ENGINE_LIBS) $(CUDASIM_LIBS)

.PHONY: check-cudasim
check-cudasim: $(BUILD)/test_cudasim
	$(BUILD)/test_cudasim

endif

-include $(wildcard $(BUILD)/cudasim/*.d $(BUILD)/cudasim-test/*.d $(BUILD)/ops-cuda-test/*.d \
	$(BUILD)/cudasim-backend/*/*.d $(BUILD)/cudasim-backend/*/*/*.d)
