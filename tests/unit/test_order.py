"""Which of the slow tests run in one worker."""

from __future__ import annotations

import pytest
from support import order


@pytest.fixture(scope="module")
def shared(request):
    return request.param


@pytest.mark.parametrize(
    ("shared", "case"), [("a", 1), ("a", 2), ("b", 3)], indirect=["shared"], scope="module"
)
def test_the_tests_of_a_fixture_run_in_one_worker_whatever_else_they_get(request, shared, case):
    assert order.group(request.node) == f"{request.node.location[0]}-{shared}"
