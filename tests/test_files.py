"""Files are whole or absent."""

import os

import pytest

from searchr1.files import DiskFull, disk_errors, replacing, sha256_file, write_text


def test_a_failed_write_leaves_the_old_file_and_nothing_beside_it(tmp_path):
    file = tmp_path / "a.json"
    write_text(file, "old")
    with pytest.raises(ZeroDivisionError), replacing(file) as temporary:
        temporary.write_text("half")
        raise ZeroDivisionError
    assert file.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_full_disk_says_what_to_do(tmp_path):
    with pytest.raises(DiskFull, match="same command"), disk_errors(tmp_path / "x"):
        raise OSError(28, "No space left on device")
    with pytest.raises(PermissionError), disk_errors(tmp_path / "x"):
        raise PermissionError(13, "denied")


def test_checksums_are_of_the_bytes(tmp_path):
    write_text(tmp_path / "a", "abc")
    assert sha256_file(tmp_path / "a").startswith("ba7816bf8f01cfea")
