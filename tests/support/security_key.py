"""The keys of security_key.c: `enroll` prints a public and a private key, `sign` a signature, in
hexadecimal words. What is signed: section "SSH U2F signatures" of OpenSSH's PROTOCOL.u2f."""

from __future__ import annotations

import hashlib
import sys

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

COUNTER = (1).to_bytes(4, "big")


def main() -> None:
    what, *words = sys.argv[1:]
    if what == "enroll":
        key = Ed25519PrivateKey.generate()
        print(key.public_key().public_bytes_raw().hex() + key.private_bytes_raw().hex())
    else:
        application, flags, data, handle = map(bytes.fromhex, words)
        signed = hashlib.sha256(application).digest() + flags + COUNTER
        signed += hashlib.sha256(data).digest()
        print(Ed25519PrivateKey.from_private_bytes(handle).sign(signed).hex())


if __name__ == "__main__":
    main()
