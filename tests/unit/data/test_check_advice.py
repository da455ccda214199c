"""What `awe-server check` says at the end about files that nothing is lost with."""

from awe_server.data.check import Kind, Problem, Report, advice


def report(*kinds: Kind, removed: bool = False) -> Report:
    return Report(problems=[Problem(kind, "aa/bb", "", "", removed) for kind in kinds])


def test_files_that_nobody_needs_are_summed_up_with_what_to_do() -> None:
    found = report("orphan_blob", "orphan_index", "orphan_parts", "temporary", "damaged_index")
    assert list(advice(found)) == [
        "4 files and folders that no document names are of no use: --repair removes them",
        "1 damaged indexes are made again when they are needed: --repair removes them",
    ]


def test_nothing_is_said_of_what_was_removed_or_is_none_of_these() -> None:
    assert list(advice(report("orphan_blob", "damaged_index", removed=True))) == []
    assert list(advice(report("damaged_part", "needed_orphan"))) == []
