"""Writing: below runs/ only through OwnFolder, and elsewhere only in a few modules."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import tfdeploy

PACKAGE = Path(tfdeploy.__file__).parent
HOST_SIDE = ("agent", "inside", "shared")
# All modules of the controller that write or delete files, and where.
WRITERS = {
    "folders/own_folder.py": "runs/, and the files that a user names",
    "cli/debug_log.py": "the user's state folder",
    "cli/streams.py": "/dev/null",
    "commands/init.py": "hosts.toml",
    "commands/environments.py": "a temporary folder",
    "commands/tensorboard/board.py": "a temporary folder",
    "environments/wheelhouse.py": "the cache",
    "release/git.py": "temporary files without a name",
    "transfer/pack.py": "temporary files without a name",
    "transport/daemon/locate.py": "the daemon's folder",
    "transport/daemon/server.py": "the daemon's folder",
    "transport/file_stream.py": "temporary files without a name",
    "transport/local.py": "a host's folders, and where OwnFolder has checked the path",
    "transport/openssh/master.py": "the daemon's folder, and temporary files without a name",
    "transport/openssh/transport.py": "temporary files without a name",
    "transport/openssh/terminal.py": "the terminal",
    "transport/rsync.py": "temporary files without a name",
    "transport/ssh/host_keys.py": "known_hosts",
    "trust/signature.py": "the user's configuration",
    "trust/store.py": "the user's configuration",
    "folders/user_folders.py": "the user's configuration, and the daemon's folder",
}
ANY = {
    *("mkdir", "makedirs", "rmdir", "unlink", "rmtree", "rename", "renames", "symlink_to"),
    *("hardlink_to", "link", "symlink", "write_text", "write_bytes", "touch", "chmod", "fchmod"),
    *("utime", "truncate", "copyfile", "copy2", "copytree", "copyfileobj", "mkstemp", "mkdtemp"),
    *("TemporaryDirectory", "TemporaryFile", "NamedTemporaryFile", "mkfifo", "mknod"),
}
OF_MODULES = {"os": {"remove", "replace", "removedirs"}, "shutil": {"move", "copy"}}
MODE = re.compile(r"(?=.*[wax+])[rwaxbt+]{1,3}")
FLAGS = {"O_WRONLY", "O_RDWR", "O_CREAT", "O_APPEND", "O_TRUNC"}
# The agent's functions that write, where the controller may import their modules.
OF_AGENT = {"replace_file", "append_line", "remove_folder", "link_or_copy"}


def writes(tree):
    """Return the lines in which a module writes or deletes files, or could do so."""
    return sorted({node.lineno for node in ast.walk(tree) if _writes(node)})


def _writes(node):
    if isinstance(node, ast.Attribute):
        return node.attr in FLAGS
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Name):
        return node.func.id in ANY | OF_AGENT or (node.func.id == "open" and _has_mode(node))
    if not isinstance(node.func, ast.Attribute):
        return False
    name, of = node.func.attr, node.func.value
    module = of.id if isinstance(of, ast.Name) else ""
    if name == "replace" and module != "os":  # str.replace has two arguments, Path.replace one
        return len(node.args) == 1 and not node.keywords and not isinstance(of, ast.Constant)
    return (
        name in ANY | OF_AGENT
        or name in OF_MODULES.get(module, ())
        or (name in ("open", "fdopen") and _has_mode(node))
        or (module == "state_file" and name == "write")
    )


def _has_mode(node):
    values = [*node.args, *(keyword.value for keyword in node.keywords)]
    texts = (each.value for each in values if isinstance(each, ast.Constant))
    return any(MODE.fullmatch(text) for text in texts if isinstance(text, str))


def controller_modules():
    files = sorted(file.relative_to(PACKAGE) for file in PACKAGE.rglob("*.py"))
    return [file for file in files if file.parts[0] not in HOST_SIDE]


def test_only_these_modules_of_the_controller_write_and_none_but_one_below_runs():
    found = {
        file.as_posix(): lines
        for file in controller_modules()
        if (lines := writes(ast.parse((PACKAGE / file).read_text(), str(file))))
    }
    assert {file: lines for file, lines in found.items() if file not in WRITERS} == {}
    assert {*WRITERS} - {*found} == set()


def test_the_rule_sees_each_way_to_write():
    ways = (
        "path.write_text('')", "path.mkdir()", "path.unlink()", "path.replace(other)",
        "os.replace(a, b)", "open(path, 'w')", "path.open('ab')", "os.open(path, os.O_WRONLY)",
        "os.fdopen(number, 'r+b')", "shutil.rmtree(path)", "shutil.copyfile(a, b)",
        "TemporaryDirectory(dir=path)", "state_file.write(folder, name)", "os.utime(path)",
        "filesystem.replace_file(path, b'')",
    )  # fmt: skip
    assert [way for way in ways if not writes(ast.parse(way))] == []
    reads = (
        "open(path, 'rb')", "path.open()", "text.replace('a', 'b')", "replace(run, a=1)",
        "path.read_bytes()", "folder.write(name, blocks)", "os.open(path, os.O_RDONLY)",
    )  # fmt: skip
    assert [way for way in reads if writes(ast.parse(way))] == []
