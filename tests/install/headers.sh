#!/bin/sh
# The installed headers are those of the source, and compile alone as C99 and C++17.
. "$SOURCE/tests/install/common.sh"
include=$(pkg-config --variable=includedir gsel)
diff -r -x '*.md' "$SOURCE/include/gsel" "$include/gsel"
export LIBRARY_DIR="$STAGE_LIB"
"$SOURCE/tests/abi/headers.sh" "$include" c99 "$CC"
"$SOURCE/tests/abi/headers.sh" "$include" c++17 "$CXX"
