"""Provide the public inputs of word-level mechanisms: word vectors on an integer grid, neighbors, and word lists."""

from dptext_etl.embeddings.grid import WordList, stopwords
from dptext_etl.embeddings.neighbour_lists import NeighbourLists
from dptext_etl.embeddings.search import FreeWords
from dptext_etl.embeddings.vectors import DEFAULT_VECTORS, Metric, WordVectors

__all__ = ["DEFAULT_VECTORS", "FreeWords", "Metric", "NeighbourLists", "WordList", "WordVectors", "stopwords"]
