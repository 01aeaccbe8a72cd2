#!/bin/sh
# layout.sh INCLUDE COMPILER: what C says of the public headers, sorted, for bindings to compare with what they say:
#   gsel_mesh 48                   bytes of a struct
#   gsel_mesh.n_axes 12 4          offset and bytes of a field
#   GSEL_F32 11                    a constant, as a signed number of 64 bits
#   GSEL_UNREAD_INPUT(5) 32        a macro of an index i, for 0, 5 and 30
# Structs, fields and constants are read from the headers, so a new one is in the list as soon as it is in a header.
set -eu
export LC_ALL=C
include=$1 compiler=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

printf '#include <gsel/%s.h>\n' gsel plugin device transport > "$work/all.c"
"$compiler" -std=c99 -E -P -I"$include" "$work/all.c" | tr '\n' ' ' > "$work/declared"
"$compiler" -std=c99 -E -dM -I"$include" "$work/all.c" | grep '^#define GSEL_' > "$work/macros"
{
  cat "$work/all.c"
  echo '#include <stdio.h>'
  echo 'int main(void) {'
  # A field is the last word before the semicolon, without its array; that of a pointer to a function stands in (*name).
  awk 'BEGIN { RS = ";" }
    /struct gsel_[a-z0-9_]+ \{/ {
      name = $0; sub(/ \{.*/, "", name); sub(/.*struct /, "", name); sub(/.*\{/, "")
      printf "  printf(\"%s %%zu\\n\", sizeof(struct %s));\n", name, name }
    /}/ { name = "" }
    name != "" {
      field = $0
      if (field ~ /\( *\*[a-z0-9_]+\)/) { sub(/\).*/, "", field); sub(/.*\*/, "", field) }
      else { sub(/ *\[.*/, "", field); sub(/ +$/, "", field); sub(/.*[ *]/, "", field) }
      of = "struct " name
      printf "  printf(\"%s.%s %%zu %%zu\\n\", offsetof(%s, %s), sizeof(((%s *)0)->%s));\n", name, field, of, field, of, field
    }' "$work/declared"
  awk '$2 ~ /^GSEL_[A-Z0-9_]+\(i\)$/ {
      name = $2; sub(/\(i\)/, "", name)
      for (k = split("0 5 30", i, " "); k > 0; --k)
        printf "  printf(\"%s(%s) %%lld\\n\", (long long)%s(%s));\n", name, i[k], name, i[k] }
    $2 ~ /^GSEL_[A-Z0-9_]+$/ && $3 ~ /^(\(?-?[0-9]|\(\(size_t\)|\(?UINT64_C|\(GSEL_)/ {
      printf "  printf(\"%s %%lld\\n\", (long long)%s);\n", $2, $2 }' "$work/macros"
  tr ',{' '\n\n' < "$work/declared" | awk '$1 ~ /^GSEL_/ && $2 == "=" { printf "  printf(\"%s %%lld\\n\", (long long)%s);\n", $1, $1 }'
  echo '}'
} > "$work/layout.c"
"$compiler" -std=c99 -I"$include" -o "$work/layout" "$work/layout.c"
"$work/layout" > "$work/lines"
sort "$work/lines"
