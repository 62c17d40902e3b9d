"""Reading a Wikidata dump into a knowledge base: MB/s of unpacked JSON, time of a full dump.

    python benchmarks/bench_dump.py --items 20000 --workers 2

The dump is made by seed, as bulky as real items are: 20 KB each, labels in twenty languages,
references and external ids that are read and not taken. Packed with bzip2, as Wikidata's are.
"""

import argparse
import bz2
import json
import random
import resource
import string
import tempfile
import time
from pathlib import Path
from typing import Any

from factsweep.pipeline.building.knowledge_base import build_from_dump

FULL_TB = 1.6  # unpacked, of a dump of 2024: 110 million items
LANGUAGES = [
    "en",
    "de",
    "fr",
    "es",
    "ru",
    "zh",
    "ja",
    "it",
    "nl",
    "pl",
    "sv",
    "pt",
    "ar",
    "cs",
    "uk",
    "fa",
    "ca",
    "fi",
    "nb",
    "hu",
]


def item(number: int, rng: random.Random) -> dict[str, Any]:
    """An item with sixteen statements; nine have an item as their value."""

    def word(n: int) -> str:
        return "".join(rng.choices(string.ascii_lowercase, k=n))

    def value(target: int) -> dict[str, Any]:
        entity = {"entity-type": "item", "numeric-id": target, "id": f"Q{target}"}
        data = {"value": entity, "type": "wikibase-entityid"}
        return {"snaktype": "value", "hash": word(40), "datavalue": data}

    def moment() -> dict[str, Any]:
        time_value = {"time": "+2001-01-01T00:00:00Z", "precision": 11, "timezone": 0}
        return {
            "snaktype": "value",
            "hash": word(40),
            "datavalue": {"value": time_value, "type": "time"},
        }

    def external() -> dict[str, Any]:
        return {"snaktype": "value", "datavalue": {"value": word(12), "type": "string"}}

    def statement(snak: dict[str, Any]) -> dict[str, Any]:
        snaks = {"P248": [value(36578)], "P813": [moment()]}
        claim = {"mainsnak": snak, "rank": "normal", "id": f"Q{number}${word(36)}"}
        spans = {"qualifiers": {"P580": [moment()]}} if rng.random() < 0.2 else {}
        return claim | spans | {"references": [{"hash": word(40), "snaks": snaks}]}

    claims = {f"P{p}": [statement(value(rng.randrange(10**6)))] for p in rng.sample(range(2000), 9)}
    identifiers = {f"P{p}": [statement(external())] for p in rng.sample(range(2000, 4000), 7)}
    return {
        "type": "item",
        "id": f"Q{number}",
        "labels": {language: {"language": language, "value": word(14)} for language in LANGUAGES},
        "descriptions": {
            language: {"language": language, "value": word(30)} for language in LANGUAGES
        },
        "aliases": {"en": [{"language": "en", "value": word(10)}]},
        "claims": claims | identifiers,
        "sitelinks": {f"{language}wiki": {"title": word(14)} for language in LANGUAGES[:5]},
    }


def _cpu_s() -> float:
    """CPU seconds of this process and its finished children."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def main() -> None:
    """Print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    rng, n_bytes = random.Random(0), 0
    with tempfile.TemporaryDirectory() as folder:
        dump = Path(folder, "dump.json.bz2")
        with bz2.open(dump, "wb", compresslevel=1) as file:
            file.write(b"[\n")
            for number in range(args.items):
                n_bytes += file.write(json.dumps(item(number, rng)).encode() + b",\n")
            file.write(b"]\n")
        began, cpu = time.perf_counter(), _cpu_s()
        lines = build_from_dump(
            dump,
            Path(folder, "out"),
            languages=["en", "mul"],
            lines_per_part=1_000,
            workers=args.workers,
        )
        messages = list(lines)
        seconds, cpu = time.perf_counter() - began, _cpu_s() - cpu
    rate = n_bytes / 1e6 / seconds
    hours = FULL_TB * 1e6 / rate / 3600
    out = {"items": args.items, "workers": args.workers, "mb": round(n_bytes / 1e6)}
    out |= {"mb_per_s": round(rate, 1), "hours_for_a_full_dump": round(hours, 1)}
    out["mb_per_cpu_s"] = round(n_bytes / 1e6 / cpu, 1)
    print(json.dumps(out | {"made": messages[0].partition(": ")[2]}))


if __name__ == "__main__":
    main()
