#!/bin/sh
# The Makefile of examples/plugin, copied away from the source, builds a plugin that the installed gsel accepts.
. "$SOURCE/tests/install/common.sh"
cp "$SOURCE/examples/plugin/Makefile" "$SOURCE/examples/plugin/flat.c" "$WORK"
cd "$WORK"
make CC="$CC" CFLAGS="-O2 -Wall -Wextra -Werror"
expect_plugin "$PWD" flat
make clean
[ ! -e flat.so ] || fault "make clean left flat.so"
