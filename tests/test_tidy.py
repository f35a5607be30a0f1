"""What linters cannot see: layering, determinism by construction, rule tags, generated pages."""

from __future__ import annotations

import ast
import builtins
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest
from published import PUBLISHED
from rules_page import BOOKS, Book
from tags import ROOT, handlers, number, single_tags, tags
from tags import tests as tags_of_tests

from ringcast.core.registry import Sheet, protocol
from ringcast.core.settings import GroupSettings, ListedSettings

SRC = ROOT / "src" / "ringcast"
MODULES = sorted(SRC.rglob("*.py"))
OUR_FILES = sorted(
    path
    for folder in ("src", "tests", "tools", "docs", "bench", "examples")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in {".py", ".md", ".toml", ".txt", ".sh"} and path != Path(__file__)
)

MAY_IMPORT: dict[str, set[str]] = {
    "core": set(),
    "files": set(),
    "wire": {"core", "files"},
    "blocks": {"core"},
    "checks": {"core"},
    "protocols": {"core", "blocks", "checks"},
    "replica": {"core", "files"},
    "traces": {"core"},
    "journal": {"core", "files", "wire"},
    "sim": {"core", "wire", "blocks", "protocols", "checks", "traces"},
    "runtime": {"core", "files", "wire", "blocks", "protocols", "checks", "traces", "journal"},
    "api": {
        "replica",
        "core",
        "wire",
        "blocks",
        "protocols",
        "checks",
        "traces",
        "journal",
        "runtime",
    },
    "": {"api", "core", "journal", "replica", "runtime"},
    "pipeline": {
        "core",
        "files",
        "wire",
        "protocols",
        "checks",
        "traces",
        "journal",
        "replica",
        "sim",
        "runtime",
    },
    "console": {"core", "checks", "sim", "pipeline"},
}
MAY_IMPORT["testing"] = MAY_IMPORT["api"] | {"api", "sim"}
MAY_IMPORT["pipeline"] |= {"testing"}
BELOW_COMMANDS = set(MAY_IMPORT)
MAY_IMPORT["members"] = BELOW_COMMANDS
MAY_IMPORT["demo"] = MAY_IMPORT["bench"] = BELOW_COMMANDS | {"members"}
MAY_IMPORT["cli"] = BELOW_COMMANDS | {"members", "demo", "bench"}
"""Package to the packages below it; ``""`` is ``ringcast`` itself, the public names."""

PURE = {"core", "blocks", "protocols", "checks"}
"""Packages that may read neither clock, network, environment nor a global random source."""

WORLDLY = {
    "asyncio", "datetime", "multiprocessing", "os", "secrets", "select", "selectors", "signal",
    "socket", "ssl", "subprocess", "threading", "time", "uuid",
}  # fmt: skip

LONG: dict[str, str] = {}
"""Modules over ``LONGEST`` lines, each with the reason why it is not two."""
LONGEST = 450

LEFT_OVER = re.compile(r"\b(TODO|FIXME|XXX)\b|[Ff]ig\. ?\?")


def package_of(path: Path) -> str:
    parts = path.relative_to(SRC).parts
    return parts[0] if len(parts) > 1 else ""


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imports(path: Path) -> Iterator[str]:
    """Dotted names a module imports, wherever in the file; relative imports are not used here."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}:{node.lineno}: a relative import"
            module = node.module or ""
            if module == "ringcast":
                yield from (f"ringcast.{alias.name}" for alias in node.names)
            else:
                yield module


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_point_downward(path: Path) -> None:
    package = package_of(path)
    allowed = MAY_IMPORT.get(package, set()) | {package}
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "ringcast":
            used = parts[1] if len(parts) > 1 else ""
            assert used in allowed, f"{name_of(path)}: {package} may not import {name}"


ENGLISH = {"centralised", "counter", "fast-message", "optimistic", "total", "two-phase"}
"""Names of protocols that are words, too: those count where nothing else can be meant."""

BUILDS_ON = {"irbp": "rbp", "totem_multi": "totem_single"}
"""Protocols that are made of another one, by their folders; they alone may name and import it."""

SHARED = {
    field for kind in (GroupSettings, ListedSettings) for field in kind.__struct_fields__
}  # fmt: skip


def package_of_sheet(sheet: Sheet) -> str:
    return sheet.make.__module__.split(".")[-2]


def names_of(sheet: Sheet) -> list[str]:
    """How a protocol is spoken of: patterns of its name, its package and its machine."""
    package = package_of_sheet(sheet)
    name = re.escape(sheet.name).replace("\\-", "[-_ ]")
    found = [rf"protocols[./]{package}\b", rf"\b{sheet.make.__name__}\b(?! order)"]
    if sheet.name in ENGLISH:
        return [found[0], rf"\b{name} [A-Z]{{1,2}}-?\d"]
    return [*found, rf"(?i:\b{name}\b)", rf"(?i:\b{package}\b)"]


def own_settings(sheet: Sheet) -> set[str]:
    return set(sheet.config.__struct_fields__) - SHARED


def own_words(sheet: Sheet) -> list[str]:
    """Settings and messages that only this protocol can mean: their names have two words or more,
    and no block knows one of that name. A name that is a word counts in quotes and in capitals."""
    blocks = "".join(path.read_text("utf-8") for path in (SRC / "blocks").glob("*.py"))
    plain = (name.removesuffix("_us") for name in own_settings(sheet))
    settings = [rf"\b{name}(_us)?\b" for name in plain if "_" in name and name not in blocks]
    names = {getattr(kind, "__origin__", kind).__name__ for kind in sheet.messages}
    messages = [n for n in names if re.search("[a-z][A-Z]", n) and n not in blocks]
    quoted = [rf"[\"']{sheet.name}[\"']", rf"\b{sheet.name.upper()}\b"]
    return [*settings, *(rf"\b{name}\b" for name in messages), *quoted]


def own_reads(sheet: Sheet) -> list[str]:
    """A setting whose name is one word counts where it is read from settings, as
    ``config.quorum`` or by ``getattr``; but a block has settings of its own."""
    single = [name for name in own_settings(sheet) if "_" not in name.removesuffix("_us")]
    return [rf"(?:config|settings)(?:\.|, \")({'|'.join(single)})\b"]


@cache
def words_of(name: str, room: str) -> re.Pattern[str]:
    sheet = protocol(name)
    words = names_of(sheet)
    if room != "protocols":  # they have settings and messages of the same names
        words += own_words(sheet)
    if room not in ("protocols", "blocks"):
        words += own_reads(sheet)
    return re.compile("|".join(words))


def spoken_of(sheet: Sheet, text: str, room: str = "") -> str | None:
    """The first word of a text in that package that only this protocol can mean."""
    found = words_of(sheet.name, room).search(text)
    return found and found[0]


@pytest.mark.parametrize("sheet", PUBLISHED, ids=lambda sheet: sheet.name)
def test_a_protocol_is_named_in_its_own_rooms_alone(sheet: Sheet) -> None:
    """Its folder, those of protocols that build on it, the list of imports in ``protocols``, and
    documents."""
    own = package_of_sheet(sheet)
    rooms = {own, *(package for package, below in BUILDS_ON.items() if below == own)}
    found = []
    for path in [*MODULES, *sorted((ROOT / "tools").glob("*.py"))]:
        room = package_of(path) if path.is_relative_to(SRC) else "tools"
        if room == "protocols" and path.parent.name in {"protocols", *rooms}:
            continue
        if word := spoken_of(sheet, path.read_text("utf-8"), room):
            found.append(f"{name_of(path)}: {word}")
    assert not found, "\n".join(found)


def test_a_protocol_imports_none_but_what_it_builds_on() -> None:
    for path in MODULES:
        if path.parent.parent == SRC / "protocols":
            rooms = {path.parent.name, BUILDS_ON.get(path.parent.name)}
            used = {each.split(".")[2] for each in imports(path) if "ringcast.protocols." in each}
            assert used <= rooms, f"{name_of(path)} imports {used - rooms}"


def test_rules_are_cited_where_they_are_carried_out() -> None:
    """By the protocol, and by the blocks that its book names."""
    for book in BOOKS:
        kinds = tuple(kind for kind in book.rules.kinds if kind[-1] == "-" or kind in KINDS)
        known = {*book.rules.tags, *book.rules.gap_tags}
        blocks = {SRC / "blocks" / f"{name}.py" for each in BOOKS for name in each.rules.blocks}
        for path in MODULES:
            if package_of(path) != "protocols" and path not in blocks:
                cited = tags(path.read_text("utf-8"), kinds) & known
                assert not cited, f"{name_of(path)}: {sorted(cited)} of {book.name}"


def test_the_look_for_names_sees_them() -> None:
    sheets = {sheet.name: sheet for sheet in PUBLISHED}
    for name, text in (
        ("totem", 'protocol: str = "totem"'),
        ("totem", "(Totem R3)"),
        ("totem", "settings.token_loss_us"),
        ("totem", "a CommitToken"),
        ("token-fd", "from ringcast.protocols.token_fd import x"),
        ("token-fd", "what TokenFd does"),
        ("total", 'if name == "total":'),
        ("total", 'env.drop("total G-5", "late")'),
        ("total", "TOTAL's sequencer"),
        ("total", "as it must (total Q7)"),
        ("total", 'getattr(setup.config, "quorum", 0)'),
        ("total", "setup.config.quorum"),
        ("counter", "self.settings.idle_us"),
    ):
        assert spoken_of(sheets[name], text), text
    for text in ("the total order", "total += size", '"total-order"', "Totally", "a quorum"):
        assert not any(spoken_of(sheet, text) for sheet in PUBLISHED), text


def test_every_package_has_its_place() -> None:
    packages = {package_of(path) for path in MODULES} - {""}
    assert packages <= MAY_IMPORT.keys(), "a new package needs a row in MAY_IMPORT"


@pytest.mark.parametrize(
    "path", [path for path in MODULES if package_of(path) in PURE], ids=name_of
)
def test_pure_packages_do_not_touch_the_world(path: Path) -> None:
    worldly = {name.split(".")[0] for name in imports(path)} & WORLDLY
    assert not worldly, f"{name_of(path)} imports {sorted(worldly)}"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_random_numbers_come_from_a_seeded_stream(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "random":
            used = {alias.name for alias in node.names}
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "random"
        ):
            used = {node.attr}
        else:
            continue
        assert used <= {"Random"}, f"{name_of(path)}:{node.lineno}: random.{used}"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_modules_explain_themselves_and_stay_short(path: Path) -> None:
    source = path.read_text("utf-8")
    assert ast.get_docstring(ast.parse(source)), f"{name_of(path)} has no docstring"
    lines = source.count("\n")
    assert lines <= LONGEST or name_of(path) in LONG, f"{name_of(path)} has {lines} lines"


def undocumented(tree: ast.Module) -> Iterator[str]:
    """Public classes, functions and methods without a docstring."""
    waiting: list[tuple[str, ast.Module | ast.ClassDef]] = [("", tree)]
    while waiting:
        prefix, place = waiting.pop()
        for node in place.body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                if node.name.startswith("_"):
                    continue
                if not ast.get_docstring(node):
                    yield prefix + node.name
                if isinstance(node, ast.ClassDef):
                    waiting.append((f"{prefix}{node.name}.", node))


def test_public_names_have_a_docstring() -> None:
    silent = {
        name_of(path): [*undocumented(ast.parse(path.read_text("utf-8")))] for path in MODULES
    }
    assert not {name: found for name, found in silent.items() if found}
    source = "class A:\n  def b(self): ...\n  def _c(self): ...\n\nclass _D: ...\n"
    assert [*undocumented(ast.parse(source))] == ["A", "A.b"]


def test_list_of_long_modules_is_true() -> None:
    for name in LONG:
        assert (ROOT / name).read_text("utf-8").count("\n") > LONGEST, f"{name} is short now"


def test_nothing_is_left_over() -> None:
    found = [
        f"{name_of(path)}:{at}: {line.strip()}"
        for path in OUR_FILES
        for at, line in enumerate(path.read_text("utf-8").splitlines(), start=1)
        if LEFT_OVER.search(line)
    ]
    assert not found, "\n".join(found)


SIGNALS = {
    "BadBody": "a body's reader tells its caller, which counts it or says where it stands",
    "Irregular": "the condensed engine gives a run back to the plain one",
    "StorageFailed": "the simulator's storage stops a simulated processor",
    "WorldEnds": "closes what a program has open when its simulated world ends",
    "_Spent": "ends a search",
}
"""Exceptions that never reach a user, so that they need no root."""


def exceptions(modules: Iterable[ast.Module]) -> dict[str, set[str]]:
    """Each class that is an exception of Python's, with all that it is derived from."""
    bases = {
        node.name: {base.id for base in node.bases if isinstance(base, ast.Name)}
        for tree in modules
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }

    def above(name: str) -> set[str]:
        return {name}.union(*(above(base) for base in bases.get(name, ())))

    def own(name: str) -> bool:
        kind = getattr(builtins, name, None)
        return isinstance(kind, type) and issubclass(kind, BaseException)

    return {name: found for name in bases if any(map(own, found := above(name)))}


def test_errors_have_one_root() -> None:
    found = exceptions(ast.parse(path.read_text("utf-8")) for path in MODULES)
    assert found.keys() >= {"RingcastError", *SIGNALS}
    astray = [name for name, above in found.items() if "RingcastError" not in above]
    assert sorted(astray) == sorted(SIGNALS)
    source = ast.parse("class A(ValueError): ...\nclass B(A): ...\nclass C(Base): ...")
    assert exceptions([source]) == {"A": {"A", "ValueError"}, "B": {"B", "A", "ValueError"}}


KINDS = ("R", "G")
"""Kinds of tags, for what is tried here."""

each_book = pytest.mark.parametrize("book", BOOKS, ids=lambda book: book.name)


def missing(wanted: Iterable[str]) -> list[str]:
    return sorted(wanted, key=number)


@each_book
def test_every_rule_has_a_handler(book: Book) -> None:
    """Or a reason in its book: something else carries it out, or nothing does."""
    tagged, reasons = book.handlers.keys(), book.data["elsewhere"] | book.data["unbuilt"]
    assert (*book.data["rules"],) == book.rules.tags
    assert (*book.gaps,) == book.rules.gap_tags
    assert not missing(set(book.rules.tags) - tagged - reasons.keys())
    assert not missing(reasons.keys() & tagged), "these have a handler now"


def test_a_rule_named_only_in_passing_has_no_handler(tmp_path: Path) -> None:
    """Neither a module's docstring nor a range counts; a comment, a class and a note do."""
    path = tmp_path / "module.py"
    path.write_text(
        '''"""Rules R1-R9 and R10."""

TABLE = {"a": Discard("totem R11", "late")}


class Box:
    """R12."""

    def put(self) -> None:
        """R13, R20-R29."""
        self.full = True  # R12, R14
'''
    )
    assert handlers(path, kinds=KINDS) == {
        "R11": ["module"],
        "R12": ["module:Box.put"],
        "R13": ["module:Box.put"],
        "R14": ["module:Box.put"],
    }


def test_a_rule_named_only_in_passing_is_not_tested(tmp_path: Path) -> None:
    """Neither by a module's docstring, nor by a helper, nor in the middle of a scenario."""
    folder = tmp_path / "rules"
    folder.mkdir()
    (folder / "test_some.py").write_text(
        '''"""Rules R1-R9."""


def helper() -> None:
    """R10."""


def test_r11_is_kept() -> None:
    """R12-R13."""
'''
    )
    (folder / "story.txt").write_text("# A story.\n# R14\n\nring totem n=3\n# R15\n")
    test = "rules/test_some.py:test_r11_is_kept"
    assert tags_of_tests(folder, kinds=KINDS) == {
        **{tag: [test] for tag in ("R11", "R12", "R13")},
        "R14": ["rules/story.txt"],
    }


@each_book
def test_every_rule_has_a_test(book: Book) -> None:
    shown, unbuilt = book.shown.keys(), book.data["unbuilt"].keys()
    assert not missing(set(book.rules.tags) - shown - unbuilt)
    assert not missing(unbuilt & shown), "these have a test now"


@each_book
def test_no_tag_is_invented(book: Book) -> None:
    """A tag outside the dossier is a slip of the pen."""
    known = {*book.rules.tags, *book.rules.gap_tags}
    for path in book.code:
        unknown = tags(path.read_text("utf-8"), book.rules.kinds) - known
        assert not unknown, f"{name_of(path)}: {sorted(unknown)}"


@each_book
def test_every_extension_is_explained(book: Book) -> None:
    """``ext`` marks what the source does not say: docs/errata.md and the package's page list it."""
    tag = rf"((?:{'|'.join(book.rules.kinds)})\d+)"
    package = book.code[0].parent
    source = "".join(path.read_text("utf-8") for path in book.code)
    extensions = set(re.findall(rf"\b{tag} ext\b", source))
    beyond = (package / "__init__.py").read_text("utf-8").partition("\nBeyond")[2]
    listed = re.findall(rf"^ +{tag} ", beyond.partition('"""')[0], re.MULTILINE)
    assert missing(extensions) == missing(listed)
    page = (ROOT / "docs" / "errata.md").read_text("utf-8")
    assert not missing(extensions - set(re.findall(rf"\b{tag} ext\b", page)))


def test_ranges_of_tags_are_read() -> None:
    assert tags("R37-R39 and R5", KINDS) == {"R37", "R38", "R39", "R5"}
    assert tags("R1 .. R3, G7", KINDS) == {"R1", "R2", "R3", "G7"}
    assert tags("R96\N{EN DASH}R98", KINDS) == {"R96", "R97", "R98"}
    assert tags("RR5 R1234 XR6", KINDS) == set()
    assert single_tags("R37-R39 and R5", KINDS) == {"R5"}
    kinds = ("TF-", "A")
    assert tags("TF-3 to TF-5 and A1, R7", kinds) == {"TF-3", "TF-4", "TF-5", "A1"}
    assert tags("TF-38 ext, NTF-4", kinds) == {"TF-38"}
    assert number("TF-12") > number("TF-9")


def test_mypy_meets_every_module() -> None:
    """One that its packages leave out is on its path, and somebody imports it."""
    mypy = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["mypy"]
    paths = [path for path in OUR_FILES if path.suffix == ".py"] + [Path(__file__)]
    imported = {name.partition(".")[0] for path in paths for name in imports(path)}
    for path in paths:
        name = name_of(path)
        if name.startswith("tools/") or any(re.search(each, name) for each in mypy["exclude"]):
            assert name_of(path.parent) in mypy["mypy_path"], f"mypy_path lacks {path.parent}"
            assert path.stem in imported.union(mypy["modules"]), f"[tool.mypy] modules lacks {name}"


def test_generated_pages_are_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "tools" / "pages.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


ROLES = {
    "Phase": "every machine has one",
    "Timer": "every machine has one",
    "Settings": "every block that is set up has one",
    "Block": "a flush stops a member; a scenario's text is made of blocks",
    "Decided": "what a block that decides says to its owner; a protocol has one such block",
    "Entry": "a journal's, and the record of a token or a log in three sources",
    "Epoch": "the source's name in RBP, and that of the replicated log's dossier",
}
"""Names that stand for several classes, each with the reason."""


def homes(sources: Iterable[tuple[str, ast.Module]]) -> dict[str, set[str]]:
    """Public classes, and the packages or modules they are in.

    What has a tag is a word on a wire, and bears the name that its source gives it. So does the
    state of a protocol: its folder is where that name is read, and all folders count as one.
    """
    found: dict[str, set[str]] = {}
    for where, tree in sources:
        home = "a protocol" if "/protocols/" in where else where
        for node in tree.body:
            if not isinstance(node, ast.ClassDef) or node.name.startswith("_"):
                continue
            if all(keyword.arg != "tag" for keyword in node.keywords):
                found.setdefault(node.name, set()).add(home)
    return found


def test_two_public_classes_do_not_share_a_name() -> None:
    found = homes((name_of(path), ast.parse(path.read_text("utf-8"))) for path in MODULES)
    shared = {name for name, where in found.items() if len(where) > 1}
    assert shared <= ROLES.keys(), {name: found[name] for name in shared - ROLES.keys()}
    ring, word = ast.parse("class Ring: ..."), ast.parse("class Ring(Struct, tag=1): ...")
    modules = ("a/protocols/b/c.py", ring), ("a/protocols/d/c.py", ring), ("a/wire/e.py", word)
    assert homes(modules) == {"Ring": {"a protocol"}}
    assert len(homes((*modules, ("a/checks/ring.py", ring)))["Ring"]) == 2


def test_a_protocol_and_the_one_it_builds_on_do_not_share_a_name() -> None:
    """But for what every machine has, and messages."""
    for above, below in BUILDS_ON.items():
        classes = [
            homes((name_of(path), ast.parse(path.read_text("utf-8"))) for path in folder)
            for folder in ((SRC / "protocols" / name).glob("*.py") for name in (above, below))
        ]
        assert not classes[0].keys() & classes[1].keys() - {*ROLES, "Config"}, above
