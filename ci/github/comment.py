"""Keep one comment on a pull request, for the last step of `action.yml`.

Reads INPUT_MARKDOWN (a file), INPUT_COMMENT_ID and INPUT_TOKEN. The comment begins with a marker
that nobody sees, and is found again by that and by its author: a comment of somebody else that
copies the marker is left alone. Nothing is written for a fork, whose token cannot write, nor for
`pull_request_target`, where a fork's code and a token that can would meet.
"""

from __future__ import annotations

import json
import os
import re
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

#: GitHub takes 65,536 characters; some are for the marker and the last line.
MOST = 65_000
_FOLDED = re.compile(r"^<details>.*?^</details>\n?", re.MULTILINE | re.DOTALL)
_COMMENTS = """
query($owner: String!, $name: String!, $number: Int!, $after: String) {
  repository(owner: $owner, name: $name) {
    pullRequest(number: $number) {
      id
      comments(first: 100, after: $after) {
        nodes { id body viewerDidAuthor }
        pageInfo { hasNextPage endCursor }
      }
    }
  }
}
"""
_ADD = """
mutation($on: ID!, $body: String!) {
  addComment(input: {subjectId: $on, body: $body}) { clientMutationId }
}
"""
_UPDATE = """
mutation($on: ID!, $body: String!) {
  updateIssueComment(input: {id: $on, body: $body}) { clientMutationId }
}
"""


class CommentError(Exception):
    """GitHub did not take a comment; one sentence."""


def main() -> int:
    """Write the comment; 0 also where that is not possible, as the verdict is another step's."""
    event = json.loads(Path(os.environ["GITHUB_EVENT_PATH"]).read_text(encoding="utf-8"))
    pull, repository = event.get("pull_request") or {}, os.environ["GITHUB_REPOSITORY"]
    if os.environ["GITHUB_EVENT_NAME"] != "pull_request" or not pull:
        print("No comment: it is for `on: pull_request`.")
        return 0
    if ((pull.get("head") or {}).get("repo") or {}).get("full_name") != repository:
        print("No comment: a pull request from a fork. The summary of the job has the report.")
        return 0
    name = re.sub(r"[^A-Za-z0-9_.]+", "_", os.environ["INPUT_COMMENT_ID"])
    marker = f"<!-- buildmatrix: {name} -->"
    report = Path(os.environ["INPUT_MARKDOWN"]).read_text(encoding="utf-8")
    try:
        done = write(repository, pull["number"], marker, body(report, marker))
    except CommentError as error:
        print(f"::warning::No comment was written: {error}")
    else:
        print(f"Comment {done}.")
    return 0


def body(report: str, marker: str) -> str:
    """The text of the comment: the report, without its folded parts where it is too long."""
    server, repository = os.environ["GITHUB_SERVER_URL"], os.environ["GITHUB_REPOSITORY"]
    run = f"{server}/{repository}/actions/runs/{os.environ['GITHUB_RUN_ID']}"
    last = f"\n[All of it, and the log]({run})\n"
    if len(report) > MOST:
        report = _FOLDED.sub("", report)
        last = f"\nWhat is folded elsewhere is left out here: [the summary of the job]({run})\n"
    if len(report) > MOST:
        report = report[: report.rfind("\n", 0, MOST)] + "\n"
    return f"{marker}\n{report}{last}"


def write(repository: str, number: int, marker: str, text: str) -> str:
    """Update the comment that begins with `marker`, or add one; which of both.

    Raises `CommentError`.
    """
    owner, _, name = repository.partition("/")
    after = None
    while True:
        variables = {"owner": owner, "name": name, "number": number, "after": after}
        pull = (_ask(_COMMENTS, variables).get("repository") or {}).get("pullRequest")
        if pull is None:
            raise CommentError(f"pull request {number} cannot be read")
        for comment in pull["comments"]["nodes"]:
            if comment["viewerDidAuthor"] and comment["body"].startswith(marker):
                _ask(_UPDATE, {"on": comment["id"], "body": text})
                return "updated"
        page = pull["comments"]["pageInfo"]
        if not page["hasNextPage"]:
            _ask(_ADD, {"on": pull["id"], "body": text})
            return "added"
        after = page["endCursor"]


def _ask(query: str, variables: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(  # noqa: S310
        os.environ["GITHUB_GRAPHQL_URL"],
        json.dumps({"query": query, "variables": variables}).encode(),
        {
            "Authorization": f"Bearer {os.environ['INPUT_TOKEN']}",
            "Content-Type": "application/json",
            "User-Agent": "buildmatrix",
        },
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
            document = json.load(answer)
    except (OSError, ValueError) as error:
        raise CommentError(f"GitHub does not answer: {error}") from None
    if document.get("errors"):
        first = document["errors"][0]
        if first.get("type") == "FORBIDDEN":
            raise CommentError("the job needs `permissions: pull-requests: write`")
        raise CommentError(f"GitHub says: {first.get('message', first)!a}")
    return dict(document["data"])


if __name__ == "__main__":
    sys.exit(main())
