"""The plugin by itself; `test_serve.py` has the exact command against a real server."""

import logging
import sys
import tomllib

import prefect
import pytest
from packaging.requirements import Requirement
from prefect.client.orchestration import PrefectClient, SyncPrefectClient
from prefect.plugins import HookContext

from deployments import bare_names
from tests.deployments.conftest import ROOT


@pytest.mark.parametrize(
    ("typed", "looked_up"),
    [
        ("train-search-r1", "train-search-r1/train-search-r1"),
        ("train/nightly", "train/nightly"),
        ("train/", "train/"),
        ("a/b/c", "a/b/c"),
    ],
)
def test_only_a_name_without_a_slash_is_completed(typed, looked_up):
    assert bare_names.full_name(typed) == looked_up


def test_the_installed_prefect_is_of_the_range_that_the_project_asks_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (asked,) = [r for r in map(Requirement, project["dependencies"]) if r.name == "prefect"]
    assert asked.specifier.contains(prefect.__version__)
    assert {one.operator for one in asked.specifier} >= {">=", "<"}  # the plugin knows no others


@pytest.mark.parametrize("client", [PrefectClient, SyncPrefectClient])
def test_the_installed_prefect_looks_deployments_up_as_the_plugin_knows_it(client):
    own = type("Own", (client,), {})
    assert bare_names.accept_bare_names(own)
    assert "read_deployment_by_name" in vars(own)


def test_a_client_without_the_method_is_left_untouched():
    class Client:
        pass

    assert not bare_names.accept_bare_names(Client)
    assert not hasattr(Client, "read_deployment_by_name")
    assert not bare_names.accept_bare_names(None)


def test_a_method_with_other_arguments_is_left_untouched():
    class Client:
        def read_deployment_by_name(self, flow, deployment):
            return flow, deployment

    before = Client.read_deployment_by_name
    assert not bare_names.accept_bare_names(Client)
    assert Client.read_deployment_by_name is before


def test_a_changed_prefect_gives_a_warning_that_says_what_to_type(monkeypatch, caplog):
    for name in bare_names.CLIENTS:
        monkeypatch.setattr(f"prefect.client.orchestration.{name}", type(name, (), {}))
    context = HookContext("9.9.9", None, logging.getLogger)
    with caplog.at_level(logging.WARNING, "searchr1.bare_names"):
        bare_names.setup_environment(ctx=context)
    assert "9.9.9" in caplog.text
    assert "prefect deployment run train-search-r1/train-search-r1" in caplog.text


def test_a_prefect_without_that_module_gives_the_warning_too(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "prefect.client.orchestration", None)
    with caplog.at_level(logging.WARNING, "searchr1.bare_names"):
        bare_names.setup_environment(ctx=HookContext("9.9.9", None, logging.getLogger))
    assert "Type the name in full" in caplog.text
