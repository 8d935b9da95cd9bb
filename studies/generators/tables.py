"""Write the tables of the documentation."""

from __future__ import annotations

import json
import re
from pathlib import Path

from generators.markdown import table
from generators.mechanism_pages import RECOMMENDED

ROOT = Path(__file__).resolve().parents[2]


def mechanisms() -> str:
    """Return the table of all mechanisms and variants: their claims, and the cost of a text."""
    from dptext_etl import available, load
    from dptext_etl.cli import options
    from dptext_etl.families.words import WordMechanism
    from dptext_etl.policy.synthetic import CLAIM

    rows: dict[tuple[str, ...], list[str]] = {}
    for name in sorted(available(), key=lambda name: name not in RECOMMENDED):
        for variant, example in options.examples(load(name)).items():
            claim = example.guarantee
            details = ", ".join(f"`{item.value}`" for item in sorted(claim.disclosures - {"nullness"}))
            metric = example.metric_claim if isinstance(example, WordMechanism) else None
            said = (
                f"[{name}](#{name})",
                f"`{claim.guarantee_class.value}`",
                claim.unit,
                details,
                f"`{metric.metric}`" if metric else "",
                "·".join(example.cost_factors(1)),
            )
            rows.setdefault(said, []).append(variant or "")
    header = ("mechanism", "class", "ε is per", "released exactly, with nullness", "ε per distance", "ε of a text")
    listed = [(f"{name} {', '.join(variants)}".strip(), *said) for (name, *said), variants in rows.items()]
    whole = (
        "[maxent](#maxent), a synthetic table",
        f"`{CLAIM.guarantee_class.value}`",
        CLAIM.unit,
        "",
        "",
        "ε of the table",
    )
    return table(header, [*listed[: len(RECOMMENDED)], whole, *listed[len(RECOMMENDED) :]])


def exit_codes() -> str:
    """Return the exit codes in one line, as `dptext --help` prints them."""
    from dptext_etl.errors import EXIT_NAMES

    return f"Exit codes: {EXIT_NAMES}. [Command line](cli.md#exit-codes) explains them."


def exit_codes_of_schedules() -> str:
    """Return the actions of the recipes in `deploy/schedule` by exit code."""
    from dptext_etl.errors import EXIT_CODES, INTERRUPTED, TRANSIENT

    actions = {
        "nothing": {0},
        "repeat the command later, three times": {*TRANSIENT},
        "report it; the same command would be refused again": {*EXIT_CODES} - TRANSIENT - {0, INTERRUPTED},
        "nothing; the next run continues from there": {INTERRUPTED},
    }
    rows = (
        (
            ", ".join(map(str, sorted(codes))),
            ", ".join(EXIT_CODES[code].partition(":")[0] for code in sorted(codes)),
            action,
        )
        for action, codes in actions.items()
    )
    return table(("exit code", "meaning", "action of the recipes"), rows)


def disclosures() -> str:
    """Return all disclosures and their meanings."""
    from dptext_etl.guarantee import Disclosure

    return table(
        ("disclosure", "information released unchanged"), ((f"`{item.value}`", item.meaning) for item in Disclosure)
    )


def classes() -> str:
    """Return all guarantee classes and their meanings."""
    from dptext_etl.guarantee import GuaranteeClass

    return table(("class", "meaning"), ((f"`{item.value}`", item.meaning) for item in GuaranteeClass))


def gates() -> str:
    """Return all gates, when they judge, and the kind of errors that each catches; a statement lists examples."""
    from dptext_etl.checks import Stage
    from dptext_etl.checks.gate import every

    said = {Stage.STAGED: "staged run", Stage.PUBLISHED: "published table"}
    rows = (
        (f"`{gate.name}`", ", ".join(said[stage] for stage in Stage if stage in gate.stages), kind_of(gate.catches))
        for gate in every()
    )
    return table(("gate", "judges", "what it catches"), rows)


def kind_of(catches: str) -> str:
    """Return the first part of a gate's sentence, before its examples."""
    return re.split(r"[:;]|, (?:as|such as) ", catches.rstrip("."), maxsplit=1)[0] + "."


def text_shapes() -> str:
    """Return what becomes of unusual texts."""
    import shapes

    header = ("shape", "text", "words", "strict", "strict, unknown words vanish", "faithful")
    return table(header, shapes.rows())


SHOWN = (
    ("start", "dptext --help"),
    ("start", "dptext run of what init proposes"),
    ("custext", "CusText column in Polars, IMDb, one thread"),
    ("diffractor", "1-Diffractor column in Polars, tem"),
    ("dpmlm", "DP-MLM, parallel, 120"),
    ("dpmlm-host", "DP-MLM, parallel"),
    ("scale", "`dptext run` over 10^6"),
    ("spark", "`dptext run --engine spark`"),
    ("alternatives", "Presidio, recognizers by patterns"),
    ("gpu", "DP-MLM, parallel"),
)
"""The figures that the page shows: the part, and how the row begins."""


def benchmarks() -> str:
    """Return ten of the last measured figures, each with its date and commit."""
    folder = ROOT / "studies" / "benchmarks"
    parts, gpu = (json.loads((folder / name).read_text("utf-8"))["parts"] for name in ("results.json", "gpu.json"))
    parts["gpu"] = gpu["dpmlm"]
    rows = []
    for part, begins in SHOWN:
        measured_rows, cells = parts[part], ("work", "measured", "against", "ratio")
        row = next(row for row in measured_rows["rows"] if row["work"].startswith(begins))
        rows.append([*(row[cell] for cell in cells), f"{measured_rows['date']}, {measured_rows['commit']}"])
    return table(("work", "measured", "against", "ratio", "date, commit"), rows)
