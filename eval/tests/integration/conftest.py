"""Jobs over invented reviews, as the core's integration tests run them."""

from tests.integration.conftest import (  # noqa: F401
    job,
    make_job,
    make_synthetic,
    policy_of_job,
    reviews,
    save,
    sentinel,
    store,
)
