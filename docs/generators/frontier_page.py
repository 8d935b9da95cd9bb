"""Put the parts of the frontier into its page, from the tidy file alone."""

from frontier.page import for_documentation

__all__ = ["for_documentation"]
