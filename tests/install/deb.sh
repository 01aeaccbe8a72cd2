#!/bin/sh
# deb.sh BUILD: the Debian packages of BUILD, installed by dpkg into an empty root, used from there, and removed without a
# rest. Their dependencies are not in that root, so dpkg is told to go on without; a user who is not root does the same
# under fakeroot, or, where there is none, unpacks them alone.
. "$SOURCE/tests/install/common.sh"
cd "$WORK"
PATH=$PATH:/usr/sbin:/sbin
"$SOURCE/packaging/deb.sh" "$1" "$WORK/debs" 0 > made
control() { dpkg-deb -f debs/"$1"_*.deb "$2"; } # PACKAGE FIELD
contains() { # WHAT TEXT PART
  case $2 in *"$3"*) ;; *) fault "$1: expected \"$3\" in \"$2\"" ;; esac
}
contains "dependencies of libgsel0" "$(control libgsel0 Depends)" libhwloc
contains "dependencies of libgsel0" "$(control libgsel0 Depends)" libstdc++6
contains "dependencies of gsel-tools" "$(control gsel-tools Depends)" "libgsel0 (>= "
expect "dependencies of libgsel-dev" "libgsel0 (= $(control libgsel0 Version))" "$(control libgsel-dev Depends)"
case $(control gsel-plugins Depends) in *libgsel* | *libcuda*) fault "gsel-plugins needs $(control gsel-plugins Depends)" ;; esac
dpkg-deb -e debs/libgsel0_*.deb control
expect "names of the symbols file" "$(cat "$SOURCE/tests/abi/symbols.txt")" \
  "$(sed -n 's/^ \(gsel_[a-z0-9_]*\)@GSEL_0 .*/\1/p' control/symbols | LC_ALL=C sort)"
contains "shlibs" "$(cat control/shlibs)" "libgsel 0 libgsel0 (>= "
contains "triggers" "$(cat control/triggers)" ldconfig
for deb in debs/*.deb; do
  dpkg-deb -c "$deb" | awk '{ print $2 }' | sort -u > owners
  expect "owners of files in $deb" root/root "$(cat owners)"
done

root=$WORK/root
mkdir -p "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/updates"
: > "$root/var/lib/dpkg/status"
as_root=
[ "$(id -u)" = 0 ] || as_root="fakeroot -s $WORK/fake -i $WORK/fake"
[ -z "$as_root" ] || : > "$WORK/fake"
database() { # ARGUMENTS...: of dpkg
  $as_root dpkg --root="$root" --force-depends --force-not-root --log="$WORK/dpkg.log" "$@" > "$WORK/dpkg.out" 2>&1 ||
    { cat "$WORK/dpkg.out"; exit 1; }
}
if [ "$(id -u)" = 0 ] || command -v fakeroot > /dev/null; then
  installed=1
  database --install debs/*.deb
  for name in libgsel0 libgsel-dev gsel-tools gsel-plugins gsel-plugins-cuda; do
    expect "state of $name" "install ok installed" "$(dpkg-query --admindir="$root/var/lib/dpkg" -W -f '${Status}' $name)"
  done
else
  installed=
  echo "left out: dpkg --install and --purge, this is not root and there is no fakeroot"
  for deb in debs/*.deb; do dpkg-deb -x "$deb" "$root"; done
fi

# Used from there, and from nowhere else.
lib=$(dirname "$(find "$root/usr/lib" -name libgsel.so.0)")
export PATH="$root/usr/bin:$PATH" PKG_CONFIG_PATH="$lib/pkgconfig" LD_LIBRARY_PATH="$lib"
expect "the command" "$root/usr/bin/gsel" "$(command -v gsel)"
$CC "$SOURCE/tests/install/c/app.c" $(pkg-config --cflags --libs gsel) -o app
version=$(pkg-config --modversion gsel)
expect_run "two ranks of app" "ranks 2 sum 1 version $version" gsel run -n 2 -- ./app
contains "gsel plugins" "$(gsel plugins)" "$lib/gsel/plugins-1/zero.so"
"$CMAKE" -S "$SOURCE/tests/install/cmake" -B build -DCMAKE_PREFIX_PATH="$root/usr" -DCMAKE_C_COMPILER="$CC" \
  -DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF -DAPP_SOURCE="$SOURCE/tests/install/c/app.c" \
  -DPLUGIN_SOURCE="$SOURCE/examples/plugin/flat.c" > configure.log 2>&1 || { cat configure.log; exit 1; }
contains "what CMake found" "$(grep gsel_PLUGIN_DIR configure.log)" "$lib/gsel/plugins-1"

[ -n "$installed" ] || exit 0
database --purge $(cd debs && ls | sed "s/_.*//")
expect "files that purging left" "" "$(find "$root" -path "$root/var" -prune -o -type f -print -o -type l -print)"
