"""A slow origin on loopback: the two calls of S3 that reading needs, over a folder, throttled.

    python3 -m demo.origin FOLDER RATE_BYTES_PER_S LATENCY_S

Both loaders of the demo read from this one process, so both meet the same limits and the same
count: all bodies pass through one pipe of the given rate, and no answer comes sooner than the
latency. It prints its port, and serves until its standard input ends. GET /counts says what it
delivered.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

BUCKET = "demo"
# Unused time the pipe gives back: it forgives a late timer and is too little for a burst.
_CREDIT_S = 0.005


class Origin:
    def __init__(self, root: Path, rate: float, latency: float) -> None:
        self._files = {
            str(path.relative_to(root)): path.read_bytes()
            for path in sorted(root.rglob("*")) if path.is_file()
        }
        self._rate = rate
        self._latency = latency
        self._free = 0.0  # when the pipe is next free
        self.counts = {"requests": 0, "bytes": 0}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, request after request."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
                status, body, etag = await self._answer(urlsplit(target))
                writer.write(
                    f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nETag: \"{etag}\"\r\n"
                    "\r\n".encode()
                )
                if method != "HEAD":
                    writer.write(body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has gone
        finally:
            writer.close()

    async def _answer(self, target: object) -> tuple[str, bytes, str]:
        path, query = unquote(target.path), parse_qs(target.query)  # type: ignore[attr-defined]
        if path == "/counts":
            return "200 OK", json.dumps(self.counts).encode(), ""
        if "list-type" in query:
            return "200 OK", self._list(query.get("prefix", [""])[0], "delimiter" in query), ""
        body = self._files.get(path.removeprefix(f"/{BUCKET}/"))
        if body is None:
            return "404 Not Found", b"", ""
        await self._throttle(len(body))
        self.counts["requests"] += 1
        self.counts["bytes"] += len(body)
        return "200 OK", body, str(len(body))

    async def _throttle(self, size: int) -> None:
        now = asyncio.get_running_loop().time()
        self._free = max(self._free, now - _CREDIT_S) + size / self._rate
        await asyncio.sleep(max(self._free, now + self._latency) - now)

    def _list(self, prefix: str, by_folder: bool) -> bytes:
        """ListObjectsV2, all on one page."""
        objects, folders = [], set()
        for name, body in self._files.items():
            if not name.startswith(prefix):
                continue
            head, slash, _ = name[len(prefix):].partition("/")
            if by_folder and slash:
                folders.add(prefix + head + slash)
            else:
                objects.append((name, len(body)))
        rows = [
            f"<Contents><Key>{escape(quote(name))}</Key><Size>{size}</Size>"
            f"<ETag>\"{size}\"</ETag></Contents>"
            for name, size in objects
        ] + [
            f"<CommonPrefixes><Prefix>{escape(quote(folder))}</Prefix></CommonPrefixes>"
            for folder in sorted(folders)
        ]
        return (
            "<?xml version=\"1.0\"?><ListBucketResult><EncodingType>url</EncodingType>"
            f"<IsTruncated>false</IsTruncated>{''.join(rows)}</ListBucketResult>"
        ).encode()


class SlowOrigin:
    """An origin in a process of its own, and what it says of itself."""

    def __init__(self, files: Path, rate: float, latency: float) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "demo.origin", str(files), str(rate), str(latency)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        assert self._process.stdout is not None
        self._host = f"127.0.0.1:{self._process.stdout.readline().strip()}"
        self.http = f"http://{self._host}/{BUCKET}"
        self.s3 = f"s3://{BUCKET}?endpoint=http://{self._host}&anonymous=true"

    def bytes(self) -> int:
        """What it has delivered, by its own count."""
        with urllib.request.urlopen(f"http://{self._host}/counts") as answer:
            return int(json.load(answer)["bytes"])

    def __enter__(self) -> SlowOrigin:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.communicate()


async def main(folder: str, rate: str, latency: str) -> None:
    origin = Origin(Path(folder), float(rate), float(latency))
    server = await asyncio.start_server(origin.serve, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), ended.set)
    async with server:
        await ended.wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
