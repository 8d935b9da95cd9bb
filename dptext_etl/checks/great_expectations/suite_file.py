"""Write the suite of a policy as a file of Great Expectations, which names the policy file and no other place."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import great_expectations as gx

from dptext_etl.checks.great_expectations.expectations import downstream_suite, suite_for
from dptext_etl.checks.great_expectations.tallies import BY_FILE
from dptext_etl.errors import InputError, seam
from dptext_etl.policy import Policy

STORE = Path("gx", "expectations")
"""Where a file context keeps its suites, below the root of a project."""
_NAMES = uuid.UUID("6f0a3a53-6a54-5c0e-9d2f-5d4f6c1b7a10")


def write_suite(
    policy: Path, output: Path = STORE, *, downstream: bool = False, public: Sequence[str] = ()
) -> tuple[str, Path]:
    """Write a policy's suite as a file context of Great Expectations stores it, and return its name and its file.

    The suite is called like the dataset, and its ids follow from the dataset: written again, also for a new release, it
    takes its own place, and checkpoints keep it. Its expectations name the policy file as it was given here, and read
    it when they are evaluated.
    """
    read, said = Policy.load(policy), f"{BY_FILE}{policy.as_posix()}"
    suite = downstream_suite(read, public, said=said) if downstream else suite_for(read, said=said)
    name = f"{read.dataset} downstream" if downstream else read.dataset
    facts: dict[str, Any] = {**suite.to_json_dict(), "name": name, "id": _id(name)}
    facts["expectations"] = [{**item, "id": _id(name, item)} for item in facts["expectations"]]
    facts["meta"] = {"great_expectations_version": gx.__version__}
    path = output if output.suffix == ".json" else output / f"{name}.json"
    with seam("writing the suite", InputError, "the folder must be writable by you"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{json.dumps(facts, indent=2, sort_keys=True)}\n", encoding="utf-8")
    return name, path


def _id(name: str, expectation: dict[str, Any] | None = None) -> str:
    about = [] if expectation is None else [expectation["type"], *_chosen(expectation["kwargs"])]
    return str(uuid.uuid5(_NAMES, json.dumps([name, *about])))


def _chosen(arguments: dict[str, Any]) -> list[str]:
    return [str(arguments[name]) for name in ("column", "gate") if name in arguments]
