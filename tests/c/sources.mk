# The sources and headers of the layers below support/, which know no Python, as
# the table in docs/internals/architecture.md lists them. ROOT is set before.
LAYERS := $(filter-out support,$(shell sed -n \
	'/<!-- layers -->/,/`support/s/^| `\([a-z]*\)\/`.*/\1/p' \
	$(ROOT)/docs/internals/architecture.md))
# On other systems than Linux (SYSTEM says which).
ifneq ($(SYSTEM),)
LAYERS := $(filter-out share,$(LAYERS))
endif
CORE := $(shell find $(addprefix $(ROOT)/csrc/,$(LAYERS)) -name '*.c')
# The part of the test device that knows no Python either.
SOFTWARE := $(addprefix $(ROOT)/csrc/test_device/,engine.c engine_calls.c engine_memory.c \
	engine_races.c engine_runs.c software.c)
HEADERS := $(shell find $(ROOT)/csrc -name '*.h' -o -name '*.def' -o -name '*.inc')
