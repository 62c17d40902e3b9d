"""The verb `why`: what two artifacts differ in."""

import argparse


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb to the command line."""
    why = verbs.add_parser("why", help="name the fields in which two artifacts differ")
    why.add_argument("artifacts", nargs=2, help="a fingerprint, or the start of one")
    why.add_argument(
        "--store", default="artifacts", help="the folder of artifacts; default artifacts"
    )
    why.set_defaults(run=_why)


def _why(asked: argparse.Namespace) -> int:
    from pipeline.storage.lookup import find
    from pipeline.storage.recipe import differences
    from pipeline.storage.store import Store

    store = Store(asked.store)
    (left, a), (right, b) = (find(store, prefix) for prefix in asked.artifacts)
    found = list(differences(a, b))
    print(f"{left} → {right}")
    print("\n".join(f"  {line}" for line in found) if found else "  the same recipe")
    return 0
