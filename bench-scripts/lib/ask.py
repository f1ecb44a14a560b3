"""The one way in which scripts put load on a server: a row of answers that are none is void, whoever asks."""

import contextlib

from . import load, rig


class Void(SystemExit):
    """A row counts for nothing. Who does not catch it ends with the reason."""


def ask(folder, about, generator, server, question, compare=True, **how):
    """A row of load, kept in the folder with what it is about; raises Void if it counts for nothing."""
    row = loaded(generator, server, question, compare, how)
    row |= {"row": question.row.name, "void": why_void(row, server, question)}
    folder.add(**about, **row)
    if row["void"]:
        raise Void(f"{server.name}: {row['void']}")
    return row


def loaded(generator, server, question, compare, how):
    """The floor has one answer after the other, whatever it is asked: there is nothing to compare."""
    compare = compare and server.name != "floor"
    with rig.Comparer(question, server) if compare else contextlib.nullcontext() as comparer:
        row = generator(server, question.file, headers=question.row.headers, **how)
    compared = comparer.compared if comparer else 0
    row |= {"compared": compared, "mismatch": comparer and comparer.found, "cpu_us": None}
    if row["cpu_s"] is not None:
        row["cpu_us"] = row["cpu_s"] / max(row["requests"] + compared, 1) * 1e6
    return row


def why_void(row, server, question):
    """Without a comparison meanwhile, answers are compared now."""
    found = row["mismatch"] or load.void(row, question.bytes_mean * rig.BYTES_SHARE)
    late = not row["compared"] and server.name != "floor"
    return found or (question.mismatch(server) if late else None)
