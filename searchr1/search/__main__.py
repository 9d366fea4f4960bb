"""Try a search back end from the shell, and move recordings.

python -m searchr1.search "who wrote Frankenstein" --backend wikipedia
python -m searchr1.search --check --backend deepseek
python -m searchr1.search --export answers.jsonl.gz --backend deepseek
python -m searchr1.search --import answers.jsonl.gz
"""

import argparse
import asyncio
import json
import sys
from pathlib import Path

from pydantic import ValidationError

from searchr1.errors import SearchR1Error, SettingsError
from searchr1.search.base import Fault, SearchResult
from searchr1.search.check import check
from searchr1.search.environment import SearchEnvironment
from searchr1.search.factory import create_backend, store_path
from searchr1.search.observation import neutralise, render_items
from searchr1.search.settings import CacheMode, SearchSettings
from searchr1.search.store import AnswerStore, canonical


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        settings = _settings(options)
        if options.import_file:
            return _import(settings, options.import_file)
        if options.export:
            return _export(settings, options.export)
        if options.check:
            return asyncio.run(_check(settings))
        if not options.queries:
            parser.error("give a query, or --check, --export or --import")
        return asyncio.run(_search(settings, options.queries))
    except SearchR1Error as error:
        print(error, file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m searchr1.search",
        description="Try a search back end: what the policy would read, its cost and latency.",
    )
    parser.add_argument("queries", nargs="*", metavar="QUERY", help="What to search for.")
    parser.add_argument(
        "--check", action="store_true", help="Test key, reachability and clock with one search."
    )
    parser.add_argument(
        "--export", type=Path, metavar="FILE", help="Write this environment's kept answers."
    )
    parser.add_argument(
        "--import", type=Path, metavar="FILE", dest="import_file", help="Add exported answers."
    )
    group = parser.add_argument_group("settings")
    for name, field in SearchSettings.model_fields.items():
        flags = [f"--{name.replace('_', '-')}"]
        if name == "search_backend":
            flags.append("--backend")
        group.add_argument(*flags, dest=name, metavar="VALUE", help=field.description)
    return parser


def _settings(options: argparse.Namespace) -> SearchSettings:
    names = SearchSettings.model_fields
    given = {name: value for name in names if (value := getattr(options, name)) is not None}
    if "deepseek_evidence" in given:
        given["deepseek_evidence"] = given["deepseek_evidence"].split(",")
    try:
        return SearchSettings.model_validate(given)
    except ValidationError as error:
        lines = (
            f"--{str(problem['loc'][0]).replace('_', '-')}: {problem['msg']}"
            for problem in error.errors()
        )
        raise SettingsError("\n".join(lines)) from None


async def _search(settings: SearchSettings, queries: list[str]) -> int:
    async with create_backend(settings) as backend:
        results = [await backend.search(query) for query in queries]
        for query, result in zip(queries, results, strict=True):
            print(f"{query}\n{_shown(result)}\n")
        statistics = backend.take_statistics()
    print(
        f"{backend.name}: {len(results)} searches, {statistics.cache_hits} from the cache, "
        f"{sum(result.seconds for result in results):.2f} s, USD {statistics.cost:.5f}"
    )
    return 0 if all(result.ok for result in results) else 1


def _shown(result: SearchResult) -> str:
    if result.error is None:
        return "\n".join(render_items(result.items))
    whose = "the policy reads" if result.error.fault is Fault.POLICY else "the trajectory ends"
    return neutralise(f"({result.error}; {whose}) {result.message}")


async def _check(settings: SearchSettings) -> int:
    findings = await check(settings)
    for finding in findings:
        print(f"{'ok   ' if finding.fine else 'WRONG'}  {finding.subject}: {finding.text}")
    return 0 if all(finding.fine for finding in findings) else 1


def _export(settings: SearchSettings, path: Path) -> int:
    replay = settings.model_copy(update={"search_cache": CacheMode.REPLAY})
    backend: SearchEnvironment = create_backend(replay)  # needs no key, and asks for a recording
    store = AnswerStore(store_path(settings))
    count = store.export(canonical(backend.fingerprint), path)
    store.close()
    print(f"{count:,} answers of {json.dumps(backend.fingerprint)} are in {path}.")
    return 0


def _import(settings: SearchSettings, path: Path) -> int:
    store = AnswerStore(store_path(settings))
    count = store.import_file(path)
    store.close()
    print(f"{count:,} answers are now in {store.path}; search_cache=replay uses them alone.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
