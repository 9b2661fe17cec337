"""Writes a text as one comment of a pull request, and changes that comment when it is called again.

Reads GITHUB_API_URL, GITHUB_REPOSITORY and GITHUB_TOKEN as GitHub's runners set them, COMMENT_ON (the pull request's
number), COMMENT_AUTHOR (the account of the token), COMMENT_ID (what tells this comment from others) and COMMENT_FILE
(its Markdown). It needs no package. A comment that cannot be written is only a warning of the job, because the gates
have decided already.
"""

import json
import os
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from http.client import HTTPException
from itertools import count
from pathlib import Path
from typing import Any, Final

LONGEST: Final = 60_000
"""Maximum characters of a comment; GitHub refuses more than 65,536."""
PAGE: Final = 100
TIMEOUT: Final = 30.0
FORBIDDEN: Final = (403, 404)


class PullRequest:
    """The comments of a pull request."""

    def __init__(self, api: str, repository: str, number: str, token: str, author: str) -> None:
        self._issues = f"{api}/repos/{repository}/issues"
        self._number, self._token, self._author = number, token, author

    def write(self, mark: str, text: str) -> None:
        """Change the author's comment that begins with a mark, or create the comment.

        Comments of others are passed over. Anybody may write the mark, and the token may be allowed to change their
        comments, but the authors could then change the gates' report.

        Raises:
            HTTPError: GitHub refuses the request.
            OSError, HTTPException, ValueError: GitHub cannot be reached, or the reply is not GitHub's.
        """
        for comment in self._comments():
            is_ours = comment.get("user", {}).get("login") == self._author
            if is_ours and str(comment.get("body", "")).startswith(mark):
                self._ask("PATCH", f"comments/{int(comment['id'])}", {"body": f"{mark}\n{text}"})
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
    """Write the comment. Return 0, even if the comment cannot be written."""
    number = environment.get("COMMENT_ON", "")
    if not number.isdecimal():
        print("::notice::evalrun: no comment: this run is not about a pull request")
        return 0
    # These characters would end the mark, or begin another one.
    name = re.sub(r"[^\w./ -]|--+", "", environment.get("COMMENT_ID", ""))
    mark = f"<!-- evalrun gate: {name} -->"
    request = PullRequest(
        environment["GITHUB_API_URL"], environment["GITHUB_REPOSITORY"], number, environment["GITHUB_TOKEN"],
        environment["COMMENT_AUTHOR"],
    )  # fmt: skip
    try:
        text = Path(environment["COMMENT_FILE"]).read_text(encoding="utf-8")
        more = "\n\nThe rest is in the job's summary." if len(text) > LONGEST else ""
        request.write(mark, f"{text[:LONGEST]}{more}")
    except urllib.error.HTTPError as error:
        remedy = ": give the job `permissions: {pull-requests: write}`; pull requests from forks cannot have it"
        print(f"::warning::evalrun: GitHub refused the comment ({error.code}){remedy * (error.code in FORBIDDEN)}")
    except (OSError, HTTPException, ValueError) as error:
        print(f"::warning::evalrun: no comment: {type(error).__name__}: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main(os.environ))
