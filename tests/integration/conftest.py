"""Jobs over invented reviews, whose pictures are not drawn."""

from ..review_jobs import (  # noqa: F401  (fixtures)
    job,
    make_job,
    make_shared,
    make_synthetic,
    make_unlinked,
    policy_of_job,
    reviews,
    save,
    sentinel,
    store,
)
