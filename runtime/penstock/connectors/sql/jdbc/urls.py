"""JDBC's URLs as SQLAlchemy's."""

from __future__ import annotations

from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from penstock.common.errors import InvalidJob

_SCHEMES = {"mysql": "mysql+pymysql", "mariadb": "mariadb+pymysql", "postgresql": "postgresql+psycopg"}
_PORTS = {"mysql": 3306, "mariadb": 3306, "postgresql": 5432}
_CREDENTIALS = ("user", "password")
_DONE_ANYWAY = frozenset(
    {
        "useunicode",
        "characterencoding",
        "connectioncollation",
        "rewritebatchedstatements",
        "usecompression",
        "autoreconnect",
    }
    | {
        "allowpublickeyretrieval",
        "useserverprepstmts",
        "cacheprepstmts",
        "servertimezone",
        "connectiontimezone",
        "usemysqlmetadata",
    }
    | {
        "jdbccomplianttruncation",
        "uselegacydatetimecode",
        "zerodatetimebehavior",
        "rewritebatchedinserts",
        "prepthreshold",
    }
    | {"tcpkeepalive", "reWriteBatchedInserts".lower(), "forceconnectiontimezonetosession"}
)
"""Of Java's drivers, without effect here: the session is in UTC and utf8mb4, and batches go as one statement."""
_SAME = {
    "postgresql": {"sslmode": "sslmode", "sslrootcert": "sslrootcert", "sslcert": "sslcert", "sslkey": "sslkey"}
    | {"ApplicationName": "application_name", "options": "options", "targetServerType": ""},
    "mysql": {},
    "mariadb": {},
}
_OFF = (
    "usessl=false",
    "sslmode=disable",
    "sslmode=disabled",
    "ssl=false",
    "requiressl=false",
    "verifyservercertificate=false",
)


def sqlalchemy_url(url: str, user: str | None = None, password: str | None = None) -> str:
    """The URL of the same database, with these credentials, where it has none of its own.

    Raises:
        InvalidJob: a database or parameter that is not known here; says how to write it for SQLAlchemy.

    >>> sqlalchemy_url("jdbc:mysql://db/shop?useSSL=false", "job", "s3c/ret")
    'mysql+pymysql://job:s3c%2Fret@db:3306/shop'
    >>> sqlalchemy_url("jdbc:sqlite:/data/shop.db"), sqlalchemy_url("jdbc:postgresql:shop", "job")
    ('sqlite:////data/shop.db', 'postgresql+psycopg://job@localhost:5432/shop')
    """
    if not url.startswith("jdbc:"):
        return _with_credentials(url, user, password)
    rest = url.removeprefix("jdbc:")
    name = rest.partition(":")[0]
    if name == "sqlite":
        return f"sqlite:///{rest.removeprefix('sqlite:').partition('?')[0]}"
    if name not in _SCHEMES:
        raise InvalidJob(
            f"a JDBC URL of {name!r}, whose drivers are Java's",
            remedy="with_url takes SQLAlchemy's URL as well, of any database that it has a driver for: 'oracle+oracledb://user@host/…', "
            "'mssql+pyodbc://…', with the package of that driver in the image",
        )
    if not rest.startswith(f"{name}://"):
        rest = f"{name}://localhost/{rest.removeprefix(f'{name}:').lstrip('/')}"
    try:
        parts = urlsplit(rest)
        host, port = parts.hostname or "localhost", parts.port or _PORTS[name]
    except ValueError:
        raise _not_understood("host or port (special characters of user and password are written as %2F)") from None
    if "," in parts.netloc or "(" in parts.netloc:
        raise _not_understood("several hosts")
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    user = unquote(parts.username or "") or given.get("user") or user
    password = unquote(parts.password or "") or given.get("password") or password
    query = _parameters(name, {key: value for key, value in given.items() if key not in _CREDENTIALS})
    host = f"[{host}]" if ":" in host else host
    tail = f"?{urlencode(query)}" if query else ""
    return _with_credentials(f"{_SCHEMES[name]}://{host}:{port}{parts.path}{tail}", user, password)


def _not_understood(why: object) -> InvalidJob:
    return InvalidJob(
        f"the JDBC URL cannot be understood: {why}",
        remedy="write 'jdbc:mysql://host:port/database', or SQLAlchemy's URL",
    )


def _parameters(name: str, given: dict[str, str]) -> dict[str, str]:
    found = {}
    for key, value in given.items():
        same = _SAME[name].get(key)
        if same:
            found[same] = value
        elif key == "currentSchema" and name == "postgresql":
            found["options"] = f"-csearch_path={value}"
        elif key.lower() not in _DONE_ANYWAY and f"{key}={value}".lower() not in _OFF:
            raise InvalidJob(
                f"{key}= in a JDBC URL of {name}",
                remedy="leave it out, or write SQLAlchemy's URL with the parameter of the Python driver: "
                f"'{_SCHEMES[name]}://user@host/database?ssl_ca=/certificates/ca.pem'",
            )
    return found


def _with_credentials(url: str, user: str | None, password: str | None) -> str:
    """SQLAlchemy's URL; what it has of its own stays."""
    from penstock.connectors.sql.server import package

    if not user and not password:
        return url
    try:
        parsed = package().make_url(url)
    except (package("sqlalchemy.exc").ArgumentError, ValueError):
        raise _not_understood("it is none of SQLAlchemy's") from None  # it may show the password
    parsed = parsed.set(username=parsed.username or user, password=parsed.password or password)
    return str(parsed.render_as_string(hide_password=False))
