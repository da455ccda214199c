"""Unpack gzip as it arrives, in flat memory."""

import zlib
from collections.abc import Iterator

from awe_client.sdk.bodies import CHUNK_BYTES
from awe_client.sdk.download_errors import DownloadCorrupt


class Gunzip:
    """Unpacks a gzip stream of one or more members."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(wbits=31)
        self._fed = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the unpacked bytes in bounded pieces: a small file may unpack to a huge one."""
        while data:
            self._fed = True
            if self._member.eof:
                data = data.lstrip(b"\0")  # padding after the last member is legal
                if not data:
                    return
                self._member = zlib.decompressobj(wbits=31)
            try:
                yield self._member.decompress(data, CHUNK_BYTES)
            except zlib.error as exc:
                raise DownloadCorrupt(f"not a valid gzip file: {exc}") from exc
            data = self._member.unused_data if self._member.eof else self._member.unconsumed_tail

    def check_whole(self) -> None:
        """Raise DownloadCorrupt if the last member has not ended."""
        if not (self._fed and self._member.eof):
            raise DownloadCorrupt("the gzip file ends in the middle")
