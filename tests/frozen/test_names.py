"""Names that are stored or hashed: today's code writes exactly those of yesterday, whatever it calls things inside.

An added name is fine where it is added to a list that grows (a new mechanism, a new parameter with a default, a new
kind of event); a changed or missing one would make old files unreadable, or old releases other releases.
"""

import json
from pathlib import Path

import pytest

from . import events, jobs, names

FROZEN = json.loads(Path(__file__).with_name("names.json").read_text())


@pytest.fixture(scope="module")
def now(tmp_path_factory):
    """The jobs of the fixtures, made by today's code."""
    folder = tmp_path_factory.mktemp("names")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPTEXT_CACHE", str(folder / "cache"))
        for name in ("reviews", "tickets"):
            jobs.make(name, folder / name)
        events.make(folder / "events")
        events.make_rewritten(folder / "rewriting")
        return json.loads(json.dumps(names.observed(folder)))


@pytest.mark.parametrize("place", [name for name in FROZEN if name.startswith(("ledger", "folder"))])
def test_what_is_stored_has_the_names_it_had(place, now):
    assert now[place] == FROZEN[place]


@pytest.mark.parametrize("kind", FROZEN["cache"])
def test_a_stored_law_has_the_names_it_had(kind, now):
    assert now["cache"][kind] == FROZEN["cache"][kind]


@pytest.mark.parametrize("place", ["enums", "versions"])
def test_no_stored_value_changes(place, now):
    if place == "versions":
        pytest.importorskip("dptext_etl_models")
    for kind, held in FROZEN[place].items():
        assert held.items() <= now[place][kind].items()


def test_no_entry_of_a_policy_or_mechanism_is_renamed(now):
    pytest.importorskip("dptext_etl_models")
    for kind, held in FROZEN["entries"].items():
        assert set(held) <= set(now["entries"][kind]), kind


def test_labels_of_keys_streams_and_formats_stay(now):
    assert set(FROZEN["labels"]) <= set(now["labels"])
