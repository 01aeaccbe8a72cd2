#!/bin/sh
# deb.sh BUILD OUT [LEVEL]: Debian packages of what BUILD installs, in OUT. Each installed file belongs to one package, by its path;
# a file of no package is an error. dpkg-shlibdeps says what a package needs, dpkg-gensymbols what libgsel0 offers. The
# bytes depend on the build and SOURCE_DATE_EPOCH alone, which is the last commit's time where it is not set.
#   LEVEL                  of xz, 0 to 9; default 6
#   DEBFULLNAME, DEBEMAIL  the maintainer
set -eu
export LC_ALL=C
umask 022
build=$1 out=$2 level=${3:-6}
source=$(cd "$(dirname "$0")/.." && pwd)
for tool in dpkg-deb dpkg-shlibdeps dpkg-gensymbols; do
  command -v $tool > /dev/null || { echo "gsel: no $tool here: packages are made on Debian, with dpkg-dev" >&2; exit 1; }
done
if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
  SOURCE_DATE_EPOCH=$(git -C "$source" log -1 --format=%ct 2> /dev/null || stat -c %Y "$source/include/CHANGELOG.md")
fi
export SOURCE_DATE_EPOCH
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
stage=$work/stage
DESTDIR=$stage cmake --install "$build" --strip --prefix /usr > "$work/install.log" || { cat "$work/install.log"; exit 1; }

version=$(awk '/^#define GSEL_VERSION_(MAJOR|MINOR|PATCH) / { printf "%s%s", dot, $3; dot = "." }' "$source/include/gsel/types.h")
arch=$(dpkg --print-architecture)
libdir=$(dirname "$(cd "$stage" && find usr/lib -name 'libgsel.so.0')")
multi=
[ "$libdir" = usr/lib ] || multi=same
# The folder of libgsel is one that the linker searches, so the command needs no path of its own.
echo "file(RPATH_REMOVE FILE \"$stage/usr/bin/gsel\")" > "$work/rpath.cmake"
cmake -P "$work/rpath.cmake" 2> /dev/null || true # it has none where BUILD was told so

package_of() { # FILE
  case $1 in
    usr/lib*/gsel/plugins-1/cuda.so | usr/lib*/gsel/plugins-1/cuda_ipc.so | usr/lib*/gsel/plugins-1/nccl.so) echo gsel-plugins-cuda ;;
    usr/lib*/gsel/plugins-1/rocm.so | usr/lib*/gsel/plugins-1/rccl.so) echo gsel-plugins-rocm ;;
    usr/lib*/gsel/plugins-1/gloo.so) echo gsel-plugins-gloo ;;
    usr/lib*/gsel/plugins-1/mpi_*.so) echo gsel-plugins-mpi ;;
    usr/lib*/gsel/plugins-1/*.so) echo gsel-plugins ;;
    usr/lib*/libgsel.so.*) echo libgsel0 ;;
    usr/include/* | usr/lib*/libgsel*.a | usr/lib*/libgsel.so | usr/lib*/pkgconfig/* | usr/lib*/cmake/*) echo libgsel-dev ;;
    usr/share/man/man3/*) echo libgsel-dev ;;
    usr/bin/* | usr/share/man/man1/* | usr/share/bash-completion/* | usr/share/zsh/* | usr/share/fish/*) echo gsel-tools ;;
    usr/share/gsel/python/*) echo python3-gsel ;;
    *)
      echo "gsel: packaging/deb.sh knows no package for $1" >&2
      exit 1
      ;;
  esac
}
find "$stage" \( -type f -o -type l \) -printf '%P\n' | sort > "$work/files"
while read -r file; do
  package=$(package_of "$file")
  mkdir -p "$work/$package/$(dirname "$file")"
  to=$work/$package/$file
  cp -P "$stage/$file" "$to"
  case $file in
    */man/man*) # as Debian keeps them
      if [ -h "$to" ]; then
        ln -s "$(readlink "$to").gz" "$to.gz"
        rm "$to"
      else
        gzip -9n "$to"
      fi
      ;;
  esac
done < "$work/files"
if [ -d "$work/python3-gsel" ]; then # where Debian's Python looks
  mkdir -p "$work/python3-gsel/usr/lib/python3/dist-packages"
  ln -s ../../../share/gsel/python/gsel.py "$work/python3-gsel/usr/lib/python3/dist-packages/gsel.py"
fi

# What dpkg's tools ask of a source package.
mkdir "$work/debian"
printf 'Source: gsel\n\nPackage: libgsel0\nArchitecture: any\n' > "$work/debian/control"
maintainer="${DEBFULLNAME:-gsel maintainers} <${DEBEMAIL:-gsel@packages.invalid}>"
date=$(date -u -R -d "@$SOURCE_DATE_EPOCH")

needs() { # PACKAGE: what its programs and libraries link
  [ -d "$work/$1" ] || return 0
  files=$(cd "$work" && find "$1" -type f \( -name '*.so*' -o -path '*/bin/*' \))
  [ -n "$files" ] || return 0
  (cd "$work" && dpkg-shlibdeps -O -l"libgsel0/$libdir" $files 2> "$work/shlibdeps.log") | sed 's/^shlibs:Depends=//' ||
    { cat "$work/shlibdeps.log" >&2; exit 1; }
}

# make PACKAGE SECTION ARCHITECTURE FIELDS: the texts of packages.txt, and fields of their own, one a line
make() {
  package=$1 folder=$work/$1
  [ -d "$folder" ] || return 0
  doc=$folder/usr/share/doc/$package
  mkdir -p "$folder/DEBIAN" "$doc"
  cp "$source/packaging/copyright" "$doc/copyright"
  printf 'gsel (%s) unstable; urgency=medium\n\n  * See CHANGELOG.md of the headers.\n\n -- %s  %s\n' \
    "$version" "$maintainer" "$date" | gzip -9n > "$doc/changelog.gz"
  [ "$package" != libgsel-dev ] || gzip -9nc "$source/include/CHANGELOG.md" > "$doc/CHANGELOG.md.gz"
  find "$folder" -type d -exec chmod 755 {} +
  find "$folder" -type f -exec chmod 644 {} +
  [ ! -d "$folder/usr/bin" ] || chmod 755 "$folder"/usr/bin/*
  find "$folder" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
  (cd "$folder" && find usr -type f -print0 | sort -z | xargs -0 md5sum) > "$folder/DEBIAN/md5sums"
  size=$(find "$folder/usr" -printf '%y %s\n' | awk '{ n += $1 == "f" ? int(($2 + 1023) / 1024) : 1 } END { print n }')
  {
    printf 'Package: %s\nSource: gsel\nVersion: %s\nArchitecture: %s\nMaintainer: %s\n' "$package" "$version" "$3" "$maintainer"
    printf 'Installed-Size: %s\nSection: %s\nPriority: optional\n%s\n' "$size" "$2" "$4"
    sed -n "/^$package:/,/^\$/p" "$source/packaging/packages.txt" | sed "1s/^$package:/Description:/; /^\$/d"
  } | grep . > "$folder/DEBIAN/control"
  dpkg-deb --root-owner-group --threads-max=1 -Zxz -z"$level" --build "$folder" "$out" > "$work/build.log" || { cat "$work/build.log" >&2; exit 1; }
}

library=$work/libgsel0
mkdir -p "$library/DEBIAN"
(cd "$work" && dpkg-gensymbols -q -plibgsel0 -v"$version" -Plibgsel0 "-O$library/DEBIAN/symbols")
echo "libgsel 0 libgsel0 (>= $version)" > "$library/DEBIAN/shlibs"
echo "activate-noawait ldconfig" > "$library/DEBIAN/triggers"
cp "$library/DEBIAN/shlibs" "$library/DEBIAN/symbols" "$work/debian"

same=${multi:+Multi-Arch: same}
make libgsel0 libs "$arch" "Depends: $(needs libgsel0)
Recommends: gsel-plugins (= $version)
$same"
make libgsel-dev libdevel "$arch" "Depends: libgsel0 (= $version)
Recommends: gsel-tools
Suggests: libhwloc-dev
$same"
make gsel-tools utils "$arch" "Depends: $(needs gsel-tools)
Recommends: gsel-plugins (= $version)
Suggests: openssh-client"
make gsel-plugins libs "$arch" "Depends: $(needs gsel-plugins)
Enhances: libgsel0
$same"
make gsel-plugins-cuda libs "$arch" "Depends: $(needs gsel-plugins-cuda)
Enhances: libgsel0
$same"
make gsel-plugins-rocm libs "$arch" "Depends: $(needs gsel-plugins-rocm)
Enhances: libgsel0
$same"
make gsel-plugins-gloo libs "$arch" "Depends: $(needs gsel-plugins-gloo)
Enhances: libgsel0
$same"
make gsel-plugins-mpi libs "$arch" "Depends: $(needs gsel-plugins-mpi)
Recommends: openmpi-bin | mpich
Enhances: libgsel0
$same"
make python3-gsel python all "Depends: python3, libgsel0 (>= $version)
Recommends: gsel-plugins (>= $version), python3-numpy"
for package in libgsel0 libgsel-dev gsel-tools gsel-plugins gsel-plugins-cuda gsel-plugins-rocm gsel-plugins-gloo gsel-plugins-mpi python3-gsel; do
  [ ! -d "$work/$package" ] || echo "$out/${package}_${version}_$([ $package = python3-gsel ] && echo all || echo "$arch").deb"
done
