import os
import tempfile
from pathlib import Path

import pytest

from quell._core import InputError
from quell.common import files, marks
from quell.experiments.experiment import load


def test_a_failed_write_leaves_the_old_file_and_no_part(tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    target.write_text("old")

    def fail(part: Path) -> None:
        part.write_text("half of the ne")
        raise OSError(28, "No space left on device")

    with pytest.raises(InputError, match=r"out\.json: cannot be written: No space left on device"):
        files.write_whole(target, fail)
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_text_between_marks_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Ä\n<!-- a -->\nold\n<!-- /a -->\n<!-- b -->\n<!-- /b -->\n", "utf-8")
    marks.fill(page, "a", "| new |")
    marks.fill(page, "b", "more")
    text = "# Ä\n<!-- a -->\n| new |\n<!-- /a -->\n<!-- b -->\nmore\n<!-- /b -->\n"
    assert page.read_text("utf-8") == text
    page.write_text(text + text, "utf-8")
    for name in ("a", "c"):
        with pytest.raises(ValueError, match=rf"page\.md: needs one <!-- {name} --> and one <!-- /{name} --> behind"):
            marks.fill(page, name, "x")
    assert page.read_text("utf-8") == text + text


def test_written_files_have_the_usual_permissions(tmp_path: Path) -> None:
    files.write_text(tmp_path / "a", "text")
    (tmp_path / "b").write_text("text")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


def test_a_device_is_written_and_stays_a_device() -> None:
    with pytest.raises(InputError, match="/dev/full: cannot be written: No space left on device"):
        files.write_text(Path("/dev/full"), "text")
    assert Path("/dev/full").is_char_device()


def test_a_links_target_is_replaced_not_the_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    files.write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_invalid_utf8_is_reported_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(b'name = "x"\n[link]\nrate = "15mbit" # \xff\n')
    with pytest.raises(InputError, match=r"a\.toml:3: not UTF-8 text; save the file as UTF-8"):
        load(path)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/proc/x.json", "cannot be written"),
        ("nowhere/x.json", "the folder nowhere does not exist"),
        (".", "is a folder"),
        ("x" * 300, "File name too long"),
    ],
)
def test_a_target_that_cannot_be_a_file_is_refused_before_the_run(path: str, why: str) -> None:
    with pytest.raises(InputError, match=f"^--json {path}: .*{why}"):
        files.check_target("--json", Path(path))


def test_a_good_target_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("old")
    for name in ("a.json", "b.json"):
        files.check_target("--json", tmp_path / name)
    files.check_target("--json", Path("/dev/null"))
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]
    assert (tmp_path / "a.json").read_text() == "old"


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="only Linux has files without a name")
def test_a_check_of_a_target_makes_no_file_that_a_kill_could_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def named(*_: object, **__: object) -> None:
        raise AssertionError("a file with a name")

    monkeypatch.setattr(tempfile, "mkstemp", named)
    files.check_target("--json", tmp_path / "out.json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="only root may give a file away")
def test_the_permissions_of_a_strangers_file_are_not_kept(tmp_path: Path) -> None:
    for mode in (0o666, 0o444):
        planted = tmp_path / f"{mode:o}"
        planted.write_text("planted")
        planted.chmod(mode)
        os.chown(planted, 65534, 65534)
        files.write_text(planted, "new")
        (tmp_path / "usual").write_text("")
        assert planted.stat().st_mode == (tmp_path / "usual").stat().st_mode
        assert (planted.read_text(), planted.stat().st_uid) == ("new", 0)
