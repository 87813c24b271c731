"""Conversion of JDBC URLs to SQLAlchemy URLs."""

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
"""Parameters of the Java drivers that have no effect here. The session always uses UTC and utf8mb4, and sends a batch as one statement."""
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
    """Return the SQLAlchemy URL of the same database. Credentials within the URL override `user` and `password`.

    Raises:
        InvalidJob: the database or a parameter is not supported. The remedy shows the form for SQLAlchemy.

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
            f"JDBC URLs of {name!r} are not supported, because their drivers need Java",
            remedy="give with_url an SQLAlchemy URL, such as 'oracle+oracledb://user@host/…' or 'mssql+pyodbc://…', "
            "and install the package of that driver in the image",
        )
    if not rest.startswith(f"{name}://"):
        rest = f"{name}://localhost/{rest.removeprefix(f'{name}:').lstrip('/')}"
    try:
        parts = urlsplit(rest)
        host, port = parts.hostname or "localhost", parts.port or _PORTS[name]
    except ValueError:
        raise _not_understood("wrong host or port (write special characters of user and password as %2F)") from None
    if "," in parts.netloc or "(" in parts.netloc:
        raise _not_understood("it has several hosts")
    parameters = dict(parse_qsl(parts.query, keep_blank_values=True))
    user = unquote(parts.username or "") or parameters.get("user") or user
    password = unquote(parts.password or "") or parameters.get("password") or password
    query = _parameters(name, {key: value for key, value in parameters.items() if key not in _CREDENTIALS})
    host = f"[{host}]" if ":" in host else host
    tail = f"?{urlencode(query)}" if query else ""
    return _with_credentials(f"{_SCHEMES[name]}://{host}:{port}{parts.path}{tail}", user, password)


def _not_understood(reason: object) -> InvalidJob:
    return InvalidJob(
        f"the JDBC URL cannot be parsed: {reason}",
        remedy="write 'jdbc:mysql://host:port/database', or an SQLAlchemy URL",
    )


def _parameters(name: str, parameters: dict[str, str]) -> dict[str, str]:
    found = {}
    for key, value in parameters.items():
        same = _SAME[name].get(key)
        if same:
            found[same] = value
        elif key == "currentSchema" and name == "postgresql":
            found["options"] = f"-csearch_path={value}"
        elif key.lower() not in _DONE_ANYWAY and f"{key}={value}".lower() not in _OFF:
            raise InvalidJob(
                f"the parameter {key}= in a JDBC URL of {name} is not supported",
                remedy="leave it out, or write an SQLAlchemy URL with the parameter of the Python driver: "
                f"'{_SCHEMES[name]}://user@host/database?ssl_ca=/certificates/ca.pem'",
            )
    return found


def _with_credentials(url: str, user: str | None, password: str | None) -> str:
    """Return the SQLAlchemy URL with these credentials. Credentials within the URL override them."""
    from penstock.connectors.sql.server import package

    if not user and not password:
        return url
    try:
        parsed = package().make_url(url)
    except (package("sqlalchemy.exc").ArgumentError, ValueError):
        raise _not_understood("it is not an SQLAlchemy URL") from None  # the error may contain the password
    parsed = parsed.set(username=parsed.username or user, password=parsed.password or password)
    return str(parsed.render_as_string(hide_password=False))
