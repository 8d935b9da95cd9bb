"""Provide the public inputs of word-level mechanisms: word vectors on an integer grid, neighbors, and word lists."""

from dptext_etl.embeddings.neighbour_lists import NeighbourLists
from dptext_etl.embeddings.shortlist import FreeWords
from dptext_etl.embeddings.vectors import DEFAULT_VECTORS, Metric, WordVectors
from dptext_etl.embeddings.word_lists import WordList, stopwords

__all__ = ["DEFAULT_VECTORS", "FreeWords", "Metric", "NeighbourLists", "WordList", "WordVectors", "stopwords"]
