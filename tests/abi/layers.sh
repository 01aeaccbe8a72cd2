#!/bin/sh
# layers.sh SOURCE: who includes whom. An arrow only points down; each offence is a line "file:line: what, and why not".
#   lib/FLOOR     its own floor and those the table names; public headers freely
#   lib/FLOOR/ROOM   of its floor itself, the rooms before it, and the floor's own files where "." stands before it;
#                 so do rooms within a room. Every folder with sources has a place in the table. What a file may not
#                 include, it may not declare either: "struct X;" is an offence if only later places define X
#   include/gsel  stdint.h, stddef.h and gsel/*.h
#   plugins       of ours gsel/plugin.h, gsel/device.h, gsel/transport.h, with gsel/types.h, gsel/error.h and gsel/log.h that they are
#                 made of, and gsel/strategies.h, the list of them; examples/plugin too. Kernels of devices also device/formulas, which needs nothing of lib
#   bindings, examples, bench   of ours gsel/*.h; bench/plan and bench/hosts/bench_rendezvous.cc look inside, bench/gpu
#                 sees examples/gpt, which it measures
# The last two may have files of their own, found beside the file or above it within the same top folder.
set -eu
export LC_ALL=C
cd "$1"

# What each floor may include besides itself.
allowed='
base
plugin      base
select      base
model       base
program     base
schedule    base
device      base
comm        base device plugin
train       base plugin device comm model program schedule
plan        base plugin device comm model program schedule train select
checkpoint  base device comm model program train
api         base plugin device comm model program schedule train select plan checkpoint'

# Rooms of floors, and of rooms, in order; "." are the files of the floor or room itself.
# Of train, ranks comes first: what the ranks agree on needs no other room, and compile and execute ask for it. state has
# the arena's plan, layouts and budget, and not memory, since they need the optimizer.
rooms='
select      words inventory probe rules request compat . reserve
program     . words verify text timeline simulate
device      formulas host .
device/host isa reduce .
comm        call launch interface shm device hosts .
comm/shm    call tuning memory trace members wait message collective engine regroup join .
train       ranks compile memory optimize state execute query report check .'

# includes FOLDER: every include line of its sources, as file:line:text. A tree may lack a folder, and a folder may
# include nothing: neither is a fault; layers_test.sh shows that offences are found.
includes() {
  sources "$@" \
    -exec grep -HnE '^[[:space:]]*#[[:space:]]*include' {} + 2> /dev/null | sort || true
}

# sources FOLDER [ACTION]: find over its sources
sources() {
  folder=$1
  shift
  find "$folder" -type f \( -name '*.[ch]' -o -name '*.cc' -o -name '*.[ch]pp' -o -name '*.cu' -o -name '*.cuh' -o -name '*.inc' \) "$@"
}

# A quoted include of FILE (second) that is a file beside it or in a folder above, below the top folder.
is_own() {
  folder=$(dirname "$2")
  case $1 in *..*) return 1 ;; esac
  while [ "$folder" != . ]; do
    [ ! -e "$folder/$1" ] || return 0
    folder=$(dirname "$folder")
  done
  return 1
}

# Of awk. read_rows: of rows "NAME WORD ..." the words by name, and by name and word the place. path_of: of an include.
functions='
  function read_rows(text, words, place,   row, word, n, m, i, j) {
    n = split(text, row, "\n")
    for (i = 1; i <= n; ++i) {
      m = split(row[i], word, " ")
      if (m) words[word[1]] = ""
      for (j = 2; j <= m; ++j) { words[word[1]] = words[word[1]] " " word[j]; place[word[1], word[j]] = j }
    }
  }
  function path_of(line) { sub(/^[^"]*"/, "", line); sub(/".*/, "", line); return line }'

check_lib() {
  includes lib | awk -F: -v allowed="$allowed" "$functions"'
    BEGIN { read_rows(allowed, floors, may) }
    $3 ~ /"/ {
      split($1, folder, "/"); from = folder[2]
      path = path_of($3)
      to = path; sub(/\/.*/, "", to)
      if (!(from in floors)) { print $1 ":" $2 ": lib/" from " is no floor that design and layers.sh know"; next }
      if (from != to && !((from, to) in may))
        print $1 ":" $2 ": includes \"" path "\"; lib/" from " may include" \
              (floors[from] ? " itself and" floors[from] : " only itself")
    }'
}

# Of lib itself with quotes alone, so that the checks see it.
check_quotes() {
  includes lib | awk -F: -v allowed="$allowed" "$functions"'
    BEGIN { read_rows(allowed, floors, may) }
    $3 ~ /</ {
      path = $3; sub(/^[^<]*</, "", path); to = path; sub(/\/.*/, "", to)
      if (to != path && to in floors) { sub(/>.*/, "", path); print $1 ":" $2 ": includes <" path ">; write \"" path "\"" }
    }'
}

check_rooms() {
  includes lib | awk -F: -v rooms="$rooms" "$functions"'
    BEGIN { read_rows(rooms, order, place) }
    function room_of(path, depth,   part) { return split(path, part, "/") > depth ? part[depth] : "." }
    $3 ~ /"/ {
      path = path_of($3)
      n = split($1, folder, "/"); floor = ""
      for (i = 2; i < n; ++i) {
        floor = floor (i > 2 ? "/" : "") folder[i]
        if (!(floor in order) || index(path, floor "/") != 1) continue
        from = room_of($1, i + 1); to = room_of(path, i)
        if (!((floor, from) in place)) continue  # see check_places
        if (!((floor, to) in place) || place[floor, to] > place[floor, from])
          print $1 ":" $2 ": includes \"" path "\"; the rooms of lib/" floor " are, each sees those before it:" order[floor]
      }
    }'
}

# A declaration such as "class X;" of a type that only files define which this file may not include.
check_declarations() {
  sources lib -exec grep -HnE '^[[:space:]]*(class|struct|union|enum class) [A-Za-z0-9_:() ]*[A-Za-z0-9_]+( final)?[[:space:]]*(;|:[^:]|\{|$)' {} + | sort |
    awk -F: -v allowed="$allowed" -v rooms="$rooms" "$functions"'
    BEGIN { read_rows(allowed, floors, may); read_rows(rooms, order, place) }
    # The last word before the end, a base class or the body, without "final" and enclosing classes.
    function name_of(text) {
      sub(/[[:space:]]*(;|\{|:[^:]|$).*/, "", text); sub(/ final$/, "", text); sub(/.*[ :]/, "", text); return text
    }
    function may_see(from, to,   a, b, n, m, i, floor, x, y) {
      n = split(from, a, "/"); m = split(to, b, "/")
      if (a[2] != b[2]) return (a[2], b[2]) in may
      for (i = 2; i < n && i < m && a[i] == b[i]; ++i) {
        floor = floor (i > 2 ? "/" : "") a[i]
        x = i + 1 < n ? a[i + 1] : "."; y = i + 1 < m ? b[i + 1] : "."
        if (x != y) return !(floor in order) || !((floor, x) in place) || place[floor, y] < place[floor, x]
      }
      return 1
    }
    {
      text = $0; sub(/^[^:]*:[^:]*:/, "", text); name = name_of(text)
      if (text !~ /^[^{]*;/) { defined[name] = defined[name] " " $1; next }
      declared[++n_declared] = name; where[n_declared] = $1; line[n_declared] = $2
    }
    END {
      for (d = 1; d <= n_declared; ++d) {
        n = split(defined[declared[d]], list, " "); seen = n == 0
        for (i = 1; i <= n; ++i) seen = seen || may_see(where[d], list[i])
        if (!seen) print where[d] ":" line[d] ": declares " declared[d] " of " list[1] ", which it may not include"
      }
    }'
}

# Every folder below a floor is a room, and so are the files of a floor that has rooms. A room without a place is one
# offence, at its first source.
check_places() {
  sources lib | sort | awk -v rooms="$rooms" "$functions"'
    BEGIN { read_rows(rooms, order, place) }
    function look(floor, room) {
      if (!((floor, room) in place) && !told[floor, room]++)
        print $0 ":1: room " room " of lib/" floor " has no place in layers.sh"
    }
    {
      n = split($0, folder, "/"); floor = folder[2]
      for (i = 3; i < n; ++i) { look(floor, folder[i]); floor = floor "/" folder[i] }
      if (floor in order) look(floor, ".")
    }'
}

# The public functions stand in lib/api, so that whoever names one below it calls up. Texts and comments may name them.
check_calls() {
  [ -f lib/api/libgsel.map ] || return 0
  names=$(sed -n 's/^ *\(gsel_[a-z0-9_]*\);.*/\1/p' lib/api/libgsel.map | tr '\n' '|')
  find lib -path lib/api -prune -o -type f \( -name '*.h' -o -name '*.cc' \) \
    -exec grep -HnE "(^|[^A-Za-z0-9_>.])(${names%|})([^A-Za-z0-9_]|$)" {} + | sort | awk -F: -v names="${names%|}" '
    BEGIN { n = split(names, list, "|"); for (i = 1; i <= n; ++i) public[list[i]] = 1 }
    {
      text = $0; sub(/^[^:]*:[^:]*:/, "", text)
      gsub(/"[^"]*"/, "", text); sub(/\/\/.*/, "", text)
      while (match(text, /gsel_[a-z0-9_]+/)) {
        name = substr(text, RSTART, RLENGTH); before = RSTART > 1 ? substr(text, RSTART - 1, 1) : ""
        text = substr(text, RSTART + RLENGTH)
        if (name in public && before !~ /[A-Za-z0-9_>.]/)
          print $1 ":" $2 ": names " name "() of lib/api, which is above lib/" substr($1, 5)
      }
    }'
}

check_formulas() {
  includes lib/device/formulas | awk -F: '
    $3 ~ /"/ && $3 !~ /"device\/formulas\// {
      sub(/^[^"<]*/, "", $3)
      print $1 ":" $2 ": includes " $3 "; lib/device/formulas may include itself and <gsel/...>: plugins are made of it" }'
}

check_public() {
  includes include | awk -F: '
    $3 !~ /<stdint\.h>|<stddef\.h>|<gsel\/[a-z_]+\.h>/ {
      sub(/^[^"<]*/, "", $3)
      print $1 ":" $2 ": includes " $3 "; a public header may include <stdint.h>, <stddef.h> and <gsel/...>" }'
}

# check_clients TOP PATTERN WORDS: files under TOP include of ours what matches PATTERN, and what is their own
check_clients() {
  includes "$1" | while IFS=: read -r file line text; do
    case $text in
      *'"'*)
        path=${text#*\"}
        path=${path%%\"*}
        case $1/$path in plugins/device/formulas/*) continue ;; esac
        case $1/$path in bindings/_cgo_export.h) continue ;; esac # written by cgo
        case $file in bench/plan/* | bench/hosts/bench_rendezvous.cc) continue ;; esac
        case $file in bench/gpu/*) [ ! -e "examples/gpt/$path" ] || continue ;; esac
        is_own "$path" "$file" || echo "$file:$line: includes \"$path\"; $1 sees $3 and its own files"
        ;;
      *'<gsel/'*) printf '%s\n' "$text" | grep -qE "$2" || echo "$file:$line: includes ${text#*include }; $1 sees $3" ;;
    esac
  done
}

offences=$(
  check_lib
  check_quotes
  check_rooms
  check_places
  check_declarations
  check_calls
  check_formulas
  check_public
  check_clients plugins '<gsel/(plugin|device|transport|strategies|types|error|log)\.h>' "<gsel/plugin.h>, <gsel/device.h>, <gsel/transport.h>"
  check_clients examples/plugin '<gsel/(plugin|types|error)\.h>' "<gsel/plugin.h>"
  for top in bindings examples bench; do
    check_clients $top '<gsel/[a-z_]+\.h>' "<gsel/...>"
  done
)
[ -z "$offences" ] || { printf '%s\n' "$offences"; exit 1; }
