"""Hold public texts and their integer vectors, and encode other texts beside them."""

from dptext_etl.corpora.corpus import Corpus as Corpus
from dptext_etl.corpora.encoder import WordEncoder as WordEncoder
