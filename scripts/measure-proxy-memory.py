#!/usr/bin/env python3
"""Resident memory of `crumb proxy` for each idle client connection, waiting request and idle connection to an origin.

    scripts/measure-proxy-memory.py [CONNECTIONS]     default: 4000

Each kind has a proxy of its own, in front of an origin in this program, all on 127.0.0.1. Memory (VmRSS) is read before and after the
connections are there; the difference is divided by their number. CRUMB=PROGRAM takes a program that is built already.
"""

import asyncio
import os
import pathlib
import resource
import subprocess
import sys
import tempfile

CRUMB = os.environ.get("CRUMB", "target/release/crumb")
REPLY = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncache-control: no-store\r\n\r\nhello"


class Origin:
    """Answers every request with the same short reply, once `go` is set."""

    def __init__(self):
        self.go = asyncio.Event()
        self.waiting = 0

    async def serve(self, reader, writer):
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                self.waiting += 1
                await self.go.wait()
                self.waiting -= 1
                writer.write(REPLY)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            # The other side is gone, or the measurement is over.
            writer.close()


class Proxy:
    """A proxy that runs, with its address."""

    def __init__(self, directory, origin):
        listen = ["proxy", "--cache", f"{directory}/cache", "--size-mib", "64", "--listen", "127.0.0.1:0"]
        keys = ["limits.idle_s=600", "upstream.idle_s=600", "upstream.idle_per_origin=20000", "upstream.idle_in_all=20000"]
        sets = [word for key in keys for word in ("--set", key)]
        command = [CRUMB, "--quiet", *listen, "--origin", f"http://127.0.0.1:{origin}", *sets]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        self.port = int(line.rsplit(":", 1)[1].split()[0].rstrip("/,."))

    def resident(self):
        """Bytes."""
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return 1024 * int(text.split("VmRSS:")[1].split()[0])

    def stop(self):
        self.process.terminate()
        self.process.wait()


async def ask(port):
    """A connection with one request sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /a HTTP/1.1\r\nhost: site\r\n\r\n")
    await writer.drain()
    return reader, writer


async def answered(reader):
    await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(5)


async def settled(proxy):
    # The allocator gives memory back within ten seconds.
    await asyncio.sleep(12)
    return proxy.resident()


async def measure(kind, number):
    with tempfile.TemporaryDirectory() as directory:
        origin = Origin()
        server = await asyncio.start_server(origin.serve, "127.0.0.1", 0, backlog=4096)
        proxy = Proxy(directory, server.sockets[0].getsockname()[1])
        try:
            before = await settled(proxy)
            if kind == "idle client connection":
                origin.go.set()
                held = []
                for _ in range(number):
                    held.append(await ask(proxy.port))
                    await answered(held[-1][0])
                after = await settled(proxy)
            else:
                held = [await ask(proxy.port) for _ in range(number)]
                while origin.waiting < number:
                    await asyncio.sleep(0.1)
                after = await settled(proxy)
                if kind == "idle connection to an origin":
                    origin.go.set()
                    for reader, writer in held:
                        await answered(reader)
                        writer.close()
                    after = await settled(proxy)
            each = (after - before) / number
            print(f"{kind}: {number}, {before} to {after} bytes resident, {each / 1000:.1f} kB each", flush=True)
        finally:
            proxy.stop()
            server.close()


def main():
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    for kind in ("idle client connection", "request that waits for an origin", "idle connection to an origin"):
        asyncio.run(measure(kind, number))


main()
