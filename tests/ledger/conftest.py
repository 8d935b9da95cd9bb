"""A ledger in each kind of store, and batches in one line."""

import pytest

from ..ledger_kit import Kit

SERVER = pytest.param("postgres", marks=pytest.mark.thorough)


@pytest.fixture(params=["sqlite", SERVER])
def new_place(request, tmp_path):
    """Name places for new ledgers in a kind of store."""
    if request.param == "sqlite":
        return lambda name: tmp_path / f"{name}.db"
    server = request.getfixturevalue("postgres")
    return lambda name: server.url()


each_store = pytest.mark.parametrize("new_place", ["sqlite", "postgres"], indirect=True)
"""A test that `make test` runs with either store: together they make every statement that a ledger sends to a server.

All others share the code above the stores, and run with a server in `make test-thorough`.
"""


@pytest.fixture
def kit(new_place):
    kit = Kit(new_place("ledger"))
    yield kit
    kit.ledger.close()


@pytest.fixture
def new_kit():
    """Open another handle on a place; closed when the test ends."""
    opened = []

    def make(place):
        opened.append(Kit(place))
        return opened[-1]

    yield make
    for kit in opened:
        kit.ledger.close()
