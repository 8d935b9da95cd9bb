"""Re-exports `dptext_etl.spark`: SQL functions that release a text column, and whole runs over a data frame."""

from dptext_etl.spark import guard, privatize_frame, register

__all__ = ["guard", "privatize_frame", "register"]
