"""A page that needs nothing else: no file beside it, no script, nothing from the network.

It reads well on a phone and on a wide screen, and is dark where the reader's screen is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from string import Template

PAGE = Template("""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>$title</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<style>
:root { --ink: #1f2933; --soft: #52606d; --back: #f5f7fa; --card: #ffffff; --line: #e4e7eb;
  --good: #2f855a; --bad: #c53030; --fair: #b7791f; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e7eb; --soft: #a3b1c0; --back: #12181f;
  --card: #1b232c; --line: #33404d; --good: #48bb78; --bad: #fc8181; --fair: #ecc94b; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back);
  margin: 0; }
main { max-width: 1080px; margin: 0 auto; padding: 28px 20px 60px; }
h1 { font-size: 26px; margin: 0 0 4px; } h2 { font-size: 18px; margin: 0 0 4px; }
h3 { font-size: 15px; margin: 0; }
p { margin: 0 0 10px; color: var(--soft); max-width: 75ch; } a { color: inherit; }
section { background: var(--card); border-radius: 10px; padding: 18px 20px; margin-top: 18px;
  box-shadow: 0 1px 3px rgb(0 0 0 / 12%); overflow-x: auto; }
.badge { display: inline-block; border-radius: 999px; padding: 2px 14px; font-weight: 600;
  color: var(--card); background: var(--soft); white-space: nowrap; }
.badge.good { background: var(--good); } .badge.bad { background: var(--bad); }
.badge.fair { background: var(--fair); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(125px, 1fr)); gap: 14px; }
.tile b { display: block; font-size: 22px; } .tile span { color: var(--soft); font-size: 13px; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr));
  gap: 18px; margin: 14px 0; }
figure { margin: 0; } figcaption { font-weight: 600; }
svg { width: 100%; height: auto; display: block; } .pair svg { max-width: 540px; }
section > svg { min-width: 760px; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: 14px; }
th { text-align: left; color: var(--soft); font-weight: 600; }
th, td { padding: 4px 12px 4px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
.good, .valid { color: var(--good); } .bad, .invalid { color: var(--bad); font-weight: 700; }
.fair, .unknown { color: var(--fair); } .badge.good, .badge.bad, .badge.fair { color: var(--card); }
.cols { columns: 3 260px; } .cols div { break-inside: avoid; padding: 1px 0; font-size: 14px; }
code { background: var(--back); border-radius: 5px; padding: 2px 6px; font-size: 13px;
  overflow-wrap: anywhere; }
@media (max-width: 600px) { main { padding: 18px 10px 40px; } section { padding: 14px 12px; } }
</style></head><body><main>
<h1>$title</h1><p>$subtitle</p>
$body
</main></body></html>
""")


def document(title: str, subtitle: str, body: Iterable[str]) -> str:
    """The whole page; ``body`` is HTML, the rest is not."""
    return PAGE.substitute(title=escape(title), subtitle=escape(subtitle), body="\n".join(body))


def badge(text: str, mood: str = "") -> str:
    """A word in a coloured field: ``good``, ``fair``, ``bad`` or grey."""
    return f'<span class="badge {mood}">{escape(text)}</span>'


def section(heading: str, caption: str, content: str) -> str:
    """A part of the page; ``content`` is HTML."""
    text = f"<p>{escape(caption)}</p>" if caption else ""
    return f"<section><h2>{escape(heading)}</h2>{text}{content}</section>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """Cells are HTML; the columns ``numbers`` stand to the right."""

    def line(cells: Sequence[str], kind: str) -> str:
        return "".join(
            f"<{kind}{' class=n' if at in numbers else ''}>{cell}" for at, cell in enumerate(cells)
        )

    body = "".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    return f'<div class="wide"><table><tr>{line(head, "th")}</tr>{body}</table></div>'
