"""Fine-tune a language model on one kind of text and test it on another (the `Trainer` of transformers).

Of a split, it learns from all training rows. Otherwise it learns from seven tenths of the rows and is tested on the
others; no person is in both. Texts of pairs are read together.
"""

from __future__ import annotations

import importlib.util
import math
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dptext_etl.errors import InputError, seam
from dptext_etl.extensions import pip_install
from dptext_etl_eval.classifier import Guesses, crossed, require_classes, rest_numbers
from dptext_etl_eval.evaluators import SMALL, positions, silent
from dptext_etl_eval.pairs import CLASSIFIER, LABEL, RAW, RELEASED, SECOND, Pairs, Values

TRAIN_SHARE = 0.7
STOPPING_SHARE = 0.1
"""Share of the texts whose loss decides when training stops early."""
Rows = npt.NDArray[np.intp]


class Recipe(NamedTuple):
    """How a model is fine-tuned."""

    epochs: int
    rate: float  # largest learning rate
    longest: int  # tokens of a text, or of a pair of texts, that the model reads
    warmup: float = 0.0  # share of the steps in which the rate grows
    batch: int = 32  # texts of a step
    patience: int = 0  # epochs without a better loss on a tenth of the texts, after which training stops; 0 never stops


OURS = Recipe(3, 5e-4, 128, 0.1)
"""For our small model."""
GIVEN = Recipe(1, 1e-5, 512)
"""For a model that is given: as Meisenbacher et al. 2025 train (Section 4.2.2), with batches of 32."""


class Side(NamedTuple):
    """Texts to learn from, or to test."""

    texts: Sequence[str]
    seconds: Sequence[str] | None  # second texts of pairs


def recipe_of(name: str, epochs: int | None = None, rate: float | None = None) -> Recipe:
    """Return how a model is trained by default, with other epochs or another rate where they are given."""
    recipe = OURS if name == SMALL else GIVEN
    return recipe._replace(epochs=epochs or recipe.epochs, rate=rate or recipe.rate)


def require_training() -> None:
    """Refuse to continue if what trains models is not installed."""
    for library in ("torch", "transformers", "accelerate"):
        if importlib.util.find_spec(library) is None:
            raise InputError(f"fine-tuning needs {library}, which is not installed", pip_install("models"))


def ways(pairs: Pairs) -> list[tuple[str, Callable[..., Guesses]]]:
    """Return the classifiers that guess a column, with what follows the names of their figures."""
    every: list[tuple[str, Callable[..., Guesses]]] = [("", crossed)]
    return [*every, (", by the fine-tuned model", tuned)] if CLASSIFIER in pairs.has else every


def tuned(pairs: Pairs, target: str, *, train: str, test: str) -> Guesses:
    """Guess a column of the tested rows by a model that was fine-tuned on the others; see `classifier.crossed`."""
    key = ("tuned", target, pairs.classifier, pairs.seed)
    if key not in pairs.memory:
        pairs.memory[key] = _every_way(pairs, target)
    guesses: Guesses = pairs.memory[key][train, test]
    return guesses


def _every_way(pairs: Pairs, target: str) -> dict[tuple[str, str], Guesses]:
    """Fine-tune on raw and on released texts, and test each on both."""
    truth: Any = getattr(pairs, target)
    numbers = pairs.numbers if target == LABEL else None
    if numbers is None:
        require_classes(truth, target)
    else:
        truth = numbers
    guesses: dict[tuple[str, str], Guesses] = {}
    if pairs.split and pairs.rest is not None:
        taught: Any = pairs.rest[target].to_numpy().astype(str)
        taught = taught if numbers is None else rest_numbers(taught)
        learn, test = None, np.arange(len(pairs))
    else:
        learn, test = parted(pairs.subject, len(pairs), pairs.seed)
        taught = truth[learn]
    groups = None if pairs.subject is None else pairs.subject[test]
    for train in (RAW, RELEASED):
        asked = recipe_of(pairs.classifier, pairs.evaluators.epochs, pairs.evaluators.rate)
        guess = fine_tuned(pairs.classifier, _side(pairs, target, train, learn), taught, seed=pairs.seed, recipe=asked)
        for kind in (RAW, RELEASED):
            guessed = guess(_side(pairs, target, kind, test))
            guesses[train, kind] = Guesses(truth[test], guessed, _blind(taught, len(test)), groups)
    return guesses


def _side(pairs: Pairs, target: str, which: str, rows: Rows | None) -> Side:
    """Return some rows of the sample, or all rows outside of it."""
    paired = target == LABEL and pairs.second is not None
    if rows is None:
        assert pairs.rest is not None  # noqa: S101  (a split has training rows)
        return Side(pairs.rest[which].to_list(), pairs.rest[SECOND[which]].to_list() if paired else None)
    texts, seconds = pairs.texts(which), pairs.seconds(which) if paired else None
    return Side([texts[row] for row in rows], None if seconds is None else [seconds[row] for row in rows])


def _blind(taught: Any, rows: int) -> Any:
    if taught.dtype.kind == "f":
        return np.full(rows, taught.mean())
    values, counts = np.unique(taught, return_counts=True)
    return np.repeat(values[counts.argmax()], rows)


def parted(groups: Values | None, rows: int, seed: int = 0) -> tuple[Rows, Rows]:
    """Return the rows to learn from and those to test on; no person is in both."""
    codes = np.arange(rows) if groups is None else np.unique(groups, return_inverse=True)[1]
    order = np.random.default_rng(seed).permutation(int(codes.max()) + 1)
    learned = np.isin(codes, order[: max(1, int(TRAIN_SHARE * len(order)))])
    return np.flatnonzero(learned), np.flatnonzero(~learned)


def fine_tuned(
    name: str, side: Side, truth: Any, *, seed: int = 0, recipe: Recipe | None = None
) -> Callable[[Side], Any]:
    """Fine-tune a model with a new head, and return a function that guesses classes, or numbers, of other texts.

    Args:
        name: Folder or name of a model.
        side: Texts to learn from.
        truth: Their classes as strings, or numbers, shape (texts,).
        seed: Number of the initial weights of the head and of the order of the texts.
        recipe: How the model is trained; None uses `OURS` for our small model, and `GIVEN` for others.
    """
    import transformers

    require_training()
    recipe = recipe or recipe_of(name)
    numbers = truth.dtype.kind == "f"
    names, codes = (None, truth.astype(np.float32)) if numbers else np.unique(truth, return_inverse=True)
    with seam("fine-tuning a model", InputError), _quiet(seed), tempfile.TemporaryDirectory() as folder:
        tokenizer, model = _opened(name, 1 if names is None else len(names), seed)
        reads = min(recipe.longest, tokenizer.model_max_length, positions(model))
        settings = transformers.TrainingArguments(
            output_dir=folder,
            num_train_epochs=recipe.epochs,
            learning_rate=recipe.rate,
            warmup_steps=recipe.warmup,
            per_device_train_batch_size=recipe.batch,
            per_device_eval_batch_size=recipe.batch,
            seed=seed,
            save_strategy="epoch" if recipe.patience else "no",
            eval_strategy="epoch" if recipe.patience else "no",
            save_total_limit=1 if recipe.patience else None,
            load_best_model_at_end=recipe.patience > 0,
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            dataloader_pin_memory=False,
        )
        given: dict[str, Any] = {
            "model": model,
            "args": settings,
            "data_collator": transformers.DataCollatorWithPadding(tokenizer),
        }
        every = _rows(tokenizer, side, reads, codes)
        held = math.ceil(STOPPING_SHARE * len(every)) if recipe.patience else 0
        if held:
            order = np.random.default_rng(seed).permutation(len(every)).tolist()
            given["eval_dataset"] = [every[at] for at in order[:held]]
            given["callbacks"] = [transformers.EarlyStoppingCallback(recipe.patience)]
            every = [every[at] for at in order[held:]]
        trainer = transformers.Trainer(**given, train_dataset=every)
        trainer.remove_callback(transformers.trainer_callback.PrinterCallback)
        trainer.train()

    def guess(side_rows: Side) -> Any:
        with seam("guessing with a fine-tuned model", InputError), _quiet(seed):
            predictions = trainer.predict(_rows(tokenizer, side_rows, reads)).predictions
        return predictions[:, 0].astype(np.float64) if names is None else names[predictions.argmax(1)]

    return guess


def _opened(name: str, outputs: int, seed: int) -> tuple[Any, Any]:
    import torch
    import transformers

    from dptext_etl_models.inference import language_model

    files = language_model.model_files(name)
    tokenizer = language_model.tokenizer(files)

    def read(folder: Path) -> Any:
        transformers.utils.logging.disable_progress_bar()
        language_model.without_code(folder)
        return transformers.AutoModelForSequenceClassification.from_pretrained(
            folder,
            num_labels=outputs,
            problem_type="regression" if outputs == 1 else "single_label_classification",
            ignore_mismatched_sizes=True,
            dtype=torch.float32,
            **language_model.FROM_FOLDER,
        )

    transformers.set_seed(seed)
    model = language_model.opened(files, read)
    model.config.pad_token_id = tokenizer.pad_token_id
    return tokenizer, model


def _rows(tokenizer: Any, side: Side, longest: int, truth: Any = None) -> list[dict[str, Any]]:
    given = (side.texts,) if side.seconds is None else (side.texts, side.seconds)
    tokens = tokenizer(*map(list, given), truncation=True, max_length=longest)
    rows = [dict(zip(tokens, row, strict=True)) for row in zip(*tokens.values(), strict=True)]
    return (
        rows if truth is None else [{**row, "labels": labels} for row, labels in zip(rows, truth.tolist(), strict=True)]
    )


@contextmanager
def _quiet(seed: int) -> Iterator[None]:
    """Draw from generators of a seed, which are then as they were, and let transformers print nothing."""
    import torch

    states = random.getstate(), np.random.get_state()
    with silent(), torch.random.fork_rng():
        torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])
