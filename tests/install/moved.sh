#!/bin/sh
# moved.sh BUILD: an installation that was made for one prefix, staged by DESTDIR and moved to another folder, with spaces
# in all of their names, works there by pkg-config, CMake, the command with its plugins, and as archives.
. "$SOURCE/tests/install/common.sh"
cd "$WORK"
unset LD_LIBRARY_PATH PKG_CONFIG_PATH
umask 022
prefix="/opt/made here"
if [ "$1" = "$SOURCE/build" ]; then # the Makefile's own line; what it needs is built
  make -C "$SOURCE" -o build install PREFIX="$prefix" DESTDIR="$WORK/staged files" > install.log || { cat install.log; exit 1; }
else
  DESTDIR="$WORK/staged files" "$CMAKE" --install "$1" --strip --prefix "$prefix" > install.log || { cat install.log; exit 1; }
fi
expect "what was installed outside of the prefix" "" "$(find "$WORK/staged files" -type f ! -path "*/opt/made here/*")"
mkdir "moved to"
mv "staged files/opt/made here" "moved to/a place"
rm -r "staged files"
moved="$WORK/moved to/a place"
lib=$(dirname "$(find "$moved" -name libgsel.so.0)")

command="$moved/bin/gsel"
listed=$("$command" plugins)
printf '%s\n' "$listed" | grep -E "^usable +strategy zero " | grep -qF "  $lib/gsel/plugins-1/zero.so" ||
  fault "expected zero.so of $lib to be usable; gsel plugins says:" "$listed"

export PKG_CONFIG_PATH="$lib/pkgconfig"
version=$(pkg-config --modversion gsel)
build() { # NAME SOURCE FLAGS: these as pkg-config writes them, with spaces escaped
  eval "$CC \"\$2\" $3 -o $1"
}
app=$SOURCE/tests/install/c/app.c
build app "$app" "$(pkg-config --cflags --libs gsel)"
expect_run "two ranks of app" "ranks 2 sum 1 version $version" "$command" run -n 2 -- ./app
build app_alone "$app" "$(pkg-config --cflags --libs gsel) $(pkg-config --variable=rpath gsel)"
expect_run "app with an rpath" "ranks 1 sum 0 version $version" ./app_alone
if [ -f "$lib/libgsel.a" ]; then
  build app_static "$app" "$(pkg-config --cflags --libs gsel-static)"
  expect_alone app_static
  expect_run "app with libgsel.a" "ranks 1 sum 0 version $version" ./app_static
fi

"$CMAKE" -S "$SOURCE/tests/install/cmake" -B build -DCMAKE_PREFIX_PATH="$moved" -DCMAKE_C_COMPILER="$CC" \
  -DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF -DAPP_SOURCE="$app" -DPLUGIN_SOURCE="$SOURCE/examples/plugin/flat.c" \
  > configure.log 2>&1 || { cat configure.log; exit 1; }
"$CMAKE" --build build > build.log 2>&1 || { cat build.log; exit 1; }
expect_run "three ranks of CMake's app" "ranks 3 sum 3 version $version" "$command" run -n 3 -- build/app
[ ! -x build/app_static ] || expect_run "CMake's app with libgsel.a" "ranks 1 sum 0 version $version" build/app_static
