"""A corpus is built from public files by one command, with cards and hit rates, or refused in plain words."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from dptext_etl.artifacts import listed, made_from
from dptext_etl.cli.app import app
from dptext_etl.corpora import Corpus, building
from dptext_etl.corpora.building import Cleaning, Options, Source, build, clean, normalized, source_of, split
from dptext_etl.errors import InputError, PolicyError
from tests.corpus_texts import labeled, texts

STATED = {"license": "CC0", "provenance": "made for tests"}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Parquet file of the sentences and their topics, some of them twice."""
    path = tmp_path_factory.mktemp("public") / "turns.parquet"
    rows = labeled()[::4]
    pl.DataFrame(rows + rows[:100], schema=["text", "label"], orient="row").write_parquet(path)
    return path


@pytest.fixture(scope="module")
def built(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of 1,500 of the 2,016 sentences."""
    out = tmp_path_factory.mktemp("corpora") / "turns"
    build([Source(table)], out, Options(name="turns", texts=1_500, **STATED))
    return out


def test_a_corpus_holds_texts_vectors_encoder_and_hit_rates(built: Path) -> None:
    corpus = Corpus.open(built)
    assert len(corpus) == len(set(corpus.texts)) == 1_500
    assert set(corpus.texts) <= set(texts())
    assert np.array_equal(corpus.vectors, corpus.encoder.encode(corpus.texts))
    assert 0.3 < corpus.hits[1.0] < corpus.hits[4.0] < corpus.hits[16.0] <= 1.0
    assert corpus.description["build"]["dropped"] == {"there already": 100}
    card = (built / building.MARKDOWN).read_text("utf-8")
    assert corpus.sha256 in card
    assert "published text" in card
    assert json.loads((built / "card.json").read_text("utf-8"))["sha256"] == corpus.sha256


def test_equal_inputs_make_equal_bytes_in_any_order(built: Path, table: Path, tmp_path: Path) -> None:
    turned = tmp_path / "turns.parquet"
    pl.read_parquet(table).reverse().write_parquet(turned)
    build([Source(turned)], tmp_path / "again", Options(name="turns", texts=1_500, **STATED))
    assert Corpus.open(tmp_path / "again").sha256 == Corpus.open(built).sha256


def test_all_texts_of_a_corpus_stay_and_files_add_to_them(built: Path, tmp_path: Path) -> None:
    base = Corpus.open(built)
    more = tmp_path / "more.txt"
    more.write_text("\n".join(["one more text to be a row", "yes", base.texts[0], *texts()]), "utf-8")
    wider = build([source_of(str(more)), source_of(str(built))], tmp_path / "all", Options(name="all", **STATED))
    assert set(wider.texts) == {*base.texts, *texts(), "one more text to be a row"}
    assert listed(wider.path) == made_from([more, base.path])
    assert listed(base.path).items() < listed(wider.path).items()
    facts = wider.description["build"]
    assert facts["sources"] == ["more.txt", "turns"]
    assert facts["corpora"] == {base.sha256: 1_500}
    few = build([base, Source(more)], tmp_path / "few", Options(name="few", texts=1_501, **STATED))
    assert len(few) == 1_501
    assert set(base.texts) < set(few.texts)
    with pytest.raises(InputError, match="the corpora have 1,500 texts, and a limit of 1,499 would drop some"):
        build([base, Source(more)], tmp_path / "fewer", Options(name="fewer", texts=1_499, **STATED))


def test_the_command_takes_the_name_of_a_corpus_next_to_a_policy(table: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "raw.parquet").write_bytes(b"no rows that anything could read")
    (tmp_path / "privacy.toml").write_text('source = "raw.parquet"\n')
    asked = ["corpus", "build", "example", str(table), "--task", str(table), "--out", "made", "--json"]
    made = CliRunner().invoke(app, [*asked, "--license", "CC0", "--provenance", "made for tests"])
    assert made.exit_code == 0, made.output
    assert set(Corpus.open("example").texts) < set(Corpus.open("made").texts)
    assert Corpus.open("made").encoder_kind == "task"


def test_a_command_that_leaves_texts_of_files_out_says_so(table: Path, tmp_path: Path) -> None:
    said = list[str]()
    build([Source(table)], tmp_path / "some", Options(name="some", texts=1_500, **STATED), said.append)
    assert "516 usable texts are excluded; --texts 2016 keeps all" in said


def test_too_few_texts_are_refused_with_what_became_of_them(tmp_path: Path) -> None:
    path = tmp_path / "few.txt"
    path.write_text("\n".join([*texts()[:900], "too short"]), "utf-8")
    with pytest.raises(InputError, match=r"900 texts are left of 901 \(1 too short\); allowed: 1,000 and more"):
        build([Source(path)], tmp_path / "out", Options(name="few", **STATED))
    assert not (tmp_path / "out").exists()


def test_a_folder_that_holds_something_is_left_alone(built: Path, table: Path) -> None:
    before = Corpus.open(built).sha256
    with pytest.raises(InputError, match="is not an empty folder"):
        build([Source(table)], built, Options(name="other", **STATED))
    assert Corpus.open(built).sha256 == before


def test_a_task_encoder_knows_public_labels(built: Path, table: Path, tmp_path: Path) -> None:
    options = Options(name="task", encoder="task", task=[Source(table, label="label")], **STATED)
    corpus = build([Source(table)], tmp_path / "task", options)
    plain = Corpus.open(built)
    assert corpus.encoder.vectors.shape[1] == plain.encoder.vectors.shape[1] + 9
    assert corpus.encoder_kind == "task"


def test_a_model_without_its_library_is_refused_with_the_command(monkeypatch: pytest.MonkeyPatch, table: Path) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    pytest.importorskip("dptext_etl_models")
    monkeypatch.setattr("dptext_etl_models.sentence_transformers.metadata.version", missing)
    options = Options(name="model", encoder="sentence-transformers", model="any", **STATED)
    with pytest.raises(PolicyError, match="needs a library") as caught:
        build([Source(table)], table.parent / "none", options)
    assert "sentence-transformers" in str(caught.value)


def test_the_commands_build_show_and_calibrate(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "made"
    asked = ["corpus", "build", str(table), "--out", str(out), "--texts", "1500", "--json"]
    refused = CliRunner().invoke(app, asked)
    assert refused.exit_code == 5
    assert not out.exists()
    made = CliRunner().invoke(app, [*asked, "--license", "CC0", "--provenance", "made for tests"])
    assert made.exit_code == 0, made.output
    facts = json.loads(made.stdout)
    assert facts["texts"] == 1_500
    shown = CliRunner().invoke(app, ["corpus", "show", str(out), "--json"])
    assert json.loads(shown.stdout) == facts
    asked = ["corpus", "calibrate", str(out)]
    assert CliRunner().invoke(app, asked).exit_code == 2
    again = CliRunner().invoke(app, [*asked, str(table), "--label", "label", "--json"])
    assert again.exit_code == 0, again.output
    told = json.loads(again.stdout)
    corpus = Corpus.open(out)
    assert (told["replaces"], told["sha256"]) == (facts["sha256"], corpus.sha256)
    assert corpus.hits[4.0] == told["hits"]["4"]
    assert corpus.description["hits_from"] == "public texts with labels: turns.parquet"
    assert sorted(path.name for path in out.iterdir()) == ["README.md", "card.json", "corpus.safetensors"]


def test_a_corpus_of_the_library_is_not_replaced(table: Path) -> None:
    refused = CliRunner().invoke(app, ["corpus", "calibrate", "example", str(table)])
    assert refused.exit_code == 5
    assert "comes with the library" in refused.output


@pytest.mark.parametrize("command", ["build", "calibrate", "task"])
def test_a_table_that_a_policy_names_as_raw_is_refused(table: Path, tmp_path: Path, command: str) -> None:
    """The policy lies next to the table; no row is read and nothing is written."""
    raw = tmp_path / "raw.parquet"
    raw.write_bytes(b"no rows that anything could read")
    (tmp_path / "privacy.toml").write_text('source = "raw.parquet"\n')
    stated = ["--out", str(tmp_path / "made"), "--license", "CC0", "--provenance", "made for tests"]
    asked = {
        "build": ["build", str(table), str(raw), *stated],
        "calibrate": ["calibrate", "example", str(raw), "--out", str(tmp_path / "made")],
        "task": ["build", str(table), "--task", str(raw), *stated],
    }[command]
    refused = CliRunner().invoke(app, ["corpus", *asked])
    assert refused.exit_code == 5
    assert "names this table as raw" in refused.output.replace("\n", " ")
    assert not (tmp_path / "made").exists()


ROWS = [("a room, by the river", "hotel"), (None, "hotel"), ('a "song"', None)]


def written(folder: Path, kind: str) -> Path:
    frame = pl.DataFrame(ROWS, schema={"said": pl.String, "topic": pl.String}, orient="row")
    path = folder / f"turns.{kind}"
    frame.write_parquet(path) if kind == "parquet" else frame.write_csv(path)
    return path


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_tables_give_texts_and_labels(tmp_path: Path, kind: str) -> None:
    path = written(tmp_path, kind)
    assert [text for text, _ in Source(path, "said").rows()] == [ROWS[0][0], ROWS[2][0]]
    assert list(Source(path, "said", "topic").rows()) == [ROWS[0], ROWS[2]]


def test_a_text_file_has_one_text_a_line(tmp_path: Path) -> None:
    path = tmp_path / "turns.txt"
    path.write_text("a room\n\na song é\n", "utf-8")
    assert [text for text, _ in Source(path).rows()] == ["a room", "", "a song é"]


def test_refusals_name_what_is_there_and_never_a_cell(tmp_path: Path) -> None:
    path = written(tmp_path, "parquet")
    with pytest.raises(InputError, match="has no column 'text', and 2 others"):
        list(Source(path).rows())
    with pytest.raises(InputError, match="there is no file"):
        list(Source(tmp_path / "nothing.parquet").rows())
    (tmp_path / "turns.docx").write_bytes(b"secret words")
    with pytest.raises(InputError, match=r"its suffix is \.docx") as caught:
        list(Source(tmp_path / "turns.docx").rows())
    assert "secret" not in str(caught.value)
    (tmp_path / "broken.parquet").write_bytes(b"secret words")
    with pytest.raises(InputError) as caught:
        list(Source(tmp_path / "broken.parquet", "said").rows())
    assert "secret" not in str(caught.value)
    pl.DataFrame({"text": [1, 2]}).write_parquet(tmp_path / "numbers.parquet")
    with pytest.raises(InputError, match="is Int64; allowed: strings"):
        list(Source(tmp_path / "numbers.parquet").rows())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Write to me at jane.doe@example.org about the room", "e-mail address"),
        ("Write to me at jane.doe @ example . org about the room", "e-mail address"),
        ("See https://example.org/rooms for all of our rooms", "URL"),
        ("All our rooms are on example.com for you to see", "URL"),
        ("Call the front desk on 030 901 8200 after lunch", "telephone number"),
        ("Call the front desk on (415) 555-2671 after lunch", "telephone number"),
        ("The number of your booking is A1234567 for this week", "long run of digits"),
        ("The room\x07was cold all night long", "control character"),
        ("The room\u202ewas cold all night long", "control character"),
        ("Too cold", "too short"),
        ("word " * 41, "too long"),
    ],
)
def test_lines_that_a_corpus_must_not_hold_are_excluded_and_counted(text: str, reason: str) -> None:
    kept = clean([text, "The room was cold and it cost 1,250 euros in 2019"], Cleaning())
    assert kept.texts == ["The room was cold and it cost 1,250 euros in 2019"]
    assert kept.dropped == {reason: 1}
    assert kept.read == 2


def test_a_text_stays_once_after_normalisation() -> None:
    kept = clean(
        ["Le  café est ferme\u0301 ici", "Le cafe\u0301 est\nfermé ici", "Le café<br />est fermé ici"], Cleaning()
    )
    assert kept.texts == ["Le café est fermé ici"]
    assert kept.dropped == {"there already": 2}


def test_the_order_depends_on_texts_alone() -> None:
    texts = [f"This is sentence number {number}" for number in range(50)]
    assert clean(texts, Cleaning()).texts == clean(texts[::-1] + texts, Cleaning()).texts
    assert clean(texts, Cleaning()).texts != sorted(texts)


def test_texts_are_cut_into_sentences_if_asked() -> None:
    review = 'It rained for a week. "We stayed in our room!" Would we come back here?'
    whole, cut = (clean([review], Cleaning(sentences=asked)) for asked in (False, True))
    assert whole.texts == [normalized(review)]
    assert sorted(cut.texts) == sorted(split(review))
    assert len(cut.texts) == 3


@pytest.mark.parametrize(("fewest", "most"), [(0, 5), (6, 5)])
def test_lengths_are_a_range(fewest: int, most: int) -> None:
    with pytest.raises(PolicyError, match="1 <= fewest <= most"):
        Cleaning(fewest, most)
