#!/bin/sh
# A C program built by what pkg-config says, run under the installed `gsel run`.
. "$SOURCE/tests/install/common.sh"
cd "$WORK"
cp "$SOURCE/tests/install/c/app.c" .
# as the manual in gsel.h has it, plus every warning: headers of others must be quiet
$CC -std=c99 -pedantic -Wall -Wextra -Werror app.c $(pkg-config --cflags --libs gsel) -o app
version=$(pkg-config --modversion gsel)
expect_run "three ranks of app" "ranks 3 sum 3 version $version" gsel run -n 3 -- ./app
expect_run "app alone" "ranks 1 sum 0 version $version" ./app

# Nothing tells the dynamic linker of the stage: the command finds its own library and shows it to the ranks; a program
# that starts by itself has it in its rpath.
unset LD_LIBRARY_PATH
expect_run "three ranks of app without LD_LIBRARY_PATH" "ranks 3 sum 3 version $version" gsel run -n 3 -- ./app
expect_run "the ranks' LD_LIBRARY_PATH" "/nonexistent:$(cd "$STAGE_LIB" && pwd -P)" \
  env LD_LIBRARY_PATH=/nonexistent gsel run -- sh -c 'echo $LD_LIBRARY_PATH'
$CC -std=c99 app.c $(pkg-config --cflags --libs gsel) $(pkg-config --variable=rpath gsel) -o app_alone
expect_run "app with an rpath" "ranks 1 sum 0 version $version" ./app_alone

plugins=$(pkg-config --variable=plugindir gsel)
[ -f "$plugins/ddp.so" ] || fault "plugindir is \"$plugins\", which has no ddp.so"
listed=$(gsel plugins)
case $listed in
  *"$(cd "$plugins" && pwd -P)/ddp.so"*) ;;
  *) fault "gsel plugins does not list ddp.so of $plugins:" "$listed" ;;
esac
abi=$(awk '/^#define GSEL_PLUGIN_ABI_M/ { printf "%s%s", dot, $3; dot = "." }' "$(pkg-config --variable=includedir gsel)/gsel/plugin.h")
expect "plugin_abi" "$abi" "$(pkg-config --variable=plugin_abi gsel)"
