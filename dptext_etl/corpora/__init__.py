"""Hold public texts and their integer vectors, and encode other texts next to them."""

from dptext_etl.corpora.corpus import Corpus as Corpus
from dptext_etl.corpora.corpus import WordEncoder as WordEncoder
from dptext_etl.corpora.frequencies import Frequency as Frequency
from dptext_etl.corpora.frequencies import Shrinkage as Shrinkage
from dptext_etl.corpora.frequencies import estimate_frequencies as estimate_frequencies
