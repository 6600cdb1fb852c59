# ops.mk - the unit tests of the operations.  Included by the Makefile, which sets BUILD, WARNINGS and SANITIZE, after
# kernels/kernels.mk, which makes the archive that they test.
#
# The sanitized program has the kernels sanitized, too, in objects of their own.

# OPS_TEST_SOURCES know no backend; the others are of the CPU's.
OPS_TEST_SOURCES = main.c device.c reference.c \
	$(filter-out test_cpu.c test_cuda.c,$(notdir $(wildcard regress/unit/ops/test_*.c)))
OPS_CPU_TEST_SOURCES = $(OPS_TEST_SOURCES) devices_cpu.c test_cpu.c
OPS_TEST_CFLAGS = -std=gnu11 -O2 -g $(WARNINGS) -I. -MMD -MP

OPS_TEST_OBJECTS = $(OPS_CPU_TEST_SOURCES:%.c=$(BUILD)/ops-test/%.o)
OPS_SANITIZED_TEST_OBJECTS = $(OPS_CPU_TEST_SOURCES:%.c=$(BUILD)/ops-test-sanitized/%.o)
OPS_SANITIZED_OBJECTS = $(call cpu_objects,sanitized)
CPU_SANITIZED_CFLAGS = $(CPU_ENGINE_CFLAGS) -O1 $(SANITIZE)

UNIT_TESTS += $(BUILD)/test_ops
SANITIZED_UNIT_TESTS += $(BUILD)/sanitized/test_ops

$(eval $(call CPU_RULES,sanitized,CPU_SANITIZED_CFLAGS))

$(BUILD)/ops-test/%.o: regress/unit/ops/%.c
	@mkdir -p $(@D)
	$(CC) $(OPS_TEST_CFLAGS) -c $< -o $@

$(BUILD)/ops-test-sanitized/%.o: regress/unit/ops/%.c
	@mkdir -p $(@D)
	$(CC) $(OPS_TEST_CFLAGS) $(SANITIZE) -c $< -o $@

$(BUILD)/test_ops: $(OPS_TEST_OBJECTS) $(PGT_CPU_ENGINE_LIB)
	$(CC) -o $@ $^ $(PGT_CPU_ENGINE_LIBS)

$(BUILD)/sanitized/test_ops: $(OPS_SANITIZED_TEST_OBJECTS) $(OPS_SANITIZED_OBJECTS)
	@mkdir -p $(@D)
	$(CC) $(SANITIZE) -o $@ $^ $(PGT_CPU_ENGINE_LIBS)

.PHONY: check-ops check-ops-sanitized
check-ops: $(BUILD)/test_ops
	$(BUILD)/test_ops

check-ops-sanitized: $(BUILD)/sanitized/test_ops
	$(BUILD)/sanitized/test_ops

-include $(wildcard $(BUILD)/ops-test*/*.d)
