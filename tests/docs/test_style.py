"""Prose keeps the rules of `docs/style.md`: pages, comments, docstrings, and strings of messages.

`python tests/docs/test_style.py` prints the counts of all rules.
"""

import ast
import io
import re
import tokenize
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "style.md"
LEFT_OUT = (
    "docs/style.md",
    "tests/frozen/",  # bytes of earlier versions
    "dptext_etl/corpora/shipped/",  # texts of corpora
    "dptext_etl/corpora/everyday",
    "dptext_etl/data/",  # cards of artifacts, whose bytes have hashes
    "dptext_etl_models/english-",
    "studies/reports/",
    "/target/",
    ".egg-info",
)
"""Text that is data, or that a study wrote together with its figures."""
FOLDERS = ("dptext_etl", "models", "eval", "udfs", "dagster_project", "studies", "tests")
PLACES = (*FOLDERS, "docs", "deploy", "examples", "kernel")


@cache
def files(ending):
    """Files of ours by name, in a checkout or in an unpacked sdist."""
    found = [*ROOT.glob(f"*{ending}"), *(path for place in PLACES for path in (ROOT / place).rglob(f"*{ending}"))]
    names = sorted(str(path.relative_to(ROOT)) for path in found if path.is_file())
    return [name for name in names if not any(part in name for part in LEFT_OUT)]


def words():
    listed = PAGE.read_text(encoding="utf-8").split("<!-- words: start -->")[1].split("<!-- words: end -->")[0]
    return [line.split("|")[1].strip() for line in listed.strip().splitlines()[2:]]


BANNED = re.compile(rf"(?<![\w-])(?:{'|'.join(words())})(?:s|d|r|rs|ing|ly)?(?![\w-])", re.IGNORECASE)
QUOTED = re.compile(
    r"`[^`]*`|\]\([^)]*\)|\{#?[^{}]*\}|https?://\S+|\"[^\"\n]*\"|“[^”]*”|'[^'\n]{1,40}'|noqa.*|^\s+\w+:", re.MULTILINE
)
STORED = re.compile(
    r"(?:label names|public data|(?:written|public labeled) texts|zero-shot labels) alone"
    r"|stand (?:where they stood|anywhere)|that of the (?:sources?|corpus)"
    r"|less that of sequential draws|every record needs an id of its own|differ in sensitive words alone"
    r"|logins of their own|a hidden length is told by|words kept in clear",
    re.IGNORECASE,
)
"""Stored texts: names of figures, licenses in cards, a refusal and a disclosure in `tests/frozen`, a migration."""
RULES = {
    "alone": r"(?<!leave )(?<!let )(?<!left )\balone\b",
    "is no": r"(?<!here )\b(?:is|are|was|were) no (?!longer|more|one|less|better|worse|larger|smaller|faster)[a-z]+",
    "of its own": r"\bof (?:its|their|our|your|his|her) own\b(?! (?:rows?|text|record|pairs|prompt|desc|docs)\w*)",
    "that of": r"\b(?:that|those) of\b",
    "stands": r"\bst(?:ands?|ood)\b(?! for\b| in for\b|-)",
    "but for": r"\bbut for\b|\b(?:nothing|anything) but\b",
    "and so do": r"\band so (?:do|does|did|is|are|has|have)\b",
    "by the clock": r"\bby the clock\b",
    "mend": r"\bmend(?:s|ed|ing)?\b",
    "go on": r"\b(?:go|goes|going|went|gone) on\b",
    "so many": r"\bso (?:many|much)\b",
    "space before %": r"\d[ \u00a0]%",
    "in clear": r"\bin clear\b",
    "decimal without 0": r"(?<![\w.,/\\-])\.\d+\b",
}
"""Each rule of `docs/style.md` as the phrase that it forbids; the lookarounds are its exceptions."""
LONGEST = 28
"""Words of a sentence, at most."""
HABITS = {
    "what as a noun": r"\b[Ww]hat (?:is|are|was|were|has|have|had|an?|the|its?|they|can|must|may|each)\b(?!.*\?)",
    "take": r"\b(?:takes?|took|taken|taking)\b(?! (?:turns|place|part|effect|precedence|part in|its turn|over)\b)",
}
"""Habits that one phrase cannot decide, counted in code only."""
SERIALIZED = {"licence", "LICENCE", "neighbour", "neighbours", "nearest_neighbour", "NearestNeighbour"}
"""Keys of cards, manifests, and ledgers, a format, and an attack of stored figures; attributes have the keys' names."""
BRITISH = re.compile(r"neighbour|behaviour|colour|licence|realis|catalogue|favour|centre", re.IGNORECASE)
OWN_PAGES = [
    *("policy", "cli", "api", "mechanisms", "ledger", "glossary", "guarantee", "how-it-works"),
    *("design", "extending", "releasing"),
    *(f"spec/{name}" for name in ("inputs", "words", "boundary", "promises", "ledger-tables", "postgres")),
]
"""Pages whose text keeps every rule; their generated parts are strings of the code."""
KNOWN = {
    ("dptext_etl", "take"): 53,
    ("dptext_etl", "what as a noun"): 49,
    ("eval", "take"): 31,
    ("eval", "what as a noun"): 98,
    ("models", "take"): 57,
    ("models", "what as a noun"): 43,
    ("studies", "take"): 78,
    ("studies", "what as a noun"): 121,
    ("tests", "take"): 69,
    ("tests", "what as a noun"): 260,
}
"""How often rules are still broken, by place and rule. A count may only fall: lower it here when it does."""
LINKED = re.compile(r"\[([^\]]*)\]\([^)]*\)")


def plain(page):
    """A page without code, generated parts, and HTML comments."""
    page = re.sub(r"^[ \t]*```.*?^[ \t]*```", "", page, flags=re.MULTILINE | re.DOTALL)
    page = re.sub(r"<!-- generated: \w+ -->.*?<!-- end -->|\A<!-- generated by.*", "", page, flags=re.DOTALL)
    return re.sub(r"<!--.*?-->", "", page, flags=re.DOTALL)


def long_sentences(page):
    """Sentences of paragraphs and lists with more than `LONGEST` words; tables and headings have none."""
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[*-]|\d+\.|:) )", plain(page)):
        if block.lstrip().startswith(("|", "#", "<")):
            continue
        text = LINKED.sub(r"\1", " ".join(block.split()))
        for sentence in re.split(r"(?<=[.!?:;])[*)”\"]*\s+", text):
            read = re.sub(r"(?:(?:`[^`]*`|\{#[^}]*\})[, ]*)+", "code ", sentence)  # a list of names is one word
            if len(re.findall(r"\w[\w'’-]*", read)) > LONGEST:
                yield sentence


def banned(text):
    return [found.group(0) for found in BANNED.finditer(QUOTED.sub(" ", text))]


def broken(text):
    """How often a text breaks each rule."""
    text = STORED.sub(" ", QUOTED.sub(" ", text))
    counts = {rule: len(re.findall(pattern, text)) for rule, pattern in RULES.items()}
    return {rule: count for rule, count in counts.items() if count}


def prose(source):
    """Comments and docstrings of a module."""
    before = None
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
        if token.type == tokenize.STRING and token.string.lstrip("rRbBuU").startswith('"""') and before != tokenize.OP:
            yield token.string.lstrip("rRbBuU")[3:-3]
        if token.type not in (tokenize.NL, tokenize.COMMENT):
            before = token.type


def strings(source):
    """Comments of a module, and its strings of four words or more; an f-string is one string."""
    inner = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FormattedValue) and node.format_spec:
            inner |= {id(node.format_spec), *map(id, ast.walk(node.format_spec))}
        elif isinstance(node, ast.JoinedStr) and id(node) not in inner:
            parts = [part for part in node.values if isinstance(part, ast.Constant)]
            inner |= {id(part) for part in parts}
            yield "".join(part.value if isinstance(part, ast.Constant) else "x" for part in node.values)
        elif (
            isinstance(node, ast.Constant) and id(node) not in inner and len(re.findall("[a-z]+", str(node.value))) > 3
        ):
            yield str(node.value)
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    yield from (token.string for token in tokens if token.type == tokenize.COMMENT)


def texts(name, content):
    """What people read in a file: comments of TOML, comments and strings of Rust, the words of a picture."""
    if name.endswith(".svg"):
        return re.findall(r"<(?:text|title|desc|tspan)[^>]*>([^<]*)", content)
    if name.endswith(".rs"):
        return ["".join(parts) for parts in re.findall(r"//[/!]?(.*)|\"((?:[^\"\\\n]|\\.)*)\"", content)]
    return re.findall(r"(?:^|\s)#+ (.*)", content)


@cache
def counted():
    """How often each rule is broken: in pages, in comments and pictures, and in each folder of code."""
    found = Counter()

    def add(place, text):
        for rule, count in broken(text).items():
            found[place, rule] += count

    for name in files(".md"):
        if name != "CHANGELOG.md" and not name.startswith("docs/spec/"):
            text = (ROOT / name).read_text(encoding="utf-8")
            add("pages", plain(text))
            found["pages", "long sentences"] += len(list(long_sentences(text)))
    for name in [name for ending in (".toml", ".svg", ".rs") for name in files(ending)]:
        for text in texts(name, (ROOT / name).read_text(encoding="utf-8")):
            add("comments and pictures", text)
            found["comments and pictures", "words"] += len(banned(STORED.sub(" ", text)))
    for name in files(".py"):
        place = name.partition("/")[0]
        if place in FOLDERS and name != "tests/docs/test_style.py":
            source = (ROOT / name).read_text(encoding="utf-8")
            of_tests = "tests/" in name
            for text in prose(source) if of_tests else strings(source):
                add("tests" if of_tests else place, text)
                for habit, pattern in HABITS.items():
                    found["tests" if of_tests else place, habit] += len(re.findall(pattern, QUOTED.sub(" ", text)))
                found[place, "words"] += 0 if of_tests else len(banned(text))
            names = set(re.findall(r"\w+", source)) - SERIALIZED
            found["tests" if of_tests else place, "British names"] += sum(bool(BRITISH.search(one)) for one in names)
    return +found


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("It is for runs alone.", "alone"),
        ("This is no error.", "is no"),
        ("A key of its own.", "of its own"),
        ("The cap is that of the policy.", "that of"),
        ("It stands in the file.", "stands"),
        ("It has nothing but ids.", "but for"),
        ("It waits, and so do others.", "and so do"),
        ("It took 3 s by the clock.", "by the clock"),
        ("To mend a release", "mend"),
        ("A run goes on.", "go on"),
        ("It takes so many rows.", "so many"),
        ("It is 5 % of them.", "space before %"),
        ("Words are shown in clear.", "in clear"),
        ("It has .88 of the use.", "decimal without 0"),
    ],
)
def test_a_rule_finds_what_it_forbids(text, rule):
    assert broken(text) == {rule: 1}


def test_exceptions_and_quotations_break_no_rule():

    assert broken("left alone, is no longer, there is no set of its own row, ε stands for 0.88, *.py, `in clear`") == {}
    assert list(long_sentences("One two three. " * 30)) == []
    assert len(list(long_sentences("word " * 29 + "end."))) == 1


@pytest.mark.parametrize("name", OWN_PAGES)
def test_pages_that_keep_every_rule(name):
    text = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    assert broken(plain(text)) == {}
    assert list(long_sentences(text)) == []


def test_no_rule_is_broken_more_often_than_before():
    assert {key: count for key, count in counted().items() if count > KNOWN.get(key, 0)} == {}


def test_the_list_is_read_and_found():
    assert len(words()) > 40
    assert banned("Whoever reads the catalogue is told.") == ["Whoever", "catalogue", "told"]
    assert banned("`beside` and [links](whoever.md) and {told}") == []


@pytest.mark.parametrize("name", files(".md"))
def test_pages(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert banned(re.sub(r"^\s*```.*?^\s*```", "", text, flags=re.MULTILINE | re.DOTALL)) == []


def test_names_of_test_files():
    names = [name for name in files(".py") if name.startswith("tests/") or "/tests/" in name]
    assert len(names) > 200
    assert [name for name in names if banned(re.sub(r"[_/.]", " ", name))] == []


def test_each_entry_of_the_changelog_is_one_line():
    """A line under a heading of a version is an entry, as wide as the lines of other pages at most."""
    entries = re.split(r"^### .*$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    lines = [line for part in entries for line in part.split("\n## ")[0].splitlines() if line]
    assert [line for line in lines if not line.startswith("- ") or len(line) > 140] == []
    assert len(set(lines)) == len(lines) > 100


@pytest.mark.parametrize("folder", FOLDERS)
def test_comments_and_docstrings(folder):
    sources = [name for name in files(".py") if name.startswith(f"{folder}/") and name != "tests/docs/test_style.py"]
    found = {
        name: [word for text in prose((ROOT / name).read_text("utf-8")) for word in banned(text)] for name in sources
    }
    assert {name: words for name, words in found.items() if words} == {}


if __name__ == "__main__":
    for (place, rule), count in sorted(counted().items()):
        print(f'    ("{place}", "{rule}"): {count},')
