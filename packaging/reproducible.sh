#!/bin/sh
# reproducible.sh: two builds of the tracked files, in folders of different names, at different times, with another locale,
# time zone, umask and number of jobs, without a compiler cache; then compares every installed file and every Debian
# package byte by byte. Takes twice the time of a build.
set -eu
source=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
SOURCE_DATE_EPOCH=$(git -C "$source" log -1 --format=%ct)
export SOURCE_DATE_EPOCH CCACHE_DISABLE=1

(cd "$source" && git ls-files -z | xargs -0 tar -cf "$work/source.tar")

# one FOLDER JOBS: builds, installs and packs in that folder
one() {
  folder=$work/$1
  mkdir -p "$folder/source"
  tar -xmf "$work/source.tar" -C "$folder/source"
  cmake -S "$folder/source" -B "$folder/objects" -G Ninja -DCMAKE_INSTALL_PREFIX=/usr -DCMAKE_SKIP_INSTALL_RPATH=ON \
    -DGSEL_TESTS=OFF -DGSEL_EXAMPLES=OFF -DGSEL_BENCHES=OFF > "$folder/log"
  cmake --build "$folder/objects" -j "$2" >> "$folder/log"
  DESTDIR=$folder/installed cmake --install "$folder/objects" --strip >> "$folder/log"
  ! command -v dpkg-shlibdeps > /dev/null || "$folder/source/packaging/deb.sh" "$folder/objects" "$folder/packages" >> "$folder/log"
  (cd "$folder" && find installed packages -type f -exec sha256sum {} + 2> /dev/null | sort -k 2) > "$work/$1.sums"
}
(umask 022 && LC_ALL=C TZ=UTC one a "$(nproc)")
(umask 027 && LC_ALL=C.UTF-8 LANG=de_DE.UTF-8 TZ=Asia/Tokyo one "another folder of a longer name" $(($(nproc) + 1)))
if ! diff "$work/a.sums" "$work/another folder of a longer name.sums"; then
  echo "gsel: these files depend on where, when or how they are built" >&2
  exit 1
fi
echo "gsel: $(wc -l < "$work/a.sums") files are the same in both builds, $(grep -c '\.deb$' "$work/a.sums") of them Debian packages"
