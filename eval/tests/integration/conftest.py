"""Jobs over invented reviews, as the core's integration tests run them."""

from tests.review_jobs import job, make_job, make_shared, make_synthetic, policy_of_job, reviews, save, sentinel, store  # noqa: F401
