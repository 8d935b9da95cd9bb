"""A corpus in an object store is the corpus of the same bytes in a folder: same hash, configuration and draws."""

import shutil

import pytest

from dptext_etl import Policy, load
from dptext_etl.corpora import Corpus, corpus
from dptext_etl.errors import ArtifactError, PolicyError
from dptext_etl.storage import Objects
from tests.corpus_texts import texts

pytest.importorskip("obstore", reason="obstore is not installed (extra: objects)")

FACTS = {"licence": "CC0", "provenance": "made for tests", "encoder": {"kind": "words"}}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A corpus in a folder that obstore reads as a store, and an empty artifact cache."""
    monkeypatch.setenv("DPTEXT_CACHE", str(tmp_path / "cache"))
    return saved(tmp_path / "store" / "turns", texts()[:40])


def saved(place, lines):
    return Corpus.save(place, lines, FACTS, encoder=Corpus.open("example").encoder).path.parent


def mechanism(reference):
    return load("surrogate")(epsilon=2.0, corpus=str(reference), hit=0.5)


def test_a_url_names_the_corpus_of_the_same_bytes(folder):
    local = Corpus.open(folder)
    for url in (f"file://{folder}", f"file://{folder}/", f"file://{folder}/corpus.safetensors"):
        assert Corpus.open(url).sha256 == local.sha256
        assert Corpus.open(url).path != local.path
        assert mechanism(url).cfg() == mechanism(folder).cfg()
        assert mechanism(url).near_to(local.texts[3]) == mechanism(folder).near_to(local.texts[3])
    with pytest.raises(ArtifactError, match="hash differs"):
        Corpus.open(f"file://{folder}", "0" * 64)


def test_it_is_downloaded_once_for_every_state_of_the_object(folder, monkeypatch):
    loads = []
    real = Objects.download
    monkeypatch.setattr(Objects, "download", lambda self, name, out: loads.append(name) or real(self, name, out))
    url = f"file://{folder}"
    first, again = Corpus.open(url), Corpus.open(url)
    assert (first.path, loads) == (again.path, ["corpus.safetensors"])
    shutil.rmtree(folder)
    saved(folder, texts()[40:80])
    other = Corpus.open(url)
    assert (len(loads), other.sha256 == first.sha256) == (2, False)
    assert other.texts == tuple(texts()[40:80])
    assert first.texts == tuple(texts()[:40]), "who opened the old one still has it"


def policy(folder, **more):
    column = {
        "name": "text",
        "mechanism": {"name": "surrogate", "epsilon": 2.0, "hit": 0.5, "corpus": f"file://{folder}"},
    }
    places = {"source": "in.parquet", "sink": "out", "id": "id", "unit": "record", "publish": False, **more}
    named = {"dataset": "d", "release": "r", "key": "env:DPTEXT_SECRET", "ledger": {"url": "ledger.db"}}
    return Policy.parse({**named, **places, "column": [{**column, "allow": ["nullness"]}]})


def test_a_policy_reads_it_with_its_storage_options(folder, monkeypatch):
    given = []
    real = Objects.open.__func__
    monkeypatch.setattr(
        Objects, "open", classmethod(lambda cls, url, options: given.append(dict(options)) or real(cls, url, {}))
    )
    made = policy(folder, storage_options={"aws_region": "here"})
    assert given == [{"aws_region": "here"}]
    (column,) = made.column_policies()
    assert column.mechanism.table.sha256 == Corpus.open(folder).sha256
    assert "://" not in column.mechanism.corpus, "workers and plans get the file, no credentials"
    assert made.columns[0].mechanism.corpus == f"file://{folder}", "the policy says what was written"
    assert column.mechanism.cfg() == mechanism(folder).cfg()


def test_what_is_not_there_is_refused_in_words(folder, monkeypatch):
    with pytest.raises(ArtifactError, match="there is no corpus at"):
        Corpus.open(f"file://{folder}/other.safetensors")
    with pytest.raises(PolicyError, match="names the host bucket"):
        Corpus.open("nowhere://bucket/turns")
    monkeypatch.setenv("DPTEXT_ENDPOINTS", "bucket")
    with pytest.raises(ArtifactError, match="opening the object store"):
        Corpus.open("nowhere://bucket/turns")
    with pytest.raises(PolicyError, match="NO_SUCH_VARIABLE, which is not set"):
        corpus.fetched(f"file://{folder}", {"aws_secret_access_key": "env:NO_SUCH_VARIABLE"})
    (folder / "corpus.safetensors").write_bytes(b"no corpus")
    with pytest.raises(ArtifactError, match="reading the corpus"):
        Corpus.open(f"file://{folder}")
