"""A file of arrays is whole or refused, aligned, and read where it lies."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lavant.broker.matching import container
from lavant.broker.storage.objects import LocalStorage
from lavant.core.errors import CorruptSnapshot

META: dict[str, Any] = {"name": "é", "list": [1, 2], "none": None}
ARRAYS: dict[str, NDArray[Any]] = {
    "bytes": np.arange(5, dtype=np.uint8),
    "doubles": np.array([[0.5, -0.0], [np.inf, np.nan]]),
    "empty": np.empty((0, 3), np.uint32),
    "flags": np.array([True, False]),
    "words": np.arange(20, dtype=np.uint64).reshape(2, 2, 5),
}
WHOLE = b"".join(container.pack(META, ARRAYS))
HEADER_END = 16 + struct.unpack_from("<8sII", WHOLE)[1]


def unpack(data: bytes, *, verify: bool = True) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    return container.unpack(memoryview(data), verify=verify)


def is_same(meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> bool:
    return (
        meta == META
        and list(arrays) == list(ARRAYS)
        and all(
            array.dtype == ARRAYS[name].dtype
            and array.shape == ARRAYS[name].shape
            and array.tobytes() == ARRAYS[name].tobytes()
            for name, array in arrays.items()
        )
    )


def test_arrays_come_back_with_their_types_and_shapes() -> None:
    assert is_same(*unpack(WHOLE))


def test_no_arrays_are_fine() -> None:
    assert unpack(b"".join(container.pack({}, {}))) == ({}, {})


def test_an_array_that_is_not_contiguous_is_written_in_order() -> None:
    strided = np.arange(12).reshape(3, 4).T[::2]
    _, arrays = unpack(b"".join(container.pack({}, {"a": strided})))
    assert arrays["a"].tolist() == strided.tolist()


def test_a_file_cut_anywhere_is_refused_and_never_read_as_something_else() -> None:
    refused = 0
    for length in range(len(WHOLE)):
        for verify in (True, False):
            try:
                assert is_same(*unpack(WHOLE[:length], verify=verify)), length
            except CorruptSnapshot:
                refused += 1
    padding = -ARRAYS["words"].nbytes % container.ALIGNMENT  # behind the last array, of which nothing is missing
    assert refused == 2 * (len(WHOLE) - padding)


def test_a_flipped_bit_anywhere_is_refused_or_hits_padding() -> None:
    harmless = 0
    for place in range(len(WHOLE)):
        damaged = bytearray(WHOLE)
        damaged[place] ^= 1 << place % 8
        try:
            assert is_same(*unpack(bytes(damaged))), place
            harmless += 1
        except CorruptSnapshot:
            pass
    assert harmless == sum(-array.nbytes % container.ALIGNMENT for array in ARRAYS.values())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the data has 0 bytes, too few for a header"),
        (WHOLE[:15], "the data has 15 bytes, too few for a header"),
        (
            b"LAVANT2\n" + WHOLE[8:],
            "has format 2, this version of Lavant reads up to format 1; use the version",
        ),
        (WHOLE[: HEADER_END - 1], "has a damaged header"),
        (WHOLE[:20] + b"?" + WHOLE[21:], "has a damaged header"),
        (WHOLE[: HEADER_END + 4], f"is cut short: bytes ends at byte {HEADER_END + 5}, the file at {HEADER_END + 4}"),
        (WHOLE[:HEADER_END] + b"?" + WHOLE[HEADER_END + 1 :], "is damaged: the checksum of bytes differs"),
    ],
)
def test_damage_is_told_with_its_place(data: bytes, message: str) -> None:
    with pytest.raises(CorruptSnapshot, match=message):
        unpack(data)


@pytest.mark.parametrize("header", [b"{}", b"[]", b"not JSON", b'{"meta": {}, "entries": [{"name": 1}]}'])
def test_a_header_of_another_make_is_refused(header: bytes) -> None:
    data = struct.pack("<8sII", container.MAGIC, len(header), zlib.crc32(header)) + header
    with pytest.raises(CorruptSnapshot, match="another format or version"):
        unpack(data)


def test_a_written_file_is_mapped_read_only_and_aligned(tmp_path: Path) -> None:
    path = tmp_path / "file"
    container.write(LocalStorage(tmp_path), "file", META, ARRAYS)
    assert path.read_bytes() == WHOLE
    meta, arrays = container.map_file(path, verify=True)
    assert is_same(meta, arrays)
    for array in arrays.values():
        assert not array.flags.writeable
        assert not array.flags.owndata
        assert not array.size or array.ctypes.data % container.ALIGNMENT == 0
    with pytest.raises(ValueError, match="read-only"):
        arrays["bytes"][0] = 1


def test_a_mapped_file_outlives_its_name(tmp_path: Path) -> None:
    path = tmp_path / "file"
    container.write(LocalStorage(tmp_path), "file", META, ARRAYS)
    opened = container.map_file(path)
    container.write(LocalStorage(tmp_path), "file", {}, {})
    path.unlink()
    assert is_same(*opened)


@pytest.mark.parametrize("length", [0, 8, 15])
def test_a_file_too_short_to_map_is_refused(tmp_path: Path, length: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(WHOLE[:length])
    with pytest.raises(CorruptSnapshot, match="file is cut short; restore it from a copy or take a new snapshot"):
        container.map_file(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorruptSnapshot, match="is missing; restore it from a copy or take a new snapshot"):
        container.map_file(tmp_path / "file")


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    container.write(LocalStorage(tmp_path), "file", META, ARRAYS)

    def disk_full(descriptor: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("os.fsync", disk_full)
    with pytest.raises(OSError, match="no space"):
        container.write(LocalStorage(tmp_path), "file", {}, {})
    assert is_same(*container.map_file(path, verify=True))
