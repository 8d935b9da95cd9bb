"""Trainings that lose power right after a checkpoint, and the weights that trainings leave."""

import pytest

from dptext_etl_models.training import resumable


def weights(folder):
    return (folder / "model.safetensors").read_bytes()


def stopped(train, *given, after=1, **options):
    """Run a training up to the end of some checkpoint, the first one if nothing is said."""
    save, seen = resumable.Checkpoint.save, []

    def power_cut(*args):
        save(*args)
        seen.append(args)
        if len(seen) == after:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resumable.Checkpoint, "save", power_cut)
        with pytest.raises(KeyboardInterrupt):
            train(*given, **options)
