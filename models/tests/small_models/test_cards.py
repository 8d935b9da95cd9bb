"""Every model that ships is small, and its card names its weights and licenses."""

import hashlib
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[3] / "models" / "dptext_etl_models"
LARGEST = {"english-small": 16_000_000, "english-autoencoder": 16_000_000}
"""Bytes that a folder may have; all others may have 8,000,000."""


@pytest.mark.parametrize(
    "folder", sorted(path.parent for path in PACKAGE.glob("*/config.json")), ids=lambda path: path.name
)
def test_it_is_small_and_its_card_names_its_weights_and_licenses(folder):
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert sum(path.stat().st_size for path in folder.iterdir()) < LARGEST.get(folder.name, 8_000_000)
    assert hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest() in card
    assert {path.suffix for path in folder.iterdir()} <= {".json", ".md", ".safetensors"}
    assert "CC BY-SA 4.0" in card
