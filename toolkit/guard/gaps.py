"""What the second wall (see `egress`) cannot see, each shown to be open by bar G5."""

KNOWN_GAPS: dict[str, str] = {
    "open_connection": "A connection that was open before the dream began can still be used by C libraries "
    "(a database driver), through its descriptor (`os.write`, `multiprocessing.connection`), by a method "
    "that was taken off it before, and by code that belongs to no episode; `doctor` and the run's warnings "
    "list those that are open.",
    "open_file": "A file that was opened for writing before the dream began can still be written to.",
    "earlier_child": "A process that was started before the dream began runs on, and can be sent work.",
    "c_function": "A C function that was looked up with ctypes before the dream began can still be called.",
    "cffi": "C extensions and cffi libraries do their own input and output without telling Python.",
    "grpc": "gRPC connects in its C core without telling Python (Weaviate's client, many cloud clients).",
    "libpq": "psycopg connects through libpq, in C, without telling Python.",
    "rust_client": "HTTP clients written in Rust connect without telling Python.",
    "uvloop": "A uvloop event loop connects and starts programs through libuv without telling Python; "
    "the kit's own loop refuses to be one.",
    "sqlite_attach": "SQL can attach and write a second database file on an allowed SQLite connection, "
    "also on one in memory.",
    "name_lookup": "socket.connect((name, port)) looks the name up before Python tells; "
    "the connection itself is refused.",
    "special_file": "os.mkfifo and os.mknod make special files without telling Python.",
    "pidfd": "signal.pidfd_send_signal sends a signal to another process without telling Python.",
    "folder_descriptor": "os.open(name, flags, dir_fd=...) is judged as if `name` lay in the working "
    "directory, which matters only where that is allowed.",
}
"""What the guard cannot see, one plain sentence each; bar G5 shows that each is really open."""
