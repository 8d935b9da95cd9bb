"""Write `example`, a tiny corpus for tests, documentation and first looks: it is too small to keep what a text says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dptext_etl.corpora.corpus import FORMAT, write
from dptext_etl.corpora.encoder import WordEncoder
from dptext_etl.embeddings import WordVectors

WORDS = 6_000

TEXTS = (
    "I would like to book a room for two nights",
    "The hotel was clean and the people at the desk were kind",
    "Can you find a cheap hotel near the station",
    "Our room was cold and nobody came to help",
    "Please book a table for four people this evening",
    "The food was very good and we will come back",
    "We waited an hour for our meal and it was cold",
    "Is there a good restaurant near the river",
    "Play the new album by my favourite band",
    "Add this song to my list for the evening",
    "The concert was too loud and far too long",
    "Who wrote the music for this film",
    "What will the weather be like tomorrow morning",
    "Will it rain in the north this weekend",
    "It was a cold winter with a lot of snow",
    "The storm took the roof off the old school",
    "My train was late again and I missed the meeting",
    "When does the next bus to the city leave",
    "I need a ticket to the airport for Monday",
    "The road is closed because of the storm",
    "I sent money to the wrong account",
    "How much money do I have in my account",
    "The bank closed my account without a word",
    "Please pay the rent on the first day of the month",
    "My telephone does not work since this morning",
    "The internet in our house is very slow",
    "They gave me a new number and a better price",
    "How can I change the password of my account",
    "I have had pain in my back for two weeks",
    "The doctor was patient and explained everything",
    "When can I see the doctor this week",
    "The drug helped but I could not sleep",
    "Our daughter starts at a new school in the autumn",
    "The teacher gave us too much work for one week",
    "Where can I learn a new language",
    "The library is open until nine in the evening",
    "The meeting was moved to Friday afternoon",
    "I am looking for work in a small company",
    "My boss thanked the whole team for the work",
    "Please send the report before the end of the day",
    "The film was far too long and had no story",
    "A beautiful film with a great cast",
    "Find the next showing of the film in this city",
    "The actor was wonderful in the leading role",
    "Our team won the final game of the season",
    "Who won the game last night",
    "The player was hurt in the first half",
    "The match was slow and nobody scored",
    "The book arrived late and the cover was damaged",
    "I want to return the shoes that I bought",
    "The store has a large choice at a fair price",
    "When will my order arrive",
    "The washing machine broke after one month",
    "Turn off the light in the kitchen",
    "We painted the walls of the house white",
    "The garden needs water in the summer",
    "The city council will build a new bridge",
    "I lost my identity card and need a new one",
    "Where do I pay the tax for my car",
    "The office was closed when I came",
    "My car makes a strange noise when it starts",
    "The dog ran away and came back after two days",
    "She gave the book five stars out of six",
    "The history of this small town is old and rich",
)


def description() -> dict[str, Any]:
    """Return everything that the content depends on; its hash names the entry of the cache."""
    return {
        "format": FORMAT,
        "name": "example",
        "texts": list(TEXTS),
        "encoder": {"kind": "words", "name": "english-20k", "limit": WORDS},
        "vectors": WordVectors.load(limit=None).artifact.sha256,
        "licence": "texts written for dptext_etl, Apache-2.0; vectors as english-20k",
        "provenance": "written for dptext_etl",
    }


def build(path: Path) -> None:
    """Write the corpus: word vectors weigh the more, the rarer their words are."""
    known = WordVectors.load()
    weights = np.array([(rank + 1).bit_length() for rank in range(WORDS)], np.int64)
    grid = known.vectors[:WORDS].astype(np.int64)
    weighted = (grid - grid.sum(axis=0) // WORDS) * weights[:, None]
    facts = {name: value for name, value in description().items() if name != "texts"}
    write(path, TEXTS, facts, encoder=WordEncoder(known.words[:WORDS], weighted.astype(np.int16)))
