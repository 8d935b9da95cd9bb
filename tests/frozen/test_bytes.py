"""Bytes that were released once stay what they are: every kernel and every engine gives what the first one gave.

`README.md` says which commit froze them. Nothing here says what is right; other tests do. These say what is the same.
"""

import json

import pyarrow as pa
import pytest

from dptext_etl import column

from . import cases_releases, golden, rows

LABELS = list(cases_releases.POLICIES)


def as_json(value):
    return json.loads(json.dumps(value))


def differing(now, then):
    """Which cases differ, each with what it was and what it is."""
    assert now.keys() == then.keys()
    return {name: {"then": then[name], "now": now[name]} for name in then if now[name] != then[name]}


@pytest.mark.parametrize("part", [name for name in golden.PARTS if name != "releases"])
def test_what_was_observed_then_is_observed_now(part, tmp_path):
    assert differing(as_json(golden.PARTS[part](tmp_path)), golden.frozen(part)) == {}


@pytest.fixture(scope="module")
def frozen():
    return golden.frozen("releases")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("frozen")


@pytest.mark.parametrize("label", LABELS)
def test_a_mechanism_releases_what_it_released(label, frozen, folder):
    assert differing(as_json(cases_releases.by_column(label, folder)), frozen[label]) == {}


def test_names_and_nonce_enter_the_keys_as_they_did(frozen, folder):
    now = as_json(cases_releases.by_column("custext", folder, "others"))
    assert now == frozen["under other names"]
    assert now["text"] != frozen["custext"]["text"]


@pytest.mark.parametrize("label", LABELS)
def test_every_layout_of_the_texts_is_read_alike(label, frozen, folder):
    policy = cases_releases.policy(label, folder)
    for name, texts in cases_releases.layouts_of_texts().items():
        ids = rows.ids().dictionary_encode() if "view" in name else rows.ids(pa.string_view())
        assert column.privatize(texts, ids, policy).to_pylist() == frozen[label]["text"], name


@pytest.mark.parametrize("label", LABELS)
def test_polars_releases_the_same(label, frozen, folder):
    for engine in cases_releases.ENGINES:
        assert cases_releases.by_polars(label, folder, engine) == frozen[label]["text"], engine
    spent = cases_releases.by_polars_with_spend(label, folder)
    assert spent == {name: frozen[label][name] for name in spent}
