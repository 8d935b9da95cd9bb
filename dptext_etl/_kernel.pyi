"""The Rust kernel: keys, streams, exact draws, words and table mechanisms (`kernel/src`).

Columns go in as any object with `__arrow_c_array__` or `__arrow_c_stream__` and come out as `Column`, which
`pa.array(column)` takes without a copy. Errors are those of `dptext_etl.errors`; none quotes a text, an id or a key.
"""

from collections.abc import Sequence
from typing import Any, Protocol

class _ArrowArray(Protocol):
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...

class _ArrowStream(Protocol):
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

_Arrow = _ArrowArray | _ArrowStream | Any
"""pyarrow ships no types, so its arrays are `Any`."""

VERSION: str
UNICODE_VERSION: str

class Column:
    def __len__(self) -> int: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...

class Secret:
    def __new__(cls) -> Secret: ...
    @staticmethod
    def resolve(reference: str, *, reread: bool = False) -> Secret: ...
    @staticmethod
    def from_bytes(key: bytes) -> Secret: ...
    def write(self, path: str) -> None: ...
    @property
    def published(self) -> bool: ...
    def derive(self, label: str, message: bytes) -> bytes: ...

class ReleaseKey:
    def __new__(cls, secret: Secret, dataset: str, column: str, release: str, cfg: str) -> ReleaseKey: ...

class Table:
    @classmethod
    def open(cls, path: str, sha256: str) -> Table: ...
    def input_words(self) -> list[str]: ...
    def output_words(self) -> list[str]: ...
    def kept_words(self) -> list[str]: ...
    def metadata(self) -> dict[str, str]: ...
    @property
    def law(self) -> str: ...
    @property
    def lists(self) -> int: ...
    @property
    def sets(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def max_set(self) -> int: ...
    def release(
        self,
        release_key: ReleaseKey,
        texts: _Arrow,
        ids: _Arrow,
        input_policy: str,
        nonce: int = 0,
        threads: int | None = None,
    ) -> Column: ...
    def release_with_keys(
        self, record_keys: _Arrow, texts: _Arrow, input_policy: str, threads: int | None = None
    ) -> Column: ...
    def positions(self, texts: _Arrow, input_policy: str, threads: int | None = None) -> Column: ...
    def row(self, word: str, input_policy: str) -> tuple[list[str], list[int]]: ...

class Corpus:
    """A corpus file: public texts, and draws of them in the place of whole texts.

    `policy` is JSON: near, inside, outside (how many texts are near, their weight, that of all others), parts, draws,
    n_max, null. `vectors` (int8, row after row, one per part) are those of a model.
    """

    @classmethod
    def open(cls, path: str, sha256: str) -> Corpus: ...
    def __len__(self) -> int: ...
    def metadata(self) -> dict[str, str]: ...
    def text(self, number: int) -> str: ...
    def release(
        self,
        release_key: ReleaseKey,
        texts: _Arrow,
        ids: _Arrow,
        policy: str,
        nonce: int = 0,
        vectors: _Arrow | None = None,
        threads: int | None = None,
    ) -> Column: ...
    def release_with_keys(
        self,
        record_keys: _Arrow,
        texts: _Arrow,
        policy: str,
        vectors: _Arrow | None = None,
        threads: int | None = None,
    ) -> Column: ...
    def positions(self, texts: _Arrow, policy: str) -> Column: ...
    def encode(self, texts: _Arrow, parts: int, n_max: int) -> Column: ...
    def near(self, text: str, policy: str) -> list[int] | None: ...

class IdIndex:
    """Distinct ids of 128 bits, numbered in the order in which each came first."""

    @staticmethod
    def of(hi: _Arrow, lo: _Arrow) -> tuple[IdIndex, Column]:
        """Return an index of ids, and the number of each row (int64), from both halves of the ids (uint64)."""
    def __len__(self) -> int: ...
    def find(self, hi: _Arrow, lo: _Arrow) -> tuple[Column, Column]:
        """Return the rows of other ids that are among these, in ascending order, and their numbers (int64)."""

class Vocabulary:
    """Texts into numbers of words, chosen outputs into texts; `Table` has its own.

    With a hidden length the last input and the last output are "<PAD>", which is released as nothing.
    """

    def __new__(
        cls, inputs: Sequence[str], kept: Sequence[str] = [], outputs: Sequence[str] | None = None
    ) -> Vocabulary: ...
    def encode(
        self, texts: _Arrow, input_policy: str, record_keys: _Arrow | None = None, threads: int | None = None
    ) -> tuple[Column, Column]:
        """Return the input number of every word that is drawn, and where each row's begin.

        Numbers are uint32, 2**32 - 1 for an unknown word that is uniform over the outputs; offsets are uint64, one
        more than rows. The word at place i of its row has position i. A noisy length needs the record keys
        (fixed-size binary, 32 bytes).
        """
    def words(
        self, texts: _Arrow, input_policy: str, threads: int | None = None
    ) -> tuple[Column, Column, Column, Column]:
        """Return all words that are drawn or released in clear, at most `n_max` of a text, as texts hold them.

        The columns are the distinct words (string), whether each is drawn (bool), the number of every word of every
        row among the distinct ones (uint32), and where each row's begin (uint64, one more than rows).
        """
    def assemble(
        self, texts: _Arrow, offsets: _Arrow, choices: _Arrow, input_policy: str, threads: int | None = None
    ) -> Column:
        """Return struct<text, positions> from one output number (uint32) per word of `encode`."""
    def positions(self, texts: _Arrow, input_policy: str, threads: int | None = None) -> Column: ...

class JsonRows:
    """The kinds of the values of an NDJSON file that comes chunk by chunk, and its first problem; no value is kept."""

    def __new__(cls) -> JsonRows: ...
    def feed(self, chunk: bytes) -> bool:
        """Read on; return whether the rest can be read, too."""

    def finish(self) -> None:
        """Read the last line, if no line break ended it."""

    @property
    def kinds(self) -> list[tuple[list[str], int]]:
        """The kinds of the numbers and strings of each field, by the names that lead to it."""

    @property
    def problem(self) -> tuple[str, int] | None:
        """The name of the problem that ended the reading, and its line."""

class CsvRows:
    """Counts of the rows of a CSV file that comes chunk by chunk, in ASCII or a superset of it; no cell is kept."""

    def __new__(cls, separator: int, quote: int | None) -> CsvRows: ...
    def feed(self, chunk: bytes) -> bool:
        """Read on; return whether the rest can be read, too."""

    def finish(self) -> None:
        """End the last row, if no line break ended it."""

    @property
    def line(self) -> int:
        """The number of the line that comes next."""

    @property
    def header(self) -> list[bytes]:
        """The fields of the header."""

    @property
    def others(self) -> tuple[int, int, int]:
        """The number of rows of another width than the header's, and line and fields of the first."""

    @property
    def blank(self) -> tuple[int, int]:
        """The number of blank lines, and the line of the first."""

    @property
    def problem(self) -> tuple[str, int] | None:
        """What ended the reading ("inside", "behind", "open", "return", "mixed", "header"), and its line."""

class WordSet:
    """Words that released texts may consist of, byte for byte."""

    def __new__(cls, words: list[str]) -> WordSet: ...
    def outside(self, texts: _Arrow, threads: int | None = None) -> tuple[int, int]:
        """Return how many words the texts have, and how many of them are not in the set.

        A single blank separates words. Nulls and empty texts have none.
        """

class Patterns:
    """Patterns without a blank by form of writing; every result has a count per form.

    Args:
        forms: The patterns of each form, and whether they are found in any case.
    """

    def __new__(cls, forms: list[tuple[list[bytes], bool]]) -> Patterns: ...
    def occurrences(self, data: bytes, after: int) -> list[int]:
        """Return how many occurrences end behind the first `after` bytes."""

    def holding(self, texts: _Arrow, threads: int | None = None) -> list[int]:
        """Return how many texts hold a pattern; nulls hold none."""

    def across(self, left: _Arrow, right: _Arrow, threads: int | None = None) -> list[int]:
        """Return in how many rows a pattern begins in the left text and ends in the right one."""

class NearLaw:
    def __new__(
        cls,
        column_norms: _Arrow,
        scale: float,
        epsilon: float,
        diameter: float,
        least: int,
        vectors: tuple[_Arrow, _Arrow, int] | None = None,
    ) -> NearLaw:
        """Keep rows from call to call, if `vectors` are given: of inputs and outputs (flat int16), and dimensions."""

    def __len__(self) -> int: ...
    @property
    def width(self) -> int: ...
    def weights(self, products: _Arrow, row_norms: _Arrow, threads: int | None = None) -> Column: ...
    def draw(
        self,
        products: _Arrow,
        row_norms: _Arrow,
        rows: _Arrow,
        record_keys: _Arrow,
        records: _Arrow,
        positions: _Arrow,
        purpose: int = 1,
        threads: int | None = None,
        some: _Arrow | None = None,
        words: _Arrow | None = None,
    ) -> Column: ...
    def kept(self, words: _Arrow, counts: _Arrow) -> Column: ...
    def draw_kept(
        self,
        words: _Arrow,
        record_keys: _Arrow,
        records: _Arrow,
        positions: _Arrow,
        some: _Arrow,
        purpose: int = 1,
        threads: int | None = None,
    ) -> Column: ...

def by_word(words: _Arrow) -> Column: ...
def count_copies(
    raw: _Arrow, released: _Arrow, draws: _Arrow, words: int | None = None
) -> tuple[int, int, int, int]: ...
def output_sets(vectors: _Arrow, dimensions: int, k: int, cosine: bool) -> Column: ...
def products_within(vectors: _Arrow, dimensions: int, members: int) -> Column: ...
def fingerprint(secret: Secret, text: str | None) -> bytes: ...
def stream_words(record_key: bytes, purpose: int, position: int, first_word: int, n: int) -> list[int]: ...
def below(record_key: bytes, purpose: int, position: int, bound: int, width: int) -> int: ...
def draw(record_key: bytes, purpose: int, position: int, weights: list[int], width: int) -> int: ...
def draw_positions(
    record_key: bytes, purpose: int, first: int, count: int, weights: list[int], width: int
) -> list[int]: ...
def discrete_laplace(record_key: bytes, purpose: int, position: int, num: int, den: int) -> int: ...
def discrete_laplaces(record_key: bytes, purpose: int, first: int, count: int, num: int, den: int) -> list[int]: ...
def discrete_gaussians(record_key: bytes, purpose: int, first: int, count: int, num: int, den: int) -> list[int]:
    """Return integers k of probability proportional to exp(-k**2 den / (2 num)), one for each position from `first` on.

    `num` and `den` are from 1 to 2**48, in lowest terms.
    """

def uniforms(
    record_keys: _Arrow,
    records: _Arrow,
    positions: _Arrow,
    purpose: int,
    width: int,
    first: int,
    count: int,
    threads: int | None = None,
) -> Column: ...
def radial_noise(
    record_keys: _Arrow, records: _Arrow, positions: _Arrow, purpose: int, dimensions: int, threads: int | None = None
) -> Column: ...
def uniform_choices(
    record_keys: _Arrow,
    records: _Arrow,
    positions: _Arrow,
    purpose: int,
    width: int,
    bound: int,
    threads: int | None = None,
) -> Column: ...
def choose_scores(
    scores: _Arrow,
    m: int,
    epsilon: float,
    low: float,
    high: float,
    least: int,
    record_keys: _Arrow,
    records: _Arrow,
    positions: _Arrow,
    purpose: int = 1,
    threads: int | None = None,
) -> Column:
    """Return one id (uint32) per row of `m` scores (float32 or float64, row after row).

    Weights are those of `dptext_etl.sampling.integer_weights`; `least` is the smallest of any id.
    """

def choose_scores_each(
    scores: _Arrow,
    m: int,
    epsilons: _Arrow,
    low: float,
    high: float,
    leasts: _Arrow,
    record_keys: _Arrow,
    records: _Arrow,
    positions: _Arrow,
    purpose: int = 1,
    threads: int | None = None,
) -> Column:
    """Return one id (uint32) per row as `choose_scores` does, each row at its own epsilon and least weight.

    Epsilons are float64, least weights uint64, one per row.
    """

def score_weights(
    scores: _Arrow, m: int, epsilon: float, low: float, high: float, least: int, threads: int | None = None
) -> Column: ...
def bounded(
    record_keys: _Arrow,
    records: _Arrow,
    positions: _Arrow,
    purpose: int,
    width: int,
    totals: _Arrow,
    before: _Arrow | None = None,
    threads: int | None = None,
) -> Column:
    """Return an integer (uint64) below each draw's total (uint64), from word 0 of its slot.

    With `before`, the totals of the first level, it is the second level of the same draws: from word 1, after the first
    level has taken what it needs of the overflow that both share.
    """

def noisy_latents(
    latents: _Arrow,
    dimensions: int,
    record_keys: _Arrow,
    clip: float | None = None,
    norm: str = "value",
    sigma: float | None = None,
    rate: tuple[int, int] | None = None,
    purpose: int = 4,
    threads: int | None = None,
) -> Column:
    """Return latents (float32 or float64, row after row) with noise on the grid of 2**-16, as float32.

    Noise is Gaussian of standard deviation `sigma`, inflated by 1 + 2**-20, or discrete Laplace of `rate` per step. A
    clip bounds "value", "l1" or "l2"; the noise of coordinate i has position i.
    """

def record_keys(release_key: ReleaseKey, ids: _Arrow, texts: _Arrow, nonce: int = 0) -> Column: ...
def table_digest(release_key: ReleaseKey, ids: _Arrow, texts: _Arrow, labels: _Arrow) -> bytes:
    """Return the sum of the keyed hashes of all rows, modulo 2**256, as 32 bytes in little-endian order."""

def order_keys(release_key: ReleaseKey, ids: _Arrow) -> Column: ...
def noise_key(release_key: ReleaseKey, table_digest: bytes, sums: _Arrow) -> bytes:
    """Return the noise key (32 bytes) of sums (int64) over the rows of that digest."""

def idem_keys(release_key: ReleaseKey, ids: _Arrow, texts: _Arrow, nonce: int = 0) -> Column: ...
def hash_ids(secret: Secret, kind: str, ids: _Arrow) -> Column: ...
def digests(texts: _Arrow) -> Column: ...
def upper_tail(chances: _Arrow, most: int) -> Column:
    """Return P[X >= t] for t = 0 to `most` (float64), where X counts successes with these chances (float64)."""

def merkle_root(columns: Sequence[tuple[_Arrow, int]], rows: int) -> bytes: ...
def prefix_digests(texts: _Arrow, words: int) -> Column: ...
def spaced_words(texts: _Arrow) -> Column: ...
def canonical_ids(ids: _Arrow, by_name: bool = False) -> Column: ...
def exchange(one: str, other: str) -> bool:
    """Exchange two files or folders in one step; False where the file system cannot, and nothing is changed."""

def begin_sharing() -> None: ...
def end_sharing() -> None: ...
def split(text: str) -> list[tuple[str, bool]]: ...
def _defect(message: str) -> None: ...
