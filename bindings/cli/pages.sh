#!/bin/sh
# pages.sh GSEL SHARE: writes manual pages of the command to SHARE/man/man1 and completions to SHARE/{bash,zsh,fish}.
set -eu
gsel=$1 share=$2
rm -rf "$share/man/man1"
mkdir -p "$share/man/man1" "$share/bash" "$share/zsh" "$share/fish"
"$gsel" manual -o "$share/man/man1/gsel.1"
# The list is that of the manual page of gsel: its lines "gsel-NAME" with .BR.
for name in $(sed -n 's/^\.BR gsel\\-\([a-z]*\) .*/\1/p' "$share/man/man1/gsel.1"); do
  "$gsel" manual "$name" -o "$share/man/man1/gsel-$name.1"
done
"$gsel" completion bash -o "$share/bash/gsel"
"$gsel" completion zsh -o "$share/zsh/_gsel"
"$gsel" completion fish -o "$share/fish/gsel.fish"
