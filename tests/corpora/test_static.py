"""Token vectors of an installed static embedding: the command, the corpus over them, and releases through both."""

import json

import numpy as np
import pyarrow as pa
import pytest
from safetensors.numpy import save_file
from typer.testing import CliRunner

from dptext_etl import _kernel, load
from dptext_etl.cli.app import app
from dptext_etl.column import draw
from dptext_etl.corpora import Corpus, building, static
from dptext_etl.corpora.building import Options, Source
from dptext_etl.corpora.corpus import TokenEncoder, quantised
from dptext_etl.errors import ArtifactError, PolicyError
from dptext_etl.families.aggregate import describe, linear_discriminant, noisy, partial_sum
from dptext_etl.keys import throwaway
from tests.corpus_texts import static_package, texts

tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed (extra: static)")
TEXTS = texts()
WIDTH = 24


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A folder on sys.path with a package of the layout of static embeddings, installed by its metadata only."""
    return static_package(tmp_path_factory.mktemp("site"), WIDTH)


@pytest.fixture
def file(package, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(package))
    static.write("smallvec", tmp_path / "static.safetensors")
    return tmp_path / "static.safetensors"


def test_the_command_writes_vectors_license_and_hashes_and_builds_a_corpus(package, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(package))
    out = tmp_path / "static.safetensors"
    result = CliRunner().invoke(app, ["corpus", "vectors", "smallvec", "--out", str(out), "--json"])
    assert result.exit_code == 0, result.output
    facts = json.loads(result.output)
    assert (facts["license"], facts["provenance"], facts["width"]) == ("MIT", "smallvec 1.2", WIDTH)
    (tmp_path / "texts.txt").write_text("\n".join(f"{text} said number {n}" for n in range(9) for text in TEXTS[:200]))
    arguments = ["corpus", "build", str(tmp_path / "texts.txt"), "--out", str(tmp_path / "corpus"), "--json"]
    given = ["--vectors", str(out), "--license", "CC0", "--provenance", "tests"]
    built = CliRunner().invoke(app, [*arguments, *given])
    assert built.exit_code == 0, built.output
    corpus = Corpus.open(tmp_path / "corpus")
    assert (corpus.encoder_kind, corpus.in_kernel) == ("static", False)
    assert corpus.description["encoder"]["vectors"] == facts["sha256"]
    assert np.array_equal(corpus.vectors, corpus.encoder.encode(corpus.texts))


def test_a_vector_is_the_sum_of_the_tokens_of_its_own_text(package, file):
    encoder, _ = static.read(file)
    whole = tokenizers.Tokenizer.from_file(str(package / "smallvec" / "tokenizer.json"))
    whole.no_padding()
    whole.no_truncation()
    together = encoder.encode([*TEXTS[:40], "", "\u2603\u2603"])
    for row, text in enumerate(TEXTS[:40]):
        ids = whole.encode(text).ids
        assert len(ids) > 3
        assert np.array_equal(together[row], quantised(encoder.vectors[ids].sum(axis=0, dtype=np.int64)[None])[0])
        assert np.array_equal(together[row], encoder.encode([text])[0])
    assert not together[40:].any()  # no token, and only unknown ones
    assert np.array_equal(encoder.encode([TEXTS[0]], n_max=2), encoder.encode([TEXTS[0]], n_max=2))
    assert not np.array_equal(encoder.encode([TEXTS[0]], n_max=2), together[:1])


def test_a_text_on_which_the_tokenizer_fails_has_no_vector_and_shows_nothing(file, capsys):
    encoder, _ = static.read(file)

    class Failing:
        def encode(self, text, **_):
            raise ValueError(text)

    encoder.__dict__["_tokenizer"] = Failing()
    assert not encoder.encode(["a secret of mine"]).any()
    assert "secret" not in "".join(capsys.readouterr())


def saved(tmp_path, file):
    encoder, facts = static.read(file)
    description = {"licence": "CC0", "provenance": "tests", "encoder": {"kind": "static", "tokens": True, **facts}}
    return Corpus.save(tmp_path / "corpus", TEXTS, description, encoder=encoder)


def test_statistics_and_surrogates_encode_by_tokens(file, tmp_path, monkeypatch):
    corpus = saved(tmp_path, file)
    statistic = describe(corpus, epsilon=8.0, delta=1e-6, labels=("even", "odd"), width=8)
    key = _kernel.ReleaseKey(_kernel.Secret.from_bytes(bytes(32)), "a", "text", "b", statistic.cfg())
    columns = pa.array(TEXTS[:100], pa.large_string()), pa.array(["even", "odd"] * 50)
    ids = pa.array([str(row) for row in range(100)])
    total = partial_sum(statistic, key, ids, *columns)
    places = statistic.contributions(corpus.encoder.encode(TEXTS[:100]))
    assert np.array_equal(total.sums[0, :-1], places[::2].sum(axis=0))
    classifier = linear_discriminant(noisy(statistic, key, total))
    assert len(classifier.predict(classifier.encode(TEXTS[:3], corpus))) == 3
    before = statistic.cfg()
    monkeypatch.setattr("dptext_etl.families.aggregate.statistic.version", lambda: "0.0")
    assert describe(corpus, epsilon=8.0, delta=1e-6, labels=("even", "odd"), width=8).cfg() != before
    mechanism = load("surrogate")(epsilon=16.0, corpus=str(tmp_path / "corpus"), hit=0.99)
    column = pa.array([*TEXTS[:20], ""], pa.large_string())
    drawn = draw(mechanism, column, pa.array([str(row) for row in range(21)]), throwaway(mechanism.cfg()))
    assert set(drawn.text.to_pylist()) <= set(corpus.texts)
    assert TEXTS[0] in [corpus.texts[number] for number in mechanism.near_to(TEXTS[0])]


@pytest.mark.thorough
def test_task_directions_are_added_to_token_vectors(file, tmp_path):
    lines = "".join(f'"{text} {n}",{n % 2}\n' for n, text in enumerate(TEXTS * 6))
    (tmp_path / "texts.csv").write_text(f"text,label\n{lines}")
    source = Source(tmp_path / "texts.csv", label="label")
    how = Options("c", "CC0", "tests", encoder="task", vectors=str(file), task=[source])
    corpus = building.build([source], tmp_path / "built", how)
    assert isinstance(corpus.encoder, TokenEncoder)
    assert corpus.encoder.vectors.shape[1] == WIDTH + 3
    assert np.array_equal(corpus.vectors[:9], corpus.encoder.encode(corpus.texts[:9]))


def test_weights_and_mapping_of_tokens_are_applied(package, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "tokenizer.json").write_bytes((package / "smallvec" / "tokenizer.json").read_bytes())
    (folder / "config.json").write_text("{}")
    rows = np.eye(3, dtype=np.float32)
    tensors = {"embeddings": rows, "mapping": np.array([0, 2, 1]), "weights": np.array([1.0, 1.0, 0.5])}
    save_file(tensors, folder / "model.safetensors")
    static.write(str(folder), tmp_path / "out.safetensors", "MIT")
    vectors = static.read(tmp_path / "out.safetensors")[0].vectors
    assert vectors.tolist() == [[0, 0, 0], [0, 0, 32000], [0, 16000, 0]]  # token 0 is the unknown one


def test_what_cannot_be_used_is_refused_by_name(package, file, tmp_path):
    with pytest.raises(ArtifactError, match="no installed package 'nosuchpackage'"):
        static.write("nosuchpackage", tmp_path / "o.safetensors")
    with pytest.raises(ArtifactError, match="states no license"):
        static.write(str(package / "smallvec"), tmp_path / "o.safetensors")
    with pytest.raises(ArtifactError, match="is there"):
        static.write("smallvec", file)
    save_file({"a": np.eye(3), "b": np.eye(3)}, tmp_path / "two.safetensors")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ArtifactError, match=r"0 \.safetensors files and 0 tokenizers"):
        static.write(str(tmp_path / "empty"), tmp_path / "o.safetensors")
    (tmp_path / "two").mkdir()
    (tmp_path / "two.safetensors").rename(tmp_path / "two" / "weights.safetensors")
    (tmp_path / "two" / "t.json").write_bytes((package / "smallvec" / "tokenizer.json").read_bytes())
    with pytest.raises(ArtifactError, match="holds 2 tensors"):
        static.write(str(tmp_path / "two"), tmp_path / "o.safetensors", "MIT")
    for encoder, vectors in (("static", "english-20k"), ("words", str(file))):
        with pytest.raises(PolicyError, match="token vectors belong to the encoder static"):
            Options("c", "CC0", "tests", encoder=encoder, vectors=vectors)
