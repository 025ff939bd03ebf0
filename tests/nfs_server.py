# SPDX-License-Identifier: GPL-2.0
"""A small NFS server, for tests of programs that speak NFS: v3 with rpcbind and mountd, and v4.1, in memory.

It counts what it is sent, and can be told to misbehave.
"""

import contextlib
import socket
import struct
import threading
import time

ROOT = b"root-handle"


def u32(*numbers):
    return struct.pack(f">{len(numbers)}I", *numbers)


def u64(number):
    return struct.pack(">Q", number)


def opaque(data):
    return u32(len(data)) + data + bytes(-len(data) % 4)


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def fixed(self, size):
        self.at += size + -size % 4
        return self.data[self.at - size - -size % 4 :][:size]

    def u32(self):
        return int.from_bytes(self.fixed(4), "big")

    def u64(self):
        return int.from_bytes(self.fixed(8), "big")

    def opaque(self):
        return self.fixed(self.u32())


class Server:
    """One export, /export, with files in memory. `port` serves all programs."""

    def __init__(self, **knobs):
        # {operation: status that it fails with}
        self.fails = {}
        # How many calls of NFS are served before it misbehaves, and how: "mute", "close", "garbage" or "gone".
        self.after, self.then = 0, ""
        # One thread serves all READs, and each takes so long.
        self.service = 0.0
        # What of a request the files keep.
        self.kept = 1.0
        self.flavors = [1]
        self.slots = 1024
        self.__dict__.update(knobs)
        self.files = {"big": bytearray(16 << 20)}
        self.calls, self.times, self.mounts, self.sessions, self.clients = [], [], 0, set(), set()
        self.known = self.opens = 0
        self.lock, self.disk, self.open = threading.Lock(), threading.Lock(), []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.listen, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.hang_up()

    def hang_up(self):
        for one in self.open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def listen(self):
        with contextlib.suppress(OSError):
            while True:
                one, _ = self.listener.accept()
                self.open.append(one)
                threading.Thread(target=self.serve, args=(one,), daemon=True).start()

    def serve(self, one):
        with one, contextlib.suppress(OSError), one.makefile("rb") as stream:
            while mark := stream.read(4):
                call = Reader(stream.read(int.from_bytes(mark, "big") & 0x7FFFFFFF))
                xid = call.u32()
                call.fixed(8)
                program, version, procedure = call.u32(), call.u32(), call.u32()
                for _ in range(2):
                    call.u32()
                    call.opaque()
                body = self.answer(program, version, procedure, call)
                if program == 100003 and self.after and len(self.calls) >= self.after:
                    if self.then == "mute":
                        continue
                    if self.then == "garbage":
                        one.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                        continue
                    if self.then == "gone":
                        self.close()
                    return
                reply = u32(xid, 1, 0, 0, 0) + body
                one.sendall(u32(0x80000000 | len(reply)) + reply)

    def answer(self, program, version, procedure, call):
        if program == 100000:
            return u32(0, self.port)
        if program == 100005:
            if procedure == 3:
                self.mounts -= 1
                return u32(0)
            if call.opaque() != b"/export":
                return u32(0, 2)
            self.mounts += 1
            return u32(0, 0) + opaque(ROOT) + u32(len(self.flavors), *self.flavors)
        with self.lock:
            self.times.append(time.monotonic_ns())
        if version == 3:
            return u32(0) + self.v3(procedure, call)
        return u32(0) + self.v4(call)

    def note(self, operation):
        with self.lock:
            self.calls.append(operation)
        return self.fails.get(operation, 0)

    def named(self, directory, name):
        return b"file:" + name if directory == ROOT and name.decode(errors="replace") in self.files else None

    def data(self, handle):
        return self.files.get(handle.removeprefix(b"file:").decode()) if handle.startswith(b"file:") else None

    def read(self, handle, offset, count):
        if self.service:
            with self.disk:
                time.sleep(self.service)
        return bytes(self.data(handle)[offset : offset + count])

    def write(self, handle, offset, data):
        kept, file = data[: int(len(data) * self.kept)], self.data(handle)
        if len(file) < offset + len(kept):
            file.extend(bytes(offset + len(kept) - len(file)))
        file[offset : offset + len(kept)] = kept

    def v3(self, procedure, call):
        names = {1: "getattr", 3: "lookup", 6: "read", 7: "write", 8: "create", 12: "remove", 21: "commit"}
        if status := self.note(names[procedure]):
            return u32(status, 0, 0)
        handle = call.opaque()
        if procedure == 1:
            size = len(self.data(handle) or b"")
            return u32(0, 1 if self.data(handle) is not None else 2, 0, 0, 0, 0) + u64(size) + bytes(56)
        if procedure in (3, 8, 12):
            name = call.opaque()
            if procedure == 8:
                if self.named(handle, name):
                    return u32(17, 0, 0)
                self.files[name.decode()] = bytearray()
                return u32(0, 1) + opaque(b"file:" + name) + u32(0, 0, 0)
            if not self.named(handle, name):
                return u32(2, 0, 0)
            if procedure == 12:
                del self.files[name.decode()]
                return u32(0, 0, 0)
            return u32(0) + opaque(b"file:" + name) + u32(0, 0)
        if self.data(handle) is None:
            return u32(70, 0, 0)
        offset = call.u64()
        if procedure == 6:
            data = self.read(handle, offset, call.u32())
            return u32(0, 0, len(data), 0) + opaque(data)
        if procedure == 7:
            call.fixed(8)
            data = call.opaque()
            self.write(handle, offset, data)
            return u32(0, 0, 0, len(data), 0) + bytes(8)
        return u32(0, 0, 0) + bytes(8)

    def v4(self, call):
        call.opaque()
        minor, many = call.u32(), call.u32()
        if minor != 1 or "minor" in self.fails:
            return u32(10021) + opaque(b"") + u32(0)
        out, handle, status = [], b"", 0
        for _ in range(many):
            operation = call.u32()
            status, body, handle = self.operation(operation, call, handle)
            out.append(u32(operation, status) + (body if not status else b""))
            if status:
                break
        return u32(status) + opaque(b"") + u32(len(out)) + b"".join(out)

    def operation(self, operation, call, handle):
        """(status, what follows it, the current handle)"""
        names = {
            4: "close", 5: "commit", 9: "getattr", 10: "getfh", 15: "lookup", 18: "create", 22: "putfh",
            24: "putrootfh", 25: "read", 28: "remove", 38: "write", 42: "exchange_id", 43: "create_session",
            44: "destroy_session", 53: "sequence", 57: "destroy_clientid", 58: "reclaim_complete",
        }  # fmt: skip
        name = names[operation]
        if status := self.note(name):
            return status, b"", handle
        body = b""
        if name == "exchange_id":
            with self.lock:
                self.known += 1
                client = self.known
            self.clients.add(client)
            body = u64(client) + u32(1, 0, 0)
        elif name == "create_session":
            client = call.u64()
            call.fixed(8)
            wanted = [call.u32() for _ in range(7)]
            session = u64(client) * 2
            self.sessions.add(session)
            granted = [*wanted[:5], min(wanted[5], self.slots), 0]
            body = session + u32(1, 0, *granted, *granted)
        elif name == "destroy_session":
            self.sessions.remove(call.fixed(16))
        elif name == "destroy_clientid":
            self.clients.remove(call.u64())
        elif name == "sequence":
            session = call.fixed(16)
            rest = call.fixed(16)
            if session not in self.sessions:
                return 10052, b"", handle
            body = session + rest + u32(0)
        elif name == "reclaim_complete":
            call.u32()
        elif name == "putrootfh":
            handle = ROOT
        elif name == "putfh":
            handle = call.opaque()
        elif name == "getfh":
            body = opaque(handle)
        elif name == "lookup":
            wanted = call.opaque()
            if handle == ROOT and wanted == b"export":
                return 0, b"", handle
            handle = self.named(handle, wanted)
            if not handle:
                return 2, b"", ROOT
        elif name == "getattr":
            mask = [call.u32() for _ in range(call.u32())]
            size = u64(len(self.data(handle) or b""))
            kind = u32(1 if self.data(handle) is not None else 2) if mask[0] & 2 else b""
            body = u32(1, mask[0]) + opaque(kind + size)
        elif name == "create":
            call.fixed(12)
            call.u64()
            call.opaque()
            call.fixed(8)
            call.fixed(4 * call.u32())
            call.opaque()
            call.u32()
            wanted = call.opaque()
            self.files[wanted.decode()] = bytearray()
            self.opens += 1
            handle = b"file:" + wanted
            body = bytes(16) + u32(0) + bytes(16) + u32(0, 0, 0)
        elif name == "close":
            call.fixed(20)
            self.opens -= 1
            body = bytes(16)
        elif name == "remove":
            wanted = call.opaque()
            if not self.named(handle, wanted):
                return 2, b"", handle
            del self.files[wanted.decode()]
            body = bytes(20)
        elif name == "commit":
            call.fixed(12)
            body = bytes(8)
        elif name == "read":
            call.fixed(16)
            data = self.read(handle, call.u64(), call.u32())
            body = u32(0) + opaque(data)
        elif name == "write":
            call.fixed(16)
            offset = call.u64()
            call.u32()
            data = call.opaque()
            self.write(handle, offset, data)
            body = u32(len(data), 0) + bytes(8)
        return 0, body, handle
