"""Imports: each library has one home, packages have layers, and hosts need only Python 3.8."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import tfdeploy
from tfdeploy import cli

PACKAGE = Path(tfdeploy.__file__).parent
TESTS = Path(__file__).parents[1]
FILES = sorted(file.relative_to(PACKAGE) for file in PACKAGE.rglob("*.py"))
HOST_SIDE = [file for file in FILES if file.parts[0] in ("agent", "inside", "shared")]
# Modules that use no host, network, clock or disk, as docs/architecture.md says.
PURE = (
    *(
        "init.document",
        "init.keras",
        "init.machine",
        "init.placement",
        "init.script_role",
        "init.strategy",
    ),
    *("release.gitignore", "release.syntax"),
    *("environments.packages", "errors", "formatting", "planning", "config"),
    "output.status_table",
    *("commands.records.claims", "commands.watching.history"),
    *("documents", "config.redact"),
    "branches.measuring.speed.report",
    *("branches.measuring.speed.results", "branches.measuring.speed.verdicts"),
)
# Each package or top-level module, and those that it may import. Cycles are not allowed, not even
# for type checkers. docs/architecture.md has a diagram.
MAY_IMPORT = {
    "formatting": (),
    "errors": ("formatting",),
    "documents": ("errors", "shared"),
    "folders": ("errors", "formatting", "shared"),
    "release": ("errors", "formatting"),
    "config": ("errors", "formatting"),
    "transport": ("errors",),
    "transport.ssh": ("config", "errors", "transport", "folders"),
    "transport.openssh": ("config", "errors", "transport", "transport.ssh", "folders"),
    "transport.daemon": (
        *("config", "errors", "transport", "transport.openssh", "transport.ssh", "folders"),
    ),
    "planning": ("shared", "config", "errors", "formatting", "release"),
    "run": (
        *("config", "errors", "formatting", "folders", "planning"),
        "trust",
    ),
    "environments": ("shared", "config", "errors", "formatting", "release"),
    "trust": ("config", "environments", "errors", "folders", "formatting"),
    "hosts": (
        *("shared", "config", "errors", "formatting", "planning", "run"),
        *("transport", "transport.daemon", "transport.openssh", "transport.ssh"),
    ),
    "transfer": (
        *("shared", "config", "errors", "formatting", "hosts", "planning", "release", "run"),
        *("transport", "folders"),
    ),
    "results": (
        *("shared", "config", "errors", "formatting", "hosts", "folders", "planning", "run"),
        "transport",
    ),
    "init": (
        *("shared", "config", "environments", "errors", "formatting", "hosts", "planning"),
        *("release", "transfer"),
    ),
    "commands": (
        *("shared", "config", "environments", "errors", "formatting"),
        *("hosts", "init", "folders", "planning", "release", "results", "run", "transfer"),
        *("transport", "transport.openssh", "transport.ssh"),
    ),
    "api": (
        *("shared", "commands", "config", "errors", "formatting", "hosts", "run"),
        *("transfer", "trust"),
    ),
    "output": (
        *("shared", "branches", "commands", "documents", "environments", "errors"),
        *("formatting", "hosts", "init"),
        *("planning", "release", "results", "run", "transfer"),
    ),
    "cli": (
        *("api", "branches", "commands", "config", "documents", "environments", "errors"),
        *("folders", "formatting", "hosts", "init", "output", "run", "shared"),
        *("transfer", "trust"),
    ),
    # The trunk calls a branch by its name in BRANCHES, and imports nothing of it.
    "branches": (),
    "branches.live": (
        *("cli", "commands", "environments", "errors", "formatting"),
        *("hosts", "output", "planning", "results", "run", "shared"),
    ),
    "branches.measuring": (
        *("cli", "commands", "config", "documents", "environments", "errors", "folders"),
        *("formatting", "hosts", "output", "planning", "run", "shared", "trust"),
    ),
    "shared": (),
    "agent": ("shared",),
    "inside": (),
}
# The same for the agent's packages. All of them may import its top-level modules.
AGENT_MAY_IMPORT = {
    "machine": (),
    "queue": ("machine",),
    "environments": ("machine",),
    "outputs": ("machine", "releases"),
    "reports": ("machine", "outputs", "queue"),
    "releases": ("machine",),
    "supervision": ("machine", "outputs", "queue", "releases", "reports"),
    "runs": (
        *("environments", "machine", "outputs", "queue", "releases", "reports"),
        "supervision",
    ),
    "preflight": ("environments", "machine", "queue", "runs", "supervision"),
}
# The same for the files and packages of commands/, in rows: each may import those of rows above it.
COMMANDS = (
    ("changing", "environments", "exec", "fetch", "hosts", "logs", "queue", "runs", "signals"),
    ("watching",),
    ("intent", "prune", "status"),
    ("preflight", "stop", "trials"),
    ("check", "collect", "launching", "plan", "push"),
    ("free_hosts", "init", "records", "tensorboard"),
    ("start",),
    ("resume",),
    ("running", "scale"),
)
HOMES = {
    "jinja2": ("branches/measuring/run_report/page.py",),
    "fabric": ("transport/ssh/connection.py",),
    "invoke": ("transport/ssh/connection.py",),
    "matplotlib": ("branches/measuring/plots.py",),
    "paramiko": (
        "transport/ssh/connection.py",
        "transport/ssh/channels.py",
        "transport/ssh/client_transport.py",
        "transport/ssh/host_keys.py",
        "transport/ssh/errors.py",
    ),
    "cryptography": ("transfer/relay.py",),
    "typer": ("cli/", "branches/live/commands.py", "branches/measuring/commands.py"),
    "click": ("cli/",),
    "rich": ("output/", "branches/live/app.py"),
    "textual": ("branches/live/app.py",),
    "toml": ("config/toml_text.py",),
    "tomllib": ("config/toml_text.py", "release/by_products.py"),
    "pydantic": ("config/",),
    "subprocess": (
        *("transport/", "agent/", "environments/wheelhouse.py"),
        "commands/tensorboard/board.py",
        "release/git.py",
    ),
    "tensorboard": (
        "commands/tensorboard/hparams.py",
        "commands/tensorboard/process.py",
    ),
    "uv": ("environments/wheelhouse.py",),
    "tensorflow": ("inside/",),
    "grpc": (),
}


@cache
def parsed(file):
    return ast.parse((PACKAGE / file).read_text())


@cache
def import_statements(file):
    return [
        each for each in ast.walk(parsed(file)) if isinstance(each, ast.Import | ast.ImportFrom)
    ]


def imports(file):
    """Yield (module, whether the import is relative) for each import in a file."""
    for node in import_statements(file):
        if isinstance(node, ast.Import):
            yield from ((alias.name, False) for alias in node.names)
        else:
            yield node.module or "", node.level > 0
            if node.module and node.module.split(".")[0] == "tfdeploy":
                yield from ((f"{node.module}.{alias.name}", False) for alias in node.names)


@cache
def foreign(file):
    """Return the top-level modules that a file imports from outside tfdeploy."""
    found = {name.split(".")[0] for name, relative in imports(file) if not relative}
    return found - {"tfdeploy", "__future__"}


def own(file, *, checked=True):
    """Yield the modules of tfdeploy that a file imports; with `checked` also for type checkers."""
    here = ("tfdeploy", *file.parent.parts)
    skipped = set() if checked else {id(node) for node in _for_type_checkers(parsed(file))}
    for node in import_statements(file):
        if isinstance(node, ast.ImportFrom) and id(node) not in skipped:
            above = here[: len(here) - node.level + 1] if node.level else ()
            source = ".".join([*above, *([node.module] if node.module else [])])
            names = [f"{source}.{alias.name}" for alias in node.names]
            yield from (
                name if name in MODULES else source
                for name in names
                if name.startswith("tfdeploy.")
            )


def _for_type_checkers(tree):
    blocks = [node for node in ast.walk(tree) if isinstance(node, ast.If)
              and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"]  # fmt: skip
    return [node for block in blocks for node in ast.walk(block)]


def package(module):
    """Return the longest key of MAY_IMPORT that is a prefix of the module's name."""
    parts = module.removeprefix("tfdeploy").strip(".").split(".")
    names = [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
    return next((name for name in names if name in MAY_IMPORT), "")


def found(offenders):
    """Return what each file does against a rule, without the files that keep it."""
    return {file: what for file, what in offenders.items() if what}


def module_of(file):
    parts = ("tfdeploy", *file.with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(file) for file in FILES}


# Homes


def test_a_foreign_library_is_imported_only_in_its_home():
    users = [(file.as_posix(), library) for file in FILES for library in foreign(file) & {*HOMES}]
    assert [user for user in users if not user[0].startswith(HOMES[user[1]] or "-")] == []


def test_every_home_imports_its_library():
    used = set().union(*map(foreign, FILES))
    assert {*HOMES} - {"invoke", "click", "grpc"} - used == set()


def test_every_foreign_library_has_a_home():
    used = set().union(*(foreign(file) for file in FILES if file not in HOST_SIDE))
    assert used - set(sys.stdlib_module_names) - set(HOMES) == set()


# The name of a package, where it is another one than that of its module.
PACKAGES = {"invoke": "fabric"}  # which requires the invoke that fits


def test_every_foreign_library_is_a_declared_dependency():
    """A package that only another one brings may be gone with that one's next version."""
    project = tomllib.loads((TESTS.parent / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    texts = [*project["dependencies"], *(t for extra in extras.values() for t in extra)]
    declared = {re.match(r"[\w-]+", text)[0] for text in texts}
    used = set().union(*(foreign(file) for file in FILES if file not in HOST_SIDE))
    used -= set(sys.stdlib_module_names)
    assert {PACKAGES.get(name, name) for name in used} - declared == set()


# Code that runs on hosts


def test_host_code_imports_only_the_standard_library_and_its_neighbours():
    inside = {"tensorflow", *(source.stem for source in (PACKAGE / "inside").glob("tfdeploy_*.py"))}
    neighbours = {"agent": set(), "inside": inside, "shared": set()}
    offenders = {
        file: foreign(file) - set(sys.stdlib_module_names) - neighbours[file.parts[0]]
        for file in HOST_SIDE
    }
    assert found(offenders) == {}


def test_host_code_imports_no_other_module_of_tfdeploy():
    offenders = {
        file: {name for name, relative in imports(file) if name.startswith("tfdeploy.")}
        for file in HOST_SIDE
    }
    entry = {"tfdeploy.agent.verbs", "tfdeploy.agent.verbs.main"}
    assert found(offenders) == {Path("agent/__main__.py"): entry}


def test_host_code_is_python_3_8():
    newer = {"removeprefix", "removesuffix", "is_relative_to", "file_digest", "pairwise"}
    offenders = {}
    for file in HOST_SIDE:
        tree = ast.parse((PACKAGE / file).read_text(), str(file), feature_version=(3, 8))
        used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        offenders[file] = used & newer
    assert found(offenders) == {}


def test_annotations_of_host_code_are_never_evaluated():
    texts = {file: (PACKAGE / file).read_text() for file in HOST_SIDE if file.parts[0] != "inside"}
    evaluated = [
        file
        for file, text in texts.items()
        if (
            "->" in text
            if file.name in ("__init__.py", "__main__.py")
            else "from __future__ import annotations" not in text
        )
    ]
    assert evaluated == []


# Layers


def test_a_package_imports_only_the_packages_below_it():
    offenders = {}
    for file in FILES:
        importer = package(module_of(file))
        used = {package(name) for name in own(file)} - {importer, ""}
        offenders[file] = used - set(MAY_IMPORT.get(importer, ("cli", *MAY_IMPORT)))
    assert found(offenders) == {}


@pytest.mark.parametrize("table", [MAY_IMPORT, AGENT_MAY_IMPORT], ids=["controller", "agent"])
def test_packages_do_not_import_each_other_in_a_circle(table):
    TopologicalSorter(table).prepare()  # raises CycleError


def test_files_do_not_import_each_other_in_a_circle():
    """Imports for type checkers count in commands/."""
    graph = {
        module_of(file): {*own(file, checked=file.parts[0] == "commands")} - {module_of(file)}
        for file in FILES
    }
    TopologicalSorter(graph).prepare()  # raises CycleError


def test_a_file_of_commands_imports_only_the_rows_above_it():
    row_of = {name: row for row, names in enumerate(COMMANDS) for name in names}
    offenders, names = {}, set()
    for file in FILES:
        if file.parts[0] == "commands" and file.name != "__init__.py":
            parts = [name.split(".") for name in own(file)]
            used = {each[2] for each in parts if each[1:2] == ["commands"] and len(each) > 2}
            name = file.with_suffix("").parts[1]
            offenders[file] = {each for each in used - {name} if row_of[each] >= row_of[name]}
            names.add(name)
    assert found(offenders) == {}
    assert names == {*row_of}


def test_a_package_of_the_agent_imports_only_the_packages_below_it():
    offenders = {}
    for file in FILES:
        if file.parts[0] == "agent" and len(file.parts) > 2:
            parts = [name.split(".") for name in own(file)]
            used = {names[2] for names in parts if len(names) > 2} & set(AGENT_MAY_IMPORT)
            offenders[file] = used - {file.parts[1], *AGENT_MAY_IMPORT[file.parts[1]]}
    assert found(offenders) == {}


def test_a_pure_module_imports_only_pure_modules():
    pure = tuple(f"tfdeploy.{name}" for name in PURE)
    shared = (f"tfdeploy.shared.{each}" for each in ("pace", "records", "protocol.record"))
    allowed = (*pure, *shared)
    offenders = {}
    for name in PURE:
        files = [file for file in FILES if f"{module_of(file)}.".startswith(f"tfdeploy.{name}.")]
        assert files, name
        used = {module for file in files for module in own(file, checked=False)}
        offenders[name] = {module for module in used if not module.startswith(allowed)}
    assert found(offenders) == {}


def test_a_folder_has_few_entries():
    """`commands` has at most one file per command; the top folder has all packages and main
    modules."""
    commands = len(cli.app.registered_commands)
    limits = {".": 26, "commands": commands, "shared": 17}
    limits |= dict.fromkeys(("agent", "agent/machine", "cli"), 16)
    limits["agent/supervision"] = 17
    offenders = {}
    for folder in {file.parent for file in FILES}:
        depth = len(folder.parts)
        children = {file.parts[depth] for file in FILES if file.is_relative_to(folder)}
        limit = limits.get(folder.as_posix(), 15)
        offenders[folder] = children if len(children) > limit else set()
    assert found(offenders) == {}


def test_each_package_has_a_docstring():
    packages = [file for file in FILES if file.name == "__init__.py"]
    assert [file for file in packages if not ast.get_docstring(parsed(file))] == []


# Tests


def test_no_folder_of_tests_imports_another_except_support():
    folders = {folder.name for folder in TESTS.iterdir() if folder.is_dir()} - {"support"}
    statement = re.compile(r"^\s*(?:from|import) (\w+)", re.M)
    offenders = {}
    for file in filter(
        Path.is_file, TESTS.rglob("*.py")
    ):  # evidence of a failed test may be a folder
        own_folder = file.relative_to(TESTS).parts[0]
        offenders[file] = {*statement.findall(file.read_text())} & (folders - {own_folder})
    assert found(offenders) == {}


# The public names


def test_public_names_are_sorted_and_exist():
    assert sorted(tfdeploy.__all__) == list(tfdeploy.__all__)
    assert [name for name in tfdeploy.__all__ if getattr(tfdeploy, name) is None] == []


def test_a_name_that_is_not_public_is_refused():
    with pytest.raises(AttributeError, match="module 'tfdeploy' has no attribute 'nothing'"):
        _ = tfdeploy.nothing
