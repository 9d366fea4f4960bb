"""What the built-in world is made of: kinds, relations, pieces of names, types of questions.

A word name is a stem and an ending, and the ending tells the kind: a name of one kind is never a
name of another.
"""

from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """What an entity is."""

    PERSON = "person"
    """Given name and surname."""
    BOOK = "book"
    """A title that starts with "The"."""
    TOWN = "town"
    """One word."""
    RIVER = "river"
    """One word."""
    COUNTY = "county"
    """One word."""
    LAKE = "lake"
    """One word; a value only, it has no document of its own."""


class Relation(StrEnum):
    """What a document says about its entity. A relation has exactly one value for an entity."""

    BIRTHPLACE = "birthplace"
    """Person to town."""
    JOB = "job"
    """Person to a trade."""
    AUTHOR = "author"
    """Book to person."""
    YEAR = "year"
    """Book to the year in which it was written."""
    GENRE = "genre"
    """Book to a kind of text; stated, never asked for."""
    RIVER = "river"
    """Town to river."""
    COUNTY = "county"
    """Town to county."""
    MAYOR = "mayor"
    """Town to person."""
    LAKE = "lake"
    """River to lake."""
    CAPITAL = "capital"
    """County to town."""


class QuestionType(NamedTuple):
    """Questions that follow the same relations; a phrasing has `{}` for the entity."""

    subject: Kind
    relations: tuple[Relation, ...]
    phrasings: tuple[str, str]

    @property
    def source(self) -> str:
        """ "one_hop" or "two_hop"."""
        return "one_hop" if len(self.relations) == 1 else "two_hop"


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


STEMS = _words(
    "Mar Ven Kes Tam Or Yar Bel Dor Fen Gil Har Jor Kal Lim Mor Nor Pel Quin Ras Sel Tor Ul Vas "
    "Wen Zan Bran Cal Del Eld Fal Gor Hul Is Jan Kir Lor Mil Nad Os Pan Rul Sor Tal Und Vor Wil "
    "Xan Yor Zel Ard Bor Cor Dun Est Far Gan Hes Ing Jul Kon Lan Mon Nes Ond Pol Ren Sam Tir Urs "
    "Vin Wes Yel Zor Ab Bes Cam Dal Em Fir Gam Hol Il Jes Kol Lub Min Nim Ol Pir Rom Sul Tes Um"
)
GIVEN_ENDINGS = _words("la do mi ret bin ka sel ron via tus")
SURNAME_ENDINGS = _words("ard sen ley ock man vik dale ski berg ton quist ward")
PLACE_ENDINGS = {
    Kind.TOWN: _words("bridge ford holt mere wick ham stead port gate field burg cliff"),
    Kind.RIVER: _words("ble dune nore wash brook ness lune rill"),
    Kind.COUNTY: _words("shire mark land rike vale heim"),
    Kind.LAKE: _words("gar pond loch tarn basin sund"),
}
TITLE_ADJECTIVES = _words(
    "Silent Golden Broken Hidden Crimson Distant Frozen Gentle Hollow Iron Jagged Lonely Midnight "
    "Northern Pale Quiet Restless Silver Thirsty Wandering Bitter Copper Drowned Emerald Fading "
    "Ancient Burning Clever Dancing Endless"
)
TITLE_NOUNS = _words(
    "Lantern Garden Mirror Harbor Orchard Compass Falcon River Winter Tower Candle Letter Mountain "
    "Ocean Violin Raven Castle Bridge Shadow Clock Forest Island Journey Kingdom Window Anchor "
    "Barrel Crown Door Feather"
)
JOBS = _words(
    "painter singer doctor lawyer farmer sailor baker tailor miner teacher judge poet actor banker "
    "hunter weaver"
)
GENRES = _words("novel story poem play memoir saga")
YEARS = tuple(map(str, range(1500, 2000)))


def _type(subject: Kind, relations: str, one: str, other: str) -> QuestionType:
    return QuestionType(subject, tuple(map(Relation, relations.split())), (one, other))


QUESTION_TYPES: tuple[QuestionType, ...] = (
    _type(Kind.PERSON, "birthplace", "Where was {} born?", "In which town was {} born?"),
    _type(Kind.PERSON, "job", "What is the job of {}?", "What does {} do for a living?"),
    _type(Kind.BOOK, "author", "Who wrote {}?", "Who is the author of {}?"),
    _type(Kind.BOOK, "year", "When was {} written?", "In which year was {} written?"),
    _type(Kind.TOWN, "river", "On which river is {}?", "Which river runs through {}?"),
    _type(Kind.TOWN, "county", "In which county is {}?", "Which county does {} belong to?"),
    _type(Kind.TOWN, "mayor", "Who is the mayor of {}?", "Which person is mayor of {}?"),
    _type(Kind.RIVER, "lake", "Into which lake does {} flow?", "Where does the river {} end?"),
    _type(Kind.COUNTY, "capital", "What is the capital of {}?", "Which town is the capital of {}?"),
    _type(
        Kind.BOOK,
        "author birthplace",
        "Where was the author of {} born?",
        "In which town was the writer of {} born?",
    ),
    _type(
        Kind.BOOK,
        "author job",
        "What is the job of the author of {}?",
        "What does the writer of {} do for a living?",
    ),
    _type(
        Kind.PERSON,
        "birthplace river",
        "On which river is the birthplace of {}?",
        "Which river runs through the town where {} was born?",
    ),
    _type(
        Kind.PERSON,
        "birthplace county",
        "In which county was {} born?",
        "Which county does the birthplace of {} belong to?",
    ),
    _type(
        Kind.PERSON,
        "birthplace mayor",
        "Who is the mayor of the birthplace of {}?",
        "Who is mayor of the town where {} was born?",
    ),
    _type(
        Kind.TOWN,
        "river lake",
        "Into which lake does the river of {} flow?",
        "Where does the river that runs through {} end?",
    ),
    _type(
        Kind.TOWN,
        "mayor birthplace",
        "Where was the mayor of {} born?",
        "In which town was the mayor of {} born?",
    ),
    _type(
        Kind.TOWN,
        "mayor job",
        "What is the job of the mayor of {}?",
        "What does the mayor of {} do for a living?",
    ),
    _type(
        Kind.TOWN,
        "county capital",
        "What is the capital of the county of {}?",
        "Which town is the capital of the county where {} is?",
    ),
    _type(
        Kind.COUNTY,
        "capital river",
        "On which river is the capital of {}?",
        "Which river runs through the capital of {}?",
    ),
    _type(
        Kind.COUNTY,
        "capital mayor",
        "Who is the mayor of the capital of {}?",
        "Who is mayor of the capital town of {}?",
    ),
)
