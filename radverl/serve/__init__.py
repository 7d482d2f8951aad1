"""Feature models (annotators, encoders, labellers) for many callers: one queue, and under Ray one copy a node.

    client = shared("package.module:factory", {"checkpoint": ...}, timeout=60.0)
    results = client.ask(items)                  # or: await client.ask_async(items)

The factory is called once, as `factory(**settings)`, where the model is to live, and returns `run(items) -> results`.
All clients of the same factory and settings share that model: those of a process, and under Ray those of all workers on
the node. A call without an answer raises `ModelFailure`, whose `cause` the rewards count.
"""

from radverl.serve.client import Client, shared
from radverl.serve.failure import ModelFailure

__all__ = ["Client", "ModelFailure", "shared"]
