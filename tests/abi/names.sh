#!/bin/sh
# names.sh SOURCE: names that are defined twice where the compiler says nothing and does harm; each is a line
# "file:line: what, and where else".
#   a type at the same namespace in two files     the linker keeps one destructor for both
#   a function at the anonymous namespaces of two files of a folder     compiled as one they become overloads
#   a type at an anonymous namespace and elsewhere in its namespace     compiled as one each use is ambiguous
set -eu
export LC_ALL=C
cd "$1"

twice=$(find lib plugins bindings -type f \( -name '*.cc' -o -name '*.h' \) | sort | xargs awk '
  function last_of(words) { sub(/.* /, "", words); return words }
  function tell(kind, where, name,   key) {
    key = kind " " where " " name
    if (!(key in file)) { file[key] = FILENAME; line[key] = FNR }
    else if (file[key] != FILENAME) print FILENAME ":" FNR ": " kind " " name " of " where " is defined in " file[key] ":" line[key] ", too"
  }
  FNR == 1 { space = "no namespace"; anonymous = 0; folder = FILENAME; sub(/\/[^\/]*$/, "", folder) }
  FNR == 1 { split(folder, part, "/"); program = part[1] == "lib" ? "" : " in " folder }
  /^namespace [a-z_:]+ \{/ { space = "namespace " $2 }
  /^namespace \{/ { anonymous = 1 }
  /^\}  \/\/ namespace$/ { anonymous = 0 }
  !anonymous && /^(struct|class|enum class|enum|union) [A-Z][A-Za-z0-9_]*( final)?( :[^:].*)? *\{/ {
    name = $0
    sub(/^(struct|class|enum class|enum|union) /, "", name)
    sub(/[^A-Za-z0-9_].*/, "", name)
    tell("type", space program, name)
  }
  anonymous && /^(struct|class|enum class|enum|union) [A-Z][A-Za-z0-9_]*( final)?( :[^:].*)? *\{/ {
    name = $0
    sub(/^(struct|class|enum class|enum|union) /, "", name)
    sub(/[^A-Za-z0-9_].*/, "", name)
    tell("type", folder, name)
    hidden[FILENAME ":" FNR " " folder "/ " space program " " name]
  }
  anonymous && /^[A-Za-z_][A-Za-z0-9_:<>,&* ]*[ *&][a-z_0-9]+\(/ && !/^(return|else|using|template) / {
    name = $0
    sub(/\(.*/, "", name)
    sub(/.*[ *&]/, "", name)
    tell("function", folder, name)
  }
  END {
    for (one in hidden) {
      split(one, at, " ")
      key = one; sub(/^[^ ]* [^ ]* /, "", key)
      other = file["type " key]
      same = other; sub(/[^\/]*$/, "", same)
      if (other != "" && at[2] == same)
        print at[1] ": type " last_of(key) " of an anonymous namespace is defined in " other ", too"
    }
  }')
[ -z "$twice" ] || { printf '%s\n' "$twice"; exit 1; }
