"""The server's page: recent requests and runs, asked for by its script; it holds no data of its own."""

from functools import cache

from trinity_jax.report.markup import fill, source


@cache
def dashboard_page() -> str:
    """The page for ``/dashboard``.

    Its script asks ``/v1/traces`` (recent requests), ``/dashboard/runs.json`` (`runs.runs_data`) and, for a link,
    ``/dashboard/runs/NAME`` (`runs.run_page`), with the key that the reader has given where the server wants one.
    """
    own = f"{source('page.js')}\n{source('live.js')}"
    # A report behind a key is opened from memory and keeps this page's policy: its script is allowed here too.
    return fill("dashboard.html.j2", own, connect=True, others=(source("page.js"),))
