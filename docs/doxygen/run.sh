#!/bin/sh
# run.sh OUTPUT: the documentation as HTML in OUTPUT/html. Prints what Doxygen warns of, and fails for it.
set -eu
SOURCE=$(cd "$(dirname "$0")/../.." && pwd) OUTPUT=$1
export SOURCE OUTPUT
mkdir -p "$OUTPUT"
rm -rf "$OUTPUT/html"
doxygen "$SOURCE/docs/doxygen/Doxyfile"
