"""Pages of HTML: whatever stands on one is escaped where it is filled in, and nothing on it runs or loads anything."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, StrictUndefined

_BASE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
      content="default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}</title>
<style>
:root { color-scheme: light dark; --text: #222; --page: #fff; --code: #f4f4f4; --line: #bbb; --link: #00609c;
        --jp-border-color1: #999 }
@media (prefers-color-scheme: dark) {
  :root { --text: #e4e4e4; --page: #181818; --code: #262626; --line: #555; --link: #7cc4f5;
          --jp-shadow-base-lightness: 32 }  /* as in JupyterLab's dark theme, which figures ask for */
  img { mix-blend-mode: screen }
}
body { font: 16px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem;
       color: var(--text); background: var(--page) }
h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line) }
h3 { margin: 1.8rem 0 .4rem }
a, summary { color: var(--link) }
summary { cursor: pointer }
pre { background: var(--code); padding: .7rem; overflow-x: auto; font-size: 14px }
code { background: var(--code); overflow-wrap: anywhere }
table { border-collapse: collapse }
td, th { padding: .15rem .8rem .15rem 0; vertical-align: top; text-align: left; overflow-wrap: break-word }
thead th { border-bottom: 1px solid var(--line) }
tbody th { font-weight: normal }
.report table { table-layout: fixed; width: 100% }
.report th:first-child { width: 36% }
img { max-width: 100%; height: auto; background: #fff }
.hint, .comment { border-left: 4px solid var(--link); padding-left: 8px }
.comment { white-space: pre-wrap }
</style>
</head>
<body>
<h1>{{ title }}</h1>
{% block body %}{% endblock %}
</body>
</html>
"""

_PAGES = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)


def page_of(body: str, title: str, **values: Any) -> bytes:
    """A page with this title; `body` is a Jinja template, in which every value is escaped that is not Markup.

    Letters that UTF-8 does not have become question marks.
    """
    base = _PAGES.from_string(_BASE)
    template = _PAGES.from_string("{% extends base %}{% block body %}" + body + "{% endblock %}")
    return template.render(base=base, title=title, **values).encode("utf-8", errors="replace")
