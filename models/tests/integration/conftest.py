"""Jobs over invented reviews, as the core's integration tests run them."""

from tests.integration.conftest import job, make_job, policy_of_job, reviews, save, sentinel, store  # noqa: F401
