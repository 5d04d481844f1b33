#!/bin/sh
# Collects the files of a container image in an empty folder: the program without its debug symbols, the libraries that
# it loads, and the certificate authorities of this machine. Needs binutils, ldd, GNU cp and the Debian package
# ca-certificates. The last stage of examples/deployment/Dockerfile copies the folder.
set -eu

[ $# -eq 2 ] || {
    printf 'Usage: image-root.sh PROGRAM FOLDER\n' >&2
    exit 2
}
program=$1 folder=$2
# The user of the image reads what the builder creates.
umask 022

mkdir -p "$folder/usr/local/bin" "$folder/etc/ssl/certs" "$folder/etc/starling"
# Profiles of memory are written there; with a read-only root file system they need a volume.
mkdir -m 1777 "$folder/tmp"
# The names of functions stay, for profiles and backtraces.
objcopy --strip-debug "$program" "$folder/usr/local/bin/starling"
# Names in /etc/hosts come first, as on other machines.
printf 'hosts: files dns\n' >"$folder/etc/nsswitch.conf"
# TLS to subgraphs, brokers and issuers of tokens is checked against them.
cp /etc/ssl/certs/ca-certificates.crt "$folder/etc/ssl/certs/"
# Lines such as 'libm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x00007f…)'.
libraries=$(ldd "$program")
printf '%s\n' "$libraries" | sed -n 's/^[^/]*\(\/[^ ]*\) (0x.*/\1/p' | while IFS= read -r library; do
    cp --dereference --parents "$library" "$folder"
done
