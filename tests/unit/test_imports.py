"""Who may import whom: each foreign library has one home, and hosts need nothing but Python 3.8."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import tfdeploy

PACKAGE = Path(tfdeploy.__file__).parent
FILES = sorted(file.relative_to(PACKAGE) for file in PACKAGE.rglob("*.py"))
HOST_SIDE = [file for file in FILES if file.parts[0] in ("agent", "inside")]
# What sees no host, no clock and no disk: the left side of the picture in the design.
PURE = (
    *("errors", "cluster", "fields", "inventory", "plan", "replan", "rescale", "roles", "launch"),
    *("documents", "host_tables", "hostnames", "rows", "speedup", "tables", "verdict", "words"),
)
HOMES = {
    "fabric": ("transport/link.py",),
    "invoke": ("transport/link.py",),
    "matplotlib": ("picture.py",),
    "paramiko": (
        "transport/link.py",
        "transport/channels.py",
        "transport/keeping.py",
        "transport/ssh.py",
        "transport/host_keys.py",
        "transport/translate.py",
    ),
    "cryptography": ("identity.py",),
    "typer": ("cli/",),
    "click": ("cli/",),
    "rich": ("console.py", "pushing.py"),
    "toml": ("inventory.py",),
    "tomllib": ("inventory.py",),
    "pydantic": ("fields.py", "inventory.py", "tables.py"),
    "pathspec": ("release.py", "ignore.py"),
    "subprocess": ("transport/", "agent/"),
    "tensorflow": ("inside/",),
    "grpc": (),
}


def imports(file):
    """(module, whether it is imported relatively) for each import of a file of the package."""
    for node in ast.walk(ast.parse((PACKAGE / file).read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, False) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "", node.level > 0
            if node.module and node.module.split(".")[0] == "tfdeploy":
                yield from ((f"{node.module}.{alias.name}", False) for alias in node.names)


def foreign(file):
    """The top-level modules that a file imports from outside of the package."""
    found = {name.split(".")[0] for name, relative in imports(file) if not relative}
    return found - {"tfdeploy", "__future__"}


def own(file):
    """The modules of tfdeploy that a file imports by their full names, TYPE_CHECKING's left out."""
    tree = ast.parse((PACKAGE / file).read_text())
    checked = [node for node in ast.walk(tree) if isinstance(node, ast.If)
               and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"]  # fmt: skip
    skipped = {id(node) for block in checked for node in ast.walk(block)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and id(node) not in skipped and node.module:
            if node.module == "tfdeploy":
                yield from (f"tfdeploy.{alias.name}" for alias in node.names)
            elif node.module.startswith("tfdeploy."):
                yield node.module


# Homes


@pytest.mark.parametrize("library", HOMES)
def test_a_foreign_library_is_imported_at_its_home_alone(library):
    users = [file.as_posix() for file in FILES if library in foreign(file)]
    assert [user for user in users if not user.startswith(HOMES[library] or "-")] == []


@pytest.mark.parametrize("library", sorted({*HOMES} - {"invoke", "click", "grpc"}))
def test_every_home_is_lived_in(library):
    assert any(library in foreign(file) for file in FILES)


def test_every_foreign_library_has_a_home():
    used = set().union(*(foreign(file) for file in FILES if file not in HOST_SIDE))
    assert used - set(sys.stdlib_module_names) - set(HOMES) == set()


# The side of the hosts


@pytest.mark.parametrize("file", HOST_SIDE, ids=str)
def test_what_runs_on_hosts_imports_the_standard_library_and_its_neighbours_alone(file):
    theirs = {"tensorflow", "tfdeploy_checkpoints"} if file.parts[0] == "inside" else set()
    assert foreign(file) - set(sys.stdlib_module_names) - theirs == set()


@pytest.mark.parametrize("file", HOST_SIDE, ids=str)
def test_what_runs_on_hosts_imports_nothing_else_of_tfdeploy(file):
    whole = {name for name, relative in imports(file) if name.startswith("tfdeploy.")}
    entry = {"tfdeploy.agent.verbs", "tfdeploy.agent.verbs.main"}
    assert whole == (entry if file.as_posix() == "agent/__main__.py" else set())


@pytest.mark.parametrize("file", HOST_SIDE, ids=str)
def test_what_runs_on_hosts_is_python_3_8(file):
    text = (PACKAGE / file).read_text()
    tree = ast.parse(text, feature_version=(3, 8))
    newer = {"removeprefix", "removesuffix", "is_relative_to", "file_digest", "pairwise"}
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert used & newer == set()


@pytest.mark.parametrize("file", [f for f in HOST_SIDE if f.parts[0] == "agent"], ids=str)
def test_annotations_of_the_agent_are_never_evaluated(file):
    if file.name in ("__init__.py", "__main__.py"):
        assert "->" not in (PACKAGE / file).read_text()
    else:
        assert "from __future__ import annotations" in (PACKAGE / file).read_text()


# Downwards


@pytest.mark.parametrize("name", PURE)
def test_what_is_pure_imports_what_is_pure(name):
    allowed = {f"tfdeploy.{other}" for other in PURE} | {"tfdeploy.agent.records"}
    assert set(own(Path(f"{name}.py"))) <= allowed


@pytest.mark.parametrize(
    "file", [file for file in FILES if file.name not in ("__main__.py",)], ids=str
)
def test_nothing_imports_the_command_line_or_the_words_for_people(file):
    allowed = {"tfdeploy.console", "tfdeploy.cli"} if file.parent.name == "cli" else set()
    assert set(own(file)) & {"tfdeploy.cli", "tfdeploy.console"} <= allowed


@pytest.mark.parametrize("file", [f for f in FILES if f.parts[0] == "transport"], ids=str)
def test_transport_knows_neither_steps_nor_the_agent(file):
    wrong = ("tfdeploy.steps", "tfdeploy.agent", "tfdeploy.remote", "tfdeploy.fleet")
    assert [name for name in own(file) if name.startswith(wrong)] == []


# The public names


def test_public_names_are_sorted_and_there():
    assert sorted(tfdeploy.__all__) == list(tfdeploy.__all__)
    assert [name for name in tfdeploy.__all__ if getattr(tfdeploy, name) is None] == []


def test_a_name_that_is_not_public_is_refused():
    with pytest.raises(AttributeError, match="module 'tfdeploy' has no attribute 'nothing'"):
        _ = tfdeploy.nothing


# At once


def loaded(*words, cwd):
    """The modules that a command of tfdeploy has loaded at its end."""
    code = (
        "import json, sys\n"
        "from tfdeploy.cli import main\n"
        "sys.argv[0] = 'tfdeploy'\n"
        "try:\n main()\n"
        "finally:\n print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=cwd, capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0, done.stderr
    return {name.split(".")[0] for name in json.loads(done.stderr.splitlines()[-1])}


HEAVY = {"fabric", "paramiko", "invoke", "grpc", "tensorflow", "numpy", "matplotlib"}


@pytest.mark.parametrize("module", ["kept", "reaching", "keeper"])
def test_a_command_whose_connections_are_kept_loads_nothing_that_connects(module):
    code = f"import json, sys, tfdeploy.transport.{module}; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert {name.split(".")[0] for name in json.loads(done.stdout)} & HEAVY == set()


def test_help_loads_nothing_heavy(tmp_path):
    modules = loaded("--help", cwd=tmp_path)
    assert "typer" in modules
    assert modules & (HEAVY | {"pydantic", "pathspec"}) == set()


def test_plan_loads_nothing_that_connects(tmp_path):
    (tmp_path / "train.py").write_text("")
    (tmp_path / "hosts.toml").write_text(
        'project = "p"\n[training]\ncommand = "python train.py"\n'
        '[hosts.here]\ntransport = "local"\nworkers = 1\n'
    )
    modules = loaded("plan", cwd=tmp_path)
    assert "pydantic" in modules
    assert modules & HEAVY == set()
