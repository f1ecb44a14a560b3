"""What it costs here to write so many bytes to the page cache: a part of every ingest that is not neve's."""

import os
import time

BYTES = 512 << 20
PIECE = 64 << 10


def copying(directory, record_bytes):
    """Processor seconds for the bytes of a record, as neve writes them: 64 KiB at a time."""
    piece, path = os.urandom(PIECE), directory / "floor"
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        os.posix_fallocate(file, 0, BYTES)
        began = time.process_time()
        for at in range(0, BYTES, PIECE):
            os.pwrite(file, piece, at)
        return (time.process_time() - began) * record_bytes / BYTES
    finally:
        os.close(file)
        path.unlink()
