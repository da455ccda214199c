"""File names from outside stay below the work directory, and honest sub-directories are let through."""

import pytest

from shared_models.errors import InvalidDocument
from shared_models.paths import check_relative_path, normal_relative_path
from tests.unit.shared_models.samples import parse_task

BAD = {
    "../../x": "'..'",
    "/etc/x": "absolute",
    "a/../../x": "'..'",
    "..": "'..'",
    "a/..": "'..'",
    "out/": "directory",
    "a/.": "directory",
    ".": "directory",
    "a//b": "empty part",
    "a\0b": "control",
    "a\nb": "control",
    "a\u2028b": "control",
    "~": "home",
    "~/x": "home",
    "C:\\x": "drive",
    "c:/x": "drive",
    "": "empty",
    "x" * 300: "255 bytes",
    "ü" * 128: "255 bytes",
    "d/" * 600 + "x": "1024 bytes",
    "half \ud800": "Unicode",
}
GOOD = [
    "sub/dir/ok.txt",
    "./ok",
    "a b.txt",
    "ü.fna",
    "..a",
    "a..b",
    "...",
    "x" * 255,
    "%2e%2e%2f",
    "~file",
    "C:x",
]


@pytest.mark.parametrize("name", BAD)
def test_F_08_bad_name_is_refused_with_a_reason(name: str) -> None:
    assert BAD[name] in (check_relative_path(name) or "")


@pytest.mark.parametrize("name", GOOD)
def test_F_08_good_name_passes(name: str) -> None:
    assert check_relative_path(name) is None


def test_longest_path_is_1024_bytes() -> None:
    assert check_relative_path("d/" * 511 + "xx") is None
    assert check_relative_path("d/" * 511 + "xxx") is not None


@pytest.mark.parametrize(
    ("name", "normal"), [("./ok", "ok"), ("a/./b", "a/b"), ("a.b", "a.b"), (".hidden/x", ".hidden/x")]
)
def test_dot_parts_are_left_out(name: str, normal: str) -> None:
    assert normal_relative_path(name) == normal


@pytest.mark.parametrize(
    ("name", "key"),
    [
        (name, key)
        for name in BAD
        for key in ("filename", "shockfilename", "attrfile")
        if name and "\ud800" not in name and (key, name) != ("filename", "out/")  # that is a whole folder
    ],
)
def test_F_08_a_document_may_not_name_such_a_file(name: str, key: str) -> None:
    with pytest.raises(InvalidDocument, match=rf"^tasks\[0\]\.outputs\[0\]\.{key}: "):
        parse_task(outputs=[{"filename": "f", key: name}])


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("key", ["inputs", "outputs", "predata"])
def test_F_08_a_document_may_name_such_a_file(name: str, key: str) -> None:
    task = parse_task(**{key: {name: {} if key == "outputs" else {"url": "http://h/x"}}})
    assert getattr(task, key)[0].filename == normal_relative_path(name)


@pytest.mark.parametrize("key", ["stdout", "stderr"])
def test_F_08_log_files_are_checked_too(key: str) -> None:
    with pytest.raises(InvalidDocument, match=rf"^tasks\[0\]\.cmd\.{key}: .*absolute"):
        parse_task(cmd={"name": "x", key: "/etc/passwd"})


def test_a_directory_may_end_in_a_slash_but_not_lead_out() -> None:
    assert parse_task(outputs=[{"filename": "f", "directory": "./out/"}]).outputs[0].directory == "out"
    for bad in ("/", "../out", "out/../.."):
        with pytest.raises(InvalidDocument, match=r"directory: "):
            parse_task(outputs=[{"filename": "f", "directory": bad}])
