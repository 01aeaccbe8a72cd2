#!/bin/sh
# The Makefile of examples/pipeline, copied away from the source, builds programs that run on the installed gsel.
. "$SOURCE/tests/install/common.sh"
cp "$SOURCE/examples/pipeline/Makefile" "$SOURCE"/examples/pipeline/*.c "$WORK"
cd "$WORK"
make CC="$CC" CFLAGS="-O2 -Wall -Wextra -Werror"
got=$(gsel run -n 2 -- ./pipeline) || fault "pipeline failed: $got"
expect "lines of two ranks" 2 "$(printf '%s\n' "$got" | grep -c busy)"
gsel run -n 2 -- ./train gpipe > trained || fault "train failed"
make clean
[ ! -e pipeline ] || fault "make clean left pipeline"
