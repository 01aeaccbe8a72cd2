#!/bin/sh
# The C++ program of docs/languages.md compiles without a warning as C++17, and runs on the installed gsel.
. "$SOURCE/tests/install/common.sh"
cd "$WORK"
awk '/^```cpp/ { on = 1; next } /^```/ { on = 0 } on' "$SOURCE/docs/languages.md" > app.cc
$CXX -std=c++17 -pedantic -Wall -Wextra -Werror app.cc $(pkg-config --cflags --libs gsel) -o app
expect_run "two ranks" "sum of ranks: 1
sum of ranks: 1" gsel run -n 2 -- ./app
got=$(WORLD_SIZE=2 RANK=0 ./app 2>&1) && fault "expected a failure without MASTER_ADDR, got: $got"
case $got in *MASTER_ADDR*) ;; *) fault "expected an error that names MASTER_ADDR, got: $got" ;; esac
