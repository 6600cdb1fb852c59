# pg_train.so, by PGXS.  Run by the Makefile above, from the project's root.

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs 2>/dev/null)
ifeq ($(wildcard $(PGXS)),)
$(error $(PG_CONFIG) finds no PostgreSQL server headers: "make deps" installs them, or set PG_CONFIG)
endif

MODULE_big = pg_train
EXTENSION = pg_train
OBJS = $(patsubst %.c,%.o,$(sort $(wildcard extension/*.c loader/*.c)))
DATA_built = pg_train--$(EXTVERSION).sql

# PostgreSQL's own headers are not clean under -Wextra in these two respects.
PG_CPPFLAGS = -I.
PG_CFLAGS = -Wall -Wextra -Wno-unused-parameter -Wno-sign-compare -Wno-missing-field-initializers -Werror \
	-MMD -MP

# Symbols of the engine and the kernels stay inside, and none of ours is taken from another module.
SHLIB_LINK = $(SCORING_ARCHIVES) -Wl,--exclude-libs,ALL -Wl,-Bsymbolic -lm

# Bitcode would let the server inline our functions into its JIT code, where it gains nothing.
override with_llvm = no
# PGXS takes the folder of this file for the root.
override srcdir = .

include $(PGXS)

pg_train.so: $(SCORING_ARCHIVES)

# Encodes every row that is scored: its loops are to become vector instructions.
extension/row_binding.o: override CFLAGS += -O3

# Objects of one major version must not be linked into the module of another.
PG_STAMP = build/server-version
$(shell mkdir -p build; $(PG_CONFIG) --version --includedir-server >$(PG_STAMP).new; \
	cmp -s $(PG_STAMP).new $(PG_STAMP) && rm -f $(PG_STAMP).new || mv $(PG_STAMP).new $(PG_STAMP))
$(OBJS): $(PG_STAMP) extension/module.mk
-include $(OBJS:.o=.d)

pg_train--$(EXTVERSION).sql: sql/pg_train.sql
	cp $< $@

install: install-programs
uninstall: uninstall-programs

.PHONY: install-programs uninstall-programs
install-programs: installdirs
	$(INSTALL_PROGRAM) $(PROGRAMS) '$(DESTDIR)$(pkglibdir)/'

uninstall-programs:
	rm -f $(addprefix '$(DESTDIR)$(pkglibdir)'/,$(notdir $(PROGRAMS)))
