# The library as `make` builds it from src/: an object for each unit, and an archive of them. ../Makefile includes this file for
# the examples, tn and the shared library, and tests/Makefile for the tests that gcc compiles, so that what one of them has
# compiled serves the other.

CFLAGS = -O2 -g
STB    = /usr/include/stb
WARN   = -Wall -Wextra -Wpedantic -Wconversion -Wshadow
PNG_FLAGS = $(if $(wildcard $(STB)/stb_image_write.h),-DHAVE_STB_IMAGE_WRITE -isystem $(STB))

, := ,
Q    = $(if $(V),,@echo "  $@";)
linked_by_cc = $(shell echo 'int main(void) { return 0; }' | $(CC) $1 -x c - -o /dev/null >/dev/null 2>&1 && echo $1)
THREADS := -DTN_USE_THREADS $(call linked_by_cc,-pthread)
# The shared library has the same objects. Without interposition its calls of its own functions cost as much as in a program.
PIC     := -fPIC $(call linked_by_cc,-fno-semantic-interposition)
LIBRARY_UNITS = $(patsubst src/%.c,build/lib/%.o,$(wildcard src/*/*.c))
ARCHIVE  = build/lib/libtensornet.a
COMPILE  = $(CC) -std=c99 $(CFLAGS) $(THREADS) $(WARN) $(PNG_FLAGS) -Isrc -I. -MMD -MP
# A warning is an error where nobody would read it.
COMPILE_UNIT = $(COMPILE) $(PIC) $(if $(CI),-Werror)

# The time is kept as tests/build.sh keeps it.
build/lib/%.o: src/%.c build/lib/flags
	@mkdir -p $(@D)
	$(Q) $(COMPILE_UNIT) -c $< -o $@ && times > $@.seconds
$(ARCHIVE): $(LIBRARY_UNITS)
	@rm -f $@
	$(Q) $(AR) rcs $@ $(LIBRARY_UNITS)
# Other flags, such as those of a PNG writer that has been installed, make other objects, and so do other units.
build/lib/flags: FORCE
	@mkdir -p $(@D); echo '$(COMPILE_UNIT) $(LIBRARY_UNITS)' | cmp -s - $@ || echo '$(COMPILE_UNIT) $(LIBRARY_UNITS)' > $@
-include $(wildcard build/lib/*/*.d)
