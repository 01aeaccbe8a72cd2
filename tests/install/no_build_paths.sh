#!/bin/sh
# no_build_paths.sh BUILD: no installed file names the folder of the source or of the build, so that an installation
# can be moved and tells nobody where it was made. Debug sections count as well; they are looked at decompressed.
. "$SOURCE/tests/install/common.sh"
for file in $(find "$STAGE/usr" -type f -name '*.debug'); do
  objcopy --decompress-debug-sections "$file" "$WORK/$(basename "$file")"
  if grep -aFq -e "$1" -e "$SOURCE" "$WORK/$(basename "$file")"; then fault "$SOURCE or $1 stands in $file"; fi
done
# grep fails when it finds nothing, which is the good case; that there are files to look at is checked below.
found=$(cd "$STAGE" && { grep -raFl -e "$1" usr; grep -raFl -e "$SOURCE" usr; } | sort -u || true)
[ -z "$found" ] || fault "$SOURCE or $1 stands in these installed files:" "$found"
for file in "$STAGE_LIB"/libgsel.so.0 "$STAGE/usr/bin/gsel" "$(pkg-config --variable=plugindir gsel)"/*.so; do
  [ -s "$file" ] || fault "$file is not installed"
done
