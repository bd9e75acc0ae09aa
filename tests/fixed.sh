#!/bin/sh
# sh tests/fixed.sh PROGRAM ARGUMENTS...: runs it at addresses that are not random. Where a kernel shuffles them widely, the shadow memory
# of an older thread sanitizer finds its place taken. Contexts have three threads, however few processors there are.
export OMP_NUM_THREADS=3
if setarch -R true 2>/dev/null; then exec setarch -R "$@"; fi
exec "$@"
