"""The BM25 index of a corpus: built once, kept in a folder, memory-mapped by every process.

    python -m searchr1.search.index CORPUS [--search-cache-dir FOLDER]

An index folder is either whole or absent: it is built beside its place under a lock and renamed
into it. Its name holds the checksum of the corpus and the version of the rules below, so that a
changed corpus or rule never meets an old index. Documents are stored in the order of their ids.

Rules: Lucene's BM25 with k1 1.2 and b 0.75 (Robertson and Zaragoza 2009); words are lower-cased
`\\w+` of any length without stop words, Chinese and Japanese characters are words of their own;
the title counts three times.
"""

import argparse
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import bm25s
import numpy as np
import pyarrow as pa
from bm25s.tokenization import Tokenized
from filelock import FileLock

from searchr1.errors import DataError, SearchR1Error
from searchr1.files import sha256_file
from searchr1.search.corpus import Document, read_corpus
from searchr1.search.settings import SearchSettings

RULES = 1
"""Raise it whenever a change to this module changes what a search answers."""
K1, B, TITLE_WEIGHT = 1.2, 0.75, 3

_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]|[^\W\u3040-\u30ff"
                   r"\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+")  # fmt: skip
_DOCUMENTS = "documents.arrow"
_SCHEMA = pa.schema({name: pa.large_string() for name in Document._fields})
_BATCH = 8_192


def words(text: str) -> list[str]:
    """The words of `text`, in order, as documents and queries are both cut."""
    return _WORD.findall(text.lower())


def document_words(document: Document) -> list[str]:
    """The words of a document with its title `TITLE_WEIGHT` times in all, the one at the
    beginning of the text included."""
    starts = document.text.casefold().startswith(document.title.casefold())
    return words(document.title) * (TITLE_WEIGHT - starts) + words(document.text)


class CorpusIndex:
    """A memory-mapped index; safe to use from several threads."""

    def __init__(self, folder: Path) -> None:
        self._bm25 = bm25s.BM25.load(folder, mmap=True, show_progress=False)
        for name in ("data", "indices", "indptr"):  # as plain arrays the maps are quicker to slice
            self._bm25.scores[name] = self._bm25.scores[name].view(np.ndarray)
        self._vocabulary: dict[str, int] = self._bm25.vocab_dict
        with pa.memory_map(str(folder / _DOCUMENTS)) as source:
            self._documents = pa.ipc.open_file(source).read_all()

    def __len__(self) -> int:
        return self._documents.num_rows

    def search(self, query: str, k: int) -> list[Document]:
        """At most `k` documents that share a word with `query`, best first; equally good ones
        by document id."""
        known = [self._vocabulary[word] for word in words(query) if word in self._vocabulary]
        if not known:
            return []
        scores = self._bm25.get_scores_from_ids(known)
        k = min(k, len(scores))
        threshold = np.partition(scores, len(scores) - k)[len(scores) - k]
        best = np.flatnonzero(scores >= threshold)  # in the order of ids; ties at the edge too
        best = best[scores[best] > 0]
        best = best[np.argsort(-scores[best], kind="stable")][:k]
        return [self._document(int(row)) for row in best]

    def _document(self, row: int) -> Document:
        return Document(*(self._documents[name][row].as_py() for name in Document._fields))


def open_index(corpus: Path, cache_dir: Path) -> tuple[CorpusIndex, str]:
    """The index of a corpus, built if it is not there yet, and the checksum of the corpus.

    Raises:
        DataError: the corpus is missing, unreadable or holds no document.
    """
    if not corpus.is_file():
        raise DataError(f"There is no corpus file {corpus}; set search_corpus to an existing one.")
    checksum = sha256_file(corpus)
    folder = cache_dir / "indexes" / f"{checksum[:24]}-{RULES}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_suffix(".lock")):
            if not folder.is_dir():
                _build(corpus, folder)
    return CorpusIndex(folder), checksum


def _build(corpus: Path, folder: Path) -> None:
    """Build the index beside `folder` and rename it; the caller holds the lock."""
    for leftover in folder.parent.glob(f"{folder.name}.part-*"):  # of a build that was killed
        shutil.rmtree(leftover, ignore_errors=True)
    documents = sorted(read_corpus(corpus), key=lambda document: document.document_id)
    if not documents:
        raise DataError(f"The corpus {corpus} holds no document with a title or text.")
    part = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f"{folder.name}.part-"))
    part.chmod(0o755)  # mkdtemp gives it to this user alone
    try:
        vocabulary: dict[str, int] = {}
        ids = [
            [vocabulary.setdefault(word, len(vocabulary)) for word in document_words(document)]
            for document in documents
        ]
        if not vocabulary:
            raise DataError(f"The corpus {corpus} holds no word that could be searched for.")
        bm25 = bm25s.BM25(method="lucene", k1=K1, b=B)
        bm25.index(Tokenized(ids, vocabulary), create_empty_token=False, show_progress=False)
        bm25.save(part, show_progress=False)
        file = str(part / _DOCUMENTS)
        with pa.OSFile(file, "wb") as sink, pa.ipc.new_file(sink, _SCHEMA) as writer:
            for batch in _batches(documents):
                writer.write_batch(batch)
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _batches(documents: list[Document]) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(documents), _BATCH):
        columns = zip(*documents[start : start + _BATCH], strict=True)
        yield pa.record_batch([list(column) for column in columns], schema=_SCHEMA)


def main(arguments: list[str] | None = None) -> int:
    """Build the index of a corpus from the shell."""
    parser = argparse.ArgumentParser(
        "python -m searchr1.search.index", description="Build the search index of a corpus."
    )
    fields = SearchSettings.model_fields
    parser.add_argument("corpus", type=Path, help=fields["search_corpus"].description)
    parser.add_argument(
        "--search-cache-dir",
        type=Path,
        default=fields["search_cache_dir"].default,
        help=fields["search_cache_dir"].description,
    )
    options = parser.parse_args(arguments)
    try:
        index, checksum = open_index(options.corpus, options.search_cache_dir)
    except SearchR1Error as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{len(index):,} documents are ready to be searched (checksum {checksum[:12]}).")
    return 0


if __name__ == "__main__":
    sys.exit(main())
