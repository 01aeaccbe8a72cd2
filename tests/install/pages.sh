#!/bin/sh
# pages.sh BUILD: the installed manual pages and completions are whole: a page for the command, for each subcommand and for
# each exported function, well formed as far as a tool that can tell is there, and found under its name.
. "$SOURCE/tests/install/common.sh"
share=$STAGE/usr/share
cd "$share/man"
exist() { # FOLDER SUFFIX NAME...
  folder=$1 suffix=$2
  shift 2
  for name in "$@"; do
    [ -s "$folder/$name.$suffix" ] || fault "$share/man/$folder/$name.$suffix is missing or empty"
  done
}
commands=$(gsel --help | sed -n '/^Subcommands:/,/^$/ s/^  \([a-z][a-z]*\) .*/\1/p')
[ "$(echo "$commands" | wc -l)" -ge 11 ] || fault "subcommands of gsel --help: $commands"
exist man1 1 gsel $(echo "$commands" | sed 's/^/gsel-/')
exist man3 3 $(awk '/local:/ { exit } /;$/ { gsub(/[ \t;]/, ""); print }' "$SOURCE/lib/api/libgsel.map")
for header in "$SOURCE"/include/gsel/*.h; do
  case $header in
    */gsel.h) exist man3 3 gsel.h ;;
    *) exist man3 3 "gsel_$(basename "$header")" ;;
  esac
done
# What pages refer to is there.
for page in $(sed -n 's/^\.BR \([^ ]*\) (\([13]\)).*/man\2\/\1.\2/p' man1/*.1 man3/*.3 | sed 's/\\//g' | sort -u); do
  [ -s "$page" ] || fault "a page refers to $page, which is missing"
done
# Text comes from the sources: declaration, arguments, errors; and from the table of options.
contains() { # PAGE TEXT: in the text of the page, blanks squeezed
  sed 's/\\//g' "$1" | tr '\n' ' ' | tr -s ' ' | grep -qF -e "$2" || fault "$1: expected \"$2\" in it"
}
contains man3/gsel_allreduce.3 'gsel_status gsel_allreduce(gsel_comm *comm, const void *send, void *recv, size_t count,'
contains man3/gsel_allreduce.3 'the late rank is named; recv may be partly written; broken'
contains man3/gsel_allgatherv.3 'gsel_status gsel_allgatherv(gsel_comm *comm,'
contains man3/gsel_resolve.3 'given to the caller, free with gsel_selection_free; NULL on error'
contains man1/gsel-run.1 '--timeout-kill'
contains man1/gsel-resolve.1 'PyTorch before CUDA is up'
if command -v mandoc > /dev/null; then
  said=$(mandoc -Tlint -Wstyle man1/*.1 man3/*.3 2>&1) || fault "mandoc -Tlint:" "$(echo "$said" | head -n 20)"
  expect "what mandoc -Tlint says" "" "$said"
else
  echo "left out: no mandoc found"
fi
if command -v groff > /dev/null; then
  said=$(groff -man -Tutf8 -wmac -z man1/*.1 $(find man3 -type f) 2>&1)
  expect "what groff says" "" "$(echo "$said" | head -n 20)"
else
  echo "left out: no groff found"
fi
if man --version > /dev/null 2>&1; then
  MANWIDTH=100 man -M "$share/man" gsel_allgatherv | grep -q 'gsel_allgatherv(gsel_comm \*comm' ||
    fault "man gsel_allgatherv does not show the declaration"
else
  echo "left out: no man found"
fi

same() { # FILE SHELL
  gsel completion "$2" | cmp - "$share/$1" || fault "$share/$1 is not what gsel completion $2 prints"
}
same bash-completion/completions/gsel bash
same zsh/site-functions/_gsel zsh
same fish/vendor_completions.d/gsel.fish fish
echo "$(ls man1 | wc -l) pages of the command, $(ls man3 | wc -l) of the library"
