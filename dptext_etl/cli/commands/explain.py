"""Define `dptext mechanisms`, `explain`, `schema`, and `preview`: guarantees, and the effect on public sentences."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from fractions import Fraction
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dptext_etl.cli import options, terminal
from dptext_etl.cli.commands.run import compute_on
from dptext_etl.cli.options import Device, Dtype, MechanismName, Parameters, command, parse_parameters
from dptext_etl.errors import DPTextError, PolicyError

if TYPE_CHECKING:
    from dptext_etl.families.words import WordMechanism
    from dptext_etl.mechanism import Mechanism


COMPARED = 256  # largest number of outputs for which all words are compared with each other
LISTED = 300  # likeliest outputs of a worked example
ON_SCREEN = 8  # of these, on a terminal
SAMPLES = 1_000  # draws of a worked example whose distribution has no exact fractions
LENGTHS = ("disclose", "fixed", "noisy")
_UNKNOWN_WORDS = {
    "uniform": "drawn uniformly from all output words",
    "first": "drawn as if they were the first word of the vocabulary",
    "drop": "vanish before words are counted",
    "keep": "released unchanged",
}


def distribution(mechanism: WordMechanism) -> dict[str, Any]:
    """Return the privacy loss of one draw, exact if it is known, and the disclosures next to the draw.

    `epsilon_table` is the exact parameter of the sampler's integers, or None. `epsilon_worst` is that, or otherwise the
    smallest known upper bound; `is_exact` says which.
    """
    declared = float(mechanism.epsilon_per_word)
    exact, tight, outputs = mechanism.epsilon_table, mechanism.epsilon_tight, mechanism.output_words()
    worst = exact if exact is not None else min(declared, math.inf if tight is None else tight)
    metric, facts = mechanism.metric_claim, mechanism.described().get("table", {})
    return {
        "epsilon_word": declared,
        "times_epsilon": declared / mechanism.epsilon,
        "epsilon_table": exact,
        "epsilon_worst": worst,
        "is_exact": exact is not None and facts.get("epsilon_table_is", "exact") == "exact",
        "worst_ratio": math.exp(worst) if worst < 700 else math.inf,
        "log10_odds": worst / math.log(10),
        "metric": None
        if metric is None
        else {"name": metric.metric, "epsilon": float(metric.epsilon), "diameter": float(metric.diameter)},
        "disclosed_bits_per_token": float(facts.get("disclosed_bits_per_token", 0.0)),
        "unknown_words": _UNKNOWN_WORDS[mechanism.input_policy()["oov"]],
        "output_words": None if outputs is None else len(outputs),
        "artifacts": {role: artifact.sha256 for role, artifact in sorted(mechanism.artifacts().items())},
    }


def lengths(mechanism: WordMechanism) -> list[dict[str, Any]]:
    """Return for each option of `length` the class of the guarantee, or the reason for which it is refused."""
    from dptext_etl import catalog

    chosen = mechanism.model_dump(exclude_unset=True)
    outcomes: list[dict[str, Any]] = []
    for length in LENGTHS:
        options: dict[str, Any] = {"length": length, "epsilon_length": None, "n_max": mechanism.n_max}
        if length == "noisy":
            options |= {"epsilon_length": mechanism.epsilon_length or 1.0}
        try:
            other = catalog.build({"name": mechanism.name, **chosen, **options})
        except PolicyError as refused:
            reason = str(refused).splitlines()[0].removeprefix(f"{mechanism.name}: ").partition("; use ")[0]
            outcomes.append({"length": length, "class": None, "refused": reason})
        else:
            claim = other.guarantee
            outcomes.append({"length": length, "class": claim.guarantee_class.value})
            outcomes[-1]["disclosures"] = sorted(claim.disclosures)
    return outcomes


def worked(mechanism: WordMechanism, word: str) -> dict[str, Any]:
    """Return the output distribution of one word: exact fractions if there are any, otherwise frequencies of draws.

    If the output set is small, return with it the output that discloses most about the word against another word of the
    set.
    """
    from dptext_etl.families.words import sample_many

    exact, telling = True, None
    try:
        chances: Mapping[str, Fraction] = dict(zip(*mechanism.transition(word), strict=True))
    except PolicyError:
        counts = Counter(sample_many(mechanism, word, SAMPLES))
        exact, chances = False, {seen: Fraction(count, SAMPLES) for seen, count in counts.items()}
    outputs: list[dict[str, Any]] = [
        {"word": seen, "probability": float(chance)}
        for seen, chance in sorted(chances.items(), key=lambda item: (-item[1], item[0]))
    ]
    listed, rest = outputs[:LISTED], outputs[LISTED:]
    if exact and not rest:
        for item in listed:
            item["exact"] = "/".join(map(str, chances[item["word"]].as_integer_ratio()))
    if exact and word in chances and 1 < len(chances) <= COMPARED:
        ratio, other, seen = max(
            (chances[seen] / chance, other, seen)
            for other in chances
            for seen, chance in zip(*mechanism.transition(other), strict=True)
            if seen in chances and chance
        )
        telling = {"seen": seen, "instead_of": other, "ratio": float(ratio), "log10_odds": math.log10(ratio)}
    return {
        "word": word,
        "samples": None if exact else SAMPLES,
        "outputs": listed,
        "others": {"words": len(rest), "probability": math.fsum(item["probability"] for item in rest)},
        "stays": float(chances.get(word, 0)),
        "most_telling": telling,
    }


def show_distribution(law: dict[str, Any]) -> None:
    terminal.heading("One draw" + (", from the integers that are drawn from" if law["is_exact"] else ""))
    worst = f"{terminal.number(law['epsilon_worst'])}: a factor of {terminal.number(law['worst_ratio'])}"
    metric = law["metric"]
    terminal.pairs(
        {
            "declared": f"{terminal.number(law['epsilon_word'])} between any two words"
            f" ({terminal.number(law['times_epsilon'])} times the parameter epsilon)",
            "worst ratio": f"{worst} ({'exact' if law['is_exact'] else 'an upper bound'})",
            "by distance": "no metric claim"
            if metric is None
            else f"{terminal.number(metric['epsilon'])} per unit of {metric['name']}, which is"
            f" {terminal.number(metric['diameter'])} at most",
            "disclosed": f"{law['disclosed_bits_per_token']:.2f} bits per word, next to the draw",
            "unknown words": law["unknown_words"],
            "output words": law["output_words"],
            "artifacts": law["artifacts"],
        }
    )


def show_example(example: dict[str, Any]) -> None:
    by = "" if example["samples"] is None else f" (frequencies of {example['samples']:,} draws)"
    terminal.heading(f"Example: the word {example['word']!r} becomes{by}")
    rows = [(item["word"], f"{item['probability']:.6f}") for item in example["outputs"][:ON_SCREEN]]
    rest = example["outputs"][ON_SCREEN:]
    words = len(rest) + example["others"]["words"]
    if words:
        share = sum(item["probability"] for item in rest) + example["others"]["probability"]
        rows.append((f"{words:,} others", f"{share:.6f}"))
    terminal.table(("output", "probability"), rows)
    terminal.say(f"It stays as it is with probability {example['stays']:.6f}.")
    telling = example["most_telling"]
    if telling is None:
        return
    terminal.say(
        f"Seeing {telling['seen']!r} favors {example['word']!r} over {telling['instead_of']!r} by a factor of"
        f" {telling['ratio']:.3f} (10^{telling['log10_odds']:.2f}). No output discloses more about this word;"
        " the factors of a text's words multiply."
    )


_DELTA = 1e-8
_ROWS = (1_000, 10_000, 100_000, 1_000_000)


app = typer.Typer()
WORD = "good"
_VACUOUS = 13
KEYS = (
    "name", "summary", "publishable", "guarantee", "parameters", "configuration", "cfg", "consent", "spend",
    "lengths", "law", "example", "draw", "noise", "computing", "conversions", "shuffled", "note",
)  # fmt: skip


@command(app, "dptext mechanisms --json", ("mechanisms",))
def mechanisms() -> None:
    """List the mechanisms with their variants, guarantee classes, units of epsilon, and disclosures.

    Also say which of them run on this machine as it is, with which model, and the missing parts of the others.
    """
    from dptext_etl import catalog

    listed: list[dict[str, Any]] = []
    for name in catalog.available():
        kind = catalog.load(name)
        claims = {variant: example.guarantee for variant, example in options.examples(kind).items()}
        variants = [
            {
                "variant": variant,
                "class": claim.guarantee_class.value,
                "epsilon_per": claim.unit,
                "disclosures": sorted(item.value for item in claim.disclosures),
            }
            for variant, claim in claims.items()
        ]
        here: dict[str, Any] = {"runs": True, "with": None, "lacks": None, "hint": None}
        try:  # without a download
            taken = kind.preview_parameters({})
            here["with"] = {parameter: taken[parameter] for parameter in ("model", "corpus") if parameter in taken}
        except PolicyError as exc:
            here |= {"runs": False, "lacks": exc.message, "hint": exc.hint}
        listed.append({"name": name, "summary": options.summary(kind), "variants": variants, "here": here})
    if terminal.emitted({"mechanisms": listed}):
        return
    rows = [(item["name"], *variant.values()) for item in listed for variant in item["variants"]]
    terminal.table(("name", "variant", "class", "epsilon per", "discloses"), rows)
    for item in listed:
        terminal.say(f"{item['name']}: {item['summary']}")
    terminal.say("\nOn this machine:")
    rows = [
        (item["name"], "yes", ", ".join(f"{name} {value}" for name, value in item["here"]["with"].items()))
        if item["here"]["runs"]
        else (item["name"], "no", f"{item['here']['lacks']}: {item['here']['hint']}")
        for item in listed
    ]
    terminal.table(("name", "runs", "with, or missing"), rows)
    terminal.say("\n`dptext explain NAME` explains these words.")


@command(app, "dptext explain custext -p epsilon=1 -p k=10", KEYS)
def explain(
    name: MechanismName,
    parameter: Parameters = None,
    *,
    word: Annotated[str, typer.Option(help="A public word for the worked example.")] = WORD,
    words: Annotated[int, typer.Option(min=1, help="Length of a text in words, for its cost.")] = 100,
    shuffled: options.ShuffledRows = None,
) -> None:
    """State a mechanism's guarantee: the unit of epsilon, the neighbors, the disclosures, and the cost of a release.

    Missing required parameters get the values of the mechanism's small example. If the usual model is
    not on this machine, the example's small model replaces it: numbers that depend on the model are then numbers of the
    small model. A post-processing (`dptext explain rewrite_again`) is explained, too.
    """
    options.skip_pandas()
    from dptext_etl import catalog, extensions
    from dptext_etl.families.words import WordMechanism

    facts: dict[str, Any]
    if extensions.exists("postprocesses", name):
        step = catalog.load_postprocess(name)
        facts = dict.fromkeys(KEYS) | options.postprocess_facts(name, step, parse_parameters(step, name, parameter))
        if not terminal.emitted(facts):
            options.show_postprocess(facts)
        return
    kind = catalog.load(name)
    parameters = parse_parameters(kind, name, parameter)
    if shuffled is not None:  # the bound depends on the size of the corpus
        parameters = kind.preview_parameters(parameters) | parameters
    mechanism, note = _explained(kind, name, parameters)
    facts = {
        "name": name,
        "summary": options.summary(kind),
        "publishable": mechanism.mode == "strict",
        "guarantee": options.guarantee(mechanism.guarantee),
        "parameters": [{**item, "value": options.value(mechanism, item["name"])} for item in options.parameters(kind)],
        "configuration": mechanism.configuration(),
        "cfg": mechanism.cfg(),
        "consent": options.consent(mechanism),
        "spend": options.cost(mechanism, words),
    }
    if isinstance(mechanism, WordMechanism):
        facts["lengths"] = lengths(mechanism)
    if isinstance(mechanism, WordMechanism) and mechanism.allocation is None:
        facts["law"] = distribution(mechanism)
        known = mechanism.input_words()
        if word == WORD and word not in known:
            word = next((other for other in known if other.isalpha()), word)
        facts["example"] = worked(mechanism, word)
    facts |= {**options.model_facts(mechanism, words), "note": note}
    if shuffled is not None:
        from dptext_etl.accounting.shuffling import Shuffled
        from dptext_etl.families.choice import ChoiceMechanism

        if not isinstance(mechanism, ChoiceMechanism):
            msg = f"{name} is released row by row: only surrogate has a bound for shuffled releases"
            raise PolicyError(msg, "`dptext explain surrogate --shuffled 10000`")
        central = ((rows, Shuffled(rows=rows, delta=_DELTA)) for rows in sorted({*_ROWS, shuffled}))
        local = {"epsilon": mechanism.epsilon, "delta": _DELTA}
        facts["shuffled"] = [
            {**local, "rows": rows, "central_epsilon": float(release.epsilon(mechanism.law))}
            for rows, release in central
        ]
    if mechanism.computing is not None:
        facts["computing"] = mechanism.computing.as_dict()
    facts = {key: facts.get(key) for key in KEYS}
    if not terminal.emitted(facts):
        _show(facts)


def _explained(kind: type[Mechanism], name: str, parameters: dict[str, Any]) -> tuple[Mechanism, str | None]:
    """Make the mechanism from `parameters` and the example's values for missing ones; return a note on these."""
    from dptext_etl import catalog

    example = kind.example()
    divided = {"epsilon"} if "allocation" in parameters else set()  # shares of the allocation decide the cost
    names = {key for key, field in kind.model_fields.items() if field.is_required()} - divided
    required = {key: getattr(example, key) for key in kind.model_fields if key in names}
    chosen = {key: getattr(example, key) for key in example.model_fields_set - divided}
    local: dict[str, Any] = {}  # parameters that a preview would use on this machine
    with suppress(PolicyError):
        local = kind.preview_parameters(parameters)
    error: DPTextError | None = None
    for more in ({}, local, chosen):
        if error is not None and not more.keys() - parameters.keys() - required.keys():
            continue
        taken = {**required, **more}.keys() - parameters.keys() - {"epsilon"}
        try:
            mechanism = catalog.build({"name": name, **required, **more, **parameters})
            mechanism.cfg()
        except DPTextError as exc:
            error = exc  # the last one: missing parameters are given by then
            continue
        first_look = "the models of this machine, for a first look"
        source = "the mechanism's small example" if more in ({}, chosen) else first_look
        return mechanism, f"{', '.join(sorted(taken))}: from {source}; set your own with -p" if taken else None
    raise error or DPTextError(f"{name} cannot be explained", "give its required parameters: -p NAME=VALUE")


def _show(facts: dict[str, Any]) -> None:
    from dptext_etl.device import Computing

    claim, cost = facts["guarantee"], facts["spend"]
    times = facts["law"]["times_epsilon"] if facts["law"] else 1.0
    of_distance = f", and unit of distance: between any two words a draw costs {terminal.number(times)} times it"
    odds = f"{terminal.number(cost['epsilon'])}: the odds between two texts can move by 10^{cost['log10_odds']}"
    terminal.say(facts["summary"])
    terminal.heading("Guarantee")
    terminal.pairs(
        {
            "class": f"{claim['class']}: {claim['meaning']}",
            "epsilon is per": claim["unit"] + (of_distance if times != 1.0 else ""),
            "neighbors": claim["neighbors"],
            "assumptions": claim["assumptions"],
            "without a ledger": claim["assumptions_without_a_ledger"],
            "publishable": facts["publishable"],
        }
    )
    terminal.heading("Released exactly (the guarantee holds between texts that agree on these)")
    terminal.pairs(claim["disclosures"])
    options.show_parameters(facts["parameters"])
    by_word = claim["unit"] == "word"
    terminal.heading(f"A text of {cost['words']} words costs" if by_word else "A text costs, whatever its length")
    terminal.pairs(
        {
            "epsilon": odds if cost["log10_odds"] < _VACUOUS else f"{odds}; this bound is useless in practice",
            "delta": cost["delta"],
            "epsilon, tight": cost["epsilon_tight"],
            "rho (zCDP)": cost["rho"],
        }
    )
    if facts["consent"]:
        terminal.say("A policy that uses it says so: " + ", ".join(facts["consent"]))
    for title, heading in (("draw", "One draw"), ("noise", "The noise")):
        if facts[title]:
            terminal.heading(heading)
            terminal.pairs(facts[title])
    if facts["computing"]:
        terminal.say(f"\nIts model computes here on {Computing(**facts['computing'])}.")
    if facts["conversions"]:
        terminal.heading("All of it for one person, at a fixed delta (the least that is known)")
        terminal.table(("records", "delta", "epsilon", "rule"), [item.values() for item in facts["conversions"]])
    if costs := facts["shuffled"]:
        from dptext_etl.runner.shard.charging import at_most

        terminal.heading(f"Published shuffled, without ids and order: epsilon of a record at delta = {_DELTA:g}")
        central = (at_most(item["central_epsilon"]) for item in costs)
        columns = ("epsilon of a draw", *(f"{item['rows']:,} rows" for item in costs))
        terminal.table(columns, [(costs[0]["epsilon"], *central)])
        terminal.say("The bound relies on you: drafts, key, and ledger stay inside your boundary.")
    if facts["note"]:
        terminal.say(f"\n{facts['note']}.")
    if facts["law"]:
        terminal.heading("The number of words")
        terminal.pairs(
            {
                item["length"]: f"refused: {item['refused']}"
                if item["class"] is None
                else f"{item['class']}; discloses {', '.join(item['disclosures'])}"
                for item in facts["lengths"]
            }
        )
        show_distribution(facts["law"])
        show_example(facts["example"])


@app.command(epilog="Example: dptext schema > policy.schema.json")
def schema() -> None:
    """Print the JSON Schema of the policy file, for editors and other tools."""
    from dptext_etl.policy import Policy

    facts = {"$schema": "https://json-schema.org/draft/2020-12/schema", **Policy.model_json_schema(by_alias=True)}
    terminal.emit(facts)


def allocation_of(written: str, epsilon: float, first: float | None = None) -> dict[str, Any]:
    """Return the parameter `allocation` of a mechanism from `--allocation` and the epsilon of a whole text."""
    from dptext_etl.guarantee import exact

    names = [name.strip() for name in written.split(",") if name.strip()]
    allocation: dict[str, Any] = {"scores": names}
    if names == ["uniform"]:
        allocation = {"template": "uniform"}
    elif names:
        with suppress(ValueError):
            allocation = {"template": [float(name) for name in names]}
    if first is None:
        return {**allocation, "total": epsilon}
    if first >= epsilon:
        raise PolicyError("the first release leaves nothing for the second", f"give --first below {epsilon:g}")
    return {**allocation, "first": first, "total": float(exact(epsilon) - exact(first))}


def division(mechanism: Mechanism, text: str) -> dict[str, Any] | None:
    """Return every word of a text, or every sentence if sentences are drawn, with its scores and its epsilon."""
    import numpy as np

    from dptext_etl import sampling
    from dptext_etl.allocation import fit
    from dptext_etl.guarantee import MICRO

    allocation = mechanism.allocation
    if allocation is None:
        return None
    units, marks = mechanism.text_units(text)
    # draws of one word (or sentence) follow each other; a draw that represents none is by itself
    by_word = groupby(enumerate(marks.places), key=lambda draw: draw if draw[1] is None else draw[1])
    together = [[at for at, _ in draws] for _, draws in by_word]
    offered = [
        allocation.by_position(shares, len(units), draws=marks.most)
        for shares in allocation.templates or filter(None, [allocation.template])
    ]
    scored = bool(allocation.scores)
    wanted = allocation.over(marks.tokens, marks.places, draws=marks.most) if scored else offered[0]
    parts, chances = wanted, list[float]()  # the probability of each template for a text that asks for `wanted`
    if allocation.templates:
        chances = [1 / len(offered)] * len(offered)
        if wanted:
            fits = np.array([fit(wanted, offered)])
            weights = sampling.weights(fits, allocation.choosing or 0.0, 0.0, 1.0)[0]
            chances = [int(weight) / sum(map(int, weights)) for weight in weights]
        parts = offered[chances.index(max(chances))]
    columns = allocation.scored(marks.tokens, marks.places) if scored else {}
    return {
        "text": text,
        "total": allocation.total,
        "even": allocation.total / max(1, len(together)),
        "sum": sum(parts) / MICRO,
        "divided_by": allocation.source,
        "before": float(allocation.before),
        "first_each": allocation.even(marks.most) / MICRO,
        "templates": [
            {"shares": list(shares), "chance": chance}
            for shares, chance in zip(allocation.templates, chances, strict=True)
        ],
        "words": [
            {
                "word": units[at[0]] + (f" ({len(at)} steps)" if len(at) > 1 else ""),
                "scores": {name: round(column[at[0]], 6) for name, column in columns.items()},
                "epsilon": sum(parts[place] for place in at) / MICRO,
            }
            for at in together
        ],
    }


def show_division(division: Mapping[str, Any]) -> None:
    """Print words or sentences, their scores and their epsilon as a table, and the source of the division."""
    terminal.heading(f"A budget of {terminal.number(division['total'])} among the parts of {division['text']!r}")
    names = list(division["words"][0]["scores"]) if division["words"] else []
    for item in division["templates"]:
        shares = ", ".join(f"{share:g}" for share in item["shares"])
        terminal.say(f"Template {shares} is drawn with probability {item['chance']:.3f}.")
    terminal.table(
        ("part", *names, "epsilon", "evenly"),
        [
            (item["word"], *item["scores"].values(), round(item["epsilon"], 3), round(division["even"], 3))
            for item in division["words"]
        ],
    )
    most = terminal.number(division["total"])
    terminal.say(f"They add up to {terminal.number(division['sum'])}, never to more than {most}.")
    amounts = {name: terminal.number(item) for name, item in division.items()}
    terminal.say(_MEANINGS[division["divided_by"]].format(**amounts))


_MEANINGS = {
    "text": "A score of 1 asks for the least. The amounts of a private text are never shown: they depend on the text.",
    "first": "The second release spends this if the first one returns these words. The first spends"
    " {first_each} for each part, {before} in all; its words are scored. Only the second is published.",
    "template": "A template has an amount for each position, whatever the text: it may be public.",
    "chosen": "This is the likeliest template for this text. The draw of a template costs {before} in addition.",
}


PREVIEW_KEYS = ("mechanism", "ledgered", "taken", "sentences")
SENTENCES = (
    "The room was clean and the staff were friendly, but the breakfast was cold.",
    "I ordered a blue jacket in March and it arrived two weeks late.",
    "My daughter loved the film; the ending made us all cry.",
    "Please call me on 555-0134, the doctor changed my medicine again.",
)


@command(app, "dptext preview custext --epsilon 1 --epsilon 4", PREVIEW_KEYS)
def preview(
    name: MechanismName = "custext",
    parameter: Parameters = None,
    *,
    epsilon: Annotated[list[float] | None, typer.Option(help="An epsilon to show; repeat as needed.")] = None,
    public_text: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="A public or invented sentence instead of ours. Never give real data."),
    ] = None,
    allocation: options.AllocationScores = None,
    first: options.FirstRelease = None,
    device: Device = None,
    dtype: Dtype = None,
) -> None:
    """Show the effect of a mechanism on public sentences at several epsilons, without policy, key or file.

    A preview draws with a key that is thrown away, and charges no ledger. So it accepts no table and no policy:
    previews of real texts would spend their budget without a record. To try your own data, run `dptext init`. A
    mechanism with a language model uses a model on this machine, or says how to get one; a preview downloads nothing.
    With --allocation an epsilon is for a whole text, and a table shows how much of it each word gets.
    """
    options.skip_pandas()
    import pyarrow as pa

    from dptext_etl import catalog, column, keys

    compute_on(device, dtype)
    kind = catalog.load(name)
    parameters = parse_parameters(kind, name, parameter)
    if "epsilon" in parameters and not epsilon:
        epsilon = [parameters["epsilon"]]
    taken = kind.preview_parameters(parameters)
    texts = list(public_text or SENTENCES)
    sentences: list[dict[str, Any]] = [{"before": text, "after": []} for text in texts]
    for value in epsilon or kind.preview_epsilons:
        budget: dict[str, Any] = {"epsilon": value}
        if allocation is not None:
            budget = {"allocation": allocation_of(allocation, value, first)}
        mechanism = catalog.build({"name": name, **taken, **parameters, **budget})
        if not sentences[0]["after"]:
            if mechanism.allocation is not None:
                sentences = [{**row, "allocation": division(mechanism, row["before"])} for row in sentences]
            column.probe(mechanism)
        ids = pa.array([str(row) for row in range(len(texts))])
        released = column.draw(mechanism, pa.array(texts, pa.large_string()), ids, keys.throwaway(mechanism.cfg()))
        for row, after, draws in zip(sentences, released.text.to_pylist(), released.positions.to_pylist(), strict=True):
            spend = mechanism.spend(draws)
            cost = {"spend": spend.epsilon, "log10_odds": spend.log10_odds}
            row["after"].append({"epsilon": value, "text": after, **cost})
    facts = {"mechanism": name, "ledgered": False, "taken": taken, "sentences": sentences}
    if terminal.emitted(facts):
        return
    for row in sentences:
        if allocation is not None:
            show_division(row["allocation"])
        terminal.heading(row["before"])
        terminal.table(
            ("epsilon", "after", "spent", "odds"),
            [(item["epsilon"], item["text"], item["spend"], f"10^{item['log10_odds']}") for item in row["after"]],
        )
    if taken:
        chosen = ", ".join(f"{key} = {value}" for key, value in taken.items())
        terminal.say(f"\nYou did not set these parameters, so the command chose: {chosen}")
    terminal.say("\nEach text is one draw with a key that is thrown away: another preview draws other words.")
