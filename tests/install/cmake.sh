#!/bin/sh
# A CMake project finds gsel, links it, and builds a plugin, which the installed gsel then accepts.
. "$SOURCE/tests/install/common.sh"
cd "$WORK"
"$CMAKE" -S "$SOURCE/tests/install/cmake" -B build -DCMAKE_PREFIX_PATH="$STAGE/usr" -DCMAKE_C_COMPILER="$CC" \
  -DCMAKE_C_FLAGS="-Wall -Wextra -Werror" -DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF \
  -DAPP_SOURCE="$SOURCE/tests/install/c/app.c" -DPLUGIN_SOURCE="$SOURCE/examples/plugin/flat.c" > configure.log 2>&1 ||
  { cat configure.log; exit 1; }
"$CMAKE" --build build > build.log 2>&1 || { cat build.log; exit 1; }
found=$(sed -n 's/^-- gsel_VERSION //p' configure.log)
expect_run "two ranks of app" "ranks 2 sum 1 version $found" gsel run -n 2 -- build/app
expect "gsel_PLUGIN_ABI" "$(pkg-config --variable=plugin_abi gsel)" "$(sed -n 's/^-- gsel_PLUGIN_ABI //p' configure.log)"
expect_plugin "$PWD/build" flat
