"""Collect and print facts about the distribution of one word: worst case, metric claim, disclosures, an example."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from dptext_etl.cli import terminal
from dptext_etl.errors import PolicyError

if TYPE_CHECKING:
    from fractions import Fraction

    from dptext_etl.families.words import WordMechanism

COMPARED = 256  # largest number of outputs for which all words are compared with each other
LISTED = 300  # likeliest outputs of a worked example
SHOWN = 8  # of these, on a terminal
SAMPLES = 1_000  # draws of a worked example whose distribution has no exact fractions
LENGTHS = ("disclose", "fixed", "noisy")
_UNKNOWN_WORDS = {
    "uniform": "drawn uniformly from all output words",
    "first": "drawn as if they were the first word of the vocabulary",
    "drop": "vanish before words are counted",
    "keep": "released in clear",
}


def distribution(mechanism: WordMechanism) -> dict[str, Any]:
    """Return the privacy loss of one draw, exact if it is known, and the disclosures next to the draw.

    `epsilon_table` is the exact parameter of the sampler's integers, or None. `epsilon_worst` is that, or otherwise the
    smallest known upper bound; `is_exact` says which.
    """
    declared = float(mechanism.epsilon_per_word)
    exact, tight, outputs = mechanism.epsilon_table, mechanism.epsilon_tight, mechanism.output_words()
    worst = min(declared, *(amount for amount in (exact, tight) if amount is not None), math.inf)
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
            outcomes.append(
                {"length": length, "class": claim.guarantee_class.value, "disclosures": sorted(claim.disclosures)}
            )
    return outcomes


def known(mechanism: WordMechanism, word: str) -> str:
    """Return `word` if the mechanism knows it, otherwise the first plain word that it knows."""
    words = mechanism.input_words()
    return word if word in words else next((other for other in words if other.isalpha()), word)


def worked(mechanism: WordMechanism, word: str) -> dict[str, Any]:
    """Return the output distribution of one word: exact fractions if there are any, otherwise frequencies of draws.

    If the output set is small, return with it the output that discloses most about the word against another word of the
    set.
    """
    try:
        chances = dict(zip(*mechanism.transition(word), strict=True))
    except PolicyError:
        return _sampled(mechanism, word)
    outputs = [
        {"word": seen, "probability": float(chance), "exact": f"{chance.numerator}/{chance.denominator}"}
        for seen, chance in sorted(chances.items(), key=lambda item: (-item[1], item[0]))
    ]
    if len(outputs) > LISTED:
        for item in outputs[:LISTED]:
            del item["exact"]
    return {
        "word": word,
        "samples": None,
        **_listed(outputs),
        "stays": float(chances.get(word, 0)),
        "most_telling": _most_telling(mechanism, chances) if word in chances and 1 < len(chances) <= COMPARED else None,
    }


def _sampled(mechanism: WordMechanism, word: str) -> dict[str, Any]:
    from dptext_etl.families.words import sample_many

    counts = Counter(sample_many(mechanism, word, SAMPLES))
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    outputs = [{"word": seen, "probability": count / SAMPLES} for seen, count in ranked]
    stays = counts[word] / SAMPLES
    return {"word": word, "samples": SAMPLES, **_listed(outputs), "stays": stays, "most_telling": None}


def _listed(outputs: list[dict[str, Any]]) -> dict[str, Any]:
    rest = outputs[LISTED:]
    return {
        "outputs": outputs[:LISTED],
        "others": {"words": len(rest), "probability": math.fsum(item["probability"] for item in rest)},
    }


def _most_telling(mechanism: WordMechanism, chances: dict[str, Fraction]) -> dict[str, Any]:
    ratio, other, seen = max(
        (chances[seen] / chance, other, seen)
        for other in chances
        for seen, chance in zip(*mechanism.transition(other), strict=True)
        if seen in chances and chance
    )
    return {"seen": seen, "instead_of": other, "ratio": float(ratio), "log10_odds": math.log10(ratio)}


def show_lengths(lengths: list[dict[str, Any]]) -> None:
    terminal.heading("The number of words")
    terminal.pairs(
        {
            item["length"]: f"refused: {item['refused']}"
            if item["class"] is None
            else f"{item['class']}; discloses {', '.join(item['disclosures'])}"
            for item in lengths
        }
    )


def show_distribution(law: dict[str, Any]) -> None:
    terminal.heading("One draw" + (", from the integers that are drawn from" if law["is_exact"] else ""))
    worst = f"{law['epsilon_worst']:.6f}: a factor of {terminal.number(law['worst_ratio'])}"
    metric = law["metric"]
    terminal.pairs(
        {
            "declared": f"{terminal.number(law['epsilon_word'])} between any two words"
            f" ({terminal.number(law['times_epsilon'])} times the parameter epsilon)",
            "worst ratio": f"{worst} ({'exact' if law['is_exact'] else 'an upper bound'})",
            "by distance": "no metric claim"
            if metric is None
            else f"{metric['epsilon']:.6g} per unit of {metric['name']}, which is {metric['diameter']:.6g} at most",
            "disclosed": f"{law['disclosed_bits_per_token']:.2f} bits per word, next to the draw",
            "unknown words": law["unknown_words"],
            "output words": law["output_words"],
            "artifacts": law["artifacts"],
        }
    )


def show_example(example: dict[str, Any]) -> None:
    by = "" if example["samples"] is None else f" (frequencies of {example['samples']:,} draws)"
    terminal.heading(f"Example: the word {example['word']!r} becomes{by}")
    rows = [(item["word"], f"{item['probability']:.6f}") for item in example["outputs"][:SHOWN]]
    rest = example["outputs"][SHOWN:]
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
