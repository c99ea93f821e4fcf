"""The configuration files of a sandbox: the server's, the two clients', and the schema tool's."""

from __future__ import annotations

from pathlib import Path

_SERVER = """\
[common]
logdir = {folder}/log
loglevel = ERROR

[database]
default = {database}

[bootstrap]
userpass_identity = root
userpass_pwd = {root_password}

[policy]
package = sandbox_server.{policy}
permission = generic
schema = generic

[conveyor]
{conveyor}
[transfers]
multihop_rse_expression =

[cache]
# no process listens there, so that Rucio caches nothing and shares nothing with a memcached of this machine
url = 127.0.0.1:1

[alembic]
cfg = {folder}/alembic.ini
"""

_WITHOUT_BYTES = """\
scheme = mock
transfertool = mock
"""

# what FTS cannot carry, as one end has no bytes, goes on to the other; seconds, or a silent FTS stops all daemons
_WITH_BYTES = """\
scheme = http,mock
transfertool = fts3,mock
submit_timeout = 30
poll_timeout = 30
"""

# alembic.ini, without which no database is made
ALEMBIC = """\
[alembic]
script_location = rucio:db/sqla/migrate_repo
sqlalchemy.url = {database}

[loggers]
keys = root

[handlers]
keys = console

[formatters]
keys = generic

[logger_root]
level = WARN
handlers = console
qualname =

[handler_console]
class = StreamHandler
args = (sys.stderr,)
level = NOTSET
formatter = generic

[formatter_generic]
format = %(levelname)s %(message)s
"""

# rucio.cfg of one account
CLIENT = """\
[client]
rucio_host = {url}
auth_host = {url}
auth_type = userpass
username = {account}
password = {password}
account = {account}
request_timeout = 20
auth_token_file_path = {folder}/token.{account}
request_retries = 3
"""

# With TLS configured, as XRootD leaves third-party copies out without it; plain http works at the same port. All
# storages have addresses of this machine, to which XRootD 6 copies only if allowed; version 5 ignores those lines.
# It wants absolute paths, short ones for sockets, and none with a space: so all go by its working folder.
_STORAGE = """\
all.export /
all.adminpath /proc/self/cwd/admin
all.pidpath /proc/self/cwd/admin
oss.localroot /proc/self/cwd/data
xrd.port {port}
xrd.network nodnr
xrootd.chksum max 64 adler32
xrd.tls /proc/self/cwd/host.pem /proc/self/cwd/host.key
xrd.tlsca certdir /proc/self/cwd/certificates
xrd.protocol XrdHttp:{port} libXrdHttp.so
http.exthandler xrdtpc libXrdHttpTPC.so
http.desthttps no
http.selfhttps2http no
tpc.allow local
tpc.allow private
"""

# postgresql.conf, for a server that listens on this socket only.
# What a crash of the machine would lose does not matter here, so nothing waits for the disk. Shared memory lies in
# files of the data folder, since files elsewhere would outlive a kill. No statement waits for a row forever.
POSTGRES = """\
listen_addresses = ''
unix_socket_directories = '{socket}'
hba_file = 'hba.conf'
ident_file = 'ident.conf'
max_connections = 64
dynamic_shared_memory_type = mmap
fsync = off
synchronous_commit = off
full_page_writes = off
max_wal_size = 256MB
lock_timeout = 5s
log_min_error_statement = panic
timezone = 'UTC'
log_timezone = 'UTC'
"""

_THROTTLE = """\
xrootd.fslib throttle default
throttle.throttle data {rate}
"""


def sqlite_address(folder: Path) -> str:
    """Write the address of the database in a file, for SQLAlchemy."""
    return f"sqlite:///{folder}/rucio.db?timeout=60"


def server_settings(folder: Path, database: str, policy: str, root_password: str, *, storages: bool) -> str:
    """Write rucio.cfg of the server and its daemons, for a grid with storages or without."""
    conveyor = _WITH_BYTES if storages else _WITHOUT_BYTES
    return _SERVER.format(
        folder=folder, database=database, policy=policy, root_password=root_password, conveyor=conveyor
    )


def storage_settings(port: int, rate: int | None) -> str:
    """Write the settings of a storage; `rate` is in bytes per second."""
    return _STORAGE.format(port=port) + (_THROTTLE.format(rate=rate) if rate else "")
