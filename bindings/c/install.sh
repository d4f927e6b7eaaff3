#!/bin/sh
# Installs libholdfast: headers, libraries, pkg-config file and man pages.
#
# usage: install.sh BUILT PREFIX
#   BUILT   the folder with libholdfast_c.so, such as target/release
#   PREFIX  where to, such as /usr/local; DESTDIR goes before it
set -eu

[ $# -eq 2 ] || { sed -n 2,7p "$0" >&2; exit 2; }
built=$1
prefix=$2
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
to=${DESTDIR:-}$prefix
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$here/../../Cargo.toml" | head -n 1)

install -d "$to/include" "$to/lib/pkgconfig" "$to/share/man/man3" "$to/share/man/man7"
install -m 644 "$here"/include/*.h "$to/include/"
install -m 755 "$built/libholdfast_c.so" "$to/lib/libholdfast.so.0"
ln -sf libholdfast.so.0 "$to/lib/libholdfast.so"
# Only where the static library was built, too.
if [ -f "$built/libholdfast_c.a" ]; then
    install -m 644 "$built/libholdfast_c.a" "$to/lib/libholdfast.a"
fi
sed -e "s|@prefix@|$prefix|" -e "s|@version@|$version|" "$here/holdfast.pc.in" >"$to/lib/pkgconfig/holdfast.pc"
for section in 3 7; do
    install -m 644 "$here"/man/*."$section" "$to/share/man/man$section/"
done
