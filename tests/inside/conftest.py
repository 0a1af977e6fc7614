"""The patch as it is in production, and clusters that are stopped whatever happens."""

import zipfile

import pytest
from separate_machines import INSIDE, Cluster


@pytest.fixture(scope="session")
def inside(tmp_path_factory):
    """The directory as it is in production: within a zip file."""
    archive = tmp_path_factory.mktemp("agent") / "0123abcd.pyz"
    with zipfile.ZipFile(archive, "w") as bundle:
        for source in sorted(INSIDE.glob("*.py")):
            bundle.write(source, f"inside/{source.name}")
    return archive / "inside"


@pytest.fixture
def cluster(tmp_path, inside):
    """Makes clusters, and stops whatever is left of them."""
    made = []

    def make(**jobs):
        made.append(Cluster(tmp_path, inside, **jobs))
        return made[-1]

    yield make
    for one in made:
        one.stop()
