"""Name the public tools of scores: a tagger, information content, an encoder."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class Tools(BaseModel):
    """Which public tools score words. Nothing is downloaded; a library is imported when a score uses it.

    Attributes:
        tagger: Word classes and names: "english" (comes with the library), "nltk" or "nltk:FOLDER" (NLTK's tagger over
            data that lies here), or "spacy:NAME" (any pipeline of spaCy, installed or in a folder).
        information: How rare words are: "english" (comes with the library), or "wordnet" or "wordnet:FOLDER" (WordNet
            and its counts in NLTK's data).
        encoder: Likeness of texts: "words" (comes with the library), or "sentence-transformers:FOLDER".
        printed: Take the formulas as paper 001 prints them, to compare with it; some are the wrong way round.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, validate_default=True)

    artifact_fields: ClassVar[frozenset[str]] = frozenset({"tagger", "information", "encoder"})
    """Fields that name public files; the hashes of these enter the configuration, not the names."""
    hub_fields: ClassVar[frozenset[str]] = artifact_fields
    """All of them: in a policy file a folder is looked for in the folder of the policy first."""

    tagger: str = "english"
    information: str = "english"
    encoder: str = "words"
    printed: bool = False
