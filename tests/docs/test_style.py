"""Prose keeps the rules of `docs/style.md`: pages, comments, docstrings, and strings of messages.

`python tests/docs/test_style.py` prints the counts of all rules.
"""

import ast
import re
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "style.md"
EXCLUDED = (
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
    return [name for name in names if not any(part in name for part in EXCLUDED)]


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def words():
    listed = PAGE.read_text(encoding="utf-8").split("<!-- words: start -->")[1].split("<!-- words: end -->")[0]
    table, _, spellings = listed.partition("British spellings:")
    return [line.split("|")[1].strip() for line in table.strip().splitlines()[2:]] + re.findall(r"\w+", spellings)


BANNED = re.compile(rf"(?<![\w-])(?:{'|'.join(words())})(?:s|d|r|rs|ing|ly)?(?![\w-])", re.IGNORECASE)
QUOTED = re.compile(
    r"`[^`]*`|\]\([^)]*\)|\{#?[^{}]*\}|https?://\S+|\"[^\"\n]*\"|“[^”]*”|'[^'\n]{1,40}'|noqa.*|^\s+\w+:", re.MULTILINE
)
STORED = re.compile(
    r"stand (?:where they stood|anywhere)|that of the (?:sources?|corpus)"
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
    "left out": r"\b[Ll]eft out\b",
    "blind guess": r"\bblind guess",
    "spelling of an id": r"\bspellings? of (?:(?:a|the|one) )?(?:persons?|subjects?|people|ids?)\b",
    "writer for person": r"\b(?:about a|secrets? of the|attributes? of(?: the)?|sets of) writers?\b",
    "decimal without 0": r"(?<![\w.,/\\-])\.\d+\b",
}
"""Each rule of `docs/style.md` as the phrase that it forbids; the lookarounds are its exceptions."""
PACKAGES = ("dptext_etl", "eval/dptext_etl_eval", "models/dptext_etl_models")
LONGEST = 28
"""Words of a sentence, at most."""
HABITS = {
    "what as a noun": r"\b[Ww]hat (?:is|are|was|were|has|have|had|an?|the|its?|they|can|must|may|each)\b(?!.*\?)",
    "take": r"\b(?:takes?|took|taken|taking)\b(?! (?:turns|place|part|effect|precedence|part in|its turn|over)\b)",
}
"""Habits that one phrase cannot decide, counted in code only."""
SERIALIZED = {"licence", "neighbour", "nearest_neighbour", "NearestNeighbour"}
"""Keys of cards, manifests, and ledgers, a format, and an attack of stored figures."""
BRITISH = re.compile(r"neighbour|behaviour|colour|licence|realis|catalogue|favour|centre", re.IGNORECASE)
OWN_PAGES = [
    *("policy", "cli", "api", "mechanisms", "ledger", "glossary", "guarantee", "how-it-works"),
    *("design", "extending", "releasing"),
    *(f"spec/{name}" for name in ("inputs", "words", "boundary", "promises", "ledger-tables", "postgres")),
]
"""Pages whose text keeps every rule; their generated parts are strings of the code."""
LINKED = re.compile(r"\[([^\]]*)\]\([^)]*\)")
LONG = re.compile(r"(?:[a-z]+[^a-z]+){3}[a-z]")
TOKENS = re.compile(
    r'(?<![fF])(?<![fF][rR])"""((?:[^"\\]|\\.|"(?!""))*)"""|"""(?:[^"\\]|\\.|"(?!""))*"""'
    r"|'''(?:[^'\\]|\\.|'(?!''))*'''"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'(?:[^'\\\n]|\\.)*'|(#[^\n]*)",
    re.DOTALL,
)
"""Strings (the text of one in three quotes) and comments (each with its text)."""


def plain(page):
    """A page without code, generated parts, and HTML comments."""
    page = re.sub(r"^[ \t]*```.*?^[ \t]*```", "", page, flags=re.MULTILINE | re.DOTALL)
    page = re.sub(r"<!-- generated: \w+ by .*?<!-- end -->|\A<!-- generated by.*", "", page, flags=re.DOTALL)
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


def counts(text):
    """How often a text without quotations breaks each rule."""
    text = STORED.sub(" ", text)
    return Counter({rule: count for rule, pattern in RULES.items() if (count := len(re.findall(pattern, text)))})


def broken(text):
    return counts(QUOTED.sub(" ", text))


def prose(source):
    """Comments and docstrings of a module, which no bracket or operator precedes."""
    for found in TOKENS.finditer(source):
        doc, comment = found.groups()
        if comment:
            yield comment
        elif doc is not None and source[: found.start()].rstrip("rRbBuU").rstrip()[-1:] not in set("([{,=+"):
            yield doc


def strings(source):
    """Comments of a module, its docstrings, and its strings of four words or more; an f-string is one string."""
    inner, todo = set(), [ast.parse(source)]
    while todo:
        node = todo.pop()
        for value in vars(node).values():
            if isinstance(value, list):
                todo += [one for one in value if isinstance(one, ast.AST)]
            elif isinstance(value, ast.AST):
                todo.append(value)
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
    yield from (found[2] for found in TOKENS.finditer(source) if found[2])


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
    said, found = defaultdict(list), Counter()
    for name in files(".md"):
        if name != "CHANGELOG.md" and not name.startswith("docs/spec/"):
            text = read(name)
            said["pages"].append(plain(text))
            found["pages", "long sentences"] += len(list(long_sentences(text)))
    for name in [name for ending in (".toml", ".svg", ".rs") for name in files(ending)]:
        said["comments and pictures"] += texts(name, read(name))
    for name in files(".py"):
        place = "tests" if "tests/" in name else name.partition("/")[0]
        if place in FOLDERS and name != "tests/docs/test_style.py":
            source = read(name)
            said[place] += prose(source) if place == "tests" else strings(source)
            if BRITISH.search(source):
                names = set(re.findall(r"\w+", source)) - SERIALIZED
                found[place, "British names"] += sum(bool(BRITISH.search(one)) for one in names)
    for place, parts in said.items():
        text = "\n\n".join(QUOTED.sub(" ", part) for part in parts)
        found.update({(place, rule): count for rule, count in counts(text).items()})
        if place != "pages":
            found[place, "words"] = len(BANNED.findall(STORED.sub(" ", text)))
        if place in FOLDERS:
            found.update({(place, habit): len(re.findall(pattern, text)) for habit, pattern in HABITS.items()})
    return +found


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("It is for runs alone.", "alone"), ("This is no error.", "is no"), ("A key of its own.", "of its own"),
        ("The cap is that of the policy.", "that of"), ("It stands in the file.", "stands"),
        ("It has nothing but ids.", "but for"), ("It waits, and so do others.", "and so do"),
        ("It took 3 s by the clock.", "by the clock"), ("To mend a release", "mend"), ("A run goes on.", "go on"),
        ("It takes so many rows.", "so many"), ("It is 5 % of them.", "space before %"),
        ("Words are shown in clear.", "in clear"), ("It has .88 of the use.", "decimal without 0"),
    ],
)  # fmt: skip
def test_a_rule_finds_what_it_forbids(text, rule):
    assert broken(text) == {rule: 1}


def test_pages_that_keep_every_rule():
    pages = {name: read(f"docs/{name}.md") for name in OWN_PAGES}
    assert {name: found for name, text in pages.items() if (found := broken(plain(text)))} == {}
    assert {name: found for name, text in pages.items() if (found := list(long_sentences(text)))} == {}


def test_papers_are_named_by_author_and_year():
    """Except in commands and in the names of files."""
    sources = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    numbered = re.compile(r"\b[Pp]apers? 00\d\b")
    assert [path.name for path in (*sources, *pages) if numbered.search(path.read_text(encoding="utf-8"))] == []


def test_no_rule_is_broken_anywhere():
    assert counted() == {}


def test_the_list_and_the_exceptions_are_read():
    assert len(words()) > 40
    assert banned("Whoever reads the catalogue is told.") == ["Whoever", "catalogue", "told"]
    assert banned("`beside` and [links](whoever.md) and {told}") == []
    assert broken("left alone, is no longer, there is no set of its own row, ε stands for 0.88, *.py, `in clear`") == {}
    assert list(long_sentences("One two three. " * 30)) == []
    assert len(list(long_sentences("word " * 29 + "end."))) == 1


def test_pages_and_names_of_test_files_have_no_banned_word():
    blocks = re.compile(r"^\s*```.*?^\s*```", re.MULTILINE | re.DOTALL)
    assert {name: found for name in files(".md") if (found := banned(blocks.sub("", read(name))))} == {}
    names = [name for name in files(".py") if name.startswith("tests/") or "/tests/" in name]
    assert len(names) > 200
    assert [name for name in names if banned(re.sub(r"[_/.]", " ", name))] == []


def test_each_entry_of_the_changelog_is_one_line():
    """A line under a heading of a version is an entry, as wide as the lines of other pages at most."""
    entries = re.split(r"^### .*$", read("CHANGELOG.md"), flags=re.MULTILINE)[1:]
    lines = [line for part in entries for line in part.split("\n## ")[0].splitlines() if line]
    assert [line for line in lines if not line.startswith("- ") or len(line) > 140] == []
    assert len(set(lines)) == len(lines) > 20


if __name__ == "__main__":
    for (place, rule), count in sorted(counted().items()):
        print(f'    ("{place}", "{rule}"): {count},')
