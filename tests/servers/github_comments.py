"""A stand-in of GitHub's GraphQL API on loopback: the comments of one pull request.

It knows the three documents that `ci/github/comment.py` sends, and gives pages of two comments.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from loopback import LoopbackServer, Request, Response

_PAGE = 2


@dataclass
class Comment:
    """One comment; `is_ours` where the token that asks wrote it."""

    id: str
    body: str
    is_ours: bool = True


class GitHubStandIn(LoopbackServer):
    """The server; starts with `with`. `may_write`: whether the token has the permission."""

    def __init__(self, *, token: str = "token", may_write: bool = True) -> None:
        super().__init__()
        self.token, self.may_write = token, may_write
        self.comments: list[Comment] = []

    @property
    def url(self) -> str:
        """For GITHUB_GRAPHQL_URL."""
        return f"{self.origin}/graphql"

    def _serve(self, request: Request) -> Response:
        if request.headers.get("authorization") != f"Bearer {self.token}":
            return Response(401)
        asked = json.loads(request.read(1 << 20))
        query, variables = asked["query"], asked["variables"]
        if "mutation" not in query:
            return self._answer({"repository": {"pullRequest": self._pull(variables)}})
        if not self.may_write:
            error = {"type": "FORBIDDEN", "message": "Resource not accessible by integration"}
            return Response(200, json.dumps({"data": None, "errors": [error]}).encode())
        if "addComment" in query:
            assert variables["on"] == "PR_7"
            self.comments.append(Comment(f"IC_{len(self.comments)}", variables["body"]))
        else:
            assert "updateIssueComment" in query
            (comment,) = (item for item in self.comments if item.id == variables["on"])
            comment.body = variables["body"]
        return self._answer({})

    def _pull(self, variables: dict[str, Any]) -> dict[str, Any] | None:
        if (variables["owner"], variables["name"], variables["number"]) != ("acme", "inferno", 7):
            return None
        start = int(variables["after"] or 0)
        nodes = [
            {"id": item.id, "body": item.body, "viewerDidAuthor": item.is_ours}
            for item in self.comments[start : start + _PAGE]
        ]
        more = start + _PAGE < len(self.comments)
        page = {"hasNextPage": more, "endCursor": str(start + _PAGE)}
        return {"id": "PR_7", "comments": {"nodes": nodes, "pageInfo": page}}

    def _answer(self, data: dict[str, Any]) -> Response:
        return Response(200, json.dumps({"data": data}).encode())
