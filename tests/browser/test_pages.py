"""Our pages in a real browser: on a phone and on a wide screen, light and dark."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ringcast.checks import suite
from ringcast.pipeline.papers.experiments import Experiment, names, read
from ringcast.pipeline.papers.paper_page import REPORT, publish
from ringcast.pipeline.papers.reproduce import ClaimVerdict, Curve, Finding, Judged, Plot
from ringcast.pipeline.report import write as report
from ringcast.pipeline.report.report_data import ReportData
from ringcast.traces.text import parse

PHONE, WIDE = 390, 1280
DEADLINE_S = 300

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
    "--dump-dom",
)

PROBE = """<!doctype html><meta charset="utf-8"><body style="margin:0">
<iframe id="page" style="border:0;width:{width}px;height:900px" srcdoc="{page}"></iframe>
<pre id="told"></pre><script>
document.getElementById("page").onload = event => {{
  const window = event.target.contentWindow, page = window.document;
  const all = kind => Array.from(page.querySelectorAll(kind));
  const box = element => element.getBoundingClientRect();
  const colour = (element, what) => window.getComputedStyle(element)[what];
  const texts = all("svg text");
  document.getElementById("told").textContent = JSON.stringify({{
    title: page.title,
    sections: all("section").length,
    pictures: all("svg, img").map(each => [box(each).width, box(each).height]),
    broken: all("img").filter(each => !each.naturalWidth).length,
    drawn: all("svg").map(each => each.querySelectorAll("path").length),
    letters: Math.min(...texts.map(each => box(each).height)),
    overflow: page.documentElement.scrollWidth - window.innerWidth,
    dangling: all("a").filter(a => !page.querySelector(a.getAttribute("href"))).length,
    asked: all("*").flatMap(each => [...each.attributes])
      .filter(a => /(src|href)$/.test(a.name) && !/^(#|data:)/.test(a.value)).map(a => a.value),
    ground: colour(page.querySelector("section"), "backgroundColor"),
    ink: [...new Set(texts.map(each => colour(each, "fill")))],
    text: colour(page.body, "color"),
  }});
}};
</script>"""


@pytest.fixture(scope="module")
def chromium() -> str:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    pytest.skip("no Chromium on this machine; make test installs it where it can")


def browse(chromium: str, folder: Path, page: str, width: int, dark: bool = False) -> Any:
    """What the browser shows of ``page``; anything in its console is an error."""
    file = folder / "probe.html"
    file.write_text(PROBE.format(width=width, page=html.escape(page)), "utf-8")
    done = subprocess.run(
        [
            chromium,
            *FLAGS,
            f"--user-data-dir={folder / 'profile'}",
            f"--blink-settings=preferredColorScheme={0 if dark else 1}",
            f"--window-size={max(width, 600)},1000",
            file.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert not console, console
    told = re.search(r'<pre id="told">(.+?)</pre>', done.stdout)
    assert told, done.stderr
    return json.loads(html.unescape(told[1]))


def sketch(name: str, experiment: Experiment) -> Finding:
    """An experiment with all its words and lines, and numbers that are made up."""
    claims = tuple(
        Judged(claim.text, claim.paper, "1.234 to 5.678", (1.234, 5.678), at % 2 == 0)
        for at, claim in enumerate(experiment.claims)
    )
    plots = tuple(
        Plot(
            picture.title,
            picture.x,
            picture.y,
            picture.logarithmic,
            tuple(
                Curve(line.label or "random full", line.kind, at, (1, 5, 9), (at + 1, 2, 5))
                for at, line in enumerate(picture.lines)
            ),
        )
        for picture in experiment.pictures
    )
    return Finding(
        name,
        experiment.title,
        experiment.source,
        experiment.says,
        experiment.comment,
        ClaimVerdict.IN_PART,
        claims,
        plots,
        1,
    )


def reproduction(folder: Path) -> tuple[str, int, int]:
    """The page of ``ringcast reproduce``, its sections and its pictures."""
    findings = [sketch(name, read(name)) for name in names()]
    publish(findings, True, folder)
    pictures = sum(len(finding.plots) for finding in findings)
    return (folder / REPORT).read_text("utf-8"), 1 + len(findings), pictures


def demo(folder: Path) -> tuple[str, int, int]:
    """The page of ``ringcast demo``, of a small trace."""
    story, checks = ReportData(), suite(["M1", "D1", "D9"])
    for event in parse("ring(8,1){1,2}\np1: sub2 +2000 o1 o2 +900 d1 d2\np2: d1 d2\nend{1,2}\n"):
        story.feed(event)
        checks.feed(event)
    page = report.page("Two members", "a trace", story, checks.verdicts(), checks.violations)
    return page, 5, 3


@pytest.mark.parametrize(("width", "dark"), [(PHONE, False), (WIDE, True)])
@pytest.mark.parametrize("make", [reproduction, demo])
def test_a_page_shows_everything(
    make: Any, width: int, dark: bool, chromium: str, tmp_path: Path
) -> None:
    page, sections, pictures = make(tmp_path)
    told = browse(chromium, tmp_path, page, width, dark)
    assert told["title"]
    assert told["sections"] == sections
    assert len(told["pictures"]) == pictures
    assert all(wide > 250 and high > 80 for wide, high in told["pictures"])
    assert min(told["drawn"]) > 10
    assert told["letters"] > 8, "too small to be read"
    assert told["broken"] == 0
    assert told["asked"] == [], "the page needs another file"
    assert told["dangling"] == 0
    assert told["overflow"] <= 0, "the page itself is wider than the screen"
    assert light(told["ground"]) != dark
    assert light(told["text"]) == dark
    assert told["text"] in told["ink"], "the page decides on the colour of axes"
    assert not dark or all(light(ink) for ink in told["ink"] if grey(ink))


def test_what_a_page_does_wrong_is_noticed(chromium: str, tmp_path: Path) -> None:
    """The other tests would fail if it did."""
    wrong = "<title>t</title><section><svg></svg><a href='#no'>x</a><img src='none.png'></section>"
    told = browse(chromium, tmp_path, wrong + "<div style='width:2000px'>.</div>", PHONE)
    assert told["broken"] == told["dangling"] == 1
    assert told["overflow"] > 0
    assert told["asked"] == ["none.png"]
    with pytest.raises(AssertionError, match="oh no"):
        browse(chromium, tmp_path, "<section></section><script>throw 'oh no'</script>", PHONE)


def channels(colour: str) -> list[float]:
    return [float(each) for each in re.findall(r"[\d.]+", colour)[:3]]


def light(colour: str) -> bool:
    """Whether a colour is nearer to white than to black."""
    return sum(channels(colour)) > 3 * 127


def grey(colour: str) -> bool:
    """Whether it is none of the lines' colours, but that of text."""
    return max(channels(colour)) - min(channels(colour)) < 40
