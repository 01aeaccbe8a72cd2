#!/bin/sh
# fields.sh INCLUDE: FIELD(struct, field) for each field of the public structs that is reserved or of flags.
set -eu
awk '/^(typedef )?struct gsel_[a-z0-9_]+ \{/ { type = $0; sub(/^typedef struct /, "", type); sub(/ \{.*/, "", type) }
     type && /^  (u?int32_t|uint32_t) (reserved[0-9]*|flags);/ { field = $2; sub(/;.*/, "", field); print "FIELD(" type ", " field ")" }
     /^}/ { type = "" }' "$1"/gsel/*.h
