"""Answers in the shape of each service: `answer_with(backend, rows)`."""

from typing import Any

from tests.search.loopback import Reply, ok

REMOTE = ("deepseek", "wikipedia", "zhihu", "retriever")

Row = tuple[str, str, str]
"""Title, text, address."""

ROWS: list[Row] = [
    ("Ada Lovelace", "An English mathematician.", "https://example.org/ada"),
    ("Charles Babbage", "Designed the Analytical Engine.", "https://example.org/charles"),
]


def body_with(backend: str, rows: list[Row]) -> Any:
    """The JSON body of a good answer."""
    if backend == "deepseek":
        results = [{"title": t, "snippet": s, "url": u, "rerank_score": 1.5} for t, s, u in rows]
        return {"results": results}
    if backend == "wikipedia":
        pages = [
            {"pageid": n, "index": n, "title": t, "extract": s, "canonicalurl": u}
            for n, (t, s, u) in enumerate(rows, 1)
        ]
        return {"batchcomplete": True, "query": {"pages": pages}} if rows else {"batchcomplete": ""}
    if backend == "zhihu":
        items = [{"Title": t, "ContentText": s, "Url": u, "ContentType": "x"} for t, s, u in rows]
        return {"Code": 0, "Message": "", "Data": {"Items": items}}
    documents = [
        {"id": str(n), "contents": f'"{t}"\n{s}', "url": u} for n, (t, s, u) in enumerate(rows)
    ]
    return {"result": [[{"document": document, "score": 9.1} for document in documents]]}


def answer_with(backend: str, rows: list[Row] = ROWS, **more: Any) -> Reply:
    """A good answer."""
    return ok(body_with(backend, rows), **more)
