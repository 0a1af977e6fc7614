"""Read, open, hash, compare, replace, move, link or copy a file, append to one that stays small;
walk through a folder, or remove it; recognize a full disk, and what is no file.

Users and programs may put a FIFO, a link or a device where a file was. No function here waits for
one, and no write goes into one.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
from collections import deque
from contextlib import suppress
from typing import Callable, Iterator, List, Tuple, Union

Shorten = Callable[[List[bytes]], List[bytes]]


PRIVATE = 0o600
CHUNK = 1 << 16
BLOCK = 1 << 20
FOUND = ".found"  # the ending of what was in the place of a log
GONE = "is gone"
HASH_THREADS = 8  # for several files: hashlib releases the interpreter's lock
# What programs print if the disk is full: strerror of ENOSPC and EDQUOT.
NO_SPACE = ("No space left on device", "Disk quota exceeded")


def read_bytes(path: str) -> bytes:
    """Return the content of a regular file, or of the one that a link leads to. Raises OSError."""
    with os.fdopen(open_regular(path, 0), "rb", buffering=0) as file:
        return file.read()


def read_if_possible(path: str) -> bytes:
    """Return the content of a file; b"" if it can't be read."""
    try:
        return read_bytes(path)
    except OSError:
        return b""


def read_end(path: str, size: int) -> bytes:
    """Return the last `size` bytes of a file; b"" if it can't be read."""
    try:
        with os.fdopen(open_regular(path, 0), "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - size))
            return file.read(size)
    except OSError:
        return b""


def replace_file(path: str, content: bytes, mode: int = 0o666, fresh: str = "") -> None:
    """Write a file beside `path` and rename it: a reader sees the old content or the new one.

    `mode` is that of open(2), limited by the umask; `fresh` is the file's path until it is renamed
    (default: a hidden one). Raises OSError; the old content is unchanged then.
    """
    folder, name = os.path.split(path)
    fresh = fresh or os.path.join(folder, ".tfdeploy-{}.{}.new".format(name, os.getpid()))
    try:
        with open(fresh, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(content)
        os.replace(fresh, path)
    except OSError as error:
        remove_file(fresh)
        raise OSError(error.errno, error.strerror, path) from None


def newest_half(lines: List[bytes]) -> List[bytes]:
    """Return the newest lines, together at most half of the bytes. Pure."""
    left, kept = sum(map(len, lines)) // 2, len(lines)
    while kept and len(lines[kept - 1]) <= left:
        kept -= 1
        left -= len(lines[kept])
    return lines[kept:]


def every_second(lines: List[bytes]) -> List[bytes]:
    """Halve the resolution: the whole time that the lines cover stays covered. Pure."""
    return lines[::2]


def append_line(path: str, line: bytes, max_bytes: int, shorten: Shorten = newest_half) -> bool:
    """Append a line, which ends with a newline; only this user can read the file.

    If the file would exceed `max_bytes`, first keep only what `shorten` returns of its lines, about
    half of them. Return whether it was asked. Raises OSError; then nothing was appended.
    """
    descriptor = open_to_append(path, os.O_RDWR)
    try:
        size = os.fstat(descriptor).st_size
        if size + len(line) > max_bytes:
            lines = os.pread(descriptor, size, 0)[-max_bytes:].splitlines(keepends=True)
            whole = [each for each in lines if each.endswith(b"\n")]
            replace_file(path, b"".join([*shorten(whole), line]), PRIVATE)
            return True
        if size and os.pread(descriptor, 1, size - 1) != b"\n":  # a line that a crash cut off
            line = b"\n" + line
        if os.write(descriptor, line) < len(line):
            os.ftruncate(descriptor, size)
            raise OSError(errno.ENOSPC, "no space for the whole line")
        return False
    finally:
        os.close(descriptor)


def open_regular(path: str, flags: int = os.O_NOFOLLOW) -> int:
    """Open a regular file to read it; return its descriptor. Raises OSError, also if it is none:
    then its strerror says what it is."""
    return _open_regular(path, os.O_RDONLY | flags)


def open_to_append(path: str, access: int = os.O_WRONLY) -> int:
    """Open a regular file to append to it, or make one that only this user can read; return its
    descriptor. Raises OSError, as `open_regular` does."""
    return _open_regular(path, access | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW)


def open_log(path: str) -> Tuple[int, str]:
    """Open a log to append to it; what else is at its path is renamed to <path>.found.

    Return its descriptor, and what was there, such as "is a FIFO, not a file" ("": a log, or
    nothing). Raises OSError.
    """
    try:
        return open_to_append(path), ""
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EACCES):  # it may be the log, on a failing disk
            raise
        if kind(path + FOUND) == "a file":  # that may be the only log
            os.replace(path + FOUND, path + FOUND + FOUND)
        os.replace(path, path + FOUND)
        return open_to_append(path), problem_of(error)


def _open_regular(path: str, flags: int) -> int:
    try:
        # Do not block on a FIFO that no other process has open.
        descriptor = os.open(path, flags | os.O_NONBLOCK, PRIVATE)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):  # a link, a FIFO, a folder
            raise _not_a_file(path) from None
        raise
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise _not_a_file(path)


def _not_a_file(path: str) -> OSError:
    return OSError(errno.EINVAL, "is {}, not a file".format(kind(path)), path)


def kind(path: str) -> str:
    """Return what is at a path, such as "a FIFO"; "gone" if nothing is."""
    try:
        if os.path.islink(path):
            return "a link to {}".format(os.readlink(path))
        mode = os.lstat(path).st_mode
    except OSError:  # it was removed
        return "gone"
    kinds = (
        (stat.S_ISREG, "a file"),
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISFIFO, "a FIFO"),
        (stat.S_ISSOCK, "a socket"),
    )
    return next((name for is_kind, name in kinds if is_kind(mode)), "a device")


def file_problem(path: str) -> str:
    """Return why a path is no regular file that can be read, such as "is a FIFO, not a file"; ""
    if it is one."""
    try:
        os.close(open_regular(path))
    except OSError as error:
        return problem_of(error)
    return ""


def problem_of(error: OSError) -> str:
    """Return what is wrong with a file by the error of opening it, such as "is gone"."""
    words = str(error.strerror)
    if error.errno == errno.ENOENT:
        return GONE
    return words if error.errno == errno.EINVAL else "can't be opened: {}".format(words.lower())


def stamp(file: Union[str, int]) -> Tuple[int, ...]:
    """Return what changes if a file is written or replaced: size, mtime in ns and inode; () if it
    does not exist. `file` is a path, also of a link itself, or a descriptor."""
    try:
        info = os.fstat(file) if isinstance(file, int) else os.lstat(file)
    except OSError:
        return ()
    return info.st_size, info.st_mtime_ns, info.st_ino


def write_all(descriptor: int, data: Union[bytes, memoryview]) -> None:
    """Write all of `data`, of which one write(2) may take only a part. Raises OSError."""
    while data:
        data = data[os.write(descriptor, data) :]


def memory_file(data: bytes) -> int:
    """Return a descriptor from which a process reads `data`: unlike a pipe it is never full, and
    unlike a file it needs no disk and has no name."""
    try:
        descriptor = os.memfd_create("data")
    except (AttributeError, OSError):  # Linux before 3.17, or a Python built with an older glibc
        import tempfile

        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    write_all(descriptor, data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def move_file(source: str, target: str) -> None:
    """Move a file, also to another file system: at `target` it is whole at once. Raises OSError."""
    try:
        os.replace(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        fresh = temporary_name(target)
        shutil.copy2(source, fresh)
        os.replace(fresh, target)
        os.remove(source)


def temporary_name(path: str) -> str:
    """Return the name of a file until it is renamed to `path`, as TensorFlow names its own. Source:
    tensorflow/python/lib/io/file_io.py, atomic_write_string_to_file."""
    return "{}.tmp{}".format(path, os.urandom(16).hex())


def is_disk_full(error: OSError) -> bool:
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def link_or_copy(source: str, target: str) -> None:
    """Link a regular file, or copy it if the file system has no hard links. Raises OSError."""
    if not os.path.isfile(source) or os.path.islink(source):
        raise FileNotFoundError(source)
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:  # a file system without hard links
        shutil.copy2(source, target)


def walk(folder: str, excluded: str = "") -> Iterator[os.DirEntry[str]]:
    """Yield all entries below a folder, level by level, so that a limit skips the deepest."""
    remaining = deque([folder])
    while remaining:
        try:
            with os.scandir(remaining.popleft()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False) and entry.path != excluded:
                        remaining.append(entry.path)
                    yield entry
        except OSError:
            continue


def folders_above(path: str) -> Iterator[str]:
    """Yield the folder of a path, and each one above it, up to "/", or to "" of a relative path."""
    above = os.path.dirname(path)
    while above != path:
        yield above
        path, above = above, os.path.dirname(above)


def remove_folder(folder: str) -> None:
    """Remove a folder with its content; ignore errors."""
    shutil.rmtree(folder, ignore_errors=True)


def remove_empty_folder(folder: str) -> None:
    """Remove a folder if it is empty; ignore errors."""
    with suppress(OSError):
        os.rmdir(folder)


def remove_file(path: str) -> None:
    """Remove a file; ignore errors."""
    with suppress(OSError):
        os.remove(path)


def sha256(path: str) -> str:
    """Return the hash of a file's content in hex. Raises OSError."""
    digest = hashlib.sha256()
    with os.fdopen(open_regular(path, 0), "rb") as file:
        for block in iter(lambda: file.read(BLOCK), b""):
            digest.update(block)
    return digest.hexdigest()
