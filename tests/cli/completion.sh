#!/bin/sh
# completion.sh GSEL: the completion scripts are well formed for their shells, and the function of bash completes what
# people would type: subcommands, options, values, files, and the program of `gsel run`.
set -eu
gsel=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
for shell in bash zsh fish; do
  "$gsel" completion $shell > gsel.$shell
  if command -v $shell > /dev/null; then $shell -n gsel.$shell; else echo "$shell is left out: not found"; fi
done
if command -v fish > /dev/null; then
  found=$(HOME=$work fish -N -c 'source gsel.fish; complete -C"gsel run --pin "' | cut -f1 | tr '\n' ' ')
  [ "$found" = "core none " ] || { echo "fish, gsel run --pin: expected core none, got $found"; exit 1; }
fi
if command -v zsh > /dev/null; then # loads it as a completion function would be
  zsh -fc 'autoload -U compinit; compinit -u -d dump; source ./gsel.zsh; [[ $_comps[gsel] == _gsel ]]' ||
    { echo "zsh does not take the script as the completion of gsel"; exit 1; }
fi
command -v bash > /dev/null || { echo "no bash found"; exit 77; }
mkdir folder
touch gsel.toml 'a file.json' program.sh
chmod +x program.sh
cat > try.bash <<'TRY'
source ./gsel.bash
# expect LINE WORDS: the last word of the line can become these, sorted
expect() {
  local cursor found
  read -ra COMP_WORDS <<< "${1//=/ = }"
  [[ $1 == *' ' ]] && COMP_WORDS+=('')
  [[ $1 == *= ]] && COMP_WORDS=("${COMP_WORDS[@]}")
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMP_LINE=$1 COMP_POINT=${#1} COMPREPLY=()
  _gsel
  found=$(printf '%s\n' "${COMPREPLY[@]}" | sort | tr '\n' '|')
  [[ $found == "$2|" ]] || { echo "completion of \"$1\": expected $2|, got $found"; exit 1; }
}
includes() { # LINE WORD
  read -ra COMP_WORDS <<< "$1"
  [[ $1 == *' ' ]] && COMP_WORDS+=('')
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMPREPLY=()
  _gsel
  printf '%s\n' "${COMPREPLY[@]}" | grep -qxF -e "$2" || { echo "completion of \"$1\": no $2 in ${COMPREPLY[*]}"; exit 1; }
}
expect 'gsel ' 'bench|checkpoint|completion|devices|manual|mesh|plan|plugins|program|resolve|run|trace|tune'
expect 'gsel tr' trace
expect 'gsel --c' --color
expect 'gsel --color ' 'always|auto|never'
expect 'gsel --color never pl' 'plan|plugins'
expect 'gsel devices --' '--color|--help|--inventory|--json|--output|--vulkan'
expect 'gsel resolve --compat tor' 'torch|torchrun'
expect 'gsel resolve --order=f' fastest
expect 'gsel resolve --order=' 'fastest|most_free|near|pci|visible'
expect 'gsel bench allr' allreduce
expect 'gsel bench -n 2 reduce_' 'reduce_scatter|reduce_scatterv'
expect 'gsel bench -t bf' bf16
expect 'gsel bench --check ' '0|1'
expect 'gsel program --schedule 1f' 1f1b
expect 'gsel completion ' 'bash|fish|zsh'
expect 'gsel manual tu' tune
expect 'gsel mesh gs' 'gsel.bash|gsel.fish|gsel.toml|gsel.zsh'
expect 'gsel trace fo' folder
expect 'gsel devices --inventory a' 'a file.json'
expect 'gsel run --on-failure ' 'continue|end'
expect 'gsel run --json gsel.t' gsel.toml
expect 'gsel run -n 2 --pi' --pin
expect 'gsel run -n ' ''
expect 'gsel run -n 2 -- program' 'program.sh'
expect 'gsel run -n 2 ./program.sh gsel.t' gsel.toml
expect 'gsel run ./program.sh --json gsel.t' gsel.toml
expect 'gsel run -n 2 ./program.sh --pi' ''
includes 'gsel run -n 2 seq' seq
includes 'gsel run --' --timeout-kill
TRY
bash --norc try.bash
