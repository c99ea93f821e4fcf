"""A small service that speaks FTS3's REST interface as its real client uses it, and really copies files.

Run in the server's environment as `python -m sandbox_server.fts FOLDER`. The words are FTS3's: a job has files,
a file goes from a source to a destination (its surl), a storage (se) is scheme and host without the port.
"""
