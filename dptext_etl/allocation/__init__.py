"""Divide a budget among draws of a text by public scores of its words (Meisenbacher et al. 2025), under Theorem A."""

from dptext_etl.allocation.allocation import PASS as PASS
from dptext_etl.allocation.allocation import Allocation as Allocation
from dptext_etl.allocation.allocation import Epsilons as Epsilons
from dptext_etl.allocation.allocation import Marked as Marked
from dptext_etl.allocation.allocation import Place as Place
from dptext_etl.allocation.allocation import draw_in_passes as draw_in_passes
from dptext_etl.allocation.allocation import fit as fit
from dptext_etl.allocation.allocation import in_millionths as in_millionths
from dptext_etl.allocation.score import Score as Score
from dptext_etl.allocation.score import spread as spread
