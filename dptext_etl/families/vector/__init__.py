"""Draw words by where their vectors lie: noise on a vector, or weights by distance."""

from dptext_etl.families.division import Indices as Indices
from dptext_etl.families.vector.vector import Draws as Draws
from dptext_etl.families.vector.vector import VectorMechanism as VectorMechanism
