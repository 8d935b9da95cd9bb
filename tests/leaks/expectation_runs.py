"""Shared by tests of Great Expectations: batches, checkpoints with Data Docs, and a search for forbidden words."""

import re

from tests.later import later

gx = later("great_expectations")
dptx = later("dptext_etl.checks.great_expectations.expectations")

UUID = re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")  # Great Expectations draws such names itself


def quoted(said, forbidden):
    """Forbidden words in JSON, pages or logs; numbers count as whole words, not in UUIDs or names of folders."""
    said = re.sub(r"pytest-\d+", "", UUID.sub("", said))
    tokens = set("".join(letter if letter.isalnum() else " " for letter in said.lower()).split())
    return sorted(tokens & forbidden | {word for word in forbidden if not word.isdigit() and word in said.lower()})


def batch_of(frame, kind="pandas", **context):
    """A context, the batch definition of a whole frame in it, and the parameters that name the frame."""
    context = gx.get_context(**(context or {"mode": "ephemeral"}))
    context.variables.progress_bars = dptx.ProgressBarsConfig(globally=False, metric_calculations=False)
    asset = getattr(context.data_sources, f"add_{kind}")("made").add_dataframe_asset("released")
    return context, asset.add_batch_definition_whole_dataframe("whole"), {"dataframe": frame}


def checkpoint_of(context, definition, policy, result_format="SUMMARY"):
    """Add the suite of a policy to a context; its validation, and a checkpoint that writes Data Docs."""
    suite = context.suites.add(dptx.suite_for(policy))
    validation = context.validation_definitions.add(gx.ValidationDefinition(name="v", data=definition, suite=suite))
    docs = gx.checkpoint.UpdateDataDocsAction(name="docs")
    made = gx.Checkpoint(name="c", validation_definitions=[validation], actions=[docs], result_format=result_format)
    return validation, context.checkpoints.add(made)
