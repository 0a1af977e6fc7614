"""README, CONTRIBUTING and docs/ agree with the code: states, commands, files, hosts.toml."""

import re
from collections import Counter
from pathlib import Path

from tfdeploy import cli
from tfdeploy.config import inventory
from tfdeploy.planning import placing
from tfdeploy.shared import records
from tfdeploy.shared.records import HEALTHS
from unit.test_imports import AGENT_MAY_IMPORT, MAY_IMPORT

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = {path.name: path.read_text() for path in sorted(DOCS.glob("*.md"))}
README = (ROOT / "README.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
ALL = {"README.md": README, "CONTRIBUTING.md": CONTRIBUTING, **PAGES}
WORD = re.compile(r"[A-Z][A-Z_]+")
IDENTIFIER = re.compile(r"(?:\w+\.)?([A-Za-z_]\w+)(?:\(.*\))?")
FOLDERS = "tfdeploy|docs|tests|examples"
TOP = "|".join(sorted({name.split(".")[0] for name in MAY_IMPORT} - {"run", "errors", "cluster"}))


def constants(module):
    """The values of the module's constants that are named as their value, such as READY."""
    return {value for name, value in vars(module).items() if name == value and WORD.match(name)}


def section(page, title):
    """The text of a page between a heading and the next one."""
    return re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", page, re.M | re.S)[1]


def first_column(text):
    return set(re.findall(r"^\| `?([A-Z_a-z]+)`? \|", text, re.M))


# States, health, commands


def test_the_table_of_states_lists_each_state():
    table = section(PAGES["failures.md"], "STATE")
    assert first_column(table) - {"state"} == constants(records) - ({*HEALTHS} - {records.READY})


def test_the_table_of_health_lists_each_health():
    table = section(PAGES["failures.md"], "HEALTH")
    assert first_column(table) - {"health"} == {*HEALTHS}


def test_the_page_of_commands_lists_each_command_and_the_readme_six_of_them():
    commands = {
        command.name or command.callback.__name__ for command in cli.app.registered_commands
    }
    readme = re.findall(r"^    tfdeploy (\w+)", section(README, "On your machines"), re.M)
    assert {*readme} <= commands
    assert len(readme) == 6
    listed = re.findall(r"^\| `(\w+)` \|", PAGES["commands.md"].partition("##")[0], re.M)
    assert sorted(listed) == sorted(commands)


# Files and links


def named_files():
    """(page, path) for each file of the repository that a page names in backticks."""
    for name, text in ALL.items():
        for path in sorted(set(re.findall(rf"`((?:{FOLDERS})/[\w./]*)`", text))):
            yield name, path


def linked_files():
    for name, text in ALL.items():
        folder = ROOT if name in ("README.md", "CONTRIBUTING.md") else (DOCS / name).parent
        for target in sorted(set(re.findall(r"\]\(([^)#]+)", text))):
            if "://" not in target:
                yield name, (folder / target).resolve().relative_to(ROOT).as_posix()


GENERATED = {"tests/.failed/", "tests/bench/.peers/"}


def test_each_file_that_a_page_names_exists():
    named = [*named_files(), *linked_files()]
    assert [(page, path) for page, path in named if not (ROOT / path).exists()
            and path not in GENERATED] == []  # fmt: skip


def test_each_file_that_the_architecture_page_and_the_decisions_name_exists():
    text = PAGES["architecture.md"] + PAGES["decisions.md"]
    paths = set(re.findall(rf"\b((?:{TOP})/[\w/]+\.py)\b", text))
    folders = (ROOT, ROOT / "tfdeploy", ROOT / "tests")
    assert {path for path in paths if not any((each / path).exists() for each in folders)} == set()


def test_the_picture_of_the_architecture_has_each_package():
    picture = section(PAGES["architecture.md"], "The packages")
    names = [package.replace(".", "/") for package in (*MAY_IMPORT, *AGENT_MAY_IMPORT)]
    assert [n for n in names if f"{n}/" not in picture and f"{n}.py" not in picture] == []


def test_the_index_lists_each_page():
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", PAGES["index.md"]))
    assert linked == {*PAGES} - {"index.md"}


def rows_of_places():
    """Return (question, files, functions) of each row of "Find the place"."""
    rows = re.findall(r"^\| (.+) \|$", section(CONTRIBUTING, "Find the place"), re.M)
    cells = [row.split(" | ") for row in rows if not row.startswith(("where", "question", "-"))]
    return [(row[0], *(re.findall(r"`([\w/.]+)`", cell) for cell in row[1:])) for row in cells]


def test_each_file_of_find_the_place_exists_and_has_the_functions_beside_it():
    code = ROOT / "tfdeploy"
    places = rows_of_places()
    assert [file for _, files, *_ in places for file in files if not (code / file).exists()] == []
    questions = [place for place in places if len(place) > 2]
    assert len(questions) == 10
    for question, files, functions in questions:
        text = "".join((code / file).read_text() for file in files)
        found = re.findall(r"^ *def (\w+)\(", text, re.M)
        assert functions
        assert {*functions} <= {*found}, question


def named_identifiers():
    """Return (files, identifier) for each identifier of "How to add" beside the files it is in."""
    section = re.search(r"^## How to add.*?\n(.*?)^## ", CONTRIBUTING, re.M | re.S)[1]
    for line in section.splitlines():
        tokens = re.findall(r"`([^`]+)`", line)
        files = [token for token in tokens if "/" in token and (ROOT / token).exists()]
        names = [found[1] for token in tokens if (found := IDENTIFIER.fullmatch(token))]
        if files:
            yield from ((files, name) for name in names)


def test_each_identifier_of_how_to_add_is_in_a_file_named_beside_it():
    def is_in(name, file):
        path = ROOT / file
        sources = path.rglob("*.py") if path.is_dir() else [path]
        return any(re.search(rf"\b{name}\b", source.read_text()) for source in sources)

    named = [*named_identifiers()]
    assert named
    assert [(files, name) for files, name in named if not any(is_in(name, f) for f in files)] == []


# hosts.toml


def planned(page, number=0):
    """Return the plan of a page's hosts.toml; `number` counts those of the page."""
    text = re.findall(r"```toml\n(.*?)```", page, re.S)[number]
    loaded = inventory.parse(text, ROOT / "hosts.toml")
    return placing.make_plan(loaded, {host.name: host.name for host in loaded.hosts})


def test_the_hosts_toml_of_the_readme_has_ten_lines_and_can_be_planned():
    result = planned(README)
    assert [str(p.task) for p in result.placements[:2]] == ["ps:0", "worker:0"]
    assert len(result.placements) == 1 + 2 * 4
    lines = re.search(r"```toml\n(.*?)```", README, re.S)[1].splitlines()
    assert len([line for line in lines if line.strip()]) <= 10


def test_the_hosts_toml_of_getting_started_can_be_planned():
    result = planned(PAGES["getting-started.md"])
    assert result.placement(result.chief.task).host == "gpu-01"
    assert len(result.placements) == 1 + 2 + 15 * 4


def test_each_hosts_toml_of_the_page_about_migrating_can_be_planned():
    numbers = [[1, 2], [4], [2, 4], [6]]
    for number in range(4):
        counts = Counter(p.task.job for p in planned(PAGES["migrating.md"], number).placements)
        assert [*counts.values()] == numbers[number]


# Messages


# What Python and programs say, not tfdeploy.
MESSAGES_OF_OTHERS = {"marshal data too short", "No such file or directory"}


def test_each_message_that_a_row_of_troubleshooting_quotes_is_in_the_code():
    files = [*(ROOT / "tfdeploy").rglob("*.py"), *(ROOT / "tfdeploy").rglob("*.c")]
    code = "".join(re.sub(r'"\s*\n\s*f?"', "", file.read_text()) for file in files)
    rows = re.findall(r"^\| (.*?) \| ", PAGES["troubleshooting.md"], re.M)
    messages = {quote for row in rows for quote in re.findall(r"`([^`]+ [^`]+ [^`]+)`", row)}
    assert "the guard does not cover" in messages
    absent = {m for m in messages if not all(p.strip() in code for p in m.split("…"))}
    assert absent <= MESSAGES_OF_OTHERS


# Faults


def test_each_test_that_the_page_of_faults_names_exists():
    named = set(re.findall(r"\b([\w/]+/test_\w+[a-z])\b", PAGES["faults.md"]))
    assert named
    assert {test for test in named if not (ROOT / "tests" / f"{test}.py").exists()} == set()


def test_the_page_of_faults_has_each_number_once():
    rows = re.findall(r"^\| ([\d, ]+) \|", PAGES["faults.md"], re.M)
    numbers = [int(n) for row in rows for n in row.split(", ")]
    assert {*range(1, 49)} <= {*numbers}
    assert len({*numbers}) == len(numbers)
