"""Which units a rank gets: all of them once, in order, never through a group, the same in every file."""

from hypothesis import given
from hypothesis import strategies as st

from awe_server.data.indexes import parse_part
from awe_server.scheduler.split import part_bounds, part_range, plan, uncovered
from tests.builders import World, a_job

GROUPS = st.integers(1, 300)
TOGETHER = st.integers(1, 12)


@given(groups=GROUPS, together=TOGETHER, wanted=st.integers(1, 400))
def test_parts_are_whole_groups_and_cover_every_unit_once(groups: int, together: int, wanted: int) -> None:
    units = groups * together
    n = plan(wanted, 0, "record", groups)
    bounds = [parse_part(part_range(rank, n, groups, together), units) for rank in range(1, n + 1)]
    assert [unit for first, last in bounds for unit in range(first, last + 1)] == list(range(1, units + 1))
    assert all((first - 1) % together == 0 == last % together for first, last in bounds)
    sizes = {last - first + 1 for first, last in bounds}
    assert max(sizes) - min(sizes) in (0, together)


@given(groups=st.integers(1, 10**9), together=st.integers(1, 999_999), data=st.data())
def test_any_part_of_a_huge_file_is_found_without_the_others(
    groups: int, together: int, data: st.DataObject
) -> None:
    n = data.draw(st.integers(1, min(groups, 1_000_000)))
    rank = data.draw(st.integers(1, n))
    assert uncovered(n, groups) == ""
    first, last = parse_part(part_range(rank, n, groups, together), groups * together)
    assert (first - 1, last) == (
        (part_bounds(rank, n, groups)[0] - 1) * together,
        part_bounds(rank, n, groups)[1] * together,
    )
    if rank < n:
        assert parse_part(part_range(rank + 1, n, groups, together), groups * together)[0] == last + 1


@given(
    counts=st.lists(st.integers(0, 60), min_size=1, max_size=4),
    same=st.booleans(),
    together=st.integers(1, 5),
    wanted=st.integers(2, 9),
)
def test_several_files_are_cut_at_the_same_units_or_not_at_all(
    counts: list[int], same: bool, together: int, wanted: int
) -> None:
    if same:
        counts = [counts[0]] * len(counts)
    names = [f"r{i}" for i in range(len(counts))]
    part = {"input": names[0], "options": f"records={together}"} | (
        {"inputs": names} if len(names) > 1 else {}
    )
    job = a_job().task("t", parts=wanted, partinfo=part)
    for name in names:
        job.reads(name)
    world = World()
    world.client()
    (task,) = world.submit(job).tasks
    world.prepare(task, index="record", units=max(counts[0], 1), records=counts[0], counts=tuple(counts))
    grants = world.checkout(want=99)
    if len(set(counts)) > 1 or counts[0] % together:
        assert (grants, task.is_cut) == ([], False)
        assert all(
            f"{name} has {count}" in task.notes for name, count in zip(names, counts, strict=True)
        ) or (len(set(counts)) == 1)
        return
    if len(grants) == 1:
        assert grants[0].part == ""
        return
    bounds = [parse_part(grant.part, counts[0]) for grant in grants]
    assert [u for first, last in bounds for u in range(first, last + 1)] == list(range(1, counts[0] + 1))
    assert all((first - 1) % together == 0 for first, _ in bounds)
    assert len(grants) == min(wanted, counts[0] // together)
