"""Provide the public inputs of word-level mechanisms: word vectors on an integer grid, neighbors, and word lists."""

from dptext_etl.embeddings.vectors import DEFAULT_VECTORS as DEFAULT_VECTORS
from dptext_etl.embeddings.vectors import Metric as Metric
from dptext_etl.embeddings.vectors import WordVectors as WordVectors
from dptext_etl.embeddings.vectors import stopwords as stopwords
