#!/bin/sh
# stage.sh BUILD STAGE: installs the build into STAGE/usr, a fresh folder that nobody else may write to.
set -eu
unset DESTDIR
umask 022
rm -rf "$2"
mkdir -p "$2"
"$CMAKE" --install "$1" --prefix "$2/usr" > "$2/install.log" 2>&1 || { cat "$2/install.log"; exit 1; }
