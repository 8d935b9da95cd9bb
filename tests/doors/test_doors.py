"""Every entry of a policy through every way to release a table: applied, refused by name, or of no concern."""

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from tests.quick import quick
from tests.toy_mechanisms import again  # noqa: F401  (a fixture)

from . import doors, probes

HERE = Path(__file__).parent
TABLE = tomllib.loads((HERE / "doors.toml").read_text(encoding="utf-8"))
NAMES = [*TABLE["doors"]]
CELLS = {
    entry: dict(zip(NAMES, letters.split(), strict=True))
    for names, letters in TABLE["cells"].items()
    for entry in names.split(", ")
}
FAST = ("run", "expression", "table", "column")
WHOLE = ("view", "asset", "component", "suite", "dbt")
"""Ways that accept only the policy of a dataset."""


def test_the_table_has_every_entry_once_and_every_entry_has_a_value():
    every = [*probes.entries()]
    assert sorted(CELLS) == sorted(every), "classify a new entry for each way to release a table"
    assert len(CELLS) == sum(len(names.split(", ")) for names in TABLE["cells"])
    assert {letter for row in CELLS.values() for letter in row.values()} == {"A", "R", "-"}
    tested = probes.probes(Path("folder"), "vectors").keys()
    assert {*every} - {*probes.ELSEWHERE} == {*tested}
    for entry, file in probes.ELSEWHERE.items():
        assert (HERE.parent / file).is_file()
        if entry != "source_catalog":
            assert CELLS[entry] == CELLS[entry.partition(".")[0]], "an entry inside another one is treated as that one"


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    folder = tmp_path_factory.mktemp("doors") / "template"
    folder.mkdir()
    probes.prepare(folder)
    return folder


def cells(names, *, most=None):
    """Return the cells of some ways; in slow ways, only cells of top-level entries that matter are quick."""
    chosen = [(name, entry) for name in names for entry in CELLS if entry not in probes.ELSEWHERE]
    fast = [cell for cell in chosen if cell[0] in FAST]
    slow = [cell for cell in chosen if cell[0] not in FAST]
    first = [cell for cell in slow if CELLS[cell[1]][cell[0]] != "-" and "." not in cell[1]][:most]
    return quick(fast + first + [cell for cell in slow if cell not in first], first=len(fast + first))


@pytest.fixture(scope="module")
def known():
    """Outcomes of this file: most entries change one policy, whose outcome before the change is the same."""
    return {}


def agree(door, name, entry, template, vectors, known):
    """Compare the result of a way before and after a change of an entry with the table."""
    letter = CELLS[entry][name]
    if entry == "ColumnPolicy.nonce" and name in WHOLE:
        return
    probe = probes.probes(Path("folder"), "vectors")[entry]
    before, after = (repr((name, case)) for case in (replace(probe, change={}, nonce=None), probe))
    for case, changed in ((before, False), (after, True)):
        if case not in known:
            known[case] = doors.outcome(door, doors.Case(template, vectors, entry, changed=changed))
    before, after = known[before], known[after]
    if letter == "-":
        assert after == before
    elif letter == "A":
        assert after != before
    else:
        kind, words = after
        assert kind == "refused"
        assert any(name in words for name in entry.split(".")), words
        assert after != before or entry == "column.keep_intermediate", "an entry of postprocess, which is refused too"


@pytest.fixture
def again_alike(again):  # noqa: F811
    """The post-processing `again`, with equal texts for equal texts."""
    again.says = staticmethod(lambda text: f"{text} again")


@pytest.fixture
def state(tmp_path, monkeypatch):
    """Name no place of heads, except in the policy."""
    monkeypatch.delenv("DPTEXT_ANCHORS", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


@pytest.mark.usefixtures("again_alike", "state")
@pytest.mark.parametrize(("name", "entry"), cells((*FAST, "dbt")))
def test_each_entry_in_functions_and_runs(template, small_vectors, known, name, entry):
    agree(getattr(doors, f"by_{name}"), name, entry, template, small_vectors, known)
