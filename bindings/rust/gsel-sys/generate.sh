#!/bin/sh
# generate.sh INCLUDE COMPILER PART: declarations of the public headers in Rust, from what the preprocessor leaves of them.
#   PART  bindings: src/generated.rs; layout: tests/layout/fields.rs, which names each struct, field and constant
# The headers are regular, so a declaration is the text before a semicolon. A form that is not known ends with an error.
set -eu
export LC_ALL=C
include=$1 compiler=$2 part=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

printf '#include <gsel/%s.h>\n' gsel plugin device transport > "$work/all.c"
"$compiler" -std=c99 -E -P -I"$include" "$work/all.c" | tr '\n' ' ' > "$work/declared"
"$compiler" -std=c99 -E -dM -I"$include" "$work/all.c" | grep '^#define GSEL_' | sort > "$work/macros"

[ "$part" = bindings ] || echo '{'
if [ "$part" = bindings ]; then
  cat <<'HEAD'
// Made by generate.sh from include/gsel; not edited by hand. The headers document these names.
use std::os::raw::{c_char, c_void};
HEAD
fi
awk -v part="$part" '
  function fail(what) {
    printf "generate.sh: %s not understood: %s\n", what, $0 > "/dev/stderr"
    status = 1
    exit 1
  }
  function trim(text) { gsub(/^ +| +$/, "", text); gsub(/ +/, " ", text); return text }
  function plain(name) {
    if (name ~ /^u?int(8|16|32|64)_t$/) { sub(/_t$/, "", name); sub(/uint/, "u", name); sub(/int/, "i", name); return name }
    if (name == "size_t") return "usize"
    if (name == "double") return "f64"
    if (name == "float") return "f32"
    if (name == "char") return "c_char"
    if (name == "void") return "c_void"
    if (name ~ /^(gsel_[a-z0-9_]+|DLManagedTensor|DLManagedTensorVersioned)$/) return name
    fail("type " name)
  }
  # A type of C without its name, such as "const void * const *"
  function rust(type,   n, word, i, is_const, result) {
    gsub(/\*/, " * ", type)
    type = trim(type)
    gsub(/struct /, "", type)
    n = split(type, word, " ")
    for (i = 1; i <= n; ++i) {
      if (word[i] == "const") is_const = 1
      else if (word[i] == "*") { result = "*" (is_const ? "const" : "mut") " " result; is_const = 0 }
      else result = plain(word[i])
    }
    return result
  }
  function safe(name) { return name ~ /^(type|in|fn|ref|where|move|match)$/ ? "r#" name : name }
  # "const char *name[4]" as "name: [*const c_char; 4]"
  function field(text, of_function,   name, type, length_of) {
    text = trim(text)
    if (match(text, / *\[[^]]*\]$/)) {
      length_of = substr(text, RSTART, RLENGTH); gsub(/[^0-9A-Za-z_]/, "", length_of)
      text = substr(text, 1, RSTART - 1)
    }
    if (!match(text, /[A-Za-z0-9_]+$/)) fail("field " text)
    name = substr(text, RSTART); type = rust(substr(text, 1, RSTART - 1))
    if (of_function && length_of != "") fail("array as argument")
    if (length_of != "") type = "[" type "; " length_of "]"
    return safe(name) ": " type
  }
  function arguments(text,   n, each, i, result) {
    if (trim(text) == "void") return ""
    n = split(text, each, ",")
    for (i = 1; i <= n; ++i) result = result (i > 1 ? ", " : "") field(each[i], 1)
    return result
  }
  # RET (*name)(ARGS) and RET name(ARGS); a result that is void is none
  function signature(result, text) {
    result = trim(result)
    return "(" arguments(text) ")" (result == "void" ? "" : " -> " rust(result))
  }
  function pointer(text,   result, name, list) {
    match(text, /\( *\*[a-z0-9_]+\) *\(/)
    result = substr(text, 1, RSTART - 1)
    name = substr(text, RSTART, RLENGTH); gsub(/[^a-z0-9_]/, "", name)
    list = substr(text, RSTART + RLENGTH); sub(/\) *$/, "", list)
    pointed = safe(name)
    return "Option<unsafe extern \"C\" fn" signature(result, list) ">"
  }
  function opaque(name) {
    if (part == "bindings" && !(name in defined) && !(name in shown)) {
      shown[name] = 1
      printf "#[repr(C)]\npub struct %s {\n    _private: [u8; 0],\n}\n", name
    }
  }
  BEGIN { RS = ";" }
  # First look: which structs have fields, which are only named.
  FNR == NR { if (/struct gsel_[a-z0-9_]+ \{/) { name = $0; sub(/ \{.*/, "", name); sub(/.*struct /, "", name); defined[name] = 1 } next }
  FNR == 1 { name = "" }
  name == "" && !/gsel_/ { next }
  /enum / { next }
  /struct gsel_[a-z0-9_]+ \{/ {
    name = $0; sub(/ \{.*/, "", name); sub(/.*struct /, "", name); sub(/.*\{/, "")
    fields = ""; sizes = 0; first = 1
  }
  name != "" && /}/ {
    if (part == "bindings") {
      printf "#[repr(C)]\n#[derive(Clone, Copy)]\npub struct %s {\n%s}\n", name, fields
      if (sizes) printf "unsafe impl crate::Sized32 for %s {}\n", name
    } else printf "fields!(%s: %s);\n", name, fields
    name = ""
    next
  }
  name != "" {
    text = trim($0)
    if (text ~ /\( *\*[a-z0-9_]+\)/) { type = pointer(text); line = pointed ": " type }
    else line = field(text, 0)
    if (first && line == "struct_size: u32") sizes = 1
    if (part == "bindings") fields = fields "    pub " line ",\n"
    else { sub(/:.*/, "", line); fields = fields (first ? "" : ", ") line }
    first = 0
    next
  }
  {
    text = trim($0)
    sub(/^.*\} /, "", text)
    if (text ~ /^typedef struct DLManagedTensor(Versioned)? /) { sub(/.* /, "", text); opaque(text); next }
    if (text ~ /^struct [a-z0-9_]+$/) next
    if (text ~ /^typedef struct [a-z0-9_]+ [a-z0-9_]+$/) { sub(/.* /, "", text); opaque(text); next }
    if (part != "bindings") next
    if (text ~ /^typedef .*\( *\*/) { sub(/^typedef /, "", text); type = pointer(text); printf "pub type %s = %s;\n", pointed, type; next }
    if (text ~ /^typedef /) {
      sub(/^typedef /, "", text); match(text, /[a-z0-9_]+$/)
      printf "pub type %s = %s;\n", substr(text, RSTART), rust(substr(text, 1, RSTART - 1)); next }
    if (text ~ /^(const )?[a-z0-9_]+[ *]+gsel_[a-z0-9_]+\(.*\)$/) {
      match(text, /gsel_[a-z0-9_]+\(/)
      called = substr(text, RSTART, RLENGTH - 1); list = substr(text, RSTART + RLENGTH); sub(/\)$/, "", list)
      functions = functions "    pub fn " called signature(substr(text, 1, RSTART - 1), list) ";\n"
      next }
    fail("declaration")
  }
  END { if (status) exit 1; if (part == "bindings") printf "extern \"C\" {\n%s}\n", functions }
' "$work/declared" "$work/declared"

# Constants: of the type that C gives them where it matters, else i32; flags, which end in u, are u32.
{
  tr ',{' '\n\n' < "$work/declared" | awk '$1 ~ /^GSEL_ERR|^GSEL_OK$/ && $2 == "=" { print "#define", $1, $3 }'
  cat "$work/macros"
} | awk -v part="$part" '
  $2 !~ /^GSEL_[A-Z0-9_]+$/ || $3 !~ /^(\(?-?[0-9]|\(\(size_t\)|\(?UINT64_C|\(GSEL_)/ { next }
  part == "layout" { printf "constant!(%s);\n", $2; next }
  {
    value = $0; sub(/^#define [A-Z0-9_]+ /, "", value)
    type = value ~ /^[0-9]+u$/ ? "u32" : value ~ /UINT64_C/ ? "u64" : "i32"
    if ($2 ~ /^GSEL_MAX_/) type = "usize"
    if (value ~ /^\(\(size_t\)-1\)$/) { type = "usize"; value = "usize::MAX" }
    gsub(/UINT64_C\(1\)/, "1", value)
    if (value ~ /^[0-9]+u$/) sub(/u$/, "", value)
    if (value ~ /^\(/) { sub(/^\(/, "", value); sub(/\)$/, "", value) }
    printf "pub const %s: %s = %s;\n", $2, type, value
  }'
if [ "$part" = layout ]; then
  grep -oE '^#define GSEL_[A-Z_]+\(i\)' "$work/macros" | sed 's/#define \(.*\)(i)/indexed!(\1);/'
  echo '}'
fi
