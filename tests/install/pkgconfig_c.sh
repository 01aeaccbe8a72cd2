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

plugins=$(pkg-config --variable=plugindir gsel)
[ -f "$plugins/ddp.so" ] || fault "plugindir is \"$plugins\", which has no ddp.so"
listed=$(gsel plugins)
case $listed in
  *"$(cd "$plugins" && pwd -P)/ddp.so"*) ;;
  *) fault "gsel plugins does not list ddp.so of $plugins:" "$listed" ;;
esac
abi=$(awk '/^#define GSEL_PLUGIN_ABI_M/ { printf "%s%s", dot, $3; dot = "." }' "$(pkg-config --variable=includedir gsel)/gsel/plugin.h")
expect "plugin_abi" "$abi" "$(pkg-config --variable=plugin_abi gsel)"
