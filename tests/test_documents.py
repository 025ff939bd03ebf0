# SPDX-License-Identifier: GPL-2.0
"""What documents name is there, what is generated is up to date, and every figure has a record or a source."""

import json
import re

import pytest
from conftest import Fail

from testbed import cli, util
from testbed.machines import kinds
from testbed.report import documents, figures
from testbed.series import base, topics

DOCS = [util.ROOT / "README.md", util.ROOT / "CONTRIBUTING.md", *sorted((util.ROOT / "docs").glob("*.md"))]
REFERENCE = (util.ROOT / "docs/reference.md").read_text()
# Files of a running kernel that are in no patch: what the base has of them is in these sources.
BASE = {"/proc/fs/nfsd/threads": "fs/nfsd/nfsctl.c", "/sys/kernel/tracing": "kernel/trace/trace.c"}


def test_what_is_generated_is_up_to_date():
    assert documents.stale() == []


def test_every_figure_is_as_recorded_or_has_a_source():
    assert figures.problems() == []


def test_what_is_quoted_is_in_topic_toml():
    """`make test` fails for a stale result that is quoted, and topic.toml says which are."""
    known = {name for topic in topics.series() for name in (*topic.readme, *topic.quotes)}
    for quote in figures.quotes(topics.series()):
        assert {figure["result"] for figure in quote.figures() if "result" in figure} <= known, quote.data["text"]


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    for link in re.findall(r"\]\(([^)]+)\)", path.read_text()):
        if not link.startswith("https://"):
            name, _, anchor = link.partition("#")
            there = (path.parent / name).resolve() if name else path
            assert there.exists(), f"{path.name}: {link}"
            heads = (
                {
                    re.sub(r"[^\w -]", "", head.lower()).strip().replace(" ", "-")
                    for head in re.findall(r"^#+ (.*)$", there.read_text(), re.M)
                }
                if anchor
                else ()
            )
            assert not anchor or anchor in heads, f"{path.name}: {link}"


def test_the_reference_has_every_command_and_variable():
    for name in cli.COMMANDS:
        assert f"`make {name}`" in REFERENCE, f"docs/reference.md lacks make {name}"
        row = re.search(rf"^\| `make {name}` \|([^|]*)\|", REFERENCE, re.M)
        said = re.findall(r"`(\w+)`", row[1]) if row else []
        # Those of the base are said once, below the table.
        have = [
            variable.name for variable in cli.COMMANDS[name].variables if variable not in (cli.KSRC, cli.LTS, cli.BASE)
        ]
        assert sorted(said) == sorted(have), f"docs/reference.md: make {name}"
    for name in {variable.name for one in cli.COMMANDS.values() for variable in one.variables}:
        assert re.search(rf"`{name}=[^`]*`", REFERENCE), f"docs/reference.md lacks the variable {name}"
    for name in re.findall(r"^\| `make ([a-z-]+)`", REFERENCE, re.M):
        assert name in cli.COMMANDS, f"docs/reference.md has make {name}, which is no command"


def test_the_makefile_has_every_command():
    makefile = (util.ROOT / "Makefile").read_text().replace("\\\n", "")
    assert re.search(r"^COMMANDS := (.*)$", makefile, re.M)[1].split() == list(cli.COMMANDS)


@pytest.mark.parametrize("name", [".github/workflows/test.yml", ".gitlab-ci.yml"])
def test_the_ci_files_run_what_there_is(name):
    text = (util.ROOT / name).read_text()
    assert ".ci/run" in text and "build/junit*.xml" in text
    for command, machine in re.findall(r"make ([a-z-]+)(?: KIND=(\w+))?$", text, re.M):
        assert command in cli.COMMANDS and (not machine or machine in kinds.KINDS), command


def test_the_reference_has_every_key():
    for name in topics.TOML["properties"]:
        assert f"`{name}`" in REFERENCE or f"`[{name}]`" in REFERENCE, f"docs/reference.md lacks {name} of topic.toml"
    for name in figures.TOML["properties"]["quote"]["items"]["properties"]:
        assert f"`{name}`" in REFERENCE, f"docs/reference.md lacks {name} of figures.toml"


def test_every_file_of_a_topic_is_in_the_reference():
    known = {
        "topic.toml",
        "figures.toml",
        "coverage.toml",
        "swarm.toml",
        "swarm",
        "changelog.md",
        "left-out",
        "fails-on-base",
        "fails-on-base.x86",
        "fails-on-base.sim",
        "fails-on-base.debian",
        "patches",
        "mutants",
        "experiments",
        "results",
        *(package.home for version, package in base.PACKAGES.items() if version),
    }
    for topic in topics.series():
        for path in topic.home.iterdir():
            assert path.name in known or path.suffix in (".config", ".md"), path
    assert all(name in REFERENCE for name in known)


def test_what_an_administrator_is_told_of_is_in_the_patches():
    told = "".join((util.ROOT / f"docs/{page}.md").read_text() for page in ("administrators", "installing", "watching"))
    patches = "\n".join(path.read_text(errors="replace") for topic in topics.series() for path in topic.patches)
    for path in set(re.findall(r"/(?:proc|sys)/[\w./-]*\w", told)):
        name = path.rpartition("/")[2]
        if path.startswith("/sys/kernel/tracing/events/"):
            name = path.split("/")[5]
        assert path in BASE or re.search(rf"[\"/(]{re.escape(name)}\b", patches), path
    metrics = (util.TOOLS / "nfsd-metrics").read_text()
    for event in set(re.findall(r"events/\w+/(\w+)/", told)) | set(re.findall(r"`(nfsd_\w+|svc_\w+)`", told)):
        assert re.search(rf"\b{event}\b", patches) or f'"{event}":' in metrics, event
    for page in re.findall(r"Documentation/[\w./-]+\.rst", told):
        assert f"+++ b/{page}\n" in patches, page
    for field in re.findall(r"`(\w+)=`", told) + ["qtime-us", "tier"]:
        assert f"{field}=%" in patches, field


# The mechanism, on documents of its own.

RESULT = {
    "base": [
        {"K": 0, "groups": [{"name": "i", "p50": 20026624, "n": 3}], "total": 6},
        {"K": 4, "groups": [{"name": "i", "p50": 110013184, "n": 4}], "total": 5, "turns": [3, 1, 2]},
    ],
    "patched": {"dequeue 64": {"instructions": 44.2, "misses": 3}},
}
LETTER = """Subject: [PATCH] NET: x

It takes 110 ms instead
of 20.

The end.

Depends on: the base alone

---
1 patches:
  NET: x 99 ms
"""
QUOTE = """[[quote]]
text = "takes # ms instead of #"
result = "floor"
kernel = "base"
field = "groups.i.p50"
unit = "ms"
at = { K = "{}" }
each = [4, 0]
"""


@pytest.fixture
def one(tmp_path, monkeypatch):
    """A topic with a letter, a result and a README."""
    home = tmp_path / "topics/one"
    for sub in ("patches", "results", "mutants"):
        (home / sub).mkdir(parents=True)
    monkeypatch.setattr(figures, "README", tmp_path / "README.md")
    monkeypatch.setattr(topics, "TOPICS", tmp_path / "topics")
    (tmp_path / "README.md").write_text("Words.\n<!-- floor -->\n| 7 ms |\n<!-- /floor -->\n")
    (home / "topic.toml").write_text('title = "One"\nstate = "draft"\nlists = []\n')
    (home / "results/floor.json").write_text(json.dumps(RESULT))
    (home / "patches" / topics.COVER).write_text(LETTER)
    (home / "figures.toml").write_text(QUOTE)
    return home


def quoted(home, text, figures_toml):
    (home / "patches" / topics.COVER).write_text(LETTER.replace("It takes 110 ms instead\nof 20.", text))
    (home / "figures.toml").write_text(figures_toml)


def test_a_quote_that_is_as_recorded_is_fine(one):
    assert figures.problems() == []


def test_a_quote_that_is_not_as_recorded_is_named_with_its_line(one):
    quoted(one, "It takes 111 ms instead\nof 20.", QUOTE)
    (problem,) = figures.problems()
    assert '0000-cover-letter.patch:3: says 111, recorded is 110, in "takes 111 ms instead of 20"' in problem


def test_the_recorded_numbers_are_put_in_and_columns_stay(one):
    quoted(
        one,
        "It takes 11 ms instead\nof 3.\n\n\tK   a     b\n\t4   9  1234\n",
        QUOTE + QUOTE.replace("takes # ms instead of #", "K a b 4 # #"),
    )
    assert figures.write() == 4
    assert (
        "It takes 110 ms instead\nof 20.\n\n\tK   a     b\n\t4 110    20\n"
        in (one / "patches" / topics.COVER).read_text()
    )
    assert figures.problems() == [] and figures.write() == 0


@pytest.mark.parametrize(
    "text",
    [
        "In 30 ms.",
        "In 30\nms.",
        "30 % more",
        "1.5x",
        "4 KiB",
        "some 567 instructions",
        "2 times",
        "\t\tbase  12  13",
        "| 12 |",
    ],
)
def test_a_number_that_nobody_vouches_for_is_found(one, text):
    quoted(one, f"It takes 110 ms instead\nof 20.\n{text}", QUOTE)
    (problem,) = figures.problems()
    assert ":5: " in problem and "in no figures.toml" in problem


@pytest.mark.parametrize(
    "text", ["NFSv4.2 on 7.3.4", "patch 3", "x86-64", "the 4 of them", "sparse(1)", "5-10", "a/2 ms.c"]
)
def test_other_numbers_are_not_figures(one, text):
    quoted(one, f"It takes 110 ms instead\nof 20.\n{text}", QUOTE)
    assert figures.problems() == []


def test_what_is_generated_needs_no_quote(one):
    assert figures.problems() == []
    (figures.README).write_text("<!-- floor -->\n| 7 ms |\n<!-- /floor -->\n8 ms\n")
    (problem,) = figures.problems()
    assert "README.md:4: 8: " in problem


def test_a_source_stands_for_a_record(one):
    quoted(one, "Once, 30 ms.", '[[quote]]\ntext = "Once, 30 ms"\nsource = "a clock"\n')
    assert figures.problems() == []


@pytest.mark.parametrize(
    "keys, number",
    [
        ('kernel = "base"\nat = { K = 4 }\nfield = "turns"\nof = "median"', "2"),
        ('kernel = "base"\nat = { K = [0, 4] }\nfield = "total"\nof = "max"', "6"),
        ('kernel = "base"\nat = { K = 4 }\nfield = "groups.i.n"\nper = "total"\nunit = "%"\ndigits = 1', "80.0"),
        ('kernel = "base"\nat = { K = 4 }\nfield = "groups.i.p50"\nover = { at = { K = 0 } }\ndigits = 2', "5.49"),
        (
            'kernel = "base"\nat = { K = [0, 4] }\nfield = "total"\nover = { at = { K = 4 } }\nof = "max"\ndigits = 2',
            "1.20",
        ),
        (
            'kernel = "base"\nat = { K = 4 }\nfield = "groups.i.n"\ndigits = 1\nover = { at = { K = "any", total=6 } }',
            "1.3",
        ),
        ('kernel = "patched"\nfield = "dequeue 64.instructions"', "44"),
        ('kernel = "patched"\nfield = "dequeue 64"\nof = "sum"', "47"),
    ],
)
def test_where_a_number_is(one, keys, number):
    quoted(one, f"So {number} it.", f'[[quote]]\ntext = "So # it"\nresult = "floor"\n{keys}\n')
    assert figures.problems() == []


def test_files_and_lines_are_counted(one):
    for name in ("01-a.patch", "02-b.patch", "killed"):
        (one / "mutants" / name).write_text("")
    (one / "fails-on-base").write_text("# Why\na.sh: one\na.sh: two\nb.sh: one\n")
    (one / "fails-on-base.sim").write_text("# Why\na.sh: three\n")
    quoted(
        one,
        "So 2 and 2 and 3 it.",
        '[[quote]]\ntext = "So # and # and # it"\n'
        'figures = [{ files = ["mutants/*.patch"] }, { lines = "fails-on-base", begin = "a.sh: " }, '
        '{ lines = "fails-on-base*", begin = "a.sh: " }]\n',
    )
    assert figures.problems() == []


@pytest.mark.parametrize(
    "change, problem",
    [
        (("takes # ms", "took # ms"), "stands 0 times"),
        (("[4, 0]", "[4]"), "has 2 #, and 1 figures"),
        (("[4, 0]", "[4, 5]"), "has no point with {'K': 5}"),
        (("groups.i.p50", "groups.j.p50"), "there is no groups.j.p50"),
        (('"floor"', '"flour"'), "flour.json"),
        (("unit", "unti"), "unknown key unti"),
        (('kernel = "base"', 'kernel = "best"'), "best: there is no such kernel"),
        (("result", 'source = "x"\nresult'), "its source is no result"),
        (('"ms"', '"h"'), "'h' is not one of"),
        (('"{}" }', "[0, 4] }"), "say with `of`"),
    ],
)
def test_a_bad_quote_is_one_line(one, change, problem):
    quoted(one, "It takes 110 ms instead\nof 20.", QUOTE.replace(*change))
    try:
        said = "\n".join(line for line in figures.problems() if "in no figures.toml" not in line)
    except Fail as fail:
        said = str(fail)
    assert problem in said and "\n" not in said


@pytest.mark.parametrize("text, problem", [("{", "not JSON: Expecting"), ("[]", "no table of JSON")])
def test_a_broken_result_is_one_line(one, text, problem):
    (one / "results/floor.json").write_text(text)
    said = next(line for line in figures.problems() if "results/floor.json" in line)
    assert problem in said and said.endswith("; `make record B=floor` makes it anew") and "\n" not in said


def test_a_part_that_is_not_up_to_date_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "ROOT", tmp_path)
    monkeypatch.setattr(documents, "parts", lambda: {"A.md": {"list": lambda: "new"}})
    (tmp_path / "A.md").write_text("a\n<!-- list -->\nold\n<!-- /list -->\nb\n")
    assert documents.stale() == ["A.md: list"]
    documents.splice()
    assert documents.stale() == [] and (tmp_path / "A.md").read_text() == "a\n<!-- list -->\nnew\n<!-- /list -->\nb\n"


def test_a_posted_topic_is_shown_with_its_link():
    assert documents.state("posted v2 https://example.org/x") == "[posted v2](https://example.org/x)"
    assert documents.state("draft") == "draft" and documents.state("merged as abc") == "merged as abc"
