# engine.mk - the engine program, the engine's part of the module, and their unit tests.  Included by the Makefile, which
# sets BUILD, WARNINGS and SANITIZE, after kernels/kernels.mk, which makes the archives of operations.

ENGINE_CFLAGS = -std=gnu11 -O2 -g $(WARNINGS) -I. -MMD -MP
ENGINE_LIBS = $(PGT_CPU_ENGINE_LIBS) -lpthread -ldl

# What scoring needs, and what training adds.
ENGINE_MODEL_SOURCES = layers.c tensors.c program.c network.c model.c
ENGINE_TRAIN_SOURCES = backward.c optimizer.c shuffle.c dataset.c split.c device_data.c train_spec.c train.c protocol.c \
	devices.c session.c
ENGINE_SOURCES = $(ENGINE_MODEL_SOURCES) $(ENGINE_TRAIN_SOURCES)

# test_scoring links the module's archives, test_engine the rest.
ENGINE_TEST_SOURCES = $(filter-out test_scoring.c,$(notdir $(wildcard regress/unit/engine/*.c)))
ENGINE_SCORING_TEST_SOURCES = test_scoring.c layers_text.c

ENGINE_OBJECTS = $(ENGINE_SOURCES:%.c=$(BUILD)/engine/%.o)
ENGINE_SCORING_OBJECTS = $(ENGINE_MODEL_SOURCES:%.c=$(BUILD)/engine-scoring/%.o)
ENGINE_TEST_OBJECTS = $(ENGINE_TEST_SOURCES:%.c=$(BUILD)/engine-test/%.o)
ENGINE_SCORING_TEST_OBJECTS = $(ENGINE_SCORING_TEST_SOURCES:%.c=$(BUILD)/engine-test/%.o)
ENGINE_SANITIZED_OBJECTS = $(ENGINE_SOURCES:%.c=$(BUILD)/engine-sanitized/%.o)
ENGINE_SANITIZED_TEST_OBJECTS = $(ENGINE_TEST_SOURCES:%.c=$(BUILD)/engine-test-sanitized/%.o)

UNIT_TESTS += $(BUILD)/test_engine $(BUILD)/test_scoring
SANITIZED_UNIT_TESTS += $(BUILD)/sanitized/test_engine

# rows are added up as they arrive: worth vector code
$(BUILD)/engine/dataset.o: ENGINE_CFLAGS += -O3

$(BUILD)/engine/%.o: engine/%.c
	@mkdir -p $(@D)
	$(CC) $(ENGINE_CFLAGS) -DPG_TRAIN_VERSION='"$(EXTVERSION)"' -c $< -o $@

$(BUILD)/engine-scoring/%.o: engine/%.c
	@mkdir -p $(@D)
	$(CC) $(ENGINE_CFLAGS) -fPIC -fvisibility=hidden -c $< -o $@

$(BUILD)/engine-sanitized/%.o: engine/%.c
	@mkdir -p $(@D)
	$(CC) $(ENGINE_CFLAGS) $(SANITIZE) -DPG_TRAIN_VERSION='"$(EXTVERSION)"' -c $< -o $@

$(BUILD)/engine-test/%.o: regress/unit/engine/%.c
	@mkdir -p $(@D)
	$(CC) $(ENGINE_CFLAGS) -c $< -o $@

$(BUILD)/engine-test-sanitized/%.o: regress/unit/engine/%.c
	@mkdir -p $(@D)
	$(CC) $(ENGINE_CFLAGS) $(SANITIZE) -c $< -o $@

$(BUILD)/pg_train_engine: $(BUILD)/engine/main.o $(ENGINE_OBJECTS) $(PGT_CPU_ENGINE_LIB)
	$(CC) -o $@ $^ $(ENGINE_LIBS)

$(BUILD)/libpgt_model_scoring.a: $(ENGINE_SCORING_OBJECTS)
	@rm -f $@
	$(AR) rcs $@ $^

# The tests start the engine program that lies beside them.
$(BUILD)/test_engine: $(ENGINE_TEST_OBJECTS) $(ENGINE_OBJECTS) $(PGT_CPU_ENGINE_LIB) | $(BUILD)/pg_train_engine
	$(CC) -o $@ $^ $(ENGINE_LIBS)

$(BUILD)/test_scoring: $(ENGINE_SCORING_TEST_OBJECTS) $(BUILD)/libpgt_model_scoring.a $(PGT_CPU_SCORING_LIB)
	$(CC) -o $@ $^ -lm

$(BUILD)/sanitized/pg_train_engine: $(BUILD)/engine-sanitized/main.o $(ENGINE_SANITIZED_OBJECTS) $(PGT_CPU_ENGINE_LIB)
	@mkdir -p $(@D)
	$(CC) $(SANITIZE) -o $@ $^ $(ENGINE_LIBS)

$(BUILD)/sanitized/test_engine: $(ENGINE_SANITIZED_TEST_OBJECTS) $(ENGINE_SANITIZED_OBJECTS) $(PGT_CPU_ENGINE_LIB) \
		| $(BUILD)/sanitized/pg_train_engine
	@mkdir -p $(@D)
	$(CC) $(SANITIZE) -o $@ $^ $(ENGINE_LIBS)

.PHONY: check-engine check-engine-sanitized
check-engine: $(BUILD)/pg_train_engine $(BUILD)/test_engine $(BUILD)/test_scoring
	$(BUILD)/test_engine
	$(BUILD)/test_scoring

check-engine-sanitized: $(BUILD)/sanitized/pg_train_engine $(BUILD)/sanitized/test_engine
	$(BUILD)/sanitized/test_engine

-include $(wildcard $(BUILD)/engine*/*.d)
