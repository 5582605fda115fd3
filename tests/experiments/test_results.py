"""A study's run folder: what is written is whole, a study that left no result leaves no folder."""

import errno
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from experiments.results import Results
from experiments.study_settings import StudySettings


def test_a_figure_is_written_whole_or_not_at_all(tmp_path):
    class Full(Figure):
        def savefig(self, fname, **options):
            fname.write(b"half of it")
            raise OSError(errno.ENOSPC, "No space left on device")

    results = Results.begin(tmp_path / "run", StudySettings(kind="efficiency"))
    with pytest.raises(OSError, match="No space"), results:
        results.figure("one", Full())
    assert not (tmp_path / "run").exists()
    results = Results.begin(tmp_path / "run", StudySettings(kind="efficiency"))
    results.figure("one", Figure())
    assert sorted(path.name for path in (tmp_path / "run" / "figures").iterdir()) == ["one.png", "one.svg"]


def test_a_table_that_cannot_be_written_leaves_nothing(tmp_path, monkeypatch):
    def full(path, content):
        path.touch()
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    results = Results.begin(tmp_path / "run", StudySettings(kind="efficiency"))
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space"), results:
        results.table([{"a": 1}])
    assert not (tmp_path / "run").exists()


def test_what_went_wrong_is_told_where_the_folder_is_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(ZeroDivisionError), Results.begin(tmp_path / "link", StudySettings(kind="efficiency")):
        raise ZeroDivisionError
    assert not list((tmp_path / "real").iterdir())
