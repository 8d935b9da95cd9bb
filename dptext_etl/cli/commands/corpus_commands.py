"""Define `dptext corpus`, whose commands build, calibrate and show the public texts that `surrogate` releases."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from dptext_etl.cli import terminal
from dptext_etl.cli.options import command
from dptext_etl.errors import PolicyError
from dptext_etl.extensions import pip_install

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Build, calibrate and show corpora: the public texts that surrogate releases.",
)

KEYS = ("name", "texts", "sha256", "license", "provenance", "encoder", "hits", "build")


@command(
    app,
    'dptext corpus build turns.parquet --out corpus --license "CC BY-SA 4.0" --provenance "dialogue turns of …"',
    KEYS,
)
def build(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="PUBLIC texts: .parquet, .csv, .txt with one a line, or a corpus such as everyday-30k.",
        ),
    ],
    *,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="New folder of the corpus.")],
    terms: Annotated[
        str, typer.Option("--license", metavar="WORDS", help="Terms of the texts' license; required.")
    ] = "",
    provenance: Annotated[str, typer.Option(metavar="WORDS", help="Where the texts come from; required.")] = "",
    name: Annotated[str | None, typer.Option(help="Display name; by default the name of the folder.")] = None,
    column: Annotated[str, typer.Option("--text", metavar="COLUMN", help="The column of texts.")] = "text",
    texts: Annotated[
        int | None,
        typer.Option(help="Most texts; by default all of the corpora that are named, and up to 20,000 of files."),
    ] = None,
    words: Annotated[str, typer.Option(metavar="A:B", help="Words of the shortest and the longest text.")] = "4:40",
    sentences: Annotated[bool, typer.Option("--sentences", help="Cut the texts into sentences first.")] = False,
    encoder: Annotated[
        Literal["words", "static", "task", "sentence-transformers"] | None,
        typer.Option(help="How texts become vectors; by default task with --task, and else by the kind of vectors."),
    ] = None,
    vectors: Annotated[
        str, typer.Option(metavar="NAME|FILE", help="Word vectors, or token vectors of `dptext corpus vectors`.")
    ] = "english-20k",
    model: Annotated[
        str | None, typer.Option(help="With sentence-transformers: a folder, or an installed package that holds one.")
    ] = None,
    task: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="PUBLIC labeled texts whose labels must survive; repeat as needed."),
    ] = None,
    label: Annotated[str, typer.Option(help="The column of labels of the labeled texts.")] = "label",
    share: Annotated[float, typer.Option(help="With task: share of a vector for its directions.")] = 0.5,
) -> None:
    """Build a corpus from public texts: clean them, learn an encoder, choose hit rates, write cards.

    Texts with e-mail addresses, telephone numbers, URLs or long runs of digits are excluded, and each text stays once.
    All texts of a corpus among the sources stay: a limit below their number is refused. A corpus is published text by
    definition: never build one from texts that you privatize. A file that a policy in this folder or next to it names
    as its source is refused.
    """
    from dptext_etl.corpora import building, static
    from dptext_etl.corpora.building import Cleaning, Source
    from dptext_etl.runner.source.roles import refuse_raw

    fewest, _, most = words.partition(":")
    if not fewest.isdecimal() or not most.isdecimal():
        raise PolicyError(f"--words {words!r} is not a range A:B of two integers", "for example --words 4:40")
    given = (*sources, *map(str, task or ()), vectors, model)
    paths = [path for path in given if path is not None and Path(path).exists()]
    refuse_raw(paths, why="a corpus is published as it is")
    terminal.note("this command assumes that the sources are public: their texts are published as they are")
    options = building.Options(
        name=name or out.name,
        license=terms,
        provenance=provenance,
        cleaning=Cleaning(int(fewest), int(most), sentences),
        texts=texts,
        encoder=encoder or ("task" if task else "static" if static.is_token_vectors(vectors) else "words"),
        vectors=vectors,
        model=model,
        task=[Source(path, column, label) for path in task or ()],
        share=share,
    )
    built = building.build([building.source_of(source, column) for source in sources], out, options, terminal.note)
    _show_facts(building.card_facts(built))
    if not terminal.as_json():
        terminal.say(f'\nin a policy: mechanism = {{ name = "surrogate", corpus = "{out}" }}')


@command(
    app,
    "dptext corpus vectors wordllama --out static.safetensors",
    ("out", "name", "license", "provenance", "weights_sha256", "tokenizer_sha256", "sha256", "tokens", "width"),
)
def vectors(
    name: Annotated[str, typer.Argument(metavar="NAME", help="An installed package, or a folder.")],
    *,
    out: Annotated[Path, typer.Option(metavar="FILE", help="New .safetensors file.")],
    terms: Annotated[
        str, typer.Option("--license", metavar="WORDS", help="Terms of the license, if the package states none.")
    ] = "",
) -> None:
    """Write the token vectors of an installed static sentence embedding, for `dptext corpus build --vectors`.

    The package or folder holds one tokenizer (JSON of the library `tokenizers`) and one matrix with a row per token
    (.safetensors). Nothing of the package is imported, and nothing is downloaded. Read its license: the terms
    of a package and of the weights from which its vectors come may differ.
    """
    from dptext_etl.corpora import static
    from dptext_etl.runner.source.roles import refuse_raw

    refuse_raw([name] if Path(name).exists() else [], why="its vectors are published with a corpus")
    _show_facts(static.write(name, out, terms))


@command(
    app,
    'dptext corpus write --model FOLDER --about "messages of customers to their bank" --labels policy.toml '
    "--out written.parquet",
    ("out", "model", "license", "counts", "nearest_is_intended", "seed"),
)
def write(
    *,
    model: Annotated[str, typer.Option(help="A causal model: a folder, a name on the hub, or a .gguf file.")],
    about: Annotated[str, typer.Option(metavar="WORDS", help="A public sentence about the texts.")],
    labels: Annotated[Path, typer.Option(metavar="FILE", help="The policy file that lists the public labels.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="New .parquet file; its card is the .json next to it.")],
    each: Annotated[int, typer.Option(min=1, help="Number of texts per label.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Seed for the order of examples and the draws.")] = 1,
    guidance: Annotated[
        float, typer.Option(help='Guidance against the label "any"; 1.6 for opinions, 1 for none.')
    ] = 1,
    terms: Annotated[
        str, typer.Option("--license", metavar="WORDS", help="The model's license, if it states none.")
    ] = "",
) -> None:
    """Let a language model write public texts for the labels of a policy, to be rows or labeled texts of a corpus.

    The model sees the words of the labels, the sentence, and six examples from other domains; nothing private. Use the
    file as a source of `dptext corpus build`, and for few labels also as its --task. A process per core writes, with
    one thread each (DPTEXT_THREADS limits them).
    """
    from dptext_etl.runner.source.roles import refuse_raw

    try:
        writing = import_module("dptext_etl_models.writing")
    except ModuleNotFoundError as missing:
        raise PolicyError(f"{missing.name} is not installed", pip_install("models")) from None
    refuse_raw([model] if Path(model).exists() else [], why="its texts are published as they are")
    terminal.note("this command assumes that the labels and the sentence are public: the texts are published")
    wanted = writing.Wanted(model, about, writing.topics_of(labels), each, seed, guidance, terms)
    card = _in_american(writing.write(wanted, out, terminal.note).card)
    if terminal.emitted({"out": str(out), **card}):
        return
    texts = sum(card["counts"].values())
    share = f"{card['nearest_is_intended']:.0%} nearest to their own label"
    terminal.pairs({"texts": f"{texts:,} of {len(card['counts'])} labels", "check": share, "license": card["license"]})
    terminal.say(f'\nnext: dptext corpus build {out} … --license "{card["license"]}" --out corpus')


@command(app, "dptext corpus show corpus", KEYS)
def show(
    corpus: Annotated[str, typer.Argument(metavar="CORPUS", help="A folder, or a name that comes with the library.")],
) -> None:
    """Describe a corpus: its size, hash, license, provenance, encoder, and the hit rates that were calibrated."""
    from dptext_etl.corpora import Corpus, building

    _show_facts(building.card_facts(Corpus.open(corpus)))


@command(app, "dptext corpus calibrate corpus public.parquet", ("out", "sha256", "replaces", "hits"))
def calibrate(
    corpus: Annotated[str, typer.Argument(metavar="CORPUS", help="A folder, or a name that comes with the library.")],
    public: Annotated[
        list[Path], typer.Argument(metavar="PUBLIC...", help="PUBLIC texts like those to privatize: .parquet or .csv.")
    ],
    *,
    column: Annotated[str, typer.Option("--text", metavar="COLUMN", help="The column of texts.")] = "text",
    label: Annotated[str | None, typer.Option(help="A column of public labels that should survive.")] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="New folder; by default, the corpus's own.")
    ] = None,
) -> None:
    """Choose, for each epsilon, the hit rate that keeps most of public texts, and write the rates into the corpus.

    The corpus's hash changes. A file that a policy in this folder or next to it names as its source is refused.
    """
    from dptext_etl.corpora import Corpus, building
    from dptext_etl.corpora.building import Source
    from dptext_etl.runner.source.roles import refuse_raw

    paths = [path for path in (corpus, *map(str, public)) if Path(path).exists()]
    refuse_raw(paths, why="hit rates come from public texts only")
    terminal.note("this command assumes that the texts are public: never calibrate on texts that you privatize")
    before = Corpus.open(corpus)
    sources = [Source(path, column, label) for path in public]
    hits = building.recalibrate(before, sources)
    after = building.write_recalibrated(before, hits, sources, out)
    facts = {"out": str(after.path.parent), "sha256": after.sha256, "replaces": before.sha256}
    if terminal.emitted({**facts, "hits": {f"{hit.epsilon:g}": round(hit.hit, 4) for hit in hits}}):
        return
    terminal.pairs(facts)
    rows = [(f"{hit.epsilon:g}", f"{hit.hit:.2f}", hit.near, f"{hit.kept:.0%}") for hit in hits]
    terminal.table(("epsilon", "hit rate", "near texts", "kept, of the nearest text's likeness"), rows)


def _show_facts(card: dict[str, Any]) -> None:
    facts = _in_american(card)
    if not terminal.emitted(facts):
        terminal.pairs(facts)


def _in_american(card: dict[str, Any]) -> dict[str, Any]:
    """Return the facts of a card, whose stored keys have a British name, under the names of the command line."""
    return {"license" if name == "licence" else name: item for name, item in card.items()}
