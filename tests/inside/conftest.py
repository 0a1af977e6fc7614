"""Fixtures: the patches as they are in production, and clusters that are always stopped."""

import zipfile

import pytest
from separate_machines import INSIDE, Cluster


@pytest.fixture(scope="session")
def inside(tmp_path_factory):
    """The folder `inside` as it is in production: in a zip file."""
    archive = tmp_path_factory.mktemp("agent") / "0123abcd.pyz"
    with zipfile.ZipFile(archive, "w") as bundle:
        for source in sorted(INSIDE.glob("*.py")):
            bundle.write(source, f"inside/{source.name}")
    return archive / "inside"


@pytest.fixture
def cluster(tmp_path, inside):
    """A function that creates clusters, which are stopped at the end."""
    clusters = []

    def make(kind=Cluster, **jobs):
        clusters.append(kind(tmp_path, inside, **jobs))
        return clusters[-1]

    yield make
    for created in clusters:
        created.stop()
