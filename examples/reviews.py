"""Make what the other scripts read: a table of reviews, a key and the policy, in the current folder."""

import shutil
import subprocess
from pathlib import Path

import polars as pl

TEXTS = [
    "The room was clean and the staff were friendly, but the breakfast was cold.",
    "I ordered a blue jacket in March and it arrived two weeks late.",
    "My daughter loved the film; the ending made us all cry.",
]


def make() -> Path:
    """Write what is not there yet; return the path of the policy."""
    if not Path("noise.key").exists():
        subprocess.run(["dptext", "key", "new", "noise.key"], check=True)
    rows = range(300)
    reviews = {
        "id": [f"r{row}" for row in rows],
        "user_id": [f"u{row // 5}" for row in rows],
        "stars": [row % 5 + 1 for row in rows],
        "review": [TEXTS[row % 3] for row in rows],
    }
    pl.DataFrame(reviews).write_parquet("reviews.parquet")
    policy = Path("privacy.toml")
    if not policy.exists():
        shutil.copy(Path(__file__).with_name("privacy.toml"), policy)
    return policy


if __name__ == "__main__":
    print(f"made reviews.parquet, noise.key and {make()}")
