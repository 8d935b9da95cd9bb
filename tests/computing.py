"""Where and in what tests of models compute: float32 and bfloat16 on every CPU (torch emulates it), and on a GPU.

A test that compares numbers uses the fixture `computing`, or names a place; none goes by `auto`.
"""

from dptext_etl.device import DTYPE_SETTING, SETTING, Computing, device

PLACES = [Computing(where, dtype) for where in dict.fromkeys(("cpu", device())) for dtype in ("float32", "bfloat16")]
PRECISE = [place for place in PLACES if place.dtype == "float32"]
"""Places whose scores differ by rounding only in the last digits."""


def place_name(place):
    """The place in the name of a test."""
    return f"{place.device}-{place.dtype}"


def settle(patch, place):
    """Make models compute in a place, as long as the patch lasts."""
    patch.setenv(SETTING, place.device)
    patch.setenv(DTYPE_SETTING, place.dtype)
