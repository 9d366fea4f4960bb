"""Questions: where they come from, how they are cleaned and split, and which a step uses."""

from searchr1.data.answers import clean_answers
from searchr1.data.manifest import Manifest, read_manifest
from searchr1.data.preparation import prepare
from searchr1.data.questions import (
    CORPUS,
    QUESTION_SETS,
    corpus_path,
    load_questions,
    questions_checksum,
)
from searchr1.data.schedule import BatchSchedule, Cursor
from searchr1.data.settings import DataSettings, DataSource, preparation_command

__all__ = [
    "CORPUS",
    "QUESTION_SETS",
    "BatchSchedule",
    "Cursor",
    "DataSettings",
    "DataSource",
    "Manifest",
    "clean_answers",
    "corpus_path",
    "load_questions",
    "preparation_command",
    "prepare",
    "questions_checksum",
    "read_manifest",
]
