#!/bin/sh
# Installs Starling from the archives of a release, or removes it. POSIX sh; needs tar, gzip, and one of sha256sum,
# shasum and openssl; curl or wget for an address.
set -eu

usage() {
    cat <<'TEXT'
Installs the router Starling.

Usage:
  install.sh [--from FOLDER|URL] [--prefix FOLDER] [--version VERSION] [--target TRIPLE]
  install.sh --uninstall [--prefix FOLDER]

Options:
  --from FOLDER|URL   the folder or address with SHA256SUMS and the archives; default: the folder of this script
  --prefix FOLDER     where to install; default: /usr/local
  --version VERSION   the version, if there are archives of several
  --target TRIPLE     the platform; default: that of this machine
  --uninstall         removes what an earlier run has installed under the prefix
  --help              prints this text

Every archive is compared with SHA256SUMS before it is unpacked. Nothing outside the prefix is written, and a
configuration is neither created nor removed. Exit status: 0 if done, 1 if not, 2 for a wrong command line.
TEXT
}

fail() {
    printf 'install.sh: %s\n' "$1" >&2
    exit 1
}

misuse() {
    printf 'install.sh: %s\nTry install.sh --help.\n' "$1" >&2
    exit 2
}

has() {
    command -v "$1" >/dev/null 2>&1
}

need() {
    has "$1" || fail "the program '$1' is missing; install it first"
}

from='' prefix=/usr/local version='' target='' action=install
while [ $# -gt 0 ]; do
    case $1 in
    --from | --prefix | --version | --target)
        [ $# -ge 2 ] && [ -n "$2" ] || misuse "$1 needs a value"
        case $1 in
        --from) from=$2 ;;
        --prefix) prefix=$2 ;;
        --version) version=$2 ;;
        --target) target=$2 ;;
        esac
        shift
        ;;
    --uninstall) action=uninstall ;;
    --help | -h)
        usage
        exit 0
        ;;
    *) misuse "unknown argument '$1'" ;;
    esac
    shift
done

# The list of installed files, relative to the prefix: what --uninstall and a later version may remove.
list=share/starling/installed-files

# Removes the files of a list, and then the folders that are empty.
remove_files() {
    while IFS= read -r file; do
        case $file in
        # A changed list must not lead out of the prefix.
        '' | /* | *..*) fail "$prefix/$list was changed: it names '$file'" ;;
        esac
        rm -f -- "$prefix/$file" || fail "cannot remove $prefix/$file; run this as a user that may, such as root"
        folder=$(dirname -- "$file")
        while [ "$folder" != . ]; do
            rmdir -- "$prefix/$folder" 2>/dev/null || break
            folder=$(dirname -- "$folder")
        done
    done
}

if [ "$action" = uninstall ]; then
    [ -f "$prefix/$list" ] || fail "nothing is installed under $prefix ($list is missing); name another folder by --prefix"
    files=$(cat -- "$prefix/$list")
    printf '%s\n' "$files" | remove_files || exit 1
    printf 'Removed Starling from %s. Configurations were not touched.\n' "$prefix"
    exit 0
fi

need tar
need gzip
if has sha256sum; then
    sum_of() { sha256sum <"$1"; }
elif has shasum; then
    sum_of() { shasum -a 256 <"$1"; }
elif has openssl; then
    sum_of() { openssl dgst -sha256 -r <"$1"; }
else
    fail "none of the programs 'sha256sum', 'shasum' and 'openssl' is there; install one first"
fi

if [ -z "$target" ]; then
    case $(uname -s)/$(uname -m) in
    Linux/x86_64 | Linux/amd64) target=x86_64-unknown-linux-gnu ;;
    Linux/aarch64 | Linux/arm64) target=aarch64-unknown-linux-gnu ;;
    *) fail "there are no archives for $(uname -s) on $(uname -m); build from source, or name a platform by --target" ;;
    esac
fi

# Before anything is fetched: a folder that does not exist yet counts by the nearest one that does.
nearest=$prefix
while [ ! -e "$nearest" ]; do
    nearest=$(dirname -- "$nearest")
done
{ [ -d "$nearest" ] && [ -w "$nearest" ]; } ||
    fail "cannot write to $nearest; run this as root, or install for yourself by --prefix \"\$HOME/.local\""

scratch=$(mktemp -d) || fail "cannot create a temporary folder; set TMPDIR to a writable one"
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM

[ -n "$from" ] || from=$(dirname -- "$0")
case $from in
http://* | https://*)
    if has curl; then
        fetch() { curl --fail --silent --show-error --location --output "$2" "$from/$1"; }
    elif has wget; then
        fetch() { wget -q -O "$2" "$from/$1"; }
    else
        fail "neither 'curl' nor 'wget' is there; install one, or download the files and name their folder by --from"
    fi
    from=${from%/}
    ;;
*)
    [ -d "$from" ] || fail "there is no folder $from"
    fetch() { cp -- "$from/$1" "$2"; }
    ;;
esac

fetch SHA256SUMS "$scratch/sums" || fail "cannot read $from/SHA256SUMS"

# Lines such as 'SUM  starling-1.2.3-TARGET.tar.gz'.
found=$(sed -n "s/^\([0-9a-f]\{64\}\)  \(starling-.*-$target\.tar\.gz\)\$/\1 \2/p" "$scratch/sums")
if [ -n "$version" ]; then
    found=$(printf '%s\n' "$found" | while read -r sum name; do
        [ "$name" = "starling-$version-$target.tar.gz" ] && printf '%s %s\n' "$sum" "$name"
    done) || :
fi
case $found in
'') fail "$from has no archive for $target${version:+ in version $version}" ;;
*"
"*) fail "$from has archives of several versions; name one by --version" ;;
esac
expected=${found%% *}
archive=${found#* }

fetch "$archive" "$scratch/archive" || fail "cannot read $from/$archive"
actual=$(sum_of "$scratch/archive") || fail "cannot compute the sum of $archive"
actual=${actual%% *}
[ "$actual" = "$expected" ] || fail "$archive is damaged or was replaced, and is not installed:
  expected SHA-256 $expected
  found            $actual"

name=${archive%.tar.gz}
mkdir "$scratch/files"
gzip -dc "$scratch/archive" >"$scratch/archive.tar" || fail "cannot expand $archive"
tar -xf "$scratch/archive.tar" -C "$scratch/files" || fail "cannot unpack $archive"
source=$scratch/files/$name
[ -f "$source/starling" ] || fail "$archive contains no program"
"$source/starling" -V >/dev/null 2>&1 </dev/null ||
    fail "the program does not run on this machine; its reason: $("$source/starling" -V 2>&1 | head -n 3)"

# Copies a file to a place under the prefix. The rename replaces a program that runs, which cannot be written to.
put() {
    folder=$prefix/$(dirname -- "$2")
    mkdir -p -- "$folder" && cp -- "$source/$1" "$folder/.starling.new" && chmod "$3" "$folder/.starling.new" &&
        mv -f -- "$folder/.starling.new" "$prefix/$2" ||
        fail "cannot write $prefix/$2; run this as root, or install for yourself by --prefix \"\$HOME/.local\""
    printf '%s\n' "$2" >>"$scratch/list"
}

put_all() {
    for file in "$source/$1"/*; do
        [ -f "$file" ] || continue
        put "$1/${file##*/}" "$2/${file##*/}" 644
    done
}

: >"$scratch/list"
put starling bin/starling 755
put completions/starling share/bash-completion/completions/starling 644
put completions/_starling share/zsh/site-functions/_starling 644
put completions/starling.fish share/fish/vendor_completions.d/starling.fish 644
put_all man share/man/man1
put_all licences share/doc/starling/licences
put_all examples share/doc/starling/examples
for file in CHANGELOG.md INSTALLATION.md sbom.cdx.json; do
    put "$file" "share/doc/starling/$file" 644
done
# The unit names the program by its path. '|' is in no sensible path.
sed "s|/usr/local/bin/starling|$prefix/bin/starling|g" "$source/systemd/starling.service" >"$source/systemd/unit"
put systemd/unit lib/systemd/system/starling.service 644
printf '%s\n' "$list" >>"$scratch/list"

# Files of an earlier version that this one does not have.
if [ -f "$prefix/$list" ]; then
    grep -vxF -f "$scratch/list" -- "$prefix/$list" | remove_files || exit 1
fi
mkdir -p -- "$prefix/$(dirname -- "$list")" && cp -- "$scratch/list" "$prefix/$list" ||
    fail "cannot write $prefix/$list"

printf 'Installed %s in %s/bin.\n' "$("$prefix/bin/starling" -V)" "$prefix"
case :$PATH: in
*":$prefix/bin:"*) ;;
*) printf 'This folder is not in PATH: add it, or call %s/bin/starling.\n' "$prefix" ;;
esac
printf 'Try it with "starling demo". Remove it with "install.sh --uninstall --prefix %s".\n' "$prefix"
