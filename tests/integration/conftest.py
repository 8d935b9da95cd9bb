"""Jobs over invented reviews."""

from ..review_jobs import (  # noqa: F401  (fixtures)
    job,
    make_job,
    make_shared,
    make_shuffled,
    make_synthetic,
    policy_of_job,
    released,
    released_once,
    released_with,
    reviews,
    save,
    sentinel,
    store,
)
from .dagster_runs import by_dagster, stopped_in_dagster  # noqa: F401  (fixtures)
