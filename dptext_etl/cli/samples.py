"""Provide public sentences of our own for `dptext preview`."""

from __future__ import annotations

PUBLIC = (
    "The room was clean and the staff were friendly, but the breakfast was cold.",
    "I ordered a blue jacket in March and it arrived two weeks late.",
    "My daughter loved the film; the ending made us all cry.",
    "Please call me on 555-0134, the doctor changed my medicine again.",
)
