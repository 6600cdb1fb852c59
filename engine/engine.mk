# engine.mk - the engine program, the engine's part of the module, and their unit tests.  Included by the Makefile, which
# sets BUILD and WARNINGS; kernels/kernels.mk sets ONEDNN_LIBS and makes the archives of operations.

ENGINE_CFLAGS = -std=gnu11 -O2 -g $(WARNINGS) -I. -MMD -MP
ENGINE_LIBS = $(ONEDNN_LIBS) -fopenmp -lm -lpthread

# What scoring needs, and what training adds.
ENGINE_MODEL_SOURCES = layers.c tensors.c program.c network.c model.c
ENGINE_TRAIN_SOURCES = backward.c optimizer.c shuffle.c dataset.c split.c train.c protocol.c session.c
ENGINE_SOURCES = $(ENGINE_MODEL_SOURCES) $(ENGINE_TRAIN_SOURCES)

ENGINE_OBJECTS = $(ENGINE_SOURCES:%.c=$(BUILD)/engine/%.o)
ENGINE_SCORING_OBJECTS = $(ENGINE_MODEL_SOURCES:%.c=$(BUILD)/engine-scoring/%.o)
ENGINE_KERNELS = $(BUILD)/libpgt_cpu_engine.a

ENGINE_TEST_SOURCES = $(notdir $(wildcard regress/unit/engine/*.c))
ENGINE_TESTS = $(BUILD)/test_engine $(BUILD)/test_scoring

# rows are added up as they arrive: worth vector code
$(BUILD)/engine/dataset.o $(BUILD)/engine/split.o: ENGINE_CFLAGS += -O3

$(BUILD)/engine/%.o: engine/%.c
	@mkdir -p $(@D)
	$(CC) $(ENGINE_CFLAGS) -DPG_TRAIN_VERSION='"$(EXTVERSION)"' -c $< -o $@

$(BUILD)/engine-scoring/%.o: engine/%.c
	@mkdir -p $(@D)
	$(CC) $(ENGINE_CFLAGS) -fPIC -fvisibility=hidden -c $< -o $@

$(BUILD)/pg_train_engine: $(BUILD)/engine/main.o $(ENGINE_OBJECTS) $(ENGINE_KERNELS)
	$(CC) -o $@ $^ $(ENGINE_LIBS)

$(BUILD)/libpgt_model_scoring.a: $(ENGINE_SCORING_OBJECTS)
	@rm -f $@
	$(AR) rcs $@ $^
