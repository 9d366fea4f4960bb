"""Defaults and limits of the settings."""

import pickle

import pytest
from pydantic import ValidationError

from searchr1.errors import ErrorClass, classify
from searchr1.search import (
    Fault,
    SearchErrorKind,
    SearchFatalError,
    SearchOutage,
    SearchSettings,
    create_backend,
)
from searchr1.search.settings import OPERATIONAL_FIELDS


@pytest.mark.parametrize(
    ("backend", "concurrency", "timeout", "rate"),
    [
        ("deepseek", 16, 60.0, 3000),
        ("wikipedia", 3, 15.0, 200),
        ("zhihu", 1, 15.0, 60),
        ("retriever", 16, 30.0, None),
        ("local", 16, 30.0, None),
    ],
)
def test_each_back_end_has_its_defaults_and_what_is_set_wins(backend, concurrency, timeout, rate):
    unset = SearchSettings.model_validate({"search_backend": backend})
    assert unset.search_defaults == (concurrency, timeout, rate)
    some = {"search_concurrency": 2, "search_timeout": 1.5, "search_requests_per_minute": 7}
    assert SearchSettings.model_validate({"search_backend": backend, **some}).search_defaults == (
        2,
        1.5,
        7,
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("search_backend", "bing"),
        ("search_top_k", 0),
        ("search_concurrency", 0),
        ("search_timeout", 0),
        ("search_requests_per_minute", 0),
        ("search_attempts", 0),
        ("search_cache", "sometimes"),
        ("search_outage_share", 1.5),
        ("deepseek_evidence", []),
        ("deepseek_evidence", ["title"]),
        ("search_max_retry_after", -1),
    ],
)
def test_a_wrong_value_is_refused_by_the_name_of_its_field(field, value):
    with pytest.raises(ValidationError, match=field):
        SearchSettings.model_validate({field: value})


def test_every_setting_is_explained():
    for name, field in SearchSettings.model_fields.items():
        assert field.description and len(field.description) > 20, name


def test_operational_settings_do_not_change_the_environment(make, tmp_path):
    corpus = tmp_path / "c.jsonl"
    corpus.write_text('{"id": "1", "title": "Nore", "text": "a river"}\n')
    base = create_backend(make("local", search_corpus=corpus)).fingerprint
    others = {
        "search_concurrency": 3,
        "search_timeout": 9.0,
        "search_cost": 1.0,
        "zhihu_cooldown": 1.0,
    }
    assert set(others) <= OPERATIONAL_FIELDS and "search_top_k" not in OPERATIONAL_FIELDS
    assert create_backend(make("local", search_corpus=corpus, **others)).fingerprint == base
    assert create_backend(make("local", search_corpus=corpus, search_top_k=9)).fingerprint != base


def test_each_kind_of_error_has_its_fault_and_class():
    policy = {SearchErrorKind.BAD_QUERY, SearchErrorKind.QUERY_REJECTED}
    fatal = {
        SearchErrorKind.CREDENTIAL,
        SearchErrorKind.NO_BALANCE,
        SearchErrorKind.FORBIDDEN,
        SearchErrorKind.CLOCK,
    }
    for kind in SearchErrorKind:
        expected = Fault.POLICY if kind in policy else Fault.FATAL if kind in fatal else None
        assert kind.fault is (expected or Fault.ENVIRONMENT)
        assert not (kind.transient and kind.fault is not Fault.ENVIRONMENT)
    assert classify(SearchOutage("x")) is ErrorClass.RETRYABLE
    assert classify(SearchFatalError(SearchErrorKind.CLOCK, "x")) is ErrorClass.FATAL


def test_a_fatal_error_keeps_its_kind_between_processes():
    error = pickle.loads(pickle.dumps(SearchFatalError(SearchErrorKind.NO_BALANCE, "pay")))
    assert (error.kind, str(error)) == (SearchErrorKind.NO_BALANCE, "pay")
