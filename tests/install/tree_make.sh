#!/bin/sh
# The Makefile of examples/tree, copied away from the source, builds a program that runs on the installed gsel; what it
# shows of LightGBM compiles as C++ too.
. "$SOURCE/tests/install/common.sh"
cp "$SOURCE"/examples/tree/Makefile "$SOURCE"/examples/tree/*.[ch] "$WORK"
cd "$WORK"
make CC="$CC" CFLAGS="-O2 -Wall -Wextra -Werror"
cat "$SOURCE"/docs/*.md > text
expected=$(./tree text | tail -n 1)
case $expected in "tree 19: loss 0."*) ;; *) fault "expected the loss of tree 19, got: $expected" ;; esac
expect "last line of two ranks" "$expected" "$(gsel run -n 2 -- ./tree text | tail -n 1)"
echo '#include "lightgbm.h"' > hook.cc
echo 'void *hooks[] = {(void *)lightgbm_reduce_scatter, (void *)lightgbm_allgather};' >> hook.cc
$CXX -std=c++17 -Wall -Wextra -Werror -c hook.cc $(pkg-config --cflags gsel)
make clean
[ ! -e tree ] || fault "make clean left tree"
