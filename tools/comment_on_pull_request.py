"""Writes a text as one comment of a pull request, and changes that comment when it is called again.

Reads GITHUB_API_URL, GITHUB_REPOSITORY and GITHUB_TOKEN as GitHub's runners set them, COMMENT_ON (the pull request's
number), COMMENT_ID (what tells this comment from others) and COMMENT_FILE (its Markdown). It needs no package. A
comment that cannot be written is a warning of the job: the gates have decided already.
"""

import json
import os
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any, Final

LONGEST: Final = 60_000
"""Characters of a comment; GitHub refuses more than 65,536."""
PAGE: Final = 100
TIMEOUT: Final = 30.0
FORBIDDEN: Final = (403, 404)


class PullRequest:
    """The comments of a pull request."""

    def __init__(self, api: str, repository: str, number: str, token: str) -> None:
        self._issues = f"{api}/repos/{repository}/issues"
        self._number, self._token = number, token

    def write(self, mark: str, text: str) -> None:
        """Change the comment that begins with a mark, or make it.

        A comment of somebody else with this mark cannot be changed, and is passed over.

        Raises:
            HTTPError: GitHub refuses it.
            OSError: it cannot be reached.
        """
        for comment in self._comments():
            if str(comment.get("body", "")).startswith(mark):
                try:
                    self._ask("PATCH", f"comments/{int(comment['id'])}", {"body": f"{mark}\n{text}"})
                except urllib.error.HTTPError as error:
                    if error.code not in FORBIDDEN:
                        raise
                else:
                    return
        self._ask("POST", f"{self._number}/comments", {"body": f"{mark}\n{text}"})

    def _comments(self) -> Iterator[Mapping[str, Any]]:
        for number in count(1):
            page = self._ask("GET", f"{self._number}/comments?per_page={PAGE}&page={number}")
            yield from page
            if len(page) < PAGE:
                return

    def _ask(self, method: str, path: str, content: Mapping[str, str] | None = None) -> Any:  # noqa: ANN401 - JSON
        headers = {"Accept": "application/vnd.github+json", "Authorization": f"Bearer {self._token}"}
        data = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(f"{self._issues}/{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            return json.load(answer)


def main(environment: Mapping[str, str]) -> int:
    """Write the comment; gives 0 also where that fails."""
    number = environment.get("COMMENT_ON", "")
    if not number.isdecimal():
        print("::notice::evalrun: no comment: this run is not about a pull request")
        return 0
    text = Path(environment["COMMENT_FILE"]).read_text(encoding="utf-8")
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]}\n\nThe rest is in the job's summary."
    name = re.sub(r"[^\w./ -]|--+", "", environment.get("COMMENT_ID", ""))  # what would end the mark, or begin another
    mark = f"<!-- evalrun gate: {name} -->"
    request = PullRequest(
        environment["GITHUB_API_URL"], environment["GITHUB_REPOSITORY"], number, environment["GITHUB_TOKEN"]
    )
    try:
        request.write(mark, text)
    except urllib.error.HTTPError as error:
        remedy = ": give the job `permissions: {pull-requests: write}`; pull requests from forks cannot have it"
        print(f"::warning::evalrun: GitHub refused the comment ({error.code}){remedy * (error.code in FORBIDDEN)}")
    except OSError as error:
        print(f"::warning::evalrun: no comment: GitHub cannot be reached: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main(os.environ))
