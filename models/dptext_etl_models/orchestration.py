"""Make assets of the trainings of latent models: pruned, trained under noise, and the autoencoder of ADePT.

The trainings read only public corpora, so they need no policy, key or ledger. A step that was stopped resumes from its
checkpoint when it is materialized again.
"""

# No `from __future__ import annotations`: Dagster reads the annotations of a step's parameters when it is made.
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import dagster as dg

Done = dg.MaterializeResult[Any]


@dataclass(frozen=True)
class Trainings:
    """Common settings of the trainings of one code location.

    Attributes:
        corpora: Parquet files of public texts, "PATH" or "PATH=SHARE".
        folder: Output folder, with a folder per model.
        scale: "paper" for the paper's settings, "small" for small models and machines.
        column: The column of texts.
        texts: Number of short texts to draw from the corpora.
        length: Tokens of a text in a release.
        changes: Settings that differ from the scale's, by training: {"prune": {"steps": 100}}.
    """

    corpora: Sequence[str]
    folder: Path
    scale: Literal["paper", "small"] = "paper"
    column: str = "text"
    texts: int = 200_000
    length: int = 20
    changes: dict[str, dict[str, Any]] | None = None

    def drawn(self, seed: int) -> tuple[list[str], dict[str, Any]]:
        """Return the texts of a training, and facts about their corpora."""
        from dptext_etl_models.training.corpus import draw_texts

        return draw_texts(self.corpora, self.column, self.length - 2, self.texts, seed)

    def settings(self, name: str, paper: Any, small: Any, **more: Any) -> Any:
        """Return the settings of a training at this scale."""
        changed = {"length": self.length, **more, **(self.changes or {}).get(name, {})}
        return replace(small if self.scale == "small" else paper, **changed)


def training_assets(
    trainings: Trainings, *, model: str, epsilons: Sequence[float] = (500.0,), delta: float = 1e-6
) -> list[dg.AssetsDefinition]:
    """Return assets that train DP-BART's PR and PR+ models and ADePT's autoencoder."""
    return [_pruned(trainings, model), *(_noisy(trainings, epsilon, delta) for epsilon in epsilons), _adept(trainings)]


def _pruned(trainings: Trainings, model: str) -> dg.AssetsDefinition:
    def train(out: Path, report: Callable[[Any], None]) -> Any:
        from dptext_etl_models.training import dpbart
        from dptext_etl_models.training.bart import Base

        settings = trainings.settings("prune", dpbart.PruneSettings(), dpbart.SMALL_PRUNE)
        texts, facts = trainings.drawn(settings.seed)
        history = dpbart.train_pruned(Base.load(model), texts, settings, out, facts=facts, listener=report)
        return settings, {"kept": len(history[max(settings.stages - 2, 0)])}

    return _asset("dpbart_pr", trainings, train, "Columns pruned for DP-BART-PR, trained on public text.")


def _noisy(trainings: Trainings, epsilon: float, delta: float) -> dg.AssetsDefinition:
    def train(out: Path, report: Callable[[Any], None]) -> Any:
        from dptext_etl_models.training import dpbart
        from dptext_etl_models.training.bart import Base

        settings = trainings.settings("noise", dpbart.NoiseSettings(), dpbart.SMALL_NOISE, epsilon=epsilon, delta=delta)
        texts, facts = trainings.drawn(settings.seed)
        base = Base.load(str(trainings.folder / "dpbart_pr"))
        return settings, {"steps": dpbart.train_noisy(base, texts, settings, out, facts=facts, listener=report)}

    name = f"dpbart_pr_plus_{epsilon:g}".replace(".", "_")
    return _asset(name, trainings, train, f"DP-BART-PR+ for epsilon {epsilon:g}.", deps=["dpbart_pr"])


def _adept(trainings: Trainings) -> dg.AssetsDefinition:
    def train(out: Path, report: Callable[[Any], None]) -> Any:
        from dptext_etl_models.training import adept

        settings = trainings.settings("adept", adept.Settings(), adept.SMALL)
        texts, facts = trainings.drawn(settings.seed)
        return settings, {"steps": adept.train(texts, settings, out, facts=facts, listener=report)}

    return _asset("adept", trainings, train, "ADePT's LSTM autoencoder, trained on public text.")


def _asset(
    name: str,
    trainings: Trainings,
    train: Callable[[Path, Callable[[Any], None]], Any],
    description: str,
    *,
    deps: Sequence[str] = (),
) -> dg.AssetsDefinition:
    @dg.asset(name=name, deps=list(deps), description=description, group_name="training", kinds={"pytorch"})
    def trained(context: dg.AssetExecutionContext) -> Done:
        settings, facts = train(trainings.folder / name, lambda progress: context.log.info(str(progress)))
        entries = {key: repr(value) for key, value in asdict(settings).items()}
        return dg.MaterializeResult(metadata={"folder": str(trainings.folder / name), **facts, "settings": entries})

    return trained
