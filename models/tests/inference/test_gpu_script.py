"""`make -C studies gpu` runs in full without a GPU, with tiny shapes, and its checks find planted errors."""

import json
from pathlib import Path

import pytest

from dptext_etl.device import DTYPE_SETTING, SETTING
from dptext_etl_models.inference.masked.model import MaskedModel

pytest.importorskip("torch")
BENCHMARKS = Path(__file__).resolve().parents[3] / "studies" / "benchmarks"


@pytest.fixture
def gpu(monkeypatch):
    """The script as a module, on the CPU in float32."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.setenv(SETTING, "cpu")
    monkeypatch.setenv(DTYPE_SETTING, "float32")
    import gpu

    return gpu


@pytest.mark.thorough
@pytest.mark.usefixtures("one_thread")
def test_every_part_runs_with_tiny_shapes(gpu, tmp_path, capsys):
    out = tmp_path / "gpu.json"
    assert gpu.main(["--tiny", "--out", str(out)]) == 0, capsys.readouterr()
    parts = json.loads(out.read_text())["parts"]
    assert list(parts) == ["bits", "draws", "memory", "generation", "dpmlm", "documents", "search"]
    rows = [row for part in parts.values() for row in part["rows"]]
    assert not [row for row in rows if "failed" in row["measured"] or "not met" in row["goal"]]
    assert sum(row["goal"].endswith(": met") for row in rows) == 10
    works = [row["work"].split(",")[0] for row in parts["dpmlm"]["rows"]]
    assert works == ["DP-MLM"] * 9
    shares = [row["measured"] for row in parts["dpmlm"]["rows"] if "work of" in row["work"]]
    assert [text.split(" ", 1)[1] for text in shares] == ["CPU-µs a word", "µs a word"] * 3
    assert all(float(text.split()[0]) > 0 for text in shares)
    fields = {"date", "machine", "load", "commit", "command", "rows"}
    assert all(set(part) == fields and all(part.values()) for part in parts.values())


def test_without_a_gpu_nothing_is_measured(gpu, tmp_path, capsys):
    out = tmp_path / "gpu.json"
    assert gpu.main(["--out", str(out)]) == 1
    assert "no GPU" in capsys.readouterr().err
    assert not out.exists()
    with pytest.raises(SystemExit):
        gpu.main(["--tiny"])


@pytest.mark.usefixtures("one_thread")
def test_a_model_whose_rows_meet_does_not_pass(gpu, tmp_path, monkeypatch):
    import gpu_checks
    import gpu_models

    gpu_models.build(tmp_path, gpu_models.TINY)
    forward = MaskedModel.forward

    def mixing(self, tokens, *rest):
        return forward(self, tokens, *rest) + 1e-3 * float(tokens.mean())

    monkeypatch.setattr(MaskedModel, "forward", mixing)
    (row,) = gpu_checks.equal_bits(tmp_path, "cpu", "float32", gpu_models.TINY)
    assert row.met is False
