"""Names of columns, datasets, and roles may hold any character; no page, statement, or SQL reads them as markup."""

from html.parser import HTMLParser
from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from dptext_etl import markup
from dptext_etl.errors import LedgerError
from dptext_etl.ledger.storage.postgres import grants

HOSTILE = [
    "<img src=x onerror=alert(1)>", "</td></tr></table><script>alert(1)</script>", "a|b|c", "a\n\n# heading\n\n---\n",
    "```\nrm -rf /\n```", "[click](javascript:alert(1))", "![x](https://evil.example/x.png)", "<https://evil.example>",
    "$\\frac{1}{2}$ costs $5", "$column ${column} $$", "**bold** __bold__ *it* _it_ ~~gone~~", "&lt;b&gt; &#60;b&#62;",
    "`code` ``", "\\", "\\|", "a\u202eb", "a\rb\x1b[31m\x00", "{column}{gate}", "\"'", "snake_case", "# a", "- a",
    "1. a",
]  # fmt: skip
NAMES = st.one_of(
    st.sampled_from(HOSTILE), st.text(st.sampled_from("ab_*`[]()<>|$~&#!{}\\-=+.:;'\"\n\t/ \u202e1"), max_size=30)
)
READER = MarkdownIt("commonmark").enable(["table", "strikethrough"])


class Reader(HTMLParser):
    """The elements of a page, and its texts."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.texts = [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, tuple(name for name, _ in attributes)))

    def handle_data(self, data):
        self.texts.append(data)


def same(text):
    return " ".join(text.split())


@given(NAMES)
def test_names_are_text_in_markdown_and_html_and_stay_on_one_line(name):
    shown, escaped = same(markup.one_line(name)), markup.markdown(name)
    for before, after, tags in (
        ("x ", " y", ["p"]),
        ("## x ", " y", ["h2"]),
        ("| a | b |\n|---|---|\n| x ", " y | z |", ["table", "thead", "tr", "th", "th", "tbody", "tr", "td", "td"]),
        ("[x ", " y](https://host)", ["p", "a"]),
    ):
        found = Reader(READER.render(before + escaped + after))
        assert [tag for tag, _ in found.tags] == tags
        assert same(f"x {shown} y") in same("".join(found.texts))
    # Also where no one escaped it: a page of Markdown has only elements of Markdown
    found = Reader(markup.of_markdown(f"x <i>{name}</i> <script>y</script>"))
    assert not {"i", "script"} & {tag for tag, _ in found.tags}
    for page, plain in zip(pages(name), pages("x"), strict=True):
        found, expected = Reader(page), Reader(plain)
        assert found.tags == expected.tags
        assert markup.one_line(name) in "".join(found.texts)
    assert not {"Cc", "Cf", "Cs", "Zl", "Zp"} & set(map(category, markup.one_line(name)))
    assert len(markup.one_line(name).splitlines()) <= 1


def pages(name):
    yield markup.facts(name, {name: f"{name}."})
    yield markup.table(name, [name], [[name]])
    yield markup.document(name, markup.facts(name, {name: [name, name]}))


@pytest.mark.parametrize("role", ["writer", "auditor", "owner"])
@pytest.mark.parametrize(
    "name",
    ["$$; drop schema public; --", "a'; drop table x; --", 'a"; drop table x; --', "a\\'; drop table x; --", "$b$"],
)
def test_grants_quote_the_name_of_a_role(role, name):
    """Only strings and quoted names hold it, however the server reads backslashes; no statement begins within it."""
    found = grants(role, name, "db", "ledger")
    bare = without_quoted(found)
    assert "drop" not in bare
    assert "$" not in bare
    assert bare.count(";") == len([line for line in bare.splitlines() if line.endswith(";")])


def test_grants_refuse_a_name_of_several_lines():
    with pytest.raises(LedgerError, match="control characters"):
        grants("owner", "a\n\\! sh", "db", "ledger")


def without_quoted(sql):
    """Return SQL without its strings and quoted names, as PostgreSQL reads it."""
    out, at = [], 0
    while at < len(sql):
        mark = sql[at]
        if mark not in "'\"":
            out.append(mark)
            at += 1
            continue
        escapes = mark == "'" and sql[at - 1] == "E"
        assert mark == '"' or escapes or "\\" not in sql[at : sql.find(";\n", at)]
        at += 1
        while sql[at] != mark or sql[at + 1 : at + 2] == mark:
            at += 2 if sql[at] == mark or (escapes and sql[at] == "\\") else 1
        at += 1
    return "".join(out)
