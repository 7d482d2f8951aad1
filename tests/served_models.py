"""Small models for the tests of `radverl.serve`; the settings say what goes wrong."""

import os
import threading
import time


def upper(seconds=0.0, log=None):
    """Upper case. Items with a special meaning: "bad ..." raises, "hang" does not come back, "die" ends the process."""

    def run(items):
        time.sleep(seconds)
        if log is not None:
            with open(log, "a", encoding="utf-8") as file:
                file.write("".join(f"{item}\n" for item in items))
        for item in items:
            if item.startswith("bad"):
                raise RuntimeError(f"cannot read {item}")
            if item == "hang":
                threading.Event().wait()
            if item == "die":
                os._exit(1)
        return [item.upper() for item in items]

    return run


def process_id():
    """Each item with the id of the process that the model is in."""
    return lambda items: [(item, os.getpid()) for item in items]


def never():
    """A model that cannot be loaded."""
    raise FileNotFoundError("weights.tar.gz is not there")


def unsendable():
    """Results that no other process can have."""
    return lambda items: [threading.Lock() for _ in items]
