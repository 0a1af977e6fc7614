#!/usr/bin/env bash
# Build the library for the two processors that TensorFlow has Linux packages for. Needs gcc and
# aarch64-linux-gnu-gcc (Debian: gcc, gcc-aarch64-linux-gnu). The same compilers give the same bytes.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")"
sources=(files.c sockets.c)
source_sha256=$(cat "${sources[@]}" | sha256sum | cut -d " " -f 1)
build() {
  "$1" -std=gnu11 -Os -Wall -Wextra -Werror -fPIC -fvisibility=default -shared -s \
    -DSOURCE_SHA256="\"$source_sha256\"" \
    -U_FORTIFY_SOURCE -fno-stack-protector -Wl,--build-id=none,-z,relro,-z,now,--hash-style=both \
    -o "$2.so" "${sources[@]}"
}
build gcc x86_64
build aarch64-linux-gnu-gcc aarch64
