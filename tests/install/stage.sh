#!/bin/sh
# stage.sh BUILD STAGE: installs the build into STAGE/usr, a fresh folder that nobody else may write to: as `make install`
# and `make install-debug` do.
set -eu
unset DESTDIR
umask 022
rm -rf "$2"
mkdir -p "$2"
{
  "$CMAKE" --install "$1" --strip --prefix "$2/usr"
  "$CMAKE" -D BUILD="$1" -D INSTALLED="$1/install_manifest.txt" -D OBJCOPY=objcopy -P "$SOURCE/lib/install_debug.cmake"
} > "$2/install.log" 2>&1 || { cat "$2/install.log"; exit 1; }
