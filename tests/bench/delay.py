"""Forward FIRST_PORT+n to host n of the fleet, with a delay in each direction."""

from __future__ import annotations

import asyncio
import sys

from bench.machines import FIRST_PORT as FLEET_PORT

FIRST_PORT = 25000
CHUNK = 1 << 16


async def main(count: int, one_way_s: float) -> None:
    async def serve(
        number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        host_reader, host_writer = await asyncio.open_connection("127.0.0.1", FLEET_PORT + number)
        await asyncio.gather(
            _forward(reader, host_writer, one_way_s), _forward(host_reader, writer, one_way_s)
        )

    for number in range(1, count + 1):
        await asyncio.start_server(
            lambda reader, writer, number=number: serve(number, reader, writer),
            "127.0.0.1", FIRST_PORT + number,
        )  # fmt: skip
    print("ready", flush=True)
    await asyncio.Event().wait()


async def _forward(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, one_way_s: float
) -> None:
    """Deliver each piece `one_way_s` after it was received, in order."""
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def deliver() -> None:
        while True:
            due, piece = await pieces.get()
            await asyncio.sleep(due - loop.time())
            if not piece:
                break
            writer.write(piece)
            await writer.drain()
        writer.close()

    delivery = asyncio.create_task(deliver())
    try:
        while piece := await reader.read(CHUNK):
            pieces.put_nowait((loop.time() + one_way_s, piece))
    except ConnectionError:
        pass
    pieces.put_nowait((loop.time() + one_way_s, b""))
    await asyncio.gather(delivery, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2])))
